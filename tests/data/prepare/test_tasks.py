"""Rows of each task, by hand; the share of negatives; the readers' policies on what a prompt asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.data.prepare.settings import PrepareSettings
from grounding_rewards.data.prepare.survey import survey_films
from grounding_rewards.data.prepare.tasks import prompt_of, task_rows
from grounding_rewards.data.readers.base import FilmRecord

A, B, C = [0, 0, 10, 10], [20, 20, 30, 30], [40, 40, 60, 60]
FILMS = [
    FilmRecord("both", "1.png", [A, B, C], ["mass", "effusion", "mass"], phrases=("two masses", "fluid", "two masses")),
    FilmRecord("normal", "2.png", [], []),
    FilmRecord("fluid", "3.png", [B], ["effusion"], phrases=("fluid",)),
]


def settings(**values):
    return PrepareSettings(**{"dataset": "jsonl", "box_format": "qwen3-vl", **values})


def rows_of(films, **values):
    plan = survey_films(films, settings(**values)).plan
    return [row for film in films for row in task_rows(film, plan)]


def test_detection_asks_every_film_for_everything():
    rows = rows_of(FILMS)
    assert [(row.id, row.boxes, row.labels) for row in rows] == [
        ("both", [A, B, C], ["mass", "effusion", "mass"]),
        ("normal", [], []),
        ("fluid", [B], ["effusion"]),
    ]
    assert {row.what for row in rows} == {("effusion", "mass")}


def test_findings_of_no_interest_are_left_out():
    rows = rows_of(FILMS, labels=("mass",))
    assert [(row.id, row.labels, row.what) for row in rows] == [
        ("both", ["mass", "mass"], ("mass",)),
        ("normal", [], ("mass",)),
        ("fluid", [], ("mass",)),
    ]


def test_finding_asks_for_one_at_a_time():
    # 0.9 asks for more films without a finding than there are, so all of them are asked.
    rows = rows_of(FILMS, task="finding", negatives=0.9)
    assert [(row.id, row.what, row.boxes) for row in rows] == [
        ("both/effusion", "effusion", [B]),
        ("both/mass", "mass", [A, C]),
        ("normal/effusion", "effusion", []),
        ("normal/mass", "mass", []),
        ("fluid/effusion", "effusion", [B]),
        ("fluid/mass", "mass", []),
    ]


def test_no_negatives_where_none_are_wanted():
    assert all(row.boxes for row in rows_of(FILMS, task="finding", negatives=0.0))


def test_phrase_asks_for_one_phrase_with_all_its_boxes():
    rows = rows_of(FILMS, task="phrase")
    assert [(row.id, row.phrase, row.boxes) for row in rows] == [
        ("both/0", "two masses", [A, C]),
        ("both/1", "fluid", [B]),
        ("fluid/0", "fluid", [B]),
    ]


@pytest.mark.parametrize("negatives", [0.2, 0.5, 0.8])
def test_the_share_of_negatives_is_that_of_each_finding(negatives):
    found = {0: "mass", 1: "rare", 10: "mass"}
    films = [
        FilmRecord(str(n), "1.png", [A], [found[n % 20]]) if n % 20 in found else FilmRecord(str(n), "1.png", [], [])
        for n in range(4000)
    ]
    rows = rows_of(films, task="finding", negatives=negatives)
    for label in ("mass", "rare"):
        asked = [row for row in rows if row.what == label]
        # 200 rows with the rare finding: four standard deviations of the number of negatives
        assert sum(not row.boxes for row in asked) / len(asked) == pytest.approx(negatives, abs=0.08)


def test_which_negatives_are_asked_does_not_depend_on_their_order():
    films = [FilmRecord(f"{n}", f"{n}.png", [A] * (n % 4 == 0), ["mass"] * (n % 4 == 0)) for n in range(200)]
    chosen = [{row.id for row in rows_of(order, task="finding")} for order in (films, films[::-1])]
    assert chosen[0] == chosen[1]


READ = FilmRecord(
    "read",
    "1.png",
    [A, [0, 0, 10, 9], B],
    ["mass", "mass", "effusion"],
    readers=("R1", "R2", "R2"),
    read_by=("R1", "R2", "R3"),
)
NORMAL = FilmRecord("normal", "2.png", [], [], read_by=("R1", "R2", "R3"))


def test_films_of_several_readers_need_a_policy():
    with pytest.raises(ValueError, match="because 3 people read film read, got none"):
        rows_of([READ])


def test_policies_apply_to_what_is_asked():
    by_id = {row.id: row for row in rows_of([READ, NORMAL], task="finding", readers="ignore", negatives=0.9)}
    assert len(by_id["read/mass"].boxes) == 1
    assert by_id["read/mass"].ignore_boxes == []
    # One of three saw it: neither there nor absent, so it is not asked for as a negative.
    assert "read/effusion" not in by_id
    assert by_id["normal/mass"].boxes == []


def test_any_of_keeps_every_reader():
    (row,) = rows_of([READ], readers="any-of")
    assert [len(boxes) for boxes in row.reader_boxes] == [1, 2, 0]
    assert row.reader_labels == [["mass"], ["mass", "effusion"], []]
    by_id = {row.id: row for row in rows_of([READ], task="finding", readers="any-of")}
    assert [len(boxes) for boxes in by_id["read/effusion"].reader_boxes] == [0, 1, 0]


def test_films_with_ignored_regions_are_no_negatives():
    crowd = FilmRecord("crowd", "1.png", [], [], ignored=((1, 1, 5, 5),))
    rows = rows_of([crowd, *FILMS], task="finding", negatives=0.9)
    assert not [row for row in rows if row.id.startswith("crowd")]
    detected = rows_of([crowd, *FILMS])
    assert detected[0].ignore_boxes == [[1, 1, 5, 5]]


@given(st.integers(0, 5), st.text(min_size=1, max_size=8))
def test_wording_depends_on_id_and_seed_alone(seed, name):
    film = FilmRecord(name, "1.png", [A], ["mass"])
    one = settings(seed=seed)
    (row,) = task_rows(film, survey_films([film], one).plan)
    (again,) = task_rows(film, survey_films([FILMS[1], film], one).plan)
    assert prompt_of(row, one) == prompt_of(again, one)


def test_wording_varies_unless_it_should_not():
    films = [FilmRecord(str(n), "1.png", [A], ["mass"]) for n in range(40)]
    for one_wording, expected in ((False, 4), (True, 1)):
        asked = settings(one_wording=one_wording)
        plan = survey_films(films, asked).plan
        assert len({str(prompt_of(row, asked)) for film in films for row in task_rows(film, plan)}) == expected


@pytest.mark.parametrize(
    ("films", "values", "message"),
    [
        ([], {}, "Expected at least one film"),
        ([FILMS[1]], {}, "Expected at least one box"),
        ([FILMS[0], FILMS[0]], {}, "a second one with the id 'both'"),
        ([FILMS[2]._replace(labels=[])], {}, "one of `labels` per box on film fluid, got 0 for 1 boxes"),
        (FILMS, {"labels": ("Mass",)}, "findings of the dataset for labels, got 'Mass'. It has: effusion, mass"),
        ([FILMS[1]._replace(boxes=[A], labels=["x"])], {"task": "phrase"}, "Expected phrases for the task phrase"),
        ([FILMS[1]._replace(split="fold 1")], {}, "name of a split, got 'fold 1'"),
    ],
)
def test_datasets_that_cannot_be_asked_are_refused(films, values, message):
    with pytest.raises(ValueError, match=message):
        rows_of(films, **values)
