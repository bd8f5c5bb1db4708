"""Logs of completions: what a model wrote, one row each, beside whatever else the file knows of the film."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: Columns that hold what the model wrote, the first that is there: TRL's `completion`, other trainers' and servers'.
TEXT_COLUMNS = ("completion", "text", "response", "output", "answer", "prediction", "model_output", "generated_text")

# In a CSV file these hold JSON.
_JSON_COLUMNS = ("boxes", "box_format")


def read_completions(
    paths: Sequence[Path], *, text_column: str | None = None
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Read logs of completions.

    Args:
        paths: files that end in .jsonl, .json (a list of rows, alone or under a key), .csv or .parquet, such as TRL
            writes with `log_completions`; or folders of them.
        text_column: the column with the completions; without it the first of :data:`TEXT_COLUMNS`.

    Returns:
        The completions, texts or message lists, and the rows that they come from.

    Raises:
        ValueError: a file is missing, is of another kind or broken, or no row has a text.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "log.jsonl")
        ...     _ = path.write_text('{"response": "[]", "boxes": []}')
        ...     read_completions([path])
        (['[]'], [{'response': '[]', 'boxes': []}])
    """
    rows = [row for path in _files(paths) for row in _read_file(path)]
    if not rows:
        raise ValueError(f"Expected rows in {', '.join(map(str, paths))}, got none. Give a log with completions.")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    wanted = (text_column,) if text_column is not None else TEXT_COLUMNS
    column = next((name for name in wanted if name in columns), None)
    if column is None:
        raise ValueError(
            f"Expected a column {' or '.join(wanted)} with the completions, got {', '.join(columns)}. "
            "Name yours with --text-column."
        )
    return [row.get(column) for row in rows], [_with_ground_truth(row) for row in rows]


def _with_ground_truth(row: dict[str, Any]) -> dict[str, Any]:
    """Unpack the column `ground_truth` of trainers that hand over one string a row, where it has the boxes."""
    packed = row.get("ground_truth")
    if isinstance(packed, str) and packed.lstrip().startswith("{"):
        try:
            packed = json.loads(packed)
        except (json.JSONDecodeError, RecursionError):
            return row
    return {**row, **packed} if isinstance(packed, dict) and "boxes" in packed else row


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        found = sorted(inner for inner in path.iterdir() if inner.suffix in _READERS) if path.is_dir() else [path]
        if not found or not found[0].is_file():
            raise ValueError(f"Expected a file, or a folder with logs, got {str(path)!r}. Check the path.")
        files += found
    return files


def _read_file(path: Path) -> list[dict[str, Any]]:
    if path.suffix not in _READERS:
        raise ValueError(f"Expected a file that ends in {', '.join(_READERS)}, got {str(path)!r}. Convert it.")
    try:
        rows = _READERS[path.suffix](path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Expected text in UTF-8 in {str(path)!r}, got {error}. Save it again as UTF-8.") from None
    for k, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(
                f"Expected an object with columns for row {k} of {str(path)!r}, got {row!r:.200}. "
                'Write every row as {"text": "..."}.'
            )
    return rows


def _read_jsonl(path: Path) -> list[Any]:
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    return [_loads(line, f"line {k} of {str(path)!r}") for k, line in enumerate(lines, 1) if line.strip()]


def _read_json(path: Path) -> list[Any]:
    content = _loads(path.read_text(encoding="utf-8-sig"), repr(str(path)))
    lists = [content] if isinstance(content, list) else []
    if isinstance(content, dict):
        lists = [value for value in content.values() if isinstance(value, list)]
    if len(lists) != 1:
        raise ValueError(
            f"Expected one list of rows in {str(path)!r}, got {len(lists)}. Write one row a line as .jsonl."
        )
    return lists[0]


def _read_csv(path: Path) -> list[Any]:
    # One completion may be longer than the reader allows by default.
    before = csv.field_size_limit(2**31 - 1)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, restkey="more"))
    finally:
        csv.field_size_limit(before)
    for k, row in enumerate(rows, 1):
        for column in _JSON_COLUMNS:
            if (row.get(column) or "").startswith(("[", "{")):
                row[column] = _loads(row[column], f"row {k} of {str(path)!r}, column {column}")
    return [{name: value for name, value in row.items() if value not in ("", None)} for row in rows]


def _read_parquet(path: Path) -> list[Any]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError(
            f"Expected pyarrow to read {str(path)!r}, got none. Install it with `pip install pyarrow`."
        ) from None
    # The films that TRL may have put beside the completions stay on the disk.
    columns = [name for name in parquet.read_schema(path).names if name not in ("image", "images")]
    rows: list[Any] = parquet.read_table(path, columns=columns).to_pylist()
    return rows


def _loads(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"Expected JSON in {place}, got {text!r:.80} ({error}). Repair or remove it.") from None


_READERS: dict[str, Callable[[Path], list[Any]]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
