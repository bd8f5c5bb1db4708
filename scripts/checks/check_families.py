"""Take one real step of GRPO with each family of configs/models/, with random weights, on the processor.

  python scripts/checks/check_families.py --narrow                 # a few seconds a family, which is what the tests do
  python scripts/checks/check_families.py                   # published widths, two layers: minutes, and up to 8 GB
  python scripts/checks/check_families.py --write docs/cluster.md  # the same, and the table into the page
  python scripts/checks/check_families.py --family medgemma_4b --write docs/cluster.md        # one row of it anew

The step is that of configs/experiments/r4.yaml with the family's own file laid over it: its adapters, activation
checkpointing, precision and KL term, with the processor class and the chat template of the family. Only the reward is
drawn at random, because random weights draw no boxes, and batches are small. A family passes if adapters sit on the
language model's layers and nowhere else, each of them has a gradient and moves, nothing else has one, and nothing is
said about weights that are missing or left over.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import platform
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import TrainerCallback

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.config_files import read_config
from grounding_rewards.common.environment import package_version
from grounding_rewards.images.resize import set_image_size
from grounding_rewards.prepare.load import load_split
from grounding_rewards.training.arguments import parse_grpo_arguments
from grounding_rewards.training.grpo import GroundingGRPOTrainer
from grounding_rewards.training.model import (
    adapter_and_quantisation,
    check_model,
    load_run_processor,
    model_init_kwargs,
)
from scripts.checks.model_families import FAMILIES, family_config, save_family
from scripts.checks.training_memory import Training, kept, memory_of, shape_of
from scripts.docs.page_parts import marks_of, replace_part

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
LAYERS = 2
MARKS = marks_of("families")
# Of a decoder layer: attention's four and the three of its network.
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_ABOUT_WEIGHTS = re.compile(r"missing|unexpected|newly initialized|not used|mismatch", re.IGNORECASE)


class Step(NamedTuple):
    """What a step of GRPO did to a model.

    Attributes:
        adapted: layers that have an adapter.
        without_gradient: trained parameters that the loss did not reach.
        unmoved: trained parameters that are as before; of an adapter the second half, which begins at zero.
        changed: parameters that are not trained and yet have a gradient.
        said: warnings about weights that are missing or left over.
        processor: its class.
        parameters: how many the model has.
        measured: bytes by what they are for: weights, gradients, optimiser, and activations that the loss keeps.
        reckoned: the same, by scripts/checks/training_memory.py.
    """

    adapted: set[str]
    without_gradient: set[str]
    unmoved: set[str]
    changed: set[str]
    said: list[str]
    processor: str
    parameters: int
    measured: dict[str, float]
    reckoned: dict[str, float]


class _Watch(TrainerCallback):
    """Looks at gradients before the optimiser takes them."""

    def __init__(self) -> None:
        self.without: set[str] = set()
        self.frozen: set[str] = set()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        for name, value in model.named_parameters():
            reached = value.grad is not None and bool(value.grad.abs().sum() > 0)
            # The first half of an adapter has no gradient while the second one is zero.
            if value.requires_grad and "lora_A" not in name and not reached:
                self.without.add(name)
            if not value.requires_grad and value.grad is not None:
                self.frozen.add(name)


class _Measured(GroundingGRPOTrainer):
    """Counts what the loss keeps for the way back, and notes for how many tokens."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        own = {value.untyped_storage().data_ptr() for value in model.parameters()}
        held: dict[int, int] = {}

        def keep(value: torch.Tensor) -> torch.Tensor:
            storage = value.untyped_storage()
            if storage.data_ptr() not in own:
                # An address may be used again once it is free.
                held[storage.data_ptr()] = max(storage.nbytes(), held.get(storage.data_ptr(), 0))
            return value

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            loss = super()._compute_loss(model, inputs)
        self.kept = sum(held.values())
        self.sequences = len(inputs["prompt_ids"])
        self.tokens = inputs["prompt_ids"].shape[1] + inputs["completion_ids"].shape[1]
        pixels, vision = inputs["pixel_values"], self.model.config.vision_config
        patch = vision.patch_size if isinstance(vision.patch_size, int) else vision.patch_size[0]
        tiles = pixels.shape[0] if pixels.ndim == 2 else pixels[:, 0].numel() // patch**2
        self.patches = tiles // self.sequences
        return loss


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def wanted_layers() -> set[str]:
    """The layers of a language model that the adapters of configs/tuning/lora.yaml belong on."""
    return {
        f"model.language_model.layers.{layer}.{'self_attn' if name[0] in 'qkvo' else 'mlp'}.{name}"
        for layer in range(LAYERS)
        for name in PROJECTIONS
    }


def one_step(family: str, folder: Path, *, narrow: bool, words: tuple[str, ...] = ()) -> Step:
    """Build a family's model in a folder, and train it for a step.

    Args:
        family: one of `FAMILIES`.
        folder: empty.
        narrow: whether widths are cut too.
        words: further options of `train`.
    """
    save_family(family, folder / "model", layers=LAYERS, narrow=narrow, dtype="bfloat16")
    files = ("experiments/r4.yaml", f"models/{family}.yaml", "generation/transformers.yaml")
    parts = parse_grpo_arguments(
        [
            *(word for file in files for word in ("--config", str(CONFIGS / file))),
            *("--model_name_or_path", str(folder / "model"), "--output_dir", str(folder / "run"), "--use_cpu", "true"),
            *("--tf32", "false", "--reward", "random", "--reward_kwargs", "{}", "--dataset", "synthetic"),
            *("--train_images", "4", "--max_steps", "1", "--num_generations", "2", "--save_strategy", "no"),
            *("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "1", "--disable_tqdm", "true"),
            *("--max_completion_length", "8", "--lr_scheduler_type", "constant", "--warmup_steps", "0"),
            *("--learning_rate", "1e-3", *words),
        ]
    )
    said, watch = _Said(), _Watch()
    loggers = [logging.getLogger(name) for name in ("transformers", "peft", "trl")]
    for one in loggers:
        one.addHandler(said)
    try:
        trainer = _trainer(*parts, watch)
        trainer.train()
    finally:
        for one in loggers:
            one.removeHandler(said)
    model = trainer.accelerator.unwrap_model(trainer.model)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    return Step(
        adapted={_layer(name) for name in trained},
        without_gradient=watch.without,
        unmoved={name for name, value in trained.items() if "lora_B" in name and not value.any()},
        changed=watch.frozen,
        said=[line for line in said.lines if _ABOUT_WEIGHTS.search(line)],
        processor=type(trainer.processing_class).__name__,
        parameters=sum(value.numel() for name, value in model.named_parameters() if name not in trained),
        measured=_measured(trainer, model),
        reckoned=_reckoned(trainer, parts[2], family, narrow),
    )


def _measured(trainer: _Measured, model: Any) -> dict[str, float]:
    values = dict(model.named_parameters())
    trained = [value for value in values.values() if value.requires_grad]
    moments = [one for state in trainer.optimizer.state.values() for one in state.values() if one.numel() > 1]
    return {
        "weights": sum(value.nbytes for value in values.values()),
        # The optimiser has let go of them; each is as wide as its weight.
        "gradients": sum(value.nbytes for value in trained),
        "optimiser": sum(one.nbytes for one in moments),
        "activations": trainer.kept,
    }


def _reckoned(trainer: _Measured, model: Any, family: str, narrow: bool) -> dict[str, float]:
    tokenizer = trainer.processing_class.tokenizer
    config = family_config(family, layers=LAYERS, narrow=narrow, tokenizer=tokenizer)
    shape = shape_of(config, read_config(CONFIGS / "tuning" / "lora.yaml")["lora_target_modules"][0])
    training = Training(
        adapter_rank=model.lora_r if model.use_peft else 0,
        four_bits=bool(model.load_in_4bit),
        weight_bytes=2 if model.dtype == "bfloat16" else 4,
        reference=False,
        checkpointing=trainer.args.gradient_checkpointing,
        sequences=trainer.sequences,
        tokens=trainer.tokens,
        patches=trainer.patches,
        image_bytes=0,
        held=0,
    )
    memory = memory_of(shape, training)
    return {
        **{name: getattr(memory, name) for name in ("weights", "gradients", "optimiser")},
        "activations": kept(shape, training),
    }


def _trainer(arguments: Any, config: Any, model: Any, watch: TrainerCallback) -> _Measured:
    """As `train` makes it, with one more callback."""
    check_model(model)
    processor = load_run_processor(model)
    set_image_size(processor, arguments.max_image_pixels)
    config.model_init_kwargs = model_init_kwargs(model, config.model_init_kwargs)
    return _Measured(
        model=str(model.model_name_or_path),
        reward=arguments.reward,
        args=config,
        train_dataset=load_split(arguments.dataset, arguments.train_split, max_images=arguments.train_images),
        processing_class=processor,
        reward_kwargs=arguments.reward_kwargs,
        box_format=arguments.box_format,
        callbacks=[watch],
        **adapter_and_quantisation(model),
    )


def faults(step: Step) -> list[str]:
    """What is wrong with a step; nothing, if all is as it should be."""
    found = {
        "adapters on": sorted(step.adapted - wanted_layers()),
        "no adapter on": sorted(wanted_layers() - step.adapted),
        "no gradient for": sorted(step.without_gradient),
        "did not move:": sorted(step.unmoved),
        "gradient for what is not trained:": sorted(step.changed),
        "said:": step.said,
    }
    return [f"{what} {', '.join(names[:3])}{' …' * (len(names) > 3)}" for what, names in found.items() if names]


def _layer(name: str) -> str:
    """The layer that a parameter of an adapter sits on."""
    return name.removeprefix("base_model.model.").split(".lora_")[0]


def _alone(family: str, narrow: bool) -> str:
    """A row of the table, from a process of its own, so that its memory is this family's alone."""
    words = [sys.executable, __file__, "--family", family, *(["--narrow"] * narrow)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return rows[-1] if rows else f"| {FAMILIES[family].checkpoint} | | | | | | failed, exit code {done.returncode} |"


def _row(family: str, narrow: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        step = one_step(family, Path(folder), narrow=narrow)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = "; ".join(faults(step)) or "passed"
    said, measured = step.reckoned["activations"], step.measured["activations"]
    exact = all(step.measured[name] == step.reckoned[name] for name in ("weights", "gradients", "optimiser"))
    activations = f"{measured / 1e6:.1f} MB | {said / measured - 1:+.0%} | {'exact' if exact else 'off'}"
    numbers = f"{step.parameters / 1e6:.0f} M | {peak:.1f} GB | {activations}"
    return f"| {FAMILIES[family].checkpoint} | {numbers} | {found} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--narrow", action="store_true", help="cut widths too")
    parser.add_argument("--family", choices=FAMILIES, help="this one alone, in this process")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help=f"put the table between {MARKS[0]} and its end; with --family its row, into one that is there",
    )
    options = parser.parse_args()
    if options.family:
        made = _row(options.family, options.narrow)
        print(made)
        if options.write:
            lines = options.write.read_text(encoding="utf-8").split("\n")
            start = made[: made.index("|", 1) + 1]
            write_whole(options.write, "\n".join(made if line.startswith(start) else line for line in lines))
        return 0
    rows = []
    for family in FAMILIES:
        rows.append(_alone(family, options.narrow))
        print(rows[-1], flush=True)
    widths = "narrow" if options.narrow else "published widths"
    versions = ", ".join(f"{name} {package_version(name)}" for name in ("torch", "transformers", "trl", "peft"))
    table = [
        "| model | weights | peak memory | activations kept | reckoned | the rest | adapters |",
        *("|---|---|---|---|---|---|---|", *rows, ""),
        f"{datetime.date.today()}, processor ({platform.machine()}), {LAYERS} layers, {widths}; {versions}.",
    ]
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        write_whole(options.write, replace_part(page, MARKS, "\n".join(table)))
    return 0 if all("passed" in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
