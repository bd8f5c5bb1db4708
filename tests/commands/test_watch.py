"""`grounding-rewards watch` shows how a run stands while its log grows, and ends when the run ends."""

from __future__ import annotations

import json
import threading
import time

import pytest

from grounding_rewards.cli import main
from grounding_rewards.commands.watch import course
from grounding_rewards.metrics.signal import SIGNAL_KEYS


def entry(step, **values):
    signal = {f"R4/signal/{key}": 0.0 for key in SIGNAL_KEYS}
    signal |= {"R4/signal/all_empty": 0.5, "R4/signal/all_equal": 0.25}
    return {
        "loss": 0.1, "reward": 0.1 * step, "rewards/R4/mean": 0.1 * step, "R4/mean_iou": 0.5,
        "R4/hallucination_rate": None, **signal, "epoch": step / 4, "step": step, **values,
    }  # fmt: skip


CLOSING = {"train_runtime": 9.0, "train_loss": 0.1, "step": 8}


def lines(*entries):
    return "".join(json.dumps(one) + "\n" for one in entries)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "r4"
    folder.mkdir()
    (folder / "config.yaml").write_text("max_steps: -1\nnum_train_epochs: 2.0\n")
    return folder


def shown(capsys, *options):
    assert main(["watch", *map(str, options)]) == 0
    return capsys.readouterr().out


def test_one_frame_has_reward_signal_with_its_remedy_and_how_far_the_run_is(run, capsys):
    (run / "log.jsonl").write_text(lines(*map(entry, range(1, 5))))
    page = shown(capsys, run, "--once")
    assert "r4: step 4 of 8" in page
    row = next(line for line in page.splitlines() if line.strip().startswith("reward"))
    # latest value, mean of the latest, course
    assert row.split() == ["reward", "0.400", "0.250", "▁▃▆█"]
    assert "hallucination" not in page
    assert "R4: 75% of the images had answers that all earned the same: all empty 50%, all equal 25%." in page
    assert "The model abstains" in " ".join(page.split())


def test_before_the_first_step(run, capsys):
    assert shown(capsys, run, "--once") == "r4: no step is logged yet\n"


def test_it_follows_the_run_and_ends_with_it(run, capsys):
    (run / "log.jsonl").write_text(lines(entry(1)))

    def train():
        time.sleep(0.1)
        with (run / "log.jsonl").open("a") as log:
            log.write(lines(entry(2), CLOSING))

    training = threading.Thread(target=train)
    training.start()
    page = shown(capsys, run, "--every", 0.02)
    training.join()
    assert "step 8 of 8, ended" in page


@pytest.mark.parametrize(
    ("log", "options", "said"),
    [
        (None, ["nowhere"], "Expected the folder of a training, got"),
        ("[1]\n", [], "Expected a JSON object in line 1 of"),
        ("", ["--every", "0"], "Expected a number above 0 for --every, got 0"),
    ],
)
def test_errors_teach(run, capsys, log, options, said):
    if log is not None:
        (run / "log.jsonl").write_text(log)
        options = [str(run), *options]
    assert main(["watch", *options, "--once"]) == 2
    assert said in capsys.readouterr().err


def test_a_course_of_many_values_keeps_its_width():
    assert len(course(range(1000))) == 32
    assert course([]) == ""
