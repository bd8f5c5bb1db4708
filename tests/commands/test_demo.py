"""`grounding-rewards demo`, from a folder that is no checkout."""

import json
import re
from pathlib import Path

import pytest

from grounding_rewards.cli import main
from grounding_rewards.commands import demo
from grounding_rewards.prepare.load import load_split
from tests.conftest import REPOSITORY
from tests.tables import table

pytest.importorskip("trl", reason="needs the train extra")
pytestmark = pytest.mark.training


@pytest.fixture
def called(monkeypatch, tmp_path):
    """The commands that the demo calls; they do nothing. The working directory is empty."""
    calls = []

    def call(words, **_):
        calls.append(words[words.index("grounding_rewards.cli") + 1 :])
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo.subprocess, "call", call)
    return calls


def test_a_smoke_run_leaves_a_page_a_card_and_metrics(tmp_path, monkeypatch, capsys):
    from datasets import DatasetDict

    splits = {name: load_split("synthetic", name, max_images=n) for name, n in (("train", 8), ("test", 5))}
    DatasetDict(splits).save_to_disk(str(tmp_path / "images"))
    launched = []

    def call(words, **_):
        # Within this process, which has loaded torch already.
        launched.append(words)
        return main(words[words.index("grounding_rewards.cli") + 1 :])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo.subprocess, "call", call)
    out = tmp_path / "out"
    few = ["--dataset", "images", "--output_dir", str(out), "--disable_tqdm", "true"]
    assert main(["demo", "--smoke", *few, "--reward", "R2"]) == 0
    assert launched[1][1:3] == ["-m", "accelerate.commands.launch"]
    assert Path(launched[1][launched[1].index("--config_file") + 1]).is_file()
    written = {"before", "after", "checkpoint", "index.html", "diff.json", "log.jsonl"}
    assert {path.name for path in out.iterdir()} >= written
    printed = capsys.readouterr().out
    heading = next(line for line in printed.splitlines() if line.startswith("  metric ") and "before" in line)
    assert heading.split() == ["metric", "before", "after", "change"]
    # At the end: what changed, the reward in training, and where the page is.
    end = " ".join(printed[printed.index("Mean IoU ") :].split())
    assert re.fullmatch(
        r"Mean IoU .*no change shown\. F1@0\.5 .* No metric or label is shown to be worse\. "
        r"Reward in training \S+ → \S+, first and last 1 of 1 steps\. "
        rf"Page: {re.escape((out / 'index.html').as_uri())}",
        end,
    )
    assert (out / "index.html").read_text(encoding="utf-8").count("data:image/jpeg") == 4
    assert "R2: " in (out / "README.md").read_text(encoding="utf-8")
    assert "sampled_reward" in json.loads((out / "diff.json").read_text(encoding="utf-8"))["metrics"]
    facts = json.loads((out / "after" / "evaluation.json").read_text(encoding="utf-8"))["facts"]
    assert "at most 24 new tokens" in facts["decoding"]
    assert "no_box_bonus=0.2" in facts["reward"]


def test_several_rewards_are_refused_before_anything_runs(called, capsys):
    assert main(["demo", "--reward", "R1", "R2", "--reward_kwargs", "[{}, {}]"]) == 2
    assert "Expected one reward for --reward, got R1, R2" in capsys.readouterr().err
    assert called == []
    assert not Path("runs").exists()


def test_the_warm_start_comes_first_on_the_same_images(called, tmp_path):
    options = ["--config", "configs/demo/real_images.yaml", "--warm_start", "configs/demo/sft_real_images.yaml"]
    assert main(["demo", *options, "--output_dir", str(tmp_path), "--dataset", "mine"]) == 0
    assert [words[0] for words in called] == ["sft", "evaluate", "train", "evaluate", "diff"]
    warm, start = tmp_path / "warm_start", str(tmp_path / "warm_start" / "checkpoint")
    assert called[0][-6:] == ["--dataset", "mine", "--train_split", "train", "--output_dir", str(warm)]
    assert called[1][called[1].index("--model") + 1] == start
    assert called[2][called[2].index("--model_name_or_path") + 1] == start
    assert called[2][-1] == "--overwrite"
    assert all(words[words.index("--dataset") + 1] == "mine" for words in called[:4])


def test_what_is_trained_is_not_trained_again(called, tmp_path):
    assert main(["demo", "--output_dir", str(tmp_path), "--resume_from_checkpoint", "last"]) == 0
    assert [words[0] for words in called] == ["evaluate", "train", "evaluate", "diff"]
    assert not any("--overwrite" in words for words in called)


def test_a_command_that_fails_ends_the_demo_with_its_code(called, monkeypatch, tmp_path):
    monkeypatch.setattr(demo.subprocess, "call", lambda words, **_: called.append(words) or 3)
    assert main(["demo", "--output_dir", str(tmp_path)]) == 3
    assert len(called) == 1


@pytest.mark.parametrize(("options", "kwargs"), table("commands/tables", "bonuses"))
def test_another_reward_keeps_the_bonus_alone(called, options, kwargs):
    assert main(["demo", *options]) == 0
    before = called[0]
    assert json.loads(before[before.index("--reward-kwargs") + 1]) == kwargs


def test_a_configuration_is_read_together_with_the_options_that_mend_it(called, tmp_path):
    # Alone it is refused: R1 has no beta.
    own = tmp_path / "own.yaml"
    own.write_text(f"base: {REPOSITORY / 'configs/demo/grpo.yaml'}\nreward: R1\n", encoding="utf-8")
    assert main(["demo", "--config", str(own)]) == 2
    assert called == []
    assert main(["demo", "--config", str(own), "--reward", "R4"]) == 0
