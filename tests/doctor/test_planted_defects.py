"""A table of mistakes that real data had, each planted in a clean set: found by its own name, and by no other.

Where the advice holds code, it is run on the planted rows: they must become what they were, and pass.
"""

from __future__ import annotations

import copy
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from grounding_rewards.boxes import from_xyxy
from grounding_rewards.data.prompts import task_prompt
from grounding_rewards.doctor.case import Defect
from grounding_rewards.doctor.examine import CHECKS, Checkup, examine
from grounding_rewards.doctor.raw_rows import ImageRow, RowSource
from tests.conftest import REPOSITORY
from tests.doctor.test_examine import PLANTED as PLANTED_WITH_IMAGES
from tests.doctor.test_examine import fit_of

Row = dict[str, Any]
LABELS = ("Pleural effusion", "Nodule/Mass", "Cardiomegaly", "Calcification")


def clean_rows() -> list[Row]:
    """320 images of 160 patients as a hospital has them, one in four without findings and one in five landscape."""
    rng = np.random.default_rng(12)
    rows = []
    for k in range(320):
        size = rng.integers((2000, 2450), (2400, 3000))
        width, height = size[::-1] if k % 5 == 0 else size
        n = 0 if k % 4 == 1 else 1 + k % 3
        sides = rng.uniform(0.06, 0.3, (n, 2)) * (width, height)
        starts = rng.uniform(0, 1, (n, 2)) * ((width, height) - sides)
        rows.append(
            {
                "id": f"image-{k:03}",
                "patient_id": f"p{k // 2}",
                "split": "train" if k < 200 else "validation" if k < 260 else "test",
                "width": int(width),
                "height": int(height),
                "boxes": np.round(np.concatenate([starts, starts + sides], axis=1)).tolist(),
                "labels": [LABELS[(k // 3 + j) % 4] for j in range(n)],
                "prompt": task_prompt("detection", LABELS, "qwen3-vl"),
                # Not in all, to be quick.
                "box_format": "qwen3-vl" if k % 8 == 0 else None,
            }
        )
    return rows


def examined(rows: list[Row]) -> Checkup:
    def images() -> Iterator[ImageRow]:
        numbers: Counter[str] = Counter()
        for row in rows:
            yield ImageRow(row["split"], numbers[row["split"]], {k: v for k, v in row.items() if k != "split"})
            numbers[row["split"]] += 1

    return examine(RowSource("images", images, len(rows)))


def with_findings(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["boxes"]]


def normal(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row["boxes"]]


def every(step: int, rows: list[Row]) -> list[Row]:
    return rows[::step]


# How boxes are written otherwise.


def reordered(order: Callable[[np.ndarray], np.ndarray], choose: Callable[[list[Row]], list[Row]] = list) -> Any:
    def plant(rows: list[Row]) -> list[Row]:
        spoiled = with_findings(choose(rows))
        for row in spoiled:
            row["boxes"] = order(np.array(row["boxes"])).tolist()
        return spoiled

    return plant


def xywh(boxes):
    return from_xyxy(boxes, "xywh")


def cxcywh(boxes):
    return from_xyxy(boxes, "cxcywh")


def yxyx(boxes):
    return from_xyxy(boxes, "yxyx")


def xxyy(boxes):
    return boxes[:, [0, 2, 1, 3]]


def yyxx(boxes):
    return boxes[:, [1, 3, 0, 2]]


def yxhw(boxes):
    return from_xyxy(boxes, "xywh")[:, [1, 0, 3, 2]]


def twice(boxes):
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def scaled(side: float, choose: Callable[[list[Row]], list[Row]] = list) -> Any:
    """Boxes as they are on a copy of side x side."""

    def plant(rows: list[Row]) -> list[Row]:
        spoiled = with_findings(choose(rows))
        for row in spoiled:
            factors = np.array([side / row["width"], side / row["height"]] * 2)
            row["boxes"] = (np.array(row["boxes"]) * factors).tolist()
        return spoiled

    return plant


def resized(choose: Callable[[list[Row]], list[Row]] = list) -> Any:
    """Boxes in pixels of what the model sees."""

    def plant(rows: list[Row]) -> list[Row]:
        for row in rows:
            row["resized_width"], row["resized_height"] = round(row["width"] * 0.36), round(row["height"] * 0.36)
        spoiled = with_findings(choose(rows))
        for row in spoiled:
            factors = np.array([row["resized_width"] / row["width"], row["resized_height"] / row["height"]] * 2)
            row["boxes"] = (np.array(row["boxes"]) * factors).tolist()
        return spoiled

    return plant


def declared_small(side: float, choose: Callable[[list[Row]], list[Row]] = list) -> Any:
    """Width and height of a copy, boxes of the original, which is 2048 x 2048."""

    def plant(rows: list[Row]) -> list[Row]:
        scaled(side)(rows)
        for row in rows:
            row["width"] = row["height"] = side
        spoiled = with_findings(choose(rows))
        for row in spoiled:
            row["boxes"] = (np.array(row["boxes"]) * 2048 / side).tolist()
        return spoiled

    return plant


def normalised(order: Callable[[np.ndarray], np.ndarray], choose: Callable[[list[Row]], list[Row]] = list) -> Any:
    def plant(rows: list[Row]) -> list[Row]:
        spoiled = scaled(1.0, choose)(rows)
        for row in spoiled:
            row["boxes"] = order(np.array(row["boxes"])).tolist()
        return spoiled

    return plant


def unchanged(boxes):
    return boxes


def half(rows):
    return rows[::2]


def a_tenth(rows):
    return rows[::10]


def a_sixth(rows):
    return rows[::6]


def training(rows):
    return [row for row in rows if row["split"] == "train"]


# Single boxes. A plant returns the rows whose boxes it spoiled.


def boxes_become(change: Callable[[list[float], Row], Any], count: int) -> Any:
    def plant(rows: list[Row]) -> list[Row]:
        # From all of the file.
        spoiled = with_findings(rows)[:: 240 // count][:count]
        for row in spoiled:
            row["boxes"][0] = change(row["boxes"][0], row)
        return spoiled

    return plant


def x_swapped(box, row):
    return [box[2], box[1], box[0], box[3]]


def y_from_below(boxes_row):
    return [[x1, boxes_row["height"] - y1, x2, boxes_row["height"] - y2] for x1, y1, x2, y2 in boxes_row["boxes"]]


def y_upwards(rows):
    for row in with_findings(rows):
        row["boxes"] = y_from_below(row)
    return with_findings(rows)


def over_the_edge(box, row):
    return [row["width"] - 300, 200, row["width"] + 6, 700]


def negatives_as(box: list[float] | None, label: str | None) -> Any:
    """Negative images with a box that says so."""

    def plant(rows: list[Row]) -> list[Row]:
        for row in (spoiled := normal(rows)):
            row["boxes"] = [[0, 0, row["width"], row["height"]] if box is None else list(box)]
            row["labels"] = [label]
        return spoiled

    return plant


def ignored(region: Callable[[Row], list[float]]) -> Any:
    def plant(rows: list[Row]) -> None:
        for row in rows[:4]:
            row["ignore_boxes"] = [region(row)]

    return plant


# Labels.


def labels_become(label: Any, count: int = 4) -> Any:
    def plant(rows: list[Row]) -> None:
        for row in with_findings(rows)[:count]:
            row["labels"][0] = label

    return plant


def renamed(old: str, new: str, choose: Callable[[list[Row]], list[Row]] = half) -> Any:
    def plant(rows: list[Row]) -> None:
        for row in choose(rows):
            row["labels"] = [new if label == old else label for label in row["labels"]]

    return plant


def labels_in_numbers(rows: list[Row]) -> None:
    for row in rows:
        row["labels"] = [str(LABELS.index(label)) for label in row["labels"]]


def labels_by_place(words: Callable[[int, str], str]) -> Any:
    def plant(rows: list[Row]) -> None:
        for row in rows:
            row["labels"] = [words(k, label) for k, label in enumerate(row["labels"])]

    return plant


def two_in_one(rows: list[Row]) -> None:
    for row in every(6, with_findings(rows)):
        row["labels"][0] = "Cardiomegaly | Calcification"


def sides_exchanged(rows: list[Row]) -> None:
    for k, row in enumerate(with_findings(rows)):
        centres = [(box[0] + box[2]) / 2 for box in row["boxes"]]
        on_right = [(centre < row["width"] / 2) != (k % 20 == 0) for centre in centres]
        row["labels"] = [f"{'right' if one else 'left'} lung" for one in on_right]


def nearly_all_masses(rows: list[Row]) -> None:
    for k, row in enumerate(with_findings(rows)):
        row["labels"] = ["Nodule/Mass"] * len(row["boxes"])
        row["labels"][0] = {3: "Cardiomegaly", 9: "Calcification"}.get(k, "Nodule/Mass")


def sided(exchanged: Callable[[int], bool]) -> Any:
    """Right and left lungs, exchanged on some images."""

    def plant(rows: list[Row]) -> None:
        for k, row in enumerate(with_findings(rows)):
            width, height = row["width"], row["height"]
            row["boxes"] = [
                [x + 0.05 * width + k % 50, 300 + k % 50, x + 0.35 * width + k % 7, 0.8 * height - 3 * (k % 47)]
                for x in (0, 0.5 * width)
            ]
            row["labels"] = ["right lung", "left lung"][:: -1 if exchanged(k) else 1]

    return plant


def one_box_around_both(rows: list[Row]) -> None:
    sided(lambda k: False)(rows)
    for row in with_findings(rows)[::6]:
        first, second = row["boxes"]
        row["boxes"], row["labels"] = [[*first[:2], *second[2:]]], ["right lung"]


def named_without_a_box(rows: list[Row]) -> None:
    for row in normal(rows)[:5]:
        row["image_labels"] = "Cardiomegaly|Other"


def under_two_labels(rows: list[Row]) -> None:
    for row in with_findings(rows)[:8]:
        row["boxes"].append(list(row["boxes"][0]))
        row["labels"].append(next(label for label in LABELS if label not in row["labels"]))


def one_label_too_few(rows):
    with_findings(rows)[5]["labels"].pop()


def only_in_test(rows):
    for row in with_findings([row for row in rows if row["split"] == "test"])[:6]:
        row["labels"][0] = "Rib fracture"


def other_words_in_test(rows):
    for row in rows:
        if row["split"] == "test":
            row["labels"] = ["Hydrops" if label == "Pleural effusion" else label for label in row["labels"]]


# Several readers.


def readers_together(jitter: float, choose: Callable[[list[Row]], list[Row]] = list) -> Any:
    def plant(rows: list[Row]) -> None:
        rng = np.random.default_rng(3)
        for row in with_findings(choose(rows)):
            boxes = np.array(row["boxes"])
            sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
            drawn = [boxes + rng.uniform(-jitter, jitter, boxes.shape) * sides for _ in range(2)]
            limits = np.array([row["width"], row["height"]] * 2)
            row["boxes"] = np.clip(np.concatenate(drawn), 0, limits).tolist()
            row["labels"] = row["labels"] * 2

    return plant


def a_reader_who_draws_larger(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        drawn = [{**row, "boxes": [[x1 + j + k % 5, y1, x2, y2] for x1, y1, x2, y2 in row["boxes"]]} for j in range(3)]
        larger(drawn[1])
        row["reader_boxes"], row["reader_labels"] = [one["boxes"] for one in drawn], [row["labels"]] * 3


def an_empty_reader(rows: list[Row]) -> None:
    for row in rows:
        row["reader_boxes"], row["reader_labels"] = [row["boxes"], []], [row["labels"], []]
        row["boxes"], row["labels"] = [], []


def a_copied_reader(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        other = [[x1 + k % 5, y1, x2, y2] for x1, y1, x2, y2 in row["boxes"]]
        row["reader_boxes"] = [row["boxes"], other, copy.deepcopy(row["boxes"])]
        row["reader_labels"] = [row["labels"]] * 3


def a_row_per_reader(rows):
    for row in list(with_findings(rows))[:20]:
        rows.append(copy.deepcopy(row))


def a_row_per_box(rows):
    for row in [row for row in rows if len(row["boxes"]) == 3]:
        for k in (1, 2):
            rows.append({**row, "boxes": row["boxes"][k : k + 1], "labels": row["labels"][k : k + 1]})
        row["boxes"], row["labels"] = row["boxes"][:1], row["labels"][:1]


def same_box_twice(rows):
    for row in with_findings(rows)[:3]:
        row["boxes"].append(list(row["boxes"][0]))
        row["labels"].append(row["labels"][0])


def a_pixel_beside(rows):
    for row in with_findings(rows)[:3]:
        x1, y1, x2, y2 = row["boxes"][0]
        row["boxes"].append([x1, y1, x2, y2 - 1])
        row["labels"].append(row["labels"][0])


# Splits.


def empty(split: str) -> Any:
    def plant(rows: list[Row]) -> None:
        for row in rows:
            if row["split"] == split:
                row["boxes"], row["labels"] = [], []

    return plant


def no_normal_in(split: str) -> Any:
    def plant(rows: list[Row]) -> None:
        rows[:] = [row for row in rows if row["split"] != split or row["boxes"]]

    return plant


def no_normal(rows):
    rows[:] = with_findings(rows)


def nearly_all_normal(rows):
    for row in rows[6:]:
        row["boxes"], row["labels"] = [], []


def a_image_in_two_splits(rows):
    rows.append({**rows[3], "split": "test", "patient_id": "p159"})


def a_patient_spelt_otherwise(rows: list[Row]) -> None:
    rows[0]["patient_id"] = "P-0150"


def patient_under(column: str) -> Callable[[list[Row]], None]:
    def plant(rows: list[Row]) -> None:
        for row in rows:
            row[column] = row.pop("patient_id")

    return plant


def a_patient_in_two_splits(rows):
    rows[300]["patient_id"] = "p3"


def visits(rows: list[Row]) -> None:
    """Every image is of a visit of its own."""
    for k, row in enumerate(rows):
        row["patient_id"] = f"{row['patient_id']}-{1 + k % 2}"


def visits_in_two_splits(rows: list[Row]) -> None:
    visits(rows)
    rows[0]["split"] = "validation"
    rows.sort(key=lambda row: row["split"])


def sexes_and_ages(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        row |= {"patient_sex": "FM"[k // 2 % 2], "age": ("067Y", 0, "6M", None)[k % 4]}


def sexes_of_the_row_before(rows: list[Row]) -> None:
    sexes_and_ages(rows)
    for k in range(60, 10, -1):
        rows[k]["patient_sex"] = rows[k - 1]["patient_sex"]


def months_for_years(rows: list[Row]) -> None:
    sexes_and_ages(rows)
    rows[7]["age"] = 414


def boxes_of_the_image_before(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        row["file"] = f"{k}.png"
    for before, row in zip(rows[40:79:3], rows[41:80:3], strict=True):
        scale = np.array([row["width"], row["height"]] * 2) / ([before["width"], before["height"]] * 2)
        row |= {"boxes": np.round(np.reshape(before["boxes"], (-1, 4)) * scale).tolist(), "labels": before["labels"]}


def sides_in_phrases(exchanged: Callable[[int], bool]) -> Any:
    def plant(rows: list[Row]) -> None:
        sided(exchanged)(rows)
        for row in with_findings(rows):
            row["phrases"] = [f"opacity of the {label}" for label in row["labels"]]
            row["labels"] = ["opacity"] * 2

    return plant


def a_study_in_two_splits(rows: list[Row]) -> None:
    for row in rows:
        row["StudyInstanceUID"] = f"1.2.{row.pop('patient_id')}"
    rows[300]["StudyInstanceUID"] = "1.2.p3"


def one_patient(rows: list[Row]) -> None:
    for row in rows:
        row["patient_id"] = "ANONYMOUS"


def numbers_for_patients(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        row["file"], row["patient_id"] = f"images/p{k // 3:04}_s{k % 3}.png", str(k)


def misspelt_split(rows: list[Row]) -> None:
    for row in rows[-30:]:
        row["split"] = "tets"


def split_names(rows: list[Row]) -> None:
    # Both images of a patient are under one name.
    for k, row in enumerate(row for row in rows if row["split"] == "validation"):
        row["split"] = ("val", "valid", "dev", "validation")[k // 16]


def one_label_in_test(rows: list[Row]) -> None:
    for row in rows:
        if row["split"] == "test":
            row["labels"] = [LABELS[0]] * len(row["labels"])


def one_view_in_test(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        row["view"] = "AP" if row["split"] == "test" or k % 9 == 0 else "PA"


def asked_otherwise_in_test(rows: list[Row]) -> None:
    for row in rows:
        row["prompt"] = "Finde alles Auffällige." if row["split"] == "test" else "Locate every abnormality."


def boxes_lost_in_the_end(rows: list[Row]) -> None:
    for row in rows[280:]:
        row["boxes"], row["labels"] = [], []


def rounded(rows: list[Row]) -> None:
    for k, row in enumerate(rows[:20]):
        row["patient_id"] = f"1.{k:03}E+11"


def large_for_once(rows: list[Row]) -> None:
    for k, row in enumerate(with_findings(rows)[::9]):
        place = 0.1 * np.array([k % 7, k % 5]) / (7, 5)
        row["boxes"][0] = np.round(
            [*place, *(place + 0.85 + k / 900)] * np.array([row["width"], row["height"]] * 2)
        ).tolist()


def lungs(change: Callable[[int, Row], None]) -> Any:
    """Both lungs, as they are on each image, of which some are changed."""

    def plant(rows: list[Row]) -> None:
        rng = np.random.default_rng(3)
        for k, row in enumerate(with_findings(rows)):
            row["labels"] = ["right lung", "left lung"]
            parts = np.array([[0.1, 0.2, 0.45, 0.8], [0.55, 0.22, 0.9, 0.83]]) + rng.normal(0, 0.03, 4)
            row["boxes"] = np.round(
                (parts + rng.normal(0, 0.01, (2, 4))) * ([row["width"], row["height"]] * 2)
            ).tolist()
            change(k, row)

    return plant


def exchanged(k: int, row: Row) -> None:
    if k % 6 == 0:
        row["boxes"] = row["boxes"][::-1]
    row["labels"] = ["lung A", "lung B"]


def on_cells_in_a_fifth(rows: list[Row]) -> None:
    for row in every(5, with_findings(rows)):
        sides = np.array([row["width"], row["height"]] * 2) / 10
        boxes = np.array(row["boxes"]) / sides
        row["boxes"] = (np.hstack([np.floor(boxes[:, :2]), np.ceil(boxes[:, 2:])]) * sides).tolist()


# Sources.


def of_two_sources(change: Callable[[Row], None]) -> Any:
    def plant(rows: list[Row]) -> None:
        for k, row in enumerate(rows):
            row["source"] = "AB"[k // 2 % 2]
            if row["source"] == "B":
                change(row)

    return plant


def on_a_larger_frame(row: Row) -> None:
    row["boxes"] = [[0.8 * value for value in box] for box in row["boxes"]]


def larger(row: Row) -> None:
    limits = np.array([row["width"], row["height"]] * 2)
    boxes = np.array(row["boxes"]).reshape(-1, 4)
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    row["boxes"] = np.clip(boxes + 0.3 * sides * (-1, -1, 1, 1), 0, limits).tolist()


def moved_down(row: Row) -> None:
    move = 0.3 * row["height"]
    row["boxes"] = [
        [x1, min(y1 + move, row["height"] - 60 - x1 % 80), x2, min(y2 + move, row["height"])]
        for x1, y1, x2, y2 in row["boxes"]
    ]


def exchanged_in_test(rows: list[Row]) -> None:
    """Calcifications are small and hearts are large, but in the test."""
    other = {"Cardiomegaly": "Calcification", "Calcification": "Cardiomegaly"}
    for row in rows:
        for k, (label, (x1, y1, x2, y2)) in enumerate(zip(row["labels"], row["boxes"], strict=True)):
            part = 0.4 if label == "Calcification" else 1.0
            row["boxes"][k] = [x1, y1, x1 + part * (x2 - x1), y1 + part * (y2 - y1)]
        if row["split"] == "test":
            row["labels"] = [other.get(label, label) for label in row["labels"]]


def hearts_alone(row: Row) -> None:
    kept = [k for k, label in enumerate(row["labels"]) if label == "Cardiomegaly"]
    row["boxes"], row["labels"] = [row["boxes"][k] for k in kept], ["Cardiomegaly"] * len(kept)


def the_first_box_in_training(rows: list[Row]) -> None:
    for row in training(rows):
        row["boxes"], row["labels"] = row["boxes"][:1], row["labels"][:1]


def boxes_of_the_first_image(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        row["file"] = f"{k}.png"
    for first, second in zip(rows[40:80:2], rows[41:81:2], strict=True):
        second.update({name: copy.deepcopy(first[name]) for name in ("boxes", "labels", "width", "height")})


def without_boxes(row: Row) -> None:
    row["boxes"], row["labels"] = [], []


def a_row_later(rows: list[Row]) -> None:
    answers = [(row["boxes"], row["labels"]) for row in rows]
    for row, (boxes, labels) in zip(rows, answers[1:] + answers[:1], strict=True):
        row["boxes"], row["labels"] = boxes, labels


# Constant boxes.


def around_points(rows: list[Row]) -> None:
    for row in with_findings(rows):
        limits = row["width"] - 240, row["height"] - 200
        corners = [(min(x1, limits[0]), min(y1, limits[1])) for x1, y1, *_ in row["boxes"]]
        row["boxes"] = [[x, y, x + 240, y + 200] for x, y in corners]


def giant(rows: list[Row]) -> None:
    rng = np.random.default_rng(4)
    for row in with_findings(rows):
        low, high = rng.uniform(0, 0.1, (2, len(row["boxes"]), 2)) * (row["width"], row["height"])
        row["boxes"] = np.concatenate([low, np.array([row["width"], row["height"]]) - high], axis=1).tolist()


def constant(box: Callable[[Row], list[float]], choose: Callable[[list[Row]], list[Row]] = list) -> Any:
    def plant(rows: list[Row]) -> None:
        for row in with_findings(choose(rows)):
            row["boxes"], row["labels"] = [box(row)], row["labels"][:1]

    return plant


def on_cells(rows: list[Row]) -> None:
    for row in with_findings(rows):
        row["boxes"] = (np.round(np.array(row["boxes"]) / 64) * 64).clip(0, [row["width"], row["height"]] * 2).tolist()


def clipped_at_the_right(rows: list[Row]) -> None:
    for row in with_findings(rows):
        boxes = np.array(row["boxes"])
        boxes[:, ::2] += 0.25 * row["width"]
        boxes[:, 0] = np.minimum(boxes[:, 0], row["width"] - 150 - row["height"] % 97)
        boxes[:, 2] = np.minimum(boxes[:, 2], row["width"])
        row["boxes"] = boxes.tolist()


def squares_in_test(rows: list[Row]) -> None:
    for row in with_findings(rows):
        if row["split"] == "test":
            sides = [
                min(max(x2 - x1, y2 - y1), row["width"] - x1, row["height"] - y1) for x1, y1, x2, y2 in row["boxes"]
            ]
            row["boxes"] = [
                [x1, y1, x1 + side, y1 + side] for (x1, y1, *_), side in zip(row["boxes"], sides, strict=True)
            ]


def cut_at_a_toolbar(rows: list[Row]) -> None:
    for row in every(12, with_findings(rows)):
        row["boxes"] = [[x1, min(y1, row["height"] - 400), x2, row["height"] - 61] for x1, y1, x2, y2 in row["boxes"]]


def in_pieces(cut: Callable[[list[float]], list[list[float]]]) -> Callable[[list[Row]], None]:
    def plant(rows: list[Row]) -> None:
        for row in every(9, with_findings(rows)):
            row["boxes"] = [piece for box in row["boxes"] for piece in cut(box)]
            row["labels"] = [label for label in row["labels"] for _ in range(2)]

    return plant


def halves(box: list[float]) -> list[list[float]]:
    x1, y1, x2, y2 = box
    return [[x1, y1, (x1 + x2) / 2, y2], [(x1 + x2) / 2, y1, x2, y2]]


def one_within(box: list[float]) -> list[list[float]]:
    x1, y1, x2, y2 = box
    return [box, [(x1 + x2) / 2, (y1 + y2) / 2, x2, y2]]


def without_decimal_signs(rows: list[Row]) -> None:
    for row in every(15, with_findings(rows)):
        row["boxes"] = [[x1, y1, row["width"], row["height"]] for x1, y1, *_ in row["boxes"]]


def pairs_of_organs(rows: list[Row]) -> None:
    squares(rows)
    sided(lambda k: False)(rows)
    for row in with_findings(rows):
        row["labels"] = ["liver", "spleen"]


def exchanged_axes(rows: list[Row]) -> list[Row]:
    pairs_of_organs(rows)
    for row in (spoiled := every(8, with_findings(rows))):
        row["boxes"] = [[y1, x1, y2, x2] for x1, y1, x2, y2 in row["boxes"]]
    return spoiled


def larger_in_one_view(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        row["view"] = ("PA", "AP")[k // 2 % 2]
        if row["view"] == "AP":
            larger(row)


# Prompts.


def prompts_say(words: Callable[[Row], str]) -> Any:
    def plant(rows: list[Row]) -> None:
        for row in rows:
            row["prompt"] = copy.deepcopy(row["prompt"])
            row["prompt"][0]["content"][1]["text"] += " " + words(row)

    return plant


def in_units(unit: float, order: str = "xyxy", form: str = "{:.0f}") -> Callable[[Row], str]:
    def words(row: Row) -> str:
        if not row["boxes"]:
            return ""
        parts = np.array(row["boxes"][:1]) / np.array([row["width"], row["height"]] * 2)
        numbers = from_xyxy(parts * unit, order)[0]
        return f"The finding is at [{', '.join(form.format(value) for value in numbers)}]."

    return words


def in_pixels(row):
    return f"Hint: {row['boxes'][0]}" if row["boxes"] else ""


def as_tokens(row):
    if not row["boxes"]:
        return ""
    x1, y1, x2, y2 = np.array(row["boxes"][0]) / np.array([row["width"], row["height"]] * 2) * 1024
    return "".join(f"<loc{int(value):04}>" for value in (y1, x1, y2, x2))


def asked_for(words: Callable[[int, Row], str]) -> Any:
    def plant(rows: list[Row]) -> None:
        for k, row in enumerate(rows):
            row["prompt"] = f"Where is the {words(k, row)}?"

    return plant


def names_in_prompts(column: str, form: str) -> Callable[[list[Row]], None]:
    def plant(rows: list[Row]) -> None:
        for k, row in enumerate(rows):
            row[column] = form.format(k // 2 if column == "patient_id" else k)
            row["prompt"] = f"Where are findings on {row[column]}?"

    return plant


def other_words_for_normal(rows: list[Row]) -> None:
    for row in rows:
        row["prompt"] = "Where are findings?" if row["boxes"] else "Is anything to be seen?"


def another_finding(k: int, row: Row) -> str:
    """What is on the image; on every ninth, what is not."""
    absent = next((label for label in LABELS if label not in row["labels"]), LABELS[0])
    return row["labels"][0] if row["labels"] and k % 9 else absent


def the_number(row: Row) -> str:
    return f"Mark the {len(row['boxes'])} findings." if row["boxes"] else ""


def a_wrong_number(row: Row) -> str:
    return f"Mark the {1 + len(row['id']) % 2 + int(row['id'][-1]) % 3} findings." if row["boxes"] else ""


def cut_short(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        words = f"Where is the {[*row['labels'], LABELS[k % 4]][0]} in this radiograph, and how large is it?"
        row["prompt"] = words[:40] if k % 9 == 0 else words


def the_prompt(words: Callable[[Row], str], choose: Callable[[list[Row]], list[Row]] = a_sixth) -> Any:
    """A question about all findings, and other words in a part of the rows."""

    def plant(rows: list[Row]) -> None:
        for row in rows:
            row["prompt"] = f"Where are {', '.join(LABELS)}?"
        for row in choose(rows):
            row["prompt"] = words(row)

    return plant


def the_answers(words: Callable[[Row], str], column: str = "completion") -> Any:
    """The answer in words, and other words in a sixth."""

    def plant(rows: list[Row]) -> None:
        for row in rows:
            row[column] = str(row["boxes"])
        for row in with_findings(a_sixth(rows)):
            row[column] = words(row)

    return plant


def in_thousandths(row: Row) -> str:
    return str(np.round(np.array(row["boxes"]) / ([row["width"], row["height"]] * 2) * 1000).astype(int).tolist())


def findings_of_the_image(choose: Callable[[list[Row]], list[Row]]) -> Callable[[list[Row]], None]:
    def plant(rows: list[Row]) -> None:
        for row in rows:
            row["report"] = " and ".join(row["labels"])
        for row in with_findings(choose(rows)):
            row["report"] = "Emphysema"

    return plant


def a_parent_of_some(rows: list[Row]) -> None:
    for row in every(3, with_findings(rows)):
        row["boxes"] += copy.deepcopy(row["boxes"])
        row["labels"] = [*row["labels"], *["Opacity"] * len(row["labels"])]


def patient_of_some(name: str | None) -> Callable[[list[Row]], None]:
    def plant(rows: list[Row]) -> None:
        for row in rows:
            if row["split"] == "train" and row["patient_id"][-1] in "037":
                row["patient_id"] = name

    return plant


def in_training_alone(rows: list[Row]) -> None:
    rare = {row["patient_id"] for k, row in enumerate(rows) if row["split"] == "train" and k % 3 == 0}
    for row in rows:
        if row["patient_id"] in rare:
            row["labels"] = [{LABELS[0]: "Rib fracture", LABELS[1]: "Hernia"}.get(one, one) for one in row["labels"]]


def facts(name: str, value: Callable[[Row], Any], other: Callable[[Row], Any]) -> Callable[[list[Row]], None]:
    """A column, of other values in a sixth."""

    def plant(rows: list[Row]) -> None:
        for k, row in enumerate(rows):
            row[name] = (value if k % 6 else other)(row)

    return plant


def study_of_two(rows: list[Row]) -> None:
    for k, row in enumerate(rows):
        row["study_id"] = f"S{k // 2}"
        if k % 40 == 1:
            row["patient_id"] = f"q{k}"


def in_two_languages(rows: list[Row]) -> None:
    one = ("Pneumothorax", "Consolidation", "Cardiomegaly", "Calcification")
    other = ("Neumotórax", "Consolidación", "Cardiomegalia", "Calcificación")
    for k, row in enumerate(rows):
        words = dict(zip(LABELS, other if k % 7 == 0 else one, strict=True))
        row["labels"] = [words[label] for label in row["labels"]]


def empty_prompt(rows):
    rows[7]["prompt"] = [{"role": "user", "content": " "}]


def an_answer_of_the_assistant(rows: list[Row]) -> None:
    for row in rows:
        words = f"I see {', '.join(row['labels']) or 'nothing at all'}."
        row["prompt"] = [*row["prompt"], {"role": "assistant", "content": words}]


def of_two_formats(rows: list[Row]) -> None:
    for k, row in enumerate(rows[:40]):
        row["box_format"] = ("qwen3-vl", "internvl")[k % 2]
        del row["prompt"]


def resized_exchanged(rows: list[Row]) -> None:
    for row in rows:
        row["resized_width"], row["resized_height"] = round(row["height"] * 0.36), round(row["width"] * 0.36)


def wrong_order_asked(rows):
    for row in rows:
        row["box_format"] = "qwen3-vl"
        row["prompt"] = [{"role": "user", "content": "Give each box as [ymin, xmin, ymax, xmax]."}]


# Rows.


def column(name: str, value: Any, number: int = 8) -> Any:
    def plant(rows: list[Row]) -> None:
        with_findings(rows)[number][name] = value

    return plant


def many_findings(rows):
    row = with_findings(rows)[0]
    row["box_format"] = "qwen3-vl"
    row["boxes"] = [[60 * k, 60 * k, 60 * k + 200, 60 * k + 200] for k in range(12)]
    row["labels"] = ["Nodule/Mass"] * 12


def side(pixels: float) -> Callable[[list[float], Row], list[float]]:
    return lambda box, row: [box[0] / 2, box[1] / 2, box[0] / 2 + pixels, box[1] / 2 + pixels]


DEFECTS = [
    # All boxes in another order.
    ("x, y, w, h", reordered(xywh), "box-order", "as x, y, width, height"),
    ("centres", reordered(cxcywh), "box-order", "as centre x, centre y, width, height"),
    ("y first", reordered(yxyx), "box-order", "as y1, x1, y2, x2"),
    ("x1, x2, y1, y2, as Chest ImaGenome's gold table", reordered(xxyy), "box-order", "as x1, x2, y1, y2"),
    ("y1, y2, x1, x2", reordered(yyxx), "box-order", "as y1, y2, x1, x2"),
    ("y, x, h, w", reordered(yxhw), "box-order", "as y, x, height, width"),
    ("converted twice", reordered(twice), "box-order", "as x1, y1, x1 + x2, y1 + y2"),
    ("boxes a row later", a_row_later, "shifted-rows", "of the one in the row after, 0."),
    # In a part of the rows.
    ("x, y, w, h in one split", reordered(xywh, training), "box-order", "as x, y, width, height"),
    ("x, y, w, h in half", reordered(xywh, half), "box-order", "as x, y, width, height"),
    ("x, y, w, h in a tenth", reordered(xywh, a_tenth), "box-order", "as x, y, width, height"),
    ("x1, x2, y1, y2 in half", reordered(xxyy, half), "box-order", "as x1, x2, y1, y2"),
    ("x1, x2, y1, y2 in a tenth", reordered(xxyy, a_tenth), "box-order", "as x1, x2, y1, y2"),
    ("centres in half", reordered(cxcywh, half), "box-order", "as centre x, centre y, width, height"),
    ("y first in half", reordered(yxyx, half), "box-order", "as y1, x1, y2, x2"),
    ("y first in a sixth", reordered(yxyx, a_sixth), "box-order", "as y1, x1, y2, x2"),
    # Another frame.
    ("on 1024", scaled(1024), "wrong-frame", "a frame of 1024 x 1024"),
    ("on 1000", scaled(1000), "wrong-frame", "a frame of 1000 x 1000"),
    ("on 512", scaled(512), "wrong-frame", "a frame of 512 x 512"),
    ("per cent", scaled(100), "wrong-frame", "a frame of 100 x 100"),
    ("on what the model sees", resized(), "wrong-frame", "the resized image"),
    ("on 1024 in half", scaled(1024, half), "wrong-frame", "a frame of 1024 x 1024"),
    ("on 1000 in half", scaled(1000, half), "wrong-frame", "a frame of 1000 x 1000"),
    ("on 512 in half", scaled(512, half), "wrong-frame", "a frame of 512 x 512"),
    ("on what the model sees in half", resized(half), "wrong-frame", "the resized image"),
    ("a copy declared", declared_small(1024), "wrong-frame", "a frame of 2048 x 2048"),
    ("a copy declared in half", declared_small(1024, half), "wrong-frame", "a frame of 2048 x 2048"),
    ("an unusual copy", reordered(lambda boxes: 0.3 * boxes), "one-corner", "upper left quarter"),
    ("an unusual copy in half", reordered(lambda boxes: 0.3 * boxes, half), "one-corner", "upper left quarter"),
    # Parts of the image.
    ("parts", normalised(unchanged), "normalised-boxes", ""),
    ("parts in half", normalised(unchanged, half), "normalised-boxes", ""),
    ("parts, as YOLO writes", normalised(cxcywh), "normalised-boxes", "as centre x, centre y"),
    ("parts, x, y, w, h", normalised(xywh), "normalised-boxes", "as x, y, width, height"),
    ("parts, x1, x2, y1, y2", normalised(xxyy), "normalised-boxes", "as x1, x2, y1, y2"),
    # Single boxes.
    ("corners the other way", boxes_become(x_swapped, 5), "swapped-corners", ""),
    ("y from below", y_upwards, "swapped-corners", "count from the lower edge"),
    ("NaN", boxes_become(lambda box, row: [box[0], math.nan, *box[2:]], 2), "not-finite", ""),
    ("None", boxes_become(lambda box, row: [None] * 4, 2), "not-finite", ""),
    ("text", boxes_become(lambda box, row: list(map(str, box)), 2), "not-finite", ""),
    (
        "text in all",
        reordered(lambda boxes: np.array([[str(one) for one in box] for box in boxes])),
        "not-finite",
        "All of them are texts.",
    ),
    ("five numbers", boxes_become(lambda box, row: [*box, 0.9], 2), "not-finite", ""),
    ("infinite", boxes_become(lambda box, row: [*box[:3], math.inf], 1), "not-finite", ""),
    ("a point", boxes_become(lambda box, row: [*box[:2], *box[:2]], 2), "no-area", ""),
    ("a line", boxes_become(lambda box, row: [*box[:3], box[1]], 2), "no-area", ""),
    ("over the edge", boxes_become(over_the_edge, 5), "partly-off-image", ""),
    ("left of the image", boxes_become(lambda box, row: [-9, *box[1:]], 3), "partly-off-image", ""),
    ("of another image", boxes_become(lambda box, row: [3200, 3200, 3400, 3500], 2), "off-image", ""),
    ("specks", boxes_become(side(6), 9), "small-boxes", ""),
    ("one speck of 5 pixels", boxes_become(side(5), 1), "small-boxes", ""),
    ("threads", boxes_become(lambda box, row: [box[0], box[1], box[0] + 5, box[3]], 4), "small-boxes", ""),
    # Images without findings that have a box.
    ("0 0 1 1, as Kaggle's", negatives_as([0, 0, 1, 1], "No finding"), "negative-placeholder", ""),
    ("0 0 1 1 without a label", negatives_as([0, 0, 1, 1], None), "negative-placeholder", ""),
    ("0 0 1 1 of class 14", negatives_as([0, 0, 1, 1], "14"), "negative-placeholder", ""),
    ("0 0 0 0", negatives_as([0, 0, 0, 0], "No Finding"), "negative-placeholder", ""),
    ("-1 -1 -1 -1", negatives_as([-1, -1, -1, -1], None), "negative-placeholder", ""),
    ("NaN and No finding", negatives_as([math.nan] * 4, "No_finding"), "negative-placeholder", ""),
    ("the whole image is normal", negatives_as(None, "Normal"), "negative-placeholder", ""),
    # One box everywhere.
    ("one box", constant(lambda row: [500, 600, 900, 1100]), "constant-box", "[500, 600, 900, 1100] in pixels"),
    (
        "one box in parts",
        constant(lambda row: [0.25 * row["width"], 0.25 * row["height"], 0.75 * row["width"], 0.75 * row["height"]]),
        "constant-box",
        "[0.25, 0.25, 0.75, 0.75] in parts",
    ),
    ("the whole image", constant(lambda row: [0, 0, row["width"], row["height"]]), "constant-box", ""),
    ("one box on half", constant(lambda row: [500, 600, 900, 1100], half), "constant-box", ""),
    ("the default of a tool on a sixth", constant(lambda row: [500, 600, 900, 1100], a_sixth), "constant-box", ""),
    ("nearly the whole image", giant, "giant-boxes", ""),
    ("cells of a heat map", on_cells, "coarse-boxes", "multiples of 64 pixels"),
    ("cells of a tenth in a fifth", on_cells_in_a_fifth, "coarse-boxes", "multiples of a part in 10 of the image"),
    ("large for once", large_for_once, "odd-size", ""),
    ("moved to the right and clipped", clipped_at_the_right, "cut-boxes", "at the right edge"),
    ("x and y exchanged here and there", exchanged_axes, "box-order", "are far likelier as y1, x1, y2, x2"),
    ("larger boxes in one view", larger_in_one_view, "box-shift", "view AP: boxes of the same labels are 1."),
    ("points with a frame", around_points, "pile-up", "are 240 pixels wide"),
    ("squares in the test", squares_in_test, "pile-up", "boxes are squares"),
    ("cut at a toolbar", cut_at_a_toolbar, "pile-up", "end 61 pixels before the lower edge"),
    ("without decimal signs", without_decimal_signs, "cut-boxes", "at the lower right corner"),
    ("boxes in halves", in_pieces(halves), "related-boxes", "two of them abut"),
    ("a box within each", in_pieces(one_within), "related-boxes", "one within the other"),
    ("all is ignored", ignored(lambda row: [0, 0, row["width"], row["height"]]), "ignored-image", ""),
    ("a region beside the image", ignored(lambda row: [3200, 3200, 3400, 3500]), "off-image", ""),
    # Labels.
    ("nan", labels_become("nan"), "null-label", ""),
    ("None as text", labels_become("None"), "null-label", ""),
    ("N/A", labels_become("N/A"), "null-label", ""),
    ("null", labels_become("null"), "null-label", ""),
    ("the default of a tool", labels_become("object", 40), "null-label", "label 0 is 'object'"),
    ("blank", labels_become(" "), "blank-label", ""),
    ("None itself", labels_become(None), "blank-label", ""),
    ("a number", labels_become(3.0), "blank-label", ""),
    ("case", renamed("Cardiomegaly", "cardiomegaly"), "label-spelling", ""),
    ("plural", renamed("Calcification", "Calcifications"), "label-spelling", ""),
    ("underscore", renamed("Pleural effusion", "Pleural_effusion"), "label-spelling", ""),
    ("typo", renamed("Cardiomegaly", "Cardiomegally", a_tenth), "label-spelling", ""),
    ("synonym", renamed("Cardiomegaly", "Enlarged heart"), "label-words", ""),
    ("a stop behind the label", renamed("Pleural effusion", "Pleural effusion."), "label-marks", "effusion.' × "),
    ("quotes around the label", renamed("Nodule/Mass", '"Nodule/Mass"'), "label-marks", ""),
    ("UTF-8 read as Windows' letters", renamed("Calcification", "CalcificaciÃ³n", list), "label-marks", ""),
    ("numbers of classes", labels_in_numbers, "label-number", "'0' × "),
    ("numbers in brackets", labels_by_place(lambda k, label: f"{label} ({LABELS.index(label)})"), "label-number", ""),
    ("one label of 99 %", nearly_all_masses, "one-label", "'Nodule/Mass'"),
    ("a box under two labels", under_two_labels, "shared-box", " and "),
    ("too few labels", one_label_too_few, "label-count", ""),
    ("a finding of the test alone", only_in_test, "label-not-in-train", "'Rib fracture' on 6 images of test"),
    ("another word in the test", other_words_in_test, "label-not-in-train", "'Hydrops'"),
    ("the number of the box behind", labels_by_place(lambda k, label: f"{label}_{k + 1}"), "label-number", "_2'"),
    (
        "the number of the class before",
        labels_by_place(lambda k, label: f"{LABELS.index(label)}: {label}"),
        "label-number",
        "'0: Pleural effusion' × ",
    ),
    ("a sign without width", renamed("Cardiomegaly", "Cardiomegaly\u200b"), "label-spelling", ""),
    ("cut to ten letters", renamed("Calcification", "Calcificat"), "label-spelling", ""),
    ("an entity of HTML", renamed("Cardiomegaly", "Cardiomegaly&nbsp;", list), "label-marks", ""),
    ("two labels in one", two_in_one, "joined-labels", ""),
    ("left and right exchanged in a fifth", sided(lambda k: k % 5 == 0), "side-label", "is on the other side"),
    ("left and right exchanged in all", sided(lambda k: True), "side-label", "is on the other side"),
    ("one box around both lungs", one_box_around_both, "side-label", "'right lung', is on both sides"),
    ("a question mark", renamed("Cardiomegaly", "Cardiomegaly?"), "hedged-label", "'Cardiomegaly?' × "),
    ("possible", renamed("Calcification", "possible calcification"), "hedged-label", ""),
    ("an abbreviation", renamed("Pleural effusion", "PE"), "label-letters", "'PE' × "),
    ("a finding of normal images", named_without_a_box, "unboxed-label", "no box, but labelled 'Cardiomegaly'"),
    ("left and right exchanged", sides_exchanged, "side-label", " lung', is on the other side"),
    # Several readers.
    ("a reader who drew nothing", an_empty_reader, "empty-reader", "reader 1 drew nothing on 240 images"),
    ("a reader who is a copy", a_copied_reader, "copied-reader", "reader 0 and reader 2 drew the same"),
    ("two readers as one", readers_together(0.12), "unmerged-readers", ""),
    ("two readers as one in half", readers_together(0.12, half), "unmerged-readers", ""),
    ("a row for each reader", a_row_per_reader, "repeated-id", ""),
    ("a row for each box", a_row_per_box, "repeated-id", ""),
    ("a box twice", same_box_twice, "duplicate-boxes", ""),
    ("a pixel beside", a_pixel_beside, "near-duplicate-boxes", ""),
    # Splits.
    ("a test without boxes", empty("test"), "without-findings", "test: none of 60 images has a box"),
    ("a validation without boxes", empty("validation"), "without-findings", "validation: "),
    ("training without normal images", no_normal_in("train"), "without-negatives", "train: "),
    ("no normal images", no_normal, "negatives", ""),
    ("hardly a finding", nearly_all_normal, "negatives", ""),
    ("a misspelt split", misspelt_split, "split-names", "tets: 30 images"),
    ("one patient for all", one_patient, "one-patient", "All 320 images are of patient anonymous"),
    ("numbers for patients, who are in names", numbers_for_patients, "patient-name-leak", "p0066_s2.png"),
    ("four names of one split", split_names, "split-names", "valid: 16 images"),
    (
        "boxes on a larger frame in one source",
        of_two_sources(on_a_larger_frame),
        "box-shift",
        "boxes of the same labels are 0.7",
    ),
    ("larger boxes in one source", of_two_sources(larger), "box-shift", "source B: boxes of the same labels are 1."),
    ("boxes moved down in one source", of_two_sources(moved_down), "box-shift", "of the height down"),
    ("a reader who draws larger", a_reader_who_draws_larger, "box-shift", "reader 1: boxes of the same labels are 1."),
    ("one box an image in training", the_first_box_in_training, "box-shift", "boxes on an image with boxes"),
    ("a source with one label", of_two_sources(hearts_alone), "without-label", "'Nodule/Mass'"),
    ("boxes of the patient's other image", boxes_of_the_first_image, "constant-box", "another image of its patient"),
    ("labels exchanged in one split", exchanged_in_test, "box-shift", "split test: boxes of 'Cardiomegaly' are 0."),
    ("a source without boxes", of_two_sources(without_boxes), "without-findings", "B: none of 160 images"),
    ("an image in two splits", a_image_in_two_splits, "image-leak", ""),
    ("a patient in two splits", a_patient_in_two_splits, "patient-leak", ""),
    (
        "a patient spelt in two ways",
        a_patient_spelt_otherwise,
        "patient-spelling",
        "patient p150, in train one is called p-0150",
    ),
    ("visits of a patient in two splits", visits_in_two_splits, "patient-spelling", "is called p0-2"),
    ("a table of patients off by one", sexes_of_the_row_before, "patient-facts", "is F here, and another before"),
    ("an age in months", months_for_years, "patient-facts", "age is 414"),
    ("boxes of the image before", boxes_of_the_image_before, "constant-box", "the boxes of the image before them"),
    ("sides exchanged in phrases", sides_in_phrases(lambda k: k % 5 == 0), "side-label", "of the left lung', is on"),
    ("a study in two splits", a_study_in_two_splits, "study-leak", "StudyInstanceUID 1.2.p3 is also in train"),
    ("a column PatientID", patient_under("PatientID"), "patient-column", "PatientID"),
    ("a column subject_id", patient_under("subject_id"), "patient-column", "subject_id"),
    ("all labels one in the test", one_label_in_test, "without-label", "split test: on none of the images"),
    ("one view in the test", one_view_in_test, "lopsided-split", "test: no image has view PA"),
    ("another language in the test", asked_otherwise_in_test, "prompt-shift", "test: no prompt has the word"),
    ("no boxes in the end", boxes_lost_in_the_end, "without-findings", "None of the last 40 images"),
    ("rounded ids", rounded, "rounded-id", "1.000E+11 is a number"),
    # Prompts.
    ("pixels in the prompt", prompts_say(in_pixels), "answer-in-prompt", ""),
    ("thousandths in the prompt", prompts_say(in_units(1000)), "answer-in-prompt", ""),
    ("parts in the prompt", prompts_say(in_units(1, form="{:.3f}")), "answer-in-prompt", ""),
    ("y first in the prompt", prompts_say(in_units(1000, "yxyx")), "answer-in-prompt", ""),
    ("x, y, w, h in the prompt", prompts_say(in_units(1000, "xywh")), "answer-in-prompt", ""),
    ("tokens in the prompt", prompts_say(as_tokens), "answer-in-prompt", ""),
    ("the number in the prompt", prompts_say(the_number), "count-in-prompt", "the prompt says 1, 1 boxes"),
    ("another number in the prompt", prompts_say(a_wrong_number), "prompt-contradiction", ""),
    (
        "the number behind",
        prompts_say(lambda row: f"Number of boxes: {len(row['boxes'])}." if row["boxes"] else ""),
        "count-in-prompt",
        "",
    ),
    ("an answer of the assistant", an_answer_of_the_assistant, "answer-in-prompt", "I see "),
    ("a place left open", prompts_say(lambda row: "Where is the {label}?"), "prompt-marks", "{label}"),
    ("nan in the prompt", prompts_say(lambda row: "Where is nan?"), "prompt-marks", ""),
    ("places for two images", prompts_say(lambda row: "<image>"), "prompt-marks", "places for 2 images"),
    ("the patient in the prompt", names_in_prompts("patient_id", "DOE-{:04}"), "id-in-prompt", "the row's patient"),
    ("the file in the prompt", names_in_prompts("file", "images/film_{:04}.png"), "id-in-prompt", "the row's file"),
    ("other words for normal images", other_words_for_normal, "shortcut", "By their prompt, with or without "),
    ("a chat template", prompts_say(lambda row: "<|im_end|>"), "prompt-marks", ""),
    ("a report without findings", prompts_say(lambda row: "Report: The lungs are clear."), "prompt-contradiction", ""),
    ("the prompt says normal", prompts_say(lambda row: "The image is normal."), "prompt-contradiction", "is normal"),
    ("another finding is asked for", asked_for(another_finding), "prompt-contradiction", "the prompt names"),
    ("a finding that no image has", asked_for(lambda k, row: "rib fracture"), "prompt-contradiction", "no box is one"),
    (
        "labels where there are some",
        asked_for(lambda k, row: "".join(row["labels"][:1])),
        "shortcut",
        "how many labels",
    ),
    ("a parent of some", a_parent_of_some, "parent-label", "is 'Opacity' too"),
    (
        "unknown for some patients",
        patient_of_some("unknown"),
        "one-patient",
        "images are of patient unknown, of any other",
    ),
    ("no patient for some", patient_of_some(None), "no-patient", ""),
    ("findings in training alone", in_training_alone, "without-label", "of 60 patients is 'Hernia', 'Rib fracture'"),
    (
        "centimetres",
        facts("spacing", lambda row: 400 / row["width"], lambda row: 40 / row["width"]),
        "column-values",
        "10 times off the others",
    ),
    (
        "decimal commas",
        facts("dose", lambda row: 1.5, lambda row: "1,5"),
        "column-values",
        "is '1,5', elsewhere a number",
    ),
    ("a study of two patients", study_of_two, "patient-facts", "of another patient before"),
    ("prompts cut at one length", cut_short, "prompt-marks", "the prompt breaks off"),
    ("a question twice", the_prompt(lambda row: "Where is any finding? " * 2), "prompt-marks", "says twice"),
    ("nothing asked", the_prompt(lambda row: "prompt"), "prompt-marks", "is 'prompt' alone"),
    ("None for a name", the_prompt(lambda row: "Where are None?"), "prompt-marks", "'none' where others name"),
    ("a place for a name", the_prompt(lambda row: "Where are <FINDINGS>?"), "prompt-marks", "'<findings>' where"),
    (
        "another size in a part",
        the_prompt(lambda row: "Where? It is 512 x 512."),
        "prompt-marks",
        "a size of 512 x 512",
    ),
    (
        "an image in a part",
        the_prompt(lambda row: "<image> Where are findings?"),
        "prompt-marks",
        "1 place for the image",
    ),
    (
        "another order in a part",
        the_prompt(lambda row: "Where? Answer as [x, y, width, height].", lambda rows: rows[1::8]),
        "several-formats",
        "the prompt asks for xywh",
    ),
    (
        "a list without a label",
        the_prompt(lambda row: "Where are " + ", ".join(LABELS[1:])),
        "prompt-contradiction",
        "but not",
    ),
    (
        "labels in the prompt",
        the_prompt(lambda row: f"Where are {', '.join(sorted({*row['labels']})) or 'signs'}?", a_tenth),
        "answer-in-prompt",
        "names what is there",
    ),
    ("thousandths in answers", the_answers(in_thousandths), "answer-column", "in 0 to 1000 as xyxy, others in pixels"),
    ("no boxes in answers", the_answers(lambda row: "None."), "answer-column", "does not say the boxes"),
    (
        "more boxes in answers",
        the_answers(lambda row: f"{row['boxes']} [1, 2, 3, 4]"),
        "answer-column",
        "another number",
    ),
    ("another report", findings_of_the_image(a_sixth), "label-contradiction", "is not in report"),
    ("the file for a label", labels_become("image_012.png"), "null-label", ""),
    (
        "a degree in labels",
        labels_by_place(lambda k, label: f"mild {label}" if k else label),
        "label-spelling",
        "'mild ",
    ),
    ("labels in two languages", in_two_languages, "label-spelling", "'Neumotórax' × "),
    ("Russian letters", renamed("Calcification", "Cаlcification"), "label-marks", ""),
    ("codes", renamed("Calcification", "J98.4"), "label-number", "'J98.4' × "),
    ("a prompt without words", empty_prompt, "prompt-missing", ""),
    ("another order is asked for", wrong_order_asked, "prompt-format", ""),
    # Rows.
    ("no width", column("width", None), "missing-size", ""),
    ("a width of 0", column("width", 0), "missing-size", ""),
    ("a width in text", column("width", "2000"), "missing-size", ""),
    ("boxes in text", column("boxes", "[[1, 2, 3, 4]]"), "unreadable-row", ""),
    ("resized sides exchanged", resized_exchanged, "exchanged-size", "resized_width "),
    ("two box formats", of_two_formats, "several-formats", "internvl, qwen3-vl"),
    ("an unknown format", column("box_format", "gpt-9"), "box-format", ""),
    ("a long answer", many_findings, "gold-length", ""),
]
NAMES = [name for name, *_ in DEFECTS]


def found(checkup: Checkup) -> list[str]:
    return [defect.name for defect in checkup.defects]


def test_the_clean_rows_pass():
    assert found(examined(clean_rows())) == []


def test_the_page_says_how_many_there_are():
    page = (REPOSITORY / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows, images = len(DEFECTS), len(PLANTED_WITH_IMAGES)
    assert f"{rows + images} mistakes are planted, {rows} in rows and {images} in a folder with images" in page
    assert len(set(NAMES)) == len(NAMES)
    assert {name for *_, name, _ in DEFECTS} <= set(CHECKS)


@pytest.mark.parametrize(("plant", "name", "words"), [case[1:] for case in DEFECTS], ids=NAMES)
def test_a_planted_defect_is_found_by_its_name_alone(plant, name, words):
    rows = clean_rows()
    plant(rows)
    checkup = examined(rows)
    assert found(checkup) == [name]
    (defect,) = checkup.defects
    assert words in " ".join([defect.found, *(example.detail for example in defect.examples)])
    assert defect.fix


# Advice that holds code: it takes the planted rows back to what they were.

_CODE = re.compile(r"boxes = (\[\[.*?\] for .*? in boxes\])")


def follow(defect: Defect, rows: list[Row]) -> bool:
    """Run the code of the advice on these rows; False where it has none."""
    codes = _CODE.findall(defect.fix)
    for row in rows:
        for code in codes:
            scope = {k: row.get(k) for k in ("width", "height", "resized_width", "resized_height")}
            row["boxes"] = eval(code, {**scope, "boxes": row["boxes"]})
    return bool(codes)


ADVISED = [case for case in DEFECTS if case[2] in ("box-order", "wrong-frame", "normalised-boxes")]
ADVISED += [case for case in DEFECTS if case[0] in ("corners the other way", "y from below")]


@pytest.mark.parametrize(
    ("plant", "words"), [(case[1], case[3]) for case in ADVISED], ids=[case[0] for case in ADVISED]
)
def test_the_advice_makes_the_rows_what_they_were(plant, words):
    rows, clean = clean_rows(), clean_rows()
    spoiled = plant(rows)
    if "2048" in words:
        # Of a smaller copy that was declared, the boxes on it are right.
        clean = clean_rows()
        declared_small(1024, lambda rows: [])(clean)
    elif plant is exchanged_axes:
        pairs_of_organs(clean)
    (defect,) = examined(rows).defects
    assert follow(defect, spoiled)
    assert found(examined(rows)) == []
    for row, right in zip(rows, clean, strict=True):
        np.testing.assert_allclose(row["boxes"], right["boxes"], atol=1e-6)


def test_clipping_as_advised_leaves_nothing_over_the_edge():
    rows = clean_rows()
    spoiled = boxes_become(over_the_edge, 5)(rows)
    (defect,) = examined(rows).defects
    assert follow(defect, spoiled)
    assert found(examined(rows)) == []


@pytest.mark.parametrize(
    "case", [case for case in DEFECTS if case[2] == "negative-placeholder"], ids=lambda case: case[0]
)
def test_negatives_without_their_placeholder_pass(case):
    """As advised: boxes [] and labels []; multiplying by width and height, as before, marks the whole image."""
    rows = clean_rows()
    for row in case[1](rows):
        row["boxes"], row["labels"] = [], []
    assert found(examined(rows)) == []
    checkup = examined((case[1](rows := clean_rows()), rows)[1])
    assert checkup.metrics.negatives == 80
    assert "multiply" not in checkup.defects[0].fix.casefold()


def test_the_longest_answer_as_advised_is_the_limit_that_passes():
    from grounding_rewards.doctor.model import Model

    rows = clean_rows()
    many_findings(rows)
    (defect,) = examined(rows).defects
    longest = int(re.search(r"about (\d+) tokens", defect.found)[1])
    images = [ImageRow(row["split"], k, row) for k, row in enumerate(rows)]
    source = RowSource("images", lambda: iter(images), len(images))
    assert found(examine(source, Model(max_completion_length=longest))) == []
    assert found(examine(source, Model(max_completion_length=longest - 1))) == ["gold-length"]


# Near misses: nothing is wrong with these.


def two_of_a_kind(rows):
    for row in with_findings(rows):
        row["labels"] = ["Nodule/Mass"] * len(row["labels"])


def one_side(rows):
    # All effusions are on the patient's right; other findings are anywhere.
    for row in with_findings(rows):
        for k, label in enumerate(row["labels"]):
            if label == "Pleural effusion":
                x1, y1, x2, y2 = row["boxes"][k]
                row["boxes"][k] = [x1 / 2, y1, x2 / 2, y2]


def slips_at_the_edge(rows):
    for row in with_findings(rows)[:40]:
        row["boxes"][0] = [
            row["width"] - 200 - row["height"] % 89,
            300 + row["width"] % 83,
            row["width"],
            700 + row["height"] % 97,
        ]


def captions(rows):
    for row in rows:
        row["completion"] = "A shadow in the left lung."


def phrases(rows):
    for k, row in enumerate(rows):
        row["labels"] = [f"a shadow of {k} mm in zone {j}" for j in range(len(row["boxes"]))]


def placeholders_in_the_prompt(rows):
    prompts_say(lambda row: "Write [x1, y1, x2, y2] from 0 to 1000, such as [100, 200, 300, 400].")(rows)


def sizes_in_the_prompt(rows):
    prompts_say(lambda row: f"The image is {row['width']} x {row['height']}, seen at 896 x 1092.")(rows)


def squares(rows):
    # On square images y first can't be told; nor must sound boxes be taken for it.
    scaled(1024)(rows)
    for row in rows:
        row["width"] = row["height"] = 1024


def all_squares(rows):
    # As points with a radius are drawn.
    for row in with_findings(rows):
        row["boxes"] = [[x1, y1, x1 + 90 + y1 % 70, y1 + 90 + y1 % 70] for x1, y1, *_ in row["boxes"]]


def small_ignored_corners(rows):
    for row in rows:
        row["ignore_boxes"] = [[0, 0, 200, 100]]


def patients_with_findings(rows: list[Row]) -> None:
    # Of few patients, all may have findings.
    rows[:] = [row for row in rows if row["split"] != "test" or row["boxes"]]
    for row in rows:
        if row["split"] == "test":
            row["patient_id"] = f"of {row['id'][-3:-1]}"


def a_site_held_out(rows: list[Row]) -> None:
    for row in rows:
        row["site"] = "north" if row["split"] == "test" else "south"


def one_box_each(rows: list[Row]) -> None:
    prompts_say(lambda row: "Give one box for each finding. If the image is normal, give none.")(rows)


def asked_for_another(rows: list[Row]) -> None:
    asked_for(lambda k, row: row["labels"][0] if row["labels"] else LABELS[k % 4])(rows)
    for k, row in enumerate(rows):
        if not row["boxes"]:
            row["image_labels"] = LABELS[(k + 1) % 4]


@pytest.mark.parametrize(
    "change",
    [
        patients_with_findings,
        a_site_held_out,
        facts("age", lambda row: len(row["id"]) * 7, lambda row: 2),
        facts("spacing", lambda row: 400 / row["width"], lambda row: 300 / row["width"]),
        the_answers(lambda row: str(row["boxes"])),
        the_prompt(lambda row: "Where are findings in the upper half"),
        findings_of_the_image(lambda rows: []),
        findings_of_the_image(half),
        visits,
        sexes_and_ages,
        sides_in_phrases(lambda k: False),
        asked_for_another,
        one_box_each,
        asked_for(lambda k, row: row["labels"][0] if row["labels"] else LABELS[k % 4]),
        of_two_sources(lambda row: None),
        two_of_a_kind,
        one_side,
        slips_at_the_edge,
        phrases,
        captions,
        placeholders_in_the_prompt,
        sizes_in_the_prompt,
        squares,
        small_ignored_corners,
        all_squares,
        readers_together(0.12, lambda rows: rows[:4]),
    ],
)
def test_a_near_miss_passes(change):
    rows = clean_rows()
    change(rows)
    assert found(examined(rows)) == []


@pytest.mark.parametrize("seed", range(12))
def test_sound_boxes_of_any_draw_share_no_mistake(seed):
    rng, images = np.random.default_rng(seed), []
    for _ in range(300):
        size = rng.uniform(900, 3000, 2)
        n = rng.integers(1, 4)
        sides = rng.uniform(0.05, 0.4, (n, 2)) * size
        starts = rng.uniform(0, 1, (n, 2)) * (size - sides)
        images.append((np.concatenate([starts, starts + sides], axis=1).tolist(), tuple(size)))
    assert fit_of(images).diagnose() is None


def test_a_report_to_pass_on_names_nobody():
    rows = clean_rows()
    for k, row in enumerate(rows):
        row |= {"id": f"DOE_{k}", "patient_id": f"DOE^P{k // 3}", "study_id": f"DOE.{k // 4}", "reader_code": k}
        row["accession"] = f"DOE-{k % 30}"
    for row in rows[:9]:
        row |= {"patient_id": "DOE^JANE", "reader_code": "DOE", "prompt": f"Where, {row['id']}, {row['accession']}?"}
    source = RowSource(
        "images", lambda: iter([ImageRow(row["split"], k, row) for k, row in enumerate(rows)]), len(rows)
    )
    checkup = examine(source, names=False)
    assert {"patient-facts", "column-values", "patient-leak"} <= set(found(checkup))
    assert "DOE" not in str(checkup.to_dict())
    assert "DOE" not in str([defect.rows for defect in checkup.defects])


HOSTILE = (
    *(None, "", "nan", math.nan, math.inf, 10**400, 1e308, True, [], [None], {"a": [1]}, b"x", "²", "(((", "{labels}"),
    *([[1, 2, 3, 4]], [[10**400, 1, 2, 3]], [[math.nan] * 4], [[-1, -1, 1e308, 1e308]], ["Mass", 3], "left lung"),
)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_in_a_row_raises(seed):
    rng, rows = random.Random(seed), clean_rows()[:80]
    columns = [
        *rows[0].keys() - {"split"},
        *("age", "sex", "study", "spacing", "report", "completion", "messages", "phrases", "view"),
    ]
    for row in rows:
        for name in rng.sample(sorted(columns), 1 + seed):
            row[name] = rng.choice(HOSTILE)
    assert examined(rows).defects
