"""Checks of the answers: can a model learn them, is it asked for them, can it write them?"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.data.checks import gold_problems
from grounding_rewards.data.prompt_claims import (
    CLAIMS,
    prompt_contradictions,
    told_box,
    told_count,
    told_nothing,
    told_readings,
)
from grounding_rewards.data.prompts import gold_answer, prompt_problem
from grounding_rewards.doctor.box_defects import is_null_label
from grounding_rewards.doctor.case import Case, Defect, Problem
from grounding_rewards.doctor.group_checks import labels_of
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
    r"\{\{?\s*\w+\s*\}?\}|%(?:\(\w+\))?s\b|\$\{?[A-Za-z_]\w*|(?<!\w)(?:nan|NaN)(?!\w)|\[/?INST\]|\\[nt]\b"
    r"|['\"]role['\"] *:|<\|?(?:im_start|im_end|eot_id|end_of_turn|start_of_turn)\|?>"
    r"|</?(?:s|p|br|div)\b[^<]{0,9}>|&(?:[a-z]{2,6}|#\d+);"
    r"|Ã[\x80-\xbf]|â€|(?:^|\n|#) *(?:USER|HUMAN|ASSISTANT|User|Human|Assistant) *:"
)
# Words of the assistant in a prompt that begin an answer, rather than give it.
_MOST_BEGUN = 2
# So many prompts, and so large a part of them, name whose image it is, by names of so many letters.
_FEWEST_NAMED, _LEAST_NAMED, _LEAST_LETTERS = 5, 0.5, 4
# Columns that hold the answer in words; so large a part of prompts that break off, or tell, do so alike.
_ANSWERS = (
    "completion",
    "solution",
    "answer",
    "response",
    "output",
    "target",
    "ground_truth",
    "messages",
    "conversations",
)
# A size, of three or four digits a side.
_SIZE = re.compile(r"\b((\d{3,4}) ?(?:x|×|by) ?(\d{3,4})\b)")
# The sign that stands for names.
_NAME, _LEAST_CUT = chr(0), 0.9
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
    sound: defaultdict[tuple[str, int], list[Any]] = defaultdict(list)
    for k in np.flatnonzero(case.table.sound & case.table.answers):
        sound[case.table.places[k].row.key].append(case.table.places[k].box)
    problems = [*_prompt_problems(case, sound), *_other_answers(case, sound)]
    if 0 < len(case.labels) <= _MOST_NAMED:
        name = "|".join(map(re.escape, sorted(map(str.casefold, case.labels), key=len, reverse=True)))
        name = rf"\b(?:{name})\b"
        several = re.compile(rf"{name}(?:,? (?:and |or )?{name})*")
        problems += [*_unfinished(case, several), *_told_labels(case, re.compile(name))]
    yield from case.collect(problems)
    yield from case.collect((*_wrong_counts(case), *_wrong_names(case)))
    yield from _several_ways(case)
    named = [one for row in case.rows if (one := _named_person(row)) is not None]
    # A number of its own may be in a prompt by chance.
    if len(named) >= max(_FEWEST_NAMED, _LEAST_NAMED * sum(bool(row.prompt) for row in case.rows)):
        yield case.defect("id-in-prompt", [(one.row, one.detail) for one in named])


def _unfinished(case: Case, names: re.Pattern[str]) -> Iterator[Problem]:
    """Prompts that break off, say a thing twice, lack the place for the image, or a name where others have one."""
    rows = [row for row in case.rows if row.prompt]
    prompts = [str(row.prompt) for row in rows]
    distinct = sorted(set(prompts))
    cut = {one for one, more in pairwise(distinct) if more.startswith(one) and _is_open(one)}
    # Where prompts end without a stop, one may begin as another does.
    open_ends = [one for one in prompts if _is_open(one)]
    cut = cut if 2 * len(open_ends) < len(prompts) else set()
    # Cut at one length: many, of several words, and hardly any other that does not end.
    length, count = Counter(map(len, open_ends)).most_common(1)[0] if open_ends else (0, 0)
    several = {one for one in open_ends if len(one) == length}
    if count >= max(_FEWEST_IMAGES, _LEAST_CUT * len(open_ends)) and len(several) >= _FEWEST_LABELS:
        cut |= several
    masked = {one: names.sub(_NAME, one.casefold()) for one in distinct}
    frames = [one.split(_NAME) for one, n in Counter(masked[one] for one in prompts).items() if n >= _FEWEST_IMAGES]
    places = [_images_in(row.columns["prompt"]) for row in rows]
    with_place = sum(map(bool, places))
    # Where all prompts say a size, it may be that of what the model sees.
    sizes = [_wrong_size(row) for row in rows]
    sizes = sizes if 2 * sum(map(bool, sizes)) <= len(rows) else [""] * len(rows)
    most_words = np.median([len(prompt.split()) for prompt in prompts]) if prompts else 0
    said: dict[str, str] = {}
    for prompt in distinct:
        left, sentences = _LEFT_OVER.search(prompt), Counter(re.split(r"(?<=[.?!])\s+", prompt))
        twice = next((one for one, n in sentences.items() if n > 1 and len(one.split()) > _MOST_BEGUN + 1), "")
        odd = next((name for one in frames if len(one) == 2 and (name := _odd_name(masked[prompt], *one))), "")
        for is_so, words in (
            (left, f"holds {left and left[0]!r:.40}"),
            (len(prompt.split()) < _MOST_BEGUN + 1 < most_words, f"is {prompt!r:.40} alone"),
            (prompt in cut, f"breaks off: {prompt[-40:]!r}"),
            (twice, f"says twice {twice!r:.60}"),
            (odd, f"has {odd!r:.40} where others name a finding"),
        ):
            if is_so:
                said.setdefault(prompt, words)
    for row, prompt, images, size in zip(rows, prompts, places, sizes, strict=True):
        if words := said.get(prompt, ""):
            yield Problem("prompt-marks", row, f"the prompt {words}")
        elif images > 1:
            yield Problem("prompt-marks", row, f"the prompt has places for {images} images, the row one image")
        elif with_place and bool(images) != (2 * with_place > len(places)):
            has = f"has {images or 'no'} place for the image, unlike most others"
            yield Problem("prompt-marks", row, f"the prompt {has}")
        elif size:
            yield Problem("prompt-marks", row, f"the prompt says a size of {size}, the image has another")


def _wrong_size(row: ImageRow) -> str:
    """A size of the image that the prompt says and that is neither its own nor that which the model sees."""
    said = {(int(one), int(other)): whole for whole, one, other in _SIZE.findall(row.prompt or "")}
    known = {size for size in (row.size, row.image_size, row.resized_size) if size}
    return "" if not said or not known or known & said.keys() else next(iter(said.values()))


def _is_open(prompt: str) -> bool:
    return prompt[-1].isalpha() or prompt.endswith((",", "-"))


def _odd_name(masked: str, before: str, behind: str) -> str:
    """What stands in the place of a name, if it is none."""
    name = masked[len(before) : len(masked) - len(behind)].strip()
    is_framed = masked.startswith(before) and masked.endswith(behind) and _NAME not in name
    return name if is_framed and (is_null_label(name) or re.search(r"[^\w ,'()/-]|_|^\d+$", name)) else ""


def _told_labels(case: Case, names: re.Pattern[str]) -> Iterator[Problem]:
    """Prompts that name, beyond what most prompts name, the findings that are there."""
    found = {text: Counter(names.findall(text.casefold())) for text in {row.prompt or "" for row in case.rows}}
    usual = Counter(frozenset(found[row.prompt or ""].items()) for row in case.rows).most_common(1)[0][0]
    told: list[tuple[ImageRow, set[str], set[str]]] = []
    for row in case.rows:
        named = found[row.prompt or ""]
        if row.prompt and named.items() != usual:
            rest = named - Counter(dict(usual)) if dict(usual).keys() <= named.keys() else named
            told.append((row, set(rest), {label.casefold() for label in labels_of(row)}))
    right = [(row, there) for row, named, there in told if named == there]
    is_told = len(right) >= _LEAST_CUT * len(told) and sum(len(there) > 1 for _, there in right) >= _FEWEST_NAMED
    # Where most prompts name one finding, that is the question.
    for row, there in right if is_told and len(usual) != 1 else ():
        yield Problem("answer-in-prompt", row, f"the prompt names what is there: {', '.join(there) or 'nothing'}")


def _other_answers(case: Case, sound: Mapping[tuple[str, int], list[Any]]) -> Iterator[Problem]:
    """Columns with the answer in words that say other boxes, or say them otherwise than most rows do."""
    for column in _ANSWERS:
        read: list[tuple[ImageRow, set[str], bool]] = []
        for row in case.rows:
            if (given := row.columns.get(column)) is not None and row.size is not None:
                text = given if isinstance(given, str) else _last_of_assistant(given)
                numbers, readings = told_readings(text, boxes := sound[row.key], row.size, row.resized_size)
                said = {name for name, told in readings.items() if told.any(axis=0).all()}
                read.append((row, said, len(numbers) == 4 * len(boxes)))
        readings_of_all = Counter(name for _, said, _ in read for name in said)
        usual, count = max(readings_of_all.items(), key=lambda one: one[1], default=("", 0))
        if count < max(_FEWEST_IMAGES, _LEAST_NAMED * sum(bool(sound[row.key]) for row, *_ in read)):
            continue
        # Numbers that are of no box may be in all of them.
        counts = sum(is_full for *_, is_full in read) >= _LEAST_TOLD * len(read)
        for row, said, is_full in read:
            if sound[row.key] and usual not in said:
                how = f"says the boxes in {min(said)}, others in {usual}" if said else "does not say the boxes"
                yield Problem("answer-column", row, f"{column} {how}")
            elif counts and not is_full:
                yield Problem("answer-column", row, f"{column} says another number of boxes")


def _several_ways(case: Case) -> Iterator[Defect]:
    """Prompts that ask for several ways to write boxes, where no box format says which is right."""
    if "prompt-format" in case.found:
        return
    rows = [row for row in case.rows if row.prompt and case.model.format_of(row) is None]
    for kind in dict.fromkeys(claim.kind for claim in CLAIMS):
        says = {
            text: frozenset(claim.says for claim in CLAIMS if claim.kind == kind and claim.words.search(text))
            for text in {str(row.prompt) for row in rows}
        }
        ways = Counter(says[str(row.prompt)] for row in rows)
        usual = max(ways, key=lambda one: ways[one], default=frozenset())
        odd = [way for way in ways if way and way.isdisjoint(usual) and (usual or kind != "syntax")]
        shown = [
            (row, f"the prompt asks for {' and '.join(way)}") for row in rows if (way := says[str(row.prompt)]) in odd
        ]
        if shown:
            others = f"Most others ask for {' and '.join(usual)}." if usual else f"Most others name no {kind}."
            yield case.defect("several-formats", shown, of=len(rows), found=others)


def _named_person(row: ImageRow) -> Problem | None:
    """That a prompt holds the row's patient, id or file; None where not."""
    columns = {"patient": row.patient_id or "", "id": str(row.columns.get("id", "")), "file": Path(row.file).stem}
    prompt = (row.prompt or "").casefold()
    for column, name in columns.items():
        is_named = len(name) >= _LEAST_LETTERS and name.casefold() in prompt
        if is_named and re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", prompt):
            return Problem("id-in-prompt", row, f"the prompt holds the row's {column}")
    return None


def _prompt_problems(case: Case, sound: Mapping[tuple[str, int], list[Any]]) -> Iterator[Problem]:
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
    part: list[tuple[ImageRow, str]] = []
    listing = 0
    for row, count in zip(case.rows, case.counts, strict=True):
        labels = {one for one in row.answers[0].labels if isinstance(one, str)}
        if count and row.prompt and labels:
            words = row.prompt.casefold()
            asked |= (here := {label for label in case.labels if label.casefold() in words})
            # A list of findings of which one is left out.
            if len(here) > max(2, len(labels)):
                listing += 1
                part += [(row, label) for label in sorted(labels - here)]
            elif here and not here & labels:
                wrong.append((row, min(labels), min(here)))
    if len(part) <= (1 - _LEAST_TOLD) * listing:
        for row, label in part:
            if label not in asked:
                continue
            yield Problem("prompt-contradiction", row, f"the prompt names other findings, but not {label!r:.40}")
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
