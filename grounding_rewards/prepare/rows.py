"""The columns of a prepared dataset, and the rows of one image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.checks import row_problems
from grounding_rewards.images.decoding import has_shape
from grounding_rewards.images.resize import has_resized_size, resized_size
from grounding_rewards.prepare.stored_images import StoredImage
from grounding_rewards.prepare.survey import Survey, stored_spacing
from grounding_rewards.prepare.tasks import TaskRow, prompt_of


def examples_of(
    record: AnnotatedImage, asked: Iterable[TaskRow], split: str, image: StoredImage, survey: Survey, processor: Any
) -> tuple[list[dict[str, Any]], str]:
    """The stored rows of an image and an empty text, or no rows and why the image cannot be used.

    They have resized sizes where `processor` is of a kind that `has_resized_size` knows.
    """
    settings = survey.plan.settings
    drawn_on = (record.width or image.original_width, record.height or image.original_height)
    if not (settings.squeezed or has_shape((image.original_width, image.original_height), drawn_on)):
        size = f"{image.original_width} x {image.original_height}"
        return [], (
            f"its image is {size} pixels, which is not the shape of {drawn_on[0]} x {drawn_on[1]} (give --squeezed "
            "if all images are squeezed copies)"
        )
    stored = (image.width, image.height)
    common = {
        "image": {"bytes": image.data, "path": None},
        "width": image.width,
        "height": image.height,
        "original_width": drawn_on[0],
        "original_height": drawn_on[1],
        "patient_id": record.patient_id,
        "split": split,
    }
    # What the package writes itself, such as the size of a pixel of the stored image, goes before.
    common = survey.carried.values(record.extra) | common
    if survey.has_spacing:
        common["pixel_spacing"] = stored_spacing(record, image)
    if isinstance(settings.box_format, str):
        common["box_format"] = settings.box_format
    if has_resized_size(processor):
        try:
            resized = resized_size(processor, image.width, image.height)
        except ValueError as error:
            return [], str(error)
        common["resized_width"], common["resized_height"] = resized
    rows = []
    for one in asked:
        row = {
            **common,
            "id": one.id,
            "prompt": prompt_of(one, settings),
            "boxes": _moved(one.boxes, drawn_on, stored),
            "labels": one.labels,
            "phrase": one.phrase,
            "ignore_boxes": _moved(one.ignore_boxes, drawn_on, stored),
        }
        if settings.readers == "any-of":
            row["reader_boxes"] = [_moved(boxes, drawn_on, stored) for boxes in one.reader_boxes]
            row["reader_labels"] = one.reader_labels
        if problem := "; ".join(row_problems(row)):
            return [], problem
        rows.append(row)
    return rows, ""


def _moved(boxes: Sequence[Sequence[float]], drawn_on: tuple[int, int], stored: tuple[int, int]) -> list[list[float]]:
    """Scale boxes from the image they were drawn on to the stored image; sizes are (width, height)."""
    (from_width, from_height), (width, height) = drawn_on, stored
    return [
        [x1 * width / from_width, y1 * height / from_height, x2 * width / from_width, y2 * height / from_height]
        for x1, y1, x2, y2 in boxes
    ]


def dataset_features(survey: Survey, *, with_resized: bool) -> Any:
    """The columns as `datasets.Features`, without those that settings or images make needless."""
    from datasets import Features, Image, List, Value

    settings = survey.plan.settings
    number, word, boxes = Value("int64"), Value("string"), List(List(Value("float64")))
    content = List({"type": word, "text": word})
    columns = {
        "prompt": List({"role": word, "content": content}),
        "image": Image(),
        "boxes": boxes,
        "labels": List(word),
        "width": number,
        "height": number,
        **({"resized_width": number, "resized_height": number} if with_resized else {}),
        **({"box_format": word} if isinstance(settings.box_format, str) else {}),
        "id": word,
        "patient_id": word,
        "split": word,
        **({"phrase": word} if settings.task == "phrase" else {}),
        "original_width": number,
        "original_height": number,
        **({"pixel_spacing": List(Value("float64"))} if survey.has_spacing else {}),
        **({"ignore_boxes": boxes} if survey.has_ignored or settings.readers == "ignore" else {}),
    }
    if settings.readers == "any-of":
        columns |= {"reader_boxes": List(boxes), "reader_labels": List(List(word))}
    return Features(survey.carried.features() | columns)
