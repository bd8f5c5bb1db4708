"""SIIM-ACR Pneumothorax Segmentation (2019): chest radiographs with masks of pneumothoraces, given here as boxes.

Folder::

    train-rle.csv    ImageId and, after a space, EncodedPixels; later release: stage_2_train.csv
    dicom-images-train/<study>/<series>/<ImageId>.dcm

A mask is a list of run lengths, column by column: pixels to skip after the last run, pixels to take, and so on. An
image can have several rows. Each connected part of their union (also connected by corners) gets a box, after a closing
with a square of 5 x 5 pixels: parts of one pneumothorax that a gap of up to four pixels divides are one. Specks that a
hand left farther away stay boxes of their own: about one box in seven has a side below 10 pixels.

The images come from NIH ChestX-ray14, under other names and without a patient: never train on one and test on the
other.

Readers: one radiologist.
Negative: an image whose only row is `-1`.
Copies: where the DICOM file isn't there, `<ImageId>.png` or `.jpg` is taken from anywhere below the root.
Boxes: made from the masks, in pixels of the DICOM file, which is 1024 x 1024, however large a copy is.
All are labelled "Pneumothorax".
Access: Kaggle account.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import KAGGLE, Images, register_source
from grounding_rewards.sources.tables import TableRow, check_split, find_file, image_finder, table_images

_SIDE = 1024
# Side in pixels of the square with which gaps are closed.
_CLOSING = 5


@register_source(
    "siim-acr",
    title="SIIM-ACR Pneumothorax Segmentation",
    url="https://www.kaggle.com/c/siim-acr-pneumothorax-segmentation",
    licence=KAGGLE,
    note="Images are of NIH ChestX-ray14.",
)
def read_siim_acr(root: str | Path, *, split: str | None = None) -> Images:
    """The images of the challenge's training set, the only one with masks, in the order of the table."""
    check_split(split, ["train"])
    path = find_file(root, "train-rle.csv", "stage_2_train.csv")
    find = image_finder(root)

    def image(name: str, rows: list[TableRow]) -> AnnotatedImage:
        """The image of that name, with the boxes of its rows in the table."""
        boxes = _boxes(rows)
        file = find(name, f"dicom-images-train/{name}.dcm")
        return AnnotatedImage(name, file, boxes, ["Pneumothorax"] * len(boxes), _SIDE, _SIDE, split="train")

    return table_images(image, path, ("ImageId", "EncodedPixels"))


def mask_boxes(masks: Sequence[Sequence[int]], side: int = _SIDE) -> list[list[float]]:
    """A box around every connected part of the union of several masks, small gaps closed.

    Args:
        masks: run lengths of each, column by column: skip, take, skip, take, ...
        side: width and height of the image in pixels.

    Returns:
        xyxy, from left to right; a pixel reaches from its number to the next one.

    On an image of 12 x 12 pixels: two pixels at the top of the second column, and the last pixel of the last one.

    Example:
        >>> mask_boxes([[12, 2], [143, 1]], side=12)
        [[1.0, 0.0, 2.0, 2.0], [11.0, 11.0, 12.0, 12.0]]
    """
    from scipy.ndimage import binary_closing, find_objects, label

    image = np.zeros(side * side, dtype=bool)
    for mask in masks:
        # The sums of run lengths are pixels at which a run begins, after a skip, and ends, after a take, in turn.
        turns = np.cumsum(mask)
        for start, end in zip(turns[::2], turns[1::2], strict=True):
            image[start:end] = True
    # The mask is written column by column, so the first axis is x.
    mask_pixels = image.reshape(side, side)
    if not mask_pixels.any():
        return []
    # Only the part of the image that has the mask is closed, which takes far less time. As numbers, all pixels of the
    # mask are part 1, so that there is one region.
    ((x_range, y_range),) = find_objects(mask_pixels.astype(np.int8))
    # A margin, so that the edge of the image closes nothing.
    inner = np.pad(mask_pixels[x_range, y_range], _CLOSING)
    left, top = x_range.start - _CLOSING, y_range.start - _CLOSING
    # Pixels that touch at a corner alone are of one part too: the structure is all ones.
    part_numbers, _ = label(binary_closing(inner, np.ones((_CLOSING, _CLOSING))), structure=np.ones((3, 3)))
    boxes = []
    # Around the mask's own pixels of each part; a part that closing alone made has none, and no region.
    for region in find_objects(np.where(inner, part_numbers, 0)):
        if region is not None:
            x, y = region
            boxes.append([float(left + x.start), float(top + y.start), float(left + x.stop), float(top + y.stop)])
    return boxes


def _boxes(rows: list[TableRow]) -> list[list[float]]:
    """The boxes of an image from its rows, which are masks or a single -1; a broken mask is refused."""
    masks = []
    for place, (_name, run_lengths) in rows:
        if run_lengths == "-1":
            continue
        # Skip, take, skip, take, ...
        mask = [int(number) for number in place.numbers(run_lengths.split())]
        takes = mask[1::2]
        is_inside = all(number >= 0 for number in mask) and sum(mask) <= _SIDE * _SIDE
        if len(mask) % 2 or not any(takes) or not is_inside:
            raise place.error(f"pairs of skip and take inside {_SIDE} x {_SIDE} pixels, or -1,", run_lengths[:40])
        masks.append(mask)
    return mask_boxes(masks)
