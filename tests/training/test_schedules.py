"""Scheduled rewards in real runs: followed, logged, the same on every process, and resumed to the last bit."""

import json

import pytest
import torch
import yaml

from grounding_rewards.training.arguments import parse_grpo_arguments
from grounding_rewards.training.resume import ExactResume
from grounding_rewards.training.run import train_grpo
from tests.training.forks import two_processes
from tests.training.runs import GRPO, history, same_weights, stopped_copy, weights, words

pytestmark = pytest.mark.training

RAISED = {"schedule": "linear", "from": 0.1, "to": 0.5, "over": 0.5}
# The shipped model hits often: the threshold moves every other step.
PACED = {"schedule": "self_paced", "of": "hit_rate", "window": 8, "from": 0.1, "to": 0.5, "rate": 0.2}
VALUES = {**GRPO, "reward": "R3", "max_completion_length": 30, "max_steps": 6}


def line(folder, kwargs, **values):
    return [*words({**VALUES, "output_dir": folder, **values}), "--reward_kwargs", json.dumps(kwargs)]


def train(folder, kwargs, **values):
    return train_grpo(*parse_grpo_arguments(line(folder, kwargs, **values)))


def thresholds(folder):
    return [entry["R3/iou_threshold"] for entry in history(folder) if "R3/iou_threshold" in entry]


def test_follows_the_steps(tmp_path):
    train(tmp_path / "run", {"iou_threshold": RAISED})
    assert thresholds(tmp_path / "run") == pytest.approx([0.1, 0.1 + 0.4 / 3, 0.1 + 0.8 / 3, 0.5, 0.5, 0.5])
    card = (tmp_path / "run/README.md").read_text()
    assert "iou_threshold: linear from 0.1 to 0.5 over the first 0.5 of training" in card
    # What the folder says repeats the run.
    said = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert said["reward_kwargs"] == {"iou_threshold": RAISED}


def test_an_evaluation_has_the_final_values(tmp_path):
    values = {"eval_strategy": "steps", "eval_steps": 2, "eval_images": 4, "per_device_eval_batch_size": 4}
    # No sampled box is the finding to the last digit.
    strict = {"schedule": "step", "from": 0.1, "to": 1.0, "over": 0.99}
    train(tmp_path / "run", {"iou_threshold": strict}, **values)
    entries = history(tmp_path / "run")
    assert max(entry["R3/recall"] for entry in entries if "R3/recall" in entry) > 0
    assert {entry["eval_R3/recall"] for entry in entries if "eval_R3/recall" in entry} == {0.0}


def test_reused_completions_keep_their_scores(tmp_path):
    train(tmp_path / "run", {"iou_threshold": RAISED}, steps_per_generation=2)
    assert thresholds(tmp_path / "run") == pytest.approx([0.1, 0.1 + 0.8 / 3, 0.5])


@pytest.fixture(scope="module")
def paced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paced") / "run"
    return folder, train(folder, {"iou_threshold": PACED}, max_steps=9)


class TestSelfPaced:
    def test_tightens_with_what_is_hit(self, paced):
        folder, _ = paced
        found = thresholds(folder)
        assert found == sorted(found)
        assert found[0] == pytest.approx(0.1)
        assert len({round(value, 4) for value in found}) > 2
        # in steps of an eighth of the way
        assert all(abs((value - 0.1) / 0.05 - round((value - 0.1) / 0.05)) < 1e-5 for value in found)

    @pytest.mark.parametrize("step", [3, 6])
    def test_resumed_it_is_the_run_that_was_never_stopped(self, paced, tmp_path, step):
        folder, whole = paced
        stopped = stopped_copy(folder, step).rename(tmp_path / "stopped")
        resumed = train(stopped, {"iou_threshold": PACED}, max_steps=9, resume_from_checkpoint="last")
        assert history(stopped) == history(folder)
        assert resumed.paces["R3"].state() == whole.paces["R3"].state()
        assert same_weights(weights(resumed), weights(whole))

    def test_another_number_of_processes_keeps_it_and_is_said(self, paced, tmp_path, capsys):
        """What else two processes had left over is no use to one; its samples are new ones."""
        folder, _ = paced
        stopped = stopped_copy(folder, 6).rename(tmp_path / "stopped")
        checkpoint = stopped / "checkpoint-6"
        (checkpoint / "rng_state.pth").rename(checkpoint / "rng_state_0.pth")
        (checkpoint / "rng_state_1.pth").write_bytes((checkpoint / "rng_state_0.pth").read_bytes())
        left = torch.load(checkpoint / "unfinished_0.pt", weights_only=True)
        torch.save({**left, "processes": 2, "step": 7}, checkpoint / "unfinished_0.pt")
        capsys.readouterr()
        train(stopped, {"iou_threshold": PACED}, max_steps=7, resume_from_checkpoint="last")
        assert thresholds(stopped)[6] == thresholds(folder)[6] > 0.1
        assert "Goes on in 1 processes instead of 2" in capsys.readouterr().err

    def test_a_checkpoint_without_its_state_is_said(self, paced, tmp_path):
        stopped = stopped_copy(paced[0], 6).rename(tmp_path / "stopped")
        (stopped / "checkpoint-6" / "unfinished_0.pt").unlink()
        with pytest.warns(UserWarning, match=r"checkpoint-6' has no unfinished_0.pt: .* self-paced parameters"):
            train(stopped, {"iou_threshold": PACED}, max_steps=9, resume_from_checkpoint="last")


def train_in_two_processes(folder):
    ExactResume.end = lambda self: None
    values = {"train_images": 16, "max_steps": 6}
    whole = train(folder / "run", {"iou_threshold": PACED}, **values)
    moved, first, state = weights(whole), whole.is_world_process_zero(), whole.paces["R3"].state()
    (folder / f"{whole.args.process_index}.json").write_text(json.dumps(state))
    if first:
        stopped_copy(folder / "run", 4)
    whole.accelerator.wait_for_everyone()
    resumed = train(folder / "run-stopped", {"iou_threshold": PACED}, resume_from_checkpoint="last", **values)
    assert same_weights(weights(resumed), moved)
    assert resumed.paces["R3"].state() == state
    if first:
        assert history(folder / "run-stopped") == history(folder / "run")
        assert thresholds(folder / "run")[-1] > 0.15
        (folder / "done").touch()


def test_two_processes_agree(tmp_path):
    two_processes(train_in_two_processes, tmp_path)
    assert (tmp_path / "done").is_file()
    states = [json.loads((tmp_path / f"{k}.json").read_text()) for k in (0, 1)]
    assert states[0] == states[1]
    assert states[0]["iou_threshold"]["moved"] > 1
