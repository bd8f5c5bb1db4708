"""One table of hard texts and images gives the same numbers through every trainer's module, and through TRL's call."""

import math

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.integrations.samples import COMPONENTS, image_columns, reward_of, scored
from tests.integrations.hard_cases import CASES, READERS
from tests.integrations.trainers import CALLS, SINGLE

HARD = list(CASES.values())
NEEDS = {"openrlhf": "torch", "nemo_rl": "torch", "nemo_gym": "pydantic"}


def by_trl(reward: str, cases: list) -> list[float]:
    """Every image alone, with the columns of a dataset, as TRL hands them over."""
    made = gr.get_reward(reward)
    return [made(completions=[one.text], **{key: [value] for key, value in one.fields.items()})[0] for one in cases]


def test_the_cases_are_worth_comparing():
    # Not all 0 or 1, so that a wrong size or a lost field would show.
    earned = dict(zip(CASES, by_trl("R3", HARD), strict=True))
    assert len(set(earned.values())) > 6
    assert earned["right"] == earned["in resized pixels"] == earned["ignored region"] == 1
    assert earned["negative"] == 0.2
    assert earned["one of two"] < earned["loose"] < earned["cut off"]
    assert earned["other syntax"] > 0.9


@pytest.mark.parametrize(("reward", "cases"), [("R1", HARD), ("R4", HARD), ("soft_f1", HARD), ("R3", [READERS])])
@pytest.mark.parametrize("trainer", CALLS)
def test_every_trainer_gets_the_numbers_of_trl(trainer, reward, cases, monkeypatch):
    pytest.importorskip(NEEDS.get(trainer, "numpy"))
    expected = by_trl(reward, cases)
    if trainer in SINGLE:
        expected = np.float32(expected).tolist()
    assert CALLS[trainer](monkeypatch, reward, cases) == expected


def test_components_are_what_trl_logs():
    logged: dict[str, float] = {}
    made, texts = reward_of("R4"), [one.text for one in HARD]
    columns = image_columns([one.ground_truth for one in HARD])
    made(completions=texts, log_metric=logged.__setitem__, **columns)
    rewards, components = scored(made, texts, columns)
    assert list(components) == [f"R4/{part}" for part in COMPONENTS]
    for name, values in components.items():
        assert all(type(value) is float and math.isfinite(value) for value in (*values, *rewards))
        assert np.mean(values) == pytest.approx(logged[name], rel=1e-12), name
    rate = np.mean(components["R4/hallucinated"]) / np.mean(components["R4/negatives"])
    assert rate == pytest.approx(logged["R4/hallucination_rate"])


def test_an_empty_batch_has_the_same_components():
    rewards, components = scored(reward_of("R4", box_format="qwen3-vl"), [], {"boxes": [], "width": [], "height": []})
    assert (rewards, components) == ([], {f"R4/{part}": [] for part in COMPONENTS})
