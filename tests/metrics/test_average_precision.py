"""Average precision against COCO's own code, against sums written out, and by hand."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.average_precision import (
    average_precision,
    average_precision_by_label,
    jackknifed_mean_average_precision,
    mean_average_precision,
    precision_recall_curve,
)
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.jackknife import jackknifed_difference
from grounding_rewards.metrics.ranking import COCO_THRESHOLDS, RankedFilms, rank_boxes, tied_share
from grounding_rewards.metrics.sizes import COCO_AREAS, FILM_AREAS
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BrokenBox
from grounding_rewards.rewards import AveragePrecisionReward
from tests.conftest import valid_box_lists
from tests.metrics.coco_oracle import ENGINES, coco_average_precision, coco_mean_average_precision
from tests.metrics.random_films import random_films, without_confidences

HIT, HIT_TOO, JUNK = [0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]


def by_label(films: list[AnsweredFilm], *args: Any, **kwargs: Any) -> RankedFilms:
    return rank_boxes(films, *args, label_matching="exact", **kwargs)


@pytest.mark.parametrize("area", ["all", "small", "medium", "large"])
@pytest.mark.parametrize("seed", range(8))
def test_equal_to_pycocotools_and_faster_coco_eval(seed: int, area: str) -> None:
    # several labels, equal confidences, crowds, films without boxes; every second seed with whole numbers
    films = random_films(seed, whole_numbers=seed % 2 == 0)
    ranked = by_label(films, area=COCO_AREAS[area])
    mine = mean_average_precision(ranked)
    for engine in ENGINES:
        expected = coco_average_precision(films, area=COCO_AREAS[area], engine=engine)
        assert mine == pytest.approx(np.nanmean(list(expected.values())), abs=1e-6)
        for label, aps in expected.items():
            for t in (0, 5, 9):
                own = average_precision(ranked, COCO_THRESHOLDS[t], label=label)
                assert own == pytest.approx(aps[t], abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("max_detections", [1, 3])
def test_the_highest_scoring_boxes_are_those_of_coco(max_detections: int, engine: str) -> None:
    films = random_films(100, whole_numbers=True)
    expected = coco_mean_average_precision(films, [0.3], max_detections=max_detections, engine=engine)
    ranked = by_label(films, [0.3], max_detections=max_detections)
    assert mean_average_precision(ranked) == pytest.approx(expected, abs=1e-6)


def films_by_hand() -> list[AnsweredFilm]:
    return [
        AnsweredFilm(
            "a",
            100,
            100,
            gt=[[0, 0, 10, 10], [40, 40, 90, 90]],
            gt_labels=["Mass", "effusion"],
            pred=[[0, 0, 10, 9]],
            pred_labels=["mass "],
            pred_scores=[0.8],
        )
    ]


@pytest.mark.parametrize(
    ("iou_thresholds", "area", "expected"),
    [
        ([0.5, 0.95], "all", 0.25),  # of two labels and two thresholds one is found
        ([0.5], "small", 1.0),  # the mass, 100 pixels
        ([0.5, 0.95], "medium", 0.0),  # the effusion, 2500
        ([0.5, 0.95], "large", math.nan),
    ],
)
def test_figures_by_hand_here_and_in_coco(iou_thresholds: list[float], area: str, expected: float) -> None:
    films, size = films_by_hand(), COCO_AREAS[area]
    found = [coco_mean_average_precision(films, iou_thresholds, area=size, engine=engine) for engine in ENGINES]
    found.append(mean_average_precision(by_label(films, iou_thresholds, area=size)))
    assert found == pytest.approx([expected] * 3, nan_ok=True)
    assert average_precision(by_label(films), 0.5, label="mass") == 1.0


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_can_be_left_out_of_it(engine: str) -> None:
    films = random_films(0)
    expected = coco_mean_average_precision(films, [0.5], label_matching="ignore", engine=engine)
    assert average_precision(rank_boxes(films)) == pytest.approx(expected, abs=1e-6)
    assert average_precision(rank_boxes(films)) > coco_mean_average_precision(films, [0.5], engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_label_that_no_film_has_and_a_box_without_one_play_no_part(engine: str) -> None:
    film = AnsweredFilm(
        "a",
        100,
        100,
        gt=[[0, 0, 10, 10]],
        gt_labels=["mass"],
        pred=[[0, 0, 10, 10], [20, 20, 30, 30], [20, 20, 30, 30]],
        pred_labels=["mass", "invented", None],
        pred_scores=[0.1, 0.9, 0.9],
    )
    assert mean_average_precision(by_label([film], [0.5])) == pytest.approx(1.0)
    assert coco_mean_average_precision([film], [0.5], engine=engine) == pytest.approx(1.0)


def of_all_points(films: list[AnsweredFilm], key: Any) -> tuple[float, float]:
    """All-point and 11-point AP of one label without ignore regions: sums written out over a sorted list."""
    boxes = sorted(
        ((key(film, i), f, i) for f, film in enumerate(films) for i in range(len(film.pred))), key=lambda box: box[0]
    )
    free = [list(range(len(film.gt))) for film in films]
    total = sum(len(film.gt) for film in films)
    curve, right = [], 0
    for seen, (_, f, i) in enumerate(boxes, start=1):
        x1, y1, x2, y2 = films[f].pred[i]
        best, chosen = 0.5, None
        for j in free[f]:
            u1, v1, u2, v2 = films[f].gt[j]
            inter = max(0.0, min(x2, u2) - max(x1, u1)) * max(0.0, min(y2, v2) - max(y1, v1))
            iou = inter / ((x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - inter)
            if iou >= best:
                best, chosen = iou, j
        if chosen is not None:
            free[f].remove(chosen)
            right += 1
        curve.append((right / total, right / seen))

    def best_from(recall: float) -> float:
        return max((precision for reached, precision in curve if reached >= recall), default=0.0)

    levels = sorted({recall for recall, _ in curve})
    area = sum((b - a) * best_from(b) for a, b in zip([0.0, *levels], levels, strict=False))
    return area, sum(
        best_from(level) for level in np.arange(0, 1.1, 0.1)
    ) / 11  # 0.30000000000000004 in VOC's code, too


@pytest.mark.parametrize("seed", range(5))
def test_all_points_and_11_points_are_the_sums_written_out(seed: int) -> None:
    films = [replace(film, ignore=np.zeros((0, 4))) for film in random_films(seed, 12)]
    area, levels = of_all_points(films, lambda film, i: -film.pred_scores[i])
    assert average_precision(rank_boxes(films), interpolation="all") == pytest.approx(area, abs=1e-12)
    assert average_precision(rank_boxes(films), interpolation="11") == pytest.approx(levels, abs=1e-12)


def two_films() -> list[AnsweredFilm]:
    """By hand: film one has two findings and names hit, junk; film two has one and names junk, hit."""
    return [
        AnsweredFilm("one", 100, 100, gt=[HIT, HIT_TOO], gt_labels=["mass", "mass"], pred=[HIT, JUNK]),
        AnsweredFilm("two", 100, 100, gt=[HIT], gt_labels=["mass"], pred=[JUNK, HIT]),
    ]


@pytest.mark.parametrize(
    ("ranking", "interpolation", "expected"),
    [
        # tied: precision 2/4 at recall 2/3
        ("tied", "all", 2 / 4 * 2 / 3),
        ("tied", "101", 67 / 101 * 2 / 4),  # levels 0.00 … 0.66
        ("tied", "11", 7 / 11 * 2 / 4),  # levels 0.0 … 0.6
        # first boxes: one right of two, recall 1/3; then two of four, recall 2/3: precision 1/2 at both
        ("emission", "all", 1 / 2 * 2 / 3),
        # no confidence is stated: as tied
        ("score", "all", 2 / 4 * 2 / 3),
    ],
)
def test_answers_without_confidences_by_hand(ranking: str, interpolation: str, expected: float) -> None:
    ranked = rank_boxes(two_films(), ranking=ranking)
    assert average_precision(ranked, interpolation=interpolation) == pytest.approx(expected)


def test_boxes_without_a_confidence_come_after_all_others_as_one_group() -> None:
    # by hand: a right box at 0.2, then one right of two: 1/3 at precision 1, 1/3 at precision 2/3
    one = AnsweredFilm("one", 100, 100, gt=[HIT, HIT_TOO], gt_labels=["", ""], pred=[HIT_TOO], pred_scores=[0.2])
    two = AnsweredFilm("two", 100, 100, gt=[HIT], gt_labels=[""], pred=[JUNK, HIT])
    expected = 1 / 3 + 1 / 3 * 2 / 3
    for films in ([one, two], [two, one]):
        assert average_precision(rank_boxes(films), interpolation="all") == pytest.approx(expected)


@pytest.mark.parametrize("ranking", ["emission", "tied"])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_films_changes_nothing_without_confidences(seed: int, ranking: str) -> None:
    films = without_confidences(random_films(seed))
    turned = films[::-1]
    for thresholds in ([0.5], COCO_THRESHOLDS):
        one, other = (mean_average_precision(by_label(order, thresholds, ranking=ranking)) for order in (films, turned))
        assert one == pytest.approx(other, abs=1e-12)


@given(valid_box_lists(max_size=6), valid_box_lists(min_size=1, max_size=4))
def test_tied_ap_of_one_film_is_the_reward_r1(pred: list[list[float]], gt: list[list[float]]) -> None:
    # without ignored regions, of which AP has COCO's rule: there one excuses any number
    film = AnsweredFilm("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=pred)
    reward = AveragePrecisionReward(ranking="tied").score(np.reshape(pred, (-1, 4)), gt)
    ranked = rank_boxes([film], ranking="tied")
    assert average_precision(ranked, interpolation="all") == pytest.approx(reward, abs=1e-12)


@given(valid_box_lists(max_size=6), valid_box_lists(min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_tied_ap_does_not_depend_on_the_order_of_boxes(
    pred: list[list[float]], gt: list[list[float]], random: Any
) -> None:
    mixed = random.sample(pred, len(pred))
    first, second = (AnsweredFilm("a", 30, 30, gt=gt, gt_labels=[""] * len(gt), pred=boxes) for boxes in (pred, mixed))
    found = [average_precision(rank_boxes([film], ranking="tied")) for film in (first, second)]
    # equal overlaps are settled by the order in which the answer names them, which may cost a match
    ious = pairwise_iou(np.reshape(pred, (-1, 4)), gt).max(axis=1)
    if len(set(ious.tolist())) == len(ious):
        assert found[0] == found[1]


def test_broken_boxes_count_as_false_ones() -> None:
    truth: dict[str, Any] = {"gt": [HIT], "gt_labels": ["mass"], "pred": [HIT], "pred_labels": ["mass"]}
    before, after = (AnsweredFilm("a", 100, 100, **truth, broken=(BrokenBox(place, "mass"),)) for place in (0, 1))
    for film in (before, after):
        assert average_precision(rank_boxes([film], ranking="tied"), interpolation="all") == 0.5
    # in the order of the answer, and under its own label
    for film, expected in ((before, 0.5), (after, 1.0)):
        assert average_precision(rank_boxes([film], ranking="emission"), interpolation="all") == expected
        ranked = by_label([film], ranking="emission")
        assert average_precision(ranked, label="mass", interpolation="all") == expected
        assert AnsweredFilm.of_json(film.as_json()).broken == film.broken


def test_invalid_boxes_are_false_ones_here_and_in_coco() -> None:
    broken = [[5.0, 5.0, 0.0, 0.0], [math.nan, 0, 1, 1], [0, 0, math.inf, 5], [3.0, 3.0, 3.0, 9.0]]
    film = AnsweredFilm(
        "a",
        100,
        100,
        gt=[HIT],
        gt_labels=["mass"],
        pred=[*broken, HIT],
        pred_labels=["mass"] * 5,
        pred_scores=[0.9, 0.9, 0.9, 0.9, 0.1],
    )
    assert average_precision(by_label([film]), label="mass") == pytest.approx(1 / 5)
    for engine in ENGINES:
        assert coco_mean_average_precision([film], [0.5], engine=engine) == pytest.approx(1 / 5)


def test_synonyms_match_unless_their_sides_contradict() -> None:
    film = AnsweredFilm(
        "a",
        100,
        100,
        gt=[HIT, HIT_TOO],
        gt_labels=["left pleural effusion", "Cardiomegaly"],
        pred=[HIT, HIT_TOO],
        pred_labels=["Effusion", "enlarged heart"],
        pred_scores=[0.5, 0.5],
    )
    assert mean_average_precision(rank_boxes([film], [0.5], label_matching="synonyms")) == 1.0
    assert mean_average_precision(rank_boxes([film], [0.5], label_matching="exact")) == 0.0
    contradicted = replace(film, pred_labels=("right effusion", "enlarged heart"))
    ranked = rank_boxes([contradicted], [0.5], label_matching="synonyms")
    found = average_precision_by_label(ranked)
    assert {name: one.value for name, one in found.items()} == {"cardiomegaly": 1.0, "pleural effusion": 0.0}


@pytest.mark.parametrize("ranking", ["score", "emission", "tied"])
@pytest.mark.parametrize("interpolation", ["101", "all", "11"])
def test_leaving_out_a_patient_is_taking_the_figure_of_the_others(ranking: str, interpolation: str) -> None:
    films = random_films(3, 8)
    if ranking == "score":
        # Of equal confidences COCO takes one film's after another's, so that two copies of a film don't come together.
        places = iter(np.random.default_rng(0).permutation(100) / 100)
        films = [replace(film, pred_scores=[next(places) for _ in film.pred]) for film in films]
    else:
        films = without_confidences(films)
    found = jackknifed_mean_average_precision(
        by_label(films, [0.3, 0.5], ranking=ranking),
        interpolation=interpolation,
        groups=[film.patient for film in films],
    )
    for k, value in enumerate(found.left_out):
        others = [film for i, film in enumerate(films) if i // 2 != k]
        expected = mean_average_precision(by_label(others, [0.3, 0.5], ranking=ranking), interpolation=interpolation)
        assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_two_runs_are_compared_patient_by_patient() -> None:
    before = random_films(5, 30)
    after = [
        replace(film, pred=film.gt, pred_labels=film.gt_labels, pred_scores=np.ones(len(film.gt))) for film in before
    ]
    a, b = (jackknifed_mean_average_precision(by_label(films, [0.5])) for films in (before, after))
    change = jackknifed_difference(a, b).estimate
    assert b.value == 1.0
    assert change.value == 1 - a.value
    assert 0 < change.low < change.value < change.high < 1


def test_the_mean_of_the_curve_is_the_average_precision() -> None:
    films = random_films(1)
    ranked = by_label(films)
    curve = precision_recall_curve(ranked, label="mass", name="mass", resamples=50)
    assert curve.name == "mass"
    assert curve.y.mean() == pytest.approx(average_precision(ranked, label="mass"))
    assert curve.low is not None
    assert curve.high is not None
    assert (curve.low <= curve.high).all()
    assert (np.diff(curve.y) <= 0).all()
    tied = precision_recall_curve(rank_boxes(films, ranking="tied"), resamples=50)
    assert [len(part) for part in tied[1:] if part is not None] == [1, 1, 1, 1]


def test_sizes_are_parts_of_the_film_or_pixels() -> None:
    small, large = [0, 0, 9, 10], [40, 40, 90, 90]  # 0.9 % and 25 % of the film
    film = AnsweredFilm("a", 100, 100, gt=[small, large], gt_labels=["", ""], pred=[large], pred_scores=[0.5])
    assert [average_precision(rank_boxes([film], area=area)) for area in FILM_AREAS.values()] == pytest.approx(
        [0.0, math.nan, 1.0], nan_ok=True
    )


@pytest.mark.parametrize(
    "films",
    [
        [],
        [AnsweredFilm("a", 10, 10)],  # normal, and the answer says so
        [AnsweredFilm("a", 10, 10, pred=[[0, 0, 5, 5]], pred_scores=[0.5], pred_labels=["mass"])],  # normal, with a box
    ],
)
def test_without_a_reference_box_there_is_no_figure(films: list[AnsweredFilm]) -> None:
    assert math.isnan(average_precision(rank_boxes(films)))
    assert math.isnan(mean_average_precision(by_label(films)))
    assert math.isnan(coco_mean_average_precision(films))
    assert all(map(math.isnan, jackknifed_mean_average_precision(by_label(films)).estimate))
    assert average_precision_by_label(by_label(films)) == {}
    assert len(precision_recall_curve(rank_boxes(films)).x) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"iou_thresholds": [0.0]}, r"numbers in \(0, 1\] for the IoU thresholds, got \[0.0\]"),
        ({"ranking": "iou"}, "known word for `ranking`, got 'iou'. Use one of: score, emission, tied"),
        ({"label_matching": "fuzzy"}, "known word for `label_matching`, got 'fuzzy'"),
        ({"max_detections": 0}, "positive whole number for `max_detections`, got 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"Expected a? ?{message}"):
        rank_boxes(random_films(0, 2), **arguments)


@pytest.mark.parametrize(
    ("label_matching", "arguments", "message"),
    [
        ("ignore", {"label": "mass"}, "label that is compared for `label`, got 'mass' with label_matching='ignore'"),
        ("exact", {}, "label for `label`, got None with label_matching='exact'"),
        ("ignore", {"interpolation": "7"}, "known word for `interpolation`, got '7'"),
        ("ignore", {"iou_threshold": 0.3}, r"one of \[0.5, 0.9\] for the IoU threshold, got 0.3"),
    ],
)
def test_wrong_questions_are_refused(label_matching: str, arguments: dict[str, Any], message: str) -> None:
    ranked = rank_boxes(random_films(0, 2), [0.5, 0.9], label_matching=label_matching)
    with pytest.raises(ValueError, match=f"Expected a? ?{message}"):
        average_precision(ranked, **arguments)


def test_all_boxes_together_and_the_mean_over_labels_are_two_figures() -> None:
    films = random_films(0)
    assert average_precision(rank_boxes(films)) != mean_average_precision(by_label(films), [0.5])


def test_a_blank_reference_label_is_refused_where_labels_are_compared() -> None:
    film = AnsweredFilm("a", 10, 10, gt=[[0, 0, 5, 5]], gt_labels=[" "])
    assert average_precision(rank_boxes([film])) == 0.0
    with pytest.raises(ValueError, match="Expected a label for every reference box"):
        by_label([film])


@pytest.mark.parametrize("source", ["nih_chestxray14", "chestx_det"])
def test_equal_to_coco_on_real_annotations(source: str, shared_dir: Path) -> None:
    """Real boxes and labels; predictions are the boxes moved by a tenth of their size, some left out, some invented."""
    folder = shared_dir / "data" / "annotations" / source
    rng = np.random.default_rng(0)
    films = []
    for name, (boxes, labels) in (_nih(folder) if source.startswith("nih") else _chestx_det(folder)).items():
        gt = np.array(boxes, dtype=float).reshape(-1, 4)
        side = np.tile(gt[:, 2:] - gt[:, :2], 2)
        pred = np.concatenate([gt + rng.normal(0, 0.1, gt.shape) * side, rng.permutation(gt)[:1] * 0.9])
        pred_labels = [*labels, *labels[:1]]
        kept = rng.random(len(pred)) < 0.8
        films.append(
            AnsweredFilm(
                name,
                1024,
                1024,
                gt=gt,
                gt_labels=labels,
                pred=pred[kept],
                pred_labels=[label for label, keep in zip(pred_labels, kept, strict=True) if keep],
                pred_scores=rng.integers(0, 21, kept.sum()) / 20,
            )
        )
    ranked = by_label(films)
    for engine in ENGINES:
        figures = coco_average_precision(films, engine=engine)
        expected = np.mean(list(figures.values()))
        assert 0.05 < expected < 0.95
        assert mean_average_precision(ranked) == pytest.approx(expected, abs=1e-6)
        for label, aps in figures.items():
            for threshold in (0.5, 0.75):
                t = int(np.argmin(np.abs(np.array(COCO_THRESHOLDS) - threshold)))
                assert average_precision(ranked, threshold, label=label) == pytest.approx(aps[t], abs=1e-6)


def _nih(folder: Path) -> dict[str, tuple[list[list[float]], list[str]]]:
    films: dict[str, tuple[list[list[float]], list[str]]] = defaultdict(lambda: ([], []))
    with (folder / "BBox_List_2017.csv").open(encoding="utf-8") as file:
        for row in list(csv.reader(file))[1:]:
            x, y, w, h = map(float, row[2:6])
            films[row[0]][0].append([x, y, x + w, y + h])
            films[row[0]][1].append(row[1])
    return films


def _chestx_det(folder: Path) -> dict[str, tuple[list[list[float]], list[str]]]:
    records = json.loads((folder / "ChestX_Det_test.sample.json").read_text(encoding="utf-8"))
    return {record["file_name"]: (record["boxes"], record["syms"]) for record in records}


@pytest.mark.parametrize("label_matching", ["exact", "ignore"])
def test_several_sets_of_thresholds_of_one_ranking(label_matching: str) -> None:
    films = random_films(4)
    groups = [film.patient for film in films]
    ranked = rank_boxes(films, sorted({0.3, *COCO_THRESHOLDS}), label_matching=label_matching)
    for thresholds in ((0.3,), (0.5,), COCO_THRESHOLDS):
        found = jackknifed_mean_average_precision(ranked, thresholds, groups=groups)
        alone = jackknifed_mean_average_precision(
            rank_boxes(films, thresholds, label_matching=label_matching), groups=groups
        )
        assert found.value == pytest.approx(alone.value, abs=1e-12)
        assert found.left_out == pytest.approx(alone.left_out, abs=1e-12, nan_ok=True)


def test_many_labels_of_one_film_each() -> None:
    """The mean over labels is that of the labels one by one, without a film those of the others."""
    films = [
        replace(film, gt_labels=tuple(f"{k} {one}" for one in film.gt_labels), pred_labels=film.gt_labels[:0])
        for k, film in enumerate(random_films(8, 12))
    ]
    films = [
        replace(film, pred=film.gt, pred_labels=film.gt_labels, pred_scores=np.ones(len(film.gt)))
        if k % 2
        else replace(film, pred=[], pred_labels=(), pred_scores=[])
        for k, film in enumerate(films)
    ]
    found = jackknifed_mean_average_precision(by_label(films, [0.5]))
    number = np.array([len(set(film.gt_labels)) for film in films])
    right = number * (np.arange(len(films)) % 2)
    others = 1 - np.eye(len(films))
    assert found.value == pytest.approx(right.sum() / number.sum())
    assert found.left_out == pytest.approx((others @ right) / (others @ number))


def tied_films(hits: Sequence[bool], confidence: float = 0.5) -> list[AnsweredFilm]:
    """A film with one finding each, and one box of equal confidence that is right or not."""
    return [
        AnsweredFilm(
            f"{k}",
            100,
            100,
            gt=[[0, 0, 10, 10]],
            gt_labels=["mass"],
            pred=[[0, 0, 10, 10] if hit else [50, 50, 60, 60]],
            pred_scores=[confidence],
        )
        for k, hit in enumerate(hits)
    ]


@pytest.mark.parametrize(
    ("hits", "in_order"),
    [
        ([True, False], 0.5),  # recall 1/2 at precision 1
        ([False, True], 0.25),  # at precision 1/2
        ([True, True, False, False], 0.5),
        ([False, False, True, True], 0.25),  # recalls 1/4 and 1/2, both at precision 2/4 at best
    ],
)
def test_equal_confidences_are_taken_in_the_order_of_films_or_together(hits: list[bool], in_order: float) -> None:
    ranked = rank_boxes(tied_films(hits), [0.5])
    assert average_precision(ranked, 0.5, interpolation="all") == in_order
    # one point: recall 1/2 at precision 1/2
    assert average_precision(ranked, 0.5, interpolation="all", ties_together=True) == 0.25
    assert ranked.tied_share == 1.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("labels", ["ignore", "exact"])
def test_with_ties_together_the_order_of_the_films_decides_nothing(seed: int, labels: str) -> None:
    films = random_films(seed)
    orders = [films, films[::-1], [films[k] for k in np.random.default_rng(seed).permutation(len(films))]]
    ranked = [rank_boxes(one, [0.5], label_matching=labels) for one in orders]
    together = [mean_average_precision(one, ties_together=True) for one in ranked]
    assert together == pytest.approx([together[0]] * 3, abs=1e-12)
    assert len({round(mean_average_precision(one), 9) for one in ranked}) > 1
    assert jackknifed_mean_average_precision(ranked[0], ties_together=True).value == together[0]


def test_boxes_that_share_their_confidence_with_another_film() -> None:
    films = [
        AnsweredFilm("a", 9, 9, pred=[[0, 0, 4, 4]] * 3, pred_scores=[0.9, 0.9, 0.5]),
        AnsweredFilm("b", 9, 9, pred=[[0, 0, 4, 4]] * 2, pred_scores=[0.5, math.nan]),
        AnsweredFilm("c", 9, 9, pred=[[0, 0, 4, 4]], pred_scores=[math.nan]),
    ]
    # 0.5 of two films; 0.9 stands on one film alone, and no confidence is none
    assert tied_share(films) == 2 / 6
    assert math.isnan(tied_share([]))


def test_an_evaluation_says_that_confidences_are_tied() -> None:
    films = [replace(film, rewards={"R4": 0.5}) for film in tied_films([True, False, True])]
    found = evaluate({"model": films}, Measures("R4", resamples=10))
    figures = found.systems["model"]
    assert figures["tied_share"].value == 1.0
    assert math.isnan(figures["tied_share"].low)
    assert figures["ap_50_ties"].value < figures["ap_50"].value
    assert found.headings["ap_50_ties"] == "AP at IoU 0.5, ties together"
    apart = [replace(film, pred_scores=[0.1 * k]) for k, film in enumerate(films)]
    assert {"tied_share", "ap_50_ties"}.isdisjoint(evaluate({"model": apart}, Measures("R4", resamples=10)).figures)
