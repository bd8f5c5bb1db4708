"""Shared by sources: read tables, convert boxes, find images and their sizes, and name file, line and id in errors."""

import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar

from grounding_rewards.boxes import ORDERS
from grounding_rewards.common.text_files import check_columns, text_lines
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.images.decoding import image_size
from grounding_rewards.images.dicom import DICOM_SUFFIXES, dicom_uid, is_dicom
from grounding_rewards.sources.base import Images, sound_images, split_name

_T = TypeVar("_T")


class RowPlace(NamedTuple):
    """The place of a row, for errors: its file, the number of its line or entry, and the id of its image.

    Example:
        >>> place = RowPlace("train.csv", 7, "a1")
        >>> place.error("four numbers for the box", ("1", ""), "Correct the row.")
        ValueError("Expected four numbers for the box in line 7 of train.csv (id a1), got ('1', ''). Correct the row.")
        >>> place.numbers(("1", "2.5", "30", "4e1")), place.one_of({"1": "bone"}, "1")
        ([1.0, 2.5, 30.0, 40.0], 'bone')
    """

    path: str | Path
    line: int
    image: str

    def error(self, expected: str, got: object, fix: str = "Correct or drop the row.") -> ValueError:
        """The error to raise for this row: what was expected, what it has, and what to do."""
        kind = "entry" if Path(str(self.path).removesuffix(".gz")).suffix in (".json", ".xml") else "line"
        position = f"{kind} {self.line} of {self.path} (id {self.image})"
        return ValueError(f"Expected {expected} in {position}, got {got!r:.400}. {fix}")

    def numbers(self, cells: Sequence[str]) -> list[float]:
        """Read cells as numbers.

        Raises:
            ValueError: a cell is empty, no number or not finite.
        """
        try:
            numbers = [float(cell) for cell in cells]
        except ValueError:
            # Refused below, as a cell that says nan is.
            numbers = [math.nan]
        if not all(map(math.isfinite, numbers)):
            raise self.error(f"{len(cells)} finite numbers", tuple(cells))
        return numbers

    def box(self, cells: Sequence[str], order: str = "xyxy") -> list[float]:
        """Read four cells, in an order of `boxes.ORDERS`, as a box xyxy; raises as `numbers`."""
        if len(cells) != 4:
            raise self.error("4 finite numbers", tuple(cells))
        return list(ORDERS[order].to_xyxy(*self.numbers(cells)))

    def one_of(self, names: Mapping[str, _T], name: str) -> _T:
        """The value of a name in a mapping.

        Raises:
            ValueError: the mapping does not have the name; its names are listed.
        """
        if name not in names:
            raise self.error(f"one of {', '.join(names)}", name, "Correct the row.")
        return names[name]

    def class_name(self, value: Any, classes: Sequence[str]) -> str:
        """The name of the class in a row, which has the name itself, or the number of the class from 0.

        Args:
            value: in the row.
            classes: all names in their order; may be empty if rows have names.

        Raises:
            ValueError: a number without a name, or a name that is not among the classes.
        """
        text = str(value)
        # pandas writes the whole numbers of a column with gaps as 1.0.
        number = text.removesuffix(".0")
        if number.isdecimal() and int(number) < len(classes):
            return classes[int(number)]
        if isinstance(value, str) and not number.isdecimal() and (not classes or text in classes):
            return text
        expected = f"a class from 0 to {len(classes) - 1}" if classes else "the name of a class"
        raise self.error(expected, value, "Name all classes in their order: --option classes=mass,nodule.")


TableRow = tuple[RowPlace, tuple[str, ...]]
"""The place of a row, and the cells of the wanted columns, in the wanted order."""
Size = tuple[int, int]
"""Width and height in pixels."""

_SIZE_COLUMNS = (("width", "height"), ("image_width", "image_height"), ("columns", "rows"), ("dim1", "dim0"))

# DICOM PS3.5 9.1: numbers with points between them.
_UID = re.compile(r"[0-2](?:\.\d+){4,}")
#: The only subset of a task of CVAT that was not divided: no split.
NO_SUBSET = "default"

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", *DICOM_SUFFIXES)


def find_file(root: str | Path, *names: str, remedy: str = "Point to the folder that holds it.") -> Path:
    """The first of several files or folders that exists below a folder, also with `.gz` behind its name.

    Args:
        root: the folder of the dataset.
        names: paths relative to it, the most likely first.
        remedy: what to do if none exists, for the error.

    Raises:
        ValueError: none of them exists.

    Example:
        >>> find_file("no such folder", "train.csv", "annotations/train.csv")
        Traceback (most recent call last):
        ...
        ValueError: Expected train.csv or annotations/train.csv in the folder for `root`, got 'no such folder' \
without. Point to the folder that holds it.
    """
    path = optional_file(root, *names)
    if path is None:
        expected = " or ".join(names)
        raise ValueError(f"Expected {expected} in the folder for `root`, got {str(root)!r} without. {remedy}")
    return path


def optional_file(root: str | Path, *names: str) -> Path | None:
    """As :func:`find_file`, but None if no file exists."""
    for name in names:
        for path in (Path(root, name), Path(root, f"{name}.gz")):
            if path.exists():
                return path
    return None


def check_split(split: str | None, split_names: Iterable[str | None]) -> None:
    """Refuse a split that the dataset does not have; None, for all of them, is always legal.

    Args:
        split: the wanted one.
        split_names: of the dataset, or of its images; None, and a name that occurs again, are passed over.

    Example:
        >>> check_split("val", ["train", None, "test", "train"])
        Traceback (most recent call last):
        ...
        ValueError: Expected one of train, test or None for split, got 'val'. Choose a split of the dataset.
    """
    names = [name for name in dict.fromkeys(split_names) if name is not None]
    if split is not None and split not in names:
        if not names:
            raise ValueError(f"Expected None for split, got {split!r}. Leave it out: the dataset has no splits.")
        raise ValueError(
            f"Expected one of {', '.join(names)} or None for split, got {split!r}. Choose a split of the dataset."
        )


def split_paths(root: str | Path, split: str | None, files: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """The file of a split, or of each split, by its name; refuses an unknown split.

    Args:
        root: the folder of the dataset.
        split: the wanted one; None takes all.
        files: by split the possible paths of its file, as `find_file` takes them.
    """
    check_split(split, files)
    return {name: find_file(root, *names) for name, names in files.items() if split in (None, name)}


def split_files(
    root: str | Path, pattern: str, split: str | None, option: str = "annotations"
) -> list[tuple[str | None, str, Path]]:
    """Find the files of a split, or of all splits, by a pattern.

    Args:
        root: the folder of the dataset.
        pattern: path relative to it. `{split}` stands for the name of the split, as often as it occurs; a pattern
            without it is one file without a split, as is a single file whose split is called `default`.
        split: `validation` finds `val`, `valid` and `dev` too; None takes all.
        option: of the source that names the pattern, for the error.

    Returns:
        Name of the split, its spelling in the file's name, and the file; sorted by the file's name.

    Raises:
        ValueError: there is no such file; the message lists other files of its type. Or a pattern with `{split}` is no
            relative path.
    """
    root = Path(root)
    files: list[tuple[str | None, str, Path]] = []
    if "{split}" not in pattern:
        # The file is of no split, so that none can be asked for.
        check_split(split, ())
        if (root / pattern).is_file():
            files.append((None, "", root / pattern))
    elif PurePath(pattern).is_absolute():
        raise ValueError(
            f"Expected a path relative to the root for {option}, got {pattern!r}. Name it from {str(root)!r} on."
        )
    else:
        # `as_posix` takes off a ./ in front, which the relative paths below do not have.
        text_before, *texts_behind = map(re.escape, PurePath(pattern).as_posix().split("{split}"))
        # The first `{split}` captures a name, and the same name has to stand for each further one.
        path_pattern = re.compile(text_before + "([^/]+)" + r"\1".join(texts_behind))
        for path in sorted(root.glob(pattern.replace("{split}", "*"))):
            match = path_pattern.fullmatch(path.relative_to(root).as_posix())
            if match:
                files.append((split_name(match[1]), match[1], path))
        # CVAT calls the only file of a task that was not divided `default`.
        if [name for name, _, _ in files] == [NO_SUBSET]:
            files = [(None, NO_SUBSET, path) for _, _, path in files]
    if not files:
        other_files = sorted(path.relative_to(root).as_posix() for path in root.rglob(f"*{Path(pattern).suffix}"))[:5]
        raise ValueError(
            f"Expected {pattern} in the folder for `root`, got {str(root)!r} with "
            f"{', '.join(other_files) or 'no such file'}. "
            f"Name the file: --option {option}=FILE, in which {{split}} stands for the name of the split."
        )
    check_split(split, (name for name, _, _ in files))
    return [(name, spelling, path) for name, spelling, path in files if split in (None, name)]


def read_header(path: str | Path, separator: str = ",") -> list[str]:
    """The names of the columns of a CSV file; the last ones may be empty.

    Raises:
        ValueError: the file is empty, no UTF-8 text or no CSV, or two columns have one name.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.tsv").write_text("image_id\\t x\\na\\t1\\n")
        ...     read_header(Path(root, "a.tsv"), "\\t")
        ['image_id', 'x']
    """
    # The line and the cells of the first row; an empty file has none, and so no names.
    _line, header = next(_stripped_rows(path, separator), (0, []))
    if not any(header):
        raise ValueError(f"Expected a header in {path}, got an empty file. Download the file again.")
    check_columns(header, str(path))
    return header


def read_rows(
    path: str | Path, columns: Sequence[str] | None = None, optional: Sequence[str] = (), separator: str = ","
) -> list[TableRow]:
    """Read the rows of a CSV file with a header; the wanted columns are found by name.

    Names are compared without case and without spaces around them, because releases of one dataset differ there
    (`rad_ID` and `rad_id`, ` EncodedPixels`). A byte order mark is taken off, all line endings are understood, blank
    lines are left out, and a file that ends in `.gz` is unpacked. Missing and additional empty cells at the end of a
    row, which spreadsheets make, are accepted.

    Args:
        path: a CSV file.
        columns: required columns; None takes all.
        optional: columns that may be missing; their cells are then empty.
        separator: between cells.

    Returns:
        Rows whose cells are stripped texts, first those of `columns`, then those of `optional`. The first cell is the
        id of the image in the row's place.

    Raises:
        ValueError: a column is missing; a row has too few or too many cells; or as `read_header`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.csv").write_text("image_id,rad_ID, x\\na,R1,1\\n")
        ...     [cells for _, cells in read_rows(Path(root, "a.csv"), ("x", "image_id"), ("rad_id", "split"))]
        [('1', 'a', 'R1', '')]
    """
    header = read_header(path, separator)
    names = [name.lower() for name in header]
    missing = [name for name in columns or () if name.lower() not in names]
    if missing:
        raise ValueError(
            f"Expected the columns {', '.join(columns or ())} in {path}, got {', '.join(header)} without "
            f"{', '.join(missing)}. Take the file as it was published."
        )
    header_cells = len(header)
    # The last columns of a header may have no name, and their cells may be missing.
    named_cells = max(number for number, name in enumerate(header, start=1) if name)
    indices = list(range(header_cells))
    if columns is not None:
        wanted_names = [name.lower() for name in (*columns, *optional)]
        # An optional column that is missing has the index of an empty cell, which is added behind each row.
        indices = [names.index(name) if name in names else header_cells for name in wanted_names]
    rows: list[TableRow] = []
    # The first row is the header.
    for line, row in islice(_stripped_rows(path, separator), 1, None):
        if len(row) < named_cells or any(row[header_cells:]):
            # The cell with the id of the image may be among those that a short row lacks.
            image = row[indices[0]] if indices[0] < len(row) else "-"
            raise RowPlace(path, line, image).error(f"{named_cells} cells, as in the header,", len(row))
        # At least one empty cell stands behind the columns, for an optional one that is missing.
        row += [""] * (header_cells + 1 - len(row))
        cells = tuple([row[index] for index in indices])
        rows.append((RowPlace(path, line, cells[0]), cells))
    return rows


def optional_rows(root: str | Path, name: str, columns: Sequence[str], optional: Sequence[str] = ()) -> list[TableRow]:
    """The rows of a table below a folder, as :func:`read_rows`; none if there is no such file."""
    path = optional_file(root, name)
    return [] if path is None else read_rows(path, columns, optional)


def _stripped_rows(path: str | Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of a CSV file that is not blank: the number of its last line, and its stripped cells."""
    # A blank line is added at the end, to see below whether a quoted cell that nobody closed takes it in.
    reader = csv.reader(chain(_split_lines(path), ["\n"]), delimiter=separator)
    row: list[str] = []
    first_line = last_line = 0
    try:
        for row in reader:
            # A row has several lines where a quoted cell holds line breaks: it begins below the end of the row before.
            first_line, last_line = last_line + 1, reader.line_num
            # A blank line is a row without cells.
            if row:
                yield last_line, [cell.strip() for cell in row]
    except csv.Error as error:
        raise ValueError(
            f"Expected CSV in {path}, got {error} in line {reader.line_num}. Download the file again."
        ) from error
    # The last row should be the blank line that was added.
    if row:
        raise ValueError(
            f"Expected an end of every quoted cell in {path}, got none for one in the row of line {first_line}, which "
            "takes all lines below it. Close the quote, or remove it."
        )


def table_images(
    make: Callable[[str, list[TableRow]], AnnotatedImage | None],
    path: str | Path,
    columns: Sequence[str],
    optional: Sequence[str] = (),
) -> Images:
    """Group the rows of a CSV file by image, and make an image from the rows of each.

    Args:
        make: a function of the id of an image and its rows; for an image that is left out it returns None.
        path: a CSV file with a header, which is read at the call.
        columns: required columns; the first one has the id of the image.
        optional: columns that may be missing.

    Returns:
        The images, in the order of their first rows.

    Raises:
        ValueError: as `image_rows`.

    Example:
        >>> import tempfile
        >>> def image(name, rows):
        ...     return AnnotatedImage(name, f"{name}.png", [], [cells[1] for _, cells in rows])
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.csv").write_text("id,x\\na,1\\nb,2\\na,3\\n")
        ...     images = list(table_images(image, Path(root, "a.csv"), ("id", "x")))
        >>> [(image.id, image.labels) for image in images]
        [('a', ['1', '3']), ('b', ['2'])]
    """
    return sound_images(make, image_rows(path, columns, optional).items())


def image_rows(path: str | Path, columns: Sequence[str], optional: Sequence[str] = ()) -> dict[str, list[TableRow]]:
    """The rows of a CSV file by image; the arguments are those of `table_images`.

    Raises:
        ValueError: as `read_rows`, or a row without an id.
    """
    rows_of_images: dict[str, list[TableRow]] = {}
    for place, cells in read_rows(path, columns, optional):
        if not place.image:
            raise place._replace(image="-").error(f"an id for {columns[0]}", "")
        rows_of_images.setdefault(place.image, []).append((place, cells))
    return rows_of_images


def scaled_box(box: Sequence[float], scale_x: float, scale_y: float) -> list[float]:
    """Scale the axes of an xyxy box: with the size of the image, fractions become pixels.

    Example:
        >>> scaled_box([0.25, 0.5, 0.75, 1.0], 400, 200)
        [100.0, 100.0, 300.0, 200.0]
    """
    x1, y1, x2, y2 = box
    return [x1 * scale_x, y1 * scale_y, x2 * scale_x, y2 * scale_y]


def outline_box(numbers: Sequence[float]) -> list[float]:
    """The box around an outline x1, y1, x2, y2, x3, ...

    Example:
        >>> outline_box([5, 1, 9, 4, 2, 3])
        [2, 1, 9, 4]
    """
    xs, ys = numbers[::2], numbers[1::2]
    return [min(xs), min(ys), max(xs), max(ys)]


def turned_box(box: Sequence[float], degrees: float) -> list[float]:
    """The box around an xyxy box that is turned about its middle, in either direction.

    Example:
        >>> turned_box([10, 20, 30, 60], 90)
        [0.0, 30.0, 40.0, 50.0]
    """
    # Most boxes are not turned: they keep their exact numbers.
    if degrees % 360 == 0:
        return list(box)
    x1, y1, x2, y2 = box
    # Absolute: each adds to a width, whatever the direction.
    cos, sin = abs(math.cos(math.radians(degrees))), abs(math.sin(math.radians(degrees)))
    width = (x2 - x1) * cos + (y2 - y1) * sin
    height = (x2 - x1) * sin + (y2 - y1) * cos
    middle_x, middle_y = (x1 + x2) / 2, (y1 + y2) / 2
    corners = (middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2)
    # The cosine of a right angle is computed as 6e-17 instead of 0: rounded, whole numbers stay whole.
    return [round(value, 6) for value in corners]


def read_sizes(path: str | Path, key: str) -> dict[str, Size]:
    """Read the sizes of images from a table; width and height are found by the names of their columns.

    Args:
        path: a CSV file with `width` and `height`, `image_width` and `image_height`, DICOM's `Columns` and `Rows`,
            or `dim1` and `dim0`, as in copies of VinDr-CXR on Kaggle (`dim0` is the height).
        key: the column with the id of the image.

    Raises:
        ValueError: no such columns, a size that is not two positive whole numbers, or two sizes for one image.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "sizes.csv").write_text("image_id,height,width\\na,20,30\\n")
        ...     read_sizes(Path(root, "sizes.csv"), "image_id")
        {'a': (30, 20)}
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"Expected a CSV file with the sizes of the images for sizes, got {str(path)!r}. Write it.")
    header = read_header(path)
    names = {name.lower() for name in header}
    columns = next((pair for pair in _SIZE_COLUMNS if names.issuperset(pair)), None)
    if columns is None:
        size_columns = ", ".join(f"{width} and {height}" for width, height in _SIZE_COLUMNS)
        raise ValueError(
            f"Expected one of the pairs {size_columns} among the columns of {path}, got {', '.join(header)}. "
            "Name the columns so."
        )
    sizes: dict[str, Size] = {}
    for place, (image, *cells) in read_rows(path, (key, *columns)):
        width, height = place.numbers(cells)
        size = (int(width), int(height))
        # Fractions differ from their whole numbers, and a second row of an image may have another size.
        if size != (width, height) or min(size) < 1 or sizes.setdefault(image, size) != size:
            raise place.error("one size of positive whole numbers per image", tuple(cells), "Correct the row.")
    return sizes


def known_size(sizes: Mapping[str, Size] | None, place: RowPlace) -> Size | tuple[None, None]:
    """Width and height of the image of a row, from a table of sizes; both are None without a table.

    Raises:
        ValueError: the table does not have the image.

    Example:
        >>> known_size({"a": (30, 20)}, RowPlace("train.csv", 7, "a")), known_size(None, RowPlace("train.csv", 7, "a"))
        ((30, 20), (None, None))
    """
    if sizes is None:
        return None, None
    if place.image not in sizes:
        raise place.error("an image whose size is known", place.image, "Add it to the table of sizes.")
    return sizes[place.image]


def header_size(path: str | Path) -> Size:
    """Width and height of an image or DICOM file, upright, without decoding its pixels.

    Raises:
        ValueError: there is no such file, or it is no image.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Image.new("L", (30, 20)).save(Path(root, "a.png"))
        ...     header_size(Path(root, "a.png"))
        (30, 20)
    """
    return image_size({"bytes": None, "path": Path(path)})


def image_finder(root: str | Path, suffixes: Sequence[str] = IMAGE_SUFFIXES) -> Callable[..., str]:
    """Make a function that finds the files of images anywhere below the folder of a dataset.

    Often only PNG or JPEG copies of DICOM files are kept, in other folders than the published ones.

    Args:
        root: the folder of the dataset; links are not followed.
        suffixes: endings that count as an image, in lower case.

    Returns:
        A function of the name of an image, with or without its ending, and of its published path. It returns the path
        of the file relative to the root: the published one if it exists; else a DICOM file, or else a copy, of this
        name; else a DICOM file with this SOPInstanceUID; else the published path, which is empty by default. The folder
        is searched at the first image that needs it. Two files that could be meant raise `ValueError`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Path(root, "a.png").touch()
        ...     find = image_finder(root)
        ...     find("a", "train/a.dicom"), find("a.png"), find("b", "train/b.dicom")
        ('a.png', 'a.png', 'train/b.dicom')
    """

    @cache
    def paths_by_stem() -> dict[str, tuple[str, ...]]:
        """Paths relative to the root by the name of the file without its ending; texts, as there are very many."""
        paths: dict[str, tuple[str, ...]] = {}
        for folder, subfolders, names in os.walk(root):
            subfolders.sort()
            relative_folder = Path(folder).relative_to(root).as_posix()
            for name in names:
                if name.lower().endswith(tuple(suffixes)):
                    path = name if relative_folder == "." else f"{relative_folder}/{name}"
                    stem, _ = os.path.splitext(name)
                    paths[stem] = (*paths.get(stem, ()), path)
        return paths

    @cache
    def paths_by_uid() -> dict[str, tuple[str, ...]]:
        """Paths of DICOM files by the SOPInstanceUID in their headers: one path each, in a tuple as above."""
        dicom_paths = [path for path in chain.from_iterable(paths_by_stem().values()) if is_dicom(path)]
        return {dicom_uid(os.path.join(root, path)): (path,) for path in dicom_paths}

    def find(name: str, published: str = "") -> str:
        """The path of an image relative to the root, see :func:`image_finder`."""
        if published and os.path.isfile(os.path.join(root, published)):
            return published
        file = os.path.basename(name)
        # First as a name without its ending: an id may hold dots, and what looks like an ending be none.
        candidates: Sequence[str] = paths_by_stem().get(file, ())
        if not candidates:
            stem, _ = os.path.splitext(file)
            candidates = [path for path in paths_by_stem().get(stem, ()) if os.path.basename(path) == file]
        if not candidates and _UID.fullmatch(file):
            candidates = paths_by_uid().get(file, ())
        # Where several folders have a file of this name, the folders in the name tell which is meant.
        full_stem = os.path.splitext(name)[0] if name.lower().endswith(tuple(suffixes)) else name
        same_folders = [path for path in candidates if os.path.splitext(f"/{path}")[0].endswith(f"/{full_stem}")]
        candidates = same_folders or candidates
        # A DICOM file is the original of its copies.
        candidates = [path for path in candidates if is_dicom(path)] or candidates
        if len(candidates) > 1:
            raise ValueError(
                f"Expected one image of the name {name!r} below {str(root)!r}, got {' and '.join(candidates[:3])}. "
                "Move the others elsewhere, or name the path in the table."
            )
        return candidates[0] if candidates else published

    return find


def _split_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a CSV file; single carriage returns, as old spreadsheets write them, end lines too."""
    for line in text_lines(path):
        # Only a \r before the line's own end, which may be \r\n, divides it.
        if "\r" in line[:-2]:
            yield from io.StringIO(line, newline="")
        else:
            yield line
