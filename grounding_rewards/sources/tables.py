"""Shared by sources: tables, boxes in other conventions, sizes of images, errors that name file, line and id."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from grounding_rewards.boxes import ORDERS
from grounding_rewards.common.text_files import check_columns, text_lines
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.images.decoding import image_size
from grounding_rewards.images.dicom import DICOM_SUFFIXES, dicom_uid, is_dicom
from grounding_rewards.sources.base import Images, sound_images, split_name

_T = TypeVar("_T")


class RowPlace(NamedTuple):
    """Where a row is, for errors: its file, the number of its line or entry, and the id of its image.

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
        """The error for a row that cannot be read: what was expected, where, what is there, and what to do."""
        kind = "entry" if Path(self.path).suffix in (".json", ".xml") else "line"
        position = f"{kind} {self.line} of {self.path} (id {self.image})"
        return ValueError(f"Expected {expected} in {position}, got {got!r:.400}. {fix}")

    def numbers(self, cells: Sequence[str]) -> list[float]:
        """The numbers of cells, such as those of a box.

        Raises:
            ValueError: a cell is empty, no number or not finite.
        """
        try:
            numbers = [float(cell) for cell in cells]
        except ValueError:
            numbers = [math.nan]
        if not all(map(math.isfinite, numbers)):
            raise self.error(f"{len(cells)} finite numbers", tuple(cells))
        return numbers

    def box(self, cells: Sequence[str], order: str = "xyxy") -> list[float]:
        """The box, xyxy, of four cells in an order of `boxes.ORDERS`; raises as `numbers`."""
        if len(cells) != 4:
            raise self.error("4 finite numbers", tuple(cells))
        return list(ORDERS[order].to_xyxy(*self.numbers(cells)))

    def one_of(self, names: Mapping[str, _T], name: str) -> _T:
        """The entry of a mapping.

        Raises:
            ValueError: there is none of this name; the known names are listed.
        """
        if name not in names:
            raise self.error(f"one of {', '.join(names)}", name, "Correct the row.")
        return names[name]

    def class_name(self, value: Any, classes: Sequence[str]) -> str:
        """The name of a class that a row names, or numbers from 0 on.

        Raises:
            ValueError: a number without a name, or, where `classes` are given, a name that is none of them.
        """
        text = str(value)
        number = text.removesuffix(".0")
        if number.isdecimal() and int(number) < len(classes):
            return classes[int(number)]
        if isinstance(value, str) and not number.isdecimal() and (not classes or text in classes):
            return text
        expected = f"a class from 0 to {len(classes) - 1}" if classes else "the name of a class"
        raise self.error(expected, value, "Name all classes in their order: --option classes=mass,nodule.")


TableRow = tuple[RowPlace, tuple[str, ...]]
"""Where the row is, and the cells of the columns that were asked for, in that order."""
Size = tuple[int, int]
"""Width and height in pixels."""

_SIZE_COLUMNS = (("width", "height"), ("image_width", "image_height"), ("columns", "rows"), ("dim1", "dim0"))

# DICOM PS3.5 9.1: numbers with points between them.
_UID = re.compile(r"[0-2](?:\.\d+){4,}")
_STATED_SEPARATOR = re.compile(r'"?sep=([,;|]|\\t|\t)"?')
#: The only subset of a task of CVAT that was not divided: no split.
NO_SUBSET = "default"

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", *DICOM_SUFFIXES)


def find_file(root: str | Path, *names: str, remedy: str = "Point to the folder that holds it.") -> Path:
    """The first of several files or folders that exists in a folder, as it is or packed, with `.gz` behind its name.

    Args:
        root: the folder of the dataset.
        names: paths relative to it, the most likely first.
        remedy: what to do where none is there.

    Raises:
        ValueError: none of them exists.

    Example:
        >>> find_file("no such folder", "train.csv", "annotations/train.csv")
        Traceback (most recent call last):
        ...
        ValueError: Expected train.csv or annotations/train.csv in the folder for root, got 'no such folder' without. \
Point to the folder that holds it.
    """
    if (path := optional_file(root, *names)) is None:
        expected = " or ".join(names)
        raise ValueError(f"Expected {expected} in the folder for root, got {str(root)!r} without. {remedy}")
    return path


def optional_file(root: str | Path, *names: str) -> Path | None:
    """As :func:`find_file`, but None where there is none."""
    places = (Path(root, name + ending) for name in names for ending in ("", ".gz"))
    return next((path for path in places if path.exists()), None)


def check_split(split: str | None, split_names: Iterable[str]) -> None:
    """Refuse a split that the dataset does not have; None stands for all of them.

    Example:
        >>> check_split("val", ["train", "test"])
        Traceback (most recent call last):
        ...
        ValueError: Expected one of train, test or None for split, got 'val'. Choose a split of the dataset.
    """
    split_names = list(split_names)
    if split is not None and split not in split_names:
        if not split_names:
            raise ValueError(f"Expected None for split, got {split!r}. Leave it out: the dataset has no splits.")
        raise ValueError(
            f"Expected one of {', '.join(split_names)} or None for split, got {split!r}. Choose a split of the dataset."
        )


def split_paths(root: str | Path, split: str | None, files: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """The file of the given split, which is checked as by `check_split`, or those of all.

    Args:
        root: the folder of the dataset.
        split: None takes all.
        files: where the file of each split may lie, as `find_file` takes it.
    """
    check_split(split, files)
    return {name: find_file(root, *names) for name, names in files.items() if split in (None, name)}


def split_files(root: str | Path, pattern: str, split: str | None) -> list[tuple[str | None, str, Path]]:
    """The files of a split, or of all.

    Args:
        root: the folder of the dataset.
        pattern: path relative to it. `{split}` stands for the name of the split; a pattern without it is one file of no
            split, and so is the only file where its split is called `default`.
        split: `validation` finds `val`, `valid` and `dev` too; None takes all.

    Returns:
        Name of the split, its spelling in the file's name, and the file; sorted by the file's name.

    Raises:
        ValueError: there is no such file; the message lists what lies there instead.
    """
    root = Path(root)
    if "{split}" not in pattern:
        check_split(split, ())
        files: list[tuple[str | None, str, Path]] = [(None, "", root / pattern)] if (root / pattern).is_file() else []
    else:
        name = re.compile(re.escape(pattern).replace(re.escape("{split}"), "([^/]+)", 1))
        matches = [
            (match, path)
            for path in sorted(root.glob(pattern.replace("{split}", "*")))
            if (match := name.fullmatch(path.relative_to(root).as_posix()))
        ]
        files = [(split_name(match[1]), match[1], path) for match, path in matches]
        if [name for name, _, _ in files] == [NO_SUBSET]:
            files = [(None, NO_SUBSET, matches[0][1])]
    if not files:
        other_files = sorted(path.relative_to(root).as_posix() for path in root.rglob(f"*{Path(pattern).suffix}"))[:5]
        raise ValueError(
            f"Expected {pattern} in the folder for root, got {str(root)!r} with "
            f"{', '.join(other_files) or 'no such file'}. "
            "Name the file: --option annotations=FILE, in which {split} stands for the name of the split."
        )
    check_split(split, dict.fromkeys(name for name, _, _ in files if name is not None))
    return [file for file in files if split in (None, file[0])]


class CsvTable(NamedTuple):
    """What stands in a CSV file.

    rows: those with as many cells as the header.
    broken: the errors of all others, by their first cell, which is all that is certain of them.
    """

    rows: list[TableRow]
    broken: dict[str, ValueError]


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
    _, header = next(_stripped_rows(path, separator), (0, [""]))
    if not any(header):
        raise ValueError(f"Expected a header in {path}, got an empty file. Download the file again.")
    check_columns(header, str(path))
    return header


def read_table(
    path: str | Path, columns: Sequence[str] | None = None, optional: Sequence[str] = (), separator: str = ","
) -> CsvTable:
    """The rows of a CSV file with a header, reduced to columns that are found by name.

    Names are compared without case and without spaces around them, because releases of one dataset differ there
    (`rad_ID` and `rad_id`, ` EncodedPixels`). A byte order mark is taken off, all line endings are understood, blank
    lines are left out, and a file that ends in `.gz` is unpacked. Spreadsheets and copies add or lose empty cells
    behind a row.

    Args:
        path: a CSV file.
        columns: columns that must be there; None takes all.
        optional: columns that may be missing; their cells are then empty.
        separator: between cells.

    Returns:
        The image of a row's place is its first cell; cells are stripped text, first those of `columns`, then those of
        `optional`.

    Raises:
        ValueError: a column is missing; a row has too few or too many cells, and the first of `columns` is not the
            first of the file, so that it does not name its image; or as `read_header`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.csv").write_text("image_id,rad_ID, x\\na,R1,1\\n")
        ...     [cells for _, cells in read_table(Path(root, "a.csv"), ("x", "image_id"), ("rad_id", "split")).rows]
        [('1', 'a', 'R1', '')]
    """
    header = read_header(path, separator)
    names = [name.lower() for name in header]
    if missing := [name for name in columns or () if name.lower() not in names]:
        raise ValueError(
            f"Expected the columns {', '.join(columns or ())} in {path}, got {', '.join(header)} without "
            f"{', '.join(missing)}. Take the file as it was published."
        )
    width = len(header)
    named_cells = max(number for number, name in enumerate(header, start=1) if name)
    indices = list(range(width))
    if columns is not None:
        # Behind the last cell of a row stands an empty one, for the columns that are missing.
        indices = [names.index(name.lower()) if name.lower() in names else width for name in (*columns, *optional)]
    rows: list[TableRow] = []
    broken: dict[str, ValueError] = {}
    for line, row in islice(_stripped_rows(path, separator), 1, None):
        if len(row) >= named_cells and not any(row[width:]):
            row += [""] * (width + 1 - len(row))
            cells = tuple([row[index] for index in indices])
            rows.append((RowPlace(path, line, cells[0]), cells))
            continue
        error = RowPlace(path, line, row[0]).error(f"{named_cells} cells, as in the header,", len(row))
        if indices[0]:
            raise error
        broken.setdefault(row[0], error)
    return CsvTable(rows, broken)


def read_rows(path: str | Path, columns: Sequence[str], optional: Sequence[str] = ()) -> list[TableRow]:
    """The rows of `read_table`; one with too few or too many cells is an error."""
    table = read_table(path, columns, optional)
    for error in table.broken.values():
        raise error
    return table.rows


def _stripped_rows(path: str | Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are not blank, each with the number of its last line."""
    lines = csv.reader(_split_lines(path), delimiter=separator)
    try:
        for row in lines:
            if row:
                yield lines.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise ValueError(
            f"Expected CSV in {path}, got {error} in line {lines.line_num}. Download the file again."
        ) from error


def table_images(
    make: Callable[[str, list[TableRow]], AnnotatedImage | None],
    path: str | Path,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    pixels: Sequence[str] = (),
    side: float = 0,
) -> Images:
    """Group the rows of a CSV file by image, and make every image of its rows, wherever in the file these are.

    Args:
        make: takes the id of an image and its rows in the order of the file; None leaves it out.
        path: a CSV file with a header, which is read at the call.
        columns: columns that must be there; the first one holds the id of the image.
        optional: columns that may be missing.
        pixels: the columns that count pixels, for `check_thousands`.
        side: of the images in pixels, where it is known.

    Returns:
        Images in the order in which their first rows stand; before them the errors of those that have a row with too
        few or too many cells.

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
    rows_of_images, errors = image_rows(path, columns, optional, pixels, side)
    return chain(errors, sound_images(make, rows_of_images.items()))


def image_rows(
    path: str | Path,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    pixels: Sequence[str] = (),
    side: float = 0,
) -> tuple[dict[str, list[TableRow]], list[ValueError]]:
    """The rows of a CSV file by image, and the errors of images that have a row with too few or too many cells.

    Args are those of `table_images`.

    Raises:
        ValueError: as `read_table` and `check_thousands`, or a row without an id.
    """
    table = read_table(path, columns, optional)
    rows_of_images: dict[str, list[TableRow]] = {}
    for place, cells in table.rows:
        if not place.image:
            raise place._replace(image="-").error(f"an id for {columns[0]}", "")
        if place.image not in table.broken:
            rows_of_images.setdefault(place.image, []).append((place, cells))
    numbers = [(*columns, *optional).index(name) for name in pixels]
    rows = chain.from_iterable(rows_of_images.values())
    check_thousands(path, ((place, cells[number]) for place, cells in rows for number in numbers), lambda place: side)
    return rows_of_images, list(table.broken.values())


# Digits in groups of three, as thousands are written.
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:[.,]\d{3})+")
# Longest side of an image in pixels: a larger number has decimals.
_LARGEST_SIDE = 30_000
# Longest side of an image in pixels that needs no mark between thousands.
_SMALL_SIDE = 999


def check_thousands(
    path: str | Path, cells: Iterable[tuple[RowPlace, str]], side_of: Callable[[RowPlace], float]
) -> None:
    """Refuse a table whose numbers may have a mark between thousands: 1,010 would be read as 1.01 pixels.

    Three digits stand behind each mark, and numbers or images are large enough; a mark that ever stands elsewhere
    is the decimal sign.

    Args:
        path: the table.
        cells: those with pixels.
        side_of: the longest side of the image of a row in pixels, where it is known, else 0.

    Raises:
        ValueError: the first such cell is named.

    Example:
        >>> place = RowPlace("a.csv", 2, "a")
        >>> check_thousands("a.csv", [(place, "1.010")], lambda place: 512)
        >>> check_thousands("a.csv", [(place, "1.010"), (place, "1500")], lambda place: 512)
        Traceback (most recent call last):
        ...
        ValueError: Expected numbers without a mark between thousands in a.csv, got '1.010' in line 2: is it 1010 or \
1.01? Write 1010, or decimals with another number of digits.
    """
    grouped: dict[str, tuple[RowPlace, str]] = {}
    decimal_marks: set[str] = set()
    largest = 0.0
    for place, cell in cells:
        mark = next((mark for mark in ",." if mark in cell), "")
        if mark in decimal_marks:
            continue
        if not mark:
            largest = max(largest, float(cell) if cell.isdecimal() else 0)
        elif _GROUPED.fullmatch(cell) and int(re.sub("[,.]", "", cell)) <= _LARGEST_SIDE:
            grouped.setdefault(mark, (place, cell))
        else:
            decimal_marks.add(mark)
    for mark, (place, cell) in grouped.items():
        if mark not in decimal_marks and max(largest, side_of(place)) > _SMALL_SIDE:
            whole_number, fraction = re.sub("[,.]", "", cell), cell.replace(",", ".").rstrip("0")
            raise ValueError(
                f"Expected numbers without a mark between thousands in {path}, got {cell!r} in line {place.line}: is "
                f"it {whole_number} or {fraction}? Write {whole_number}, or decimals with another number of digits."
            )


def scaled_box(box: Sequence[float], scale_x: float, scale_y: float) -> list[float]:
    """An xyxy box in another frame with the same origin: fractions to pixels with the size of the image, for example.

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
    """The box around an xyxy box that is turned about its middle, clockwise on the image.

    Example:
        >>> turned_box([10, 20, 30, 60], 90)
        [0.0, 30.0, 40.0, 50.0]
    """
    if degrees % 360 == 0:
        return list(box)
    x1, y1, x2, y2 = box
    cos, sin = abs(math.cos(math.radians(degrees))), abs(math.sin(math.radians(degrees)))
    width, height = (x2 - x1) * cos + (y2 - y1) * sin, (x2 - x1) * sin + (y2 - y1) * cos
    middle_x, middle_y = (x1 + x2) / 2, (y1 + y2) / 2
    corners = (middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2)
    # Right angles give whole numbers.
    return [round(value, 6) for value in corners]


def read_sizes(path: str | Path, key: str) -> dict[str, Size]:
    """Sizes of images from a table: width and height are found by the names of their columns, never by their order.

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
        if size != (width, height) or min(size) < 1 or sizes.setdefault(image, size) != size:
            raise place.error("one size of positive whole numbers per image", tuple(cells), "Correct the row.")
    return sizes


def known_size(sizes: Mapping[str, Size], place: RowPlace) -> Size:
    """The size of an image in a table of sizes.

    Raises:
        ValueError: the table does not have it.

    Example:
        >>> known_size({"a": (30, 20)}, RowPlace("train.csv", 7, "a"))
        (30, 20)
    """
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
    """Find images of a dataset, wherever below its folder they lie; of a dataset of DICOM files often only PNG or JPEG
    copies are kept.

    Args:
        root: the folder of the dataset; links are not followed.
        suffixes: endings that count as an image, in lower case.

    Returns:
        A function of the name of an image, with or without its ending, and of its published path. It gives the path of
        the file relative to the root: the published one where it is there; else a DICOM file, or else a copy, that has
        this name; else a DICOM file with this SOPInstanceUID; else the published one, which is empty by default. The
        folder is searched at the first image that needs it. Raises `ValueError` where two files could be meant.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     Path(root, "a.png").touch()
        ...     find = image_finder(root)
        ...     find("a", "train/a.dicom"), find("a.png"), find("b", "train/b.dicom")
        ('a.png', 'a.png', 'train/b.dicom')
    """

    # Texts rather than paths: a dataset has many images.
    endings = tuple(suffixes)

    @cache
    def by_stem() -> dict[str, tuple[str, ...]]:
        files_by_stem: dict[str, tuple[str, ...]] = {}
        for folder, subfolders, names in os.walk(root):
            subfolders.sort()
            inside = Path(folder).relative_to(root).as_posix()
            for name in names:
                if name.lower().endswith(endings):
                    stem = os.path.splitext(name)[0]
                    files_by_stem[stem] = (*files_by_stem.get(stem, ()), name if inside == "." else f"{inside}/{name}")
        return files_by_stem

    @cache
    def by_uid() -> dict[str, tuple[str, ...]]:
        paths = [path for places in by_stem().values() for path in places if is_dicom(path)]
        return {dicom_uid(os.path.join(root, path)): (path,) for path in paths}

    def find(name: str, published: str = "") -> str:
        if published and os.path.isfile(os.path.join(root, published)):
            return published
        file = os.path.basename(name)
        # An id may hold dots, so that what looks like an ending need not be one.
        places: Sequence[str] = by_stem().get(file, ())
        if not places:
            namesakes = by_stem().get(os.path.splitext(file)[0], ())
            places = [path for path in namesakes if os.path.basename(path) == file]
        if not places and _UID.fullmatch(file):
            places = by_uid().get(file, ())
        if len(places) > 1:
            places = [path for path in places if is_dicom(path)] or places
        if len(places) > 1:
            raise ValueError(
                f"Expected one image of the name {name!r} below {str(root)!r}, got {' and '.join(places[:3])}. Move "
                "the others elsewhere, or name the path in the table."
            )
        return places[0] if places else published

    return find


def stated_separator(path: str | Path) -> str | None:
    """The separator that the first line of a CSV file names for Excel, as `sep=;`; None without such a line.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.csv").write_text("sep=;\\nimage;x1\\n")
        ...     stated_separator(Path(root, "a.csv"))
        ';'
    """
    match = _STATED_SEPARATOR.fullmatch(next(text_lines(path), "").strip())
    return match[1] if match else None


def _split_lines(path: str | Path) -> Iterator[str]:
    """The lines of a CSV file, which may end in carriage returns alone, and begin with the separator for Excel."""
    for number, line in enumerate(text_lines(path)):
        if number == 0 and _STATED_SEPARATOR.fullmatch(line.strip()):
            continue
        if "\r" in line[:-2]:
            yield from io.StringIO(line, newline="")
        else:
            yield line
