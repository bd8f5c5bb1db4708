"""Logs in blocks: every kind of file, numbers of lines, and what is wrong with a file."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards.data import completion_blocks
from grounding_rewards.data.completion_blocks import find_text_column, read_blocks
from grounding_rewards.data.completions import read_completions

ROWS: list[dict[str, Any]] = [
    {"completion": f"text {k}, \u2028 {{}}\n é", "boxes": [[0, 0, 9, k + 1]], "width": 10, "id": f"film {k}"}
    for k in range(25)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.name.endswith(".jsonl"):
        path.write_text(lines, encoding="utf-8", newline="\n")
    elif path.name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif ".csv" in path.name:
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        with plain.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows({**row, "boxes": json.dumps(row["boxes"])} for row in rows)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(plain.read_bytes()))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet as parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("kind", [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".json", ".parquet"])
def test_all_kinds_of_files(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_blocks, "_ROWS", 10)
    monkeypatch.setattr(completion_blocks, "_BYTES", 1000)
    path = write(tmp_path / f"log.2026{kind}", ROWS)
    blocks = list(read_blocks(path))
    assert len(blocks) > 2
    numbered = [one for block in blocks for one in block.rows()]
    assert [number for number, _ in numbered] == list(range(1, 26))
    expected = [{**row, "width": "10"} for row in ROWS] if ".csv" in kind else ROWS
    assert [row for _, row in numbered] == expected
    if not kind.endswith(".gz"):
        assert read_completions([path])[1] == expected


@pytest.mark.parametrize("size", [1, 7, 40, 1 << 18])
def test_line_numbers_count_blank_lines(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_blocks, "_BYTES", size)
    path = tmp_path / "log.jsonl"
    # A mark of the byte order, Windows line ends, blank lines, and no end of the last line.
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\n   \n{"text": "b"}\n\n{"text": "c"}')
    numbered = [one for block in read_blocks(path) for one in block.rows()]
    assert numbered == [(1, {"text": "a"}), (4, {"text": "b"}), (6, {"text": "c"})]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.jsonl", b'{"text": "a"}\n{"text": \n', r"Expected JSON in line 2 of '.*log.jsonl', got b'\{"),
        # two processes wrote into one file
        ("log.jsonl", b'{"a": 1}{"b": 2}\n', "Expected JSON in line 1 of .*there is more behind character 8"),
        ("log.jsonl", b'[1, 2]\n{"text": "a"}\n', r"Expected an object with columns in line 1 of .*, got \[1, 2\]"),
        ("log.jsonl", b'{"text": "\xff"}\n', "Expected JSON in line 1 of .*codec can't decode"),
        ("log.jsonl", b"[" * 100_000, "Expected JSON in line 1"),
        ("log.json", b'{"rows": []}', r"Expected a list of rows in '.*log.json', got \{"),
        ("log.json", b"[", "Expected JSON in '.*log.json', got a file that is none"),
        ("log.json", b"[1]", "Expected an object with columns in row 1 of .*, got 1"),
        ("log.csv", b'text,boxes\na,"[[1"\n', r"Expected JSON in row 1 of .*, column boxes, got '\[\[1'"),
        ("log.csv", b"text\n\xff\n", "Expected text in UTF-8"),
        ("log.txt", b"", r"Expected a file that ends in .jsonl, .csv, .jsonl.gz, .csv.gz, .parquet, .json, got"),
        ("log.gz", b"", "Expected a file that ends in"),
        ("log.jsonl.gz", gzip.compress(b'{"text": "a"}' * 100)[:-9], "Expected a whole .gz file in"),
        ("log.jsonl.gz", b'{"text": "a"}', "Expected a whole .gz file in .*, got Not a gzipped file"),
        ("log.parquet", b"none", "Expected a whole .parquet file in '.*log.parquet', got one that is none"),
    ],
)
def test_wrong_files_are_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        [block.rows() for block in read_blocks(tmp_path / name)]


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Expected a file with completions, got .*nothing.jsonl"):
        next(read_blocks(tmp_path / "nothing.jsonl"))


def test_the_limit_of_csv_is_put_back(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = tmp_path / "log.csv"
    path.write_text("text\n" + "x" * 200_000 + "\n", encoding="utf-8")
    assert len(next(read_blocks(path)).rows()[0][1]["text"]) == 200_000
    assert csv.field_size_limit() == before


def test_films_stay_on_the_disk(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", [{"completion": "[]", "image": {"path": "film.png"}}])
    assert next(read_blocks(path)).rows() == [(1, {"completion": "[]"})]


def test_the_text_column() -> None:
    assert find_text_column([{"answer": "a"}, {"completion": "b"}]) == "completion"
    assert find_text_column([{"answer": "a", "mine": "b"}], "mine") == "mine"
    with pytest.raises(ValueError, match=r"Expected a column mine with the completions, got answer. Name yours with"):
        find_text_column([{"answer": "a"}], "mine")
    with pytest.raises(ValueError, match="Expected rows with completions in the log, got none"):
        find_text_column([])
