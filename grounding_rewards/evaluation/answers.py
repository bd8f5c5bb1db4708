"""Answers to the films of a dataset, read and scored: those of a model, and those that need no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.evaluation.baselines import ANOTHER_READER, baseline_rules, mean_boxes
from grounding_rewards.evaluation.figures import FilmAnswers
from grounding_rewards.parsing import get_box_format
from grounding_rewards.scoring import GroundingReward, ScoredCompletion

if TYPE_CHECKING:
    from datasets import Dataset

_HEAVY = ("prompt", "image")
_READERS = ("reader_boxes", "reader_labels")


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
) -> list[FilmAnswers]:
    """Let the model answer every film and score what it says.

    Args:
        model: a transformers vision-language model.
        processor: its processor.
        dataset: rows with the package's columns, among them ``box_format`` unless the reward has one.
        reward: scores the answers.
        decoding: how the model is asked.
        progress: text beside the progress bars; no bars without it.
    """
    from grounding_rewards.evaluation.generate import generate

    common: dict[str, Any] = {
        "max_new_tokens": decoding.max_new_tokens,
        "batch_size": decoding.batch_size,
        "seed": decoding.seed,
        "skip_special_tokens": not reads_special_tokens(dataset, reward),
    }
    greedy = generate(
        model,
        processor,
        dataset,
        temperature=0,
        progress=progress and f"{progress}, greedy answers",
        **common,
    )
    sampled = generate(
        model,
        processor,
        dataset,
        samples=decoding.samples,
        temperature=decoding.temperature,
        progress=progress and f"{progress}, {decoding.samples} samples",
        **common,
    )
    return [
        FilmAnswers(texts[0], first[0], tuple(others))
        for texts, first, others in zip(
            greedy, score_texts(reward, dataset, greedy), score_texts(reward, dataset, sampled), strict=True
        )
    ]


def score_texts(
    reward: GroundingReward, dataset: Dataset, texts: Sequence[Sequence[str]]
) -> list[list[ScoredCompletion]]:
    """Read and score several answers per film.

    Args:
        reward: scores the answers.
        dataset: rows with the package's columns.
        texts: for each row its answers.
    """
    columns = {
        name: [value for value, answers in zip(dataset[name], texts, strict=True) for _ in answers]
        for name in dataset.column_names
        if name not in _HEAVY
    }
    scored = iter(reward.details([text for answers in texts for text in answers], **columns))
    return [[next(scored) for _ in answers] for answers in texts]


def baseline_answers(
    dataset: Dataset, training: Dataset | None, reward: GroundingReward
) -> dict[str, list[FilmAnswers]]:
    """The answers that need no look at the film, written in the box format and scored like a model's.

    Args:
        dataset: held-out rows.
        training: rows that the constant box is the mean of; it is left out without them, and where most films
            share no label.
        reward: scores the answers.

    Returns:
        By name: ``constant box`` (the mean training box of each common label), ``nothing found``, ``whole
        image``; and, where rows have the column ``reader_boxes``, ``another reader``: what one more radiologist
        drew, scored against the one whose boxes are the reference.
    """
    rows = list(_light(dataset))
    rules = baseline_rules(rows, {} if training is None else mean_boxes(_light(training)))
    if ANOTHER_READER in rules:
        # Against all readers, any one of them would be right.
        dataset = dataset.remove_columns([name for name in _READERS if name in dataset.column_names])
    answers = {}
    for name, rule in rules.items():
        texts = [[_write(reward, row, *rule(row))] for row in rows]
        answers[name] = [
            FilmAnswers(text, scored, (scored,))
            for (text,), (scored,) in zip(texts, score_texts(reward, dataset, texts), strict=True)
        ]
    return answers


def _light(dataset: Dataset) -> Dataset:
    """The rows without what is large and plays no part in scoring."""
    return dataset.remove_columns([name for name in _HEAVY if name in dataset.column_names])


def _write(reward: GroundingReward, row: Mapping[str, Any], boxes: Any, labels: Sequence[str]) -> str:
    return gold_answer({**row, "boxes": boxes, "labels": labels}, reward.box_format or row["box_format"])


def reads_special_tokens(dataset: Dataset, reward: GroundingReward) -> bool:
    """Whether special tokens carry the boxes of some answer, so that they must not be left out of its text."""
    names = {reward.box_format} if reward.box_format is not None else set(dataset["box_format"])
    return any(get_box_format(name).from_token_ids for name in names)
