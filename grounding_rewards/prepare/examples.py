"""Turn the annotated images of a source into examples: what is asked about each image, and the boxes that answer it.

`make_plan` checks the images together and settles vocabulary and splits. `planned_images` makes examples with the
columns that need no pixels: `id`, `looked_for`, `boxes`, `labels` and `ignore_boxes`; `phrase` in the task `phrase`;
`reader_boxes` and `reader_labels` if readers stay apart. `completed_examples` adds the image, its sizes and the prompt.
"""

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from grounding_rewards.boxes import as_box_array, reference_defect
from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.data import splits
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.checks import row_problems
from grounding_rewards.data.dataset_columns import ExtraColumns
from grounding_rewards.data.prompts import LOOKED_FOR, prompt_order, task_prompt, template_prompt, wordings
from grounding_rewards.data.readers import check_readers, image_readers, reference_boxes
from grounding_rewards.images.decoding import has_shape
from grounding_rewards.images.resize import has_resized_size, resized_size
from grounding_rewards.prepare.settings import PrepareSettings, check_split_name
from grounding_rewards.prepare.shards import StoredImage
from grounding_rewards.prepare.split_duplicates import NO_DUPLICATES, DuplicateGroups

Example = dict[str, Any]
"""The columns of an example, or some of them."""

# Fewest images with a box that does not fit, and their smallest share of the images with boxes, from which on all are
# refused: they are not bad one by one.
_FEWEST_MISFITS = 3
_SMALLEST_MISFIT_SHARE = 0.5


@dataclass(frozen=True)
class FolderPlan:
    """Everything on which the examples of a source depend.

    Attributes:
        images: Of the source, in its order.
        settings: Of the preparation.
        vocabulary: The findings of interest, in the order of the prompt.
        rule: Whether the dataset's own splits are used, and the shares in which other images are drawn.
        patient_splits: The dataset's own split of each patient; empty if they are not used.
        extra: The columns that are not the package's own.
        facts: Counts and notes for the manifest, by its keys; later steps add to them.
    """

    images: Sequence[AnnotatedImage]
    settings: PrepareSettings
    vocabulary: tuple[str, ...]
    rule: splits.SplitRule
    patient_splits: Mapping[str, str]
    extra: ExtraColumns
    facts: dict[str, Any]


class PlannedImage(NamedTuple):
    """An image that the task asks about, its split, and its examples."""

    image: AnnotatedImage
    split: str
    examples: list[Example]


def make_plan(images: Sequence[AnnotatedImage], settings: PrepareSettings) -> FolderPlan:
    """Check the images of a source together, and settle vocabulary, splits and counts.

    Raises:
        ValueError: No images, an id twice, a patient in two splits, shares beside the dataset's own splits, several
            readers and no merging strategy, a finding that no image has, no phrases for the task `phrase`, or boxes
            that all look like fractions.
    """
    _check_images(images, settings)
    images = _with_suggested_patients(images, settings)
    patients = [splits.patient_of_image(image) for image in images]
    unknown_patients = patients.count(None)
    _warn_of_patients(images, patients, settings)
    splits_of_patients = splits.splits_of_patients(zip(patients, (image.split for image in images), strict=True))
    if settings.splits_from == "dataset":
        splits.check_one_split(splits_of_patients)
    split_names = {image.split for image in images if image.split is not None}
    # An image whose patient is not known counts as a patient.
    rule = _split_rule(split_names, len({*patients} - {None}) + unknown_patients, settings)
    patient_splits = {}
    if rule.keeps_splits:
        # A patient has one split, as was checked above.
        patient_splits = {patient: names[0] for patient, names in splits_of_patients.items()}
    if settings.splits_from == "dataset" and not rule.keeps_splits:
        sentence = splits.drawn_sentence(settings.dataset, rule.shares, len(images), unknown_patients)
        warnings.warn(f"{sentence} --split-shares draws others.", stacklevel=3)
    images_without_split = sum(image.split is None for image in images) if rule.keeps_splits else len(images)
    # With a single share all images without a split go into one: nothing is drawn.
    is_drawn = sum(share > 0 for share in rule.shares.values()) > 1
    # For the card; later steps count copies, negatives and unreadable images.
    facts = {
        "small_boxes": sum(is_small(box, settings) for image in images for box in image.boxes),
        "images_without_patient": unknown_patients,
        "images_without_own_split": images_without_split,
        "images_drawn": images_without_split if is_drawn else 0,
        "images_with_copies": 0,
        "negatives_left_out": 0,
        "unreadable": [],
    }
    extra = ExtraColumns(image.extra for image in images)
    return FolderPlan(images, settings, _vocabulary(images, settings), rule, patient_splits, extra, facts)


def _check_images(images: Sequence[AnnotatedImage], settings: PrepareSettings) -> None:
    """Refuse images that no task can be made of, see :func:`make_plan`."""
    if not images:
        raise ValueError("Expected at least one image, got none. Check the root and the split.")
    for image_id, count in Counter(image.id for image in images).items():
        if count > 1:
            raise ValueError(f"Expected an id for every image, got a second one with the id {image_id!r}. Merge them.")
    for image in images:
        check_readers(image)
        readers = len(image_readers(image))
        if settings.readers is None and readers > 1:
            raise ValueError(
                f"Expected a merging strategy for readers, because {readers} people read image {image.id}, got none. "
                "Their boxes side by side would count every finding several times: choose union, majority, any-of or "
                "ignore (--readers)."
            )
        if image.split is not None:
            check_split_name(image.split)
    _check_fit(images)
    # All boxes together: a single one with coordinates up to 1 may be a small box in pixels, near the corner.
    largest_coordinate = max((value for image in images for box in image.boxes for value in box), default=0.0)
    if 0 < largest_coordinate <= 1:
        raise ValueError(
            f"Expected boxes in pixels in {settings.dataset}, got none beyond {largest_coordinate:g}: they look like "
            "fractions of the image. Multiply them by width and height; for csv, give --option frame=fraction."
        )
    if settings.task == "phrase" and not any(image.phrases for image in images):
        raise ValueError(
            f"Expected phrases for the task phrase, got none in {settings.dataset}. Choose detection or finding."
        )


def _check_fit(images: Sequence[AnnotatedImage]) -> None:
    """Refuse boxes of which most do not fit their images: their numbers have another order or frame.

    Images without a stated size are not checked.
    """
    checked_images = 0
    # Each image with a box that does not fit, and the first such box.
    misfits = []
    for image in images:
        if image.boxes and image.width and image.height:
            checked_images += 1
            size = (float(image.width), float(image.height))
            misfit_boxes = [box for box in image.boxes if reference_defect(box, size)]
            if misfit_boxes:
                misfits.append((image, misfit_boxes[0]))
    # So many are not bad one by one; fewer are refused or dropped later, each by its name.
    if len(misfits) >= max(_FEWEST_MISFITS, _SMALLEST_MISFIT_SHARE * checked_images):
        image, box = misfits[0]
        raise ValueError(
            f"Expected boxes inside their images, got {len(misfits)} of {checked_images} images with a box that is "
            f"not, such as {image.id} ({list(box)} on {image.width} x {image.height}). Check the sizes of the images, "
            "and what the numbers count from where."
        )


def _with_suggested_patients(images: Sequence[AnnotatedImage], settings: PrepareSettings) -> Sequence[AnnotatedImage]:
    """The images with patients from the names of their files, where no column has them; a warning reports it."""
    files = [image.file for image in images if splits.patient_of_image(image) is None]
    # The patient of each of these files, or of none of them.
    suggested = splits.patients_in_names(files)
    if not suggested:
        return images
    warnings.warn(
        f"No column of {settings.dataset} names the patients of {len(suggested)} images, and names of files suggest "
        f"{len({*suggested.values()})}, such as {suggested[files[0]]} for {files[0]}: their images stay together. Give "
        "patient_id if that is wrong.",
        stacklevel=4,
    )
    return [image._replace(patient_id=suggested.get(image.file, image.patient_id)) for image in images]


def _warn_of_patients(
    images: Sequence[AnnotatedImage], patients: Sequence[str | None], settings: PrepareSettings
) -> None:
    """Warn if every patient is the number of a row, and of a column that looks like the patient and is not read.

    `patients` has the patient of each image, None where it is not known.
    """
    if splits.is_row_number([image.patient_id for image in images]):
        warnings.warn(
            f"The patient_id of every image of {settings.dataset} is the number of its row: images of one patient may "
            "be in several splits. Give all images of a patient one patient_id.",
            stacklevel=4,
        )
    # The columns that nothing reads are carried along in `extra`.
    column = splits.patient_column(dict.fromkeys(chain.from_iterable(image.extra for image in images)))
    if column is not None and None in patients:
        warnings.warn(
            f"The column {column!r} of {settings.dataset} looks like the patient, but is not read: images of one may "
            "be in several splits. Rename it to patient_id.",
            stacklevel=4,
        )


def _split_rule(names: set[str], patients: int, settings: PrepareSettings) -> splits.SplitRule:
    """The rule by which images come to their splits: what the settings ask for, else the usual one of the package.

    Args:
        names: Of the splits in the dataset.
        patients: How many there are.
        settings: Of the preparation.
    """
    shares = dict(settings.shares)
    if settings.splits_from == "hash":
        return splits.SplitRule(keeps_splits=False, shares=shares)
    are_shares_asked = shares != splits.SHARES
    if are_shares_asked and (settings.split is not None or splits.holds_out(names)):
        raise ValueError(
            f"Expected no shares for images that keep the splits of {settings.dataset}, got {shares}. Leave "
            'split_shares out, or draw all splits anew with splits_from="hash" (--splits-from hash).'
        )
    # Only this split of the dataset was read: an image without one is of it too.
    if settings.split is not None:
        return splits.SplitRule(keeps_splits=True, shares={settings.split: 1.0})
    rule = splits.split_rule(names, patients, shares)
    # With too few patients the rule draws none, but shares that were asked for are drawn all the same.
    return rule._replace(shares=shares) if rule.keeps_splits and are_shares_asked else rule


def _vocabulary(images: Sequence[AnnotatedImage], settings: PrepareSettings) -> tuple[str, ...]:
    """The findings of interest in the order of the prompt: the labels that are asked for, else all that have a box."""
    labelled_boxes = chain.from_iterable(zip(image.boxes, image.labels, strict=True) for image in images)
    findings = prompt_order(label for box, label in labelled_boxes if not is_small(box, settings))
    if not findings:
        raise ValueError("Expected at least one box in the dataset, got none. Check the root and the split.")
    if settings.labels is None:
        return findings
    for label in settings.labels:
        if label not in findings:
            raise ValueError(
                f"Expected findings of the dataset for labels, got {label!r}. It has: {', '.join(findings)}."
            )
    return tuple(dict.fromkeys(settings.labels))


def planned_images(plan: FolderPlan, duplicates: DuplicateGroups = NO_DUPLICATES) -> list[PlannedImage]:
    """The images that the task asks about, in their order, with their splits, examples and share of negatives.

    Raises:
        ValueError: A share of negatives is given for the task `detection`, and there is no split `train`; or as
            `task_examples`.
    """
    kept_negatives = _kept_negatives(plan) if plan.settings.task == "finding" else {}
    planned = []
    for image in plan.images:
        examples = list(task_examples(image, plan, kept_negatives))
        if examples:
            planned.append(PlannedImage(image, _image_split(image, plan, duplicates), examples))
    if plan.settings.task == "detection" and plan.settings.negatives is not None:
        return _with_share_of_negatives(planned, plan, plan.settings.negatives, duplicates)
    return planned


def _kept_negatives(plan: FolderPlan) -> dict[str, float]:
    """For each finding the fraction of images without it to keep, so that negative rows have their share.

    An image with ignored regions is a negative of no finding.
    """
    share = 0.5 if plan.settings.negatives is None else plan.settings.negatives
    fractions = {}
    for label in plan.vocabulary:
        image_counts = Counter(presence(finding_example(image, label, plan.settings)) for image in plan.images)
        present, absent = image_counts[True], image_counts[False]
        # kept / (kept + present) = share; where there are too few negatives, all are kept.
        kept = present * share / (1.0 - share)
        fractions[label] = min(1.0, kept / absent) if absent else 0.0
    return fractions


def _with_share_of_negatives(
    planned: list[PlannedImage], plan: FolderPlan, share: float, duplicates: DuplicateGroups
) -> list[PlannedImage]:
    """The planned images without surplus images of `train` that have no finding; other splits keep all.

    Those with the smallest hashes stay: exactly as many as the share needs, or all if there are fewer.
    """
    usable = []
    negatives = []
    for planned_image in planned:
        image_id = planned_image.image.id
        if planned_image.split == splits.TRAIN and image_id not in duplicates.left_out:
            usable.append(image_id)
            # The task `detection` has one example an image.
            if presence(planned_image.examples[0]) is False:
                negatives.append(image_id)
    if not usable:
        raise ValueError(
            f"Expected images of {splits.TRAIN} for a share of negatives, got none. Leave --negatives out."
        )
    negatives.sort(key=lambda image_id: splits.hash_fraction("normal", plan.settings.seed, image_id))
    # kept / (kept + positives) = share
    kept_count = round((len(usable) - len(negatives)) * share / (1 - share))
    surplus = {*negatives[kept_count:]}
    plan.facts["negatives_left_out"] = len(surplus)
    return [planned_image for planned_image in planned if planned_image.image.id not in surplus]


def _image_split(image: AnnotatedImage, plan: FolderPlan, duplicates: DuplicateGroups) -> str:
    """The split of an image: its own, else that of its patient or of the group of near-duplicates, else a drawn one."""
    patient = splits.patient_of_image(image)
    # The name by which a split is drawn: images of one name come into one split.
    drawn_name = patient or image.id
    patient_split = plan.patient_splits.get(patient or "")
    if drawn_name in duplicates.groups:
        # All patients of a group stand together, under its name and in its split.
        drawn_name = duplicates.groups[drawn_name]
        patient_split = duplicates.splits.get(drawn_name)
    return splits.image_split(image.split, drawn_name, patient_split, plan.rule, plan.settings.seed)


def task_examples(image: AnnotatedImage, plan: FolderPlan, kept_negatives: Mapping[str, float]) -> Iterator[Example]:
    """Yield the examples of one image: none if the task asks nothing about it, or if all boxes are too small.

    Boxes of other findings, and small ones, are dropped before the boxes of several readers are merged. The `id` is
    that of the image, followed by the finding or the number of the phrase if an image may have several examples.

    Args:
        image: From the plan.
        plan: With settings and vocabulary.
        kept_negatives: For each finding, the fraction of the images without it that are asked for it.

    Raises:
        ValueError: Boxes, labels, phrases and readers of the image differ in number.
    """
    settings = plan.settings
    if settings.task == "detection":
        example = _example(image, plan.vocabulary, settings, example_id=image.id, looked_for=plan.vocabulary)
        if example is not None:
            yield example
    elif settings.task == "finding":
        for label in plan.vocabulary:
            example = finding_example(image, label, settings)
            is_present = presence(example)
            # Nobody can say whether the finding is there: it is not asked for.
            if example is None or is_present is None:
                continue
            if is_present or splits.hash_fraction("negative", settings.seed, example["id"]) < kept_negatives[label]:
                yield example
    else:
        for number, phrase in enumerate(dict.fromkeys(image.phrases)):
            example_id = f"{image.id}/{number}"
            example = _example(image, plan.vocabulary, settings, example_id, looked_for=phrase, phrase=phrase)
            # A phrase is asked for only where boxes answer it.
            if example is not None and presence(example):
                yield example | {"phrase": phrase}


def finding_example(image: AnnotatedImage, label: str, settings: PrepareSettings) -> Example | None:
    """The example that asks for one finding in an image, present or not; None if all its boxes are too small.

    >>> image = AnnotatedImage("a", "a.png", [[0, 0, 9, 9]], ["mass"])
    >>> finding_example(image, "mass", PrepareSettings("coco", "qwen3-vl", task="finding"))["id"]
    'a/mass'
    """
    return _example(image, (label,), settings, example_id=f"{image.id}/{label}", looked_for=label)


def _example(
    image: AnnotatedImage,
    labels: Collection[str],
    settings: PrepareSettings,
    example_id: str,
    looked_for: str | tuple[str, ...],
    phrase: str | None = None,
) -> Example | None:
    """The example of an image with only the boxes of these findings; None if all of them are too small.

    Args:
        image: From the plan; its readers stay, also those whose boxes are left out.
        labels: Of the findings.
        settings: Of the preparation.
        example_id: Of the example.
        looked_for: What its prompt asks for.
        phrase: Only boxes that it describes; None takes all.
    """
    phrases = image.phrases or (None,) * len(image.boxes)
    # Indices of the boxes of these findings, and of those among them that are not too small.
    wanted, large = [], []
    for index, (label, box_phrase) in enumerate(zip(image.labels, phrases, strict=True)):
        if label in labels and phrase in (None, box_phrase):
            wanted.append(index)
            if not is_small(image.boxes[index], settings):
                large.append(index)
    # Something is there, though too small to ask for: the image is no negative either.
    if wanted and not large:
        return None
    remaining = image._replace(
        boxes=[image.boxes[index] for index in large],
        labels=[image.labels[index] for index in large],
        phrases=tuple(image.phrases[index] for index in large) if image.phrases else (),
        readers=tuple(image.readers[index] for index in large) if image.readers else (),
        read_by=tuple(image_readers(image)),
    )
    # Without a strategy there is one reader at most, whose boxes a union leaves as they are.
    return {"id": example_id, LOOKED_FOR: looked_for, **reference_boxes(remaining, settings.readers or "union")}


def is_small(box: Sequence[float], settings: PrepareSettings) -> bool:
    """Whether a side of a box is below `smallest_box`; a box without area is not small but broken, and refused later.

    >>> is_small([0, 0, 9, 2], PrepareSettings("coco", "qwen3-vl", smallest_box=4))
    True
    """
    if settings.smallest_box is None:
        return False
    x1, y1, x2, y2 = box
    return 0 < min(x2 - x1, y2 - y1) < settings.smallest_box


def presence(example: Example | None) -> bool | None:
    """Whether any reader found the finding of an example; None if it may be in an ignored region, or is too small."""
    # No example is made of an image whose boxes are all too small.
    if example is None:
        return None
    if example["boxes"] or any(example.get("reader_boxes", ())):
        return True
    return None if example["ignore_boxes"] else False


def prompt_of(example: Example, settings: PrepareSettings) -> list[dict[str, Any]]:
    """The prompt of an example: by the template of the settings, or in a wording that is drawn by id and seed."""
    if settings.template is not None:
        return template_prompt(settings.template, settings.task, example[LOOKED_FOR], settings.box_format)
    fraction = splits.hash_fraction("wording", settings.seed, example["id"])
    wording_index = int(fraction * wordings(settings.task))
    return task_prompt(settings.task, example[LOOKED_FOR], settings.box_format, wording=wording_index)


def completed_examples(planned: PlannedImage, stored: StoredImage, plan: FolderPlan, processor: Any) -> list[Example]:
    """The examples of an image as they are written, with image, sizes and prompt.

    Args:
        planned: The image with its examples.
        stored: The image as it is stored.
        plan: Of the folder.
        processor: Of the model; gives resized sizes if it is of a kind that `has_resized_size` knows.

    Raises:
        ValueError: The image cannot be used; the message says why.
    """
    settings, image = plan.settings, planned.image
    # The size of the image that boxes were drawn on.
    width, height = image.width or stored.original_width, image.height or stored.original_height
    if not (settings.squeezed or has_shape((stored.original_width, stored.original_height), (width, height))):
        raise ValueError(
            f"its image is {stored.original_width} x {stored.original_height} pixels, which is not the shape of "
            f"{width} x {height} (give --squeezed if all images are squeezed copies)"
        )
    # All examples of the image share these columns; the package's own replace extra ones of the same name.
    shared_columns = plan.extra.values(image.extra) | {
        "image": {"bytes": stored.data, "path": None},
        "split": planned.split,
        "width": stored.width,
        "height": stored.height,
        "original_width": width,
        "original_height": height,
        "patient_id": image.patient_id,
    }
    if isinstance(settings.box_format, str):
        shared_columns["box_format"] = settings.box_format
    if has_resized_size(processor):
        shared_columns["resized_width"], shared_columns["resized_height"] = resized_size(
            processor, stored.width, stored.height
        )

    def scale_boxes(boxes: Sequence[Sequence[float]]) -> list[list[float]]:
        """The boxes in pixels of the stored image."""
        # For x1, y1, x2 and y2; multiplied before it is divided, a box of whole pixels that stays as large is exact.
        stored_sizes, drawn_sizes = [stored.width, stored.height] * 2, [width, height] * 2
        return (as_box_array(boxes) * stored_sizes / drawn_sizes).tolist()

    completed = []
    for example in planned.examples:
        row = shared_columns | example | {"prompt": prompt_of(example, settings)}
        # Before boxes are scaled, and with the size that they were drawn on: problems name the numbers of the table,
        # which a person can look up.
        problems = list(row_problems(row | {"width": width, "height": height}))
        if problems:
            raise ValueError("; ".join(problems))
        row |= {name: scale_boxes(example[name]) for name in ("boxes", "ignore_boxes")}
        if "reader_boxes" in example:
            row["reader_boxes"] = [scale_boxes(boxes) for boxes in example["reader_boxes"]]
        completed.append(row)
    return completed


def column_types() -> dict[str, Any]:
    """The type, as `datasets` has it, of each column of the package, in the order of the columns."""
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


def dataset_features(plan: FolderPlan, *, with_resized: bool) -> Any:
    """The columns of a folder as `datasets.Features`, without those that its settings or images leave empty."""
    from datasets import Features

    settings = plan.settings
    is_needed = {
        # The prompt says what is looked for, and `phrase` is that of the example.
        LOOKED_FOR: False,
        "phrases": False,
        "resized_width": with_resized,
        "resized_height": with_resized,
        "box_format": isinstance(settings.box_format, str),
        "phrase": settings.task == "phrase",
        "ignore_boxes": settings.readers == "ignore" or any(image.ignored for image in plan.images),
        **dict.fromkeys(("reader_boxes", "reader_labels"), settings.readers == "any-of"),
    }
    columns = {name: kind for name, kind in column_types().items() if is_needed.get(name, True)}
    return Features(plan.extra.features() | columns)
