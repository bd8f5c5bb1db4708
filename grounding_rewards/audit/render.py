"""The text of a scripted answer in a model's format: boxes, and broken ones in the place of a box."""

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


def _swapped(template: str) -> str:
    """The last half of the numbers where the first is."""
    count = len(_NUMBER.findall(template))
    return _NUMBER.sub(lambda found: f"{{{(int(found[1]) + count // 2) % count}{found[2]}}}", template)


#: What can be wrong with a written box: how the template of a box is changed.
BREAKS: dict[str, Callable[[str], str]] = {
    "a number missing": lambda template: re.sub(r"[,\s]*\{[13][^}]*\}(?!.*\{)", "", template),
    "a number too many": lambda template: re.sub(r"(\{[13][^}]*\})(?!.*\{)", r"\1, 7", template),
    "not a number": lambda template: re.sub(r"\{0[^}]*\}", "NaN", template),
    "huge": lambda template: re.sub(r"\{[12][^}]*\}", "9" * 400, template, count=1),
    "words": lambda template: _NUMBER.sub("left", template),
    "swapped corners": _swapped,
}


class Item(NamedTuple):
    """One box of an answer.

    box: ``(4,)`` xyxy in pixels of the image.
    label: its finding.
    broken: a key of :data:`BREAKS`; empty for a box as it should be.
    """

    box: Array
    label: str
    broken: str = ""


@dataclass(frozen=True)
class Reply:
    """A script's answer to one image.

    Attributes:
        items: the boxes, in the order in which they are written.
        counts: whether the answer can be read; where it cannot, it earns nothing on any image.
        edit: changes the written text.
    """

    items: tuple[Item, ...] = ()
    counts: bool = True
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
    boxes = np.array([item.box for item in items], dtype=np.float64).reshape(-1, 4)
    in_space = pixel_to_frame(boxes, space_frame(fmt.space, *size)).tolist()
    if not any(item.broken for item in items):
        return write_answer(in_space, [item.label for item in items], fmt)
    layout = fmt.layout
    alone = layout._replace(answer="{items}")
    item_texts = [
        write_answer([box], [item.label], replace(fmt, layout=alone._replace(box=_box_template(item.broken, fmt))))
        for item, box in zip(items, in_space, strict=True)
    ]
    return layout.answer.format(items=layout.between_items.join(item_texts))


def _box_template(broken: str, fmt: BoxFormat) -> str:
    if broken == "words" and not (fmt.syntax.keyed or "<box>" in fmt.layout.bare_item):
        # Where nothing but its numbers marks a box, words are prose.
        broken = "a number missing"
    return BREAKS[broken](fmt.layout.box) if broken else fmt.layout.box
