"""What a model answers to the films of a dataset, read and scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grounding_rewards.data.load import light_rows
from grounding_rewards.data.resize import fit_images
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.answers import read_answers, read_references
from grounding_rewards.parsing import get_box_format
from grounding_rewards.rewards.grounding import GroundingReward

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Decoding:
    """How a model is asked: one greedy answer and ``samples`` sampled ones per film."""

    samples: int = 16
    temperature: float = 1.0
    max_new_tokens: int = 256
    batch_size: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("samples", "max_new_tokens", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"Expected at least 1 for `{name}`, got {getattr(self, name)}. Give a positive whole number."
                )
        if not self.temperature > 0:
            raise ValueError(
                f"Expected a number above 0 for `temperature`, got {self.temperature}. "
                "The greedy answer is always there; this one is for the sampled answers."
            )


def answer_films(
    model: Any,
    processor: Any,
    dataset: Dataset,
    reward: GroundingReward,
    decoding: Decoding,
    *,
    progress: str | None = None,
) -> list[AnsweredFilm]:
    """Let the model answer every film and score what it says.

    Args:
        model: a transformers vision-language model.
        processor: its processor.
        dataset: rows with the package's columns, among them ``box_format`` unless the reward has one.
        reward: scores the answers; R1 … R5 with their default parameters stand beside it.
        decoding: how the model is asked.
        progress: text beside the progress bars; no bars without it.

    Raises:
        ValueError: a film lacks a column, or two have one name.
    """
    from grounding_rewards.models.generate import generate

    rows = light_rows(dataset)
    shown = fit_images(dataset, processor)
    # What cannot be measured is refused before the model is asked.
    read_references(rows)
    common: dict[str, Any] = {
        "max_new_tokens": decoding.max_new_tokens,
        "batch_size": decoding.batch_size,
        "seed": decoding.seed,
        "skip_special_tokens": not reads_special_tokens(dataset, reward),
    }
    greedy = generate(
        model,
        processor,
        shown,
        temperature=0,
        **common,
    )
    sampled = generate(
        model,
        processor,
        shown,
        samples=decoding.samples,
        temperature=decoding.temperature,
        **common,
    )
    texts = [[*first, *others] for first, others in zip(greedy, sampled, strict=True)]
    return read_answers(rows, texts, reward)


def reads_special_tokens(dataset: Dataset, reward: GroundingReward) -> bool:
    """Whether special tokens carry the boxes of some answer, so that they must not be left out of its text."""
    names = {reward.box_format} if reward.box_format is not None else set(dataset["box_format"])
    return any(get_box_format(name).from_token_ids for name in names)
