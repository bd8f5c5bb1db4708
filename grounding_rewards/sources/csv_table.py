"""A folder of images and one CSV file of anybody's making: a row a box, or a row an image with its boxes in a list.

Folder::

    boxes.csv          any name, separators , ; tab |, decimal points or commas; .csv, .tsv, .txt, also with .gz; or a
                       file a split, which `table` says: train.csv, val.csv, test.csv
    <images>           below the folder, where the table says; a name without folders or ending is searched for

Columns, found by their names, whatever the case and the marks between words; `columns` names others::

    file        file, file_name, image, image_id, image_path, image_index, path, …
    box         x1 y1 x2 y2 (x_min, left, …); or x y w h (x, y, width, height); or cx cy w h; or
                boxes: a JSON list of them, a row an image, with labels beside it: a JSON list, or parted by | ; or ,
    label       label, class, class_name, category, finding, …
    others      width and height of the image, split, patient_id and what looks like it

All other columns are left out. Lists may be JSON, as Python prints them, or four numbers alone.
Negative: an image without numbers in the cells of its box: they are empty, or say `nan`, `NA` and the like.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from grounding_rewards.boxes import ORDERS, is_box
from grounding_rewards.columns import stated_name
from grounding_rewards.common.text_files import parse_json, text_lines
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.box_defects import is_placeholder
from grounding_rewards.data.splits import patient_column
from grounding_rewards.metrics.prediction import UNNAMED
from grounding_rewards.parsing.no_finding import states_nothing
from grounding_rewards.sources import tables
from grounding_rewards.sources.base import Images, register_source, sound_images, split_name

# The rows of each image, by its name in the table.
_RowsOfImages = dict[str, list[tables.TableRow]]

# Text files are tables where there is nothing else: most are words about the images.
_TABLES = ((".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".txt", ".txt.gz"))
_SEPARATORS = ",;\t|"
_FRAMES = ("pixel", "fraction")
# Labels of tissue without disease, which some datasets mark.
_SOUND_TISSUE = re.compile(r"^(?:normal|healthy|unremarkable)\b", re.IGNORECASE)
# A comma that may stand between thousands; a point is always decimal.
_GROUPED = re.compile(r"[1-9]\d{0,2},\d{3}")
# What programs write into a cell that holds nothing.
_EMPTY = {"nan", "none", "null", "na", "n/a", "<na>"}

# What the column of each part may be called, in small letters without marks, the most telling first.
_NAMES: dict[str, tuple[str, ...]] = {
    "file": ("file", "filename", "imagefile", "imagepath", "imgpath", "filepath", "path", "imagename", "imageid",
             "imageindex", "image", "img", "imgid", "sopinstanceuid", "id"),
    "boxes": ("boxes", "bboxes", "bbox", "box"),
    "label": ("label", "labels", "classname", "class", "findinglabel", "finding", "findings", "category",
              "categoryname", "classid", "categoryid", "pathology", "disease"),
    "split": ("split", "subset", "set", "fold"),
    "patient": (),
    "width": ("imagewidth", "imgwidth", "width", "columns"),
    "height": ("imageheight", "imgheight", "height", "rows"),
    "x1": ("x1", "xmin", "left", "xtl"), "y1": ("y1", "ymin", "top", "ytl"),
    "x2": ("x2", "xmax", "right", "xbr"), "y2": ("y2", "ymax", "bottom", "ybr"),
    "cx": ("cx", "xcenter", "xcentre", "centerx"), "cy": ("cy", "ycenter", "ycentre", "centery"),
    "x": ("x", "x1", "xmin", "left", "bboxx"), "y": ("y", "y1", "ymin", "top", "bboxy"),
    "w": ("w", "width", "boxwidth", "bboxwidth"), "h": ("h", "height", "boxheight", "bboxheight"),
}  # fmt: skip
# The parts of a box in each order, the most telling first.
_CORNERS = {"xyxy": ("x1", "y1", "x2", "y2"), "cxcywh": ("cx", "cy", "w", "h"), "xywh": ("x", "y", "w", "h")}


@register_source("csv")
def read_csv_table(
    root: str | Path,
    *,
    split: str | None = None,
    table: str = "",
    columns: Sequence[str] = (),
    classes: Sequence[str] = (),
    order: str = "",
    frame: str = "pixel",
) -> Images:
    """The images of a folder with one CSV file.

    Args:
        root: the folder.
        split: of the column `split`, or of the files' names; None takes all.
        table: the CSV file, relative to the root; needed where there are several. `{split}` stands for the name of the
            split: `{split}.csv`.
        columns: what the columns are called where that is not seen, such as `file=scan,label=dx,x1=ulx`. Parts: file,
            label, split, patient, boxes, width, height, and x1 y1 x2 y2, x y w h, or cx cy w h.
        classes: names of the classes where the table has their numbers, from 0.
        order: of the numbers in a list of boxes: xyxy, xywh or cxcywh.
        frame: what the numbers count: `pixel`, or `fraction` of the image.

    Returns:
        Images in the order of the table; `id` is what the table calls the image.

    Raises:
        ValueError: no table or several, a column is not found, unknown words; while iterating, a row that cannot be
            read, an image that is not there or whose rows contradict each other.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "mine.csv").write_text(
        ...         "Image;x_min;y_min;x_max;y_max;Class\\na.png;1,5;2;30;40;mass\\nb.png;;;;;\\n"
        ...     )
        ...     [(image.file, image.boxes, image.labels) for image in read_csv_table(root)]
        [('a.png', [[1.5, 2.0, 30.0, 40.0]], ['mass']), ('b.png', [], [])]
    """
    check_word("frame", frame, _FRAMES)
    if order:
        check_word("order", order, tuple(_CORNERS))
    table = table or _only_table(Path(root))
    # The split of a single table is a column.
    files = tables.split_files(root, table, split if "{split}" in table else None, option="table")
    options = _Options(split, _stated_columns(columns), tuple(classes), order, frame)
    return chain.from_iterable([_images(Path(root), path, own_split, options) for own_split, _, path in files])


class _Options(NamedTuple):
    """What a caller of `read_csv_table` says of a table; `stated_columns` has the name of a column by its part."""

    split: str | None
    stated_columns: Mapping[str, str]
    classes: Sequence[str]
    order: str
    frame: str


def _only_table(root: Path) -> str:
    """The name of the only CSV file in a folder."""
    files = sorted(root.glob("*"))
    names: list[str] = []
    for endings in _TABLES:
        # Files of the first kind that the folder has.
        names = names or [path.name for path in files if path.name.lower().endswith(endings)]
    if len(names) != 1:
        raise ValueError(
            f"Expected one CSV file in the folder for `root`, got {', '.join(names) or 'none'} in {str(root)!r}. Name "
            "it: --option table=FILE, or --option table={split}.csv for a file a split."
        )
    return names[0]


def _stated_columns(columns: Sequence[str]) -> dict[str, str]:
    """Read texts such as `file=scan` into the name of the column of each part."""
    names = {}
    for text in [columns] if isinstance(columns, str) else columns:
        part, _, name = text.partition("=")
        check_word("columns", part, tuple(_NAMES))
        names[part] = name
    return names


class _Columns(NamedTuple):
    """The indices of the cells of a row that are read.

    Attributes:
        order: of the numbers of a box.
        box: indices of its four numbers, or the index of a list of boxes.
        places: index of the file, and those of label, split, patient, width and height that the table has.
    """

    order: str
    box: tuple[int, ...]
    places: dict[str, int]


def _find_columns(path: Path, header: list[str], options: _Options) -> _Columns:
    """Find the columns of a table by the names in its header; refuse a table without file and boxes, or a wrong option.

    `path` is that of the table, for messages.
    """
    stated_columns, order = options.stated_columns, options.order
    plain_names = [re.sub(r"[\W_]", "", name).casefold() for name in header]
    places = {}
    for part, names in _NAMES.items():
        if part in stated_columns:
            check_word(f"a column of {path.name}", stated_columns[part], header)
            places[part] = header.index(stated_columns[part])
        else:
            usual_names = [name for name in names if name in plain_names]
            if usual_names:
                places[part] = plain_names.index(usual_names[0])
    own_order = next((name for name, parts in _CORNERS.items() if {*parts} <= places.keys()), "")
    if "file" not in places or not (own_order or "boxes" in places):
        raise ValueError(
            f"Expected a column for the file and four for the box, or a list of boxes, in {path}, got "
            f"{', '.join(header)}. Say which they are: --option columns=file=NAME,x1=NAME,y1=NAME,x2=NAME,y2=NAME."
        )
    if not (own_order or order):
        raise ValueError(
            f"Expected the order of the four numbers of column {header[places['boxes']]} of {path}, got none. Say it: "
            f"--option order={', order='.join(_CORNERS)}."
        )
    box = tuple(places[part] for part in _CORNERS.get(own_order, ["boxes"]))
    if own_order and order not in ("", own_order):
        raise ValueError(
            f"Expected order {own_order} for the columns {', '.join(header[place] for place in box)} of {path}, got "
            f"{order}. Leave order out."
        )
    patient = "patient_id" if "patient_id" in header else patient_column(header)
    if patient is not None:
        places.setdefault("patient", header.index(patient))
    parts = ["file", "label", "split", "patient"]
    sizes = [part for part in ("width", "height") if part in places and places[part] not in box]
    if len(sizes) == 2:
        parts += sizes
    used_places = {part: places[part] for part in parts if part in places}
    for part, name in stated_columns.items():
        if places[part] not in (*box, *used_places.values()):
            raise ValueError(
                f"Expected a part of use for columns, got {part}={name}: it has no effect in {path}. Leave it "
                "out, or name the others of its kind too, such as width and height."
            )
    return _Columns(order or own_order, box, used_places)


def _images(root: Path, path: Path, own_split: str | None, options: _Options) -> Images:
    """The images of one table; wrong options and a broken table are refused at the call.

    Args:
        root: the folder of the dataset.
        path: of the table.
        own_split: of all its images, from the name of the file; None leaves it to a column.
        options: of the caller.
    """
    separator = max(_SEPARATORS, key=next(text_lines(path), "").count)
    header = tables.read_header(path, separator)
    columns = _find_columns(path, header, options)
    if options.classes and "label" not in columns.places:
        raise ValueError(
            f"Expected a column of labels in {path} for classes, got {', '.join(header)}. Leave classes out, or "
            "name the column: --option columns=label=NAME."
        )
    rows_of_images: _RowsOfImages = {}
    splits: list[str | None] = []
    for place, row in tables.read_rows(path, separator=separator):
        cells = tuple(["" if cell.casefold() in _EMPTY else cell for cell in row])
        if any(cells):
            name = cells[columns.places["file"]]
            rows_of_images.setdefault(name, []).append((place._replace(image=name), cells))
            splits.append(split_name(cells[columns.places["split"]]) if "split" in columns.places else None)
    if own_split is None:
        tables.check_split(options.split, [name or None for name in splits])
    find = tables.image_finder(root)
    published_names = {PureWindowsPath(name).as_posix() for name in rows_of_images}
    names_of_files: dict[str, str] = {}

    def image(name: str, rows: Sequence[tables.TableRow]) -> AnnotatedImage | None:
        """The image of all rows with this name; None if it is of another split than the wanted one."""
        image_split = own_split or split_name(_shared_text(columns, rows, "split")) or None
        if options.split not in (None, image_split):
            return None
        # Errors of the whole image name its first row.
        place, _ = rows[0]
        if not name:
            raise place._replace(image="-").error("the name of an image", name)
        # Tables from Windows have backslashes.
        published = PureWindowsPath(name).as_posix()
        file = find(published, published)
        # What is not in its folder is looked for elsewhere, where another image may be called alike.
        is_named_by_other = file != published and file in published_names
        if is_named_by_other or names_of_files.setdefault(file, name) != name:
            raise place.error("a file of its own for every image", file, "It is that of another image: add the file.")
        sides = [_shared_text(columns, rows, side) for side in ("width", "height")]
        size = None
        # Some tools write 0 where they did not look.
        pixels = [int(_read_number(place, side)) for side in sides if side]
        if len(pixels) == 2 and all(pixels):
            size = pixels[0], pixels[1]
        elif options.frame == "fraction" or (root / file).is_file():
            size = tables.header_size(root / file)
        marked = list(chain.from_iterable(_row_boxes(columns, row, options, size) for row in rows))
        boxes, labels = [box for box, _ in marked], [label for _, label in marked]
        # An absolute path is no id: it is that of another machine.
        is_absolute = PureWindowsPath(name).is_absolute() or PurePosixPath(name).is_absolute()
        width, height = size or (None, None)
        patient = stated_name(_shared_text(columns, rows, "patient"))
        image_id = file if is_absolute else name
        return AnnotatedImage(image_id, file, boxes, labels, width, height, patient, image_split)

    return sound_images(image, rows_of_images.items())


def _shared_text(columns: _Columns, rows: Sequence[tables.TableRow], part: str) -> str:
    """The text of a part, such as `split`, that all rows of an image share; empty without one."""
    if part not in columns.places:
        return ""
    values = {cells[columns.places[part]] for _, cells in rows} - {""}
    if len(values) > 1:
        first_place, _ = rows[0]
        raise first_place.error(f"one {part} in all rows of an image", sorted(values), "Correct them.")
    return values.pop() if values else ""


def _row_boxes(
    columns: _Columns, row: tables.TableRow, options: _Options, size: tables.Size | None
) -> Iterator[tuple[list[float], str]]:
    """Yield each box of a row, as corners in pixels, and its label; a denial of findings beside a box is refused.

    `size` is that of the image, where it is known.
    """
    place, _ = row
    for box_cells, label in _box_cells(columns, row, options.classes):
        box = list(ORDERS[columns.order].to_xyxy(*[_read_number(place, cell) for cell in box_cells]))
        if options.frame == "fraction" and size is not None:
            box = tables.scaled_box(box, *size)
        class_name = place.class_name(label, options.classes) if label else UNNAMED
        is_denial = _is_nothing(class_name) and not _SOUND_TISSUE.search(class_name)
        if is_denial or is_placeholder(box, class_name, size):
            raise place.error("no box beside a label that says there is nothing", label, "Clear its cells.")
        yield box, class_name


def _box_cells(columns: _Columns, row: tables.TableRow, classes: Sequence[str]) -> list[tuple[Sequence[Any], str]]:
    """The cells of each box of a row, and its label; a label without a box is refused."""
    place, cells = row

    def names_finding(label: str) -> bool:
        """Whether a label names a finding; a number is that of a class where there are classes."""
        if classes and label.removesuffix(".0").isdecimal():
            label = place.class_name(label, classes)
        return not _is_nothing(label)

    label = cells[columns.places["label"]] if "label" in columns.places else ""
    if len(columns.box) == 4:
        box_cells = [cells[index] for index in columns.box]
        boxes, labels = [box_cells] if any(box_cells) else [], [label]
    else:
        boxes, labels = _listed_boxes(place, cells[columns.box[0]], label)
    if boxes:
        return list(zip(boxes, labels, strict=True))
    unmarked = [name for name in labels if name and names_finding(name)]
    if unmarked:
        fix = "Draw it, clear the label, or remove the row of an image that was not marked."
        raise place.error("a box beside the label", unmarked[0], fix)
    return []


@cache
def _is_nothing(label: str) -> bool:
    """Whether a label says that there is no finding."""
    return label == "0" or states_nothing(f"{label}.")


def _listed_boxes(place: tables.RowPlace, cell: str, label: str) -> tuple[list[Any], list[str]]:
    """The boxes of one cell, and a label for each from another cell.

    Args:
        place: of the row.
        cell: a list of boxes, or a single box.
        label: a list of labels, labels with marks between them, or one label for all boxes.
    """
    boxes = _read_list(cell or "[]")
    if boxes and not isinstance(boxes[0], list | tuple):
        boxes = [boxes]
    if label.startswith("["):
        labels = _read_list(label)
    else:
        parted = [re.split(rf"\s*[{mark}]\s*", label.strip()) for mark in "|;,"]
        fitting = [parts for parts in parted if len(parts) == len(boxes)]
        labels = (fitting or parted)[0]
    if len(labels) == 1 < len(boxes):
        labels = labels * len(boxes)
    if not all(map(is_box, boxes)) or (boxes and len(labels) != len(boxes)):
        raise place.error("a list of boxes with a label each", (cell, label))
    return boxes, list(map(str, labels))


def _read_list(text: str) -> list[Any]:
    """Read a list in JSON or as Python prints it, or numbers with spaces or commas between them.

    Example:
        >>> _read_list("[(1, 2, 30, 40)]"), _read_list("['mass']"), _read_list("[1. 2. 30. 40.]")
        ([(1, 2, 30, 40)], ['mass'], [1.0, 2.0, 30.0, 40.0])
    """
    # JSON first: Python knows no null, and keeps the mark of "a\/b", as PHP writes it.
    for read in (parse_json, ast.literal_eval):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            content = read(text)
            return list(content) if isinstance(content, list | tuple) else [content]
    try:
        return [float(word) for word in re.split(r"[\s,;]+", text.strip("[]() "))]
    except ValueError:
        return [text]


def _read_number(place: tables.RowPlace, cell: Any) -> float:
    """Read a number with a decimal point or comma; refuse a comma that may stand between thousands."""
    text = str(cell)
    # In a table with other separators, a comma may be the decimal sign.
    if "." not in text:
        if _GROUPED.fullmatch(text):
            raise place.error("a number without a mark between thousands", cell, "Write it without a comma.")
        text = text.replace(",", ".")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise place.error("a number", cell)
    return number
