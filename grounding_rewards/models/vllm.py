"""A model in vLLM: how it is held, and started."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from grounding_rewards.common.validation import check_keys


@dataclass(frozen=True)
class VllmOptions:
    """Options with which vLLM loads a model; the names are vLLM's.

    Attributes:
        max_model_len: most tokens of prompt, image and answer; None for the model's own, which may not fit a small GPU.
        dtype: of the weights: `float32`, `float16`, `bfloat16`, or `auto`: that of the checkpoint, of float32 16 bits.
        gpu_memory_utilization: share of the GPU's memory that vLLM takes.
        tensor_parallel_size: GPUs that share the weights.

    Example:
        >>> VllmOptions(max_model_len=4096).dtype
        'auto'
    """

    max_model_len: int | None = None
    dtype: str = "auto"
    gpu_memory_utilization: float = 0.9
    tensor_parallel_size: int = 1

    @classmethod
    def of(cls, mapping: Any) -> VllmOptions:
        """The options that a mapping names.

        Raises:
            ValueError: an unknown name; wrong values are refused by vLLM.

        Example:
            >>> VllmOptions.of({"max_model_len": 4096, "dtype": "bfloat16"}).max_model_len
            4096
        """
        check_keys("vllm_options", mapping, [option.name for option in fields(cls)])
        return cls(**mapping)


@dataclass(frozen=True)
class VllmModel:
    """A model in vLLM, with the same configurations as a transformers model.

    Attributes:
        llm: the ``vllm.LLM``.
        config: the model's configuration.
        generation_config: which tokens end an answer.
    """

    llm: Any
    config: Any
    generation_config: Any


def load_vllm(path: str, options: VllmOptions) -> VllmModel:
    """Start vLLM with a checkpoint.

    Args:
        path: folder or name on the hub.
        options: how vLLM holds the model.
    """
    from transformers import AutoConfig, GenerationConfig
    from vllm import LLM

    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    try:
        generation = GenerationConfig.from_pretrained(path)
    except OSError:
        generation = GenerationConfig.from_model_config(config)
    llm = LLM(model=path, limit_mm_per_prompt={"image": 1}, **asdict(options))
    return VllmModel(llm, config, generation)
