"""Image dependence: the part of a metric that a model owes to looking at the images.

A model that learned where findings usually are earns much without looking. What it would earn so is seen when its
answers are dealt to other images: with ``N_ij`` what the answer to image ``j`` earns on image ``i``, and ``n`` images
that are dealt among each other,

    dependence = (Σ_i N_ii - Σ_i 1/n Σ_j N_ij) / Σ_i M_i

which is the metric less its expectation over all permutations of the answers. ``M_i`` is what the metric divides by:
reference boxes for mean IoU, predicted and reference boxes for F1, 1 for a mean over images. Answers are dealt among
images of one source whose prompts name the same labels, as what the question says is nothing seen, with equally many
reference boxes (or the same labels), so that a model gains nothing by counting; boxes are compared as shares of the
image's sides. It is 0 for a model that answers every image alike, whatever it
earns.

Its interval is that of a ratio of sums over patients, of ``u_i = N_ii - N_i. - N_.i + N_..`` with the means over
answers, over images and over both: what image and answer ``i`` contribute, which sums to the numerator above. The test
deals the answers at random: p is the share of dealings that earn as much as the answers where they are.

Below it stand the answers that need no look at the image (:func:`baseline_systems`): what a trained model must beat,
and the reference, which it cannot.

Source: a permutation test of association between answers and images; for the sums ``u``, Hoeffding, A Class of
Statistics with Asymptotically Normal Distribution, Annals of Mathematical Statistics 1948.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, as_box_array, pad
from grounding_rewards.common.arithmetic import Array
from grounding_rewards.common.legal import check_word
from grounding_rewards.matching import match_batch
from grounding_rewards.metrics.answered_image import UNNAMED, AnsweredImage, ImageBatch, patients_of
from grounding_rewards.metrics.answers import SIDE_BY_SIDE, asked_labels, reference_images
from grounding_rewards.metrics.counts import MatchedImages
from grounding_rewards.metrics.estimates import SIGNED, Estimate, Metric, estimate_as_json
from grounding_rewards.metrics.intervals import ratio_estimates
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.rewards.grounding import GroundingReward, get_reward
from grounding_rewards.rewards.judging import score_boxes
from grounding_rewards.rewards.label_matching import LabelCodes

#: What an answer earns on an image: from IoUs ``(b, n, m)``, 0 where labels differ, and the numbers of predicted and of
#: reference boxes ``(b,)``, to ``(b,)``.
Earned = Callable[[Array, NDArray[Any], NDArray[Any]], Array]

#: Which images answers are dealt among: those with as many reference boxes, with the same labels, or all.
WITHIN: Mapping[str, Callable[[AnsweredImage], Any]] = {
    "count": lambda image: len(image.gt),
    "labels": lambda image: tuple(sorted(image.gt_labels)),
    "all": lambda image: None,
}

#: In the table of metrics.
IMAGE_DEPENDENCE = {
    "image_dependence": Metric(
        "image dependence",
        "mean IoU, less its expectation when the answers are dealt to other images with as many reference boxes: "
        "what is owed to looking; 0 for a model that answers every image alike",
        bounds=SIGNED,
    )
}

#: Up to so many images every answer is dealt to every image; of more, each image gets :data:`PARTNERS` fixed answers.
MOST_IMAGES = 500
PARTNERS = 200

_DEALINGS = 1999
# IoUs that are in memory at once; more are slower, too, as they leave the processor's cache.
_CELLS = 1 << 17
# Pairs of an image and an answer that are sorted by their numbers of boxes at once.
_PAIRS = 1 << 17
_FEW_PAIRINGS = 120
# From how many reference boxes on, and from which mean IoU with those of another image, answers are of that image.
_LEAST_SHIFTED, _SHIFTED = 10, 0.3
_ANY_OVERLAP = float(np.nextafter(0.0, 1.0))


def _matched_iou(iou: Array, n: NDArray[Any], m: NDArray[Any]) -> Array:
    """The sum of the IoUs of the best one-to-one pairs."""
    few, many = sorted(iou.shape[1:])
    if math.perm(many, few) <= _FEW_PAIRINGS:
        # All images try one pairing at once, which is faster than an assignment for each.
        wide, best = iou if iou.shape[1] == few else np.swapaxes(iou, 1, 2), np.zeros(len(iou))
        for places in permutations(range(many), few):
            np.maximum(best, sum(wide[:, i, j] for i, j in enumerate(places)), out=best)
        return best
    matched = match_batch(iou, _ANY_OVERLAP, matching="hungarian")
    taken = np.take_along_axis(iou, np.maximum(matched, 0)[..., None], axis=2)[..., 0]
    return np.asarray(np.where(matched >= 0, taken, 0.0).sum(axis=1))


def _twice_hits(iou: Array, n: NDArray[Any], m: NDArray[Any]) -> Array:
    """Twice the number of right boxes at IoU 0.5."""
    if min(iou.shape[1:]) <= 1:
        return 2.0 * (iou.max(axis=(1, 2), initial=0.0) >= 0.5)
    return 2.0 * (match_batch(iou, 0.5, matching="most_hits") >= 0).sum(axis=1)


#: Metrics that are ratios of sums over images, and what an answer adds to the numerator.
_METRICS: Mapping[str, Earned] = {"mean_iou": _matched_iou, "f1_50": _twice_hits}


@dataclass(frozen=True)
class ImageDependence:
    """What a model owes to the images.

    Attributes:
        metric: name of the metric.
        value: the metric of the answers where they are.
        dealt: its expectation when they are dealt to other images.
        dependence: the difference, with its 95 % interval over patients.
        p: share of the dealings that earn as much as the answers where they are; small if the model looks.
        distinct: number of distinct answers.
        images: number of images.
        within: which images answers were dealt among, a key of :data:`WITHIN`.
    """

    metric: str
    value: float
    dealt: float
    dependence: Estimate
    p: float
    distinct: int
    images: int
    within: str

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain values."""
        return {**vars(self), "dependence": estimate_as_json(self.dependence)}


def image_dependence(
    images: Sequence[AnsweredImage],
    *,
    metric: str | Earned = "mean_iou",
    within: str = "count",
    label_matching: str = "ignore",
    seed: int = 0,
) -> ImageDependence:
    """Measure what a model owes to the images.

    Args:
        images: with their answers.
        metric: ``"mean_iou"``, ``"f1_50"``, or what an answer earns on an image, an :data:`Earned`.
        within: ``"count"``, ``"labels"`` or ``"all"``: which images answers are dealt among, see :data:`WITHIN`.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether boxes of different labels can match.
        seed: of the dealings of the test.

    Returns:
        Of no images, and without reference boxes, NaN.

    Raises:
        ValueError: a word is unknown.

    Example:
        Two models; the second answers both images alike.

        >>> gt = [[[0, 0, 10, 10]], [[5, 0, 15, 10]]]
        >>> of = {"width": 20, "height": 20, "gt_labels": ["mass"]}
        >>> looks = [AnsweredImage(str(k), gt=boxes, pred=boxes, **of) for k, boxes in enumerate(gt)]
        >>> found = image_dependence(looks)
        >>> round(found.value, 3), round(found.dealt, 3), round(found.dependence.value, 3)
        (1.0, 0.667, 0.333)
        >>> blind = [AnsweredImage(str(k), gt=boxes, pred=gt[0], **of) for k, boxes in enumerate(gt)]
        >>> image_dependence(blind).dependence.value, image_dependence(blind).distinct
        (0.0, 1)
    """
    check_word("within", within, WITHIN)
    if callable(metric):
        earned, divisor = metric, np.ones(len(images))
    else:
        check_word("metric", metric, _METRICS)
        counts = MatchedImages(images, label_matching).counts_50
        earned, divisor = _METRICS[metric], counts.m if metric == "mean_iou" else counts.n + counts.m
    own, contributed, p = _deal(images, earned, within, label_matching, seed, _DEALINGS)
    sums = np.column_stack([contributed, divisor])
    found = ratio_estimates({"": sums}, bounds={"": SIGNED}, groups=patients_of(images))[""]
    total = float(divisor.sum())
    value = float(own.sum()) / total if total else float("nan")
    return ImageDependence(
        metric=metric if isinstance(metric, str) else getattr(metric, "__name__", "metric"),
        value=value,
        dealt=value - found.value,
        dependence=found,
        p=p,
        distinct=len({image.text or image.pred.tobytes() for image in images}),
        images=len(images),
        within=within,
    )


def dependence_sums(images: Sequence[AnsweredImage], *, label_matching: str = "ignore") -> dict[str, Array]:
    """The image dependence of mean IoU as a ratio of sums, ``(images, 2)``, by key as other metrics are.

    Example:
        >>> image = AnsweredImage("a", 20, 20, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 10]])
        >>> dependence_sums([image])
        {'image_dependence': array([[0., 1.]])}
    """
    _, contributed, _ = _deal(images, _matched_iou, "count", label_matching, seed=0, dealings=0)
    return {"image_dependence": np.column_stack([contributed, [len(image.gt) for image in images]])}


def shift_notes(images: Sequence[AnsweredImage]) -> list[str]:
    """A sentence where the answers fit the boxes of the next or the previous image, and not those of their own.

    Args:
        images: with their answers, in the order of the log or of the dataset.

    Example:
        >>> places = np.random.default_rng(0).integers(0, 90, (12, 2)).tolist()
        >>> boxes = [[[x, y, x + 9, y + 9]] for x, y in places]
        >>> of = {"width": 99, "height": 99, "gt_labels": ["mass"]}
        >>> moved = [AnsweredImage(str(k), gt=boxes[k - 1], pred=boxes[k], **of) for k in range(12)]
        >>> print(*shift_notes(moved))
        The answers fit the boxes of the next image (mean IoU 1.00) and not those of their own (0.00): answers and \
images are joined off by one row. Join them by `id`.
    """
    total = sum(len(one.gt) for one in images)
    if total < _LEAST_SHIFTED:
        return []
    rows = np.arange(len(images))
    found = []
    # An answer in pixels has those of the image that it is about.
    for table in (_Boxes.of(images, "ignore"), _Boxes.of(images, "ignore", in_pixels=True)):
        own = table.earn(_matched_iou, rows, rows).sum()
        for where, by in (("next", -1), ("previous", 1)):
            moved = table.earn(_matched_iou, np.roll(rows, by), rows).sum()
            if moved > max(2 * own, _SHIFTED * total):
                found.append((moved / total, own / total, where))
    return [
        f"The answers fit the boxes of the {where} image (mean IoU {moved:.2f}) and not those of their own "
        f"({own:.2f}): answers and images are joined off by one row. Join them by `id`."
        for moved, own, where in sorted(found)[-1:]
    ]


def _deal(
    images: Sequence[AnsweredImage], earned: Earned, within: str, label_matching: str, seed: int, dealings: int
) -> tuple[Array, Array, float]:
    """``(images,)`` what each answer earns where it is, and what image and answer contribute; p of the test."""
    table = _Boxes.of(images, label_matching)
    # Partners are drawn apart from the dealings of the test, so that a number is the same wherever it stands.
    partners, dealer = np.random.default_rng(0), np.random.default_rng(seed)
    own, contributed = table.earn(earned, np.arange(len(images)), np.arange(len(images))), np.zeros(len(images))
    if table.answers_alike:
        return own, contributed, 1.0
    groups: dict[Any, list[int]] = defaultdict(list)
    # Sorted, so that neither partners nor dealings depend on the order of the images.
    for k in sorted(range(len(images)), key=lambda k: images[k].id):
        groups[images[k].source, images[k].asked, WITHIN[within](images[k])].append(k)
    if any(len(group) > MOST_IMAGES for group in groups.values()):
        dealings = min(dealings, PARTNERS)
    totals = np.zeros(dealings)
    for members in groups.values():
        group = partners.permutation(members)
        n = len(group)
        # Answers are dealt by shifts of the images in a random order: each shift is a permutation.
        shifts = np.arange(n) if n <= MOST_IMAGES else partners.choice(n, PARTNERS, replace=False)
        partner = (np.arange(n)[:, None] + shifts) % n
        blocks = np.array_split(partner, math.ceil(partner.size / _PAIRS))
        rows = np.array_split(group, len(blocks))
        values = np.concatenate(
            [table.earn(earned, np.repeat(i, len(shifts)), group[j.ravel()]) for i, j in zip(rows, blocks, strict=True)]
        ).reshape(n, len(shifts))
        by_answer = np.bincount(partner.ravel(), weights=values.ravel(), minlength=n) / len(shifts)
        contributed[group] = own[group] - values.mean(axis=1) - by_answer + values.mean()
        if n <= MOST_IMAGES:
            # Column k of `values` is the k-th shift; answer j of image i stands in column (j - i) mod n.
            orders = dealer.permuted(np.tile(np.arange(n), (dealings, 1)), axis=1)
            totals += values[np.arange(n), (orders - np.arange(n)) % n].sum(axis=1)
        else:
            totals += values.sum(axis=0)[dealer.permutation(PARTNERS)[:dealings]]
    # One answer to all images owes them nothing, not a rounding error.
    contributed[np.abs(contributed) < 1e-12] = 0.0
    as_good = int((totals >= own.sum() - 1e-9).sum())
    return own, contributed, (1 + as_good) / (1 + dealings)


@dataclass(frozen=True, eq=False)
class _Boxes:
    """The boxes of all images as shares of the sides or in pixels, with codes of their labels where compared."""

    pred: BoxBatch
    gt: BoxBatch
    codes: LabelCodes | None

    @classmethod
    def of(cls, images: Sequence[AnsweredImage], label_matching: str, *, in_pixels: bool = False) -> _Boxes:
        batch = ImageBatch.of(images)
        sides = np.tile(np.ones_like(batch.sizes) if in_pixels else batch.sizes, 2)
        pred, gt = (
            BoxBatch(boxes.flat / np.repeat(sides, boxes.counts, axis=0), boxes.counts)
            for boxes in (batch.pred, batch.gt)
        )
        compared = label_matching != "ignore"
        codes = LabelCodes.of(batch.pred_labels, batch.gt_labels, label_matching) if compared else None
        return cls(pred, gt, codes)

    @property
    def answers_alike(self) -> bool:
        """Whether all images have the same answer, such as a constant box."""
        n = self.pred.counts[:1].sum()
        codes = np.zeros(len(self.pred.flat)) if self.codes is None else self.codes.pred
        told = np.column_stack([self.pred.flat, codes])
        alike = np.array_equal(self.pred.counts, np.full(len(self.pred.counts), n))
        return alike and (n == 0 or np.allclose(told.reshape(-1, n, 5), told[:n], rtol=0, atol=1e-9, equal_nan=True))

    def earn(self, earned: Earned, image: NDArray[np.int64], answer: NDArray[np.int64]) -> Array:
        """What each answer earns on the image beside it, ``(pairs,)``."""
        found = np.zeros(len(image))
        starts_of_pred, starts_of_gt = (np.cumsum(boxes.counts) - boxes.counts for boxes in (self.pred, self.gt))
        for chunk in self._chunks(image, answer):
            i, j = image[chunk], answer[chunk]
            n, m = int(self.pred.counts[j[0]]), int(self.gt.counts[i[0]])
            iou = np.zeros((len(chunk), n, m))
            if n and m:
                pred = self.pred.flat[starts_of_pred[j][:, None] + np.arange(n)]
                iou = pairwise_iou(pred, self.gt.flat[starts_of_gt[i][:, None] + np.arange(m)])
            if self.codes is not None:
                pred, gt = pad(self.codes.pred, self.pred.counts, j), pad(self.codes.gt, self.gt.counts, i)
                iou = np.where(self.codes.agree(pred[:, :, None], gt[:, None, :]), iou, 0.0)
            found[chunk] = earned(iou, self.pred.counts[j], self.gt.counts[i])
        return found

    def _chunks(self, image: NDArray[np.int64], answer: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
        """Pairs that are worked on together: those with the same numbers of boxes, so that nothing is filled up."""
        n, m = self.pred.counts[answer], self.gt.counts[image]
        # By m, then n; a stable sort of small numbers is one by their digits.
        shape = m * (n.max(initial=0) + 1) + n
        order = np.argsort(shape.astype(np.min_scalar_type(shape.max(initial=0))), kind="stable")
        # Where the numbers of boxes change, and in between so often that memory suffices.
        changes = np.flatnonzero(np.diff(n[order]) | np.diff(m[order])) + 1
        for alike in np.split(order, changes):
            size = max(1, _CELLS // max(1, int(n[alike[:1]].sum() * m[alike[:1]].sum())))
            for start in range(0, len(alike), size):
                yield alike[start : start + size]


#: The boxes and labels of one answer; the boxes in pixels of the image.
BoxAnswer = tuple[Array, list[str]]

CONSTANT, CONSTANT_OF_THESE = "constant box", "constant box of these images"
NOTHING_FOUND, WHOLE_IMAGE = "nothing found", "whole image"
#: What no answer can better. A rightly empty answer earns the bonus, below 1, so that a mean reward cannot reach 1.
REFERENCE = "reference as answer"


def baseline_systems(
    rows: Sequence[Mapping[str, Any]],
    training: Iterable[Mapping[str, Any]] | None,
    reward: GroundingReward,
) -> dict[str, list[AnsweredImage]]:
    """The answers that need no model; they stand beside a model's in every table.

    Args:
        rows: the images, see :func:`grounding_rewards.metrics.answers.read_answers`.
        training: the images that the constant box is the median of; without them it is that of these images, which
            flatters it, and its name says so. Of no images there is no constant box.
        reward: what the evaluation is about.

    Returns:
        By name: the reference itself, the constant box (:func:`constant_boxes`, of the training images that are asked
        for the same labels), nothing found, and the whole image under the most frequent label.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
        >>> systems = baseline_systems([row], [row], get_reward("R3", box_format="qwen3-vl"))
        >>> [(name, images[0].rewards["R3"]) for name, images in systems.items()]
        [('reference as answer', 1.0), ('constant box', 1.0), ('nothing found', 0.0), ('whole image', 0.0)]
    """
    images = ImageBatch(reference_images(rows))
    # With the names that rows without labels are given.
    named = [{**row, "labels": image.gt_labels} for row, image in zip(rows, images, strict=True)]
    constant = _constant_by_question(named if training is None else list(training), images)
    labels = Counter(chain.from_iterable(image.gt_labels for image in images)).most_common(1)
    label = labels[0][0] if labels else UNNAMED
    answers: dict[str, list[BoxAnswer]] = {REFERENCE: [(image.gt, list(image.gt_labels)) for image in images]}
    if constant[None]:
        answers[CONSTANT_OF_THESE if training is None else CONSTANT] = [
            constant_answer(constant.get(image.asked) or constant[None], width=image.width, height=image.height)
            for image in images
        ]
    answers[NOTHING_FOUND] = [(np.zeros((0, 4)), [])] * len(images)
    answers[WHOLE_IMAGE] = [(np.array([[0.0, 0.0, image.width, image.height]]), [label]) for image in images]
    rewards = {**{name: get_reward(name) for name in SIDE_BY_SIDE}, reward.name: reward}
    return {name: _with_boxes(images, given, rewards, reward.name) for name, given in answers.items()}


def _with_boxes(
    images: ImageBatch, answers: Sequence[BoxAnswer], rewards: Mapping[str, GroundingReward], main: str
) -> list[AnsweredImage]:
    boxes, labels = [boxes for boxes, _ in answers], [labels for _, labels in answers]
    pred, written = BoxBatch.of(boxes, "pred"), list(chain.from_iterable(labels))
    scores = {}
    for name, reward in rewards.items():
        codes = reward.box_reward.label_codes(written, images.gt_labels) if reward.compares_labels else None
        found = score_boxes(reward.box_reward, pred, images.gt, ignore=images.ignore, labels=codes)
        scores[name] = found.reward.tolist()
    return [
        replace(
            image,
            pred=boxes[k],
            pred_labels=tuple(labels[k]),
            pred_scores=np.full(len(boxes[k]), np.nan),
            status="boxes" if len(boxes[k]) else "empty",
            rewards={name: values[k] for name, values in scores.items()},
            # However often such a rule is asked, it answers the same.
            sampled_rewards=(scores[main][k],),
            sampled_read=(True,),
            sampled_boxes=(len(boxes[k]),),
        )
        for k, image in enumerate(images)
    ]


def constant_boxes(rows: Iterable[Mapping[str, Any]]) -> dict[str, Array]:
    """The median training box of every label that at least half of the images carry, else of the most frequent label.

    Args:
        rows: training images with ``boxes``, ``labels``, ``width`` and ``height``.

    Returns:
        For each such label one box ``(4,)``, the median of each coordinate as a fraction of the image's width or
        height; none without any box.

    Example:
        >>> row = {"boxes": [[0, 0, 50, 100]], "labels": ["right lung"], "width": 100, "height": 200}
        >>> constant_boxes([row, {**row, "boxes": [[0, 0, 30, 100]]}])
        {'right lung': array([0. , 0. , 0.4, 0.5])}
    """
    images = 0
    seen: dict[str, list[Array]] = defaultdict(list)
    carried: dict[str, int] = defaultdict(int)
    for row in rows:
        images += 1
        size = np.array([row["width"], row["height"]] * 2, dtype=np.float64)
        for box, label in zip(as_box_array(row["boxes"]), row["labels"], strict=True):
            seen[label].append(box / size)
        for label in set(row["labels"]):
            carried[label] += 1
    chosen = [label for label in seen if 2 * carried[label] >= images]
    if not chosen and seen:
        chosen = [max(seen, key=lambda label: carried[label])]
    return {label: np.median(seen[label], axis=0) for label in chosen}


def _constant_by_question(
    training: Sequence[Mapping[str, Any]], images: Sequence[AnsweredImage]
) -> dict[tuple[str, ...] | None, dict[str, Array]]:
    """The constant boxes of the training images whose prompts name the same labels; under None those of all."""
    by_question: dict[tuple[str, ...] | None, list[Mapping[str, Any]]] = defaultdict(list)
    for row, asked in zip(
        training, asked_labels(training, {label for image in images for label in image.gt_labels}), strict=True
    ):
        by_question[asked].append(row)
    return {None: constant_boxes(training), **{asked: constant_boxes(rows) for asked, rows in by_question.items()}}


def constant_answer(boxes: Mapping[str, Array], *, width: float, height: float) -> BoxAnswer:
    """The constant boxes put on one image.

    Args:
        boxes: from :func:`constant_boxes`.
        width: of the image in pixels.
        height: of the image in pixels.

    Example:
        >>> constant_answer({"heart": np.array([0.25, 0.5, 0.75, 1.0])}, width=100, height=200)
        (array([[ 25., 100.,  75., 200.]]), ['heart'])
    """
    size = np.array([width, height] * 2, dtype=np.float64)
    return np.array(list(boxes.values())).reshape(-1, 4) * size, list(boxes)
