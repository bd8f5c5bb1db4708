"""A folder of images and one CSV file of anybody's making: a row a box, or a row an image with its boxes in a list.

Folder::

    boxes.csv          any name, separators , ; tab |, decimal points or commas; .csv, .tsv, .txt, also with .gz; or a
                       file a split: train.csv, val.csv, test.csv
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

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from grounding_rewards.boxes import ORDERS, is_box
from grounding_rewards.columns import stated_name
from grounding_rewards.common.package_warning import PackageWarning
from grounding_rewards.common.text_files import parse_json, text_lines
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import patient_column
from grounding_rewards.parsing.no_finding import states_nothing
from grounding_rewards.sources import tables
from grounding_rewards.sources.base import SPLIT_NAMES, Faults, Images, register_source, sound_images, split_name
from grounding_rewards.sources.documents import UNNAMED

# Text files are tables where there is nothing else: most are words about the images.
_TABLES = ((".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".txt", ".txt.gz"))
_SEPARATORS = ",;\t|"
_FRAMES = ("pixel", "fraction")
# Digits in groups of three, as thousands are written.
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:[.,]\d{3})+")
# Longest side of an image in pixels: a larger number has decimals. The shortest whose pixels need a mark.
_LARGEST_SIDE, _SMALL = 30_000, 999
# Labels of tissue without disease, which some datasets mark; and the part of the image that a placeholder covers.
_SOUND_TISSUE = re.compile(r"^(?:normal|healthy|unremarkable)\b", re.IGNORECASE)
_WHOLE_IMAGE = 0.9
# What programs write into a cell that holds nothing.
_EMPTY = {"nan", "none", "null", "na", "n/a", "<na>"}

# Names in small letters without marks, the most telling first.
_NAMES: dict[str, tuple[str, ...]] = {
    "file": ("file", "filename", "imagefile", "imagepath", "imgpath", "filepath", "path", "imagename", "imageid",
             "imageindex", "image", "img", "imgid", "sopinstanceuid", "id"),
    "boxes": ("boxes", "bboxes", "bbox", "box"),
    "label": ("label", "labels", "classname", "class", "findinglabel", "finding", "findings", "category",
              "categoryname", "classid", "categoryid", "pathology", "disease"),
    "split": ("split", "subset", "set", "fold"),
    "width": ("imagewidth", "imgwidth", "width", "columns"),
    "height": ("imageheight", "imgheight", "height", "rows"),
}  # fmt: skip
_CORNERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "xyxy": (("x1", "xmin", "left", "xtl"), ("y1", "ymin", "top", "ytl"), ("x2", "xmax", "right", "xbr"),
             ("y2", "ymax", "bottom", "ybr")),
    "cxcywh": (("cx", "xcenter", "xcentre", "centerx"), ("cy", "ycenter", "ycentre", "centery"),
               ("w", "width", "boxwidth", "bboxwidth"), ("h", "height", "boxheight", "bboxheight")),
    "xywh": (("x", "x1", "xmin", "left", "bboxx"), ("y", "y1", "ymin", "top", "bboxy"),
             ("w", "width", "boxwidth", "bboxwidth"), ("h", "height", "boxheight", "bboxheight")),
}  # fmt: skip
_CELLS = {"xyxy": ("x1", "y1", "x2", "y2"), "xywh": ("x", "y", "w", "h"), "cxcywh": ("cx", "cy", "w", "h")}


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
    faults: Faults | None = None,
) -> Images:
    """The images of a folder with one CSV file.

    Args:
        root: the folder.
        split: of the column `split`, or of the files' names; None takes all.
        table: the CSV file, relative to the root; needed where there are several that are not a split each.
        columns: what the columns are called where that is not seen, such as `file=scan,label=dx,x1=ulx`. Parts: file,
            label, split, patient, boxes, width, height, and x1 y1 x2 y2, x y w h, or cx cy w h.
        classes: names of the classes where the table has their numbers, from 0.
        order: of the numbers in a list of boxes: xyxy, xywh or cxcywh; or of columns x, y, width and height, which may
            be the middle of the box.
        frame: what the numbers count: `pixel`, or `fraction` of the image.
        faults: takes what cannot be read; see `sources.base.Faults`.

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
    paths = _tables(Path(root), table)
    check_word("frame", frame, _FRAMES)
    if order:
        check_word("order", order, tuple(_CELLS))
    if len(paths) > 1:
        tables.check_split(split, [name for name in paths if name is not None])
    images: list[Images] = []
    for name, path in paths.items():
        if name is not None and split not in (None, name):
            continue
        separator = tables.stated_separator(path) or max(_SEPARATORS, key=next(text_lines(path), "").count)
        header, rows = tables.read_whole_table(path, separator)
        layout = _find_columns(path, header, _stated_columns(columns), order)
        if split is not None and name is None:
            place = layout.get("split")
            tables.check_split(split, [] if place is None else {split_name(cells[place]) for _, cells in rows})
        reader = _TableReader(path, separator, layout, tuple(classes), frame)
        table_images = reader.images(split if name is None else None, faults)
        images.append(table_images if name is None else _of_split(table_images, name))
    return chain.from_iterable(images)


def _of_split(images: Images, split: str) -> Images:
    for image in images:
        yield image._replace(split=split)


def _tables(root: Path, name: str) -> dict[str | None, Path]:
    """The CSV files by the split that their names say, or one file of no split."""
    files = sorted(root.glob("*"))
    kinds = ([path for path in files if path.name.lower().endswith(endings)] for endings in _TABLES)
    paths = [root / name] if name else next(filter(None, kinds), [])
    splits = [split_name(path.name.partition(".")[0]) for path in paths]
    if len(paths) > 1 and len({*splits} & {*map(split_name, SPLIT_NAMES)}) == len(paths):
        return dict(zip(splits, paths, strict=True))
    if len(paths) != 1 or not paths[0].is_file():
        listed = ", ".join(path.name for path in paths) or "none"
        sheets = [path.name for path in files if path.suffix.lower() in (".xlsx", ".xls")]
        remedy = "Name it: --option table=FILE."
        if sheets and not paths:
            remedy = f"Save {sheets[0]} as CSV in the spreadsheet program."
        raise ValueError(f"Expected one CSV file in the folder for root, got {listed} in {str(root)!r}. {remedy}")
    return {None: paths[0]}


def _stated_columns(columns: Sequence[str]) -> dict[str, str]:
    parts = (*_NAMES, "patient", *dict.fromkeys(cell for cells in _CELLS.values() for cell in cells))
    names = {}
    for text in [columns] if isinstance(columns, str) else columns:
        part, _, name = text.partition("=")
        check_word("columns", part, parts)
        names[part] = name
    return names


def _find_columns(path: Path, header: list[str], stated_columns: Mapping[str, str], order: str) -> dict[str, Any]:
    """The place of every part among the cells, and `box`, the order of the numbers with their places."""
    plain_names = [re.sub(r"[\W_]", "", name).casefold() for name in header]
    for name in stated_columns.values():
        check_word(f"a column of {path.name}", name, header)
    stated_places = {part: header.index(name) for part, name in stated_columns.items()}

    def place(part: str, names: Sequence[str]) -> int | None:
        return stated_places.get(part, next((plain_names.index(name) for name in names if name in plain_names), None))

    orders = {
        name: [place(*part_and_names) for part_and_names in zip(_CELLS[name], _CORNERS[name], strict=True)]
        for name in _CORNERS
    }
    box = next(((name, places) for name, places in orders.items() if None not in places), None)
    listed = place("boxes", _NAMES["boxes"])
    file = place("file", _NAMES["file"])
    if file is None or (box is None and listed is None):
        raise ValueError(
            f"Expected a column for the file and four for the box, or a list of boxes, in {path}, got "
            f"{', '.join(header)}. Say which they are: --option columns=file=NAME,x1=NAME,y1=NAME,x2=NAME,y2=NAME."
        )
    if box is not None and order not in ("", box[0]):
        # The names of both are the same, but for c.
        if {order, box[0]} != {"xywh", "cxcywh"}:
            names = ", ".join(header[at] for at in box[1] if at is not None)
            raise ValueError(
                f"Expected order {box[0]} for the columns {names} of {path}, got {order}. Leave order out, or name the "
                f"columns of this order: --option columns={','.join(f'{part}=NAME' for part in _CELLS[order])}."
            )
        box = (order, box[1])
    if box is None and not order:
        raise ValueError(
            f"Expected the order of the four numbers of column {header[listed or 0]} of {path}, got none. Say it: "
            f"--option order={', order='.join(_CELLS)}."
        )
    of_box = set(box[1]) if box else set()
    sizes = {part: at for part in ("width", "height") if (at := place(part, _NAMES[part])) not in (None, *of_box)}
    column = patient_column(name for name in header if name != "patient_id")
    patient = "patient_id" if "patient_id" in header else column
    optional = {"label": place("label", _NAMES["label"]), "split": place("split", _NAMES["split"])}
    optional["patient"] = stated_places.get("patient", None if patient is None else header.index(patient))
    optional |= sizes if len(sizes) == 2 else {}
    boxes = {"box": box} if box else {"boxes": listed, "order": order}
    parts = {"file": file, **boxes, **{part: at for part, at in optional.items() if at is not None}}
    used = {*parts.values(), *of_box} if box is None else {file, *of_box, *optional.values()}
    for part, at in stated_places.items():
        if at not in used:
            raise ValueError(
                f"Expected a part of use for columns, got {part}={header[at]}: it has no effect in {path}. Leave it "
                "out, or name the others of its kind too, such as width and height."
            )
    return parts


class _TableReader:
    """Reads one table.

    path, separator: of the file.
    layout: from `_find_columns`.
    classes, frame: as for `read_csv_table`.
    unmarked: a label without a box, by image.
    """

    def __init__(
        self, path: Path, separator: str, layout: Mapping[str, Any], classes: Sequence[str], frame: str
    ) -> None:
        self.path, self.separator, self.layout = path, separator, layout
        self.classes, self.frame = classes, frame
        self.unmarked: dict[str, str] = {}
        self.find = tables.image_finder(path.parent)

    def images(self, split: str | None, faults: Faults | None) -> Images:
        """The images of a split, or all."""
        # A row with too few cells tells its image in the first cell alone.
        broken = None if self.layout["file"] or faults is None else Faults()
        rows = list(self._named_rows(broken))
        if self.frame == "pixel":
            _refuse_thousands(self.path, rows, self.layout)
        groups: dict[str, list[tables.TableRow]] = {}
        for place, cells in rows:
            groups.setdefault(cells[0], []).append((place, cells))
        if faults is not None and broken is not None:
            faults.messages |= broken.messages
            for name in broken.images:
                groups.pop(name, None)
        chosen = [
            (name, image_rows)
            for name, image_rows in groups.items()
            if split in (None, self._value(image_rows, "split", split_name))
        ]
        yield from sound_images(self._image, chosen, faults)
        if self.unmarked:
            name, label = next(iter(self.unmarked.items()))
            warnings.warn(
                f"{len(self.unmarked)} images of {self.path.name} have a label without a box, such as {name} "
                f"({label}): they are taken for images without it. Where the finding is there and was not marked, "
                "remove their rows.",
                PackageWarning,
                stacklevel=2,
            )

    def _named_rows(self, broken: Faults | None) -> Iterator[tables.TableRow]:
        """The rows that are not empty, with the name of the image before their cells."""
        for place, row in tables.read_whole_table(self.path, self.separator, broken)[1]:
            cells = ["" if cell.casefold() in _EMPTY else cell for cell in row]
            if any(cells):
                name = cells[self.layout["file"]]
                yield place._replace(image=name), (name, *cells)

    def _value(self, rows: Sequence[tables.TableRow], part: str, read: Callable[[str], Any] = str) -> Any:
        """What the rows of an image say of it together; None if they say nothing."""
        values = {cells[self.layout[part] + 1] for _, cells in rows} - {""} if part in self.layout else set()
        if len(values) > 1:
            raise rows[0][0].error(f"one {part} in all rows of an image", sorted(values), "Correct them.")
        return read(values.pop()) if values else None

    def _image(self, name: str, rows: Sequence[tables.TableRow]) -> AnnotatedImage:
        if not name:
            raise rows[0][0]._replace(image="-").error("the name of an image", name)
        # Tables from Windows have its mark between folders.
        published = PureWindowsPath(name).as_posix()
        file = self.find(published, published)
        sides = [self._value(rows, side, partial(_number, rows[0][0])) for side in ("width", "height")]
        size = None if None in sides else (int(sides[0]), int(sides[1]))
        if size is None and (self.frame == "fraction" or (self.path.parent / file).is_file()):
            size = tables.header_size(self.path.parent / file)
        boxes, labels = self._boxes(name, rows, size)
        patient, own_split = stated_name(self._value(rows, "patient")), self._value(rows, "split", split_name)
        width, height = size or (None, None)
        # A path of somebody's machine is no id.
        is_absolute = PureWindowsPath(name).is_absolute() or PurePosixPath(name).is_absolute()
        return AnnotatedImage(file if is_absolute else name, file, boxes, labels, width, height, patient, own_split)

    def _boxes(
        self, name: str, rows: Sequence[tables.TableRow], size: tuple[int, int] | None
    ) -> tuple[list[list[float]], list[str]]:
        boxes, labels = [], []
        for place, (_, *cells) in rows:
            order, row_boxes, row_labels = _row_boxes(place, cells, self.layout)
            if not row_boxes:
                self.unmarked.update((name, label) for label in row_labels if label and not _is_nothing(label))
                continue
            for four, label in zip(row_boxes, row_labels, strict=True):
                box = list(ORDERS[order].to_xyxy(*(_number(place, number) for number in four)))
                if self.frame == "fraction" and size is not None:
                    box = tables.scaled_box(box, *size)
                box_label = place.class_name(label, self.classes) if label else UNNAMED
                if _is_nothing(box_label) and not _is_class(box_label, box, size):
                    raise place.error("no box beside a label that says there is nothing", label, "Clear its cells.")
                boxes.append(box)
                labels.append(box_label)
        return boxes, labels


def _refuse_thousands(path: Path, rows: Sequence[tables.TableRow], layout: Mapping[str, Any]) -> None:
    """Refuse a table whose numbers may have a mark between thousands: 1,010 would be read as 1.01 pixels.

    Three digits stand behind each mark, and numbers or images are large enough; a mark that ever stands elsewhere
    is the decimal sign.

    Raises:
        ValueError: the first such cell is named.
    """
    places = [layout[part] for part in ("width", "height") if part in layout]
    places += layout["box"][1] if "box" in layout else []
    grouped: dict[str, tuple[tables.RowPlace, str]] = {}
    decimal: set[str] = set()
    largest = 0.0
    for place, (_, *cells) in rows:
        for cell in (cells[at] for at in places):
            mark = next((mark for mark in ",." if mark in cell), "")
            if not mark:
                largest = max(largest, float(cell) if cell.isdecimal() else 0)
            elif _GROUPED.fullmatch(cell) and int(re.sub("[,.]", "", cell)) <= _LARGEST_SIDE:
                grouped.setdefault(mark, (place, cell))
            else:
                decimal.add(mark)
    for mark, (place, cell) in grouped.items():
        if mark in decimal:
            continue
        file = path.parent / tables.image_finder(path.parent)(place.image, place.image)
        if largest <= _SMALL and file.is_file():
            largest = max(tables.header_size(file))
        if largest > _SMALL:
            whole_number, fraction = re.sub("[,.]", "", cell), cell.replace(",", ".").rstrip("0")
            raise ValueError(
                f"Expected numbers without a mark between thousands in {path}, got {cell!r} in line {place.line}: is "
                f"it {whole_number} or {fraction}? Write {whole_number}, or decimals with another number of digits."
            )


def _is_class(label: str, box: Sequence[float], size: tuple[int, int] | None) -> bool:
    """Whether a label such as normal or healthy is a class here: its box stands around something on the image."""
    if not _SOUND_TISSUE.search(label) or size is None:
        return False
    area = (box[2] - box[0]) * (box[3] - box[1])
    return 1 < area < _WHOLE_IMAGE * size[0] * size[1]


@cache
def _is_nothing(label: str) -> bool:
    return label == "0" or states_nothing(f"{label}.")


def _row_boxes(
    place: tables.RowPlace, cells: Sequence[str], layout: Mapping[str, Any]
) -> tuple[str, list[Sequence[Any]], list[str]]:
    """The order of the numbers, the boxes of a row, and their labels."""
    label = cells[layout["label"]] if "label" in layout else ""
    if "box" in layout:
        order, places = layout["box"]
        four = [cells[number] for number in places]
        return order, [four] if any(four) else [], [label]
    row_boxes = _listed(cells[layout["boxes"]] or "[]")
    # One box alone, as many tables have it.
    row_boxes = [row_boxes] if row_boxes and not isinstance(row_boxes[0], list) else row_boxes
    parted = [[part.strip() for part in label.split(mark)] for mark in "|;,"]
    fitting = next((parts for parts in parted if len(parts) == len(row_boxes)), parted[0])
    row_labels = _listed(label) if label.startswith("[") else fitting
    row_labels = row_labels * len(row_boxes) if len(row_labels) == 1 < len(row_boxes) else row_labels
    if not all(map(is_box, row_boxes)) or (row_boxes and len(row_labels) != len(row_boxes)):
        raise place.error("a list of boxes with a label each", (cells[layout["boxes"]], label))
    return layout["order"], row_boxes, list(map(str, row_labels))


def _listed(text: str) -> list[Any]:
    """A list as JSON or as Python prints it, or numbers that spaces or commas part.

    Example:
        >>> _listed("[(1, 2, 30, 40)]"), _listed("['mass']"), _listed("[1. 2. 30. 40.]")
        ([[1, 2, 30, 40]], ['mass'], [1.0, 2.0, 30.0, 40.0])
    """
    for spelling in (text, text.translate(str.maketrans("()'", '[]"'))):
        try:
            content = parse_json(spelling)
        except ValueError:
            continue
        return content if isinstance(content, list) else [content]
    try:
        return [float(word) for word in re.split(r"[\s,;]+", text.strip("[]() "))]
    except ValueError:
        return [text]


def _number(place: tables.RowPlace, cell: Any) -> float:
    text = str(cell)
    try:
        # A comma is the decimal sign where it parts no cells.
        return float(text if "." in text else text.replace(",", "."))
    except ValueError:
        raise place.error("a number", cell) from None
