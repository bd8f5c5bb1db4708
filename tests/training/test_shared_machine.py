"""Threads do not spin beside other busy processes, unless the user says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from grounding_rewards.cli import main
from tests.training.runs import ENVIRONMENT

LOADED_BY_A_COMMAND = """
import sys
from grounding_rewards.cli import main
assert "torch" not in sys.modules
main(["inspect", "nowhere.jsonl", "--box-format", "qwen3-vl"])
import torch
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs libgomp")
def test_openmp_is_told_before_torch_loads_it():
    """libgomp says itself what it has read."""
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", LOADED_BY_A_COMMAND],
        env={**environment, "OMP_DISPLAY_ENV": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr


@pytest.mark.parametrize(("given", "used"), [(None, "passive"), ("active", "active")])
def test_what_the_user_sets_stays(monkeypatch, given, used):
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    main(["inspect", "nowhere.jsonl", "--box-format", "qwen3-vl"])
    assert os.environ["OMP_WAIT_POLICY"] == used
