"""What the model is asked, and the answer that earns the full reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grounding_rewards.parsing import BoxFormat, format_boxes


def prompt_messages(labels: Sequence[str]) -> list[dict[str, Any]]:
    """The conversational prompt that asks for boxes around everything named in `labels`.

    The format is left to the model: a cold start teaches it, and the published models know their own.

    Args:
        labels: What to look for, at least one name.

    Raises:
        ValueError: No labels.

    >>> prompt_messages(["effusion", "mass"])[0]["content"][1]["text"]
    'Locate every effusion, mass in this chest film and report the boxes in JSON format.'
    """
    if not labels:
        raise ValueError("Expected at least one name for labels, got none. Name what the model should look for.")
    text = f"Locate every {', '.join(labels)} in this chest film and report the boxes in JSON format."
    return [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]


def gold_answer(row: Mapping[str, Any], box_format: str | Mapping[str, Any] | BoxFormat) -> str:
    """The row's own boxes, written as a model of this box format would write them.

    Args:
        row: `boxes`, `width` and `height`; `labels`, `resized_width` and `resized_height` where there are.
        box_format: Its name, or what else `get_box_format` takes.

    >>> row = {"boxes": [[8, 16, 24, 32]], "labels": ["mass"], "width": 112, "height": 112}
    >>> gold_answer(row, "answer-list")
    '<answer>[0.071, 0.143, 0.214, 0.286]</answer>'
    """
    return format_boxes(
        row["boxes"],
        box_format,
        labels=row.get("labels"),
        width=row["width"],
        height=row["height"],
        resized_width=row.get("resized_width"),
        resized_height=row.get("resized_height"),
    )
