"""Prepare a dataset: from the annotated images of a source, by examples, to a folder of parquet shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.common.workers import check_workers, map_in_workers
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.readers import measure_agreement
from grounding_rewards.data.splits import in_usual_order
from grounding_rewards.images.decoding import image_path, open_image
from grounding_rewards.images.near_duplicates import image_signature
from grounding_rewards.images.resize import has_resized_size, load_processor
from grounding_rewards.labels import SEVERAL, normalize_label
from grounding_rewards.prepare.encode import StoredImage, store_image
from grounding_rewards.prepare.examples import (
    completed_examples,
    count_examples,
    dataset_features,
    planned_examples,
    with_negatives,
)
from grounding_rewards.prepare.manifest import begin_folder, find_finished, finish_folder, known_facts
from grounding_rewards.prepare.settings import PrepareSettings
from grounding_rewards.prepare.shards import ShardWriter
from grounding_rewards.prepare.split_duplicates import group_duplicates
from grounding_rewards.prepare.survey import Survey, survey_images
from grounding_rewards.prepare.table_checks import check_box_order, warn_of_unnamed_images
from grounding_rewards.prepare.tasks import Example, image_of_interest, without_small_boxes
from grounding_rewards.sources.base import SOURCES, passing_over

Progress = Callable[[str, int, int | None], None]
"""Takes the stage, the images done, and the number of images (None if unknown)."""


def prepare_images(
    read: Callable[[], Iterable[AnnotatedImage]],
    root: str | Path,
    out: str | Path | None,
    settings: PrepareSettings,
    *,
    processes: int | None = None,
    allow_outside: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Write the images of a source as parquet shards with a card.

    The same images and settings give the same bytes, whatever the number of processes and interruptions:
    finished shards are kept, the rest is written again. The images are read several times, first without their images.

    Args:
        read: Returns all images, on every call in the same order.
        root: The folder that file names are relative to.
        out: The folder to write: new, empty, or left unfinished by the same call. None only counts, from the tables
            alone: copies of images are not looked for, and what is wrong with images or boxes is not found.
        settings: What to write.
        processes: That read, shrink and encode images, as `map_in_workers` of `common.workers` takes them.
        allow_outside: Whether images may lie outside the root.
        on_progress: Called after every image.

    Returns:
        The contents of `manifest.json`; where nothing is written, the counts of it: `splits` (without shards),
        `vocabulary`, `source` and the facts of the survey.

    Raises:
        ValueError: As `survey_images`; the folder holds something else; or an image cannot be used, because its file
            cannot be read, its size contradicts the table, or its boxes do not fit (the image is named).

    >>> import tempfile
    >>> from PIL import Image
    >>> images = [AnnotatedImage("1", "1.png", [[16, 14, 33, 27]], ["pacemaker"], split="train")]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (112, 112)).save(f"{folder}/1.png")
    ...     manifest = prepare_images(lambda: images, folder, f"{folder}/out", PrepareSettings("coco", "qwen3-vl"))
    >>> counted = prepare_images(lambda: images, "", None, PrepareSettings("coco", "qwen3-vl"))
    >>> manifest["splits"]["train"]["boxes"], counted["splits"]["train"]["boxes"]
    ({'pacemaker': 1}, {'pacemaker': 1})
    """
    check_workers(processes)
    work = _Work(read, settings, _Files(root, allow_outside, settings), processes, on_progress)
    passes: AbstractContextManager[Iterable[str]] = passing_over() if settings.bad_rows == "drop" else nullcontext(())
    with passes as faults:
        survey = survey_images(work.counted("reading tables"), settings)
        survey.facts["unreadable"] = list(faults)
        check_box_order(work.images(), settings.dataset)
        source = SOURCES.get(settings.dataset)
        is_own = source is not None and not source.title
        if is_own and settings.split is None and settings.bad_rows == "refuse" and str(root) and Path(root).is_dir():
            warn_of_unnamed_images(work.images(), root)
        if out is None:
            survey = with_negatives(work.images, survey)
            splits = count_examples(work.counted("counting rows", survey.images), survey)
            return {"splits": {name: splits[name].as_json() for name in in_usual_order(splits)}, **known_facts(survey)}
        out = Path(out)
        if finished := find_finished(out, survey):
            return finished
        survey = with_negatives(work.images, _with_copies(work, survey))
        # Fail before the folder is begun: it would refuse corrected settings.
        processor = None if settings.model is None else load_processor(settings.model)
        if survey.has_several_readers:
            survey.facts["agreement"] = measure_agreement(
                without_small_boxes(image_of_interest(image, survey.plan.vocabulary), settings)
                for image in work.counted("comparing readers", survey.images)
            ).to_dict()
        begin_folder(out, survey)
        _write_shards(work, out, survey, processor)
        return finish_folder(out, survey)


class _Files(NamedTuple):
    """How the files of images are read; what is sent to other processes."""

    root: str | Path
    allow_outside: bool
    settings: PrepareSettings

    def sign(self, file: str) -> bytes | None:
        """The signature of an image; None where it cannot be read, which is said when it is to be stored."""
        try:
            return image_signature(open_image(image_path(self.root, file, allow_outside=self.allow_outside)))
        except ValueError:
            return None

    def store(self, file: str) -> StoredImage | str:
        """The stored image, or why there is none."""
        side, image_format, window = self.settings.side, self.settings.image_format, self.settings.window
        try:
            path = image_path(self.root, file, allow_outside=self.allow_outside)
            return store_image(path, side=side, image_format=image_format, window=window)
        except ValueError as error:
            return str(error)


class _Work(NamedTuple):
    """What `prepare_images` is called with."""

    read: Callable[[], Iterable[AnnotatedImage]]
    settings: PrepareSettings
    files: _Files
    processes: int | None
    on_progress: Progress

    def images(self) -> Iterator[AnnotatedImage]:
        """The images, with the labels that are asked for, and their source and licence where they name none."""
        origin = {"source": self.settings.source, "licence": self.settings.licence}
        source = SOURCES.get(self.settings.dataset)
        if source is not None and source.title:
            origin = {"source": self.settings.dataset, "licence": source.licence}
        for image in self.read():
            missing = {name: value for name, value in origin.items() if value and image.extra.get(name) is None}
            told = image._replace(extra={**image.extra, **missing}) if missing else image
            yield with_shared_labels(told, self.settings.dataset) if self.settings.normalize_labels else told

    def counted(self, stage: str, total: int | None = None) -> Iterator[AnnotatedImage]:
        """The images; progress is told of every one."""
        for number, image in enumerate(self.images(), start=1):
            yield image
            self.on_progress(stage, number, total)


def _with_copies(work: _Work, survey: Survey) -> Survey:
    """The survey with the copies among the images; nothing is compared where all images go into one split."""
    drawn = (
        {name for name, share in survey.rule.shares.items() if share}
        if survey.facts["images_without_own_split"]
        else set()
    )
    if len(survey.own_splits | drawn) < 2:
        return survey
    files = (image.file for image in work.images())
    with map_in_workers(work.files.sign, files, processes=work.processes) as signatures:
        pairs = zip(work.counted("comparing images", survey.images), signatures, strict=True)
        copied = group_duplicates(pairs, survey.patient_splits, own=survey.rule.own, bad_rows=work.settings.bad_rows)
    survey.facts["images_with_copies"] = copied.images
    return replace(survey, copied=copied)


def _write_shards(work: _Work, out: Path, survey: Survey, processor: Any) -> None:
    features = dataset_features(survey, with_resized=has_resized_size(processor))
    writers: dict[str, ShardWriter] = {}
    jobs = _open_images(work.counted("writing images", survey.images), out, survey, features, writers)
    # The same images again, for the processes that store them: they run ahead of the rows.
    files = (image.file for image, _ in _open_images(work.images(), out, survey, features, {}))
    with map_in_workers(work.files.store, files, processes=work.processes) as stored_images:
        for (image, examples), stored in zip(jobs, stored_images, strict=True):
            writer = writers[examples[0]["split"]]
            if image.id in survey.copied.left_out:
                writer.skip(image.id, survey.copied.left_out[image.id])
                continue
            if isinstance(stored, StoredImage):
                completed, problem = completed_examples(image, examples, stored, survey, processor)
                if not problem:
                    writer.add(completed, len(stored.data))
                    continue
            else:
                problem = stored
            if work.settings.bad_rows == "refuse":
                raise ValueError(
                    f"Expected an image that can be used, got {image.id} ({image.file}): {problem.rstrip('.')}. "
                    'Correct it, or leave out such images with bad_rows="drop" (--bad-rows drop). What is done is kept.'
                )
            writer.skip(image.id, problem)
    if all(writer.is_empty for writer in writers.values()):
        skipped = [image for writer in writers.values() for image in writer.skipped]
        if not skipped:
            raise ValueError("Expected an image that answers to the task, got none. Check the task and the labels.")
        name, reason = skipped[0]
        raise ValueError(
            f"Expected at least one image that can be used, got {len(skipped)} that cannot; the first is {name}: "
            f"{reason.rstrip('.')}. Check the root and the options of the source."
        )
    for writer in writers.values():
        writer.close()


def _open_images(
    images: Iterable[AnnotatedImage], out: Path, survey: Survey, features: Any, writers: dict[str, ShardWriter]
) -> Iterator[tuple[AnnotatedImage, list[Example]]]:
    """The images with examples that are not in a finished shard; adds missing writers."""
    finished: dict[str, int] = {}
    for image, examples in planned_examples(images, survey):
        split = examples[0]["split"]
        if split not in writers:
            writers[split] = ShardWriter(out, split, features, survey.plan.settings.shard_megabytes * 1e6)
            finished[split] = writers[split].images
        if finished[split]:
            finished[split] -= 1
        else:
            yield image, examples


def with_shared_labels(image: AnnotatedImage, dataset: str | None = None) -> AnnotatedImage:
    """The image with labels of the shared vocabulary, sides included; unknown labels are put in lower case.

    In a label such as `effusion|atelectasis` each part is looked up.

    Args:
        image: from a source.
        dataset: the name of the source, for words with a meaning of their own in this dataset.

    Example:
        >>> image = AnnotatedImage("1", "1.png", [[0, 0, 9, 9], [0, 0, 5, 5]], ["Effusion", "Left Lung"])
        >>> with_shared_labels(image, "nih-chestxray14").labels
        ['pleural effusion', 'left lung']
    """
    labels = [
        SEVERAL.join(normalize_label(one, dataset).text for one in label.split(SEVERAL)) for label in image.labels
    ]
    return image._replace(labels=labels)
