"""Small parts of an evaluation: a reward, a dataset without images and an untrained model of a real architecture."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

# Without the train extra there is nothing to import here.
collect_ignore_glob = [] if find_spec("trl") and find_spec("torch") else ["test_*.py"]


@pytest.fixture(scope="session")
def tiny_model() -> tuple[Any, Any]:
    """An untrained Qwen2.5-VL of a million parameters, and its processor."""
    import torch

    from grounding_rewards.data.synthetic import LABELS
    from grounding_rewards.training.tiny_vlm import build_model, build_processor, build_tokenizer

    torch.set_num_threads(1)
    tokenizer = build_tokenizer((LABELS,))
    return build_model(tokenizer), build_processor(tokenizer)


@pytest.fixture
def films() -> Any:
    """Four films of 100 by 100 pixels of three patients: one finding, two findings, two normal ones."""
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "boxes": [[[0, 0, 50, 50]], [[0, 0, 20, 20], [50, 50, 100, 100]], [], []],
            "labels": [["mass"], ["mass", "effusion"], [], []],
            "width": [100] * 4,
            "height": [100] * 4,
            "box_format": ["qwen3-vl"] * 4,
            "patient_id": ["a", "a", "b", None],
            "id": ["one", "two", "three", "four"],
        }
    )
