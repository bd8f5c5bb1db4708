"""Let a vision-language model answer the prompts of a dataset, in batches, with transformers or vLLM."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import GenerationConfig
from trl.data_utils import prepare_multimodal_messages

from grounding_rewards.common.validation import Interval, check_number
from grounding_rewards.models.vllm import VllmModel
from grounding_rewards.parsing import box_formats_of
from grounding_rewards.parsing.answer_span import marks_thinking, opens_thinking
from grounding_rewards.rewards.grounding import GroundingReward

#: Called with the images answered, of how many, and the tokens generated for them.
OnProgress = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Sampling:
    """How answers are decoded: no top-k, no top-p, as TRL's GRPO trainer samples.

    Attributes:
        samples: answers per image.
        temperature: 0 decodes greedily, which gives one answer per image.
        max_new_tokens: where an answer is cut off.
        skip_special_tokens: False for box formats whose syntax is made of special tokens.

    Raises:
        ValueError: ``samples`` or ``max_new_tokens`` is below 1, ``temperature`` is negative, or several greedy answers
            are asked for.
    """

    samples: int = 1
    temperature: float = 0.0
    max_new_tokens: int = 256
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        check_number("samples", self.samples, Interval(1), "Ask for one or more answers per image.")
        check_number("max_new_tokens", self.max_new_tokens, Interval(1), "An answer needs some hundred.")
        check_number("temperature", self.temperature, Interval(), "Use 0 for greedy decoding.")
        if self.temperature == 0 and self.samples > 1:
            raise ValueError(
                f"Expected 1 for `samples` at temperature 0, got {self.samples}. Greedy decoding has one answer; "
                "raise the temperature to sample several."
            )


#: One greedy answer per image.
GREEDY = Sampling()

#: Added by vLLM to the logit of a token that must not be generated; the lowest value that it takes.
NEVER = -100.0


class Generated(NamedTuple):
    """The answers to some images, those to one image next to each other, and their total number of tokens."""

    texts: list[str]
    tokens: int


def generate(
    model: Any,
    processor: Any,
    dataset: Any,
    sampling: Sampling = GREEDY,
    *,
    batch_size: int = 256,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> list[list[str]]:
    """Generate answers to prompts that are built as TRL builds them.

    They are padded on the left, so the answer to an image depends on the others in its batch only through rounding.

    Args:
        model: a transformers vision-language model.
        processor: its processor.
        dataset: rows with ``prompt`` (conversational) and ``image``.
        sampling: how the answers are decoded, and how many there are per image.
        batch_size: answers generated at the same time; samples depend on it.
        seed: of the sampling; the random state of the caller is left as it was.
        on_progress: called after every batch with the images answered, of how many, and the tokens generated for them.

    Returns:
        For each row its ``sampling.samples`` answers.
    """
    samples, images = sampling.samples, max(1, batch_size // sampling.samples)
    answers: list[list[str]] = []
    tokens = 0
    was_training = model.training
    with _evaluating(model, seed):
        for start in range(0, len(dataset), images):
            rows = [dataset[i] for i in range(start, min(start + images, len(dataset)))]
            generated = _answer_batch(model, processor, rows, sampling)
            answers += [generated.texts[i : i + samples] for i in range(0, len(generated.texts), samples)]
            tokens += generated.tokens
            if on_progress is not None:
                on_progress(len(answers), len(dataset), tokens)
    model.train(was_training)
    return answers


def generate_batch(
    model: Any, processor: Any, rows: Sequence[Mapping[str, Any]], sampling: Sampling, *, seed: int
) -> Generated:
    """Generate the answers to some images at once; see :func:`generate`.

    Args:
        model: a transformers vision-language model, which is left in evaluation mode.
        processor: its processor.
        rows: with ``prompt`` (conversational) and ``image``.
        sampling: how the answers are decoded.
        seed: of the sampling; the random state of the caller is left as it was.
    """
    with _evaluating(model, seed):
        return _answer_batch(model, processor, rows, sampling)


def generate_with_vllm(
    model: VllmModel, processor: Any, rows: Sequence[Mapping[str, Any]], sampling: Sampling, *, seed: int
) -> Generated:
    """As :func:`generate_batch`, from the same prompts and with the same settings.

    Args:
        model: what :func:`grounding_rewards.models.vllm.load_vllm` gave.
        processor: the model's processor, which writes the prompt and decodes the answer.
        rows: with ``prompt`` (conversational) and ``image``.
        sampling: how the answers are decoded.
        seed: of the sampling; every image has a seed of its own, derived from it: images with the same prompt would
            get the same draws.
    """
    from vllm import SamplingParams

    ends, forbidden = _end_tokens(model, processor.tokenizer)
    prompts = []
    for row in rows:
        conversation = _conversation(row["prompt"], [row["image"]])
        text = processor.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
        # The template has already added the special tokens, one placeholder for the image among them.
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        prompts.append({"prompt_token_ids": ids, "multi_modal_data": {"image": row["image"].convert("RGB")}})
    parameters = [
        SamplingParams(
            n=sampling.samples,
            temperature=sampling.temperature,
            top_p=1.0,
            top_k=-1,
            max_tokens=sampling.max_new_tokens,
            stop_token_ids=ends,
            logit_bias=dict.fromkeys(forbidden, NEVER) or None,
            detokenize=False,
            seed=int(own),
        )
        for own in np.random.SeedSequence(seed).generate_state(len(rows), np.uint32)
    ]
    outputs = model.llm.generate(prompts, parameters, use_tqdm=False)
    return _decoded(processor, (answer.token_ids for output in outputs for answer in output.outputs), ends, sampling)


def _conversation(prompt: Any, images: Sequence[Any]) -> list[dict[str, Any]]:
    """A prompt with its images in place, as chat templates expect it; in RGB, as some processors need them."""
    conversation: list[dict[str, Any]] = prepare_multimodal_messages(
        prompt, images=[image.convert("RGB") for image in images]
    )
    return conversation


def _end_tokens(model: Any, tokenizer: Any) -> tuple[list[int], list[int]]:
    """The tokens that end an answer, and those that must not be generated.

    There is no image for a generated image token; TRL forbids it as well.
    """
    ends = getattr(model.generation_config, "eos_token_id", None) or tokenizer.eos_token_id
    image = getattr(model.config, "image_token_id", None)
    return list(ends) if isinstance(ends, list | tuple) else [ends], [] if image is None else [image]


def _decoded(processor: Any, answers: Iterable[Sequence[int]], ends: Collection[int], sampling: Sampling) -> Generated:
    """Answers in words, without the token that ends one and the padding behind it."""
    ids = [list(takewhile(lambda token: token not in ends, answer)) for answer in answers]
    texts = processor.batch_decode(ids, skip_special_tokens=sampling.skip_special_tokens)
    return Generated(texts, sum(map(len, ids)))


def reads_special_tokens(dataset: Any, reward: GroundingReward, tokenizer: Any) -> bool:
    """Whether special tokens carry the boxes of some answer or mark thinking: then they must stay in its text."""
    if marks_thinking(getattr(tokenizer, "all_special_tokens", ())):
        return True
    column = dataset["box_format"] if reward.box_format is None else ()
    return any(fmt.from_token_ids for fmt in box_formats_of(reward.box_format, column))


def completion_begins_in_thinking(processor: Any, prompt: Any, **template: Any) -> bool:
    """Whether the rendered prompt ends in an open mark of thinking, as those of Qwen3-VL-Thinking do.

    Args:
        processor: the model's.
        prompt: conversational.
        **template: further arguments of its chat template.
    """
    return opens_thinking(processor.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **template))


def check_processor(processor: Any, dataset: Any, name: str) -> None:
    """Refuse a processor that cannot make the model's input of the first row, before the model is loaded.

    Args:
        processor: the model's.
        dataset: rows with ``prompt`` (conversational), and ``image`` or ``images``.
        name: what to call the dataset.

    Raises:
        ValueError: it fails, in whatever way.
    """
    row = dataset[0]
    images = [row["image"]] if row.get("image") is not None else row["images"]
    try:
        conversation = _conversation(row["prompt"], images)
        processor.apply_chat_template([conversation], add_generation_prompt=True, tokenize=True, return_dict=True)
    # Processors and chat templates of all families raise nearly everything.
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"Expected a prompt and an image that the model's processor can read for {name}, got "
            f"{type(error).__name__}: {reason:.200} in row 0 (id {row.get('id', '-')}). A prompt has one place for "
            "each image; processor, tokenizer and chat template are those of one model."
        ) from error


@contextmanager
def _evaluating(model: Any, seed: int) -> Iterator[None]:
    """The model in evaluation mode, and generators of its own with this seed."""
    model.eval()
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@torch.no_grad()
def _answer_batch(model: Any, processor: Any, rows: Sequence[Mapping[str, Any]], sampling: Sampling) -> Generated:
    tokenizer = getattr(processor, "tokenizer", processor)
    ends, forbidden = _end_tokens(model, tokenizer)
    drawn = {"do_sample": True, "temperature": sampling.temperature, "top_p": 1.0, "top_k": 0}
    config = GenerationConfig(
        max_new_tokens=sampling.max_new_tokens,
        num_return_sequences=sampling.samples,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=ends,
        suppress_tokens=forbidden or None,
        disable_compile=True,
        **(drawn if sampling.temperature > 0 else {"do_sample": False}),
    )
    inputs = processor.apply_chat_template(
        [_conversation(row["prompt"], [row["image"]]) for row in rows],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left"},
    ).to(model.device)
    prompt_length = inputs["input_ids"].shape[1]
    generated = model.generate(**inputs, generation_config=config)
    return _decoded(processor, generated[:, prompt_length:].tolist(), ends, sampling)
