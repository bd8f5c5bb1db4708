"""NIH ChestX-ray14: the 880 images of the chest radiograph collection that have boxes, and its images without findings.

Folder::

    BBox_List_2017.csv                       image, label, x, y, w, h
    Data_Entry_2017_v2020.csv                what is known of every image, also as Data_Entry_2017.csv; optional
    train_val_list.txt, test_list.txt        names of images; optional
    images/<name>.png                        or images_001/images/<name>.png and so on

The header of the list, `Image Index,Finding Label,Bbox [x,y,w,h],,,`, has unquoted commas in a name: four columns are
called `Bbox [x`, `y`, `w` and `h]`. Copies saved again lack the last commas or end lines with CRLF.

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

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from grounding_rewards.common.text_files import read_text
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import Faults, Images, register_source, sound_images
from grounding_rewards.sources.tables import TableRow, check_split, find_file, image_finder, optional_file, read_table

_SIDE = 1024
_BOXES = ("Image Index", "Finding Label", "Bbox [x", "y", "w", "h]")
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
    root: str | Path, *, split: str | None = None, negatives: bool = True, faults: Faults | None = None
) -> Images:
    """The images with boxes, then the images without findings.

    Args:
        root: the folder of the dataset.
        split: `train_val` or `test`, by the dataset's two lists; None takes all.
        negatives: give the images without findings as well; there are seventy for every image with boxes.
        faults: takes what cannot be read; see `sources.base.Faults`.

    Returns:
        Images in the order of the tables. `extra` has `finding_labels` (all labels of the image, joined by `|`,
        with and without box) and `view`, where the folder has `Data_Entry_2017`.
    """
    check_split(split, _LISTS)
    root = Path(root)
    listed: dict[str, list[TableRow]] = {}
    broken = Faults()
    for row in read_table(find_file(root, "BBox_List_2017.csv"), _BOXES, faults=None if faults is None else broken):
        listed.setdefault(row[1][0], []).append(row)
    if faults is not None:
        faults.messages |= broken.messages
    if split is not None:
        find_file(root, _LISTS[split])
    splits = {
        name: list_split
        for list_split, file in _LISTS.items()
        if split in (None, list_split) and (path := optional_file(root, file)) is not None
        for name in read_text(path).split()
    }
    entries = optional_file(root, *_ENTRIES)
    find = image_finder(root)

    def image(name: str, rows: Sequence[TableRow], extra: Mapping[str, str]) -> AnnotatedImage:
        boxes = [place.box(cells[2:], "xywh") for place, cells in rows]
        labels = [cells[1] for _, cells in rows]
        file, patient = find(name, f"images/{name}"), name.split("_")[0]
        return AnnotatedImage(name, file, boxes, labels, _SIDE, _SIDE, patient, splits.get(name), extra=extra)

    def image_arguments() -> Iterator[tuple[str, Sequence[TableRow], Mapping[str, str]]]:
        facts = {name: extra for name, extra in _facts(entries, faults) if name in listed}
        for name, rows in listed.items():
            yield name, rows, facts.get(name, {})
        for name, extra in _facts(entries, faults) if negatives else ():
            if extra["finding_labels"] == _NEGATIVE and name not in listed:
                yield name, (), extra

    chosen_images = (
        arguments
        for arguments in image_arguments()
        if arguments[0] not in broken.images and (split is None or arguments[0] in splits)
    )
    return sound_images(image, chosen_images, faults)


def _facts(entries: Path | None, faults: Faults | None) -> Iterator[tuple[str, Mapping[str, str]]]:
    """What is known of each image."""
    if entries is not None:
        table = read_table(entries, ("Image Index", "Finding Labels"), ("View Position",), faults)
        for _, (name, labels, view) in table:
            yield name, {"finding_labels": labels, "view": view}
