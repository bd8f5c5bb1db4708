"""What images, labels and models are called in other tools, which want a file name per image and a label per box."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import Boxes, valid_boxes
from grounding_rewards.metrics.answered_image import AnsweredImage

#: The label of a predicted box without one.
UNLABELLED = "unlabelled"


def label_names(images: Iterable[AnsweredImage]) -> list[str]:
    """All labels: those of reference boxes in alphabetical order, then those that only predictions have.

    :data:`UNLABELLED` comes last, where a predicted box has no label and the references have more than one: otherwise
    the box is taken to have the only label there is.

    Example:
        >>> label_names([AnsweredImage("a", 9, 9, gt=[[0, 0, 5, 5]], gt_labels=["mass"], pred=[[1, 1, 5, 5]])])
        ['mass']
        >>> image = AnsweredImage("a", 9, 9, pred=[[1, 1, 5, 5], [1, 1, 4, 4]], pred_labels=["nodule", None])
        >>> label_names([image])
        ['nodule', 'unlabelled']
    """
    images = list(images)
    gt = sorted({label for image in images for label in image.gt_labels})
    pred = {label for image in images for label in image.pred_labels}
    names = gt + sorted(label for label in pred if label is not None and label not in gt)
    if None in pred and len(gt) != 1 and UNLABELLED not in names:
        names.append(UNLABELLED)
    return names


def pred_labels_of(image: AnsweredImage, names: Sequence[str]) -> list[str]:
    """The label of every predicted box, one of ``names``, which :func:`label_names` gave for all images.

    Example:
        >>> pred_labels_of(AnsweredImage("a", 9, 9, pred=[[1, 1, 5, 5]]), ["mass"])
        ['mass']
    """
    without = UNLABELLED if UNLABELLED in names else names[0] if names else UNLABELLED
    return [without if label is None else label for label in image.pred_labels]


def file_names(images: Sequence[AnsweredImage]) -> list[str]:
    """A different file name for every image.

    The name of the image without its folders; where two images would share one, or an image has no image, the ids of
    all images, with the suffix of the image. Never an absolute path, nor one that leads out of its folder.

    Example:
        >>> file_names([AnsweredImage("a", 9, 9, image="x/1.png"), AnsweredImage("b", 9, 9, image="y/2.png")])
        ['1.png', '2.png']
        >>> file_names([AnsweredImage("x/1", 9, 9, image="x/1.png"), AnsweredImage("y/1", 9, 9, image="y/1.png")])
        ['x/1.png', 'y/1.png']
    """
    names = [PurePosixPath(Path(image.image).as_posix()).name if image.image else "" for image in images]
    if all(names) and len(set(names)) == len(names):
        return names
    names = [_called_after_id(image) for image in images]
    if len(set(names)) == len(names):
        return names
    return [f"{number:06d}_{name}" for number, name in enumerate(names, start=1)]


def drawable_boxes(boxes: Boxes, width: float, height: float) -> tuple[Boxes, NDArray[np.int64]]:
    """The boxes that can be drawn on an image, clipped to its edges, and their indices.

    Args:
        boxes: ``(n, 4)`` xyxy in pixels of the image; invalid ones, and those outside the image, are left out.
        width: of the image in pixels.
        height: of the image in pixels.

    Returns:
        ``(k, 4)`` xyxy inside the image, and the k indices into ``boxes``.

    Example:
        >>> drawable_boxes(np.array([[-5.0, 0, 5, 5], [20, 0, 30, 5], [5, 5, 1, 1]]), 10, 10)
        (array([[0., 0., 5., 5.]]), array([0]))
    """
    # Check before clipping: clipping would make an infinite corner finite.
    kept = valid_boxes(boxes)
    inside = np.clip(boxes, 0, [width, height, width, height])
    kept &= valid_boxes(inside)
    return inside[kept], np.flatnonzero(kept)


def model_name(model: str) -> str:
    """The name of a model without its folders: the last part of its path, for a checkpoint the run's name too.

    Example:
        >>> model_name("Qwen/Qwen2.5-VL-3B-Instruct"), model_name("/data/runs/r4/checkpoint-50/")
        ('Qwen2.5-VL-3B-Instruct', 'r4/checkpoint-50')
    """
    path = Path(model)
    return f"{path.parent.name}/{path.name}" if path.name.startswith("checkpoint") and path.parent.name else path.name


def whole_number(side: float) -> int | float:
    """An integer where a side has whole pixels, as other tools expect.

    Example:
        >>> whole_number(640.0), whole_number(640.5)
        (640, 640.5)
    """
    return int(side) if float(side).is_integer() else side


def _called_after_id(image: AnsweredImage) -> str:
    ending = PurePosixPath(Path(image.image).as_posix()).suffix if image.image else ""
    parts = [part for part in PurePosixPath(image.id).parts if part not in ("/", "//", "..")]
    name = "/".join(parts) or "image"
    return name if name.endswith(ending) else name + ending
