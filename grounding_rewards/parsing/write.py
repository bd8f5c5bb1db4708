"""Boxes to text: the templates of a format's layout, filled; and as a regular expression, for constrained decoding."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grounding_rewards.boxes import ORDERS, norm1_to_patch_index
from grounding_rewards.parsing.answer_span import moves_answer
from grounding_rewards.parsing.box_format import BoxFormat
from grounding_rewards.parsing.formats import get_box_format
from grounding_rewards.parsing.results import MAX_BOXES

#: A character of each mark that `moves_answer` looks for.
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
    for label, group in _grouped(boxes, labels, fmt):
        texts = [layout.box.format(*_numbers(box, fmt)) for box in group]
        joined = (layout.between_boxes or "").join(texts)
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
    if not fmt.syntax.keyed and moves_answer(label):
        raise ValueError(
            f"Expected labels without marks such as <think> or <answer> for `labels`, got {label!r:.200}. "
            f"The box format {fmt.name} cannot escape them: rename the finding."
        )
    if not fmt.syntax.keyed:
        return html.escape(label) if '"{label}"' in fmt.layout.item else label
    quoted = json.dumps(label, ensure_ascii=False)
    return _MARK.sub(lambda mark: f"\\u{ord(mark[0]):04x}", quoted) if moves_answer(label) else quoted


def _grouped(
    boxes: Sequence[Sequence[float]], labels: Sequence[str | None], fmt: BoxFormat
) -> list[tuple[str | None, list[Sequence[float]]]]:
    """Boxes and labels as the items that the format writes, `(label, boxes)` each.

    An item has one box; in formats that write a label once for boxes in a row, all that follow each other with it.
    """
    if "{label}" not in fmt.layout.item:
        labels = [None] * len(labels)
    pairs = list(zip(labels, boxes, strict=True))
    if fmt.layout.between_boxes is None:
        return [(label, [box]) for label, box in pairs]
    items = []
    for label, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        items.append((label, [box for _, box in group]))
    return items


def _numbers(box: Sequence[float], fmt: BoxFormat) -> list[str]:
    """The numbers of a box as the family prints them."""
    if fmt.syntax.patches:
        x1, y1, x2, y2 = box
        return [str(index) for index in norm1_to_patch_index((x1, y1, x2, y2), fmt.syntax.patches)]
    numbers: Sequence[float] = ORDERS[fmt.order].from_xyxy(*box)
    if fmt.space.offset:
        # A number belongs to the bin that it falls into, so ties go up.
        numbers = [math.floor(number + fmt.space.offset) for number in numbers]
    if fmt.largest is not None or fmt.syntax.tokens:
        # No token stands for less than 0, also where pixels have no end.
        largest = math.inf if fmt.largest is None else fmt.largest
        numbers = [min(max(number, 0), largest) for number in numbers]
    # + 0.0 turns -0.0 into 0.0, so that no model learns to write "-0.00"
    return [f"{round(number, fmt.decimals) + 0.0:.{fmt.decimals}f}" for number in numbers]


#: Any label: letters and what joins words, none of which is syntax in any format.
_ANY_LABEL = "[A-Za-z][A-Za-z '/-]{0,39}"
#: No image has sides of more pixels.
_LARGEST_PIXEL = 99_999
#: Placeholder in a pattern for the boxes of an item; the pattern is split there.
_SPLIT = "\0"
_SPECIAL = str.maketrans({**{char: f"\\{char}" for char in r"\.^$*+?{}[]|()"}, "\n": r"\n", "\t": r"\t"})


def box_format_regex(
    box_format: str | Mapping[str, Any] | BoxFormat, max_boxes: int = 10, *, labels: Sequence[str] | None = None
) -> str:
    """The answers that a model of this format may give, as a regular expression.

    For constrained decoding (`vllm_structured_outputs_regex` in TRL's configuration): a model that was never
    trained to point answers in the format from the first step on. It matches the format's own negative and up to
    `max_boxes` boxes with numbers in range, upright or not, and is not anchored. It uses groups, alternatives,
    character classes and bounded repetition only, which every engine knows.

    Args:
        box_format: as for `parse_boxes`.
        max_boxes: 1 to 1000.
        labels: the labels to choose from; any words of up to 40 letters without them. Formats without labels ignore it.

    Raises:
        ValueError: an unknown format, `max_boxes` out of range, or labels that are no list of words.

    Example:
        >>> import re
        >>> pattern = box_format_regex("qwen-vl", 2, labels=["mass", "nodule"])
        >>> texts = ("<ref>mass</ref><box>(1,2),(30,40)</box>", "None", "<ref>mass</ref><box>(1,2),(3000,4)</box>")
        >>> [bool(re.fullmatch(pattern, text)) for text in texts]
        [True, True, False]
    """
    fmt = get_box_format(box_format)
    if isinstance(max_boxes, bool) or not isinstance(max_boxes, int) or not 1 <= max_boxes <= MAX_BOXES:
        raise ValueError(
            f"Expected 1 to {MAX_BOXES} for `max_boxes`, got {max_boxes!r:.200}. "
            "Give a whole number: the most boxes that one answer may hold."
        )
    if labels is not None and (
        not isinstance(labels, list | tuple)
        or not labels
        or not all(isinstance(label, str) and label.strip() for label in labels)
    ):
        raise ValueError(f"Expected a list of words for `labels`, got {labels!r:.200}. Leave it out to allow any.")
    layout = fmt.layout
    label = _ANY_LABEL
    if labels is not None:
        texts = [written_label(text, fmt) for text in labels]
        if fmt.syntax.keyed:
            texts = [quoted[1:-1] for quoted in texts]
        label = f"(?:{'|'.join(map(_escape, texts))})"
    items = [_items(layout.item, label, fmt, max_boxes)]
    # Without a separator two boxes of coordinate tokens read as a quadrilateral.
    separated = layout.bare_item + layout.between_items != "{boxes}"
    if labels is None and layout.bare_item != layout.item and separated:
        items.append(_items(layout.bare_item, "", fmt, max_boxes))
    any_item = items[0] if len(items) == 1 else f"(?:{'|'.join(items)})"
    answer = _fill(layout.answer, {"items": lambda _: any_item})
    return f"(?:{answer}|{_escape(layout.negative)})" if layout.negative else f"(?:{answer})?"


def _items(item: str, label: str, fmt: BoxFormat, count: int) -> str:
    """Up to `count` boxes as a pattern: each the next one of its label, or the first one of a new item."""
    layout = fmt.layout
    quoted = f'"{label}"' if fmt.syntax.keyed else label
    slots = {"key": lambda _: _escape(fmt.keys[0]), "label": lambda _: quoted, "boxes": lambda _: _SPLIT}
    before, after = _fill(item, slots).split(_SPLIT)
    box = _fill(layout.box, {str(index): lambda spec: _number(fmt, spec) for index in range(4)})
    steps = []
    if layout.between_boxes is not None:
        steps.append(_escape(layout.between_boxes))
    if layout.between_boxes is None or "{label}" in item:
        # Without a label there is no reason to begin a new item.
        steps.append(after + _escape(layout.between_items) + before)
    more_boxes = f"(?:(?:{'|'.join(steps)}){box}){{0,{count - 1}}}" if count > 1 else ""
    return f"{before}{box}{more_boxes}{after}"


def _fill(template: str, slots: Mapping[str, Callable[[str], str]]) -> str:
    """The template as a pattern; by the name of a slot the function that turns its format, behind a colon, into one."""
    pattern = ""
    for text, slot, spec, _ in string.Formatter().parse(template):
        pattern += _escape(text)
        if slot is not None:
            pattern += slots[slot](spec or "")
    return pattern


def _escape(text: str) -> str:
    """The text as a pattern that matches it alone."""
    return text.translate(_SPECIAL)


def _number(fmt: BoxFormat, spec: str) -> str:
    """One coordinate as a pattern: in range, with the family's digits. A `spec` of `0>4` pads to four digits."""
    width = int(spec.rpartition(">")[2] or 0)
    if fmt.syntax.patches:
        return _up_to(fmt.syntax.patches**2 - 1, width)
    if fmt.largest is not None:
        largest = fmt.largest
    elif fmt.space.frame in ("original", "resized"):
        largest = _LARGEST_PIXEL
    else:
        largest = int(fmt.space.unit)
    if not fmt.decimals:
        return _up_to(largest, width)
    digits = f"{{{fmt.decimals}}}"
    return rf"(?:{_up_to(largest - 1, width)}\.[0-9]{digits}|{largest}\.0{digits})"


def _up_to(largest: int, width: int = 0) -> str:
    """The integers from 0 to `largest` as a pattern, padded with zeros to `width` digits.

    Example:
        >>> _up_to(1023)
        '(?:[0-9]|[1-9][0-9]{1,2}|10[0-1][0-9]|102[0-3])'
    """
    text = str(largest).zfill(width)
    options = []
    if not width:
        if len(text) > 1:
            options.append("[0-9]")
        if len(text) > 2:
            options.append(f"[1-9][0-9]{{1,{len(text) - 2}}}")
    for index, digit in enumerate(text):
        last = index == len(text) - 1
        low = 1 if not width and index == 0 and not last else 0
        high = int(digit) if last else int(digit) - 1
        if low <= high:
            digit_range = f"[{low}-{high}]" if low < high else str(low)
            digits_left = len(text) - 1 - index
            any_digits = "[0-9]" if digits_left == 1 else f"[0-9]{{{digits_left}}}"
            options.append(text[:index] + digit_range + (any_digits if digits_left else ""))
    return f"(?:{'|'.join(options)})"
