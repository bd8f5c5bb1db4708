"""Notice when the numbers that a model writes contradict the declared coordinate space or order.

Nothing here changes what is read: a number does not show its space, and a reward that guessed it would change its
meaning from one completion to the next. Over many images, though, a wrong declaration shows: read in another space or
order, the same numbers meet the reference boxes, or at least fit on the images. That is worth one warning, because
training cannot repair it.

Two kinds of evidence, both over many images and never over one:

* With reference boxes: another reading has a clearly higher mean IoU, and it meets the boxes of *its own* image better
  than those of other images. A model that always writes the same box cannot pass the second test.
* Without: the numbers do not fit on the images as declared (outside, or upside down), and nearly all do as another
  reading that also fills the image. Where there are reference boxes all the same, that reading must also raise the mean
  IoU, by more than `_SAME_IOU` and by more than `_STANDARD_ERRORS` standard errors over images.

In both, the declared reading gets the benefit of the doubt: its boxes also count with their corners put in order, and
without the shift and the factor in size that they share. A model that writes boxes upside down is poor, not mixed up.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import (
    ORDERS,
    SPACES,
    Boxes,
    as_box_array,
    frame_to_pixel,
    from_xyxy,
    original_and_resized_sizes,
    positive_sizes,
    space_frame,
    to_xyxy,
    valid_boxes,
)
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.package_warning import PackageWarning
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BoxFormat, RawBoxes, get_box_format, list_box_formats

# Below the first, nothing is concluded; below the second, only what shows on every single image.
_FEWEST_IMAGES, _SOME_IMAGES = 4, 10
_FEWEST_DISTINCT = 5
# Enough to see any mix-up; more only costs time.
_MOST_IMAGES = 256
_MOST_ANSWERS_PER_IMAGE = 4
# Watching also ends after this many completions with boxes: a small dataset never has as many images.
_MOST_WATCHED = 4096
_MOST_BOXES = 16

# A contradiction must be large, and certain beyond chance over images.
_LEAST_GAIN = 0.15
_PLAIN_GAIN = 0.4
_LEAST_IOU = 0.25
_STANDARD_ERRORS = 4.0
_CONTROLS = 8
# What a model may do to all of its boxes: a shift in parts of the image, a factor in size.
_LARGEST_SHIFT, _LARGEST_FACTOR = 0.1, 4.0
# Readings whose mean IoU differs by less are taken for the same.
_SAME_IOU = 0.02

# The share of boxes on the image: at most this in the declared reading, at least this in another.
_MOST_FITTING, _LEAST_FITTING = 0.7, 0.95
# How far boxes may stick out, in parts of the image: in the declared reading, where boxes may be poor, and in another.
_WIDE_MARGIN, _MARGIN = 0.5, 0.05
# How far down or right nearly all boxes of a log reach, in parts of the image. `_SPECK`: numbers up to 1, read in a
# space whose edge is 100.
_SPECK, _LEAST_REACH = 0.0101, 0.3
_SAME_REACH = 0.8
# Sides in pixels that an image of unknown size is taken to have, to see whether boxes fill it.
_USUAL_SIDE = 1000.0

_IN_PIXELS = ("original", "resized")


class SpaceWarning(PackageWarning):
    """The boxes of many images contradict the declared coordinate space or order."""


class Reading(NamedTuple):
    """How four numbers are read: the name of a coordinate space, and their order in the text."""

    space: str
    order: str


@dataclass(frozen=True)
class SpaceCheck:
    """Whether a model's numbers contradict the declared space and order.

    Attributes:
        declared: the reading that the box format states.
        likely: the reading that the numbers fit, where they contradict the declared one; else None.
        declared_iou: mean over images of the best IoU of each predicted box, as declared; NaN without reference boxes.
        likely_iou: the same for `likely`; NaN without reference boxes, or where nothing contradicts.
        images: how many images were compared.
        boxes: how many predicted boxes were compared.
        message: one or two sentences for a person: what was found and what to declare.
    """

    declared: Reading
    likely: Reading | None
    declared_iou: float
    likely_iou: float
    images: int
    boxes: int
    message: str


def check_space(
    raws: Sequence[RawBoxes],
    box_format: str | Mapping[str, Any] | BoxFormat,
    boxes: Sequence[ArrayLike] | None = None,
    *,
    width: ArrayLike | None = None,
    height: ArrayLike | None = None,
    resized_width: ArrayLike | None = None,
    resized_height: ArrayLike | None = None,
) -> SpaceCheck:
    """Compare what models wrote with the space and order that their box format declares.

    Args:
        raws: n completions as `read_boxes` gives them.
        box_format: the format that they were read in.
        boxes: n lists of reference boxes, (m, 4) xyxy in original pixels; without them only numbers that do not fit on
            the images are noticed. Where some images have reference boxes, those without are left out.
        width: n widths of the original images, or one for all; NaN or None where unknown.
        height: likewise, as the other two.
        resized_width: see `width`.
        resized_height: see `width`.

    Raises:
        ValueError: the format is unknown, a size is no number, or the lengths differ.

    Example:
        >>> from grounding_rewards.parsing import read_boxes
        >>> gt = [[[k, 2 * k, k + 90, 2 * k + 70]] for k in range(0, 400, 20)]
        >>> texts = [f'[{{"bbox_2d": [{y1}, {x1}, {y2}, {x2}]}}]' for [[x1, y1, x2, y2]] in gt]
        >>> raws = [read_boxes(text, get_box_format("qwen3-vl")) for text in texts]
        >>> check = check_space(raws, "qwen3-vl", gt, width=1000, height=1000)
        >>> check.likely, round(check.declared_iou, 2), check.likely_iou
        (Reading(space='norm1000', order='yxyx'), 0.08, 1.0)
        >>> print(check.message.replace(": ", ":\\n", 1))
        Expected boxes in norm1000, order xyxy, for box format qwen3-vl, got numbers that fit norm1000, order yxyx:
        over 20 images with 20 boxes the mean IoU is 0.08, and would be 1.00. If the model writes that, declare \
`box_format: gemini`.
    """
    fmt = get_box_format(box_format)
    n = len(raws)
    if boxes is not None and len(boxes) != n:
        raise ValueError(
            f"Expected one list of reference boxes per completion ({n}) for `boxes`, got {len(boxes)}. "
            "Repeat them once per completion."
        )
    sizes = original_and_resized_sizes(n, width, height, resized_width, resized_height)
    answers = [
        _answer(raw, fmt, np.zeros((0, 4)) if boxes is None else as_box_array(boxes[k]), sizes[k])
        for k, raw in enumerate(raws)
        if raw.coords
    ]
    if any(len(answer.gt) for answer in answers):
        answers = [answer for answer in answers if len(answer.gt)]
    images: dict[object, list[_Answer]] = {}
    for k, answer in enumerate(answers):
        images.setdefault(_image_key(answer.gt, answer.sizes) if len(answer.gt) else k, []).append(answer)
    # Evenly out of the whole log.
    step = max(1, -(-len(images) // _MOST_IMAGES))
    return _compare([own[:_MOST_ANSWERS_PER_IMAGE] for own in list(images.values())[::step]], fmt)


class SpaceWatcher:
    """Watches batch after batch until it has seen enough, and reports a contradiction once per box format.

    A copy, also an unpickled one, starts afresh: what was seen stays in the process that saw it.

    Example:
        >>> from grounding_rewards.parsing import read_boxes
        >>> fmt, watcher = get_box_format("answer-list"), SpaceWatcher()
        >>> for k in range(0, 400, 20):
        ...     raw = read_boxes(f"<answer>[{k}, {k}, {k + 90}, {k + 50}]</answer>", fmt)
        ...     gt = np.array([[k, k, k + 90.0, k + 50]])
        ...     for check in watcher.watch([raw], [fmt], [gt], original_and_resized_sizes(1, 1000, 1000)):
        ...         print(check.images, check.likely)
        4 Reading(space='norm1000', order='xyxy')
    """

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        # Trainers score in many threads.
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[SpaceWatcher], tuple[()]]:
        return SpaceWatcher, ()

    def wants(self, formats: Iterable[BoxFormat]) -> bool:
        """Whether more has to be seen of one of these formats."""
        names = {fmt.name for fmt in formats}
        return any(name not in self._watched or not self._watched[name].done for name in names)

    def watch(
        self, raws: Sequence[RawBoxes], formats: Sequence[BoxFormat], gt: Sequence[Boxes], sizes: Array
    ) -> list[SpaceCheck]:
        """Take a batch into account.

        Args:
            raws: n completions.
            formats: the format of each.
            gt: the reference boxes of each, (m, 4) in original pixels; completions on images without any are passed
                over.
            sizes: (n, 4), see :func:`original_and_resized_sizes`.

        Returns:
            What contradicts a declared space or order, each format once.
        """
        with self._lock:
            for k, (raw, fmt) in enumerate(zip(raws, formats, strict=True)):
                if raw.coords and len(gt[k]):
                    self._watched.setdefault(fmt.name, _Watched(fmt)).add(raw, gt[k], sizes[k])
            checks = [watched.look() for watched in self._watched.values()]
        return [check for check in checks if check is not None and check.likely is not None]


@dataclass
class _Watched:
    """What was seen of one format; looked at after 4, 8, 16, 32, … images, and dropped when nothing is left to
    learn."""

    fmt: BoxFormat
    images: dict[object, list[_Answer]] = field(default_factory=dict)
    next_look: int = _FEWEST_IMAGES
    room: int = _MOST_WATCHED
    done: bool = False

    def add(self, raw: RawBoxes, gt: Boxes, sizes: Array) -> None:
        if self.done or not self.room or len(self.images) == _MOST_IMAGES:
            return
        self.room -= 1
        answers = self.images.setdefault(_image_key(gt, sizes), [])
        if len(answers) < _MOST_ANSWERS_PER_IMAGE:
            answers.append(_answer(raw, self.fmt, gt, sizes))

    def look(self) -> SpaceCheck | None:
        is_last = not self.room or len(self.images) == _MOST_IMAGES
        if self.done or not (is_last or len(self.images) >= self.next_look):
            return None
        check = _compare(list(self.images.values()), self.fmt)
        # A look takes as long as hundreds of completions alone.
        self.next_look = 2 * len(self.images)
        self.done = is_last or check.likely is not None
        if self.done:
            self.images.clear()
        return check


class _Answer(NamedTuple):
    """The boxes of one completion as written, and what is known of its image (sizes: NaN where unknown)."""

    written: Boxes
    gt: Boxes
    sizes: Array


@dataclass(frozen=True)
class _Sample:
    """Answers side by side, padded with NaN; boxes and references in parts of the image where its size is known.

    ``written`` is (answers, boxes, 4), ``gt`` (answers, references, 4), ``sizes`` (4, answers, 1), ``image`` (answers,)
    numbers from 0 up.
    """

    written: Boxes
    gt: Boxes
    sizes: Array
    image: NDArray[np.intp]
    images: int
    sizes_known: bool
    resized_known: bool

    @staticmethod
    def of(images: Sequence[Sequence[_Answer]], *, in_pixels: bool) -> _Sample:
        """`in_pixels`: the declared space is, so that references can be compared on images of unknown size too."""
        known = [own for own in images if positive_sizes(own[0].sizes[:2]).all()]
        images = known or images
        answers = [answer for own in images for answer in own]
        sizes = np.array([answer.sizes for answer in answers]).reshape(-1, 4).T[..., None]
        gt = _padded([answer.gt if known or in_pixels else answer.gt[:0] for answer in answers])
        return _Sample(
            _padded([answer.written for answer in answers]),
            gt / _corner(sizes) if known else gt,
            sizes,
            np.repeat(np.arange(len(images)), [len(own) for own in images]),
            len(images),
            bool(known),
            bool(known) and bool(positive_sizes(sizes[2:]).all()),
        )

    @property
    def written_boxes(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.written[..., 0])

    def alternatives(self, declared: Reading) -> list[Reading]:
        """All other readings for which enough sizes are known, the most common space first."""
        # Without the image's size, references can only be compared in pixels; else parts of the image show what fits.
        frames = {"original"} if self.gt.shape[1] and not self.sizes_known else {"original", "image"}
        frames |= {"padded", "cropped"} if self.sizes_known else set()
        frames |= {"resized"} if self.resized_known else set()
        readings = [Reading(name, order) for name in SPACES if SPACES[name].frame in frames for order in ORDERS]
        return [reading for reading in readings if reading != declared]

    def read(self, reading: Reading) -> Boxes:
        """The boxes in parts of the image; in pixels for a space in pixels on images of unknown size."""
        width, height = self.sizes[:2] if self.sizes_known else np.ones((2, 1, 1))
        # Scoring refuses an image of unknown resized size; here it is taken to reach the model unresized.
        known = self.resized_known or reading.space != "resized_pixel"
        space = SPACES[reading.space if known else "pixel"]
        frame = space_frame(space, width, height, *self.sizes[2:])
        pixels = frame_to_pixel(to_xyxy(self.written, reading.order), frame)
        return pixels / _corner(self.sizes) if self.sizes_known else pixels

    def mean_iou(self, boxes: Boxes, gt: Boxes) -> Array:
        """For each image the mean over its predicted boxes of the best IoU with a reference box: (images,)."""
        written = self.written_boxes
        best = np.where(written, pairwise_iou(boxes, gt).max(axis=-1), 0.0)
        summed = np.bincount(self.image, best.sum(axis=1), self.images)
        return summed / np.bincount(self.image, written.sum(axis=1), self.images)

    def control_iou(self, boxes: Boxes) -> Array:
        """As `mean_iou`, with the reference boxes of other images."""
        # One answer represents its image: all answers of an image have the same reference boxes.
        first = np.unique(self.image, return_index=True)[1]
        controls = min(_CONTROLS, self.images - 1)
        others = [first[(self.image + k) % self.images] for k in range(1, controls + 1)]
        return np.mean([self.mean_iou(boxes, self.gt[other]) for other in others], axis=0)


def _answer(raw: RawBoxes, fmt: BoxFormat, gt: Boxes, sizes: Array) -> _Answer:
    xyxy = np.array(raw.coords[: 4 * _MOST_BOXES], dtype=np.float64).reshape(-1, 4)
    return _Answer(from_xyxy(xyxy, fmt.order), gt[:_MOST_BOXES], sizes)


def _image_key(gt: Boxes, sizes: Array) -> tuple[bytes, bytes]:
    """Identifies an image: all samples of one prompt have the same references and count as one piece of evidence."""
    return gt.tobytes(), sizes.tobytes()


def _corner(sizes: Array) -> Array:
    """(answers, 1, 4): width, height, width, height of every image."""
    return np.stack([sizes[0], sizes[1], sizes[0], sizes[1]], axis=-1)


def _padded(arrays: Sequence[Boxes]) -> Boxes:
    longest = max((len(array) for array in arrays), default=0)
    stacked = np.full((len(arrays), longest, 4), np.nan)
    for row, array in zip(stacked, arrays, strict=True):
        row[: len(array)] = array
    return stacked


def _compare(images: Sequence[Sequence[_Answer]], fmt: BoxFormat) -> SpaceCheck:
    declared = Reading(fmt.space.name, fmt.order)
    sample = _Sample.of(images, in_pixels=fmt.space.frame in _IN_PIXELS)
    boxes = int(sample.written_boxes.sum())
    likely, declared_iou, likely_iou = None, np.nan, np.nan
    if sample.images < _FEWEST_IMAGES:
        message = f"Too little to judge {_named(declared)} by: {_counted(sample.images, boxes)}."
        return SpaceCheck(declared, likely, declared_iou, likely_iou, sample.images, boxes, message)
    if sample.gt.shape[1]:
        likely, declared_iou, likely_iou = _fit_to_references(sample, declared)
    if likely is not None:
        evidence = (
            f"over {_counted(sample.images, boxes)} the mean IoU is {declared_iou:.2f}, and would be {likely_iou:.2f}"
        )
    elif not declared_iou >= _LEAST_IOU:
        likely, evidence = _fit_on_images(sample, declared)
        if likely is not None and sample.gt.shape[1]:
            as_likely = sample.mean_iou(sample.read(likely), sample.gt)
            if _tells_apart(as_likely - _best_as_declared(sample, declared)):
                likely_iou = float(as_likely.mean())
            else:
                likely = None
    if likely is None:
        iou = "" if np.isnan(declared_iou) else f", mean IoU {declared_iou:.2f}"
        message = f"Nothing contradicts {_named(declared)}: {_counted(sample.images, boxes)}{iou}."
    else:
        message = (
            f"Expected boxes in {_named(declared)}, for box format {fmt.name}, got numbers that fit {_named(likely)}: "
            f"{evidence}. If the model writes that, declare `box_format: {_declaration(fmt, likely)}`."
        )
    return SpaceCheck(declared, likely, declared_iou, likely_iou, sample.images, boxes, message)


def _named(reading: Reading) -> str:
    return f"{reading.space}, order {reading.order}"


def _counted(images: int, boxes: int) -> str:
    return f"{images} {'image' if images == 1 else 'images'} with {boxes} {'box' if boxes == 1 else 'boxes'}"


def _declaration(fmt: BoxFormat, reading: Reading) -> str:
    """What to write into YAML: the name of a format that differs in nothing else, or a mapping, as JSON."""
    if fmt.name.startswith("{"):
        return json.dumps({**json.loads(fmt.name), **reading._asdict()}, ensure_ascii=False)
    wanted = _as_read(replace(fmt, space=SPACES[reading.space], order=reading.order))
    named = (name for name in list_box_formats() if _as_read(get_box_format(name)) == wanted)
    return next(named, json.dumps({"syntax": fmt.name, **reading._asdict()}))


def _as_read(fmt: BoxFormat) -> BoxFormat:
    """The format without what plays no part in reading."""
    return replace(fmt, name="", family="", decimals=0, keys=tuple(sorted(fmt.keys)))


def _fit_to_references(sample: _Sample, declared: Reading) -> tuple[Reading | None, float, float]:
    """The reading that meets the reference boxes where the declared one does not; the mean IoU of both."""
    as_declared = sample.mean_iou(sample.read(declared), sample.gt)
    baseline = _best_as_declared(sample, declared)
    if baseline.mean() > 1 - _LEAST_GAIN:
        return None, float(as_declared.mean()), np.nan
    better = {}
    for reading in sample.alternatives(declared):
        boxes = sample.read(reading)
        iou = sample.mean_iou(boxes, sample.gt)
        gain = iou - baseline
        is_better = iou.mean() >= _LEAST_IOU and gain.mean() >= _LEAST_GAIN and _is_certain(gain)
        is_better &= sample.images >= _SOME_IMAGES or gain.min() >= _PLAIN_GAIN
        if is_better and _is_certain(iou - sample.control_iou(boxes)):
            better[reading] = iou
    if not better:
        return None, float(as_declared.mean()), np.nan
    best = max(better.values(), key=np.mean)
    equal = [reading for reading, iou in better.items() if not _tells_apart(best - iou)]
    likely = min(equal, key=lambda reading: _changes(reading, declared))
    return likely, float(as_declared.mean()), float(better[likely].mean())


def _best_as_declared(sample: _Sample, declared: Reading) -> Array:
    """The IoU of each image that a poor model could reach in the declared reading without another one."""
    boxes = sample.read(declared)
    upright = np.concatenate(
        [np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])], -1
    )
    candidates = [boxes, upright, _without_bias(boxes, sample.gt), _without_bias(upright, sample.gt)]
    return max((sample.mean_iou(candidate, sample.gt) for candidate in candidates), key=np.mean)


def _without_bias(boxes: Boxes, gt: Boxes) -> Boxes:
    """Remove the shift and the factor in size that all boxes share, measured against their nearest references.

    A model may write boxes that are all too small or too far left. That is not a mix-up, although another reading may
    happen to make them larger, or to move them to the right.
    """
    centre, size = _centre_and_size(boxes)
    gt_centre, gt_size = _centre_and_size(gt)
    distance = np.abs(centre[:, :, None] - gt_centre[:, None]).sum(axis=-1)
    nearest = np.nan_to_num(distance, nan=np.inf).argmin(axis=-1)[..., None]
    shift = np.nanmedian(np.take_along_axis(gt_centre, nearest, axis=1) - centre, axis=(0, 1))
    with np.errstate(all="ignore"):
        factor = np.nanmedian(np.take_along_axis(gt_size, nearest, axis=1) / size, axis=(0, 1))
    centre = centre + shift.clip(-_LARGEST_SHIFT, _LARGEST_SHIFT)
    half = size / 2 * factor.clip(1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
    return np.concatenate([centre - half, centre + half], axis=-1)


def _centre_and_size(boxes: Boxes) -> tuple[Array, Array]:
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


def _changes(reading: Reading, declared: Reading) -> int:
    return sum(a != b for a, b in zip(reading, declared, strict=True))


def _is_certain(differences: Array) -> bool:
    return float(differences.mean()) > _STANDARD_ERRORS * float(differences.std(ddof=1)) / np.sqrt(len(differences))


def _tells_apart(differences: Array) -> bool:
    return float(differences.mean()) > _SAME_IOU and _is_certain(differences)


def _fit_on_images(sample: _Sample, declared: Reading) -> tuple[Reading | None, str]:
    """The reading in which the boxes fit on the images where they do not as declared, and what was seen."""
    written = sample.written[sample.written_boxes]
    fitting, reach = _fit(sample, declared, _WIDE_MARGIN)
    most_fitting = _MOST_FITTING if sample.images >= _SOME_IMAGES else 0.0
    if len(np.unique(written, axis=0)) < _FEWEST_DISTINCT or (fitting > most_fitting and reach > _SPECK):
        return None, ""
    reaches = {}
    for reading in sample.alternatives(declared):
        share, other_reach = _fit(sample, reading, _MARGIN)
        # Without references a square around or inside the image cannot be told from the image itself.
        plain = SPACES[reading.space].frame not in ("padded", "cropped")
        if plain and share >= _LEAST_FITTING and other_reach >= _LEAST_REACH:
            reaches[reading] = other_reach
    if not reaches:
        return None, ""
    fewest = min(_changes(reading, declared) for reading in reaches)
    reaches = {reading: reach for reading, reach in reaches.items() if _changes(reading, declared) == fewest}
    likely = next(reading for reading, reach in reaches.items() if reach >= _SAME_REACH * max(reaches.values()))
    if fitting > _MOST_FITTING:
        return likely, f"as declared, {_counted(sample.images, len(written))} would have them all in one corner"
    return likely, f"as declared, {1 - fitting:.0%} of {len(written)} boxes are far outside the image or upside down"


def _fit(sample: _Sample, reading: Reading, margin: float) -> tuple[float, float]:
    """The share of boxes that are upright and on the image, and how far down or right nearly all of them reach."""
    boxes, edge = sample.read(reading)[sample.written_boxes], 1.0
    if not sample.sizes_known and SPACES[reading.space].frame in _IN_PIXELS:
        boxes, edge = boxes / _USUAL_SIDE, np.inf
    on_image = (boxes[:, :2].min(axis=1) >= -margin) & (boxes[:, 2:].max(axis=1) <= edge + margin)
    reach = np.quantile(boxes.max(axis=1), 0.9)
    return float((on_image & valid_boxes(boxes)).mean()), min(float(reach), 1.0)
