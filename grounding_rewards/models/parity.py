"""Does the trainer see what the model saw? Log-probabilities of the same tokens, while generating and while training.

Padding that zeroed image tokens (TRL#5785), images that the rollout resized in another way (ms-swift#9668) and image
tokens that were written out twice (TRL#6294) let runs learn from noise in silence. TRL itself builds all inputs here.
With transformers the model is made to generate the right answers; vLLM answers as it will in the training.
"""

from __future__ import annotations

import copy
import random
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig
from trl import GRPOConfig, GRPOTrainer

from grounding_rewards.data.checks import rows_with_sizes
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.grounding import RolloutWarning

# Mean differences of the tokens of an answer, with transformers. Measured on the shipped model and on two layers of
# each family of scripts/checks/model_families.py: 3e-6 in float32, 9e-4 in float16, 3e-3 in bfloat16; deeper models
# round more often. With the image of one row blackened, or taken for text, the shipped model is off by 0.5 to
# 2.6 in each of them. The largest difference of a token tells less: in bfloat16 one is off by ten times the mean.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
#: Mean differences of the tokens of a step that vLLM has sampled, above which there is a warning. Measured by
#: scripts/checks/check_vllm.py on the shipped model: up to 0.002 in float32 (vLLM in float16), up to 0.007 in bfloat16.
VLLM_TOLERANCE = {torch.float32: 0.02, torch.float16: 0.05, torch.bfloat16: 0.05}
#: The same, above which the first step is refused: with the tokens of images written out twice it is 3.6 there.
MAX_VLLM_DIFFERENCE = 0.5
_CAUSES = (
    "dropout, which vLLM does not have (lora_dropout: 0); top_p, top_k, min_p or repetition_penalty, which change what "
    "is sampled and not what is trained; or a pair of vllm and transformers that was not tested, see "
    "`grounding-rewards env`"
)
# The parts of a collated batch, besides the tokens, that TRL passes to the model.
FORWARDED = (
    *("pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles"),
    *("image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids"),
)
# Rows among which images of different sizes are searched; no image is opened for it.
_SEARCHED_ROWS = 500

# The log-probabilities of the tokens of an answer, by all tokens from the prompt to its end.
_LogpsByTokens = dict[tuple[int, ...], NDArray[np.float64]]


class Parity(NamedTuple):
    """The difference of log-probabilities of the same answers to the same images.

    Attributes:
        sizes: width and height of each image.
        difference: the greatest mean over the tokens of an answer.
    """

    sizes: tuple[tuple[int, int], ...]
    difference: float

    def sentence(self) -> str:
        """The result in words.

        Example:
            >>> print(Parity(((112, 168), (64, 64)), 3e-6).sentence())
            The trainer sees what the model sees: with images of 112 x 168 and 64 x 64 the log-probabilities of \
answers while generating and while training differ by 3e-06 a token at most.
        """
        return (
            f"The trainer sees what the model sees: with images of {_size_list(self.sizes)} the log-probabilities of "
            f"answers while generating and while training differ by {self.difference:.1g} a token at most."
        )


def check_parity(trainer: Any, dataset: Any, box_format: str | Mapping[str, Any] | BoxFormat | None = None) -> Parity:
    """Refuse a training whose inputs are not those of its rollout: by answers to three images.

    They are the smallest, a middle and the largest one. Random state, modes and logs stay as they are. A rollout of
    one's own (`rollout_func`) is not seen.

    Args:
        trainer: TRL's `GRPOTrainer`, with transformers or vLLM.
        dataset: rows with the package's columns, as the trainer takes them.
        box_format: how the model writes boxes; None takes the column `box_format`; without it the
            answer is the size of the image.

    Returns:
        The largest difference.

    Raises:
        ValueError: log-probabilities differ by more than rounding, with vLLM by more than
            :data:`MAX_VLLM_DIFFERENCE`; names the sizes of the images.

    Warns:
        RolloutWarning: those of vLLM differ by more than rounding.
    """
    rows, answers = _select_rows(dataset, box_format)
    sizes = tuple((row["images"][0] if row.get("image") is None else row["image"]).size for row in rows)
    with _state_kept(trainer.model), torch.no_grad():
        if trainer.use_vllm:
            return _check_vllm_parity(trainer, rows, sizes)
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        ids = [
            [*tokens, trainer.eos_token_ids[0]] for tokens in tokenizer(answers, add_special_tokens=False)["input_ids"]
        ]
        alone: list[NDArray[np.float64]] = []
        for row, tokens in zip(rows, ids, strict=True):
            alone += _generate_forced(trainer, [row], [tokens])[0].values()
        try:
            in_batch, collated = _generate_forced(trainer, rows, ids)
            in_training = _by_tokens(*_training_logps(trainer, collated), collated["completion_mask"])
        except torch.OutOfMemoryError:
            raise
        except (IndexError, RuntimeError, ValueError) as error:
            raise _parity_error(sizes, f"{type(error).__name__}: {' '.join(str(error).split()):.200}") from error
    if in_batch.keys() != in_training.keys():
        raise _parity_error(sizes, "other tokens in training than in the rollout")
    tolerance = _TOLERANCE[compute_dtype(trainer)]
    max_difference = 0.0
    for place, logps in (("in a batch", in_batch), ("in training", in_training)):
        differences = [np.abs(answer - logps[tokens]) for answer, tokens in zip(alone, in_batch, strict=True)]
        means = [difference.mean() for difference in differences]
        worst = int(np.argmax(means))
        if not means[worst] <= tolerance:
            raise _parity_error(
                sizes,
                f"a difference of {means[worst]:.2g} a token and {differences[worst].max():.2g} at most {place} for "
                f"the image of {_size_list([sizes[worst]])}, where rounding explains {tolerance:g}",
            )
        max_difference = max(max_difference, float(means[worst]))
    return Parity(sizes, max_difference)


def check_rollout(trainer: Any, difference: float, *, refuse: bool) -> str | None:
    """Judge how far the probabilities of sampled tokens lie apart, in vLLM and while training.

    Args:
        trainer: TRL's `GRPOTrainer` with vLLM.
        difference: mean over tokens of |log p while training - log p while sampling|.
        refuse: whether noise is an error, as it is before a weight has moved.

    Returns:
        A warning with likely causes; None where rounding explains the difference.

    Raises:
        ValueError: the difference is above :data:`MAX_VLLM_DIFFERENCE`.
    """
    tolerance = VLLM_TOLERANCE[compute_dtype(trainer)]
    if difference <= tolerance:
        return None
    message = (
        f"log-probabilities of sampled tokens that differ by {difference:.2g} a token between vLLM and training, where "
        f"rounding explains {tolerance:g}"
    )
    if refuse and not difference <= MAX_VLLM_DIFFERENCE:
        raise ValueError(
            f"Expected the rollout to be what is trained on, got {message}. The training would learn from noise. "
            f"Likely: {_CAUSES}. Or set use_vllm: false."
        )
    return f"Of this rollout vLLM has {message}: part of the training is noise. Likely: {_CAUSES}."


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
    with tempfile.TemporaryDirectory() as folder, _state_kept(model):
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


def _select_rows(dataset: Any, box_format: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows with small, middle and large images, and different answers, by which they are known again in a batch."""
    by_answer: dict[str, tuple[int, int]] = {}
    first = dataset.select(range(min(_SEARCHED_ROWS, dataset.num_rows)))
    for number, row in enumerate(rows_with_sizes(first)):
        if "image" in dataset.column_names and row["image_size"] is None:
            continue
        width, height = row.get("image_size") or (row.get("width") or 0, row.get("height") or 0)
        row_format = box_format or row.get("box_format")
        # Any words would do; right ones are likely, so that rounding matters least.
        answer = f"{width} x {height}"
        if row_format is not None and row.get("boxes") is not None:
            answer = gold_answer(row, row_format)
        by_answer.setdefault(answer, (width * height, number))
    order = sorted(by_answer, key=lambda answer: by_answer[answer])
    answers = list(dict.fromkeys(order[k] for k in (0, len(order) // 2, -1)))
    return [dataset[by_answer[answer][1]] for answer in answers], answers


def _check_vllm_parity(trainer: Any, rows: Sequence[Mapping[str, Any]], sizes: tuple[tuple[int, int], ...]) -> Parity:
    """Let vLLM answer, and compare the probabilities that it gave with those of the training."""
    collated = _collate(trainer, rows)
    sampled = collated["sampling_per_token_logps"].double()
    _, _, trained = _training_logps(trainer, collated)
    mask = collated["completion_mask"].bool() & ~sampled.isnan()
    differences = [answer[in_answer].abs().mean() for answer, in_answer in zip(trained - sampled, mask, strict=True)]
    max_difference = float(torch.stack(differences).nan_to_num().max())
    warning = check_rollout(trainer, max_difference, refuse=True)
    if warning and trainer.accelerator.is_main_process:
        warnings.warn(warning, RolloutWarning, stacklevel=3)
    return Parity(sizes, max_difference)


def _generate_forced(
    trainer: Any, rows: Sequence[Mapping[str, Any]], ids: Sequence[Sequence[int]]
) -> tuple[_LogpsByTokens, dict[str, Any]]:
    """Make the model generate these tokens, as TRL lets it; their log-probabilities, and what TRL trains on then."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    # FSDP2 has a method of its own here.
    generate, registered = model.generate, vars(model).get("generate")
    logps: _LogpsByTokens = {}

    def generate_answers(generation_config: Any = None, **inputs: torch.Tensor) -> torch.Tensor:
        prompts = inputs["input_ids"]
        answers = _pad(ids, pad_token_id, prompts.device)
        mask = _pad([[1] * len(tokens) for tokens in ids], 0, prompts.device)

        def force(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            step = input_ids.shape[1] - prompts.shape[1]
            return torch.full_like(scores, -torch.inf).scatter(1, answers[:, step : step + 1], 0.0)

        config = GenerationConfig(
            max_new_tokens=answers.shape[1],
            do_sample=False,
            eos_token_id=trainer.eos_token_ids,
            pad_token_id=pad_token_id,
            output_logits=True,
            return_dict_in_generate=True,
            disable_compile=True,
        )
        # Dropout is noise, and no matter of inputs.
        trainer.model.eval()
        output = generate(**inputs, generation_config=config, logits_processor=[force])
        trainer.model.train()
        steps = (torch.stack(output.logits, dim=1).float() / trainer.temperature).log_softmax(-1)
        answer_logps = steps.gather(-1, answers[..., None])[..., 0]
        whole_mask = torch.cat([inputs["attention_mask"], mask], dim=1)
        logps.update(_by_tokens(torch.cat([prompts, answers], dim=1), whole_mask, answer_logps, mask))
        return output.sequences

    pad_token_id = getattr(trainer.processing_class, "tokenizer", trainer.processing_class).pad_token_id
    model.generate = generate_answers
    try:
        collated = _collate(trainer, rows)
    finally:
        del model.generate
        if registered is not None:
            model.generate = registered
    return logps, collated


def _collate(trainer: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The batch that TRL trains on for these rows, answers included; leaves the model in evaluation mode."""
    # A copy, so that nothing is logged, counted or kept.
    probe = copy.copy(trainer)
    probe.args, probe.state = copy.copy(trainer.args), copy.copy(trainer.state)
    probe.args.steps_per_generation = probe.args.gradient_accumulation_steps = 1
    probe.num_iterations = probe.num_generations = 1
    probe.args.report_to = []
    probe._step, probe._buffered_inputs, probe.beta, probe.mask_truncated_completions = 0, None, 0.0, False
    probe._generate_and_score_completions = partial(GRPOTrainer._generate_and_score_completions, probe)
    if not trainer.use_vllm:
        # Without a rollout of one's own, which may write answers by itself.
        probe.rollout_func, probe._generate_single_turn = None, partial(GRPOTrainer._generate_single_turn, probe)
        probe.generation_config, probe.generation_kwargs = None, {}
    probe._metrics, probe._logs = {mode: defaultdict(list) for mode in ("train", "eval")}, copy.deepcopy(trainer._logs)
    probe._pending_extra_logs, probe._pending_metrics = defaultdict(list), defaultdict(list)
    count = len(rows) * trainer.accelerator.num_processes, len(trainer.reward_funcs)
    probe._calculate_rewards = lambda *_: torch.zeros(count, device=trainer.accelerator.device)
    trainer.model.train()
    collated = probe._prepare_inputs([dict(row) for row in rows])
    trainer.model.eval()
    return collated


def _training_logps(trainer: Any, collated: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Prompts with answers, their mask, and the log-probabilities of answers by TRL's own method."""
    tokens = torch.cat([collated["prompt_ids"], collated["completion_ids"]], dim=1)
    mask = torch.cat([collated["prompt_mask"], collated["completion_mask"]], dim=1)
    images = {name: collated[name] for name in FORWARDED if name in collated}
    length = collated["completion_ids"].shape[1]
    logps, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, tokens, mask, logits_to_keep=length, **images)
    return tokens, mask, logps


def _by_tokens(
    tokens: torch.Tensor, whole_mask: torch.Tensor, logps: torch.Tensor, answer_mask: torch.Tensor
) -> _LogpsByTokens:
    return {
        tuple(row[row_mask.bool()].tolist()): values[value_mask.bool()].double().cpu().numpy()
        for row, row_mask, values, value_mask in zip(tokens, whole_mask, logps, answer_mask, strict=True)
    }


def _pad(ids: Sequence[Sequence[int]], padding: int, device: torch.device) -> torch.Tensor:
    rows = [torch.tensor(tokens) for tokens in ids]
    return pad_sequence(rows, batch_first=True, padding_value=padding).to(device)


def compute_dtype(trainer: Any) -> torch.dtype:
    """The type in which the model computes while training, of as many digits as it has in effect."""
    mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = mixed.get(trainer.accelerator.mixed_precision, trainer.model.dtype)
    # TF32 has as many digits as float16.
    fast = trainer.accelerator.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
    return torch.float16 if dtype == torch.float32 and fast else dtype


@contextmanager
def _state_kept(model: Any) -> Iterator[None]:
    """Random states and modes afterwards as they were before."""
    modes = [(part, part.training) for part in model.modules()]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for part, training in modes:
            part.training = training


def _size_list(sizes: Sequence[tuple[int, int]]) -> str:
    words = [f"{width} x {height}" for width, height in dict.fromkeys(sizes)]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _parity_error(sizes: Sequence[tuple[int, int]], got: str) -> ValueError:
    return ValueError(
        f"Expected the same log-probabilities of an answer alone, in a batch and in training for images of "
        f'{_size_list(sizes)}, got {got}. The training would learn from noise: give the processor padding_side="left", '
        "update trl and transformers, or give all images one size. `parity_check: false` trains all the same."
    )
