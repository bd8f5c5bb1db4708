"""Checks of the answers: can a model learn them, is it asked for them, can it write them?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.data.checks import gold_problems
from grounding_rewards.data.prompt_claims import prompt_contradictions, told_box, told_count, told_nothing
from grounding_rewards.data.prompts import gold_answer, prompt_problem
from grounding_rewards.doctor.case import Case, Defect, Problem
from grounding_rewards.doctor.raw_rows import Drawing, ImageRow, texts
from grounding_rewards.labels import normalize_label, vocabulary
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.grounding import get_reward

#: Shortest side, in pixels that the model sees, of a box that can be learned.
LEAST_SIDE = 4.0
#: Least part of the image's area: a square of 10 pixels on an image of 1024.
LEAST_SHARE = 1e-4
_MOST_NEGATIVES = 0.95
# Of prompts that say a number, so large a part says that of the boxes; of more labels none is looked for in prompts.
_LEAST_TOLD, _MOST_NAMED = 0.8, 100
_FEWEST_IMAGES = 10
# Where boxes have so many labels, a prompt that names another finding asks for what is not there; words for anything.
_FEWEST_LABELS, _ANYTHING = 3, {"lesion", "anomaly", "changes", "signs"}
# What a program left in a prompt: places that were not filled, a missing value, marks of a chat template.
_LEFT_OVER = re.compile(
    r"\{\{?\s*[A-Za-z_]\w*\s*\}?\}|(?<!\w)(?:nan|NaN)(?!\w)|<\|?(?:im_start|im_end|eot_id|end_of_turn|start_of_turn)\|?>|\[/?INST\]"
)
# Words of the assistant in a prompt that begin an answer, rather than give it.
_MOST_BEGUN = 2
# So many prompts, and so large a part of them, name whose image it is, by names of so many letters.
_FEWEST_NAMED, _LEAST_NAMED, _LEAST_LETTERS = 5, 0.5, 4
# Right answers that are scored at once.
_ROWS_AT_ONCE = 1024


def check_expected_answers(case: Case) -> Iterator[Defect]:
    """Negative images and small boxes."""
    images, negatives = len(case.rows), case.counts.count(0)
    if images >= _FEWEST_IMAGES and not 0 < negatives <= _MOST_NEGATIVES * images:
        found = f"{negatives} of {images} images have no box."
        yield case.defect("negatives", count=negatives, of=images, found=found)
    yield from case.collect(_small_boxes(case))
    formats = {fmt.name for row in case.rows if (fmt := case.model.format_of(row)) is not None}
    if len(formats) > 1:
        yield case.defect("several-formats", count=len(formats), found=f"{', '.join(sorted(formats))}.")


def _small_boxes(case: Case) -> Iterator[Problem]:
    table = case.table
    sides = (table.numbers[:, 2:] - table.numbers[:, :2]) * table.seen / table.sizes
    is_small = (sides.min(axis=1) < LEAST_SIDE) | (sides.prod(axis=1) < LEAST_SHARE * table.seen.prod(axis=1))
    for k in np.flatnonzero(table.sound & table.answers & is_small):
        size = f"{sides[k, 0]:.1f} x {sides[k, 1]:.1f} pixels of {table.seen[k, 0]:g} x {table.seen[k, 1]:g}"
        yield table.places[k].problem("small-boxes", f"is {size}")


def check_prompts(case: Case) -> Iterator[Defect]:
    """Prompts that ask for something else than the boxes, or tell them."""
    yield from case.collect(_prompt_problems(case))
    yield from case.collect((*_wrong_counts(case), *_wrong_names(case)))
    named = [one for row in case.rows if (one := _named_person(row)) is not None]
    # A number of its own may be in a prompt by chance.
    if len(named) >= max(_FEWEST_NAMED, _LEAST_NAMED * sum(bool(row.prompt) for row in case.rows)):
        yield case.defect("id-in-prompt", [(one.row, one.detail) for one in named])


def _named_person(row: ImageRow) -> Problem | None:
    """That a prompt holds the row's patient, id or file; None where not."""
    columns = {"patient": row.patient_id or "", "id": str(row.columns.get("id", "")), "file": Path(row.file).stem}
    prompt = (row.prompt or "").casefold()
    for column, name in columns.items():
        is_named = len(name) >= _LEAST_LETTERS and name.casefold() in prompt
        if is_named and re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", prompt):
            return Problem("id-in-prompt", row, f"the prompt holds the row's {column}")
    return None


def _prompt_problems(case: Case) -> Iterator[Problem]:
    sound: defaultdict[tuple[str, int], list[Any]] = defaultdict(list)
    for k in np.flatnonzero(case.table.sound & case.table.answers):
        sound[case.table.places[k].row.key].append(case.table.places[k].box)
    for row, count in zip(case.rows, case.counts, strict=True):
        box_format, named = case.model.format_of(row), row.columns.get("box_format")
        if box_format is None and named is not None:
            yield Problem("box-format", row, f"box_format is {str(named)!r:.60}")
        if problem := prompt_problem(row.columns.get("prompt")):
            yield Problem("prompt-missing", row, problem)
            continue
        if not row.prompt:
            continue
        if box_format is not None and (wrong := _contradictions(row.prompt, box_format)):
            yield Problem("prompt-format", row, "; ".join(wrong))
        if row.size is not None and (told := told_box(row.prompt, sound[row.key], row.size, row.resized_size)):
            yield Problem("answer-in-prompt", row, f"the prompt says {told}")
        elif len((begun := _last_of_assistant(row.columns["prompt"])).split()) > _MOST_BEGUN:
            yield Problem("answer-in-prompt", row, f"the prompt ends with an answer of the assistant: {begun!r:.80}")
        if (images := _images_in(row.columns["prompt"])) > 1:
            yield Problem("prompt-marks", row, f"the prompt has places for {images} images, the row one image")
        if left := _LEFT_OVER.search(row.prompt):
            yield Problem("prompt-marks", row, f"the prompt holds {left[0]!r:.40}")
        if count and (told := told_nothing(row.prompt)):
            yield Problem("prompt-contradiction", row, f"the prompt says {told!r:.80}, {count} boxes are drawn")


def _images_in(prompt: Any) -> int:
    """How many places for images a prompt has."""
    if isinstance(prompt, list | tuple):
        return sum(map(_images_in, prompt))
    if isinstance(prompt, Mapping):
        return 1 if prompt.get("type") == "image" else _images_in(prompt.get("content") or prompt.get("text"))
    return prompt.count("<image>") if isinstance(prompt, str) else 0


@lru_cache(maxsize=4096)
def _contradictions(prompt: str, box_format: BoxFormat) -> tuple[str, ...]:
    return tuple(prompt_contradictions(prompt, box_format))


def _last_of_assistant(prompt: Any) -> str:
    """The text of the prompt's last message, if it is the assistant's."""
    last = prompt[-1] if isinstance(prompt, list | tuple) and prompt else None
    return " ".join(texts(last)) if isinstance(last, Mapping) and last.get("role") == "assistant" else ""


def _wrong_counts(case: Case) -> Iterator[Problem]:
    """Prompts that say the number of boxes, or another where other prompts say the right one."""
    said = [
        (row, told, count)
        for row, count in zip(case.rows, case.counts, strict=True)
        if count and row.prompt and (told := told_count(row.prompt)) is not None
    ]
    right = [count for _, told, count in said if told == count]
    # "One box for each finding", in all prompts, is no number.
    tells = len(set(right)) > 1 and len(right) >= _LEAST_TOLD * len(said)
    several = len({told for _, told, _ in said}) > 1
    for row, told, count in said:
        if tells if told == count else several:
            name = "count-in-prompt" if told == count else "prompt-contradiction"
            yield Problem(name, row, f"the prompt says {told}, {count} boxes are drawn")


def _wrong_names(case: Case) -> Iterator[Problem]:
    """Prompts that name another finding than the boxes have, where other prompts name the right one."""
    if len(case.labels) > _MOST_NAMED:
        return
    asked: set[str] = set()
    wrong: list[tuple[ImageRow, str, str]] = []
    for row, count in zip(case.rows, case.counts, strict=True):
        labels = {one for one in row.answers[0].labels if isinstance(one, str)}
        if count and row.prompt and labels:
            words = row.prompt.casefold()
            asked |= (here := {label for label in case.labels if label.casefold() in words})
            if here and not here & labels:
                wrong.append((row, min(labels), min(here)))
    if not asked:
        yield from _unknown_names(case)
    # Prompts that all ask for one finding are another task.
    if len({name for *_, name in wrong}) > 1:
        for row, label, name in wrong:
            if label in asked:
                yield Problem(
                    "prompt-contradiction", row, f"the prompt names {name!r:.40}, the boxes are {label!r:.40}"
                )


def _unknown_names(case: Case) -> Iterator[Problem]:
    """Prompts that nearly all name a finding which no box has."""
    labels = {*case.labels, *(normalize_label(label).name for label in case.labels)}
    if len(case.labels) < _FEWEST_LABELS:
        return
    words = {word for label in labels for word in re.findall(r"[^\W\d_]+", label.casefold())} | _ANYTHING
    others = "|".join(re.escape(name) for name in vocabulary() if words.isdisjoint(name.split()))
    asked = [row for row, count in zip(case.rows, case.counts, strict=True) if count and row.prompt]
    named = {
        prompt: re.search(rf"\b(?:{others})\b", prompt.casefold()) for prompt in {row.prompt or "" for row in asked}
    }
    wrong = [(row, found[0]) for row in asked if (found := named[row.prompt or ""])]
    if len(wrong) >= max(_FEWEST_IMAGES, _LEAST_TOLD * len(asked)):
        for row, name in wrong:
            yield Problem("prompt-contradiction", row, f"the prompt names {name!r}, no box is one")


def check_gold(case: Case) -> Iterator[Defect]:
    """Length and reward of right answers, of rows without errors."""
    model, answers = case.model, defaultdict[BoxFormat, list[tuple[ImageRow, Drawing]]](list)
    for row in case.rows:
        if row.key not in case.bad and (box_format := model.format_of(row)) is not None:
            answers[box_format] += [(row, drawing) for drawing in row.answers]
    # By row: it counts once, not once per reader.
    rows = {row.key: row for row in case.rows}
    long: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    lost: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for box_format, mine in answers.items():
        columns = [_gold_columns(row, drawing, model.seen_size(row)) for row, drawing in mine]
        reward = get_reward("R4", box_format=box_format)
        for start in range(0, len(mine), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            losses = gold_problems(columns[part], reward)
            for (row, drawing), answer, found in zip(mine[part], columns[part], losses, strict=True):
                tokens = model.tokens(gold_answer(answer, box_format), box_format)
                case.longest_gold = max(case.longest_gold, tokens)
                if tokens > model.max_completion_length:
                    limit = f"max_completion_length is {model.max_completion_length}"
                    long[row.key].append(f"{drawing.prefix}{tokens} tokens, {limit}")
                if found:
                    lost[row.key].append(drawing.prefix + "; ".join(found))
    # Only an estimate.
    severity, about = ("", "") if model.counts_tokens else ("warning", "about ")
    for name, here in (("gold-length", long), ("gold-reward", lost)):
        problems = [Problem(name, rows[key], "; ".join(words)) for key, words in here.items()]
        for defect in case.collect(problems):
            if name == "gold-length":
                words = f"The longest takes {about}{case.longest_gold} tokens."
                yield replace(defect, severity=severity or defect.severity, found=words)
            else:
                yield defect


def _gold_columns(row: ImageRow, drawing: Drawing, seen: tuple[float, float]) -> dict[str, Any]:
    width, height = row.size or (None, None)
    return {
        "boxes": [list(box) for box in drawing.boxes],
        "labels": [str(label) for label in drawing.labels] if drawing.labels else None,
        "width": width,
        "height": height,
        "resized_width": seen[0],
        "resized_height": seen[1],
    }
