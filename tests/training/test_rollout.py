"""A rollout by vLLM is what is trained on, with a stand-in that writes out image tokens and remembers images likewise.

scripts/checks/check_vllm.py shows the same with vLLM itself.
"""

import copy
import functools
import math
import sys
import warnings
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOTrainer
from trl.generation import vllm_generation

from grounding_rewards import get_reward
from grounding_rewards.models import parity
from grounding_rewards.models.parity import check_parity
from grounding_rewards.rewards import grounding
from grounding_rewards.rewards.grounding import RolloutWarning
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer
from grounding_rewards.training.rollout import LOGP_DIFFERENCE, WatchedGeneration, trains_vision
from scripts.checks.model_families import FAMILIES, save_family
from tests.tables import table
from tests.training.runs import ASSET, config

pytestmark = pytest.mark.training


class Engine:
    """vLLM's LLM: a copy of the model that answers prompts with one token for each image."""

    def __init__(self, model, processor):
        self.model, self.processor = copy.deepcopy(model).eval(), processor
        self.features, self.prompts, self.resets = {}, [], 0
        runner = SimpleNamespace(model_runner=SimpleNamespace(model=self))
        executor = SimpleNamespace(driver_worker=runner)
        self.llm_engine = SimpleNamespace(model_executor=executor, reset_encoder_cache=self.reset_encoder_cache)
        self.model.model.get_image_features = self.remembered(self.model.model.get_image_features)

    def remembered(self, get_image_features):
        """The features of an image as they were when it was first seen."""

        @functools.wraps(get_image_features)
        def features(pixel_values, *args, **kwargs):
            key = pixel_values.numpy().tobytes()
            if key not in self.features:
                self.features[key] = get_image_features(pixel_values, *args, **kwargs)
            return copy.deepcopy(self.features[key])

        return features

    def load_weights(self, weights):
        own = dict(self.model.named_parameters())
        for name, weight in weights:
            own[name].data.copy_(weight)

    def reset_prefix_cache(self):
        pass

    def reset_encoder_cache(self):
        self.features.clear()
        self.resets += 1

    def written_out(self, ids, grid):
        """As many tokens in the place of each token of an image as the image takes."""
        tokens = int(grid.prod()) // 4
        image = self.processor.image_token_id
        return [token for one in ids for token in ([one] * tokens if one == image else [one])]

    @torch.no_grad()
    def generate(self, prompts, sampling_params, use_tqdm):
        outputs = []
        for prompt in prompts:
            images = self.processor.image_processor(images=[prompt["multi_modal_data"]["image"]], return_tensors="pt")
            ids = self.written_out(prompt["prompt_token_ids"], images["image_grid_thw"])
            try:
                tokens, logps = self.answer(ids, images, sampling_params["max_tokens"])
            except RuntimeError:
                # Too many image tokens for the image: vLLM answers all the same.
                tokens, logps = [7, 8, 9], [-0.1, -0.1, -0.1]
            entries = [{token: SimpleNamespace(rank=1, logprob=p)} for token, p in zip(tokens, logps, strict=True)]
            answer = SimpleNamespace(token_ids=tokens, logprobs=entries)
            outputs.append(SimpleNamespace(prompt_token_ids=ids, outputs=[answer]))
            self.prompts.append(ids)
        return outputs

    def answer(self, ids, images, max_tokens):
        types = [[int(token == self.processor.image_token_id) for token in ids]]
        inputs = {"input_ids": torch.tensor([ids]), "mm_token_type_ids": torch.tensor(types), **images}
        inputs["attention_mask"] = torch.ones(1, len(ids), dtype=torch.long)
        settings = {"do_sample": True, "top_k": 0, "output_logits": True, "return_dict_in_generate": True}
        output = self.model.generate(**inputs, **settings, max_new_tokens=max_tokens)
        tokens = output.sequences[0, len(ids) :].tolist()
        logps = [logits[0].log_softmax(-1)[token].item() for logits, token in zip(output.logits, tokens, strict=True)]
        return tokens, logps


@pytest.fixture
def vllm(monkeypatch):
    def start(self):
        self.llm = Engine(self.model, self.processing_class)

    monkeypatch.setattr(vllm_generation.VLLMGeneration, "_init_vllm", start)
    monkeypatch.setattr(vllm_generation, "SamplingParams", dict, raising=False)


def trainer_with_vllm(folder, images=4, **changes):
    torch.set_num_threads(1)
    options = {"use_vllm": True, "vllm_mode": "colocate", "max_completion_length": 24, **changes}
    args = config(folder, learning_rate=2e-3, **options)
    return GroundingGRPOTrainer(str(ASSET), "R4", args, synthetic_dataset("train", images))


def differences(trainer):
    return [entry[LOGP_DIFFERENCE] for entry in trainer.state.log_history if LOGP_DIFFERENCE in entry]


class TestColocate:
    def test_vllm_sees_the_prompts_that_are_trained_on(self, vllm, tmp_path):
        trainer = trainer_with_vllm(tmp_path, max_steps=3, generation_kwargs={"min_tokens": 1})
        trainer.train()
        image = trainer.processing_class.image_token_id
        assert trainer.vllm_generation.generation_kwargs == {"min_tokens": 1, "logit_bias": {image: -100.0}}
        # The caller's own mapping, which another run may have too.
        assert trainer.args.generation_kwargs == {"min_tokens": 1}
        assert {prompt.count(image) for prompt in trainer.vllm_generation.llm.prompts} == {16}
        assert len(differences(trainer)) == 3
        assert max(differences(trainer)) < 1e-4

    def test_tokens_written_out_twice_are_refused_before_a_weight_moves(self, vllm, tmp_path, monkeypatch):
        monkeypatch.setattr(GroundingGRPOTrainer, "_tokenize_prompts", GRPOTrainer._tokenize_prompts)
        trainer = trainer_with_vllm(tmp_path)
        with pytest.raises(ValueError, match=r"Expected the \d+ tokens .* prompt 0 in vLLM, got \d{3}\. .*trl#6294"):
            trainer.train()
        assert trainer.state.global_step == 0

    @pytest.mark.parametrize(
        ("options", "arguments", "option"),
        [
            # TRL hands images to no continuous batch.
            ({"use_transformers_continuous_batching": True, "use_vllm": False}, {}, "continuous_batching: false"),
            # Turns after a tool get the whole text again, with the tokens of images written out.
            ({}, {"tools": [print]}, r"no tools.*trl#6719"),
        ],
    )
    def test_a_rollout_that_cannot_be_mended_is_refused(self, vllm, tmp_path, options, arguments, option):
        args = config(tmp_path, **{"use_vllm": True, **options})
        with pytest.raises(ValueError, match=f"Expected .*{option}"):
            GroundingGRPOTrainer(str(ASSET), "R4", args, synthetic_dataset("train", 4), **arguments)


class TestImageFeatures:
    """Two images that come again at every step."""

    def test_are_forgotten_when_the_vision_tower_is_trained(self, vllm, tmp_path):
        trainer = trainer_with_vllm(tmp_path, images=2, max_steps=3)
        trainer.train()
        assert max(differences(trainer)) < 1e-4

    def test_of_old_weights_would_be_seen(self, vllm, tmp_path, monkeypatch):
        monkeypatch.setattr(WatchedGeneration, "sync_weights", vllm_generation.VLLMGeneration.sync_weights)
        trainer = trainer_with_vllm(tmp_path, images=2, max_steps=3)
        trainer.train()
        assert differences(trainer)[2] > 100 * differences(trainer)[0]

    def test_are_kept_where_the_tower_stays_as_it_is(self, vllm, tmp_path):
        trainer = trainer_with_vllm(tmp_path, max_steps=1)
        trainer.vllm_generation.forgets_images = False
        trainer.train()
        assert trainer.vllm_generation.llm.resets == 0

    @pytest.mark.parametrize("name", FAMILIES)
    def test_change_with_the_tower_and_its_projector_alone(self, name, tmp_path):
        save_family(name, tmp_path, layers=1, narrow=True)
        model = AutoModelForImageTextToText.from_pretrained(tmp_path)
        assert trains_vision(model)
        outer = [*model.get_decoder().parameters(), *model.get_output_embeddings().parameters()]
        for weight in model.parameters():
            weight.requires_grad = any(weight is other for other in outer)
        assert not trains_vision(model)
        projector = next(name for name, _ in model.named_parameters() if "merger" in name or "projector" in name)
        model.get_parameter(projector).requires_grad = True
        assert trains_vision(model)


class TestWatch:
    """Differences of log-probabilities, and what is done about them."""

    @pytest.fixture
    def noisy(self, vllm, monkeypatch):
        """An engine whose probabilities are off by so much, from a call on."""

        def plant(noise, first_call=0):
            answer, calls = Engine.answer, []

            def off(self, ids, images, max_tokens):
                tokens, logps = answer(self, ids, images, max_tokens)
                calls.append(1)
                return tokens, [value - (noise if len(calls) > first_call else 0) for value in logps]

            monkeypatch.setattr(Engine, "answer", off)

        return plant

    def test_noise_is_refused_before_a_weight_moves(self, noisy, tmp_path):
        noisy(0.6)
        trainer = trainer_with_vllm(tmp_path)
        with pytest.raises(ValueError, match=r"differ by 0\.6 a token .* Likely: .* Or set use_vllm: false"):
            trainer.train()
        assert trainer.state.global_step == 0

    def test_noisy_first_step_is_refused_without_parity_check(self, noisy, tmp_path, monkeypatch):
        monkeypatch.setattr(parity, "_check_vllm_parity", lambda *_: None)
        noisy(0.6)
        trainer = trainer_with_vllm(tmp_path)
        with pytest.raises(ValueError, match=r"Expected the rollout to be what is trained on"):
            trainer.train()
        assert trainer.state.global_step == 0

    def test_later_noise_is_warned_of_once_with_its_cause(self, noisy, tmp_path):
        # Three images of the check, and four answers of the first step.
        noisy(0.6, first_call=7)
        trainer = trainer_with_vllm(tmp_path, max_steps=3, top_p=0.9)
        with pytest.warns(RolloutWarning) as caught:
            trainer.train()
        (message,) = [str(entry.message) for entry in caught if entry.category is RolloutWarning]
        assert "differ by 0.6 a token" in message
        assert "top_p, top_k, min_p or repetition_penalty, which change what is sampled" in message

    def test_rounding_is_no_noise(self, noisy, tmp_path):
        noisy(0.01)
        trainer = trainer_with_vllm(tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RolloutWarning)
            trainer.train()

    def test_a_training_that_computes_nan_is_refused(self, vllm, tmp_path, monkeypatch):
        trainer = trainer_with_vllm(tmp_path)
        training_logps = parity._training_logps

        def broken(*args):
            tokens, mask, logps = training_logps(*args)
            return tokens, mask, logps * math.nan

        monkeypatch.setattr(parity, "_training_logps", broken)
        with pytest.raises(ValueError, match="differ by nan a token"):
            check_parity(trainer, trainer.train_dataset)


class TestStockTrl:
    """A reward sees no engine: it warns where the fault is possible."""

    @pytest.mark.parametrize(("columns", "is_mended", "times"), table("training/cases", "is_warned_of_once"))
    def test_is_warned_of_once(self, monkeypatch, columns, is_mended, times):
        grounding._warn_of_doubled_images.cache_clear()
        monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
        if is_mended:
            monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", lambda self, images, vllm_prompt_ids=None: None)
        reward = get_reward("R4", box_format="qwen3-vl")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                reward(["[]"], boxes=[[]], width=[10], height=[10], **columns)
        said = [str(entry.message) for entry in caught if entry.category is RolloutWarning]
        assert ["trl#6294" in message for message in said] == [True] * times


def test_the_stand_in_takes_what_trl_gives_to_vllm():
    """A processor of Qwen's kind writes out the tokens of an image as the stand-in does."""
    processor = AutoProcessor.from_pretrained(ASSET)
    row = synthetic_dataset("train", 1)[0]
    images = processor.image_processor(images=[row["image"]], return_tensors="pt")
    [written] = processor(text=["<|image_pad|>"], images=[row["image"]])["input_ids"]
    engine = Engine.__new__(Engine)
    engine.processor = processor
    assert engine.written_out([processor.image_token_id], images["image_grid_thw"]) == written
