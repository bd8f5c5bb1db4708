"""Logs of answers that can be scored again: every answer with the image that it is about, and the groups they are
in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import stated_name
from grounding_rewards.data.checks import said_dropped
from grounding_rewards.data.load import light_rows, load_dataset_image
from grounding_rewards.logs.answer_groups import answer_members
from grounding_rewards.logs.answer_logs import check_images, image_problems
from grounding_rewards.logs.completion_logs import first_of, read_completions, with_numbers
from grounding_rewards.logs.join import refuse_other_images

if TYPE_CHECKING:
    from collections.abc import Callable

    from datasets import Dataset
    from PIL.Image import Image

    from grounding_rewards.rewards.grounding import GroundingReward

# What tells images apart that have no name: what was asked, and what there is to find.
_ASKED = ("prompt", "input", "messages")
_REFERENCE = ("boxes", "labels", "reader_boxes", "width", "height")


@dataclass(frozen=True)
class ReplayLog:
    """n answers.

    Attributes:
        completions: what was written.
        rows: the image of each, with `boxes`, `width` and `height`.
        images: the name of each one's image; answers to one image, at any step, have the same.
        groups: the numbers of the answers to one image at one step, which GRPO compares.
        load_image: the image of the k-th answer, or None.
        notes: what a person should know about the log, a sentence each.
    """

    completions: list[Any]
    rows: list[dict[str, Any]]
    images: list[str]
    groups: list[list[int]]
    load_image: Callable[[int], Image | None]
    notes: tuple[str, ...] = ()


def read_replay_log(
    paths: Sequence[Path],
    *,
    dataset: Dataset | None = None,
    text_column: str | None = None,
    sizes: Mapping[str, float | None] | None = None,
    reward: GroundingReward | None = None,
    label_matching: str = "ignore",
    bad_rows: str = "refuse",
) -> ReplayLog:
    """Read answers, each with its image.

    Args:
        paths: as :func:`grounding_rewards.logs.completion_logs.read_completions` takes them.
        dataset: images by their `id`, for what the rows of the log do not say, and for pictures.
        text_column: the column with the completions.
        sizes: sizes for images that have none, by column.
        reward: that will read the answers: whether the box format is known.
        label_matching: under others than ``"ignore"`` every reference box needs a label.
        bad_rows: ``"refuse"`` rows whose image cannot be right, or ``"drop"`` them, which is said.

    Raises:
        ValueError: a file is broken, or a row has no image that it could be scored against.

    Example:
        >>> import tempfile
        >>> image = {"id": "a", "step": 1, "boxes": [], "width": 9, "height": 9, "box_format": "qwen3-vl"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "log.jsonl")
        ...     _ = path.write_text("\\n".join(json.dumps({**image, "completion": text}) for text in ("[]", "no")))
        ...     read_replay_log([path]).groups
        [[0, 1]]
    """
    log = read_completions(paths, text_column=text_column)
    known = {name: value for name, value in (sizes or {}).items() if value is not None}
    number: dict[str, int] = {}
    given: list[dict[str, Any]] = []
    if dataset is not None:
        given = light_rows(dataset)
        number = {str(row["id"]): k for k, row in enumerate(given) if row.get("id") is not None}
    log = log._replace(rows=list(map(with_numbers, log.rows)))
    found = [number.get(str(row.get("id"))) for row in log.rows]
    named = {k: given[image] for k, image in enumerate(found) if image is not None}
    refuse_other_images(log, [[k] for k in named], list(named.values()))
    rows = [
        {**known, **({} if k is None else given[k]), **{name: one for name, one in row.items() if one is not None}}
        for row, k in zip(log.rows, found, strict=True)
    ]
    _refuse_without_reference(rows, log.places)
    kept = list(range(len(rows)))
    if bad_rows == "drop":
        problems = image_problems(rows, reward, label_matching=label_matching, places=log.places)
        if problems:
            lines = [f"{log.places[k]}: {'; '.join(said)}" for k, said in problems.items()]
            said_dropped(len(problems), f"{len(rows)} answers", lines)
        kept = [k for k in kept if k not in problems]
    rows, places = [rows[k] for k in kept], [log.places[k] for k in kept]
    check_images(rows, places, reward, label_matching=label_matching)
    completions = [log.completions[k] for k in kept]
    groups = answer_members(log._replace(completions=completions, rows=rows, places=places))
    load = partial(_load, dataset, [found[k] for k in kept])
    return ReplayLog(completions, rows, _image_names(rows), groups, load, log.notes)


def _load(dataset: Dataset | None, images: Sequence[int | None], k: int) -> Image | None:
    number = images[k]
    return None if dataset is None or number is None else load_dataset_image(dataset, number)


def _refuse_without_reference(rows: Sequence[Mapping[str, Any]], places: Sequence[str]) -> None:
    without = [place for row, place in zip(rows, places, strict=True) if row.get("boxes") is None]
    if without:
        raise ValueError(
            f"Expected reference boxes for every completion, got none for {len(without)} of {len(rows)}: "
            f"{first_of(without)}. Rewards of this package log them beside the text where a training says "
            "`log_completions: true`; other trainers log what a dataset has in `ground_truth` (verl: `gts`) or "
            '`solution` (ms-swift): there, write {"boxes": [[x1, y1, x2, y2]], "width": 640, "height": 480}. Or name '
            "the images with --dataset, where the rows have their `id`."
        )


def _image_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The name of each row's image; images without one are told apart by what is asked and what is to be found."""
    numbers: dict[str, int] = {}
    names = []
    for row in rows:
        key = json.dumps([row.get(column) for column in (*_ASKED, *_REFERENCE)], default=str)
        name = stated_name(row.get("id"))
        names.append(f"image {numbers.setdefault(key, len(numbers))}" if name is None else name)
    return names
