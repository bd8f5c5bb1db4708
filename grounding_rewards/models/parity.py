"""Check that the trainer sees what the model saw, by log-probabilities of the same tokens in generation and training.

Padding that zeroed image tokens (TRL#5785), images that the rollout resized in another way (ms-swift#9668) and image
tokens that were written out twice (TRL#6294) let runs learn from noise in silence. TRL itself builds all inputs here.
With transformers the model is made to generate the right answers; vLLM answers as it will in the training.
"""

import copy
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig
from trl import GRPOTrainer

from grounding_rewards.data.checks import rows_with_sizes
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.grounding import RolloutWarning

# Largest mean difference over the tokens of an answer with transformers. Measured on the shipped model and on two
# layers of each family of scripts/checks/model_families.py: 3e-6 in float32, 9e-4 in float16, 3e-3 in bfloat16; deeper
# models round more often. With the image of one row blackened, or taken for text, the shipped model differs by 0.5 to
# 2.6 in each of them. The largest difference of a single token is a weaker sign: in bfloat16 it is ten times the mean.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
#: Mean difference over the tokens of a step that vLLM sampled, above which there is a warning. Measured by
#: scripts/checks/check_vllm.py on the shipped model: up to 0.002 in float32 (vLLM in float16), up to 0.007 in bfloat16.
VLLM_TOLERANCE = {torch.float32: 0.02, torch.float16: 0.05, torch.bfloat16: 0.05}
#: The same difference, above which the first step is refused: it is 3.6 if tokens of images are written out twice.
MAX_VLLM_DIFFERENCE = 0.5
_CAUSES = (
    "dropout, which vLLM does not have (lora_dropout: 0); top_p, top_k, min_p or repetition_penalty, which change what "
    "is sampled and not what is trained; or a pair of vllm and transformers that was not tested, see "
    "`grounding-rewards env`"
)
# The keys of a collated batch, besides the tokens, that TRL passes to the model.
FORWARDED = (
    *("pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles"),
    *("image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids"),
)

# The log-probabilities of the tokens of each answer; its key is all tokens of prompt and answer.
_LogpsByTokens = dict[tuple[int, ...], NDArray[np.float64]]


def check_parity(trainer: Any, dataset: Any, box_format: str | Mapping[str, Any] | BoxFormat | None = None) -> float:
    """Refuse a training whose inputs differ from those of its rollout, by answers to three images.

    They are the smallest, a middle and the largest one. Random state, modes and logs stay as they are. A custom
    `rollout_func` is not checked.

    Args:
        trainer: TRL's `GRPOTrainer`, with transformers or vLLM.
        dataset: rows with the package's columns, as the trainer takes them.
        box_format: how the model writes boxes; None takes the column `box_format`; without it the
            answer is the size of the image.

    Returns:
        The greatest difference of log-probabilities, as the mean over the tokens of an answer.

    Raises:
        ValueError: log-probabilities differ by more than rounding, with vLLM by more than
            :data:`MAX_VLLM_DIFFERENCE`; names the sizes of the images.

    Warns:
        RolloutWarning: those of vLLM differ by more than rounding.
    """
    rows, answers = _select_rows(dataset, box_format)
    images = [row["images"][0] if row.get("image") is None else row["image"] for row in rows]
    sizes = tuple(image.size for image in images)
    with _state_kept(trainer.model), torch.no_grad():
        if trainer.use_vllm:
            return _check_vllm_parity(trainer, rows)
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        ids = tokenizer(answers, add_special_tokens=False)["input_ids"]
        ids = [[*tokens, trainer.eos_token_ids[0]] for tokens in ids]
        # The same answers three times: each generated alone, where nothing is padded; generated in a batch; and as the
        # training computes them.
        alone: list[NDArray[np.float64]] = []
        for row, tokens in zip(rows, ids, strict=True):
            alone += _generate_forced(trainer, [row], [tokens])[0].values()
        try:
            in_batch, collated = _generate_forced(trainer, rows, ids)
            in_training = _by_tokens(*_training_logps(trainer, collated), collated["completion_mask"])
        except torch.OutOfMemoryError:
            # A RuntimeError too, but no fault of the inputs.
            raise
        except (IndexError, RuntimeError, ValueError) as error:
            raise _parity_error(sizes, f"{type(error).__name__}: {' '.join(str(error).split()):.200}") from error
    if in_batch.keys() != in_training.keys():
        raise _parity_error(sizes, "other tokens in training than in the rollout")
    tolerance = _TOLERANCE[compute_dtype(trainer)]
    max_difference = 0.0
    for place, logps in (("in a batch", in_batch), ("in training", in_training)):
        # One array for each answer; `alone` and `in_batch` have the answers in the same order.
        differences = [np.abs(answer - logps[tokens]) for answer, tokens in zip(alone, in_batch, strict=True)]
        means = [difference.mean() for difference in differences]
        worst = int(np.argmax(means))
        # Written so that NaN is refused too.
        if not means[worst] <= tolerance:
            raise _parity_error(
                sizes,
                f"a difference of {means[worst]:.2g} a token and {differences[worst].max():.2g} at most {place} for "
                f"the image of {_size_list([sizes[worst]])}, where rounding explains {tolerance:g}",
            )
        max_difference = max(max_difference, float(means[worst]))
    return max_difference


def check_rollout(trainer: Any, difference: float, *, refuse: bool) -> str | None:
    """Judge the difference between the probabilities of sampled tokens in vLLM and in training.

    Args:
        trainer: TRL's `GRPOTrainer` with vLLM.
        difference: mean over tokens of |log p while training - log p while sampling|.
        refuse: whether a large difference is an error, as before the first step; else it is a warning too.

    Returns:
        A warning with likely causes; None where rounding explains the difference.

    Raises:
        ValueError: with `refuse`, the difference is above :data:`MAX_VLLM_DIFFERENCE`.
    """
    tolerance = VLLM_TOLERANCE[compute_dtype(trainer)]
    if difference <= tolerance:
        return None
    message = (
        f"log-probabilities of sampled tokens that differ by {difference:.2g} a token between vLLM and training, where "
        f"rounding explains {tolerance:g}"
    )
    # Written so that NaN is refused too.
    if refuse and not difference <= MAX_VLLM_DIFFERENCE:
        raise ValueError(
            f"Expected the rollout to be what is trained on, got {message}. The training would learn from noise. "
            f"Likely: {_CAUSES}. Or set use_vllm: false."
        )
    return f"Of this rollout vLLM has {message}: part of the training is noise. Likely: {_CAUSES}."


def _select_rows(dataset: Any, box_format: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Up to three rows, with the smallest, a middle and the largest image, and a different answer to each."""
    # The area of the image and the number of the first row with this answer.
    areas_and_rows: dict[str, tuple[int, int]] = {}
    # Enough to hold images of different sizes; only headers of images are read.
    first_rows = dataset.select(range(min(500, dataset.num_rows)))
    for number, row in enumerate(rows_with_sizes(first_rows)):
        # The row has no image.
        if "image" in dataset.column_names and row["image_size"] is None:
            continue
        width, height = row.get("image_size") or (row.get("width") or 0, row.get("height") or 0)
        row_format = box_format or row.get("box_format")
        # Any words would do. A right answer is likely, so that rounding matters least.
        answer = f"{width} x {height}"
        if row_format is not None and row.get("boxes") is not None:
            answer = gold_answer(row, row_format)
        areas_and_rows.setdefault(answer, (width * height, number))
    answers_by_area = sorted(areas_and_rows, key=lambda answer: areas_and_rows[answer])
    # Of fewer than three answers each is taken once.
    middle = answers_by_area[len(answers_by_area) // 2]
    answers = list(dict.fromkeys([answers_by_area[0], middle, answers_by_area[-1]]))
    return [dataset[areas_and_rows[answer][1]] for answer in answers], answers


def _check_vllm_parity(trainer: Any, rows: Sequence[Mapping[str, Any]]) -> float:
    """Let vLLM answer, and compare its log-probabilities with those of the training.

    A large difference is an error; a moderate one is warned of.

    Returns:
        The greatest difference, as the mean over the tokens of an answer.
    """
    collated = _collate(trainer, rows)
    sampled = collated["sampling_per_token_logps"].double()
    _, _, trained = _training_logps(trainer, collated)
    mask = collated["completion_mask"].bool() & ~sampled.isnan()
    differences = []
    for answer, in_answer in zip(trained - sampled, mask, strict=True):
        # Where vLLM gave no token of an answer a probability there is nothing to compare, which is 0. Any other NaN
        # stays, and `check_rollout` refuses it.
        differences.append(answer[in_answer].abs().mean() if in_answer.any() else answer.new_zeros(()))
    max_difference = float(torch.stack(differences).max())
    warning = check_rollout(trainer, max_difference, refuse=True)
    if warning and trainer.accelerator.is_main_process:
        warnings.warn(warning, RolloutWarning, stacklevel=3)
    return max_difference


def _generate_forced(
    trainer: Any, rows: Sequence[Mapping[str, Any]], ids: Sequence[Sequence[int]]
) -> tuple[_LogpsByTokens, dict[str, Any]]:
    """Let TRL generate and collate a batch while the model is made to write the given answers.

    Args:
        trainer: TRL's `GRPOTrainer`.
        rows: of the batch.
        ids: the tokens of the answer to each row, with the token that ends it.

    Returns:
        The log-probabilities of the answers while they were generated, and the batch that TRL would train on.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    generate = model.generate
    # FSDP2 sets a method on the object itself, which has to be there again afterwards.
    fsdp_generate = vars(model).get("generate")
    logps: _LogpsByTokens = {}

    def generate_answers(generation_config: Any = None, **inputs: torch.Tensor) -> torch.Tensor:
        """Generate the given answers token by token, and note the log probabilities of the tokens."""
        prompts = inputs["input_ids"]
        answers = _pad(ids, pad_token_id, prompts.device)
        mask = _pad([[1] * len(tokens) for tokens in ids], 0, prompts.device)

        def force(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            """Scores that leave only the next token of the given answer possible."""
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
        # Without dropout, whose noise is no sign of other inputs.
        trainer.model.eval()
        output = generate(**inputs, generation_config=config, logits_processor=[force])
        trainer.model.train()
        # Of the whole vocabulary at each step.
        vocabulary_logps = (torch.stack(output.logits, dim=1).float() / trainer.temperature).log_softmax(-1)
        answer_logps = vocabulary_logps.gather(-1, answers[..., None])[..., 0]
        whole_mask = torch.cat([inputs["attention_mask"], mask], dim=1)
        logps.update(_by_tokens(torch.cat([prompts, answers], dim=1), whole_mask, answer_logps, mask))
        return output.sequences

    pad_token_id = getattr(trainer.processing_class, "tokenizer", trainer.processing_class).pad_token_id
    model.generate = generate_answers
    try:
        collated = _collate(trainer, rows)
    finally:
        del model.generate
        if fsdp_generate is not None:
            model.generate = fsdp_generate
    return logps, collated


def _collate(trainer: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The batch that TRL trains on for these rows, answers included; leaves the model in evaluation mode."""
    # A copy, so that nothing is logged, counted or kept.
    probe = copy.copy(trainer)
    probe.args = copy.copy(trainer.args)
    probe.state = copy.copy(trainer.state)
    # One answer to each row, generated at once and anew.
    probe.args.steps_per_generation = probe.args.gradient_accumulation_steps = 1
    probe.num_iterations = probe.num_generations = 1
    probe.args.report_to = []
    probe._step = 0
    probe._buffered_inputs = None
    # Without the log-probabilities of a reference model, and with the tokens of answers that are cut off.
    probe.beta = 0.0
    probe.mask_truncated_completions = False
    # TRL's own method: those of our trainer would check and log the batch.
    probe._generate_and_score_completions = partial(GRPOTrainer._generate_and_score_completions, probe)
    if not trainer.use_vllm:
        # Without a custom rollout, which may write answers by itself.
        probe.rollout_func = None
        probe._generate_single_turn = partial(GRPOTrainer._generate_single_turn, probe)
        probe.generation_config = None
        probe.generation_kwargs = {}
    probe._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    probe._logs = copy.deepcopy(trainer._logs)
    probe._pending_extra_logs = defaultdict(list)
    probe._pending_metrics = defaultdict(list)
    # Rewards do not matter here.
    shape = (len(rows) * trainer.accelerator.num_processes, len(trainer.reward_funcs))
    probe._calculate_rewards = lambda *_: torch.zeros(shape, device=trainer.accelerator.device)
    trainer.model.train()
    collated = probe._prepare_inputs([dict(row) for row in rows])
    trainer.model.eval()
    return collated


def _training_logps(trainer: Any, collated: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The tokens of prompts with answers, their mask, and the log-probabilities of the answers by TRL's own method."""
    tokens = torch.cat([collated["prompt_ids"], collated["completion_ids"]], dim=1)
    mask = torch.cat([collated["prompt_mask"], collated["completion_mask"]], dim=1)
    images = {name: collated[name] for name in FORWARDED if name in collated}
    length = collated["completion_ids"].shape[1]
    logps, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, tokens, mask, logits_to_keep=length, **images)
    return tokens, mask, logps


def _by_tokens(
    tokens: torch.Tensor, whole_mask: torch.Tensor, logps: torch.Tensor, answer_mask: torch.Tensor
) -> _LogpsByTokens:
    """The log-probabilities of each answer by its tokens, without padding.

    Args:
        tokens: `(answers, length)`, of prompts with answers.
        whole_mask: of the same shape, 0 for padding.
        logps: `(answers, tokens of the longest answer)`.
        answer_mask: of the same shape, 0 for padding.
    """
    logps_by_tokens = {}
    for row, row_mask, values, value_mask in zip(tokens, whole_mask, logps, answer_mask, strict=True):
        key = tuple(row[row_mask.bool()].tolist())
        logps_by_tokens[key] = values[value_mask.bool()].double().cpu().numpy()
    return logps_by_tokens


def _pad(ids: Sequence[Sequence[int]], padding: int, device: torch.device) -> torch.Tensor:
    """Lists of different lengths as the rows of one tensor, padded on the right."""
    rows = [torch.tensor(tokens) for tokens in ids]
    return pad_sequence(rows, batch_first=True, padding_value=padding).to(device)


def compute_dtype(trainer: Any) -> torch.dtype:
    """The type whose precision the model has while training: float16 for float32 computed in TF32."""
    mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}
    dtype = mixed.get(trainer.accelerator.mixed_precision, trainer.model.dtype)
    # TF32 has as many digits as float16.
    uses_tf32 = trainer.accelerator.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
    return torch.float16 if dtype == torch.float32 and uses_tf32 else dtype


@contextmanager
def _state_kept(model: Any) -> Iterator[None]:
    """A context after which random states and the modes of the model's modules are as they were before."""
    modes = [(module, module.training) for module in model.modules()]
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    cuda_devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=cuda_devices):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for module, training in modes:
            module.training = training


def _size_list(sizes: Sequence[tuple[int, int]]) -> str:
    """Sizes in words, each once, such as "64 x 64 and 112 x 168"."""
    words = [f"{width} x {height}" for width, height in dict.fromkeys(sizes)]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _parity_error(sizes: Sequence[tuple[int, int]], got: str) -> ValueError:
    """The error to raise for a difference, in words, on images of these sizes."""
    return ValueError(
        f"Expected the same log-probabilities of an answer alone, in a batch and in training for images of "
        f'{_size_list(sizes)}, got {got}. The training would learn from noise: give the processor padding_side="left", '
        "update trl and transformers, or give all images one size. `parity_check: false` trains all the same."
    )
