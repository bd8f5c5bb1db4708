"""From records to a folder of parquet shards: `prepare_films`."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.data.agreement import measure_agreement
from grounding_rewards.data.prepare.film_images import ImageOptions, StoredImage, store_image
from grounding_rewards.data.prepare.manifest import begin_folder, find_finished, finish_folder
from grounding_rewards.data.prepare.rows import dataset_features, film_rows
from grounding_rewards.data.prepare.settings import PrepareSettings
from grounding_rewards.data.prepare.shards import ShardWriter
from grounding_rewards.data.prepare.splits import film_split
from grounding_rewards.data.prepare.survey import Survey, survey_films
from grounding_rewards.data.prepare.tasks import TaskRow, film_of_interest, task_rows
from grounding_rewards.data.readers.base import FilmRecord
from grounding_rewards.data.resize import has_resized_size, load_processor
from grounding_rewards.data.workers import worker_pool
from grounding_rewards.labels import SEVERAL, normalize_label

Progress = Callable[[str, int, int | None], None]
"""Takes the stage, the films done, and the number of all; None while that is not known."""

# Films in work per process: enough to keep all busy behind one that takes long, few enough to be held in memory.
_AHEAD = 4


class _Job(NamedTuple):
    """One film that is to be written."""

    record: FilmRecord
    split: str
    rows: list[TaskRow]


def prepare_films(
    read: Callable[[], Iterable[FilmRecord]],
    root: str | Path,
    out: str | Path,
    settings: PrepareSettings,
    *,
    processes: int = 1,
    on_progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Write the films of a reader as parquet shards with a card.

    The same films and settings give the same bytes, whatever the number of processes and however often the work was
    interrupted: finished shards are kept, the rest is done anew. The films are gone through twice, first without their
    images.

    Args:
        read: Gives all films, each time it is called, in the same order.
        root: What the files of the records are relative to.
        out: The folder to write; new, empty, or one that this call left unfinished.
        settings: What to write.
        processes: That read, shrink and encode images; 1 works in this process.
        on_progress: Called after every film.

    Returns:
        What `manifest.json` in the folder holds.

    Raises:
        ValueError: As `survey_films`; the folder holds something else; or a film that cannot be used, by its id: its
            file cannot be read, its size contradicts the record, or its boxes do not fit.

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
    records = functools.partial(_records, read, settings)
    survey = survey_films(_counted(records(), lambda done: on_progress("reading tables", done, None)), settings)
    if finished := find_finished(out, settings, survey):
        return finished
    # What can be wrong is found before the folder is begun, which would refuse other settings.
    processor = None if settings.model is None else load_processor(settings.model)
    agreement = _measure_readers(records, survey, on_progress) if survey.has_several_readers else None
    begin_folder(out, settings, survey)
    _write_shards(records, Path(root), out, survey, processor, processes, on_progress)
    return finish_folder(out, settings, survey, agreement)


def _measure_readers(
    records: Callable[[], Iterable[FilmRecord]], survey: Survey, on_progress: Progress
) -> dict[str, Any]:
    """How well the readers agree about the findings of interest."""
    films = _counted(records(), lambda done: on_progress("comparing readers", done, survey.films))
    return measure_agreement(film_of_interest(film, survey.plan.vocabulary) for film in films).as_json()


def _write_shards(
    records: Callable[[], Iterable[FilmRecord]],
    root: Path,
    out: Path,
    survey: Survey,
    processor: Any,
    processes: int,
    on_progress: Progress,
) -> None:
    settings = survey.plan.settings
    features = dataset_features(survey, with_resized=has_resized_size(processor))
    writers: dict[str, ShardWriter] = {}
    options = ImageOptions(settings.side, settings.image_format, settings.window)
    jobs = _open_jobs(records, out, survey, features, writers)
    with _image_results(jobs, root, options, processes) as results:
        for done, (job, image) in enumerate(results, start=1):
            on_progress("writing films", done, survey.films)
            if job is None:
                continue
            writer = writers[job.split]
            if isinstance(image, StoredImage):
                rows, problem = film_rows(job.record, job.rows, job.split, image, survey, processor)
                if not problem:
                    writer.add(rows, len(image.data))
                    continue
            else:
                problem = image
            if settings.bad_films == "skip":
                writer.skip(job.record.id, problem)
            else:
                raise ValueError(
                    f"Expected a film that can be used, got {job.record.id} ({job.record.file}): "
                    f"{problem.rstrip('.')}. Correct "
                    'it, or leave out such films with bad_films="skip" (--bad-films skip). What is done is kept.'
                )
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


def _open_jobs(
    records: Callable[[], Iterable[FilmRecord]],
    out: Path,
    survey: Survey,
    features: Any,
    writers: dict[str, ShardWriter],
) -> Iterator[_Job | None]:
    """A job for each film that is in no finished shard; None for all others, and where there is nothing to ask."""
    settings = survey.plan.settings
    passed: dict[str, int] = {}
    for record in records():
        own = settings.splits_from == "dataset"
        split = film_split(record, survey.patient_splits, dict(settings.shares), settings.seed, own=own)
        rows = list(task_rows(record, survey.plan))
        if not rows:
            yield None
            continue
        if split not in writers:
            writers[split] = ShardWriter(out, split, features, settings.shard_megabytes * 1e6)
            passed[split] = writers[split].films
        if passed[split]:
            passed[split] -= 1
            yield None
            continue
        yield _Job(record, split, rows)


@contextmanager
def _image_results(
    jobs: Iterator[_Job | None], root: Path, options: ImageOptions, processes: int
) -> Iterator[Iterator[tuple[_Job | None, StoredImage | str]]]:
    """The jobs in their order, each with its image, or with the reason why there is none."""
    if processes == 1:
        yield ((job, _try_store(root / job.record.file, options) if job else "") for job in jobs)
        return
    with worker_pool(processes) as pool:
        yield _in_order(jobs, root, options, pool, ahead=processes * _AHEAD)


def _in_order(
    jobs: Iterator[_Job | None], root: Path, options: ImageOptions, pool: ProcessPoolExecutor, ahead: int
) -> Iterator[tuple[_Job | None, StoredImage | str]]:
    waiting: deque[tuple[_Job, Future[StoredImage | str]]] = deque()
    for job in jobs:
        if job is None:
            # Nothing to wait for, but in front of it may be.
            yield None, ""
            continue
        waiting.append((job, pool.submit(_try_store, root / job.record.file, options)))
        if len(waiting) >= ahead:
            first, future = waiting.popleft()
            yield first, future.result()
    while waiting:
        first, future = waiting.popleft()
        yield first, future.result()


def _try_store(path: Path, options: ImageOptions) -> StoredImage | str:
    try:
        return store_image(path, options)
    except ValueError as error:
        return str(error)


def _records(read: Callable[[], Iterable[FilmRecord]], settings: PrepareSettings) -> Iterator[FilmRecord]:
    for record in read():
        yield normalize_record(record, settings.dataset) if settings.normalize_labels else record


def _counted(records: Iterable[FilmRecord], on_film: Callable[[int], None]) -> Iterator[FilmRecord]:
    for number, record in enumerate(records, start=1):
        yield record
        on_film(number)


def normalize_record(record: FilmRecord, dataset: str | None = None) -> FilmRecord:
    """The film with each label as the shared vocabulary has it, with its side; unknown labels stay, in lower case.

    Where a label holds several, as in `effusion|atelectasis`, each is looked up.

    Args:
        record: a film from a reader.
        dataset: the reader's name, for words that mean something in this dataset alone.

    Example:
        >>> film = FilmRecord("1", "1.png", [[0, 0, 9, 9], [0, 0, 5, 5]], ["Effusion", "Left Lung"])
        >>> normalize_record(film, "nih-chestxray14").labels
        ['pleural effusion', 'left lung']
    """
    labels = [
        SEVERAL.join(normalize_label(one, dataset).text for one in label.split(SEVERAL)) for label in record.labels
    ]
    return record._replace(labels=labels)
