"""What is doubtful about the rows of a log that is read as it is: not refused, but said.

`evaluate` refuses what is counted here, because its metrics are about images. A log of a training is about completions,
and may be looked at before it is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from grounding_rewards.data.checks import box_problems, list_problems
from grounding_rewards.logs.completion_logs import with_numbers


@dataclass
class LogDoubts:
    """What was counted so far.

    Attributes:
        rows: looked at.
        without_id: rows without an `id`, and the place of the first.
        off_image: rows with a reference box that is not on their image, and what is wrong with the first.

    Example:
        >>> doubts = LogDoubts()
        >>> doubts.look([("line 1", {"id": "a", "boxes": [[0, 0, 9, 99]], "width": 50, "height": 50}), ("line 2", {})])
        >>> for sentence in doubts.sentences():  # doctest: +NORMALIZE_WHITESPACE
        ...     print(sentence)
        1 of 2 rows has no `id`, the first line 2: `evaluate` refuses such a log. Add it to every row.
        1 of 2 rows has a reference box that is not on the image, the first line 1: box 0 is [0, 0, 9, 99], outside the
        image of 50 x 50. What is scored against it means little: correct the boxes or the size.
    """

    rows: int = 0
    without_id: tuple[int, str] = (0, "")
    off_image: tuple[int, str] = (0, "")

    def look(self, placed: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Look at more rows, each with its place for a message."""
        for place, row in placed:
            self.rows += 1
            if row.get("id") in (None, ""):
                self.without_id = _one_more(self.without_id, place)
            if (problem := next(_problems(row), None)) is not None:
                self.off_image = _one_more(self.off_image, f"{place}: {problem}")

    def add(self, later: LogDoubts) -> None:
        """Add what was counted of later rows."""
        self.rows += later.rows
        self.without_id = (self.without_id[0] + later.without_id[0], self.without_id[1] or later.without_id[1])
        self.off_image = (self.off_image[0] + later.off_image[0], self.off_image[1] or later.off_image[1])

    def sentences(self) -> Iterator[str]:
        """What a person should know, a sentence each; nothing where no row has an `id`."""
        count, first = self.without_id
        if 0 < count < self.rows:
            yield (
                f"{_rows(count, self.rows)} no `id`, the first {first}: `evaluate` refuses such a log. Add it to every "
                "row."
            )
        count, first = self.off_image
        if count:
            yield (
                f"{_rows(count, self.rows)} a reference box that is not on the image, the first {first}. What "
                f"is scored "
                "against it means little: correct the boxes or the size."
            )


def _problems(row: dict[str, Any]) -> Iterator[str]:
    # Columns that are no lists are refused by what scores the row.
    if row.get("boxes") is not None and not any(list_problems(row)):
        yield from box_problems(with_numbers(row))


def _one_more(counted: tuple[int, str], place: str) -> tuple[int, str]:
    count, first = counted
    return count + 1, first or place


def _rows(count: int, total: int) -> str:
    return f"{count} of {total} rows {'has' if count == 1 else 'have'}"
