"""What vLLM is asked, with a stand-in for it: vLLM itself needs a GPU, and is not run here."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards.models import load as models
from grounding_rewards.models.generate import Sampling
from grounding_rewards.models.load import load_later, load_model
from grounding_rewards.models.resumable import generate_to_file
from grounding_rewards.models.vllm_backend import VllmModel, vllm_parameters, vllm_prompts
from grounding_rewards.synthetic import synthetic_dataset


class SamplingParams:
    """Keeps what it is given; the names are those of vLLM 0.8 and later."""

    legal = (
        *("n", "temperature", "top_p", "top_k", "max_tokens", "stop_token_ids", "logit_bias", "detokenize", "seed"),
    )

    def __init__(self, **given: Any) -> None:
        assert set(given) <= set(self.legal)
        self.given = given


class LLM:
    """Answers every prompt with `n` answers of tokens of its own choice."""

    def __init__(self, model: str, limit_mm_per_prompt: dict[str, int]) -> None:
        self.model, self.limit, self.calls = model, limit_mm_per_prompt, []  # type: ignore[var-annotated]

    def generate(self, prompts: list[Any], parameters: list[SamplingParams], use_tqdm: bool) -> list[Any]:
        assert len(prompts) == len(parameters)
        self.calls.append((prompts, parameters))
        ends = parameters[0].given["stop_token_ids"]
        answer = types.SimpleNamespace(token_ids=(40, 41, ends[0]))
        return [types.SimpleNamespace(outputs=[answer] * one.given["n"]) for one in parameters]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = types.ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, SamplingParams  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(models, "find_spec", lambda name: types.SimpleNamespace())
    return module


@pytest.fixture
def checkpoint(tiny_model: tuple[Any, Any], tmp_path: Path) -> Path:
    for part in tiny_model:
        part.save_pretrained(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_answers_go_to_the_file(vllm: Any, checkpoint: Path, tmp_path: Path) -> None:
    later, processor = load_later(checkpoint, backend="vllm")
    model = later.load()
    assert isinstance(model, VllmModel)
    assert model.llm.model == str(checkpoint)
    assert model.llm.limit == {"image": 1}
    assert model.config.model_type == "qwen2_5_vl"
    images = synthetic_dataset("test", 3)
    path = tmp_path / "completions.jsonl"
    sampling = Sampling(samples=2, temperature=0.7, max_new_tokens=9)
    answers = generate_to_file(later, processor, images, path, sampling, batch_size=4)
    # The token that ends an answer is no part of it.
    assert answers == [[processor.tokenizer.decode([40, 41])] * 2] * 3
    (prompts, parameters), (last, _) = model.llm.calls
    assert (len(prompts), len(last)) == (2, 1)
    assert parameters[0].given["n"] == 2
    # Written anew it is the same model, and with other weights another one.
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(content := weights.read_bytes())
    assert generate_to_file(later, processor, images, path, sampling, batch_size=4) == answers
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="got another model"):
        generate_to_file(later, processor, images, path, sampling, batch_size=4)


def test_prompts_have_one_placeholder_for_the_image(tiny_model: tuple[Any, Any]) -> None:
    _, processor = tiny_model
    images = synthetic_dataset("test", 1)
    (prompt,) = vllm_prompts(processor, [images[0]])
    assert prompt["prompt_token_ids"].count(processor.image_token_id) == 1
    assert prompt["multi_modal_data"]["image"].size == images[0]["image"].size
    assert processor.tokenizer.decode(prompt["prompt_token_ids"]).endswith("<|im_start|>assistant\n")


def test_parameters(vllm: Any) -> None:
    sampling = Sampling(samples=3, temperature=0.5, max_new_tokens=11)
    first, second = (one.given for one in vllm_parameters(sampling, [2, 7], [9], images=2, seed=5))
    seeds = first.pop("seed"), second.pop("seed")
    assert seeds[0] != seeds[1]
    assert first == second
    assert first == {
        "n": 3,
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": -1,
        "max_tokens": 11,
        "stop_token_ids": [2, 7],
        "logit_bias": {9: -100.0},
        "detokenize": False,
    }
    again = [one.given["seed"] for one in vllm_parameters(sampling, [2], [], images=2, seed=5)]
    assert again == list(seeds)
    assert vllm_parameters(sampling, [2], [], images=1, seed=5)[0].given["logit_bias"] is None


def test_what_vllm_cannot_do_is_refused(vllm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "base"}', encoding="utf-8")
    with pytest.raises(ValueError, match="Expected a whole checkpoint for the vllm backend, got the adapter"):
        load_model(tmp_path, backend="vllm")
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="Expected one process for the vllm backend, got 2"):
        load_model(tmp_path, backend="vllm")
