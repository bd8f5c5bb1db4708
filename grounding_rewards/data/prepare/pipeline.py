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
from grounding_rewards.data.checks import row_problems
from grounding_rewards.data.images import has_shape
from grounding_rewards.data.prepare import manifest as manifests
from grounding_rewards.data.prepare.film_images import ImageOptions, StoredImage, store_image
from grounding_rewards.data.prepare.labels import normalize_record
from grounding_rewards.data.prepare.settings import PrepareSettings
from grounding_rewards.data.prepare.shards import ShardWriter
from grounding_rewards.data.prepare.spacing import stored_spacing
from grounding_rewards.data.prepare.splits import film_split
from grounding_rewards.data.prepare.survey import Survey, survey_films
from grounding_rewards.data.prepare.tasks import TaskRow, film_of_interest, prompt_of, task_rows
from grounding_rewards.data.readers.base import FilmRecord
from grounding_rewards.data.resize import has_resized_size, load_processor, resized_size
from grounding_rewards.data.workers import worker_pool

Progress = Callable[[str, int, int | None], None]
"""Is told the stage, how many films are done, and of how many; None where that is not known yet."""

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
    progress: Progress | None = None,
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
        progress: Told after every film.

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
    out, told = Path(out), progress or (lambda stage, done, of: None)
    records = functools.partial(_records, read, settings)
    survey = survey_films(_counted(records(), lambda done: told("reading tables", done, None)), settings)
    if finished := manifests.find_finished(out, settings, survey):
        return finished
    # What can be wrong is found before the folder is begun, which would refuse other settings.
    processor = None if settings.model is None else load_processor(settings.model)
    agreement = _measure_readers(records, survey, told) if survey.has_several_readers else None
    manifests.begin(out, settings, survey)
    _write_shards(records, Path(root), out, survey, processor, processes, told)
    return manifests.finish(out, settings, survey, agreement)


def _measure_readers(records: Callable[[], Iterable[FilmRecord]], survey: Survey, told: Progress) -> dict[str, Any]:
    """How well the readers agree about the findings of interest."""
    films = _counted(records(), lambda done: told("comparing readers", done, survey.films))
    return measure_agreement(film_of_interest(film, survey.plan.vocabulary) for film in films).as_json()


def _write_shards(
    records: Callable[[], Iterable[FilmRecord]],
    root: Path,
    out: Path,
    survey: Survey,
    processor: Any,
    processes: int,
    told: Progress,
) -> None:
    settings = survey.plan.settings
    features = dataset_features(survey, with_resized=has_resized_size(processor))
    writers: dict[str, ShardWriter] = {}
    options = ImageOptions(settings.side, settings.image_format, settings.window)
    jobs = _open_jobs(records, out, survey, features, writers)
    with _image_results(jobs, root, options, processes) as results:
        done = 0
        for job, image in results:
            done += 1
            told("writing films", done, survey.films)
            if job is None:
                continue
            writer = writers[job.split]
            problem, rows = (image, []) if isinstance(image, str) else _film_rows(job, image, survey, processor)
            if problem is None and not isinstance(image, str):
                writer.add(rows, len(image.data))
            elif settings.bad_films == "skip":
                writer.skip(job.record.id, str(problem))
            else:
                raise ValueError(
                    f"Expected a film that can be used, got {job.record.id} ({job.record.file}): "
                    f"{str(problem).rstrip('.')}. Correct "
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


def _film_rows(
    job: _Job, image: StoredImage, survey: Survey, processor: Any
) -> tuple[str | None, list[dict[str, Any]]]:
    """The rows of a film as they are stored, or what is wrong with it."""
    record, settings = job.record, survey.plan.settings
    drawn_on = (record.width or image.original_width, record.height or image.original_height)
    if not (settings.squeezed or has_shape((image.original_width, image.original_height), drawn_on)):
        size = f"{image.original_width} x {image.original_height}"
        return (
            f"its image is {size} pixels, which is not the shape of {drawn_on[0]} x {drawn_on[1]} (give --squeezed "
            "if all images are squeezed copies)",
            [],
        )
    stored = (image.width, image.height)
    common = {
        "image": {"bytes": image.data, "path": None},
        "width": image.width,
        "height": image.height,
        "original_width": drawn_on[0],
        "original_height": drawn_on[1],
        "patient_id": record.patient_id,
        "split": job.split,
    }
    if survey.has_spacing:
        common["pixel_spacing"] = stored_spacing(record, image)
    if isinstance(settings.box_format, str):
        common["box_format"] = settings.box_format
    if has_resized_size(processor):
        try:
            resized = resized_size(processor, image.width, image.height)
        except ValueError as error:
            return str(error), []
        common["resized_width"], common["resized_height"] = resized
    rows = []
    for asked in job.rows:
        row = {
            **common,
            "id": asked.id,
            "prompt": prompt_of(asked, settings),
            "boxes": _moved(asked.boxes, drawn_on, stored),
            "labels": asked.labels,
            "phrase": asked.phrase,
            "ignore_boxes": _moved(asked.ignore_boxes, drawn_on, stored),
        }
        if settings.readers == "any-of":
            row["reader_boxes"] = [_moved(boxes, drawn_on, stored) for boxes in asked.reader_boxes]
            row["reader_labels"] = asked.reader_labels
        if problem := "; ".join(row_problems(row)):
            return problem, []
        rows.append(row)
    return None, rows


def _moved(boxes: Sequence[Sequence[float]], drawn_on: tuple[int, int], stored: tuple[int, int]) -> list[list[float]]:
    """Boxes in pixels of the film that they were drawn on, to pixels of the stored image; sizes are (width, height)."""
    (from_width, from_height), (width, height) = drawn_on, stored
    return [
        [x1 * width / from_width, y1 * height / from_height, x2 * width / from_width, y2 * height / from_height]
        for x1, y1, x2, y2 in boxes
    ]


def dataset_features(survey: Survey, *, with_resized: bool) -> Any:
    """The columns as `datasets.Features`; those that the settings or the films leave out are not there."""
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
    return Features(columns)


def _records(read: Callable[[], Iterable[FilmRecord]], settings: PrepareSettings) -> Iterator[FilmRecord]:
    for record in read():
        yield normalize_record(record, settings.dataset) if settings.normalize_labels else record


def _counted(records: Iterable[FilmRecord], told: Callable[[int], None]) -> Iterator[FilmRecord]:
    for number, record in enumerate(records, start=1):
        yield record
        told(number)
