"""What the trainers ask of TRL and transformers that is not public: names, parameters, attributes.

`make test-lowest` runs this with the lowest versions that pyproject.toml allows, beside real runs of both trainers; a
version that fails there is too low.
"""

from __future__ import annotations

import ast
import inspect
import re
from argparse import ArgumentParser

import pytest
from transformers import (
    AutoConfig,
    PretrainedConfig,
    Trainer,
    core_model_loading,
)
from transformers.integrations import TensorBoardCallback, deepspeed
from trl import GRPOConfig, GRPOTrainer, ModelConfig, SFTConfig, SFTTrainer
from trl.data_utils import prepare_multimodal_messages
from trl.generation.vllm_generation import VLLMGeneration
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.utils import RepeatSampler

from grounding_rewards.data.dataset_columns import add_prompts
from grounding_rewards.models.parity import FORWARDED
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer
from grounding_rewards.training.arguments import (
    GENERATION_OPTIONS,
    GRPO_CHOICES,
    NUMBERS,
    GroundingArguments,
    SupervisedArguments,
)
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.training


OVERRIDDEN_OR_CALLED = [
    # overridden in training/grpo.py
    (GRPOTrainer._calculate_rewards, ["self", "inputs", "prompts", "completions", "completion_ids_list"]),
    (GRPOTrainer._generate_and_score_completions, ["self", "inputs"]),
    (GRPOTrainer._get_train_sampler, ["self", "dataset"]),
    (GRPOTrainer.log, ["self", "logs", "start_time"]),
    # and in training/rollout.py
    (GRPOTrainer._tokenize_prompts, ["self", "prompts"]),
    (GRPOTrainer._generate_single_turn, ["self", "prompt_ids"]),
    (GRPOTrainer._generate_and_score_completions, ["self", "inputs"]),
    (VLLMGeneration.generate, ["self", "prompts", "images", "num_generations"]),
    (VLLMGeneration.sync_weights, ["self"]),
    # called in models/parity.py
    (GRPOTrainer._prepare_inputs, ["self", "generation_batch"]),
    (GRPOTrainer._get_per_token_logps_and_entropies, ["self", "model"]),
    # and in training/resume.py
    (Trainer._load_from_checkpoint, ["self", "resume_from_checkpoint", "model"]),
    (Trainer._load_best_model, ["self"]),
    (Trainer._save_rng_state, ["self", "output_dir"]),
    # and in training/sharding.py
    (Trainer._save, ["self", "output_dir", "state_dict"]),
    # called by position
    (RepeatSampler, ["data_source", "mini_repeat_count", "batch_size", "repeat_count", "shuffle", "seed"]),
    (unwrap_model_for_generation, ["model", "accelerator"]),
    (Trainer.get_optimizer_cls_and_kwargs, ["args", "model"]),
    (prepare_multimodal_messages, ["messages", "images"]),
    # overridden in training/arguments.py
    (ArgumentParser._get_values, ["self", "action", "arg_strings"]),
]


@pytest.mark.parametrize(("function", "parameters"), OVERRIDDEN_OR_CALLED)
def test_what_is_overridden_or_called_takes_these(function, parameters):
    assert [*inspect.signature(function).parameters][: len(parameters)] == parameters


def test_every_option_that_is_checked_exists():
    owners = (GRPOConfig, SFTConfig, ModelConfig, GroundingArguments, SupervisedArguments)
    known = {name for owner in owners for name in owner.__dataclass_fields__}
    assert {
        *NUMBERS,
        *GRPO_CHOICES,
        *GENERATION_OPTIONS.values(),
        "log_multimodal",
        "log_completions",
        "use_peft",
        "model_revision",
    } <= known


READ_OR_ASSIGNED = [
    # training/grpo.py and training/resume.py: what is bought, logged and decoded, and how far a run has come
    (GRPOTrainer, ["_buffered_inputs", "_step", "_metrics", "_tokenizer", "_logs", "_pending_extra_logs"]),
    # assigned to: TRL would go on without a word if it read another name
    (GRPOTrainer, ["log_multimodal", "_total_train_tokens"]),
    # set on a copy by models/parity.py, which is what keeps its check cheap and out of the log
    (GRPOTrainer, ["_buffered_inputs", "_step", "beta", "num_iterations", "num_generations", "use_vllm"]),
    (GRPOTrainer, ["_pending_metrics", "generation_kwargs", "mask_truncated_completions", "eos_token_ids"]),
    (Trainer, ["_tr_loss", "_total_loss_scalar", "_globalstep_last_logged"]),
    (SFTTrainer, ["_metrics", "_total_train_tokens"]),
    # by training/run.py
    (TensorBoardCallback, ["_SummaryWriter", "tb_writer"]),
    (PretrainedConfig, ["_name_or_path"]),
    (ArgumentParser, ["_option_string_actions", "_actions"]),
    # by training/look_closer.py: there are no videos
    (GRPOTrainer, ["_video_pad_token_id"]),
]


@pytest.mark.parametrize(("owner", "names"), READ_OR_ASSIGNED)
def test_what_is_read_or_assigned_is_used_by_its_owner(owner, names):
    source = inspect.getsource(owner)
    assert [name for name in names if f"self.{name}" not in source] == []


# Of modules of transformers, by training/sharding.py.
ASSIGNED_BY_TRANSFORMERS = [
    (deepspeed, "_hf_deepspeed_config_weak_ref"),
    (deepspeed, "model_to_load._weight_conversions"),
    (core_model_loading, "model._weight_conversions"),
]


@pytest.mark.parametrize(("module", "name"), ASSIGNED_BY_TRANSFORMERS)
def test_what_sharding_assigns_to_is_assigned_by_transformers(module, name):
    assert f" {name} = " in inspect.getsource(module)


def test_parity_forwards_the_inputs_that_trl_forwards():
    """Where the method that computes log-probabilities takes any keyword, a name that is missing would go unnoticed."""
    call = inspect.getsource(GRPOTrainer._compute_loss).partition("_get_per_token_logps_and_entropies(")[2]
    handed = re.findall(r"(\w+)=inputs\.get\(\"\1\"\)", call.partition("\n        )\n")[0])
    assert set(handed) == set(FORWARDED)


def test_foreign_private_names_are_listed():
    # Of Python and its named tuples, and what of our own is set elsewhere.
    ours, used = {"_replace", "_asdict", "_fields", "_exit", "_sampler"}, set()
    for path in (REPOSITORY / "grounding_rewards").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                ours |= {one.id for one in fields}
            elif isinstance(node, ast.FunctionDef):
                ours.add(node.name)
                own = ast.walk(node) if node.name in ("__init__", "__post_init__", "reset") else ()
                ours |= {one.attr for one in own if isinstance(one, ast.Attribute) and type(one.ctx) is ast.Store}
            elif isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
                used.add(node.attr)
    listed = {function.__name__ for function, _ in OVERRIDDEN_OR_CALLED}
    listed |= {name for _, names in READ_OR_ASSIGNED for name in names} | {"_tag_names"}
    listed |= {name.rpartition(".")[2] for _, name in ASSIGNED_BY_TRANSFORMERS}
    assert used - ours - listed == set()


def test_cards_name_the_method():
    assert GRPOTrainer._tag_names
    assert SFTTrainer._tag_names


def test_no_answer_may_hold_the_token_of_an_image(tiny_vlm, tmp_path):
    config = GRPOConfig(str(tmp_path), per_device_train_batch_size=4, num_generations=2, use_cpu=True, bf16=False)
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", config, synthetic_dataset("train", 8))
    token = [trainer.model.config.image_token_id]
    assert trainer.generation_config.suppress_tokens == trainer.generation_kwargs["suppress_tokens"] == token


@pytest.mark.parametrize(("page", "reward"), [("README.md", "soft_f1"), ("docs/recipe_own_script.md", "R4")])
def test_the_script_of_a_page_trains(page, reward, tiny_vlm, tmp_path):
    """Stock TRL, with the model and the images of these tests; what it says of reward and columns stays as it is."""
    script = (REPOSITORY / page).read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    # A model that learned nothing may write the token of an image, which the lowest TRL then counts as one.
    token = AutoConfig.from_pretrained(tiny_vlm).image_token_id
    settings = (
        f"output_dir={str(tmp_path / 'run')!r}, use_cpu=True, bf16=False, max_steps=1, num_generations=2, "
        "per_device_train_batch_size=4, max_completion_length=8, report_to='none', "
        f"generation_kwargs={{'suppress_tokens': [{token}]}}"
    )
    for said, here in (
        ('"Qwen/Qwen3-VL-4B-Instruct"', repr(str(tiny_vlm))),
        (f'output_dir="runs/{reward.lower()}"', settings),
        ('load_dataset("data/vindr_qwen3", split="train")', "images"),
    ):
        assert said in script
        script = script.replace(said, here)
    scope = {"images": add_prompts(synthetic_dataset("train", 8), "qwen3-vl")}
    exec(script, scope)
    assert scope["trainer"].state.log_history[0][f"{reward}/status/truncated"] >= 0
