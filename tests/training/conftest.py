"""A random model of a real architecture, built once; nothing is downloaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

# Without the train extra there is nothing to import here.
collect_ignore_glob = [] if find_spec("trl") and find_spec("torch") else ["test_*.py"]


@pytest.fixture(scope="session")
def tiny_vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with an untrained Qwen2.5-VL of a million parameters and its processor."""
    import torch

    from scripts.build_tiny_vlm import save_untrained

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tiny_vlm")
    save_untrained(folder)
    return folder
