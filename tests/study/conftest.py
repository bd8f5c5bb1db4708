"""A study of a few steps, made once."""

import copy
import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY

# Without the train extra no run can be planned.
NEED_TRL = ["test_plan.py", "test_claims.py", "test_runs.py"]
collect_ignore_glob = [] if find_spec("trl") and find_spec("torch") else NEED_TRL

#: A study whose runs take a few seconds; paths are found from the repository.
SMALL = yaml.safe_load(Path(__file__).with_name("small.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def small():
    """The content of the YAML of a small study, to be changed."""
    return copy.deepcopy(SMALL)


def called(words):
    """The exit code of a program of a study, which is called in this process: it has torch loaded already."""
    module, arguments = words[1], list(words[2:])
    if module == "accelerate.commands.launch":
        # `--quiet --config_file FILE -m grounding_rewards.cli ...`: one process
        module, arguments = arguments[4], arguments[5:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *arguments])
        return importlib.import_module(module).main()


def called_here(words):
    """Call a program of a study that does not fail."""
    assert not called(words)


@pytest.fixture(scope="session")
def made_study(tmp_path_factory):
    """The folder of the small study with its first two runs, R3 and sft with seed 0, and its YAML beside it."""
    from grounding_rewards.cli import main
    from grounding_rewards.study import runs

    root = tmp_path_factory.mktemp("study")
    file = root / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        # Those of test_run.py start programs, and end in the same results.
        patch.setattr(runs, "run_program", lambda words, log: called_here(words))
        assert main(["study", str(file), "--out", str(root / "out"), "--starts-only"]) == 0
        for index in ("0", "1"):
            assert main(["study", str(file), "--out", str(root / "out"), "--index", index]) == 0
    return root / "out"
