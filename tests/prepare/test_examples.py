"""Rows of each task, by hand; the share of negatives; merging strategies on what a prompt asks for."""

import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.prompts import format_instruction
from grounding_rewards.prepare.examples import make_plan, planned_images, prompt_of
from grounding_rewards.prepare.settings import PrepareSettings
from tests.tables import table

A, B, C = [0, 0, 10, 10], [20, 20, 30, 30], [40, 40, 60, 60]
TWO = "two masses"
IMAGES = [
    AnnotatedImage("both", "1.png", [A, B, C], ["mass", "effusion", "mass"], phrases=(TWO, "fluid", TWO)),
    AnnotatedImage("normal", "2.png", [], []),
    AnnotatedImage("fluid", "3.png", [B], ["effusion"], phrases=("fluid",)),
]


def settings(**values):
    return PrepareSettings(**{"dataset": "jsonl", "box_format": "qwen3-vl", **values})


def rows_of(images, **values):
    planned = planned_images(make_plan(images, settings(**values)))
    return [example for entry in planned for example in entry.examples]


@pytest.mark.parametrize(("values", "expected"), table("prepare/tables", "tasks"))
def test_what_each_task_asks(values, expected):
    rows = rows_of(IMAGES, **values)
    # What is looked for is a tuple where there is a list.
    assert json.loads(json.dumps([[row["id"], row["looked_for"], row["boxes"]] for row in rows])) == expected
    if values.get("task") == "phrase":
        assert all(row["phrase"] == row["looked_for"] for row in rows)
    assert all(len(row["labels"]) == len(row["boxes"]) for row in rows)


@pytest.mark.parametrize("negatives", [0.2, 0.5, 0.8])
def test_the_share_of_negatives_is_that_of_each_finding(negatives):
    found = {0: "mass", 1: "rare", 10: "mass"}
    labels = [[found[n % 20]] if n % 20 in found else [] for n in range(4000)]
    images = [AnnotatedImage(str(n), "1.png", [A] * len(own), own) for n, own in enumerate(labels)]
    rows = rows_of(images, task="finding", negatives=negatives)
    for label in ("mass", "rare"):
        asked = [row for row in rows if row["looked_for"] == label]
        # 200 rows with the rare finding: four standard deviations of the number of negatives
        assert sum(not row["boxes"] for row in asked) / len(asked) == pytest.approx(negatives, abs=0.08)


def test_which_negatives_are_asked_does_not_depend_on_their_order():
    images = [AnnotatedImage(f"{n}", f"{n}.png", [A] * (n % 4 == 0), ["mass"] * (n % 4 == 0)) for n in range(200)]
    chosen = [{row["id"] for row in rows_of(order, task="finding")} for order in (images, images[::-1])]
    assert chosen[0] == chosen[1]


NORMAL = AnnotatedImage("normal", "2.png", [], [], read_by=("R1", "R2", "R3"))
READ = NORMAL._replace(id="read", boxes=[A, [0, 0, 10, 9], B], labels=["mass", "mass", "effusion"])
READ = READ._replace(readers=("R1", "R2", "R2"))


def test_strategies_apply_to_what_is_asked():
    by_id = {row["id"]: row for row in rows_of([READ, NORMAL], task="finding", readers="ignore", negatives=0.9)}
    assert len(by_id["read/mass"]["boxes"]) == 1
    assert by_id["read/mass"]["ignore_boxes"] == []
    # One of three saw it: neither there nor absent, so it is not asked for as a negative.
    assert "read/effusion" not in by_id
    assert by_id["normal/mass"]["boxes"] == []


def test_any_of_keeps_every_reader():
    (row,) = rows_of([READ], readers="any-of")
    assert [len(boxes) for boxes in row["reader_boxes"]] == [1, 2, 0]
    assert row["reader_labels"] == [["mass"], ["mass", "effusion"], []]
    by_id = {row["id"]: row for row in rows_of([READ], task="finding", readers="any-of")}
    assert [len(boxes) for boxes in by_id["read/effusion"]["reader_boxes"]] == [0, 1, 0]


def test_images_with_ignored_regions_are_no_negatives():
    crowd = AnnotatedImage("crowd", "1.png", [], [], ignored=((1, 1, 5, 5),))
    rows = rows_of([crowd, *IMAGES], task="finding", negatives=0.9)
    assert not [row for row in rows if row["id"].startswith("crowd")]
    assert rows_of([crowd, *IMAGES])[0]["ignore_boxes"] == [[1, 1, 5, 5]]


@given(st.integers(0, 5), st.text(min_size=1, max_size=8))
def test_wording_depends_on_id_and_seed_alone(seed, name):
    image = AnnotatedImage(name, "1.png", [A], ["mass"])
    (row,) = rows_of([image], seed=seed)
    _, again = rows_of([IMAGES[1], image], seed=seed)
    assert prompt_of(row, settings(seed=seed)) == prompt_of(again, settings(seed=seed))


def test_wording_varies():
    rows = rows_of([AnnotatedImage(str(n), "1.png", [A], ["mass"]) for n in range(40)])
    assert len({str(prompt_of(row, settings())) for row in rows}) == 4


@pytest.mark.parametrize(
    ("images", "values", "message"),
    [
        ([], {}, "Expected at least one image"),
        ([IMAGES[1]], {}, "Expected at least one box"),
        ([IMAGES[0], IMAGES[0]], {}, "a second one with the id 'both'"),
        ([IMAGES[2]._replace(labels=[])], {}, "one of `labels` per box on image fluid, got 0 for 1 boxes"),
        (IMAGES, {"labels": ("Mass",)}, "findings of the dataset for labels, got 'Mass'. It has: effusion, mass"),
        ([IMAGES[1]._replace(boxes=[A], labels=["x"])], {"task": "phrase"}, "Expected phrases for the task phrase"),
        ([IMAGES[1]._replace(boxes=[[0.1, 0.2, 0.4, 1]], labels=["x"])], {}, "none beyond 1: they look like fractions"),
        ([IMAGES[1]._replace(split="fold 1")], {}, "name of a split, got 'fold 1'"),
        ([READ], {}, "because 3 people read image read, got none"),
    ],
)
def test_datasets_that_cannot_be_asked_are_refused(images, values, message):
    with pytest.raises(ValueError, match=message):
        rows_of(images, **values)


SPECK = [5, 5, 9, 30]


def test_small_boxes_make_no_negatives():
    """An image whose boxes are all specks is neither positive nor negative; beside a large box, specks are dropped."""
    images = [
        AnnotatedImage("speck", "1.png", [SPECK], ["mass"]),
        AnnotatedImage("beside", "2.png", [A, SPECK], ["mass", "effusion"], phrases=("large", "small")),
        AnnotatedImage("normal", "3.png", [], []),
        AnnotatedImage("broken", "4.png", [[9, 5, 5, 30]], ["mass"]),
    ]
    # A box of no area is broken, not small: it is refused where images are written.
    plan = make_plan(images, settings(smallest_box=5))
    # Nobody is asked for a finding all of whose boxes are left out.
    assert (plan.facts["small_boxes"], plan.vocabulary) == (2, ("mass",))
    found = {row["id"]: row["boxes"] for row in rows_of(images, smallest_box=5)}
    assert list(found.items()) == [("beside", [A]), ("normal", []), ("broken", [[9, 5, 5, 30]])]
    rows = rows_of(images, smallest_box=5, task="finding", negatives=0.9)
    assert [row["id"] for row in rows] == ["beside/mass", "normal/mass", "broken/mass"]
    assert [row["phrase"] for row in rows_of(images, smallest_box=5, task="phrase")] == ["large"]
    # What is no box at all is refused with its image, too.
    assert make_plan([images[0]._replace(boxes=[[1, 2, 3]])], settings()).facts["small_boxes"] == 0
    # By the shorter side, and not below it
    assert len(rows_of(images, smallest_box=4)) == 4


def test_a_small_finding_is_no_negative_where_others_are_of_no_interest():
    image = AnnotatedImage("image", "1.png", [A, SPECK], ["mass", "effusion"])
    other = AnnotatedImage("other", "2.png", [B], ["effusion"])
    assert [row["id"] for row in rows_of([image, other], labels=("effusion",), smallest_box=5)] == ["other"]


def test_a_speck_of_one_reader_leaves_the_box_of_another():
    image = AnnotatedImage("image", "1.png", [A, SPECK], ["mass", "mass"], readers=("R1", "R2"))
    (row,) = rows_of([image], smallest_box=5, readers="any-of")
    assert row["reader_boxes"] == [[A], []]


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0, 0.99))
def test_the_share_of_images_without_findings(positive, normal, share):
    """Exactly the share that was asked for, to half an image, or all there are; other splits keep theirs."""
    images = [AnnotatedImage(f"p{k}", "1.png", [A], ["mass"], split="train") for k in range(positive)]
    images += [AnnotatedImage(f"n{k}", "1.png", [], [], split="train") for k in range(normal)]
    images += [AnnotatedImage(f"t{k}", "1.png", [], [], split="test") for k in range(5)]
    plan = make_plan(images, settings(negatives=share))
    kinds = Counter(entry.image.id[0] for entry in planned_images(plan))
    kept = min(normal, round(positive * share / (1 - share)))
    assert kinds == Counter({"p": positive, "n": kept, "t": 5})
    assert plan.facts["negatives_left_out"] == normal - kept


def test_a_share_is_chosen_by_hash_and_of_train_alone():
    counts = [k % 4 == 0 for k in range(40)]
    images = [AnnotatedImage(f"{k}", "1.png", [A] * n, ["mass"] * n, split="train") for k, n in enumerate(counts)]

    def kept(images, seed=0):
        return [row["id"] for row in rows_of(images, negatives=0.5, seed=seed)]

    assert kept(images) == kept(images) != kept(images, 1)
    with pytest.raises(ValueError, match="Expected images of train for a share of negatives, got none"):
        kept([image._replace(split="test") for image in images])


# The task, and what is in range and fits together
@pytest.mark.parametrize(("values", "message"), table("prepare/tables", "settings"))
def test_settings_that_contradict(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        settings(**values)


def test_a_template_of_ones_own():
    template = 'Where is {finding}? {format}\nAs in {"a": 1}.'
    asked = settings(task="finding", template=template, negatives=0.0)
    image = AnnotatedImage("image", "1.png", [A], ["{format} mass"])
    (row,) = rows_of([image], task="finding", template=template, negatives=0.0)
    # A finding's own braces are no placeholder, and neither is JSON.
    expected = f'Where is {{format}} mass? {format_instruction("qwen3-vl")}\nAs in {{"a": 1}}.'
    assert prompt_of(row, asked)[0]["content"] == [{"type": "image"}, {"type": "text", "text": expected}]


def images_of_which_some_are_bad(count):
    """Sixty images, whose first boxes reach off them."""
    boxes = [[10, 20, 420 if k < count else 300, 300] for k in range(60)]
    return [AnnotatedImage(str(k), f"{k}.png", [box], ["mass"], 400, 600, split="train") for k, box in enumerate(boxes)]


@pytest.mark.parametrize("bad", [0, 1, 29])
def test_rows_that_are_bad_one_by_one_pass_the_plan(bad):
    assert len(make_plan(images_of_which_some_are_bad(bad), settings(split="train")).images) == 60


def test_most_rows_are_not_bad_one_by_one():
    with pytest.raises(ValueError, match=r"got 40 of 60 images .* 420.* on 400 x 600.*Check the sizes of the images"):
        make_plan(images_of_which_some_are_bad(40), settings(bad_rows="drop"))
