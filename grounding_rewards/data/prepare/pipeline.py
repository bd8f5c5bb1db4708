"""Prepare a dataset: from the records of a reader to a folder of parquet shards."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from grounding_rewards.data.agreement import measure_agreement
from grounding_rewards.data.film_paths import film_path
from grounding_rewards.data.held_out import in_usual_order
from grounding_rewards.data.prepare.copied_films import join_copies, signature_of_file
from grounding_rewards.data.prepare.film_images import ImageOptions, StoredImage, store_image
from grounding_rewards.data.prepare.manifest import begin_folder, find_finished, finish_folder, survey_facts
from grounding_rewards.data.prepare.planned_films import PlannedFilm, count_films, planned_films, with_negatives
from grounding_rewards.data.prepare.rows import dataset_features, film_rows
from grounding_rewards.data.prepare.settings import PrepareSettings
from grounding_rewards.data.prepare.shards import ShardWriter
from grounding_rewards.data.prepare.survey import Survey, survey_films
from grounding_rewards.data.prepare.tasks import film_of_interest, without_small_boxes
from grounding_rewards.data.readers.base import SOURCES, FilmRecord
from grounding_rewards.data.readers.passed_over import passing_over
from grounding_rewards.data.resize import has_resized_size, load_processor
from grounding_rewards.data.workers import map_in_order, worker_pool
from grounding_rewards.labels import SEVERAL, normalize_label

Progress = Callable[[str, int, int | None], None]
"""Takes the stage, the films done, and the number of films (None if unknown)."""

# Films in work per process: enough to keep all busy while one takes long, few enough for the memory.
_AHEAD = 4


def prepare_films(
    read: Callable[[], Iterable[FilmRecord]],
    root: str | Path,
    out: str | Path,
    settings: PrepareSettings,
    *,
    processes: int = 1,
    allow_outside: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Write the films of a reader as parquet shards with a card.

    The same films and settings give the same bytes, whatever the number of processes and interruptions: finished
    shards are kept, the rest is written again. The films are read twice, first without their images.

    Args:
        read: Returns all films, on every call in the same order.
        root: The folder that file names are relative to.
        out: The folder to write: new, empty, or left unfinished by the same call.
        settings: What to write.
        processes: Number of processes that read, shrink and encode images; 1 works in this process.
        allow_outside: Whether images may lie outside the root.
        on_progress: Called after every film.

    Returns:
        The contents of `manifest.json`.

    Raises:
        ValueError: As `survey_films`; the folder holds something else; or a film cannot be used, because its file
            cannot be read, its size contradicts the record, or its boxes do not fit (the film is named).

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (112, 112)).save(f"{folder}/1.png")
    ...     films = [FilmRecord("1", "1.png", [[16, 14, 33, 27]], ["pacemaker"], split="train")]
    ...     manifest = prepare_films(lambda: films, folder, f"{folder}/out", PrepareSettings("coco", "qwen3-vl"))
    >>> manifest["splits"]["train"]["boxes"]
    {'pacemaker': 1}
    """
    if processes < 1:
        raise ValueError(f"Expected at least 1 for processes, got {processes}. Take the number of cores.")
    out = Path(out)
    with _passing_over(settings) as faults:
        return _prepare(read, root, out, settings, processes, allow_outside, on_progress, faults)


def survey_only(
    read: Callable[[], Iterable[FilmRecord]],
    settings: PrepareSettings,
    *,
    on_progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """What `prepare_films` would write, from the tables alone: no image is opened and nothing is written.

    Copies of films are not looked for, and what is wrong with images or boxes is not found.

    Args:
        read: As for `prepare_films`.
        settings: What would be written.
        on_progress: Called after every film.

    Returns:
        The counts of `manifest.json`: `splits` (without shards), `vocabulary`, `small_boxes`, `negatives_left_out`,
        `unreadable`, `source`.

    Raises:
        ValueError: As `survey_films`.

    >>> films = [FilmRecord("1", "1.png", [[16, 14, 33, 27]], ["pacemaker"], split="train")]
    >>> survey_only(lambda: films, PrepareSettings("coco", "qwen3-vl"))["splits"]["train"]["boxes"]
    {'pacemaker': 1}
    """
    with _passing_over(settings) as faults:
        records = functools.partial(_records, read, settings)
        survey = survey_films(_counted(records(), lambda done: on_progress("reading tables", done, None)), settings)
        survey = with_negatives(records, replace(survey, unreadable=tuple(faults)))
        films = _counted(records(), lambda done: on_progress("counting rows", done, survey.films))
        splits = count_films(films, survey)
    return {"splits": {split: splits[split].as_json() for split in in_usual_order(splits)}, **survey_facts(survey)}


def _passing_over(settings: PrepareSettings) -> AbstractContextManager[Mapping[str, None]]:
    """Within it, what the reader passes over, if it may."""
    return passing_over() if settings.bad_films == "skip" else nullcontext({})


def _prepare(
    read: Callable[[], Iterable[FilmRecord]],
    root: str | Path,
    out: Path,
    settings: PrepareSettings,
    processes: int,
    allow_outside: bool,
    on_progress: Progress,
    faults: Mapping[str, None],
) -> dict[str, Any]:
    """As `prepare_films`; `faults` collects what the reader passes over."""
    records = functools.partial(_records, read, settings)
    survey = survey_films(_counted(records(), lambda done: on_progress("reading tables", done, None)), settings)
    survey = replace(survey, unreadable=tuple(faults))
    if finished := find_finished(out, settings, survey):
        return finished
    survey = _with_copies(survey, records, root, allow_outside, processes, on_progress)
    survey = with_negatives(records, survey)
    # Fail before the folder is begun: it would refuse corrected settings.
    processor = None if settings.model is None else load_processor(settings.model)
    agreement = None
    if survey.has_several_readers:
        films = _counted(records(), lambda done: on_progress("comparing readers", done, survey.films))
        of_interest = (without_small_boxes(film_of_interest(film, survey.plan.vocabulary), settings) for film in films)
        agreement = measure_agreement(of_interest).as_json()
    begin_folder(out, settings, survey)
    films = _counted(records(), lambda done: on_progress("writing films", done, survey.films))
    store = functools.partial(
        _try_store, root, allow_outside, ImageOptions(settings.side, settings.image_format, settings.window)
    )
    _write_shards(films, store, out, survey, processor, processes)
    return finish_folder(out, settings, survey, agreement)


def _with_copies(
    survey: Survey,
    records: Callable[[], Iterator[FilmRecord]],
    root: str | Path,
    allow_outside: bool,
    processes: int,
    on_progress: Progress,
) -> Survey:
    """The survey with the copies among the films; nothing is compared where all films go into one split."""
    settings = survey.plan.settings
    drawn = {name for name, share in survey.rule.shares.items() if share} if survey.films_drawn else set()
    if len(survey.own_splits | drawn) < 2:
        return survey
    named, counted = itertools.tee(_counted(records(), lambda done: on_progress("comparing films", done, survey.films)))
    sign = functools.partial(signature_of_file, str(root), allow_outside)
    with worker_pool(processes) if processes > 1 else nullcontext() as pool:
        files = (record.file for record in named)
        signatures = map(sign, files) if pool is None else map_in_order(pool, sign, files, ahead=processes * _AHEAD)
        skip = settings.bad_films == "skip"
        # The signatures go ahead of the records, which `tee` keeps until then.
        pairs = ((record, signature) for signature, record in zip(signatures, counted, strict=True))
        copied = join_copies(pairs, survey.patient_splits, own=survey.rule.own, skip=skip)
    return replace(survey, copied=copied)


def _write_shards(
    films: Iterable[FilmRecord],
    store: Callable[[str], StoredImage | str],
    out: Path,
    survey: Survey,
    processor: Any,
    processes: int,
) -> None:
    settings = survey.plan.settings
    features = dataset_features(survey, with_resized=has_resized_size(processor))
    writers: dict[str, ShardWriter] = {}
    jobs, to_store = itertools.tee(_open_films(films, out, survey, features, writers))
    names = (job.record.file for job in to_store)
    with worker_pool(processes) if processes > 1 else nullcontext() as pool:
        images = map(store, names) if pool is None else map_in_order(pool, store, names, ahead=processes * _AHEAD)
        for job, image in zip(jobs, images, strict=True):
            if job.record.id in survey.copied.left_out:
                writers[job.split].skip(job.record.id, survey.copied.left_out[job.record.id])
                continue
            if isinstance(image, StoredImage):
                rows, problem = film_rows(job.record, job.rows, job.split, image, survey, processor)
                if not problem:
                    writers[job.split].add(rows, len(image.data))
                    continue
            else:
                problem = image
            if settings.bad_films == "stop":
                raise ValueError(
                    f"Expected a film that can be used, got {job.record.id} ({job.record.file}): "
                    f"{problem.rstrip('.')}. Correct "
                    'it, or leave out such films with bad_films="skip" (--bad-films skip). What is done is kept.'
                )
            writers[job.split].skip(job.record.id, problem)
    _check_rows(list(writers.values()))
    for writer in writers.values():
        writer.close()


def _check_rows(writers: Sequence[ShardWriter]) -> None:
    if not all(writer.is_empty for writer in writers):
        return
    skipped = [film for writer in writers for film in writer.skipped]
    if not skipped:
        raise ValueError("Expected a film that answers to the task, got none. Check the task and the labels.")
    film, reason = skipped[0]
    raise ValueError(
        f"Expected at least one film that can be used, got {len(skipped)} that cannot; the first is {film}: "
        f"{reason.rstrip('.')}. Check the root and the reader's options."
    )


def _open_films(
    films: Iterable[FilmRecord], out: Path, survey: Survey, features: Any, writers: dict[str, ShardWriter]
) -> Iterator[PlannedFilm]:
    """The films with rows that are not in a finished shard; adds missing writers."""
    finished: dict[str, int] = {}
    for film in planned_films(films, survey):
        split = film.split
        if split not in writers:
            writers[split] = ShardWriter(out, split, features, survey.plan.settings.shard_megabytes * 1e6)
            finished[split] = writers[split].films
        if finished[split]:
            finished[split] -= 1
        else:
            yield film


def _try_store(root: str | Path, allow_outside: bool, options: ImageOptions, file: str) -> StoredImage | str:
    """The stored image, or why there is none."""
    try:
        return store_image(film_path(root, file, allow_outside=allow_outside), options)
    except ValueError as error:
        return str(error)


def _records(read: Callable[[], Iterable[FilmRecord]], settings: PrepareSettings) -> Iterator[FilmRecord]:
    origin = {"source": settings.source, "licence": settings.licence}
    if settings.dataset in SOURCES:
        origin = {"source": settings.dataset, "licence": SOURCES[settings.dataset].licence}
    for record in read():
        # A row that names its own source or licence keeps it.
        missing = {name: value for name, value in origin.items() if value and record.extra.get(name) is None}
        told = record._replace(extra={**record.extra, **missing}) if missing else record
        yield normalize_record(told, settings.dataset) if settings.normalize_labels else told


def _counted(records: Iterable[FilmRecord], on_film: Callable[[int], None]) -> Iterator[FilmRecord]:
    for number, record in enumerate(records, start=1):
        yield record
        on_film(number)


def normalize_record(record: FilmRecord, dataset: str | None = None) -> FilmRecord:
    """The film with labels of the shared vocabulary, sides included; unknown labels are put in lower case.

    In a label such as `effusion|atelectasis` each part is looked up.

    Args:
        record: a film from a reader.
        dataset: the reader's name, for words with a meaning of their own in this dataset.

    Example:
        >>> film = FilmRecord("1", "1.png", [[0, 0, 9, 9], [0, 0, 5, 5]], ["Effusion", "Left Lung"])
        >>> normalize_record(film, "nih-chestxray14").labels
        ['pleural effusion', 'left lung']
    """
    labels = [
        SEVERAL.join(normalize_label(one, dataset).text for one in label.split(SEVERAL)) for label in record.labels
    ]
    return record._replace(labels=labels)
