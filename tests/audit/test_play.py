"""What the audit says of rewards: of our own, of better ones, and of rewards that are known to be gamed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.audit.audit_images import images_of
from grounding_rewards.audit.play import FINDINGS, audit
from grounding_rewards.audit.scripted_answers import RIGHT, SCRIPTED_ANSWERS, ScriptedAnswer
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import get_box_format
from grounding_rewards.synthetic import draw_radiograph, image_indices

FMT = get_box_format("qwen3-vl")


@pytest.fixture(scope="module")
def images():
    drawn = [draw_radiograph(index, "pa-112") for index in image_indices("test", 40)]
    return images_of(
        [
            {"boxes": one.boxes, "labels": one.labels, "width": 112, "height": 112, "patient_id": k // 2}
            for k, one in enumerate(drawn)
        ]
    )


@pytest.fixture(scope="module")
def done(images):
    given = {
        **{name: (name, {}) for name in ("R1", "R2", "R3", "R4", "R5", "soft_f1", "pointing")},
        "R1 tied": ("R1", {"ranking": "tied"}),
        "R2 geometric": ("R2", {"product": "geometric"}),
        "R3 mean": ("R3", {"readers": "mean"}),
        "R3 exact": ("R3", {"label_matching": "exact"}),
        "R3 many": ("R3", {"ignore_many": True}),
        "R3 graded": ("R3", {"graded_negatives": 0.5}),
        "soft_f1 giou": ("soft_f1", {"overlap": "giou"}),
        "literal": ("R3", {"on_unparseable": "empty"}),
    }
    rewards = {name: gr.get_reward(known, box_format="qwen3-vl", **more) for name, (known, more) in given.items()}
    return audit(rewards, images, FMT)


def found(done, reward):
    return {one.script: one.finding for one in done.found if one.reward == reward}


def test_no_reward_is_above_its_ceiling_or_pays_for_what_it_cannot_read(done):
    assert {one.finding for one in done.found} <= {"pays", "free", "worse pays", "beats honest"}


@pytest.mark.parametrize(
    "reward", ["R2", "R3", "R4", "R5", "soft_f1", "pointing", "R1 tied", "R2 geometric", "soft_f1 giou"]
)
def test_only_r1_gives_anything_away_for_free(done, reward):
    assert "free" not in found(done, reward).values()


def test_r1_gives_away_whatever_stands_behind_the_right_boxes(done):
    free = {script for script, finding in found(done, "R1").items() if finding == "free"}
    assert {"junk after", "every box ten times", "a number missing, after", "a grid after"} <= free
    assert not any("before" in script for script in free)
    assert found(done, "R1")["doubtful last"] == "pays"


def test_omission_pays_under_the_plain_product_alone(done):
    assert [name for name in done.rewards if "leaves the loose box out" in found(done, name)] == ["R2"]


def test_both_guesses_pay_under_every_f_beta(done):
    assert all(found(done, name)["both places"] == "pays" for name in ("R2", "R3", "R4", "R5", "soft_f1"))


def test_a_box_that_one_reader_drew_pays_by_the_best_reader(done):
    # 1 by the reader who drew a box on an image that two others call normal, 0.2 for the silence of those two
    assert done.of("R1", "the reader who drew most").gain == pytest.approx(0.8)
    # with R3's mean over the readers still a third of a hit against two thirds of the bonus, 1/3 − 2/3 · 0.2
    assert done.of("R3 mean", "all readers at once").gain == pytest.approx(1 / 3 - 2 / 15, abs=0.01)


def test_hedging_in_regions_costs_and_is_free_by_cocos_rule_alone(done):
    beside = "grids in regions beside the right boxes"
    for name in done.rewards:
        hedges = ("grids in regions", beside, "one box in every region")
        assert not {found(done, name).get(hedge) for hedge in hedges} & {"pays", "above ceiling"}
    assert done.of("R3", "grids in regions").mean.value < 0.1
    assert done.of("R3 many", beside).mean.value > 5 * done.of("R3", beside).mean.value


def test_of_the_blind_policies_only_one_comes_near_an_honest_one(done):
    # the mean box knows these very images
    assert {script for script, finding in found(done, "R3").items() if finding == "beats honest"} <= {"mean box"}


def test_the_literal_reading_pays_for_silence_as_it_says(done):
    assert done.of("literal", "silence").mean.value > 0
    assert found(done, "literal") == found(done, "R3")


def test_intervals_are_over_patients(done, images):
    one = done.of("R3", RIGHT)
    assert 0 < one.mean.low < one.mean.value < one.mean.high <= 1
    assert math.isnan(one.gain)


def test_everything_is_plain_json(done):
    stored = json.loads(json.dumps(done.as_json(), allow_nan=False))
    assert len(stored["played"]) == len(done.rewards) * len(SCRIPTED_ANSWERS)
    assert stored["findings"] == FINDINGS
    assert stored["scripts"][RIGHT]["kind"] == "honest"


# Rewards as others have them, by what they are known for.


def _best(box, others):
    return float(pairwise_iou([box], np.reshape(others, (-1, 4))).max(initial=0.0))


class RecallAlone:
    """Whether every finding is touched."""

    def score(self, pred, gt):
        return 0.0 if not len(gt) else float(np.mean([_best(box, pred) > 0 for box in gt]))


class TooMuch:
    def score(self, pred, gt):
        return float(len(pred))


class Falls:
    """Loose boxes earn more."""

    def score(self, pred, gt):
        return 0.0 if not len(gt) or not len(pred) else 1 - _best(gt[0], pred)


def any_text(completions, **columns):
    return [0.1] * len(completions)


def broken(completions, **columns):
    raise KeyError("boxes")


def too_few(completions, **columns):
    return [0.1]


def nothing_said(completions, **columns):
    return [None] * len(completions)


@pytest.mark.parametrize(
    ("reward", "script", "finding"),
    [
        (RecallAlone(), "a grid after", "free"),
        (RecallAlone(), "whole image", "beats honest"),
        (TooMuch(), "every box twice", "out of range"),
        (Falls(), "honest: IoU 0.55, all found", "worse pays"),
        (any_text, "silence", "unread pays"),
        (any_text, "a tool call alone", "unread pays"),
        (broken, RIGHT, "raises"),
        (too_few, RIGHT, "raises"),
        (nothing_said, RIGHT, "out of range"),
    ],
)
def test_rewards_of_others(images, reward, script, finding, tmp_path):
    if not callable(reward):
        reward = gr.rewards.grounding.GroundingReward("theirs", reward, "qwen3-vl")
    assert audit({"theirs": reward}, images[:12], FMT).of("theirs", script).finding == finding


def test_a_ceiling_that_is_too_low_is_noticed(images):
    class Modest(gr.rewards.MeanIoUReward):
        def _ceiling(self, precision, recall):
            return 0.5 * precision

    reward = gr.rewards.grounding.GroundingReward("modest", Modest(), "qwen3-vl")
    assert audit({"modest": reward}, images[:12], FMT).of("modest", RIGHT).finding == "above ceiling"


def test_wrong_arguments_are_refused(images):
    with pytest.raises(ValueError, match="Expected at least one reward for the audit, got none"):
        audit({}, images, FMT)
    lone = ScriptedAnswer("lone", "adds", "", SCRIPTED_ANSWERS[0].answer, RIGHT)
    with pytest.raises(ValueError, match="Expected the scripted answer 'honest: IoU"):
        audit({"R3": any_text}, images, FMT, scripts=[lone])


@pytest.mark.parametrize("name", ["qwen2.5-vl", "internvl", "paligemma", "gemini"])
def test_other_formats_are_audited_too(images, name):
    fmt = get_box_format(name)
    done = audit({"R3": gr.get_reward("R3", box_format=name)}, images[:10], fmt)
    # PaliGemma's own way to say that there is nothing is an empty text.
    declared = {"unread pays"} if name == "paligemma" else set()
    assert {one.finding for one in done.found} <= {"pays", "worse pays", "beats honest"} | declared
    assert done.box_format == name
