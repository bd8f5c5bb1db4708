"""R2 to R5: how many boxes are right (F-beta) times how well they fit (quality). soft_f1: without a threshold."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.boxes import Boxes
from grounding_rewards.common.numeric import Array, ratio, row_sums
from grounding_rewards.common.validation import SHARE, Interval
from grounding_rewards.matching import MATCHERS, Indices, match_batch
from grounding_rewards.overlap import pairwise_ciou, pairwise_diou, pairwise_giou, pairwise_nwd
from grounding_rewards.rewards.box_reward import BoxReward, Matched, ThresholdReward, parameter
from grounding_rewards.rewards.quality import linear, piecewise, spline


def f_beta_score(precision: ArrayLike, recall: ArrayLike, beta: float) -> Array:
    """F-beta of precision and recall, elementwise; 0 where both are 0.

    ``F = (1 + β²) P R / (β² P + R)``

    Args:
        precision: any shape, in [0, 1].
        recall: the same shape, in [0, 1].
        beta: β > 0; above 1 a missed finding costs more than a false one.

    Returns:
        float64 in [0, 1], of the same shape.

    Example:
        One of two findings found, nothing false: P = 1, R = 1/2.

        >>> f_beta_score([1.0, 0.0], [0.5, 0.0], beta=1.5).round(4)
        array([0.5909, 0.    ])

    Source: specification §1.2; van Rijsbergen, Information Retrieval, 1979.
    """
    p, r = np.asarray(precision, dtype=np.float64), np.asarray(recall, dtype=np.float64)
    return ratio((1 + beta**2) * p * r, beta**2 * p + r)


_BETA = Interval(0, 1000, above=True)


@dataclass(frozen=True, kw_only=True)
class BetaReward(BoxReward):
    """A reward that is at most F-beta of precision and recall; the base of R2 to R5, soft_f1 and pointing.

    It takes the parameters of :class:`BoxReward`, and:

    Args:
        beta: β of F-beta, in (0, 1000]; above 1 a missed finding costs more than a false one.
    """

    beta: float = parameter(1.0, _BETA)


@dataclass(frozen=True, kw_only=True)
class FBetaReward(BetaReward, ThresholdReward):
    """F-beta of the matches times a quality of the matched IoUs; the base of R2 to R5.

    It takes the parameters of :class:`ThresholdReward`, and:

    Args:
        beta: β of F-beta, in (0, 1000]; 1.5 leans mildly towards recall. A box that hits with probability p pays where
            p · IoU exceeds ``reward / (1 + β²)`` (R3): the greater β, the more pays guessing, and below 1 it pays to
            leave out a hit.

    Ceiling: n boxes on an image with m findings earn at most ``(1 + β²) min(n, m) / (n + β² m)``: every box beyond the
    findings costs, a copy as much as junk.
    """

    beta: float = parameter(1.5, _BETA)

    def _combine(self, batch: Matched) -> tuple[Array, Array, Array]:
        """F-beta, the quality and the reward of each completion; the reward is the product of the other two."""
        f_beta = f_beta_score(batch.precision, batch.recall, self.beta)
        quality = self._quality(batch)
        return f_beta, quality, f_beta * quality

    @abstractmethod
    def _quality(self, batch: Matched) -> Array:
        """Return the quality Q of the matched IoUs of each completion, (b,) in [0, 1]; 0 without a match."""


@dataclass(frozen=True, kw_only=True)
class ProductIoUReward(FBetaReward):
    """R2: F-beta times the product of the matched IoUs, in [0, 1].

    ``Q = Π IoU(p_i, g_j)`` falls exponentially with the number of findings: for images with one finding. On others it
    pays for leaving out what fits less well. It takes the parameters of :class:`FBetaReward`, and:

    Args:
        product: ``"plain"``, or ``"geometric"``, ``Q = (Π IoU)^(1/|M|)``: one of three findings at IoU 0.9 earns more
            than all three at 0.7 under the plain product, and less under the geometric mean.

    Example:
        >>> r2 = ProductIoUReward()
        >>> round(r2.score([[0, 0, 10, 6]], [[0, 0, 10, 10]]), 4)
        0.6
        >>> explained = r2.explain([[0, 0, 10, 8], [20, 0, 30, 8]], [[0, 0, 10, 10], [20, 0, 30, 10]])
        >>> round(explained.quality, 4), explained.f_beta
        (0.64, 1.0)

    Source: specification §4, which calls the plain product a geometric mean in §4.1.
    """

    product: str = parameter("plain", ("plain", "geometric"))

    def _quality(self, batch: Matched) -> Array:
        """The product of the matched IoUs of each completion, or their geometric mean."""
        # Q = Π IoU over the matches, the last of the running products; an unmatched prediction is a factor of 1.
        product = np.where(batch.hit, batch.iou, 1.0).cumprod(axis=1)[:, -1]
        if self.product == "geometric":
            # No match would be a division by 0; its Q is set below, as an empty product would be 1.
            product = product ** (1 / np.maximum(batch.tp, 1))
        return np.where(batch.tp > 0, product, 0.0)


@dataclass(frozen=True, kw_only=True)
class MeanIoUReward(FBetaReward):
    """R3: F-beta times the mean of the matched IoUs, in [0, 1].

    Example:
        >>> r3 = MeanIoUReward()
        >>> explained = r3.explain([[0, 0, 10, 8], [20, 0, 30, 6]], [[0, 0, 10, 10], [20, 0, 30, 10]])
        >>> round(explained.reward, 4), explained.tp
        (0.7, 2)

    Source: specification §5.
    """

    def _quality(self, batch: Matched) -> Array:
        """The mean of the matched IoUs of each completion."""
        # Q = 1/|M| Σ IoU
        return batch.mean_over_matches(linear(batch.iou))


@dataclass(frozen=True, kw_only=True)
class SplineIoUReward(FBetaReward):
    """R4: F-beta times the mean of a smooth curve over the matched IoUs, in [0, 1].

    ``Q = (1 - w) · 1/|M| Σ s(IoU) + w · 1/|M| Σ max(0, 1 - d)`` with d the distance between the centres over the
    diagonal of the ground-truth box. It takes the parameters of :class:`FBetaReward`, and:

    Args:
        center_weight: w, in [0, 1]; the specification suggests 0.15 where it is wanted.

    Example:
        >>> r4 = SplineIoUReward()
        >>> round(r4.score([[0, 0, 10, 6]], [[0, 0, 10, 10]]), 4)
        0.6067

    Source: specification §6.
    """

    center_weight: float = parameter(0.0, SHARE)

    def _quality(self, batch: Matched) -> Array:
        """The mean of the curve over the matched IoUs, mixed with the closeness of centres if that has a weight."""
        smooth_quality = batch.mean_over_matches(spline(batch.iou))
        if self.center_weight == 0:
            return smooth_quality
        center_quality = batch.mean_over_matches(_center_closeness(batch))
        return (1 - self.center_weight) * smooth_quality + self.center_weight * center_quality


@dataclass(frozen=True, kw_only=True)
class PiecewiseIoUReward(FBetaReward):
    """R5: optimal matching, F-beta times the mean of a piecewise linear curve over the matched IoUs, in [0, 1].

    With the default τ = 0.5 the part of the curve below 0.5 is never reached. It takes the parameters of
    :class:`FBetaReward`, with ``matching="hungarian"`` as the default, and:

    Args:
        iou_breakpoints: IoUs inside (0, 1) at which the curve bends, increasing; below the first the credit is that
            of the first.
        quality_breakpoints: the credit at each of them, and at IoU 1: one more than ``iou_breakpoints``.

    Example:
        >>> r5 = PiecewiseIoUReward()
        >>> round(r5.score([[0, 0, 10, 6]], [[0, 0, 10, 10]]), 4)
        0.5

    Source: specification §7.
    """

    matching: str = parameter("hungarian", MATCHERS)
    iou_breakpoints: tuple[float, ...] = (0.3, 0.5, 0.7)
    quality_breakpoints: tuple[float, ...] = (0.0, 0.3, 0.7, 1.0)

    def __post_init__(self) -> None:
        """Check the parameters and the breakpoints."""
        super().__post_init__()
        try:
            for name in ("iou_breakpoints", "quality_breakpoints"):
                object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
            # Each IoU has a credit, and so has IoU 1.
            is_curve = len(self.quality_breakpoints) == len(self.iou_breakpoints) + 1
            # With the ends of their ranges around them, 0 and 1, the IoUs must rise, and the credits not fall.
            rises = np.diff((0.0, *self.iou_breakpoints, 1.0))
            is_curve &= bool((rises > 0).all() and (np.diff((0.0, *self.quality_breakpoints, 1.0)) >= 0).all())
        except (OverflowError, TypeError, ValueError):
            # Something that is no number, or no list of numbers.
            is_curve = False
        if not is_curve:
            raise ValueError(
                "Expected IoUs that increase inside (0, 1) for `iou_breakpoints`, and for `quality_breakpoints` "
                "credits in [0, 1] that never fall, one for each and one for IoU 1, got "
                f"{self.iou_breakpoints!r} and {self.quality_breakpoints!r}. Write them as [0.3, 0.5] and [0, 0.3, 1]."
            )

    def _quality(self, batch: Matched) -> Array:
        """The mean of the curve over the matched IoUs of each completion."""
        # Q = 1/|M| Σ q(IoU)
        return batch.mean_over_matches(piecewise(batch.iou, self.iou_breakpoints, self.quality_breakpoints))


def _center_closeness(batch: Matched) -> Array:
    """How near the centres of every match are, (b, n): ``max(0, 1 - d)``, or 0 without a match.

    ``d`` is the distance of the centres over the diagonal of the ground-truth box.
    """
    # The ground truth of each prediction, (b, n, 4). Box 0 stands in for -1, no match, which is set to 0 at the end.
    gt = np.take_along_axis(batch.gt, np.maximum(batch.matched, 0)[..., None], axis=1)
    with np.errstate(all="ignore"):
        # From centre to centre: the mean of what both corners are apart.
        offset = ((batch.pred[..., :2] - gt[..., :2]) + (batch.pred[..., 2:] - gt[..., 2:])) / 2
        side = gt[..., 2:] - gt[..., :2]
        distance = np.hypot(offset[..., 0], offset[..., 1]) / np.hypot(side[..., 0], side[..., 1])
    return np.where(batch.hit, np.clip(1 - distance, 0.0, 1.0), 0.0)


#: The most that a pair of boxes without overlap may earn, if the overlap measures distance: the share of closeness in
#: the credit of a pair.
APART = 0.1
_CLOSENESS: dict[str, Callable[[Boxes, Boxes], Array]] = {
    # From -1 for boxes infinitely far apart to 0 for boxes that touch, so 1 more is in [0, 1].
    "giou": lambda pred, gt: 1 + pairwise_giou(pred, gt),
    "diou": lambda pred, gt: 1 + pairwise_diou(pred, gt),
    "ciou": lambda pred, gt: 1 + pairwise_ciou(pred, gt),
    "nwd": pairwise_nwd,
}
OVERLAPS = ("iou", *_CLOSENESS)
QUALITIES: dict[str, Callable[[ArrayLike], Array]] = {"linear": linear, "spline": spline, "piecewise": piecewise}


@dataclass(frozen=True, kw_only=True)
class SoftF1Reward(BetaReward):
    """soft_f1: F-beta whose true positives are the matched overlaps, without a threshold, in [0, 1].

    ``P = mass / n``, ``R = mass / m`` with ``mass = Σ q(overlap)`` of the one-to-one matching that has the most of it.
    A model whose boxes reach no threshold, which R1 to R5 pay 0 for every answer, is paid more for the nearer ones.
    Of an explanation ``quality`` is the mean credit of the pairs, and ``tp`` the number of pairs with any credit.

    It takes the parameters of :class:`BetaReward`, and:

    Args:
        overlap: ``"iou"``; or ``"giou"``, ``"diou"``, ``"ciou"`` or ``"nwd"``, which tell boxes apart that do not
            overlap. Then a pair counts ``0.9 IoU + 0.1 c``. The closeness c in [0, 1] is the normalised Wasserstein
            distance; or ``s`` for boxes that overlap and ``s (1 + GIoU)``, DIoU or CIoU (0 below) for others, with
            ``s`` the smaller of the two areas over the larger, so that the whole image earns no more than it covers.
            Moved straight towards the only finding, a box never loses.
        quality: the curve from overlap to credit: ``"linear"``, ``"spline"`` (R4's) or ``"piecewise"`` (R5's).

    Ceiling: n boxes on an image with m findings earn at most ``(1 + β²) min(n, m) / (n + β² m)``, as under R2 to R5. A
    box that needs no look at the image earns what it happens to cover, the whole image the share of the image that a
    finding takes up; where ``overlap`` is not the IoU, a box of the right size up to q(0.1) anywhere.

    Raises:
        ValueError: a parameter is out of its range.

    Example:
        An IoU of 0.4 and a false box: mass 0.4, P = 0.2, R = 0.4.

        >>> answer, found = [[0, 0, 10, 4], [50, 50, 60, 60]], [[0, 0, 10, 10]]
        >>> round(SoftF1Reward().score(answer, found), 4)
        0.2667
        >>> near, far = [[12, 0, 22, 10]], [[90, 0, 100, 10]]
        >>> SoftF1Reward().score(near, found), SoftF1Reward().score(far, found)
        (0.0, 0.0)
        >>> by_distance = SoftF1Reward(overlap="giou")
        >>> round(by_distance.score(near, found), 4), round(by_distance.score(far, found), 4)
        (0.0909, 0.02)

    Source: the unthresholded form of F-beta over an optimal matching, as RadVLM-GRPO (arXiv 2512.10691) trains with
    sums of IoU; Rezatofighi et al., CVPR 2019; Zheng et al., AAAI 2020; Wang et al., arXiv 2110.13389.
    """

    overlap: str = parameter("iou", OVERLAPS)
    quality: str = parameter("linear", QUALITIES)

    def _overlap(self, pred: Boxes, gt: Boxes, iou: Array) -> Array:
        """The credit of every possible pair, (b, n, m), whose sum the pairing maximises.

        It is the curve `quality` at the pair's overlap. The overlap is the IoU, or nine parts of IoU and one of
        closeness, see `APART` and the class.

        Args:
            pred: (b, n, 4).
            gt: (b, m, 4).
            iou: of every pair, (b, n, m).
        """
        to_credit = QUALITIES[self.quality]
        if self.overlap == "iou":
            return to_credit(iou)
        closeness = np.clip(_CLOSENESS[self.overlap](pred, gt), 0.0, 1.0)
        if self.overlap != "nwd":
            # The Wasserstein distance compares positions and sizes of all boxes itself. The others only say how far
            # apart boxes are: those that overlap are as close as can be, and sizes are weighed here, so that the whole
            # image, which overlaps every finding, earns no more than it covers.
            closeness = np.where(iou > 0, 1.0, closeness) * _size_ratio(pred, gt)
        return to_credit((1 - APART) * iou + APART * closeness)

    def _pair_up(self, overlap: Array) -> Indices:
        """Pair boxes one to one for the largest sum of credits."""
        return match_batch(overlap, 0.0, matching="hungarian")

    def _combine(self, batch: Matched) -> tuple[Array, Array, Array]:
        """F-beta, the quality and the reward: F-beta is the reward, and the quality is the mean credit of the pairs."""
        # The sum of the credits of the pairs of each completion.
        mass = row_sums(batch.overlap)
        # Of precision and recall, whose true positives are the mass.
        f_beta = f_beta_score(ratio(mass, batch.n), ratio(mass, batch.m), self.beta)
        return f_beta, ratio(mass, batch.tp), f_beta


def _size_ratio(pred: Boxes, gt: Boxes) -> Array:
    """The smaller area over the larger one, of every pair, (b, n, m); 0 for a box without area."""
    with np.errstate(all="ignore"):
        # (b, n, 1, 2) and (b, 1, m, 2), which broadcast to every pair.
        pred_sides = (pred[..., 2:] - pred[..., :2])[..., :, None, :]
        gt_sides = (gt[..., 2:] - gt[..., :2])[..., None, :, :]
        # Sides are divided, not areas, which may overflow or vanish.
        area_ratio = np.prod(pred_sides / gt_sides, axis=-1)
        # NaN, of padding or of a box without sides, becomes 0; the ratio of swapped corners may be negative.
        return np.clip(np.nan_to_num(np.minimum(area_ratio, 1 / area_ratio)), 0.0, 1.0)
