"""The examples of a preparation: which there are, as tables alone say, and their columns once images are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.checks import row_problems
from grounding_rewards.data.prompts import LOOKED_FOR
from grounding_rewards.data.splits import TRAIN, image_split, patient_of_image
from grounding_rewards.images.decoding import has_shape
from grounding_rewards.images.resize import has_resized_size, resized_size
from grounding_rewards.prepare.encode import StoredImage
from grounding_rewards.prepare.shards import ShardCounts
from grounding_rewards.prepare.survey import Survey
from grounding_rewards.prepare.tasks import Example, is_kept, is_present, normal_hash, prompt_of, task_examples

# What counts in pixels of the image that boxes were drawn on, until the image is stored.
_BOXES = ("boxes", "ignore_boxes")


def planned_examples(
    images: Iterable[AnnotatedImage], survey: Survey
) -> Iterator[tuple[AnnotatedImage, list[Example]]]:
    """The images that the task asks about, in their order, each with its examples, which name their split."""
    for image in images:
        split = _split(image, survey)
        examples = [
            one | {"split": split} for one in task_examples(image, survey.plan) if is_kept(one, split, survey.plan)
        ]
        if examples:
            yield image, examples


def count_examples(images: Iterable[AnnotatedImage], survey: Survey) -> dict[str, ShardCounts]:
    """The counts of each split; what is wrong with images and boxes is not known yet."""
    counts: dict[str, ShardCounts] = {}
    for _, examples in planned_examples(images, survey):
        counts.setdefault(examples[0]["split"], ShardCounts()).add(examples)
    return counts


def with_negatives(read: Callable[[], Iterable[AnnotatedImage]], survey: Survey) -> Survey:
    """The survey with the images without findings that stay in `train`, the share of its rows that is asked for.

    Those with the smallest hashes stay: exactly as many as the share needs, or all if there are fewer.

    Raises:
        ValueError: A share is given, and there is no split `train`.
    """
    settings = survey.plan.settings
    share = settings.negatives
    if settings.task != "detection" or share is None:
        return survey
    others, hashes = 0, []
    for image, (example,) in planned_examples(read(), survey):
        if example["split"] == TRAIN and image.id not in survey.copied.left_out:
            if is_present(example) is False:
                hashes.append(normal_hash(example, settings))
            else:
                others += 1
    if not others and not hashes:
        raise ValueError(f"Expected images of {TRAIN} for a share of negatives, got none. Leave --negatives out.")
    # kept / (kept + others) = share
    kept = round(others * share / (1 - share))
    if kept >= len(hashes):
        return survey
    survey.facts["negatives_left_out"] = len(hashes) - kept
    return replace(survey, plan=replace(survey.plan, keep_normal=sorted(hashes)[kept]))


def completed_examples(
    image: AnnotatedImage, examples: Sequence[Example], stored: StoredImage, survey: Survey, processor: Any
) -> tuple[list[Example], str]:
    """The examples of an image as they are written, and an empty text; or none, and why the image cannot be used.

    They have resized sizes where `processor` is of a kind that `has_resized_size` knows.
    """
    settings = survey.plan.settings
    width, height = image.width or stored.original_width, image.height or stored.original_height
    if not (settings.squeezed or has_shape((stored.original_width, stored.original_height), (width, height))):
        return [], (
            f"its image is {stored.original_width} x {stored.original_height} pixels, which is not the shape of "
            f"{width} x {height} (give --squeezed if all images are squeezed copies)"
        )
    # What the package writes itself goes before.
    common = survey.carried.values(image.extra) | {
        "image": {"bytes": stored.data, "path": None},
        "width": stored.width,
        "height": stored.height,
        "original_width": width,
        "original_height": height,
        "patient_id": image.patient_id,
    }
    if isinstance(settings.box_format, str):
        common["box_format"] = settings.box_format
    if has_resized_size(processor):
        try:
            common["resized_width"], common["resized_height"] = resized_size(processor, stored.width, stored.height)
        except ValueError as error:
            return [], str(error)

    def moved(boxes: Sequence[Sequence[float]]) -> list[list[float]]:
        sizes = (stored.width, stored.height) * 2, (width, height) * 2
        return [[value * to / of for value, to, of in zip(box, *sizes, strict=True)] for box in boxes]

    completed = []
    for example in examples:
        one = common | example | {name: moved(example[name]) for name in _BOXES}
        one["prompt"] = prompt_of(example, settings)
        if "reader_boxes" in example:
            one["reader_boxes"] = [moved(boxes) for boxes in example["reader_boxes"]]
        if problem := "; ".join(row_problems(one)):
            # In the numbers of the table, which a person can look up.
            table = one | {name: boxes for name, boxes in example.items() if name in (*_BOXES, "reader_boxes")}
            return [], "; ".join(row_problems(table | {"width": width, "height": height})) or problem
        completed.append(one)
    return completed, ""


def column_types() -> dict[str, Any]:
    """The types, as `datasets` has them, of the columns that the package knows, in their order."""
    from datasets import Image, List, Value

    number, word, boxes = Value("int64"), Value("string"), List(List(Value("float64")))
    return {
        "prompt": List({"role": word, "content": List({"type": word, "text": word})}),
        LOOKED_FOR: List(word),
        "image": Image(),
        "boxes": boxes,
        "labels": List(word),
        **dict.fromkeys(SIZE_COLUMNS, number),
        **dict.fromkeys(("box_format", "id", "patient_id", "split", "phrase"), word),
        "phrases": List(word),
        "original_width": number,
        "original_height": number,
        "ignore_boxes": boxes,
        "reader_boxes": List(boxes),
        "reader_labels": List(List(word)),
    }


def dataset_features(survey: Survey, *, with_resized: bool) -> Any:
    """The columns as `datasets.Features`, without those that settings or images make needless."""
    from datasets import Features

    settings = survey.plan.settings
    there = {
        LOOKED_FOR: False,
        "phrases": False,
        "resized_width": with_resized,
        "resized_height": with_resized,
        "box_format": isinstance(settings.box_format, str),
        "phrase": settings.task == "phrase",
        "ignore_boxes": survey.has_ignored or settings.readers == "ignore",
        **dict.fromkeys(("reader_boxes", "reader_labels"), settings.readers == "any-of"),
    }
    columns = {name: kind for name, kind in column_types().items() if there.get(name, True)}
    return Features(survey.carried.features() | columns)


def _split(image: AnnotatedImage, survey: Survey) -> str:
    patient = patient_of_image(image)
    own = None if patient is None else survey.patient_splits.get(patient)
    name = patient or image.id
    if name in survey.copied.groups:
        name = survey.copied.groups[name]
        own = survey.copied.splits.get(name)
    return image_split(image.split, name, own, survey.rule, survey.plan.settings.seed)
