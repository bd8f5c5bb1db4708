"""`grounding-rewards env`: what a report of a problem needs, and nothing that should stay on this machine."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from grounding_rewards.cli import main
from grounding_rewards.commands import env
from tests.conftest import REPOSITORY


def test_versions_of_what_matters_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 0
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    for row in (["python", platform.python_version()], ["numpy", version("numpy")], ["scipy", version("scipy")]):
        assert row in words


def test_it_can_be_pasted_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--json"]) == 0
    shown = capsys.readouterr().out
    for private in (str(Path.home()), str(REPOSITORY), sys.prefix, platform.node(), "/"):
        assert private not in shown
    assert set(json.loads(shown)) == {"grounding_rewards", "packages", "extras", "machine"}


def test_what_governs_threads_and_devices_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "active", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    # An empty list of devices hides them all.
    assert env._machine(False).items() >= {**given, "CUDA_VISIBLE_DEVICES": "empty"}.items()
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert env._machine(False)["OMP_WAIT_POLICY"] == "not set"


@pytest.mark.parametrize(
    ("missing", "said"),
    [([], "complete"), (["pydicom"], "without pydicom"), (["pydicom", "highdicom"], "not installed")],
)
def test_an_extra_is_whole_or_says_what_it_lacks(missing, said, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=1.26", 'pydicom>=3.0.1; extra == "dicom"', "highdicom>=0.24 ; extra == 'dicom'"]
    monkeypatch.setattr(env, "requires", lambda name: lines)
    monkeypatch.setattr(env, "package_version", lambda name: None if name in ("torch", *missing) else "1")
    # torch is in no extra of this list
    monkeypatch.setattr(env, "_machine", lambda has_torch: {})
    monkeypatch.setattr(env, "_BESIDE", ("torch",))
    assert env.environment()["extras"] == {"dicom": said}


def test_a_torch_that_cannot_be_loaded_is_said_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise OSError("libcudart.so: cannot open shared object file in /home/somebody")

    monkeypatch.setattr(env.importlib, "import_module", broken)
    assert env._gpus() == {"GPU": "unknown: torch cannot be loaded (OSError)"}


def test_without_torch_there_is_no_gpu_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env._machine(False)["GPU"] == "unknown without torch"
