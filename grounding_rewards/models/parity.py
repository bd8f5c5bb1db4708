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
        # training computes them. `alone` has their log-probabilities in the order of the rows.
        alone: list[NDArray[np.float64]] = []
        for row, tokens in zip(rows, ids, strict=True):
            logps_of_row, _ = _generate_forced(trainer, [row], [tokens])
            alone += logps_of_row.values()
        try:
            in_batch, collated = _generate_forced(trainer, rows, ids)
            whole_tokens, whole_mask, training_logps = _training_logps(trainer, collated)
            in_training = _by_tokens(whole_tokens, whole_mask, training_logps, collated["completion_mask"])
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
        # One array for each answer. `in_batch` has them in the order of `alone`; its keys find those in training.
        differences = [np.abs(alone_logps - logps[key]) for alone_logps, key in zip(alone, in_batch, strict=True)]
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
    """Select the rows with the smallest, a middle and the largest image; return them, and an answer to each.

    The answers differ, so that one is not taken for another. Where there are only one or two, so are the rows.

    Args:
        dataset: of the training.
        box_format: how the model writes boxes; None takes the column `box_format`.
    """
    # By answer the area of the image and the number of the row, for the first row with this answer.
    areas: dict[str, int] = {}
    numbers: dict[str, int] = {}
    # So many rows are enough to find images of different sizes; only headers of images are read.
    first_rows = dataset.select(range(min(500, dataset.num_rows)))
    for number, row in enumerate(rows_with_sizes(first_rows)):
        # A row without an image has nothing to check.
        if "image" in dataset.column_names and row["image_size"] is None:
            continue
        # A dataset with a column `images` may have the size in columns; 0 where no size is known.
        width, height = row.get("image_size") or (row.get("width") or 0, row.get("height") or 0)
        row_format = box_format or row.get("box_format")
        # Any words would do as an answer. A right one is likely, so that rounding matters least.
        answer = f"{width} x {height}"
        if row_format is not None and row.get("boxes") is not None:
            answer = gold_answer(row, row_format)
        areas.setdefault(answer, width * height)
        numbers.setdefault(answer, number)
    answers_by_area = sorted(areas, key=lambda answer: areas[answer])
    middle = answers_by_area[len(answers_by_area) // 2]
    # Each once: of fewer than three answers, the middle one is also the smallest or the largest.
    answers = list(dict.fromkeys([answers_by_area[0], middle, answers_by_area[-1]]))
    return [dataset[numbers[answer]] for answer in answers], answers


def _check_vllm_parity(trainer: Any, rows: Sequence[Mapping[str, Any]]) -> float:
    """Let vLLM answer, and compare its log-probabilities with those of the training.

    A large difference is an error; a moderate one is warned of.

    Returns:
        The greatest difference, as the mean over the tokens of an answer.
    """
    collated = _roll_out(trainer, rows)
    sampled = collated["sampling_per_token_logps"].double()
    _, _, trained = _training_logps(trainer, collated)
    # Tokens of the answers, without padding, to which vLLM gave a probability.
    has_both = collated["completion_mask"].bool() & ~sampled.isnan()
    differences = []
    for answer, is_compared in zip(trained - sampled, has_both, strict=True):
        # An answer of which no token can be compared counts as 0, so that its mean is not NaN. NaN of the training
        # stays, and `check_rollout` refuses it.
        differences.append(answer[is_compared].abs().mean() if is_compared.any() else answer.new_zeros(()))
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
    pad_token_id = getattr(trainer.processing_class, "tokenizer", trainer.processing_class).pad_token_id
    logps: _LogpsByTokens = {}

    def generate_answers(generation_config: Any = None, **inputs: torch.Tensor) -> torch.Tensor:
        """Generate the given answers token by token, and note the log-probabilities of the tokens.

        TRL calls it in place of the model's `generate`; its configuration, which is about sampling, is not used.
        """
        prompts = inputs["input_ids"]
        answers = _pad(ids, pad_token_id, prompts.device)
        answer_mask = _pad([[1] * len(tokens) for tokens in ids], 0, prompts.device)

        def force(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            """Scores that leave only the next token of the given answer possible: 0 for it, -∞ for the others."""
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
        # Without dropout, whose noise is no sign of other inputs; TRL had the model in training mode.
        trainer.model.eval()
        output = generate(**inputs, generation_config=config, logits_processor=[force])
        trainer.model.train()
        # From the logits before `force` changed them: of the whole vocabulary at each step.
        vocabulary_logps = (torch.stack(output.logits, dim=1).float() / trainer.temperature).log_softmax(-1)
        answer_logps = vocabulary_logps.gather(-1, answers[..., None])[..., 0]
        whole_mask = torch.cat([inputs["attention_mask"], answer_mask], dim=1)
        logps.update(_by_tokens(torch.cat([prompts, answers], dim=1), whole_mask, answer_logps, answer_mask))
        return output.sequences

    model.generate = generate_answers
    try:
        collated = _roll_out(trainer, rows)
    finally:
        # The method of the class shows again.
        del model.generate
        if fsdp_generate is not None:
            model.generate = fsdp_generate
    return logps, collated


def _roll_out(trainer: Any, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Let TRL generate an answer to each row as in the training, and return the batch that it would train on.

    The model is in evaluation mode afterwards.
    """
    probe = _silent_copy(trainer)
    # One answer to each row, all generated at once: an earlier batch that TRL has kept is not used.
    probe.args.steps_per_generation = probe.args.gradient_accumulation_steps = 1
    probe.num_iterations = probe.num_generations = 1
    probe._step, probe._buffered_inputs = 0, None
    # The log-probabilities of a reference model, which are not compared, are not computed; and answers that are cut off
    # are not masked, so that their tokens are compared too.
    probe.beta = 0.0
    probe.mask_truncated_completions = False
    # TRL's own method: that of this package's trainer would check and log the batch too.
    probe._generate_and_score_completions = partial(GRPOTrainer._generate_and_score_completions, probe)
    if not trainer.use_vllm:
        # The model's `generate` has been replaced by one that writes the given answers. It is called only by TRL's own
        # rollout, not by a custom one, and takes no settings of the training. With vLLM the rollout is the trainer's.
        probe.rollout_func = None
        probe._generate_single_turn = partial(GRPOTrainer._generate_single_turn, probe)
        probe.generation_config, probe.generation_kwargs = None, {}
    # No log-probability depends on the rewards: each is 0, for the rows of all processes.
    shape = (len(rows) * trainer.accelerator.num_processes, len(trainer.reward_funcs))
    probe._calculate_rewards = lambda *_: torch.zeros(shape, device=trainer.accelerator.device)
    # In training mode TRL makes the batches that it trains on, else those of an evaluation.
    trainer.model.train()
    batch = probe._prepare_inputs([dict(row) for row in rows])
    # The log-probabilities of the training are computed from the batch without dropout.
    trainer.model.eval()
    return batch


def _silent_copy(trainer: Any) -> Any:
    """A copy of a trainer, with the same model, that leaves no trace in the trainer's settings, metrics and logs."""
    silent = copy.copy(trainer)
    silent.args, silent.state = copy.copy(trainer.args), copy.copy(trainer.state)
    silent.args.report_to = []
    silent._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    silent._pending_extra_logs, silent._pending_metrics = defaultdict(list), defaultdict(list)
    # Copied, not made anew as the others: TRL appends to queues that it has made in it.
    silent._logs = copy.deepcopy(trainer._logs)
    return silent


def _training_logps(trainer: Any, collated: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The tokens of prompts with answers, their mask, and the log-probabilities of the answers by TRL's own method."""
    tokens = torch.cat([collated["prompt_ids"], collated["completion_ids"]], dim=1)
    mask = torch.cat([collated["prompt_mask"], collated["completion_mask"]], dim=1)
    # Each family of models has some of these.
    images = {name: collated[name] for name in FORWARDED if name in collated}
    length = collated["completion_ids"].shape[1]
    logps, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, tokens, mask, logits_to_keep=length, **images)
    return tokens, mask, logps


def _by_tokens(
    tokens: torch.Tensor, whole_mask: torch.Tensor, logps: torch.Tensor, answer_mask: torch.Tensor
) -> _LogpsByTokens:
    """The log-probabilities of the tokens of each answer, without padding; the key is all tokens of prompt and answer.

    By the key an answer is found again in the batch of the training, which TRL shuffles and pads in another way.

    Args:
        tokens: `(answers, length)`, of prompts with answers.
        whole_mask: of the same shape, 0 for padding.
        logps: `(answers, tokens of the longest answer)`.
        answer_mask: of the same shape as `logps`, 0 for padding.
    """
    logps_by_tokens = {}
    for row, is_token, row_logps, is_answer in zip(tokens, whole_mask.bool(), logps, answer_mask.bool(), strict=True):
        key = tuple(row[is_token].tolist())
        logps_by_tokens[key] = row_logps[is_answer].double().cpu().numpy()
    return logps_by_tokens


def _pad(ids: Sequence[Sequence[int]], padding: int, device: torch.device) -> torch.Tensor:
    """Lists of different lengths as the rows of one tensor, padded on the right."""
    rows = [torch.tensor(tokens) for tokens in ids]
    return pad_sequence(rows, batch_first=True, padding_value=padding).to(device)


def compute_dtype(trainer: Any) -> torch.dtype:
    """The type that tells how precisely the model computes while training; a tolerance for rounding depends on it."""
    mixed_types = {"bf16": torch.bfloat16, "fp16": torch.float16}
    # Without mixed precision the model computes in the type of its weights.
    dtype = mixed_types.get(trainer.accelerator.mixed_precision, trainer.model.dtype)
    # On a GPU torch may multiply float32 in TF32, which has as many digits as float16.
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
        for module, is_training in modes:
            # Not `train()`, which would change the modules inside this one too.
            module.training = is_training


def _size_list(sizes: Sequence[tuple[int, int]]) -> str:
    """Sizes in words, each once, such as "64 x 64 and 112 x 168"."""
    words = [f"{width} x {height}" for width, height in dict.fromkeys(sizes)]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _parity_error(sizes: Sequence[tuple[int, int]], got: str) -> ValueError:
    """The error to raise where log-probabilities differ.

    Args:
        sizes: width and height of the images.
        got: the difference, in words.
    """
    return ValueError(
        f"Expected the same log-probabilities of an answer alone, in a batch and in training for images of "
        f'{_size_list(sizes)}, got {got}. The training would learn from noise: give the processor padding_side="left", '
        "update trl and transformers, or give all images one size. `parity_check: false` trains all the same."
    )
