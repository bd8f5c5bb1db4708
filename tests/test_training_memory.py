"""The memory of a training, reckoned: by hand, and beside what torch holds (tests/test_model_families.py)."""

from dataclasses import replace

import pytest

from grounding_rewards.common.config_files import read_config
from scripts.checks.model_families import family_config
from scripts.checks.training_memory import NF4_BYTES, Training, memory_of, shape_of, spread
from tests.conftest import REPOSITORY
from tests.test_scripts import script

PATTERN = read_config(REPOSITORY / "configs" / "tuning" / "lora.yaml")["lora_target_modules"][0]
SETTINGS = {"adapter_rank": 64, "four_bits": False, "weight_bytes": 2, "reference": False, "checkpointing": True}
SIZES = {"sequences": 8, "tokens": 1000, "patches": 4000, "image_bytes": 1_000_000, "held": 64}
LORA = Training(**SETTINGS, **SIZES)


@pytest.fixture(scope="module")
def shape():
    return shape_of(family_config("qwen2_5_vl_3b"), PATTERN)


def test_adapters_all_weights_and_four_bits(shape):
    lora = memory_of(shape, LORA)
    rank = 64 * shape.adapters
    assert lora.weights == 2 * shape.parameters + 4 * rank
    assert (lora.gradients, lora.optimiser, lora.reference) == (4 * rank, 8 * rank, 0)
    assert lora.images == 64_000_000
    full = memory_of(shape, replace(LORA, adapter_rank=0, weight_bytes=4, reference=True))
    # four bytes each for weight, gradient, two moments and the reference
    assert full.weights + full.gradients + full.optimiser + full.reference == 20 * shape.parameters
    packed = memory_of(shape, replace(LORA, four_bits=True))
    # vocabulary, norms and convolution stay in 16 bits
    whole = shape.parameters - shape.linear
    assert packed.weights == pytest.approx(NF4_BYTES * shape.linear + 2 * whole + 2 * rank)


def test_engines(shape):
    memory = memory_of(shape, replace(LORA, adapter_rank=0, weight_bytes=4, reference=True))
    assert spread(memory, "ddp", 4) == memory
    two, three = spread(memory, "zero2", 4), spread(memory, "zero3", 4)
    assert (two.weights, two.gradients, two.optimiser) == (memory.weights, memory.gradients / 4, memory.optimiser / 4)
    assert (three.weights, three.reference) == (memory.weights / 4, memory.reference / 4)
    assert three.activations == memory.activations
    assert spread(memory, "fsdp2", 4) == three
    with pytest.raises(ValueError, match="Expected one of ddp, zero2, zero3, fsdp2 for engine, got 'zero1'"):
        spread(memory, "zero1", 4)


@pytest.mark.parametrize(
    ("family", "tuning"), [("medgemma_4b", "lora"), ("medgemma_4b", "qlora"), ("qwen2_5_vl_3b", "full")]
)
def test_the_table_on_the_page_is_up_to_date(family, tuning):
    module = script("estimate_memory")
    experiment = REPOSITORY / "configs" / "experiments" / "r4.yaml"
    row = module.row(experiment, family, tuning, 4, (2544, 3056), {})
    assert row in (REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8").splitlines()
