"""Several readers' boxes on one image become one reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.merging import STRATEGIES, agreed_boxes, fused_boxes, reference_boxes
from grounding_rewards.overlap import pairwise_iou
from tests.conftest import valid_box_lists

A = [0.0, 0.0, 10.0, 10.0]
A9 = [0.0, 0.0, 10.0, 9.0]  # IoU 0.9 with A
A6 = [0.0, 0.0, 10.0, 6.0]  # IoU 0.6 with A, 2/3 with A9
A4 = [0.0, 0.0, 10.0, 4.0]  # IoU 0.4 with A, 2/3 with A6
FAR = [50.0, 50.0, 60.0, 60.0]


def image(**drawn: list[list[float]] | list[tuple[list[float], str]]) -> AnnotatedImage:
    """An image from the boxes, or (box, label), of each reader."""
    rows = [
        (name, *(entry if isinstance(entry, tuple) else (entry, "mass")))
        for name, own in drawn.items()
        for entry in own
    ]
    return AnnotatedImage(
        "1",
        "1.png",
        [box for _, box, _ in rows],
        [label for _, _, label in rows],
        readers=tuple(name for name, _, _ in rows),
        read_by=tuple(drawn),
    )


def multiset(reference: dict) -> list[tuple[str, list[float]]]:
    return sorted(zip(reference["labels"], reference["boxes"], strict=True))


images = st.lists(
    valid_box_lists(max_size=4).flatmap(
        lambda boxes: st.tuples(*(st.tuples(st.just(box), st.sampled_from(["mass", "nodule"])) for box in boxes))
    ),
    min_size=1,
    max_size=4,
).map(lambda sets: image(**{f"R{i}": list(own) for i, own in enumerate(sets)}))


@pytest.mark.parametrize(
    ("strategy", "options", "boxes", "ignored"),
    [
        ("union", {}, [A, A9, FAR, A4], []),
        # A and A9 agree with each other (0.9) and neither with A4 (0.4 and 4/9): a tie, and A9 is first by coordinates
        ("majority", {}, [A9], []),
        # at 0.4 each of the three agrees with both others; mean IoU of A 0.65, A9 0.672, A4 0.422
        ("majority", {"iou_threshold": 0.4}, [A9], []),
        ("majority", {"min_readers": 1}, [A9, A4, FAR], []),
        ("majority", {"min_readers": 3}, [], []),
        ("majority", {"min_readers": 4, "iou_threshold": 0.4}, [A9], []),  # only three read it
        ("consensus", {}, [[0, 0, 10, 9.5], A4, FAR], []),
        ("consensus", {"min_readers": 2}, [[0, 0, 10, 9.5]], []),
        ("ignore", {}, [A9], [A4, FAR]),
        ("ignore", {"iou_threshold": 0.4}, [A9], [FAR]),
        # F1 of R1 and R2 is 2/3, R3 has 0 with both: R1 and R2 have the same mean, and R1 is first by name
        ("any-of", {}, [A], []),
    ],
)
def test_three_readers_by_hand(strategy, options, boxes, ignored):
    found = reference_boxes(image(R1=[A], R2=[A9, FAR], R3=[A4]), strategy, **options)
    assert sorted(found["boxes"]) == sorted(boxes)
    assert sorted(found["ignore_boxes"]) == sorted(ignored)
    assert found["labels"] == ["mass"] * len(boxes)


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
    assert reference_boxes(other, "consensus")["labels"] == ["mass", "nodule"]
    phrased = image(R1=[A], R2=[A])._replace(phrases=("a mass", "another mass"))
    assert reference_boxes(phrased, "majority")["boxes"] == []
    agreed = reference_boxes(phrased._replace(phrases=("a mass", "a mass")), "majority")
    assert agreed["boxes"] == [A]


def test_any_of_keeps_a_list_per_reader_also_for_one_who_drew_nothing():
    found = reference_boxes(image(R1=[], R2=[A, (FAR, "nodule")], R3=[A9]), "any-of")
    assert found["reader_boxes"] == [[], [A, FAR], [A9]]
    assert found["reader_labels"] == [[], ["mass", "nodule"], ["mass"]]
    # F1 of R3 with R2 is 2/3, with R1 0; of R2 the same: the first by name
    assert found["boxes"] == [A, FAR]


def test_any_of_prefers_nothing_where_most_drew_nothing():
    assert reference_boxes(image(R1=[A], R2=[], R3=[]), "any-of")["boxes"] == []


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
@given(drawn=valid_box_lists(max_size=4), n=st.integers(2, 4), threshold=st.sampled_from([0.1, 0.5, 1.0]))
def test_identical_readers_are_that_reader(strategy, drawn, n, threshold):
    if strategy == "consensus":  # which also fuses boxes of one reader that overlap
        overlap = pairwise_iou(drawn, drawn)
        assume(len(drawn) == 0 or (overlap - np.eye(len(drawn))).max() < threshold)
    found = reference_boxes(image(**{f"R{i}": drawn for i in range(n)}), strategy, iou_threshold=threshold)
    expected = sorted(drawn * n if strategy == "union" else drawn)
    np.testing.assert_allclose(np.array(sorted(found["boxes"])), np.array(expected), rtol=1e-12)
    assert found["ignore_boxes"] == []


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(record=images, data=st.data(), threshold=st.sampled_from([0.1, 0.4, 0.5, 1.0]))
def test_the_order_of_readers_and_boxes_changes_nothing(strategy, record, data, threshold):
    order = data.draw(st.permutations(range(len(record.boxes))))
    shuffled = record._replace(
        boxes=[record.boxes[i] for i in order],
        labels=[record.labels[i] for i in order],
        readers=tuple(record.readers[i] for i in order),
        read_by=tuple(data.draw(st.permutations(record.read_by))),
    )
    one, other = (reference_boxes(each, strategy, iou_threshold=threshold) for each in (record, shuffled))
    assert multiset(one) == multiset(other)
    assert sorted(one["ignore_boxes"]) == sorted(other["ignore_boxes"])
    assert sorted(map(sorted, one.get("reader_boxes", ()))) == sorted(map(sorted, other.get("reader_boxes", ())))


@given(images, st.sampled_from([0.1, 0.5]), st.integers(1, 3))
def test_the_reference_is_a_part_of_the_union(record, threshold, needed):
    union = multiset(reference_boxes(record, "union"))
    options = {"iou_threshold": threshold, "min_readers": needed}
    majority, ignore = (reference_boxes(record, strategy, **options) for strategy in ("majority", "ignore"))
    assert all(row in union for row in multiset(majority))
    assert multiset(ignore) == multiset(majority)
    assert len(ignore["boxes"]) + len(ignore["ignore_boxes"]) <= len(union)
    # More readers who must agree leave no more boxes.
    more = reference_boxes(record, "majority", iou_threshold=threshold, min_readers=needed + 1)
    assert len(more["boxes"]) <= len(majority["boxes"])


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        # ensemble-boxes 1.0.9, weighted_boxes_fusion with confidences that fall by 1e-7 from box to box
        (0.55, [[0.1, 0.113333, 0.506667, 0.51], [0.61, 0.59, 0.89, 0.9], [0.3, 0.3, 0.7, 0.7]]),
        (0.1, [[0.15, 0.16, 0.555, 0.5575], [0.61, 0.59, 0.89, 0.9]]),
    ],
)
def test_consensus_equals_ensemble_boxes(threshold, expected):
    boxes = np.array(
        [
            [0.10, 0.10, 0.50, 0.50],
            [0.12, 0.10, 0.52, 0.48],
            [0.08, 0.14, 0.50, 0.55],
            [0.60, 0.60, 0.90, 0.90],
            [0.62, 0.58, 0.88, 0.90],
            [0.30, 0.30, 0.70, 0.70],
        ]
    )
    found = fused_boxes(boxes, np.array([0, 1, 2, 0, 1, 2]), iou_threshold=threshold)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_nothing_agrees_with_nothing():
    assert agreed_boxes(np.zeros((0, 4)), np.zeros(0, dtype=np.int64)) == ([], [])
    assert fused_boxes(np.zeros((0, 4)), np.zeros(0, dtype=np.int64)) == []
    # at threshold 0 every box would agree with every other, but boxes that don't touch never do
    assert reference_boxes(image(R1=[A], R2=[FAR]), "majority", iou_threshold=0.0)["boxes"] == []


@pytest.mark.parametrize(
    ("record", "strategy", "options", "message"),
    [
        (image(R1=[A]), "vote", {}, "known word for `strategy`, got 'vote'. Use one of: union, majority"),
        (image(R1=[A]), "majority", {"iou_threshold": 1.5}, r"in \[0, 1\] for `iou_threshold`, got 1.5"),
        (image(R1=[A]), "majority", {"min_readers": 0}, "from 1 up for `min_readers`, got 0"),
        (image(R1=[A]), "majority", {"min_readers": 1.5}, "from 1 up for `min_readers`, got 1.5"),
        (image(R1=[A])._replace(labels=[]), "union", {}, "`labels` per box on image 1, got 0 for 1 boxes"),
        (image(R1=[A], R2=[A])._replace(readers=("R1",)), "union", {}, "`readers` per box on image 1, got 1 for 2"),
        (image(R1=[A])._replace(phrases=("a", "b")), "union", {}, "`phrases` per box on image 1, got 2 for 1"),
        (image(R1=[A])._replace(read_by=("R2",)), "union", {}, "everybody who drew on image 1, got a box of 'R1'"),
        (image(R1=[A], R2=[])._replace(readers=()), "union", {}, "none although 2 people read it"),
    ],
)
def test_mistakes_are_named(record, strategy, options, message):
    with pytest.raises(ValueError, match=message):
        reference_boxes(record, strategy, **options)
