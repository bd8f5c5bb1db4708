"""Boxes as bare numbers in brackets, between tags, in prose or alone: `[x1, y1, x2, y2]` and `(x1,y1),(x2,y2)`."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grounding_rewards.parsing.json_syntax import decode_plain_json
from grounding_rewards.parsing.numbers import are_coordinates, box_or_reason, looks_numeric
from grounding_rewards.parsing.results import MAX_BOXES, MAX_GROUPS, MAX_LIST, Findings, RawBoxes

if TYPE_CHECKING:
    from grounding_rewards.parsing.box_format import BoxFormat

# An innermost pair of brackets, closed or not: its content holds no bracket, so all matches together read each
# character once. `<` ends the content because a tag never stands inside a box.
_GROUP = re.compile(r"([\[(［（])([^\[\]()［］（）<]*)([\])］）]?)")
_CLOSED_BY = {"[": "]］", "［": "]］", "(": ")）", "（": ")）"}
_COMMA = re.compile(r"[,;，；、]")
_PLAIN = r"(-?\d{1,9}(?:\.\d{1,20})?)"
_PLAIN_LISTS = re.compile(rf"\[{_PLAIN}, ?{_PLAIN}, ?{_PLAIN}, ?{_PLAIN}\]")
_BETWEEN_CORNERS = " \t\n,，"
_COMMAS = (",", "，")
_AROUND_LABEL = " \t\r\n,.;:-，。；：、[("


def read_plain_lists(text: str, fmt: BoxFormat) -> RawBoxes | None:
    """Comma-separated lists of four numbers, with or without the format's tags around; None for any other text."""
    opening, closing = fmt.box_tags
    if text.startswith(opening) and text.endswith(closing):
        text = text[len(opening) : len(text) - len(closing)]
    boxes = decode_plain_json(f"[{text}]")
    if type(boxes) is not list or not 0 < len(boxes) <= MAX_BOXES:
        return None
    coords: list[float] = []
    try:
        for x1, y1, x2, y2 in boxes:
            coords += (x1, y1, x2, y2)
        if not are_coordinates(coords):
            return None
    except (TypeError, ValueError):
        return None
    return RawBoxes(coords, [None] * len(boxes), [None] * len(boxes), "boxes", {})


def read_plain_sentences(text: str, fmt: BoxFormat) -> RawBoxes | None:
    """Prose whose only brackets are lists of four numbers; None for any other text."""
    boxes = _PLAIN_LISTS.findall(text)
    if not 0 < len(boxes) <= MAX_BOXES or text.count("[") != len(boxes) or text.rstrip().endswith(_COMMAS):
        return None
    if "(" in text or "（" in text or "［" in text or "<" in text:
        return None
    coords = list(map(float, itertools.chain.from_iterable(boxes)))
    return RawBoxes(coords, [None] * len(boxes), [None] * len(boxes), "boxes", {})


def read_plain_pairs(text: str, fmt: BoxFormat) -> RawBoxes | None:
    """Tagged labels, each with its tagged corner points; None for any other text."""
    if fmt.label_tags is None:
        return None
    items = _plain_pairs(fmt.label_tags, fmt.box_tags).findall(text)
    count = len(items)
    # Four tags and two parentheses for each box, and no others.
    if not 0 < count <= MAX_BOXES or text.count("<") != 4 * count or text.count("(") != 2 * count:
        return None
    if "[" in text or "（" in text or "［" in text or text.rstrip().endswith(_COMMAS):
        return None
    coords: list[float] = []
    labels: list[str | None] = []
    for label, *box in items:
        coords += map(float, box)
        labels.append(label.strip() or None)
    return RawBoxes(coords, labels, [None] * count, "boxes", {})


@functools.cache
def _plain_pairs(label_tags: tuple[str, str], box_tags: tuple[str, str]) -> re.Pattern[str]:
    before_label, after_label, before_box, after_box = map(re.escape, label_tags + box_tags)
    corners = rf"\({_PLAIN},{_PLAIN}\),\({_PLAIN},{_PLAIN}\)"
    return re.compile(rf"{before_label}([^<(]*){after_label}{before_box}{corners}{after_box}")


def scan_brackets(text: str, fmt: BoxFormat, found: Findings) -> None:
    """Read every group of four numbers, and every two corner points joined by a comma, out of any text."""
    text, tagged = _lift_labels(text, fmt.label_tags)
    glued = fmt.glued_labels and not tagged and fmt.box_tags[0] not in text
    label: str | None = None
    next_label = 0
    previous_end = 0
    for group in _groups(text, found):
        while next_label < len(tagged) and tagged[next_label][0] <= group.start:
            label = tagged[next_label][1]
            next_label += 1
        if glued:
            label = _glued_label(text[previous_end : group.start], label)
        previous_end = group.end
        box = box_or_reason(group.tokens)
        if isinstance(box, str):
            found.reject(box)
        else:
            found.add(box, label)
        if found.full:
            return
    opening, closing = fmt.box_tags
    left_open = opening != "" and text.rfind(opening) > text.rfind(closing)
    found.cut_off |= left_open or text.rstrip().endswith(_COMMAS)


class _Group(NamedTuple):
    """Numbers that stand together, and where."""

    start: int
    end: int
    tokens: list[str]


def _groups(text: str, found: Findings) -> Iterator[_Group]:
    """The closed groups of numbers in the text; corner points that are joined by commas come as one group."""
    corners: _Group | None = None
    for count, match in enumerate(_GROUP.finditer(text)):
        if count == MAX_GROUPS:
            found.reject("too_long")
            return
        opening, content, close = match.groups()
        start, end = match.span()
        square = opening in "[［"
        closed = close != "" and close in _CLOSED_BY[opening]
        tokens = _tokens(content)
        if not tokens:
            found.stated_empty |= square and closed
            found.cut_off |= not close and end == len(text)
            continue
        if not _is_attempt(tokens, square):
            # "(1,2),(3": a corner point that breaks off in its first number
            found.cut_off |= corners is not None and not close and end == len(text) and looks_numeric(tokens[0])
            continue
        if corners and not _joined(text[corners.end : start]):
            yield corners
            corners = None
        if not closed:
            found.reject("unclosed")
            found.cut_off |= not close and end == len(text)
            corners = None
        elif square or len(tokens) != 2:
            if corners:
                yield corners
                corners = None
            yield _Group(start, end, tokens)
        elif corners is None:
            corners = _Group(start, end, tokens)
        else:
            corners = _Group(corners.start, end, (corners.tokens + tokens)[:MAX_LIST])
    if corners:
        yield corners


def _tokens(content: str) -> list[str]:
    parts = _COMMA.split(content, MAX_LIST)
    if len(parts) == 1:
        return content.split(maxsplit=MAX_LIST)
    tokens = [part.strip() for part in parts]
    return tokens if tokens[-1] else tokens[:-1]


def _is_attempt(tokens: list[str], square: bool) -> bool:
    """Words in brackets, and a single number in parentheses, are prose; so is a single number in closed brackets."""
    if square:
        return any(map(looks_numeric, tokens))
    return len(tokens) > 1 and all(map(looks_numeric, tokens))


def _joined(gap: str) -> bool:
    return not gap.strip(_BETWEEN_CORNERS) and ("," in gap or "，" in gap)


def _lift_labels(text: str, tags: tuple[str, str] | None) -> tuple[str, list[tuple[int, str | None]]]:
    """The text with blanks in place of tagged labels, and the labels with the positions where they end."""
    if tags is None or tags[0] not in text:
        return text, []
    pieces = []
    labels = []
    end = 0
    for match in _label_pattern(*tags).finditer(text):
        start = match.start()
        pieces += [text[end:start], " " * (match.end() - start)]
        end = match.end()
        labels.append((end, match[1].strip() or None))
    return "".join(pieces) + text[end:], labels


@functools.cache
def _label_pattern(opening: str, closing: str) -> re.Pattern[str]:
    # A label ends at the next tag of either kind, so an unclosed one costs no more than its own length.
    opening, closing = re.escape(opening), re.escape(closing)
    return re.compile(f"{opening}((?:(?!{opening}|{closing}).)*){closing}", re.DOTALL)


def _glued_label(gap: str, previous: str | None) -> str | None:
    """The words between two boxes; a box that follows another directly shares its label."""
    words = gap.strip(_AROUND_LABEL)
    return words.rpartition("\n")[2] if words else previous


def write_lists(boxes: Sequence[Sequence[float]], labels: Sequence[str | None], fmt: BoxFormat) -> str:
    """Lists of numbers between the format's tags; the format has no place for labels."""
    opening, closing = fmt.box_tags
    return opening + (",".join(map(fmt.list_of, boxes)) or fmt.negative) + closing


def write_pairs(boxes: Sequence[Sequence[float]], labels: Sequence[str | None], fmt: BoxFormat) -> str:
    """Label and corner points, each between its tags, one box after the other."""
    opening, closing = fmt.box_tags
    items = []
    for box, label in zip(boxes, labels, strict=True):
        x1, y1, x2, y2 = fmt.numbers(box)
        label_text = label.join(fmt.label_tags) if label and fmt.label_tags else ""
        items.append(f"{label_text}{opening}({x1},{y1}),({x2},{y2}){closing}")
    return "".join(items) or fmt.negative


def write_sentences(boxes: Sequence[Sequence[float]], labels: Sequence[str | None], fmt: BoxFormat) -> str:
    """One sentence for each box."""
    sentences = [
        f"There is a {label or 'finding'} located at {fmt.list_of(box)}."
        for box, label in zip(boxes, labels, strict=True)
    ]
    return " ".join(sentences) or fmt.negative
