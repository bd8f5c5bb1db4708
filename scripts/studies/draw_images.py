"""Write drawn radiographs as a folder with annotations.jsonl, one image in three normal; and the same in mean grey.

python scripts/studies/draw_images.py runs/drawn --blank runs/drawn_blank
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.sources.jsonl import ANNOTATIONS
from grounding_rewards.synthetic import synthetic_dataset

#: Images of each split.
IMAGES = {"train": 800, "validation": 96, "test": 128}
#: Of so many images one is normal.
NORMAL = 3


def drawn_rows(split: str, count: int) -> Iterator[dict[str, Any]]:
    """The images of a split, one in three normal: of all that are drawn it is one in four."""
    rows = synthetic_dataset(split, 2 * count)
    normal = [number for number, boxes in enumerate(rows["boxes"]) if not boxes]
    others = [number for number, boxes in enumerate(rows["boxes"]) if boxes]
    for k in range(count):
        yield {**rows[normal.pop(0) if k % NORMAL == 0 else others.pop(0)], "split": split}


def main() -> None:
    """Read the arguments and write the folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--blank", type=Path, help="folder for the same images, each replaced by its mean grey")
    args = parser.parse_args()
    folders = [args.output, *([args.blank] if args.blank else [])]
    lines = []
    for split, count in IMAGES.items():
        for row in drawn_rows(split, count):
            picture, file = row["image"], f"images/{row['id']}.png"
            for folder, shown in zip(folders, (picture, picture.resize((1, 1), 4).resize(picture.size)), strict=False):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shown.save(folder / file)
            kept = {key: row[key] for key in ("id", "width", "height", "boxes", "labels", "prompt", "split")}
            lines.append(json.dumps({"file": file, "patient_id": row["id"], **kept}))
    for folder in folders:
        write_whole(folder / ANNOTATIONS, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
