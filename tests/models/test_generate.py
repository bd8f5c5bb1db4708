"""Generation with an untrained model: what it says is noise, but the same noise every time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from grounding_rewards.models.generate import Sampling, generate
from grounding_rewards.synthetic import synthetic_dataset

SHORT = Sampling(max_new_tokens=6)
SAMPLED = Sampling(samples=3, temperature=1.0, max_new_tokens=6)


@pytest.fixture(scope="module")
def images() -> Any:
    """Six images, with a longer prompt on every other one so that batches are padded."""
    dataset = synthetic_dataset("test", 6)
    longer = [{"type": "image"}, {"type": "text", "text": "Find every mass, please, and say where it is."}]
    prompts = [[{"role": "user", "content": longer}] if i % 2 else dataset[i]["prompt"] for i in range(6)]
    return [{"prompt": prompts[i], "image": dataset[i]["image"]} for i in range(6)]


def test_greedy_answers_do_not_depend_on_the_batch(tiny_model: tuple[Any, Any], images: Any) -> None:
    together = generate(*tiny_model, images, SHORT)
    alone = generate(*tiny_model, images, SHORT, batch_size=1)
    assert together == alone
    assert [len(answers) for answers in together] == [1] * 6


def test_samples_repeat_with_their_seed_and_leave_the_generator_alone(tiny_model: tuple[Any, Any], images: Any) -> None:
    state = torch.random.get_rng_state()
    first = generate(*tiny_model, images, SAMPLED, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [len(answers) for answers in first] == [3] * 6
    assert first == generate(*tiny_model, images, SAMPLED, seed=1)
    assert first != generate(*tiny_model, images, SAMPLED, seed=2)
    assert any(len(set(answers)) > 1 for answers in first)


def test_answers_end_before_the_end_token(tiny_model: tuple[Any, Any], images: Any) -> None:
    model, processor = tiny_model
    end = processor.tokenizer.eos_token
    # Force the end as the second token of every answer.
    stop = model.generation_config.eos_token_id
    calls: list[int] = []

    def forced(module: Any, args: Any, output: Any) -> Any:
        calls.append(1)
        if len(calls) % 6 != 1:
            output.logits[:, :, stop] = 1e4
        return output

    handle = model.register_forward_hook(forced)
    try:
        answers = generate(model, processor, images[:1], replace(SHORT, skip_special_tokens=False))
    finally:
        handle.remove()
    assert end not in answers[0][0]
    assert len(processor.tokenizer(answers[0][0])["input_ids"]) == 1


def test_the_model_is_left_in_its_mode(tiny_model: tuple[Any, Any], images: Any) -> None:
    model, processor = tiny_model
    model.train()
    generate(model, processor, images[:1], SHORT)
    assert model.training
    model.eval()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 0}, "Expected a number from 1 up for `samples`, got 0"),
        ({"max_new_tokens": 0}, "Expected a number from 1 up for `max_new_tokens`, got 0"),
        ({"temperature": -1}, "Expected a number from 0 up for `temperature`, got -1"),
        ({"temperature": 0, "samples": 2}, "Expected 1 for `samples` at temperature 0, got 2"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)
