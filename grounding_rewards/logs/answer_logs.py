"""Answers to evaluate: images, and the completions for each, from a model or from a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.data.checks import is_blank, row_problems, said_dropped
from grounding_rewards.data.light_rows import light_rows, load_dataset_image
from grounding_rewards.images.decoding import open_image
from grounding_rewards.images.image_paths import is_below
from grounding_rewards.logs.completion_logs import Log, first_of, read_completions, step_of, with_numbers
from grounding_rewards.logs.join import join_by_id, names_images, places_of, refuse_other_images

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

    from grounding_rewards.rewards.grounding import GroundingReward

_IMAGE_COLUMNS = ("image_path", "image", "file")
# What an image cannot be measured without.
_NEEDED = ("boxes", "width", "height")
_NO_IDS = (
    "No row of the log has an `id`: its answers are taken to be in the order of the images. In another order all "
    "metrics are wrong: add the image's `id` to every row."
)
# Lines of an error about many images.
_MOST_NAMED = 20


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

    def without(self, problems: Mapping[int, Sequence[str]]) -> Answers:
        """The answers to the other images; a warning names those that are left out, and what is wrong with them."""
        if not problems:
            return self
        lines = [f"{_named(self.rows, self.places, k)}: {'; '.join(found)}" for k, found in problems.items()]
        said_dropped(len(problems), f"{len(self.rows)} images", lines)
        kept = [k for k in range(len(self.rows)) if k not in problems]
        return Answers(
            [self.rows[k] for k in kept],
            [self.texts[k] for k in kept],
            lambda k: self.load_image(kept[k]),
            [self.places[k] for k in kept],
            self.notes,
        )


def read_log(
    paths: Sequence[Path],
    *,
    dataset: Dataset | None = None,
    text_column: str | None = None,
    sizes: Mapping[str, float | None] | None = None,
    allow_outside: bool = False,
) -> Answers:
    """Read a log of completions together with the images that they answer.

    Args:
        paths: files or folders, as :func:`grounding_rewards.logs.completion_logs.read_completions` takes them. Several
            rows with one `id` are several answers to one image, as many for every image; the first is judged, or the
            one with the lowest `sample`, where all rows have that column. Where all have a `step`, as the log of a
            training does, the answers of the last step at which the image was asked about are taken.
        dataset: the images; without it the rows of the log have `boxes`, `width` and `height`. Images and rows belong
            together by `id`, or, where no row of the log has one, by their order. What the log says of an image besides
            has to agree with the dataset.
        text_column: the column with the completions.
        sizes: sizes for images that have none, by column.
        allow_outside: whether images that the log names may lie outside the folders of its files.

    Raises:
        ValueError: a file is broken, or images and completions do not fit each other. The message names file and row.
    """
    known = {name: value for name, value in (sizes or {}).items() if value is not None}
    unknown = sorted(known.keys() - set(SIZE_COLUMNS))
    if unknown:
        raise ValueError(f"Expected {', '.join(SIZE_COLUMNS)} for `sizes`, got {unknown[0]!r}. Name one of them.")
    log = read_completions(paths, text_column=text_column)
    log = log._replace(rows=list(map(with_numbers, log.rows)))
    by_id, notes = _rows_by_id(log)
    members = [[k] for k in range(len(log.rows))] if by_id is None else list(by_id.values())
    for places in members:
        refuse_other_image(log, places)
    if dataset is None:
        return answers_to_images(log, members, paths, known, allow_outside, (*notes, *_notes_of_samples(members)))
    images = [{**known, **row} for row in light_rows(dataset)]
    if by_id is not None:
        asked = join_by_id(log, members, images, every_image=True)
        members = [members[k] for k in sorted(range(len(members)), key=asked.__getitem__)]
    elif len(members) != len(images):
        raise ValueError(
            f"Expected a column `id` in the log, or as many completions as images, got {len(members)} completions for "
            f"{len(images)} images. Add the image's `id` to every row."
        )
    else:
        refuse_other_images(log, members, images)
    said = () if by_id is not None else (_NO_IDS,)
    found = answers_to_dataset(dataset, images, log, members, range(len(images)))
    return replace(found, notes=(*notes, *said, *_notes_of_samples(members)))


def answers_to_dataset(
    dataset: Dataset,
    images: Sequence[Mapping[str, Any]],
    log: Log,
    members: Sequence[Sequence[int]],
    chosen: Sequence[int],
    taken: Sequence[str] = (),
) -> Answers:
    """Answers to images of a dataset.

    Args:
        dataset: the images.
        images: its rows, without prompt and image.
        log: the answers.
        members: numbers of the rows of each image, the one that describes it first.
        chosen: the number of each image.
        taken: columns of the log that the rows get too.
    """
    names = ("box_format", "resized_width", "resized_height", *taken)
    # What only the log knows: the box format, and the size of the image that the model saw.
    said = ({name: value for name in names if (value := log.rows[one[0]].get(name)) is not None} for one in members)
    places = dataset_places(dataset)
    return Answers(
        [{**images[k], **own} for k, own in zip(chosen, said, strict=True)],
        [[log.completions[k] for k in several] for several in members],
        lambda k: load_dataset_image(dataset, chosen[k]),
        [places[k] for k in chosen],
        log.notes,
    )


def dataset_places(dataset: Dataset) -> list[str]:
    """Where each image of a dataset is, for a message."""
    return [f"row {k} of the dataset" for k in range(dataset.num_rows)]


def check_images(
    rows: Sequence[Mapping[str, Any]],
    places: Sequence[str],
    reward: GroundingReward | None = None,
    *,
    label_matching: str = "ignore",
) -> None:
    """Refuse images that nothing can be measured on: sizes, boxes and labels by the rules that training has.

    Args:
        rows: as :class:`Answers` has them.
        places: where each is.
        reward: that will read the answers: whether the box format is known and what it needs is there; None leaves the
            box format aside.
        label_matching: under others than ``"ignore"`` every reference box needs a label.

    Raises:
        ValueError: it names the images, the place of each, and what is wrong with it.

    Example:
        >>> check_images([{"id": 7, "boxes": [[0, 0, 9, 99]], "width": 50, "height": 50}], ["line 1 of 'log.jsonl'"])
        Traceback (most recent call last):
        ...
        ValueError: Expected sizes, boxes and labels that fit the image for every image, got 1 of 1 that does not. \
Correct it, or go on without by --bad-rows drop:
        line 1 of 'log.jsonl' (id 7): box 0 is [0, 0, 9, 99], outside the image of 50 x 50
    """
    problems = image_problems(rows, reward, label_matching=label_matching, places=places)
    if problems:
        one = len(problems) == 1
        lines = [f"{_named(rows, places, k)}: {'; '.join(found)}" for k, found in problems.items()]
        more = len(lines) - _MOST_NAMED
        raise ValueError(
            f"Expected sizes, boxes and labels that fit the image for every image, got {len(problems)} of {len(rows)} "
            f"that {'does' if one else 'do'} not. Correct {'it' if one else 'them'}, or go on without by --bad-rows "
            "drop:\n" + "\n".join([*lines[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
        )


def image_problems(
    rows: Sequence[Mapping[str, Any]],
    reward: GroundingReward | None = None,
    *,
    label_matching: str = "ignore",
    places: Sequence[str] | None = None,
) -> dict[int, list[str]]:
    """What is wrong with images, by their number; arguments as for :func:`check_images`.

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


def _rows_by_id(log: Log) -> tuple[dict[str, list[int]] | None, tuple[str, ...]]:
    """The rows of each image, the one that is judged first, None where no row has an id; and notes about the log."""
    if not names_images(log):
        return None, log.notes
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
                f"Expected one row for each `id` and `sample`, got several for {places_of(log, twice)}. "
                "Remove those that are left over from another run."
            )
    usual = Counter(map(len, found.values())).most_common(1)[0][0]
    others = {name: rows for name, rows in found.items() if len(rows) != usual}
    if others:
        raise ValueError(
            f"Expected as many answers to every image, got {usual} for most, and another number for {len(others)} of "
            f"{len(found)}: {places_of(log, others)}. Rows with one `id` are answers to one image: give images names "
            "of their own, and remove rows that are there twice."
        )
    return found, notes


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


def _notes_of_samples(members: Sequence[Sequence[int]]) -> Iterator[str]:
    if members and len(members[0]) > 1:
        yield (
            f"The log has {len(members[0])} answers to every image: the first is judged, the others are its "
            f"samples, of "
            "which only the reward is measured."
        )


def refuse_other_image(log: Log, members: Sequence[int]) -> None:
    """Refuse rows of one image that describe it differently.

    Raises:
        ValueError: the first two such rows are named, and what differs.
    """
    first, *others = members
    for k in others:
        for column in (*_NEEDED, "labels", "ignore_boxes"):
            if log.rows[k].get(column) != log.rows[first].get(column):
                raise ValueError(
                    f"Expected the same `{column}` in all rows of one image, got others for id "
                    f"{log.rows[k].get('id')!r} in {log.places[first]} and {log.places[k]}. Rows with one id are "
                    "answers to one image: give images names of their own."
                )


def answers_to_images(
    log: Log,
    members: Sequence[Sequence[int]],
    paths: Sequence[Path],
    sizes: Mapping[str, float],
    allow_outside: bool,
    said: Sequence[str],
) -> Answers:
    """Answers to images that the log itself describes.

    Args:
        log: its rows.
        members: numbers of the rows of each image, the one that describes it first.
        paths: of the log, beside which images are looked for.
        sizes: sizes for images that have none, by column.
        allow_outside: whether images may lie outside the folders of the log.
        said: notes that stand before those that are added here.
    """
    folders = [path if path.is_dir() else path.parent for path in paths]
    images, missing, outside = [], [], []
    for first, *_ in members:
        row, place = log.rows[first], log.places[first]
        given = next((row[name] for name in _IMAGE_COLUMNS if isinstance(row.get(name), str)), None)
        found = None if given is None else _find_image(given, folders)
        if given is not None and found is None:
            missing.append(f"{given!r} in {place}")
        elif found is not None and not allow_outside and not is_below(folders, found):
            outside.append(f"{given!r} in {place}")
            found = None
        kept = {name: value for name, value in row.items() if name not in _IMAGE_COLUMNS}
        images.append({**sizes, **kept, **({} if found is None else {"image_path": str(found)})})
    notes = [
        f"{len(several)} of {len(images)} images are shown without their image, {why}: {first_of(several)}. {remedy}"
        for several, why, remedy in (
            (missing, "which is not there", "Paths start at the folder of the log."),
            (outside, "which is not beside the log", "Name the --dataset, or give --allow-outside."),
        )
        if several
    ]
    return Answers(
        images,
        [[log.completions[k] for k in several] for several in members],
        partial(_open_listed, [image.get("image_path") for image in images]),
        [log.places[first] for first, *_ in members],
        (*said, *notes),
    )


def _find_image(given: str, folders: Iterable[Path]) -> Path | None:
    # An absolute path stays as it is when joined to a folder.
    return next((folder / given for folder in folders if (folder / given).is_file()), None)


def _open_listed(paths: Sequence[str | None], k: int) -> Image | None:
    path = paths[k]
    return None if path is None else open_image(path)
