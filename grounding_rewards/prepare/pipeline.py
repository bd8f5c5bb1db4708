"""Prepare a dataset: turn the annotated images of a source into examples in a folder of parquet shards."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.common.formatting import first_of
from grounding_rewards.common.workers import check_workers, map_in_workers
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.images.decoding import image_path, open_image
from grounding_rewards.images.near_duplicates import image_signature
from grounding_rewards.images.resize import has_resized_size, load_processor
from grounding_rewards.labels import SEVERAL, normalize_label
from grounding_rewards.prepare.examples import (
    FolderPlan,
    PlannedImage,
    completed_examples,
    dataset_features,
    make_plan,
    planned_images,
)
from grounding_rewards.prepare.manifest import begin_folder, find_finished, finish_folder
from grounding_rewards.prepare.settings import PrepareSettings
from grounding_rewards.prepare.shards import ShardWriter, StoredImage, store_image
from grounding_rewards.prepare.split_duplicates import NO_DUPLICATES, DuplicateGroups, group_duplicates
from grounding_rewards.sources.base import SOURCES

Progress = Callable[[str, int, int | None], None]
"""Takes the stage, the images done, and the number of images (None if unknown)."""


def prepare_images(
    images: Iterable[AnnotatedImage],
    root: str | Path,
    out: str | Path,
    settings: PrepareSettings,
    *,
    unreadable: Sequence[str] = (),
    processes: int | None = None,
    allow_outside: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Write the images of a source as parquet shards with a card.

    The same images and settings give the same bytes, whatever the number of processes and interruptions: a second call
    keeps finished shards and writes the rest.

    Args:
        images: All images, in an order that a resumed call repeats.
        root: The folder that file names are relative to.
        out: The folder to write: new, empty, or left unfinished by the same call.
        settings: What to write.
        unreadable: Why other images of the source could not be read, for the card.
        processes: That read, shrink and encode images, as `map_in_workers` of `common.workers` takes them.
        allow_outside: Whether images may lie outside the root.
        on_progress: Called after every image.

    Returns:
        The contents of `manifest.json`.

    Raises:
        ValueError: As `make_plan`; the folder holds something else; or an image cannot be used, because its file
            cannot be read, its size contradicts the table, or its boxes do not fit (the image is named).

    >>> import tempfile
    >>> from PIL import Image
    >>> images = [AnnotatedImage("1", "1.png", [[16, 14, 33, 27]], ["pacemaker"], split="train")]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (112, 112)).save(f"{folder}/1.png")
    ...     manifest = prepare_images(images, folder, f"{folder}/out", PrepareSettings("coco", "qwen3-vl"))
    >>> manifest["splits"]["train"]["boxes"]
    {'pacemaker': 1}
    """
    check_workers(processes)
    images = [_with_origin(image, settings.dataset) for image in images]
    if settings.normalize_labels:
        images = [with_shared_labels(image, settings.dataset) for image in images]
    plan = make_plan(images, settings)
    plan.facts["unreadable"] = list(unreadable)
    out = Path(out)
    finished_manifest = find_finished(out, plan)
    if finished_manifest is not None:
        return finished_manifest
    files = _Files(root, allow_outside, settings)
    duplicates = _find_duplicates(plan, files, processes, on_progress)
    planned = planned_images(plan, duplicates)
    # Fail before the folder is begun: it would refuse corrected settings.
    processor = None if settings.model is None else load_processor(settings.model)
    begin_folder(out, plan)
    features = dataset_features(plan, with_resized=has_resized_size(processor))
    splits = dict.fromkeys(planned_image.split for planned_image in planned)
    writers = {split: ShardWriter(out, split, features) for split in splits}
    pending = _pending_images(planned, writers)
    finished_images = len(planned) - len(pending)
    # To the caller a resumed run counts like one that was never interrupted.
    for number in range(1, finished_images + 1):
        on_progress("writing images", number, len(planned))
    names = [planned_image.image.file for planned_image in pending]
    # Workers read and encode; this process alone writes, in the order of the images.
    with map_in_workers(files.store, names, processes=processes) as stored_images:
        pairs = zip(pending, stored_images, strict=True)
        for number, (planned_image, stored) in enumerate(pairs, start=finished_images + 1):
            writer = writers[planned_image.split]
            image_id = planned_image.image.id
            if image_id in duplicates.left_out:
                writer.skip(image_id, duplicates.left_out[image_id])
            else:
                _write_image(planned_image, stored, plan, processor, writer)
            on_progress("writing images", number, len(planned))
    if all(writer.is_empty for writer in writers.values()):
        reasons = [f"{image}: {reason}" for writer in writers.values() for image, reason in writer.skipped]
        raise ValueError(
            f"Expected at least one image that answers to the task and can be used, got none of {len(plan.images)} "
            f"({first_of(reasons)}). Check the root, the task and the labels."
        )
    for writer in writers.values():
        writer.close()
    return finish_folder(out, plan)


class _Files(NamedTuple):
    """The files of images below a root; a tuple, as worker processes get a pickled copy."""

    root: str | Path
    allow_outside: bool
    settings: PrepareSettings

    def sign(self, file: str) -> bytes | None:
        """The signature of an image; None if it cannot be read, which :meth:`store` reports later."""
        try:
            return image_signature(open_image(image_path(self.root, file, allow_outside=self.allow_outside)))
        except ValueError:
            return None

    def store(self, file: str) -> StoredImage | str:
        """The image as it is stored; or why it cannot be, in words, which :func:`_write_image` raises or records."""
        settings = self.settings
        try:
            path = image_path(self.root, file, allow_outside=self.allow_outside)
            return store_image(path, side=settings.side, image_format=settings.image_format, window=settings.window)
        except ValueError as error:
            return str(error)


def _with_origin(image: AnnotatedImage, dataset: str) -> AnnotatedImage:
    """The image with the name and the licence of its dataset as columns, unless it has its own."""
    source = SOURCES.get(dataset)
    # A general format has no title, as it is no dataset.
    if source is None or not source.title:
        return image
    return image._replace(extra={"source": dataset, "licence": source.licence, **image.extra})


def with_shared_labels(image: AnnotatedImage, dataset: str | None = None) -> AnnotatedImage:
    """The image with labels in the words of the shared vocabulary; unknown labels are put in lower case.

    In a label such as `effusion|atelectasis` each part is looked up.

    Args:
        image: from a source.
        dataset: the name of the source, for words that have another meaning in this dataset.

    Example:
        >>> image = AnnotatedImage("1", "1.png", [[0, 0, 9, 9], [0, 0, 5, 5]], ["Effusion", "Left Lung"])
        >>> with_shared_labels(image, "nih-chestxray14").labels
        ['pleural effusion', 'left lung']
    """
    labels = []
    for label in image.labels:
        parts = [normalize_label(part, dataset).text for part in label.split(SEVERAL)]
        labels.append(SEVERAL.join(parts))
    return image._replace(labels=labels)


def _find_duplicates(plan: FolderPlan, files: _Files, processes: int | None, on_progress: Progress) -> DuplicateGroups:
    """The near-duplicates among the images; nothing is compared if all images go into one split."""
    # The splits that images may come into.
    splits = set()
    if plan.rule.keeps_splits:
        splits = {image.split for image in plan.images if image.split is not None}
    # Images without a split are drawn into those of the shares.
    if plan.facts["images_without_own_split"]:
        splits |= {name for name, share in plan.rule.shares.items() if share}
    if len(splits) < 2:
        return NO_DUPLICATES
    signatures = []
    names = [image.file for image in plan.images]
    with map_in_workers(files.sign, names, processes=processes) as signature_stream:
        for signature in signature_stream:
            signatures.append(signature)
            on_progress("comparing images", len(signatures), len(names))
    duplicates = group_duplicates(
        zip(plan.images, signatures, strict=True),
        plan.patient_splits,
        keeps_splits=plan.rule.keeps_splits,
        bad_rows=plan.settings.bad_rows,
    )
    # For the card of the folder.
    plan.facts["images_with_copies"] = duplicates.images
    return duplicates


def _pending_images(planned: Sequence[PlannedImage], writers: Mapping[str, ShardWriter]) -> list[PlannedImage]:
    """The images that are in no finished shard; finished shards have the first images of their split."""
    counts = Counter[str]()
    pending = []
    for planned_image in planned:
        split = planned_image.split
        counts[split] += 1
        if counts[split] > writers[split].images:
            pending.append(planned_image)
    return pending


def _write_image(
    planned_image: PlannedImage, stored: StoredImage | str, plan: FolderPlan, processor: Any, writer: ShardWriter
) -> None:
    """Write the examples of an image; refuse or skip one that cannot be used.

    Args:
        planned_image: The image with its examples.
        stored: The image as it is stored, or why it cannot be, as `_Files.store` returns it.
        plan: Of the folder.
        processor: For resized sizes; None for none.
        writer: Of the split.
    """
    image = planned_image.image
    try:
        if isinstance(stored, str):
            raise ValueError(stored)
        examples = completed_examples(planned_image, stored, plan, processor)
    except ValueError as error:
        if plan.settings.bad_rows == "refuse":
            raise ValueError(
                f"Expected an image that can be used, got {image.id} ({image.file}): "
                f'{str(error).rstrip(".")}. Correct it, or leave out such images with bad_rows="drop" '
                "(--bad-rows drop). What is done is kept."
            ) from None
        writer.skip(image.id, str(error))
    else:
        writer.add(examples, len(stored.data))
