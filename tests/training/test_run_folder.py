"""A folder belongs to one run: others are refused, resumed runs compared, and everything written can be read back."""

import json
import re

import pytest
import yaml

from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments
from grounding_rewards.training.run_folder import claim, find_start, resolved_config, versions
from tests.tables import table
from tests.training.runs import COMMON, GRPO, LORA, words

pytestmark = pytest.mark.training

RUN = {"reward": ["R4"], "dataset": "synthetic", "learning_rate": 1e-5, "save_steps": 5, "max_steps": 10}


def left(folder, step, **config):
    """What a run that was stopped after a step has left."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({**RUN, "output_dir": str(folder), **config}))
    (folder / "versions.json").write_text(json.dumps(versions()))
    (folder / "log.jsonl").write_text('{"step": 1}\n')
    checkpoint(folder, step)
    return folder


def checkpoint(folder, step, *without):
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    for name in {"trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth"} - set(without):
        (path / name).write_text("{}")
    return path


def start(folder, **config):
    return find_start({**RUN, "output_dir": str(folder), **config})


class TestAnotherRun:
    @pytest.mark.parametrize(
        ("names", "overwrite", "message"), table("training/cases", "a_folder_with_other_files_is_refused")
    )
    def test_a_folder_with_other_files_is_refused(self, tmp_path, names, overwrite, message):
        for name in names:
            path = tmp_path / name / name
            path.parent.mkdir()
            path.write_text("{}\n") if path.suffix in (".md", ".yaml", ".jsonl") else path.mkdir()
            with pytest.raises(ValueError, match=message.format(name=name)):
                start(path.parent, overwrite=overwrite)
            assert path.exists()

    def test_that_made_no_step_is_none(self, tmp_path):
        for name in ("versions.json", "log.jsonl", "checkpoints.txt"):
            (tmp_path / name).touch()
        (tmp_path / "evaluation").mkdir()
        assert start(tmp_path)[0] is None

    def test_overwrite_removes_the_run_and_nothing_else(self, tmp_path):
        folder = left(tmp_path / "run", 5)
        (folder / "checkpoint").mkdir()
        (folder / "evaluation").mkdir()
        (folder / "notes.txt").write_text("mine")
        (folder / "completions").mkdir()
        for name in ("completions_00001", "mine"):
            (folder / "completions" / f"{name}.parquet").write_text("")
        config = {**RUN, "output_dir": str(folder), "overwrite": True}
        with pytest.raises(ValueError, match="Expected a model_name_or_path that overwrite does not remove"):
            find_start({**config, "model_name_or_path": str(folder / "checkpoint")})
        claim(config)
        kept = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
        files = {"config.yaml", "versions.json", "notes.txt", "completions/mine.parquet"}
        assert kept == {*files, "evaluation", "completions"}
        assert yaml.safe_load((folder / "config.yaml").read_text())["overwrite"] is False


class TestResume:
    def test_the_same_run_goes_on(self, tmp_path):
        folder = left(tmp_path / "run", 5)
        assert start(folder, resume_from_checkpoint="last") == (folder / "checkpoint-5", [])
        assert start(folder, resume_from_checkpoint="true")[0] == folder / "checkpoint-5"

    def test_run_without_checkpoint_starts_again(self, tmp_path):
        folder = left(tmp_path / "run", 5)
        (folder / "checkpoint-5" / "trainer_state.json").unlink()
        assert start(folder, resume_from_checkpoint="last")[0] is None

    @pytest.mark.parametrize(
        ("lacking", "changed", "message"), table("training/cases", "what_cannot_go_on_is_refused_and_named")
    )
    def test_what_cannot_go_on_is_refused_and_named(self, tmp_path, lacking, changed, message):
        folder = left(tmp_path / "run", 5)
        if lacking:
            (folder / "checkpoint-5" / lacking).unlink()
        if lacking == "trainer_state.json":
            (folder / "checkpoint").mkdir()
        with pytest.raises(ValueError, match=message):
            start(folder, resume_from_checkpoint="last", **changed)

    def test_what_may_differ_is_named(self, tmp_path):
        folder = left(tmp_path / "run", 5)
        (folder / "versions.json").write_text(json.dumps({**versions(), "trl": "1.0.0"}))
        checkpoint(folder, 6, "trainer_state.json")
        resumed, notes = start(folder, resume_from_checkpoint="last", save_steps=2, max_steps=20)
        assert resumed == folder / "checkpoint-5"
        assert notes == [
            "Goes on with max_steps 20 instead of 10.",
            "Goes on with save_steps 2 instead of 5.",
            f"Goes on with trl {versions()['trl']} instead of 1.0.0.",
            "Passed over checkpoint-6, which was not written to its end.",
        ]

    # as FSDP2 writes it, whole and shared out, and DeepSpeed
    @pytest.mark.parametrize("optimizer", ["optimizer.bin", "optimizer_0", "global_step5"])
    def test_checkpoints_of_shared_out_weights_are_whole(self, tmp_path, optimizer):
        folder = left(tmp_path / "run", 5)
        (folder / "checkpoint-5" / "optimizer.pt").rename(folder / "checkpoint-5" / optimizer)
        assert start(folder, resume_from_checkpoint="last")[0] == folder / "checkpoint-5"

    def test_a_checkpoint_goes_on_in_a_fresh_folder_alone(self, tmp_path):
        """The run would go on from the later one the next time that it is asked for the last."""
        folder, other = left(tmp_path / "run", 5), left(tmp_path / "other", 3)
        earlier = str(checkpoint(folder, 4))
        with pytest.raises(ValueError, match="got checkpoint-4 before checkpoint-5"):
            start(folder, resume_from_checkpoint=earlier)
        with pytest.raises(ValueError, match="or resume in the folder of the checkpoint"):
            start(other, resume_from_checkpoint=earlier)
        with pytest.raises(ValueError, match="got reward"):
            start(tmp_path / "fresh", resume_from_checkpoint=earlier, reward=["R1"])
        assert start(tmp_path / "fresh", resume_from_checkpoint=earlier)[0] == folder / "checkpoint-4"

    def test_a_configuration_that_would_run_away_is_none_and_refused(self, tmp_path):
        bomb = "".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]\n" for n in range(9))
        (left(tmp_path / "run", 5) / "config.yaml").write_text(bomb, encoding="utf-8")
        with pytest.raises(ValueError, match="instead of None"):
            start(tmp_path / "run", resume_from_checkpoint="last")


class TestReadBack:
    """A run's own config.yaml is a configuration; a run with an adapter could not read its own."""

    @pytest.mark.parametrize(
        "values",
        [
            *table("training/cases", "every_value"),
            {**LORA, "lora_target_modules": "q_proj v_proj"},
            {**LORA, "lora_target_modules": r".*language_model.*\.(q_proj|k_proj)"},
        ],
    )
    @pytest.mark.parametrize("command", ["train", "sft"])
    def test_every_value(self, tmp_path, command, values):
        parse, base = {"train": (parse_grpo_arguments, GRPO), "sft": (parse_sft_arguments, COMMON)}[command]
        if command == "sft":
            values = {name: value for name, value in values.items() if not re.search("reward|completion", name)}
        given = {**base, "output_dir": tmp_path / "run", **values}
        options = {name: value for name, value in given.items() if value is None}
        parts = parse(words({name: value for name, value in given.items() if value is not None}), options)
        config = resolved_config(*parts)
        claim(config)
        written = tmp_path / "run" / "config.yaml"
        assert resolved_config(*parse(["--config", str(written)])) == config == yaml.safe_load(written.read_text())
