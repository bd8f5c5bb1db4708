"""Logs in every shape that trainers and people write them, block by block and whole; what is wrong with a file."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards.logs import read
from tests.conftest import write_lines
from tests.tables import table

ROWS: list[dict[str, Any]] = [
    {"completion": f"text {k}, \u2028 {{}}\n é", "boxes": [[0, 0, 9, k + 1]], "width": 10, "id": f"image {k}"}
    for k in range(25)
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        write_lines(path, rows, ensure_ascii=False)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows({**row, "boxes": json.dumps(row["boxes"])} for row in rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        pandas.DataFrame(rows).to_parquet(path)
    return path


def write_text(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".json", ".parquet"])
def test_all_kinds_of_files(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"log.2026{kind}", ROWS)
    log = read.read_completions([path])
    # The sizes are numbers, whoever wrote them.
    assert log.rows == ROWS


def test_line_numbers_count_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    # A mark of the byte order, Windows line ends, blank lines, and no end of the last line.
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\n   \n{"text": "b"}\n\n{"text": "c"}')
    log = read.read_completions([path])
    assert log.completions == ["a", "b", "c"]
    assert [place.partition(" of ")[0] for place in log.places] == ["line 1", "line 4", "line 6"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *table("logs/rows", "wrong_files_are_refused"),
        ("log.jsonl", b'{"text": "\xff"}\n', "Expected a JSON object in line 1 of .*0xff .*no UTF-8"),
        ("log.csv", b"text\n\xff\n", "Expected text in UTF-8"),
    ],
)
def test_wrong_files_are_refused(name: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=message):
        read.read_completions([tmp_path / name])


def test_the_limit_of_csv_is_put_back(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = tmp_path / "log.csv"
    path.write_text("text\n" + "x" * 200_000 + "\n", encoding="utf-8")
    assert len(read.read_completions([path]).completions[0]) == 200_000
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(("rows", "columns"), table("logs/rows", "several_columns_with_text"))
def test_a_second_column_with_text_needs_a_name(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"got (.*)\. Name it with --text-column") as refusal:
        read.find_text_column(rows)
    assert all(re.search(rf"\b{name}\b", str(refusal.value)) for name in columns)
    assert [read.find_text_column(rows, name) for name in columns] == list(columns)


@pytest.mark.parametrize(("rows", "column"), table("logs/rows", "the_only_column_with_text_needs_no_name"))
def test_the_only_column_with_text_needs_no_name(rows: list[dict[str, Any]], column: str) -> None:
    assert read.find_text_column(rows) == column


def test_what_trl_writes_step_by_step(tmp_path):
    """`log_completions` of TRL 1.16: one file a step, conversations as message lists, the logged columns beside."""
    for step, text in ((2, "second"), (1, "first")):
        asked, said = [{"role": "user", "content": "Mark all findings."}], [{"role": "assistant", "content": text}]
        row = {"step": step, "prompt": asked, "completion": said, "images": b"no image is read"}
        row |= {"R4": 0.0, "R4/status": "unparseable", "advantage": 0.0}
        write(tmp_path / f"completions_{step:05d}.parquet", [row])
    completions, rows, *_ = read.read_completions([tmp_path])
    assert [messages[0]["content"] for messages in completions] == ["first", "second"]
    assert [row["step"] for row in rows] == [1, 2]
    assert "images" not in rows[0]


IMAGE = {"id": "a", "boxes": [[1, 2, 30, 40]], "width": 99, "height": 88, "box_format": "qwen3-vl"}


@pytest.mark.parametrize("row", table("logs/rows", "rows_of_every_trainer"))
def test_rows_of_every_trainer_come_out_in_the_columns_of_a_dataset(row):
    log = read.read_completions([row])
    assert log.completions == ["[]"]
    assert {name: log.rows[0][name] for name in IMAGE} == IMAGE
    assert log.rows[0]["step"] == 3
    assert not {"R4/row", "R3/row", "gts", "solution"} & log.rows[0].keys()


@pytest.mark.parametrize("step", ["step", "gen_step"])
def test_a_line_of_ms_swift_is_a_table(tmp_path, step):
    """ms-swift 3.11 and 4: a list for each column, in each line; `gen_step` under Megatron."""
    solution = [json.dumps(IMAGE), json.dumps({**IMAGE, "boxes": []})]
    table = {step: ["7", "7"], "prompt": ["<|user|>Mark"] * 2, "completion": ["[]", "None"], "solution": solution}
    line = json.dumps(table | {"MyReward": [0.0, 0.2], "advantages": [-1.0, 1.0]})
    later = line.replace("7", "8").replace("None", "none")
    log = read.read_completions([write_text(tmp_path, "completions.jsonl", f"{line}\n{later}\n")])
    assert log.completions == ["[]", "None", "[]", "none"]
    assert [row["boxes"] for row in log.rows] == [IMAGE["boxes"], []] * 2
    assert [row["step"] for row in log.rows] == ["7", "7", "8", "8"]
    assert [row["MyReward"] for row in log.rows] == [0.0, 0.2] * 2
    assert log.places[1].startswith("line 1 of")


def test_a_line_that_ms_swift_writes_again_is_read_once(tmp_path):
    """It appends the last table once more at the end of a training, and at a step that generates nothing new."""
    first, second = (json.dumps({"step": [step] * 2, "completion": ["[]", "[]"]}) for step in ("1", "2"))
    other = json.dumps({"step": ["3"] * 2, "completion": ["[]", "None"]})
    log = read.read_completions([write_text(tmp_path, "completions.jsonl", f"{first}\n{second}\n{other}\n{other}\n")])
    assert log.completions == ["[]", "[]", "[]", "None"]
    assert log.notes[0].startswith("Tables of the log that repeat the one before them are left out: 2.")


def test_rows_of_a_line_each_may_be_equal(tmp_path):
    path = write_text(tmp_path, "log.jsonl", '{"completion": "[]", "step": 1}\n' * 2)
    assert read.read_completions([path]).completions == ["[]", "[]"]


def test_the_text_is_the_one_that_the_reward_read():
    """Special tokens carry the boxes of some families, and trainers take them out of the text."""
    said = json.dumps({**IMAGE, "text": "<|box_start|>(1,2),(3,4)<|box_end|>", "pred": []})
    row = {"completion": "(1,2),(3,4)", "R4/row": said}
    assert read.read_completions([row]).completions == ["<|box_start|>(1,2),(3,4)<|box_end|>"]


@pytest.mark.parametrize(("files", "expected"), table("logs/rows", "files_of_folders"))
def test_the_files_of_a_folder(tmp_path, files, expected):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_text(tmp_path, name, '{"completion": "[]"}\n')
    assert [path.name for path in read.log_files([tmp_path])] == expected


def test_a_log_without_all_of_its_shards_is_refused(tmp_path):
    for name in ("a-00000-of-00002.jsonl", "a-00001-of-00002.jsonl", "b-1-of-3.jsonl", "b-3-of-3.jsonl"):
        write_text(tmp_path, name, '{"completion": "[]"}\n')
    assert len(read.log_files(sorted(tmp_path.glob("a-*")))) == 2
    for paths in ([tmp_path], sorted(tmp_path.glob("b-*"))):
        with pytest.raises(ValueError, match=r"Expected 3 shards '.*b-\*-of-3.jsonl' of a log, got 2\. Copy all"):
            read.log_files(paths)


def test_a_run_that_logged_nothing_is_told_how(tmp_path):
    for name in ("config.yaml", "log.jsonl", "versions.json"):
        write_text(tmp_path, name, "{}")
    with pytest.raises(ValueError, match=r"got a run that logged none\. .*`--log_completions true`"):
        read.log_files([tmp_path])
    with pytest.raises(ValueError, match=r"completions', which is not there\. .*`--log_completions true`"):
        read.log_files([tmp_path / "completions"])


def test_a_table_that_is_written_again_is_read_once(tmp_path):
    """TRL keeps the last completions, and writes them at every logging step, also where it generated nothing new."""
    for number, (step, text) in enumerate(((1, "a"), (2, "a"), (3, "b"), (4, "a"))):
        write_text(tmp_path, f"{number}.jsonl", json.dumps({"completion": text, "step": step}))
    log = read.read_completions([tmp_path])
    assert log.completions == ["a", "b", "a"]
    assert log.notes[0].startswith("Tables of the log that repeat the one before them are left out: 1.")


@pytest.mark.parametrize("column", read.TEXT_COLUMNS)
def test_the_column_with_the_text_is_found(column):
    assert read.read_completions([{"id": "a", column: "[]"}])[0] == ["[]"]


@pytest.mark.parametrize(("name", "text", "places"), table("logs/rows", "rows_without_a_completion_are_named"))
def test_rows_without_a_completion_are_named(tmp_path, name, text, places):
    path = write_text(tmp_path, name, text)
    rows = "row" if len(places) == 1 else "rows"
    named = ", ".join(f"{place} of {str(path)!r}" for place in places)
    with pytest.raises(ValueError, match=re.escape(f"got none or no text in {len(places)} {rows}: {named}. Remove")):
        read.read_completions([path])


def test_an_empty_text_of_a_table_is_an_answer(tmp_path):
    path = write_text(tmp_path, "log.csv", "completion,response,width,prompt_opens_thinking\n,[],,False\n,,9,True\n")
    log = read.read_completions([path])
    assert log.completions == ["[]", ""]
    assert [row.get("width") for row in log.rows] == [None, 9.0]
    assert [row["prompt_opens_thinking"] for row in log.rows] == [False, True]


@pytest.mark.parametrize(("columns", "boxes"), table("logs/rows", "ground_truth_in_one_string_is_unpacked"))
def test_ground_truth_in_one_string_is_unpacked(columns, boxes):
    assert read.read_completions([{"text": "[]", **columns}]).rows[0].get("boxes") == boxes


@pytest.mark.parametrize("column", ["output", "response", "completion"])
def test_objects_that_are_no_messages_are_refused(column) -> None:
    with pytest.raises(ValueError, match="got a mapping with the keys score in 2 rows: row 1 of"):
        read.read_completions([{"id": str(k), column: {"score": 1}} for k in range(2)])


@pytest.mark.parametrize(("name", "column", "message"), table("logs/rows", "logs_without_completions_are_refused"))
def test_logs_without_completions_are_refused(tmp_path, name, column, message):
    write_text(tmp_path, "blank.jsonl", "\n")
    write_text(tmp_path, "log.jsonl", '{"prompt": "x", "id": 1}')
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=message):
        read.read_completions([tmp_path / name], text_column=column)


IMAGE_OF_LOG = {"id": "a", "completion": "[]", "boxes": [[0, 0, 9, 9]], "width": 50, "height": 40}


@pytest.mark.parametrize(
    ("change", "doubt"), table("logs/rows", "rows_with_boxes_off_the_image_are_counted_and_placed")
)
def test_rows_with_boxes_off_the_image_are_counted_and_placed(change, doubt):
    (sentence,) = read.off_image_notes(
        read.read_completions([{**IMAGE_OF_LOG, **(change if k == 11 else {})} for k in range(30)])
    )
    assert doubt in sentence
    assert sentence.startswith("1 of 30 rows have")
