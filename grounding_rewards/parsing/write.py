"""Boxes to text: the templates of a format's layout, filled."""

import html
import itertools
import json
import math
import re
from collections.abc import Sequence

from grounding_rewards.boxes import ORDERS, norm1_to_patch_index
from grounding_rewards.parsing.answer_span import has_answer_mark
from grounding_rewards.parsing.formats import BoxFormat

#: A character of each mark that `has_answer_mark` looks for.
_MARK = re.compile(r"[<\[◁:`✿]")


def write_answer(boxes: Sequence[Sequence[float]], labels: Sequence[str | None], fmt: BoxFormat) -> str:
    """Write boxes in the format's own space, with their labels, as a model of this family answers.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> write_answer([[1, 2, 3, 4], [5, 6, 7, 8]], ["mass", "mass"], get_box_format("internvl"))
        '<ref>mass</ref><box>[[1, 2, 3, 4], [5, 6, 7, 8]]</box>'
    """
    layout = fmt.layout
    items = []
    for label, boxes_of_item in _written_items(boxes, labels, fmt):
        box_texts = [layout.box.format(*_numbers(box, fmt)) for box in boxes_of_item]
        joined = (layout.between_boxes or "").join(box_texts)
        if label is None:
            items.append(layout.bare_item.format(key=fmt.keys[0], boxes=joined))
        else:
            items.append(layout.item.format(key=fmt.keys[0], label=written_label(label, fmt), boxes=joined))
    return layout.answer.format(items=layout.between_items.join(items)) if items else layout.negative


def written_label(label: str, fmt: BoxFormat) -> str:
    """A label as it stands in the format's text: quoted in JSON, escaped in an attribute, as it is elsewhere.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> [written_label('"mass"', get_box_format(name)) for name in ("qwen3-vl", "perceptron", "internvl")]
        ['"\\\\"mass\\\\""', '&quot;mass&quot;', '"mass"']
    """
    has_mark = has_answer_mark(label)
    if fmt.syntax.keyed:
        quoted = json.dumps(label, ensure_ascii=False)
        # A mark such as <think> must not be found in the text: JSON writes its first character as \u and a number.
        return _MARK.sub(lambda mark: f"\\u{ord(mark[0]):04x}", quoted) if has_mark else quoted
    if has_mark:
        raise ValueError(
            f"Expected labels without marks such as <think> or <answer> for `labels`, got {label!r:.200}. "
            f"The box format {fmt.name} cannot escape them: rename the finding."
        )
    # In quotes, a label is the value of an attribute of a tag.
    return html.escape(label) if '"{label}"' in fmt.layout.item else label


def _written_items(
    boxes: Sequence[Sequence[float]], labels: Sequence[str | None], fmt: BoxFormat
) -> list[tuple[str | None, list[Sequence[float]]]]:
    """Boxes and labels as the items that the format writes, `(label, boxes)` each.

    An item has one box; in formats that write a label once for several boxes, all boxes in a row that share the label.
    """
    if "{label}" not in fmt.layout.item:
        labels = [None] * len(labels)
    pairs = list(zip(labels, boxes, strict=True))
    if fmt.layout.between_boxes is None:
        return [(label, [box]) for label, box in pairs]
    pairs_by_label = itertools.groupby(pairs, key=lambda pair: pair[0])
    return [(label, [box for _, box in pairs_of_label]) for label, pairs_of_label in pairs_by_label]


def _numbers(box: Sequence[float], fmt: BoxFormat) -> list[str]:
    """The numbers of a box as the family prints them: two cells of a grid, or four numbers in its order."""
    if fmt.syntax.patches:
        x1, y1, x2, y2 = box
        # The number of the first cell and that of the last.
        return [str(index) for index in norm1_to_patch_index((x1, y1, x2, y2), fmt.syntax.patches)]
    numbers: Sequence[float] = ORDERS[fmt.order].from_xyxy(*box)
    if fmt.space.offset:
        # With its offset the number is a place, counted in bins; the bin that it falls into is written.
        numbers = [math.floor(number + fmt.space.offset) for number in numbers]
    if fmt.largest is not None or fmt.syntax.tokens:
        # No token stands for a number below 0, even in a space without a largest number.
        largest = math.inf if fmt.largest is None else fmt.largest
        numbers = [min(max(number, 0), largest) for number in numbers]
    # Adding 0.0 turns -0.0 into 0.0, so that no model learns to write "-0.00".
    return [f"{round(number, fmt.decimals) + 0.0:.{fmt.decimals}f}" for number in numbers]
