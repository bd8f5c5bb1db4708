"""ChestX-Det (13 labels) and ChestX-Det10 (10 labels): chest radiographs with boxes of three radiologists, merged.

Folder::

    ChestX_Det_train.json, ChestX_Det_test.json    of ChestX-Det; of ChestX-Det10: train.json, test.json
    train_data/<file_name>, test_data/<file_name>  or anywhere else below the folder

Each file is a list of `{"file_name", "syms": [label, ...], "boxes": [[x1, y1, x2, y2], ...]}`, in which the two lists
belong together; the `polygons` of ChestX-Det are not read.

The images come from NIH ChestX-ray14 under new numbers: their patients, and which of them are also in NIH's or RSNA's
data, are unknown. An image of the same name can have other boxes in the other dataset: keep them in two folders.

Readers: three radiologists, merged by the authors.
Negative: an image with empty lists.
Boxes: pixels of the PNG file, which is 1024 x 1024.
Paper: arXiv 2006.10550.
Access: open.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grounding_rewards.boxes import is_box
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import Images, register_source, sound_images
from grounding_rewards.sources.documents import read_json_rows
from grounding_rewards.sources.tables import RowPlace, image_finder, split_paths

_SIDE = 1024
_OTHER_NAMES = "Images are of NIH ChestX-ray14 under other names."


@register_source(
    "chestx-det",
    title="ChestX-Det",
    url="https://github.com/Deepwise-AILab/ChestX-Det-Dataset",
    licence="annotations Apache-2.0; images as NIH ChestX-ray14",
    note=_OTHER_NAMES,
)
def read_chestx_det(root: str | Path, *, split: str | None = None) -> Images:
    """The images of ChestX-Det, in the order of the files."""
    return _read(root, split, "ChestX_Det_{}.json")


@register_source(
    "chestx-det10",
    title="ChestX-Det10",
    url="https://github.com/Deepwise-AILab/ChestX-Det10-Dataset",
    licence="annotations not stated; images as NIH ChestX-ray14",
    note=_OTHER_NAMES,
)
def read_chestx_det10(root: str | Path, *, split: str | None = None) -> Images:
    """The images of ChestX-Det10, in the order of the files."""
    return _read(root, split, "{}.json")


def _read(root: str | Path, split: str | None, file_pattern: str) -> Images:
    """The images of a split, or of both, from files whose name has the split in place of `{}`."""
    paths = split_paths(root, split, {name: [file_pattern.format(name)] for name in ("train", "test")})
    find = image_finder(root)

    def image(split: str, place: RowPlace, entry: Mapping[str, Any]) -> AnnotatedImage:
        """The image of an entry, with its boxes as numbers."""
        name, labels, boxes = place.image, entry.get("syms"), entry.get("boxes")
        if not isinstance(labels, list) or not isinstance(boxes, list) or len(labels) != len(boxes):
            raise place.error("as many syms as boxes", (labels, boxes), "Correct the entry.")
        bad_boxes = [box for box in boxes if not is_box(box)]
        if bad_boxes:
            raise place.error("four numbers for a box", bad_boxes[0], "Correct the entry.")
        float_boxes = [[float(value) for value in box] for box in boxes]
        return AnnotatedImage(name, find(name, f"{split}_data/{name}"), float_boxes, labels, _SIDE, _SIDE, split=split)

    # Split, place and entry of each image.
    rows = ((name, *row) for name, path in paths.items() for row in read_json_rows(path, "file_name"))
    return sound_images(image, rows)
