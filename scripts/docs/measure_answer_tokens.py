"""Measure how many characters of a right answer a token holds, and how far the estimate without a tokenizer is off.

python scripts/docs/measure_answer_tokens.py qwen3=path/to/tokenizer.json gemma3=path/to/folder

Prints a Markdown table: for every box format and tokenizer the characters per token over all answers, and the least and
the largest estimate in parts of the true number. Answers are those of drawn images of 2600 x 3200 pixels with one to
twelve findings of the shared vocabulary, which the model sees at 896 x 1092: the same on every machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.doctor.context import estimated_tokens
from grounding_rewards.labels import vocabulary
from grounding_rewards.parsing import get_box_format, list_box_formats

IMAGES, MOST_FINDINGS = 200, 12
SIZES = {"width": 2600, "height": 3200, "resized_width": 896, "resized_height": 1092}


def drawn_images() -> list[dict[str, Any]]:
    """Rows with boxes, labels and sizes."""
    rng, names = np.random.default_rng(0), sorted(vocabulary())
    corner = np.array([SIZES["width"], SIZES["height"]])
    images = []
    for _ in range(IMAGES):
        n = rng.integers(1, MOST_FINDINGS + 1)
        sides = rng.uniform(0.03, 0.4, (n, 2)) * corner
        starts = rng.uniform(0, 1, (n, 2)) * (corner - sides)
        boxes = np.round(np.concatenate([starts, starts + sides], axis=1))
        images.append({"boxes": boxes.tolist(), "labels": [str(name) for name in rng.choice(names, n)], **SIZES})
    return images


def measure(tokenizer: Any, box_format: str) -> tuple[float, float, float]:
    """Characters per token over all answers; the least and the largest estimate in parts of the true number."""
    fmt = get_box_format(box_format)
    answers = [gold_answer(image, fmt) for image in drawn_images()]
    tokens = np.array([len(tokenizer.encode(answer, add_special_tokens=False).ids) for answer in answers])
    shares = np.array([estimated_tokens(answer, fmt) for answer in answers]) / tokens
    return sum(map(len, answers)) / tokens.sum(), shares.min(), shares.max()


def main(arguments: list[str] | None = None) -> None:
    """Read the tokenizers and print the table."""
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", metavar="NAME=PATH", help="a tokenizer.json, or a folder with one")
    parser.add_argument("--formats", nargs="+", default=list_box_formats(), metavar="FORMAT", help="default: all")
    options = parser.parse_args(arguments)
    tokenizers = {}
    for given in options.tokenizers:
        name, _, path = given.rpartition("=")
        file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
        tokenizers[name or path] = Tokenizer.from_file(str(file))
    print(f"| box format | {' | '.join(tokenizers)} |")
    print("|---" * (len(tokenizers) + 1) + "|")
    for box_format in options.formats:
        cells = (
            f"{characters:.2f} ({least:.2f}–{most:.2f})"
            for characters, least, most in (measure(tokenizer, box_format) for tokenizer in tokenizers.values())
        )
        print(f"| `{box_format}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
