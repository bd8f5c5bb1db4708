"""Logs in every shape that trainers and people write them."""

from __future__ import annotations

import json

import pytest

from grounding_rewards.data.completions import TEXT_COLUMNS, read_completions


def write(folder, name: str, text: str):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.jsonl", '{"text": "[]", "boxes": [[1, 2, 3, 4]], "width": 9}\n\n{"text": "no", "boxes": []}\n'),
        # a list of rows, alone or under a key, with a byte order mark
        ("log.json", '[{"text": "[]", "boxes": [[1, 2, 3, 4]], "width": 9}, {"text": "no", "boxes": []}]'),
        (
            "log.json",
            '\ufeff{"model": "mine", "results": [{"text": "[]", "boxes": [[1, 2, 3, 4]], "width": 9},'
            ' {"text": "no", "boxes": []}]}',
        ),
        # an empty cell is no value
        ("log.csv", 'text,boxes,width\n[],"[[1, 2, 3, 4]]",9\nno,[],\n'),
    ],
)
def test_the_same_log_in_every_kind_of_file(tmp_path, name, text):
    completions, rows = read_completions([write(tmp_path, name, text)])
    assert completions == ["[]", "no"]
    assert [row["boxes"] for row in rows] == [[[1, 2, 3, 4]], []]
    assert float(rows[0]["width"]) == 9
    assert rows[1].get("width") is None


def test_what_trl_writes_step_by_step(tmp_path):
    """`log_completions` of TRL 1.16: one file a step, conversations as message lists, the logged columns beside."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for step, text in ((2, "second"), (1, "first")):
        table = {
            "step": [step],
            "prompt": [[{"role": "user", "content": "Mark all findings."}]],
            "completion": [[{"role": "assistant", "content": text}]],
            "R4": [0.0],
            "R4/status": ["unparseable"],
            "advantage": [0.0],
            "images": [b"no film is read"],
        }
        pandas.DataFrame(table).to_parquet(tmp_path / f"completions_{step:05d}.parquet")
    completions, rows = read_completions([tmp_path])
    assert [messages[0]["content"] for messages in completions] == ["first", "second"]
    assert [row["step"] for row in rows] == [1, 2]
    assert "images" not in rows[0]


@pytest.mark.parametrize("column", TEXT_COLUMNS)
def test_the_column_with_the_text_is_found(tmp_path, column):
    assert read_completions([write(tmp_path, "log.jsonl", json.dumps({"id": "a", column: "[]"}))])[0] == ["[]"]


def test_the_column_with_the_text_can_be_named(tmp_path):
    path = write(tmp_path, "log.jsonl", '{"text": "prompt", "said": "[]"}\n{"text": "prompt"}')
    assert read_completions([path], text_column="said")[0] == ["[]", None]


@pytest.mark.parametrize(
    ("ground_truth", "boxes"),
    [
        ('{"boxes": [[1, 2, 3, 4]], "width": 9}', [[1, 2, 3, 4]]),
        ({"boxes": []}, []),
        # other people's columns of that name
        ("[1, 2, 3, 4]", None),
        ("{no JSON", None),
        ('{"answer": "yes"}', None),
    ],
)
def test_ground_truth_in_one_string_is_unpacked(tmp_path, ground_truth, boxes):
    path = write(tmp_path, "log.jsonl", json.dumps({"text": "[]", "ground_truth": ground_truth}))
    assert read_completions([path])[1][0].get("boxes") == boxes


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.jsonl", '{"text": "[]"}\n{"text": \n', r"Expected JSON in line 2 of .*log\.jsonl"),
        ("log.jsonl", '{"text": "[]"}\n[1, 2]\n', r"Expected an object with columns for row 1 of .*, got \[1, 2\]"),
        ("log.jsonl", "\n", r"Expected rows in .*log\.jsonl, got none"),
        ("log.jsonl", '{"prompt": "x", "id": 1}', r"Expected a column completion or text or .*, got prompt, id\."),
        ("log.jsonl", "[" * 100_000, r"Expected JSON in line 1"),
        ("log.json", '{"a": [], "b": []}', r"Expected one list of rows in .*, got 2\."),
        ("log.json", '"text"', r"Expected one list of rows in .*, got 0\."),
        ("log.csv", 'text,boxes\n[],"[[1, 2"\n', r"Expected JSON in row 1 of .*, column boxes"),
        ("log.txt", "[]", r"Expected a file that ends in \.jsonl, \.json, \.csv, \.parquet"),
    ],
)
def test_a_broken_log_is_refused_with_its_place(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        read_completions([write(tmp_path, name, text)])


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ValueError, match="Expected a file, or a folder with logs"):
            read_completions([path])


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"text": "\xff"}')
    with pytest.raises(ValueError, match="Expected text in UTF-8"):
        read_completions([path])


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        read_completions([write(tmp_path, "log.parquet", "")])
