"""One-to-one matching of predictions to ground truth, ignored regions, and which labels agree.

Conventions, the same for all matchers:

* A pair counts from the threshold up (``>=``), but boxes that do not overlap are never a pair.
* No prediction and no ground truth is matched twice.
* Ties are broken deterministically; each matcher says how.
* Rows and columns of zeros change nothing, so that completions with different numbers of boxes are padded with them
  and matched together by :func:`match_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.common.numeric import Array
from grounding_rewards.common.validation import SHARE, check_number, check_word
from grounding_rewards.labels import are_synonyms, normalize_label
from grounding_rewards.overlap import pairwise_ioa, pairwise_iou

Indices = NDArray[np.int64]
Pairs = list[tuple[int, int]]


def greedy_match(iou: ArrayLike, iou_threshold: float = 0.5) -> Pairs:
    """Match greedily: the prediction that overlaps most chooses first.

    Predictions come in the order of their best IoU with any ground truth, highest first; among equals the one that the
    model wrote first. Each takes the free ground truth with which it overlaps most, among equals the one with the lower
    index, and keeps it if the IoU reaches the threshold.

    Args:
        iou: ``(n, m)``, finite: predictions by ground truth.
        iou_threshold: τ, in [0, 1].

    Returns:
        ``(prediction, ground truth)`` index pairs, in the order of the predictions.

    Raises:
        ValueError: ``iou`` is not a finite matrix, or τ is outside [0, 1].

    Example:
        >>> greedy_match([[0.6, 0.0], [0.9, 0.7]], 0.5)
        [(1, 0)]

    Source: specification §2.2.
    """
    return _pairs(iou, iou_threshold, "greedy")


def hungarian_match(iou: ArrayLike, iou_threshold: float = 0.5) -> Pairs:
    """Match optimally: the assignment with the greatest total IoU over the full matrix, then pairs below τ dropped.

    Where every prediction can have the ground truth with which it overlaps most (among equals the one with the lower
    index), that is the answer; elsewhere scipy's ``linear_sum_assignment`` decides among assignments of equal total,
    deterministically.

    Arguments, result and errors are those of :func:`greedy_match`.

    Example:
        >>> hungarian_match([[0.6, 0.0], [0.9, 0.7]], 0.5)
        [(0, 0), (1, 1)]

    Source: specification §2.2 and §7.2; Kuhn, Naval Research Logistics 1955.
    """
    return _pairs(iou, iou_threshold, "hungarian")


def thresholded_hungarian_match(iou: ArrayLike, iou_threshold: float = 0.5) -> Pairs:
    """Match optimally among the pairs that reach τ: the threshold comes before the assignment.

    The total IoU of the matched pairs is at least that of :func:`hungarian_match`, which may spend a ground truth on
    a pair that it drops afterwards, but is what the specification defines.

    Arguments, result and errors are those of :func:`greedy_match`.

    Example:
        The full matrix prefers 0.45 + 0.45 to 0.5 + 0 and then loses both pairs:

        >>> iou = [[0.5, 0.45], [0.45, 0.0]]
        >>> hungarian_match(iou, 0.5), thresholded_hungarian_match(iou, 0.5)
        ([], [(0, 0)])
    """
    return _pairs(iou, iou_threshold, "thresholded_hungarian")


def most_hits_match(iou: ArrayLike, iou_threshold: float = 0.5) -> Pairs:
    """Match optimally: as many pairs from τ up as there can be, and among those the greatest total IoU.

    One more prediction never lowers the number of pairs, and neither does a lower τ: it is what metrics count by. The
    total IoU alone gives neither: one pair of IoU 1 is worth as much as two of 0.5.

    Arguments, result and errors are those of :func:`greedy_match`.

    Example:
        >>> iou = [[1.0, 0.5], [0.45, 0.0]]
        >>> thresholded_hungarian_match(iou, 0.4), most_hits_match(iou, 0.4)
        ([(0, 0)], [(0, 1), (1, 0)])

    Source: Kuhn, Naval Research Logistics 1955.
    """
    return _pairs(iou, iou_threshold, "most_hits")


def match_batch(iou: ArrayLike, iou_threshold: float = 0.5, *, matching: str = "greedy") -> Indices:
    """Match many completions at once, each as the matcher of that name would.

    Args:
        iou: ``(b, n, m)``, finite, padded with zeros.
        iou_threshold: τ, in [0, 1].
        matching: a key of :data:`MATCHERS`.

    Returns:
        ``(b, n)`` int64: for each prediction the index of its ground truth, or -1.

    Raises:
        ValueError: ``iou`` is not a finite stack of matrices, τ is outside [0, 1], or the matcher is unknown.

    Example:
        >>> match_batch([[[0.6, 0.0], [0.9, 0.7]], [[0.8, 0.0], [0.0, 0.0]]], 0.5, matching="hungarian")
        array([[ 0,  1],
               [ 0, -1]])
    """
    check_word("matching", matching, MATCHERS)
    threshold = check_number("iou_threshold", iou_threshold, SHARE, "The usual value is 0.5.")
    matrices = np.asarray(iou, dtype=np.float64)
    if matrices.ndim != 3 or not np.isfinite(matrices).all():
        raise ValueError(
            f"Expected finite numbers of shape (b, n, m) for `iou`, got shape {matrices.shape} or NaN or infinity. "
            "Compute it with pairwise_iou(pred, gt)."
        )
    return MATCHERS[matching](matrices, threshold)


def _pairs(iou: ArrayLike, iou_threshold: float, matching: str) -> Pairs:
    """The (prediction, ground truth) index pairs that the matcher of this name finds in one matrix of IoUs."""
    matrix = np.asarray(iou, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(
            f"Expected an array of shape (n, m) for `iou`, got shape {matrix.shape}. "
            "Compute it with pairwise_iou(pred, gt); match_batch takes many at once."
        )
    # As a batch of one.
    matched = match_batch(matrix[None], iou_threshold, matching=matching)[0]
    return [(prediction, gt) for prediction, gt in enumerate(matched.tolist()) if gt >= 0]


# Up to so many pairs a loop in Python is faster than numpy.
_FEW_PAIRS = 16


def _match_greedily(iou: Array, iou_threshold: float) -> Indices:
    """:func:`greedy_match` of many images, (b, n, m): for each prediction the index of its ground truth or -1, (b, n).

    The predictions of an image take turns, in the order of their best IoU with any ground truth, taken or not, highest
    first; equal ones as the model wrote them. Each takes the best ground truth that is still free.
    """
    b, n, m = iou.shape
    if b == 1 and 0 < n * m <= _FEW_PAIRS:
        return np.array([_match_few_greedily(iou[0].tolist(), iou_threshold)], dtype=np.int64)
    if n == 0 or m == 0:
        return np.full((b, n), -1, dtype=np.int64)
    matched, best_iou, contested_images = _preferences(iou, iou_threshold)
    # No contest: no two predictions of an image prefer the same ground truth, so each gets it whatever their order.
    if not len(contested_images):
        return matched
    # Contested images are matched anew, turn by turn, all of them at once.
    matched[contested_images] = -1
    turns = np.argsort(-best_iou[contested_images], axis=1, kind="stable")
    # A copy, in which the IoUs with a ground truth become -1 when it is taken.
    free_iou = iou[contested_images]
    # Of each image the prediction whose turn it is.
    for predictions in turns.T:
        candidates = free_iou[np.arange(len(free_iou)), predictions]
        best_gt, reached_iou = candidates.argmax(axis=1), candidates.max(axis=1)
        # The images in which it finds a ground truth.
        paired = np.flatnonzero((reached_iou >= iou_threshold) & (reached_iou > 0))
        matched[contested_images[paired], predictions[paired]] = best_gt[paired]
        free_iou[paired, :, best_gt[paired]] = -1.0
    return matched


def _preferences(gain: Array, min_gain: float) -> tuple[Indices, Array, Indices]:
    """The ground truth that each prediction prefers, its gain there, and the images where two prefer the same one.

    In an image where no two predictions prefer the same ground truth, what each prefers is the answer of every matcher.

    Args:
        gain: ``(b, n, m)``, what a pair of each prediction and ground truth is worth to a matcher, such as its IoU.
        min_gain: no prediction prefers a ground truth with which it gains less.

    Returns:
        ``(b, n)`` the index of the ground truth that each prediction gains most with, -1 for none, where that gain is 0
        or below ``min_gain``; ``(b, n)`` that gain; and the indices of the images in which two predictions prefer the
        same one.
    """
    # numpy is slow along a short last axis, and fast where arrays are laid out in memory with the images last.
    best_gain = np.asfortranarray(gain).max(axis=2)
    has_preference = (best_gain >= min_gain) & (best_gain > 0)
    preferred = np.where(has_preference, gain.argmax(axis=2), -1)
    # Two equal neighbours after sorting are a contest. For this, predictions without a preference get a number each,
    # -1, -2, …, so that no two of them are equal.
    sorted_preferences = np.sort(np.where(has_preference, preferred, -1 - np.arange(gain.shape[1])), axis=1)
    is_contested = (sorted_preferences[:, 1:] == sorted_preferences[:, :-1]).any(axis=1)
    return preferred, best_gain, np.flatnonzero(is_contested)


def _match_few_greedily(free_iou: list[list[float]], iou_threshold: float) -> list[int]:
    """`_match_greedily` of one image with a few boxes, in plain Python: the ground truth of each prediction, or -1.

    Writes into ``free_iou``, a row for each prediction: the IoUs with a ground truth become -1 when it is taken.
    """
    matched = [-1] * len(free_iou)
    # The best IoU of each, before any ground truth is taken. Negative, so that sorting, which leaves equal ones in
    # their order, puts the highest first.
    turn_keys = [-max(row) for row in free_iou]
    for prediction in sorted(range(len(free_iou)), key=turn_keys.__getitem__):
        reached_iou = max(free_iou[prediction])
        if reached_iou >= iou_threshold and reached_iou > 0:
            matched[prediction] = gt = free_iou[prediction].index(reached_iou)
            for row in free_iou:
                row[gt] = -1.0
    return matched


# What a pair is worth to `most_hits` beside its IoU: more than all IoUs of an image together, so that one more pair
# always wins, and little enough to tell IoUs that differ by 1e-9.
_PAIR = float(1 << 20)

MATCHERS: dict[str, Callable[[Array, float], Indices]] = {
    "greedy": _match_greedily,
    "hungarian": lambda iou, threshold: _assign(iou, iou, threshold),
    "thresholded_hungarian": lambda iou, threshold: _assign(iou, np.where(iou >= threshold, iou, 0.0), threshold),
    "most_hits": lambda iou, threshold: _assign(
        iou, np.where((iou >= threshold) & (iou > 0), _PAIR + iou, 0.0), threshold
    ),
}


def _assign(iou: Array, gain: Array, iou_threshold: float) -> Indices:
    """Maximise the total gain of every image, then keep the pairs whose IoU reaches the threshold.

    Args:
        iou: (b, n, m).
        gain: (b, n, m), what each pair adds to the total: its IoU, or what a matcher makes of that.
        iou_threshold: τ.

    Returns:
        (b, n), for each prediction the index of its ground truth or -1.
    """
    b, n, m = iou.shape
    if n == 0 or m == 0:
        return np.full((b, n), -1, dtype=np.int64)
    if b == 1 and n * m <= _FEW_PAIRS:
        few = _assign_few(iou[0].tolist(), gain[0].tolist(), iou_threshold)
        if few is not None:
            return np.array([few], dtype=np.int64)
    # The threshold comes after the assignment: here no gain above 0 is too small.
    matched, _, contested_images = _preferences(gain, min_gain=0.0)
    if len(contested_images):
        # Imported here because scipy.optimize takes longer to load than the rest of the package.
        from scipy.optimize import linear_sum_assignment
    for image in contested_images:
        # Leave out boxes without any overlap: they add nothing to the total, and padding must not decide a tie.
        overlaps = gain[image] > 0
        rows, columns = np.flatnonzero(overlaps.any(axis=1)), np.flatnonzero(overlaps.any(axis=0))
        pred_index, gt_index = linear_sum_assignment(gain[image][np.ix_(rows, columns)], maximize=True)
        matched[image] = -1
        matched[image, rows[pred_index]] = columns[gt_index]
    # Index 0 stands in for -1, no ground truth, which stays -1 whatever IoU is looked up there.
    reached_iou = np.take_along_axis(iou, np.maximum(matched, 0)[..., None], axis=2)[..., 0]
    return np.where((reached_iou >= iou_threshold) & (reached_iou > 0), matched, -1)


def _assign_few(iou: list[list[float]], gain: list[list[float]], iou_threshold: float) -> list[int] | None:
    """`_assign` of one image with a few boxes, in plain Python: the ground truth of each prediction, or -1.

    `iou` and `gain` have a row for each prediction. None where two predictions prefer the same ground truth: then what
    each prefers is not the answer, and a solver has to decide.
    """
    matched = []
    for gain_row in gain:
        best_gain = max(gain_row)
        preferred_gt = gain_row.index(best_gain) if best_gain > 0 else -1
        if preferred_gt >= 0 and preferred_gt in matched:
            return None
        matched.append(preferred_gt)
    # The threshold comes after the assignment.
    for prediction, gt in enumerate(matched):
        if gt >= 0 and not (iou[prediction][gt] >= iou_threshold and iou[prediction][gt] > 0):
            matched[prediction] = -1
    return matched


# Which predicted boxes an ignored region takes out of the count: the rules of rewards, metrics and pages.
# A region is no place to hedge. In rewards it excuses at most one predicted box, one that matches nothing, touches no
# reference box, and has enough of its own area inside. COCO's rule for crowds, by which a region excuses any number of
# boxes, because each may be a part of what it holds, is the option ``ignore_many`` and that of COCO's metrics. An
# excused box is neither right nor false.


def covered_share(pred: ArrayLike, regions: ArrayLike) -> Array:
    """The largest share of each predicted box's area that lies in one region, in [0, 1].

    ``max over R of |P ∩ R| / |P|``; 0 without regions and for an invalid box, so that batches may be padded with NaN.

    Args:
        pred: ``(..., n, 4)`` xyxy.
        regions: ``(..., k, 4)`` xyxy, in the same space.

    Returns:
        ``(..., n)`` float64.

    Raises:
        ValueError: the last dimension is not 4.

    Example:
        >>> covered_share([[0, 0, 10, 10], [50, 50, 60, 60]], [[0, 0, 10, 4], [0, 2, 10, 10]])
        array([0.8, 0. ])
    """
    return pairwise_ioa(regions, pred).max(axis=-2, initial=0.0)


def excused_boxes(
    pred: ArrayLike,
    gt: ArrayLike,
    regions: ArrayLike,
    matched: NDArray[np.bool_],
    *,
    ignore_threshold: float = 0.5,
    ignore_many: bool = False,
) -> NDArray[np.bool_]:
    """Which predicted boxes of one image its ignored regions excuse.

    Each region excuses one box at most. They are assigned so that as many boxes as possible are excused, and among
    equally many those that were written first. One region more never excuses fewer boxes.

    Args:
        pred: ``(n, 4)`` xyxy.
        gt: ``(m, 4)`` xyxy, in the same space.
        regions: ``(k, 4)`` xyxy, in the same space.
        matched: ``(n,)`` whether the box has a reference box.
        ignore_threshold: the share of the box's area that has to lie in the region, in (0, 1].
        ignore_many: COCO's rule: a region excuses every unmatched box that lies in it, reference boxes or not.

    Returns:
        ``(n,)``.

    Example:
        Three guesses in a region: one is excused.

        >>> guesses, nowhere = [[0, 0, 4, 4], [1, 0, 5, 4], [2, 0, 6, 4]], np.zeros((0, 4))
        >>> excused_boxes(guesses, nowhere, [[0, 0, 9, 9]], np.zeros(3, dtype=bool))
        array([ True, False, False])
        >>> excused_boxes(guesses, nowhere, [[0, 0, 9, 9]], np.zeros(3, dtype=bool), ignore_many=True)
        array([ True,  True,  True])

    Source: Edmonds and Fulkerson, Transversals and Matroid Partition, 1965.
    """
    if ignore_many:
        return is_ignored(covered_share(pred, regions), matched, ignore_threshold)
    # (k, n): which box lies in which region.
    inside = pairwise_ioa(regions, pred) >= ignore_threshold
    touches_reference = (pairwise_iou(pred, gt) > 0).any(axis=1)
    # The indices of the boxes that a region may excuse.
    candidates = np.flatnonzero(~matched & ~touches_reference & inside.any(axis=0))
    excused = np.zeros(len(matched), dtype=np.bool_)
    if len(candidates):
        from scipy.optimize import linear_sum_assignment

        # An earlier box is worth more than a later one: n, n - 1, … 1. The sets of boxes that regions can take are the
        # independent sets of a matroid, so the set that is worth most is the largest, of the first boxes possible.
        worth = inside[:, candidates] * np.arange(len(candidates), 0, -1)
        region_index, box_index = linear_sum_assignment(worth, maximize=True)
        # A region that holds none of the boxes left for it is assigned one too, which is worth 0 and not excused.
        is_held = worth[region_index, box_index] > 0
        excused[candidates[box_index[is_held]]] = True
    return excused


def is_ignored(share: Array, matched: NDArray[np.bool_], min_share: float | Array) -> NDArray[np.bool_]:
    """Which predicted boxes an ignored region takes out of the count: unmatched ones with enough of their area in it.

    Args:
        share: ``(..., n)`` of :func:`covered_share`.
        matched: ``(..., n)`` whether the box has a reference box.
        min_share: the share of a box's area from which on it is ignored, in (0, 1].

    Returns:
        ``(..., n)``; the arguments are broadcast.

    Example:
        >>> is_ignored(np.array([0.8, 0.8, 0.4]), np.array([False, True, False]), 0.5)
        array([ True, False, False])
    """
    return (share >= min_share) & ~matched


@dataclass(frozen=True)
class LabelCodes:
    """The labels of many completions, one after the other like their boxes, as numbers; NaN without a label.

    ``pred`` and ``gt`` are the codes of all predicted and all reference boxes; ``texts[code]`` is how the label was
    first written, and ``label_matching`` the rule by which labels agree.
    """

    pred: Array
    gt: Array
    texts: tuple[str, ...]
    label_matching: str

    @staticmethod
    def of(pred: Iterable[str | None], gt: Iterable[str | None], label_matching: str) -> LabelCodes:
        """Number the labels; those that are the same under the rule get one number.

        Example:
            >>> codes = LabelCodes.of(["Pleural  effusion", None, "mass"], ["pleural effusion"], "exact")
            >>> codes.pred, codes.gt, codes.texts
            (array([ 0., nan,  1.]), array([0.]), ('pleural effusion', 'mass'))
        """
        pred, gt = list(pred), list(gt)
        key_of = LABEL_RULES[label_matching]
        texts: list[str] = []
        code_of_key: dict[Hashable, float] = {}
        # By label as it is written, so that the key of each is made once.
        code_of_label: dict[str | None, float] = {}
        # The references first: `texts` has a label as they write it.
        for label in dict.fromkeys([*gt, *pred]):
            if label is None or not label.strip():
                code_of_label[label] = np.nan
                continue
            key = key_of(label)
            if key not in code_of_key:
                code_of_key[key] = float(len(texts))
                texts.append(label)
            code_of_label[label] = code_of_key[key]
        pred_codes, gt_codes = (np.array([code_of_label[label] for label in labels], float) for labels in (pred, gt))
        return LabelCodes(pred_codes, gt_codes, tuple(texts), label_matching)

    def agree(self, pred: ArrayLike, gt: ArrayLike) -> NDArray[np.bool_]:
        """Which pairs of labels agree, elementwise: equal ones, and under ``"synonyms"`` some others.

        Args:
            pred: codes out of `pred`, of any shape that broadcasts with `gt`.
            gt: codes out of `gt`. NaN, no label, agrees with nothing.

        Example:
            >>> codes = LabelCodes.of(["Effusion", "mass"], ["left pleural effusion"], "synonyms")
            >>> codes.agree(codes.pred, codes.gt)
            array([ True, False])
        """
        pred, gt = np.broadcast_arrays(pred, gt)
        agree = pred == gt
        if self.label_matching == "exact":
            return agree
        # Labels of two codes may agree all the same: "effusion" and "left effusion" do.
        unsettled = ~(agree | np.isnan(pred) | np.isnan(gt))
        label_count = len(self.texts)
        # A pair of codes as one number, so that the vocabulary is asked once about each distinct pair.
        pairs = (pred[unsettled] * label_count + gt[unsettled]).astype(np.int64)
        distinct_pairs, index_of_pair = np.unique(pairs, return_inverse=True)
        verdicts = []
        for pair in distinct_pairs.tolist():
            pred_code, gt_code = divmod(pair, label_count)
            verdicts.append(are_synonyms(self.texts[pred_code], self.texts[gt_code]))
        agree[unsettled] = np.array(verdicts, dtype=bool)[index_of_pair]
        return agree


def text_key(label: str) -> str:
    """The label in lower case, with single blanks.

    >>> text_key("Left  Effusion")
    'left effusion'
    """
    return " ".join(label.casefold().split())


def _finding_of(label: str) -> Hashable:
    """The name in the shared vocabulary, and its side; an unknown label keeps its own words."""
    finding = normalize_label(label)
    return finding.name, finding.laterality


#: Each rule of ``label_matching`` that compares labels: the key that equal labels share.
LABEL_RULES: dict[str, Callable[[str], Hashable]] = {"exact": text_key, "synonyms": _finding_of}
LABEL_MATCHING = ("ignore", *LABEL_RULES)
