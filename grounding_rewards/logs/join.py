"""Logs as answers to images: to evaluate, one answer or several samples an image; to compare, the groups of GRPO.

Which image of a dataset a row is about is one rule for every command: :mod:`grounding_rewards.logs.image_names`. What a
log and a dataset both state about an image has to be the same: where boxes differ, one of them is of another version or
another split, and a metric against either would be wrong. Rows are checked here once, by the rules of training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grounding_rewards.columns import image_id, patient_of
from grounding_rewards.common.formatting import first_of
from grounding_rewards.data.checks import is_blank, row_problems, warn_of_dropped
from grounding_rewards.data.dataset_columns import light_rows
from grounding_rewards.logs.image_names import with_image_ids
from grounding_rewards.logs.read import Log, read_completions, step_of
from grounding_rewards.metrics.read_predictions import require_columns

if TYPE_CHECKING:
    from datasets import Dataset

    from grounding_rewards.rewards.grounding import GroundingReward

_Row = dict[str, Any]

# Lines of an error about many images.
_MOST_LINES = 20
# In pixels: boxes and sizes that differ by less are those of the image after rounding.
_ROUNDING = 0.5

#: Columns with the step of a training and the temperature: answers that differ in one of them are of different groups.
APART = ("step", "temperature")
# Columns that the log alone may know: the box format, the size of the image that the model saw, and the question.
_LOG_COLUMNS = ("box_format", "resized_width", "resized_height", "prompt", "messages", "input", *APART)


class ImageAnswers(NamedTuple):
    """n images and the answers to each.

    Attributes:
        rows: one an image, without prompt and image.
        texts: for each image one answer or several, the first of which is judged.
        notes: warnings about the log, a sentence each.
        numbers: of the rows of the dataset; none without a dataset.
    """

    rows: list[_Row]
    texts: list[list[Any]]
    notes: tuple[str, ...] = ()
    numbers: Sequence[int] = ()


def read_log(
    paths: Sequence[str | Path],
    reward: GroundingReward | None = None,
    *,
    dataset: Dataset | None = None,
    text_column: str | None = None,
    by_order: bool = False,
    sizes: Mapping[str, float | None] | None = None,
    label_matching: str | None = None,
    bad_rows: str = "refuse",
    in_groups: bool = False,
    group_size: int | None = None,
) -> ImageAnswers:
    """Read a log of completions together with the images that they answer.

    Several rows with one `id` are several answers to one image. To evaluate, there are as many for every image; the
    first is judged. Where all have a `step`, as the log of a training does, the answers of the last step at which the
    image was asked about are taken.

    In groups, rows of one `id` are one group unless they differ in one of :data:`APART`.

    Args:
        paths: files or folders, as :func:`grounding_rewards.logs.read.read_completions` takes them.
        reward: that will read the answers: whether the box format is known and what it needs is there; None leaves the
            box format aside.
        dataset: the images; without it the rows of the log have `boxes`, `width` and `height`. Images and rows belong
            together as :func:`grounding_rewards.logs.image_names.with_image_ids` says. What the log says of an image
            besides has to agree with the dataset.
        text_column: the column with the completions.
        by_order: take the rows in the order of the dataset's images; in groups each image has as many rows.
        sizes: sizes for images that have none, by column.
        label_matching: under others than ``"ignore"`` every reference box needs a label; None takes the reward's.
        bad_rows: `refuse` images that nothing can be measured on, or `drop` them, which a warning says.
        in_groups: take the answers in groups, as GRPO compares them: images with one answer are left out.
        group_size: every so many rows in turn are a group; neither `id` nor prompt is looked at.

    Returns:
        The images, in the order of the dataset, else of the log; in groups an image for each group.

    Raises:
        ValueError: a file is broken, images and completions do not fit each other, an image cannot be right, or in
            groups no image has several answers. The message names file and row.

    Example:
        >>> row = {"id": "a", "boxes": [[0, 0, 9, 99]], "width": 50, "height": 50, "completion": "[]"}
        >>> read_log([row])
        Traceback (most recent call last):
        ...
        ValueError: Expected sizes, boxes and labels that fit the image for every image, got 1 of 1 that does not. \
Correct it:
        row 1 of the rows (id a): box 0 is [0, 0, 9, 99], outside the image of 50 x 50
    """
    images = None if dataset is None else light_rows(dataset)
    log = read_completions(paths, text_column=text_column)
    if images is not None:
        log = with_image_ids(log, images, by_order=by_order, in_groups=in_groups)
    groups, notes = _groups_of_several(log, group_size) if in_groups else _rows_of_images(log)
    for group in groups:
        _refuse_other_rows(log, group, one_image=images is not None)
    # The number of the image that each group is about, which only a dataset gives.
    numbers: list[int] = []
    if images is None:
        places = [log.places[group[0]] for group in groups]
        rows = [log.rows[group[0]] for group in groups]
    else:
        numbers = _image_numbers(log, groups, images, every_image=not in_groups)
        # In the order of the dataset.
        groups = [group for _, group in sorted(zip(numbers, groups, strict=True))]
        numbers.sort()
        places = [f"row {number} of the dataset" for number in numbers]
        rows = _rows_of_dataset(log, groups, [images[number] for number in numbers])
    # The sizes of the row itself come first.
    default_sizes = {name: value for name, value in (sizes or {}).items() if value is not None}
    rows = [{**default_sizes, **row} for row in rows]
    texts = [[log.completions[k] for k in group] for group in groups]
    if label_matching is None:
        label_matching = "ignore" if reward is None else getattr(reward.box_reward, "label_matching", "ignore")
    return _good_images(ImageAnswers(rows, texts, tuple(notes), numbers), places, reward, label_matching, bad_rows)


def names_images(log: Log) -> bool:
    """Whether the rows of a log have an `id`, by which they belong to images.

    Raises:
        ValueError: some have one and others have none; these are named.

    Example:
        >>> names_images(Log(["[]"], [{"id": "b"}], ["line 1"])), names_images(Log(["[]"], [{}], ["line 1"]))
        (True, False)
    """
    nameless = [place for place, row in zip(log.places, log.rows, strict=True) if row.get("id") in (None, "")]
    if 0 < len(nameless) < len(log.rows):
        raise ValueError(
            f"Expected an `id` in every row of the log, or in none, got {len(nameless)} of {len(log.rows)} without: "
            f"{first_of(nameless)}. Answers belong to images by it: add the image's `id`, or remove these rows."
        )
    return not nameless


def _rows_of_images(log: Log) -> tuple[list[list[int]], list[str]]:
    """The indices of the rows of each image, that of the judged answer first; and notes about the log."""
    if not names_images(log):
        return [[k] for k in range(len(log.rows))], list(log.notes)
    groups: dict[str, list[int]] = {}
    for k, row in enumerate(log.rows):
        groups.setdefault(str(row["id"]), []).append(k)
    groups, notes = _rows_of_last_step(log, groups)
    # How many answers most images have.
    usual_count = Counter(map(len, groups.values())).most_common(1)[0][0]
    odd_groups = {name: rows for name, rows in groups.items() if len(rows) != usual_count}
    if odd_groups:
        raise ValueError(
            f"Expected as many answers to every image, got {usual_count} for most, and another number for "
            f"{len(odd_groups)} of {len(groups)}: {_places_of(log, odd_groups)}. Rows with one `id` are answers to one "
            "image: give images names of their own, and remove rows that are there twice."
        )
    if usual_count > 1:
        notes.append(
            f"The log has {usual_count} answers to every image: the first is judged, the others are its samples, "
            "of which only the reward is measured."
        )
    return list(groups.values()), notes


def _rows_of_last_step(log: Log, groups: dict[str, list[int]]) -> tuple[dict[str, list[int]], list[str]]:
    """The indices of the rows of each image at its last step, or all of them; and notes about the log.

    All are taken where some row of the log has no step: then it is not the log of a training.
    """
    steps = [step for step in map(step_of, log.rows) if step is not None]
    if len(steps) < len(log.rows):
        return groups, list(log.notes)
    last_steps = {name: max(steps[k] for k in rows) for name, rows in groups.items()}
    last_rows = {name: [k for k in rows if steps[k] == last_steps[name]] for name, rows in groups.items()}
    earlier_count = len(log.rows) - sum(map(len, last_rows.values()))
    notes = list(log.notes)
    if earlier_count:
        notes.append(
            "The log is of a training: of each image the answers of its last step are taken, which is from "
            f"{min(last_steps.values()):g} to {max(last_steps.values()):g}, and {earlier_count} earlier ones are left "
            "out. They are of a model that was still learning."
        )
    return last_rows, notes


def _groups_of_several(log: Log, group_size: int | None) -> tuple[list[list[int]], list[str]]:
    """The indices of the rows of each group of several, and notes about the log."""
    all_groups = _group_members(log, group_size)
    groups = [group for group in all_groups if len(group) > 1]
    lone_rows = [group[0] for group in all_groups if len(group) == 1]
    if not groups:
        raise ValueError(
            f"Expected several completions to the same image, got one to each of {len(lone_rows)}. GRPO compares "
            "answers to one image, and so does this: give a log of samples (`log_completions: true` in training; "
            "`evaluate --samples 8` writes samples.jsonl), name each row's image by `id` or the rows of a group by "
            "--group-size, or sample now with --model."
        )
    notes = [*log.notes]
    if lone_rows:
        notes.append(
            f"{len(lone_rows)} of {len(log.rows)} rows are the only answer to their image, and are left out; the first "
            f"is {log.places[lone_rows[0]]}."
        )
    return groups, notes


def _group_members(log: Log, group_size: int | None) -> list[list[int]]:
    """The indices of the rows of each group: `group_size` in turn, else those alike in `id`, step and temperature."""
    n = len(log.rows)
    if group_size is not None:
        if group_size < 2:
            raise ValueError(f"Expected at least 2 for `group_size`, got {group_size}. One answer is no group.")
        if n % group_size:
            raise ValueError(
                f"Expected whole groups of {group_size} rows, got {n} rows. Give the num_generations of the training."
            )
        return [list(range(start, start + group_size)) for start in range(0, n, group_size)]
    if not names_images(log):
        raise ValueError(
            "Expected an `id` in every row of the log, or --group-size, got neither. Name each row's image by `id`, or "
            "give the num_generations of the training, whose groups follow each other."
        )
    groups: dict[Any, list[int]] = {}
    for k, row in enumerate(log.rows):
        # The step and the temperature, where the row has them, and the image.
        key = (*(row.get(name) for name in APART), str(row["id"]))
        groups.setdefault(key, []).append(k)
    return list(groups.values())


def _rows_of_dataset(log: Log, groups: Sequence[Sequence[int]], images: Sequence[_Row]) -> list[_Row]:
    """The image of each group, with what the log alone knows of it.

    Raises:
        ValueError: log and dataset describe an image differently; the row is named.
    """
    rows, conflicts = [], []
    for group, image in zip(groups, images, strict=True):
        # The rows of a group were found to describe the image alike.
        logged = log.rows[group[0]]
        conflict = next(_contradictions(logged, image), None)
        if conflict is not None:
            conflicts.append((group[0], image, conflict))
        rows.append(image | {name: logged[name] for name in _LOG_COLUMNS if logged.get(name) is not None})
    if conflicts:
        k, image, column = conflicts[0]
        raise ValueError(
            f"Expected what the dataset says of an image in the log, or nothing, got another `{column}` in "
            f"{log.places[k]}: {log.rows[k][column]!r:.100} for the image with id {image.get('id', '-')!r}, of which "
            f"the dataset says {image.get(column)!r:.100}. {len(conflicts)} of {len(groups)} images differ. Name the "
            "dataset and split that were answered, or, where the log is wrong, remove its columns."
        )
    return rows


def _image_numbers(
    log: Log, groups: Sequence[Sequence[int]], images: Sequence[_Row], *, every_image: bool
) -> list[int]:
    """The number of the image that each group of rows is about, by its `id`; one without `id` is named by its number.

    Raises:
        ValueError: an `id` that no image has, or several have, or no row has although every image has to be answered.
    """
    names = [image_id(row, k) for k, row in enumerate(images)]
    # Of several images with one name the last.
    number_by_name = {name: k for k, name in enumerate(names)}
    groups_by_name = {str(log.rows[group[0]].get("id", "")): group for group in groups}
    unknown_groups = {name: group for name, group in groups_by_name.items() if name not in number_by_name}
    if unknown_groups:
        raise ValueError(
            f"Expected the `id` of an image of the dataset in every row of the log, got {len(unknown_groups)} of "
            f"{len(groups_by_name)} that it does not have: {_places_of(log, unknown_groups)}. It has "
            f"{first_of(list(map(repr, names)))}. Give the split that was answered with --split, and as many images "
            "with --max-images."
        )
    repeated_names = [repr(name) for k, name in enumerate(names) if number_by_name[name] != k]
    if repeated_names:
        raise ValueError(
            f"Expected an `id` of its own for every image of the dataset, got {first_of(repeated_names)} for several. "
            "Answers belong to images by it: prepare the dataset with names of their own."
        )
    unanswered_names = [repr(name) for name in names if name not in groups_by_name]
    if every_image and unanswered_names:
        raise ValueError(
            f"Expected a completion for every image, got {len(names) - len(unanswered_names)} of {len(names)}; without "
            f"one are {first_of(unanswered_names)}. Answer all images, or name those that were answered with "
            "--max-images."
        )
    return [number_by_name[str(log.rows[group[0]]["id"])] for group in groups]


def _places_of(log: Log, groups: Mapping[str, Sequence[int]]) -> str:
    """The first few images, each with the places of its rows."""
    places = {name: first_of([log.places[k] for k in rows]) for name, rows in groups.items()}
    return first_of([f"{name!r} ({text})" for name, text in places.items()])


def _contradictions(logged: Mapping[str, Any], image: Mapping[str, Any]) -> Iterator[str]:
    """The columns that a row of the log and the image both have, and that differ by more than rounding."""
    for column in ("boxes", "width", "height", "ignore_boxes"):
        logged_value, value = logged.get(column), image.get(column)
        if logged_value is not None and value is not None and not _are_about_equal(logged_value, value):
            yield column
    logged_labels, labels = logged.get("labels"), image.get("labels")
    if logged_labels is not None and labels is not None and list(logged_labels) != list(labels):
        yield "labels"
    logged_patient, patient = patient_of(logged), patient_of(image)
    if logged_patient is not None and patient is not None and logged_patient != patient:
        yield "patient_id"


def _are_about_equal(logged: Any, reference: Any) -> bool:
    """Whether two values, numbers or lists of them, are equal but for rounding; never for what is no number."""
    try:
        logged, reference = np.asarray(logged, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        # Words, or lists of different lengths.
        return False
    if not logged.size and not reference.size:
        # No boxes have shape (0,) or (0, 4).
        return True
    return logged.shape == reference.shape and bool((np.abs(logged - reference) <= _ROUNDING).all())


def _refuse_other_rows(log: Log, group: Sequence[int], *, one_image: bool) -> None:
    """Refuse a group of rows that describe their image differently; the row is named.

    Args:
        log: whose rows they are.
        group: indices of rows, which are answers to one image.
        one_image: whether several ids are refused too, which a group of so many rows in turn may have.
    """
    row, place = log.rows[group[0]], log.places[group[0]]
    for k in group[1:]:
        other_row, other_place = log.rows[k], log.places[k]
        if one_image and str(other_row.get("id")) != str(row.get("id")):
            raise ValueError(
                f"Expected answers to one image of the dataset in all {len(group)} rows of a group for --group-size, "
                f"got {row.get('id')!r} in {place} and {other_row.get('id')!r} in {other_place}. Leave --group-size "
                "out: the rows name their images, or are in their order."
            )
        for column in ("boxes", "width", "height", "labels", "ignore_boxes"):
            if other_row.get(column) != row.get(column):
                raise ValueError(
                    f"Expected the same `{column}` in all rows of one image, got others for id "
                    f"{other_row.get('id')!r} in {place} and {other_place}. Rows with one id are answers to one image: "
                    "give images names of their own."
                )


def _good_images(
    answers: ImageAnswers, places: Sequence[str], reward: GroundingReward | None, label_matching: str, bad_rows: str
) -> ImageAnswers:
    """The answers without those to images that nothing can be measured on, which are dropped or refused.

    Raises:
        ValueError: there are such images, and they are refused, or they are all; places and what is wrong are named.
    """
    rows, texts, notes, numbers = answers
    problems = image_problems(rows, reward, label_matching=label_matching, places=places)
    if not problems:
        return answers
    lines = [f"{places[k]} (id {rows[k].get('id', '-')}): {'; '.join(defects)}" for k, defects in problems.items()]
    if bad_rows == "drop" and len(problems) < len(rows):
        warn_of_dropped(len(problems), f"{len(rows)} images", lines)
        good_rows = [k for k in range(len(rows)) if k not in problems]
        return ImageAnswers(
            [rows[k] for k in good_rows],
            [texts[k] for k in good_rows],
            notes,
            [numbers[k] for k in good_rows] if numbers else (),
        )
    verb, pronoun = ("does not", "it") if len(problems) == 1 else ("do not", "them")
    # Where most are wrong, so is the order or the frame of the boxes: to drop them would only hide it.
    alternative = ", or go on without by --bad-rows drop" if 2 * len(problems) < len(rows) else ""
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"and {len(lines) - _MOST_LINES} more"]
    raise ValueError(
        f"Expected sizes, boxes and labels that fit the image for every image, got {len(problems)} of {len(rows)} that "
        f"{verb}. Correct {pronoun}{alternative}:\n" + "\n".join(lines)
    )


def image_problems(
    rows: Sequence[Mapping[str, Any]],
    reward: GroundingReward | None = None,
    *,
    label_matching: str = "ignore",
    places: Sequence[str] | None = None,
) -> dict[int, list[str]]:
    """By the number of each image on which nothing can be measured, the reasons why.

    Args:
        rows: one an image.
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
    places = places or [f"row {k}" for k in range(len(rows))]
    require_columns(rows, places)
    # Without any format there is one error, not one for each row: that of the reward.
    knows_format = reward is not None and (reward.box_format is not None or any(row.get("box_format") for row in rows))
    labels_compared = label_matching != "ignore"
    label_reason = f"--label-matching {label_matching} compares" if labels_compared else "other images have"
    # Beside labels, boxes without one would be a label of their own, which no answer gives: its average precision is 0.
    has_labels = any(not is_blank(label) for row in rows for label in row.get("labels") or ())
    needs_labels = labels_compared or has_labels
    problems: dict[int, list[str]] = {}
    for k, row in enumerate(rows):
        defects = list(row_problems(row, reward if knows_format else None))
        labels, boxes = row.get("labels"), row["boxes"]
        if needs_labels and isinstance(boxes, list) and boxes and (not labels or any(map(is_blank, labels))):
            defects.append(f"a box without a label, which {label_reason}")
        if defects:
            problems[k] = defects
    return problems
