"""Checks of prompts and answers: does the prompt ask for what is rewarded, and can the model write the right answer?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from grounding_rewards.data.checks import gold_problems, row_problems
from grounding_rewards.data.prompt_checks import prompt_contradictions, told_box, told_nothing
from grounding_rewards.data.prompts import gold_answer, prompt_problem
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import Drawing, ImageRow, texts
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.grounding import get_reward

# Of fewer images nothing is said about their share with boxes.
_MIN_IMAGES = 10
# With a larger part of images without boxes, never answering earns most.
_MAX_NEGATIVES = 0.95
# Words of the assistant at the end of a prompt that only begin an answer.
_MAX_BEGUN = 2
# Right answers that are scored at once.
_BATCH = 256


def check_negatives(context: Context) -> Iterator[Defect]:
    """Sets without negative images, and sets with hardly any other."""
    images, negatives = len(context.rows), context.counts.count(0)
    if images >= _MIN_IMAGES and not 0 < negatives <= _MAX_NEGATIVES * images:
        summary = f"{negatives} of {images} images have no box."
        yield context.defect("negatives", count=negatives, of=images, found=summary)


def check_prompts(context: Context) -> Iterator[Defect]:
    """Unknown box formats, and prompts that ask nothing, ask for another format than the parser reads, or tell the
    answer.
    """
    yield from context.collect(_prompt_problems(context))
    formats = Counter(fmt.name for row in context.rows if (fmt := context.model.format_of(row)) is not None)
    if len(formats) > 1:
        summary = f"{', '.join(f'{name}: {count} rows' for name, count in formats.most_common())}."
        count = len(context.rows) - formats.most_common(1)[0][1]
        yield replace(context.defect("box-format", count=count, found=summary), severity="warning")


def _prompt_problems(context: Context) -> Iterator[Problem]:
    boxes: defaultdict[int, list[Any]] = defaultdict(list)
    for k in np.flatnonzero(context.table.sound & context.table.answers).tolist():
        boxes[context.table.rows[k]].append(context.table.places[k].box)
    for number, (row, count) in enumerate(zip(context.rows, context.counts, strict=True)):
        box_format, format_name = context.model.format_of(row), row.columns.get("box_format")
        if box_format is None and format_name is not None:
            yield Problem("box-format", row, f"box_format is {str(format_name)!r:.60}")
        if problem := prompt_problem(row.columns.get("prompt")):
            yield Problem("prompt-missing", row, problem)
            continue
        prompt = row.prompt
        if not prompt:
            continue
        if box_format is not None and (contradictions := _contradictions(prompt, box_format)):
            yield Problem("prompt-format", row, "; ".join(contradictions))
        beginning = _last_of_assistant(row.columns["prompt"])
        if row.size is not None and (leak := told_box(prompt, boxes[number], row.size, row.resized_size)):
            yield Problem("answer-in-prompt", row, f"the prompt says {leak}")
        elif len(beginning.split()) > _MAX_BEGUN:
            yield Problem(
                "answer-in-prompt", row, f"the prompt ends with an answer of the assistant: {beginning!r:.80}"
            )
        elif leak := told_nothing(prompt):
            yield Problem("answer-in-prompt", row, f"the prompt says {leak!r:.80}, the image has {count} boxes")


@lru_cache(maxsize=4096)
def _contradictions(prompt: str, box_format: BoxFormat) -> tuple[str, ...]:
    return tuple(prompt_contradictions(prompt, box_format))


def _last_of_assistant(prompt: Any) -> str:
    """The text of the prompt's last message, if it is the assistant's."""
    last = prompt[-1] if isinstance(prompt, list | tuple) and prompt else None
    return " ".join(texts(last)) if isinstance(last, Mapping) and last.get("role") == "assistant" else ""


def check_gold(context: Context) -> Iterator[Defect]:
    """Length and reward of right answers, of rows in which nothing else is wrong."""
    model, table = context.model, context.table
    bad_keys = {table.places[k].row.key for k, defect in enumerate(table.defects) if defect is not None}
    by_format: defaultdict[BoxFormat, list[tuple[ImageRow, Drawing]]] = defaultdict(list)
    for row in context.rows:
        box_format = model.format_of(row)
        is_whole = row.key not in bad_keys and row.trusted_size is not None
        if box_format is not None and is_whole and not any(row_problems(row.columns, parts=["labels"])):
            by_format[box_format] += [(row, drawing) for drawing in row.answers]
    # By row: it counts once, not once per reader.
    length_problems: dict[tuple[str, int], Problem] = {}
    reward_problems: dict[tuple[str, int], Problem] = {}
    for box_format, answers in by_format.items():
        reward = get_reward("R4", box_format=box_format)
        for start in range(0, len(answers), _BATCH):
            batch = answers[start : start + _BATCH]
            columns = [_gold_columns(row, drawing, model.seen_size(row)) for row, drawing in batch]
            for (row, drawing), gold, losses in zip(batch, columns, gold_problems(columns, reward), strict=True):
                tokens = model.tokens(gold_answer(gold, box_format), box_format)
                context.longest_gold = max(context.longest_gold, tokens)
                if tokens > model.max_completion_length:
                    limit = f"max_completion_length is {model.max_completion_length}"
                    length_problems[row.key] = Problem("gold-length", row, f"{drawing.prefix}{tokens} tokens, {limit}")
                if losses:
                    reward_problems[row.key] = Problem("gold-reward", row, drawing.prefix + "; ".join(losses))
    for defect in context.collect(length_problems.values()):
        hedge = "" if model.counts_tokens else "about "
        summary = f"The longest takes {hedge}{context.longest_gold} tokens."
        # An estimate is no error.
        yield replace(defect, severity=defect.severity if model.counts_tokens else "warning", found=summary)
    yield from context.collect(reward_problems.values())


def _gold_columns(row: ImageRow, drawing: Drawing, seen_size: tuple[float, float]) -> dict[str, Any]:
    width, height = row.size or (None, None)
    return {
        "boxes": [list(box) for box in drawing.boxes],
        "labels": [str(label) for label in drawing.labels] if drawing.labels else None,
        "width": width,
        "height": height,
        "resized_width": seen_size[0],
        "resized_height": seen_size[1],
    }
