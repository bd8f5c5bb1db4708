"""Write a scripted answer as text in a model's box format, with boxes that may be broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from grounding_rewards.boxes import pixel_to_frame, space_frame
from grounding_rewards.common.numeric import Array
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.parsing.write import write_answer

# A number of a box in the template of a format: `{0}`, or `{0:0>4}`.
_NUMBER = re.compile(r"\{(\d)([^}]*)\}")


def _swap_corners(template: str) -> str:
    """The template with the second half of the numbers before the first half."""
    count = len(_NUMBER.findall(template))

    def swapped_number(match: re.Match[str]) -> str:
        """The field of a number, with the index of the number that takes its place."""
        number = (int(match[1]) + count // 2) % count
        return f"{{{number}{match[2]}}}"

    return _NUMBER.sub(swapped_number, template)


#: Ways to break a written box: functions that change the template of a box.
BREAKS: dict[str, Callable[[str], str]] = {
    "a number missing": lambda template: re.sub(r"[,\s]*\{[13][^}]*\}(?!.*\{)", "", template),
    "a number too many": lambda template: re.sub(r"(\{[13][^}]*\})(?!.*\{)", r"\1, 7", template),
    "not a number": lambda template: re.sub(r"\{0[^}]*\}", "NaN", template),
    "huge": lambda template: re.sub(r"\{[12][^}]*\}", "9" * 400, template, count=1),
    "words": lambda template: _NUMBER.sub("left", template),
    "swapped corners": _swap_corners,
}


class Item(NamedTuple):
    """One box of an answer.

    Attributes:
        box: ``(4,)`` xyxy in pixels of the image.
        label: its finding.
        broken: a key of :data:`BREAKS`; empty for a box that is whole.
    """

    box: Array
    label: str
    broken: str = ""


@dataclass(frozen=True)
class Reply:
    """A script's answer to one image.

    Attributes:
        items: the boxes, in the order in which they are written.
        edit: changes the written text.
    """

    items: tuple[Item, ...] = ()
    edit: Callable[[str], str] = str


class Size(NamedTuple):
    """The sizes of an image in pixels: its own, and of the image that the model saw."""

    width: float
    height: float
    resized_width: float
    resized_height: float


def write(answer: Reply, size: Size, fmt: BoxFormat) -> str:
    """The text of an answer, as a model of this box format writes it.

    Args:
        answer: boxes and what is wrong with them.
        size: of the image.
        fmt: how the model writes boxes.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> items = (Item(np.array([0.0, 0.0, 50.0, 50.0]), "mass", "a number missing"),)
        >>> write(Reply(items), Size(100, 100, 100, 100), get_box_format("internvl"))
        '<ref>mass</ref><box>[[0, 0, 500]]</box>'
    """
    return answer.edit(_render(answer.items, size, fmt))


def _render(items: Sequence[Item], size: Size, fmt: BoxFormat) -> str:
    """The text of boxes in a format, broken ones included."""
    boxes = np.array([item.box for item in items], dtype=np.float64).reshape(-1, 4)
    boxes_in_space = pixel_to_frame(boxes, space_frame(fmt.space, *size)).tolist()
    if not any(item.broken for item in items):
        return write_answer(boxes_in_space, [item.label for item in items], fmt)
    layout = fmt.layout
    texts = []
    for item, box in zip(items, boxes_in_space, strict=True):
        # Each box is written alone, by a template of its own.
        item_layout = layout._replace(answer="{items}", box=_box_template(item.broken, fmt))
        texts.append(write_answer([box], [item.label], replace(fmt, layout=item_layout)))
    return layout.answer.format(items=layout.between_items.join(texts))


def _box_template(broken: str, fmt: BoxFormat) -> str:
    """The template of a box in a format, broken in the way of a key of :data:`BREAKS`; whole for an empty key."""
    if not broken:
        return fmt.layout.box
    if broken == "words" and not (fmt.syntax.keyed or "<box>" in fmt.layout.bare_item):
        # In such a format only numbers mark a box: words would be prose.
        broken = "a number missing"
    return BREAKS[broken](fmt.layout.box)
