"""Every YAML file in every folder of configs/ is read by the parser that will read it; lmms_eval/ has its own test."""

from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from grounding_rewards.common.config_files import read_config
from tests.conftest import REPOSITORY

CONFIGS = REPOSITORY / "configs"
OURS = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "lmms_eval")
FILES = [path.relative_to(CONFIGS).as_posix() for path in OURS]
EXPERIMENTS = [f"experiments/{name}.yaml" for name in ("r1", "r2", "r3", "r4", "r5", "soft_f1")]
# Parts of a run, which are laid over an experiment.
OVERLAYS = [name for name in FILES if name.split("/")[0] in ("generation", "models", "tuning")]
# A file for GPUs is read here as well.
HERE = ["--use_cpu", "true", "--bf16", "false", "--tf32", "false"]


def read(name):
    """What a file says itself."""
    return yaml.safe_load((CONFIGS / name).read_text(encoding="utf-8"))


# Their runs are read in tests/study/test_plan.py; the files that they name for `train` and `sft`, here.
STUDIES = [name for name in FILES if "arms" in read(name)]
TRAININGS = [name for name in FILES if not name.startswith("accelerate/") and name not in (*STUDIES, *OVERLAYS)]


@pytest.mark.parametrize("name", FILES)
def test_header(name):
    """What it is, how to launch it, how to override a value, before the first key."""
    lines = (CONFIGS / name).read_text(encoding="utf-8").splitlines()
    header = "\n".join(takewhile(lambda line: line.startswith("#"), lines))
    assert f"configs/{name}" in header
    assert "verrid" in header


@pytest.mark.training
@pytest.mark.parametrize("name", [name for name in FILES if name not in STUDIES])
def test_is_read_by_its_parser(name, monkeypatch):
    pytest.importorskip("trl", reason="needs the train extra")
    monkeypatch.chdir(REPOSITORY)
    _parser(name)(CONFIGS / name)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_differ_in_the_reward_only(name):
    first, this = read("experiments/r1.yaml"), read(name)
    assert list(first) == list(this) == ["base", "reward", "reward_kwargs", "output_dir", "run_name"]
    assert {key for key in first if first[key] != this[key]} <= {"reward", "reward_kwargs", "output_dir", "run_name"}
    assert this["reward"].lower() == Path(name).stem


@pytest.mark.parametrize("name", TRAININGS)
def test_images_of_patients_stay_here(name):
    """TRL would show images in its completion tables and make repositories public."""
    config = read_config(CONFIGS / name)
    assert config["report_to"] == "none"
    assert not config.get("push_to_hub")
    if "num_generations" in config:
        assert config["log_multimodal"] is False
        # Into the folder of the run, for `inspect`, `score` and `signal`.
        assert (config["log_completions"], config["num_completions_to_print"]) == (True, 0)


def _parser(name):
    if name.startswith("accelerate/"):
        return _read_by_accelerate
    if name in OVERLAYS:
        return _read_over_an_experiment
    return _read_by_grpo if "num_generations" in read_config(CONFIGS / name) else _read_by_sft


def _read_by_accelerate(path):
    from accelerate.commands.config.config_args import load_config_from_file

    assert load_config_from_file(str(path)).num_processes >= 1


def _read_by_grpo(path):
    from grounding_rewards.training.arguments import parse_grpo_arguments

    arguments, config, model = parse_grpo_arguments(["--config", str(path), *HERE])
    options = read_config(path)
    assert arguments.reward == [options.get("reward", "R4")]
    assert config.output_dir == options.get("output_dir", config.output_dir)
    assert model.model_name_or_path


def _read_over_an_experiment(path):
    """Every value of the file has reached the objects that TRL's trainer gets."""
    from grounding_rewards.training.arguments import parse_grpo_arguments

    parts = parse_grpo_arguments(["--config", "configs/experiments/r4.yaml", "--config", str(path), *HERE])
    for name, value in read_config(path).items():
        (found,) = [getattr(part, name) for part in parts if hasattr(part, name)]
        assert found in (value, value[0] if isinstance(value, list) else value), name


def _read_by_sft(path):
    from grounding_rewards.training.arguments import parse_sft_arguments

    _, config, model = parse_sft_arguments(["--config", str(path), *HERE])
    assert model.model_name_or_path
    assert config.output_dir.startswith("runs/")
