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


def test_a_column_for_each_engine():
    slow = {**MEASURED, "reward": 1.0, "finite": False, "bf16": False}
    lines = script("check_gpu").table({"transformers": slow, "vllm": MEASURED}, "m", 3_754_622_976, "2026-01-02")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines.splitlines() if line.startswith("|")]
    table = {name: cells for name, *cells in rows}
    assert table[""] == ["transformers", "vllm"]
    assert table["model, random weights"] == ["m, 3,755 million"] * 2
    assert table["device"] == ["NVIDIA H100, 80.0 GB"] * 2
    # 1 of 20 seconds, and 0.05 of 20
    assert table["of it reward"] == ["**5.00%**, wanted: under 1%", "0.25%"]
    assert table["of it reward, were all answers right"] == ["**1.50%**, wanted: under 1%"] * 2
    assert table["of it generation"] == ["60%"] * 2
    assert table["most memory in use on the device"] == ["62.5 GB"] * 2
    assert table["weights"] == ["bfloat16, float32, **not finite**", "bfloat16, float32"]
    assert table["bf16"] == ["no", "yes"]


def test_a_model_that_cannot_be_loaded_is_named(capsys, tmp_path):
    assert script("check_gpu").main(["--model", str(tmp_path / "nowhere")]) == 2
    assert "Expected a model that can be loaded for --model, got" in capsys.readouterr().err
