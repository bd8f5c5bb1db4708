"""`grounding-rewards train` and `sft`: an author's error is one sentence, exit 2, before weights are looked for."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml
from PIL import Image

from grounding_rewards.cli import main
from grounding_rewards.training import arguments
from grounding_rewards.training.run_options import COMMON_OPTIONS
from tests.conftest import REPOSITORY, write_lines
from tests.tables import table
from tests.training.forks import command, end_of, program, started, wait_until
from tests.training.runs import ASSET, BIN, COMMON, ENVIRONMENT, GRPO, grpo, history, words

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def no_weights(tmp_path_factory):
    """The shipped model without its weights: whatever looks for them fails, and says another thing."""
    folder = tmp_path_factory.mktemp("no_weights") / "model"
    return shutil.copytree(ASSET, folder, ignore=shutil.ignore_patterns("*.safetensors"))


@pytest.fixture(scope="module")
def places(no_weights, tmp_path_factory):
    """Folders that wrong values name."""
    root = tmp_path_factory.mktemp("places")
    image = {"boxes": [[10, 20, 60, 80]], "labels": ["mass"], "width": 120, "height": 90}

    def images(name, rows):
        folder = root / name
        folder.mkdir()
        Image.new("L", (120, 90)).save(folder / "image.png")
        lines = [{"file": "image.png", "id": f"{name}-{k}", **image, **row} for k, row in enumerate(rows)]
        write_lines(folder / "annotations.jsonl", lines)
        return folder

    from datasets import DatasetDict

    from grounding_rewards.synthetic import synthetic_dataset

    whole = synthetic_dataset("train", 4)
    place, words = {"type": "image", "text": None}, {"type": "text", "text": "Find every mass."}
    for name, parts in (("two_places", [place, place, words]), ("no_place", [words])):
        # the last row alone, but for a fault of all
        contents = [parts if k == 3 or name == "no_place" else [place, words] for k in range(4)]
        prompts = [[{"role": "user", "content": content}] for content in contents]
        asked = whole.remove_columns("prompt").add_column("prompt", prompts)
        DatasetDict(train=asked).save_to_disk(str(root / name))
    (root / "own.py").write_text("", encoding="utf-8")

    def model(name, missing=(), config=None):
        folder = shutil.copytree(no_weights, root / name, ignore=shutil.ignore_patterns(*missing))
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder

    for model_type in ("llama", "paligemma", "florence2", "kosmos-2"):
        model(model_type, config={"model_type": model_type})
    model("no_template", ["chat_template.jinja"])
    model("no_tokenizer", ["tokenizer.json", "tokenizer_config.json"])
    model("no_processor", ["processor_config.json"])
    weights = (ASSET / "model.safetensors").read_bytes()
    (model("cut") / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    shards = {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (model("no_shard") / "model.safetensors.index.json").write_text(json.dumps(shards), encoding="utf-8")
    small = {"text_config": {"num_hidden_layers": 1}, "vision_config": {"depth": 1, "deepstack_visual_indexes": [0]}}
    model("experts", config={"model_type": "qwen3_vl_moe", **small})
    adapter = root / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "x"}', encoding="utf-8")
    (root / "file").write_text("", encoding="utf-8")
    (root / "empty").mkdir()
    return {
        "root": root,
        "unsplit": images("unsplit", [{}] * 4),
        "outside": images("outside", [{"split": "train"}, {"split": "train", "boxes": [[10, 20, 60, 800]]}]),
        "leaky": images("leaky", [{"split": "train", "patient_id": 7}, {"split": "validation", "patient_id": "007"}]),
        "few": images("few", [{"split": "train"}]),
    }


def takes_one_column(completions, boxes):
    return [0.0] * len(completions)


def needs_an_answer(completions, answer, **columns):
    return [0.0] * len(completions)


def on_boxes(pred, gt):
    return 0.0


class WithoutReference:
    def score(self, pred):
        return 0.0


def refused(capsys, command, values, base, places, no_weights, tmp_path):
    """What the command says of a configuration with these values; it must be one line."""
    filled = {}
    for name, value in values.items():
        filled[name] = value.replace("{root}", str(places["root"])) if isinstance(value, str) else value
    plain = {name: value if isinstance(value, (int, float)) else str(value) for name, value in base.items()}
    merged = {**plain, "model_name_or_path": str(no_weights), "output_dir": str(tmp_path / "run"), **filled}
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(merged), encoding="utf-8")
    capsys.readouterr()
    assert main([command, "--config", str(file)]) == 2
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    (start, message) = printed.rsplit("grounding-rewards: ", 1)
    assert "grounding-rewards: " not in start
    assert not list((tmp_path / "run").glob("*"))
    return message


@pytest.mark.parametrize(("values", "expected"), table("commands/trainings", "train"), ids=str)
def test_train_refuses(capsys, values, expected, places, no_weights, tmp_path):
    message = refused(capsys, "train", values, GRPO, places, no_weights, tmp_path)
    assert expected in message
    # Rows are listed below the sentence; nothing else is.
    assert len(message.splitlines()) == 1 or message.splitlines()[1].startswith(("row ", "rows ", "Expected "))


@pytest.mark.parametrize(("values", "expected"), table("commands/trainings", "sft"), ids=str)
def test_sft_refuses(capsys, values, expected, places, no_weights, tmp_path):
    assert expected in refused(capsys, "sft", values, COMMON, places, no_weights, tmp_path)


@pytest.mark.parametrize(("command", "base"), [("train", GRPO), ("sft", COMMON)])
def test_the_weights_are_looked_for_last(capsys, command, base, places, no_weights, tmp_path):
    assert "safetensors" in refused(capsys, command, {}, base, places, no_weights, tmp_path)


@pytest.mark.parametrize(("text", "expected"), table("commands/tables", "configuration_files"))
def test_configuration_files(capsys, tmp_path, text, expected):
    file = tmp_path / "run.yaml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert main(["train", f"--config={file}"]) == 2
    message = capsys.readouterr().err
    assert expected in message
    assert len(message.splitlines()) == 1


def test_several_processes_say_it(tmp_path, no_weights):
    options = words({**GRPO, "model_name_or_path": no_weights, "output_dir": tmp_path / "run", "temperature": 0})
    launch = ("accelerate.commands.launch", "--quiet", "--config_file", "configs/accelerate/cpu_2.yaml")
    output = tmp_path / "output.txt"
    with started(program, *launch, "-m", "grounding_rewards.cli", "train", *options, output=output) as (one,):
        code, printed = end_of([one]), output.read_text(encoding="utf-8")
    assert code == [1], printed[-3000:]
    assert "grounding-rewards: Expected a number above 0 for temperature, got 0.0" in printed
    ours = printed[: printed.index("torch/distributed")] if "torch/distributed" in printed else printed
    assert "Traceback" not in ours.split("grounding-rewards: ")[0]


@pytest.mark.parametrize("command", ["train", "sft"])
def test_help_is_short_and_there_at_once(command):
    code = (
        "import sys; from grounding_rewards.cli import main; main(sys.argv[1:]);"
        "print({'torch', 'transformers', 'trl'} & {*sys.modules}, file=sys.stderr)"
    )
    environment = {**ENVIRONMENT, "COLUMNS": "80"}
    call = [sys.executable, "-c", code, command, "--help"]
    done = subprocess.run(call, env=environment, check=True, capture_output=True, text=True)
    assert done.stderr.strip() == "set()"
    lines = done.stdout.splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 80
    ours, _, trls = done.stdout.partition("\nTRL's, of which --help-all shows the rest:")
    assert "--dataset [synthetic]" in ours
    assert "--learning_rate [" in trls


@pytest.mark.parametrize(
    ("command", "config"), [("train", arguments.GRPOArguments), ("sft", arguments.SupervisedConfig)]
)
def test_help_has_the_defaults_of_the_run(command, config):
    defaults = {one.name: one.default for of in (config, arguments.ModelArguments) for one in dataclasses.fields(of)}
    for name, (default, _) in COMMON_OPTIONS[command].items():
        assert defaults[name] == default, name


BREVITY = """
def brevity(completions, **columns):
    return [1.0 / (1 + len(completion[0]["content"])) for completion in completions]

class Scaled:
    def __init__(self, scale=1.0):
        self.scale = scale
    def __call__(self, completions, **columns):
        return [self.scale * one for one in brevity(completions)]
"""


def test_rewards_of_ones_own_are_found_from_the_working_directory(tmp_path):
    """A reward function as TRL takes it, and a class of them, beside ours, from the console script."""
    (tmp_path / "mymodule.py").write_text(BREVITY, encoding="utf-8")
    values = {**GRPO, "output_dir": tmp_path / "run", "max_steps": 1, "model_name_or_path": ASSET}
    config = {name: value if isinstance(value, (int, float)) else str(value) for name, value in values.items()}
    config |= {"reward": ["R4", "mymodule.brevity", "mymodule.Scaled"], "reward_kwargs": [{}, None, {"scale": 2.0}]}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"}
    call = [BIN / "grounding-rewards", "train", "--config", "run.yaml"]
    subprocess.run(call, cwd=tmp_path, env=environment, check=True, capture_output=True)
    (entry,) = history(tmp_path / "run")
    parts = [entry[f"rewards/{name}/mean"] for name in ("R4", "brevity", "Scaled")]
    assert parts[2] == pytest.approx(2 * parts[1])
    assert entry["reward"] == pytest.approx(sum(parts))


def test_sigterm_saves_and_ends(tmp_path):
    """What a batch system sends before it kills: a checkpoint at the step that is reached, and the way to go on."""
    values = {**GRPO, "output_dir": tmp_path / "run", "max_steps": 500, "save_strategy": "no", "save_steps": 500}
    log, output = tmp_path / "run" / "log.jsonl", tmp_path / "output.txt"
    with started(command, "train", *words(values), output=output) as (one,):
        wait_until(lambda: log.is_file() and log.read_text().count("\n") >= 2, [one], output)
        one.terminate()
        code, printed = end_of([one]), output.read_text(encoding="utf-8")
    assert code == [143], printed[-2000:]
    assert "--resume_from_checkpoint last" in printed
    assert not (tmp_path / "run" / "checkpoint").exists()
    (saved,) = (tmp_path / "run").glob("checkpoint-*")
    step = int(saved.name.rpartition("-")[2])
    trainer = grpo(tmp_path / "run", max_steps=step + 2, save_strategy="no", resume_from_checkpoint="last")
    assert trainer.state.global_step == step + 2
    steps = [entry["step"] for entry in history(tmp_path / "run")]
    assert steps == list(range(1, step + 3))
    assert os.path.isdir(tmp_path / "run" / "checkpoint")


def test_sigterm_to_one_of_two_processes_stops_both(tmp_path):
    values = {**GRPO, "train_images": 16, "output_dir": tmp_path / "run", "max_steps": 500, "save_strategy": "no"}
    log, output = tmp_path / "run" / "log.jsonl", tmp_path / "output.txt"
    with started(command, "train", *words(values), output=output, processes=2) as both:
        wait_until(lambda: log.is_file() and log.read_text().count("\n") >= 2, both, output)
        both[1].terminate()
        codes, printed = end_of(both), output.read_text(encoding="utf-8")
    assert codes == [143, 143], printed[-2000:]
    assert printed.count("Stopped by SIGTERM after step") == 1
    (saved,) = (tmp_path / "run").glob("checkpoint-*")
    files = ("rng_state_0.pth", "rng_state_1.pth", "unfinished_0.pt", "unfinished_1.pt")
    assert all((saved / name).is_file() for name in files)
    assert not (tmp_path / "run" / "checkpoint").exists()


@pytest.mark.parametrize(("name", "config"), [("train", "configs/demo/grpo.yaml"), ("sft", "configs/demo/sft.yaml")])
def test_a_dry_run_prints_what_config_reads_back(name, config, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(REPOSITORY)
    assert main([name, "--config", config, "--dry-run", "--output_dir", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    values = yaml.safe_load(printed)
    assert values["output_dir"] == str(tmp_path / "run")
    assert (values.get("reward") == ["soft_f1"]) == (name == "train")
    assert not (tmp_path / "run").exists()
    (tmp_path / "again.yaml").write_text(printed, encoding="utf-8")
    assert main([name, "--config", str(tmp_path / "again.yaml"), "--dry-run"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == values


@pytest.mark.parametrize("wanted", ["(q_proj", "unknown_proj"])
def test_a_dry_run_tries_the_adapter_on_the_layers_of_a_model_that_is_here(wanted, capsys):
    given = ["--use_peft", "true", "--lora_target_modules", wanted]
    assert main(["train", "--config", "configs/demo/grpo.yaml", "--dry-run", *given]) == 2
    said = capsys.readouterr()
    assert "a pattern of layers of this model for lora_target_modules" in said.err
    assert said.out == ""
