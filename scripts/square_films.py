"""Squeeze a folder of films into squares, which the tiny model learns from faster.

python scripts/square_films.py path/to/films runs/square_films
"""

from __future__ import annotations

import argparse
from pathlib import Path

from grounding_rewards.data.film_folder import write_square_films
from grounding_rewards.models.tiny_vlm import IMAGE_SIZE


def main() -> None:
    """Read the arguments and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("films", type=Path, help="folder with annotations.jsonl")
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--size", type=int, default=IMAGE_SIZE, help="side in pixels")
    options = parser.parse_args()
    write_square_films(options.films, options.output, options.size)


if __name__ == "__main__":
    main()
