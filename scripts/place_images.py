"""Put images at random sizes and places on larger squares, so that nobody can guess where findings are.

    python scripts/place_images.py path/to/images runs/placed_lungs
    python scripts/place_images.py path/to/images runs/placed_lungs_blank --blank

Each image is squeezed into a square of 0.4 to 0.8 of the side and put anywhere on a plain background; one square in
five holds nothing. Training images are placed several times, and one patient in six of them goes to the split
`validation`; the images of `test` are placed twice, always alike. A file second_reader.jsonl beside annotations.jsonl
becomes the split `second_reader`: the squares of `test` with the boxes of other people.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.data.prompts import prompt_messages, prompt_order
from grounding_rewards.images.decoding import open_image
from grounding_rewards.sources.jsonl import ANNOTATIONS

SECOND = "second_reader.jsonl"
SCALES = (0.4, 0.8)
#: Of so many squares one holds no image.
EMPTY = 5
#: Of so many training patients one is held out for choices.
VALIDATION = 6


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def split_of(row: dict[str, Any]) -> str:
    """The split of an image: that of its line, or `validation` for one training patient in six."""
    digest = hashlib.sha256(str(row["patient_id"]).encode()).digest()[0]
    return "validation" if row["split"] == "train" and digest % VALIDATION == 0 else row["split"]


def placed_squares(
    root: Path, output: Path, size: int, placements: int, blank: bool, every: int = EMPTY
) -> Iterator[dict[str, Any]]:
    """Write every square, and give its line of annotations."""
    from PIL import Image

    rows = read_lines(root / ANNOTATIONS)
    second = {row["file"]: row for row in read_lines(root / SECOND)}
    prompt = prompt_messages(prompt_order(label for row in rows for label in row["labels"]))
    (output / "images").mkdir(parents=True, exist_ok=True)
    made = 0
    for number, row in enumerate(rows):
        picture = open_image(root / row["file"]).convert("L")
        for k in range(placements if split_of(row) == "train" else 2):
            # Of image and placement alone, so that more placements change none.
            rng = np.random.default_rng((number, k))
            pixels = np.clip(rng.normal(rng.uniform(20, 120), 4, (size, size)), 0, 255).astype(np.uint8)
            side = round(size * rng.uniform(*SCALES))
            x, y = rng.integers(0, size - side + 1, 2)
            made += 1
            empty = made % every == 0
            if not empty:
                pixels[y : y + side, x : x + side] = picture.resize(
                    (side, side), Image.Resampling.BICUBIC, reducing_gap=3.0
                )
            if blank:
                pixels[:] = round(float(pixels.mean()))
            file = f"images/{number:03d}_{k}.png"
            Image.fromarray(pixels).save(output / file)
            scale = np.array([side / row["width"], side / row["height"]] * 2)

            def moved(boxes: list[Any], scale: Any = scale, x: int = x, y: int = y) -> list[list[float]]:
                return (np.reshape(boxes, (-1, 4)) * scale + [x, y, x, y]).round(3).tolist()

            line = {
                "file": file,
                "id": f"{number:03d}_{k}",
                "patient_id": row["patient_id"],
                "width": size,
                "height": size,
                "boxes": [] if empty else moved(row["boxes"]),
                "labels": [] if empty else row["labels"],
                "prompt": prompt,
                "split": split_of(row),
            }
            yield line
            if line["split"] == "test" and row["file"] in second and not empty:
                other = second[row["file"]]
                yield {
                    **line,
                    "id": f"{line['id']}_second",
                    "boxes": moved(other["boxes"]),
                    "labels": other["labels"],
                    "ignore_boxes": moved(other.get("ignore_boxes") or []),
                    "split": "second_reader",
                }


def main() -> None:
    """Read the arguments and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, help="folder with annotations.jsonl")
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--size", type=int, default=112, help="side in pixels; the small model is made for 112")
    parser.add_argument("--placements", type=int, default=8, help="squares of each training image")
    parser.add_argument("--empty", type=int, default=EMPTY, help="one square in so many holds no image")
    parser.add_argument("--blank", action="store_true", help="replace every square by its mean grey")
    args = parser.parse_args()
    lines = list(placed_squares(args.images, args.output, args.size, args.placements, args.blank, args.empty))
    write_whole(args.output / ANNOTATIONS, "".join(f"{json.dumps(line)}\n" for line in lines))


if __name__ == "__main__":
    main()
