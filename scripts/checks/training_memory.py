"""How much memory a step of GRPO takes, reckoned from the structure of a model: bytes, of one GPU.

Reckoned, not measured: check_families.py says how far off it is where it can be measured. What a library holds
besides (CUDA's own context, the cache of its allocator, buffers of NCCL) is not in it, and comes on top.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForImageTextToText

#: A weight in four bits with its scales in eight, a block of 64 to a scale and 256 scales to another one.
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)

# The number of a repeated layer, in the name of what lies in it.
_LAYER = re.compile(r"\.(?:layers?|blocks)\.(\d+)\.")

# Linear layers that read what another one reads.
_SAME_INPUT = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}


@dataclass(frozen=True)
class Layers:
    """What the layers of a language model or of a vision tower keep of a token or patch for the way back, in bytes.

    Attributes:
        number: how many layers there are.
        width: of their inputs.
        frozen: of one layer, where its own weights stay as they are.
        trained: of one layer, where they are trained.
        adapters: layers within it that get an adapter.
        adapter_inputs: their inputs, in numbers; what several read is one.
        ends: what stands before the first and behind the last layer, frozen and trained.
    """

    number: int
    width: int
    frozen: int
    trained: int
    adapters: int
    adapter_inputs: int
    ends: tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """What the memory of a model depends on.

    Attributes:
        parameters: all of them.
        linear: those of its linear layers but the last one, which quantisation packs.
        outside: those of them that are in no repeated layer.
        adapters: parameters of adapters of rank 1.
        text, vision: the layers.
        cache: bytes of keys and values for a token, in 16 bits, all layers together.
    """

    parameters: int
    linear: int
    outside: int
    adapters: int
    text: Layers
    vision: Layers
    cache: int


@dataclass(frozen=True)
class Training:
    """What of a configuration memory depends on.

    Attributes:
        adapter_rank: of LoRA; 0 where all weights are trained.
        four_bits: whether the weights that are not trained are packed (QLoRA).
        weight_bytes: of a weight as it is loaded.
        reference: whether a second copy of the model is kept for the KL term.
        checkpointing: whether activations are computed a second time instead of kept.
        sequences: in one batch of a GPU.
        tokens: of a sequence, prompt, image and answer together.
        patches: of an image, as the vision tower sees them.
        image_bytes: of an image as it is handed to the model.
        held: images that wait for their step, one for each answer that was generated together.
    """

    adapter_rank: int
    four_bits: bool
    weight_bytes: int
    reference: bool
    checkpointing: bool
    sequences: int
    tokens: int
    patches: int
    image_bytes: int
    held: int


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU while weights are updated."""

    weights: float
    reference: float
    gradients: float
    optimiser: float
    activations: float
    images: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.reference + self.gradients + self.optimiser + self.activations + self.images


def shape_of(config: Any, pattern: str) -> Shape:
    """Count a model without its weights.

    Args:
        config: of a family, see :func:`model_families.family_config`.
        pattern: of the layers that get adapters, a regular expression for the whole name.

    >>> from scripts.checks.model_families import family_config
    >>> shape_of(family_config("qwen2_5_vl_3b"), ".*language_model.*_proj").cache == 2 * 2 * 36 * 2 * 128
    True
    """
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    linear = {name: one for name, one in model.named_modules() if isinstance(one, nn.Linear) and name != "lm_head"}
    adapted = {name: one for name, one in linear.items() if re.fullmatch(pattern, name)}
    text, vision = config.text_config, config.vision_config
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    keys = text.num_key_value_heads * head
    patch = vision.patch_size if isinstance(vision.patch_size, int) else vision.patch_size[0]
    pixels = 3 * patch**2 * getattr(vision, "temporal_patch_size", 1)
    width = vision.hidden_size
    # The last norm, and what the head reads; of the vision tower its last norm, and the patches.
    ends = (6 * text.hidden_size, 12 * text.hidden_size), (4 * width, 8 * width + 2 * pixels)
    return Shape(
        parameters=model.num_parameters(),
        linear=sum(one.weight.numel() for one in linear.values()),
        outside=sum(one.weight.numel() for name, one in linear.items() if not _LAYER.search(name)),
        adapters=sum(one.in_features + one.out_features for one in adapted.values()),
        text=_layers(model, "language_model", text, (text.num_attention_heads * head, keys), adapted, ends[0]),
        vision=_layers(model, "vis", vision, (width, width), adapted, ends[1]),
        cache=2 * 2 * text.num_hidden_layers * keys,
    )


def memory_of(shape: Shape, training: Training) -> Memory:
    """Reckon what one GPU holds while weights are updated, each of its own copies whole; see :func:`spread`.

    >>> from scripts.checks.model_families import family_config
    >>> shape = shape_of(family_config("qwen2_5_vl_3b"), ".*language_model.*_proj")
    >>> lora = Training(64, False, 2, False, True, 8, 1900, 4992, 23_482_368, 64)
    >>> round(memory_of(shape, lora).weights / 1e9, 1)
    8.0
    """
    adapters = shape.adapters * training.adapter_rank
    packed = shape.linear if training.four_bits else 0
    trained, width = (adapters, 4) if training.adapter_rank else (shape.parameters, training.weight_bytes)
    if training.adapter_rank and training.four_bits:
        # TRL keeps the adapters of QLoRA in 16 bits.
        width = 2
    weights = (shape.parameters - packed) * training.weight_bytes + packed * NF4_BYTES
    if training.adapter_rank:
        weights += adapters * width
    return Memory(
        weights=weights,
        reference=shape.parameters * training.weight_bytes if training.reference else 0,
        gradients=trained * width,
        # Adam: two moments as wide as the weight.
        optimiser=2 * trained * width,
        activations=kept(shape, training) + _recomputed(shape, training),
        images=training.image_bytes * training.held,
    )


def kept(shape: Shape, training: Training) -> float:
    """Bytes of activations that the forward pass keeps for the way back, without dropout."""
    text, vision = _tokens(training)
    full = training.adapter_rank == 0
    held = text * shape.text.ends[full]
    if training.checkpointing:
        # The input of each layer. Checkpointing of transformers runs through the vision tower, trained or not.
        held += training.weight_bytes * text * shape.text.number * shape.text.width
        held += training.weight_bytes * vision * shape.vision.number * shape.vision.width
    else:
        held += text * shape.text.number * _layer(shape.text, training)
        held += vision * shape.vision.number * shape.vision.trained * full
    held += vision * shape.vision.ends[full] * (full or training.checkpointing)
    if full and training.weight_bytes > 2:
        # Weights of 32 bits are copied into 16 to compute with.
        held += 2 * (shape.outside if training.checkpointing else shape.linear)
    return held


def spread(memory: Memory, engine: str, processes: int) -> Memory:
    """What of it is left on each GPU under an engine.

    Args:
        memory: of a GPU that keeps everything.
        engine: `ddp`, `zero2`, `zero3` or `fsdp2`.
        processes: GPUs.

    Raises:
        ValueError: another engine.
    """
    parts = {
        "ddp": (),
        "zero2": ("gradients", "optimiser"),
        "zero3": ("weights", "reference", "gradients", "optimiser"),
        "fsdp2": ("weights", "reference", "gradients", "optimiser"),
    }
    if engine not in parts:
        raise ValueError(f"Expected one of {', '.join(parts)} for engine, got {engine!r}. Choose one.")
    shared = parts[engine]
    values = {name: value / processes if name in shared else value for name, value in vars(memory).items()}
    return Memory(**values)


def _recomputed(shape: Shape, training: Training) -> float:
    """With checkpointing, the layer that is just computed a second time."""
    if not training.checkpointing:
        return 0.0
    text, vision = _tokens(training)
    return max(text * _layer(shape.text, training), vision * _layer(shape.vision, training))


def _tokens(training: Training) -> tuple[int, int]:
    return training.sequences * training.tokens, training.sequences * training.patches


def _layer(layers: Layers, training: Training) -> int:
    if training.adapter_rank == 0:
        return layers.trained
    # An adapter keeps its input in 16 bits, and what lies between its halves.
    return layers.frozen + 2 * layers.adapter_inputs + 2 * training.adapter_rank * layers.adapters


def _layers(
    model: nn.Module,
    tower: str,
    config: Any,
    heads: tuple[int, int],
    adapted: Mapping[str, nn.Linear],
    ends: tuple[int, int],
) -> Layers:
    """What is the same in all layers of a tower, read from the first."""
    first = {
        name: one
        for name, one in model.named_modules()
        if tower in name and (found := _LAYER.search(name)) and found[1] == "0"
    }
    queries, keys = heads
    norms = sum(
        {"q_norm": queries, "k_norm": keys}.get(name.rpartition(".")[2], one.weight.numel())
        for name, one in first.items()
        if "Norm" in type(one).__name__
    )
    linear = {name: one for name, one in first.items() if isinstance(one, nn.Linear)}
    gated = any("gate_proj" in name for name in linear)
    # In 16 bits queries, keys, values and what attention makes of them; then what goes into the activation of the
    # network, and where it has a gate what comes out and the other factor.
    frozen = 2 * (2 * queries + 2 * keys) + 2 * (3 if gated else 1) * config.intermediate_size
    adapters = {name.rpartition(".")[2]: layer for name, layer in first.items() if name in adapted}
    inputs = {_SAME_INPUT.get(name, name): layer.in_features for name, layer in adapters.items()}
    return Layers(
        number=config.num_hidden_layers,
        width=config.hidden_size,
        # Norms compute in 32 bits.
        frozen=frozen + 4 * norms,
        trained=frozen + 8 * norms + 2 * sum(one.in_features for one in linear.values()),
        adapters=len(adapters),
        adapter_inputs=sum(inputs.values()),
        ends=ends,
    )
