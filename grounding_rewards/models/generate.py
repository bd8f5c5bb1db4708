"""Let a vision-language model answer the prompts of a dataset, in batches, with transformers or vLLM.

Answers are returned, or kept in a file as they come, so that a run that was killed can be continued.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from glob import escape
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from transformers import GenerationConfig
from trl.data_utils import prepare_multimodal_messages

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS
from grounding_rewards.common.atomic_files import check_settings, write_whole
from grounding_rewards.common.validation import Interval, check_number
from grounding_rewards.images.decoding import rows_without_images
from grounding_rewards.images.resize import image_pixel_limit
from grounding_rewards.models.load import UnloadedModel, VllmModel, digest_of_weights, process_state
from grounding_rewards.parsing import box_formats_of
from grounding_rewards.parsing.answer_span import marks_thinking, opens_thinking
from grounding_rewards.rewards.grounding import GroundingReward

#: Called with three counts: images answered, images in all, tokens generated.
OnProgress = Callable[[int, int, int], None]
# The id of an image, and the number of the sample among the answers to it.
_Key = tuple[str, int]


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
    return [texts[start : start + sampling.samples] for start in range(0, len(texts), sampling.samples)]


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
    `completions.part-0.jsonl` has those of the first process, one per line, and `completions.settings.json` has the
    settings. A second call with the same settings drops a line that was cut off and generates the missing batches.
    Batches and their seeds follow from the settings alone, so the answers are those of an uninterrupted run, whatever
    the number of processes.

    Under `accelerate launch` or `torchrun` every process generates its share of the batches, and the first one merges
    them. A line of the file has ``id``, ``sample`` (from 0), ``completion``, the patient, and the columns that rewards
    read.

    Args:
        model: from :func:`grounding_rewards.models.load.load_later`; it is loaded only if answers are missing.
        processor: its processor.
        dataset: rows with ``prompt`` (conversational), ``image`` and ``id``; without ``id``, the row's number from 0.
        path: a file that ends in .jsonl.
        sampling: how the answers are decoded, and how many there are per image.
        batch_size: answers generated at the same time; samples depend on it.
        seed: of the sampling.
        overwrite: drop answers that were generated with other settings; they are refused without it.
        on_progress: as for :func:`generate`; counts what this process generates now.

    Returns:
        For each row its ``sampling.samples`` answers, on every process.

    Raises:
        ValueError: ``batch_size`` is below 1, two rows have one id, or the file was started with other settings,
            another model or another dataset; the message says which.
    """
    check_number("batch_size", batch_size, Interval(1), "Give what fits into memory.")
    rows = rows_without_images(dataset)
    file = AnswerFile(Path(path), _image_ids(rows), sampling.samples)
    settings = _answer_settings(model, processor, rows, sampling, batch_size, seed)
    state = process_state()
    problem: ValueError | None = None
    try:
        file.check(settings)
    except ValueError as error:
        problem = error
    # No process may drop answers that another one has yet to compare.
    state.wait_for_everyone()
    if problem and not overwrite:
        raise problem
    if problem and state.is_main_process:
        file.drop()
    state.wait_for_everyone()
    lines = file.read()
    row_by_id = dict(zip(file.ids, rows, strict=True))
    pending_batches = []
    for number, batch in _list_batches(len(rows), sampling, batch_size):
        if any(key not in lines for key in file.keys_of(batch)):
            pending_batches.append((number, batch))
    my_batches = pending_batches[state.process_index :: state.num_processes]
    # Loaded before anything is written: if that fails, no file is left.
    loaded: Any = model.load() if my_batches else None
    # No process may write before all have read.
    state.wait_for_everyone()
    if pending_batches or not file.path.is_file() or file.parts():
        if state.is_main_process:
            write_whole(file.settings_path, json.dumps(settings, indent=2) + "\n")
        state.wait_for_everyone()
        with file.part(state.process_index) as part:
            for batch, texts in _generate_batches(loaded, processor, dataset, sampling, my_batches, seed, on_progress):
                for key, text in zip(file.keys_of(batch), texts, strict=True):
                    if key not in lines:
                        image_id, sample = key
                        row = row_by_id[image_id]
                        columns = {name: row[name] for name in _COPIED_COLUMNS if row.get(name) is not None}
                        line = {"id": image_id, "sample": sample, "completion": text, **columns}
                        # ASCII escapes can hold the lone surrogates of a text that was cut off.
                        part.write(json.dumps(line) + "\n")
                part.flush()
        state.wait_for_everyone()
        if state.is_main_process:
            file.merge()
        state.wait_for_everyone()
        lines = file.read()
    answers = []
    for number in range(len(rows)):
        answers.append([json.loads(lines[key])["completion"] for key in file.keys_of([number])])
    return answers


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
    decoding: dict[str, Any] = {"do_sample": False}
    if sampling.temperature > 0:
        decoding = {"do_sample": True, "temperature": sampling.temperature, "top_p": 1.0, "top_k": 0}
    config = GenerationConfig(
        max_new_tokens=sampling.max_new_tokens,
        num_return_sequences=sampling.samples,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=_end_tokens(model, tokenizer),
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
    prompt_length = inputs["input_ids"].shape[1]
    return _decode(processor, generated[:, prompt_length:].tolist(), _end_tokens(model, tokenizer), sampling)


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
            top_p=1.0,
            top_k=-1,
            max_tokens=sampling.max_new_tokens,
            stop_token_ids=end_tokens,
            logit_bias=dict.fromkeys(_forbidden_tokens(model), NEVER) or None,
            detokenize=False,
            seed=int(image_seed),
        )
        for image_seed in np.random.SeedSequence(seed).generate_state(len(rows), np.uint32)
    ]
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
    """The tokens that end an answer."""
    tokens = getattr(model.generation_config, "eos_token_id", None) or tokenizer.eos_token_id
    return list(tokens) if isinstance(tokens, list | tuple) else [tokens]


def _forbidden_tokens(model: Any) -> list[int]:
    """The tokens that must not be generated: an image token would have no image. TRL forbids it too."""
    image_token = getattr(model.config, "image_token_id", None)
    return [] if image_token is None else [image_token]


def _decode(
    processor: Any, answers: Iterable[Sequence[int]], end_tokens: Collection[int], sampling: Sampling
) -> Generated:
    """Turn the tokens of answers into texts, up to the first end token; also return the number of these tokens."""
    ids = [list(takewhile(lambda token: token not in end_tokens, answer)) for answer in answers]
    texts = processor.batch_decode(ids, skip_special_tokens=sampling.skip_special_tokens)
    return texts, sum(map(len, ids))


def reads_special_tokens(dataset: Any, reward: GroundingReward, tokenizer: Any) -> bool:
    """Whether special tokens carry boxes or mark thinking, so that decoding must not skip them.

    Args:
        dataset: with the column `box_format` if the reward has no box format.
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
    """Split `count` rows into batches of at most `batch_size` answers: the number of each batch, and its rows."""
    size = max(1, batch_size // sampling.samples)
    batches = [range(start, min(start + size, count)) for start in range(0, count, size)]
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
    """Yield the rows and the answers of each batch, one batch after another."""
    ask = generate_with_vllm if isinstance(model, VllmModel) else generate_batch
    images = tokens = 0
    total = sum(len(batch) for _, batch in batches)
    for number, batch in batches:
        # From the number of the batch alone: a continued run gives the same answers.
        batch_seed = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint32)[0])
        texts, batch_tokens = ask(model, processor, [dataset[row] for row in batch], sampling, seed=batch_seed)
        yield batch, texts
        images += len(batch)
        tokens += batch_tokens
        if on_progress is not None:
            on_progress(images, total, tokens)


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
        settings |= {"max_model_len": model.vllm_options.max_model_len, "dtype": model.vllm_options.dtype}
    if sampling.temperature > 0:
        # Greedy answers do not depend on these.
        settings |= {"seed": seed, "batch_size": batch_size}
    limit = image_pixel_limit(processor)
    if limit is not None:
        settings["max_image_pixels"] = limit
    return settings


class AnswerFile:
    """The file of answers, its parts, and the settings next to them.

    The key of an answer is the id of its image and the number of the sample.

    Args:
        path: of the file.
        ids: of the images, in the order of the dataset.
        samples: answers to each image.
    """

    def __init__(self, path: Path, ids: Sequence[str], samples: int) -> None:
        if path.suffix != ".jsonl":
            raise ValueError(f"Expected a file that ends in .jsonl for `path`, got {str(path)!r}. Rename it.")
        self.path, self.ids, self.samples = path, ids, samples
        self.settings_path = path.with_suffix(".settings.json")

    def keys_of(self, rows: Iterable[int]) -> list[_Key]:
        """The keys of all answers to these rows, by their numbers."""
        return [(self.ids[row], sample) for row in rows for sample in range(self.samples)]

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse to continue existing answers that were generated with other settings, or unknown ones."""
        if not self.settings_path.is_file():
            files = self.files()
            if files:
                raise ValueError(
                    f"Expected {str(self.settings_path)!r} beside {str(files[0])!r}, got none. Give another path, or "
                    "overwrite it: without its settings the file is not one to go on with."
                )
            return
        try:
            earlier_settings = json.loads(self.settings_path.read_text(encoding="utf-8"))
        except ValueError:
            earlier_settings = {}
        remedy = "Give the same again, or another path, or overwrite the answers that are there."
        check_settings(self.path, earlier_settings, settings, remedy, digests=("model", "dataset"))

    def drop(self) -> None:
        """Remove the answers and their settings."""
        for path in [*self.files(), self.settings_path]:
            path.unlink(missing_ok=True)

    def read(self) -> dict[_Key, str]:
        """The complete lines of the file and its parts, by the key of their answer."""
        lines = {}
        for path in self.files():
            with path.open(encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, 1):
                    # A line without a newline was cut off when the process was killed.
                    if line.endswith("\n"):
                        lines[_key_of(line, number, path)] = line
        return lines

    @contextmanager
    def part(self, process: int) -> Iterator[TextIO]:
        """Open the part of one process for appending, after removing a last line that was cut off."""
        path = self.path.with_suffix(f".part-{process}.jsonl")
        with path.open("ab+") as file:
            file.seek(0)
            whole_bytes = sum(len(line) for line in file if line.endswith(b"\n"))
            file.truncate(whole_bytes)
        with path.open("a", encoding="utf-8", newline="\n") as text_file:
            yield text_file

    def merge(self) -> None:
        """Write all answers in the order of the dataset, and remove the parts."""
        lines = self.read()
        keys = self.keys_of(range(len(self.ids)))
        missing = [key for key in keys if key not in lines]
        if missing:
            raise ValueError(
                f"Expected the parts of all processes in {str(self.path.parent)!r}, got no answer for image "
                f"{missing[0][0]!r}. Several machines need one folder that all of them see."
            )
        write_whole(self.path, "".join(lines[key] for key in keys))
        for part in self.parts():
            part.unlink()

    def parts(self) -> list[Path]:
        """The parts of all processes."""
        return sorted(self.path.parent.glob(f"{escape(self.path.stem)}.part-*.jsonl"))

    def files(self) -> list[Path]:
        """The file, if it is there, and the parts."""
        return [path for path in (self.path, *self.parts()) if path.is_file()]


def _key_of(line: str, number: int, path: Path) -> _Key:
    """The key of the answer in a line; the number and the path are for the error."""
    try:
        row = json.loads(line)
        return str(row["id"]), int(row["sample"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"Expected an answer in line {number} of {str(path)!r}, got {line[:80]!r}. Delete that line and go on."
        ) from None


def _image_ids(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The id of each row, else its number from 0; refuse an id that two rows share."""
    ids = [str(row.get("id", number)) for number, row in enumerate(rows)]
    first_rows: dict[str, int] = {}
    for number, name in enumerate(ids):
        if first_rows.setdefault(name, number) != number:
            raise ValueError(
                f"Expected a different `id` in every row, got {name!r} in rows {first_rows[name]} and {number}. "
                "Answers are kept by it: add what tells the rows apart."
            )
    return ids
