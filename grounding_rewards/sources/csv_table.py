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

_TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_TEXT_SUFFIXES = (".txt", ".txt.gz")
# Labels of tissue without disease, which some datasets mark.
_SOUND_TISSUE = re.compile(r"^(?:normal|healthy|unremarkable)\b", re.IGNORECASE)
# A comma that may stand between thousands; a point is always decimal.
_GROUPED = re.compile(r"[1-9]\d{0,2},\d{3}")
# What programs write into a cell that holds nothing.
_EMPTY_CELLS = {"nan", "none", "null", "na", "n/a", "<na>"}

# What the column of each part may be called, in small letters without marks, the most telling first.
_USUAL_NAMES: dict[str, tuple[str, ...]] = {
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
_BOX_PARTS = {"xyxy": ("x1", "y1", "x2", "y2"), "cxcywh": ("cx", "cy", "w", "h"), "xywh": ("x", "y", "w", "h")}


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
    check_word("frame", frame, ("pixel", "fraction"))
    if order:
        check_word("order", order, tuple(_BOX_PARTS))
    table = table or _only_table(Path(root))
    # The split of a single table is a column.
    files = tables.split_files(root, table, split if "{split}" in table else None, option="table")
    options = _Options(split, _stated_columns(columns), tuple(classes), order, frame)
    return chain.from_iterable([_images(Path(root), path, file_split, options) for file_split, _, path in files])


class _Options(NamedTuple):
    """What a caller of `read_csv_table` says of a table; `stated_columns` has the name of a column by its part."""

    split: str | None
    stated_columns: Mapping[str, str]
    classes: Sequence[str]
    order: str
    frame: str


def _only_table(root: Path) -> str:
    """The name of the only CSV file in a folder, or of its only text file; several, or none, are refused."""
    file_names = sorted(path.name for path in root.glob("*"))
    tables_in_root = [name for name in file_names if name.lower().endswith(_TABLE_SUFFIXES)]
    # Text files are tables where there is nothing else: most are words about the images.
    names = tables_in_root or [name for name in file_names if name.lower().endswith(_TEXT_SUFFIXES)]
    if len(names) != 1:
        raise ValueError(
            f"Expected one CSV file in the folder for `root`, got {', '.join(names) or 'none'} in {str(root)!r}. Name "
            "it: --option table=FILE, or --option table={split}.csv for a file a split."
        )
    return names[0]


def _stated_columns(columns: Sequence[str]) -> dict[str, str]:
    """By part, the name of its column, from texts such as `file=scan`; in Python a single one may be a text."""
    names = {}
    for text in [columns] if isinstance(columns, str) else columns:
        part, _, name = text.partition("=")
        check_word("columns", part, tuple(_USUAL_NAMES))
        names[part] = name
    return names


class _Columns(NamedTuple):
    """Which cells of a row are read.

    Attributes:
        order: of the numbers of a box.
        box: indices of the cells of its four numbers, or the index of a list of boxes.
        texts: by part, the index of the file, and of those of label, split, patient, width and height that are there.
    """

    order: str
    box: tuple[int, ...]
    texts: dict[str, int]


class _Row(NamedTuple):
    """A row of the table: its place, the cells of its box or its list of boxes, and its other texts by their part."""

    place: tables.RowPlace
    box_cells: list[str]
    texts: dict[str, str]


def _find_columns(path: Path, header: list[str], options: _Options) -> _Columns:
    """Find the columns of a table by the names in its header; refuse a table without file and boxes, or a wrong option.

    `path` is that of the table, for messages.
    """
    stated_columns, order = options.stated_columns, options.order
    plain_names = [re.sub(r"[\W_]", "", name).casefold() for name in header]
    # By part, the index of its column.
    indices = {}
    for part, names in _USUAL_NAMES.items():
        if part in stated_columns:
            check_word(f"a column of {path.name}", stated_columns[part], header)
            indices[part] = header.index(stated_columns[part])
        else:
            usual_names = [name for name in names if name in plain_names]
            if usual_names:
                indices[part] = plain_names.index(usual_names[0])
    # Which four columns there are tells the order of their numbers; a list of boxes tells none.
    order_of_columns = next((name for name, parts in _BOX_PARTS.items() if {*parts} <= indices.keys()), "")
    if "file" not in indices or not (order_of_columns or "boxes" in indices):
        raise ValueError(
            f"Expected a column for the file and four for the box, or a list of boxes, in {path}, got "
            f"{', '.join(header)}. Say which they are: --option columns=file=NAME,x1=NAME,y1=NAME,x2=NAME,y2=NAME."
        )
    if not (order_of_columns or order):
        raise ValueError(
            f"Expected the order of the four numbers of column {header[indices['boxes']]} of {path}, got none. Say it: "
            f"--option order={', order='.join(_BOX_PARTS)}."
        )
    # Without four columns the box is in the one with a list of boxes.
    box = tuple(indices[part] for part in _BOX_PARTS.get(order_of_columns, ["boxes"]))
    if order_of_columns and order not in ("", order_of_columns):
        raise ValueError(
            f"Expected order {order_of_columns} for the columns {', '.join(header[index] for index in box)} of {path}, "
            f"got {order}. Leave order out."
        )
    patient = "patient_id" if "patient_id" in header else patient_column(header)
    if patient is not None:
        # A stated column stays.
        indices.setdefault("patient", header.index(patient))
    parts = ["file", "label", "split", "patient"]
    # A column `width` may be that of the boxes, and one side alone is no size.
    if all(side in indices and indices[side] not in box for side in ("width", "height")):
        parts += ["width", "height"]
    texts = {part: indices[part] for part in parts if part in indices}
    # A stated column that nothing reads is a mistake of the caller.
    for part, name in stated_columns.items():
        if indices[part] not in (*box, *texts.values()):
            raise ValueError(
                f"Expected a part of use for columns, got {part}={name}: it has no effect in {path}. Leave it "
                "out, or name the others of its kind too, such as width and height."
            )
    return _Columns(order_of_columns or order, box, texts)


def _images(root: Path, path: Path, file_split: str | None, options: _Options) -> Images:
    """The images of one table; wrong options and a broken table are refused at the call.

    Args:
        root: the folder of the dataset.
        path: of the table.
        file_split: the split of all its images, from the name of the file; None leaves it to a column.
        options: of the caller.
    """
    # The mark that occurs most often in the header.
    header_line = next(text_lines(path), "")
    separator = max(",;\t|", key=header_line.count)
    header = tables.read_header(path, separator)
    columns = _find_columns(path, header, options)
    if options.classes and "label" not in columns.texts:
        raise ValueError(
            f"Expected a column of labels in {path} for classes, got {', '.join(header)}. Leave classes out, or "
            "name the column: --option columns=label=NAME."
        )
    rows_of_images: dict[str, list[_Row]] = {}
    splits = []
    for place, table_row in tables.read_rows(path, separator=separator):
        cells = ["" if cell.casefold() in _EMPTY_CELLS else cell for cell in table_row]
        if any(cells):
            texts = {part: cells[index] for part, index in columns.texts.items()}
            row = _Row(place._replace(image=texts["file"]), [cells[index] for index in columns.box], texts)
            rows_of_images.setdefault(texts["file"], []).append(row)
            splits.append(split_name(texts.get("split", "")) or None)
    if file_split is None:
        tables.check_split(options.split, splits)
    find = tables.image_finder(root)
    # Tables from Windows have backslashes.
    published_paths = {name: PureWindowsPath(name).as_posix() for name in rows_of_images}
    stated_paths = {*published_paths.values()}
    names_of_files: dict[str, str] = {}

    def image(name: str, rows: Sequence[_Row]) -> AnnotatedImage | None:
        """The image of all rows with this name; None if it is of another split than the wanted one."""
        image_split = file_split or split_name(_shared_text(rows, "split")) or None
        if options.split not in (None, image_split):
            return None
        # Errors of the whole image name its first row.
        place = rows[0].place
        if not name:
            raise place._replace(image="-").error("the name of an image", name)
        published = published_paths[name]
        file = find(published, published)
        # An image that is not in its folder is searched for elsewhere, where another one may be called alike: the table
        # states that one itself, or two names of the table found one file.
        is_stated_elsewhere = file != published and file in stated_paths
        if is_stated_elsewhere or names_of_files.setdefault(file, name) != name:
            raise place.error("a file of its own for every image", file, "It is that of another image: add the file.")
        size = _image_size(rows, root / file, options.frame)
        boxes, labels = [], []
        for row in rows:
            for box, label in _row_boxes(row, columns.order, options, size):
                boxes.append(box)
                labels.append(label)
        # An absolute path is no id: it is that of another machine.
        is_absolute = PureWindowsPath(name).is_absolute() or PurePosixPath(name).is_absolute()
        width, height = size or (None, None)
        patient = stated_name(_shared_text(rows, "patient"))
        image_id = file if is_absolute else name
        return AnnotatedImage(image_id, file, boxes, labels, width, height, patient, image_split)

    return sound_images(image, rows_of_images.items())


def _shared_text(rows: Sequence[_Row], part: str) -> str:
    """The text of a part, such as `split`, that all rows of an image share; empty if none has one."""
    values = {row.texts.get(part, "") for row in rows} - {""}
    if len(values) > 1:
        raise rows[0].place.error(f"one {part} in all rows of an image", sorted(values), "Correct them.")
    return values.pop() if values else ""


def _image_size(rows: Sequence[_Row], path: Path, frame: str) -> tables.Size | None:
    """The size of an image from its rows, else from the header of its file; None if neither is there.

    Boxes in fractions of the image need its size: then a missing file is refused.
    """
    texts = [_shared_text(rows, side) for side in ("width", "height")]
    sides = [int(_read_number(rows[0].place, text)) for text in texts if text]
    # Both sides are stated, and are not the 0 of tools that did not look.
    if len(sides) == 2 and all(sides):
        return sides[0], sides[1]
    return tables.header_size(path) if frame == "fraction" or path.is_file() else None


def _row_boxes(row: _Row, order: str, options: _Options, size: tables.Size | None) -> Iterator[tuple[list[float], str]]:
    """Yield each box of a row, as corners in pixels, and its label.

    A label without a box is refused, and so is a box beside a label that says there is nothing.

    Args:
        row: of the table.
        order: of the numbers of a box.
        options: of the caller.
        size: of the image, where it is known.
    """
    place, label = row.place, row.texts.get("label", "")
    # Four cells are the numbers of one box, a single cell is a list of boxes.
    if len(row.box_cells) == 4:
        boxes = [row.box_cells] if any(row.box_cells) else []
        labels = [label]
    else:
        boxes, labels = _listed_boxes(place, row.box_cells[0], label)
    if not boxes:
        _check_no_finding(place, labels, options.classes)
        return
    for numbers, box_label in zip(boxes, labels, strict=True):
        box = list(ORDERS[order].to_xyxy(*[_read_number(place, number) for number in numbers]))
        if options.frame == "fraction" and size is not None:
            box = tables.scaled_box(box, *size)
        class_name = place.class_name(box_label, options.classes) if box_label else UNNAMED
        # "Normal lung" says that there is nothing, and may still be drawn, unless its box is a mere placeholder.
        is_denial = _is_nothing(class_name) and not _SOUND_TISSUE.search(class_name)
        if is_denial or is_placeholder(box, class_name, size):
            raise place.error("no box beside a label that says there is nothing", box_label, "Clear its cells.")
        yield box, class_name


def _check_no_finding(place: tables.RowPlace, labels: Sequence[str], classes: Sequence[str]) -> None:
    """Refuse a row without a box if one of its labels names a finding; `classes` may be empty."""
    for label in labels:
        # Where there are classes, a number is that of a class.
        is_number = bool(classes) and label.removesuffix(".0").isdecimal()
        class_name = place.class_name(label, classes) if is_number else label
        if class_name and not _is_nothing(class_name):
            fix = "Draw it, clear the label, or remove the row of an image that was not marked."
            raise place.error("a box beside the label", label, fix)


@cache
def _is_nothing(label: str) -> bool:
    """Whether a label says that there is no finding, as 0 does in a column that counts or flags findings."""
    return label == "0" or states_nothing(f"{label}.")


def _listed_boxes(place: tables.RowPlace, cell: str, label: str) -> tuple[list[Any], list[str]]:
    """The boxes of one cell, and a label for each from another cell.

    Args:
        place: of the row.
        cell: a list of boxes, or a single box.
        label: a list of labels, labels with marks between them, or one label for all boxes.
    """
    boxes = _read_list(cell or "[]")
    # A single box may stand without the brackets of a list.
    if boxes and not isinstance(boxes[0], list | tuple):
        boxes = [boxes]
    if label.startswith("["):
        labels = _read_list(label)
    else:
        # A label may itself hold one of the marks: the right mark gives a label for each box.
        splittings = [re.split(rf"\s*[{mark}]\s*", label.strip()) for mark in "|;,"]
        fitting = [parts for parts in splittings if len(parts) == len(boxes)]
        labels = (fitting or splittings)[0]
    # One label is that of all boxes.
    if len(labels) == 1 < len(boxes):
        labels = labels * len(boxes)
    if not all(map(is_box, boxes)) or (boxes and len(labels) != len(boxes)):
        raise place.error("a list of boxes with a label each", (cell, label))
    return boxes, list(map(str, labels))


def _read_list(text: str) -> list[Any]:
    """Read a list in JSON or as Python prints it, or numbers with spaces or commas between them.

    Any other value is the only one of a list.

    Example:
        >>> _read_list("[(1, 2, 30, 40)]"), _read_list("['mass']"), _read_list("[1. 2. 30. 40.]")
        ([(1, 2, 30, 40)], ['mass'], [1.0, 2.0, 30.0, 40.0])
    """
    # JSON first: PHP writes "a\/b" for "a/b", and Python would read null as a name and keep the backslash.
    for read in (parse_json, ast.literal_eval):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            content = read(text)
            return list(content) if isinstance(content, list | tuple) else [content]
    # numpy prints numbers without commas.
    try:
        return [float(word) for word in re.split(r"[\s,;]+", text.strip("[]() "))]
    except ValueError:
        return [text]


def _read_number(place: tables.RowPlace, cell: Any) -> float:
    """Read a number with a decimal point or comma; refuse a comma that may stand between thousands."""
    text = str(cell)
    # A comma is the decimal sign where there is no point; `float` refuses the two together.
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
