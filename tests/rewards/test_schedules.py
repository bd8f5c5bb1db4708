"""Scheduled hyper-parameters: what their values are, what is refused, and who sees which value."""

import copy
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.rewards.grounding import score_columns
from grounding_rewards.rewards.schedules import Pace, Schedule, SelfPaced
from grounding_rewards.rewards.scoring import METRIC_KEYS
from tests.tables import table

RAISED = {"schedule": "linear", "from": 0.1, "to": 0.5, "over": 0.4}
PACED = {"schedule": "self_paced", "of": "hit_rate", "window": 4, "from": 0.1, "to": 0.5, "rate": 0.5, "by": 0.1}
# One finding, and an answer of IoU 0.3.
IMAGE = {"boxes": [[[0, 0, 100, 100]]], "width": [1000], "height": [1000]}
ANSWER = '[{"bbox_2d": [0, 0, 100, 30]}]'
MISS = '[{"bbox_2d": [500, 500, 600, 600]}]'


def scheduled(name="R3", **params):
    return gr.get_reward(name, box_format="qwen3-vl", **params)


def images(count):
    return {name: column * count for name, column in IMAGE.items()}


class TestValues:
    @pytest.mark.parametrize(("kind", "progress", "value"), table("rewards/by_hand", "schedules"))
    def test_by_hand(self, kind, progress, value):
        assert Schedule(kind, 0.1, 0.5, 0.4).value(progress) == pytest.approx(value, abs=1e-6)

    @pytest.mark.parametrize("kind", ["linear", "cosine", "step"])
    @pytest.mark.parametrize(("start", "to"), [(0.1, 0.9), (3.0, 0.7)])
    def test_goes_one_way_and_stays_between_its_ends(self, kind, start, to):
        values = [Schedule(kind, start, to, 0.3).value(progress / 100) for progress in range(101)]
        assert values == sorted(values, reverse=to < start)
        assert (values[0], *values[30:]) == (start, *[to] * 71)

    def test_a_falling_self_paced_value_moves_by_equal_steps_and_ends_at_its_end(self):
        falling = SelfPaced(4, 3.0, 1.0, 0.5, 1.5)
        assert [falling.value(times) for times in range(4)] == [3.0, 1.5, 1.0, 1.0]


class TestRefused:
    @pytest.mark.parametrize(("params", "named"), table("rewards/wrong_parameters", "schedules"))
    def test_at_construction(self, params, named):
        with pytest.raises(ValueError, match=r"^Expected ") as caught:
            gr.get_reward("R3", iou_threshold=params)
        assert named in str(caught.value)

    @pytest.mark.parametrize("name", ["matching", "ignore_many"])
    def test_what_is_no_number(self, name):
        with pytest.raises(ValueError, match=f"`{name}`, got 0.5"):
            gr.get_reward("R3", **{name: RAISED})

    def test_a_parameter_that_the_reward_does_not_keep(self):
        class Mine:
            def __init__(self, share=0.5):
                self.kept = share

            def score(self, pred, gt):
                return self.kept

        with pytest.raises(ValueError, match=r"Keep the parameter as `self\.share`"):
            gr.get_reward(Mine, share=RAISED)


def test_a_scheduled_reward_is_a_frozen_value():
    reward = scheduled(iou_threshold=RAISED, beta=PACED)
    again = scheduled(iou_threshold=dict(RAISED), beta=PACED)
    for other in (again, copy.copy(reward), pickle.loads(pickle.dumps(reward))):
        assert other == reward
        assert hash(other) == hash(reward)
    assert reward != scheduled(iou_threshold={**RAISED, "over": 0.5}, beta=PACED)
    assert reward.final() == scheduled(iou_threshold=0.5, beta=0.5) != reward


class TestCall:
    @pytest.mark.parametrize("step", range(0, 12, 3))
    def test_is_the_reward_of_its_present_value(self, step):
        present = scheduled(iou_threshold=min(0.1 + 0.4 * step / 8, 0.5))
        told = {"step": step, "max_steps": 20}
        assert scheduled(iou_threshold=RAISED)([ANSWER], **IMAGE, **told) == present([ANSWER], **IMAGE)

    @pytest.mark.parametrize(("told", "part"), table("rewards/cases", "nothing_is_guessed"))
    def test_nothing_is_guessed(self, told, part):
        with pytest.raises(ValueError, match=part):
            scheduled(iou_threshold=RAISED)([ANSWER], **IMAGE, **told)

    def test_everything_that_trains_nothing_has_the_final_values(self):
        reward, final = scheduled(iou_threshold=RAISED), scheduled(iou_threshold=0.5)
        pred, gt = [[0, 0, 100, 30]], [[0, 0, 100, 100]]
        assert reward.score(pred, gt) == final.score(pred, gt) == 0
        assert reward.score_many([pred], [gt]) == [0]
        assert reward.explain(pred, gt).tp == 0
        assert reward.details([ANSWER], **IMAGE)[0].reward == 0
        assert score_columns([reward], [ANSWER], **IMAGE) == score_columns([final], [ANSWER], **IMAGE)

    def test_logged_under_constant_keys(self):
        for step, threshold in ((0, 0.1), (10, 0.5)):
            logged: dict[str, float] = {}
            reward = scheduled(iou_threshold=RAISED, no_box_bonus={**RAISED, "schedule": "step"})
            reward([ANSWER], **IMAGE, log_metric=logged.__setitem__, step=step, max_steps=20)
            assert list(logged) == [f"R3/{key}" for key in (*METRIC_KEYS, "iou_threshold", "no_box_bonus")]
            assert logged["R3/iou_threshold"] == logged["R3/no_box_bonus"] == threshold


class TestPace:
    def steps(self, *answers, count=2, **changed):
        """The threshold of each step, whose completions are all the same; then the next one."""
        reward = scheduled(iou_threshold={**PACED, **changed})
        pace, seen = Pace(reward), []
        for answer in answers:
            seen.append(pace.values["iou_threshold"])
            reward([answer] * count, **images(count), pace=pace)
            pace.update()
        return [*seen, pace.values["iou_threshold"]]

    def test_by_hand(self):
        # Window of 4, two completions a step: full after the second step, and again after each one that moved it,
        # because half is kept. IoU 0.3 is hit at 0.1, 0.2 and 0.3, not at 0.4: the window is half hits, and then not.
        assert self.steps(*[ANSWER] * 6) == [0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5]

    def test_not_where_too_little_is_hit(self):
        assert self.steps(*[MISS] * 6) == [0.1] * 7
        # 2 of 4 are less than 0.6
        assert self.steps(*[MISS, ANSWER] * 3, rate=0.6) == [0.1] * 7

    def test_never_back_and_never_beyond(self):
        assert self.steps(*[ANSWER] * 3, *[MISS] * 9, rate=0.01, to=0.25)[-8:] == [0.25] * 8

    def test_many_processes_agree_with_one(self):
        reward = scheduled(iou_threshold=PACED)
        one, *others = (Pace(reward) for _ in range(3))
        for answers in ([ANSWER] * 4, [MISS] * 4, [MISS, ANSWER] * 2, [ANSWER] * 4):
            reward(answers, **images(4), pace=one)
            one.update()
            for pace, part in zip(others, (answers[:2], answers[2:]), strict=True):
                reward(part, **images(2), pace=pace)
            gathered = [hit for pace in others for hit in pace.noted]
            for pace in others:
                pace.update(gathered)
        assert one.state() == others[0].state() == others[1].state()
        assert one.values != Pace(reward).values

    @given(st.lists(st.integers(0, 2), min_size=1, max_size=20), st.integers(0, 20))
    def test_restored_it_goes_on_alike(self, hits, stop):
        whole = Pace(scheduled(iou_threshold=PACED))
        resumed = Pace(scheduled(iou_threshold=PACED))
        for k, hit in enumerate(hits):
            whole.update([(hit, 2)])
            if k == stop:
                resumed.restore(copy.deepcopy(whole.state()))
            elif k > stop:
                resumed.update([(hit, 2)])
        if stop < len(hits):
            assert resumed.state() == whole.state()

    def test_refused(self):
        reward = scheduled(iou_threshold=PACED)
        with pytest.raises(ValueError, match=r"got none\. Train with GroundingGRPOTrainer"):
            reward([ANSWER], **IMAGE, trainer_state=SimpleNamespace(global_step=0, max_steps=9))
        with pytest.raises(ValueError, match="got one of another reward"):
            reward([ANSWER], **IMAGE, pace=Pace(scheduled(beta=PACED)))
        with pytest.raises(ValueError, match="Expected the state of iou_threshold, got that of beta"):
            Pace(reward).restore(Pace(scheduled(beta=PACED)).state())

    def test_beside_a_schedule(self):
        reward = scheduled(iou_threshold=PACED, beta={**RAISED, "from": 2, "to": 1})
        logged: dict[str, float] = {}
        reward([ANSWER], **IMAGE, pace=Pace(reward), step=1, max_steps=10, log_metric=logged.__setitem__)
        assert logged["R3/iou_threshold"] == 0.1
        assert logged["R3/beta"] == pytest.approx(1.75)
