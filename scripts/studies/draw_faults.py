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


def add_spurious_boxes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A box of a finding that is not there, where another image has it, on about half of the images with findings."""
    boxes_by_label: dict[str, list[list[float]]] = {}
    for row in rows:
        for box, label in zip(row["boxes"], row["labels"], strict=True):
            boxes_by_label.setdefault(label, []).append(box)
    changed_rows = []
    for number, row in enumerate(rows):
        random = np.random.default_rng([number, 0])
        missing = sorted(set(boxes_by_label) - set(row["labels"]))
        if row["boxes"] and missing and random.random() < EXTRA_SHARE:
            label = missing[random.integers(len(missing))]
            box = boxes_by_label[label][random.integers(len(boxes_by_label[label]))]
            row = {**row, "boxes": [*row["boxes"], box], "labels": [*row["labels"], label]}
        changed_rows.append(row)
    return changed_rows


def leave_findings_out(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One finding less on every image with several."""
    changed_rows = []
    for number, row in enumerate(rows):
        boxes, labels = list(row["boxes"]), list(row["labels"])
        if len(boxes) > 1:
            place = int(np.random.default_rng([number, 1]).integers(len(boxes)))
            del boxes[place], labels[place]
        changed_rows.append({**row, "boxes": boxes, "labels": labels})
    return changed_rows


def blank_images(dataset: Any) -> Any:
    """The images of a dataset, each replaced by its mean grey when it is read."""
    from PIL import Image, ImageStat

    def replace_images(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """A batch of rows with a grey image in place of each image."""
        for index, image in enumerate(rows.get("image", ())):
            grey = int(ImageStat.Stat(image.convert("L")).mean[0])
            rows["image"][index] = Image.new("L", image.size, grey).convert(image.mode)
        return rows

    return dataset.with_transform(replace_images)


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
    drawn = drawn.select_columns(columns)
    rows = list(drawn)
    rows_by_fault = {
        "extra": add_spurious_boxes(rows),
        "missed": leave_findings_out(rows),
        "eager": [row for row in rows if row["boxes"]],
        "blank": list(blank_images(drawn)),
    }
    for fault, changed in rows_by_fault.items():
        by_column = {name: [row[name] for row in changed] for name in columns}
        dataset = Dataset.from_dict(by_column, features=validation.features)
        DatasetDict({"train": dataset, "validation": validation}).save_to_disk(str(args.output / fault))
        print(f"{fault}: {len(dataset)} images, {sum(map(len, by_column['boxes']))} boxes")


if __name__ == "__main__":
    main()
