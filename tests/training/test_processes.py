"""Several processes: the same steps as one, the end of one of them, batches that are hard, and a full disk."""

from __future__ import annotations

import errno
import os
import resource
import shutil

import pytest

from grounding_rewards.cli import main
from grounding_rewards.training.run_folder import last_complete_checkpoint, told_of_full_disk
from tests.test_scripts import script
from tests.training.forks import to_the_end
from tests.training.runs import grpo, history, same_weights, weights


def called(words):
    """What Python is given by the script, in a process that has loaded what it imports."""
    return main(words[2:]) if words[0] == "-m" else script("check_processes").main(words[1:])


@pytest.mark.training
class TestTwoProcesses:
    """The cheap half of scripts/check_processes.py, which also has four processes and shared out weights."""

    @pytest.fixture
    def checks(self):
        """The script; what no process of is killed needs no launcher."""
        made = script("check_processes")

        def without_launcher(processes, *words, log):
            to_the_end(called, [str(word) for word in words], output=log, processes=processes)
            return 0

        made.to_the_end = without_launcher
        return made

    def test_the_steps_are_those_of_one_process(self, checks, tmp_path):
        """Also where nothing can be read, where answers are empty, and with images that do not fill the batches."""
        checks.check_same_steps(tmp_path / "run", 2)

    def test_a_killed_process_ends_the_run_which_goes_on_from_its_checkpoint(self, checks, tmp_path):
        checks.check_killed(tmp_path / "run", 2)


@pytest.mark.training
def test_full_disk_at_a_checkpoint(tmp_path):
    """The run ends with what to do; the checkpoint before stays whole, and the run goes on as if never stopped."""
    whole = grpo(tmp_path / "whole", max_steps=4)
    run = tmp_path / "run"
    shutil.copytree(tmp_path / "whole", run)
    for name in ("checkpoint", "checkpoint-3", "checkpoint-4"):
        shutil.rmtree(run / name)
    # A device without room behind the file of the optimizer, after the weights are written.
    (run / "checkpoint-3").mkdir()
    (run / "checkpoint-3" / "optimizer.pt").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"Expected room on the disk of .*goes on from checkpoint-2\.") as caught:
        grpo(run, max_steps=4, resume_from_checkpoint="last")
    assert "lower save_total_limit" in str(caught.value)
    assert not (run / "checkpoint-3").exists()
    assert last_complete_checkpoint(run).name == "checkpoint-2"
    resumed = grpo(run, max_steps=4, resume_from_checkpoint="last")
    assert history(run) == history(whole)
    assert same_weights(weights(resumed), weights(whole))


class TestFullDisk:
    """What libraries say of a full disk: of a limit here, of /dev/full, or of a quota."""

    def said(self, folder, write, *written):
        with pytest.raises(OSError, match="Expected room on the disk") as caught, told_of_full_disk(folder, *written):
            write()
        return str(caught.value)

    @pytest.fixture
    def limited(self):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    def test_weights(self, tmp_path, limited):
        import torch
        from safetensors.torch import save_file

        made = {"weight": torch.zeros(100_000)}
        assert "got File too large" in self.said(tmp_path, lambda: save_file(made, tmp_path / "model.safetensors"))
        assert "a part could be written" in self.said(tmp_path, lambda: torch.save(made, tmp_path / "optimizer.pt"))

    def test_log(self, tmp_path):
        def log():
            with open("/dev/full", "w", encoding="utf-8") as file:
                file.write("{}\n")

        said = self.said(tmp_path, log)
        assert "got No space left on device" in said
        assert "begins anew" in said

    def test_what_was_being_written_is_removed_and_nothing_else(self, tmp_path):
        for name in ("checkpoint-1", "checkpoint-2", "checkpoint", "completions"):
            (tmp_path / name).mkdir()
        (tmp_path / "checkpoint-1" / "trainer_state.json").write_text("{}")
        (tmp_path / "checkpoint-2" / "trainer_state.json").write_text('{"cut')

        def write():
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

        assert "got Disk quota exceeded" in self.said(tmp_path, write)
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-1", "checkpoint", "completions"}
        self.said(tmp_path, write, tmp_path / "checkpoint")
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-1", "completions"}

    @pytest.mark.parametrize("error", [OSError(errno.EACCES, "no"), RuntimeError("shape"), ValueError("Expected x")])
    def test_other_errors_stay(self, tmp_path, error):
        with pytest.raises(type(error)) as caught, told_of_full_disk(tmp_path):
            raise error
        assert caught.value is error


def test_an_error_of_a_later_process_alone_is_printed(monkeypatch, capsys):
    from grounding_rewards import cli

    monkeypatch.setattr(cli, "_PATIENCE", 0.0)
    monkeypatch.setenv("RANK", "1")
    assert cli.main(["inspect", "nowhere.jsonl", "--box-format", "qwen3-vl"]) == 2
    assert capsys.readouterr().err.startswith("grounding-rewards: process 1: Expected")
