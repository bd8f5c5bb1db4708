"""Logs with several answers to each image: the groups that GRPO compares."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.data.light_rows import light_rows
from grounding_rewards.logs.answer_logs import Answers, answers_to_dataset, answers_to_images, refuse_other_image
from grounding_rewards.logs.completion_logs import Log, first_of, read_completions, with_numbers
from grounding_rewards.logs.join import join_by_id, names_images

if TYPE_CHECKING:
    from datasets import Dataset

#: Columns that say at which step of a training, or at which temperature, an answer was sampled: answers that differ in
#: one of them are of different groups.
APART = ("step", "temperature")
# Columns of several tools that hold the prompt.
_PROMPTS = ("prompt", "input", "problem", "question")
# What makes rows without an `id` answers to one image, beside the prompt.
_IMAGE = ("boxes", "reader_boxes", "width", "height", "image", "image_path", "file")


def read_groups(
    paths: Sequence[Path],
    *,
    dataset: Dataset | None = None,
    text_column: str | None = None,
    group_size: int | None = None,
    sizes: Mapping[str, float | None] | None = None,
) -> Answers:
    """Read a log in which images have several answers.

    Rows of one `id` are a group, apart by :data:`APART`. Where no row has an `id`, rows next to each other are one that
    have the same prompt and image.

    Args:
        paths: as :func:`grounding_rewards.logs.completion_logs.read_completions` takes them.
        dataset: the images, by `id`; without it the rows have `boxes`, `width` and `height`.
        text_column: the column with the completions.
        group_size: so many rows one after another are a group, whatever they hold.
        sizes: sizes for images that have none, by column.

    Raises:
        ValueError: a file is broken, no image has several answers, or images and answers do not fit each other.
    """
    known = {name: value for name, value in (sizes or {}).items() if value is not None and name in SIZE_COLUMNS}
    log = read_completions(paths, text_column=text_column)
    log = log._replace(rows=list(map(with_numbers, log.rows)))
    members = answer_members(log, group_size)
    alone = [k for several in members if len(several) == 1 for k in several]
    members = [several for several in members if len(several) > 1]
    if not members:
        raise ValueError(
            f"Expected several completions to the same image, got one to each of {len(alone)}. GRPO compares "
            f"answers to "
            "one image, and so does this: give a log of samples (`log_completions: true` in training; `evaluate "
            "--samples 8` writes samples.jsonl), name each row's image by `id` or the rows of a group by --group-size, "
            "or sample now with --model."
        )
    for several in members:
        refuse_other_image(log, several)
    if dataset is None:
        _refuse_images_without_boxes(log, members)
        # Nobody looks at the images.
        answers = replace(answers_to_images(log, members, paths, known, True, ()), notes=log.notes)
    else:
        images = [{**known, **row} for row in light_rows(dataset)]
        answers = answers_to_dataset(dataset, images, log, members, join_by_id(log, members, images), APART)
    return replace(answers, notes=(*answers.notes, *_notes(log, members, alone)))


def answer_members(log: Log, group_size: int | None = None) -> list[list[int]]:
    """The rows of each group, those of one answer among them; see :func:`read_groups`.

    Raises:
        ValueError: only some rows have an `id`, or the size does not fit.

    Example:
        >>> rows = [{"id": "a", "step": 1}, {"id": "b", "step": 1}, {"id": "a", "step": 1}, {"id": "a", "step": 2}]
        >>> answer_members(Log(["[]"] * 4, rows, ["line"] * 4))
        [[0, 2], [1], [3]]
    """
    n = len(log.rows)
    if group_size is not None:
        if group_size < 2:
            raise ValueError(f"Expected at least 2 for `group_size`, got {group_size}. One answer is no group.")
        if n % group_size:
            raise ValueError(
                f"Expected whole groups of {group_size} rows, got {n} rows. Give the num_generations of the training."
            )
        return [list(range(start, start + group_size)) for start in range(0, n, group_size)]
    if names_images(log):
        found: dict[Any, list[int]] = {}
        for k, row in enumerate(log.rows):
            found.setdefault((*(row.get(name) for name in APART), str(row["id"])), []).append(k)
        return list(found.values())
    return _runs([_image_key(row) for row in log.rows])


def _runs(keys: Sequence[str]) -> list[list[int]]:
    """Rows next to each other with the same key.

    Groups of images that are alike in everything, such as two normal ones of one size, follow each other as one run: it
    is cut to the size by which all runs can be divided.

    >>> _runs(["a", "a", "b", "b", "b", "b"])
    [[0, 1], [2, 3], [4, 5]]
    """
    runs: list[list[int]] = []
    for k, key in enumerate(keys):
        if k and key == keys[k - 1]:
            runs[-1].append(k)
        else:
            runs.append([k])
    size = reduce(math.gcd, map(len, runs), 0)
    return runs if size < 2 else [run[k : k + size] for run in runs for k in range(0, len(run), size)]


def _image_key(row: Mapping[str, Any]) -> str:
    prompt = next((row[name] for name in _PROMPTS if row.get(name) is not None), None)
    return json.dumps([prompt, *(row.get(name) for name in (*APART, *_IMAGE))], default=str, sort_keys=True)


def _refuse_images_without_boxes(log: Log, members: Sequence[Sequence[int]]) -> None:
    described = ((log.rows[first], log.places[first]) for first, *_ in members)
    without = [place for row, place in described if row.get("boxes") is None and row.get("reader_boxes") is None]
    if without:
        raise ValueError(
            f"Expected `boxes` for every image, got none for {len(without)} of {len(members)}: "
            f"{first_of(without)}. Add "
            "the column, or name the --dataset that has the images by their `id`."
        )


def _notes(log: Log, members: Sequence[Sequence[int]], alone: Sequence[int]) -> Iterator[str]:
    if alone:
        yield (
            f"{len(alone)} of {len(log.rows)} rows are the only answer to their image, and are left out; the first is "
            f"{log.places[alone[0]]}."
        )
    if all(row.get("id") in (None, "") for row in log.rows):
        count = len({len(several) for several in members})
        size = f"{len(members[0])}" if count == 1 else f"{min(map(len, members))} to {max(map(len, members))}"
        groups = "1 group" if len(members) == 1 else f"{len(members)} groups"
        yield (
            f"No row has an `id`: rows next to each other with the same prompt and image are taken for one "
            f"group, which "
            f"makes {groups} of {size}. If that is wrong, give --group-size."
        )
