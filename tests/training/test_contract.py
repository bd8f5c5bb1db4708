"""What the trainers ask of TRL and transformers that is not public: names, parameters, attributes.

`make test-lowest` runs this with the lowest versions that pyproject.toml allows, beside real runs of both trainers; a
version that fails there is too low.
"""

import ast
import inspect
import re
from pydoc import locate

import pytest
from transformers import AutoConfig
from trl import GRPOConfig, GRPOTrainer, ModelConfig, SFTConfig, SFTTrainer

from grounding_rewards.data.dataset_columns import add_prompts
from grounding_rewards.models.parity import FORWARDED
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer, arguments
from grounding_rewards.training.run_options import TABLES
from tests.conftest import REPOSITORY
from tests.tables import table

pytestmark = pytest.mark.training


OVERRIDDEN_OR_CALLED = table("training/contract", "overridden_or_called")
READ_OR_ASSIGNED = table("training/contract", "read_or_assigned")
ASSIGNED_BY_TRANSFORMERS = table("training/contract", "assigned_by_transformers")


@pytest.mark.parametrize(("function", "parameters"), OVERRIDDEN_OR_CALLED)
def test_what_is_overridden_or_called_takes_these(function, parameters):
    assert [*inspect.signature(locate(function)).parameters][: len(parameters)] == parameters


def test_every_option_that_is_checked_exists():
    owners = (GRPOConfig, SFTConfig, ModelConfig, arguments.GroundingArguments, arguments.SupervisedArguments)
    known = {name for owner in owners for name in owner.__dataclass_fields__}
    others = {"log_multimodal", "log_completions", "use_peft", "model_revision"}
    assert {*arguments.NUMBERS, *TABLES["choices"], *TABLES["generation"].values(), *others} <= known


@pytest.mark.parametrize(("owner", "names"), READ_OR_ASSIGNED)
def test_what_is_read_or_assigned_is_used_by_its_owner(owner, names):
    source = inspect.getsource(locate(owner))
    assert [name for name in names if f"self.{name}" not in source] == []


@pytest.mark.parametrize(("module", "name"), ASSIGNED_BY_TRANSFORMERS)
def test_what_sharding_assigns_to_is_assigned_by_transformers(module, name):
    assert f" {name} = " in inspect.getsource(locate(module))


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
    listed = {name.rpartition(".")[2] for name, _ in OVERRIDDEN_OR_CALLED}
    listed |= {name for _, names in READ_OR_ASSIGNED for name in names} | {"_tag_names"}
    listed |= {name.rpartition(".")[2] for _, name in ASSIGNED_BY_TRANSFORMERS}
    assert used - ours - listed == set()


def test_cards_name_the_method():
    assert GRPOTrainer._tag_names
    assert SFTTrainer._tag_names


@pytest.mark.parametrize("suppressed", [[], [1]])
def test_no_answer_may_hold_the_token_of_an_image(suppressed, tiny_vlm, tmp_path):
    kwargs = {"suppress_tokens": suppressed} if suppressed else None
    batches = {"per_device_train_batch_size": 4, "num_generations": 2, "use_cpu": True, "bf16": False}
    config = GRPOConfig(str(tmp_path), generation_kwargs=kwargs, **batches)
    trainer = GroundingGRPOTrainer(str(tiny_vlm), "R4", config, synthetic_dataset("train", 8))
    tokens = [*suppressed, trainer.model.config.image_token_id]
    assert trainer.generation_config.suppress_tokens == trainer.generation_kwargs["suppress_tokens"] == tokens


@pytest.mark.parametrize(("page", "reward"), [("README.md", "R4"), ("docs/recipe_own_script.md", "R4")])
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
