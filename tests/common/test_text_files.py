"""Hostile and foreign text files: one table over the folder loader, the reader behind `prepare`, and the doctor."""

import gzip
import json
import re

import pytest

from grounding_rewards.cli import main
from grounding_rewards.common import text_files
from grounding_rewards.common.text_files import decoded_lines, parse_yaml, read_text, read_yaml, text_lines

pytest.importorskip("datasets", reason="needs the train extra")

from PIL import Image

from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.rows import open_rows
from grounding_rewards.parsing import get_box_format
from grounding_rewards.prepare.load import load_images
from grounding_rewards.sources.jsonl import read_jsonl
from grounding_rewards.sources.tables import read_rows as read_cells
from tests.tables import table

SOUND = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 11, 22]], "labels": ["mass"], "split": "train"}


def line(**changes):
    return json.dumps({**SOUND, **changes}).encode()


def with_text(old, new):
    return line().replace(old, new)


# The second of three lines, and what every one of the three says of it; "" where it is sound.
LINES = [
    (line(), ""),
    (b"", ""),  # a blank line
    (json.dumps({**SOUND, "labels": ["mass\u2028nodule\u0085"]}, ensure_ascii=False).encode(), ""),
    (line().replace(b"mass", b"m\xe4ss"), "0xe4"),  # Latin-1, as old Windows programs write it
    (line().decode().encode("utf-16-le"), "not JSON"),
    (with_text(b'"boxes"', b'"more": ' + b"[" * 100_000 + b', "boxes"'), "levels"),
    (with_text(b'"labels"', b'"boxes": [], "labels"'), "the key 'boxes' twice"),
    (line()[:40], "not JSON"),
    (b"[1, 2]", "a JSON object"),
]


@pytest.mark.parametrize(("second", "problem"), LINES, ids=[f"{k}-{problem}" for k, (_, problem) in enumerate(LINES)])
def test_loader_prepare_and_doctor_agree_on_every_line(tmp_path, second, problem):
    Image.new("L", (40, 30)).save(tmp_path / "a.png")
    (tmp_path / "annotations.jsonl").write_bytes(b"\n".join([b"\xef\xbb\xbf" + line(id="1"), second, line(id="3")]))
    checkup = examine(open_rows(str(tmp_path)))
    unreadable = [defect for defect in checkup.defects if defect.name == "unreadable-row"]
    if not problem:
        assert not unreadable
        assert load_images(tmp_path).num_rows == len(list(read_jsonl(tmp_path)))
        return
    assert problem in unreadable[0].examples[0].detail
    assert "line 2 " in unreadable[0].examples[0].detail
    for read in (load_images, lambda root: list(read_jsonl(root))):
        with pytest.raises(ValueError, match=problem) as error:
            read(tmp_path)
        assert "line 2" in str(error.value)
        assert "annotations.jsonl" in str(error.value)
        assert len(str(error.value)) < 1000


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\0 broken", b"", b"no gzip"])
def test_archives_that_cannot_be_unpacked_are_named(tmp_path, content):
    (tmp_path / "a.csv.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.csv\.gz"):
        read_cells(tmp_path / "a.csv.gz", ("a", "b"))


@pytest.mark.parametrize("content", [b"x" * 5000, b"x\n" * 2500])
def test_archives_that_would_fill_the_memory_are_named(tmp_path, monkeypatch, content):
    monkeypatch.setattr(text_files, "_LARGEST_UNPACKED", 4000)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content))
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.txt\.gz, got an archive of more than 4,000 bytes"):
        read_text(tmp_path / "a.txt.gz")
    assert read_text(tmp_path / "a.txt") == content.decode()


def laughs(levels):
    """A mapping of a few lines that stands for 9 ** levels entries."""
    return "".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]\n" for n in range(levels))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *table("common/tables", "yaml_cannot_run_away"),
        (laughs(9), "aliases that repeat its parts into more than 1,000,000"),
        ("[" * 100_000, "too many levels"),
        ("\n".join("  " * n + "a:" for n in range(3000)), "too many levels"),
        ("a: " + "9" * 9999, "digits"),
        ("a: 1" + ":00" * 200 + ".0", "not what its tag or its form says"),  # sixty to the 200th
    ],
)
def test_yaml_cannot_run_away(tmp_path, content, said):
    (tmp_path / "a.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=said) as error:
        read_yaml(tmp_path / "a.yaml")
    assert "a.yaml" in str(error.value)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a: &a [1, 2]\nb: *a\n", {"a": [1, 2], "b": [1, 2]}),
        # a key may override what an alias brings
        ("base: &b {a: 1}\nown: {<<: *b, a: 2}\n", {"base": {"a": 1}, "own": {"a": 2}}),
        ("1: x\n'1': y\n", {1: "x", "1": "y"}),
        ("", None),
    ],
)
def test_what_stays_small_is_read(text, content):
    assert parse_yaml(text) == content


@pytest.mark.parametrize(
    "text",
    [
        "{" + laughs(9).replace("\n", ", ") + "}",
        '{"a": ' + "[" * 9_000,  # JSON's own parser takes stack for every bracket
        "{syntax: !!python/name:os.system }",
        "{syntax: json, note: " + "x" * 10_000 + "}",
    ],
)
def test_a_hostile_box_format_in_a_table_is_refused(text):
    with pytest.raises(ValueError, match="`box_format`"):
        get_box_format(text)


def test_a_missing_file_is_named(tmp_path):
    for read in (read_text, lambda path: list(text_lines(path)), lambda path: list(decoded_lines(path)), read_yaml):
        with pytest.raises(ValueError, match=r"gone\.txt.*got none\. Check the path"):
            read(tmp_path / "gone.txt")


ANSWER = {"completion": "[]", "boxes": [], "labels": [], "width": 9, "height": 9, "id": "a"}


def answer(**changes):
    return json.dumps({**ANSWER, **changes}).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (answer(completion="\ud800 \0 []"), ""),  # a model may write anything
        (json.dumps({**ANSWER, "completion": "x\u2028[]"}, ensure_ascii=False).encode(), ""),
        (answer().decode().encode("utf-16"), "UTF-8"),
        (answer().replace(b'"a"', b'"\xe4"'), "UTF-8"),
        (answer().replace(b'"id"', b'"m": ' + b"[" * 100_000 + b', "id"'), "too many levels"),
    ],
)
def test_errors_in_logs_name_file_and_line(tmp_path, capsys, content, said):
    log, out = tmp_path / "log.jsonl", tmp_path / "out.jsonl"
    log.write_bytes(answer(id="first") + b"\n" + content)
    code = main(["score", str(log), "--rewards", "R4", "--box-format", "qwen3-vl", "--out", str(out)])
    assert (code, out.exists()) == ((2, False) if said else (0, True))
    assert re.search(rf"line 2 of .*log\.jsonl.*{said}", capsys.readouterr().err) or not said
