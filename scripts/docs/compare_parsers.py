"""How many real completions a parser of twelve lines reads, and how many `parse_boxes` does: a number of README.md.

    python scripts/docs/compare_parsers.py path/to/completions.jsonl

A line of the file is a published completion: `text`, the `family` of the model, its `boxes` in the numbers of the text
(x1, y1, x2, y2), and `status`. Both parsers get the same text; ours is also told the family's format.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.parsing.formats import get_box_format
from grounding_rewards.parsing.parse import read_boxes
from tests.parsing.test_parse import FORMAT_OF


def read_in_twelve_lines(text: str) -> list[float]:
    """All coordinates of the boxes: JSON where there is some, else four numbers in brackets."""
    answer = text.split("</think>")[-1]
    try:
        items = json.loads(re.search(r"\[.*\]", answer, re.DOTALL)[0])
        boxes = [item["bbox_2d"] if isinstance(item, dict) else item for item in items]
        return [float(number) for box in boxes for number in box if len(box) == 4]
    except (ValueError, TypeError, KeyError):
        number = r"\s*([\d.]+)\s*"
        four = rf"[\[(]{number},{number},{number},{number}[\])]"
        return [float(number) for box in re.findall(four, answer) for number in box]


class Comparison(NamedTuple):
    """Completions with boxes and how many each parser reads; texts without a box, and how many get one."""

    with_boxes: int
    twelve_lines: int
    package: int
    without_boxes: int
    invented: int


def compare(completions: list[dict[str, Any]]) -> Comparison:
    """Read each completion with both parsers; one with broken boxes counts in neither group."""
    twelve_lines, package, invented = [], [], []
    for completion in completions:
        expected = [float(number) for box in completion["boxes"] or [] for number in box]
        numbers = read_in_twelve_lines(completion["text"])
        if completion["status"] == "boxes":
            box_format = get_box_format(FORMAT_OF[completion["family"]])
            twelve_lines.append(numbers == expected)
            package.append(list(read_boxes(completion["text"], box_format).coords) == expected)
        elif not expected:
            invented.append(bool(numbers))
    return Comparison(len(package), sum(twelve_lines), sum(package), len(invented), sum(invented))


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("completions", type=Path, help="JSON lines with text, family, boxes, status")
    options = parser.parse_args()
    if not options.completions.is_file():
        print(f"{options.completions} is not there: nothing to compare")
        return
    lines = options.completions.read_text(encoding="utf-8").splitlines()
    print(compare([json.loads(line) for line in lines]))


if __name__ == "__main__":
    main()
