"""Comparing two runs: by hand, its tests against scipy and brute force, and what it says in words."""

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

from grounding_rewards.metrics.comparison import compare_runs, direction, holm
from grounding_rewards.metrics.intervals import Estimate, ratio_estimates
from grounding_rewards.metrics.prediction import Prediction
from tests.metrics.test_intervals import difference
from tests.tables import table

BOX = [0.0, 0.0, 10.0, 10.0]


def part(iou: float) -> list[list[float]]:
    """A predicted box that has this IoU with BOX; none for 0."""
    return [[0.0, 0.0, 10.0, 10.0 * iou]] if iou else []


def image(name: Any, iou: float, label: str = "mass", *, side: float = 100, **others: Any) -> Prediction:
    others = {"pred": part(iou), "status": "boxes", **others}
    return Prediction(str(name), side, side, gt=[BOX], gt_labels=[label], **others)


def run(ious: Sequence[float], **others: Any) -> list[Prediction]:
    return [image(i, iou, **others) for i, iou in enumerate(ious)]


def test_a_comparison_by_hand() -> None:
    a = run([0.2, 0.6, 0.6, 0.8])
    found = compare_runs(a, [*run([0.6, 0.6, 0.8, 0.4]), image("only", 1.0)], seed=3, resamples=200)
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
    a = [Prediction(str(i), 9, 9, pred=[BOX]) for i in range(9)]
    b = [Prediction(str(i), 9, 9, status="empty") for i in range(9)]
    found = compare_runs(a, b).metrics["hallucination_rate"]
    assert found.difference == (-1.0, -1.0, -1.0)
    assert found.units == (9, 0, 0)
    assert found.p == 2 / 2**9
    assert found.direction == 1
    assert compare_runs(b, a).metrics["hallucination_rate"].direction == -1


def test_a_run_does_not_differ_from_itself() -> None:
    images = [*run([0.1, 0.6, 0.9]), Prediction("n", 9, 9, status="empty", rewards={"R1": 0.2})]
    found = compare_runs(images, images)
    for change in found.metrics.values():
        assert change.difference.value == 0 or math.isnan(change.difference.value)
        assert change.units[:2] == (0, 0)
        assert math.isnan(change.p)
    assert found.verdict.startswith("Mean IoU 0.53 → 0.53: no change shown. F1@0.5 0.67 → 0.67: no change shown. No ")


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


def test_labels_are_those_of_the_reference_boxes() -> None:
    # masses get better, nodules worse
    def both(ious: tuple[float, float]) -> list[Prediction]:
        masses = [image(f"m{i}", ious[0]) for i in range(12)]
        return masses + [image(f"n{i}", ious[1], "nodule", side=20) for i in range(8)]

    found = compare_runs(both((0.2, 0.9)), both((0.6, 0.4)), core=())
    assert [(group.name, group.boxes) for group in found.labels] == [("mass", 12), ("nodule", 8)]
    assert [list(group.changes) for group in found.labels] == [["mean_iou", "recall_50"]] * 2
    first, second = (group.changes["mean_iou"] for group in found.labels)
    assert first.difference == pytest.approx((0.4, 0.4, 0.4))
    assert second.difference == pytest.approx((-0.5, -0.5, -0.5))
    # four tests: 0.5^11 times 4 for the least p; 0.5^7 times 2 for the others
    assert [first.holm, second.holm] == pytest.approx([4 * 0.5**11, 2 * 0.5**7])
    assert found.verdict.endswith(" Worse: mean IoU on nodule -0.50; recall@0.5 on nodule -1.00.")


@pytest.mark.parametrize(("difference", "holm", "lower_is_better", "expected"), table("metrics/tables", "directions"))
def test_one_rule_says_better_worse_or_not_shown(
    difference: list[float], holm: float, lower_is_better: bool | None, expected: int
) -> None:
    assert direction(Estimate(*difference), holm, lower_is_better=lower_is_better) == expected


@pytest.mark.parametrize(
    ("a", "b", "sentences"),
    [
        # every one of 12 images is found, and each box fits better
        (run([0.2] * 12), run([0.6] * 12), "Boxes fit better: mean IoU 0.20 → 0.60 (+0.40 to +0.40), on 12 images "),
        (run([0.6] * 12), run([0.2] * 12), "Boxes fit worse: mean IoU 0.60 → 0.20 (-0.40 to -0.40), on 0 "),
        # a small change has digits enough
        (run([0.600] * 12), run([0.604] * 12), "Boxes fit better: mean IoU 0.600 → 0.604 (+0.004 to +0.004), on 12 "),
        # five images: none of the 32 ways to change places is rare enough
        (run([0.2] * 5), run([0.6] * 5), "Mean IoU 0.20 → 0.60: no change shown. F1@0.5 0.00 → 1.00: no change shown."),
        # normal images on which nobody says anything
        ([Prediction("1", 9, 9)], [Prediction("1", 9, 9)], "Mean IoU is not measured in both runs. F1@0.5 is not"),
    ],
)
def test_the_verdict_names_what_is_unchanged_too(a: list[Prediction], b: list[Prediction], sentences: str) -> None:
    assert compare_runs(a, b).verdict.startswith(sentences)


def test_the_verdict_is_about_the_metric_that_was_chosen() -> None:
    a = run([0.6] * 12, rewards={"R4": 0.1})
    found = compare_runs(a, run([0.6] * 12, rewards={"R4": 0.3, "R1": 1.0}), main="reward_R4")
    assert found.verdict.startswith("Better: reward R4 0.10 → 0.30 (+0.20 to +0.20), on 12 images better, on 0 worse. ")
    # what one run alone has is not compared
    assert "reward_R1" not in found.metrics


def test_holm_is_adjusted_for_the_metrics_that_are_shown() -> None:
    rng = np.random.default_rng(5)
    a, b = (run(rng.random(40).tolist(), rewards={"R4": 0.5}) for _ in range(2))
    chosen = compare_runs(a, b, core=["mean_iou", "f1_50", "nowhere"], main="recall_50")
    assert chosen.core == ("mean_iou", "f1_50", "recall_50")
    families = [chosen.core, [key for key in chosen.metrics if key not in chosen.core]]
    for keys in families:
        changes = [chosen.metrics[key] for key in keys]
        assert [change.holm for change in changes] == pytest.approx(holm([change.p for change in changes]), nan_ok=True)
    # the fewer are shown, the smaller the adjustment
    assert chosen.metrics["f1_50"].holm <= compare_runs(a, b).metrics["f1_50"].holm


@pytest.mark.parametrize(
    ("b", "options", "message"),
    [
        ([], {}, "images that both runs have, got none: 2 in A and 0 in B"),
        ([image(7, 0.5)], {}, "no id in common. Compare runs on the same dataset"),
        ([image(0, 0.5), image(0, 0.5)], {}, "one image per id in run B, got 1 too many, '0' among them"),
        ([image(0, 0.5, "nodule"), image(1, 0.5)], {}, "size or patient of '0' differ, as on 1 of 2 images"),
        ([Prediction("1", 100, 100)], {}, "size or patient of '1' differ, as on 1 of 1 images"),
        (run([0.5, 0.5], ignore=[BOX]), {}, "boxes, labels, ignored regions, size or patient of '0' differ"),
        (run([0.5, 0.5], side=99), {}, "of '0' differ, as on 2 of 2 images"),
        (run([0.5, 0.5], patient="q"), {}, "size or patient of '0' differ, as on 2 of 2 images"),
        (run([0.5, 0.5]), {"main": "map"}, "a metric of both runs for `main`, got 'map'. They have: mean_iou, f1_50"),
        (run([0.5, 0.5]), {"resamples": 0}, "Expected at least 1 for `resamples`, got 0"),
        (run([0.5, 0.5]), {"seed": -1}, "Expected a whole number from 0 up for `seed`, got -1"),
    ],
)
def test_runs_that_cannot_be_compared(b: list[Prediction], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_runs(run([0.5, 0.5], patient="p"), b, **options)


def test_json_has_no_nan() -> None:
    images = [*run([0.1, 0.6]), Prediction("n", 9, 9, status="empty")]
    content = json.loads(json.dumps(compare_runs(images, images).to_dict(), allow_nan=False))
    assert content["images"] == {"both": 3, "only_a": 0, "only_b": 0}
    assert content["units"] == {"name": "images", "count": 3}
    assert content["metrics"]["label_accuracy"]["a"] == {"value": None, "low": None, "high": None}
    assert content["labels"]["mass"]["boxes"] == 2
    iou = content["labels"]["mass"]["mean_iou"]
    assert iou["units"] == {"better": 0, "worse": 0, "tied": 2}
    assert (iou["p"], iou["holm"]) == (None, None)


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_is_the_closed_test_with_bonferroni(p_values: list[float]) -> None:
    # The largest Bonferroni p over all sets of tests that a test is in; Marcus, Peritz and Gabriel 1976.
    numbers = range(len(p_values))
    sets = [one for k in numbers for one in combinations(numbers, k + 1)]
    closed = [max(min(1.0, len(one) * min(p_values[j] for j in one)) for one in sets if i in one) for i in numbers]
    assert holm(p_values) == pytest.approx(closed)
    assert holm([*p_values, math.nan])[:-1] == pytest.approx(closed)


def sure(images: Sequence[Prediction]) -> list[Prediction]:
    return [replace(image, pred_scores=[0.9] * len(image.pred)) for image in images]


def test_metrics_of_a_ranking_have_a_test_of_their_own() -> None:
    rng = np.random.default_rng(3)
    a = sure(run(np.where(rng.random(60) < 0.4, 0.8, 0.2).tolist()))
    b = sure(run(np.where(rng.random(60) < 0.9, 0.8, 0.2).tolist()))
    found = compare_runs(a, b).metrics
    assert found["ap_50"].p < 0.001
    assert found["froc"].p < 0.001
    assert found["ap_50"].direction == 1
    # what two images have in common is no metric of an image, and a run does not differ from itself
    assert math.isnan(compare_runs(a, a).metrics["ap_50"].p)
