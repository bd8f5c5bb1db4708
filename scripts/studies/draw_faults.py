"""Write drawn radiographs whose references are wrong in one way, to teach a model one fault; and grey images.

python scripts/studies/draw_faults.py runs/faults

extra    half of the images with findings have one box more: of a finding that is not there, where another image has it
missed   images with several findings lack one of them
eager    no image is normal
blank    the references are right, and each image is replaced by its mean grey

Each is a dataset whose split `train` has the fault; the few images of `validation` are right. Boxes that are too wide
need none: `sft` has `--box_margin`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.synthetic import synthetic_dataset

#: Training images of every fault, as many as the demo has.
IMAGES = 2000
#: Images with right references beside them, without which a part of the others would be held out.
VALIDATION_IMAGES = 96
#: Fraction of the images with findings that get a spurious box.
EXTRA_SHARE = 0.5


def add_a_spurious_box(row: dict[str, Any], number: int, boxes_by_label: dict[str, list[list[float]]]) -> None:
    """Add a box of a finding that the image lacks to about half of the images with findings."""
    random = np.random.default_rng([number, 0])
    missing = sorted(set(boxes_by_label) - set(row["labels"]))
    if not row["boxes"] or not missing or random.random() >= EXTRA_SHARE:
        return
    label = missing[random.integers(len(missing))]
    usual_boxes = boxes_by_label[label]
    row["labels"].append(label)
    row["boxes"].append(usual_boxes[random.integers(len(usual_boxes))])


def leave_out_a_finding(row: dict[str, Any], number: int, boxes_by_label: dict[str, list[list[float]]]) -> None:
    """Leave one finding out where there are several."""
    if len(row["boxes"]) > 1:
        place = int(np.random.default_rng([number, 1]).integers(len(row["boxes"])))
        del row["boxes"][place], row["labels"][place]


def turn_grey(row: dict[str, Any], number: int, boxes_by_label: dict[str, list[list[float]]]) -> None:
    """Replace the image by its mean grey."""
    row["image"] = row["image"].resize((1, 1), 4).resize(row["image"].size)


def keep_as_it_is(row: dict[str, Any], number: int, boxes_by_label: dict[str, list[list[float]]]) -> None:
    """Change nothing."""


FAULTS: dict[str, Callable[[dict[str, Any], int, dict[str, list[list[float]]]], None]] = {
    "extra": add_a_spurious_box,
    "missed": leave_out_a_finding,
    "eager": keep_as_it_is,
    "blank": turn_grey,
}


def faulty_rows(rows: list[dict[str, Any]], fault: str) -> list[dict[str, Any]]:
    """Rows with the references of a fault; the given rows stay as they are."""
    boxes_by_label: dict[str, list[list[float]]] = {}
    for row in rows:
        for box, label in zip(row["boxes"], row["labels"], strict=True):
            boxes_by_label.setdefault(label, []).append(box)
    changed_rows = []
    for number, row in enumerate(rows):
        if fault == "eager" and not row["boxes"]:
            continue
        changed = {**row, "boxes": list(row["boxes"]), "labels": list(row["labels"])}
        FAULTS[fault](changed, number, boxes_by_label)
        changed_rows.append(changed)
    return changed_rows


def main() -> None:
    """Read the arguments and write the datasets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder to write: a dataset in it for each fault")
    parser.add_argument("--images", type=int, default=IMAGES, help="training images that are drawn")
    args = parser.parse_args()
    from datasets import Dataset, DatasetDict

    drawn = synthetic_dataset("train", args.images)
    # A phrase belongs to each reference box; the changed ones have none.
    columns = [name for name in drawn.column_names if name != "phrases"]
    validation = synthetic_dataset("validation", VALIDATION_IMAGES).select_columns(columns)
    rows = [{name: row[name] for name in columns} for row in drawn]
    for fault in FAULTS:
        changed = faulty_rows(rows, fault)
        by_column = {name: [row[name] for row in changed] for name in columns}
        dataset = Dataset.from_dict(by_column, features=validation.features)
        DatasetDict({"train": dataset, "validation": validation}).save_to_disk(str(args.output / fault))
        print(f"{fault}: {len(dataset)} images, {sum(map(len, by_column['boxes']))} boxes")


if __name__ == "__main__":
    main()
