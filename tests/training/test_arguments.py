"""Wrong values are refused when the configuration is read, and the message says what is legal."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from transformers import training_args

from grounding_rewards.rewards.registry import spread_kwargs
from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments
from grounding_rewards.training.run_folder import resolved_config

pytestmark = pytest.mark.training

SOUND = {
    "model_name_or_path": "somewhere",
    "output_dir": "runs/x",
    "reward": "R4",
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
}


def parse(tmp_path, values, *args):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**SOUND, **values}))
    return parse_grpo_arguments(["--config", str(path), *args])


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        ({"reward": "R9"}, ["R9", "R1, R2, R3, R4, R5"]),
        ({"reward": ["R4", "R9"]}, ["R9", "R1, R2, R3, R4, R5"]),
        ({"reward": "no_such_package.Reward"}, ["no_such_package"]),
        ({"reward_kwargs": {"betta": 1.5}}, ["betta", "beta, "]),
        ({"reward_kwargs": {"beta": "high"}}, ["beta", "high"]),
        ({"reward_kwargs": {"iou_threshold": 1.5}}, ["(0, 1]", "1.5"]),
        ({"reward_kwargs": {"no_box_bonus": -0.1}}, ["[0, 1]", "-0.1"]),
        ({"reward_kwargs": [{"beta": 1.5}, {}]}, ["a mapping for reward_kwargs"]),
        ({"reward": ["R4", "R1"], "reward_kwargs": {"beta": 1.5}}, ["a list of 2 mappings"]),
        ({"reward_kwargs": "beta=1.5"}, ["JSON for reward_kwargs"]),
        ({"box_format": "qwen9"}, ["qwen9", "qwen2.5-vl", "radvlm"]),
        ({"box_format": {"syntax": "json", "order": "zyx"}}, ["order", "zyx", "xyxy, yxyx, xywh, cxcywh"]),
        ({"box_format": {"syntax": "json", "space": "norm10"}}, ["norm10", "norm1000"]),
        ({"box_format": {"syntax": "json", "key": "box"}}, ["key", "keys"]),
        ({"box_format": {"keys": ["box"]}}, ["syntax", "json, brackets"]),
        ({"box_format": '{"syntax": "json"'}, ["JSON", "box_format"]),
        ({"box_format": ["json"]}, ["box_format", "qwen2.5-vl"]),
        ({"box_format": 7}, ["box_format", "qwen2.5-vl"]),
        ({"train_images": 0}, ["a number from 1 up for train_images"]),
        ({"train_images": 12.5}, ["int | None for train_images", "12.5"]),
        ({"max_image_pixels": -1}, ["a number from 1 up for max_image_pixels"]),
        ({"dataset": 7}, ["str for dataset", "7"]),
        ({"dtype": "bf16"}, ["auto, bfloat16, float16, float32"]),
        ({"loss_type": "ppo"}, ["grpo, dapo", "ppo"]),
        ({"scale_rewards": "groups"}, ["group, batch, none"]),
        ({"vllm_mode": "colocated"}, ["colocate, server"]),
        ({"num_generations": 8.5}, ["int | None for num_generations", "8.5"]),
        ({"learning_rate": [1e-5]}, ["float for learning_rate"]),
        ({"use_cpu": "perhaps"}, ["perhaps"]),  # argparse itself
        ({"epsilon": {"low": 0.2}}, ["float for epsilon"]),
        ({"learning_rate": 100}, ["at most 1 for learning_rate, got 100", "1e-6 for all weights"]),
        (
            {"accelerator_config": {"split_batch": True}},
            ["split_batches, dispatch_batches", "Did you mean split_batches"],
        ),
        ({"gradient_checkpointing_kwargs": {"reentrant": False}}, ["use_reentrant", "_kwargs, got 'reentrant'"]),
        ({"learning_rte": 1e-5}, ["config.yaml, got learning_rte. Did you mean learning_rate?"]),
    ],
)
def test_refused(tmp_path, capsys, values, messages):
    with pytest.raises((ValueError, SystemExit)) as caught:
        parse(tmp_path, values)
    output = str(caught.value) + capsys.readouterr().err
    for message in messages:
        assert message in output


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["q_proj"], ["q_proj"]),  # peft would look for a layer whose whole path is q_proj
        (["self_attn.q_proj"], ["self_attn.q_proj"]),
        (["q_proj", "v_proj"], ["q_proj", "v_proj"]),
        (["all-linear"], "all-linear"),
        ([r".*language_model.*\.q_proj"], r".*language_model.*\.q_proj"),
    ],
)
def test_the_only_layer_is_a_name_and_a_pattern_a_pattern(tmp_path, given, kept):
    parts = parse(tmp_path, {"use_peft": True, "lora_target_modules": given})
    assert parts[2].lora_target_modules == kept
    # What a run leaves is read back the same.
    assert parse(tmp_path, resolved_config(*parts))[2].lora_target_modules == kept


def test_a_model_is_required(tmp_path):
    with pytest.raises(ValueError, match="a folder or a name on the hub for model_name_or_path"):
        parse(tmp_path, {"model_name_or_path": None})


def test_command_line_goes_before_the_file(tmp_path):
    values = {"reward_kwargs": {"beta": 1.5}, "learning_rate": "1e-5", "scale_rewards": False}
    arguments, config, model = parse(
        tmp_path, values, "--reward", "R5", "--reward_kwargs", '{"beta": 2}', "--max_steps", "7", "--lora_r", "4"
    )
    assert arguments.reward == ["R5"]
    assert arguments.reward_kwargs == {"beta": 2}
    assert config.max_steps == 7
    assert config.learning_rate == 1e-5
    assert config.scale_rewards == "none"
    assert model.lora_r == 4


ON = {
    "look_closer": {"looks": 2},
    "curriculum": {"by": "boxes"},
    "reward_kwargs": {"beta": 2.0},
    "box_format": {"syntax": "json", "space": "norm100"},
    "show_images": 3,
    "early_stopping_patience": 4,
    "max_image_pixels": 10_000,
    "save_total_limit": 2,
    "generation_kwargs": {"num_beams": 1},
    "reward_weights": [2.0],
    "lora_target_modules": ["q_proj"],
}
# Without these some of them would be refused.
TO_BE_ON = {
    **{"use_peft": True, "load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"},
    **{"eval_steps": 500, "save_steps": 500},
}


def value_of(parts, name):
    return next(getattr(part, name) for part in parts if hasattr(part, name))


def test_what_a_file_has_on_is_switched_off(tmp_path):
    file = {**ON, **TO_BE_ON}
    parts = parse(tmp_path, file)
    assert None not in [value_of(parts, name) for name in ON]
    words = [word for name in ON for word in (f"--{name}", "false")]
    for parts in (parse(tmp_path, file, *words), parse(tmp_path, {**file, **dict.fromkeys(ON, False)})):
        assert [value_of(parts, name) for name in ON] == [None] * len(ON)


@pytest.mark.parametrize("words", [["--look_closer", "null"], ["--look-closer=False"]])
def test_ways_to_switch_off(tmp_path, words):
    arguments, _, _ = parse(tmp_path, {"look_closer": {"looks": 2}}, *words)
    assert arguments.look_closer is None


def test_a_word_of_an_options_own_stays_one(tmp_path):
    _, config, model = parse(tmp_path, {}, "--run_name", "null", "--bf16", "false")
    assert (config.run_name, config.bf16, model.use_peft) == ("null", False, False)
    with pytest.raises(ValueError, match="invalid int value: 'off'"):
        parse(tmp_path, {}, "--show_images", "off")


def test_files_over_files_and_what_a_run_saves_of_them(tmp_path):
    """The saved configuration says every value itself."""
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({**SOUND, "reward": "R1", "seed": 3, "learning_rate": 0.5}))
    (tmp_path / "run.yaml").write_text("{base: base.yaml, reward: R2, reward_kwargs: {beta: 2}}")
    (tmp_path / "over.yaml").write_text("{learning_rate: 0.25, seed: 4}")
    files = [f"--config={tmp_path / 'run.yaml'}", "--config", str(tmp_path / "over.yaml")]
    parts = parse_grpo_arguments([*files, "--seed", "5"])
    saved = resolved_config(*parts)
    assert {"reward": ["R2"], "reward_kwargs": {"beta": 2}, "learning_rate": 0.25, "seed": 5}.items() <= saved.items()
    assert "base" not in saved
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.yaml").write_text(yaml.safe_dump(saved))
    assert resolved_config(*parse_grpo_arguments(["--config", str(tmp_path / "elsewhere/config.yaml")])) == saved


def test_options_in_the_place_of_a_file(tmp_path):
    (tmp_path / "over.yaml").write_text("{seed: 4}")
    _, config, _ = parse_grpo_arguments([f"--config={tmp_path / 'over.yaml'}"], {**SOUND, "seed": 3, "max_steps": 7})
    assert (config.seed, config.max_steps) == (4, 7)
    with pytest.raises(ValueError, match=r"rewards train`, got lerning_rate. Did you mean learning_rate"):
        parse_grpo_arguments([], {**SOUND, "lerning_rate": 1})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lerning_rate", "3"], "got --lerning_rate. Did you mean --learning_rate?"),
        (["--lerning_rate=3"], "got --lerning_rate. Did you mean --learning_rate?"),
        # A word that belongs to no option
        (["runs/mine.yaml"], "got runs/mine.yaml. --help lists them"),
    ],
)
def test_a_word_that_is_no_option_is_refused_before_all_else(words, message):
    for parse_arguments, values in ((parse_grpo_arguments, SOUND), (parse_sft_arguments, {})):
        with pytest.raises(ValueError, match=re.escape(message)):
            parse_arguments(words, {key: value for key, value in values.items() if key != "use_cpu"})


def test_without_a_gpu_bf16_is_refused_with_all_that_a_processor_needs(monkeypatch):
    monkeypatch.setattr(training_args, "is_torch_bf16_gpu_available", lambda: False)
    values = {**SOUND, "bf16": True, "tf32": True, "use_vllm": True, "use_cpu": False}
    with pytest.raises(ValueError, match=r"^Expected a GPU that computes in bfloat16 for bf16, got none") as error:
        parse_grpo_arguments([], values)
    words = "--use_cpu true --bf16 false --tf32 false --use_vllm false"
    assert f"{words}." in str(error.value)
    _, config, _ = parse_grpo_arguments(words.split(), values)
    assert config.use_cpu
    # TRL takes bf16 where nothing is said.
    with pytest.raises(ValueError, match=r"for bf16, got none .* --use_cpu true --bf16 false\.$"):
        parse_sft_arguments([], {"model_name_or_path": "somewhere"})


MINE = {"syntax": "json", "keys": ["where"], "order": "yxyx", "space": "norm1000"}


@pytest.mark.parametrize("on_command_line", [False, True])
def test_a_format_of_ones_own(tmp_path, on_command_line):
    if on_command_line:
        arguments, config, model = parse(tmp_path, {"box_format": "qwen3-vl"}, "--box_format", json.dumps(MINE))
    else:
        arguments, config, model = parse(tmp_path, {"box_format": MINE})
    assert arguments.box_format == MINE
    # What a run leaves is read back the same.
    (tmp_path / "resolved.yaml").write_text(yaml.safe_dump(resolved_config(arguments, config, model)))
    again, _, _ = parse_grpo_arguments(["--config", str(tmp_path / "resolved.yaml")])
    assert again.box_format == MINE


def test_a_format_of_ones_own_for_a_cold_start(tmp_path):
    path = tmp_path / "sft.yaml"
    path.write_text(
        yaml.safe_dump({"model_name_or_path": "somewhere", "box_format": MINE, "use_cpu": True, "bf16": False})
    )
    assert parse_sft_arguments(["--config", str(path)])[0].box_format == MINE
    path.write_text(yaml.safe_dump({"model_name_or_path": "somewhere", "box_format": {**MINE, "order": "zyx"}}))
    with pytest.raises(ValueError, match="xyxy, yxyx, xywh, cxcywh"):
        parse_sft_arguments(["--config", str(path)])


def test_several_rewards(tmp_path):
    values = {"reward": ["R4", "R1"], "reward_kwargs": [{"beta": 2.0}, None], "reward_weights": [0.8, 0.2]}
    arguments, config, _ = parse(tmp_path, values)
    assert arguments.reward == ["R4", "R1"]
    assert config.reward_weights == [0.8, 0.2]
    assert spread_kwargs(arguments.reward, arguments.reward_kwargs) == [{"beta": 2.0}, {}]


def test_help_teaches(capsys):
    with pytest.raises(SystemExit, match="0"):
        parse_grpo_arguments(["--help"])
    output = capsys.readouterr().out
    for word in (
        "grounding-rewards train --config configs/demo/grpo.yaml",
        "accelerate launch",
        "R4: F-beta times the mean of a smooth curve",
        "quality_breakpoints=(0.0, 0.3, 0.7, 1.0)",
        "random: control; a number drawn uniformly",
        "readers (best, mean, weighted)",
        "--reward_kwargs",
        "annotations.jsonl",
        "--num_generations",
    ):
        assert word in output
