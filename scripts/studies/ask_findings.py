"""Ask for one finding at a time on NIH's chest radiographs, as squares for a small model.

    python scripts/studies/ask_findings.py path/to/ChestX-ray14 runs/nih_findings

The folder is NIH's own, with BBox_List_2017.csv and the images that it lists (grounding_rewards/sources has its
layout), or one with annotations.jsonl. The boxes of an image are one for each of some of its findings, so that a
question names a finding that has a box, and nothing is known about the others. Patients are split by a hash: one in
four for `test`, one in ten for `validation`. Training images are written several times, each turned over, moved, and
made larger or smaller at random. median_boxes.json has the median training box of each finding, as shares of the sides.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.boxes import as_box_array, box_area
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.data.splits import hash_fraction
from grounding_rewards.images.decoding import open_image
from grounding_rewards.metrics.baselines import constant_boxes
from grounding_rewards.sources.jsonl import ANNOTATIONS, read_jsonl
from grounding_rewards.sources.nih_chestxray14 import read_nih_chestxray14

if TYPE_CHECKING:
    from PIL.Image import Image

MEDIANS = "median_boxes.json"
#: What the model that is taught calls a finding; the list of boxes calls one otherwise than NIH's other table.
NAMES = {"effusion": "pleural effusion", "infiltrate": "infiltration"}
#: The side of the part of an image that is shown, as a share of the image's: parts above 1 have a black margin.
PARTS = (0.8, 1.2)


def split_of(patient: str) -> str:
    """The split of a patient.

    >>> [split_of(patient) for patient in ("00000032", "32", "72", "147")]
    ['train', 'train', 'test', 'train']
    """
    share = hash_fraction("findings", patient.lstrip("0"))
    return "test" if share < 0.25 else "validation" if share < 0.35 else "train"


def square(
    image: Image, boxes: Sequence[Sequence[float]], side: int, rng: np.random.Generator | None
) -> tuple[Image, list[list[float] | None]]:
    """An image and its boxes in a square; without a generator as they are, else turned over and moved at random.

    None stands for a box of which less than half is left.
    """
    from PIL import Image, ImageOps

    image = ImageOps.autocontrast(image.convert("L"), cutoff=0.5)
    size, moved = np.array(image.size * 2, float), as_box_array(boxes)
    part = 1.0 if rng is None else rng.uniform(*PARTS)
    start = np.zeros(2) if rng is None else (1 - part) / 2 + rng.uniform(-0.1, 0.1, 2)
    if rng is not None and rng.random() < 0.5:
        image, moved = (
            ImageOps.mirror(image),
            np.stack([size[0] - moved[:, 2], moved[:, 1], size[0] - moved[:, 0], moved[:, 3]], 1),
        )
    window = np.concatenate([start, start + part]) * size
    shown = image.crop(tuple(np.rint(window).astype(int).tolist())).resize(
        (side, side), Image.Resampling.BICUBIC, reducing_gap=3.0
    )
    moved = (moved - np.tile(window[:2], 2)) / (part * size) * side
    cut = np.clip(moved, 0, side)
    kept = box_area(cut) >= box_area(moved) / 2
    return shown, [box if keep else None for box, keep in zip(cut.round(2).tolist(), kept.tolist(), strict=True)]


def asked(root: Path, output: Path, side: int, copies: int) -> Iterator[dict[str, Any]]:
    """Write every square, and give a line of annotations for each finding of it."""
    (output / "images").mkdir(parents=True, exist_ok=True)
    patients: dict[str, str] = {}
    given = read_jsonl(root) if (root / ANNOTATIONS).is_file() else read_nih_chestxray14(root, negatives=False)
    for number, row in enumerate(given):
        # Numbered anew: the names of what is written lead back to nobody.
        patient = patients.setdefault(str(row.patient_id), str(len(patients)))
        split = split_of(str(row.patient_id))
        image = open_image(root / row.file)
        for k in range(copies if split == "train" else 1):
            name = f"{number:03d}_{k}"
            shown, moved = square(image, row.boxes, side, np.random.default_rng((number, k)) if k else None)
            shown.save(output / "images" / f"{name}.png")
            for box, label in zip(moved, map(str.lower, row.labels), strict=True):
                if box is not None:
                    finding = NAMES.get(label, label)
                    yield {
                        "file": f"images/{name}.png",
                        "id": f"{name}_{finding}",
                        "patient_id": patient,
                        "width": side,
                        "height": side,
                        "boxes": [box],
                        "labels": [finding],
                        "prompt": prompt_messages([finding]),
                        "split": split,
                    }


def main() -> None:
    """Read the arguments and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, help="NIH's folder, or one with annotations.jsonl")
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--side", type=int, default=140, help="of the squares in pixels")
    parser.add_argument("--copies", type=int, default=12, help="squares of each training image")
    args = parser.parse_args()
    lines = list(asked(args.images, args.output, args.side, args.copies))
    # What never looks: of each finding the median box of the training images as they are.
    plain = [line for line in lines if line["split"] == "train" and Path(line["file"]).stem.endswith("_0")]
    medians = {}
    for label in sorted({line["labels"][0] for line in plain}):
        [box] = constant_boxes(line for line in plain if line["labels"] == [label]).values()
        medians[label] = box.round(4).tolist()
    write_whole(args.output / MEDIANS, f"{json.dumps(medians, indent=1)}\n")
    write_whole(args.output / ANNOTATIONS, "".join(f"{json.dumps(line)}\n" for line in lines))


if __name__ == "__main__":
    main()
