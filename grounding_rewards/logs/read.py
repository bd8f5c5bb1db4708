"""Logs of completions: one row for each text that a model wrote, with whatever else the file states about the image.

Whoever wrote a log, its rows come out in the columns of a dataset, see :mod:`grounding_rewards.logs.foreign_rows`. The
folder of a run is a log too, see :func:`log_files`.
"""

import contextlib
import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS
from grounding_rewards.common.formatting import as_json, counted, first_of
from grounding_rewards.common.text_files import check_columns, parse_json, read_json_lines, read_text, text_lines
from grounding_rewards.data.checks import row_problems
from grounding_rewards.logs.foreign_rows import STEPS, unpack_row
from grounding_rewards.logs.run_log import CONFIG, LOG, VERSIONS
from grounding_rewards.rewards.completions import answer_defect

#: Columns that may hold the completion: TRL's `completion`, then those of other tools.
TEXT_COLUMNS = (
    *("completion", "text", "response", "output", "answer", "prediction", "predict", "model_output", "model_response"),
    *("model_answer", "generated_text", "generation"),
)
# In a CSV file these columns hold JSON.
_JSON_COLUMNS = (*BOX_COLUMNS, "box_format")
# Columns that may hold the pixels themselves.
_IMAGES = ("image", "images")


_ONE_A_LINE = "A .jsonl file has one object a line: repair or remove the line; one list of rows is a .json file."
_LOG_THEM = (
    "Check the path; a training logs its completions with `--log_completions true`, and `grounding-rewards evaluate "
    "--samples 8` asks a model that is trained already."
)
# In the name of a file: the number of a shard, and how many there are.
_SHARD = re.compile(r"\d+-of-(\d+)")


class Log(NamedTuple):
    """The n rows of logs.

    Attributes:
        completions: texts or message lists.
        rows: that they come from, as :func:`grounding_rewards.logs.foreign_rows.unpack_row` makes them.
        places: line or row and file of each, for a message.
        notes: warnings about the log, a sentence each.
    """

    completions: list[Any]
    rows: list[dict[str, Any]]
    places: list[str]
    notes: tuple[str, ...] = ()


class _Line(NamedTuple):
    """A line of a file, or a row of one that has no lines.

    Attributes:
        place: its number and file, for a message.
        rows: that it holds: several if the line is a table.
    """

    place: str
    rows: list[dict[str, Any]]


def read_completions(paths: Sequence[str | Path | Mapping[str, Any]], *, text_column: str | None = None) -> Log:
    """Read whole logs of completions.

    Args:
        paths: files that end in .jsonl, .json (a list of rows), .csv, .parquet, such as TRL writes with
            `log_completions`, or .eval of inspect_ai; or folders, as :func:`log_files` takes them; or rows that are in
            memory already.
        text_column: the column with the completions, as for :func:`find_text_column`.

    Returns:
        The rows of all files. A table that repeats the one before it is left out: TRL and ms-swift write it again at a
        step that generates nothing new, and ms-swift at the end of a training. A table is a file, or a line where a
        line holds several rows.

    Raises:
        ValueError: a file is missing, is of another kind or broken, or rows are no objects with columns, or have no
            text; they are named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "log.jsonl")
        ...     _ = path.write_text('{"response": "[]", "boxes": []}')
        ...     log = read_completions([path])
        >>> log.completions, log.rows
        (['[]'], [{'response': '[]', 'boxes': []}])
    """
    # A table of pandas has arrays of numpy, where a file has lists and numbers.
    rows_in_memory = [
        {name: value if name in _IMAGES else as_json(value) for name, value in row.items()}
        for row in paths
        if isinstance(row, Mapping)
    ]
    file_paths = log_files([path for path in paths if not isinstance(path, Mapping)])
    files = [_lines(enumerate(rows_in_memory, 1), "row", "the rows"), *map(_read_file, file_paths)]
    tables: list[list[_Line]] = []
    for lines in files:
        line_is_table = any(len(line.rows) > 1 for line in lines)
        tables += [[line] for line in lines] if line_is_table else [lines]
    rows: list[dict[str, Any]] = []
    places: list[str] = []
    repeats = 0
    previous_content: list[dict[str, Any]] = []
    for table in tables:
        content = _without_steps(table)
        if content and content == previous_content:
            repeats += 1
        else:
            for line in table:
                rows += line.rows
                places += [line.place] * len(line.rows)
        previous_content = content
    column = find_text_column(rows, text_column)
    _check_texts(column, rows, places)
    notes = []
    if column in ("answer", "text") and text_column is None:
        # Some logs have the completion in these, and others the reference or the prompt.
        notes.append(
            f"Completions are read from the column `{column}`. If it holds the reference or the prompt, name another "
            "one with --text-column."
        )
    if repeats:
        notes.append(
            f"Tables of the log that repeat the one before them are left out: {repeats}. A trainer writes one again at "
            "a step that generates nothing new."
        )
    return Log([row[column] for row in rows], rows, places, tuple(notes))


def _without_steps(table: Sequence[_Line]) -> list[dict[str, Any]]:
    """The rows of a table without their steps; nothing if no row has a step: only a log of steps repeats its tables."""
    rows = [row for line in table for row in line.rows]
    if all(row.keys().isdisjoint(STEPS) for row in rows):
        return []
    return [{name: value for name, value in row.items() if name not in STEPS} for row in rows]


def _check_texts(column: str, rows: Sequence[Mapping[str, Any]], places: Sequence[str]) -> None:
    """Refuse rows without a completion in the column; they are named."""
    places_by_defect: dict[str, list[str]] = {}
    for place, row in zip(places, rows, strict=True):
        completion = row.get(column)
        defect = answer_defect(completion) if _is_text(completion) else "none or no text"
        if defect:
            places_by_defect.setdefault(defect, []).append(place)
    if places_by_defect:
        # One kind of defect at a time.
        defect, defect_places = next(iter(places_by_defect.items()))
        raise ValueError(
            f"Expected a completion in column {column} of every row, got {defect} in "
            f"{counted(len(defect_places), 'row')}: {first_of(defect_places)}. Remove such rows, write an empty text "
            "where the model wrote nothing, or name the column with the text with --text-column."
        )


def step_of(row: Mapping[str, Any]) -> float | None:
    """The step of a training at which a row was logged; None where that is not known.

    Example:
        >>> step_of({"step": "12"}), step_of({}), step_of({"step": 10**400})
        (12.0, None, None)
    """
    try:
        step = float(row["step"])
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    return step if math.isfinite(step) else None


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
    known_columns = [name for name in TEXT_COLUMNS if name in columns]
    if not known_columns:
        raise ValueError(
            f"Expected a column {' or '.join(TEXT_COLUMNS)} with the completions, got {', '.join(columns)}. "
            "Name yours with --text-column."
        )
    # A table may have a column that is empty throughout, or holds the number of something.
    candidates = [name for name in known_columns if any(row.get(name) and _is_text(row[name]) for row in rows)]
    # Columns with the same texts are no choice.
    if any(row.get(name) != row.get(candidates[0]) for row in rows for name in candidates):
        raise ValueError(
            f"Expected one column with what the model wrote, got {' and '.join(candidates)}. Name it with "
            "--text-column; another one may hold the reference."
        )
    # Where every text is empty, no column is a candidate.
    return (candidates or known_columns)[0]


def _is_text(value: Any) -> bool:
    """Whether a value may be a completion: a text, messages or a message."""
    return isinstance(value, str | list | Mapping)


def off_image_notes(log: Log) -> list[str]:
    """A sentence if reference boxes of a log lie outside their images, which `evaluate` refuses; else nothing.

    Args:
        log: its rows; those without boxes or a size are passed over.

    Example:
        >>> rows = [{"boxes": [[0, 0, 9, 99]], "width": 50, "height": 50}, {}]
        >>> [sentence] = off_image_notes(Log(["", ""], rows, ["line 1", "line 2"]))
        >>> print(sentence)  # doctest: +NORMALIZE_WHITESPACE
        1 of 2 rows have a reference box that is not on the image, the first line 1: box 0 is [0, 0, 9, 99], outside the
        image of 50 x 50. What is scored against it means little: correct the boxes or the size.
    """
    off_image = []
    for place, row in zip(log.places, log.rows, strict=True):
        # Columns that are no lists are refused by what scores the row.
        problems = [] if row.get("boxes") is None else list(row_problems(row, parts=["boxes"]))
        if problems:
            off_image.append(f"{place}: {problems[0]}")
    if not off_image:
        return []
    return [
        f"{len(off_image)} of {len(log.rows)} rows have a reference box that is not on the image, the first "
        f"{off_image[0]}. What is scored against it means little: correct the boxes or the size."
    ]


def log_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files of logs, given files or folders.

    Args:
        paths: files, or folders. In a folder these are looked for, in this order: 1. `completions/`, where TRL logs
            into the folder of a run; 2. completions.jsonl, which ms-swift and `grounding-rewards evaluate` write into
            theirs; 3. all files of a kind that :func:`read_completions` takes, such as verl's 2.jsonl, … 10.jsonl.

    Raises:
        ValueError: a path is not there; a folder has no such file, or is that of a training that logged no completions;
            or shards are missing, of which names such as log-00001-of-00004.jsonl say the number.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("10.jsonl", "2.jsonl"):
        ...         _ = Path(folder, name).write_text('{"output": "[]"}')
        ...     [path.name for path in log_files([Path(folder)])]
        ['2.jsonl', '10.jsonl']
    """
    files = []
    for path in map(Path, paths):
        if path.is_dir():
            files += _folder_files(path)
        elif path.exists():
            files.append(path)
        else:
            raise ValueError(
                f"Expected a file or folder with completions, got {str(path)!r}, which is not there. {_LOG_THEM}"
            )
    # Shards of one log share a name but for their number: log-00001-of-00004.jsonl is one of log-*-of-00004.jsonl.
    shard_counts = Counter(path.with_name(_SHARD.sub(r"*-of-\1", path.name)) for path in set(files))
    for pattern, count in shard_counts.items():
        total = re.search(r"\*-of-(\d+)", pattern.name)
        if total and count < int(total[1]):
            raise ValueError(
                f"Expected {int(total[1])} shards {str(pattern)!r} of a log, got {count}. Copy all of them, or rename "
                "them where these are meant alone."
            )
    return files


def _folder_files(folder: Path) -> list[Path]:
    """The files of the log in a folder, in the order of :func:`log_files`."""
    files = _readable_files(folder / "completions")
    if not files and (folder / "completions.jsonl").is_file():
        files = [folder / "completions.jsonl"]
    # Every training leaves these three; its own log would be taken for one of completions.
    if not files and all((folder / name).is_file() for name in (CONFIG, LOG, VERSIONS)):
        raise ValueError(f"Expected completions in {str(folder)!r}, got a run that logged none. {_LOG_THEM}")
    files = files or _readable_files(folder)
    if not files:
        endings = ", ".join(_READERS)
        raise ValueError(f"Expected files that end in {endings} in the folder {str(folder)!r}, got none. {_LOG_THEM}")
    return files


def _readable_files(folder: Path) -> list[Path]:
    """The files in a folder that are of a kind that can be read, by the numbers in their names: 2.jsonl, 10.jsonl."""
    files = [path for path in folder.glob("*") if path.suffix in _READERS]
    # The settings with which answers were generated are no log.
    files = [path for path in files if not path.name.endswith(".settings.json")]
    # Filled with zeros to one width, numbers are in order as texts too.
    return sorted(files, key=lambda path: [part.zfill(20) for part in re.split(r"(\d+)", path.name)])


def _read_file(path: Path) -> list[_Line]:
    """The lines of a file, by the reader of its kind."""
    if path.suffix not in _READERS:
        raise ValueError(
            f"Expected a file that ends in {', '.join(_READERS)}, got {str(path)!r}. Convert it, or name it so."
        )
    return _lines(_READERS[path.suffix](path), "line" if path.suffix == ".jsonl" else "row", repr(str(path)))


def _lines(numbered_contents: Iterable[tuple[int, Any]], unit: str, source: str) -> list[_Line]:
    """The lines of a file; sizes in them become numbers, and what a table has as NaN becomes None.

    Args:
        numbered_contents: the number and the content of each line.
        unit: "line" or "row", for the places of the lines: "line 3 of 'log.jsonl'".
        source: what the places name behind it.
    """
    lines = []
    for number, content in numbered_contents:
        place = f"{unit} {number} of {source}"
        if not isinstance(content, dict):
            raise ValueError(
                f"Expected an object with columns in {place}, got {content!r:.80}. "
                'Write every row as {"completion": "...", "boxes": []}.'
            )
        rows = unpack_row(content, place)
        for row in rows:
            for name in SIZE_COLUMNS:
                # A CSV file has numbers as texts.
                if isinstance(row.get(name), str):
                    with contextlib.suppress(ValueError):
                        row[name] = float(row[name])
            # A table has NaN where a row lacks a column that others have.
            row |= {name: None for name, value in row.items() if isinstance(value, float) and math.isnan(value)}
        lines.append(_Line(place, rows))
    return lines


def _read_csv(path: Path) -> Iterable[tuple[int, Any]]:
    """The rows of a table in CSV, with their numbers."""
    # A completion may be longer than the default limit; this one is the largest that every platform takes.
    default_limit = csv.field_size_limit(2**31 - 1)
    try:
        # Cells without a column, in a row that is too long, are under "more".
        reader = csv.DictReader(text_lines(path), restkey="more")
        check_columns(reader.fieldnames or [], repr(str(path)))
        return [(number, _row_of_cells(cells, number, path)) for number, cells in enumerate(reader, 1)]
    except csv.Error as error:
        raise ValueError(f"Expected a table in {str(path)!r}, got {error}. Save it again as CSV in UTF-8.") from None
    finally:
        csv.field_size_limit(default_limit)


def _row_of_cells(cells: Mapping[str, Any], number: int, path: Path) -> dict[str, Any]:
    """The row of a table's cells, without empty ones, and with lists and switches where cells hold these as text."""
    row: dict[str, Any] = {}
    for name, cell in cells.items():
        # An empty completion is a completion; a missing cell is None.
        if cell is None or (cell == "" and name not in TEXT_COLUMNS):
            continue
        row[name] = cell
        if name == "prompt_opens_thinking":
            row[name] = cell.strip().casefold() in ("true", "t", "yes", "1", "1.0")
        elif name in _JSON_COLUMNS and cell.startswith(("[", "{")):
            try:
                row[name] = parse_json(cell)
            except ValueError as error:
                raise ValueError(
                    f"Expected JSON in row {number} of {str(path)!r}, column {name}, got {cell!r:.80} ({error}). Write "
                    "lists as JSON, as json.dumps does: [[10, 20, 30, 40]]."
                ) from None
    return row


def _read_json(path: Path) -> Iterable[tuple[int, Any]]:
    """The rows of a .json file, with their numbers."""
    text = read_text(path)
    try:
        rows = parse_json(text)
    except ValueError as error:
        raise ValueError(
            f"Expected JSON in {str(path)!r}, got {text!r:.80} ({error}). Name it .jsonl if it has one object a line, "
            "or write it again if it is broken or cut off."
        ) from None
    if not isinstance(rows, list):
        raise ValueError(
            f"Expected a list of rows in {str(path)!r}, got {rows!r:.80}. `jq -c '.KEY[]' log.json > log.jsonl` takes "
            "the list under a key."
        )
    return enumerate(rows, 1)


def _read_eval(path: Path) -> Iterable[tuple[int, Any]]:
    """The samples of a log of inspect_ai, with their numbers."""
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
        # inspect_ai raises errors of its own, and those of several compressions.
        raise ValueError(f"Expected a log of inspect_ai in {str(path)!r}, got {error}. Copy it again.") from None
    # The rest of a sample, such as its events, is large and says nothing of the answer or the image.
    fields = {"id", "epoch", "input", "target", "metadata", "output"}
    return enumerate((sample.model_dump(mode="json", include=fields) for sample in samples), 1)


def _read_parquet(path: Path) -> Iterable[tuple[int, Any]]:
    """The rows of a .parquet file without images, with their numbers."""
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(path)
        # TRL may store the images beside the completions; they are not read.
        columns = [name for name in file.schema_arrow.names if name not in _IMAGES]
        return enumerate(file.read(columns).to_pylist(), 1)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(
            f"Expected a whole .parquet file in {str(path)!r}, got a broken one ({error}). Write it again."
        ) from None


# By the ending of a file: what gives its rows with the number of each.
_READERS: dict[str, Callable[[Path], Iterable[tuple[int, Any]]]] = {
    ".jsonl": partial(read_json_lines, fix=_ONE_A_LINE),
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".eval": _read_eval,
}
