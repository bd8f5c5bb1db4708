"""Let a vision-language model answer the prompts of a dataset, in batches, with transformers or vLLM.

Answers are returned, or kept in a file as they come, so that a run that was killed can be continued.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig
from trl.data_utils import prepare_multimodal_messages

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS, image_id
from grounding_rewards.common.atomic_files import check_settings, write_whole
from grounding_rewards.common.validation import Interval, check_number
from grounding_rewards.images.decoding import rows_without_images
from grounding_rewards.images.resize import image_pixel_limit
from grounding_rewards.models.load import UnloadedModel, VllmModel, digest_of_weights
from grounding_rewards.parsing import box_formats_of
from grounding_rewards.parsing.answer_span import marks_thinking, opens_thinking
from grounding_rewards.rewards.grounding import GroundingReward

#: Called with three counts: images answered, images in all, tokens generated.
OnProgress = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Sampling:
    """Settings of decoding: no top-k, no top-p, as TRL's GRPO trainer samples.

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

# Columns that are copied next to the answer, so that the file can be scored and evaluated by itself. An image may be
# asked about at several temperatures.
_COPIED_COLUMNS = ("patient_id", *BOX_COLUMNS, "box_format", *SIZE_COLUMNS, "temperature")


#: The answers to a batch of images, all samples of an image next to each other; and the total number of tokens.
Generated = tuple[list[str], int]


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
        model: a transformers vision-language model, or one in vLLM.
        processor: its processor.
        dataset: rows with ``prompt`` (conversational) and ``image``.
        sampling: how the answers are decoded, and how many there are per image.
        batch_size: answers generated at the same time; samples depend on it.
        seed: of the sampling; the random state of the caller is left as it was.
        on_progress: called after every batch, see :data:`OnProgress`.

    Returns:
        For each row its ``sampling.samples`` answers.
    """
    batches = _list_batches(len(dataset), sampling, batch_size)
    texts: list[str] = []
    for _, batch_texts in _generate_batches(model, processor, dataset, sampling, batches, seed, on_progress):
        texts += batch_texts
    return _of_each_image(texts, sampling)


def generate_to_file(
    model: UnloadedModel,
    processor: Any,
    dataset: Any,
    path: Path,
    sampling: Sampling = GREEDY,
    *,
    batch_size: int = 256,
    seed: int = 0,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> list[list[str]]:
    """Generate answers into a file as :func:`generate` does, and continue after a stop.

    The file, such as `completions.jsonl`, is written when all answers are generated. Until then
    `completions.part.jsonl` has them, an image per line, and `completions.settings.json` has the settings. A second
    call with the same settings passes over a line that was cut off and generates the missing batches. Batches and their
    seeds follow from the settings alone, so the answers are those of an uninterrupted run.

    A line of the file has ``id``, ``sample`` (from 0), ``completion``, the patient, and the columns that rewards read.

    Args:
        model: from :func:`grounding_rewards.models.load.load_later`; it is loaded only if answers are missing.
        processor: its processor.
        dataset: rows with ``prompt`` (conversational), ``image`` and ``id``; without ``id``, the row's number from 0.
        path: a file that ends in .jsonl.
        sampling: how the answers are decoded, and how many there are per image.
        batch_size: answers generated at the same time; samples depend on it.
        seed: of the sampling.
        overwrite: drop answers that were generated with other settings; they are refused without it.
        on_progress: as for :func:`generate`; counts what is generated now.

    Returns:
        For each row its ``sampling.samples`` answers.

    Raises:
        ValueError: ``batch_size`` is below 1, or the file was started with other settings, another model or another
            dataset, or its lines were changed; the message says which.
    """
    check_number("batch_size", batch_size, Interval(1), "Give what fits into memory.")
    path = Path(path)
    if path.suffix != ".jsonl":
        raise ValueError(f"Expected a file that ends in .jsonl for `path`, got {str(path)!r}. Rename it.")
    settings_path = path.with_suffix(".settings.json")
    rows = rows_without_images(dataset)
    settings = _answer_settings(model, processor, rows, sampling, batch_size, seed)
    part_path = path.with_suffix(".part.jsonl")
    try:
        _check_earlier(path, part_path, settings_path, settings)
    except ValueError:
        # Answers of other settings.
        if not overwrite:
            raise
        path.unlink(missing_ok=True)
        part_path.unlink(missing_ok=True)
    if not path.is_file():
        answers = _read_part(part_path)
        batches = _list_batches(len(rows), sampling, batch_size)
        # A batch of which any answer is missing is generated as a whole: samples depend on the batch.
        pending_batches = [(number, batch) for number, batch in batches if not answers.keys() >= set(batch)]
        # Loaded before anything is written: if that fails, no file is left.
        loaded: Any = model.load() if pending_batches else None
        write_whole(settings_path, json.dumps(settings, indent=2) + "\n")
        generated = _generate_batches(loaded, processor, dataset, sampling, pending_batches, seed, on_progress)
        _write_part(part_path, generated, sampling)
        _write_finished(path, _read_part(part_path), rows)
    part_path.unlink(missing_ok=True)
    return _read_finished(path, rows, sampling)


def generate_batch(
    model: Any, processor: Any, rows: Sequence[Mapping[str, Any]], sampling: Sampling, *, seed: int
) -> Generated:
    """Generate the answers to one batch of images with transformers; see :func:`generate`.

    Args:
        model: a transformers vision-language model, whose mode is kept.
        processor: its processor.
        rows: with ``prompt`` (conversational) and ``image``.
        sampling: how the answers are decoded.
        seed: of the sampling; the random state of the caller is left as it was.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    end_tokens = _end_tokens(model, tokenizer)
    decoding: dict[str, Any] = {"do_sample": False}
    if sampling.temperature > 0:
        # From all tokens: a top-p of 1 and a top-k of 0 leave none out.
        decoding = {"do_sample": True, "temperature": sampling.temperature, "top_p": 1.0, "top_k": 0}
    config = GenerationConfig(
        max_new_tokens=sampling.max_new_tokens,
        num_return_sequences=sampling.samples,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=end_tokens,
        # None where no token is forbidden.
        suppress_tokens=_forbidden_tokens(model) or None,
        disable_compile=True,
        **decoding,
    )
    inputs = processor.apply_chat_template(
        [_conversation(row["prompt"], [row["image"]]) for row in rows],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left"},
    ).to(model.device)
    was_training = model.training
    model.eval()
    cuda_devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda_devices), torch.no_grad():
        torch.manual_seed(seed)
        generated = model.generate(**inputs, generation_config=config)
    model.train(was_training)
    # The prompts, padded to one length, stand before the answers.
    prompt_length = inputs["input_ids"].shape[1]
    return _decode(processor, generated[:, prompt_length:].tolist(), end_tokens, sampling)


def generate_with_vllm(
    model: VllmModel, processor: Any, rows: Sequence[Mapping[str, Any]], sampling: Sampling, *, seed: int
) -> Generated:
    """Generate the answers to one batch of images with vLLM, from the same prompts as :func:`generate_batch`.

    Args:
        model: from :func:`grounding_rewards.models.load.load_model` with vLLM.
        processor: the model's processor, which writes the prompt and decodes the answer.
        rows: with ``prompt`` (conversational) and ``image``.
        sampling: how the answers are decoded.
        seed: of the sampling; every image has its own seed, derived from this one, since images with the same prompt
            would get the same draws.
    """
    from vllm import SamplingParams

    end_tokens = _end_tokens(model, processor.tokenizer)
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
            # From all tokens: these leave none out.
            top_p=1.0,
            top_k=-1,
            max_tokens=sampling.max_new_tokens,
            stop_token_ids=end_tokens,
            logit_bias=dict.fromkeys(_forbidden_tokens(model), NEVER) or None,
            # The processor decodes the tokens, as with transformers.
            detokenize=False,
            seed=int(image_seed),
        )
        for image_seed in np.random.SeedSequence(seed).generate_state(len(rows), np.uint32)
    ]
    # The samples of an image, next to each other.
    answers: list[Sequence[int]] = []
    for output in model.llm.generate(prompts, parameters, use_tqdm=False):
        answers += [answer.token_ids for answer in output.outputs]
    return _decode(processor, answers, end_tokens, sampling)


def _conversation(prompt: Any, images: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages of a prompt with its images in them, as chat templates expect it."""
    # Some processors need RGB.
    rgb_images = [image.convert("RGB") for image in images]
    conversation: list[dict[str, Any]] = prepare_multimodal_messages(prompt, images=rgb_images)
    return conversation


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer: those of the model, or that of the tokenizer if the model names none."""
    tokens = getattr(model.generation_config, "eos_token_id", None)
    # Not `or`: token 0 ends the answers of some models.
    if tokens is None:
        tokens = tokenizer.eos_token_id
    # A configuration may name one, or several.
    return list(tokens) if isinstance(tokens, list | tuple) else [tokens]


def _forbidden_tokens(model: Any) -> list[int]:
    """The tokens that must not be generated: an image token would have no image. TRL forbids it too."""
    image_token = getattr(model.config, "image_token_id", None)
    return [] if image_token is None else [image_token]


def _decode(
    processor: Any, answers: Iterable[Sequence[int]], end_tokens: Collection[int], sampling: Sampling
) -> Generated:
    """The texts of answers, from their tokens up to the first end token; and the number of these tokens in all."""
    ids = [list(itertools.takewhile(lambda token: token not in end_tokens, answer)) for answer in answers]
    texts = processor.batch_decode(ids, skip_special_tokens=sampling.skip_special_tokens)
    return texts, sum(map(len, ids))


def reads_special_tokens(dataset: Any, reward: GroundingReward, tokenizer: Any) -> bool:
    """Whether special tokens carry boxes or mark thinking, so that decoding must not skip them.

    Args:
        dataset: with the column `box_format` if the reward has no box format; else it is not read.
        reward: reads the answers.
        tokenizer: the model's.
    """
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
    text = processor.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **template)
    return opens_thinking(text)


def check_processor(processor: Any, dataset: Any, name: str) -> None:
    """Refuse a processor that cannot make the model's input of the first row, before the model is loaded.

    Args:
        processor: the model's.
        dataset: rows with ``prompt`` (conversational), and ``image`` or ``images``.
        name: what to call the dataset.

    Raises:
        ValueError: the processor or its chat template raised an error.
    """
    row = dataset[0]
    images = [row["image"]] if row.get("image") is not None else row["images"]
    try:
        conversation = _conversation(row["prompt"], images)
        processor.apply_chat_template([conversation], add_generation_prompt=True, tokenize=True, return_dict=True)
    # Processors and chat templates of the families raise errors of all types.
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"Expected a prompt and an image that the model's processor can read for {name}, got "
            f"{type(error).__name__}: {reason:.200} in row 0 (id {row.get('id', '-')}). A prompt has one place for "
            "each image; processor, tokenizer and chat template are those of one model."
        ) from error


def _list_batches(count: int, sampling: Sampling, batch_size: int) -> list[tuple[int, range]]:
    """The batches of at most `batch_size` answers to `count` rows: the number of each, and the numbers of its rows."""
    # All answers to an image are in one batch.
    images = max(1, batch_size // sampling.samples)
    batches = [range(start, min(start + images, count)) for start in range(0, count, images)]
    return list(enumerate(batches))


def _generate_batches(
    model: Any,
    processor: Any,
    dataset: Any,
    sampling: Sampling,
    batches: Sequence[tuple[int, range]],
    seed: int,
    on_progress: OnProgress | None,
) -> Iterator[tuple[range, list[str]]]:
    """Generate one batch after another, and yield the numbers of its rows with all answers to them.

    Each of `batches` is its number and the numbers of its rows; the model is one of transformers, or one in vLLM.
    """
    ask = generate_with_vllm if isinstance(model, VllmModel) else generate_batch
    n_images = n_tokens = 0
    total = sum(len(batch) for _, batch in batches)
    for number, batch in batches:
        # From the number of the batch alone: a continued run gives the same answers.
        batch_seed = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint32)[0])
        texts, batch_tokens = ask(model, processor, [dataset[row] for row in batch], sampling, seed=batch_seed)
        yield batch, texts
        # The caller has written the batch when it asks for the next one: the progress counts what is kept.
        n_images += len(batch)
        n_tokens += batch_tokens
        if on_progress is not None:
            on_progress(n_images, total, n_tokens)


def _answer_settings(
    model: UnloadedModel,
    processor: Any,
    rows: Sequence[Mapping[str, Any]],
    sampling: Sampling,
    batch_size: int,
    seed: int,
) -> dict[str, Any]:
    """Everything on which the answers depend, as plain values: a file is continued only with the same settings."""
    content = "".join(json.dumps(row, sort_keys=True, default=str) for row in rows)
    settings = {
        "model": digest_of_weights(model.path),
        "dataset": hashlib.sha256(content.encode()).hexdigest()[:16],
        "backend": model.backend,
        **asdict(sampling),
    }
    if model.backend == "vllm":
        settings["vllm_options"] = model.vllm_options
    if sampling.temperature > 0:
        # Greedy answers do not depend on these.
        settings |= {"seed": seed, "batch_size": batch_size}
    limit = image_pixel_limit(processor)
    if limit is not None:
        settings["max_image_pixels"] = limit
    return settings


def _check_earlier(path: Path, part_path: Path, settings_path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse to continue existing answers that were generated with other settings, or unknown ones.

    Args:
        path: of the finished file.
        part_path: of the part that is there until then.
        settings_path: of the settings with which they were generated.
        settings: of this call.
    """
    if not path.is_file() and not part_path.is_file():
        return
    try:
        earlier_settings = json.loads(settings_path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        # Unknown settings differ from any, so the answers are refused.
        earlier_settings = {}
    remedy = "Give the same again, or another path, or overwrite the answers that are there."
    check_settings(path, earlier_settings, settings, remedy, digests=("model", "dataset"))


def _write_part(path: Path, generated: Iterable[tuple[range, list[str]]], sampling: Sampling) -> None:
    """Append the answers of each batch to the unfinished file as soon as they are generated, a line for each image."""
    with path.open("a", encoding="utf-8") as part:
        # Ends a line that was cut off when the process was killed.
        part.write("\n")
        for batch, texts in generated:
            for row, completions in zip(batch, _of_each_image(texts, sampling), strict=True):
                part.write(json.dumps({"row": row, "completions": completions}) + "\n")
            part.flush()


def _read_part(path: Path) -> dict[int, list[str]]:
    """The answers in the unfinished file, by the number of their row; none if there is no such file."""
    answers = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in lines:
        # A line may have been cut off when the process was killed, or be empty: it is passed over.
        with suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            answers[entry["row"]] = entry["completions"]
    return answers


def _write_finished(path: Path, answers: Mapping[int, Sequence[str]], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the answers by the number of their row into the file, in the order of the dataset."""
    lines = []
    for number, row in enumerate(rows):
        columns = {name: row[name] for name in _COPIED_COLUMNS if row.get(name) is not None}
        for sample, text in enumerate(answers[number]):
            # ASCII escapes can hold the lone surrogates of a text that was cut off.
            line = {"id": image_id(row, number), "sample": sample, "completion": text, **columns}
            lines.append(json.dumps(line) + "\n")
    write_whole(path, "".join(lines))


def _read_finished(path: Path, rows: Sequence[Mapping[str, Any]], sampling: Sampling) -> list[list[str]]:
    """The answers to each image in the finished file; refuse one that was changed since, such as sorted."""
    expected_keys = []
    for number, row in enumerate(rows):
        expected_keys += [(image_id(row, number), sample) for sample in range(sampling.samples)]
    # By its keys an answer is known: the image, and the number of the sample.
    keys, texts = [], []
    # At a line that is no answer the reading ends; then keys are missing, and the file is refused.
    with suppress(ValueError, TypeError, KeyError):
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            texts.append(entry["completion"])
            keys.append((entry["id"], entry["sample"]))
    if keys != expected_keys:
        raise ValueError(
            f"Expected {len(expected_keys)} answers in the order of the images in {str(path)!r}, got lines that were "
            "changed. Remove the file to generate them again."
        )
    return _of_each_image(texts, sampling)


def _of_each_image(texts: Sequence[str], sampling: Sampling) -> list[list[str]]:
    """The answers to each image, of which ``sampling.samples`` stand side by side."""
    return [list(texts[start : start + sampling.samples]) for start in range(0, len(texts), sampling.samples)]
