"""Generation with an untrained model, whose noise is the same every time; and what vLLM is asked, with a stand-in.

vLLM itself needs a GPU, and is not run here.
"""

import shutil
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from grounding_rewards.models import load
from grounding_rewards.models.generate import Sampling, generate, generate_to_file, generate_with_vllm
from grounding_rewards.models.load import VllmModel, load_later, load_model
from grounding_rewards.synthetic import synthetic_dataset

SHORT = Sampling(max_new_tokens=6)
SAMPLED = Sampling(samples=3, temperature=1.0, max_new_tokens=6)


@pytest.fixture(scope="module")
def images():
    """Six images, with a longer prompt on every other one so that batches are padded."""
    dataset = synthetic_dataset("test", 6)
    longer = [{"type": "image"}, {"type": "text", "text": "Find every mass, please, and say where it is."}]
    prompts = [[{"role": "user", "content": longer}] if i % 2 else dataset[i]["prompt"] for i in range(6)]
    return [{"prompt": prompts[i], "image": dataset[i]["image"]} for i in range(6)]


def test_greedy_answers_do_not_depend_on_the_batch(tiny_model, images):
    together = generate(*tiny_model, images, SHORT)
    assert together == generate(*tiny_model, images, SHORT, batch_size=1)
    assert [len(answers) for answers in together] == [1] * 6


def test_samples_repeat_with_their_seed_and_leave_the_generator_alone(tiny_model, images):
    state = torch.random.get_rng_state()
    first = generate(*tiny_model, images, SAMPLED, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [len(answers) for answers in first] == [3] * 6
    assert first == generate(*tiny_model, images, SAMPLED, seed=1)
    assert first != generate(*tiny_model, images, SAMPLED, seed=2)
    assert any(len(set(answers)) > 1 for answers in first)


def test_the_model_is_left_in_its_mode(tiny_model, images):
    model, processor = tiny_model
    model.train()
    generate(model, processor, images[:1], SHORT)
    assert model.training
    model.eval()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sampling(samples=0), "Expected a number from 1 up for `samples`, got 0"),
        (lambda: Sampling(max_new_tokens=0), "Expected a number from 1 up for `max_new_tokens`, got 0"),
        (lambda: Sampling(temperature=-1), "Expected a number from 0 up for `temperature`, got -1"),
        (lambda: Sampling(samples=2), "Expected 1 for `samples` at temperature 0, got 2"),
        (lambda: to_file(["a"], batch_size=0), "Expected a number from 1 up for `batch_size`, got 0"),
        (lambda: to_file(["a"], path="a.txt"), "Expected a file that ends in .jsonl for `path`, got 'a.txt'"),
        (lambda: load_model("assets/tiny_vlm", vllm_options={}), "vllm for `backend` beside `vllm_options`"),
    ],
)
def test_wrong_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def to_file(ids, path="a.jsonl", **settings):
    return generate_to_file(None, None, [{"id": name} for name in ids], path, **settings)


class LLM:
    """In the place of vLLM's: answers every prompt with `n` answers of tokens of its own choice."""

    def __init__(self, model, limit_mm_per_prompt, **options):
        self.model, self.limit, self.options, self.calls = model, limit_mm_per_prompt, options, []

    def generate(self, prompts, parameters, use_tqdm):
        self.calls.append((prompts, parameters))
        answers = [SimpleNamespace(token_ids=(40, 41, one["stop_token_ids"][0])) for one in parameters]
        return [SimpleNamespace(outputs=[a] * one["n"]) for a, one in zip(answers, parameters, strict=True)]


@pytest.fixture
def vllm(monkeypatch):
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = LLM, dict
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(load, "find_spec", lambda name: SimpleNamespace())


class TestVllm:
    def test_answers_go_to_the_file(self, vllm, checkpoint, tmp_path):
        own, path = shutil.copytree(checkpoint, tmp_path / "checkpoint"), tmp_path / "completions.jsonl"
        later, processor = load_later(own, backend="vllm")
        model = later.load()
        assert (model.llm.model, model.llm.limit) == (str(own), {"image": 1})
        assert model.config.model_type == "qwen2_5_vl"
        given = later, processor, synthetic_dataset("test", 3), path, Sampling(2, 0.7, 9)
        answers = generate_to_file(*given, batch_size=4)
        # The token that ends an answer is no part of it.
        assert answers == [[processor.tokenizer.decode([40, 41])] * 2] * 3
        assert [len(prompts) for prompts, _ in model.llm.calls] == [2, 1]
        # Written anew it is the same model, and with other weights another one.
        weights = own / "model.safetensors"
        weights.write_bytes(content := weights.read_bytes())
        assert generate_to_file(*given, batch_size=4) == answers
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ValueError, match="got another model"):
            generate_to_file(*given, batch_size=4)

    def test_is_asked_the_same_with_the_same_settings(self, vllm, tiny_model, images):
        model, processor = tiny_model
        asked = VllmModel(LLM("", {}), model.config, SimpleNamespace(eos_token_id=[2, 7]))
        for _ in range(2):
            generate_with_vllm(asked, processor, images[:2], Sampling(3, 0.5, 11), seed=5)
        (prompts, parameters), (_, again) = asked.llm.calls
        assert parameters == again
        assert parameters[0].pop("seed") != parameters[1].pop("seed")
        common = {"n": 3, "temperature": 0.5, "top_p": 1.0, "top_k": -1, "max_tokens": 11, "detokenize": False}
        image = processor.image_token_id
        assert parameters == [{**common, "stop_token_ids": [2, 7], "logit_bias": {image: -100.0}}] * 2
        assert prompts[0]["prompt_token_ids"].count(image) == 1
        shown = prompts[0]["multi_modal_data"]["image"]
        assert (shown.mode, shown.size) == ("RGB", images[0]["image"].size)
        assert processor.tokenizer.decode(prompts[0]["prompt_token_ids"]).endswith("<|im_start|>assistant\n")
        # The token that ends an answer may be the first one.
        ends_at_0 = VllmModel(LLM("", {}), model.config, SimpleNamespace(eos_token_id=0))
        generate_with_vllm(ends_at_0, processor, images[:1], Sampling(1, 0.5, 11), seed=5)
        assert ends_at_0.llm.calls[0][1][0]["stop_token_ids"] == [0]

    def test_is_held_as_the_options_say(self, vllm, checkpoint):
        options = {"max_model_len": 512, "dtype": "float32", "gpu_memory_utilization": 0.5, "tensor_parallel_size": 2}
        model, _ = load_model(checkpoint, backend="vllm", vllm_options=options)
        assert model.llm.options == options

    def test_what_it_cannot_do_is_refused(self, vllm, tmp_path, monkeypatch):
        (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "base"}', encoding="utf-8")
        with pytest.raises(ValueError, match="Expected a whole checkpoint for the vllm backend, got the adapter"):
            load_model(tmp_path, backend="vllm")
        monkeypatch.setenv("WORLD_SIZE", "2")
        (tmp_path / "config.json").write_text("{}", encoding="utf-8")
        with pytest.raises(ValueError, match="Expected one process that asks a model, got 2"):
            load_model(tmp_path, backend="vllm")
