"""Prepare a dataset: from the records of a reader to a folder of parquet shards."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.data.agreement import measure_agreement
from grounding_rewards.data.film_paths import film_path
from grounding_rewards.data.held_out import in_usual_order
from grounding_rewards.data.job_shares import Share, parts_of
from grounding_rewards.data.prepare.copied_films import join_copies, signature_of_file
from grounding_rewards.data.prepare.film_images import ImageOptions, StoredImage, store_image
from grounding_rewards.data.prepare.film_parts import (
    PART,
    MadeFilm,
    read_identity,
    read_images,
    read_signatures,
    write_part,
)
from grounding_rewards.data.prepare.manifest import (
    begin_folder,
    check_identity,
    find_finished,
    finish_folder,
    identity_of,
    survey_facts,
)
from grounding_rewards.data.prepare.planned_films import PlannedFilm, count_films, planned_films, with_negatives
from grounding_rewards.data.prepare.rows import dataset_features, film_rows
from grounding_rewards.data.prepare.settings import PrepareSettings
from grounding_rewards.data.prepare.shards import ShardWriter
from grounding_rewards.data.prepare.survey import Survey, survey_films
from grounding_rewards.data.prepare.tasks import film_of_interest, without_small_boxes
from grounding_rewards.data.readers.base import SOURCES, FilmRecord
from grounding_rewards.data.readers.passed_over import passing_over
from grounding_rewards.data.resize import has_resized_size, load_processor
from grounding_rewards.data.workers import check_workers, map_in_workers
from grounding_rewards.labels import SEVERAL, normalize_label

Progress = Callable[[str, int, int | None], None]
"""Takes the stage, the films done, and the number of films (None if unknown)."""

# Films that are handed to a worker on another machine together.
_AT_ONCE = 8


def prepare_films(
    read: Callable[[], Iterable[FilmRecord]],
    root: str | Path,
    out: str | Path,
    settings: PrepareSettings,
    *,
    processes: int | None = None,
    engine: str = "local",
    allow_outside: bool = False,
    join: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Write the films of a reader as parquet shards with a card.

    The same films and settings give the same bytes, whatever the number of processes, machines and interruptions:
    finished shards are kept, the rest is written again. The films are read several times, first without their images.

    Args:
        read: Returns all films, on every call in the same order.
        root: The folder that file names are relative to.
        out: The folder to write: new, empty, or left unfinished by the same call.
        settings: What to write.
        processes: That read, shrink and encode images, as `map_in_workers` of `data.workers` takes them.
        engine: Where they are, one of `ENGINES` of `data.workers`.
        allow_outside: Whether images may lie outside the root.
        join: Whether images are those that `prepare_share` left beside the folder; these parts are then removed.
        on_progress: Called after every film.

    Returns:
        The contents of `manifest.json`.

    Raises:
        ValueError: As `survey_films`; the folder holds something else; or a film cannot be used, because its file
            cannot be read, its size contradicts the record, or its boxes do not fit (the film is named); or parts that
            are to be joined are missing, or of another preparation.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (112, 112)).save(f"{folder}/1.png")
    ...     films = [FilmRecord("1", "1.png", [[16, 14, 33, 27]], ["pacemaker"], split="train")]
    ...     manifest = prepare_films(lambda: films, folder, f"{folder}/out", PrepareSettings("coco", "qwen3-vl"))
    >>> manifest["splits"]["train"]["boxes"]
    {'pacemaker': 1}
    """
    check_workers(processes, engine)
    work = _Work(read, root, Path(out), settings, processes, engine, allow_outside, on_progress)
    with _passing_over(settings) as faults:
        return _prepare(work, faults, join=join)


def prepare_share(
    read: Callable[[], Iterable[FilmRecord]],
    root: str | Path,
    out: str | Path,
    settings: PrepareSettings,
    share: Share,
    *,
    processes: int | None = None,
    allow_outside: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> tuple[Path, int]:
    """Read, shrink and encode the images of a share of the films, for `prepare_films` with `join`.

    All machines see one folder. A share reads all tables, and the images of its own films.

    Args:
        read: As for `prepare_films`, and so are the other arguments.
        root: The folder that file names are relative to.
        out: The folder that will be written; the part is left beside it.
        settings: What to write.
        share: Which films.
        processes: That work on images, on this machine.
        allow_outside: Whether images may lie outside the root.
        on_progress: Called after every film.

    Returns:
        The part, and how many films are in it.

    Raises:
        ValueError: As `prepare_films`, but for films whose boxes do not fit, which are found when parts are joined.
    """
    check_workers(processes, "local")
    work = _Work(read, root, Path(out), settings, processes, "local", allow_outside, on_progress)
    with _passing_over(settings) as faults:
        return _prepare_share(work, share, faults)


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


class _Work(NamedTuple):
    """The arguments of `prepare_films`, by which films are read and images are made."""

    read: Callable[[], Iterable[FilmRecord]]
    root: str | Path
    out: Path
    settings: PrepareSettings
    processes: int | None
    engine: str
    allow_outside: bool
    on_progress: Progress

    def records(self) -> Iterator[FilmRecord]:
        return _records(self.read, self.settings)

    def counted(self, stage: str, total: int | None = None) -> Iterator[FilmRecord]:
        """The records; progress is told of every one."""
        return _counted(self.records(), lambda done: self.on_progress(stage, done, total))

    def surveyed(self, faults: Mapping[str, None]) -> Survey:
        survey = survey_films(self.counted("reading tables"), self.settings)
        return replace(survey, unreadable=tuple(faults))

    def sign(self, file: str) -> bytes | None:
        return signature_of_file(str(self.root), self.allow_outside, file)

    def store(self, file: str) -> StoredImage | str:
        """The stored image, or why there is none."""
        options = ImageOptions(self.settings.side, self.settings.image_format, self.settings.window)
        try:
            return store_image(film_path(self.root, file, allow_outside=self.allow_outside), options)
        except ValueError as error:
            return str(error)

    def mapped(self, function: Callable[[Any], Any], items: Iterable[Any]) -> AbstractContextManager[Iterator[Any]]:
        return map_in_workers(function, items, processes=self.processes, engine=self.engine, at_once=_AT_ONCE)


def _prepare(work: _Work, faults: Mapping[str, None], *, join: bool) -> dict[str, Any]:
    """As `prepare_films`; `faults` collects what the reader passes over."""
    out, settings, records = work.out, work.settings, work.records
    survey = work.surveyed(faults)
    if finished := find_finished(out, settings, survey):
        return finished
    parts = _parts(work, survey) if join else None
    survey = _with_copies(work, survey, parts)
    survey = with_negatives(records, survey)
    # Fail before the folder is begun: it would refuse corrected settings.
    processor = None if settings.model is None else load_processor(settings.model)
    agreement = None
    if survey.has_several_readers:
        films = work.counted("comparing readers", survey.films)
        of_interest = (without_small_boxes(film_of_interest(film, survey.plan.vocabulary), settings) for film in films)
        agreement = measure_agreement(of_interest).as_json()
    begin_folder(out, settings, survey)
    _write_shards(work, survey, processor, parts)
    manifest = finish_folder(out, settings, survey, agreement)
    for part in parts or ():
        part.unlink()
    return manifest


def _prepare_share(work: _Work, share: Share, faults: Mapping[str, None]) -> tuple[Path, int]:
    survey = work.surveyed(faults)
    find_finished(work.out, work.settings, survey)
    # As far as it is known without the copies: the few films that these change are stored when parts are joined.
    planned = with_negatives(work.records, survey)
    rows = share.of(survey.films)
    making = functools.partial(_make, work._replace(read=_nothing, on_progress=_silent), _looks_for_copies(survey))

    def own() -> Iterator[FilmRecord]:
        return itertools.islice(work.records(), rows.start, rows.stop)

    asked = ((record.file, any(planned_films([record], planned))) for record in own())

    def made(images: Iterable[tuple[bytes | None, StoredImage | str | None]]) -> Iterator[MadeFilm]:
        counted = _counted(own(), lambda done: work.on_progress("storing films", done, len(rows)))
        for record, (signature, image) in zip(counted, images, strict=True):
            if isinstance(image, str) and work.settings.bad_films == "stop":
                raise _cannot_be_used(record, image)
            yield MadeFilm(record.id, signature, image)

    part = share.part(work.out, PART)
    with work.mapped(making, asked) as images:
        write_part(part, made(images), identity_of(work.settings, survey))
    return part, len(rows)


def _make(work: _Work, signed: bool, asked: tuple[str, bool]) -> tuple[bytes | None, StoredImage | str | None]:
    file, is_stored = asked
    return work.sign(file) if signed else None, work.store(file) if is_stored else None


def _nothing() -> Iterable[FilmRecord]:
    return ()


def _silent(stage: str, done: int, total: int | None) -> None:
    pass


def _parts(work: _Work, survey: Survey) -> list[Path]:
    """The parts of all shares, in their order."""
    parts = [part for _, part in parts_of(work.out, PART)]
    for part in parts:
        check_identity(part, read_identity(part), identity_of(work.settings, survey))
    return parts


def _looks_for_copies(survey: Survey) -> bool:
    """Whether films may go into different splits."""
    drawn = {name for name, share in survey.rule.shares.items() if share} if survey.films_drawn else set()
    return len(survey.own_splits | drawn) > 1


def _with_copies(work: _Work, survey: Survey, parts: Sequence[Path] | None) -> Survey:
    """The survey with the copies among the films; nothing is compared where all films go into one split."""
    if not _looks_for_copies(survey):
        return survey
    sign = work._replace(read=_nothing, on_progress=_silent).sign
    files = (record.file for record in work.records())
    with nullcontext(read_signatures(parts)) if parts else work.mapped(sign, files) as signatures:
        skip = work.settings.bad_films == "skip"
        pairs = zip(work.counted("comparing films", survey.films), signatures, strict=True)
        copied = join_copies(pairs, survey.patient_splits, own=survey.rule.own, skip=skip)
    return replace(survey, copied=copied)


def _write_shards(work: _Work, survey: Survey, processor: Any, parts: Sequence[Path] | None) -> None:
    features = dataset_features(survey, with_resized=has_resized_size(processor))
    writers: dict[str, ShardWriter] = {}
    jobs = _open_films(work.counted("writing films", survey.films), work.out, survey, features, writers)
    ahead = _open_films(work.records(), work.out, survey, features, {})
    store = work._replace(read=_nothing, on_progress=_silent).store
    with (
        nullcontext(_stored(ahead, parts, store))
        if parts
        else work.mapped(store, (job.record.file for job in ahead)) as images
    ):
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
            if work.settings.bad_films == "stop":
                raise _cannot_be_used(job.record, problem)
            writers[job.split].skip(job.record.id, problem)
    _check_rows(list(writers.values()))
    for writer in writers.values():
        writer.close()


def _stored(
    jobs: Iterable[PlannedFilm], parts: Sequence[Path], store: Callable[[str], StoredImage | str]
) -> Iterator[StoredImage | str]:
    """The images of films from the parts, or stored now where shares did not know that they are needed."""
    made = read_images(parts)
    for job in jobs:
        image = next(image for name, image in made if name == job.record.id)
        yield store(job.record.file) if image is None else image


def _cannot_be_used(record: FilmRecord, problem: str) -> ValueError:
    return ValueError(
        f"Expected a film that can be used, got {record.id} ({record.file}): {problem.rstrip('.')}. Correct "
        'it, or leave out such films with bad_films="skip" (--bad-films skip). What is done is kept.'
    )


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
