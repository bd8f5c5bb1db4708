"""Does the trainer see what the model saw? The log-probability of an answer alone, among others, and in training.

Padding that zeroed image tokens (TRL#5785) and images that the rollout resized in another way (ms-swift#9668) let runs
learn from noise in silence. TRL itself builds all inputs here; in place of what the model would generate stands the
right answer.
"""

from __future__ import annotations

import copy
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOConfig, GRPOTrainer

from grounding_rewards.data.checks import rows_with_sizes
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.parsing import BoxFormat

# Mean differences of the tokens of an answer. Measured on the shipped model and on two layers of each family of
# scripts/model_families.py: 3e-6 in float32, 9e-4 in float16, 3e-3 in bfloat16; deeper models round more often. With
# the image of one row blackened, or taken for text, the shipped model is off by 0.5 to 2.6 in each of them. The largest
# difference of a token tells less: in bfloat16 one unlikely token is off by ten times the mean.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
# What TRL hands from a collated batch to the model beside the tokens.
FORWARDED = (
    *("pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles"),
    *("image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids"),
)
# Among so many rows the images of different sizes are looked for; that opens no image.
_LOOKED_AT = 500

# The log-probabilities of the tokens of an answer, by all tokens from the prompt to its end.
_Read = dict[tuple[int, ...], NDArray[np.float64]]


class Parity(NamedTuple):
    """How far log-probabilities of the same answers to the same images lie apart.

    Attributes:
        sizes: width and height of each image.
        in_batch: between an answer alone and among the others, as it is generated: mean of its tokens, the largest.
        in_training: the same between an answer alone as it is generated, and as the trainer collates it.
    """

    sizes: tuple[tuple[int, int], ...]
    in_batch: float
    in_training: float

    def sentence(self) -> str:
        """What was found.

        Example:
            >>> print(Parity(((112, 168), (64, 64)), 2e-6, 3e-6).sentence())
            The trainer sees what the model sees: with images of 112 x 168 and 64 x 64 the log-probabilities of \
answers alone, in a batch and in training differ by 3e-06 a token at most.
        """
        return (
            f"The trainer sees what the model sees: with images of {_listed(self.sizes)} the log-probabilities of "
            "answers alone, in a batch and in training differ by "
            f"{max(self.in_batch, self.in_training):.1g} a token at most."
        )


def check_parity(trainer: Any, dataset: Any, box_format: str | Mapping[str, Any] | BoxFormat | None = None) -> Parity:
    """Refuse a training whose inputs are not those of its rollout: by the right answers to three images.

    They are the smallest, a middle and the largest one. Random state, modes and logs stay as they are. What vLLM or a
    rollout of one's own makes of an image is not seen: the rollout is TRL's with transformers.

    Args:
        trainer: TRL's `GRPOTrainer`.
        dataset: rows with the package's columns, as the trainer takes them.
        box_format: how the model writes boxes; None takes the column `box_format`; without it the
            answer is the size of the image.

    Returns:
        The largest differences.

    Raises:
        ValueError: log-probabilities differ by more than rounding; names the sizes of the images.
    """
    rows, answers = _few_rows(dataset, box_format)
    sizes = tuple(_image(row).size for row in rows)
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    ids = [[*one, trainer.eos_token_ids[0]] for one in tokenizer(answers, add_special_tokens=False)["input_ids"]]
    with _left_alone(trainer.model), torch.no_grad():
        alone: list[NDArray[np.float64]] = []
        for row, one in zip(rows, ids, strict=True):
            (read,) = _rollout(trainer, _inputs(trainer, [row], [one])[0], [one]).values()
            alone.append(read)
        try:
            seen, collated = _inputs(trainer, rows, ids)
            batch = _rollout(trainer, seen, ids)
            trained = _trained(trainer, collated)
        except torch.OutOfMemoryError:
            raise
        except (IndexError, RuntimeError, ValueError) as error:
            raise _differs(sizes, f"{type(error).__name__}: {' '.join(str(error).split()):.200}") from error
    if batch.keys() != trained.keys():
        raise _differs(sizes, "other tokens in training than in the rollout")
    tolerance = _TOLERANCE[_precision(trainer)]
    found = []
    for where, way in (("in a batch", batch), ("in training", trained)):
        apart = [np.abs(one - way[tokens]) for one, tokens in zip(alone, batch, strict=True)]
        means = [one.mean() for one in apart]
        worst = int(np.argmax(means))
        if not means[worst] <= tolerance:
            raise _differs(
                sizes,
                f"a difference of {means[worst]:.2g} a token and {apart[worst].max():.2g} at most {where} for the "
                f"image of {_listed([sizes[worst]])}, where rounding explains {tolerance:g}",
            )
        found.append(float(means[worst]))
    return Parity(sizes, *found)


def parity_of_model(
    model: Any, processor: Any, dataset: Any, box_format: str | Mapping[str, Any] | BoxFormat | None = None
) -> Parity:
    """The same for a model that no trainer has yet: with TRL's own, which takes no step.

    Args:
        model: a transformers vision-language model.
        processor: its processor.
        dataset: as for :func:`check_parity`.
        box_format: likewise.

    Raises:
        ValueError: as :func:`check_parity`.
    """
    # As TRL loads it.
    processor = copy.deepcopy(processor)
    getattr(processor, "tokenizer", processor).padding_side = "left"
    with tempfile.TemporaryDirectory() as folder, _left_alone(model):
        config = GRPOConfig(
            folder,
            per_device_train_batch_size=2,
            num_generations=2,
            report_to="none",
            use_cpu=model.device.type == "cpu",
            bf16=False,
            gradient_checkpointing=False,
        )
        trainer = GRPOTrainer(
            model, lambda completions, **_: [0.0] * len(completions), config, dataset, processing_class=processor
        )
        return check_parity(trainer, dataset, box_format)


def _few_rows(dataset: Any, box_format: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows with small, middle and large images, and different answers, by which they are known again in a batch."""
    by_answer: dict[str, tuple[int, int]] = {}
    first = dataset.select(range(min(_LOOKED_AT, dataset.num_rows)))
    for number, row in enumerate(rows_with_sizes(first)):
        if "image" in dataset.column_names and row["image_size"] is None:
            continue
        width, height = row.get("image_size") or (row.get("width") or 0, row.get("height") or 0)
        known = box_format or row.get("box_format")
        # Any words would do; right ones are likely, so that rounding matters least.
        answer = f"{width} x {height}"
        if known is not None and row.get("boxes") is not None:
            answer = gold_answer(row, known)
        by_answer.setdefault(answer, (width * height, number))
    order = sorted(by_answer, key=lambda answer: by_answer[answer])
    answers = list(dict.fromkeys(order[k] for k in (0, len(order) // 2, -1)))
    return [dataset[by_answer[answer][1]] for answer in answers], answers


def _inputs(
    trainer: Any, rows: Sequence[Mapping[str, Any]], ids: Sequence[Sequence[int]]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What TRL gives the model to answer these rows, and what it trains on if the model answers with these tokens."""
    seen: dict[str, torch.Tensor] = {}

    def answer(generation_config: Any = None, **inputs: torch.Tensor) -> torch.Tensor:
        seen.update(inputs)
        return torch.cat([inputs["input_ids"], _padded(ids, one.processing_class, inputs["input_ids"].device)], dim=1)

    # A copy, so that nothing is logged, counted or kept.
    one = copy.copy(trainer)
    one.args, one.state = copy.copy(trainer.args), copy.copy(trainer.state)
    one.args.steps_per_generation = one.args.gradient_accumulation_steps = one.num_iterations = one.num_generations = 1
    one.args.report_to = []
    one._step, one._buffered_inputs, one.beta, one.mask_truncated_completions = 0, None, 0.0, False
    one.use_vllm = one.use_transformers_continuous_batching = False
    one.generation_config, one.generation_kwargs = None, {}
    # Without a rollout of one's own, which may write answers by itself.
    one.rollout_func, one._generate_single_turn = None, partial(GRPOTrainer._generate_single_turn, one)
    one._metrics, one._logs = {mode: defaultdict(list) for mode in ("train", "eval")}, copy.deepcopy(trainer._logs)
    one._pending_extra_logs, one._pending_metrics = defaultdict(list), defaultdict(list)
    count = len(rows) * trainer.accelerator.num_processes, len(trainer.reward_funcs)
    one._calculate_rewards = lambda *_: torch.zeros(count, device=trainer.accelerator.device)
    trainer.model.train()
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.generate = answer
    try:
        collated = one._prepare_inputs([dict(row) for row in rows])
    finally:
        del model.generate
    trainer.model.eval()
    return seen, collated


def _rollout(trainer: Any, seen: Mapping[str, torch.Tensor], ids: Sequence[Sequence[int]]) -> _Read:
    """Answers after the prompts that the model was given."""
    prompts = seen["input_ids"]
    answers = _padded(ids, trainer.processing_class, prompts.device)
    mask = _padded([[1] * len(one) for one in ids], None, prompts.device)
    inputs = {
        # Fields of one value per token go on over the answer, where there are no images.
        name: torch.cat([value, torch.zeros_like(answers)], dim=1) if value.shape == prompts.shape else value
        for name, value in seen.items()
    }
    inputs["input_ids"] = torch.cat([prompts, answers], dim=1)
    inputs["attention_mask"] = torch.cat([seen["attention_mask"], mask], dim=1)
    with trainer.accelerator.autocast():
        logits = trainer.model(**inputs, logits_to_keep=answers.shape[1] + 1).logits
    logps = (logits[:, -answers.shape[1] - 1 : -1].float() / trainer.temperature).log_softmax(-1)
    return _by_tokens(inputs, mask, logps.gather(-1, answers[..., None])[..., 0])


def _trained(trainer: Any, collated: Mapping[str, Any]) -> _Read:
    """The same by TRL's own method, on what it has collated."""
    inputs = {
        "input_ids": torch.cat([collated["prompt_ids"], collated["completion_ids"]], dim=1),
        "attention_mask": torch.cat([collated["prompt_mask"], collated["completion_mask"]], dim=1),
    }
    images = {name: collated[name] for name in FORWARDED if name in collated}
    mask = collated["completion_mask"]
    found = trainer._get_per_token_logps_and_entropies(trainer.model, **inputs, logits_to_keep=mask.shape[1], **images)
    return _by_tokens(inputs, mask, found[0])


def _by_tokens(inputs: Mapping[str, torch.Tensor], mask: torch.Tensor, logps: torch.Tensor) -> _Read:
    return {
        tuple(tokens[told.bool()].tolist()): values[answered.bool()].double().cpu().numpy()
        for tokens, told, values, answered in zip(
            inputs["input_ids"], inputs["attention_mask"], logps, mask, strict=True
        )
    }


def _padded(ids: Sequence[Sequence[int]], processor: Any, device: torch.device) -> torch.Tensor:
    """One row for each; filled up with the padding of a processor, or with 0."""
    padding = 0 if processor is None else getattr(processor, "tokenizer", processor).pad_token_id
    return pad_sequence([torch.tensor(one) for one in ids], batch_first=True, padding_value=padding).to(device)


def _precision(trainer: Any) -> torch.dtype:
    """In what the model computes."""
    mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}
    found = mixed.get(trainer.accelerator.mixed_precision, trainer.model.dtype)
    # TF32 has as many digits as float16.
    fast = trainer.accelerator.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
    return torch.float16 if found == torch.float32 and fast else found


@contextmanager
def _left_alone(model: Any) -> Iterator[None]:
    """Random states and modes afterwards as they were before."""
    modes = [(part, part.training) for part in model.modules()]
    own, numpys = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
            yield
    finally:
        random.setstate(own)
        np.random.set_state(numpys)
        for part, training in modes:
            part.training = training


def _image(row: Mapping[str, Any]) -> Any:
    return row["image"] if row.get("image") is not None else row["images"][0]


def _listed(sizes: Sequence[tuple[int, int]]) -> str:
    *most, last = [f"{width} x {height}" for width, height in dict.fromkeys(sizes)]
    return f"{', '.join(most)} and {last}" if most else last


def _differs(sizes: Sequence[tuple[int, int]], got: str) -> ValueError:
    return ValueError(
        f"Expected the same log-probabilities of an answer alone, in a batch and in training for images of "
        f'{_listed(sizes)}, got {got}. The training would learn from noise: give the processor padding_side="left", '
        "update trl and transformers, or give all images one size. `parity_check: false` trains all the same."
    )
