"""scripts/check_gpu.py, at the size of the shipped model."""

from __future__ import annotations

import pytest

from tests.test_scripts import script

MEASURED = {
    "device": "NVIDIA H100",
    "memory": 80e9,
    "processes": 1,
    "steps": 3,
    "completions": 64,
    "length": 512,
    "seconds": 20.0,
    "generation": 12.0,
    "reward": 0.05,
    "right": 0.3,
    "generated_per_second": 2730.7,
    "tokens_per_second": 5461.3,
    "peak": 41.2e9,
    "used": 62.5e9,
    "weights": ["bfloat16", "float32"],
    "bf16": True,
    "finite": True,
}


@pytest.mark.training
def test_tiny(tmp_path):
    """Weights of the size that was asked for, all random; what adds up to a step is less than it."""
    import torch
    from safetensors.torch import load_file

    check = script("check_gpu")
    torch.set_num_threads(1)
    weights = check.make_model(str(check.TINY), tmp_path / "model")
    made, shipped = (load_file(folder / "model.safetensors") for folder in (tmp_path / "model", check.TINY))
    assert weights == sum(weight.numel() for weight in shipped.values())
    assert not any(torch.equal(made[name], shipped[name]) for name in made if made[name].dim() > 1)
    values = {**check._TINY, "max_steps": 3, "model_name_or_path": tmp_path / "model", "output_dir": tmp_path / "run"}
    found = check.measured([word for name, value in values.items() for word in (f"--{name}", str(value))])
    assert set(found) == set(MEASURED)
    assert found["steps"] == 2
    assert found["completions"] == 4
    assert 0 < found["reward"] < found["seconds"]
    assert 0 < found["generation"] + found["reward"] < found["seconds"]
    assert found["generated_per_second"] > 0
    assert found["peak"] > 1e8
    assert found["finite"]
    text = check.table({"transformers": found}, "tiny", weights, "2026-01-02")
    assert "| model, random weights | tiny, 1 million |" in text
    assert "torch " in text.splitlines()[-1]
