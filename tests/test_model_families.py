"""The families of configs/models/, with random weights: their structure, and a real step of GRPO with each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText

from grounding_rewards.common.config_files import read_config
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.training.arguments import ModelArguments
from grounding_rewards.training.model import adapter_note, check_model
from scripts.checks.model_families import FAMILIES, family_config, family_processor
from tests.test_scripts import script

REPOSITORY = Path(__file__).resolve().parents[1]
MODELS = REPOSITORY / "configs" / "models"

# As the model cards say, in billions.
PUBLISHED = {
    "qwen2_5_vl_3b": 3.75,
    "qwen2_5_vl_7b": 8.29,
    "qwen3_vl_4b": 4.44,
    "medgemma_4b": 4.30,
    "internvl3_8b": 7.94,
}


def test_every_file_of_a_model_has_its_family():
    checkpoints = {path.stem: read_config(path)["model_name_or_path"] for path in MODELS.glob("*.yaml")}
    assert checkpoints == {name: family.checkpoint for name, family in FAMILIES.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_widths_are_the_published_ones(name):
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(family_config(name))
    assert round(model.num_parameters() / 1e9, 2) == PUBLISHED[name]
    assert model.config.model_type == FAMILIES[name].model_type


@pytest.mark.parametrize(
    ("name", "tokens", "turn"),
    [
        # by hand: 896 x 1092 pixels in tokens of 28 x 28; 1024 x 1248 in tokens of 32 x 32
        ("qwen2_5_vl_3b", 1248, "<|im_start|>assistant\n"),
        ("qwen2_5_vl_7b", 1248, "<|im_start|>assistant\n"),
        ("qwen3_vl_4b", 1248, "<|im_start|>assistant\n"),
        ("medgemma_4b", 256, "<start_of_turn>model\n"),
        # tiles of 3 x 4, which is the nearest shape to the image's, and the small copy: 13 of 256
        ("internvl3_8b", 3328, "<|im_start|>assistant\n"),
    ],
)
def test_an_image_reaches_the_model_in_as_many_tokens_as_the_page_says(name, tokens, turn):
    from grounding_rewards.images.resize import set_image_size

    processor = family_processor(name)
    set_image_size(processor, read_config(MODELS / f"{name}.yaml")["max_image_pixels"])
    text = processor.apply_chat_template(prompt_messages(["mass"]), add_generation_prompt=True, tokenize=False)
    assert text.endswith(turn)
    ids = processor(images=[[Image.new("RGB", (2544, 3056))]], text=[text], return_tensors="pt")["input_ids"]
    config = family_config(name, tokenizer=processor.tokenizer)
    assert int((ids == config.image_token_id).sum()) == tokens


_TEXT = {
    **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 300, "head_dim": 16},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}
_VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
_QWEN_VISION = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
#: Families without a file in configs/models/, on which configs/tuning/lora.yaml can be laid all the same.
OTHERS = {
    # Convolutions beside attention, and other names of layers
    "lfm2_vl": {
        "text_config": {"model_type": "lfm2", **_TEXT, "layer_types": ["conv", "full_attention"]},
        "vision_config": _VISION,
    },
    # Two matrices in one
    "glm4v": {"text_config": _TEXT, "vision_config": _QWEN_VISION},
    # Experts, whose matrices are parameters and no layers
    "qwen3_vl_moe": {
        "text_config": {**_TEXT, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2},
        "vision_config": {**_QWEN_VISION, "deepstack_visual_indexes": [1]},
    },
}


@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS])
def test_the_shipped_adapters_are_on_every_matrix_of_the_language_model_alone(name, tmp_path):
    config = (
        family_config(name, narrow=True, layers=2) if name in FAMILIES else AutoConfig.for_model(name, **OTHERS[name])
    )
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        whole = AutoModelForImageTextToText.from_config(config)
    matrices = {key for key, layer in whole.named_modules() if isinstance(layer, torch.nn.Linear)}
    matrices |= {key for key, value in whole.named_parameters() if value.ndim == 3 and "experts" in key}
    pattern = read_config(REPOSITORY / "configs/tuning/lora.yaml")["lora_target_modules"]
    # PEFT has no dropout for matrices of experts.
    adapters = {"use_peft": True, "lora_target_modules": pattern, "lora_dropout": 0.0}
    empty = check_model(ModelArguments(model_name_or_path=str(tmp_path), **adapters))
    adapted = {
        f"{key.replace('.base_layer', '')}{f'.{layer.parameter_name}' if hasattr(layer, 'parameter_name') else ''}"
        for key, layer in empty.named_modules()
        if isinstance(layer, BaseTunerLayer)
    }
    assert adapted == {key for key in matrices if "language_model" in key}
    layers = len([key for key in adapted if "experts" not in key])
    linear = len([key for key in matrices if "experts" not in key])
    assert adapter_note(empty).startswith(f"Adapters on {layers} of {linear} linear layers")


@pytest.fixture(scope="module")
def check_families():
    return script("check_families")


@pytest.mark.training
@pytest.mark.parametrize("name", FAMILIES)
def test_a_real_step(name, check_families, tmp_path):
    """The one of configs/experiments/r4.yaml; scripts/checks/check_families.py takes it at published widths."""
    torch.set_num_threads(1)
    step = check_families.one_step(name, tmp_path, narrow=True)
    assert check_families.faults(step) == []
    assert step.processor == type(family_processor(name, narrow=True)).__name__
    compare_memory(step)


def compare_memory(step):
    """Weights, gradients and optimiser to the byte; activations nearly: a narrow model has many small ones."""
    for part in ("weights", "gradients", "optimiser"):
        assert step.reckoned[part] == step.measured[part], part
    assert step.reckoned["activations"] == pytest.approx(step.measured["activations"], rel=0.2)


@pytest.mark.training
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qwen3_vl_4b", ("--gradient_checkpointing", "false")),
        ("medgemma_4b", ("--config", "configs/tuning/full.yaml", "--learning_rate", "1e-3", "--beta", "0")),
    ],
)
def test_memory_of_other_ways_to_train(name, words, check_families, tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    torch.set_num_threads(1)
    compare_memory(check_families.one_step(name, tmp_path, narrow=True, words=words))


@pytest.mark.training
def test_a_real_step_in_four_bits(check_families, tmp_path, monkeypatch):
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes: pip install bitsandbytes")
    monkeypatch.chdir(REPOSITORY)
    torch.set_num_threads(1)
    words = ("--config", "configs/tuning/qlora.yaml", "--learning_rate", "1e-3")
    step = check_families.one_step("qwen2_5_vl_3b", tmp_path, narrow=True, words=words)
    assert check_families.faults(step) == []
    assert step.reckoned["gradients"] == step.measured["gradients"]
    # Scales are kept beside the weights, where they are not counted.
    assert step.reckoned["weights"] == pytest.approx(step.measured["weights"], rel=0.03)


@pytest.mark.training
def test_a_wrong_pattern_is_seen(check_families, tmp_path):
    """Names of layers alone hit the vision tower of MedGemma too; what is hit in vain has no gradient."""
    torch.set_num_threads(1)
    words = ("--lora_target_modules", "q_proj", "v_proj")
    found = check_families.faults(check_families.one_step("medgemma_4b", tmp_path, narrow=True, words=words))
    assert found[0].startswith("adapters on model.vision_tower.")
    assert found[1].startswith("no adapter on model.language_model.layers.0.mlp.down_proj")
