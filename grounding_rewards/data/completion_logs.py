"""Logs of completions: one row for each text that a model wrote, with whatever else the file says of the film.

A log is read in blocks of rows, so that a file may be larger than the memory; :func:`read_completions` puts the blocks
of whole files together.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.columns import SIZE_COLUMNS, with_ground_truth
from grounding_rewards.data.texts import parse_json

#: Columns that may hold the completion, the likeliest first: TRL's `completion`, then those of other tools.
TEXT_COLUMNS = ("completion", "text", "response", "output", "answer", "prediction", "model_output", "generated_text")

# Size of a block: of text, some hundred short completions; of rows that are no text.
_BYTES, _ROWS = 1 << 18, 1000

# In a CSV file these hold JSON.
_JSON_COLUMNS = ("boxes", "labels", "box_format", "ignore_boxes", "reader_boxes", "reader_labels")

# How many rows an error names.
_NAMED = 3


class Log(NamedTuple):
    """The n rows of logs.

    Attributes:
        completions: texts or message lists.
        rows: that they come from.
        places: where each row is, for a message: its line or number, and its file.
    """

    completions: list[Any]
    rows: list[dict[str, Any]]
    places: list[str]


class Block(NamedTuple):
    """Consecutive rows of a log, not yet decoded, so that another process can do that.

    Attributes:
        path: of the log.
        first: number of the first line, or of the first row where a row is no line, from 1.
        content: lines of JSON, rows, or a ``pyarrow.RecordBatch``.
    """

    path: str
    first: int
    content: Any

    def place(self, number: int) -> str:
        """Where a row is, for a message."""
        return f"{'line' if isinstance(self.content, bytes) else 'row'} {number} of {self.path!r}"

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        """The number of each row, and the row.

        Raises:
            ValueError: a line is not JSON, or a row is no object.
        """
        if isinstance(self.content, bytes):
            numbered = list(self._decoded_lines(self.content))
        else:
            rows = self.content if isinstance(self.content, list) else self.content.to_pylist()
            numbered = list(enumerate(rows, self.first))
        for number, row in numbered:
            if not isinstance(row, dict):
                raise ValueError(
                    f"Expected an object with columns in {self.place(number)}, got {row!r:.80}. "
                    'Write every row as {"completion": "...", "boxes": []}.'
                )
        return numbered

    def _decoded_lines(self, content: bytes) -> Iterator[tuple[int, Any]]:
        # Split at b"\n" alone: other line ends, such as U+2028, may be part of a string.
        for number, line in enumerate(content.split(b"\n"), self.first):
            if stripped := line.strip():
                place = self.place(number)
                try:
                    text = stripped.decode("utf-8-sig")
                except UnicodeDecodeError as error:
                    raise _not_utf8(place, error) from None
                yield number, _from_json(text, place)


def read_blocks(path: Path) -> Iterator[Block]:
    """Read a log block by block.

    A .json file is one value and is read as a whole; of the others one block at a time is in memory.

    Args:
        path: a file that ends in .jsonl, .json (a list of rows, alone or under a key), .csv, one of these and .gz, or
            .parquet.

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
    if _kind(path) not in _READERS:
        raise ValueError(
            f"Expected a file that ends in {', '.join(_READERS)}, got {str(path)!r}. Convert it, or name it so."
        )
    if not path.is_file():
        raise ValueError(f"Expected a file with completions, got {str(path)!r}. Check the path.")
    try:
        for first, content in _READERS[_kind(path)](path):
            yield Block(str(path), first, content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"Expected a whole .gz file in {str(path)!r}, got {error}. Compress it again.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise _not_utf8(repr(str(path)), error) from None


def read_completions(paths: Sequence[Path], *, text_column: str | None = None) -> Log:
    """Read whole logs of completions.

    Args:
        paths: files as :func:`read_blocks` takes them, such as TRL writes with `log_completions`; or folders of them.
        text_column: the column with the completions; without it the first of :data:`TEXT_COLUMNS`.

    Returns:
        The rows of all files. One without `boxes` gets the fields of its column `ground_truth` where that has them.

    Raises:
        ValueError: a file is missing, is of another kind or broken, or rows have no text; they are named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "log.jsonl")
        ...     _ = path.write_text('{"response": "[]", "boxes": []}')
        ...     log = read_completions([path])
        >>> log.completions, log.rows
        (['[]'], [{'response': '[]', 'boxes': []}])
    """
    blocks = (block for path in _files(paths) for block in read_blocks(path))
    placed = [(block.place(number), row) for block in blocks for number, row in block.rows()]
    column = find_text_column([row for _, row in placed], text_column)
    check_completions(placed, column)
    return Log(
        [row[column] for _, row in placed], [_unpacked(row) for _, row in placed], [place for place, _ in placed]
    )


def check_completions(placed: Iterable[tuple[str, Mapping[str, Any]]], column: str) -> None:
    """Refuse rows in which the column has neither a text nor messages.

    Args:
        placed: where each row is, and the row.
        column: with the completions.

    Raises:
        ValueError: the first such rows are named, and all are counted.

    Example:
        >>> check_completions([("line 1 of 'log.jsonl'", {"text": ""}), ("line 2 of 'log.jsonl'", {})], "text")
        Traceback (most recent call last):
        ...
        ValueError: Expected a completion in column text of every row, got none or no text in 1 row: line 2 of \
'log.jsonl'. Remove it, or write an empty text where the model wrote nothing.
    """
    without = [place for place, row in placed if not isinstance(row.get(column), str | list | Mapping)]
    if without:
        one = len(without) == 1
        raise ValueError(
            f"Expected a completion in column {column} of every row, got none or no text in {len(without)} "
            f"{'row' if one else 'rows'}: {first_of(without)}. Remove {'it' if one else 'them'}, or write an empty "
            "text where the model wrote nothing."
        )


def with_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the sizes that a CSV file has as texts.

    Example:
        >>> with_numbers({"width": "640", "height": "tall"})
        {'width': 640.0, 'height': 'tall'}
    """
    texts = {name: row[name] for name in SIZE_COLUMNS if isinstance(row.get(name), str)}
    return {**row, **{name: _number(text) for name, text in texts.items()}} if texts else row


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def first_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are.

    Example:
        >>> first_of(["a", "b"]), first_of(["a", "b", "c", "d", "e"])
        ('a, b', 'a, b, c and 2 more')
    """
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {left} more" if left > 0 else "")


def find_text_column(rows: Sequence[Mapping[str, Any]], given: str | None = None) -> str:
    """The column with the completions: the given one, or the first of ``TEXT_COLUMNS`` that a row has.

    Raises:
        ValueError: no row has it, or there is none.

    Example:
        >>> find_text_column([{"id": "a", "response": "[]"}])
        'response'
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    if not columns:
        raise ValueError("Expected rows with completions in the log, got none. Check that it is the right file.")
    wanted = TEXT_COLUMNS if given is None else (given,)
    # A table may have a column that is empty throughout.
    for names in (dict.fromkeys(name for row in rows for name, value in row.items() if value), columns):
        for name in wanted:
            if name in names:
                return name
    raise ValueError(
        f"Expected a column {' or '.join(wanted)} with the completions, got {', '.join(columns)}. "
        "Name yours with --text-column."
    )


def _unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the fields of its `ground_truth`; a column of that name with other content stays as it is."""
    if row.get("ground_truth") is None or row.get("boxes") is not None:
        return row
    try:
        fields = with_ground_truth({"ground_truth": [row["ground_truth"]]}, 1)
    except (ValueError, RecursionError):
        return row
    return {**row, **{name: values[0] for name, values in fields.items()}}


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
        elif found := sorted(inner for inner in path.iterdir() if _kind(inner) in _READERS):
            yield from found
        else:
            raise ValueError(
                f"Expected files that end in {', '.join(_READERS)} in the folder {str(path)!r}, got none. "
                "Check the path."
            )


def _kind(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _read_jsonl(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 1
    with _open(path) as file:
        while lines := file.readlines(_BYTES):
            yield number, b"".join(lines).removesuffix(b"\n")
            number += len(lines)


def _read_csv(path: Path) -> Iterator[tuple[int, list[Any]]]:
    # A completion may be longer than the default limit.
    before = csv.field_size_limit(2**31 - 1)
    try:
        with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="more")
            rows = (
                {name: cell for name, cell in row.items() if cell or (cell == "" and name in TEXT_COLUMNS)}
                for row in reader
            )
            for number, block in _numbered_blocks(rows):
                for k, row in enumerate(block, number):
                    for column in _JSON_COLUMNS:
                        if row.get(column, "").startswith(("[", "{")):
                            row[column] = _from_json(row[column], f"row {k} of {str(path)!r}, column {column}")
                yield number, block
    finally:
        csv.field_size_limit(before)


def _read_json(path: Path) -> Iterator[tuple[int, list[Any]]]:
    with _open(path) as file:
        content = _from_json(file.read().decode("utf-8-sig"), repr(str(path)))
    lists = [content] if isinstance(content, list) else []
    if isinstance(content, dict):
        lists = [value for value in content.values() if isinstance(value, list)]
    if len(lists) != 1:
        raise ValueError(
            f"Expected one list of rows in {str(path)!r}, got {len(lists)}. Write one row a line as .jsonl."
        )
    yield from _numbered_blocks(lists[0])


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
            f"Expected a whole .parquet file in {str(path)!r}, got a broken one ({error}). Write it again."
        ) from None
    # TRL may store the films beside the completions; they are not read.
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


def _from_json(text: str, place: str) -> Any:
    try:
        return parse_json(text, any_text=True)
    except ValueError as error:
        raise ValueError(f"Expected JSON in {place}, got {text!r:.80} ({error}). Repair or remove it.") from None


def _not_utf8(place: str, error: Exception) -> ValueError:
    return ValueError(f"Expected text in UTF-8 in {place}, got {error}. Save it again as UTF-8.")


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Any]]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".jsonl.gz": _read_jsonl,
    ".json.gz": _read_json,
    ".csv.gz": _read_csv,
}
