"""Comparing two runs: by hand, its tests against scipy and brute force, and what it says in words."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.comparison import compare_runs, holm
from grounding_rewards.metrics.intervals import ratio_estimates
from tests.metrics.test_intervals import difference

BOX = [0.0, 0.0, 10.0, 10.0]


def part(iou: float) -> list[list[float]]:
    """A predicted box that has this IoU with BOX; none for 0."""
    return [[0.0, 0.0, 10.0, 10.0 * iou]] if iou else []


def image(name: Any, iou: float, label: str = "mass", *, side: float = 100, **others: Any) -> AnsweredImage:
    return AnsweredImage(
        str(name), side, side, gt=[BOX], gt_labels=[label], **{"pred": part(iou), "status": "boxes", **others}
    )


def run(ious: Sequence[float], **others: Any) -> list[AnsweredImage]:
    return [image(i, iou, **others) for i, iou in enumerate(ious)]


def test_a_comparison_by_hand() -> None:
    a = run([0.2, 0.6, 0.6, 0.8])
    b = [*run([0.6, 0.6, 0.8, 0.4]), image("only", 1.0)]
    found = compare_runs(a, b, seed=3, resamples=200)
    assert (found.images, found.only_a, found.only_b, found.units, found.n) == (4, 0, 1, "images", 4)
    iou = found.metrics["mean_iou"]
    sums_a, sums_b = (np.column_stack([one, np.ones(4)]) for one in ([0.2, 0.6, 0.6, 0.8], [0.6, 0.6, 0.8, 0.4]))
    assert iou.a == pytest.approx(ratio_estimates({"": sums_a})[""])
    assert iou.b == pytest.approx(ratio_estimates({"": sums_b})[""])
    assert iou.difference == pytest.approx(difference(sums_a, sums_b))
    assert iou.units == (2, 1, 1)
    # The images change places in 8 ways. The differences 0.4, 0.2 and -0.4 have the sums ±0.2 in 4 of them, ±0.6 in 2
    # and ±1 in 2: all are as large as 0.2, in standard errors too.
    assert iou.p == 1.0
    # A hits three of four with four boxes, B three: F1 is the same, on two images it is not
    f1 = found.metrics["f1_50"]
    assert (f1.a.value, f1.b.value, f1.difference.value) == (0.75, 0.75, 0.0)
    assert (f1.units, f1.p) == ((1, 1, 2), 1.0)


def test_less_is_better_for_hallucinations() -> None:
    a = [AnsweredImage(str(i), 9, 9, pred=[BOX]) for i in range(9)]
    b = [AnsweredImage(str(i), 9, 9, status="empty") for i in range(9)]
    found = compare_runs(a, b).metrics["hallucination_rate"]
    assert found.difference == (-1.0, -1.0, -1.0)
    assert found.units == (9, 0, 0)
    assert found.p == 2 / 2**9
    assert (found.direction(), found.shown_by_interval()) == (1, 1)
    assert compare_runs(b, a).metrics["hallucination_rate"].direction() == -1


def test_a_run_does_not_differ_from_itself() -> None:
    images = [*run([0.1, 0.6, 0.9]), AnsweredImage("n", 9, 9, status="empty", rewards={"R1": 0.2})]
    found = compare_runs(images, images)
    for change in found.metrics.values():
        assert change.difference.value == 0 or math.isnan(change.difference.value)
        assert change.units[:2] == (0, 0)
        assert math.isnan(change.p)
    assert found.verdict.startswith("No difference between A and B can be shown")


def test_images_of_one_patient_are_left_out_and_counted_together() -> None:
    # ten images of one patient are better, those of two others the same
    patients = ["p"] * 10 + ["q", None]
    a = [image(i, 0.2, patient=patient) for i, patient in enumerate(patients)]
    b = [image(i, 0.8 if patient == "p" else 0.2, patient=patient) for i, patient in enumerate(patients)]
    found = compare_runs(a, b)
    iou = found.metrics["mean_iou"]
    assert (found.units, found.n) == ("patients", 3)
    assert iou.units == (1, 0, 2)
    assert iou.difference.low < 0 < iou.difference.high  # without the patient, no difference
    # the order of images is no matter, and a patient that one run does not know is known from the other
    again = compare_runs(a, [image(one.id, 0.8 if i < 10 else 0.2) for i, one in enumerate(b)][::-1])
    assert again.metrics["mean_iou"] == iou


def test_labels_and_sizes_are_those_of_the_reference_boxes() -> None:
    # masses get better, nodules worse; a mass has 1 % of its image, a nodule 100 of 400 pixels
    def both(ious: tuple[float, float]) -> list[AnsweredImage]:
        masses = [image(f"m{i}", ious[0]) for i in range(12)]
        return masses + [image(f"n{i}", ious[1], "nodule", side=20) for i in range(8)]

    found = compare_runs(both((0.2, 0.9)), both((0.6, 0.4)))
    assert [(group.name, group.boxes) for group in found.labels] == [("mass", 12), ("nodule", 8)]
    assert [(group.name, group.boxes) for group in found.sizes] == [
        ("medium, 1 % to 10 % of the image", 12),
        ("large, above 10 % of the image", 8),
    ]
    for groups in (found.labels, found.sizes):
        assert [list(group.changes) for group in groups] == [["mean_iou", "recall_50"]] * 2
        first, second = (group.changes["mean_iou"] for group in groups)
        assert first.difference == pytest.approx((0.4, 0.4, 0.4))
        assert second.difference == pytest.approx((-0.5, -0.5, -0.5))
        # four tests: 0.5^11 times 4 for the least p; 0.5^7 times 2 for the others
        assert [first.holm, second.holm] == pytest.approx([4 * 0.5**11, 2 * 0.5**7])
    assert found.verdict.endswith(
        "by label, mean IoU is better on mass (+0.400) and worse on nodule (-0.500); "
        "by size, mean IoU is better on medium, 1 % to 10 % of the image (+0.400) and worse on large, above 10 "
        "% of the "
        "image (-0.500)."
    )


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        # every one of 10 images is found: p = 2 / 2^10
        (
            run([0.2] * 10),
            run([0.6] * 10),
            "B is better than A: F1 at IoU 0.5 is 1.000 against 0.000, +1.000 [+1.000, +1.000], "
            "better on 10 and worse on 0 of 10 images (p = 0.002); ",
        ),
        (run([0.6] * 10), run([0.2] * 10), "B is worse than A: F1 at IoU 0.5 is 0.000 against 1.000, -1.000 "),
        # five images: none of the 32 ways to change places is rare enough
        (
            run([0.2] * 5),
            run([0.6] * 5),
            "B is better than A on average, which the permutation test does not confirm: F1 at IoU 0.5 is 1.000 "
            "against 0.000, +1.000 [+1.000, +1.000], better on 5 and worse on 0 of 5 images (p = 0.062); "
            "by label, no difference can be shown; by size, no difference can be shown.",
        ),
        (run([0.6, 0.2] * 4), run([0.2, 0.6] * 4), "No difference between A and B can be shown: F1 at IoU 0.5 is"),
        # normal images on which nobody says anything
        (
            [AnsweredImage("1", 9, 9)],
            [AnsweredImage("1", 9, 9)],
            "Nothing can be said: F1 at IoU 0.5 cannot be measured in both runs.",
        ),
    ],
)
def test_verdicts(a: list[AnsweredImage], b: list[AnsweredImage], verdict: str) -> None:
    assert compare_runs(a, b).verdict.startswith(verdict)


def test_the_verdict_is_about_the_metric_that_was_chosen() -> None:
    a = run([0.6] * 9, rewards={"R4": 0.1})
    b = run([0.6] * 9, rewards={"R4": 0.3, "R1": 1.0})
    found = compare_runs(a, b, main="reward_R4")
    assert found.verdict.startswith("B is better than A: reward R4 is 0.300 against 0.100, +0.200 ")
    # what one run alone has is not compared
    assert "reward_R1" not in found.metrics


@pytest.mark.parametrize(
    ("b", "options", "message"),
    [
        ([], {}, "images that both runs have, got none: 2 in A and 0 in B"),
        ([image(7, 0.5)], {}, "no id in common. Compare runs on the same dataset"),
        ([image(0, 0.5), image(0, 0.5)], {}, "one image per id in run B, got 1 too many, '0' among them"),
        ([image(0, 0.5, "nodule"), image(1, 0.5)], {}, "got others on 1 of 2 images: the labels of '0' differ"),
        ([AnsweredImage("1", 100, 100)], {}, "got others on 1 of 1 images: the reference boxes of '1' differ"),
        (run([0.5, 0.5], ignore=[BOX]), {}, "on 2 of 2 images: the ignored regions of '0' differ"),
        (run([0.5, 0.5], side=99), {}, "width and height of '0' differ"),
        (run([0.5, 0.5], patient="q"), {}, "the patients of '0' differ"),
        (run([0.5, 0.5]), {"main": "map"}, "a metric of both runs for `main`, got 'map'. They have: mean_iou, f1_50"),
        (run([0.5, 0.5]), {"resamples": 0}, "Expected at least 1 for `resamples`, got 0"),
        (run([0.5, 0.5]), {"seed": -1}, "Expected a whole number from 0 up for `seed`, got -1"),
    ],
)
def test_runs_that_cannot_be_compared(b: list[AnsweredImage], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_runs(run([0.5, 0.5], patient="p"), b, **options)


def test_json_has_no_nan() -> None:
    images = [*run([0.1, 0.6]), AnsweredImage("n", 9, 9, status="empty")]
    content = json.loads(json.dumps(compare_runs(images, images).to_dict(), allow_nan=False))
    assert content["images"] == {"both": 3, "only_a": 0, "only_b": 0}
    assert content["units"] == {"name": "images", "count": 3}
    assert content["metrics"]["label_accuracy"]["a"] == [None, None, None]
    assert content["labels"]["mass"]["boxes"] == 2
    iou = content["labels"]["mass"]["mean_iou"]
    assert iou["units"] == {"better": 0, "worse": 0, "tied": 2}
    assert iou["permutation_test"] == {"p": None, "holm": None}


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_is_the_closed_test_with_bonferroni(p_values: list[float]) -> None:
    # The largest Bonferroni p over all sets of tests that a test is in; Marcus, Peritz and Gabriel 1976.
    numbers = range(len(p_values))
    sets = [one for k in numbers for one in combinations(numbers, k + 1)]
    closed = [max(min(1.0, len(one) * min(p_values[j] for j in one)) for one in sets if i in one) for i in numbers]
    assert holm(p_values) == pytest.approx(closed)
    assert holm([*p_values, math.nan])[:-1] == pytest.approx(closed)


def sure(images: Sequence[AnsweredImage]) -> list[AnsweredImage]:
    return [replace(image, pred_scores=[0.9] * len(image.pred)) for image in images]


def test_metrics_of_a_ranking_have_a_test_of_their_own() -> None:
    rng = np.random.default_rng(3)
    a = sure(run(np.where(rng.random(60) < 0.4, 0.8, 0.2).tolist()))
    b = sure(run(np.where(rng.random(60) < 0.9, 0.8, 0.2).tolist()))
    found = compare_runs(a, b).metrics
    assert found["ap_50"].p < 0.001
    assert found["froc"].p < 0.001
    assert found["ap_50"].direction() == found["ap_50"].direction(adjusted=True) == 1
    # a family of its own
    ranked = [change for key, change in found.items() if key.startswith(("ap_", "froc", "sensitivity_"))]
    assert [change.holm for change in ranked] == pytest.approx(holm([change.p for change in ranked]), nan_ok=True)
    # what two images have in common is no metric of an image, and a run does not differ from itself
    assert math.isnan(compare_runs(a, a).metrics["ap_50"].p)
