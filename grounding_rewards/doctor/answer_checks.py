"""Check whether prompts ask for what is rewarded, and whether the model can write the right answers."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from grounding_rewards.data.checks import gold_problems, row_problems
from grounding_rewards.data.prompts import gold_answer, prompt_contradictions, prompt_problem, told_box, told_nothing
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import Drawing, ImageRow, texts
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.grounding import get_reward

# Fewest images of which the share without boxes is judged.
_MIN_IMAGES = 10
# Largest share of images without boxes: above it, a model that never draws a box earns nearly everything.
_MAX_NEGATIVES = 0.95
# Words of the assistant at the end of a prompt that may begin an answer without telling it.
_MAX_BEGUN = 2
# Right answers that are scored at once.
_BATCH = 256


def check_negatives(context: Context) -> Iterator[Defect]:
    """Find datasets without negative images (images without a box), and those of hardly anything else."""
    images = len(context.rows)
    negatives = context.box_counts.count(0)
    if images >= _MIN_IMAGES and not 0 < negatives <= _MAX_NEGATIVES * images:
        summary = f"{negatives} of {images} images have no box."
        yield context.defect("negatives", count=negatives, of=images, found=summary)


def check_prompts(context: Context) -> Iterator[Defect]:
    """Find unknown and several box formats, and prompts that ask nothing or for another format, or tell the answer."""
    yield from context.collect(_prompt_problems(context))
    formats = [context.model.format_of(row) for row in context.rows]
    counts = Counter(box_format.name for box_format in formats if box_format is not None).most_common()
    if len(counts) > 1:
        # `most_common` puts the format of most rows first; the rows of the other formats are counted.
        _, commonest_count = counts[0]
        summary = f"{', '.join(f'{name}: {count} rows' for name, count in counts)}."
        defect = context.defect("box-format", count=len(context.rows) - commonest_count, found=summary)
        # An unknown format is an error; several may be meant for several models.
        yield replace(defect, severity="warning")


def _prompt_problems(context: Context) -> Iterator[Problem]:
    """Yield the problems of the box format and the prompt of each row."""
    table = context.table
    # The sound boxes of each row, by its number.
    boxes_by_row: defaultdict[int, list[Any]] = defaultdict(list)
    for index in np.flatnonzero(table.is_sound & table.is_answer).tolist():
        boxes_by_row[table.row_indices[index]].append(table.places[index].box)
    for number, row in enumerate(context.rows):
        box_format = context.model.format_of(row)
        format_name = row.columns.get("box_format")
        if box_format is None and format_name is not None:
            yield Problem("box-format", row, f"box_format is {str(format_name)!r:.60}")
        problem = prompt_problem(row.columns.get("prompt"))
        if problem:
            yield Problem("prompt-missing", row, problem)
            continue
        if not row.prompt:
            # Training writes the prompt of this row.
            continue
        contradictions = () if box_format is None else _contradictions(row.prompt, box_format)
        if contradictions:
            yield Problem("prompt-format", row, "; ".join(contradictions))
        leak = _leaked_answer(row, boxes_by_row[number], context.box_counts[number])
        if leak:
            yield Problem("answer-in-prompt", row, leak)


def _leaked_answer(row: ImageRow, boxes: list[Any], count: int) -> str | None:
    """How the prompt of a row tells the answer, in words; None if it does not.

    It may state a box, begin the assistant's answer, or say of an image without boxes that nothing is there.

    Args:
        row: with a prompt.
        boxes: its boxes without a defect.
        count: the number of all its boxes.
    """
    prompt = row.prompt or ""
    if row.size is not None:
        box = told_box(prompt, boxes, row.size, row.resized_size)
        if box:
            return f"the prompt says {box}"
    messages = row.columns["prompt"]
    last_message = messages[-1] if isinstance(messages, list | tuple) else None
    # A trainer lets the model go on behind the assistant's words.
    if isinstance(last_message, Mapping) and last_message.get("role") == "assistant":
        beginning = " ".join(texts(last_message))
        # A word or two, such as "Answer:", tell nothing.
        if len(beginning.split()) > _MAX_BEGUN:
            return f"the prompt ends with an answer of the assistant: {beginning!r:.80}"
    denial = "" if count else told_nothing(prompt)
    return f"the prompt says {denial!r:.80}, and the image has no box" if denial else None


@lru_cache(maxsize=4096)
def _contradictions(prompt: str, box_format: BoxFormat) -> tuple[str, ...]:
    """As :func:`prompt_contradictions`, kept for equal prompts: most of a dataset are."""
    return tuple(prompt_contradictions(prompt, box_format))


def check_gold(context: Context) -> Iterator[Defect]:
    """Find right answers that are too long or earn less than the full reward, among rows without another problem.

    The number of tokens of the longest answer is kept in `context.longest_gold`.
    """
    model, table = context.model, context.table
    places_with_defects = zip(table.places, table.defects, strict=True)
    bad_keys = {place.row.key for place, defect in places_with_defects if defect is not None}
    answers_by_format: defaultdict[BoxFormat, list[tuple[ImageRow, Drawing]]] = defaultdict(list)
    for row in context.rows:
        box_format = model.format_of(row)
        is_sound = row.key not in bad_keys and row.trusted_size is not None
        if box_format is not None and is_sound and not any(row_problems(row.columns, parts=["labels"])):
            answers_by_format[box_format] += [(row, drawing) for drawing in row.answers]
    # By the key of the row: a row with several readers has several right answers, and counts once.
    length_problems: dict[tuple[str, int], Problem] = {}
    reward_problems: dict[tuple[str, int], Problem] = {}
    for box_format, answers in answers_by_format.items():
        reward = get_reward("R4", box_format=box_format)
        for start in range(0, len(answers), _BATCH):
            batch = answers[start : start + _BATCH]
            gold_rows = [_gold_row(row, drawing, model.seen_size(row)) for row, drawing in batch]
            for (row, drawing), gold, losses in zip(batch, gold_rows, gold_problems(gold_rows, reward), strict=True):
                tokens = model.count_tokens(gold_answer(gold, box_format)) if model.has_tokenizer else 0
                context.longest_gold = max(context.longest_gold, tokens)
                if tokens > model.max_completion_length:
                    limit = f"max_completion_length is {model.max_completion_length}"
                    length_problems[row.key] = Problem("gold-length", row, f"{drawing.prefix}{tokens} tokens, {limit}")
                if losses:
                    reward_problems[row.key] = Problem("gold-reward", row, drawing.prefix + "; ".join(losses))
    summary = f"The longest takes {context.longest_gold} tokens."
    yield from context.collect(length_problems.values(), found=summary)
    yield from context.collect(reward_problems.values())


def _gold_row(row: ImageRow, drawing: Drawing, seen_size: tuple[float, float]) -> dict[str, Any]:
    """The columns from which a right answer is written and scored.

    Args:
        row: of the image.
        drawing: the boxes of the answer, with their labels.
        seen_size: width and height at which the model sees the image.
    """
    width, height = row.size or (None, None)
    return {
        "boxes": [list(box) for box in drawing.boxes],
        "labels": [str(label) for label in drawing.labels] if drawing.labels else None,
        "width": width,
        "height": height,
        "resized_width": seen_size[0],
        "resized_height": seen_size[1],
    }
