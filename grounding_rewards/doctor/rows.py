"""The rows of any dataset, one at a time and as they are: unchecked, uncorrected.

Training loads its images with `grounding_rewards.prepare.load`, which refuses what is passed on here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.columns import patient_key, stated_name
from grounding_rewards.common.text_files import json_lines
from grounding_rewards.data.checks import is_size
from grounding_rewards.data.splits import (
    ALL,
    TRAIN,
    assign_splits,
    check_split_exists,
    in_usual_order,
    patient_column,
    patient_in_name,
    patients_of_rows,
)
from grounding_rewards.images.decoding import has_shape, image_path
from grounding_rewards.prepare.load import dataset_parts, parquet_shards
from grounding_rewards.prepare.manifest import MANIFEST, read_manifest
from grounding_rewards.sources.jsonl import ANNOTATIONS, image_row, word_faults

#: The name of the drawing that holds the regions to ignore.
IGNORED = "ignore_boxes"

# Rows that are read from a parquet file at once: some 64 MB of images of a megabyte each.
_BATCH = 64
# Columns that name a study, without marks.
_STUDIES = {"study", "studyid", "studyinstanceuid", "exam", "examid", "accession", "accessionnumber"}


class Drawing(NamedTuple):
    """Boxes of an image that belong together.

    name: empty for the column `boxes`; `reader 0` and so on for `reader_boxes`; :data:`IGNORED` for `ignore_boxes`.
    boxes: as they are given.
    labels: as they are given; empty where there are none.
    """

    name: str
    boxes: Sequence[Any]
    labels: Sequence[Any] = ()

    @property
    def prefix(self) -> str:
        """How a message about these boxes begins."""
        return f"{self.name}: " if self.name else ""

    def label(self, index: int) -> Any:
        """The label of a box; None where it has none."""
        return self.labels[index] if index < len(self.labels) else None


class ImageFacts(NamedTuple):
    """What the image of a row says; the last three only where its pixels were decoded.

    size: width and height by its header, upright; None where that cannot be read.
    fault: why it cannot be read.
    digest: a hash of the file, 8 bytes; the same image encoded again has another.
    burned_in: whether a DICOM file says that names may be written into its pixels.
    problem: why it cannot be decoded; empty where it can.
    blank: its greys in words, where hardly more than one; else empty.
    signature: from :func:`grounding_rewards.images.near_duplicates.image_signature`.
    """

    size: tuple[int, int] | None = None
    fault: str = ""
    digest: bytes | None = None
    burned_in: bool = False
    problem: str = ""
    blank: str = ""
    signature: bytes | None = None


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One row of a dataset.

    Attributes:
        split: the name of its split.
        number: of the row in its split, from 0.
        columns: everything else, without the image.
        image: an encoded image as `datasets` stores it, `{"bytes": ..., "path": ...}`; None where the row has none.
        damage: why the row could not be read at all; empty where it could.
        expects_image: whether other rows of the dataset have images.
        outside: why the image that the row names may not be opened; empty where it may.
        facts: what its image says; None where it has none, or nobody looked at it yet.
        hidden: names that no report may hold.
    """

    split: str
    number: int
    columns: dict[str, Any]
    image: Mapping[str, Any] | None = None
    damage: str = ""
    expects_image: bool = False
    outside: str = ""
    facts: ImageFacts | None = None
    hidden: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The row's `id`, or its file; `-` where it has neither."""
        value = self.columns.get("id", self.columns.get("file"))
        return "-" if value is None else str(value)

    @property
    def file(self) -> str:
        """The name of the row's image, as its table gives it; empty where it has none."""
        value = self.columns.get("file", (self.image or {}).get("path"))
        return value if isinstance(value, str) else ""

    @property
    def patient_name(self) -> str | None:
        """The row's patient as it is written, by `patient_id`, else by a column that looks like it; None without."""
        values = {name: value for name, value in self.columns.items() if value is not None}
        return stated_name(values.get(patient_column(values) or "patient_id"))

    @property
    def patient_id(self) -> str | None:
        """The row's patient as :func:`grounding_rewards.columns.patient_key`; None where it has none."""
        name = self.patient_name
        return None if name is None else patient_key(name)

    @property
    def key(self) -> tuple[str, int]:
        """Split and number, which no other row has."""
        return self.split, self.number

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Width and height out of the image's header, upright; None where there is no image or it cannot be read."""
        return None if self.facts is None else self.facts.size

    @property
    def size(self) -> tuple[float, float] | None:
        """Width and height by the columns, else by the image; None where neither says."""
        width, height = self.columns.get("width"), self.columns.get("height")
        if is_size(width) and is_size(height):
            return width, height
        return self.image_size if width is None and height is None else None

    @property
    def trusted_size(self) -> tuple[float, float] | None:
        """As `size`, but None where the image has another shape."""
        if self.size is None or (self.image_size is not None and not has_shape(self.image_size, self.size)):
            return None
        return self.size

    @property
    def resized_size(self) -> tuple[float, float] | None:
        """The columns `resized_width` and `resized_height`; None where they hold no size."""
        size = self.columns.get("resized_width"), self.columns.get("resized_height")
        return size if all(map(is_size, size)) else None  # type: ignore[return-value]

    @property
    def readers(self) -> tuple[Drawing, ...]:
        """What each reader drew; empty where the column `reader_boxes` is no list of lists."""
        boxes, labels = self._list("reader_boxes"), self._list("reader_labels")
        label_lists = labels if len(labels) == len(boxes) else [()] * len(boxes)
        return tuple(
            Drawing(f"reader {k}", own_boxes, names if isinstance(names, list | tuple) else ())
            for k, (own_boxes, names) in enumerate(zip(boxes, label_lists, strict=True))
            if isinstance(own_boxes, list | tuple)
        )

    @property
    def answers(self) -> tuple[Drawing, ...]:
        """The drawings that a right answer may equal: that of any reader, or else `boxes`."""
        return self.readers or (self._own_drawing,)

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """All boxes of the row: `boxes`, those of each reader, and regions that are ignored."""
        return (self._own_drawing, *self.readers, Drawing(IGNORED, self._list("ignore_boxes")))

    @property
    def _own_drawing(self) -> Drawing:
        return Drawing("", self._list("boxes"), self._list("labels"))

    def _list(self, column: str) -> Sequence[Any]:
        """A column as it is given; empty where it is no list."""
        value = self.columns.get(column)
        return value if isinstance(value, list | tuple) else ()

    @property
    def prompt(self) -> str | None:
        """The text of the prompt, of all its messages; None where the row has no prompt, and training writes one."""
        value = self.columns.get("prompt")
        return None if value is None else " ".join(texts(value)).strip()


@dataclass(frozen=True)
class RowSource:
    """Where rows come from.

    Attributes:
        name: as the user gave it.
        open: starts to go through the rows, split after split.
        total: how many rows there are; None where that is not known beforehand.
        unfinished: why a prepared folder is not finished; empty where it is.
        draw_note: how training draws images into splits where the dataset holds none out; else empty.
    """

    name: str
    open: Callable[[], Iterator[ImageRow]]
    total: int | None
    unfinished: str = ""
    draw_note: str = ""


def open_rows(dataset: str, splits: Sequence[str] = (), *, allow_outside: bool = False) -> RowSource:
    """Find a dataset; its rows are read one by one when the source is opened.

    Args:
        dataset: what :func:`grounding_rewards.prepare.load.load_split` takes.
        splits: only these; all without.
        allow_outside: whether the images that `annotations.jsonl` names may lie outside its folder.

    Raises:
        ValueError: the dataset cannot be found, has no such split, or has no column `boxes`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     line = '{"file": "a.png", "width": 40, "height": 30, "boxes": [], "labels": [], "split": "test"}'
        ...     _ = Path(folder, "annotations.jsonl").write_text(line)
        ...     source = open_rows(folder)
        ...     [(row.split, row.number, row.id) for row in source.open()]
        [('test', 0, 'a.png')]
    """
    path = Path(dataset)
    if (path / ANNOTATIONS).is_file():
        return _jsonl_source(path, splits, allow_outside)
    unfinished = _why_unfinished(path)
    if shards := parquet_shards(path):
        source = _parquet_source(dataset, shards, splits)
        return replace(source, unfinished=unfinished) if unfinished else source
    return RowSource(dataset, lambda: iter(()), 0, unfinished) if unfinished else _datasets_source(dataset, splits)


def numbered(rows: Iterable[ImageRow]) -> Iterator[ImageRow]:
    """The rows with numbers in the place of ids, patients, studies and names of files, the same for the same name.

    Example:
        >>> rows = [ImageRow("train", n, {"id": f"DOE^JANE {n}", "patient_id": "DOE^JANE"}) for n in (0, 1)]
        >>> [(row.id, row.patient_id) for row in numbered(rows)]
        [('image 1', '1'), ('image 2', '1')]
    """
    of_patient, of_id, of_file, of_study = (defaultdict[str, int](partial(next, count(1))) for _ in range(4))
    for row in rows:
        columns = dict(row.columns)
        column = patient_column([name for name, value in columns.items() if value is not None]) or "patient_id"
        patient, path = columns.get(column), (row.image or {}).get("path")
        by_name = patient_in_name(row.file)
        files = row.file, str(path)
        hidden = {str(columns.get("id", "")), str(patient), *files, *(Path(file).name for file in files)}
        if row.id != "-":
            columns["id"] = f"image {of_id[row.id]}"
        if row.patient_id is not None:
            columns[column] = str(of_patient[row.patient_id])
        for name, study in row.columns.items():
            if is_study(name) and study not in (None, ""):
                hidden.add(str(study))
                columns[name] = str(of_study[str(study)])
        if row.file:
            # A name that tells the patient still does.
            prefix = f"patient{of_patient[by_name]}_" if by_name is not None else ""
            columns["file"] = f"{prefix}{of_file[row.file]}.image"
        # Numbers of boxes are no names.
        names = sorted((name for name in hidden if len(name) > (5 if name.isdigit() else 3)), key=len, reverse=True)
        yield replace(row, columns=columns, hidden=tuple(names))


# Asked of every row.
@lru_cache(maxsize=1024)
def is_study(column: str) -> bool:
    """Whether a column names the study, whose images are of one patient.

    >>> [is_study(column) for column in ("StudyInstanceUID", "accession_number", "study_type")]
    [True, True, False]
    """
    return re.sub(r"[\W_]", "", column).casefold() in _STUDIES


def texts(content: Any) -> Iterator[str]:
    """The texts of a prompt: of a text, a message or several."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        yield from texts(content.get("content") or content.get("text") or content.get("value"))
    elif isinstance(content, list | tuple):
        for part in content:
            yield from texts(part)


def _jsonl_source(root: Path, splits: Sequence[str], allow_outside: bool) -> RowSource:
    lines = [
        (line, {} if no_object else image_row(content), no_object)
        for line, content, no_object in json_lines(root / ANNOTATIONS)
    ]
    rows_of_lines = [row for _, row, _ in lines]
    names = (
        (row.get("split"), patient, row.get("id", "-"))
        for row, patient in zip(rows_of_lines, patients_of_rows(rows_of_lines), strict=True)
    )
    assigned = assign_splits(names, str(root))
    # Images that training draws come from one source: what is wrong with them is clearest together.
    of_images = [TRAIN] * len(assigned.splits) if assigned.drawn else assigned.splits
    wanted_splits = _choose_splits(splits, of_images, str(root))

    def rows() -> Iterator[ImageRow]:
        # The file may mix splits; as with shards, one split is finished before the next.
        for split in wanted_splits:
            split_lines = (line for line, of_image in zip(lines, of_images, strict=True) if of_image == split)
            for number, (line, columns, no_object) in enumerate(split_lines):
                image, outside = None, ""
                if isinstance(file := columns.get("file"), str):
                    try:
                        image = {"bytes": None, "path": str(image_path(root, file, allow_outside=allow_outside))}
                    except ValueError as error:
                        outside = str(error)
                # Faults of boxes, sizes, images and prompts are found by checks of their own.
                faults = [f"expected {expected}, got {got!r:.80}" for expected, got in word_faults(columns)]
                damage = f"line {line} is {no_object}" if no_object else "; ".join(faults)
                yield ImageRow(split, number, columns, image, damage, True, outside)

    draw_note = assigned.said if assigned.drawn else ""
    return RowSource(str(root), rows, sum(map(of_images.count, wanted_splits)), draw_note=draw_note)


def _why_unfinished(folder: Path) -> str:
    """Why training would refuse a prepared folder; empty where it would not, or the folder was not prepared."""
    try:
        manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else None
    except ValueError:
        return f"{MANIFEST} cannot be read."
    if not isinstance(manifest, dict) or "complete" not in manifest:
        return ""
    if not manifest["complete"]:
        return f"{MANIFEST} says that the preparation was not completed."
    files = [shard["file"] for counts in manifest["splits"].values() for shard in counts["shards"]]
    missing_files = [file for file in files if not (folder / file).is_file()]
    if not missing_files:
        return ""
    return f"{len(missing_files)} of {len(files)} shards are missing, the first is {missing_files[0]}."


def _parquet_source(name: str, shards: Mapping[str, Sequence[str]], splits: Sequence[str]) -> RowSource:
    """The rows straight from the files: nothing is unpacked into a cache, as training does."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    wanted_splits = {split: shards[split] for split in _choose_splits(splits, shards, name)}
    total = 0
    for file in (file for files in wanted_splits.values() for file in files):
        metadata = pq.ParquetFile(file)
        _check_columns(metadata.schema_arrow.names, file)
        total += metadata.metadata.num_rows

    def rows_of(files: Sequence[str]) -> Iterator[dict[str, Any]]:
        for file in files:
            try:
                for batch in pq.ParquetFile(file).iter_batches(batch_size=_BATCH):
                    yield from batch.to_pylist()
            except (ArrowException, OSError) as error:
                # Its ends could be read.
                raise ValueError(
                    f"Expected a whole parquet file, got {file!r} ({error}). Download or write it again."
                ) from error

    return RowSource(
        name, lambda: _image_rows((split, rows_of(files)) for split, files in wanted_splits.items()), total
    )


def _datasets_source(name: str, splits: Sequence[str]) -> RowSource:
    from datasets import Image, IterableDataset

    parts = dataset_parts(name, splits, streaming=True)
    wanted_splits = {split: parts[split] for split in _choose_splits(splits, parts, name)}
    for split, part in wanted_splits.items():
        if part.column_names is not None:
            _check_columns(part.column_names, f"{name}, split {split}")
        if part.features is not None and isinstance(part.features.get("image"), Image):
            wanted_splits[split] = part.cast_column("image", Image(decode=False))
    streams = any(isinstance(part, IterableDataset) for part in wanted_splits.values())
    total = None if streams else sum(part.num_rows for part in wanted_splits.values())
    return RowSource(name, lambda: _image_rows(wanted_splits.items()), total)


def _image_rows(parts: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> Iterator[ImageRow]:
    for split, rows in parts:
        for number, columns in enumerate(rows):
            image = columns.get("image")
            values = {name: value for name, value in columns.items() if name != "image"}
            stored = image if isinstance(image, Mapping) else None
            yield ImageRow(split, number, values, stored, expects_image="image" in columns)


def _choose_splits(names: Sequence[str], splits: Iterable[str], name: str) -> list[str]:
    """The splits to go through: those that are named, or all."""
    known_splits = in_usual_order(splits)
    if not known_splits:
        raise ValueError(f"Expected at least one row in {name!r}, got none. Check the path.")
    for split in names:
        check_split_exists(split, known_splits, name, "Choose one of the dataset's own splits.")
    return known_splits if not names or ALL in names else list(names)


def _check_columns(columns: Sequence[str], name: str) -> None:
    if "boxes" not in columns:
        raise ValueError(
            f"Expected the columns prompt, image, boxes, labels, width and height in {name}, got "
            f"{', '.join(columns)}. Bring it to these columns with `grounding-rewards prepare`."
        )
