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
# Independent patients, of whom fewer say nothing about others.
_FEWEST_PATIENTS = 2
# Differences that rounding alone makes are smaller.
_ROUNDING = 1e-12
# Pairs of an image and an answer that are worked on at once.
_PAIRS = 1 << 17
# One-to-one pairings of the boxes of an answer and an image that are tried one by one at most.
_FEW_PAIRINGS = 120
# Answers belong to the neighbouring image only if there are so many reference boxes, and the mean IoU with its boxes is
# at least this.
_FEWEST_SHIFTED_BOXES = 10
_LEAST_SHIFTED_IOU = 0.3
_ANY_OVERLAP = float(np.nextafter(0.0, 1.0))


def _matched_iou(iou: Array) -> Array:
    """The largest sum of IoUs of boxes that are paired one to one, ``(b,)``, from the IoU of each pair, ``(b, n, m)``.

    That is what an answer earns on an image.
    """
    fewer, more = sorted(iou.shape[1:])
    if math.perm(more, fewer) <= _FEW_PAIRINGS:
        # All images try one pairing at once, which is faster than an assignment for each.
        fewer_by_more = iou if iou.shape[1] == fewer else np.swapaxes(iou, 1, 2)
        best = np.zeros(len(iou))
        for pairing in permutations(range(more), fewer):
            total = sum(fewer_by_more[:, i, j] for i, j in enumerate(pairing))
            best = np.maximum(best, total)
        return best
    partners = match_batch(iou, _ANY_OVERLAP, matching="hungarian")
    # A box without a partner, -1, is given the first one to look its IoU up, and then earns 0.
    pair_ious = np.take_along_axis(iou, np.maximum(partners, 0)[..., None], axis=2)[..., 0]
    return np.asarray(np.where(partners >= 0, pair_ious, 0.0).sum(axis=1))


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
        """How much of the mean IoU is owed to the image, to naming and to placing, and how many images were left out.

        It goes on from a sentence that states the mean IoU, "it", and has no full stop. Empty where there is nothing to
        say.
        """
        alone = f"{self.alone} of {self.images} images share question and number of boxes with no other"
        if math.isnan(self.dependence.value):
            return f"what of it is owed to the image cannot be measured: {alone}" if self.alone else ""
        sentence = f"{intervals.format_estimate(self.dependence)} of it is owed to the image ({format_p(self.p)})"
        # Naming is 0 where labels divide no group, and NaN where it was not measured: there is nothing to divide then.
        if self.naming and not math.isnan(self.naming):
            # Of fewer images, so that the two need not add up to the whole.
            naming, placing = format_value(self.naming), intervals.format_estimate(self.placing)
            shared = "on images that share their labels with others"
            sentence += f"; {shared}, {naming} is owed to naming and {placing} to placing"
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
        >>> dependence = image_dependence(looks)
        >>> round(dependence.value, 3), round(dependence.dealt, 3), round(dependence.dependence.value, 3)
        (1.0, 0.333, 0.667)
        >>> blind = [Prediction(str(k), gt=boxes, pred=gt[0], **of) for k, boxes in enumerate(gt)]
        >>> image_dependence(blind).dependence.value, image_dependence(blind).distinct
        (0.0, 1)
    """
    permuted = _permute(
        images, same_labels=same_labels, label_matching=label_matching, seed=seed, permutations=_PERMUTATIONS
    )
    dependence = _estimate(permuted, images)
    # For each image its credit above that of the other answers, and its number of reference boxes.
    above_others = permuted.above_others(permuted.on_image)
    # Where labels divide no group, all is owed to placing.
    placing, naming = dependence, 0.0
    if not same_labels and len(_groups(images, same_labels=True)) > len(_groups(images, same_labels=False)):
        within_labels = _permute(images, same_labels=True, label_matching=label_matching)
        placing = _estimate(within_labels, images)
        # Naming is the rest of the dependence, on the images that placing is measured on.
        naming = intervals.ratios(above_others[within_labels.divisor > 0].sum(axis=0)) - placing.value
    credit_above, measured_boxes = above_others.sum(axis=0).tolist()
    # What the answers earn on other images: their own credit, less what it is above that.
    dealt = permuted.own_credit[permuted.divisor > 0].sum() - credit_above
    all_boxes = sum(len(image.gt) for image in images)
    return ImageDependence(
        value=float(permuted.own_credit.sum()) / all_boxes if all_boxes else math.nan,
        dealt=float(dealt) / measured_boxes if measured_boxes else math.nan,
        dependence=dependence,
        p=permuted.p if measured_boxes else math.nan,
        placing=placing,
        naming=naming,
        # An answer without a text, as a baseline's, is known by its boxes.
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
    """The image dependence of mean IoU as a ratio of sums over images, in two ways, ``(images, 2)`` each.

    Rows are a numerator and a denominator, zeros for images without others in their group.

    by_image: what each image contributes, from which the interval over patients is right.
    by_answer: what each answer contributes to the same sum; only this changes where another run's answer takes its
        place, as in the test of two runs.
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
    return _permute(images, same_labels=same_labels, label_matching=label_matching).sums(images)


def shift_notes(images: Sequence[Prediction]) -> list[str]:
    """A sentence where the answers fit the boxes of the next or the previous image, and not those of their own.

    Args:
        images: with their answers, in the order of the log or of the dataset.

    Example:
        >>> corners = np.random.default_rng(0).integers(0, 90, (12, 2)).tolist()
        >>> boxes = [[[x, y, x + 9, y + 9]] for x, y in corners]
        >>> of = {"width": 99, "height": 99, "gt_labels": ["mass"]}
        >>> moved = [Prediction(str(k), gt=boxes[k - 1], pred=boxes[k], **of) for k in range(12)]
        >>> print(*shift_notes(moved))
        The answers fit the boxes of the next image (mean IoU 1.00) and not those of their own (0.00): answers and \
images are joined off by one row. Join them by `id`.
    """
    boxes = sum(len(image.gt) for image in images)
    if boxes < _FEWEST_SHIFTED_BOXES:
        return []
    rows = np.arange(len(images))
    shifts = []
    # Boxes as shares fit an image of any size; those of an answer in pixels fit only as the pixels that they are.
    for table in (_BoxTable.of(images, "ignore"), _BoxTable.of(images, "ignore", in_pixels=True)):
        own_iou = table.credits(image=rows, answer=rows).sum() / boxes
        for neighbour, step in (("next", 1), ("previous", -1)):
            # The first image is the neighbour of the last one.
            neighbour_iou = table.credits(image=(rows + step) % len(rows), answer=rows).sum() / boxes
            if neighbour_iou > max(2 * own_iou, _LEAST_SHIFTED_IOU):
                shifts.append((neighbour_iou, own_iou, neighbour))
    if not shifts:
        return []
    # The shift under which the answers fit best.
    neighbour_iou, own_iou, neighbour = max(shifts)
    return [
        f"The answers fit the boxes of the {neighbour} image (mean IoU {neighbour_iou:.2f}) and not those of their own "
        f"({own_iou:.2f}): answers and images are joined off by one row. Join them by `id`."
    ]


@dataclass(frozen=True, eq=False)
class _Permuted:
    """Credits of answers where they are and on the other images of their group; all arrays are by image.

    The terms of the interval, named as at the top of this module, depend on the dependence θ, which is known last.

    divisor: ``(images,)`` M, what the metric divides by; 0 for images that have no others.
    own_credit: ``(images,)`` what each answer earns where it is.
    on_image: ``(images,)`` the mean of what the other answers earn on the image.
    of_answer: ``(images,)`` the mean of what the answer earns on the other images.
    pair_sums: ``(images, 2)`` s_i = Σ_j r_ij as numbers a and b of a - b θ; pairs within a patient count half.
    pair_squares: ``(3,)`` Σ_{i<j} r_ij² as numbers a, b and c of a - 2 b θ + c θ².
    permutation_variance: ``(3,)`` the variance over permutations, as such numbers.
    freedom: its degrees of freedom.
    alone: how many images would count and have no others.
    p: of the permutation test.
    """

    divisor: Array
    own_credit: Array
    on_image: Array
    of_answer: Array
    pair_sums: Array
    pair_squares: Array
    permutation_variance: Array
    freedom: int
    alone: int
    p: float

    def above_others(self, others_credit: Array) -> Array:
        """By how much the own credit of each image is above the mean credit of others, and the divisor.

        Args:
            others_credit: `on_image`, of the other answers to the image, or `of_answer`, of its answer elsewhere.

        Returns:
            ``(images, 2)``; zeros where most images that count have no others, so that nothing is measured.
        """
        above = np.where(self.divisor > 0, self.own_credit - others_credit, 0.0)
        # One answer to all images owes them nothing, not a rounding error.
        above[np.abs(above) < _ROUNDING] = 0.0
        is_measured = self.alone <= (self.divisor > 0).sum()
        return np.column_stack([above, self.divisor]) * is_measured

    def sums(self, images: Sequence[Prediction]) -> DependenceSums:
        """Image dependence as ratios of sums over images and over answers.

        The sums of images are scaled so that an interval that takes patients for independent has the variance that the
        top of this module gives.

        Args:
            images: those of the arrays, for their patients.
        """
        by_answer = self.above_others(self.of_answer)
        if not by_answer[:, 1].any():
            # Nothing is measured: all sums are 0.
            return DependenceSums(by_answer, by_answer)
        numerator, denominator = self.above_others(self.on_image).sum(axis=0)
        dependence = numerator / denominator
        # s_i = a - b θ of each image
        image_sums = self.pair_sums @ [1.0, -dependence]
        # They add up to 0 but for pairs within a patient, which count half: that rest is taken off by divisor.
        image_sums -= self.divisor * (image_sums.sum() / denominator)
        patient = intervals.group_numbers(patients_of(images), len(images))
        patients = len(np.unique(patient[self.divisor > 0]))
        # Σ s² with the images of a patient as one
        squared_sums = float((np.bincount(patient, image_sums) ** 2).sum())
        if squared_sums < _ROUNDING**2:
            # No sum differs from 0. Two patients are one pair, which cannot differ from the dependence: of them that
            # says nothing.
            independent_patients, scale = float(patients if patients > 2 else 0), 0.0
        else:
            # Both are numbers a, b and c of a - 2 b θ + c θ².
            terms = np.stack([self.pair_squares, self.permutation_variance])
            pair_squares, permutation_variance = terms @ [1.0, -2.0 * dependence, dependence**2]
            # Each pair is in the sums of two images; less than half of the whole would be chance.
            variance = max(squared_sums - pair_squares, squared_sums / 2)
            # The dependence, estimated from the same credits, takes one degree of freedom.
            permutation_variance *= self.freedom / max(1, self.freedom - 1)
            # Of few images the first variance is too small now and then.
            variance = max(variance, (variance + permutation_variance) / 2)
            # The two images of a group of two have the same sum: there are half as many independent sums.
            independent_patients = patients * min(1.0, variance / squared_sums)
            scale = math.sqrt(variance / squared_sums)
        if independent_patients < _FEWEST_PATIENTS:
            # So few say nothing about others: one image gets everything, as one unit has no finite interval.
            by_image = np.zeros_like(by_answer)
            by_image[0] = numerator, denominator
            return DependenceSums(by_image, by_answer)
        # The interval of these sums will be widened as for all patients, and has to be as for the independent ones.
        scale *= intervals.student_factor(independent_patients) / intervals.student_factor(patients)
        # The scaled sums add up to 0, so that the ratio stays the dependence.
        by_image = np.column_stack([dependence * self.divisor + scale * image_sums, self.divisor])
        return DependenceSums(by_image, by_answer)


def _permute(
    images: Sequence[Prediction], *, same_labels: bool, label_matching: str, seed: int = 0, permutations: int = 0
) -> _Permuted:
    """Permute the answers among the images of each group, see the top of this module.

    Args:
        images: with their answers.
        same_labels: whether a group shares its labels, not only their number.
        label_matching: as of :func:`image_dependence`.
        seed: of the permutations of the test.
        permutations: how many of them are drawn; without any, p is that of the normal distribution.
    """
    table = _BoxTable.of(images, label_matching)
    # Mean IoU divides by the number of reference boxes.
    divisor = table.gt.counts.astype(np.float64)
    # Partners are drawn apart from the permutations of the test, so that the dependence is the same under any seed.
    partner_rng, test_rng = np.random.default_rng(0), np.random.default_rng(seed)
    patient = intervals.group_numbers(patients_of(images), len(images))
    rows = np.arange(len(images))
    own_credit = table.credits(image=rows, answer=rows)
    # Where an image has no others these stay as they are, and its own credit is not above them.
    on_image, of_answer, pair_sums = own_credit.copy(), own_credit.copy(), np.zeros((len(images), 2))
    pair_squares, permutation_variance = np.zeros((2, 3))
    freedom = 0
    groups = [group for group in _groups(images, same_labels=same_labels) if len(group) > 1]
    has_others = np.isin(rows, list(chain.from_iterable(groups)))
    draws = permutations if groups and has_others.sum() <= MOST_IMAGES else 0
    # What the answers earn on all images under each permutation; an image without others keeps its answer.
    totals = np.full(draws, own_credit[~has_others].sum())
    for batch in _batches(groups):
        # In random order, so that the shifts that are drawn make random partners.
        image = partner_rng.permuted(batch, axis=1)
        n = image.shape[1]
        shifts = _shifts(n, partner_rng)
        # The k-th partner of the i-th image of a group is the image by the k-th shift after it. That image reaches it
        # back by the opposite shift, whose place among the shifts is looked up.
        partner = (np.arange(n)[:, None] + shifts) % n
        opposite_shift = np.searchsorted(shifts, (n - shifts) % n)
        # What the partners' answers earn on the image, and what its own answer earns on the partners; itself is first.
        credit_here = table.credits_of_partners(image, partner)
        credit_there = credit_here[:, partner, opposite_shift]
        partners_per_image = len(shifts) - 1
        on_image[image] = (credit_here.sum(axis=2) - own_credit[image]) / partners_per_image
        of_answer[image] = (credit_there.sum(axis=2) - own_credit[image]) / partners_per_image
        pair_sums[image], batch_squares = _pair_sums(credit_here, credit_there, partner, divisor[image], patient[image])
        pair_squares += batch_squares
        permutation_variance += _permutation_variance(credit_here, credit_there, partner, divisor[image])
        # Those of a table of n by n credits without the means of its rows and columns.
        freedom += len(image) * (n - 1) ** 2
        if draws:
            # The answer that each image is given, (draws, groups, n). So few images are all partners, in the order of
            # shifts: what answer j earns on image i is in column (j - i) mod n.
            answers = test_rng.permuted(np.tile(np.arange(n), (draws, len(image), 1)), axis=2)
            permuted = np.arange(len(image))[:, None], np.arange(n), (answers - np.arange(n)) % n
            totals += credit_here[permuted].sum(axis=(1, 2))
    above_others = (own_credit - on_image)[has_others].sum()
    return _Permuted(
        divisor=np.where(has_others, divisor, 0.0),
        own_credit=own_credit,
        on_image=on_image,
        of_answer=of_answer,
        pair_sums=pair_sums,
        pair_squares=pair_squares,
        permutation_variance=permutation_variance,
        freedom=freedom,
        alone=int((~has_others & (divisor > 0)).sum()),
        p=_p_value(totals, own_total=own_credit.sum(), above_others=above_others, variance=permutation_variance[0]),
    )


def _p_value(totals: Array, own_total: float, above_others: float, variance: float) -> float:
    """The p of the permutation test: how often a permutation earns as much as the answers where they are.

    Args:
        totals: what the answers earn under each permutation that was drawn; empty where none was, and p is that of the
            normal distribution.
        own_total: what they earn where they are.
        above_others: what they earn there above the mean of the other answers.
        variance: of `above_others` over all permutations.
    """
    if len(totals):
        # The answers as they are count as one more permutation; equal totals may differ by rounding.
        return float(1 + (totals >= own_total - 1e-9).sum()) / (1 + len(totals))
    if variance <= _ROUNDING:
        # No permutation changes the total.
        return 1.0
    # The upper tail of the normal distribution, from so many standard deviations on.
    deviations = above_others / math.sqrt(variance)
    return math.erfc(deviations / math.sqrt(2)) / 2


def _shifts(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The shifts s by which answers are tried on other images of a group of n: that to image i + s on image i.

    In rising order, from 0, which leaves every answer on its own image. Of few images all n shifts; of more than
    :data:`MOST_IMAGES` 0 and :data:`PARTNERS` drawn ones, each with its opposite n - s, so that an image is a partner
    of each of its partners.
    """
    if n <= MOST_IMAGES:
        return np.arange(n)
    # Of 1 … n - 1 the lower half is drawn from, without n / 2, which is its own opposite.
    forward = 1 + rng.choice((n - 1) // 2, PARTNERS // 2, replace=False)
    return np.sort(np.concatenate([[0], forward, n - forward]))


def _groups(images: Sequence[Prediction], *, same_labels: bool) -> list[list[int]]:
    """The indices of the images of each group: of one source, one question and as many reference boxes.

    With `same_labels` a group shares its labels too. Images are sorted by id, so that nothing depends on their order.
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    for k in sorted(range(len(images)), key=lambda k: images[k].id):
        image = images[k]
        # The labels that a prompt names stand for its words where these are not known.
        question = image.asked if image.question is None else image.question
        labels_or_number = tuple(sorted(image.gt_labels)) if same_labels else len(image.gt)
        groups[image.source, question, labels_or_number].append(k)
    return list(groups.values())


def _batches(groups: Sequence[Sequence[int]]) -> Iterator[NDArray[np.int64]]:
    """Yield some groups at a time, all of one size n, as an array of image indices, ``(groups, n)``."""
    by_size: dict[int, list[Sequence[int]]] = defaultdict(list)
    for group in groups:
        by_size[len(group)].append(group)
    for size in sorted(by_size):
        groups_of_size = np.array(by_size[size])
        # A group of n images has n² pairs of an image and an answer.
        groups_at_once = max(1, _PAIRS // size**2)
        for start in range(0, len(groups_of_size), groups_at_once):
            yield groups_of_size[start : start + groups_at_once]


def _pair_sums(
    credit_here: Array, credit_there: Array, partner: NDArray[np.int64], divisor: Array, patient: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Add up what pairs of images of some groups contribute to the dependence and to its variance.

    A pair of images i and j adds ``r_ij = a_ij - b_ij θ``, in which θ is the dependence.

    Args:
        credit_here: ``(groups, n, partners)`` what the partners' answers earn on each image, its own answer first.
        credit_there: what the answer to the image earns on each partner.
        partner: ``(n, partners)`` places of the partners in a group, the image itself first.
        divisor: ``(groups, n)`` what the metric divides by.
        patient: ``(groups, n)`` numbers of the patients.

    Returns:
        ``pair_sums`` of the images, ``(groups, n, 2)``, and ``pair_squares`` of all groups, see :class:`_Permuted`.
    """
    other_images, own_credit = partner[:, 1:], credit_here[:, :, 0]
    own_sum = own_credit[:, :, None] + own_credit[:, other_images]
    # The dependence takes the mean over the partners of an image, so that each pair is divided by their number.
    partners_per_image = other_images.shape[1]
    a = (own_sum - credit_here[:, :, 1:] - credit_there[:, :, 1:]) / partners_per_image
    b = (divisor[:, :, None] + divisor[:, other_images]) / partners_per_image
    pair_sums = np.stack([a.sum(axis=2), b.sum(axis=2)], axis=2)
    is_same_patient = patient[:, :, None] == patient[:, other_images]
    if is_same_patient.any():
        # The sum over a patient's images would have each pair of them twice: half is taken off from either side.
        within_patient = a * is_same_patient, b * is_same_patient
        pair_sums -= np.stack([terms.sum(axis=2) for terms in within_patient], axis=2) / 2
        n = len(partner)
        # Of larger groups the table of all pairs of patients would be too large.
        if n <= MOST_IMAGES:
            # All pairs of images of two patients vary as one; a patient is known by the first of its images.
            first_image = np.minimum(np.where(is_same_patient, other_images, n).min(axis=2), np.arange(n))
            group = np.arange(len(patient))[:, None, None]
            images_of_pair = group, first_image[:, :, None], first_image[:, other_images]
            patient_pair = np.ravel_multi_index(images_of_pair, (len(patient), n, n))[~is_same_patient]
            a = np.bincount(patient_pair, weights=a[~is_same_patient])
            b = np.bincount(patient_pair, weights=b[~is_same_patient])
    # Every pair is here twice, once from either image.
    return pair_sums, np.array([(a**2).sum(), (a * b).sum(), (b**2).sum()]) / 2


def _permutation_variance(credit_here: Array, credit_there: Array, partner: NDArray[np.int64], divisor: Array) -> Array:
    """The variance of the summed numerators of some groups over all permutations of the answers within each group.

    Arguments are those of :func:`_pair_sums`.

    Returns:
        ``(3,)`` numbers a, b and c of the variance ``a - 2 b θ + c θ²``, where θ is the dependence.
    """
    n = len(partner)
    credit = _without_means(credit_here, credit_there, partner)
    # θ times the divisor is what the dependence adds to an answer on its own image, the first partner: without it the
    # credits are as of a model that owes nothing to the images.
    owed = np.zeros_like(credit_here)
    owed[:, :, 0] = divisor
    owed = _without_means(owed, owed, partner)
    products = (credit * credit, credit * owed, owed * owed)
    means = [product.mean(axis=(1, 2)).sum() for product in products]
    # Hoeffding: what the answers earn has the variance Σ_ij d_ij² / (n - 1), with d the credits without means, which is
    # n² times their mean square over n - 1. The numerator is above the mean of the other answers, not of all, which
    # makes it n / (n - 1) times as large.
    return np.array(means) * n**4 / (n - 1) ** 3


def _without_means(credit_here: Array, credit_there: Array, partner: NDArray[np.int64]) -> Array:
    """The credits less the mean of their image and that of their answer, plus the mean of all, (groups, n, partners).

    Arguments are those of :func:`_pair_sums`.
    """
    on_image, of_answer = credit_here.mean(axis=2, keepdims=True), credit_there.mean(axis=2)
    return credit_here - on_image - of_answer[:, partner] + of_answer.mean(axis=1)[:, None, None]


@dataclass(frozen=True, eq=False)
class _BoxTable:
    """The boxes of all images, as shares of the sides or in pixels, and codes of their labels; None without labels."""

    pred: BoxBatch
    gt: BoxBatch
    codes: LabelCodes | None

    @classmethod
    def of(cls, images: Sequence[Prediction], label_matching: str, *, in_pixels: bool = False) -> _BoxTable:
        """The boxes of these images, as shares of the sides unless they are wanted in pixels."""
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
        # In blocks, as a large group has more pairs than memory holds at once.
        blocks = [slice(start, start + _PAIRS) for start in range(0, len(images), _PAIRS)]
        credits = np.concatenate([self.credits(images[block], answers[block]) for block in blocks])
        return credits.reshape(len(image), *partner.shape)

    def credits(self, image: NDArray[np.int64], answer: NDArray[np.int64]) -> Array:
        """What each answer earns on the image beside it, ``(pairs,)``; both are indices of images."""
        credits = np.zeros(len(image))
        shapes = np.column_stack([self.gt.counts[image], self.pred.counts[answer]])
        for pairs in rows_of_one_shape(shapes, lambda m, n: m * n):
            m, n = shapes[pairs[0]].tolist()
            # An answer without boxes, or to an image without any, earns nothing.
            if not (n and m):
                continue
            i, j = image[pairs], answer[pairs]
            iou = pairwise_iou(self.pred.take(j).flat.reshape(-1, n, 4), self.gt.take(i).flat.reshape(-1, m, 4))
            if self.codes is not None:
                pred_codes, gt_codes = pad(self.codes.pred, self.pred.counts, j), pad(self.codes.gt, self.gt.counts, i)
                iou = np.where(self.codes.agree(pred_codes[:, :, None], gt_codes[:, None, :]), iou, 0.0)
            credits[pairs] = _matched_iou(iou)
        return credits
