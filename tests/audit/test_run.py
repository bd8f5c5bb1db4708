"""What the audit says of rewards: of our own, of better ones, and of rewards that are known to be gamed."""

import json
import math

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.audit.audit_images import images_of
from grounding_rewards.audit.run import FINDINGS, audit
from grounding_rewards.audit.scripted_answers import NEVER_LOOKING, RIGHT, SCRIPTED_ANSWERS, ScriptedAnswer
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import get_box_format
from grounding_rewards.synthetic.radiographs import draw_radiograph, image_indices

FMT = get_box_format("qwen3-vl")
APART = ("giou", "diou", "ciou", "nwd")


@pytest.fixture(scope="module")
def images():
    drawn = [draw_radiograph(index, "pa-112") for index in image_indices("test", 40)]
    size = {"width": 112, "height": 112}
    rows = [{"boxes": one.boxes, "labels": one.labels, "patient_id": k // 2} for k, one in enumerate(drawn)]
    return images_of([row | size for row in rows])


@pytest.fixture(scope="module")
def done(images):
    given = {
        **{name: (name, {}) for name in ("R1", "R2", "R3", "R4", "R5", "soft_f1", "pointing")},
        "R1 tied": ("R1", {"ranking": "tied"}),
        "R2 geometric": ("R2", {"product": "geometric"}),
        "R3 exact": ("R3", {"label_matching": "exact"}),
        "R3 graded": ("R3", {"graded_negatives": 0.5}),
        **{f"soft_f1 {overlap}": ("soft_f1", {"overlap": overlap}) for overlap in APART},
        "literal": ("R3", {"on_unparseable": "empty"}),
    }
    rewards = {name: gr.get_reward(known, box_format="qwen3-vl", **more) for name, (known, more) in given.items()}
    return audit(rewards, images, FMT)


def audit_by(reward, images, *names):
    """The audit of one reward by these scripts and all honest ones."""
    scripts = [script for script in SCRIPTED_ANSWERS if script.kind == "honest" or script.name in names]
    return audit({"theirs": reward}, images, FMT, scripts=scripts)


def found(done, reward):
    return {one.script: one.finding for one in done.findings if one.reward == reward}


def test_no_reward_leaves_its_range_or_pays_unread_answers(done):
    assert {one.finding for one in done.findings} <= {"pays", "free", "worse pays", "beats honest"}


def test_only_r1_gives_anything_away_for_free(done):
    free = {name for name in done.rewards if "free" in found(done, name).values()}
    assert free & {"R2", "R3", "R4", "R5", "soft_f1", "pointing", "R1 tied", "R2 geometric", "soft_f1 giou"} == set()


def test_r1_gives_away_whatever_stands_behind_the_right_boxes(done):
    free = {script for script, finding in found(done, "R1").items() if finding == "free"}
    assert {"junk after", "every box twice", "a number missing, after", "a grid after"} <= free
    assert not any("before" in script for script in free)
    assert found(done, "R1")["doubtful last"] == "pays"


def test_omission_pays_under_the_plain_product_alone(done):
    assert [name for name in done.rewards if "leaves the loose box out" in found(done, name)] == ["R2"]


def test_both_guesses_pay_under_every_f_beta(done):
    assert all(found(done, name)["both places"] == "pays" for name in ("R2", "R3", "R4", "R5", "soft_f1"))


@pytest.mark.parametrize("name", ["R1", "R2", "R3", "R4", "R5", "soft_f1", "R1 tied", "soft_f1 giou", "R3 exact"])
def test_our_rewards_have_documented_weaknesses_alone(done, name):
    assert [played for played in done.faults if played.reward == name] == []
    assert any(played.accepted for played in done.findings if played.reward == name)


@pytest.mark.parametrize("hedge", ["both sizes, nested", "the parts and their union"])
def test_hedges_around_one_finding_pay_where_a_threshold_decides(done, hedge):
    for name in ("R1", "R2", "R3", "R4", "R5"):
        assert done.of(name, hedge).finding == "pays"
    for name in ("soft_f1", "pointing", *(f"soft_f1 {overlap}" for overlap in APART)):
        assert hedge not in found(done, name)


def test_nested_hedges_earn_what_they_earn_by_hand():
    # One finding an image. One size of two: half of the time a hit, of IoU 0.75. Both: F of P = 1/2, R = 1 with β = 1.5
    # is 3.25 · 0.5 / 2.125; AP is 1 or 1/2. soft_f1: 0.75 or 0.45, and both 2 · 0.75 / 3.
    rows = [{"boxes": [[300, 300, 500, 500]], "labels": ["mass"], "width": 1000, "height": 1000}] * 400
    rewards = {name: gr.get_reward(name, box_format=FMT) for name in ("R1", "R3", "soft_f1")}
    names = ("honest: one of two sizes", "both sizes, nested")
    scripts = [one for one in SCRIPTED_ANSWERS if one.name in names]
    played = audit(rewards, images_of(rows), FMT, scripts=scripts)
    for name, one, both in (
        ("R1", 1 / 2, 3 / 4),
        ("R3", 0.75 / 2, 0.75 * 1.625 / 2.125),
        ("soft_f1", (0.75 + 0.45) / 2, 0.5),
    ):
        # Coins are tossed 400 times.
        assert played.of(name, names[0]).mean.value == pytest.approx(one, abs=0.05)
        assert played.of(name, names[1]).mean.value == pytest.approx(both, abs=0.03)


def test_a_near_miss_of_a_small_finding_beats_the_image(done):
    for overlap in APART:
        near = done.of(f"soft_f1 {overlap}", "honest: beside a small finding")
        whole = done.of(f"soft_f1 {overlap}", "the whole image for a small finding")
        assert near.mean.value > whole.mean.value + 0.01
        assert (whole.finding, whole.against) == ("", "")


def test_a_share_for_any_overlap_is_found_on_small_findings(images):
    class Jump:
        """soft_f1 over GIoU as it once was: 0.1 for any overlap."""

        def score(self, pred, gt):
            return 0.1 * any(_best(box, pred) > 0 for box in gt)

    reward = gr.rewards.grounding.GroundingReward("theirs", Jump(), "qwen3-vl")
    script = "the whole image for a small finding"
    assert audit_by(reward, images, script).of("theirs", script).finding == "pays"


def test_never_looking_is_the_constant_box_of_other_patients():
    row = {"labels": ["mass"], "width": 100, "height": 100}
    rows = [{**row, "boxes": [box]} for box in ([0, 0, 9, 9], [20, 20, 40, 40])]
    done = images_of([{**rows[0], "patient_id": "p"}, {**rows[1], "patient_id": "q"}, {**rows[0], "patient_id": "p"}])
    (script,) = (one for one in SCRIPTED_ANSWERS if one.name == NEVER_LOOKING)
    drawn = [[item.box.tolist() for item in script.answer(image, FMT).items] for image in done]
    assert drawn == [[[20, 20, 40, 40]], [[0, 0, 9, 9]], [[20, 20, 40, 40]]]
    # Nobody else has a finding: the middle of the image.
    (alone,) = images_of(rows[:1])
    assert [item.box.tolist() for item in script.answer(alone, FMT).items] == [[25, 25, 75, 75]]


def test_the_literal_reading_pays_for_silence_as_it_says(done):
    assert done.of("literal", "silence").mean.value > 0
    assert found(done, "literal") == found(done, "R3")


def test_intervals_are_over_patients(done, images):
    one = done.of("R3", RIGHT)
    assert 0 < one.mean.low < one.mean.value < one.mean.high <= 1
    assert math.isnan(one.gain)


def test_everything_is_plain_json(done):
    stored = json.loads(json.dumps(done.to_dict(), allow_nan=False))
    assert len(stored["played"]) == len(done.rewards) * len(done.scripts)
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
    assert audit_by(reward, images[:12], script).of("theirs", script).finding == finding


def test_the_literal_reading_excuses_silence_on_normal_images_alone(images):
    class Silence:
        def score(self, pred, gt):
            return float(len(pred) == 0)

    reward = gr.get_reward(Silence, box_format="qwen3-vl", on_unparseable="empty")
    assert audit_by(reward, images[:12], "silence").of("theirs", "silence").finding == "unread pays"


def test_wrong_arguments_are_refused(images):
    with pytest.raises(ValueError, match="Expected at least one reward for the audit, got none"):
        audit({}, images, FMT)
    lone = ScriptedAnswer("lone", "adds", "", SCRIPTED_ANSWERS[0].answer, RIGHT)
    with pytest.raises(KeyError, match="all found"):
        audit({"R3": any_text}, images, FMT, scripts=[lone])


@pytest.mark.parametrize("name", ["qwen2.5-vl", "internvl", "paligemma", "gemini"])
def test_other_formats_are_audited_too(images, name):
    done = audit({"R3": gr.get_reward("R3", box_format=name)}, images[:10], get_box_format(name))
    # PaliGemma's own way to say that there is nothing is an empty text.
    declared = {"unread pays"} if name == "paligemma" else set()
    assert {one.finding for one in done.findings} <= {"pays", "worse pays", "beats honest"} | declared
    assert done.box_format == name
