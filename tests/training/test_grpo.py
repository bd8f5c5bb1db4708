"""The trainer takes real steps, on a random model of a real architecture."""

from __future__ import annotations

import copy
import functools
import warnings
from types import SimpleNamespace

import datasets
import pandas
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

import grounding_rewards as gr
from grounding_rewards.metrics.image_dependence import image_dependence
from grounding_rewards.metrics.signal import CAUSES, SIGNAL_KEYS
from grounding_rewards.rewards.batch_log import METRIC_KEYS
from grounding_rewards.rewards.grounding import GroundingReward
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer
from grounding_rewards.training import grpo as trainer_module
from grounding_rewards.training.rewards import build_rewards
from tests.training.runs import config, grpo, history, logged

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


@pytest.mark.parametrize(
    ("reward", "kwargs", "names"),
    [
        ("R2", {"reward_kwargs": {"beta": 2.0}}, ["R2"]),
        (gr.get_reward("R1", box_format="qwen3-vl"), {}, ["R1"]),  # its own format goes before the model's
    ],
)
def test_takes_a_step(tiny_vlm, images, tmp_path, reward, kwargs, names):
    trainer = GroundingGRPOTrainer(str(tiny_vlm), reward, config(tmp_path), images, **kwargs)
    trainer.train()
    assert trainer.state.global_step == 1
    assert trainer.reward_func_names == names
    for key in (*METRIC_KEYS, *(f"signal/{key}" for key in SIGNAL_KEYS)):
        assert f"{names[0]}/{key}" in logged(trainer)[0]


def test_signal_is_that_of_the_groups(tmp_path):
    """Groups without spread are those that TRL counts; their causes are the ones that metrics/signal.py names."""
    trainer = grpo(tmp_path, num_generations=4, max_completion_length=30, max_steps=3, save_strategy="no")
    entries = logged(trainer)
    assert len({entry["frac_reward_zero_std"] for entry in entries}) > 1
    for entry in entries:
        assert entry["R4/signal/no_spread"] == entry["frac_reward_zero_std"]
        causes = [entry[f"R4/signal/{name}"] for name in CAUSES]
        assert sum(causes) == pytest.approx(entry["R4/signal/no_spread"])
        assert 0 <= entry["R4/signal/effective_group_size"] <= 4


def test_list_with_weights_moves_the_model(tiny_vlm, images, tmp_path):
    trainer = GroundingGRPOTrainer(
        str(tiny_vlm),
        ["R4", "R3", token_reward()],
        config(tmp_path, learning_rate=1e-3),
        images,
        reward_kwargs=[{"no_box_bonus": 0.5}, None, None],
        reward_weights=[0.5, 0.25, 2.0],
    )
    before = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    entry = logged(trainer)[0]
    parts = [entry[f"rewards/{name}/mean"] for name in ("R4", "R3", "checksum")]
    assert entry["reward"] == pytest.approx(0.5 * parts[0] + 0.25 * parts[1] + 2.0 * parts[2])
    assert {f"{name}/{key}" for name in ("R4", "R3") for key in METRIC_KEYS} <= set(entry)
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_a_reward_that_returns_no_number_at_all_ends_the_run_by_name(tiny_vlm, images, tmp_path, nothing):
    def mine(completions, **columns):
        return [nothing] * len(completions)

    with pytest.raises(ValueError, match="Expected a number for each answer from mine, got NaN or None for all 4"):
        GroundingGRPOTrainer(str(tiny_vlm), mine, config(tmp_path), images).train()


@pytest.mark.parametrize(
    ("box_format", "said"),
    [
        ("qwen2.5-vl", False),
        # the same numbers in the same JSON, inside <answer>
        ("vlm-r1", False),
        ("qwen3-vl", True),  # other numbers
        ("paligemma", True),  # another syntax
        ({"syntax": "json", "space": "resized_pixel"}, False),
        ({"syntax": "json", "space": "resized_pixel", "order": "yxyx"}, True),
    ],
)
def test_a_box_format_of_another_family_is_said_with_the_models_own(tiny_vlm, images, tmp_path, box_format, said):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = config(tmp_path, max_completion_length=200)
        GroundingGRPOTrainer(str(tiny_vlm), "R4", made, images, box_format=box_format)
    about = [str(one.message) for one in caught if "this model_type write, qwen2.5-vl" in str(one.message)]
    assert len(about) == said


def test_an_evaluation_says_what_is_owed_to_the_images(tiny_vlm, images, tmp_path, monkeypatch):
    """By the first answer to each image, as `evaluate` would say it of the same answers."""
    seen = []
    monkeypatch.setattr(trainer_module, "image_dependence", lambda found: seen.append(found) or image_dependence(found))
    settings = config(tmp_path, per_device_eval_batch_size=4, num_generations_eval=2)
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", settings, images, {"few": images.select(range(6))})
    for _ in range(2):
        trainer.evaluate()
    assert "eval_R4/mean_iou" in trainer.state.log_history[-1]
    logged = trainer.state.log_history[-1]["eval_image_dependence"]
    assert [len(found) for found in seen] == [6, 6]
    assert sorted(image.gt.tolist() for image in seen[1]) == sorted(images.select(range(6))["boxes"])
    assert logged == pytest.approx(image_dependence(seen[1]).dependence.value)


class TestBeforeTheFirstStep:
    """All of these are refused without a model being loaded: the folder holds a configuration alone."""

    @pytest.fixture
    def no_weights(self, tiny_vlm, tmp_path):
        for path in tiny_vlm.iterdir():
            if path.suffix != ".safetensors":
                (tmp_path / path.name).write_bytes(path.read_bytes())
        return str(tmp_path)

    def test_bad_rows_are_named_at_once(self, no_weights, images, tmp_path):
        rows = images.to_list()
        rows[1]["boxes"] = [[50.0, 10.0, 20.0, 40.0]]
        rows[1]["labels"] = ["mass"]
        rows[6]["boxes"] = [[0.0, 0.0, 500.0, 40.0]]
        rows[6]["labels"] = ["mass"]
        broken = datasets.Dataset.from_list(rows, features=images.features)
        with pytest.raises(ValueError, match="2 bad rows of 8") as caught:
            GroundingGRPOTrainer(no_weights, "R4", config(tmp_path / "run"), broken)
        assert f"row 1 (id {rows[1]['id']})" in str(caught.value)
        assert f"row 6 (id {rows[6]['id']})" in str(caught.value)

    def test_eval_dataset_too(self, no_weights, images, tmp_path):
        with pytest.raises(ValueError, match="for eval_dataset, got"):
            GroundingGRPOTrainer(no_weights, "R4", config(tmp_path / "run"), images, images.remove_columns("boxes"))


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
    trainer = GroundingGRPOTrainer(
        str(tiny_vlm), "R4", config(tmp_path, chat_template_kwargs=kwargs), images, processing_class=processor
    )
    assert trainer.step_rewards[0].reward.prompt_opens_thinking is opened
    scored = trainer.step_rewards[0].reward(["[]"], boxes=[[]], width=[112], height=[112], box_format=["qwen3-vl"])
    assert scored == [0.0 if opened else 0.2]


def test_rewards_know_the_tokenizer_and_all_tokens_that_end_an_answer(tiny_vlm, images, tmp_path):
    """What they do with it is in test_special_tokens.py."""
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

    def test_stated_twice_alike(self):
        (reward,) = build_rewards("R3", {"box_format": MINE}, dict(MINE))
        assert reward == gr.get_reward("R3", box_format=MINE)

    @pytest.mark.parametrize("reward", ["R3", gr.get_reward("R3", box_format=MINE)])
    def test_stated_twice_differently(self, reward):
        kwargs = {"box_format": MINE} if isinstance(reward, str) else None
        with pytest.raises(ValueError, match=r"Expected one box format for reward R3, got .*norm100.* and qwen3-vl"):
            build_rewards(reward, kwargs, "qwen3-vl")


def test_hallucination_rate_is_exact_over_a_window(tiny_vlm, images, tmp_path):
    """By hand: 1 of 4 completions hallucinates in two steps that saw 2 and 0 negatives: 0.25 / 0.5."""
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", config(tmp_path), images)
    trainer.model.train()
    trainer._metrics["train"].update(
        {"R4/negatives": [0.5, 0.0], "R4/hallucinated": [0.25, 0.0], "R4/hallucination_rate": [0.5, float("nan")]}
    )
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


class TestImageGroups:
    def test_metrics_by_source_and_label_have_the_same_keys_at_every_step(self, tmp_path):
        images = synthetic_dataset("train", 8)
        images = images.add_column("source", ["first", "second"] * 4)
        datasets.DatasetDict({"train": images}).save_to_disk(str(tmp_path / "images"))
        values = {"max_steps": 3, "save_strategy": "no", "max_completion_length": 30}
        trainer = grpo(tmp_path / "run", dataset=tmp_path / "images", **values)
        steps = history(trainer)
        keys = [[key for key in step if key.startswith(("R4/source/", "R4/label/"))] for step in steps]
        assert keys[0] == keys[1] == keys[2] == [f"R4/{key}" for key in trainer.image_groups.keys]
        assert {"R4/source/first/reward", "R4/source/second/recall"} <= set(keys[0])
        assert len(trainer.image_groups.labels) > 1
        for step in steps:
            by_source = [step[f"R4/source/{name}/reward"] for name in ("first", "second")]
            assert any(value is not None for value in by_source)
            assert all(0 <= step[key] <= 1 for key in keys[0] if step[key] is not None)
        # A step draws two images, whose rewards make up its own.
        sources = [[step[f"R4/source/{name}/reward"] for name in ("first", "second")] for step in steps]
        for step, of_source in zip(steps, sources, strict=True):
            if None not in of_source:
                assert sum(of_source) / 2 == pytest.approx(step["reward"], abs=1e-6)


def test_completions_go_to_no_tracker_and_the_folder_has_them_with_their_rows(tiny_vlm, images, tmp_path, monkeypatch):
    """`report_to: wandb` with TRL's own configuration, whose default shows images."""
    given = []
    tracker = SimpleNamespace(
        run=object(), Table=lambda dataframe: dataframe, Image=lambda image: image, log=given.append
    )
    monkeypatch.setattr("trl.trainer.grpo_trainer.wandb", tracker, raising=False)
    named = images.map(lambda row: {"patient_id": f"DOE_JANE_{row['id']}"})
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", config(tmp_path, log_completions=True), named)
    trainer.args.report_to = ["wandb"]
    trainer.train()
    assert given == []
    assert trainer.args.report_to == ["wandb"]
    (table,) = (tmp_path / "completions").glob("*.parquet")
    kept = pandas.read_parquet(table)
    assert all("DOE_JANE" in row for row in kept["R4/row"])
