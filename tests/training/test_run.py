"""Whole runs: what is left in the folder, several processes, one image size everywhere, TRL's own command line."""

import json
import os

import numpy as np
import pytest
import yaml
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from grounding_rewards.cli import main
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.metrics.signal import CAUSES
from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.prepare.load import load_split
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer, callbacks
from grounding_rewards.training.arguments import parse_grpo_arguments
from grounding_rewards.training.run import train_grpo
from grounding_rewards.training.run_folder import resolved_config
from tests.conftest import read_lines, write_lines
from tests.tables import table
from tests.test_scripts import script
from tests.training.forks import program, to_the_end, two_processes
from tests.training.runs import ASSET, COMMON, GRPO, grpo, logged, sft, words

pytestmark = pytest.mark.training

SMALL = {**GRPO, "max_completion_length": 8, "max_steps": 2}


def options(**values):
    return words({**SMALL, **values})


def test_the_parity_check_can_be_left_out(tiny_vlm, tmp_path, monkeypatch):
    def refuse(trainer, dataset, box_format):
        raise ValueError("Expected the same log-probabilities, got others.")

    monkeypatch.setattr(callbacks, "check_parity", refuse)
    given = options(model_name_or_path=tiny_vlm, output_dir=tmp_path / "run", dataset="synthetic", max_steps=1)
    with pytest.raises(ValueError, match="Expected the same log-probabilities"):
        train_grpo(*parse_grpo_arguments(given))
    train_grpo(*parse_grpo_arguments([*given, "--overwrite", "true", "--parity_check", "false"]))


SOUND = {"calls": 0}


def judge_that_fails(completions, **columns):
    SOUND["calls"] -= 1
    if SOUND["calls"] < 0:
        raise ValueError("Expected input batch_size (16) to match target batch_size (155).")
    return [float(k % 2) for k in range(len(completions))]


@pytest.mark.parametrize(("steps", "said"), table("training/cases", "a_run_that_fails_says_where_it_would_go_on"))
def test_a_run_that_fails_says_where_it_would_go_on(steps, said, tmp_path, monkeypatch):
    """With a traceback: torch has errors that begin as ours do."""
    monkeypatch.setitem(SOUND, "calls", steps)
    with pytest.raises(RuntimeError, match=said):
        grpo(tmp_path / "run", reward=f"{__name__}.judge_that_fails", save_steps=1)


def test_run_folder(tiny_vlm, tmp_path, capsys):
    folder = tmp_path / "run"
    values = {"eval_strategy": "steps", "eval_steps": 1, "eval_images": 8, "per_device_eval_batch_size": 4}
    given = options(model_name_or_path=tiny_vlm, output_dir=folder, dataset="synthetic", reward="R2", **values)
    train_grpo(*parse_grpo_arguments([*given, "--reward_kwargs", '{"beta": 2.0}']))
    said = capsys.readouterr().err.splitlines()
    before, after, closing = (line for line in said if line.startswith(("evaluation", "The model")))
    AutoProcessor.from_pretrained(folder / "checkpoint")
    AutoModelForImageTextToText.from_pretrained(folder / "checkpoint")
    assert json.loads((folder / "versions.json").read_text())["trl"].startswith("1.")
    log = read_lines(folder / "log.jsonl")
    assert [entry["step"] for entry in log if "reward" in entry] == [1, 2]
    assert [entry["step"] for entry in log if "eval_reward" in entry] == [1, 2]
    assert "R2/mean_iou" in log[0]
    for line, entry in zip((before, after), [entry for entry in log if "eval_reward" in entry], strict=True):
        numbers = f"reward {entry['eval_reward']:6.3f}, image dependence {entry['eval_image_dependence']:6.3f}"
        numbers += f", p {entry['eval_image_dependence_p']:6.3f}"
        assert line == f"evaluation at step {entry['step']}: {numbers}"
    rewards = [entry["reward"] for entry in log if "reward" in entry]
    assert closing.startswith(f"The model is in {folder}/checkpoint; reward {rewards[0]:.3f} → {rewards[1]:.3f}, ")
    written = yaml.safe_load((folder / "config.yaml").read_text())
    assert written["reward"] == ["R2"]
    assert written["reward_kwargs"] == {"beta": 2.0}
    again = parse_grpo_arguments(["--config", str(folder / "config.yaml")])
    assert resolved_config(*again) == written


def log_in_two_processes(folder, model):
    said, log_metric = [], GroundingGRPOTrainer._log_metric

    def watched(self, name, value):
        said.append(name)
        log_metric(self, name, value)

    GroundingGRPOTrainer._log_metric = watched
    trainer = grpo(folder / "run", model_name_or_path=model, max_completion_length=8, max_steps=2, save_steps=2)
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps({"said": said, "history": logged(trainer)}))


def test_two_processes(tiny_vlm, tmp_path):
    """Both ranks log the same keys in the same order, agree on the values, and the run ends by itself."""
    two_processes(log_in_two_processes, tmp_path, tiny_vlm)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["said"] == second["said"]
    assert len(first["history"]) == 2
    for one, other in zip(first["history"], second["history"], strict=True):
        assert list(one) == list(other)
        assert all(one[key] == other[key] for key in one if key.startswith(("R4/", "reward")))
        causes = [one[f"R4/signal/{name}"] for name in CAUSES]
        assert sum(causes) == pytest.approx(one["frac_reward_zero_std"])
        assert 0 <= one["R4/signal/effective_group_size"] <= 2
        assert one["R4/rejected_reasons"] == other["R4/rejected_reasons"]
    assert [entry["step"] for entry in read_lines(tmp_path / "run" / "log.jsonl") if "reward" in entry] == [1, 2]


def test_stock_trl_command(tiny_vlm, tmp_path):
    """`trl grpo --reward_funcs grounding_rewards.rewards.R4 …` on a dataset with our columns, without our code."""
    images, names = synthetic_dataset("train", 4), ("R4", "R1", "soft_f1")
    for name, value in (("box_format", "qwen2.5-vl"), ("resized_width", 112), ("resized_height", 112)):
        images = images.add_column(name, [value] * 4)
    (tmp_path / "images").mkdir()
    images.to_parquet(str(tmp_path / "images" / "train.parquet"))
    ours = ("model_name_or_path", "train_images", "disable_tqdm")
    to_the_end(
        *(program, "trl.cli", "grpo", "--model_name_or_path", tiny_vlm, "--dataset_name", tmp_path / "images"),
        *("--reward_funcs", *(f"grounding_rewards.rewards.{name}" for name in names)),
        *("--output_dir", tmp_path / "run"),
        *words({name: value for name, value in SMALL.items() if name not in ours}),
        output=tmp_path / "output.txt",
    )
    state = json.loads((tmp_path / "run/checkpoint-2/trainer_state.json").read_text())
    assert {f"rewards/{name}/mean" for name in names} <= set(state["log_history"][0])
    assert {f"{name}/mean_iou" for name in names} <= set(state["log_history"][0])


def test_images_stay_out_of_logs_by_default():
    """In our arguments themselves, so that a configuration that forgets it leaks nothing."""
    _, config, _ = parse_grpo_arguments(words({**GRPO, "output_dir": "runs/x"}))
    assert not any((config.log_multimodal, config.log_completions, config.push_to_hub, config.report_to))


def test_an_unknown_keyword_of_the_model_is_refused_by_name(tmp_path):
    for train in (grpo, sft):
        with pytest.raises(ValueError, match=r"Expected keywords that exist in model_init_kwargs, got wrong_key\. "):
            train(tmp_path / "run", model_init_kwargs='{"wrong_key":1}')


def check_processes(words):
    return script("check_processes").main(words)


class TestTwoProcesses:
    """The cheap half of scripts/checks/check_processes.py, which also has four processes and shared out weights."""

    @pytest.fixture
    def checks(self):
        """The script; what no process of is killed needs no launcher."""
        made = script("check_processes")

        def without_launcher(engine, processes, *words, log):
            # What Python is given, in processes that have loaded what the script imports.
            to_the_end(check_processes, [str(word) for word in words[1:]], output=log, processes=processes)
            return 0

        made.to_the_end = without_launcher
        return made

    def test_the_steps_are_those_of_one_process(self, checks, tmp_path):
        """Also where nothing can be read, where answers are empty, and with images that do not fill the batches."""
        checks.check_same_steps(tmp_path / "run", 2)

    def test_run_resumes_after_a_process_was_killed(self, checks, tmp_path):
        checks.check_killed(tmp_path / "run", 2)


def test_a_prepared_folder_trains(tiny_vlm, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    Image.new("L", (160, 120), 40).save(tmp_path / "image.png")
    records = [AnnotatedImage(f"{k}", "image.png", [[30, 20, 90, 80]], ["mass"], split="train") for k in range(8)]
    settings = PrepareSettings("jsonl", "qwen2.5-vl", side=112, model=str(tiny_vlm))
    prepare_images(records, tmp_path, tmp_path / "out", settings)
    values = {"model_name_or_path": tiny_vlm, "dataset": tmp_path / "out", "max_steps": 1, "save_strategy": "no"}
    row = grpo(tmp_path / "run", **values).train_dataset[1]
    assert (row["image"].size, row["boxes"]) == ((112, 84), [[21, 14, 63, 56]])
    # By hand: of at least 112 x 112 pixels, so by sqrt(4 / 3) larger, and up to whole patches of 28.
    stored = load_split(str(tmp_path / "out"), "train")[1]
    for one in (stored, row):
        assert (one["resized_width"], one["resized_height"]) == (140, 112)


def test_image_size_stays_in_the_processor_from_sft_to_evaluation(tmp_path, monkeypatch, capsys):
    """Nobody says it again, nor needs this package."""
    # By hand: sqrt(2500 * 3000 / 40000) = 13.69, so 182.6 x 219.1, down to whole tokens of 28: 168 x 196.
    folder = tmp_path / "large"
    folder.mkdir()
    coarse = np.random.default_rng(0).integers(0, 255, (30, 25), dtype=np.uint8)
    Image.fromarray(coarse).resize((2500, 3000)).save(folder / "image.png")
    row = {"file": "image.png", "boxes": [[100, 200, 1800, 2500]], "labels": ["mass"]}
    lines = [{**row, "id": k, "split": "train" if k < 4 else "test"} for k in range(6)]
    write_lines(folder / "annotations.jsonl", lines)
    kind = type(AutoProcessor.from_pretrained(ASSET).image_processor)
    original, sizes = kind.preprocess, set()

    def watched(self, *args, **kwargs):
        made = original(self, *args, **kwargs)
        sizes.update((columns * 14, rows * 14) for _, rows, columns in made["image_grid_thw"].tolist())
        return made

    monkeypatch.setattr(kind, "preprocess", watched)
    first, second, out = tmp_path / "sft", tmp_path / "grpo", tmp_path / "evaluation"
    values = {"dataset": folder, "max_steps": 1, "save_strategy": "no"}
    asked = words({"model": second / "checkpoint", "dataset": folder, "out": out, "max-new-tokens": 8})
    for line in (
        ["sft", *words({**COMMON, **values, "output_dir": first, "max_image_pixels": 40000})],
        ["train", *words({**GRPO, **values, "model_name_or_path": first / "checkpoint", "output_dir": second})],
        ["evaluate", *asked],
    ):
        sizes.clear()
        assert main(line) == 0
        assert sizes == {(168, 196)}
    limit = "at most 40000 pixels (max_image_pixels)"
    assert capsys.readouterr().err.count(f"Image size: {limit}, 51 image tokens.") == 3
    facts = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))["facts"]
    assert limit in facts["image size"]
    assert "at most 40000 pixels, kept in the processor" in (second / "README.md").read_text(encoding="utf-8")
