"""From an annotated image to the examples of a task: what is asked, and the boxes that answer it.

Tables alone tell this much of an example: `id`, `looked_for`, `boxes`, `labels` and `ignore_boxes`; `phrase` in the
task `phrase`; `reader_boxes` and `reader_labels` where readers stay apart. Its boxes are in pixels of the image that
they were drawn on. `examples.completed_examples` adds what needs the image, and asks the prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.prompts import LOOKED_FOR, task_prompt, template_prompt, wordings
from grounding_rewards.data.readers import image_readers, reference_boxes
from grounding_rewards.data.splits import TRAIN, hash_fraction
from grounding_rewards.prepare.settings import PrepareSettings

Example = dict[str, Any]
"""The columns of an example that are known so far."""


@dataclass(frozen=True)
class TaskPlan:
    """What the examples of an image depend on besides the image.

    Attributes:
        settings: The settings of the preparation.
        vocabulary: The findings of interest, in the order of the prompt.
        keep: For each finding the share of the images without it that become negative rows.
        keep_normal: The end of the hashes of images without findings that stay in `train`, for the task `detection`;
            None, and every other split, keeps all.
    """

    settings: PrepareSettings
    vocabulary: tuple[str, ...]
    keep: Mapping[str, float]
    keep_normal: float | None = None


def task_examples(image: AnnotatedImage, plan: TaskPlan) -> Iterator[Example]:
    """The examples of one image; none if the task has nothing to ask, or if all boxes that answer it are too small.

    Boxes of other findings, and small ones, are dropped before several readers' boxes are merged. An `id` is that of
    the image, followed by the finding or the number of the phrase where an image may have several examples.

    Raises:
        ValueError: Boxes, labels, phrases and readers of the image differ in number.
    """
    settings = plan.settings
    if settings.task == "detection":
        example = _example(image_of_interest(image, plan.vocabulary), settings, image.id, plan.vocabulary)
        if example is not None:
            yield example
    elif settings.task == "finding":
        for label in plan.vocabulary:
            example = finding_example(image, label, settings)
            state = is_present(example)
            if example is not None and (
                state or (state is False and hash_fraction("negative", settings.seed, example["id"]) < plan.keep[label])
            ):
                yield example
    else:
        for number, phrase in enumerate(dict.fromkeys(image.phrases)):
            described = image_of_interest(image, plan.vocabulary, phrase)
            example = _example(described, settings, f"{image.id}/{number}", phrase)
            if example is not None and is_present(example):
                yield example | {"phrase": phrase}


def is_kept(example: Example, split: str, plan: TaskPlan) -> bool:
    """Whether an example of the task `detection` stays, as `train` may have a share of images without findings."""
    end = plan.keep_normal if split == TRAIN else None
    return end is None or is_present(example) is not False or normal_hash(example, plan.settings) < end


def normal_hash(example: Example, settings: PrepareSettings) -> float:
    """A number in [0, 1) by which images without findings are chosen, the smallest first."""
    return hash_fraction("normal", settings.seed, example["id"])


def image_of_interest(image: AnnotatedImage, labels: Collection[str], phrase: str | None = None) -> AnnotatedImage:
    """The image with the boxes of these findings only, and of a phrase, where one is given; its readers stay.

    >>> image_of_interest(AnnotatedImage("a", "a.png", [[0, 0, 9, 9]], ["mass"], readers=("R1",)), ("nodule",)).read_by
    ('R1',)
    """
    phrases = image.phrases or (None,) * len(image.boxes)
    named = enumerate(zip(image.labels, phrases, strict=True))
    return _with_boxes(image, [k for k, (label, own) in named if label in labels and phrase in (None, own)])


def without_small_boxes(image: AnnotatedImage, settings: PrepareSettings) -> AnnotatedImage:
    """The image without the boxes that have a side below `smallest_box`; broken ones stay, to be refused.

    >>> image = AnnotatedImage("a", "a.png", [[0, 0, 9, 2], [0, 0, 9, 9]], ["mass", "mass"])
    >>> without_small_boxes(image, PrepareSettings("coco", "qwen3-vl", smallest_box=4)).boxes
    [[0, 0, 9, 9]]
    """
    if not settings.smallest_box:
        return image
    sides = (min(x2 - x1, y2 - y1) for x1, y1, x2, y2 in image.boxes)
    return _with_boxes(image, [k for k, side in enumerate(sides) if not 0 < side < settings.smallest_box])


def finding_example(image: AnnotatedImage, label: str, settings: PrepareSettings) -> Example | None:
    """The example that asks an image for one finding, present or not; None where its boxes are all too small.

    >>> image = AnnotatedImage("a", "a.png", [[0, 0, 9, 9]], ["mass"])
    >>> finding_example(image, "mass", PrepareSettings("coco", "qwen3-vl", task="finding"))["id"]
    'a/mass'
    """
    return _example(image_of_interest(image, (label,)), settings, f"{image.id}/{label}", label)


def is_present(example: Example | None) -> bool | None:
    """Whether the finding is there for any reader; None if it may be in an ignored region, or too small to be asked."""
    if example is None:
        return None
    if example["boxes"] or any(example.get("reader_boxes", ())):
        return True
    return None if example["ignore_boxes"] else False


def prompt_of(example: Example, settings: PrepareSettings) -> list[dict[str, Any]]:
    """The prompt of an example: by the template of the settings, or in a wording that is drawn by id and seed."""
    if settings.template is not None:
        return template_prompt(settings.template, settings.task, example[LOOKED_FOR], settings.box_format)
    number = 0
    if not settings.one_wording:
        number = int(hash_fraction("wording", settings.seed, example["id"]) * wordings(settings.task))
    return task_prompt(settings.task, example[LOOKED_FOR], settings.box_format, wording=number)


def _with_boxes(image: AnnotatedImage, chosen: Sequence[int]) -> AnnotatedImage:
    """The image with these of its boxes; its readers stay."""
    return image._replace(
        boxes=[image.boxes[i] for i in chosen],
        labels=[image.labels[i] for i in chosen],
        phrases=tuple(image.phrases[i] for i in chosen) if image.phrases else (),
        readers=tuple(image.readers[i] for i in chosen) if image.readers else (),
        read_by=tuple(image_readers(image)),
    )


def _example(
    asked: AnnotatedImage, settings: PrepareSettings, example_id: str, what: str | tuple[str, ...]
) -> Example | None:
    image = without_small_boxes(asked, settings)
    if asked.boxes and not image.boxes:
        return None
    return {"id": example_id, LOOKED_FOR: what, **reference_boxes(image, settings.readers or "union")}
