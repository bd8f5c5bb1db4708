"""Make the model of the demo: build it untrained, then teach it to point.

  python scripts/build_tiny_vlm.py                     # an hour and a half of two cores
  python scripts/build_tiny_vlm.py --max_steps 20      # does everything run here?

It learns by `grounding-rewards sft` with configs/demo/sft.yaml, in two trainings, the second one at half the learning
rate. Three in eight of the drawn images have a prompt as `grounding-rewards prepare` writes it. Options that are not
listed here go to both trainings.

The architecture is Qwen2.5-VL's, unchanged: a vision tower with 2-D rotary positions, a patch merger, a decoder with
multimodal rotary positions, the same special tokens, chat markup and image processor. Only the widths and depths are
cut, to about one million parameters, and the tokenizer is a byte-level BPE trained here on prompts and answers, so
that a box costs five tokens. Nothing is downloaded.

A second build (2026-11-29, torch 2.14.1, 97 minutes of two cores beside other work) gave the shipped weights bit for
bit. Another version of torch or another processor may round otherwise, and so give other weights.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from datasets import DatasetDict
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    set_seed,
)

from grounding_rewards.data.prompts import prompt_messages, prompt_order, prompt_words, task_prompt, wordings
from grounding_rewards.parsing import format_boxes
from grounding_rewards.synthetic import LABELS, synthetic_dataset
from grounding_rewards.training.run_folder import CHECKPOINT, CONFIG

SFT = "configs/demo/sft.yaml"

#: Options of each training, which goes on where the one before it ended: masses are learned last.
TRAININGS = ((), ("--max_steps", "5000", "--learning_rate", "1.0e-3", "--seed", "1"))

# Weights, configuration, tokenizer and chat template; the card stays with the run.
_KEPT = (".safetensors", ".json", ".jinja")

VOCABULARIES = (LABELS, ("right lung", "left lung"))
"""What the tokenizer writes in few tokens: the findings of drawn images, and the lungs of real ones."""

BOX_FORMAT = "qwen2.5-vl"
"""The box format of the architecture, which the tokenizer is trained on."""

IMAGE_SIZE = 112
"""Side in pixels of the square images that the processor leaves as they are."""

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

# Qwen2.5-VL's chat markup without its default system message, which would only make the prompt longer.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Three kinds of chunk, each of which BPE may merge into one token: an integer with the comma before it; the JSON
# between two integers; a word. The lookbehind keeps the 2 of "bbox_2d" out of the integers.
_CHUNKS = (
    r"(?:, ?)?(?<![\p{L}\p{N}_.])\p{N}+(?![\p{L}\p{N}_.])"
    r"|(?:```json|\])[\s\S]*?(?=(?<![\p{L}\p{N}_.])\p{N}|\z)"
    r"|[,.]? ?\p{L}+"
)

_PATCH_SIZE = 14
_MERGE_SIZE = 2
_MAX_PIXELS = 112 * 168

# The longer side of an image of 1:2 after resizing.
_MAX_INTEGER = 168


def _corpus(vocabularies: Sequence[Sequence[str]]) -> Iterator[str]:
    """Prompts and answers that show every integer up to `_MAX_INTEGER` in every position of a box."""
    for labels in vocabularies:
        questions = [prompt_messages(labels)]
        for wording in range(wordings("detection")):
            questions.append(task_prompt("detection", prompt_order(labels), BOX_FORMAT, wording=wording))
        for wording in range(wordings("finding")):
            questions.extend(task_prompt("finding", label, BOX_FORMAT, wording=wording) for label in labels)
        prompts = [f"user\n{prompt_words(question)}assistant\n" for question in questions]
        for value in range(_MAX_INTEGER + 1):
            yield from prompts
            yield _written([], [])
            for first in labels:
                for second in labels:
                    yield _written([[value] * 4] * 2, [first, second])


def _written(boxes: Sequence[Sequence[float]], labels: Sequence[str]) -> str:
    side = IMAGE_SIZE
    return format_boxes(
        boxes, BOX_FORMAT, labels=labels, width=side, height=side, resized_width=side, resized_height=side
    )


def build_tokenizer(vocabularies: Sequence[Sequence[str]], *, vocab_size: int = 1024) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE: any text can be written, the answers to known labels in few tokens.

    Training is deterministic.

    Args:
        vocabularies: the labels of each task, as its prompt names them.
        vocab_size: upper limit of the number of tokens.

    >>> tokenizer = build_tokenizer([["effusion", "mass"]])
    >>> tokenizer.tokenize("[8, 16, 24, 32]")[1:-1]
    ['8', ',Ġ16', ',Ġ24', ',Ġ32']
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CHUNKS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(vocabularies), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_TOKENS[1:2] + SPECIAL_TOKENS[3:]),
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def build_processor(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLProcessor:
    """Wrap `tokenizer` and Qwen2-VL's image processor: an image of 112×112 stays as it is, others keep their shape."""
    geometry: dict[str, Any] = {
        "patch_size": _PATCH_SIZE,
        "merge_size": _MERGE_SIZE,
        # Sides are rounded down to whole tokens: a limit of just 112 squared would cost other shapes up to half.
        "size": {"shortest_edge": IMAGE_SIZE**2, "longest_edge": _MAX_PIXELS},
    }
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**geometry),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**geometry),
        chat_template=CHAT_TEMPLATE,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, *, seed: int = 0) -> Qwen2_5_VLForConditionalGeneration:
    """A randomly initialised Qwen2.5-VL of about one million parameters, in float32.

    The rotary base is 100 instead of 10⁶: columns sit in the lowest frequencies, and with a large base the few dozen
    positions of such a small image would be almost indistinguishable.
    """
    token_id = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "max_position_embeddings": 1024,
            # Half of the head's 32 dimensions, split over time, rows and columns.
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [4, 6, 6]},
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 4,
            "out_hidden_size": 128,
            "patch_size": _PATCH_SIZE,
            "spatial_merge_size": _MERGE_SIZE,
            "fullatt_block_indexes": [0, 1],
        },
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
        tie_word_embeddings=True,
        dtype=torch.float32,
    )
    set_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def save_untrained(folder: str | Path, *, seed: int = 0) -> None:
    """Build the small model with random weights, and write it with its processor.

    Args:
        folder: to write; files of these names are replaced.
        seed: of the weights.
    """
    tokenizer = build_tokenizer(VOCABULARIES)
    build_processor(tokenizer).save_pretrained(folder)
    build_model(tokenizer, seed=seed).save_pretrained(folder)


def row_with_prompt(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The prompt and the answer of a drawn row: of eight five as drawn, two about all findings, one about one finding.

    An answer about one finding has the boxes of this finding alone.
    """
    rng = np.random.default_rng([0, number])
    prompt, boxes, labels = row["prompt"], row["boxes"], row["labels"]
    if number % 4 == 1:
        wording = int(rng.integers(wordings("detection")))
        prompt = task_prompt("detection", prompt_order(LABELS), BOX_FORMAT, wording=wording)
    elif number % 8 == 3:
        finding = str(rng.choice(prompt_order(LABELS)))
        prompt = task_prompt("finding", finding, BOX_FORMAT, wording=int(rng.integers(wordings("finding"))))
        boxes = [box for box, label in zip(boxes, labels, strict=True) if label == finding]
        labels = [finding] * len(boxes)
    return {"prompt": prompt, "boxes": boxes, "labels": labels}


def save_images(folder: Path, count: int) -> None:
    """Draw images and save them with their prompts."""
    # Phrases would contradict an answer about one finding. Without a split that is held out, images of train would be.
    columns = ["prompt", "image", "boxes", "labels", "width", "height", "id"]
    drawn = synthetic_dataset("train", count).select_columns(columns)
    held_out = synthetic_dataset("validation", 100).select_columns(columns)
    splits = {"train": drawn.map(row_with_prompt, with_indices=True), "validation": held_out}
    DatasetDict(splits).save_to_disk(folder)


def train(run: Path, model: Path, images: Path, overrides: Sequence[str]) -> None:
    """Train supervised in two processes, which share two cores best with one thread each."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "grounding_rewards.cli")
    words = ("--config", SFT, "--model_name_or_path", model, "--dataset", images, "--output_dir", run, "--overwrite")
    command = [sys.executable, *launcher, "sft", *words, *overrides]
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **os.environ}
    subprocess.run(list(map(str, command)), check=True, env=environment)


def main() -> None:
    """Read the arguments, build and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=Path("assets/tiny_vlm"), help="folder of the trained model")
    parser.add_argument("--runs", type=Path, default=Path("runs/tiny_vlm"), help="folder of the trainings")
    options, overrides = parser.parse_known_args()
    model, images = options.runs / "untrained", options.runs / "images"
    save_untrained(model)
    save_images(images, yaml.safe_load(Path(SFT).read_text(encoding="utf-8"))["train_images"])
    for number, changes in enumerate(TRAININGS, 1):
        run = options.runs / f"training_{number}"
        train(run, model, images, [*changes, *overrides])
        model = run / CHECKPOINT
    options.output.mkdir(parents=True, exist_ok=True)
    made = [path for path in model.iterdir() if path.suffix in _KEPT]
    for path in (*made, run / CONFIG):
        shutil.copy(path, options.output)


if __name__ == "__main__":
    main()
