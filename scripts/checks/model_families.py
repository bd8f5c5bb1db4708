"""Models of the families of configs/models/ with random weights: published widths, as many layers as asked for.

What costs people a day is a pattern for adapters that hits the wrong layers, or a chat template that loses the image.
Both depend on a family's structure and processor, not on its weights, so that they can be tried without the weights.
Nothing is downloaded: tokenizers know bytes and the family's special tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    Gemma3ImageProcessor,
    Gemma3Processor,
    GotOcr2ImageProcessor,
    InternVLProcessor,
    InternVLVideoProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    set_seed,
)


@dataclass(frozen=True)
class Family:
    """What a family's checkpoint publishes of its structure.

    Attributes:
        checkpoint: on the hub.
        model_type: as in transformers.
        text: options of the language model.
        vision: options of the vision tower.
        whole: options of the two together.
        names: which of its special tokens the processor knows by name.
        special: all special tokens, the one that ends a turn first and the padding second.
        template: file of TRL with its chat template, or the template itself.
    """

    checkpoint: str
    model_type: str
    text: Mapping[str, Any]
    vision: Mapping[str, Any]
    whole: Mapping[str, Any]
    names: Mapping[str, str]
    special: tuple[str, ...]
    template: str


_QWEN_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "<|im_start|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
_QWEN2_5_VISION = {
    **{"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14},
    **{"spatial_merge_size": 2, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]},
}
_QWEN2_5_ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
_INTERNVL_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<IMG_CONTEXT>\n{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

FAMILIES: Mapping[str, Family] = {
    "qwen2_5_vl_3b": Family(
        "Qwen/Qwen2.5-VL-3B-Instruct",
        "qwen2_5_vl",
        text={
            **{"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "vocab_size": 151936},
            **{"num_attention_heads": 16, "num_key_value_heads": 2, "rope_parameters": _QWEN2_5_ROPE},
        },
        vision={**_QWEN2_5_VISION, "out_hidden_size": 2048},
        whole={"tie_word_embeddings": True},
        names={},
        special=_QWEN_TOKENS,
        template="qwen2_5_vl.jinja",
    ),
    "qwen2_5_vl_7b": Family(
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "qwen2_5_vl",
        text={
            **{"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 152064},
            **{"num_attention_heads": 28, "num_key_value_heads": 4, "rope_parameters": _QWEN2_5_ROPE},
        },
        vision={**_QWEN2_5_VISION, "out_hidden_size": 3584},
        whole={"tie_word_embeddings": False},
        names={},
        special=_QWEN_TOKENS,
        template="qwen2_5_vl.jinja",
    ),
    "qwen3_vl_4b": Family(
        "Qwen/Qwen3-VL-4B-Instruct",
        "qwen3_vl",
        text={
            **{"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "vocab_size": 151936},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
            "rope_parameters": {
                **{"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20]},
                "mrope_interleaved": True,
            },
        },
        vision={
            **{"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "patch_size": 16},
            **{"spatial_merge_size": 2, "out_hidden_size": 2560, "deepstack_visual_indexes": [5, 11, 17]},
        },
        whole={"tie_word_embeddings": True},
        names={},
        special=_QWEN_TOKENS,
        template="qwen3_vl.jinja",
    ),
    "medgemma_4b": Family(
        "google/medgemma-1.5-4b-it",
        "gemma3",
        text={
            **{"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "vocab_size": 262208},
            **{"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024},
        },
        vision={
            **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16},
            **{"image_size": 896, "patch_size": 14, "vision_use_head": False},
        },
        whole={"mm_tokens_per_image": 256, "tie_word_embeddings": True},
        names={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
        special=(
            *("<end_of_turn>", "<pad>", "<bos>", "<start_of_turn>"),
            *("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
        ),
        template="gemma3.jinja",
    ),
    "internvl3_8b": Family(
        "OpenGVLab/InternVL3-8B-hf",
        "internvl",
        text={
            "model_type": "qwen2",
            **{"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 151674},
            **{"num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": False},
        },
        vision={
            **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
            **{"image_size": [448, 448], "patch_size": [14, 14], "attention_bias": True},
        },
        whole={"image_seq_length": 256, "tie_word_embeddings": False},
        names={
            **{"start_image_token": "<img>", "end_image_token": "</img>"},
            **{"context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"},
        },
        special=("<|im_end|>", "<|endoftext|>", "<|im_start|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
        template=_INTERNVL_TEMPLATE,
    ),
}
"""By the name of their file in configs/models/."""

# What a narrow model has instead: about 100 times fewer weights, the same structure.
_NARROW_TEXT = {
    **{"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2},
    "head_dim": 32,
}
_NARROW_VISION = {
    **{"hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "num_attention_heads": 4},
    **{"out_hidden_size": 128, "image_size": 112},
}
# Sides of the square that MedGemma and InternVL bring an image to, or its tiles.
_SIDE = {"gemma3": 896, "internvl": 448}
_NARROW_SIDE, _NARROW_IMAGE_TOKENS = 112, 16


def family_config(name: str, *, layers: int | None = None, narrow: bool = False, tokenizer: Any = None) -> Any:
    """The configuration of a family.

    Args:
        name: one of :data:`FAMILIES`.
        layers: of the language model and of the vision tower; the published numbers when left out.
        narrow: whether widths are cut too.
        tokenizer: of :func:`family_processor`, whose vocabulary and special tokens the model gets; the vocabulary has
            its published size when left out.

    >>> family_config("qwen2_5_vl_3b").text_config.hidden_size
    2048
    >>> family_config("internvl3_8b", layers=2).vision_config.num_hidden_layers
    2
    """
    family = FAMILIES[name]
    text, vision, whole = (copy.deepcopy(dict(one)) for one in (family.text, family.vision, family.whole))
    if narrow:
        text.update({key: value for key, value in _NARROW_TEXT.items() if key in text or key != "head_dim"})
        vision.update({key: value for key, value in _NARROW_VISION.items() if key in vision})
        if "mrope_section" in text.get("rope_parameters", {}):
            text["rope_parameters"]["mrope_section"] = [4, 6, 6]
        for key in ("mm_tokens_per_image", "image_seq_length"):
            if key in whole:
                whole[key] = _NARROW_IMAGE_TOKENS
    if layers is not None:
        text["num_hidden_layers"] = layers
        vision["depth" if "depth" in vision else "num_hidden_layers"] = layers
        if family.model_type == "gemma3":
            # Five of six layers look back a window only; few layers have one of each kind.
            text["layer_types"] = ["sliding_attention"] * (layers - 1) + ["full_attention"]
        for key in ("fullatt_block_indexes", "deepstack_visual_indexes"):
            if key in vision:
                vision[key] = [layers - 1]
    if tokenizer is not None:
        text["vocab_size"] = len(tokenizer)
        ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
        text.update(ids)
        whole.update(ids)
        whole.update(_image_ids(family, tokenizer))
    return AutoConfig.for_model(family.model_type, text_config=text, vision_config=vision, **whole)


def family_processor(name: str, *, narrow: bool = False) -> Any:
    """The processor of a family, with its class, chat template and special tokens; text is bytes.

    >>> type(family_processor("medgemma_4b")).__name__
    'Gemma3Processor'
    """
    family = FAMILIES[name]
    template = family.template
    if template.endswith(".jinja"):
        template = (files("trl") / "chat_templates" / template).read_text(encoding="utf-8")
    tokenizer = byte_tokenizer(family)
    side = _NARROW_SIDE if narrow else _SIDE.get(family.model_type)
    square = {"size": {"height": side, "width": side}}
    tokens = {"image_seq_length": _NARROW_IMAGE_TOKENS if narrow else 256}
    if family.model_type == "gemma3":
        half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        return Gemma3Processor(Gemma3ImageProcessor(**square, **half), tokenizer, template, **tokens)
    if family.model_type == "internvl":
        images, videos = GotOcr2ImageProcessor(**square, crop_to_patches=True), InternVLVideoProcessor(**square)
        return InternVLProcessor(images, tokenizer, videos, chat_template=template, **tokens)
    if family.model_type == "qwen3_vl":
        size = {"shortest_edge": 256 * 256, "longest_edge": 4096 * 4096}
        images = Qwen2VLImageProcessor(
            patch_size=16, merge_size=2, size=size, image_mean=[0.5] * 3, image_std=[0.5] * 3
        )
        return Qwen3VLProcessor(images, tokenizer, Qwen3VLVideoProcessor(), chat_template=template)
    size = {"shortest_edge": 56 * 56, "longest_edge": 12845056}
    images = Qwen2VLImageProcessor(patch_size=14, merge_size=2, size=size)
    return Qwen2_5_VLProcessor(images, tokenizer, Qwen2VLVideoProcessor(), chat_template=template)


def save_family(
    name: str, folder: str | Path, *, layers: int = 2, narrow: bool = False, dtype: str = "float32", seed: int = 0
) -> None:
    """Build a model with random weights, and write it with its processor; the vocabulary is that of the processor.

    Args:
        name: one of :data:`FAMILIES`.
        folder: to write.
        layers: of the language model and of the vision tower.
        narrow: whether widths are cut too.
        dtype: of the weights.
        seed: of the weights.
    """
    processor = family_processor(name, narrow=narrow)
    config = family_config(name, layers=layers, narrow=narrow, tokenizer=processor.tokenizer)
    config.dtype = getattr(torch, dtype)
    set_seed(seed)
    model = AutoModelForImageTextToText.from_config(config, dtype=config.dtype)
    with torch.no_grad():
        # Random embeddings that are also the head make a wide model repeat its last word with probability 1, and then
        # there is nothing to learn.
        model.get_input_embeddings().weight.mul_(0.1)
    model.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    model.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    processor.save_pretrained(folder)
    model.save_pretrained(folder)
    if config.model_type == "gemma3":
        # As its checkpoints have them, and vLLM reads them: transformers 5 has a level less in memory.
        file = Path(folder, "model.safetensors")
        weights = load_file(file)
        published = {name.replace("vision_tower.", "vision_tower.vision_model."): weights[name] for name in weights}
        save_file(published, file, metadata={"format": "pt"})


def _image_ids(family: Family, tokenizer: Any) -> dict[str, int]:
    number = tokenizer.convert_tokens_to_ids
    if family.model_type == "gemma3":
        return {
            "image_token_index": number(family.names["image_token"]),
            "boi_token_index": number(family.names["boi_token"]),
            "eoi_token_index": number(family.names["eoi_token"]),
        }
    if family.model_type == "internvl":
        return {"image_token_id": number(family.names["context_image_token"])}
    marks = ("image_pad", "video_pad", "vision_start", "vision_end")
    keys = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    return {key: number(f"<|{mark}|>") for key, mark in zip(keys, marks, strict=True)}


def byte_tokenizer(family: Family) -> PreTrainedTokenizerFast:
    """A tokenizer that knows bytes and the special tokens of a family."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({sign: k for k, sign in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in family.special])
    if family.model_type == "gemma3":
        # vLLM looks for these in Gemma's vocabulary, where line breaks meet those around an image.
        tokenizer.add_tokens([AddedToken("\n" * count, normalized=False) for count in (1, 2, 3, 4)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=family.special[0],
        pad_token=family.special[1],
        bos_token="<bos>" if "<bos>" in family.special else None,
        extra_special_tokens=dict(family.names),
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
