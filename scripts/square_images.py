"""Squeeze a folder of images into squares, which the tiny model learns from faster.

python scripts/square_images.py path/to/images runs/square_images
"""

from __future__ import annotations

import argparse
from pathlib import Path

from grounding_rewards.models.tiny_vlm import IMAGE_SIZE
from grounding_rewards.prepare.load import write_square_images


def main() -> None:
    """Read the arguments and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, help="folder with annotations.jsonl")
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--size", type=int, default=IMAGE_SIZE, help="side in pixels")
    options = parser.parse_args()
    write_square_images(options.images, options.output, options.size)


if __name__ == "__main__":
    main()
