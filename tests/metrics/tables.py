"""A model's figures beside the baselines, as a training run measures them before and after."""

from __future__ import annotations

from typing import Any

from grounding_rewards.evaluation.answers import Decoding, answer_films
from grounding_rewards.evaluation.run import Task, baselines
from grounding_rewards.evaluation.summary import summarise
from grounding_rewards.report.tables import Row


def measure(model: Any, processor: Any, task: Task, decoding: Decoding, *, name: str) -> list[Row]:
    answers = answer_films(model, processor, task.dataset, task.reward, decoding)
    return summarise({name: answers, **baselines(task)})
