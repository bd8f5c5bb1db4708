"""What lies where a model is looked for is known before anything is loaded."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from grounding_rewards.models.place import adapter_config, check_place, digest_of_weights

pytestmark = pytest.mark.training


@pytest.mark.parametrize("name", ["config.json", "adapter_config.json"])
def test_a_folder_with_a_model(tmp_path, name):
    (tmp_path / name).write_text("{}", encoding="utf-8")
    check_place(tmp_path)


def test_a_folder_without_one(tmp_path):
    with pytest.raises(ValueError, match=r"Expected config.json or adapter_config.json in the folder of a model"):
        check_place(tmp_path)


@pytest.mark.parametrize(
    ("weights", "instead"),
    [
        ("pytorch_model.bin", "model.safetensors"),
        ("pytorch_model-00001-of-00002.bin", "model-00001-of-00002.safetensors"),
        ("adapter_model.bin", "adapter_model.safetensors"),
    ],
)
def test_pickled_weights_are_refused(tmp_path, weights, instead):
    for name in ("config.json", weights):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=f"got {weights}, which may hold a program"):
        check_place(tmp_path)
    # what lies beside safetensors is not read
    (tmp_path / instead).touch()
    check_place(tmp_path)


def test_the_weights_of_a_model_do_not_stand_for_those_of_an_adapter(tmp_path):
    for name in ("adapter_config.json", "adapter_model.bin", "model.safetensors"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"got adapter_model\.bin, which may hold a program"):
        check_place(tmp_path)


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen2.5-VL-3B-Instruct"])
def test_names_on_the_hub(name):
    check_place(name)


@pytest.mark.parametrize("name", ["runs/r4/checkpoint", "/nowhere", "a b"])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match="for `model_name_or_path`, got"):
        check_place(name, "model_name_or_path")


class TestAdapterConfig:
    def test_of_an_adapter(self, tmp_path):
        (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4}), encoding="utf-8")
        assert adapter_config(tmp_path) == {"r": 4}

    def test_of_a_checkpoint_that_carries_one(self, tmp_path):
        for name in ("adapter_config.json", "config.json"):
            (tmp_path / name).write_text("{}", encoding="utf-8")
        assert adapter_config(tmp_path) is None


WEIGHTS = {"first": torch.zeros(1000), "second": torch.ones(3, 7), "none": torch.zeros(0), "one": torch.tensor(2.0)}


def saved(folder, weights, **adapter):
    folder.mkdir()
    save_file(weights, folder / ("adapter_model.safetensors" if adapter else "model.safetensors"))
    name = "adapter_config.json" if adapter else "config.json"
    (folder / name).write_text(json.dumps(adapter), encoding="utf-8")
    return folder


def test_a_model_is_known_by_its_weights(tmp_path):
    known = digest_of_weights(saved(tmp_path / "a", WEIGHTS))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert digest_of_weights(tmp_path / "b") == known
    others = [
        {**WEIGHTS, "second": WEIGHTS["second"] + 1},
        {**WEIGHTS, "one": torch.tensor(3.0)},
        {**WEIGHTS, "first": torch.cat([torch.zeros(999), torch.ones(1)])},
        {**WEIGHTS, "second": torch.ones(7, 3)},
        {name: weight for name, weight in WEIGHTS.items() if name != "none"},
    ]
    digests = {digest_of_weights(saved(tmp_path / str(k), one)) for k, one in enumerate(others)}
    assert len(digests - {known}) == len(others)


def test_an_adapter_is_known_by_itself_and_by_the_model_under_it(tmp_path):
    base, other = (str(saved(tmp_path / str(k), {"w": torch.full((9,), float(k))})) for k in range(2))
    given = [(1.0, base, 8), (2.0, base, 8), (1.0, other, 8), (1.0, base, 16)]
    adapters = [
        saved(
            tmp_path / f"adapter {k}", {"a": torch.full((4,), value)}, base_model_name_or_path=under, lora_alpha=alpha
        )
        for k, (value, under, alpha) in enumerate(given)
    ]
    assert len({digest_of_weights(one) for one in adapters}) == len(given)
