"""What lies where a model is looked for is known before anything is loaded."""

from __future__ import annotations

import json

import pytest

from grounding_rewards.models.place import adapter_config, check_place

pytestmark = pytest.mark.training


@pytest.mark.parametrize("name", ["config.json", "adapter_config.json"])
def test_a_folder_with_a_model(tmp_path, name):
    (tmp_path / name).write_text("{}", encoding="utf-8")
    check_place(tmp_path)


def test_a_folder_without_one(tmp_path):
    with pytest.raises(ValueError, match=r"Expected config.json or adapter_config.json in the folder of a model"):
        check_place(tmp_path)


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "adapter_model.bin"])
def test_pickled_weights_are_refused(tmp_path, weights):
    for name in ("config.json", weights):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=f"got {weights}, which may hold a program"):
        check_place(tmp_path)
    # what lies beside safetensors is not read
    (tmp_path / "model.safetensors").touch()
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
