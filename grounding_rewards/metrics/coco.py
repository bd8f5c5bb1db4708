"""COCO's average precision and recall through faster-coco-eval, the C++ version of pycocotools (extra `eval`).

COCO ranks boxes by confidence. Where answers state none for some box there is no such figure, and these functions
refuse; :func:`grounding_rewards.metrics.average_precision.average_precision` has the rankings that do without.

Ignore regions are crowds of every label. Broken and invalid boxes, which COCO's files cannot hold, are boxes of no area
outside the film: false wherever one is looked for. A broken box has no confidence, so that it comes last, as an empty
label has no AP: neither changes a figure, and both are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import valid_boxes
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.average_precision import COCO_THRESHOLDS
from grounding_rewards.metrics.bootstrap import mean_of_measured
from grounding_rewards.metrics.ranking import label_name
from grounding_rewards.metrics.sizes import COCO_AREAS, Area

Array = NDArray[np.float64]

# A box that overlaps nothing.
_OUTSIDE = [-2.0, -2.0, 0.0, 0.0]


class CocoFigures(NamedTuple):
    """What COCO's evaluation gives; NaN where no film has the label at that size.

    ``precision`` and ``recall`` are ``(thresholds, labels, areas)``: the average precision, and the recall of the
    ``max_detections`` surest boxes of a film and label.
    """

    precision: Array
    recall: Array
    iou_thresholds: tuple[float, ...]
    labels: tuple[str, ...]
    areas: tuple[str, ...]

    def average_precision(
        self, *, iou_threshold: float | None = None, label: str | None = None, area: str = "all"
    ) -> float:
        """The mean over thresholds and labels, or at one of them; NaN where nothing was measured.

        Args:
            iou_threshold: one of ``iou_thresholds``; None takes the mean over all.
            label: one of ``labels``; None takes the mean over all that some film has.
            area: one of ``areas``.

        Raises:
            ValueError: one of them was not measured.

        Example:
            >>> figures = CocoFigures(np.array([[[0.5], [1.0]]]), np.ones((1, 2, 1)), (0.5,), ("a", "b"), ("all",))
            >>> figures.average_precision(), figures.average_precision(label="b")
            (0.75, 1.0)
        """
        return self._mean(self.precision, iou_threshold, label, area)

    def average_recall(
        self, *, iou_threshold: float | None = None, label: str | None = None, area: str = "all"
    ) -> float:
        """As :meth:`average_precision`, of recall."""
        return self._mean(self.recall, iou_threshold, label, area)

    def _mean(self, figures: Array, iou_threshold: float | None, label: str | None, area: str) -> float:
        chosen = figures[:, :, _index(self.areas, area, "area")]
        if iou_threshold is not None:
            chosen = chosen[[_index(self.iou_thresholds, iou_threshold, "iou_threshold")]]
        if label is not None:
            chosen = chosen[:, [_index(self.labels, label, "label")]]
        return float(mean_of_measured(chosen.ravel()))


def coco_figures(
    films: Sequence[AnsweredFilm],
    iou_thresholds: Sequence[float] = COCO_THRESHOLDS,
    areas: Mapping[str, Area] = COCO_AREAS,
    *,
    labels: str = "exact",
    max_detections: int = 100,
) -> CocoFigures:
    """Average precision and recall as COCO's own code has them.

    Args:
        films: with their answers, which state a confidence for every box.
        iou_thresholds: each in (0, 1].
        areas: ranges of box sizes in pixels by name.
        labels: ``"exact"``, up to case and white space, or ``"ignore"``, all boxes are of one label with an empty name.
            COCO knows no synonyms.
        max_detections: the surest boxes of a film and label that are looked at.

    Raises:
        ValueError: a box states no confidence, or an argument is out of its range.
        ImportError: faster-coco-eval is not installed.

    Example:
        >>> film = AnsweredFilm("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 9]],
        ...                     pred_labels=["mass"], pred_scores=[0.8])
        >>> figures = coco_figures([film])
        >>> round(figures.average_precision(), 6), figures.average_precision(iou_threshold=0.5)
        (0.9, 1.0)

    Source: Lin et al., Microsoft COCO, ECCV 2014; https://github.com/MiXaiLL76/faster_coco_eval.
    """
    _check(films, iou_thresholds, areas, labels, max_detections)
    from faster_coco_eval import COCO, COCOeval_faster

    names = sorted({label_name(label, labels) for film in films for label in film.gt_labels})
    if not names:
        nothing = np.full((len(iou_thresholds), 0, len(areas)), np.nan)
        return CocoFigures(nothing, nothing, tuple(iou_thresholds), (), tuple(areas))
    category = {name: i for i, name in enumerate(names, start=1)}
    truth = COCO(_ground_truth(films, category, labels), print_function=_silent)
    found = truth.loadRes(_results(films, category, labels))
    evaluation = COCOeval_faster(truth, found, "bbox", print_function=_silent)
    evaluation.params.iouThrs = np.asarray(iou_thresholds, dtype=np.float64)
    evaluation.params.areaRng = [[area.low, area.high] for area in areas.values()]
    evaluation.params.areaRngLbl = list(areas)
    evaluation.params.maxDets = [max_detections]
    evaluation.evaluate()
    evaluation.accumulate()
    # thresholds, recall levels, labels, areas, numbers of detections; -1 where there is nothing to find
    precision = np.asarray(evaluation.eval["precision"])[..., 0].mean(axis=1)
    recall = np.asarray(evaluation.eval["recall"])[..., 0]
    return CocoFigures(
        np.where(precision < 0, np.nan, precision),
        np.where(recall < 0, np.nan, recall),
        tuple(iou_thresholds),
        tuple(names),
        tuple(areas),
    )


def states_confidences(films: Sequence[AnsweredFilm]) -> bool:
    """Whether every predicted box has a confidence, so that COCO's ranking exists.

    Example:
        >>> states_confidences([AnsweredFilm("a", 10, 10, pred=[[0, 0, 5, 5]])])
        False
    """
    return not any(np.isnan(film.pred_scores).any() for film in films)


def _ground_truth(films: Sequence[AnsweredFilm], category: Mapping[str, int], labels: str) -> dict[str, Any]:
    annotations = []
    for image, film in enumerate(films, start=1):
        for box, label in zip(_xywh(film.gt), film.gt_labels, strict=True):
            annotations.append(_annotation(image, category[label_name(label, labels)], box, crowd=0))
        for box in _xywh(film.ignore):
            annotations += [_annotation(image, number, box, crowd=1) for number in category.values()]
    return {
        "images": [
            {"id": image, "width": film.width, "height": film.height} for image, film in enumerate(films, start=1)
        ],
        "annotations": [{"id": number, **one} for number, one in enumerate(annotations, start=1)],
        "categories": [{"id": number, "name": name} for name, number in category.items()],
    }


def _annotation(image: int, category: int, box: list[float], *, crowd: int) -> dict[str, Any]:
    return {"image_id": image, "category_id": category, "bbox": box, "area": box[2] * box[3], "iscrowd": crowd}


def _results(films: Sequence[AnsweredFilm], category: Mapping[str, int], labels: str) -> list[dict[str, Any]]:
    return [
        {"image_id": image, "category_id": category[name], "bbox": box, "score": score}
        for image, film in enumerate(films, start=1)
        for box, label, score in zip(_xywh(film.pred), film.pred_labels, film.pred_scores.tolist(), strict=True)
        if (name := label_name(label, labels)) in category
    ]


def _xywh(boxes: Array) -> list[list[float]]:
    with np.errstate(all="ignore"):
        sized = np.column_stack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]])
    return np.where(valid_boxes(boxes)[:, None], sized, _OUTSIDE).tolist()


def _index(legal: Sequence[Any], value: Any, argument: str) -> int:
    if value not in legal:
        raise ValueError(
            f"Expected what was measured for `{argument}`, got {value!r}. Use one of: {', '.join(map(str, legal))}."
        )
    return legal.index(value)


def _check(
    films: Sequence[AnsweredFilm],
    iou_thresholds: Sequence[float],
    areas: Mapping[str, Area],
    labels: str,
    max_detections: int,
) -> None:
    if not states_confidences(films):
        raise ValueError(
            "Expected a confidence for every predicted box for `films`, got boxes without one. COCO's ranking does "
            'not exist there: use average_precision(films, ranking="tied") and say so.'
        )
    if not len(iou_thresholds) or not all(0 < threshold <= 1 for threshold in iou_thresholds):
        raise ValueError(
            f"Expected numbers in (0, 1] for `iou_thresholds`, got {list(iou_thresholds)!r}. The usual value is 0.5."
        )
    if labels not in ("exact", "ignore"):
        raise ValueError(
            f"Expected 'exact' or 'ignore' for `labels`, got {labels!r}. COCO knows no other comparison; "
            "average_precision does."
        )
    if labels == "exact" and not all(label_name(label, labels) for film in films for label in film.gt_labels):
        raise ValueError(
            "Expected a label for every reference box for `films`, got a blank one. "
            'Name the finding, or use labels="ignore".'
        )
    for name, area in areas.items():
        if area.of != "pixels":
            raise ValueError(
                f"Expected ranges in pixels for `areas`, got {name!r} in parts of the film. "
                "COCO knows pixels only; average_precision takes both."
            )
    if max_detections < 1:
        raise ValueError(
            f"Expected a positive whole number for `max_detections`, got {max_detections!r}. COCO takes 100."
        )


def _silent(*_: Any) -> None:
    """Takes what the library would print."""
