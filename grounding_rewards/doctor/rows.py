"""Read the rows of any dataset one at a time, without checking or correcting them.

Training loads its images with `grounding_rewards.prepare.load`, which refuses faulty rows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.columns import patient_key, stated_name
from grounding_rewards.common.text_files import json_lines
from grounding_rewards.data.checks import is_size
from grounding_rewards.data.splits import (
    TRAIN,
    choose_splits,
    patient_column,
    patient_in_name,
    patients_in_names,
    splits_of_rows,
)
from grounding_rewards.images.decoding import has_shape, image_path
from grounding_rewards.prepare.load import dataset_parts, parquet_shards
from grounding_rewards.prepare.manifest import why_unfinished
from grounding_rewards.sources.jsonl import ANNOTATIONS, image_row, word_faults

#: The name of the drawing that holds the regions to ignore.
IGNORED = "ignore_boxes"

# Names of columns with the study, in lower case without marks.
_STUDY_COLUMNS = {"study", "studyid", "studyinstanceuid", "exam", "examid", "accession", "accessionnumber"}
#: A long number as a spreadsheet writes it, such as 1.2E+15.
ROUNDED = re.compile(r"\d([.,]\d+)?[eE]\+?\d+")


class Drawing(NamedTuple):
    """The boxes of one column, or of one reader.

    Attributes:
        name: empty for the column `boxes`; `reader 0` and so on for `reader_boxes`; :data:`IGNORED` for `ignore_boxes`.
        boxes: as the dataset has them.
        labels: as the dataset has them; empty without labels.
    """

    name: str
    boxes: Sequence[Any]
    labels: Sequence[Any] = ()

    @property
    def prefix(self) -> str:
        """The beginning of a message about these boxes."""
        return f"{self.name}: " if self.name else ""

    def label(self, index: int) -> Any:
        """The label of the box at an index; None if it has none."""
        return self.labels[index] if index < len(self.labels) else None


class ImageFacts(NamedTuple):
    """Facts about the image of a row; the last three are empty if its pixels were not decoded.

    Attributes:
        size: width and height from its header, upright; None if that cannot be read.
        fault: why the header cannot be read; else empty.
        digest: a hash of the file, 8 bytes; another encoding of the same image has another one.
        burned_in: whether a DICOM file says that names may be written into its pixels.
        problem: why the pixels cannot be decoded; else empty.
        blank: the greys of an image that has hardly more than one, in words; else empty.
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
        columns: its values by column, without the image.
        image: an encoded image as `datasets` stores it, `{"bytes": ..., "path": ...}`; None if the row has none.
        damage: why the row could not be read at all; else empty.
        expects_image: whether the dataset has images.
        outside: why the image that the row names may not be opened; else empty.
        facts: about its image; None without an image, or before it is read.
    """

    split: str
    number: int
    columns: dict[str, Any]
    image: Mapping[str, Any] | None = None
    damage: str = ""
    expects_image: bool = False
    outside: str = ""
    facts: ImageFacts | None = None

    @property
    def id(self) -> str:
        """The row's `id`, or its file where there is no such column; `-` if it has neither."""
        value = self.columns.get("id", self.columns.get("file"))
        return "-" if value is None else str(value)

    @property
    def file(self) -> str:
        """The name of the row's image file, as its table has it; empty without one."""
        value = self.columns.get("file", (self.image or {}).get("path"))
        return value if isinstance(value, str) else ""

    @property
    def patient_name(self) -> str | None:
        """The row's patient as it is written in `patient_id`, or in a column that looks like it; None without."""
        # A column without a value doesn't hide another one with the patient.
        values = {name: value for name, value in self.columns.items() if value is not None}
        return stated_name(values.get(patient_column(values) or "patient_id"))

    @property
    def key(self) -> tuple[str, int]:
        """Split and number, which no other row has."""
        return self.split, self.number

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Width and height from the header of the image, upright; None without an image that can be read."""
        return None if self.facts is None else self.facts.size

    @property
    def size(self) -> tuple[float, float] | None:
        """Width and height from the columns, or from the image if the row has neither column; else None."""
        width, height = self.columns.get("width"), self.columns.get("height")
        if is_size(width) and is_size(height):
            return width, height
        return self.image_size if width is None and height is None else None

    @property
    def trusted_size(self) -> tuple[float, float] | None:
        """As `size`, but None if the image has another shape."""
        if self.size is None or (self.image_size is not None and not has_shape(self.image_size, self.size)):
            return None
        return self.size

    @property
    def resized_size(self) -> tuple[float, float] | None:
        """The columns `resized_width` and `resized_height`; None if they are no size."""
        size = self.columns.get("resized_width"), self.columns.get("resized_height")
        return size if all(map(is_size, size)) else None  # type: ignore[return-value]

    @property
    def readers(self) -> tuple[Drawing, ...]:
        """The boxes of each reader; empty without the column `reader_boxes`."""
        box_lists = _as_list(self.columns.get("reader_boxes"))
        label_lists = _as_list(self.columns.get("reader_labels"))
        if len(label_lists) != len(box_lists):
            # Nobody knows whose labels these are; a check says so.
            label_lists = [()] * len(box_lists)
        drawings = []
        for number, (boxes, labels) in enumerate(zip(box_lists, label_lists, strict=True)):
            drawings.append(Drawing(f"reader {number}", _as_list(boxes), _as_list(labels)))
        return tuple(drawings)

    @property
    def answers(self) -> tuple[Drawing, ...]:
        """The drawings of which a right answer equals one: those of the readers, or else `boxes`."""
        return self.readers or (self._boxes_column,)

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """All boxes of the row: `boxes`, those of each reader, and regions that are ignored."""
        return (self._boxes_column, *self.readers, Drawing(IGNORED, _as_list(self.columns.get("ignore_boxes"))))

    @property
    def _boxes_column(self) -> Drawing:
        """The boxes and labels of the columns of these names."""
        return Drawing("", _as_list(self.columns.get("boxes")), _as_list(self.columns.get("labels")))

    @property
    def prompt(self) -> str | None:
        """The text of all messages of the prompt; None without a prompt, for which training writes one."""
        value = self.columns.get("prompt")
        return None if value is None else " ".join(texts(value)).strip()


def _as_list(value: Any) -> Sequence[Any]:
    """The value if it is a list, or an empty tuple: checks say what is no list."""
    return value if isinstance(value, list | tuple) else ()


class Owner(NamedTuple):
    """Whose an image is: the check that compares splits by it, a key for all spellings, patient or study in words."""

    check: str
    key: str
    words: str


@dataclass(frozen=True)
class RowSource:
    """Where rows come from.

    Attributes:
        name: as the user typed it.
        open: returns a new iterator over the rows, split after split.
        total: the number of rows; None if that is not known beforehand.
        unfinished: why a prepared folder is not finished; else empty.
        draw_note: how training draws patients into splits, if the dataset holds none out; else empty.
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
        splits: only these; empty for all.
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
    unfinished = why_unfinished(path)
    if unfinished and not parquet_shards(path):
        # There is nothing to read yet.
        return RowSource(dataset, lambda: iter(()), 0, unfinished)
    return replace(_datasets_source(dataset, splits), unfinished=unfinished)


def owners(rows: Sequence[ImageRow]) -> list[Owner | None]:
    """The patient, or the study, that each row's image is of; None where it is not known.

    It is what a column or the file's own name states. For the other files it is a guess from all their names together
    (:func:`grounding_rewards.data.splits.patients_in_names`).

    Example:
        >>> rows = [ImageRow("train", 0, {"patient_id": "P-012"}), ImageRow("test", 0, {"file": "pat12/1.png"})]
        >>> rows += [ImageRow("train", n, {"file": f"scan-{n // 2:05}{'ab'[n % 2]}.png"}) for n in range(60)]
        >>> for owner in owners(rows)[:3]:
        ...     print(owner.check, "|", owner.key, "|", owner.words)
        patient-leak | p 12 | patient P-012
        patient-leak | 12 | patient 12, by the name of the file,
        patient-leak | scan-00000 | patient scan-00000, as the names of files suggest,
    """
    stated_owners = [_stated_owner(row) for row in rows]
    unowned_files = [row.file for row, owner in zip(rows, stated_owners, strict=True) if owner is None]
    patients = patients_in_names(unowned_files)
    all_owners = []
    for row, owner in zip(rows, stated_owners, strict=True):
        if owner is None and row.file in patients:
            patient = patients[row.file]
            owner = Owner("patient-leak", patient, f"patient {patient}, as the names of files suggest,")
        all_owners.append(owner)
    return all_owners


def _stated_owner(row: ImageRow) -> Owner | None:
    """The patient of a row's image, or its study, as a column or the name of its file states it."""
    if row.patient_name is not None:
        # P-012 and p12 are one patient with the key "p 12": the words and numbers of the name in small letters, without
        # marks and leading zeros. A name of marks alone has none of these, and is its own key.
        name = patient_key(row.patient_name)
        words_and_numbers = [part.lstrip("0") for part in re.findall(r"[^\W\d_]+|\d+", name)]
        return Owner("patient-leak", " ".join(words_and_numbers) or name, f"patient {row.patient_name}")
    patient = patient_in_name(row.file)
    if patient is not None:
        return Owner("patient-leak", patient, f"patient {patient}, by the name of the file,")
    for column, value in row.columns.items():
        if is_study(column) and value not in (None, ""):
            return Owner("study-leak", str(value), f"{column} {value}")
    return None


# Cached, as it is called for every row.
@lru_cache(maxsize=1024)
def is_study(column: str) -> bool:
    """Whether a column has the name of a study, whose images are of one patient.

    >>> [is_study(column) for column in ("StudyInstanceUID", "accession_number", "study_type")]
    [True, True, False]
    """
    return re.sub(r"[\W_]", "", column).casefold() in _STUDY_COLUMNS


def texts(content: Any) -> Iterator[str]:
    """Yield the texts in a prompt, which may be a text, a message or a list of these."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        # A message has `content`, or `value` as in ShareGPT; a part of its content has `text`.
        yield from texts(content.get("content") or content.get("text") or content.get("value"))
    elif isinstance(content, list | tuple):
        for part in content:
            yield from texts(part)


def _jsonl_source(root: Path, splits: Sequence[str], allow_outside: bool) -> RowSource:
    """The rows of a folder with `annotations.jsonl`."""
    # For each line its columns, and why it cannot be read; an empty text if it can.
    lines: list[tuple[dict[str, Any], str]] = []
    for line_number, content, object_problem in json_lines(root / ANNOTATIONS):
        columns = {} if object_problem else image_row(content)
        # Columns that have to be words and are not. Faults of boxes, sizes, images and prompts are left to the checks.
        faults = [f"expected {expected}, got {value!r:.80}" for expected, value in word_faults(columns)]
        lines.append((columns, f"line {line_number} is {object_problem}" if object_problem else "; ".join(faults)))
    assigned = splits_of_rows([columns for columns, _ in lines], str(root))
    # If training draws the splits itself, the dataset has none yet: all images are examined as one, called `train`.
    line_splits = [TRAIN] * len(assigned.splits) if assigned.drawn else assigned.splits
    wanted_splits = choose_splits(splits, line_splits, str(root))

    def rows() -> Iterator[ImageRow]:
        """Yield the rows of the wanted splits, each with its image's path, or why that may not be opened."""
        # The file may mix splits; as with shards, one split is finished before the next.
        for split in wanted_splits:
            lines_of_split = [line for line, line_split in zip(lines, line_splits, strict=True) if line_split == split]
            for number, (columns, damage) in enumerate(lines_of_split):
                image, outside = None, ""
                if isinstance(columns.get("file"), str):
                    try:
                        path = image_path(root, columns["file"], allow_outside=allow_outside)
                        image = {"bytes": None, "path": str(path)}
                    except ValueError as error:
                        outside = str(error)
                yield ImageRow(split, number, columns, image, damage, expects_image=True, outside=outside)

    draw_note = assigned.note if assigned.drawn else ""
    return RowSource(str(root), rows, sum(map(line_splits.count, wanted_splits)), draw_note=draw_note)


def _datasets_source(name: str, splits: Sequence[str]) -> RowSource:
    """The rows of parquet files, of a saved dataset, of drawn images, or of a dataset on the hub."""
    from datasets import Image, IterableDataset

    all_parts = dataset_parts(name, splits, streaming=True)
    parts = {split: all_parts[split] for split in choose_splits(splits, all_parts, name)}
    for split, part in parts.items():
        # A dataset that is streamed from the hub may know neither its columns nor their types beforehand.
        if part.column_names is not None and "boxes" not in part.column_names:
            raise ValueError(
                f"Expected the columns prompt, image, boxes, labels, width and height in {name}, split {split}, got "
                f"{', '.join(part.column_names)}. Bring it to these columns with `grounding-rewards prepare`."
            )
        if part.features is not None and isinstance(part.features.get("image"), Image):
            # Stored images are passed on as bytes or paths: checks decode them, and report those that fail.
            parts[split] = part.cast_column("image", Image(decode=False))
    is_streamed = any(isinstance(part, IterableDataset) for part in parts.values())
    total = None if is_streamed else sum(part.num_rows for part in parts.values())
    return RowSource(name, partial(_image_rows, parts), total)


def _image_rows(parts: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[ImageRow]:
    """Yield the rows of a dataset's splits, each a mapping of all its columns, one split after the other."""
    for split, rows in parts.items():
        for number, row in enumerate(rows):
            columns = {name: value for name, value in row.items() if name != "image"}
            image = row.get("image")
            # What is not stored as `datasets` does it cannot be opened, and counts as missing.
            stored_image = image if isinstance(image, Mapping) else None
            yield ImageRow(split, number, columns, stored_image, expects_image="image" in row)
