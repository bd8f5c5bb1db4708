"""Boxes in JSON: `[{"bbox_2d": [x1, y1, x2, y2], "label": "mass"}]`, and what models make of it.

Two readers. `read_plain_json` hands the text to the C decoder of the standard library and takes only the shape
that a well-behaved model writes. `scan_json` reads everything else: single quotes, trailing commas, missing or
stray braces, duplicate keys, numbers as strings, nested labels, text around it, and text that breaks off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from grounding_rewards.parsing.numbers import are_coordinates, box_or_reason, looks_numeric, read_number
from grounding_rewards.parsing.results import MAX_BOXES, MAX_DEPTH, MAX_LIST, MAX_TOKENS, Findings, RawBoxes

if TYPE_CHECKING:
    from grounding_rewards.parsing.box_format import BoxFormat

_LABEL_KEYS = ("label", "text_content", "name_en", "names", "name", "class", "category", "finding")
_NESTED_LABEL_KEYS = ("en", "english", "name", "label")
_SCORE_KEYS = ("confidence", "Confidence", "score")
#: `{"finding": false}` states that there is nothing, as does `{"boxes": []}`.
_STATEMENT_KEYS = frozenset({"finding", "findings", "abnormality", "abnormal", "detected", "found", "present"})
_LIST_KEYS = frozenset({"boxes", "bboxes", "objects", "detections", "findings", "abnormalities", "lesions"})
_REASON_BY_KEY = {
    "point_2d": "point",
    "point": "point",
    "points": "point",
    "quad": "quad",
    "quad_2d": "quad",
    "polygon": "quad",
    "bbox_3d": "box_3d",
    "box_3d": "box_3d",
}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no coordinate")


_decode_prefix = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode
_FENCE = "```json\n"
_ENDINGS = frozenset({"", "\n", "```", "\n```", "\n```\n"})
_LABEL_TYPES = frozenset({str, type(None)})


def decode_plain_json(text: str) -> object:
    """The JSON value that makes up the whole text but for a markdown fence; None for any other text.

    Also None, so that they go the long way: a backslash, which may spell a key in disguise; `<`, which may open
    a tag that moves the answer; and booleans, which Python counts among the numbers.
    """
    start = 8 if text.startswith(_FENCE) else 0
    if not text.startswith(("[", "{"), start) or "<" in text or "\\" in text or "true" in text or "false" in text:
        return None
    try:
        value, end = _decode_prefix(text, start)
    except (ValueError, RecursionError):
        return None
    return value if text[end:] in _ENDINGS else None


def read_plain_json(text: str, fmt: BoxFormat) -> RawBoxes | None:
    """Objects that hold a box and at most a label, or `[]`; None for any other text."""
    items = decode_plain_json(text)
    if type(items) is dict:
        items = [items]
    elif type(items) is not list:
        return None
    if not items:
        return RawBoxes([], [], [], "empty", {})
    key = fmt.keys[0]
    # A decoded object keeps only the last of duplicate keys, so the keys are counted in the text.
    if len(items) > MAX_BOXES or text.count(key) != len(items):
        return None
    coords: list[float] = []
    labels: list[str | None] = []
    try:
        for item in items:
            box = item[key]
            if len(box) != 4 or len(item) > 2:
                return None
            coords += box
            labels.append(item["label"] if len(item) == 2 else None)
        if not are_coordinates(coords) or not _LABEL_TYPES.issuperset(map(type, labels)):
            return None
    except (KeyError, TypeError):
        return None
    return RawBoxes(coords, labels, [None] * len(labels), "boxes", {})


def write_json(boxes: Sequence[Sequence[float]], labels: Sequence[str | None], fmt: BoxFormat) -> str:
    """A fenced list with one object per box."""
    items = []
    for box, label in zip(boxes, labels, strict=True):
        item = f'"{fmt.keys[0]}": {fmt.list_of(box)}'
        if label is not None:
            item += f', "label": {json.dumps(label, ensure_ascii=False)}'
        items.append(f"\t{{{item}}}")
    content = "[\n" + ",\n".join(items) + "\n]" if items else fmt.negative
    return f"```json\n{content}\n```"


class _List(list["_Value"]):
    """A list or tuple as it stands in the text; `closed` once its closing bracket was read."""

    closed = False

    def containers(self) -> list[_List | _Object]:
        return [value for value in self if isinstance(value, _List | _Object)]


class _Object:
    """An object as its members in the order of the text, with duplicates and with members without a key (None)."""

    def __init__(self) -> None:
        self.members: list[tuple[str | None, _Value]] = []


_Value: TypeAlias = "str | bool | _List | _Object | None"

# Every alternative matches as far as it can and never fails after a long match, so reading is linear: a string
# without its closing quote ends with the line. A single quote closes only before punctuation: 'patient's lung'.
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<open>[\[({［（｛])
    | (?P<close>[\])}］）｝])
    | (?P<comma>[,;，；、])
    | (?P<colon>[:：])
    | "(?P<double>[^"\\\n]*(?:\\.[^"\\\n]*)*)"?
    | '(?P<single>[^'\\\n]*(?:(?:\\.|'(?![ \t]{0,8}(?:[,:;}\])\n]|$)))[^'\\\n]*)*)'?
    | “(?P<curly>[^”\n]*)”?
    | (?P<bare>[^\s,:;\[\](){}"'“，：；、［］（）｛｝]+)
    )""",
    re.VERBOSE,
)
_OPENER = re.compile(r"[\[{［｛]")
_BRACKET = dict(zip("[({［（｛])}］）｝", "[({[({[({[({", strict=True))
_CONSTANTS = {"null": None, "None": None, "true": True, "True": True, "false": False, "False": False}


def scan_json(text: str, fmt: BoxFormat, found: Findings) -> None:
    """Read every box out of JSON that may be broken in any way."""
    values = _read_values(text, found).containers()
    # Beside the answer's own objects, numbers in brackets are prose: "[3] nodules", "near [1, 2, 3, 4]".
    for value in [value for value in values if _holds_key(value, fmt.keys)] or values:
        if found.full:
            break
        _collect(value, None, fmt, found)


def _holds_key(value: _List | _Object, keys: Sequence[str]) -> bool:
    """Whether an object in the value has one of the keys."""
    if isinstance(value, _List):
        return any(_holds_key(child, keys) for child in value.containers())
    return any(
        key in keys or (isinstance(member, _List | _Object) and _holds_key(member, keys))
        for key, member in value.members
    )


def _read_values(text: str, found: Findings) -> _List:
    """The lists and objects in the text, nested as far as their brackets tell."""
    roots = _List()
    frames: list[tuple[str, _List | _Object]] = [("", roots)]
    key: str | None = None
    position = 0
    for _ in range(MAX_TOKENS):
        if len(frames) == 1:
            opener = _OPENER.search(text, position)
            if opener is None:
                return roots
            position = opener.start()
        token = _TOKEN.match(text, position)
        if token is None:
            found.cut_off = True
            return roots
        position = token.end()
        kind = token.lastgroup
        container = frames[-1][1]
        if kind == "comma":
            key = None
        elif kind == "colon":
            key = _take_key(container)
        elif kind == "close":
            _close(frames, _BRACKET[token["close"]])
            key = None
        elif kind == "open":
            if len(frames) > MAX_DEPTH:
                found.reject("too_deep")
                return roots
            bracket = _BRACKET[token["open"]]
            child = _Object() if bracket == "{" else _List()
            _attach(container, key, child)
            frames.append((bracket, child))
            key = None
        else:
            _attach(container, key, _scalar(token))
            key = None
    found.reject("too_long")
    return roots


def _take_key(container: _List | _Object) -> str | None:
    """The member that a colon has just turned into a key."""
    if isinstance(container, _Object) and container.members:
        key, value = container.members[-1]
        if key is None and isinstance(value, str):
            container.members.pop()
            return value
    return None


def _attach(container: _List | _Object, key: str | None, value: _Value) -> None:
    if isinstance(container, _Object):
        container.members.append((key, value))
    else:
        container.append(value)


def _close(frames: list[tuple[str, _List | _Object]], bracket: str) -> None:
    """Close the innermost frame of this bracket, not what stands open inside it; ignore a stray bracket."""
    for depth in range(len(frames) - 1, 0, -1):
        if frames[depth][0] == bracket:
            value = frames[depth][1]
            if isinstance(value, _List):
                value.closed = True
            del frames[depth:]
            return


def _scalar(token: re.Match[str]) -> str | bool | None:
    kind = str(token.lastgroup)
    text: str = token[kind]
    if kind == "bare":
        return _CONSTANTS.get(text, text)
    if kind == "double" and "\\" in text:
        try:
            return str(json.loads(f'"{text}"'))
        except ValueError:
            return text
    return text


def _collect(value: _List | _Object, key: str | None, fmt: BoxFormat, found: Findings) -> None:
    """Take the boxes out of a value that stands under this key; a list hands its key on to what it holds."""
    if isinstance(value, _Object):
        _collect_object(value, fmt, found)
        return
    children = value.containers()
    for child in children:
        if found.full:
            break
        _collect(child, key, fmt, found)
    if children:
        return
    if key is None or key in _LIST_KEYS:
        box = _read_box(value, found, named=False)
        if box is not None:
            found.add(box)
    elif value.closed and not isinstance(box_or_reason(_tokens(value)), str):
        found.reject("unknown_key")


def _collect_object(value: _Object, fmt: BoxFormat, found: Findings) -> None:
    boxes: list[list[float]] = []
    other_shapes: list[str] = []
    for key, member in value.members:
        if key in fmt.keys:
            boxes += _boxes_of(member, found)
        elif key in _REASON_BY_KEY:
            other_shapes.append(_REASON_BY_KEY[key])
        elif isinstance(member, _List | _Object):
            if not (key in _LABEL_KEYS and isinstance(member, _Object)):
                _collect(member, key, fmt, found)
        elif member is False and key in _STATEMENT_KEYS:
            found.stated_empty = True
    if not boxes:
        for reason in other_shapes:
            found.reject(reason)
    labels = _labels_of(value)
    score = _score_of(value)
    for index, box in enumerate(boxes):
        # Duplicate keys: as many labels as boxes belong together in their order.
        label = labels[index] if len(labels) == len(boxes) else labels[-1] if labels else None
        found.add(box, label, score)


def _boxes_of(member: _Value, found: Findings) -> list[list[float]]:
    """The boxes under a box key: one list of numbers, or a list of such lists."""
    if member is None:
        found.stated_empty = True
        return []
    if not isinstance(member, _List):
        found.reject("not_a_number")
        return []
    children = member.containers()
    if children:
        return [box for child in children for box in _boxes_of(child, found)]
    box = _read_box(member, found, named=True)
    return [] if box is None else [box]


def _read_box(values: _List, found: Findings, *, named: bool) -> list[float] | None:
    """The box that a list of scalars spells; words in brackets under no box key are no attempt at one."""
    if not values:
        found.stated_empty |= values.closed
        return None
    tokens = _tokens(values)
    if not named and not looks_numeric(tokens[0]):
        return None
    box = box_or_reason(tokens) if values.closed else "unclosed"
    if isinstance(box, str):
        found.reject(box)
        return None
    return box


def _tokens(values: _List) -> list[str]:
    return [value.strip() if isinstance(value, str) else str(value) for value in values[:MAX_LIST]]


def _labels_of(value: _Object) -> list[str | None]:
    """The values of the first label key that the object has."""
    for key in _LABEL_KEYS:
        labels = [_label(member) for name, member in value.members if name == key]
        if labels:
            return labels
    return []


def _label(member: _Value) -> str | None:
    if isinstance(member, _Object):
        nested = {key: value for key, value in member.members if isinstance(value, str)}
        return next((nested[key] for key in _NESTED_LABEL_KEYS if key in nested), None)
    return member if isinstance(member, str) else None


def _score_of(value: _Object) -> float | None:
    for key, member in value.members:
        if key in _SCORE_KEYS and isinstance(member, str):
            return read_number(member.strip())
    return None
