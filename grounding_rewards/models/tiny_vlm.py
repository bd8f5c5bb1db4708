"""A real vision-language model small enough to train on a laptop's processor.

The architecture is Qwen2.5-VL's, unchanged: a vision tower with 2-D rotary positions, a patch merger, a decoder with
multimodal rotary positions, the same special tokens, chat markup and image processor. Only the widths and depths are
cut, to about one million parameters, and the tokenizer is a byte-level BPE trained here on prompts and answers, so
that a box costs five tokens. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
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
from grounding_rewards.synthetic import LABELS

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
