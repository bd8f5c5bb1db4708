"""Wrong values are refused when the configuration is read, and the message says what is legal."""

from __future__ import annotations

import json
import math
import re

import pytest
import yaml
from transformers import training_args

from grounding_rewards.rewards.registry import spread_kwargs
from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments
from grounding_rewards.training.option_values import NUMBERS, check_options
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


def test_numbers_out_of_their_range_are_refused(tmp_path):
    parts = (
        *parse(tmp_path, {}),
        *parse_sft_arguments([], {"model_name_or_path": "x", "use_cpu": True, "bf16": False}),
    )
    tried = set()
    for part in parts:
        check_options(part)
        for name in NUMBERS.keys() & part.__dataclass_fields__:
            legal, before = NUMBERS[name], getattr(part, name)
            for outside in (legal.low if legal.above else legal.low - 1, math.nan):
                setattr(part, name, outside)
                with pytest.raises(ValueError, match=rf"^Expected .* for {name}, got "):
                    check_options(part)
            setattr(part, name, before)
            tried.add(name)
    assert tried == set(NUMBERS)


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


def test_several_rewards(tmp_path):
    values = {"reward": ["R4", "R1"], "reward_kwargs": [{"beta": 2.0}, None], "reward_weights": [0.8, 0.2]}
    arguments, config, _ = parse(tmp_path, values)
    assert arguments.reward == ["R4", "R1"]
    assert config.reward_weights == [0.8, 0.2]
    assert spread_kwargs(arguments.reward, arguments.reward_kwargs) == [{"beta": 2.0}, {}]
