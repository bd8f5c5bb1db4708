"""NIH ChestX-ray14: the 880 images of the chest radiograph collection that have boxes, and its images without findings.

Folder::

    BBox_List_2017.csv                       image, label, x, y, w, h
    Data_Entry_2017_v2020.csv                what is known of every image, also as Data_Entry_2017.csv; optional
    train_val_list.txt, test_list.txt        names of images; optional
    images/<name>.png                        or images_001/images/<name>.png and so on

The list of boxes is read by position: its header, `Image Index,Finding Label,Bbox [x,y,w,h],,,`, has unquoted commas in
a name, and copies saved again lack the last commas or end lines with CRLF. The header of the other table has such names
too.

The list has at most one box per image and label, and none for most findings: an image with findings and without a box
is no negative and is left out. The label "Infiltrate" is "Infiltration" in the other table.

Readers: one radiologist.
Negative: an image whose only label in `Data_Entry_2017` is "No Finding", found by text mining; 60 thousand images. The
list of boxes alone has none.
Boxes: left, top, width and height in pixels of the PNG file, which is 1024 x 1024.
Paper: Wang et al., CVPR 2017, arXiv 1705.02315.
Access: open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from grounding_rewards.common.texts import read_text
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import register_source
from grounding_rewards.sources.tables import (
    RowPlace,
    check_split,
    find_file,
    image_finder,
    optional_file,
    read_rows,
    xywh_box,
)

_SIDE = 1024
_LISTS = {"train_val": "train_val_list.txt", "test": "test_list.txt"}
_ENTRIES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
_NEGATIVE = "No Finding"


@register_source(
    "nih-chestxray14",
    title="NIH ChestX-ray14",
    url="https://nihcc.app.box.com/v/ChestXray-NIHCC",
    licence="no restrictions; link, citation and acknowledgement of the NIH Clinical Center are asked for",
    note="Not every finding is marked: an image without a box is no negative.",
)
def read_nih_chestxray14(
    root: str | Path, *, split: str | None = None, negatives: bool = True
) -> Iterator[AnnotatedImage]:
    """The images with boxes, then the images without findings.

    Args:
        root: the folder of the dataset.
        split: `train_val` or `test`, by the dataset's two lists; None takes all.
        negatives: give the images without findings as well; there are seventy for every image with boxes.

    Returns:
        Images in the order of the tables. `extra` has `finding_labels` (all labels of the image, joined by `|`,
        with and without box) and `view`, where the folder has `Data_Entry_2017`.
    """
    check_split(split, _LISTS)
    root = Path(root)
    found = _read_boxes(find_file(root, "BBox_List_2017.csv"))
    if split is not None:
        find_file(root, _LISTS[split])
    splits = {
        name: one
        for one, file in _LISTS.items()
        if split in (None, one) and (path := optional_file(root, file)) is not None
        for name in read_text(path).split()
    }
    entries = optional_file(root, *_ENTRIES)
    find = image_finder(root)

    def image(name: str, extra: Mapping[str, str]) -> AnnotatedImage:
        boxes, labels = found.get(name, ([], []))
        return AnnotatedImage(
            id=name,
            file=find(name, f"images/{name}"),
            boxes=boxes,
            labels=labels,
            width=_SIDE,
            height=_SIDE,
            patient_id=name.split("_")[0],
            split=splits.get(name),
            extra=extra,
        )

    chosen = _chosen(found, entries, negatives)
    return (image(name, extra) for name, extra in chosen if split is None or name in splits)


def _chosen(found: Collection[str], entries: Path | None, negatives: bool) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The images with boxes, then those without findings, and what is known of each."""
    facts = {} if entries is None else {name: extra for name, extra in _read_entries(entries) if name in found}
    for name in found:
        yield name, facts.get(name, {})
    if entries is not None and negatives:
        for name, extra in _read_entries(entries):
            if extra["finding_labels"] == _NEGATIVE and name not in found:
                yield name, extra


def _read_boxes(path: Path) -> dict[str, tuple[list[list[float]], list[str]]]:
    rows = read_rows(path)
    line, header = next(rows, (1, [""]))
    if len(header) < 6 or [cell.strip() for cell in header[:2]] != ["Image Index", "Finding Label"]:
        expected = "'Image Index,Finding Label,Bbox [x,y,w,h]'"
        raise RowPlace(path, line, "header").error(expected, header, "Take the file as published.")
    found: dict[str, tuple[list[list[float]], list[str]]] = {}
    for line, row in rows:
        name, label, *cells = (cell.strip() for cell in row)
        place = RowPlace(path, line, name)
        if len(cells) < 4 or any(cells[4:]):
            raise place.error("an image, a label and four numbers", row, "Correct the row.")
        boxes, labels = found.setdefault(name, ([], []))
        boxes.append(xywh_box(place.numbers(cells[:4])))
        labels.append(label)
    return found


def _read_entries(path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    rows = read_rows(path)
    next(rows, None)
    for line, row in rows:
        if len(row) < 7:
            raise RowPlace(path, line, row[0]).error("7 cells", row, "Take the file as published.")
        name, labels, _, _, _, _, view = (cell.strip() for cell in row[:7])
        yield name, {"finding_labels": labels, "view": view}
