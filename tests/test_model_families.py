"""The families of configs/models/, with random weights: their structure, and a real step of GRPO with each."""

import pytest
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText

from grounding_rewards.common.config_files import read_config
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.training.arguments import ModelArguments
from grounding_rewards.training.model import check_model
from scripts.checks.model_families import FAMILIES, family_config, family_processor
from tests.conftest import REPOSITORY
from tests.tables import table
from tests.test_scripts import script

MODELS = REPOSITORY / "configs" / "models"

PUBLISHED = table("model_families", "published")
OTHERS = table("model_families", "others")


def test_every_file_of_a_model_has_its_family():
    checkpoints = {path.stem: read_config(path)["model_name_or_path"] for path in MODELS.glob("*.yaml")}
    assert checkpoints == {name: family.checkpoint for name, family in FAMILIES.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_widths_are_the_published_ones(name):
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(family_config(name))
    assert round(model.num_parameters() / 1e9, 2) == PUBLISHED[name]
    assert model.config.model_type == FAMILIES[name].model_type


@pytest.mark.parametrize(("name", "tokens", "turn"), table("model_families", "tokens"))
def test_an_image_reaches_the_model_in_as_many_tokens_as_the_page_says(name, tokens, turn):
    from grounding_rewards.images.resize import set_image_size

    processor = family_processor(name)
    set_image_size(processor, read_config(MODELS / f"{name}.yaml")["max_image_pixels"])
    text = processor.apply_chat_template(prompt_messages(["mass"]), add_generation_prompt=True, tokenize=False)
    assert text.endswith(turn)
    ids = processor(images=[[Image.new("RGB", (2544, 3056))]], text=[text], return_tensors="pt")["input_ids"]
    assert int((ids == family_config(name, tokenizer=processor.tokenizer).image_token_id).sum()) == tokens


@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS])
def test_the_shipped_adapters_are_on_every_matrix_of_the_language_model_alone(name, tmp_path):
    is_ours = name in FAMILIES
    config = family_config(name, narrow=True, layers=2) if is_ours else AutoConfig.for_model(name, **OTHERS[name])
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
@pytest.mark.parametrize(("name", "words"), table("cases", "memory_of_other_ways_to_train"))
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
