"""Logs of completions in blocks of rows, for files that are larger than the memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.data.completions import TEXT_COLUMNS

# Of text: some hundred short completions, which are scored at once; of rows where there is no text.
_BYTES, _ROWS = 1 << 18, 1000

# In a CSV file these hold JSON.
_JSON_COLUMNS = ("boxes", "labels", "box_format", "ignore_boxes", "reader_boxes", "reader_labels")

_decode = json.JSONDecoder().raw_decode


class Block(NamedTuple):
    """Rows that stand one after the other in a log: not yet decoded, so that another process can do that.

    Attributes:
        path: of the log.
        first: number of the first line, or of the first row where a row is no line, from 1.
        content: lines of JSON, rows, or a ``pyarrow.RecordBatch``.
    """

    path: str
    first: int
    content: Any

    def place(self, number: int) -> str:
        """Where a row stands, for a message."""
        return f"{'line' if isinstance(self.content, bytes) else 'row'} {number} of {self.path!r}"

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        """The number of each row, and the row.

        Raises:
            ValueError: a line is no JSON object.
        """
        if isinstance(self.content, bytes):
            return list(self._decoded_lines(self.content))
        rows = self.content if isinstance(self.content, list) else self.content.to_pylist()
        for number, row in enumerate(rows, self.first):
            self._check(number, row)
        return list(enumerate(rows, self.first))

    def _decoded_lines(self, content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        # Other line ends, such as U+2028, may stand in a string.
        for number, line in enumerate(content.split(b"\n"), self.first):
            stripped = line.strip()
            if not stripped:
                continue
            try:
                text = stripped.decode("utf-8-sig")
                row, end = _decode(text)
                if end != len(text):
                    raise ValueError(f"there is more behind character {end}")
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"Expected JSON in {self.place(number)}, got {stripped!r:.80} ({error}). Repair or remove it."
                ) from None
            self._check(number, row)
            yield number, row

    def _check(self, number: int, row: Any) -> None:
        if not isinstance(row, dict):
            raise ValueError(
                f"Expected an object with columns in {self.place(number)}, got {row!r:.80}. "
                'Write every row as {"completion": "...", "boxes": []}.'
            )


def read_blocks(path: Path) -> Iterator[Block]:
    """Read a log block by block.

    A .json file is one value and is read as a whole; of the others one block at a time is in memory.

    Args:
        path: a file that ends in .jsonl, .csv, .jsonl.gz, .csv.gz, .parquet or .json (a list of rows).

    Raises:
        ValueError: the file is missing, of another kind or broken.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "log.jsonl")
        ...     _ = path.write_text('{"completion": "[]", "boxes": []}')
        ...     [block.rows() for block in read_blocks(path)]
        [[(1, {'completion': '[]', 'boxes': []})]]
    """
    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if kind not in _READERS:
        raise ValueError(
            f"Expected a file that ends in {', '.join(_READERS)}, got {str(path)!r}. Convert it, or name it so."
        )
    if not path.is_file():
        raise ValueError(f"Expected a file with completions, got {str(path)!r}. Check the path.")
    try:
        for first, content in _READERS[kind](path):
            yield Block(str(path), first, content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"Expected a whole .gz file in {str(path)!r}, got {error}. Compress it again.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Expected text in UTF-8 in {str(path)!r}, got {error}. Save it again as UTF-8.") from None


def find_text_column(rows: Iterable[dict[str, Any]], given: str | None = None) -> str:
    """The column with the completions: the given one, or the first of ``TEXT_COLUMNS`` that a row has.

    Raises:
        ValueError: no row has it, or there is none.

    Example:
        >>> find_text_column([{"id": "a", "response": "[]"}])
        'response'
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        raise ValueError("Expected rows with completions in the log, got none. Check that it is the right file.")
    wanted = TEXT_COLUMNS if given is None else (given,)
    for name in wanted:
        if name in columns:
            return name
    raise ValueError(
        f"Expected a column {' or '.join(wanted)} with the completions, got {', '.join(columns)}. "
        "Name yours with --text-column."
    )


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _read_jsonl(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 1
    with _open(path) as file:
        while lines := file.readlines(_BYTES):
            yield number, b"".join(lines).removesuffix(b"\n")
            number += len(lines)


def _read_csv(path: Path) -> Iterator[tuple[int, list[Any]]]:
    # One completion may be longer than the reader allows by default.
    before = csv.field_size_limit(2**31 - 1)
    try:
        with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="more")
            rows = ({name: value for name, value in row.items() if value not in ("", None)} for row in reader)
            for number, block in _numbered_blocks(rows):
                yield number, [_without_json(path, k, row) for k, row in enumerate(block, number)]
    finally:
        csv.field_size_limit(before)


def _without_json(path: Path, number: int, row: dict[str, Any]) -> dict[str, Any]:
    for column in _JSON_COLUMNS:
        if row.get(column, "").startswith(("[", "{")):
            try:
                row[column] = json.loads(row[column])
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"Expected JSON in row {number} of {str(path)!r}, column {column}, got {row[column]!r:.80} "
                    f"({error}). Repair or remove it."
                ) from None
    return row


def _read_json(path: Path) -> Iterator[tuple[int, list[Any]]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"Expected JSON in {str(path)!r}, got a file that is none ({error}). Repair it.") from None
    if not isinstance(content, list):
        raise ValueError(
            f"Expected a list of rows in {str(path)!r}, got {content!r:.80}. Write one row a line as .jsonl."
        )
    yield from _numbered_blocks(content)


def _read_parquet(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError(
            f"Expected pyarrow to read {str(path)!r}, got none. Install it with `pip install pyarrow`."
        ) from None
    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(
            f"Expected a whole .parquet file in {str(path)!r}, got one that is none ({error}). Write it again."
        ) from None
    # The films that may stand beside the completions stay on the disk.
    columns = [name for name in file.schema_arrow.names if name not in ("image", "images")]
    number = 1
    for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
        yield number, batch
        number += batch.num_rows


def _numbered_blocks(rows: Iterable[Any]) -> Iterator[tuple[int, list[Any]]]:
    left, number = iter(rows), 1
    while block := list(islice(left, _ROWS)):
        yield number, block
        number += len(block)


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Any]]]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".jsonl.gz": _read_jsonl,
    ".csv.gz": _read_csv,
    ".parquet": _read_parquet,
    ".json": _read_json,
}
