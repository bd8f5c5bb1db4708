"""How well readers agree: metrics computed by hand, and what they must obey."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards import sources as readers
from grounding_rewards.data.agreement import measure_agreement
from grounding_rewards.data.annotated_image import AnnotatedImage
from tests.conftest import valid_box_lists

A = [0.0, 0.0, 10.0, 10.0]
A9 = [0.0, 0.0, 10.0, 9.0]  # IoU 0.9 with A
A45 = [0.0, 0.0, 10.0, 4.5]  # IoU 0.45 with A, 0.5 with A9
FAR = [50.0, 50.0, 60.0, 60.0]


def image(name: str = "1", **drawn: list[tuple[list[float], str]]) -> AnnotatedImage:
    rows = [(reader, *entry) for reader, own in drawn.items() for entry in own]
    return AnnotatedImage(
        name,
        f"{name}.png",
        [box for _, box, _ in rows],
        [label for _, _, label in rows],
        readers=tuple(reader for reader, _, _ in rows),
        read_by=tuple(drawn),
    )


THREE = image(
    R1=[(A, "mass"), (FAR, "nodule")],
    R2=[(A9, "mass")],
    R3=[(A45, "mass"), (FAR, "mass")],
)


def test_three_readers_by_hand():
    found = measure_agreement([THREE])
    mass, nodule = found.labels
    assert (found.images, found.single, found.pairs) == (1, 0, 3)
    assert (mass.label, nodule.label) == ("mass", "nodule")
    # mass: R1-R2 0.9 of 2 boxes; R1-R3 0.45 of 3; R2-R3 0.5 of 3
    assert mass.f1[0.4].value == pytest.approx(2 * 3 / 8)
    assert mass.f1[0.5].value == pytest.approx(2 * 2 / 8)
    assert mass.mean_iou.value == pytest.approx((0.9 + 0.45 + 0.5) / 3)
    assert (mass.findings, mass.drawn_by) == (1, (0, 0, 1))
    # nodule: R1 alone, in two pairs; R3's box at the same place is called a mass
    assert nodule.f1[0.5].value == 0.0
    assert math.isnan(nodule.mean_iou.value)
    assert (nodule.findings, nodule.drawn_by) == (1, (1, 0, 0))
    # all: the sums of both, 8 + 2 boxes
    assert found.overall.f1[0.4].value == pytest.approx(2 * 3 / 10)
    assert found.overall.f1[0.5].value == pytest.approx(2 * 2 / 10)
    assert found.overall.mean_iou.value == pytest.approx((0.9 + 0.45 + 0.5) / 3)
    assert (found.overall.findings, found.overall.drawn_by) == (2, (1, 0, 1))


def test_assignment_is_the_one_of_greatest_total_iou():
    # R1's [0, 6] and [4, 10] against R2's [0, 5] and [1, 7] (rows of height 1): one by one the best pair is
    # [0, 6] with [0, 5] (5/6), which leaves [4, 10] with [1, 7] (3/9)
    one = [([0.0, 0.0, 6.0, 1.0], "x"), ([4.0, 0.0, 10.0, 1.0], "x")]
    other = [([0.0, 0.0, 5.0, 1.0], "x"), ([1.0, 0.0, 7.0, 1.0], "x")]
    found = measure_agreement([image(R1=one, R2=other)]).overall
    assert found.mean_iou.value == pytest.approx((5 / 6 + 3 / 9) / 2)
    assert found.f1[0.5].value == pytest.approx(2 * 1 / 4)


def test_a_box_more_loses_no_hit():
    # The first of R2's boxes has IoU 67/133 with R1's first; with both, the greatest sum of IoUs is 65/135 twice.
    drawn = [([35.0, 0.0, 135.0, 100.0], "x"), ([103.0, 0.0, 203.0, 100.0], "x")]
    other = [([68.0, 0.0, 168.0, 100.0], "x"), ([0.0, 0.0, 100.0, 100.0], "x")]
    for boxes in (other[:1], other):
        found = measure_agreement([image(R1=drawn, R2=boxes)]).overall
        assert found.f1[0.5].value == pytest.approx(2 * 1 / (2 + len(boxes)))


def test_negative_images_count_as_images_but_add_nothing():
    negative = [image(str(i), R1=[], R2=[], R3=[]) for i in range(20)]
    found = measure_agreement([THREE, *negative])
    assert (found.images, found.pairs) == (21, 63)
    assert found.overall.f1[0.5].value == measure_agreement([THREE]).overall.f1[0.5].value
    # nobody drew anything anywhere
    nothing = measure_agreement(negative)
    assert nothing.labels == ()
    assert nothing.overall.drawn_by == (0, 0, 0)
    assert math.isnan(nothing.overall.f1[0.5].value)


def test_a_reader_who_drew_nothing_disagrees():
    assert measure_agreement([image(R1=[(A, "mass")], R2=[])]).overall.f1[0.5].value == 0.0


def test_images_of_one_reader_are_left_out_and_counted():
    found = measure_agreement([image("2", R1=[(A, "mass")]), THREE, AnnotatedImage("3", "3.png", [A], ["mass"])])
    assert (found.images, found.single) == (1, 2)


def test_the_interval_is_over_images():
    # half of the images agree, half don't: F1 is a mean of fair coins, 2 standard errors are 0.1
    images = [image(str(i), R1=[(A, "mass")], R2=[(A if i % 2 else FAR, "mass")]) for i in range(100)]
    value, low, high = measure_agreement(images).overall.f1[0.5]
    assert value == 0.5
    assert low == pytest.approx(0.4, abs=0.02)
    assert high == pytest.approx(0.6, abs=0.02)
    # images without boxes don't change a ratio of sums by much, and are drawn as well
    _, low, high = measure_agreement([*images, *(image(f"n{i}", R1=[], R2=[]) for i in range(100))]).overall.f1[0.5]
    assert low == pytest.approx(0.4, abs=0.03)
    assert high == pytest.approx(0.6, abs=0.03)


readings = st.lists(st.lists(valid_box_lists(max_size=3), min_size=2, max_size=3), min_size=1, max_size=3).map(
    lambda images: [
        image(str(i), **{f"R{j}": [(box, "x") for box in own] for j, own in enumerate(sets)})
        for i, sets in enumerate(images)
    ]
)


@given(readings)
def test_metrics_stay_in_their_ranges(images):
    found = measure_agreement(images, iou_thresholds=[0.3, 0.5, 0.9])
    values = [one.value for one in found.overall.f1.values()]
    if found.overall.findings:
        assert 0 <= values[2] <= values[1] <= values[0] <= 1
    assert sum(found.overall.drawn_by) == found.overall.findings
    for one in found.overall.f1.values():
        assert math.isnan(one.value) or 0 <= one.low <= one.high <= 1


@given(readings)
def test_the_order_of_readers_changes_nothing(images):
    turned = [one._replace(read_by=one.read_by[::-1]) for one in images]
    one, other = (measure_agreement(each).overall for each in (images, turned))
    assert one.f1[0.5].value == pytest.approx(other.f1[0.5].value, nan_ok=True)
    assert one.drawn_by == other.drawn_by


@given(valid_box_lists(min_size=1, max_size=4), st.integers(2, 4))
def test_identical_readers_agree_fully(boxes, n):
    found = measure_agreement([image(**{f"R{i}": [(box, "x") for box in boxes] for i in range(n)})])
    # one image says nothing of others
    assert found.overall.f1[0.5] == (1.0, 0.0, 1.0)
    assert found.overall.mean_iou.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        ([], {}, "at least two people read for `images`, got 0"),
        ([image(R1=[(A, "mass")])], {}, "got 1 with one reader or none"),
        ([THREE], {"iou_thresholds": [50]}, r"numbers in \(0, 1\] for `iou_thresholds`, got 50"),
        ([THREE._replace(readers=("R1",))], {}, "Expected one of `readers` per box on image 1, got 1 for 5 boxes"),
        ([THREE._replace(read_by=("R1", "R2"))], {}, "everybody who drew on image 1, got a box of 'R3'"),
    ],
)
def test_mistakes_are_named(images, options, message):
    with pytest.raises(ValueError, match=message):
        measure_agreement(images, **options)


def test_reader_of_vindr_is_understood(tmp_path):
    # R1 and R2 draw one box with IoU 0.9, R3 says that there is nothing: 1 hit, and 2 + 1 + 1 boxes in the three pairs
    (tmp_path / "train.csv").write_text(
        "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max\n"
        "a,Cardiomegaly,3,R1,0.0,0.0,10.0,10.0\n"
        "a,Cardiomegaly,3,R2,0.0,0.0,10.0,9.0\n"
        "a,No finding,14,R3,,,,\n"
    )
    found = measure_agreement(readers.get_source("vindr-cxr").read(str(tmp_path)))
    assert found.pairs == 3
    assert found.overall.f1[0.5].value == pytest.approx(2 * 1 / 4)
    assert found.overall.drawn_by == (0, 1, 0)
