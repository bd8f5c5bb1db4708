"""Generate answers with vLLM, from the same prompts and with the same settings as with transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grounding_rewards.models.generate import Generated, Sampling, conversations, end_tokens, until_end

# Added to the logit of a token that must not be generated; the lowest value that vLLM takes.
_NEVER = -100.0


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


def load_vllm(path: str) -> VllmModel:
    """Start vLLM with a checkpoint."""
    from transformers import AutoConfig, GenerationConfig
    from vllm import LLM

    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    try:
        generation = GenerationConfig.from_pretrained(path)
    except OSError:
        generation = GenerationConfig.from_model_config(config)
    return VllmModel(LLM(model=path, limit_mm_per_prompt={"image": 1}), config, generation)


def generate_with_vllm(
    model: VllmModel, processor: Any, rows: Sequence[Mapping[str, Any]], sampling: Sampling, *, seed: int
) -> Generated:
    """Generate the answers to some images at once; see :func:`grounding_rewards.models.generate.generate`.

    Args:
        model: what :func:`load_vllm` gave.
        processor: the model's processor, which writes the prompt and decodes the answer.
        rows: with ``prompt`` (conversational) and ``image``.
        sampling: how the answers are decoded.
        seed: of the sampling; every image has a seed of its own, derived from it.
    """
    ends, forbidden = end_tokens(model.config, model.generation_config, processor.tokenizer)
    parameters = vllm_parameters(sampling, ends, forbidden, images=len(rows), seed=seed)
    outputs = model.llm.generate(vllm_prompts(processor, rows), parameters, use_tqdm=False)
    answers = [until_end(answer.token_ids, set(ends)) for output in outputs for answer in output.outputs]
    texts = processor.batch_decode(answers, skip_special_tokens=sampling.skip_special_tokens)
    return Generated(texts, sum(map(len, answers)))


def vllm_prompts(processor: Any, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The prompts as vLLM expects them: token ids with one placeholder per image, and the image."""
    prompts = []
    for row, conversation in zip(rows, conversations(rows), strict=True):
        text = processor.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
        # The template has already added the special tokens.
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        prompts.append({"prompt_token_ids": ids, "multi_modal_data": {"image": row["image"]}})
    return prompts


def vllm_parameters(
    sampling: Sampling, ends: Sequence[int], forbidden: Sequence[int], *, images: int, seed: int
) -> list[Any]:
    """One ``vllm.SamplingParams`` for every image."""
    from vllm import SamplingParams

    # With a common seed, images with the same prompt would get the same draws.
    seeds = np.random.SeedSequence(seed).generate_state(images, np.uint32)
    return [
        SamplingParams(
            n=sampling.samples,
            temperature=sampling.temperature,
            top_p=1.0,
            top_k=-1,
            max_tokens=sampling.max_new_tokens,
            stop_token_ids=list(ends),
            logit_bias=dict.fromkeys(forbidden, _NEVER) or None,
            detokenize=False,
            seed=int(own),
        )
        for own in seeds
    ]
