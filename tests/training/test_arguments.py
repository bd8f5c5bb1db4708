"""Wrong values are refused when the configuration is read, and the message says what is legal."""

import json
import math

import pytest
import torch
import yaml
from transformers import training_args
from trl import GRPOConfig

from grounding_rewards.parsing import get_box_format
from grounding_rewards.training.arguments import NUMBERS, parse_grpo_arguments, parse_sft_arguments
from grounding_rewards.training.model import check_optimization
from grounding_rewards.training.run_folder import resolved_config
from grounding_rewards.training.run_options import check_options
from tests.tables import table

pytestmark = pytest.mark.training

SOUND = {"model_name_or_path": "somewhere", "output_dir": "runs/x", "reward": "R4", "report_to": "none"}
SOUND |= {"use_cpu": True, "bf16": False}


def parse(tmp_path, values, *args):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**SOUND, **values}))
    return parse_grpo_arguments(["--config", str(path), *args])


def test_numbers_out_of_their_range_are_refused(tmp_path):
    supervised = parse_sft_arguments([], {"model_name_or_path": "x", "use_cpu": True, "bf16": False})
    tried = set()
    for part in (*parse(tmp_path, {}), *supervised):
        check_options(part, NUMBERS)
        for name in NUMBERS.keys() & part.__dataclass_fields__:
            legal, before = NUMBERS[name], getattr(part, name)
            for outside in (legal.low if legal.above else legal.low - 1, math.nan):
                setattr(part, name, outside)
                with pytest.raises(ValueError, match=rf"^Expected .* for {name}, got "):
                    check_options(part, NUMBERS)
            setattr(part, name, before)
            tried.add(name)
    assert tried == set(NUMBERS)


@pytest.mark.parametrize(("given", "kept"), table("training/cases", "single_layer_name_stays_a_name"))
def test_single_layer_name_stays_a_name(tmp_path, given, kept):
    parts = parse(tmp_path, {"use_peft": True, "lora_target_modules": given})
    assert parts[2].lora_target_modules == kept
    # What a run leaves is read back the same.
    assert parse(tmp_path, resolved_config(*parts))[2].lora_target_modules == kept


ON = table("training/cases", "on")
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
    (tmp_path / "off.yaml").write_text(yaml.safe_dump(dict.fromkeys(ON)))
    parts = parse(tmp_path, file, "--config", str(tmp_path / "off.yaml"))
    assert [value_of(parts, name) for name in ON] == [None] * len(ON)


def test_a_word_of_an_options_own_stays_one(tmp_path):
    _, config, model = parse(tmp_path, {}, "--run_name", "null", "--bf16", "false")
    assert (config.run_name, config.bf16, model.use_peft) == ("null", False, False)
    with pytest.raises(ValueError, match="invalid int value: 'off'"):
        parse(tmp_path, {}, "--max_image_pixels", "off")


def test_files_over_files_and_what_a_run_saves_of_them(tmp_path):
    """The saved configuration says every value itself."""
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({**SOUND, "reward": "R1", "seed": 3, "learning_rate": 0.5}))
    (tmp_path / "run.yaml").write_text("{base: base.yaml, reward: R2, reward_kwargs: {beta: 2}, scale_rewards: false}")
    (tmp_path / "over.yaml").write_text("{learning_rate: 0.25, seed: 4}")
    files = [f"--config={tmp_path / 'run.yaml'}", "--config", str(tmp_path / "over.yaml")]
    saved = resolved_config(*parse_grpo_arguments([*files, "--seed", "5", "--reward_kwargs", '{"beta": 3}']))
    assert {"reward": ["R2"], "reward_kwargs": {"beta": 3}, "learning_rate": 0.25, "seed": 5}.items() <= saved.items()
    assert saved["scale_rewards"] == "none"
    assert "base" not in saved
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.yaml").write_text(yaml.safe_dump(saved))
    assert resolved_config(*parse_grpo_arguments(["--config", str(tmp_path / "elsewhere/config.yaml")])) == saved


@pytest.mark.parametrize(("reward", "parameter"), [("soft_f1", "iou_threshold"), ("R1", "beta")])
def test_another_reward_names_the_parameters_of_the_file(tmp_path, reward, parameter):
    options = {"reward": "R4", "reward_kwargs": {"beta": 1.5, "iou_threshold": 0.5}}
    message = rf"got '{parameter}'.* reward_kwargs, .* in the YAML, is \{{'beta': 1\.5, .* --reward_kwargs '\{{\"no_box"
    with pytest.raises(ValueError, match=message):
        parse(tmp_path, options, "--reward", reward)
    arguments, _, _ = parse(tmp_path, options, "--reward", reward, "--reward_kwargs", '{"no_box_bonus": 0.3}')
    assert arguments.rewards[0].box_reward.no_box_bonus == 0.3
    # A wrong value is no parameter of another reward.
    with pytest.raises(ValueError, match=r"for `beta`, got -1") as error:
        parse(tmp_path, {"reward_kwargs": {"beta": -1}})
    assert "another reward" not in str(error.value)


def test_options_in_the_place_of_a_file(tmp_path):
    (tmp_path / "over.yaml").write_text("{seed: 4}")
    _, config, _ = parse_grpo_arguments([f"--config={tmp_path / 'over.yaml'}"], {**SOUND, "seed": 3, "max_steps": 7})
    assert (config.seed, config.max_steps) == (4, 7)
    with pytest.raises(ValueError, match=r"rewards train`, got lerning_rate"):
        parse_grpo_arguments([], {**SOUND, "lerning_rate": 1})


def test_bf16_without_a_gpu_names_the_options_for_a_cpu(monkeypatch):
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


def test_custom_format_is_read_from_file_and_command_line(tmp_path):
    mine = {"syntax": "json", "keys": ["where"], "order": "yxyx", "space": "norm1000"}
    in_file = parse(tmp_path, {"box_format": mine})
    assert in_file[0].box_format == mine
    in_words = parse(tmp_path, {"box_format": "qwen3-vl"}, "--box_format", json.dumps(mine))
    assert get_box_format(in_words[0].box_format) == get_box_format(mine)
    # What a run leaves is read back the same.
    assert parse(tmp_path, resolved_config(*in_file))[0].box_format == mine


@pytest.mark.parametrize(("options", "message"), table("training/cases", "what_cannot_be_built_is_refused"))
def test_what_cannot_be_built_is_refused(tmp_path, options, message):
    """In training/model.py, before any weights are loaded."""
    empty = torch.nn.Linear(2, 2, device="meta")
    check_optimization(GRPOConfig(str(tmp_path), use_cpu=True, bf16=False), empty)
    with pytest.raises(ValueError, match=message):
        check_optimization(GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **options), empty)


@pytest.mark.parametrize(("given", "message"), table("training/cases", "wrong_options_of_generation_are_refused"))
def test_wrong_options_of_generation_are_refused(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        parse(tmp_path, {"generation_kwargs": given})
