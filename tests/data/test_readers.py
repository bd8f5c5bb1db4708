"""Several readers' boxes become one reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.readers import STRATEGIES, agreed_boxes, reference_boxes
from tests.conftest import valid_box_lists

A = [0.0, 0.0, 10.0, 10.0]
A9 = [0.0, 0.0, 10.0, 9.0]  # IoU 0.9 with A
A6 = [0.0, 0.0, 10.0, 6.0]  # IoU 0.6 with A, 2/3 with A9
A4 = [0.0, 0.0, 10.0, 4.0]  # IoU 0.4 with A, 2/3 with A6
A45 = [0.0, 0.0, 10.0, 4.5]  # IoU 0.45 with A, 0.5 with A9
FAR = [50.0, 50.0, 60.0, 60.0]


def image(name="1", **drawn):
    """An image from the boxes, or (box, label), of each reader."""
    readers = tuple(reader for reader, own in drawn.items() for _ in own)
    rows = [entry if isinstance(entry, tuple) else (entry, "mass") for own in drawn.values() for entry in own]
    boxes, labels = [box for box, _ in rows], [label for _, label in rows]
    return AnnotatedImage(name, f"{name}.png", boxes, labels, readers=readers, read_by=tuple(drawn))


def multiset(reference):
    return sorted(zip(reference["labels"], reference["boxes"], strict=True))


images = st.lists(
    valid_box_lists(max_size=4).flatmap(
        lambda boxes: st.tuples(*(st.tuples(st.just(box), st.sampled_from(["mass", "nodule"])) for box in boxes))
    ),
    min_size=1,
    max_size=4,
).map(lambda sets: image(**{f"R{i}": list(own) for i, own in enumerate(sets)}))


@pytest.mark.parametrize(
    ("strategy", "boxes", "ignored"),
    [
        ("union", [A, A9, FAR, A4], []),
        # A and A9 agree with each other (0.9) and neither with A4 (0.4 and 4/9): a tie, and A9 is first by coordinates
        ("majority", [A9], []),
        ("ignore", [A9], [A4, FAR]),
        # F1 of R1 and R2 is 2/3, R3 has 0 with both: R1 and R2 have the same mean, and R1 is first by name
        ("any-of", [A], []),
    ],
)
def test_three_readers_by_hand(strategy, boxes, ignored):
    found = reference_boxes(image(R1=[A], R2=[A9, FAR], R3=[A4]), strategy)
    assert sorted(found["boxes"]) == sorted(boxes)
    assert sorted(found["ignore_boxes"]) == sorted(ignored)
    assert found["labels"] == ["mass"] * len(boxes)


def test_the_box_of_greatest_mean_overlap_is_kept():
    # Each of the three agrees with both others; mean IoU of A 0.75, A9 0.783, A6 0.633
    assert reference_boxes(image(R1=[A], R2=[A9], R3=[A6]), "majority")["boxes"] == [A9]


def test_a_chain_of_boxes_is_two_findings_or_one():
    # A6 agrees with both others, which don't agree with each other: one finding
    assert reference_boxes(image(R1=[A], R2=[A6], R3=[A4]), "majority")["boxes"] == [A6]
    # The two boxes of R2 each have a partner: two findings, and no box speaks for both
    left, right = A4, [0.0, 6.0, 10.0, 10.0]
    two = image(R1=[left, right], R2=[left, right], R3=[A])
    assert sorted(reference_boxes(two, "majority")["boxes"]) == [left, right]
    assert reference_boxes(two, "ignore")["ignore_boxes"] == [A]


def test_boxes_of_other_labels_and_phrases_never_agree():
    other = image(R1=[(A, "mass")], R2=[(A, "nodule")])
    assert reference_boxes(other, "majority")["boxes"] == []
    phrased = image(R1=[A], R2=[A])._replace(phrases=("a mass", "another mass"))
    assert reference_boxes(phrased, "majority")["boxes"] == []
    assert reference_boxes(phrased._replace(phrases=("a mass", "a mass")), "majority")["boxes"] == [A]


def test_any_of_keeps_a_list_per_reader_also_for_one_who_drew_nothing():
    found = reference_boxes(image(R1=[], R2=[A, (FAR, "nodule")], R3=[A9]), "any-of")
    assert found["reader_boxes"] == [[], [A, FAR], [A9]]
    assert found["reader_labels"] == [[], ["mass", "nodule"], ["mass"]]
    # F1 of R3 with R2 is 2/3, with R1 0; of R2 the same: the first by name
    assert found["boxes"] == [A, FAR]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_image_of_one_unnamed_reader_is_taken_as_it_is(strategy):
    record = AnnotatedImage("1", "1.png", [A, A9], ["mass", "nodule"], ignored=((1.0, 2.0, 3.0, 4.0),))
    found = reference_boxes(record, strategy)
    assert (found["boxes"], found["labels"], found["ignore_boxes"]) == ([A, A9], ["mass", "nodule"], [[1, 2, 3, 4]])
    assert found.get("reader_boxes") == ([[A, A9]] if strategy == "any-of" else None)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(drawn=valid_box_lists(max_size=5))
def test_one_reader_is_the_identity(strategy, drawn):
    assert reference_boxes(image(R1=drawn), strategy)["boxes"] == drawn


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(drawn=valid_box_lists(max_size=4), n=st.integers(2, 4))
def test_identical_readers_are_that_reader(strategy, drawn, n):
    found = reference_boxes(image(**{f"R{i}": drawn for i in range(n)}), strategy)
    expected = sorted(drawn * n if strategy == "union" else drawn)
    np.testing.assert_allclose(np.array(sorted(found["boxes"])), np.array(expected), rtol=1e-12)
    assert found["ignore_boxes"] == []


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(record=images, data=st.data())
def test_the_order_of_readers_and_boxes_changes_nothing(strategy, record, data):
    order = data.draw(st.permutations(range(len(record.boxes))))
    boxes, labels, readers = ([getattr(record, name)[i] for i in order] for name in ("boxes", "labels", "readers"))
    read_by = tuple(data.draw(st.permutations(record.read_by)))
    shuffled = record._replace(boxes=boxes, labels=labels, readers=tuple(readers), read_by=read_by)
    one, other = (reference_boxes(each, strategy) for each in (record, shuffled))
    assert multiset(one) == multiset(other)
    assert sorted(one["ignore_boxes"]) == sorted(other["ignore_boxes"])
    assert sorted(map(sorted, one.get("reader_boxes", ()))) == sorted(map(sorted, other.get("reader_boxes", ())))


@given(images)
def test_the_reference_is_a_part_of_the_union(record):
    union = multiset(reference_boxes(record, "union"))
    majority, ignore = (reference_boxes(record, strategy) for strategy in ("majority", "ignore"))
    assert all(row in union for row in multiset(majority))
    assert multiset(ignore) == multiset(majority)
    assert len(ignore["boxes"]) + len(ignore["ignore_boxes"]) <= len(union)


def test_nothing_agrees_with_nothing():
    assert agreed_boxes(np.zeros((0, 4)), np.zeros(0, dtype=np.int64)) == ([], [])


@pytest.mark.parametrize(
    ("record", "strategy", "message"),
    [
        (image(R1=[A]), "vote", "known word for `strategy`, got 'vote'. Use one of: union, majority"),
        (image(R1=[A])._replace(labels=[]), "union", "`labels` per box on image 1, got 0 for 1 boxes"),
        (image(R1=[A])._replace(read_by=("R2",)), "union", "everybody who drew on image 1, got a box of 'R1'"),
        (image(R1=[A], R2=[])._replace(readers=()), "union", "none although 2 people read it"),
    ],
)
def test_mistakes_are_named(record, strategy, message):
    with pytest.raises(ValueError, match=message):
        reference_boxes(record, strategy)
