"""Which images a preparation writes, with their splits and rows, as the tables alone say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.held_out import image_split, in_usual_order
from grounding_rewards.data.patients import patient_of_image
from grounding_rewards.prepare.shards import ShardCounts
from grounding_rewards.prepare.survey import Survey
from grounding_rewards.prepare.tasks import TaskRow, is_kept, is_present, normal_hash, task_rows


class PlannedImage(NamedTuple):
    """An image with at least one row, and its split."""

    record: AnnotatedImage
    split: str
    rows: list[TaskRow]


def planned_images(records: Iterable[AnnotatedImage], survey: Survey) -> Iterator[PlannedImage]:
    """The images that the task asks about, in the order of the records."""
    for record in records:
        split = _split(record, survey)
        rows = [row for row in task_rows(record, survey.plan) if is_kept(row, split, survey.plan)]
        if rows:
            yield PlannedImage(record, split, rows)


def count_images(records: Iterable[AnnotatedImage], survey: Survey) -> dict[str, ShardCounts]:
    """The counts of each split; what is wrong with images and boxes is not known yet."""
    counts: dict[str, ShardCounts] = {}
    for image in planned_images(records, survey):
        counts.setdefault(image.split, ShardCounts()).add([row._asdict() for row in image.rows])
    return counts


def with_negatives(read: Callable[[], Iterable[AnnotatedImage]], survey: Survey) -> Survey:
    """The survey with the images without findings that stay, so that they are the share that the settings ask for.

    Those with the smallest hashes stay: exactly as many as the share needs, or all if there are fewer.

    Raises:
        ValueError: A share is given for a split that does not exist.
    """
    settings = survey.plan.settings
    if settings.task != "detection" or not settings.negative_shares:
        return survey
    others, hashes = Counter[str](), dict[str, list[float]]()
    for image in planned_images(read(), survey):
        if image.record.id in survey.copied.left_out:
            continue
        (row,) = image.rows
        hashes.setdefault(image.split, [])
        if is_present(row) is False:
            hashes[image.split].append(normal_hash(row, settings))
        else:
            others[image.split] += 1
    keep, left_out = {}, {}
    for split, share in settings.negative_shares.items():
        if split not in hashes:
            raise ValueError(
                f"Expected shares of negatives for splits that there are, {', '.join(in_usual_order(hashes))}, got one "
                f"for {split!r}. Write {next(iter(hashes), 'train')}={share:g}, for example."
            )
        # kept / (kept + others) = share
        kept = round(others[split] * share / (1 - share))
        in_order = sorted(hashes[split])
        if kept < len(in_order):
            keep[split], left_out[split] = in_order[kept], len(in_order) - kept
    return replace(survey, plan=replace(survey.plan, keep_normal=keep), negatives_left_out=left_out)


def _split(record: AnnotatedImage, survey: Survey) -> str:
    patient = patient_of_image(record)
    own = None if patient is None else survey.patient_splits.get(patient)
    name = patient or record.id
    if name in survey.copied.groups:
        name = survey.copied.groups[name]
        own = survey.copied.splits.get(name)
    return image_split(record.split, name, own, survey.rule, survey.plan.settings.seed)
