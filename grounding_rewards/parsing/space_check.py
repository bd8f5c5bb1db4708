"""Notice what the completions of a model contradict: the declared coordinate space or order, or where thinking begins.

Nothing here changes what is read: a number does not show its space, and a reward that guessed it would change its
meaning from one completion to the next. Over many images, though, a wrong declaration shows: read in another space or
order, the same numbers meet the reference boxes. That is worth one warning, because training cannot repair it.

Every space of `SPACES` is compared in every order of `ORDERS`, over many images of known size and never over one.
Another convention is named if it has a clearly higher mean IoU, and meets the boxes of *its own* image better than
those of other images. A model that always writes the same box cannot pass the second test.

The declared convention gets the benefit of the doubt: its boxes also count with their corners put in order, and without
the shift and the factor in size that they share. A model that writes boxes upside down is poor, not mixed up.

Some chat templates end in an open mark of thinking, and nobody declared it. Such a completion has only the closing
mark; one that was cut off in its thinking has no mark at all, and is read as an answer, drafts included.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

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
from grounding_rewards.parsing.answer_span import thinking_state
from grounding_rewards.parsing.formats import BoxFormat, get_box_format, list_box_formats
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
# Completions that close a thinking they never opened: fewer prove nothing, as a model may forget its opening mark.
_MIN_UNOPENED = 4
# Watching ends after this many completions: a small dataset never has `MAX_IMAGES` images.
_MAX_WATCHED = 4096


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
    needed_sizes = 4 if fmt.space.frame == "resized" else 2
    # All completions of a prompt have the same references and sizes, and count as one image.
    images: dict[object, list[_Answer]] = {}
    for raw, gt, size in zip(raws, map(as_box_array, boxes), sizes, strict=True):
        if raw.coords and len(gt) and positive_sizes(size[:needed_sizes]).all():
            images.setdefault(_image_key(gt, size), []).append((raw, gt, size))
    # Evenly out of the whole log, and at most MAX_IMAGES.
    step = max(1, math.ceil(len(images) / MAX_IMAGES))
    chosen = [answers[:_MAX_ANSWERS] for answers in list(images.values())[::step]]
    return _check_sample(_Sample.of(chosen, fmt), fmt)


#: A completion as read, the reference boxes of its image, and the four sizes of it, NaN where unknown.
_Answer: TypeAlias = tuple[RawBoxes, Boxes, Array]


def _image_key(gt: Boxes, sizes: Array) -> tuple[bytes, bytes]:
    """What tells an image from others: its reference boxes and its sizes."""
    return gt.tobytes(), sizes.tobytes()


@dataclass(frozen=True)
class _Sample:
    """Answers side by side, padded with NaN.

    written: (answers, boxes, 4), the numbers as the model wrote them.
    gt: (answers, references, 4) in fractions of the image.
    sizes: (4, answers, 1).
    image: (answers,), the number of each answer's image, from 0 to `image_count` - 1.
    image_count: how many images there are.
    """

    written: Boxes
    gt: Boxes
    sizes: Array
    image: NDArray[np.intp]
    image_count: int

    @staticmethod
    def of(images: Sequence[Sequence[_Answer]], fmt: BoxFormat) -> _Sample:
        """The answers to some images, a list for each image, as arrays."""
        answers = [answer for answers_to_image in images for answer in answers_to_image]
        # A row for each of the four sizes; the last axis is that of an answer's boxes, which all have its sizes.
        sizes = np.array([size for _, _, size in answers]).reshape(-1, 4).T[..., None]
        xyxy = [np.array(raw.coords[: 4 * _MAX_BOXES]).reshape(-1, 4) for raw, _, _ in answers]
        all_answers = np.arange(len(answers))
        return _Sample(
            # Back from the order in which they were read to that of the text.
            written=BoxBatch.of([from_xyxy(boxes, fmt.order) for boxes in xyxy], "boxes").padded(all_answers),
            # From pixels to fractions of the image.
            gt=BoxBatch.of([gt[:_MAX_BOXES] for _, gt, _ in answers], "boxes").padded(all_answers) / _corner(sizes),
            sizes=sizes,
            image=np.repeat(np.arange(len(images)), [len(answers_to_image) for answers_to_image in images]),
            image_count=len(images),
        )

    @property
    def is_written(self) -> NDArray[np.bool_]:
        """Which of the boxes are there, and no padding: (answers, boxes)."""
        return ~np.isnan(self.written[..., 0])

    def alternatives(self, declared: Convention) -> list[Convention]:
        """All other conventions, the most common space first; resized pixels only if all their sizes are known."""
        # The last two of the four sizes are the resized ones.
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
        # Padding counts as 0 here, and not at all in the number of boxes. `bincount` sums over the answers of an image.
        best = np.where(self.is_written, pairwise_iou(boxes, gt).max(axis=-1), 0.0)
        summed = np.bincount(self.image, best.sum(axis=1), self.image_count)
        return summed / np.bincount(self.image, self.is_written.sum(axis=1), self.image_count)

    def control_iou(self, boxes: Boxes) -> Array:
        """For each image, how well its boxes meet the references of others: `mean_iou` with theirs, (images,)."""
        # The index of each image's first answer, as all its answers have the same reference boxes.
        first_answer = np.unique(self.image, return_index=True)[1]
        ious = []
        # Each image is compared with the next one, then with the one after that, and so on; the first follows the last.
        for shift in range(1, min(_CONTROLS, self.image_count - 1) + 1):
            other_image = (self.image + shift) % self.image_count
            ious.append(self.mean_iou(boxes, self.gt[first_answer[other_image]]))
        return np.mean(ious, axis=0)


def _corner(sizes: Array) -> Array:
    """(answers, 1, 4): width, height, width, height of every image."""
    return np.stack([sizes[0], sizes[1], sizes[0], sizes[1]], axis=-1)


def _check_sample(sample: _Sample, fmt: BoxFormat) -> SpaceCheck:
    """Judge the format by its answers, and say so in a sentence."""
    declared = Convention(fmt.space.name, fmt.order)
    box_count = int(sample.is_written.sum())
    # As in the messages: "20 images with 1 box".
    evidence = f"{counted(sample.image_count, 'image')} with {box_count} {'box' if box_count == 1 else 'boxes'}"
    if sample.image_count < MIN_IMAGES:
        message = f"Too little to judge {declared} by: {evidence} of known size and with references."
        return SpaceCheck(declared, None, np.nan, np.nan, sample.image_count, box_count, message)
    likely, declared_iou, likely_iou = _fit_to_references(sample, declared)
    if likely is None:
        message = f"Nothing contradicts {declared}: {evidence}, mean IoU {declared_iou:.2f}."
    else:
        message = (
            f"Expected boxes in {declared}, for box format {fmt.name}, got numbers that fit {likely}: over {evidence} "
            f"the mean IoU is {declared_iou:.2f}, and would be {likely_iou:.2f}. If the model writes that, declare "
            f"`box_format: {_declaration(fmt, likely)}`."
        )
    return SpaceCheck(declared, likely, declared_iou, likely_iou, sample.image_count, box_count, message)


def _declaration(fmt: BoxFormat, convention: Convention) -> str:
    """How to declare this format with another convention: the name of a format like it, or else a mapping as JSON."""
    # The name of a format that the user declared is its declaration.
    if fmt.name.startswith("{"):
        return json.dumps({**json.loads(fmt.name), **convention._asdict()}, ensure_ascii=False)
    wanted_rules = _reading_rules(replace(fmt, space=SPACES[convention.space], order=convention.order))
    for name in list_box_formats():
        if _reading_rules(get_box_format(name)) == wanted_rules:
            return name
    return json.dumps({"syntax": fmt.name, **convention._asdict()})


def _reading_rules(fmt: BoxFormat) -> BoxFormat:
    """A copy of the format without its name and its rules of writing; equal for two formats that are read alike."""
    return replace(fmt, name="", family="", decimals=0, keys=tuple(sorted(fmt.keys)))


def _fit_to_references(sample: _Sample, declared: Convention) -> tuple[Convention | None, float, float]:
    """Find another convention than the declared one that clearly fits the reference boxes better.

    Returns:
        The convention, None if none fits better; and the mean IoU of the answers under the declared convention and
        under the other one, which is NaN without one. Both are of the boxes as written, for people to read.
    """
    declared_iou = float(sample.mean_iou(sample.read(declared), sample.gt).mean())
    # What others must beat, (images,): the declared convention gets the benefit of the doubt, so its boxes are first
    # corrected by what a poor model gets wrong. It decides, and is not reported.
    to_beat = _favourable_iou(sample, declared)
    if to_beat.mean() > 1 - _MIN_GAIN:
        # No IoU is above 1, so no convention can gain enough.
        return None, declared_iou, np.nan
    # The mean IoU under each convention that is better.
    better: dict[Convention, float] = {}
    for convention in sample.alternatives(declared):
        boxes = sample.read(convention)
        # Both (images,).
        iou = sample.mean_iou(boxes, sample.gt)
        gain = iou - to_beat
        is_better = iou.mean() >= _MIN_IOU and gain.mean() >= _MIN_GAIN and _is_certain(gain)
        # A mean over few images may be chance: there every single one must gain.
        many_or_each_gains = sample.image_count >= _MANY_IMAGES or gain.min() >= _MIN_GAIN_OF_EACH
        # A model that always writes the same box meets the boxes of other images as well as its own.
        if is_better and many_or_each_gains and _is_certain(iou - sample.control_iou(boxes)):
            better[convention] = float(iou.mean())
    if not better:
        return None, declared_iou, np.nan
    best_iou = max(better.values())
    equals = [convention for convention, iou in better.items() if best_iou - iou <= _SAME_IOU]
    # Of those that fit equally well, the one that changes less of the declaration: the space or the order, not both.
    likely = min(equals, key=lambda other: (other.space != declared.space) + (other.order != declared.order))
    return likely, declared_iou, better[likely]


def _favourable_iou(sample: _Sample, declared: Convention) -> Array:
    """The IoU of each image, (images,), in the declared convention, without what a poor model gets wrong.

    That is the order of corners, and the shift and the factor in size that all boxes share. The boxes count as written,
    with one of these corrected or with both: whichever has the best mean over all images, so that the declared
    convention has every chance.
    """
    boxes = sample.read(declared)
    # With the smaller x and y first.
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
    # (answers, boxes, references): from each box to each reference of its image.
    distance = np.abs(centre[:, :, None] - gt_centre[:, None]).sum(axis=-1)
    # (answers, boxes, 1): the index of the nearest reference, which padding, NaN, never is.
    nearest = np.nan_to_num(distance, nan=np.inf).argmin(axis=-1)[..., None]
    # Of x and of y, over all boxes of all answers.
    shift = np.nanmedian(np.take_along_axis(gt_centre, nearest, axis=1) - centre, axis=(0, 1))
    # A box may have no width or no height to divide by.
    with np.errstate(all="ignore"):
        factor = np.nanmedian(np.take_along_axis(gt_size, nearest, axis=1) / size, axis=(0, 1))
    centre = centre + shift.clip(-_MAX_SHIFT, _MAX_SHIFT)
    half_size = size / 2 * factor.clip(1 / _MAX_FACTOR, _MAX_FACTOR)
    return np.concatenate([centre - half_size, centre + half_size], axis=-1)


def _centre_and_size(boxes: Boxes) -> tuple[Array, Array]:
    """The centre and the two sides of each box, (..., 2) both."""
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


def _is_certain(differences: Array) -> bool:
    """Whether the mean of the differences, one for each image, lies too far above 0 to be chance."""
    return float(differences.mean()) > _STANDARD_ERRORS * float(differences.std(ddof=1)) / np.sqrt(len(differences))


def thinking_suspicion(states: Mapping[str, int], *, prompt_opens_thinking: bool) -> str | None:
    """Say in two sentences what is suspect about how completions mark their thinking, and the remedy; None if nothing.

    Args:
        states: counts by `thinking_state`.
        prompt_opens_thinking: what was declared.

    Example:
        >>> print(thinking_suspicion({"unopened": 7, "none": 3}, prompt_opens_thinking=False))
        7 of 10 completions close a thinking that they never opened, so the prompt seems to open it, and the 3 without \
any mark were cut off inside it: their drafts count as answers. Set prompt_opens_thinking to true.
        >>> thinking_suspicion({"unopened": 7, "none": 3}, prompt_opens_thinking=True)
    """
    unopened, unmarked = states.get("unopened", 0), states.get("none", 0)
    opened = states.get("paired", 0) + states.get("unclosed", 0)
    # A model that opens its thinking itself, and forgets to now and then, is no such case.
    if prompt_opens_thinking or not unmarked or unopened < _MIN_UNOPENED or unopened <= opened:
        return None
    return (
        f"{unopened} of {unopened + unmarked + opened} completions close a thinking that they never opened, so the "
        f"prompt seems to open it, and the {unmarked} without any mark were cut off inside it: their drafts count as "
        "answers. Set prompt_opens_thinking to true."
    )


class BatchWatcher:
    """Watches batch after batch until it has seen enough, and reports each contradiction once.

    A copy, also an unpickled one, starts afresh: what was seen stays in the process that saw it.

    Example:
        >>> import numpy as np
        >>> from grounding_rewards.parsing import get_box_format, read_boxes
        >>> watcher, fmt = BatchWatcher(), get_box_format("answer-list")
        >>> watcher.watch_thinking(["hm</think>[]"] * 4 + ["hm"], prompt_opens_thinking=False)[:40]
        '4 of 5 completions close a thinking that'
        >>> watcher.watch_thinking(["hm</think>[]"], prompt_opens_thinking=False)
        >>> for k in range(0, 400, 20):
        ...     raw = read_boxes(f"<answer>[{k}, {k}, {k + 90}, {k + 50}]</answer>", fmt)
        ...     gt = np.array([[k, k, k + 90.0, k + 50]])
        ...     for check in watcher.watch_boxes([raw], [fmt], [gt], np.array([[1000, 1000, np.nan, np.nan]])):
        ...         print(check.images, check.likely)
        4 norm1000, order xyxy
    """

    def __init__(self) -> None:
        # Trainers score in many threads.
        self._lock = threading.Lock()
        self._thinking_states: Counter[str] = Counter()
        self._thinking_done = False
        # By the name of the format: the answers seen, and the `_image_key` of each of their images.
        self._seen: dict[str, tuple[list[_Answer], set[tuple[bytes, bytes]]]] = {}
        # By the name of the format: how many images make the next check worth its time.
        self._next_check: dict[str, int] = {}
        # The names of the formats that had their last check.
        self._settled: set[str] = set()

    def __reduce__(self) -> tuple[type[BatchWatcher], tuple[()]]:
        # A copy is a new watcher, made without arguments: a lock cannot be copied.
        return BatchWatcher, ()

    def watch_thinking(self, texts: Iterable[str], *, prompt_opens_thinking: bool) -> str | None:
        """Count how the texts of a batch mark their thinking; return what is suspect, once, as `thinking_suspicion`."""
        with self._lock:
            if self._thinking_done:
                return None
            self._thinking_states.update(map(thinking_state, texts))
            suspicion = thinking_suspicion(self._thinking_states, prompt_opens_thinking=prompt_opens_thinking)
            self._thinking_done = suspicion is not None or self._thinking_states.total() >= _MAX_WATCHED
        return suspicion

    def wants_boxes(self, formats: Iterable[BoxFormat]) -> bool:
        """Whether more has to be seen of one of these formats, as its last check is still to come.

        The last check of a format is one that contradicts it, or that of `MAX_IMAGES` images or `_MAX_WATCHED`
        completions.
        """
        return any(fmt.name not in self._settled for fmt in formats)

    def watch_boxes(
        self, raws: Sequence[RawBoxes], formats: Sequence[BoxFormat], gt: Sequence[Boxes], sizes: Array
    ) -> list[SpaceCheck]:
        """Keep the boxes of a batch, and return the checks by which what was seen so far contradicts a format.

        A format is contradicted once in the watcher's life: nothing more is kept of it after that.

        Args:
            raws: n completions.
            formats: the format of each.
            gt: the reference boxes of each, (m, 4) in original pixels; completions on images without any are left out.
            sizes: (n, 4), width, height and the resized width and height.
        """
        with self._lock:
            for raw, fmt, boxes, size in zip(raws, formats, gt, sizes, strict=True):
                # A format whose last check is over gets an empty entry, on which `_check` has nothing to do.
                answers, image_keys = self._seen.setdefault(fmt.name, ([], set()))
                if raw.coords and len(boxes) and len(answers) < _MAX_WATCHED and self.wants_boxes([fmt]):
                    answers.append((raw, boxes, size))
                    # A set, as completions of the same image count as one image.
                    image_keys.add(_image_key(boxes, size))
            distinct_formats = {fmt.name: fmt for fmt in formats}.values()
            checks = list(map(self._check, distinct_formats))
        return [check for check in checks if check is not None]

    def _check(self, fmt: BoxFormat) -> SpaceCheck | None:
        """Check what was seen of a format, if it is time for that; the check if it contradicts the format, else None.

        It runs after 4, 8, 16, … different images, as it takes as long as reading hundreds of completions; and for the
        last time after `MAX_IMAGES` of them, or `_MAX_WATCHED` completions.
        """
        answers, image_keys = self._seen[fmt.name]
        is_full = len(image_keys) >= MAX_IMAGES or len(answers) == _MAX_WATCHED
        if not answers or (len(image_keys) < self._next_check.get(fmt.name, MIN_IMAGES) and not is_full):
            return None
        raws, gt, sizes = zip(*answers, strict=True)
        check = check_space(raws, fmt, gt, np.array(sizes))
        contradicts = check.likely is not None
        self._next_check[fmt.name] = 2 * len(image_keys)
        if is_full or contradicts:
            # The last check: nothing more is kept of this format.
            self._settled.add(fmt.name)
            del self._seen[fmt.name]
        return check if contradicts else None
