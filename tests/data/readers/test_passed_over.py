"""Films that a reader cannot read: an error, or left out and listed by `prepare --bad-films skip`."""

from __future__ import annotations

import functools
import json

import pytest

pytest.importorskip("datasets", reason="needs the train extra")

from PIL import Image

from grounding_rewards.data.prepare import PrepareSettings, prepare_films
from grounding_rewards.data.readers.jsonl import read_jsonl
from grounding_rewards.data.readers.passed_over import passing_over
from grounding_rewards.data.readers.yolo import read_yolo

SOUND = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 11, 22]], "labels": ["mass"], "split": "train"}
BROKEN = [
    b"{",
    b"\xff",
    b'{"a": "\\ud800"}',
    b"[" * 100_000,
    json.dumps({**SOUND, "boxes": [[1, 2, 3]]}).encode(),
    json.dumps({**SOUND, "labels": []}).encode(),
]


def write(root, lines):
    Image.linear_gradient("L").resize((40, 30)).save(root / "a.png")
    (root / "annotations.jsonl").write_bytes(b"\n".join(lines))


@pytest.mark.parametrize("broken", BROKEN, ids=[str(line[:20]) for line in BROKEN])
def test_prepare_stops_at_a_line_or_leaves_it_out(tmp_path, broken):
    write(tmp_path, [json.dumps({**SOUND, "id": "1"}).encode(), broken, json.dumps({**SOUND, "id": "3"}).encode()])
    read = functools.partial(read_jsonl, tmp_path)
    with pytest.raises(ValueError, match="line 2"):
        prepare_films(read, tmp_path, tmp_path / "out", PrepareSettings("jsonl", "qwen3-vl"))
    settings = PrepareSettings("jsonl", "qwen3-vl", bad_films="skip")
    manifest = prepare_films(read, tmp_path, tmp_path / "out", settings)
    assert manifest["splits"]["train"]["films_with_rows"] == 2
    (fault,) = manifest["unreadable"]
    assert "line 2" in fault
    card = (tmp_path / "out" / "README.md").read_text()
    assert "1 films could not be read and were left out:" in card
    assert fault in card


def test_a_label_file_that_is_broken_costs_its_film_alone(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    (tmp_path / "classes.txt").write_text("mass\n")
    for name, label in {"a": "0 0.5 0.5 0.5 0.5", "b": "0 0.5", "c": ""}.items():
        Image.new("L", (40, 30)).save(tmp_path / "images" / f"{name}.png")
        (tmp_path / "labels" / f"{name}.txt").write_text(label)
    with pytest.raises(ValueError, match=r"b\.txt"):
        list(read_yolo(tmp_path))
    with passing_over() as faults:
        assert [film.id for film in read_yolo(tmp_path)] == ["images/a.png", "images/c.png"]
    assert len(faults) == 1
    with pytest.raises(ValueError, match=r"b\.txt"):
        list(read_yolo(tmp_path))  # again an error
