"""Texts made to be slow or to break a parser: each pattern repeated to any length.

The tests and the benchmark use them; run this to see how long the slowest take:

    python -m tests.parsing.adversarial
"""

import heapq
import re
import time

from grounding_rewards.parsing import format_boxes, get_box_format, list_box_formats, read_boxes
from grounding_rewards.parsing.bracket_syntax import TAG_ROLES
from tests.tables import table

#: one format for each way of reading
FORMATS = [
    *("answer-list", "qwen2-vl", "qwen3-vl", "radvlm", "gemini", "internvl", "paligemma", "florence-2", "kosmos-2"),
    *("maira-2", "locate-anything", "minicpm-v"),
]
PATTERNS = (*table("parsing/adversarial", "patterns"), "\ud800")
OPENINGS = table("parsing/adversarial", "openings")
#: Marks that no format writes itself.
OTHER_MARKS = table("parsing/adversarial", "other_marks")
_MARK = re.compile(r"<[^<>]*>?|[\[({][^\[({<]*")


def marks() -> list[str]:
    """Every mark of every format, whole and cut: what a generation that is stuck repeats."""
    sizes = dict.fromkeys(("width", "height", "resized_width", "resized_height"), 10)
    boxes = [[1, 2, 3, 4], [5, 6, 7, 8]]
    written = "".join(format_boxes(boxes, name, labels=["a", "b"], **sizes) for name in list_box_formats())
    whole = {*_MARK.findall(written), *TAG_ROLES, *OTHER_MARKS}
    return sorted({mark[:length] for mark in whole for length in (1, 2, 3, 4, len(mark) - 1, len(mark))} - {""})


def slowest_marks(length: int, count: int = 12) -> list[tuple[float, str, str]]:
    """The marks that take `read_boxes` longest when repeated: seconds of processor time, slowest format, mark."""
    repeated = {mark: (mark * (length // len(mark) + 1))[:length] for mark in marks()}
    taken = {mark: max(_seconds(text, name) for name in ("qwen3-vl", "paligemma")) for mark, text in repeated.items()}
    # One measurement each finds the candidates, the best of three in every format tells their time from noise.
    return sorted(
        (
            max((min(_seconds(repeated[mark], name) for _ in range(3)), name, mark) for name in list_box_formats())
            for mark in heapq.nlargest(count, taken, key=taken.__getitem__)
        ),
        reverse=True,
    )


def texts(opening: str, length: int) -> dict[str, str]:
    """The opening followed by each pattern, up to this length."""
    return {pattern: (opening + pattern * (length // len(pattern) + 1))[:length] for pattern in PATTERNS}


def slowest(length: int, count: int = 12) -> list[tuple[float, str, str, str]]:
    """The cases that take `read_boxes` longest: seconds of processor time, box format, opening, pattern."""
    cases = [
        (_seconds(text, name), name, opening, pattern)
        for opening in OPENINGS
        for pattern, text in texts(opening, length).items()
        for name in FORMATS
    ]
    # One measurement each finds the candidates, the best of five more tells their time from noise.
    return sorted(
        (
            (min(_seconds(texts(opening, length)[pattern], name) for _ in range(5)), name, opening, pattern)
            for _, name, opening, pattern in heapq.nlargest(count, cases)
        ),
        reverse=True,
    )


def _seconds(text: str, format_name: str) -> float:
    fmt = get_box_format(format_name)
    start = time.process_time()
    read_boxes(text, fmt)
    return time.process_time() - start


if __name__ == "__main__":
    for length in (1_000_000, 2_000_000):
        print(f"{length} characters, the slowest in milliseconds:")
        for seconds, *case in (*slowest_marks(length), *slowest(length)):
            print(f"  {1000 * seconds:6.1f}  {' '.join(map(repr, case))}")
