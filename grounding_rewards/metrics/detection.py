"""Metrics that are ratios of sums over images: what heads an evaluation, and what two runs are compared by.

The metric of a run is ``Σ numerator / Σ denominator`` over its images, which
:mod:`grounding_rewards.metrics.intervals` gives an interval. They are one table, :data:`DETECTION_METRICS`, which
rewards join in :attr:`MatchedImages.metrics`.

Boxes are matched by the code that rewards are made of, :class:`grounding_rewards.rewards.BoxReward`, so that ignored
boxes don't count and broken ones count as false. Who is paired with whom is another matter than in R1 … R5: the
threshold comes before the assignment, and there are as many hits as there can be
(:func:`grounding_rewards.matching.most_hits_match`), so that a box more never loses a hit. F-beta over one image is the
F-beta that a reward with ``matching="most_hits"`` explains.

An image is matched once, whatever is asked afterwards: where a label or a size is chosen, a right box counts with its
reference box, a false one under its own label and size. So the true and false positives and the false negatives of all
sizes add up to those of the whole, which COCO's rule for sizes does not give.

**Segmentation.** Boxes are also seen as a segmentation of the image into two classes: foreground, where a box is, and
background. The predicted foreground P is the union of the predicted boxes inside the image; the reference foreground G
the union of the reference boxes. Four areas say all: the hit ``|P ∩ G|``, the false ``|P \\ G|``, the missed
``|G \\ P|`` and the rest of the image, in squared pixels.

    pixel accuracy = (hit + rest) / (hit + false + missed + rest)
    foreground IoU = hit / (hit + false + missed)
    background IoU = rest / (rest + false + missed)
    mean IoU       = the mean of the two
    Dice           = 2 hit / (2 hit + false + missed)

* Edges are real numbers, and areas are exact: the edges of all boxes cut the image into cells, each wholly inside or
  outside a box. No box is drawn on a raster, so that fractions of a pixel count as such.
* An invalid box covers nothing, and the part of a box outside the image does not count.
* In an ignored region, what is outside the reference foreground does not count.
* A class that neither side has cannot be measured: on an image without a box on either side, Dice is NaN and the mean
  IoU is that of the background alone, 1. (The specification's code counts such a class as 0, by which a rightly empty
  answer would have a mean IoU of 0.5.) A class that one side alone has is 0.
* Metrics are made of the summed areas of all images, as §3 sums pixels: a large image weighs more than a small one.

Source of the segmentation: specification §3.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import BoxBatch, box_area, pad, valid_boxes
from grounding_rewards.common.numeric import Array, ratio_or_nan
from grounding_rewards.matching import LabelCodes
from grounding_rewards.metrics.average_precision import Mask, label_name, query_ap_sums, rows_of_one_shape
from grounding_rewards.metrics.intervals import COUNT, Estimate, Jackknifed, Metric, sum_by_group
from grounding_rewards.metrics.prediction import UNNAMED, Prediction, PredictionBatch, is_read
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing.results import with_broken
from grounding_rewards.rewards import MeanIoUReward
from grounding_rewards.rewards.box_reward import Outcomes

# A numerator and a denominator of each image, (images,) each.
Sums = tuple[NDArray[Any], NDArray[Any]]
#: Name → which of the reference boxes of all images, one image after the other, are in the group.
BoxGroups = dict[str, Mask]

# IoU thresholds: the smallest numbers above 0 and above a half.
_ANY_OVERLAP = float(np.nextafter(0.0, 1.0))
_ABOVE_HALF = float(np.nextafter(0.5, 1.0))

#: Ranges of a box's part of the area of its image, in which the low end lies and the high one does not.
IMAGE_SIZES: dict[str, tuple[float, float]] = {
    "small, below 1 % of the image": (0, 0.01),
    "medium, 1 % to 10 % of the image": (0.01, 0.1),
    "large, above 10 % of the image": (0.1, float("inf")),
}

_RECALL = "share of the reference boxes of all images that a box is right about"


class BoxCounts(NamedTuple):
    """Numbers of predicted boxes that count, reference boxes, and right boxes of each image, ``(images,)``."""

    n: Array
    m: Array
    tp: Array


@dataclass(frozen=True, eq=False)
class MatchedImages:
    """Images whose boxes are matched, by the rules at the top of this module.

    Attributes:
        images: with their answers.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box matches a finding of another label.
        label: only this label; None takes all.
        size: only boxes in this range of the parts of an image, see :data:`IMAGE_SIZES`; None takes all.

    Raises:
        ValueError: a word is unknown, or a label is chosen and none is compared.

    Example:
        >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10]], pred=[[0, 0, 10, 9], [50, 50, 60, 60]],
        ...                     gt_labels=["mass"])
        >>> MatchedImages([image]).counts(0.5)
        BoxCounts(n=array([2.]), m=array([1.]), tp=array([1.]))
    """

    images: Sequence[Prediction]
    label_matching: str = "ignore"
    label: str | None = None
    size: tuple[float, float] | None = None
    # Shared by `replace`: pairs do not depend on the label and size.
    _outcomes_by_reward: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Make the images a batch, and refuse a label that is blank or where labels are not compared."""
        object.__setattr__(self, "images", PredictionBatch.of(self.images))
        if self.label is not None and not label_name(self.label, self.label_matching):
            raise ValueError(
                f"Expected a label that is compared for `label`, got {self.label!r} with "
                f'label_matching={self.label_matching!r}. Name a finding, and use "exact" or "synonyms".'
            )

    def counts(self, iou_threshold: float) -> BoxCounts:
        """The numbers of boxes of each image; `iou_threshold` is in (0, 1], and a pair is right from it on."""
        outcomes = self._outcomes(iou_threshold)
        countable_preds, countable_gts = self._countable(outcomes)
        masks = (countable_preds, countable_gts, countable_preds & outcomes.hit)
        return BoxCounts(*(mask.sum(axis=1).astype(np.float64) for mask in masks))

    @cached_property
    def counts_50(self) -> BoxCounts:
        """:meth:`counts` at IoU 0.5."""
        return self.counts(0.5)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that are ratios of sums, by key, in the order of tables: what two runs are compared by.

        Before :data:`DETECTION_METRICS` stand rewards and metrics of sampled answers, where every image has them.

        Example:
            >>> list(MatchedImages([Prediction("a", 9, 9, rewards={"R1": 0.5, "R4": 0.2})]).metrics)[:3]
            ['reward_R1', 'reward_R4', 'mean_iou']
        """
        if not self.images:
            return DETECTION_METRICS
        # A reward that all images have, the first one has too.
        names = [name for name in self.images[0].rewards if all(name in image.rewards for image in self.images)]
        sampled = _SAMPLED_METRICS if all(image.sampled_read for image in self.images) else {}
        return {f"reward_{name}": _reward_metric(name) for name in names} | sampled | DETECTION_METRICS

    def sums(self, keys: Iterable[str] | None = None) -> dict[str, Array]:
        """The numerators and denominators of the metrics of each image.

        Whatever a reward matches with, all boxes are matched in one way here, so that models trained with different
        rewards are measured alike.

        Args:
            keys: of :attr:`metrics`; None takes all.

        Returns:
            By key ``(images, 2)``, for :func:`grounding_rewards.metrics.intervals.ratio_estimates`.

        Raises:
            ValueError: a word is unknown, or a reference box has a blank label although labels are compared.

        Example:
            >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10]], pred=[[0, 0, 10, 9], [50, 50, 60, 60]],
            ...                     gt_labels=["mass"])
            >>> sums = MatchedImages([image]).sums()
            >>> sums["precision_50"].tolist(), sums["f1_50"].tolist(), sums["hallucination_rate"].tolist()
            ([[1.0, 2.0]], [[2.0, 3.0]], [[0.0, 0.0]])
        """
        if keys is None:
            keys = self.metrics
        return {key: np.stack(self.metrics[key].of(self), axis=1).astype(np.float64) for key in keys}

    @cached_property
    def areas(self) -> Array:
        """:func:`segmentation_areas` of the images."""
        return segmentation_areas(self.images)

    @cached_property
    def right_labels(self) -> Sums:
        """Of each image how many boxes in the right place at IoU 0.5 have the finding's label, and how many have any.

        Boxes are matched whatever their labels: else all that are right would have the finding's label.
        """
        outcomes = replace(self, label_matching="ignore", label=None)._outcomes(0.5)
        countable_preds, _ = self._countable(outcomes)
        # For each right box its image, its place among the image's boxes, and the place of its reference box.
        image, pred_place = np.nonzero(countable_preds & outcomes.hit)
        gt_place = outcomes.matched[image, pred_place]
        rule = "synonyms" if self.label_matching == "synonyms" else "exact"
        codes = LabelCodes.of(self.batch.pred_labels, self.batch.gt_labels, rule)
        images = len(self.images)
        # The labels of the two as codes, NaN for no label.
        pred_codes = pad(codes.pred, self.batch.pred.counts, np.arange(images))[image, pred_place]
        gt_codes = pad(codes.gt, self.batch.gt.counts, np.arange(images))[image, gt_place]
        # Where the dataset names no finding, its boxes have a name that no answer could know: none is then labelled.
        are_findings_named = any(label != UNNAMED for label in self.batch.gt_labels)
        is_labelled = are_findings_named & ~np.isnan(pred_codes) & ~np.isnan(gt_codes)
        is_agreeing = is_labelled & codes.agree(pred_codes, gt_codes)
        return np.bincount(image[is_agreeing], minlength=images), np.bincount(image[is_labelled], minlength=images)

    def found(self, iou_threshold: float) -> tuple[Mask, Mask]:
        """Which reference boxes a box is right about, and which cells hold a countable one, ``(images, boxes)`` each.

        Rows are filled up to the most reference boxes of an image.
        """
        outcomes = self._outcomes(iou_threshold)
        hits, is_countable = self._by_reference(outcomes, np.ones_like(outcomes.iou))
        return hits > 0, is_countable

    @cached_property
    def best_ious(self) -> tuple[Array, Mask]:
        """IoU of each reference box with its partner or 0, and which cells hold a countable one, as in :meth:`found`.

        Boxes are paired one to one for the largest sum of IoUs; boxes that do not overlap are no partners.
        """
        pairs = self._outcomes(_ANY_OVERLAP, "hungarian")
        return self._by_reference(pairs, pairs.iou)

    def _by_reference(self, outcomes: Outcomes, values: Array) -> tuple[Array, Mask]:
        """Give each reference box the value of the predicted box that matches it.

        Args:
            outcomes: the matches.
            values: of the predicted boxes, ``(images, n)``.

        Returns:
            The value of each reference box, 0 without a match, and which cells hold a countable reference box,
            ``(images, m)`` each.
        """
        _, is_countable = self._countable(outcomes)
        gt_values = np.zeros(is_countable.shape)
        image, pred_place = np.nonzero(outcomes.hit)
        gt_place = outcomes.matched[image, pred_place]
        gt_values[image, gt_place] = values[image, pred_place]
        # A reference box of another label or size has a match too, which does not count.
        return np.where(is_countable, gt_values, 0.0), is_countable

    @cached_property
    def panoptic_quality(self) -> Sums:
        """Of each image the sum of the IoUs of its right boxes, all above a half, and half the number of its boxes.

        Half of all predicted and reference boxes is TP + FP / 2 + FN / 2, as a right box is among both.
        """
        outcomes = self._outcomes(_ABOVE_HALF)
        countable_preds, countable_gts = self._countable(outcomes)
        ious = np.where(countable_preds & outcomes.hit, outcomes.iou, 0.0).sum(axis=1)
        return ious, (countable_preds.sum(axis=1) + countable_gts.sum(axis=1)) / 2

    def by_image(self, iou_threshold: float) -> Iterator[tuple[Prediction, NDArray[np.int64], Mask]]:
        """Yield each image, with the partner of each of its predicted boxes and whether that box counts.

        The partner is the index of the reference box that the box is right about, or -1. Broken boxes are left out, as
        they are no boxes of the image.
        """
        outcomes = self._outcomes(iou_threshold)
        countable_preds, _ = self._countable(outcomes)
        for image, partners, counts in zip(self.images, outcomes.matched, countable_preds, strict=True):
            # In the arrays broken boxes stand in their places among the others: False is put there.
            is_complete = np.array(with_broken([True] * len(image.pred), image.broken, lambda _: False), dtype=bool)
            # After these n boxes the rows are filled up, to the most boxes of an image.
            n = len(is_complete)
            yield image, partners[:n][is_complete], counts[:n][is_complete]

    @cached_property
    def phrase_ious(self) -> tuple[Array, Array]:
        """The IoU of the answer to each image that has one reference box, as in phrase grounding.

        That is the IoU of the highest-scoring box, of the first one among equal confidences and without any, and 0 if
        the answer has no box. The second array is 1 for these images, and 0 for all others.
        """
        ious, is_phrase = np.zeros(len(self.images)), self.batch.gt.counts == 1
        answered_phrases = [k for k in np.flatnonzero(is_phrase).tolist() if len(self.images[k].pred)]
        if answered_phrases:
            top_boxes = []
            for k in answered_phrases:
                image = self.images[k]
                # A box without a confidence comes last; argmax takes the first of equal ones.
                top = np.where(np.isnan(image.pred_scores), -np.inf, image.pred_scores).argmax()
                top_boxes.append(image.pred[[top]])
            # All pairs in one call, which takes half the time of one call for each image.
            gts = np.array([self.images[k].gt for k in answered_phrases])
            ious[answered_phrases] = pairwise_iou(np.array(top_boxes), gts)[:, 0, 0]
        return ious, is_phrase.astype(np.float64)

    @cached_property
    def is_read(self) -> Mask:
        """Which answers have a box or say that there is none, ``(images,)``."""
        return np.array([is_read(image.pred, image.status) for image in self.images], dtype=bool)

    @property
    def batch(self) -> PredictionBatch:
        """The images with their arrays."""
        return PredictionBatch.of(self.images)

    def _outcomes(self, iou_threshold: float, matching: str = "most_hits") -> Outcomes:
        """The outcomes of all boxes at a threshold, by the matcher of this name; matched once, then kept.

        The default matcher makes as many boxes right as there can be.
        """
        reward = MeanIoUReward(iou_threshold=iou_threshold, matching=matching, label_matching=self.label_matching)
        if reward not in self._outcomes_by_reward:
            self._outcomes_by_reward[reward] = reward.match_and_score(
                self.batch.pred,
                self.batch.gt,
                ignore=self.batch.ignore,
                labels=reward.label_codes(self.batch.pred_labels, self.batch.gt_labels),
            )
        return self._outcomes_by_reward[reward]

    def _countable(self, outcomes: Outcomes) -> tuple[Mask, Mask]:
        """Which predicted boxes, (images, n), and which reference boxes, (images, m), count for the label and size.

        False for ignored predicted boxes, and for the cells that fill a row up.
        """
        pred_counts, gt_counts = self.batch.pred.counts[:, None], self.batch.gt.counts[:, None]
        countable_preds = (np.arange(pred_counts.max(initial=0)) < pred_counts) & ~outcomes.ignored
        countable_gts = np.arange(gt_counts.max(initial=0)) < gt_counts
        # Boxes that were matched whatever their labels have none here.
        if self.label is not None and outcomes.gt_labels is not None and outcomes.pred_labels is not None:
            # Boxes have codes, indices of the labels as they are written: those of one name are the label's.
            name = label_name(self.label, self.label_matching)
            names = [label_name(text, self.label_matching) for text in outcomes.label_texts]
            codes = [code for code, code_name in enumerate(names) if code_name == name]
            countable_gts &= np.isin(outcomes.gt_labels, codes)
            countable_preds &= np.isin(outcomes.pred_labels, codes)
        if self.size is not None:
            pred_in_range = self._in_range(self.size, self.batch.pred)
            gt_in_range = self._in_range(self.size, self.batch.gt)
            countable_gts &= gt_in_range
            # A right box counts under the size of its reference box. A box without one has the index -1, which takes
            # the column that is added at the end.
            partner_in_range = np.take_along_axis(np.pad(gt_in_range, ((0, 0), (0, 1))), outcomes.matched, axis=1)
            countable_preds &= np.where(outcomes.hit, partner_in_range, pred_in_range)
        return countable_preds, countable_gts

    def _in_range(self, size: tuple[float, float], boxes: BoxBatch) -> Mask:
        """Which boxes take a part of their image's area in this range, ``(images, most boxes of one)``.

        False in the cells that fill a row up.
        """
        parts = box_area(boxes.flat) / np.repeat(self.batch.sizes.prod(axis=1), boxes.counts)
        in_range = (size[0] <= parts) & (parts < size[1])
        # As numbers, because `pad` fills rows up with NaN.
        return pad(in_range.astype(np.float64), boxes.counts, np.arange(len(boxes.counts))) == 1


# The functions of metrics, which take images to numerators and denominators.


def _at_50(sums: Callable[[Array, Array, Array], Sums]) -> Callable[[MatchedImages], Sums]:
    """A function that calls `sums` with the counts n, m and tp of matched images at IoU 0.5."""
    return lambda images: sums(*images.counts_50)


def _recall(images: MatchedImages, iou_threshold: float) -> Sums:
    """Found reference boxes of each image, and all of them."""
    counts = images.counts(iou_threshold)
    return counts.tp, counts.m


def _specificity(images: MatchedImages) -> Sums:
    """1 for each image without a finding whose answer says so, else 0; and 1 for each image without a finding."""
    n, m, _ = images.counts_50
    return (m == 0) & (n == 0) & images.is_read, m == 0


def _of_areas(sums: Callable[[Array, Array, Array, Array], Sums]) -> Callable[[MatchedImages], Sums]:
    """A function that calls `sums` with the hit, false, missed and remaining areas of matched images."""
    return lambda images: sums(*images.areas.T)


def _over_images(value: Callable[..., float]) -> Callable[[MatchedImages], Sums]:
    """A function that takes matched images to the value of each and 1, whose ratio of sums is the mean over images."""
    return lambda images: (np.array([value(image) for image in images.images]), np.ones(len(images.images)))


def _reward_metric(name: str) -> Metric:
    """The metric that is the mean of a reward, which all images have."""
    mean = _over_images(lambda image: image.rewards[name])
    return Metric(f"reward {name}", f"mean over images of what {name} gives the answer", mean)


#: Metrics of every image; `of` takes :class:`MatchedImages` to numerators and denominators, ``(images,)`` each.
DETECTION_METRICS: dict[str, Metric] = {
    "mean_iou": Metric(
        "mean IoU",
        "predicted and reference boxes are paired one to one for the largest sum of IoUs; mean over reference boxes, "
        "0 for one without a partner",
        lambda images: (images.best_ious[0].sum(axis=1), images.best_ious[1].sum(axis=1)),
    ),
    "f1_50": Metric(
        "F1 at IoU 0.5",
        "boxes of all images pooled: twice the right boxes over predicted and reference boxes",
        _at_50(lambda n, m, tp: (2 * tp, m + n)),
    ),
    "pq": Metric(
        "panoptic quality",
        "boxes of all images pooled: IoUs of the right boxes, at IoU > 0.5, added up over the mean number of predicted "
        "and reference boxes; F1 times the mean IoU of right boxes",
        lambda images: images.panoptic_quality,
    ),
    "precision_50": Metric(
        "precision at IoU 0.5",
        "share of the predicted boxes of all images that are right",
        _at_50(lambda n, m, tp: (tp, n)),
        is_share=True,
    ),
    "recall_50": Metric("recall at IoU 0.5", _RECALL, partial(_recall, iou_threshold=0.5), is_share=True),
    "recall_75": Metric("recall at IoU 0.75", _RECALL, partial(_recall, iou_threshold=0.75), is_share=True),
    "accuracy_50": Metric(
        "accuracy at IoU 0.5",
        "phrase grounding: share of the images with one reference box whose highest-scoring box reaches IoU 0.5; the "
        "first box where no confidence is stated",
        lambda images: (images.phrase_ious[0] >= 0.5, images.phrase_ious[1]),
        is_share=True,
    ),
    "phrase_mean_iou": Metric(
        "mIoU of phrases",
        "phrase grounding: IoU of the highest-scoring box, mean over images with one reference box, 0 without a box",
        lambda images: images.phrase_ious,
    ),
    "hallucination_rate": Metric(
        "hallucination on normal images",
        "share of the images without a finding whose answer has a box",
        _at_50(lambda n, m, tp: ((m == 0) & (n > 0), m == 0)),
        lower_is_better=True,
        is_share=True,
    ),
    "specificity": Metric(
        "specificity",
        "share of the images without a finding whose answer says so; an answer that cannot be read does not",
        _specificity,
        is_share=True,
    ),
    "film_sensitivity": Metric(
        "sensitivity for images",
        "share of the images with a finding whose answer has a box, wherever it is",
        _at_50(lambda n, m, tp: ((m > 0) & (n > 0), m > 0)),
        is_share=True,
    ),
    "false_per_film": Metric(
        "false boxes per image",
        "predicted boxes that are not right at IoU 0.5, mean over all images",
        _at_50(lambda n, m, tp: (n - tp, np.ones(len(n)))),
        lower_is_better=True,
        bounds=COUNT,
    ),
    "count_error": Metric(
        "error in the number of boxes",
        "difference between the numbers of predicted and reference boxes without its sign, mean over all images",
        _at_50(lambda n, m, tp: (np.abs(n - m), np.ones(len(n)))),
        lower_is_better=True,
        bounds=COUNT,
    ),
    "label_accuracy": Metric(
        "right label",
        "share of the boxes in the right place at IoU 0.5, and with a label, whose label is the reference's: up to "
        "case and white space, or a synonym where these are compared",
        lambda images: images.right_labels,
        is_share=True,
    ),
    "unparseable_share": Metric(
        "unparseable answers",
        "share of the answers with neither a complete box nor a no-finding statement",
        lambda images: (~images.is_read, np.ones(len(images.images))),
        lower_is_better=True,
        is_share=True,
    ),
    "query_ap_50": Metric(
        "per-query AP@0.5 in writing order",
        "AP at IoU 0.5 of the boxes that an answer gives one finding of one image, in the order of writing; mean over "
        "findings that are present, normal images left out (RadVLM-GRPO, arXiv 2512.10691)",
        lambda images: query_ap_sums(images.images, label_matching=images.label_matching).T,
    ),
    "pixel_accuracy": Metric(
        "pixel accuracy",
        "part of the area of all images that is rightly inside or outside of boxes",
        _of_areas(lambda hit, false, missed, rest: (hit + rest, hit + false + missed + rest)),
    ),
    "dice": Metric(
        "Dice",
        "of the union of predicted and the union of reference boxes, all images pooled",
        _of_areas(lambda hit, false, missed, rest: (2 * hit, 2 * hit + false + missed)),
    ),
}

# Metrics of the sampled answers.
_SAMPLED_METRICS: dict[str, Metric] = {
    "sampled_reward": Metric(
        "sampled reward",
        "mean over the sampled answers to an image, then over images",
        _over_images(lambda image: sum(image.sampled_rewards) / len(image.sampled_rewards)),
    ),
    "sampled_unparseable_share": Metric(
        "unparseable sampled answers",
        "share of the sampled answers to an image with neither a complete box nor a no-finding statement, mean "
        "over images",
        _over_images(lambda image: image.sampled_read.count(False) / len(image.sampled_read)),
        lower_is_better=True,
        is_share=True,
    ),
}


def label_groups(images: Sequence[Prediction], label_matching: str = "exact") -> BoxGroups:
    """Which of all reference boxes have each label, the most frequent label first.

    Labels that are compared as one are one group, under the spelling that is most frequent.

    Args:
        images: predictions.
        label_matching: ``"exact"`` or ``"synonyms"``.

    Example:
        >>> label_groups([Prediction("a", 9, 9, gt=[[0, 0, 4, 4], [5, 5, 9, 9]], gt_labels=["mass", "Mass"])])
        {'mass': array([ True,  True])}
    """
    labels = [label for image in images for label in image.gt_labels]
    names = np.array([label_name(label, label_matching) for label in labels], dtype=object)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for name, label in zip(names, labels, strict=True):
        spellings[name][label.strip()] += 1
    groups = {}
    for name in sorted(spellings, key=lambda name: -spellings[name].total()):
        most_frequent_spelling = spellings[name].most_common(1)[0][0]
        groups[most_frequent_spelling] = names == name
    return groups


def reference_sums(matched: MatchedImages, groups: BoxGroups) -> dict[tuple[str, str], Array]:
    """The sums of mean IoU and recall of groups of reference boxes: a label's metrics where answers state no labels.

    Args:
        matched: images.
        groups: from :func:`label_groups`, for instance.

    Returns:
        By group and key the numerators and denominators, ``(images, 2)``.

    Example:
        >>> image = Prediction("a", 9, 9, gt=[[0, 0, 4, 4], [5, 5, 9, 9]], gt_labels=["x", "y"], pred=[[0, 0, 4, 2]])
        >>> reference_sums(MatchedImages([image]), label_groups([image]))["x", "mean_iou"]
        array([[0.5, 1. ]])
    """
    images = len(matched.images)
    image_of_box = np.repeat(np.arange(images), matched.batch.gt.counts)
    # By key the values of reference boxes in a row for each image, and which cells of these rows hold a box: with them
    # the values are taken in the order of all boxes, in which `members` are.
    by_metric = {"mean_iou": matched.best_ious, "recall_50": matched.found(0.5), "recall_75": matched.found(0.75)}
    sums = {}
    for name, members in groups.items():
        boxes = np.bincount(image_of_box[members], minlength=images)
        for key, (values, is_box) in by_metric.items():
            credit = np.bincount(image_of_box[members], values[is_box][members], images)
            sums[name, key] = np.column_stack([credit, boxes]).astype(np.float64)
    return sums


def segmentation_areas(images: Sequence[Prediction]) -> Array:
    """The hit, false, missed and remaining area of every image, ``(images, 4)``.

    Example:
        >>> image = Prediction("a", 20, 10, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 5]])
        >>> segmentation_areas([image])
        array([[ 50.,   0.,  50., 100.]])
    """
    batch, areas = PredictionBatch.of(images), np.zeros((len(images), 4))
    # `batch.pred` would have broken boxes too, which cover nothing.
    kinds = BoxBatch.of([image.pred for image in batch], "pred"), batch.gt, batch.ignore
    counts = np.column_stack([boxes.counts for boxes in kinds])
    # Two edges of each box and two of the image cut it into so many columns and rows of cells.
    for rows in rows_of_one_shape(counts, lambda n, m, k: (2 * (n + m + k) + 1) ** 2):
        pred, gt, ignore = (boxes.take(rows).flat.reshape(len(rows), -1, 4) for boxes in kinds)
        areas[rows] = _areas(pred, gt, ignore, batch.sizes[rows])
    return areas


def class_mean_iou(areas: Array) -> Array:
    """Mean of the IoUs of foreground and background; of the one class where the other has no area on either side.

    Example:
        >>> class_mean_iou(np.array([[50.0, 0.0, 50.0, 100.0], [0.0, 0.0, 0.0, 200.0]])).round(4)
        array([0.5833, 1.    ])
    """
    hit, false, missed, rest = np.moveaxis(areas, -1, 0)
    classes = np.stack([ratio_or_nan(hit, hit + false + missed), ratio_or_nan(rest, rest + false + missed)])
    return ratio_or_nan(np.nansum(classes, axis=0), np.sum(~np.isnan(classes), axis=0))


#: In the table of metrics.
CLASS_MEAN_IOU = {
    "class_mean_iou": Metric(
        "mean IoU of foreground and background",
        "IoU of the areas inside boxes and of the areas outside, all images pooled; the mean of the two",
    )
}


def class_mean_iou_estimate(areas: Array, *, groups: Sequence[Any] | None = None) -> Estimate:
    """:func:`class_mean_iou` of all images, which is no ratio of sums, with its 95 % interval.

    Args:
        areas: ``(images, 4)`` from :func:`segmentation_areas`.
        groups: the patient of each image, where known; the images of one patient are then left out together.

    Example:
        >>> areas = np.array([[50.0, 0.0, 50.0, 100.0], [100.0, 0.0, 0.0, 100.0], [0.0, 0.0, 0.0, 200.0]])
        >>> round(class_mean_iou_estimate(areas).value, 4)
        0.8194
    """
    units = areas if groups is None else sum_by_group(areas, groups)
    total = units.sum(axis=0)
    return Jackknifed(float(class_mean_iou(total)), class_mean_iou(total - units), len(units)).estimate


def _areas(pred: Array, gt: Array, ignore: Array, sizes: Array) -> Array:
    """Hit, false, missed and remaining area, ``(b, 4)``, of images with equally many boxes.

    Args:
        pred: ``(b, n, 4)`` predicted boxes.
        gt: ``(b, m, 4)`` reference boxes.
        ignore: ``(b, k, 4)`` ignored regions.
        sizes: ``(b, 2)`` widths and heights of the images.
    """
    image_boxes = np.column_stack([np.zeros_like(sizes), sizes])[:, None]
    boxes = np.concatenate([pred, gt, ignore, image_boxes], axis=1)
    # Only what lies on the image counts; an invalid box is put into a corner, where it has no area.
    largest = np.tile(sizes, 2)[:, None]
    boxes = np.where(valid_boxes(boxes)[..., None], np.clip(boxes, 0.0, largest), 0.0)
    # The edges of all boxes, the image among them, cut it into cells, each of which lies in or outside of every box.
    # Corners are x1, y1, x2, y2: the x are at even places, the y at odd ones.
    xs = np.sort(boxes[..., 0::2].reshape(len(boxes), -1), axis=1)
    ys = np.sort(boxes[..., 1::2].reshape(len(boxes), -1), axis=1)
    cells = np.diff(ys)[:, :, None] * np.diff(xs)[:, None, :]
    n, m = pred.shape[1], gt.shape[1]
    in_pred, in_gt = _covered(boxes[:, :n], xs, ys), _covered(boxes[:, n : n + m], xs, ys)
    in_ignore = _covered(boxes[:, n + m : -1], xs, ys)
    # In an ignored region what is outside the reference foreground does not count.
    is_measured = in_gt | ~in_ignore
    masks = (in_pred & in_gt, in_pred & ~in_gt & is_measured, ~in_pred & in_gt, ~in_pred & ~in_gt & is_measured)
    return np.stack([(cells * mask).sum(axis=(1, 2)) for mask in masks], axis=1)


def _covered(boxes: Array, xs: Array, ys: Array) -> NDArray[np.bool_]:
    """Which cells of each image lie in a box.

    Args:
        boxes: ``(b, k, 4)`` of b images, with corners at edges.
        xs: ``(b, columns + 1)`` the edges in rising order; neighbouring ones bound a column of cells.
        ys: ``(b, rows + 1)`` those that bound rows.

    Returns:
        ``(b, rows, columns)``.
    """
    x1, y1, x2, y2 = np.moveaxis(boxes, -1, 0)[..., None]
    # Which columns and which rows each box spans, ``(b, k, columns)`` and ``(b, k, rows)``.
    columns = (x1 <= xs[:, None, :-1]) & (xs[:, None, 1:] <= x2)
    rows = (y1 <= ys[:, None, :-1]) & (ys[:, None, 1:] <= y2)
    # The product counts the boxes that span both; in float32, which matrix products are fast in.
    return np.swapaxes(rows, 1, 2).astype(np.float32) @ columns.astype(np.float32) > 0
