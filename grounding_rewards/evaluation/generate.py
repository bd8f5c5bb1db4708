"""Let a vision-language model answer the prompts of a dataset, in batches."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import torch
from rich.progress import track
from transformers import GenerationConfig
from trl.data_utils import prepare_multimodal_messages


def generate(
    model: Any,
    processor: Any,
    dataset: Any,
    *,
    samples: int = 1,
    temperature: float = 1.0,
    max_new_tokens: int = 256,
    batch_size: int = 256,
    seed: int = 0,
    skip_special_tokens: bool = True,
    progress: str | None = None,
) -> list[list[str]]:
    """Generate answers under the settings that TRL's GRPO trainer samples with: no top-k, no top-p.

    Prompts are built as TRL builds them and padded on the left, so a film's answer does not depend on its
    neighbours in the batch beyond rounding.

    Args:
        model: a transformers vision-language model.
        processor: its processor.
        dataset: rows with ``prompt`` (conversational) and ``image``.
        samples: answers per film.
        temperature: 0 decodes greedily, which gives one answer per film.
        max_new_tokens: where an answer is cut off.
        batch_size: answers generated at the same time.
        seed: of the sampling; the generators of the caller are left as they were.
        skip_special_tokens: False for box formats whose syntax is made of special tokens.
        progress: text beside a progress bar; no bar without it.

    Returns:
        For each row its ``samples`` answers.

    Raises:
        ValueError: ``samples`` is below 1, ``temperature`` is negative, or several greedy answers are asked
            for.
    """
    _check(samples, temperature)
    films = max(1, batch_size // samples)
    config = _generation_config(model, processor, samples, temperature, max_new_tokens)
    answers: list[list[str]] = []
    was_training = model.training
    model.eval()
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(seed)
        starts = range(0, len(dataset), films)
        for start in track(starts, description=progress or "", disable=progress is None):
            rows = [dataset[i] for i in range(start, min(start + films, len(dataset)))]
            texts = _answer_batch(model, processor, rows, config, skip_special_tokens)
            answers += [texts[i : i + samples] for i in range(0, len(texts), samples)]
    model.train(was_training)
    return answers


def _check(samples: int, temperature: float) -> None:
    if samples < 1:
        raise ValueError(f"Expected at least 1 for `samples`, got {samples}. Ask for one or more answers per film.")
    if temperature < 0:
        raise ValueError(
            f"Expected a number from 0 up for `temperature`, got {temperature}. Use 0 for greedy decoding."
        )
    if temperature == 0 and samples > 1:
        raise ValueError(
            f"Expected 1 for `samples` at temperature 0, got {samples}. Greedy decoding has one answer; "
            "raise the temperature to sample several."
        )


def _generation_config(
    model: Any, processor: Any, samples: int, temperature: float, max_new_tokens: int
) -> GenerationConfig:
    sampling = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
    tokenizer = getattr(processor, "tokenizer", processor)
    image_token = getattr(model.config, "image_token_id", None)
    return GenerationConfig(
        max_new_tokens=max_new_tokens,
        num_return_sequences=samples,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=model.generation_config.eos_token_id or tokenizer.eos_token_id,
        # A generated image token would have no image to stand for; TRL forbids it as well.
        suppress_tokens=None if image_token is None else [image_token],
        disable_compile=True,
        **(sampling if temperature > 0 else {"do_sample": False}),
    )


def _answer_batch(
    model: Any,
    processor: Any,
    rows: list[dict[str, Any]],
    config: GenerationConfig,
    skip_special_tokens: bool,
) -> list[str]:
    conversations = [prepare_multimodal_messages(row["prompt"], images=[row["image"]]) for row in rows]
    inputs = processor.apply_chat_template(
        conversations,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left"},
    ).to(model.device)
    prompt_length = inputs["input_ids"].shape[1]
    generated = model.generate(**inputs, generation_config=config)
    completions = [_until_end(ids, config) for ids in generated[:, prompt_length:].tolist()]
    texts: list[str] = processor.batch_decode(completions, skip_special_tokens=skip_special_tokens)
    return texts


def _until_end(ids: list[int], config: GenerationConfig) -> list[int]:
    """Drop the end-of-answer token and the padding behind it."""
    eos = config.eos_token_id
    ends = set(eos if isinstance(eos, list) else [eos])
    return list(takewhile(lambda token: token not in ends, ids))
