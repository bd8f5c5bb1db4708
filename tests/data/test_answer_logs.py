"""Films and completions, brought together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from grounding_rewards.data.answer_logs import read_log
from grounding_rewards.metrics.answers import read_answers
from grounding_rewards.rewards.grounding import get_reward


def write(path: Path, *rows: dict) -> list[Path]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [path]


def test_a_log_that_knows_its_films(tmp_path):
    log = write(
        tmp_path / "log.jsonl",
        {"id": "a", "completion": "[]", "boxes": [], "width": 10, "height": 20},
        {"id": "b", "completion": "x", "boxes": [[0, 0, 1, 1]], "width": 10, "height": 20},
        {"id": "a", "completion": "again", "boxes": [], "width": 10, "height": 20},
    )
    answers = read_log(log)
    assert [row["id"] for row in answers.rows] == ["a", "b"]
    assert answers.texts == [["[]", "again"], ["x"]]
    assert answers.load_image(0) is None


def test_a_csv_log_with_labels_is_evaluated_as_it_is_scored(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text('id,completion,boxes,labels,width,height\na,[],"[[0, 0, 5, 5]]","[""nodule""]",10,20\n')
    answers = read_log([log])
    films = read_answers(answers.rows, answers.texts, get_reward("R4", box_format="qwen3-vl"))
    assert films[0].gt_labels == ("nodule",)


def test_two_films_of_one_name_are_refused(tmp_path):
    log = write(
        tmp_path / "log.jsonl", {"id": "a", "text": "[]", "boxes": []}, {"id": "a", "text": "", "boxes": [[0] * 4]}
    )
    with pytest.raises(ValueError, match="Expected the same `boxes` in all rows of one film, got others for id 'a'"):
        read_log(log)


def test_images_are_found_beside_the_log(tmp_path):
    Image.new("L", (4, 4), 7).save(tmp_path / "a.png")
    log = write(tmp_path / "log.jsonl", {"text": "[]", "boxes": [], "image": "a.png"}, {"text": "", "image": "b.png"})
    answers = read_log(log, sizes={"width": 4, "height": None})
    assert answers.rows[0]["width"] == 4
    assert "height" not in answers.rows[0]
    assert answers.rows[0]["image_path"] == str(tmp_path / "a.png")
    assert answers.load_image(0).getpixel((0, 0)) == 7
    assert answers.load_image(1) is None


def test_a_dicom_film_is_found_and_opened(tmp_path):
    pytest.importorskip("pydicom", reason="needs the extra dicom")
    from grounding_rewards.data.synthetic import draw_radiograph, write_dicom

    film = write_dicom(draw_radiograph(3, "pa-256"), tmp_path)
    answers = read_log(write(tmp_path / "log.jsonl", {"text": "[]", "boxes": [], "image": film.name}))
    assert (answers.load_image(0).mode, answers.load_image(0).size) == ("L", (211, 256))


def test_a_broken_image_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    answers = read_log(write(tmp_path / "log.jsonl", {"text": "[]", "boxes": [], "image": "a.png"}))
    with pytest.raises(ValueError, match=r"Expected an image in '.*a\.png', got .*Replace the file"):
        answers.load_image(0)


def test_the_columns_of_a_row_stand_above_the_sizes_for_all(tmp_path):
    log = write(tmp_path / "log.jsonl", {"text": "[]", "boxes": [], "width": 9})
    assert read_log(log, sizes={"width": 4}).rows[0]["width"] == 9


def test_films_of_a_dataset_by_name_in_the_order_of_the_dataset(films, tmp_path):
    names = ["four", "two", "one", "three", "two"]
    log = write(
        tmp_path / "log.jsonl", *({"id": name, "text": f"{k}", "resized_width": 5} for k, name in enumerate(names))
    )
    answers = read_log(log, dataset=films)
    assert answers.texts == [["2"], ["1", "4"], ["3"], ["0"]]
    assert [row["id"] for row in answers.rows] == ["one", "two", "three", "four"]
    assert answers.rows[0]["resized_width"] == 5
    assert answers.rows[0]["boxes"] == [[0, 0, 50, 50]]


def test_films_of_a_dataset_in_their_order_where_the_log_has_no_names(films, tmp_path):
    log = write(tmp_path / "log.jsonl", *({"text": str(k)} for k in range(4)))
    assert read_log(log, dataset=films).texts == [["0"], ["1"], ["2"], ["3"]]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["one", "two", "three", "five"], "got 'five', and 0 more"),  # of another split
        (["one", "two"], "got 2 of 4; the first without one is 'three'"),  # a run that was not finished
        ([None, None], "got 2 completions for 4 films"),  # nothing to go by
    ],
)
def test_films_and_completions_that_do_not_fit_are_refused(films, tmp_path, names, expected):
    log = write(tmp_path / "log.jsonl", *({"id": name, "text": "[]"} for name in names))
    with pytest.raises(ValueError, match=expected):
        read_log(log, dataset=films)


def test_a_size_of_another_name_is_refused(tmp_path):
    log = write(tmp_path / "log.jsonl", {"text": "[]", "boxes": []})
    with pytest.raises(ValueError, match="got 'depth'"):
        read_log(log, sizes={"depth": 4})
