"""Logs of completions: one row for each text that a model wrote, with whatever else the file says of the image.

A log is read in blocks of rows, so that a file may be larger than the memory; :func:`read_completions` puts the blocks
of whole files together. Whoever wrote it, a row that comes out has the columns of a dataset, see
:mod:`grounding_rewards.logs.tool_rows`. The folder of a run is a log too, see :func:`log_files`.
"""

from __future__ import annotations

import ast
import codecs
import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS
from grounding_rewards.common.text_files import check_columns, parse_json
from grounding_rewards.data.checks import row_problems
from grounding_rewards.logs.job_shares import Share
from grounding_rewards.logs.tool_rows import PACKED, STEPS, image_rows
from grounding_rewards.parsing import BoxFormat, box_format_from_option, get_box_format, parse_boxes
from grounding_rewards.rewards.completions import answer_defect

#: Columns that may hold the completion: TRL's `completion`, then those of other tools.
TEXT_COLUMNS = (
    *("completion", "text", "response", "output", "answer", "prediction", "predict", "model_output", "model_response"),
    *("model_answer", "generated_text", "generation"),
)
# Columns that hold the completion in some logs, and in others the reference or the prompt.
_UNSURE_TEXT_COLUMNS = ("answer", "text")
# Columns of prompts and references, which may hold boxes too.
_GIVEN_COLUMNS = (
    *("prompt", "prompts", "input", "inputs", "problem", "question", "query", "instruction", "messages", "system"),
    *("ground_truth", "gts", "gt", "solution", "target", "label", "labels", "reference", "reference_answer"),
)
# Four numbers within a bracket or tag.
_BOX_IN_TEXT = re.compile(r"[\[(<{]\D{0,24}(?:\d+(?:\.\d+)?\D{1,16}){3}\d")

# Size of a block: of text, some hundred short completions; of rows that are no text.
_BYTES, _ROWS = 1 << 18, 1000

# In a CSV file these hold JSON.
_JSON_COLUMNS = (*BOX_COLUMNS, "box_format")

# Of VLMEvalKit and people; pandas needs openpyxl for them.
_SPREADSHEETS = (".xlsx", ".xls")
# Longer texts in a column of images are the image itself.
_LONGEST_PATH = 4096

# How many rows an error names.
_NAMED = 3

_ONE_A_LINE = "A .jsonl file has one whole object a line: repair or remove the line; one list of rows is a .json file."


_LOG_THEM = (
    "Check the path; a training logs its completions with `--log_completions true`, and `grounding-rewards evaluate "
    "--samples 8` asks a model that is trained already."
)
# What every training leaves in its folder.
_OF_A_RUN = ("config.yaml", "log.jsonl", "versions.json")


class Log(NamedTuple):
    """The n rows of logs.

    Attributes:
        completions: texts or message lists.
        rows: that they come from.
        places: where each row is, for a message: its line or number, and its file.
        notes: what a person should know about the log, a sentence each.
    """

    completions: list[Any]
    rows: list[dict[str, Any]]
    places: list[str]
    notes: tuple[str, ...] = ()


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

    @property
    def length(self) -> int:
        """How many lines, or rows where a row is no line."""
        if isinstance(self.content, bytes):
            return self.content.count(b"\n") + 1
        return len(self.content)

    def cut(self, start: int, stop: int) -> Block:
        """The block from a line or row of it up to another one, counted from 0."""
        if isinstance(self.content, bytes):
            content: Any = b"\n".join(self.content.split(b"\n")[start:stop])
        else:
            content = self.content[start:stop]
        return self._replace(first=self.first + start, content=content)

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        """The number of each row, and the row as :func:`image_rows` makes it; rows of one line have its number.

        Raises:
            ValueError: a line is not JSON, or a row is no object, or the columns of a table differ in length.
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
        return [(number, image_row) for number, row in numbered for image_row in image_rows(row, self.place(number))]

    def _decoded_lines(self, content: bytes) -> Iterator[tuple[int, Any]]:
        # Split at b"\n" alone: other line ends, such as U+2028, may be part of a string.
        for number, line in enumerate(content.split(b"\n"), self.first):
            if stripped := line.strip():
                place = self.place(number)
                try:
                    text = stripped.removeprefix(codecs.BOM_UTF8).decode()
                except UnicodeDecodeError as error:
                    raise _not_utf8(place, error) from None
                yield number, _from_json(text, place, _ONE_A_LINE)


def read_blocks(path: Path) -> Iterator[Block]:
    """Read a log block by block.

    A .json file is one value and is read as a whole; of the others one block at a time is in memory.

    Args:
        path: a file that ends in .jsonl, .json (a list of rows, alone or under a key), .csv or .tsv, also with .gz
            behind it, in .parquet, or in .eval of inspect_ai.

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
    if path.suffix in _SPREADSHEETS:
        table = path.with_suffix(".csv").name
        raise ValueError(
            f"Expected a table in .csv or .tsv, got the spreadsheet {str(path)!r}. Convert it: "
            f"python -c \"import pandas; pandas.read_excel('{path.name}').to_csv('{table}', index=False)\""
        )
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


@dataclass(frozen=True)
class LogBlocks:
    """The blocks of logs or of a share of their rows, which may be gone through several times, by any process.

    Rows are shared out as neighbours, whatever the blocks. For a share all rows before it are read too, to count them,
    and none is decoded.

    Attributes:
        paths: files that :func:`read_blocks` takes.
        share: whose rows; None for all.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "log.jsonl")
        ...     _ = path.write_text("[1]\\n[2]\\n[3]\\n")
        ...     [(block.first, block.content) for block in LogBlocks((path,), Share(2, 2))]
        [(2, b'[2]\\n[3]')]
    """

    paths: tuple[Path, ...]
    share: Share | None = None

    def __iter__(self) -> Iterator[Block]:
        blocks = chain.from_iterable(map(read_blocks, self.paths))
        return blocks if self.share is None else _within(blocks, self.share.of(sum(map(_count, self.paths))))


def _count(path: Path) -> int:
    if path.suffix == ".parquet" and path.is_file():
        return int(_open_parquet(path).metadata.num_rows)
    return sum(block.length for block in read_blocks(path))


def _within(blocks: Iterable[Block], rows: range) -> Iterator[Block]:
    """What of the blocks is in a range of all their rows, counted from 0."""
    passed = 0
    for block in blocks:
        if passed >= rows.stop:
            return
        start, stop = max(rows.start - passed, 0), min(rows.stop - passed, block.length)
        passed += block.length
        if start < stop:
            yield block.cut(start, stop)


def read_completions(paths: Sequence[str | Path | Mapping[str, Any]], *, text_column: str | None = None) -> Log:
    """Read whole logs of completions.

    Args:
        paths: files as :func:`read_blocks` takes them, such as TRL writes with `log_completions`; or folders, as
            :func:`log_files` takes them; or rows that are in memory already.
        text_column: the column with the completions, as for :func:`find_text_column`.

    Returns:
        The rows of all files, as :func:`image_rows` makes them, with sizes as numbers. A table that repeats the one
        before it is left out: TRL and ms-swift write it again at a step that generates nothing new, and ms-swift at
        the end of a training. A table is a file, or a line where a line holds several rows.

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
    placed: list[tuple[str, dict[str, Any]]] = []
    before: list[dict[str, Any]] = []
    repeats = 0
    rows_in_memory = [dict(row) for row in paths if isinstance(row, Mapping)]
    files = [path for path in paths if not isinstance(path, Mapping)]
    logs = [[Block("the rows", 1, rows_in_memory)]] if rows_in_memory else map(read_blocks, log_files(files))
    for table in chain.from_iterable(map(_tables, logs)):
        answered = [{name: value for name, value in row.items() if name not in STEPS} for _, row in table]
        if answered == before and any(name in row for _, row in table for name in STEPS):
            repeats += 1
            continue
        placed += table
        before = answered
    column = find_text_column([row for _, row in placed], text_column)
    check_completions(placed, column)
    notes = [] if text_column == column else list(text_column_notes(column))
    if repeats:
        notes.append(
            f"Tables of the log that repeat the one before them are left out: {repeats}. A trainer writes one again at "
            "a step that generates nothing new."
        )
    rows = [with_numbers(row) for _, row in placed]
    return Log([row[column] for row in rows], rows, [place for place, _ in placed], tuple(notes))


def _tables(blocks: Iterable[Block]) -> list[list[tuple[str, dict[str, Any]]]]:
    """The tables of a file, each row with its place; rows of one line have the same."""
    rows = [(block.place(number), row) for block in blocks for number, row in block.rows()]
    lines = [list(line) for _, line in groupby(rows, key=itemgetter(0))]
    return lines if any(len(line) > 1 for line in lines) else [rows]


def with_answer_references(
    log: Log,
    box_format: str | Mapping[str, Any] | BoxFormat | None = None,
    sizes: Mapping[str, float | None] | None = None,
) -> Log:
    """The log with `boxes`, where the only reference of its rows is the right answer as a text.

    Args:
        log: rows of it without `boxes` have the right answer in `gts`, `solution`, `ground_truth` or `target`, in the
            box format of the completions. It stays as it is unless boxes, or none, can be read from every answer.
        box_format: of the completions; None takes it from the column.
        sizes: sizes of images that have none, by column.

    Example:
        >>> row = {"gts": '[{"bbox_2d": [0, 0, 500, 400], "label": "mass"}]', "width": 100, "height": 50}
        >>> read = with_answer_references(Log(["[]"], [row], ["line 1"]), "qwen3-vl")
        >>> read.rows[0]["boxes"], read.rows[0]["labels"]
        ([[0.0, 0.0, 50.0, 20.0]], ['mass'])
    """
    rows, columns = [], set()
    for row in log.rows:
        if any(row.get(name) is not None for name in ("boxes", "reader_boxes")):
            rows.append(row)
            continue
        column = next((name for name in PACKED if row.get(name) is not None), None)
        stated_format = row.get("box_format") if box_format is None else box_format
        if column is None or stated_format is None:
            return log
        known: dict[str, Any] = {name: row.get(name, (sizes or {}).get(name)) for name in SIZE_COLUMNS}
        answer = row[column] if isinstance(row[column], str) else json.dumps(row[column], default=str)
        try:
            parsed = parse_boxes(answer, get_box_format(box_format_from_option(stated_format)), **known)
        except ValueError:
            # The format needs sizes that are not known.
            return log
        if parsed.status not in ("boxes", "empty") or parsed.rejected:
            return log
        labels = list(parsed.labels)
        rows.append({**row, "boxes": parsed.boxes.tolist(), **({"labels": labels} if all(labels) else {})})
        columns.add(column)
    if not columns or not any(row.get("boxes") for row in rows):
        return log
    note = (
        f"Reference boxes are read from the answers in {' and '.join(sorted(columns))}, in the box format of the log."
    )
    return log._replace(rows=rows, notes=(*log.notes, note))


def check_completions(placed: Iterable[tuple[str, Mapping[str, Any]]], column: str) -> None:
    """Refuse rows in which the column has neither a text nor messages, which no reward could read.

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
    without, strange, defect = [], [], ""
    for place, row in placed:
        completion = row.get(column)
        if isinstance(completion, str):
            continue
        if not _is_text(completion):
            without.append(place)
        elif found := answer_defect(completion):
            strange.append(place)
            defect = defect or found
    if without:
        one = len(without) == 1
        raise ValueError(
            f"Expected a completion in column {column} of every row, got none or no text in {len(without)} "
            f"{'row' if one else 'rows'}: {first_of(without)}. Remove {'it' if one else 'them'}, or write an empty "
            "text where the model wrote nothing."
        )
    if strange:
        rows = "row" if len(strange) == 1 else "rows"
        raise ValueError(
            f"Expected a text or messages in column {column}, got {defect} in {len(strange)} {rows}: "
            f"{first_of(strange)}. Name the column with the text with --text-column, or write the text there."
        )


def step_of(row: Mapping[str, Any]) -> float | None:
    """The step of a training at which a row was logged; None where that is not known.

    Example:
        >>> step_of({"step": "12"}), step_of({})
        (12.0, None)
    """
    try:
        return float(row["step"])
    except (KeyError, TypeError, ValueError):
        return None


def with_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the sizes that a CSV file has as texts.

    Example:
        >>> with_numbers({"width": "640", "height": "tall"})
        {'width': 640.0, 'height': 'tall'}
    """
    numbers = {}
    for name in SIZE_COLUMNS:
        if isinstance(row.get(name), str):
            with contextlib.suppress(ValueError):
                numbers[name] = float(row[name])
    return {**row, **numbers} if numbers else row


def first_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are.

    Example:
        >>> first_of(["a", "b"]), first_of(["a", "b", "c", "d", "e"])
        ('a, b', 'a, b, c and 2 more')
    """
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {left} more" if left > 0 else "")


def find_text_column(rows: Sequence[Mapping[str, Any]], text_column: str | None = None) -> str:
    """The column with the completions: the named one, or the only column that can hold them.

    Args:
        rows: of a log.
        text_column: its name; without it exactly one of :data:`TEXT_COLUMNS` may hold text.

    Raises:
        ValueError: no row has it, there is none, or there are several: one of them may be the reference. All are named.

    Example:
        >>> find_text_column([{"id": "a", "response": "[]"}])
        'response'
        >>> find_text_column([{"id": "a", "answer": "[[1, 2, 3, 4]]", "prediction": "[]"}])
        Traceback (most recent call last):
        ValueError: Expected one column with what the model wrote, got answer and prediction. Name it with \
--text-column; another one may hold the reference.
    """
    columns = dict.fromkeys(name for row in rows for name in row)
    if not columns:
        raise ValueError("Expected rows with completions in the log, got none. Check that it is the right file.")
    if text_column is not None:
        if text_column not in columns:
            raise ValueError(
                f"Expected a column {text_column} with the completions, got {', '.join(columns)}. "
                "Name one of these with --text-column."
            )
        return text_column
    known = [name for name in TEXT_COLUMNS if name in columns]
    # A table may have a column that is empty throughout, or holds the number of something.
    candidates = [name for name in known if any(row.get(name) and _is_text(row[name]) for row in rows)]
    if len(candidates) == 1 and candidates[0] in _UNSURE_TEXT_COLUMNS:
        candidates += _columns_with_boxes(rows, columns)
    if len(candidates) > 1:
        first, *others = candidates
        if any(row.get(name) != row.get(first) for row in rows for name in others):
            raise ValueError(
                f"Expected one column with what the model wrote, got {' and '.join(candidates)}. Name it with "
                "--text-column; another one may hold the reference."
            )
    if candidates or known:
        return (candidates or known)[0]
    raise ValueError(
        f"Expected a column {' or '.join(TEXT_COLUMNS)} with the completions, got {', '.join(columns)}. "
        "Name yours with --text-column."
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str | list | Mapping)


def _columns_with_boxes(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> list[str]:
    """Columns of unknown names in which a text holds a box, as a completion may."""
    unknown = [name for name in columns if name not in {*TEXT_COLUMNS, *_GIVEN_COLUMNS, *BOX_COLUMNS}]
    return [
        name
        for name in unknown
        if any(isinstance(row.get(name), str) and _BOX_IN_TEXT.search(row[name]) for row in rows)
    ]


def text_column_notes(column: str) -> tuple[str, ...]:
    """A warning where the completions stand in a column that holds the reference in other tables.

    Example:
        >>> text_column_notes("completion"), len(text_column_notes("answer"))
        ((), 1)
    """
    if column != "answer":
        return ()
    return (
        "Completions are read from the column `answer`. If it holds the reference, name the other one with "
        "--text-column.",
    )


def log_files(paths: Sequence[str | Path]) -> Iterator[Path]:
    """The files of logs.

    Args:
        paths: files, or folders. Of a folder its `completions/` is read, where TRL logs into the folder of a run, else
            its completions.jsonl, which ms-swift and `grounding-rewards evaluate` write into theirs, else all files of
            a kind that :func:`read_blocks` takes, such as verl's 1.jsonl, 2.jsonl, … 10.jsonl, in this order.

    Raises:
        ValueError: a folder has no such file, or is that of a training that logged no completions.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("10.jsonl", "2.jsonl"):
        ...         _ = Path(folder, name).write_text('{"output": "[]"}')
        ...     [path.name for path in log_files([Path(folder)])]
        ['2.jsonl', '10.jsonl']
    """
    for path in map(Path, paths):
        if not path.is_dir():
            if not path.exists() and _kind(path) not in _READERS:
                raise ValueError(
                    f"Expected a file or folder with completions, got {str(path)!r}, which is not there. {_LOG_THEM}"
                )
            yield path
        elif found := _kinds_within(path / "completions"):
            yield from found
        elif (path / "completions.jsonl").is_file():
            yield path / "completions.jsonl"
        elif all((path / name).is_file() for name in _OF_A_RUN):
            raise ValueError(f"Expected completions in {str(path)!r}, got a run that logged none. {_LOG_THEM}")
        elif found := _kinds_within(path):
            yield from found
        else:
            raise ValueError(
                f"Expected files that end in {', '.join(_READERS)} in the folder {str(path)!r}, got none. " + _LOG_THEM
            )


def _kinds_within(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if _kind(path) in _READERS)
    # Beside answers that were kept stands how they were generated.
    return sorted((path for path in found if not path.name.endswith(".settings.json")), key=_in_order)


def _in_order(path: Path) -> list[Any]:
    """Numbers within names in their order: 2.jsonl stands before 10.jsonl."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.name)]


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
            reader = csv.DictReader(file, restkey="more", delimiter="\t" if _kind(path).startswith(".tsv") else ",")
            check_columns(reader.fieldnames or [], repr(str(path)))
            for number, block in _numbered_blocks(map(_filled_cells, reader)):
                for k, row in enumerate(block, number):
                    for column in _JSON_COLUMNS:
                        if row.get(column, "").startswith(("[", "{")):
                            row[column] = _list_of_cell(row[column], f"row {k} of {str(path)!r}, column {column}")
                yield number, block
    finally:
        csv.field_size_limit(before)


def _filled_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a row that hold something; an empty completion is one, an image in base64 is none."""
    cells = {name: cell for name, cell in row.items() if cell or (cell == "" and name in TEXT_COLUMNS)}
    return {name: cell for name, cell in cells.items() if name != "image" or len(cell) <= _LONGEST_PATH}


def _list_of_cell(cell: str, place: str) -> Any:
    """The list that a cell holds in JSON, or as Python and pandas write it."""
    try:
        return parse_json(cell, any_text=True)
    except ValueError:
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(cell)
    return _from_json(cell, place, "Write lists as JSON, as json.dumps does: [[10, 20, 30, 40]].")


def _read_json(path: Path) -> Iterator[tuple[int, Any]]:
    with _open(path) as file:
        content = file.read()
    text = content.decode("utf-8-sig")
    try:
        value = parse_json(text, any_text=True)
    except ValueError:
        if "\n" in text.strip() and text.lstrip().startswith("{") and _is_json(text.lstrip().partition("\n")[0]):
            # Lines, whatever the file is called.
            yield 1, content.removesuffix(b"\n")
            return
        value = _from_json(text, repr(str(path)), "Write the file again: it is broken or cut off.")
    yield from _numbered_blocks(_rows_of_value(value, path))


def _is_json(text: str) -> bool:
    with contextlib.suppress(ValueError):
        parse_json(text, any_text=True)
        return True
    return False


def _rows_of_value(value: Any, path: Path) -> list[Any]:
    """The rows of a .json file: a list, alone or under a key, a table of columns, one row, or answers by their `id`."""
    if isinstance(value, list):
        return value
    got = f"{value!r:.80}"
    if isinstance(value, dict):
        lists = {name: rows for name, rows in value.items() if isinstance(rows, list)}
        filled = [name for name, rows in lists.items() if rows and all(isinstance(row, dict) for row in rows)]
        if len(filled) == 1:
            return lists[filled[0]]
        if len(lists) == len(value) == 1:
            return next(iter(lists.values()))
        if lists.keys() == value.keys() and not filled and len({len(cells) for cells in lists.values()}) == 1:
            return [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=True)]
        if any(isinstance(value.get(name), str) for name in TEXT_COLUMNS) or image_rows(value) != [value]:
            return [value]
        if value and all(isinstance(answer, str) for answer in value.values()):
            return [{"id": name, "completion": answer} for name, answer in value.items()]
        if value and all(isinstance(row, dict) for row in value.values()):
            return [{"id": name, **row} for name, row in value.items()]
        got = f"lists under {' and '.join(filled)}" if filled else f"an object with the keys {first_of(list(value))}"
    raise ValueError(
        f"Expected a list of rows in {str(path)!r}, got {got}. Write one row a line into a .jsonl file: "
        '{"id": "a", "completion": "..."}; `jq -c \'.KEY[]\' log.json > log.jsonl` takes the list under a key.'
    )


def _read_eval(path: Path) -> Iterator[tuple[int, list[Any]]]:
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        raise ValueError(
            f"Expected inspect_ai to read {str(path)!r}, got none. Install it with `pip install inspect_ai`, or "
            f"convert the log where it is installed: `inspect log convert {path.name} --to json --output-dir .`."
        ) from None
    try:
        samples = read_eval_log(str(path)).samples or []
    except Exception as error:
        # Its own and those of several compressions.
        raise ValueError(f"Expected a log of inspect_ai in {str(path)!r}, got {error}. Copy it again.") from None
    kept = {"id", "epoch", "input", "target", "metadata", "output"}
    yield from _numbered_blocks(sample.model_dump(mode="json", include=kept) for sample in samples)


def _open_parquet(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError(
            f"Expected pyarrow to read {str(path)!r}, got none. Install it with `pip install pyarrow`."
        ) from None
    try:
        return parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(
            f"Expected a whole .parquet file in {str(path)!r}, got a broken one ({error}). Write it again."
        ) from None


def _read_parquet(path: Path) -> Iterator[tuple[int, Any]]:
    file = _open_parquet(path)
    # TRL may store the images beside the completions; they are not read.
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


def _from_json(text: str, place: str, fix: str) -> Any:
    try:
        return parse_json(text, any_text=True)
    except ValueError as error:
        raise ValueError(f"Expected JSON in {place}, got {text!r:.80} ({error}). {fix}") from None


def _not_utf8(place: str, error: Exception) -> ValueError:
    return ValueError(f"Expected text in UTF-8 in {place}, got {error}. Save it again as UTF-8.")


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Any]]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".tsv": _read_csv,
    ".eval": _read_eval,
    ".jsonl.gz": _read_jsonl,
    ".json.gz": _read_json,
    ".csv.gz": _read_csv,
    ".tsv.gz": _read_csv,
}


# What a row has, and what that means.
_NO_ID = "no `id`", "`evaluate` refuses such a log: add it to every row."
_OFF_IMAGE = (
    "a reference box that is not on the image",
    "What is scored against it means little: correct the boxes or the size.",
)


@dataclass
class LogDoubts:
    """What is doubtful about the rows of a log that is read as it is: not refused, but said.

    `evaluate` refuses what is counted here, because its metrics are about images. A log of a training is about
    completions, and may be looked at before it is right.

    Attributes:
        rows: looked at.
        found: by what is doubtful the number of rows, and the place of the first.

    Example:
        >>> doubts = LogDoubts()
        >>> doubts.look([("line 1", {"id": "a", "boxes": [[0, 0, 9, 99]], "width": 50, "height": 50}), ("line 2", {})])
        >>> for sentence in doubts.sentences():  # doctest: +NORMALIZE_WHITESPACE
        ...     print(sentence)
        1 of 2 rows has a reference box that is not on the image, the first line 1: box 0 is [0, 0, 9, 99], outside the
        image of 50 x 50. What is scored against it means little: correct the boxes or the size.
        1 of 2 rows has no `id`, the first line 2. `evaluate` refuses such a log: add it to every row.
    """

    rows: int = 0
    found: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def look(self, placed: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Look at more rows, each with its place for a message."""
        for place, row in placed:
            self.rows += 1
            if row.get("id") in (None, ""):
                self._count(_NO_ID, 1, place)
            # Columns that are no lists are refused by what scores the row.
            problems = () if row.get("boxes") is None else row_problems(with_numbers(row), about=["boxes"])
            if (problem := next(iter(problems), None)) is not None:
                self._count(_OFF_IMAGE, 1, f"{place}: {problem}")

    def add(self, later: LogDoubts) -> None:
        """Add what was counted of later rows."""
        self.rows += later.rows
        for doubt, (count, first) in later.found.items():
            self._count(doubt, count, first)

    def _count(self, doubt: tuple[str, str], count: int, place: str) -> None:
        before, first = self.found.get(doubt, (0, place))
        self.found[doubt] = before + count, first

    def sentences(self) -> Iterator[str]:
        """What a person should know, a sentence each; nothing of an `id` where no row has one."""
        for (what, so), (count, first) in sorted(self.found.items()):
            if (what, so) != _NO_ID or count < self.rows:
                verb = "has" if count == 1 else "have"
                yield f"{count} of {self.rows} rows {verb} {what}, the first {first}. {so}"
