"""Logs as answers to images: to evaluate, one answer or several samples an image; to compare, the groups of GRPO.

Which image of a dataset a row is about is one rule for every command: :mod:`grounding_rewards.logs.image_names`. What a
log and a dataset both say of an image has to be the same: where boxes differ, one of them is of another version or
another split, and a metric against either would be wrong.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.columns import patient_of
from grounding_rewards.data.checks import is_blank, row_problems, said_dropped
from grounding_rewards.data.dataset_columns import light_rows, load_dataset_image
from grounding_rewards.images.decoding import is_below, open_image
from grounding_rewards.logs.image_names import with_image_ids
from grounding_rewards.logs.read import (
    Log,
    first_of,
    read_completions,
    step_of,
    with_answer_references,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

    from grounding_rewards.parsing import BoxFormat
    from grounding_rewards.rewards.grounding import GroundingReward

_IMAGE_COLUMNS = ("image_path", "image", "file")
# What an image cannot be measured without.
_NEEDED = ("boxes", "width", "height")
# Lines of an error about many images.
_MOST_NAMED = 20
# Boxes and sizes that differ by less are those of the image after rounding.
_ROUNDING = 0.5

#: Columns that say at which step of a training, or at which temperature, an answer was sampled: answers that differ in
#: one of them are of different groups.
APART = ("step", "temperature")
# Columns of several tools that hold the prompt.
_PROMPTS = ("prompt", "input", "problem", "question")
# What makes rows without an `id` answers to one image, beside the prompt.
_IMAGE = ("boxes", "reader_boxes", "width", "height", "image", "image_path", "file")


@dataclass(frozen=True)
class Answers:
    """n images and the completions for each.

    Attributes:
        rows: one an image, without prompt and image.
        texts: for each image one completion or several, the first of which is judged.
        load_image: the k-th image as an image, or None.
        places: where each image is, for a message.
        notes: what a person should know about the log, a sentence each.
    """

    rows: list[dict[str, Any]]
    texts: list[list[Any]]
    load_image: Callable[[int], Image | None]
    places: list[str]
    notes: tuple[str, ...] = ()

    def checked(
        self, reward: GroundingReward | None = None, *, label_matching: str = "ignore", bad_rows: str = "refuse"
    ) -> Answers:
        """The answers to images that something can be measured on, by the rules that training has.

        Args:
            reward: as for :func:`image_problems`.
            label_matching: as for :func:`image_problems`.
            bad_rows: `refuse` the others, or `drop` them; a warning then says which, and what is wrong with them.

        Raises:
            ValueError: there are others, and they are refused or all; images, places and what is wrong are named.

        Example:
            >>> row = {"id": 7, "boxes": [[0, 0, 9, 99]], "width": 50, "height": 50}
            >>> Answers([row], [["[]"]], lambda k: None, ["line 1 of 'log.jsonl'"]).checked()
            Traceback (most recent call last):
            ...
            ValueError: Expected sizes, boxes and labels that fit the image for every image, got 1 of 1 that does not. \
Correct it:
            line 1 of 'log.jsonl' (id 7): box 0 is [0, 0, 9, 99], outside the image of 50 x 50
        """
        problems = image_problems(self.rows, reward, label_matching=label_matching, places=self.places)
        if not problems:
            return self
        lines = [f"{_named(self.rows, self.places, k)}: {'; '.join(found)}" for k, found in problems.items()]
        if bad_rows == "drop" and len(problems) < len(self.rows):
            said_dropped(len(problems), f"{len(self.rows)} images", lines)
            kept = [k for k in range(len(self.rows)) if k not in problems]
            return Answers(
                [self.rows[k] for k in kept],
                [self.texts[k] for k in kept],
                lambda k: self.load_image(kept[k]),
                [self.places[k] for k in kept],
                self.notes,
            )
        verb, them = ("does", "it") if len(problems) == 1 else ("do", "them")
        more = len(lines) - _MOST_NAMED
        # Where most are wrong, so is the order or the frame of the boxes.
        way_out = ", or go on without by --bad-rows drop" if 2 * len(problems) < len(self.rows) else ""
        raise ValueError(
            f"Expected sizes, boxes and labels that fit the image for every image, got {len(problems)} of "
            f"{len(self.rows)} that {verb} not. Correct {them}{way_out}:\n"
            + "\n".join([*lines[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
        )


def read_log(
    paths: Sequence[str | Path],
    *,
    dataset: Dataset | None = None,
    text_column: str | None = None,
    box_format: str | BoxFormat | None = None,
    by_order: bool = False,
    sizes: Mapping[str, float | None] | None = None,
    allow_outside: bool = False,
) -> Answers:
    """Read a log of completions together with the images that they answer.

    Args:
        paths: files or folders, as :func:`grounding_rewards.logs.read.read_completions` takes them. Several
            rows with one `id` are several answers to one image, as many for every image; the first is judged, or the
            one with the lowest `sample`, where all rows have that column. Where all have a `step`, as the log of a
            training does, the answers of the last step at which the image was asked about are taken.
        dataset: the images; without it the rows of the log have `boxes`, `width` and `height`. Images and rows belong
            together as :func:`grounding_rewards.logs.image_names.with_image_ids` says. What the log says of an image
            besides has to agree with the dataset.
        text_column: the column with the completions.
        box_format: how they write boxes, for logs whose only reference is the right answer.
        by_order: take the rows in the order of the dataset's images.
        sizes: sizes for images that have none, by column.
        allow_outside: whether images that the log names may lie outside the folders of its files.

    Raises:
        ValueError: a file is broken, or images and completions do not fit each other. The message names file and row.
    """
    log = read_completions(paths, text_column=text_column)
    images = None if dataset is None else light_rows(dataset)
    if images is None:
        log = with_answer_references(log, box_format, sizes)
    else:
        log = with_image_ids(log, images, by_order=by_order)
    members, notes = [[k] for k in range(len(log.rows))], log.notes
    if names_images(log):
        members, notes = _samples(log)
    if members and len(members[0]) > 1:
        notes = (
            *notes,
            f"The log has {len(members[0])} answers to every image: the first is judged, the others are its samples, "
            "of which only the reward is measured.",
        )
    if dataset is None or images is None:
        return _answers_to_images(log, members, paths, sizes, allow_outside, notes)
    return _answers_to_dataset(log, members, dataset, images, sizes, notes, every_image=True)


def _samples(log: Log) -> tuple[list[list[int]], tuple[str, ...]]:
    """The rows of each image, the one that is judged first; and notes about the log."""
    found: dict[str, list[int]] = {}
    for k, row in enumerate(log.rows):
        found.setdefault(str(row["id"]), []).append(k)
    found, notes = _of_last_step(log, found)
    samples: list[int] = [row["sample"] for row in log.rows if isinstance(row.get("sample"), int)]
    if len(samples) == len(log.rows):
        found = {name: sorted(rows, key=samples.__getitem__) for name, rows in found.items()}
        twice = {name: rows for name, rows in found.items() if len({samples[k] for k in rows}) < len(rows)}
        if twice:
            raise ValueError(
                f"Expected one row for each `id` and `sample`, got several for {_places_of(log, twice)}. "
                "Remove those that are left over from another run."
            )
    usual = Counter(map(len, found.values())).most_common(1)[0][0]
    others = {name: rows for name, rows in found.items() if len(rows) != usual}
    if others:
        raise ValueError(
            f"Expected as many answers to every image, got {usual} for most, and another number for {len(others)} of "
            f"{len(found)}: {_places_of(log, others)}. Rows with one `id` are answers to one image: give images names "
            "of their own, and remove rows that are there twice."
        )
    return list(found.values()), notes


def _of_last_step(log: Log, found: dict[str, list[int]]) -> tuple[dict[str, list[int]], tuple[str, ...]]:
    """Of the log of a training, the answers to each image when it was asked about for the last time."""
    steps = [step for row in log.rows if (step := step_of(row)) is not None]
    if len(steps) < len(log.rows):
        return found, log.notes
    last = {name: max(steps[k] for k in rows) for name, rows in found.items()}
    kept = {name: [k for k in rows if steps[k] == last[name]] for name, rows in found.items()}
    left_out = len(log.rows) - sum(map(len, kept.values()))
    if not left_out:
        return found, log.notes
    note = (
        "The log is of a training: of each image the answers of its last step are taken, which is from "
        f"{min(last.values()):g} to {max(last.values()):g}, and {left_out} earlier ones are left out. They are of a "
        "model that was still learning."
    )
    return kept, (*log.notes, note)


def read_groups(
    paths: Sequence[str | Path],
    *,
    dataset: Dataset | None = None,
    text_column: str | None = None,
    box_format: str | BoxFormat | None = None,
    by_order: bool = False,
    group_size: int | None = None,
    sizes: Mapping[str, float | None] | None = None,
) -> Answers:
    """Read a log in which images have several answers.

    Rows of one `id` are a group, apart by :data:`APART`. Where no row has an `id`, rows next to each other are one that
    have the same prompt and image.

    Args:
        paths: as :func:`grounding_rewards.logs.read.read_completions` takes them.
        dataset: the images, as for :func:`read_log`; without it the rows have `boxes`, `width` and `height`.
        text_column: the column with the completions.
        box_format: how they write boxes, for logs whose only reference is the right answer.
        by_order: take the rows in the order of the dataset's images, as many rows one after another for each.
        group_size: so many rows one after another are a group, whatever they hold.
        sizes: sizes for images that have none, by column.

    Raises:
        ValueError: a file is broken, no image has several answers, or images and answers do not fit each other.
    """
    log = read_completions(paths, text_column=text_column)
    images = None if dataset is None else light_rows(dataset)
    if images is None:
        log = with_answer_references(log, box_format, sizes)
    else:
        log = with_image_ids(log, images, by_order=by_order, in_groups=True)
    members = _group_members(log, group_size)
    alone = [k for several in members if len(several) == 1 for k in several]
    members = [several for several in members if len(several) > 1]
    if not members:
        raise ValueError(
            f"Expected several completions to the same image, got one to each of {len(alone)}. GRPO compares answers "
            "to one image, and so does this: give a log of samples (`log_completions: true` in training; `evaluate "
            "--samples 8` writes samples.jsonl), name each row's image by `id` or the rows of a group by --group-size, "
            "or sample now with --model."
        )
    notes = (*log.notes, *_notes(log, members, alone))
    if dataset is not None and images is not None:
        return _answers_to_dataset(log, members, dataset, images, sizes, notes, taken=APART)
    drawn = ("boxes", "reader_boxes")
    lacking = [log.places[k] for k, *_ in members if all(log.rows[k].get(name) is None for name in drawn)]
    if lacking:
        raise ValueError(
            f"Expected `boxes` for every image, got none for {len(lacking)} of {len(members)}: {first_of(lacking)}. "
            "Add the column, or name the --dataset that has the images by their `id`."
        )
    # Nobody looks at the images.
    return replace(_answers_to_images(log, members, paths, sizes, True, ()), notes=notes)


def _group_members(log: Log, group_size: int | None) -> list[list[int]]:
    """The rows of each group, those of one answer among them; see :func:`read_groups`."""
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
            "No row has an `id`: rows next to each other with the same prompt and image are taken for one group, which "
            f"makes {groups} of {size}. If that is wrong, give --group-size."
        )


def _answers_to_dataset(
    log: Log,
    members: Sequence[Sequence[int]],
    dataset: Dataset,
    images: Sequence[Mapping[str, Any]],
    sizes: Mapping[str, float | None] | None,
    notes: Sequence[str],
    *,
    every_image: bool = False,
    taken: Sequence[str] = (),
) -> Answers:
    """Answers to images of a dataset, by `id`: what the log says of an image besides has to agree with the dataset.

    Args:
        log: the answers.
        members: numbers of the rows of each image, the one that describes it first.
        dataset: the images; one without `id` is named by its number.
        images: the rows of the dataset without images.
        sizes: sizes for images that have none, by column.
        notes: about the log.
        every_image: whether each image has to be answered, and comes in the order of the dataset.
        taken: columns of the log that the rows get too.

    Raises:
        ValueError: an `id` that no image has, or several have, or that is described differently; the row is named.
    """
    for several in members:
        _refuse_other_rows(log, several)
    images = [{**_known(sizes), **row} for row in images]
    chosen = _join_by_id(log, members, images, every_image)
    _refuse_other_images(log, members, [images[k] for k in chosen])
    order = sorted(range(len(members)), key=chosen.__getitem__) if every_image else range(len(members))
    members, chosen = [members[k] for k in order], [chosen[k] for k in order]
    names = ("box_format", "resized_width", "resized_height", "prompt", "messages", "input", *taken)
    # What only the log may know: the box format, the size of the image that the model saw, and the question.
    said = ({name: value for name in names if (value := log.rows[one[0]].get(name)) is not None} for one in members)
    places = dataset_places(dataset)
    return Answers(
        [{**images[k], **own} for k, own in zip(chosen, said, strict=True)],
        [[log.completions[k] for k in several] for several in members],
        lambda k: load_dataset_image(dataset, chosen[k]),
        [places[k] for k in chosen],
        tuple(notes),
    )


def dataset_places(dataset: Dataset) -> list[str]:
    """Where each image of a dataset is, for a message."""
    return [f"row {k} of the dataset" for k in range(dataset.num_rows)]


def _join_by_id(
    log: Log, members: Sequence[Sequence[int]], images: Sequence[Mapping[str, Any]], every_image: bool
) -> list[int]:
    """The number of the image that each group of rows is about."""
    names = [str(row.get("id", k)) for k, row in enumerate(images)]
    numbers = {name: k for k, name in enumerate(names)}
    asked = {str(log.rows[several[0]].get("id", "")): several for several in members}
    if unknown := {name: rows for name, rows in asked.items() if name not in numbers}:
        raise ValueError(
            f"Expected the `id` of an image of the dataset in every row of the log, got {len(unknown)} of {len(asked)} "
            f"that it does not have: {_places_of(log, unknown)}. It has {first_of([repr(one) for one in names])}. "
            "Give the split that was answered with --split, and as many images with --max-images."
        )
    if len(numbers) < len(names) and (twice := [one for k, one in enumerate(names) if numbers[one] != k]):
        raise ValueError(
            f"Expected an `id` of its own for every image of the dataset, got {first_of([repr(one) for one in twice])} "
            "for several. Answers belong to images by it: prepare the dataset with names of their own."
        )
    if every_image and (without := [name for name in names if name not in asked]):
        raise ValueError(
            f"Expected a completion for every image, got {len(names) - len(without)} of {len(names)}; without one are "
            f"{first_of([repr(name) for name in without])}. Answer all images, or name those that were answered with "
            "--max-images."
        )
    return [numbers[str(log.rows[first]["id"])] for first, *_ in members]


def names_images(log: Log) -> bool:
    """Whether the rows of a log have an `id`, by which they belong to images.

    Raises:
        ValueError: some have one and others have none; these are named.

    Example:
        >>> names_images(Log(["[]"], [{"id": "b"}], ["line 1"])), names_images(Log(["[]"], [{}], ["line 1"]))
        (True, False)
    """
    without = [place for place, row in zip(log.places, log.rows, strict=True) if row.get("id") in (None, "")]
    if 0 < len(without) < len(log.rows):
        raise ValueError(
            f"Expected an `id` in every row of the log, or in none, got {len(without)} of {len(log.rows)} without: "
            f"{first_of(without)}. Answers belong to images by it: add the image's `id`, or remove these rows."
        )
    return not without


def _refuse_other_images(log: Log, members: Sequence[Sequence[int]], images: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a log that says of an image something else than the dataset."""
    other = [
        (first, image, column)
        for (first, *_), image in zip(members, images, strict=True)
        for column in _contradictions(log.rows[first], image)
    ]
    if other:
        k, image, column = other[0]
        raise ValueError(
            f"Expected what the dataset says of an image in the log, or nothing, got another `{column}` in "
            f"{log.places[k]}: {log.rows[k][column]!r:.100} for the image with id {image.get('id', '-')!r}, of which "
            f"the dataset says {image.get(column)!r:.100}. {len({k for k, *_ in other})} of {len(members)} images "
            "differ. Name the dataset and split that were answered, or, where the log is wrong, remove its columns."
        )


def _places_of(log: Log, images: Mapping[str, Sequence[int]]) -> str:
    """The first few images, each with the places of its rows."""
    return first_of([f"{name!r} ({first_of([log.places[k] for k in rows])})" for name, rows in images.items()])


def _contradictions(logged: Mapping[str, Any], image: Mapping[str, Any]) -> Iterator[str]:
    """The columns that a row of the log and the image both have, and that differ by more than rounding."""
    for column in ("boxes", "width", "height", "ignore_boxes"):
        own, other = logged.get(column), image.get(column)
        if own is not None and other is not None and not _agree(own, other):
            yield column
    labels = [None if row.get("labels") is None else list(row["labels"]) for row in (logged, image)]
    if None not in labels and labels[0] != labels[1]:
        yield "labels"
    if None not in (patients := [patient_of(logged), patient_of(image)]) and patients[0] != patients[1]:
        yield "patient_id"


def _agree(one: Any, other: Any) -> bool:
    try:
        first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    if not first.size and not second.size:
        return True
    return first.shape == second.shape and bool((np.abs(first - second) <= _ROUNDING).all())


def _refuse_other_rows(log: Log, members: Sequence[int]) -> None:
    """Refuse rows of one image that describe it differently."""
    first, *others = members
    for k in others:
        for column in (*_NEEDED, "labels", "ignore_boxes"):
            if log.rows[k].get(column) != log.rows[first].get(column):
                raise ValueError(
                    f"Expected the same `{column}` in all rows of one image, got others for id "
                    f"{log.rows[k].get('id')!r} in {log.places[first]} and {log.places[k]}. Rows with one id are "
                    "answers to one image: give images names of their own."
                )


def _known(sizes: Mapping[str, float | None] | None) -> dict[str, float]:
    return {name: value for name, value in (sizes or {}).items() if value is not None}


def _answers_to_images(
    log: Log,
    members: Sequence[Sequence[int]],
    paths: Sequence[str | Path],
    sizes: Mapping[str, float | None] | None,
    allow_outside: bool,
    notes: Sequence[str],
) -> Answers:
    """Answers to images that the log itself describes, and that are looked for beside it."""
    # Rows that are in no file name their images from the working directory.
    logs = [Path(path) for path in paths if not isinstance(path, Mapping)] or [Path()]
    folders = [path if path.is_dir() else path.parent for path in logs]
    images, files = [], []
    lacking: dict[str, list[str]] = {"there": [], "beside the log": []}
    for several in members:
        _refuse_other_rows(log, several)
        row, place = log.rows[several[0]], log.places[several[0]]
        given = next((row[name] for name in _IMAGE_COLUMNS if isinstance(row.get(name), str)), None)
        # An absolute path stays as it is when joined to a folder.
        file = next((one for folder in folders if given is not None and (one := folder / given).is_file()), None)
        if given is not None and file is None:
            lacking["there"].append(f"{given!r} in {place}")
        elif file is not None and not allow_outside and not is_below(folders, file):
            lacking["beside the log"].append(f"{given!r} in {place}")
            file = None
        files.append(file)
        kept = {name: value for name, value in row.items() if name not in _IMAGE_COLUMNS}
        images.append({**_known(sizes), **kept, **({} if file is None else {"image_path": str(file)})})
    remedies = {
        "there": "Paths start at the folder of the log.",
        "beside the log": "Name the --dataset, or give --allow-outside.",
    }
    said = [
        f"{len(several)} of {len(images)} images are shown without their image, which is not {where}: "
        f"{first_of(several)}. {remedies[where]}"
        for where, several in lacking.items()
        if several
    ]
    return Answers(
        images,
        [[log.completions[k] for k in several] for several in members],
        lambda k: None if (file := files[k]) is None else open_image(file),
        [log.places[first] for first, *_ in members],
        (*notes, *said),
    )


def image_problems(
    rows: Sequence[Mapping[str, Any]],
    reward: GroundingReward | None = None,
    *,
    label_matching: str = "ignore",
    places: Sequence[str] | None = None,
) -> dict[int, list[str]]:
    """What is wrong with images that nothing can be measured on, by their number.

    Args:
        rows: as :class:`Answers` has them.
        reward: that will read the answers: whether the box format is known and what it needs is there; None leaves the
            box format aside.
        label_matching: under others than ``"ignore"`` every reference box needs a label.
        places: where each row is.

    Raises:
        ValueError: images lack a column.

    Example:
        >>> image_problems([{"boxes": [[0, 0, 9, 99]], "width": 50, "height": 50}])
        {0: ['box 0 is [0, 0, 9, 99], outside the image of 50 x 50']}
    """
    named = partial(_named, rows, places or [f"row {k}" for k in range(len(rows))])
    for name in _NEEDED:
        without = [k for k, row in enumerate(rows) if row.get(name) is None]
        if without:
            raise ValueError(
                f"Expected a column `{name}` for every image, got none for {len(without)} of {len(rows)}: "
                f"{first_of([named(k) for k in without])}. Add it, or name the dataset that has it with --dataset."
            )
    # Without any format there is one thing to say, not one for each row: the reward says it.
    knows_format = reward is not None and (reward.box_format is not None or any(row.get("box_format") for row in rows))
    compared = f"--label-matching {label_matching} compares"
    if label_matching == "ignore":
        # Such boxes would be a label of their own, which no answer gives: its average precision is 0.
        compared = (
            "other images have" if any(not is_blank(one) for row in rows for one in row.get("labels") or ()) else ""
        )
    return {
        k: found
        for k, row in enumerate(rows)
        if (found := [*row_problems(row, reward if knows_format else None), *_unnamed_boxes(row, compared)])
    }


def _named(rows: Sequence[Mapping[str, Any]], places: Sequence[str], k: int) -> str:
    return f"{places[k]} (id {rows[k].get('id', '-')})"


def _unnamed_boxes(row: Mapping[str, Any], compared: str) -> Iterator[str]:
    """Whether a box has no label although labels are measured, and by what they are."""
    labels, boxes = row.get("labels"), row["boxes"]
    if compared and isinstance(boxes, list) and boxes and (not labels or any(map(is_blank, labels))):
        yield f"a box without a label, which {compared}"
