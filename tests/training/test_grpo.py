"""The trainer takes real steps, and what it logs scores itself: every command reads the folder of a run as it is."""

import copy
import functools
import json
import logging
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

import grounding_rewards as gr
from grounding_rewards.data.dataset_columns import add_columns, add_prompts
from grounding_rewards.logs.read import read_completions
from grounding_rewards.metrics.image_dependence import image_dependence
from grounding_rewards.rewards.grounding import GroundingReward, score_columns
from grounding_rewards.rewards.scoring import METRIC_KEYS
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer
from grounding_rewards.training import grpo as trainer_module
from grounding_rewards.training.callbacks import ParityCheck
from grounding_rewards.training.rewards import build_rewards
from scripts.build_tiny_vlm import VOCABULARIES, build_model, build_processor, build_tokenizer
from tests.tables import table
from tests.training.runs import ASSET, config, grpo, logged

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def images():
    return synthetic_dataset("train", 8)


@functools.lru_cache(maxsize=1)
def token_reward():
    """A reward function of TRL's kind that is none of ours and tells completions apart."""

    def checksum(completion_ids, **columns):
        return [sum(ids) % 97 / 97 for ids in completion_ids]

    return checksum


def test_list_with_weights_moves_the_model(tiny_vlm, images, tmp_path):
    # by TRL's name
    given = {"reward_funcs": ["R4", "R3", token_reward()], "args": config(tmp_path, learning_rate=1e-3)}
    given |= {"reward_kwargs": [{"no_box_bonus": 0.5}, None, None], "reward_weights": [0.5, 0.25, 2.0]}
    trainer = GroundingGRPOTrainer(str(tiny_vlm), train_dataset=images, **given)
    before = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    entry = logged(trainer)[0]
    parts = [entry[f"rewards/{name}/mean"] for name in ("R4", "R3", "checksum")]
    assert entry["reward"] == pytest.approx(0.5 * parts[0] + 0.25 * parts[1] + 2.0 * parts[2])
    assert {f"{name}/{key}" for name in ("R4", "R3") for key in METRIC_KEYS} <= set(entry)
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())
    # Without our command there is no configuration to tell of.
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text()
    assert card.count("Reward(") == 2
    assert "| 0.5, 0.25, 2 |" in card


@pytest.mark.parametrize("option", [{"push_to_hub": True}, {"log_completions_hub_repo": "me/completions"}])
def test_no_completions_are_uploaded(tmp_path, option):
    made = config(tmp_path, log_completions=True, **option)
    with pytest.raises(ValueError, match="push_to_hub nor log_completions_hub_repo beside log_completions"):
        GroundingGRPOTrainer("no/model", "R4", made)


@pytest.mark.parametrize(
    ("answer", "others", "message"), table("training/cases", "rewards_that_teach_nothing_end_the_run_by_name")
)
def test_rewards_that_teach_nothing_end_the_run_by_name(tiny_vlm, images, tmp_path, answer, others, message):
    def mine(completions, **columns):
        return [answer, *[others] * (len(completions) - 1)]

    with pytest.raises(ValueError, match=message):
        GroundingGRPOTrainer(str(tiny_vlm), mine, config(tmp_path), images).train()


def test_unscored_answer_is_counted_and_not_printed(tiny_vlm, images, tmp_path, caplog):
    def mine(completions, **columns):
        return [None, *[0.5] * (len(completions) - 1)]

    with pytest.warns(UserWarning, match="mine returned NaN or None for 1 of 4 answers") as caught:
        GroundingGRPOTrainer(str(tiny_vlm), mine, config(tmp_path, max_steps=2), images).train()
    assert sum("NaN or None" in str(warning.message) for warning in caught) == 1
    printed = caplog.text + "".join(str(warning.message) for warning in caught)
    assert not any(name in printed for name in images["id"])
    # Other trainers of the process print as they like.
    assert not logging.getLogger(GRPOTrainer.__module__).filters


@pytest.mark.parametrize(("reward", "share"), [(0.2, 1.0), (0.3, 1.0), (None, 0.5)])
def test_groups_that_all_earn_the_same_are_counted(tiny_vlm, images, tmp_path, reward, share):
    """The standard deviation of eight times 0.2 is not 0 in float32, by which TRL counts them as different."""

    def mine(completions, **columns):
        return [*[0.2] * 8, 0.4, *[0.2] * 7] if reward is None else [reward] * len(completions)

    args = config(tmp_path, num_generations=8, per_device_train_batch_size=16)
    trainer = GroundingGRPOTrainer(str(tiny_vlm), mine, args, images)
    trainer.train()
    assert logged(trainer)[0]["frac_reward_zero_std"] == share


def test_reasons_are_counted_in_the_log_of_the_run_alone(tiny_vlm, images, tmp_path, monkeypatch):
    """By hand: each step has four answers, of which one has two lists of the wrong length; two steps are one entry."""
    seen = []

    class Tracker(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    texts = ["[[1, 2, 3], [4, 5, 6, 7, 8]]", "[[1, 2, 3, 4]]", "no idea", "[]"]
    args = config(tmp_path, max_steps=2, logging_steps=2)
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", args, images, callbacks=[Tracker()])
    trainer.remove_callback(ParityCheck)
    monkeypatch.setattr(GroundingReward, "_texts", lambda self, completions, *_: texts)
    trainer.train()
    (entry,) = logged(trainer)
    assert entry["R4/rejected"] == 0.25
    assert entry["R4/rejected_reasons"] == {"wrong_count": 4, "nothing_stated": 2}
    assert not any("rejected_reasons" in key for logs in seen for key in logs)


@pytest.mark.parametrize(("box_format", "is_warned"), table("training/cases", "box_format_of_another_family_warns"))
def test_box_format_of_another_family_warns(tiny_vlm, images, tmp_path, box_format, is_warned, recwarn):
    arguments = config(tmp_path, max_completion_length=200)
    GroundingGRPOTrainer(str(tiny_vlm), "R4", arguments, images, box_format=box_format)
    assert sum("this model_type write, qwen2.5-vl" in str(warning.message) for warning in recwarn) == is_warned


def test_an_evaluation_says_what_is_owed_to_the_images(tiny_vlm, images, tmp_path, monkeypatch):
    """By the first answer to each image, as `evaluate` would say it of the same answers."""
    seen = []
    monkeypatch.setattr(trainer_module, "image_dependence", lambda found: seen.append(found) or image_dependence(found))
    settings = config(tmp_path, per_device_eval_batch_size=4, num_generations_eval=2)
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", settings, images, {"few": images.select(range(6))})
    # Several processes fill the last batch with the first images again.
    trainer._get_eval_sampler = lambda dataset: np.repeat([*range(6), 0, 1], 2).tolist()
    for _ in range(2):
        trainer.evaluate()
    assert "eval_R4/mean_iou" in trainer.state.log_history[-1]
    logged = trainer.state.log_history[-1]["eval_image_dependence"]
    assert [len(found) for found in seen] == [6, 6]
    assert sorted(image.gt.tolist() for image in seen[1]) == sorted(images.select(range(6))["boxes"])
    assert logged == pytest.approx(image_dependence(seen[1]).dependence.value)


def test_evaluation_rows_are_checked_before_the_model_loads(tiny_vlm, images, tmp_path):
    model = shutil.copytree(tiny_vlm, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(ValueError, match=r"for eval_dataset\['few'\], got"):
        GroundingGRPOTrainer(str(model), "R4", config(tmp_path), images, {"few": images.remove_columns("boxes")})


TEMPLATE_END = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
THINKING_END = (
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}{% endif %}"
)


@pytest.mark.parametrize(
    ("end", "kwargs", "opened"),
    [
        (TEMPLATE_END, None, False),
        # as Qwen3-VL-Thinking's and Qwen3.5's
        (THINKING_END, None, True),
        (THINKING_END, {"enable_thinking": False}, False),
    ],
)
def test_rewards_know_whether_the_prompt_opens_the_thinking(tiny_vlm, images, tmp_path, end, kwargs, opened):
    processor = AutoProcessor.from_pretrained(tiny_vlm)
    assert processor.chat_template.endswith(TEMPLATE_END)
    processor.chat_template = processor.chat_template.removesuffix(TEMPLATE_END) + end
    args = config(tmp_path, chat_template_kwargs=kwargs)
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", args, images, processing_class=processor)
    assert trainer.step_rewards[0].reward.prompt_opens_thinking is opened
    scored = trainer.step_rewards[0].reward(["[]"], boxes=[[]], width=[112], height=[112], box_format=["qwen3-vl"])
    assert scored == [0.0 if opened else 0.2]


def test_rewards_know_tokenizer_and_end_tokens(tiny_vlm, images, tmp_path):
    model = AutoModelForImageTextToText.from_pretrained(tiny_vlm, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(tiny_vlm, padding_side="left")
    end, further = processor.tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|vision_end|>"])
    model.generation_config.eos_token_id = [end, further]
    trainer = GroundingGRPOTrainer(model, ["R4", token_reward()], config(tmp_path), images, processing_class=processor)
    assert trainer.step_rewards[0].reward.tokenizer is processor.tokenizer
    assert trainer.step_rewards[0].reward.stop_ids == {end, further}
    assert trainer.reward_funcs[1] is token_reward()


MINE = {"syntax": "json", "keys": ["where"], "order": "yxyx", "space": "norm100"}


class TestDeclaredFormat:
    @pytest.mark.parametrize("reward", ["R3", gr.get_reward("R3")])
    def test_reaches_named_and_ready_rewards(self, tiny_vlm, images, tmp_path, reward):
        trainer = GroundingGRPOTrainer(str(tiny_vlm), reward, config(tmp_path), images, box_format=MINE)
        text = '[{"where": [0, 10, 50, 60]}]'
        columns = {"boxes": [[[20, 0, 120, 50]]], "width": [200], "height": [100]}
        assert trainer.reward_funcs[0]([text], **columns) == [1.0]
        assert "box_format" not in trainer.train_dataset.column_names

    @pytest.mark.parametrize("reward", ["R3", gr.get_reward("R3", box_format=MINE)])
    def test_stated_twice_differently(self, reward):
        kwargs = {"box_format": MINE} if isinstance(reward, str) else None
        with pytest.raises(ValueError, match=r"Expected one box format for reward R3, got .*norm100.* and qwen3-vl"):
            build_rewards(reward, kwargs, "qwen3-vl")


def test_hallucination_rate_is_exact_over_a_window(tiny_vlm, images, tmp_path):
    """By hand: 1 of 4 completions hallucinates in two steps that saw 2 and 0 negatives: 0.25 / 0.5."""
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", config(tmp_path), images)
    trainer.model.train()
    steps = {"negatives": [0.5, 0.0], "hallucinated": [0.25, 0.0], "hallucination_rate": [0.5, float("nan")]}
    trainer._metrics["train"].update({f"R4/{key}": values for key, values in steps.items()})
    trainer.log({})
    assert trainer.state.log_history[-1]["R4/hallucination_rate"] == 0.5


def test_the_reference_columns_reach_the_reward(tiny_vlm, images, tmp_path, monkeypatch):
    seen = []
    score = GroundingReward.__call__

    def watched(self, completions, **columns):
        seen.extend(zip(columns["boxes"], columns["ignore_boxes"], columns["reader_boxes"], strict=True))
        return score(self, completions, **columns)

    monkeypatch.setattr(GroundingReward, "__call__", watched)
    images = images.add_column("ignore_boxes", [boxes or None for boxes in images["boxes"]])
    images = images.add_column("reader_boxes", [[boxes, []] for boxes in images["boxes"]])
    images = images.add_column("reader_labels", [[labels, []] for labels in images["labels"]])
    kwargs = {"label_matching": "exact", "per_label": True}
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R1", config(tmp_path), images, reward_kwargs=kwargs)
    trainer.train()
    assert trainer.state.global_step == 1
    assert len(seen) == 4
    assert all(ignore == (boxes or None) and readers == [boxes, []] for boxes, ignore, readers in seen)
    for key in METRIC_KEYS:
        assert f"R1/{key}" in logged(trainer)[0]


def test_completions_go_to_the_folder_and_no_tracker(tiny_vlm, images, tmp_path, monkeypatch, capsys):
    """`report_to: wandb` with TRL's own configuration, whose default shows images; wandb keeps what is printed."""
    given = []
    tracker = SimpleNamespace(run=object(), Table=lambda rows: rows, Image=lambda image: image, log=given.append)
    monkeypatch.setattr("trl.trainer.grpo_trainer.wandb", tracker, raising=False)
    named = images.map(lambda row: {"patient_id": f"DOE_JANE_{row['id']}"})
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", config(tmp_path, log_completions=True), named)
    trainer.args.report_to = ["wandb"]
    trainer.train()
    assert given == []
    assert "Step 1" not in capsys.readouterr().out
    assert trainer.args.report_to == ["wandb"]
    (table,) = (tmp_path / "completions").glob("*.parquet")
    kept = pandas.read_parquet(table)
    assert all("DOE_JANE" in row for row in kept["R4/row"])


@pytest.mark.parametrize(("name", "value"), table("training/cases", "nothing_uploads_checkpoints"))
def test_nothing_uploads_checkpoints(name, value, tiny_vlm, images, tmp_path, monkeypatch):
    """A checkpoint between two steps on the same answers keeps their images."""
    monkeypatch.setenv(name, value)
    args = config(tmp_path, report_to=["wandb"], log_completions=True)
    with pytest.raises(ValueError, match=f"no {name} in the environment"):
        GroundingGRPOTrainer(str(tiny_vlm), "R4", args, images)


def test_clearml_is_told_to_upload_no_checkpoint(tmp_path, monkeypatch):
    # Set first, so that what is set below is gone afterwards.
    monkeypatch.setenv("CLEARML_LOG_MODEL", "true")
    monkeypatch.delenv("CLEARML_LOG_MODEL")
    with pytest.raises(OSError, match="nowhere"):
        GroundingGRPOTrainer(str(tmp_path / "nowhere"), "R4", config(tmp_path, report_to=["clearml"]))
    assert os.environ["CLEARML_LOG_MODEL"] == "false"


@pytest.fixture(scope="module")
def florence_like(tmp_path_factory):
    """Folder with an untrained model of which every other token is one of Florence-2's coordinates, all special."""
    tokenizer = build_tokenizer(VOCABULARIES)
    tokenizer.add_tokens([f"<loc_{number}>" for number in range(1000)], special_tokens=True)
    folder = tmp_path_factory.mktemp("florence_like")
    for part in (build_model(tokenizer), build_processor(tokenizer)):
        part.save_pretrained(folder)
    return str(folder)


def test_boxes_in_special_tokens_need_the_tokenizer(florence_like, tmp_path):
    """A random model that writes 64 tokens, half of them coordinates, writes boxes now and then."""
    rows = synthetic_dataset("train", 8)
    args = config(tmp_path, per_device_train_batch_size=8, max_completion_length=64)
    trainer = GroundingGRPOTrainer(florence_like, "R4", args, rows, box_format="florence-2")
    trainer.train()
    assert logged(trainer)[0]["R4/boxes"] > 0
    plain = GRPOTrainer(florence_like, gr.get_reward("R4", box_format="florence-2"), args, rows)
    with pytest.raises(ValueError, match="Expected a tokenizer for box format florence-2, got none"):
        plain.train()
    assert plain.state.global_step == 0


def columns_of(rows):
    return {name: [row.get(name) for row in rows] for name in rows[0]}


class TestLoggedCompletions:
    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory):
        """The folder of a training by two rewards, which say of every row the same."""
        folder = tmp_path_factory.mktemp("runs") / "r4"
        rewards = {"reward": "R4 R3", "reward_kwargs": '[{"iou_threshold":0.3},{}]'}
        grpo(folder, log_completions="true", **rewards)
        return folder

    def test_rewards_computed_again_equal_those_logged_to_the_last_digit(self, folder):
        log = read_completions([folder])
        assert len(log.rows) == 4 * 4
        assert not [name for name in log.rows[0] if name.endswith("/row")]
        rewards = [gr.get_reward("R4", iou_threshold=0.3), gr.get_reward("R3")]
        found = score_columns(rewards, log.completions, **columns_of(log.rows))
        for name in ("R4", "R3"):
            # the trainer keeps rewards in single precision
            assert np.float32(found[name]).tolist() == [row[name] for row in log.rows]
            assert [row[f"{name}/reason"] for row in log.rows] == found[f"{name}/reason"]
        assert len(set(found["R4"])) > 2


REWARD = gr.get_reward("R4", box_format="qwen2.5-vl")


@pytest.mark.parametrize(("trainer", "kind"), [(GRPOTrainer, GRPOConfig), (RLOOTrainer, RLOOConfig)])
def test_grpo_and_rloo_of_trl_take_the_same_reward(trainer, kind, tmp_path):
    """A run of TRL's own trainer, with the reward as the only thing of ours."""
    torch.set_num_threads(1)
    processor = AutoProcessor.from_pretrained(ASSET, padding_side="left")
    rows = add_columns(add_prompts(synthetic_dataset("train", 8), "qwen2.5-vl"), processor, "qwen2.5-vl")
    logs = {"log_completions": True, "num_completions_to_print": 0}
    args = config(tmp_path, kind, max_completion_length=24, max_steps=2, **logs)
    made = trainer(str(ASSET), REWARD, args, train_dataset=rows, processing_class=processor)
    made.train()
    assert {f"R4/{key}" for key in METRIC_KEYS} <= made.state.log_history[0].keys()
    rows = [json.loads(row) for row in made._logs["extra"]["R4/row"]]
    found = score_columns([REWARD], list(made._logs["completion"]), **columns_of(rows))
    assert np.float32(found["R4"]).tolist() == list(made._logs["rewards"]["R4"])
