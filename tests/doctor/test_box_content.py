"""Boxes that fit what their images show in another reading, on other images, or as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from grounding_rewards.doctor.examine import Checkup, examine
from grounding_rewards.doctor.raw_rows import ImageFacts, ImageRow, RowSource

Row = dict[str, Any]
SIDE = 32


def drawn(seed: int = 0, count: int = 160, lit_side: bool = False) -> list[Row]:
    """Images of two kinds of bright and dark spots, of many shapes, each row with its small copy.

    Args:
        seed: of all of it.
        count: of images.
        lit_side: whether half of an image is black, the left or the right one, and its spots are on the other.
    """
    rng, rows = np.random.default_rng(seed), []
    y, x = (np.mgrid[:SIDE, :SIDE] + 0.5) / SIDE
    for k in range(count):
        width, height = (int(side) for side in rng.integers((380, 330), (512, 512)))
        greys = 90 + 30 * np.sin(5 * x + rng.uniform(0, 1)) + rng.normal(0, 6, (SIDE, SIDE))
        is_left = rng.random() < 0.5
        if lit_side:
            greys[(x < 0.5) != is_left] = 0
        boxes, labels = [], []
        for label in rng.permutation(["mass", "cyst"])[: k % 4 and 1 + k % 2].tolist():
            sides = rng.uniform(0.12, 0.3, 2)
            start = rng.uniform(0.05, 0.95 - sides)
            if lit_side:
                start[0] = rng.uniform(0.02, 0.48 - sides[0]) + 0.5 * (not is_left)
            middle = start + sides / 2
            far = ((x - middle[0]) / sides[0]) ** 2 + ((y - middle[1]) / sides[1]) ** 2
            greys += (70 if label == "mass" else -60) * np.exp(-8 * far)
            boxes.append((np.concatenate([start, start + sides]) * ([width, height] * 2)).round().tolist())
            labels.append(label)
        small = np.clip(greys, 0, 255).astype(np.uint8).tobytes()
        rows.append({"id": f"{k}", "width": width, "height": height, "boxes": boxes, "labels": labels, "small": small})
    return rows


def examined(rows: list[Row]) -> Checkup:
    def images() -> Iterator[ImageRow]:
        for k, row in enumerate(rows):
            facts = ImageFacts((row["width"], row["height"]), greys=(0, 255), small=row["small"])
            columns = {name: value for name, value in row.items() if name != "small"}
            yield ImageRow("train", k, columns, facts=facts)

    return examine(RowSource("images", images, len(rows)))


def found(checkup: Checkup) -> list[str]:
    return [defect.name for defect in checkup.defects]


def boxes_become(change: Callable[[np.ndarray, int, int], np.ndarray]) -> Callable[[list[Row]], None]:
    def plant(rows: list[Row]) -> None:
        for row in rows:
            boxes = np.array(row["boxes"], dtype=float).reshape(-1, 4)
            row["boxes"] = change(boxes, row["width"], row["height"]).tolist()

    return plant


def squares(rows: list[Row]) -> None:
    for row in rows:
        row["boxes"] = (np.array(row["boxes"]).reshape(-1, 4) * 384 / ([row["width"], row["height"]] * 2)).tolist()
        row["width"] = row["height"] = 384


def y_first_on_squares(rows: list[Row]) -> None:
    squares(rows)
    boxes_become(lambda boxes, width, height: boxes[:, [1, 0, 3, 2]])(rows)


def sides_exchanged(rows: list[Row]) -> None:
    squares(rows)
    boxes_become(lambda b, width, height: np.hstack([b[:, :2], (b[:, :2] + (b[:, 2:] - b[:, :2])[:, ::-1])]))(rows)


def padded(boxes: np.ndarray, width: int, height: int) -> np.ndarray:
    scale = 512 / max(width, height)
    left, top = (512 - width * scale) / 2, (512 - height * scale) / 2
    return boxes * scale + [left, top, left, top]


def a_row_later(rows: list[Row]) -> None:
    squares(rows)
    answers = [(row["boxes"], row["labels"]) for row in rows]
    for row, (boxes, labels) in zip(rows, answers[1:] + answers[:1], strict=True):
        row["boxes"], row["labels"] = boxes, labels


def dealt_in_one_source(rows: list[Row]) -> None:
    squares(rows)
    for k, row in enumerate(rows):
        row["source"] = "AB"[k // 3 % 2]
    here = [row for row in rows if row["source"] == "B"]
    answers = [(row["boxes"], row["labels"]) for row in here]
    for row, (boxes, labels) in zip(here, answers[7:] + answers[:7], strict=True):
        row["boxes"], row["labels"] = boxes, labels


def anywhere_in_a_fifth(rows: list[Row]) -> None:
    """Where nearly all are in the middle."""
    rng = np.random.default_rng(1)

    def is_central(row: Row) -> bool:
        parts = np.array(row["boxes"]).reshape(-1, 4) / ([row["width"], row["height"]] * 2)
        return bool((np.abs(parts[:, :2] + parts[:, 2:] - 1) < 0.4).all())

    rows[:] = [row for row in drawn(5, 1600) if row["boxes"] and is_central(row)]
    for row in rows[::5]:
        size = np.array([row["width"], row["height"]])
        for k, box in enumerate(row["boxes"]):
            sides = np.array(box[2:]) - box[:2]
            start = rng.uniform(0, 1, 2) * (size - sides)
            row["boxes"][k] = np.concatenate([start, start + sides]).tolist()


def y_upwards_in_one_view(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        row["view"] = "AP" if k % 3 else "PA"
    boxes_become(lambda b, w, h: np.abs([0, h, 0, h] - b[:, [0, 3, 2, 1]]))(
        [row for row in rows if row["view"] == "AP"]
    )


@pytest.mark.parametrize(
    ("plant", "name", "words"),
    [
        (y_first_on_squares, "box-order", "as y1, x1, y2, x2"),
        (
            boxes_become(lambda b, w, h: np.abs([0, h, 0, h] - b[:, [0, 3, 2, 1]])),
            "flipped-boxes",
            "from the lower edge",
        ),
        (
            boxes_become(lambda b, w, h: np.abs([w, 0, w, 0] - b[:, [2, 1, 0, 3]])),
            "flipped-boxes",
            "from the right edge",
        ),
        (sides_exchanged, "box-order", "as x1, y1, x1 + height, y1 + width"),
        (boxes_become(padded), "wrong-frame", "a copy padded to 512 x 512"),
        (boxes_become(lambda b, w, h: b * ([1, w / h] * 2)), "wrong-frame", "y was scaled by the factor of x"),
        (boxes_become(lambda b, w, h: b * 1000 / np.array([w, h, w, h])), "wrong-frame", "a frame of 1000 x 1000"),
        (a_row_later, "shifted-rows", "fits the row after"),
        (dealt_in_one_source, "foreign-boxes", "source B: "),
        (anywhere_in_a_fifth, "foreign-boxes", "far from the others"),
        (y_upwards_in_one_view, "flipped-boxes", "view AP: "),
        (boxes_become(lambda b, w, h: b + [0, 0.08 * h] * 2), "moved-boxes", "-8% of the height"),
    ],
)
def test_what_images_show_tells_where_boxes_belong(plant, name, words):
    rows = drawn()
    plant(rows)
    (defect, *_) = examined(rows).defects
    assert defect.name == name
    assert words in defect.found
    assert defect.fix


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lit_side", [False, True])
def test_boxes_in_their_places_pass(seed, lit_side):
    assert found(examined(drawn(seed, lit_side=lit_side))) == []
    rows = drawn(seed, lit_side=lit_side)
    squares(rows)
    assert found(examined(rows)) == []


@pytest.mark.parametrize("step", [1, 8])
def test_labels_in_another_order_than_their_boxes_are_seen(step):
    rng, rows = np.random.default_rng(0), drawn()
    for k, row in enumerate(rows):
        left, right, top = rng.uniform(0, 40, 3)
        chosen = slice(0, 2) if k % 4 == 3 else slice(k % 2, k % 2 + 1)
        row["boxes"] = [[left, 150 + top, left + 61, 220 + top], [right + 203, 150 - top, right + 320, 280]][chosen]
        row["labels"] = ["mass", "cyst"][chosen][:: -1 if k % (4 * step) == 3 else 1]
        row["small"] = bytes(SIDE * SIDE)
    (defect,) = [one for one in examined(rows).defects if one.name == "exchanged-labels"]
    assert defect.of == 40
    assert {one.row % (4 * step) for one in defect.rows} == {3}


def test_images_that_show_nothing_prove_nothing():
    rows = drawn()
    y_first_on_squares(rows)
    for k, row in enumerate(rows):
        row["small"] = np.random.default_rng(k).integers(0, 255, SIDE * SIDE, dtype=np.uint8).tobytes()
    assert found(examined(rows)) == []
