"""Boxes in another order, and images that no row names."""

from __future__ import annotations

import random
import warnings

import pytest

from grounding_rewards.boxes import ORDERS
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.prepare.table_checks import check_box_order, warn_of_unnamed_images
from tests.tables import table

SIZE = (400, 600)


def images(order, read_as, count=60, bad=0):
    """Boxes whose numbers are written in one order and read in another one; the first few reach off their image."""
    rng = random.Random(0)
    made = []
    for k in range(count):
        x1, y1 = rng.uniform(0, 300), rng.uniform(0, 450)
        box = (x1, y1, x1 + rng.uniform(20, 400 - x1), y1 + rng.uniform(20, 600 - y1))
        if k < bad:
            box = (*box[:2], 420, box[3])
        numbers = ORDERS[order].from_xyxy(*box)
        made.append(AnnotatedImage(str(k), f"{k}.png", [list(ORDERS[read_as].to_xyxy(*numbers))], ["mass"], *SIZE))
    return made


@pytest.mark.parametrize(("dataset", "order", "read_as"), table("prepare/tables", "orders"))
def test_another_order_is_named_and_rows_are_not_dropped(dataset, order, read_as):
    with pytest.raises(ValueError, match=rf"of 60 images with a box .* fit all images as .*\b{order}\b") as refusal:
        check_box_order(images(order, read_as), dataset)
    assert "--bad-rows" not in str(refusal.value)
    assert ("--option order=" in str(refusal.value)) == (dataset == "csv")


@pytest.mark.parametrize("bad", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("dataset", ["csv", "coco"])
def test_rows_that_are_bad_one_by_one_pass_here(dataset, bad):
    check_box_order(images("xyxy", "xyxy", bad=bad), dataset)


def test_most_rows_are_not_bad_one_by_one():
    with pytest.raises(ValueError, match=r"got 40 of 60 images .*Check the sizes of the images"):
        check_box_order(images("xyxy", "xyxy", bad=40), "jsonl")


def test_images_without_a_row_are_counted(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.png", "sub/b.PNG", "c.dcm", "notes.txt"):
        (tmp_path / name).touch()
    rows = [AnnotatedImage(name, name, [], []) for name in ("a.png", "./sub/b.PNG")]
    with pytest.warns(UserWarning, match=r"No row names 1 image below the root, such as c\.dcm\."):
        warn_of_unnamed_images(rows, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unnamed_images([*rows, AnnotatedImage("c", "c.dcm", [], [])], tmp_path)
