"""Reckon the memory of a GPU for each model, each way to train it and each engine of configs/.

  python scripts/checks/estimate_memory.py                              # the table
  python scripts/checks/estimate_memory.py --gpus 8 --experiment configs/experiments/r2.yaml
  python scripts/checks/estimate_memory.py --max_image_pixels 501760 --max_completion_length 256 --lora_r 16
  python scripts/checks/estimate_memory.py --write docs/cluster.md      # the table into the page

Weights and the optimiser's share follow from the structure of a model, which is built without its weights; activations
are counted layer by layer (training_memory.py). check_families.py compares both with what torch
holds. CUDA itself, its allocator and NCCL take some GB more. Images are those of --image, by the processor of the
model.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.config_files import read_config
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.images.resize import set_image_size
from grounding_rewards.synthetic import LABELS
from scripts.checks.model_families import FAMILIES, family_config, family_processor
from scripts.checks.training_memory import Memory, Shape, Training, memory_of, shape_of, spread
from scripts.docs.page_parts import marks_of, replace_part

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MARKS = marks_of("memory")
TUNINGS = ("lora", "qlora", "full")
ENGINES = ("ddp", "zero2", "zero3", "fsdp2")
# Packed weights cannot be spread.
WHOLE_ONLY = {"qlora": ("ddp", "zero2")}
GB = 1e9
# A byte-level tokenizer counts letters; the families' own make about one token of four.
_LETTERS_OF_A_TOKEN = 4


def settings(experiment: Path, family: str, tuning: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run: the experiment, the model over it, and what is trained over both."""
    files = (experiment, CONFIGS / "models" / f"{family}.yaml", CONFIGS / "tuning" / f"{tuning}.yaml")
    return {**read_config(files), **overrides}


def image_of(family: str, max_image_pixels: int | None, size: tuple[int, int]) -> dict[str, int]:
    """What an image is to a model: its tokens with those of the prompt, its patches and its bytes."""
    processor = family_processor(family)
    set_image_size(processor, max_image_pixels)
    text = processor.apply_chat_template(prompt_messages(LABELS), add_generation_prompt=True, tokenize=False)
    made = processor(images=[[Image.new("RGB", size)]], text=[text], return_tensors="pt")
    config = family_config(family, tokenizer=processor.tokenizer)
    image = int((made["input_ids"] == config.image_token_id).sum())
    letters = made["input_ids"].shape[1] - image
    pixels = made["pixel_values"]
    patch = config.vision_config.patch_size
    patch = patch if isinstance(patch, int) else patch[0]
    return {
        "tokens": image + math.ceil(letters / _LETTERS_OF_A_TOKEN),
        "patches": pixels.shape[0] if pixels.ndim == 2 else pixels[:, 0].numel() // patch**2,
        "image_bytes": pixels.nbytes,
    }


def training_of(options: Mapping[str, Any], image: Mapping[str, int]) -> Training:
    """What of the options memory depends on."""
    adapters = bool(options["use_peft"])
    batch = options["per_device_train_batch_size"]
    return Training(
        adapter_rank=options["lora_r"] if adapters else 0,
        four_bits=bool(options["load_in_4bit"]),
        weight_bytes=2 if options["dtype"] == "bfloat16" else 4,
        # With adapters the model without them is the reference.
        reference=not adapters and options["beta"] > 0,
        checkpointing=bool(options["gradient_checkpointing"]),
        sequences=batch,
        tokens=image["tokens"] + options["max_completion_length"],
        patches=image["patches"],
        image_bytes=image["image_bytes"],
        held=batch * options["gradient_accumulation_steps"],
    )


def generation_of(shape: Shape, options: Mapping[str, Any], training: Training) -> tuple[float, float]:
    """Bytes that answers take while they are generated: by transformers, and the least that vLLM wants.

    transformers keeps keys and values of all answers of a step; vLLM has weights of its own in 16 bits, and needs room
    for one sequence at least.
    """
    answers = training.held
    return shape.cache * training.tokens * answers, 2 * shape.parameters + shape.cache * options[
        "vllm_max_model_length"
    ]


def row(experiment: Path, family: str, tuning: str, gpus: int, size: tuple[int, int], overrides: Any) -> str:
    """A line of the table."""
    options = settings(experiment, family, tuning, overrides)
    pattern = read_config(CONFIGS / "tuning" / "lora.yaml")["lora_target_modules"][0]
    shape = shape_of(family_config(family), pattern)
    training = training_of(options, image_of(family, options["max_image_pixels"], size))
    memory = memory_of(shape, training)
    copies = memory.weights + memory.reference
    parts = (copies, memory.gradients + memory.optimiser, memory.activations, memory.images)
    # FSDP2 spreads what ZeRO-3 does.
    engines = [_total(memory, tuning, engine, gpus) for engine in ENGINES if engine != "fsdp2"]
    cells = [*(f"{part / GB:.1f}" for part in (*parts, *generation_of(shape, options, training))), *engines]
    return f"| {FAMILIES[family].checkpoint.partition('/')[2]} | {tuning} | {' | '.join(cells)} |"


def _total(memory: Memory, tuning: str, engine: str, gpus: int) -> str:
    if engine not in WHOLE_ONLY.get(tuning, ENGINES):
        return "–"
    return f"**{spread(memory, engine, gpus).total / GB:.0f}**"


def table(experiment: Path, gpus: int, size: tuple[int, int], overrides: Mapping[str, Any]) -> list[str]:
    """The lines of the table, and what they are of."""
    rows = [row(experiment, family, tuning, gpus, size, overrides) for family in FAMILIES for tuning in TUNINGS]
    options = settings(experiment, next(iter(FAMILIES)), "lora", overrides)
    columns = (
        *("model", "trained", "weights, reference", "gradients, Adam", "activations", "images"),
        *(
            "answers, transformers",
            "vLLM, at least",
            "DDP, one GPU",
            *(f"{name} × {gpus}" for name in ("ZeRO-2", "ZeRO-3 or FSDP2")),
        ),
    )
    return [
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *rows,
        "",
        f"GB of each GPU. An image of {size[0]} × {size[1]} pixels; {options['per_device_train_batch_size']} "
        f"answers in "
        f"a batch, {options['gradient_accumulation_steps']} batches in a step, {options['max_completion_length']} "
        f"tokens an answer at most; checkpointing {'on' if options['gradient_checkpointing'] else 'off'}.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    experiment = CONFIGS / "experiments" / "r4.yaml"
    parser.add_argument("--experiment", type=Path, default=experiment, help="default: configs/experiments/r4.yaml")
    parser.add_argument("--gpus", type=int, default=4, help="that ZeRO and FSDP spread over; default: %(default)s")
    parser.add_argument("--image", type=int, nargs=2, default=(2544, 3056), metavar=("WIDTH", "HEIGHT"), help="pixels")
    numbers = ("max_image_pixels", "max_completion_length", "per_device_train_batch_size")
    for name in (*numbers, "gradient_accumulation_steps", "lora_r"):
        parser.add_argument(f"--{name}", type=int, default=argparse.SUPPRESS, help="instead of the files'")
    parser.add_argument("--write", type=Path, metavar="PAGE", help=f"put the table between {MARKS[0]} and its end")
    given = vars(parser.parse_args())
    page, size = given.pop("write"), tuple(given.pop("image"))
    lines = table(given.pop("experiment"), given.pop("gpus"), size, given)
    print("\n".join(lines))
    if page:
        write_whole(page, replace_part(page.read_text(encoding="utf-8"), MARKS, "\n".join(lines)))


if __name__ == "__main__":
    main()
