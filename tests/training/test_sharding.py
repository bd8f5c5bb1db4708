"""Weights that several processes share; scripts/checks/check_processes.py trains with them."""

from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from torch.distributed import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.integrations import deepspeed
from trl import ModelConfig

from grounding_rewards.data.dataset_columns import add_prompts
from grounding_rewards.models.generate import Sampling, generate_batch
from grounding_rewards.models.load import load_model
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer
from grounding_rewards.training.model import check_model
from grounding_rewards.training.sft import GroundingSFTTrainer
from grounding_rewards.training.sharding import GatherToGenerate
from tests.training.forks import to_the_end
from tests.training.runs import ASSET, LORA, config, sft

pytestmark = pytest.mark.training


@pytest.fixture
def zero3(monkeypatch):
    """Configures ZeRO-3 for transformers when it is called, until the test is over; without DeepSpeed."""
    configuration = SimpleNamespace(is_zero3=lambda: True, config={})
    return lambda: monkeypatch.setattr(deepspeed, "_hf_deepspeed_config_weak_ref", lambda: configuration)


def names(folder):
    """Of the weights in a folder."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


def test_a_model_without_weights_is_built_while_zero3_is_configured(zero3):
    zero3()
    assert check_model(ModelConfig(str(ASSET))).device.type == "meta"
    assert deepspeed.is_deepspeed_zero3_enabled()


def test_one_process_merges_an_adapter_while_zero3_is_configured(zero3, tmp_path, monkeypatch):
    save_model = GroundingSFTTrainer.save_model

    def save_then_configure(self, *args, **kwargs):
        save_model(self, *args, **kwargs)
        zero3()

    monkeypatch.setattr(GroundingSFTTrainer, "save_model", save_then_configure)
    sft(tmp_path / "run", **LORA, max_steps=1, save_strategy="no")
    assert names(tmp_path / "run" / "checkpoint") == names(ASSET)


def test_gathered_weights_keep_checkpoint_names(tmp_path):
    trainer = GroundingGRPOTrainer(str(ASSET), "R4", config(tmp_path / "run"), synthetic_dataset("train", 8))
    # As ZeRO-3 leaves them: with renamings that no name of this checkpoint needed.
    trainer.model._weight_conversions += get_model_conversion_mapping(trainer.model)
    # As ZeRO-2 and FSDP2 gather them: tied weights are two copies.
    gathered = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    assert "lm_head.weight" in gathered
    for folder in (tmp_path / "first", tmp_path / "second"):
        trainer._save(str(folder), dict(gathered))
        assert names(folder) == names(ASSET)


def generate_sharded():
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    model, processor = load_model(ASSET)
    rows, sampling = add_prompts(synthetic_dataset("train", 2), "qwen2.5-vl"), Sampling(max_new_tokens=8)
    expected, _ = generate_batch(model, processor, rows, sampling, seed=0)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    for _ in range(2):
        GatherToGenerate().on_train_begin(None, None, None, model=model)
        texts, _ = generate_batch(model, processor, rows, sampling, seed=0)
        assert texts == expected


def test_fsdp2_gathers_the_weights_that_encode_an_image_before_generation(tmp_path):
    to_the_end(generate_sharded, output=tmp_path / "output.txt")
