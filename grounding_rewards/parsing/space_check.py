"""Notice when the numbers that a model writes contradict the declared coordinate space or order.

Nothing here changes what is read: a number does not show its space, and a reward that guessed it would change its
meaning from one completion to the next. Over many images, though, a wrong declaration shows: read in another space or
order, the same numbers meet the reference boxes. That is worth one warning, because training cannot repair it.

Every space of `SPACES` is compared in every order of `ORDERS`, over many images of known size and never over one.
Another convention is named if it has a clearly higher mean IoU, and meets the boxes of *its own* image better than
those of other images. A model that always writes the same box cannot pass the second test.

The declared convention gets the benefit of the doubt: its boxes also count with their corners put in order, and without
the shift and the factor in size that they share. A model that writes boxes upside down is poor, not mixed up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import (
    ORDERS,
    SPACES,
    BoxBatch,
    Boxes,
    Convention,
    as_box_array,
    frame_to_pixel,
    from_xyxy,
    positive_sizes,
    space_frame,
    to_xyxy,
)
from grounding_rewards.common.formatting import counted
from grounding_rewards.common.numeric import Array
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing.box_format import BoxFormat
from grounding_rewards.parsing.formats import get_box_format, list_box_formats
from grounding_rewards.parsing.results import RawBoxes

#: With fewer images nothing is concluded.
MIN_IMAGES = 4
# With fewer images only what shows on every single one counts.
_MANY_IMAGES = 10
#: Images that are compared; more only cost time.
MAX_IMAGES = 256
# Completions of one image that are compared.
_MAX_ANSWERS = 4
# Boxes of one completion, and references of one image, that are compared.
_MAX_BOXES = 16

# The mean IoU that another convention must reach at least,
_MIN_IOU = 0.25
# and its gain over the declared one: in the mean, and on every image if there are few.
_MIN_GAIN, _MIN_GAIN_OF_EACH = 0.15, 0.4
# Standard errors over images by which a gain must be above 0.
_STANDARD_ERRORS = 4.0
# Other images whose references a model must meet less well than those of its own image.
_CONTROLS = 8
# A poor model may shift all of its boxes by this fraction of the image, and change their sizes by this factor.
_MAX_SHIFT, _MAX_FACTOR = 0.1, 4.0
# Conventions whose mean IoU differs by less are equal.
_SAME_IOU = 0.02


class SpaceWarning(UserWarning):
    """The boxes of many images contradict the declared coordinate space or order."""


@dataclass(frozen=True)
class SpaceCheck:
    """Whether a model's numbers contradict the declared space and order.

    Attributes:
        declared: the convention of the box format.
        likely: the convention that the numbers fit, if they contradict the declared one.
        declared_iou: mean over images of the best IoU of each predicted box, as declared; NaN if there is too little.
        likely_iou: the same for `likely`; NaN if nothing contradicts.
        images: how many images were compared.
        boxes: how many predicted boxes were compared.
        message: one or two sentences for a person: what was found and what to declare.
    """

    declared: Convention
    likely: Convention | None
    declared_iou: float
    likely_iou: float
    images: int
    boxes: int
    message: str


def check_space(raws: Sequence[RawBoxes], fmt: BoxFormat, boxes: Sequence[ArrayLike], sizes: Array) -> SpaceCheck:
    """Compare what models wrote with the space and order that their box format declares.

    Args:
        raws: n completions as `read_boxes` gives them.
        fmt: the format that they were read in.
        boxes: n lists of reference boxes, (m, 4) xyxy in original pixels; images without any are left out.
        sizes: (n, 4), width, height and the resized width and height; images of unknown size are left out.

    Raises:
        ValueError: the lengths differ.

    Example:
        >>> from grounding_rewards.parsing import read_boxes
        >>> fmt = get_box_format("qwen3-vl")
        >>> gt = [[[k, 2 * k, k + 90, 2 * k + 70]] for k in range(0, 400, 20)]
        >>> raws = [read_boxes(f'[{{"bbox_2d": [{y1}, {x1}, {y2}, {x2}]}}]', fmt) for [[x1, y1, x2, y2]] in gt]
        >>> check = check_space(raws, fmt, gt, np.array([[1000, 1000, np.nan, np.nan]] * 20))
        >>> check.likely, round(check.declared_iou, 2), check.likely_iou
        (Convention(space='norm1000', order='yxyx'), 0.08, 1.0)
        >>> print(check.message.replace(": ", ":\\n", 1))
        Expected boxes in norm1000, order xyxy, for box format qwen3-vl, got numbers that fit norm1000, order yxyx:
        over 20 images with 20 boxes the mean IoU is 0.08, and would be 1.00. If the model writes that, declare \
`box_format: gemini`.
    """
    references = map(as_box_array, boxes)
    return check_read_completions([ReadCompletion(*row) for row in zip(raws, references, sizes, strict=True)], fmt)


class ReadCompletion(NamedTuple):
    """A completion as read, the reference boxes of its image, and the four sizes of it, NaN where unknown."""

    raw: RawBoxes
    gt: Boxes
    sizes: Array

    @property
    def image_key(self) -> tuple[bytes, bytes]:
        """Its references and size as bytes, equal for all completions of a prompt, which count as one image."""
        return self.gt.tobytes(), self.sizes.tobytes()


def check_read_completions(answers: Sequence[ReadCompletion], fmt: BoxFormat) -> SpaceCheck:
    """`check_space` for completions of one format; those without boxes, references or sizes are left out."""
    needed_sizes = 4 if fmt.space.frame == "resized" else 2
    images: dict[object, list[ReadCompletion]] = {}
    for answer in answers:
        if answer.raw.coords and len(answer.gt) and positive_sizes(answer.sizes[:needed_sizes]).all():
            images.setdefault(answer.image_key, []).append(answer)
    # Evenly out of the whole log, and at most MAX_IMAGES.
    step = max(1, math.ceil(len(images) / MAX_IMAGES))
    chosen = [of_image[:_MAX_ANSWERS] for of_image in list(images.values())[::step]]
    return _check_sample(_Sample.of(chosen, fmt), fmt)


@dataclass(frozen=True)
class _Sample:
    """Answers side by side, padded with NaN.

    written: (answers, boxes, 4), the numbers as the model wrote them.
    gt: (answers, references, 4) in fractions of the image.
    sizes: (4, answers, 1).
    image: (answers,), the number of each answer's image, from 0 to `images` - 1.
    """

    written: Boxes
    gt: Boxes
    sizes: Array
    image: NDArray[np.intp]
    images: int

    @staticmethod
    def of(images: Sequence[Sequence[ReadCompletion]], fmt: BoxFormat) -> _Sample:
        """The answers to some images, a list for each, as arrays."""
        answers = [answer for of_image in images for answer in of_image]
        sizes = np.array([answer.sizes for answer in answers]).reshape(-1, 4).T[..., None]
        xyxy = [np.array(answer.raw.coords[: 4 * _MAX_BOXES]).reshape(-1, 4) for answer in answers]
        rows = np.arange(len(answers))
        return _Sample(
            BoxBatch.of([from_xyxy(boxes, fmt.order) for boxes in xyxy], "boxes").padded(rows),
            BoxBatch.of([answer.gt[:_MAX_BOXES] for answer in answers], "boxes").padded(rows) / _corner(sizes),
            sizes,
            np.repeat(np.arange(len(images)), [len(of_image) for of_image in images]),
            len(images),
        )

    @property
    def is_written(self) -> NDArray[np.bool_]:
        """Which of the boxes are there, and no padding: (answers, boxes)."""
        return ~np.isnan(self.written[..., 0])

    def alternatives(self, declared: Convention) -> list[Convention]:
        """All other conventions, the most common space first; resized pixels only if all their sizes are known."""
        resized_known = positive_sizes(self.sizes[2:]).all()
        spaces = [name for name, space in SPACES.items() if space.frame != "resized" or resized_known]
        conventions = [Convention(space, order) for space in spaces for order in ORDERS]
        return [convention for convention in conventions if convention != declared]

    def read(self, convention: Convention) -> Boxes:
        """The written boxes in fractions of the image, if this convention is what their numbers mean."""
        frame = space_frame(SPACES[convention.space], *self.sizes)
        return frame_to_pixel(to_xyxy(self.written, convention.order), frame) / _corner(self.sizes)

    def mean_iou(self, boxes: Boxes, gt: Boxes) -> Array:
        """For each image the mean over its predicted boxes of the best IoU with a reference box: (images,)."""
        best = np.where(self.is_written, pairwise_iou(boxes, gt).max(axis=-1), 0.0)
        summed = np.bincount(self.image, best.sum(axis=1), self.images)
        return summed / np.bincount(self.image, self.is_written.sum(axis=1), self.images)

    def control_iou(self, boxes: Boxes) -> Array:
        """The mean over some other images of `mean_iou` with their reference boxes: (images,)."""
        # All answers of an image have the same reference boxes: those of the first stand for it.
        first_answer = np.unique(self.image, return_index=True)[1]
        ious = []
        for shift in range(1, min(_CONTROLS, self.images - 1) + 1):
            other_image = (self.image + shift) % self.images
            ious.append(self.mean_iou(boxes, self.gt[first_answer[other_image]]))
        return np.mean(ious, axis=0)


def _corner(sizes: Array) -> Array:
    """(answers, 1, 4): width, height, width, height of every image."""
    return np.stack([sizes[0], sizes[1], sizes[0], sizes[1]], axis=-1)


def _check_sample(sample: _Sample, fmt: BoxFormat) -> SpaceCheck:
    """Judge the format by its answers, and say so in a sentence."""
    declared = Convention(fmt.space.name, fmt.order)
    box_count = int(sample.is_written.sum())
    evidence = f"{counted(sample.images, 'image')} with {box_count} {'box' if box_count == 1 else 'boxes'}"
    if sample.images < MIN_IMAGES:
        message = f"Too little to judge {declared} by: {evidence} of known size and with references."
        return SpaceCheck(declared, None, np.nan, np.nan, sample.images, box_count, message)
    likely, declared_iou, likely_iou = _fit_to_references(sample, declared)
    if likely is None:
        message = f"Nothing contradicts {declared}: {evidence}, mean IoU {declared_iou:.2f}."
    else:
        message = (
            f"Expected boxes in {declared}, for box format {fmt.name}, got numbers that fit {likely}: over {evidence} "
            f"the mean IoU is {declared_iou:.2f}, and would be {likely_iou:.2f}. If the model writes that, declare "
            f"`box_format: {_declaration(fmt, likely)}`."
        )
    return SpaceCheck(declared, likely, declared_iou, likely_iou, sample.images, box_count, message)


def _declaration(fmt: BoxFormat, convention: Convention) -> str:
    """How to declare this format with another convention: the name of a format like it, or else a mapping as JSON."""
    if fmt.name.startswith("{"):
        return json.dumps({**json.loads(fmt.name), **convention._asdict()}, ensure_ascii=False)
    wanted = _reading_rules(replace(fmt, space=SPACES[convention.space], order=convention.order))
    for name in list_box_formats():
        if _reading_rules(get_box_format(name)) == wanted:
            return name
    return json.dumps({"syntax": fmt.name, **convention._asdict()})


def _reading_rules(fmt: BoxFormat) -> BoxFormat:
    """A copy of the format without its name and its rules of writing; equal for two formats that are read alike."""
    return replace(fmt, name="", family="", decimals=0, keys=tuple(sorted(fmt.keys)))


def _fit_to_references(sample: _Sample, declared: Convention) -> tuple[Convention | None, float, float]:
    """The convention that meets the reference boxes if the declared one does not, else None; the mean IoU of both."""
    declared_iou = float(sample.mean_iou(sample.read(declared), sample.gt).mean())
    baseline = _best_as_declared(sample, declared)
    if baseline.mean() > 1 - _MIN_GAIN:
        return None, declared_iou, np.nan
    # The IoU of each image under each convention that is better.
    better: dict[Convention, Array] = {}
    for convention in sample.alternatives(declared):
        boxes = sample.read(convention)
        iou = sample.mean_iou(boxes, sample.gt)
        gain = iou - baseline
        is_better = iou.mean() >= _MIN_IOU and gain.mean() >= _MIN_GAIN and _is_certain(gain)
        is_better_on_each = sample.images >= _MANY_IMAGES or gain.min() >= _MIN_GAIN_OF_EACH
        if is_better and is_better_on_each and _is_certain(iou - sample.control_iou(boxes)):
            better[convention] = iou
    if not better:
        return None, declared_iou, np.nan
    best_iou = max(better.values(), key=np.mean)
    best_conventions = []
    for convention, iou in better.items():
        loss = best_iou - iou
        if loss.mean() <= _SAME_IOU or not _is_certain(loss):
            best_conventions.append(convention)
    likely = min(best_conventions, key=lambda convention: _changes(convention, declared))
    return likely, declared_iou, float(better[likely].mean())


def _best_as_declared(sample: _Sample, declared: Convention) -> Array:
    """The IoU of each image in the declared convention, without what a poor model gets wrong: corners, shift, size."""
    boxes = sample.read(declared)
    upright = np.concatenate(
        [np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])], -1
    )
    candidates = [boxes, upright, _without_bias(boxes, sample.gt), _without_bias(upright, sample.gt)]
    return max((sample.mean_iou(candidate, sample.gt) for candidate in candidates), key=np.mean)


def _without_bias(boxes: Boxes, gt: Boxes) -> Boxes:
    """Remove the shift and the factor in size that all boxes share, measured against their nearest references.

    A model may write boxes that are all too small or too far left. That is not a mix-up, although another convention
    may happen to make them larger, or to move them to the right.
    """
    centre, size = _centre_and_size(boxes)
    gt_centre, gt_size = _centre_and_size(gt)
    distance = np.abs(centre[:, :, None] - gt_centre[:, None]).sum(axis=-1)
    nearest = np.nan_to_num(distance, nan=np.inf).argmin(axis=-1)[..., None]
    shift = np.nanmedian(np.take_along_axis(gt_centre, nearest, axis=1) - centre, axis=(0, 1))
    with np.errstate(all="ignore"):
        factor = np.nanmedian(np.take_along_axis(gt_size, nearest, axis=1) / size, axis=(0, 1))
    centre = centre + shift.clip(-_MAX_SHIFT, _MAX_SHIFT)
    half = size / 2 * factor.clip(1 / _MAX_FACTOR, _MAX_FACTOR)
    return np.concatenate([centre - half, centre + half], axis=-1)


def _centre_and_size(boxes: Boxes) -> tuple[Array, Array]:
    """The centre and the two sides of each box, (..., 2) both."""
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


def _changes(convention: Convention, declared: Convention) -> int:
    """In how many of its two parts a convention differs from the declared one."""
    return (convention.space != declared.space) + (convention.order != declared.order)


def _is_certain(differences: Array) -> bool:
    """Whether the mean of the differences, one for each image, lies too far above 0 to be chance."""
    return float(differences.mean()) > _STANDARD_ERRORS * float(differences.std(ddof=1)) / np.sqrt(len(differences))
