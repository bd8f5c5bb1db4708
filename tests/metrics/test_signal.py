"""Whether completions of an image differ in reward, and why not; effective sizes, advantages, other sizes of groups."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.metrics import signal
from grounding_rewards.metrics.intervals import Estimate
from grounding_rewards.parsing import STATUSES
from tests.tables import table


def one(rewards, statuses, counted, findings):
    """A single group."""
    return signal.Groups.of([len(rewards)], rewards, statuses, counted, [findings] * len(rewards))


@pytest.mark.parametrize(
    ("rewards", "statuses", "counted", "findings", "cause"), table("metrics/tables", "causes_of_groups")
)
def test_cause_of_a_group(rewards, statuses, counted, findings, cause):
    assert one(rewards, statuses, counted, findings).causes == [cause]


def test_metrics_have_the_same_keys_also_without_a_group():
    assert list(signal.Groups.of([], [], [], [], []).metrics()) == list(signal.SIGNAL_KEYS)
    assert all(np.isnan(value) for value in signal.Groups.of([], [], [], [], []).metrics().values())


def drawn_groups():
    completion = st.tuples(st.sampled_from([0.0, 0.2, 1.0]), st.sampled_from(STATUSES), st.integers(0, 2))
    group = st.tuples(st.lists(completion, min_size=1, max_size=5), st.integers(0, 2))

    def made(groups):
        flat = [one for group, _ in groups for one in group]
        findings = [m for group, m in groups for _ in group]
        columns = zip(*flat, strict=True) if flat else ([], [], [])
        return signal.Groups.of([len(group) for group, _ in groups], *map(list, columns), findings)

    return st.lists(group, max_size=6).map(made)


@given(drawn_groups())
def test_causes_add_up_to_the_groups_without_spread(groups):
    metrics = groups.metrics()
    if len(groups.sizes):
        assert sum(metrics[name] for name in signal.CAUSES) == pytest.approx(groups.no_spread)
        assert groups.no_spread == pytest.approx(1 - groups.has_spread.mean())
        assert (signal.main_cause(metrics) is None) == groups.has_spread.all()
    assert [cause is None for cause in groups.causes] == groups.has_spread.tolist()


@pytest.mark.parametrize(
    ("rewards", "effective"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1], 8.0),  # half and half
        ([0, 0, 0, 0, 0, 0, 0, 1], 3.5),  # by hand: (7/8 + 7 · 1/8)² / (49/64 + 7/64)
        ([1, 1, 1, 1, 1, 1, 1, 0], 3.5),
        ([0.4] * 8, 0.0),
    ],
)
def test_effective_group_size(rewards, effective):
    assert one(rewards, ["boxes"] * 8, [1] * 8, 1).effective_sizes[0] == pytest.approx(effective)


R4 = gr.get_reward("R4", box_format="qwen3-vl")
GT = [[100, 100, 300, 300]]


def image(name="a", boxes=GT, **columns):
    return {"id": name, "boxes": boxes, "labels": ["mass"] * len(boxes), "width": 1000, "height": 1000, **columns}


def answer(*boxes):
    return json.dumps([{"bbox_2d": list(box), "label": "mass"} for box in boxes])


def shifted(by):
    """A box of the size of the finding; its IoU falls with the shift: 0.48 at 70, 0.33 at 100, 0.14 at 150."""
    return answer((100 + by, 100, 300 + by, 300))


def weak_model(images, rng):
    """Answers that all miss an IoU of 0.5 and mostly overlap the finding, as a general model's do."""
    rows = [image(str(k)) for k in range(images)]
    return rows, [[shifted(int(by)) for by in rng.integers(75, 240, 8)] for _ in rows]


def test_soft_f1_gives_a_weak_model_signal():
    """As in the published log of a general model on 167 findings: plain IoU above 0 on most answers, and R1 to R5 0."""
    rows, texts = weak_model(40, np.random.default_rng(0))
    report = signal.measure_signal(rows, texts, R4)
    found = {one.name: one.no_spread.value for one in report.all}
    assert {found[f"R{k}"] for k in range(1, 6)} == {1.0}
    assert report.configured.causes["all_below_threshold"] == 1.0
    assert found["soft_f1"] == 0.0
    assert "every answer earns 0" in report.recommendation
    assert report.best in ("R4 at τ 0.3", "soft_f1")


def test_shares_are_those_of_the_rewards_one_by_one():
    """An independent way: each reward is called on each group."""
    rng = np.random.default_rng(1)
    rows, texts = weak_model(12, rng)
    rows += [image(f"normal {k}", boxes=[]) for k in range(4)]
    texts += [[shifted(0) if rng.random() < 0.5 else "[]" for _ in range(4)] for _ in range(4)]
    report = signal.measure_signal(rows, texts, R4)
    for reward in [R4, *signal.variants(R4)]:
        spread = []
        for row, answers in zip(rows, texts, strict=True):
            columns = {name: [value] * len(answers) for name, value in row.items()}
            earned = reward(answers, **columns)
            spread.append(max(earned) - min(earned) > 1e-6)
        (same,) = [one for one in report.all if one.name == reward.name]
        assert same.no_spread.value == pytest.approx(1 - np.mean(spread))


def test_images_without_a_name_are_not_one_image():
    rows = [image(None, boxes=[[100, 100, 300, 300 + k]]) for k in range(8)]
    unnamed, named = (
        signal.measure_signal(images, [[shifted(75), shifted(100)]] * 8, R4)
        for images in (rows, [{**row, "id": str(k)} for k, row in enumerate(rows)])
    )
    assert unnamed.configured.no_spread == named.configured.no_spread


def test_the_json_has_no_text_and_no_nan():
    report = signal.measure_signal([image("secret")], [["secret words", shifted(0)]], R4)
    assert "secret" not in json.dumps(report.to_dict(), allow_nan=False)


def test_what_is_tried_keeps_the_rules_of_the_configured_reward():
    own = {"no_box_bonus": 0.5, "ignore_many": True, "readers": "mean", "iou_threshold": 0.4}
    tried = signal.variants(gr.get_reward("R4", box_format="qwen3-vl", **own), ["R1", "soft_f1"])
    assert [one.name for one in tried] == ["R4 at τ 0.3", "R4 with graded_negatives 0.5", "R1", "soft_f1"]
    assert [one.name for one in signal.variants(replace(tried[0], name="R4"), [])] == ["R4 with graded_negatives 0.5"]
    # A reward of texts has neither τ nor negatives.
    assert [one.name for one in signal.variants(gr.get_reward("random"), ["R1"])] == ["R1"]
    kept = {(one.box_reward.no_box_bonus, one.box_reward.ignore_many, one.readers) for one in tried}
    assert kept == {(0.5, True, "mean")}


def test_graded_negatives_tell_hallucinations_apart():
    box = [[0, 0, 100, 100]]
    texts = [[answer(*box), answer(*box, *box), answer(*box, *box, *box)]]
    report = signal.measure_signal([image(str(k), boxes=[]) for k in range(10)], texts * 10, R4)
    assert report.configured.causes["all_hallucinated"] == 1.0
    assert report.best == "R4 with graded_negatives 0.5"


class Flat:
    """A third party's reward that knows neither τ nor negatives."""

    def score(self, pred, gt):
        return 0.5


def test_a_third_partys_reward_is_measured():
    reward = gr.get_reward(f"{__name__}.Flat", box_format="qwen3-vl")
    rows = [image(str(k)) for k in range(10)]
    report = signal.measure_signal(rows, [[shifted(0), shifted(50)]] * 10, reward, tried=["R3"])
    assert report.configured.causes["all_equal"] == 1.0
    assert report.best == "R3"


def test_single_answers_are_no_group():
    with pytest.raises(ValueError, match="Expected several completions for an image, got one for each of 1"):
        signal.measure_signal([image()], [["[]"]], R4)


def signal_of(name, share, cause="all_below_threshold"):
    causes = {**dict.fromkeys(signal.CAUSES, 0.0), cause: share}
    return signal.RewardSignal(name, 0.0, Estimate(share, share, share), causes, 0.0)


@pytest.mark.parametrize(("own", "others", "best", "words"), table("metrics/tables", "recommendations"))
def test_recommendation(own, others, best, words):
    name, said = signal.recommend(signal_of("own", own), [signal_of(one, share) for one, share in others.items()])
    assert name == best
    assert words in said


def test_nothing_is_recommended_while_intervals_overlap():
    own, other = signal_of("own", 0.6), signal_of("other", 0.1)
    wide = [replace(one, no_spread=Estimate(one.no_spread.value, 0.05, 0.8)) for one in (own, other)]
    name, said = signal.recommend(wide[0], [wide[1]])
    assert name == "own"
    assert said.startswith("No other reward is shown to be enough: 60 % of the groups are without spread")
    name, said = signal.recommend(signal_of("random", 0.0), [other])
    assert (name, said.partition(":")[0]) == ("random", "random is a control")


def test_the_gain_of_the_best_answer_is_over_the_mean():
    rows = [image(str(k)) for k in range(10)] + [image("normal", boxes=[])]
    # IoUs of 1 and 1/3: the best is 1, the mean 2/3.
    texts = [[shifted(0), shifted(100)]] * 10 + [["[]", "[]"]]
    # Another reader suits the second answer best, who found nothing: such a group has no IoU.
    rows.append({**image("readers"), "reader_boxes": [image("a")["boxes"], []], "reader_labels": [["mass"], []]})
    texts.append([shifted(0), "[]"])
    report = signal.measure_signal(rows, texts, R4, tried=("soft_f1", "random"))
    assert (report.mean_iou, report.best_of_k_gain.value) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert "reaches 1.00 mean IoU, all of them 0.67: RL can prefer what is 0.33 [" in report.best_of_k
    by_name = {one.name: one.iou_correlation for one in report.all}
    assert by_name["soft_f1"] == pytest.approx(1)
    assert abs(by_name["random"]) < 0.9
    alike = signal.measure_signal(rows, [[shifted(100)] * 2] * 10 + [["[]"] * 2] * 2, R4)
    assert alike.best_of_k.endswith("all of them 0.33: RL has nothing to prefer. Raise temperature or num_generations.")
    assert alike.configured.iou_correlation is None
    assert signal.measure_signal([image("normal", boxes=[])], [["[]", "[]"]], R4).best_of_k == ""
