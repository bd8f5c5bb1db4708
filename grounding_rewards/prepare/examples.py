"""The examples of a preparation: which there are, as tables alone say, and their columns once images are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.checks import row_problems
from grounding_rewards.data.held_out import image_split, in_usual_order, patient_of_image
from grounding_rewards.images.decoding import has_shape
from grounding_rewards.images.resize import has_resized_size, resized_size
from grounding_rewards.prepare.shards import ShardCounts
from grounding_rewards.prepare.stored_images import StoredImage
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
    """The survey with the images without findings that stay, so that they are the share that the settings ask for.

    Those with the smallest hashes stay: exactly as many as the share needs, or all if there are fewer.

    Raises:
        ValueError: A share is given for a split that does not exist.
    """
    settings = survey.plan.settings
    if settings.task != "detection" or not settings.negative_shares:
        return survey
    others, hashes = Counter[str](), dict[str, list[float]]()
    for image, (example,) in planned_examples(read(), survey):
        if image.id in survey.copied.left_out:
            continue
        split = example["split"]
        hashes.setdefault(split, [])
        if is_present(example) is False:
            hashes[split].append(normal_hash(example, settings))
        else:
            others[split] += 1
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
            return [], problem
        completed.append(one)
    return completed, ""


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
        **({"ignore_boxes": boxes} if survey.has_ignored or settings.readers == "ignore" else {}),
    }
    if settings.readers == "any-of":
        columns |= {"reader_boxes": List(boxes), "reader_labels": List(List(word))}
    return Features(survey.carried.features() | columns)


def _split(image: AnnotatedImage, survey: Survey) -> str:
    patient = patient_of_image(image)
    own = None if patient is None else survey.patient_splits.get(patient)
    name = patient or image.id
    if name in survey.copied.groups:
        name = survey.copied.groups[name]
        own = survey.copied.splits.get(name)
    return image_split(image.split, name, own, survey.rule, survey.plan.settings.seed)
