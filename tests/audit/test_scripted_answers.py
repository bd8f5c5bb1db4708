"""Scripted answers answer every image, honest ones as well as they say, and the same each time."""

import numpy as np
import pytest

from grounding_rewards.audit.audit_images import Size, cut_box, images_of, stray_box, with_small_findings
from grounding_rewards.audit.scripted_answers import BREAKS, HONEST, KINDS, SCRIPTED_ANSWERS, Item, Reply, honest, write
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import get_box_format, list_box_formats, parse_boxes

FMT = get_box_format("qwen3-vl")
ROWS = [
    {"boxes": [[10, 10, 60, 60]], "labels": ["mass"], "width": 100, "height": 100, "id": "one"},
    {"boxes": [[10, 10, 60, 60], [400, 300, 500, 380]], "labels": ["mass", "nodule"], "width": 640, "height": 400},
    {"boxes": [], "labels": [], "width": 100, "height": 80},
    # no place is left for a false box, which has no label, in the form in which pandas reads it
    {"boxes": np.array([[0, 0, 100, 80]]), "labels": [None], "width": 100, "height": 80},
]
IMAGES = images_of(ROWS)
IMAGES_BY_SET = {"": IMAGES, "small": with_small_findings(IMAGES)}
BY_NAME = {script.name: script for script in SCRIPTED_ANSWERS}


def test_names_are_different_and_bases_are_honest():
    assert len(BY_NAME) == len(SCRIPTED_ANSWERS)
    assert {script.kind for script in SCRIPTED_ANSWERS} == set(KINDS)
    for script in SCRIPTED_ANSWERS:
        assert script.idea
        assert not script.base or BY_NAME[script.base].kind == HONEST


@pytest.mark.parametrize("script", SCRIPTED_ANSWERS, ids=lambda script: script.name)
def test_every_image_gets_the_same_text_twice(script):
    images = IMAGES_BY_SET[script.image_set]
    texts = [[write(script.answer(image, FMT), image.size, FMT) for image in images] for _ in range(2)]
    assert texts[0] == texts[1]
    for text, image in zip(texts[0], images, strict=True):
        parse_boxes(text, FMT, **image.size._asdict())


@pytest.mark.parametrize(
    "script", [one for one in SCRIPTED_ANSWERS if one.kind in ("honest", "blind")], ids=lambda one: one.name
)
def test_what_counts_is_read(script):
    for image in IMAGES_BY_SET[script.image_set]:
        answer = script.answer(image, FMT)
        assert len(parse_boxes(write(answer, image.size, FMT), FMT, **image.size._asdict()).boxes) == len(answer.items)


@pytest.mark.parametrize("iou", [0.5, 0.75, 0.9, 1.0])
def test_a_cut_box_has_its_iou_on_every_side(iou):
    box = np.array([3.0, 5.0, 17.0, 11.0])
    cuts = {tuple(cut_box(box, iou, np.random.default_rng(seed))) for seed in range(40)}
    assert len(cuts) == (1 if iou == 1 else 4)
    for cut in cuts:
        assert pairwise_iou([cut], [box]).item() == pytest.approx(iou)


@pytest.mark.parametrize("image", IMAGES)
def test_a_false_box_is_on_the_image_and_hits_nothing(image):
    for name in "abcdefgh":
        box = stray_box(image, image.draw(name))
        assert (box >= 0).all()
        assert (box[2:] <= image.size[:2]).all()
        assert pairwise_iou(box[None], image.boxes).max(initial=0.0) < 0.05


def test_honest_policies_find_as_much_as_they_say():
    rows = [{"boxes": [[10, 10, 60, 60]], "labels": ["mass"], "width": 100, "height": 100}] * 400
    answers = [honest(image, FMT, iou=0.75, recall=0.5, false_boxes=0.5) for image in images_of(rows)]
    hits = [pairwise_iou([item.box], [[10, 10, 60, 60]]).item() for answer in answers for item in answer.items]
    # 400 draws at 0.5: within four standard errors
    assert sum(iou > 0.5 for iou in hits) == pytest.approx(200, abs=40)
    assert sum(iou < 0.05 for iou in hits) == pytest.approx(200, abs=40)
    assert {round(iou, 6) for iou in hits if iou > 0.5} == {0.75}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "Expected images for the audit, got none"),
        ([{"boxes": []}], "Expected `width` and `height` for the image in row 0, got None and None"),
        ([{"boxes": [], "width": 9, "height": 10**400}], "for the image in row 0, got 9 and 10+"),
    ],
)
def test_wrong_images_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        images_of(rows)


BREAKABLE = ("qwen2.5-vl", "qwen3-vl", "internvl", "minicpm-v", "paligemma", "gemini", "answer-list")
SIZE = Size(1000, 800, 1008, 812)
RIGHT = Item(np.array([200.0, 160.0, 400.0, 480.0]), "mass")
OTHER = Item(np.array([500.0, 200.0, 800.0, 600.0]), "mass")


def read(answer: Reply, name: str):
    fmt = get_box_format(name)
    return parse_boxes(write(answer, SIZE, fmt), fmt, **SIZE._asdict())


@pytest.mark.parametrize("name", list_box_formats())
def test_boxes_are_read_back(name):
    parsed = read(Reply((RIGHT, OTHER)), name)
    # the coarsest format is a grid of 32 cells a side
    np.testing.assert_allclose(parsed.boxes, [RIGHT.box, OTHER.box], atol=32)
    assert read(Reply(), name).status == "empty"


@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("name", BREAKABLE)
def test_a_broken_box_is_broken_where_it_stands(name, how):
    parsed = read(Reply((RIGHT._replace(broken=how), OTHER)), name)
    if how == "swapped corners":
        # numbers, but no box: it overlaps nothing
        assert parsed.boxes[0, 0] > parsed.boxes[0, 2]
        assert len(parsed.boxes) == 2
    else:
        assert len(parsed.boxes) == 1
        np.testing.assert_allclose(parsed.boxes[0], OTHER.box, atol=2)
        assert [one.place for one in parsed.broken][:1] == [0]
