"""Answers of a model to changed images: corruptions as they happen on the way to a model, and the measurement of these
and of attacks that use its gradients (`models/attack.py`).

There are five corruptions, in five strengths each.

A change is random only through its seed, in the same way at every strength: an image that is turned to the left at
strength 1 is turned to the left at strength 5. All sizes are fractions of the image, so that a smaller copy is changed
in the same way. The image keeps its size.

Where a change moves the image, one affine matrix moves the pixels and the boxes. A moved box is the smallest upright
rectangle around its four moved corners, clipped to the image. If less than half of it is left, the finding counts as
no longer visible: its entry of ``kept`` is False.

Labels stay with their boxes: on a mirrored image the right lung is still called right, in the half of the image where
the left one is expected.

Source: spec/evaluation_metrics.md §4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.boxes import Boxes, as_box_array, box_area, valid_boxes
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.dataset_columns import light_rows
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.metrics.prediction import Prediction, patients_of
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.metrics.robustness import AnswerPair, RobustnessPoint, robustness_estimates
from grounding_rewards.models.attack import PGD, AttackingProcessor
from grounding_rewards.rewards.grounding import GroundingReward

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

STRENGTHS = (1, 2, 3, 4, 5)

Seed = int | Sequence[int]
Matrix = NDArray[np.float64]

#: Smallest share of a box inside the image for which its finding counts as visible.
MIN_VISIBLE = 0.5


class Corrupted(NamedTuple):
    """A changed image with its boxes.

    Attributes:
        image: of the same size as before.
        boxes: ``(n, 4)`` xyxy in pixels of the image, in the same order as before.
        kept: ``(n,)`` bool: False for a box of which less than half is left inside the image.
    """

    image: Image
    boxes: Boxes
    kept: NDArray[np.bool_]


class Corruption(NamedTuple):
    """One kind of change.

    Attributes:
        meaning: what it does to an image, and what the five amounts are.
        amounts: the amount at each strength.
        pixels: ``(image, amount, generator) → image`` for a change that leaves everything in its place.
        matrix: ``(amount, width, height, generator) → (2, 3)`` affine matrix for a change that moves the image: it
            takes a point of the image to its place on the changed image.
    """

    meaning: str
    amounts: tuple[float, float, float, float, float]
    pixels: Callable[[Image, float, np.random.Generator], Image] | None = None
    matrix: Callable[[float, float, float, np.random.Generator], Matrix] | None = None


def corrupt(image: Image, boxes: ArrayLike, name: str, strength: int, *, seed: Seed = 0) -> Corrupted:
    """Change an image, and move its boxes along.

    Args:
        image: 8-bit, grey or in colour; other modes than L and RGB are converted to RGB.
        boxes: ``(n, 4)`` xyxy in pixels of the image.
        name: one of :data:`CORRUPTIONS`.
        strength: 1 to 5.
        seed: of what is random, such as the side to which an image is turned.

    Raises:
        ValueError: unknown name, a strength out of range, boxes that are not ``(n, 4)``, an image of more than 8 bits.

    Example:
        >>> from PIL import Image
        >>> image = Image.new("L", (100, 80), 128)
        >>> mirrored = corrupt(image, [[10, 20, 30, 40]], "laterality_flip", 5)
        >>> mirrored.image.size, mirrored.boxes, mirrored.kept
        ((100, 80), array([[70., 20., 90., 40.]]), array([ True]))
    """
    # Modes such as "I;16" and "F" have more bits.
    if image.mode[0] in "IF":
        raise ValueError(
            f"Expected an image of 8 bits for `image`, got mode {image.mode}. "
            "Bring it to 8 bits before: the strengths are parts of the range of intensities."
        )
    width, height = image.size
    moved_boxes, is_visible = corrupt_boxes(boxes, name, strength, width=width, height=height, seed=seed)
    image = image.copy() if image.mode in ("L", "RGB") else image.convert("RGB")
    kind = CORRUPTIONS[name]
    # Any other kind has a matrix instead.
    if kind.pixels is not None:
        changed = kind.pixels(image, kind.amounts[strength - 1], np.random.default_rng(seed))
        return Corrupted(changed, moved_boxes, is_visible)
    from PIL.Image import Resampling, Transform

    # A square matrix, which has an inverse: Pillow takes the first two rows of that of the way back, from the result to
    # the source. Uncovered parts become black.
    matrix = np.vstack([_matrix(name, strength, width, height, seed), [0.0, 0.0, 1.0]])
    inverse = np.linalg.inv(matrix)[:2]
    warped = image.transform(image.size, Transform.AFFINE, inverse.ravel().tolist(), Resampling.BILINEAR)
    return Corrupted(warped, moved_boxes, is_visible)


def corrupt_boxes(
    boxes: ArrayLike, name: str, strength: int, *, width: float, height: float, seed: Seed = 0
) -> tuple[Boxes, NDArray[np.bool_]]:
    """Move boxes as a change moves them, without the image.

    Args:
        boxes: ``(n, 4)`` xyxy in pixels of an image.
        name: one of :data:`CORRUPTIONS`.
        strength: 1 to 5.
        width: of the image.
        height: of the image.
        seed: that of :func:`corrupt`.

    Returns:
        ``(n, 4)`` moved boxes, and ``(n,)`` bool, True for those still visible, as in :class:`Corrupted`. A change that
        moves nothing returns the boxes as they are and keeps all. An invalid box is kept, neither moved nor repaired.

    Raises:
        ValueError: as :func:`corrupt`.

    Example:
        Up to 20 % of the image are cut off at strength 5, and the rest is enlarged:

        >>> moved, kept = corrupt_boxes([[40, 40, 60, 60], [0, 40, 4, 60]], "crop", 5, width=100, height=100)
        >>> (moved[0, 2:] - moved[0, :2]).round(6), kept
        (array([25., 25.]), array([ True, False]))
    """
    box_array = as_box_array(boxes)
    check_word("name", name, CORRUPTIONS)
    if not isinstance(strength, int | np.integer) or strength not in STRENGTHS:
        raise ValueError(
            f"Expected a whole number from 1 to {STRENGTHS[-1]} for `strength`, got {strength!r}. Choose one of them."
        )
    identity = np.eye(2, 3)
    matrix = identity if CORRUPTIONS[name].matrix is None else _matrix(name, strength, width, height, seed)
    # The change moves nothing: it is one of pixels alone, or leaves this image as it is.
    if np.array_equal(matrix, identity):
        return box_array.copy(), np.ones(len(box_array), dtype=bool)
    moved_boxes = _move_boxes(box_array, matrix)
    far_corner = (width, height, width, height)
    clipped_boxes = np.clip(moved_boxes, 0.0, far_corner)
    # A part that was outside the image before the change is not lost through it.
    visible_before = box_area(np.clip(box_array, 0.0, far_corner))
    visible_after = box_area(clipped_boxes)
    area = box_area(box_array)
    # If the change enlarges a box, the same share of the larger box has to be visible.
    growth = box_area(moved_boxes) / np.where(area > 0, area, 1.0)
    valid = valid_boxes(box_array)
    is_visible = ~valid | ((visible_after > 0) & (visible_after >= MIN_VISIBLE * visible_before * growth))
    return np.where(valid[:, None], clipped_boxes, box_array), is_visible


def _matrix(name: str, strength: int, width: float, height: float, seed: Seed) -> Matrix:
    """The affine matrix of a corruption that moves the image, see :class:`Corruption`."""
    kind = CORRUPTIONS[name]
    assert kind.matrix is not None
    return kind.matrix(kind.amounts[strength - 1], width, height, np.random.default_rng(seed))


def _move_boxes(boxes: Boxes, matrix: Matrix) -> Boxes:
    """The smallest upright rectangles around the corners of boxes, moved by an affine matrix."""
    # The corners: top left, top right, bottom right, bottom left.
    x, y = boxes[:, [0, 2, 2, 0]], boxes[:, [1, 1, 3, 3]]
    # Invalid boxes may hold infinities.
    with np.errstate(all="ignore"):
        moved_x = matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2]
        moved_y = matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2]
    return np.stack([moved_x.min(1), moved_y.min(1), moved_x.max(1), moved_y.max(1)], axis=1)


def _intensities(image: Image) -> NDArray[np.float64]:
    """The pixels of an image as numbers in [0, 1]."""
    return np.asarray(image, dtype=np.float64) / 255


def _image(intensities: NDArray[np.float64]) -> Image:
    """The image of intensities, which are clipped to [0, 1]."""
    from PIL.Image import fromarray

    return fromarray(np.rint(np.clip(intensities, 0.0, 1.0) * 255).astype(np.uint8))


def _window_level(image: Image, amount: float, rng: np.random.Generator) -> Image:
    """The image in a narrower window whose level is moved up or down."""
    # y = (x - level) / width + 1/2: the level moves by the amount, the window narrows by 2.5 times as much.
    level = 0.5 + amount * rng.choice([-1.0, 1.0])
    width = 1.0 - 2.5 * amount
    return _image((_intensities(image) - level) / width + 0.5)


def _noise(image: Image, amount: float, rng: np.random.Generator) -> Image:
    """The image with normally distributed noise; the amount is its standard deviation."""
    grain = rng.normal(0.0, amount, (image.height, image.width))
    clean = _intensities(image)
    # A radiograph is grey: all channels of a copy in colour get the same grain.
    if clean.ndim == 3:
        grain = grain[..., None]
    return _image(clean + grain)


def _rotation(amount: float, width: float, height: float, rng: np.random.Generator) -> Matrix:
    """The matrix of a rotation to the left or to the right; the amount is in degrees."""
    angle = math.radians(amount) * rng.choice([-1.0, 1.0])
    cos, sin = math.cos(angle), math.sin(angle)
    # The middle of the image stays in its place.
    x, y = width / 2, height / 2
    return np.array([[cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y]])


def _crop(amount: float, width: float, height: float, rng: np.random.Generator) -> Matrix:
    """The matrix that crops an image and enlarges the rest to its size; the amount is the fraction that is cut off."""
    # The fractions that are cut off at the left and at the top.
    x, y = rng.uniform(0.0, amount, 2)
    scale = 1.0 / (1.0 - amount)
    return np.array([[scale, 0.0, -scale * x * width], [0.0, scale, -scale * y * height]])


def _laterality_flip(amount: float, width: float, height: float, rng: np.random.Generator) -> Matrix:
    """The matrix that swaps left and right, with the amount as its probability; otherwise that of no change."""
    if rng.uniform() >= amount:
        return np.eye(2, 3)
    return np.array([[-1.0, 0.0, width], [0.0, 1.0, 0.0]])


#: All changes by name.
CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "window_level": Corruption(
            "the window's level moves up or down by this part of the range of intensities, and the window narrows by "
            "2.5 times as much; what lies outside is black or white",
            (0.04, 0.08, 0.12, 0.16, 0.20),
            pixels=_window_level,
        ),
        "noise": Corruption(
            "normal noise with this standard deviation, as part of the range of intensities",
            (0.01, 0.02, 0.04, 0.08, 0.16),
            pixels=_noise,
        ),
        "rotation": Corruption(
            "turned about the middle by so many degrees, to the left or to the right; the corners are black",
            (1, 2, 3, 4, 5),
            matrix=_rotation,
        ),
        "crop": Corruption(
            "this part of the width and of the height is cut off, at random from both sides, and the rest is enlarged "
            "to the image's size",
            (0.04, 0.08, 0.12, 0.16, 0.20),
            matrix=_crop,
        ),
        "laterality_flip": Corruption(
            "this part of the images is mirrored from left to right, those of a lower strength among them: an image is "
            "mirrored or it is not, so that the strength is how many are",
            (0.2, 0.4, 0.6, 0.8, 1.0),
            matrix=_laterality_flip,
        ),
    }
)


FAMILIES = ("corruptions", "pgd")
EPSILONS = (0.0, 1 / 255, 2 / 255, 4 / 255, 8 / 255)


def robustness(
    model: Any,
    processor: Any,
    dataset: Dataset,
    reward: GroundingReward,
    *,
    families: Collection[str] = FAMILIES,
    corruptions: Sequence[str] = tuple(CORRUPTIONS),
    strengths: Sequence[int] = STRENGTHS,
    epsilons: Sequence[float] = EPSILONS,
    steps: int = 10,
    seed: int = 0,
    label_matching: str = "ignore",
    max_new_tokens: int = 256,
    batch_size: int = 16,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> list[RobustnessPoint]:
    """Measure robust accuracy, attack success rate and mean IoU of greedy answers to changed images.

    The change of an image depends on ``seed`` and its row number. Intervals are over patients if the dataset
    has them, else over images.

    Args:
        model: a transformers vision-language model; for ``pgd`` one that passes gradients on to its pixel values.
        processor: its processor.
        dataset: rows with the package's columns, among them ``box_format`` unless the reward has one. The reference is
            the column ``boxes``.
        reward: reads the answers; its threshold, matcher and comparison of labels decide what is right.
        families: `corruptions`, `pgd` or both.
        corruptions: names out of :data:`CORRUPTIONS`.
        strengths: of the corruptions, 1 to 5.
        epsilons: largest changes of an intensity by an attack, as parts of their range.
        steps: of an attack.
        seed: of corruptions and attacks.
        label_matching: of mean IoU, as in :mod:`grounding_rewards.metrics.detection`.
        max_new_tokens: where an answer is cut off.
        batch_size: images answered, and attacked, at the same time.
        on_progress: called with the change, the images answered under it, and of how many.

    Returns:
        For each corruption a point for the unchanged images (strength 0) and for each strength; then one for each ε.

    Raises:
        ValueError: an unknown family or corruption, or a number out of range; gradients of the model are not finite.
    """
    from grounding_rewards.models.generate import Sampling, generate, reads_special_tokens

    for family in families:
        check_word("families", family, FAMILIES)
    attacks = [PGD(epsilon, steps, seed=seed) for epsilon in epsilons]
    rows = light_rows(dataset)
    # Here, so that a row without a box format is refused before answers are generated.
    gold = [gold_answer(row, reward.box_format or row["box_format"]) for row in rows]
    greedy = Sampling(
        max_new_tokens=max_new_tokens,
        skip_special_tokens=not reads_special_tokens(dataset, reward, getattr(processor, "tokenizer", processor)),
    )

    def ask(images: Any, asked_processor: Any, change: str) -> list[Prediction]:
        """The predictions for images under a change, whose name is for the progress."""

        def report_progress(image_count: int, total: int, _: int) -> None:
            if on_progress is not None:
                on_progress(change, image_count, total)

        texts = generate(model, asked_processor, images, greedy, batch_size=batch_size, on_progress=report_progress)
        return read_predictions(rows, texts, reward)

    before = ask(dataset, processor, "images as they are")
    # Images of one patient are not independent.
    groups = patients_of(before)

    def measure(family: str, name: str, strength: float, pairs: Iterable[AnswerPair]) -> RobustnessPoint:
        """The metrics of the answers before and after a change."""
        metrics = robustness_estimates(list(pairs), reward, label_matching=label_matching, groups=groups)
        return RobustnessPoint(family, name, strength, **metrics)

    points = []
    if "corruptions" in families:
        # Strength 0: the answers are compared with themselves. Every corruption gets this point under its own name, as
        # the beginning of its curve.
        unchanged = measure("corruptions", "", 0, map(AnswerPair.unmoved, before, before))
        for name in corruptions:
            points.append(unchanged._replace(name=name))
            for strength in strengths:
                images = CorruptedImages(dataset, name, strength, seed)
                after = ask(images, processor, f"{name} {strength}")
                points.append(measure("corruptions", name, strength, images.pairs(before, after)))
    if "pgd" in families:
        for attack in attacks:
            attacking_processor = AttackingProcessor(processor, model, gold, attack)
            after = ask(dataset, attacking_processor, f"attack with ε = {attack.epsilon:.4f}")
            # An attack moves nothing, so the reference boxes stay where they are.
            points.append(measure("pgd", "pgd", attack.epsilon, map(AnswerPair.unmoved, before, after)))
    return points


class CorruptedImages:
    """The rows of a dataset with images that are corrupted when they are read; boxes stay as they are.

    Args:
        dataset: rows with ``image``.
        name: of the corruption.
        strength: 1 to 5.
        seed: with the row number the seed of each image.
    """

    def __init__(self, dataset: Any, name: str, strength: int, seed: int) -> None:
        self._dataset, self._name, self._strength, self._seed = dataset, name, strength, seed

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """A row with its image corrupted, in the same way each time that it is read."""
        row = self._dataset[number]
        image = corrupt(row["image"], [], self._name, self._strength, seed=(self._seed, number)).image
        return {**row, "image": image}

    def pairs(self, before: Sequence[Prediction], after: Sequence[Prediction]) -> Iterator[AnswerPair]:
        """Yield each image's answers before and after the corruption, with boxes moved as the corruption moves them.

        A reference box of which too little is left to ask for it is taken out; what is left becomes an ignored region.

        Args:
            before: the predictions on the unchanged images.
            after: those on the corrupted ones, in the same order.
        """
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            # With the seed of the image, so that boxes move as its pixels did.
            move = partial(
                corrupt_boxes,
                name=self._name,
                strength=self._strength,
                width=old.width,
                height=old.height,
                seed=(self._seed, number),
            )
            gt, is_visible = move(old.gt)
            pred, is_pred_visible = move(old.pred)
            ignore, _ = move(old.ignore)
            labels = tuple(label for label, visible in zip(old.gt_labels, is_visible, strict=True) if visible)
            ignore = np.concatenate([ignore, gt[~is_visible]])
            changed_answer = replace(new, gt=gt[is_visible], gt_labels=labels, ignore=ignore)
            yield AnswerPair(before=old, after=changed_answer, moved=pred, kept=is_pred_visible)
