"""Image dependence: the part of a metric that a model owes to looking at the images.

A model that learned where findings usually are earns much without looking. What it would earn so is seen when its
answers are permuted among other images. With ``N_ij`` what the answer to image ``j`` earns on image ``i``, in a group
of ``n`` images,

    dependence = Σ_i (N_ii - 1/(n-1) Σ_{j≠i} N_ij) / Σ_i M_i

which is the metric, mean IoU, less its mean over the answers to the *other* images of the group. ``M_i`` is what it
divides by, the number of reference boxes. A group shares the source, the question and the number of reference boxes, so
that a model gains nothing by reading or counting; boxes are compared as shares of the image's sides. An image that has
no other in its group plays no part, neither above nor below the line; where most images are alone, there is no number.
It is 0 for a model that answers every image, or every question, alike, whatever it earns, and does not depend on how
large the groups are.

Within the same labels, what is left is owed to *placing*; the rest is owed to *naming* what is there.

**How sure.** What the answers of a group earn is a U-statistic over pairs of images, of the kernel

    φ_ij = (N_ii + N_jj - N_ij - N_ji) / 2

in which what makes an image or an answer good by itself cancels. With ``r_ij`` what a pair adds to the numerator, less
its share of the dependence, and ``s_i = Σ_j r_ij``, the variance of the numerator is ``Σ_i s_i² - Σ_{i<j} r_ij²``:
pairs vary together where they share an image, and each pair is in two sums. Images of one patient count as one. Of few
images that is too little now and then: it is at least half of itself and half of the variance over all permutations of
the answers, from which the dependence has been taken. Of each image ``s_i`` is scaled to that variance, so that
intervals are made of these sums as of those of any other metric (:func:`dependence_sums`).

p is the share of permutations within the groups under which the answers earn as much as where they are, and of many
images that of the normal distribution. In a comparison of two runs answers change places between the runs, so there the
sums are by answer.

Below it stand the answers that need no look at the image (:func:`baseline_systems`): what a trained model must beat,
and the reference, which it cannot.

Sources: Hoeffding, A Class of Statistics with Asymptotically Normal Distribution, Annals of Mathematical Statistics
1948, and A Combinatorial Central Limit Theorem, 1951; Aronow, Samii and Assenova, Cluster-Robust Variance Estimation
for Dyadic Data, Political Analysis 2015. Others ask a model again about blank or shuffled images (arXiv 2603.03437):
this takes the answers that are there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, pad
from grounding_rewards.common.formatting import format_p, format_value
from grounding_rewards.common.numeric import Array
from grounding_rewards.matching import LabelCodes, match_batch
from grounding_rewards.metrics import intervals
from grounding_rewards.metrics.average_precision import rows_of_one_shape
from grounding_rewards.metrics.intervals import Estimate, Metric
from grounding_rewards.metrics.prediction import Prediction, PredictionBatch, patients_of
from grounding_rewards.overlap import pairwise_iou

#: In the table of metrics.
IMAGE_DEPENDENCE = {
    "image_dependence": Metric(
        "image dependence",
        "mean IoU, less its mean when the answers are permuted among other images with the same question and as many "
        "reference boxes: what is owed to looking; 0 for a model that answers every image alike",
        bounds=intervals.SIGNED,
    )
}

#: In groups of so many images every answer is tried on every image; of more, on :data:`PARTNERS` fixed ones. Of so many
#: images p is of permutations that are drawn; of more, of the normal distribution that these approach.
MOST_IMAGES = 500
PARTNERS = 100

_PERMUTATIONS = 1999
# Independent units, of which fewer say nothing about others.
_FEWEST_UNITS = 2
# Differences that rounding alone makes are smaller.
_ROUNDING = 1e-12
# Pairs of an image and an answer that are worked on at once.
_PAIRS = 1 << 17
_FEW_PAIRINGS = 120
# Answers belong to the neighbouring image only if there are enough reference boxes, and the mean IoU with its boxes is
# at least this.
_LEAST_SHIFTED = 10
_SHIFTED = 0.3
_ANY_OVERLAP = float(np.nextafter(0.0, 1.0))


def _matched_iou(iou: Array) -> Array:
    """What an answer earns on an image: the sum of the IoUs ``(b, n, m)`` of the best one-to-one pairs, ``(b,)``."""
    short, long = sorted(iou.shape[1:])
    if math.perm(long, short) <= _FEW_PAIRINGS:
        # All images try one pairing at once, which is faster than an assignment for each.
        short_by_long = iou if iou.shape[1] == short else np.swapaxes(iou, 1, 2)
        best = np.zeros(len(iou))
        for partners in permutations(range(long), short):
            total = sum(short_by_long[:, i, j] for i, j in enumerate(partners))
            np.maximum(best, total, out=best)
        return best
    matched = match_batch(iou, _ANY_OVERLAP, matching="hungarian")
    pair_ious = np.take_along_axis(iou, np.maximum(matched, 0)[..., None], axis=2)[..., 0]
    return np.asarray(np.where(matched >= 0, pair_ious, 0.0).sum(axis=1))


@dataclass(frozen=True)
class ImageDependence:
    """The part of mean IoU that a model owes to the images.

    Attributes:
        value: mean IoU of the answers where they are, of all images.
        dealt: its mean when they are permuted, of images that have others in their group.
        dependence: the difference on these images, with its 95 % interval over patients; NaN where most are alone.
        p: share of the permutations that earn as much as the answers where they are; small if the model looks.
        placing: what of it is left within the same labels, of images that have others with the same labels.
        naming: the rest of it on these images.
        distinct: number of distinct answers.
        images: number of images.
        alone: images that would count and have no others in their group, which play no part.
        unasked: images whose question is not known.
    """

    value: float
    dealt: float
    dependence: Estimate
    p: float
    placing: Estimate
    naming: float
    distinct: int
    images: int
    alone: int
    unasked: int

    @property
    def sentence(self) -> str:
        """The parts owed to the image, to naming and to placing, and images left out, without a full stop."""
        alone = f"{self.alone} of {self.images} images share question and number of boxes with no other"
        if math.isnan(self.dependence.value):
            return f"what of it is owed to the image cannot be measured: {alone}" if self.alone else ""
        sentence = f"{intervals.format_estimate(self.dependence)} of it is owed to the image ({format_p(self.p)})"
        if self.naming and not math.isnan(self.naming):
            # Of fewer images, so that the two need not add up to the whole.
            sentence += (
                f"; on images that share their labels with others, {format_value(self.naming)} is owed to naming"
            )
            sentence += f" and {intervals.format_estimate(self.placing)} to placing"
        if self.unasked:
            sentence += "; the prompts are not known, so what an answer owes to its prompt counts as owed to the image"
        return f"{sentence}; {alone}, and play no part" if self.alone else sentence


def image_dependence(
    images: Sequence[Prediction], *, same_labels: bool = False, label_matching: str = "ignore", seed: int = 0
) -> ImageDependence:
    """Measure what a model owes to the images.

    Args:
        images: with their answers.
        same_labels: permute answers among images with the same labels, not among those with as many reference boxes.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether boxes of different labels can match.
        seed: of the permutations of the test.

    Returns:
        All numbers are NaN without images, without reference boxes, and where most images are alone in their group.

    Example:
        Two models; the second answers both images alike.

        >>> gt = [[[0, 0, 10, 10]], [[5, 0, 15, 10]]]
        >>> of = {"width": 20, "height": 20, "gt_labels": ["mass"]}
        >>> looks = [Prediction(str(k), gt=boxes, pred=boxes, **of) for k, boxes in enumerate(gt)]
        >>> found = image_dependence(looks)
        >>> round(found.value, 3), round(found.dealt, 3), round(found.dependence.value, 3)
        (1.0, 0.333, 0.667)
        >>> blind = [Prediction(str(k), gt=boxes, pred=gt[0], **of) for k, boxes in enumerate(gt)]
        >>> image_dependence(blind).dependence.value, image_dependence(blind).distinct
        (0.0, 1)
    """
    permuted = _permute(images, same_labels, label_matching, seed=seed, permutations=_PERMUTATIONS)
    dependence = _estimate(permuted, images)
    # Where labels divide no group, all is owed to placing.
    placing, naming = dependence, 0.0
    if not same_labels and len(_groups(images, True)) > len(_groups(images, False)):
        in_labels = _permute(images, True, label_matching)
        placing = _estimate(in_labels, images)
        above, compared = permuted.above_others(permuted.on_image)[in_labels.divisor > 0].sum(axis=0).tolist()
        naming = above / compared - placing.value if compared else math.nan
    above, compared = permuted.above_others(permuted.on_image).sum(axis=0).tolist()
    total = sum(len(image.gt) for image in images)
    return ImageDependence(
        value=float(permuted.own_credit.sum()) / total if total else math.nan,
        dealt=float(permuted.own_credit[permuted.divisor > 0].sum() - above) / compared if compared else math.nan,
        dependence=dependence,
        p=permuted.p if compared else math.nan,
        placing=placing,
        naming=naming,
        distinct=len({image.text or image.pred.tobytes() for image in images}),
        images=len(images),
        alone=permuted.alone,
        unasked=sum(image.question is None and not image.asked for image in images),
    )


def _estimate(permuted: _Permuted, images: Sequence[Prediction]) -> Estimate:
    """The image dependence with its 95 % interval over patients."""
    sums = {"image_dependence": permuted.sums(images).by_image}
    return intervals.ratio_estimates(sums, IMAGE_DEPENDENCE, patients_of(images))["image_dependence"]


class DependenceSums(NamedTuple):
    """The image dependence of mean IoU as a ratio of sums, ``(images, 2)`` each; zeros of images without others.

    by_image: what image and answer contribute, from which the interval over patients is right.
    by_answer: what each answer contributes to the same sum; only it changes when another run's answer takes its place.
    """

    by_image: Array
    by_answer: Array


def dependence_sums(
    images: Sequence[Prediction], *, same_labels: bool = False, label_matching: str = "ignore"
) -> DependenceSums:
    """The image dependence of mean IoU as ratios of sums, as other metrics are; within the same labels, of placing.

    Example:
        >>> images = [Prediction(name, 20, 20, gt=[box], gt_labels=["mass"], pred=[box])
        ...           for name, box in (("a", [0, 0, 10, 10]), ("b", [5, 5, 15, 15]), ("c", [9, 9, 19, 19]))]
        >>> dependence_sums(images).by_answer.round(2)
        array([[0.93, 1.  ],
               [0.82, 1.  ],
               [0.89, 1.  ]])
    """
    return _permute(images, same_labels, label_matching).sums(images)


def shift_notes(images: Sequence[Prediction]) -> list[str]:
    """A sentence where the answers fit the boxes of the next or the previous image, and not those of their own.

    Args:
        images: with their answers, in the order of the log or of the dataset.

    Example:
        >>> places = np.random.default_rng(0).integers(0, 90, (12, 2)).tolist()
        >>> boxes = [[[x, y, x + 9, y + 9]] for x, y in places]
        >>> of = {"width": 99, "height": 99, "gt_labels": ["mass"]}
        >>> moved = [Prediction(str(k), gt=boxes[k - 1], pred=boxes[k], **of) for k in range(12)]
        >>> print(*shift_notes(moved))
        The answers fit the boxes of the next image (mean IoU 1.00) and not those of their own (0.00): answers and \
images are joined off by one row. Join them by `id`.
    """
    total = sum(len(image.gt) for image in images)
    if total < _LEAST_SHIFTED:
        return []
    rows = np.arange(len(images))
    shifts = []
    # An answer in pixels has those of the image that it is about.
    for table in (_BoxTable.of(images, "ignore"), _BoxTable.of(images, "ignore", in_pixels=True)):
        unshifted = table.credits(rows, rows).sum()
        for neighbour, step in (("next", -1), ("previous", 1)):
            shifted = table.credits(np.roll(rows, step), rows).sum()
            if shifted > max(2 * unshifted, _SHIFTED * total):
                shifts.append((shifted / total, unshifted / total, neighbour))
    if not shifts:
        return []
    shifted, unshifted, neighbour = max(shifts)
    return [
        f"The answers fit the boxes of the {neighbour} image (mean IoU {shifted:.2f}) and not those of their own "
        f"({unshifted:.2f}): answers and images are joined off by one row. Join them by `id`."
    ]


@dataclass(frozen=True, eq=False)
class _Permuted:
    """Credits of answers where they are and on the other images of their group; all by image.

    divisor: what the metric divides by, 0 of images that have no others.
    own_credit: what each answer earns where it is.
    on_image: the mean of what the other answers earn on the image.
    of_answer: the mean of what the answer earns on the other images.
    linear: ``(images, 2)`` Σ_j r_ij as numbers a and b of a - b θ; of pairs within a patient half.
    squares: ``(2, 3)`` of the two variances what is taken from Σ s², and the variance over permutations, as
        numbers a, b and c of a - 2 b θ + c θ².
    freedom: degrees of freedom of the second.
    alone: how many images would count and have no others.
    p: of the permutation test.
    """

    divisor: Array
    own_credit: Array
    on_image: Array
    of_answer: Array
    linear: Array
    squares: Array
    freedom: int
    alone: int
    p: float

    def above_others(self, permuted: Array) -> Array:
        """Credit of each image or answer above the mean of others, ``(images, 2)``."""
        above = np.where(self.divisor > 0, self.own_credit - permuted, 0.0)
        # One answer to all images owes them nothing, not a rounding error.
        above[np.abs(above) < _ROUNDING] = 0.0
        # Nothing is measured where most images that count are alone.
        return np.column_stack([above, self.divisor]) * (self.alone <= (self.divisor > 0).sum())

    def sums(self, images: Sequence[Prediction]) -> DependenceSums:
        """Image dependence as ratios of sums, with what the interval needs: see the top of this module."""
        by_answer = self.above_others(self.of_answer)
        if not by_answer[:, 1].any():
            return DependenceSums(by_answer, by_answer)
        numerator, denominator = self.above_others(self.on_image).sum(axis=0)
        value = numerator / denominator
        spread = self.linear @ [1.0, -value]
        # Of pairs within a patient half is left out, so that the rest need not add up to 0.
        spread -= self.divisor * (spread.sum() / denominator)
        unit = intervals.group_numbers(patients_of(images), len(images))
        units = len(np.unique(unit[self.divisor > 0]))
        squared = float((np.bincount(unit, spread) ** 2).sum())
        if squared < _ROUNDING**2:
            independent, factor = float(units > 2) * units, 0.0
        else:
            shared, permuted = self.squares @ [1.0, -2.0 * value, value**2]
            variance = max(squared - shared, squared / 2)
            permuted *= self.freedom / max(1, self.freedom - 1)
            variance = max(variance, (variance + permuted) / 2)
            # The two images of a group of two have the same sum: there are half as many independent sums.
            independent = units * min(1.0, variance / squared)
            factor = math.sqrt(variance / squared)
        if independent < _FEWEST_UNITS:
            # So few units say nothing about others: one unit gets everything, which has no finite interval.
            by_image = np.zeros_like(by_answer)
            by_image[0] = numerator, denominator
            return DependenceSums(by_image, by_answer)
        factor *= intervals.student_factor(independent) / intervals.student_factor(units)
        return DependenceSums(np.column_stack([value * self.divisor + factor * spread, self.divisor]), by_answer)


def _permute(
    images: Sequence[Prediction], same_labels: bool, label_matching: str, *, seed: int = 0, permutations: int = 0
) -> _Permuted:
    """Permute the answers among the images of each group, see the top of this module."""
    table = _BoxTable.of(images, label_matching)
    divisor = table.gt.counts.astype(np.float64)
    # Partners are drawn apart from the permutations of the test, so that a number is the same wherever it stands.
    partner_rng, test_rng = np.random.default_rng(0), np.random.default_rng(seed)
    patient = intervals.group_numbers(patients_of(images), len(images))
    rows = np.arange(len(images))
    own_credit = table.credits(rows, rows)
    on_image, of_answer, linear = own_credit.copy(), own_credit.copy(), np.zeros((len(images), 2))
    # One row for what pairs of images share, one for the variance over permutations, see `_Permuted`.
    squares = np.zeros((2, 3))
    freedom = 0
    groups = [group for group in _groups(images, same_labels).values() if len(group) > 1]
    has_others = np.isin(rows, list(chain.from_iterable(groups)))
    draws = permutations if groups and has_others.sum() <= MOST_IMAGES else 0
    # What the answers earn on all images, under each permutation.
    totals = np.full(draws, own_credit[~has_others].sum())
    for batch in _batches(groups):
        image = partner_rng.permuted(batch, axis=1)
        n = image.shape[1]
        shifts = _shifts(n, partner_rng)
        # The k-th partner of the i-th image of a group; by the opposite shift that image is a partner of its partner.
        partner = (np.arange(n)[:, None] + shifts) % n
        back = np.searchsorted(shifts, (n - shifts) % n)
        values = table.credits_of_partners(image, partner)
        # What the answer to the image of the row earns on the partner.
        turned = values[:, partner, back]
        partners_per_image = len(shifts) - 1
        on_image[image] = (values.sum(axis=2) - own_credit[image]) / partners_per_image
        of_answer[image] = (turned.sum(axis=2) - own_credit[image]) / partners_per_image
        linear[image], shared = _pair_sums(values, turned, partner, divisor[image], patient[image])
        squares += shared, _permutation_variance(values, turned, partner, divisor[image])
        freedom += len(image) * (n - 1) ** 2
        if draws:
            # Column k of `values` is the k-th shift; answer j of image i stands in column (j - i) mod n.
            orders = test_rng.permuted(np.tile(np.arange(n), (draws, len(image), 1)), axis=2)
            places = np.arange(len(image))[:, None], np.arange(n), (orders - np.arange(n)) % n
            totals += values[places].sum(axis=(1, 2))
    return _Permuted(
        divisor=np.where(has_others, divisor, 0.0),
        own_credit=own_credit,
        on_image=on_image,
        of_answer=of_answer,
        linear=linear,
        squares=squares,
        freedom=freedom,
        alone=int((~has_others & (divisor > 0)).sum()),
        p=_p_value(totals, own_credit.sum(), (own_credit - on_image)[has_others].sum(), squares[1, 0]),
    )


def _p_value(totals: Array, own_total: float, above_others: float, variance: float) -> float:
    """The p of the permutation test: how often a permutation earns as much as the answers where they are.

    Args:
        totals: what the answers earn under each permutation that was drawn; empty where there are too many images.
        own_total: what they earn where they are.
        above_others: that total less its mean over all permutations.
        variance: of the total over all permutations.
    """
    if len(totals):
        return float(1 + (totals >= own_total - 1e-9).sum()) / (1 + len(totals))
    if variance <= _ROUNDING:
        # No permutation changes the total.
        return 1.0
    # The upper tail of the normal distribution.
    deviations = above_others / math.sqrt(variance)
    return math.erfc(deviations / math.sqrt(2)) / 2


def _shifts(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The shifts by which the answers of n images are tried on others: 0 and all others, or of many some k and -k."""
    if n <= MOST_IMAGES:
        return np.arange(n)
    forth = 1 + rng.choice((n - 1) // 2, PARTNERS // 2, replace=False)
    return np.sort(np.concatenate([[0], forth, n - forth]))


def _groups(images: Sequence[Prediction], same_labels: bool) -> dict[Any, list[int]]:
    """The indices of the images of each group, sorted by id, so that nothing depends on the order of the images."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for k in sorted(range(len(images)), key=lambda k: images[k].id):
        image = images[k]
        question = image.asked if image.question is None else image.question
        alike = tuple(sorted(image.gt_labels)) if same_labels else len(image.gt)
        groups[image.source, question, alike].append(k)
    return groups


def _batches(groups: Sequence[Sequence[int]]) -> Iterator[NDArray[np.int64]]:
    """Some groups at a time, all of one size n, as an array of image indices, ``(groups, n)``."""
    by_size: dict[int, list[Sequence[int]]] = defaultdict(list)
    for group in groups:
        by_size[len(group)].append(group)
    for size in sorted(by_size):
        groups_of_size = np.array(by_size[size])
        step = max(1, _PAIRS // size**2)
        for start in range(0, len(groups_of_size), step):
            yield groups_of_size[start : start + step]


def _pair_sums(
    values: Array, turned: Array, partner: NDArray[np.int64], divisor: Array, patient: NDArray[np.int64]
) -> tuple[Array, Array]:
    """``linear`` and the first of ``squares`` of :class:`_Permuted`, of the pairs of groups.

    Args:
        values: ``(groups, n, partners)``, those of the image's own answer first.
        turned: what the answer to the image earns on each partner.
        partner: ``(n, partners)``, the image itself first.
        divisor: ``(groups, n)``.
        patient: ``(groups, n)``.
    """
    partners, own_credit = partner[:, 1:], values[:, :, 0]
    # Every pair is here twice, from either image.
    count = partners.shape[1]
    kernel = (own_credit[:, :, None] + own_credit[:, partners] - values[:, :, 1:] - turned[:, :, 1:]) / count
    share = (divisor[:, :, None] + divisor[:, partners]) / count
    linear = np.stack([kernel.sum(axis=2), share.sum(axis=2)], axis=2)
    is_same = patient[:, :, None] == patient[:, partners]
    if is_same.any():
        linear -= np.stack([(kernel * is_same).sum(axis=2), (share * is_same).sum(axis=2)], axis=2) / 2
        n = len(partner)
        if n <= MOST_IMAGES:
            # The pairs of two patients vary as one; a patient is known by the first of its images.
            first = np.minimum(np.where(is_same, partners, n).min(axis=2), np.arange(n))
            group = np.arange(len(first))[:, None, None]
            patient_pair = np.ravel_multi_index((group, first[:, :, None], first[:, partners]), (len(first), n, n))
            kernel = np.bincount(patient_pair[~is_same], weights=kernel[~is_same])
            share = np.bincount(patient_pair[~is_same], weights=share[~is_same])
    return linear, np.array([(kernel**2).sum(), (kernel * share).sum(), (share**2).sum()]) / 2


def _permutation_variance(values: Array, turned: Array, partner: NDArray[np.int64], divisor: Array) -> Array:
    """The variance over all permutations of the numerators of groups: ``(3,)`` a, b and c of a - 2 b θ + c θ²."""
    n = len(partner)
    credit = _without_means(values, turned, partner)
    diagonal = np.zeros_like(values)
    diagonal[:, :, 0] = divisor
    share = _without_means(diagonal, diagonal, partner)
    products = (credit * credit, credit * share, share * share)
    means = [product.mean(axis=(1, 2)).sum() for product in products]
    return np.array(means) * n**4 / (n - 1) ** 3


def _without_means(values: Array, turned: Array, partner: NDArray[np.int64]) -> Array:
    """The values less the mean of their image and that of their answer, plus the mean of all, (groups, n, partners)."""
    of_answer = turned.mean(axis=2)
    return values - values.mean(axis=2, keepdims=True) - of_answer[:, partner] + of_answer.mean(axis=1)[:, None, None]


@dataclass(frozen=True, eq=False)
class _BoxTable:
    """The boxes of all images as shares of the sides or in pixels, with codes of their labels where compared."""

    pred: BoxBatch
    gt: BoxBatch
    codes: LabelCodes | None

    @classmethod
    def of(cls, images: Sequence[Prediction], label_matching: str, *, in_pixels: bool = False) -> _BoxTable:
        """The boxes of these images."""
        batch = PredictionBatch.of(images)
        pred, gt = batch.pred, batch.gt
        if not in_pixels:
            sides = np.tile(batch.sizes, 2)
            pred = BoxBatch(pred.flat / np.repeat(sides, pred.counts, axis=0), pred.counts)
            gt = BoxBatch(gt.flat / np.repeat(sides, gt.counts, axis=0), gt.counts)
        codes = None
        if label_matching != "ignore":
            codes = LabelCodes.of(batch.pred_labels, batch.gt_labels, label_matching)
        return cls(pred, gt, codes)

    def credits_of_partners(self, image: NDArray[np.int64], partner: NDArray[np.int64]) -> Array:
        """What the answers to the partners of each image earn on it, ``(groups, n, partners)``.

        Args:
            image: ``(groups, n)`` indices of images.
            partner: ``(n, partners)`` places in a group.
        """
        images, answers = np.repeat(image.ravel(), partner.shape[1]), image[:, partner].ravel()
        blocks = [slice(start, start + _PAIRS) for start in range(0, len(images), _PAIRS)]
        values = np.concatenate([self.credits(images[block], answers[block]) for block in blocks])
        return values.reshape(len(image), *partner.shape)

    def credits(self, image: NDArray[np.int64], answer: NDArray[np.int64]) -> Array:
        """What each answer earns on the image beside it, ``(pairs,)``; both are indices of images."""
        credits = np.zeros(len(image))
        starts_of_pred = np.cumsum(self.pred.counts) - self.pred.counts
        starts_of_gt = np.cumsum(self.gt.counts) - self.gt.counts
        shapes = np.column_stack([self.gt.counts[image], self.pred.counts[answer]])
        for pairs in rows_of_one_shape(shapes, lambda m, n: m * n):
            i, j = image[pairs], answer[pairs]
            m, n = shapes[pairs[0]].tolist()
            iou = np.zeros((len(pairs), n, m))
            if n and m:
                pred = self.pred.flat[starts_of_pred[j][:, None] + np.arange(n)]
                iou = pairwise_iou(pred, self.gt.flat[starts_of_gt[i][:, None] + np.arange(m)])
            if self.codes is not None:
                pred, gt = pad(self.codes.pred, self.pred.counts, j), pad(self.codes.gt, self.gt.counts, i)
                iou = np.where(self.codes.agree(pred[:, :, None], gt[:, None, :]), iou, 0.0)
            credits[pairs] = _matched_iou(iou)
        return credits
