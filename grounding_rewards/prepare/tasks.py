"""From an image to the rows of a task: what is asked, and the boxes that answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.held_out import hash_fraction
from grounding_rewards.data.merging import image_readers, reference_boxes
from grounding_rewards.data.prompts import task_prompt, template_prompt, wordings
from grounding_rewards.prepare.settings import PrepareSettings


class TaskRow(NamedTuple):
    """A row without its image; boxes are in pixels of the record.

    id: the image's id, followed by the finding or the number of the phrase if an image has several rows.
    what: what the prompt asks for: findings, one finding or a phrase.
    phrase: the phrase; None in other tasks.
    The other fields are those of `policies.Reference`.
    """

    id: str
    what: str | tuple[str, ...]
    boxes: list[list[float]]
    labels: list[str]
    ignore_boxes: list[list[float]]
    reader_boxes: list[list[list[float]]]
    reader_labels: list[list[str]]
    phrase: str | None = None


@dataclass(frozen=True)
class TaskPlan:
    """What the rows of an image depend on besides the image.

    Attributes:
        settings: The settings of the preparation.
        vocabulary: The findings of interest, in the order of the prompt.
        keep: For each finding the share of the images without it that become negative rows.
        keep_normal: For a split the end of the hashes of images without findings that stay, for the task `detection`;
            all stay in other splits.
    """

    settings: PrepareSettings
    vocabulary: tuple[str, ...]
    keep: Mapping[str, float]
    keep_normal: Mapping[str, float] = field(default_factory=dict)


def task_rows(record: AnnotatedImage, plan: TaskPlan) -> Iterator[TaskRow]:
    """The rows of one image; none if the task has nothing to ask, or if all boxes that answer it are too small.

    Boxes of other findings, and small ones, are dropped before the policy for several readers is applied.

    Raises:
        ValueError: Boxes, labels, phrases and readers of the image differ in number.
    """
    task = plan.settings.task
    if task == "detection":
        row = _row(image_of_interest(record, plan.vocabulary), plan.settings, record.id, plan.vocabulary)
        if row is not None:
            yield row
    elif task == "finding":
        for label in plan.vocabulary:
            row = finding_row(record, label, plan.settings)
            state = is_present(row)
            if row is not None and (state or (state is False and _drawn(row, plan.settings) < plan.keep[label])):
                yield row
    else:
        for number, phrase in enumerate(dict.fromkeys(record.phrases)):
            row = _phrase_row(record, f"{record.id}/{number}", phrase, plan)
            if row is not None and is_present(row):
                yield row


def is_kept(row: TaskRow, split: str, plan: TaskPlan) -> bool:
    """Whether a row of the task `detection` stays where its split has a share of images without findings."""
    end = plan.keep_normal.get(split)
    return end is None or is_present(row) is not False or normal_hash(row, plan.settings) < end


def normal_hash(row: TaskRow, settings: PrepareSettings) -> float:
    """A number in [0, 1) by which images without findings are chosen, the smallest first."""
    return hash_fraction("normal", settings.seed, row.id)


def image_of_interest(record: AnnotatedImage, labels: tuple[str, ...]) -> AnnotatedImage:
    """The image with the boxes of these findings only; its readers stay.

    >>> image_of_interest(AnnotatedImage("a", "a.png", [[0, 0, 9, 9]], ["mass"], readers=("R1",)), ("nodule",)).read_by
    ('R1',)
    """
    return _boxes_where(record, lambda label, _: label in labels)


def without_small_boxes(record: AnnotatedImage, settings: PrepareSettings) -> AnnotatedImage:
    """The image without the boxes that have a side below `smallest_box`; broken ones stay, to be refused.

    >>> image = AnnotatedImage("a", "a.png", [[0, 0, 9, 2], [0, 0, 9, 9]], ["mass", "mass"])
    >>> without_small_boxes(image, PrepareSettings("coco", "qwen3-vl", smallest_box=4)).boxes
    [[0, 0, 9, 9]]
    """
    if not settings.smallest_box:
        return record
    sides = (min(x2 - x1, y2 - y1) for x1, y1, x2, y2 in record.boxes)
    return _with_boxes(record, [k for k, side in enumerate(sides) if not 0 < side < settings.smallest_box])


def finding_row(record: AnnotatedImage, label: str, settings: PrepareSettings) -> TaskRow | None:
    """The row that asks an image for one finding, present or not; None where its boxes are all too small.

    >>> image = AnnotatedImage("a", "a.png", [[0, 0, 9, 9]], ["mass"])
    >>> finding_row(image, "mass", PrepareSettings("coco", "qwen3-vl", task="finding")).id
    'a/mass'
    """
    return _row(_boxes_where(record, lambda own, _: own == label), settings, f"{record.id}/{label}", label)


def is_present(row: TaskRow | None) -> bool | None:
    """Whether the finding is there for any reader; None if it may be in an ignored region, or too small to be asked."""
    if row is None:
        return None
    if row.boxes or any(row.reader_boxes):
        return True
    return None if row.ignore_boxes else False


def prompt_of(row: TaskRow, settings: PrepareSettings) -> list[dict[str, Any]]:
    """The prompt of a row: by the template of the settings, or in a wording that is drawn by id and seed."""
    if settings.template is not None:
        return template_prompt(settings.template, settings.task, row.what, settings.box_format)
    number = 0
    if not settings.one_wording:
        number = int(hash_fraction("wording", settings.seed, row.id) * wordings(settings.task))
    return task_prompt(settings.task, row.what, settings.box_format, wording=number)


def _phrase_row(record: AnnotatedImage, row_id: str, phrase: str, plan: TaskPlan) -> TaskRow | None:
    chosen = _boxes_where(record, lambda label, own: own == phrase and label in plan.vocabulary)
    row = _row(chosen, plan.settings, row_id, phrase)
    return None if row is None else row._replace(phrase=phrase)


def _drawn(row: TaskRow, settings: PrepareSettings) -> float:
    return hash_fraction("negative", settings.seed, row.id)


def _boxes_where(record: AnnotatedImage, keep: Callable[[str, str | None], bool]) -> AnnotatedImage:
    """The image with the boxes that `keep(label, phrase)` accepts; its readers stay."""
    phrases = record.phrases or (None,) * len(record.boxes)
    named = enumerate(zip(record.labels, phrases, strict=True))
    return _with_boxes(record, [i for i, (label, phrase) in named if keep(label, phrase)])


def _with_boxes(record: AnnotatedImage, chosen: Sequence[int]) -> AnnotatedImage:
    """The image with these of its boxes; its readers stay."""
    return record._replace(
        boxes=[record.boxes[i] for i in chosen],
        labels=[record.labels[i] for i in chosen],
        phrases=tuple(record.phrases[i] for i in chosen) if record.phrases else (),
        readers=tuple(record.readers[i] for i in chosen) if record.readers else (),
        read_by=tuple(image_readers(record)),
    )


def _row(asked: AnnotatedImage, settings: PrepareSettings, row_id: str, what: str | tuple[str, ...]) -> TaskRow | None:
    record = without_small_boxes(asked, settings)
    if asked.boxes and not record.boxes:
        return None
    reference = reference_boxes(record, settings.readers or "union")
    return TaskRow(
        id=row_id,
        what=what,
        boxes=reference.boxes,
        labels=reference.labels,
        ignore_boxes=reference.ignore_boxes,
        reader_boxes=reference.reader_boxes,
        reader_labels=reference.reader_labels,
    )
