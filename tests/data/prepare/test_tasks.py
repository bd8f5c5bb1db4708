"""Rows of each task, by hand; the share of negatives; the readers' policies on what a prompt asks for."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.data.prepare.planned_films import count_films, planned_films, with_negatives
from grounding_rewards.data.prepare.settings import PrepareSettings
from grounding_rewards.data.prepare.survey import survey_films
from grounding_rewards.data.prepare.tasks import prompt_of, task_rows
from grounding_rewards.data.prompts import format_instruction
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


SPECK = [5, 5, 9, 30]


def test_small_boxes_make_no_negatives():
    """A film whose boxes are all specks is neither positive nor negative; beside a large box, specks are dropped."""
    films = [
        FilmRecord("speck", "1.png", [SPECK], ["mass"]),
        FilmRecord("beside", "2.png", [A, SPECK], ["mass", "effusion"], phrases=("large", "small")),
        FilmRecord("normal", "3.png", [], []),
        FilmRecord("broken", "4.png", [[9, 5, 5, 30]], ["mass"]),
    ]
    asked = settings(smallest_box=5, task="finding", negatives=0.9)
    survey = survey_films(films, asked)
    assert survey.boxes == {"mass": 2}
    # A box of no area is broken, not small: it is refused where films are written.
    assert survey.small == (2, 2, 1)
    assert [(row.id, row.boxes) for row in rows_of(films, smallest_box=5)] == [
        ("beside", [A]),
        ("normal", []),
        ("broken", [[9, 5, 5, 30]]),
    ]
    assert [row.id for row in rows_of(films, smallest_box=5, task="finding", negatives=0.9)] == [
        "beside/mass",
        "normal/mass",
        "broken/mass",
    ]
    assert [row.phrase for row in rows_of(films, smallest_box=5, task="phrase")] == ["large"]
    # By the shorter side, and not below it
    assert len(rows_of(films, smallest_box=4)) == 4


def test_a_small_finding_is_no_negative_where_others_are_of_no_interest():
    film = FilmRecord("film", "1.png", [A, SPECK], ["mass", "effusion"])
    other = FilmRecord("other", "2.png", [B], ["effusion"])
    assert [row.id for row in rows_of([film, other], labels=("effusion",), smallest_box=5)] == ["other"]


def test_a_speck_of_one_reader_leaves_the_box_of_another():
    film = FilmRecord("film", "1.png", [A, SPECK], ["mass", "mass"], readers=("R1", "R2"))
    (row,) = rows_of([film], smallest_box=5, readers="any-of")
    assert row.reader_boxes == [[A], []]


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0, 0.99))
def test_the_share_of_films_without_findings(positive, normal, share):
    """Exactly the share that was asked for, to half a film, or all there are; other splits keep theirs."""
    films = [FilmRecord(f"p{k}", "1.png", [A], ["mass"], split="train") for k in range(positive)]
    films += [FilmRecord(f"n{k}", "1.png", [], [], split="train") for k in range(normal)]
    films += [FilmRecord(f"t{k}", "1.png", [], [], split="test") for k in range(5)]
    survey = with_negatives(lambda: films, survey_films(films, settings(negatives=share)))
    counts = count_films(films, survey)
    kept = counts["train"].negatives
    assert kept == min(normal, round(positive * share / (1 - share)))
    assert survey.negatives_left_out.get("train", 0) == normal - kept
    assert (counts["train"].films, counts["test"].negatives) == (positive + kept, 5)


def test_a_share_for_each_split_by_hash():
    films = [
        FilmRecord(f"{split}{k}", "1.png", [A] * (k % 4 == 0), ["mass"] * (k % 4 == 0), split=split)
        for split in ("train", "test")
        for k in range(40)
    ]

    def kept(seed):
        chosen = settings(negatives=(("train", 0.5), ("test", 0.2)), seed=seed)
        planned = planned_films(films, with_negatives(lambda: films, survey_films(films, chosen)))
        return [film.record.id for film in planned]

    assert kept(0) == kept(0) != kept(1)
    # 10 films with a mass each; 10 of 20 and 2 or 3 of 12.5 rows without
    assert [sum(name.startswith(split) for name in kept(0)) for split in ("train", "test")] == [20, 12]
    chosen = settings(negatives=(("tset", 0.5),))
    with pytest.raises(
        ValueError, match="shares of negatives for splits that there are, train, test, got one for 'tset'"
    ):
        with_negatives(lambda: films, survey_films(films, chosen))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "phrase", "negatives": 0.5}, "Expected no share of negatives for the task phrase"),
        ({"task": "finding", "negatives": (("train", 0.5),)}, "Expected one share of negatives for the task finding"),
        ({"negatives": 1.0}, "Expected 0 <= negatives < 1, got 1.0"),
        ({"negatives": (("train", -0.1),)}, "Expected 0 <= negatives < 1, got -0.1"),
        ({"smallest_box": 0.0}, "above 0 for smallest_box, got 0.0"),
        ({"smallest_box": float("nan")}, "above 0 for smallest_box, got nan"),
        ({"template": " "}, "Expected words for the template"),
        # another task's placeholder, and a slip
        ({"template": "Find {finding}."}, "got {finding}"),
        ({"template": "Find {lables}."}, "got {lables}"),
        ({"template": "Find the mass.", "task": "finding"}, "Expected {finding} in a template"),
        ({"template": "Find it.", "task": "phrase"}, "Expected {phrase} in a template"),
        ({"template": "Find {labels} in pixel coordinates."}, "asks for the space pixels"),
        ({"template": "Find {labels} as [y1, x1, y2, x2]. {format}"}, "asks for the order yxyx"),
        ({"template": "Answer in JSON: {labels}", "box_format": "paligemma"}, "asks for the syntax JSON"),
    ],
)
def test_settings_that_contradict(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        settings(**values)


def test_a_template_of_ones_own():
    template = 'Where is {finding}? {format}\nAs in {"a": 1}.'
    asked = settings(task="finding", template=template, negatives=0.0)
    film = FilmRecord("film", "1.png", [A], ["{format} mass"])
    (row,) = task_rows(film, survey_films([film], asked).plan)
    # A finding's own braces are no placeholder, and neither is JSON.
    expected = f'Where is {{format}} mass? {format_instruction("qwen3-vl")}\nAs in {{"a": 1}}.'
    assert prompt_of(row, asked)[0]["content"] == [{"type": "image"}, {"type": "text", "text": expected}]
