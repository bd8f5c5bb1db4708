"""Several processes: the same steps as one, the end of one of them, batches that are hard, and a full disk."""

from __future__ import annotations

import shutil

import pytest

from grounding_rewards.cli import main
from grounding_rewards.training.run_folder import last_complete_checkpoint
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
    """The run says how it goes on; the checkpoint before stays whole, and the run goes on as if never stopped."""
    whole = grpo(tmp_path / "whole", max_steps=4)
    run = tmp_path / "run"
    shutil.copytree(tmp_path / "whole", run)
    for name in ("checkpoint", "checkpoint-3", "checkpoint-4"):
        shutil.rmtree(run / name)
    # A device without room behind the file of the optimizer, after the weights are written.
    (run / "checkpoint-3").mkdir()
    (run / "checkpoint-3" / "optimizer.pt").symlink_to("/dev/full")
    with pytest.raises(
        RuntimeError, match=r"failed at step 3. The disk is full.* --resume_from_checkpoint last goes on"
    ):
        grpo(run, max_steps=4, resume_from_checkpoint="last")
    assert last_complete_checkpoint(run).name == "checkpoint-2"
    (run / "checkpoint-3" / "optimizer.pt").unlink()
    resumed = grpo(run, max_steps=4, resume_from_checkpoint="last")
    assert history(run) == history(whole)
    assert same_weights(weights(resumed), weights(whole))


def test_an_error_of_a_later_process_alone_is_printed(monkeypatch, capsys):
    from grounding_rewards import cli

    monkeypatch.setattr(cli, "_PATIENCE", 0.0)
    monkeypatch.setenv("RANK", "1")
    assert cli.main(["inspect", "nowhere.jsonl", "--box-format", "qwen3-vl"]) == 2
    assert capsys.readouterr().err.startswith("grounding-rewards: process 1: Expected")
