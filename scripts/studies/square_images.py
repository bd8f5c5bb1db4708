"""Squeeze a folder of images into squares, which the tiny model learns from faster.

python scripts/studies/square_images.py path/to/images runs/square_images
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from PIL.Image import Resampling

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.images.decoding import open_image
from grounding_rewards.prepare.load import folder_rows, vocabulary_of
from grounding_rewards.sources.jsonl import ANNOTATIONS
from grounding_rewards.sources.tables import scaled_box


def write_square_images(root: Path, output: Path, size: int) -> None:
    """Copy a folder of images, resizing every image, and its boxes, to a square, for the small model.

    A small model learns boxes faster on images of one shape. The IoU of two boxes does not change, because each axis is
    scaled as a whole. An image without a prompt gets the one that the small model knows, `prompts.prompt_messages`.

    Args:
        root: the folder that holds `annotations.jsonl`.
        output: the new folder; images become 8-bit grey PNG files, all other keys of an image are kept.
        size: side in pixels.

    Raises:
        ValueError: as `load_images` of `prepare.load`.
    """
    rows = folder_rows(root)
    prompt = prompt_messages(vocabulary_of(rows, root))
    lines = []
    for row in rows:
        # From the folder, whatever a line calls it: an absolute path would be written over the image itself.
        within = os.path.relpath(os.path.realpath(root / row["file"]), os.path.realpath(root))
        file = Path("images", within).with_suffix(".png")
        (output / file).parent.mkdir(parents=True, exist_ok=True)
        image = open_image(root / row["file"]).convert("L")
        image.resize((size, size), Resampling.BICUBIC, reducing_gap=3.0).save(output / file)
        scale_x, scale_y = size / row["width"], size / row["height"]
        moved: dict[str, Any] = {
            name: [scaled_box(box, scale_x, scale_y) for box in row[name]]
            for name in ("boxes", "ignore_boxes")
            if row.get(name) is not None
        }
        if row.get("reader_boxes") is not None:
            moved["reader_boxes"] = [
                [scaled_box(box, scale_x, scale_y) for box in boxes] for boxes in row["reader_boxes"]
            ]
        placed = {"file": file.as_posix(), "width": size, "height": size, "prompt": row.get("prompt") or prompt}
        lines.append(json.dumps({**row, **placed, **moved}))
    write_whole(output / ANNOTATIONS, "\n".join(lines) + "\n")


def main() -> None:
    """Read the arguments and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, help="folder with annotations.jsonl")
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--size", type=int, default=112, help="side in pixels; the small model is made for 112")
    options = parser.parse_args()
    write_square_images(options.images, options.output, options.size)


if __name__ == "__main__":
    main()
