"""Text files: byte order marks, lists and lines, and rows of one image that do not stand together."""

from __future__ import annotations

import pytest

from grounding_rewards.sources.documents import grouped_samples, read_json_rows


def test_lines_and_lists_are_the_same(tmp_path):
    (tmp_path / "a.jsonl").write_bytes('\ufeff{"a": 1}\r\n\r\n{"a": 2}'.encode())
    (tmp_path / "a.json").write_bytes('\ufeff[{"a": 1}, {"a": 2}]'.encode())
    assert [row for _, row in read_json_rows(tmp_path / "a.jsonl", "f")] == [{"a": 1}, {"a": 2}]
    assert [(place.line, row) for place, row in read_json_rows(tmp_path / "a.json", "f")] == [
        (1, {"a": 1}),
        (2, {"a": 2}),
    ]
    # the number is the line's, for errors
    assert [place.line for place, _ in read_json_rows(tmp_path / "a.jsonl", "f")] == [1, 3]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"a": 1}\n3\n', "a JSON object in line 2"),
        ("a.jsonl", '{"a": 1}\n{\n', "a JSON object in line 2"),
        ("a.json", "{}", "Expected a list of objects"),
        ("a.json", "[1]", "a JSON object in entry 1"),
        ("a.json", "[", "Expected JSON in"),
    ],
)
def test_what_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        list(read_json_rows(tmp_path / name, "f"))


def test_groups(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"f": "x", "n": 1}\n{"f": "y", "n": 2}\n{"f": "x", "n": 3}\n', encoding="utf-8")
    samples = grouped_samples(tmp_path, "a.jsonl", None, "f")
    groups = [(image, [row["n"] for _, row in rows]) for _, image, rows in samples]
    assert groups == [("x", [1, 3]), ("y", [2])]
