"""Boxes in JSON: `[{"bbox_2d": [x1, y1, x2, y2], "label": "mass"}]`, and what models make of it.

Two readers. `read_plain_json` hands the text to the C decoder of the standard library and takes only the shape
that a well-behaved model writes. `scan_json` reads everything else: single quotes, trailing commas, missing or
stray braces, duplicate keys, numbers as strings, nested labels, text around it, and text that breaks off.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from grounding_rewards.parsing.box_format import in_xyxy
from grounding_rewards.parsing.numbers import (
    CORNER_NAMES,
    NOTHING,
    are_coordinates,
    box_or_reason,
    folded,
    looks_numeric,
    ordered_box_or_reason,
    read_number,
    split_numbers,
)
from grounding_rewards.parsing.results import MAX_BOXES, MAX_DEPTH, MAX_LIST, MAX_TOKENS, Findings, RawBoxes

if TYPE_CHECKING:
    from grounding_rewards.parsing.box_format import BoxFormat

# Keys as `folded` leaves them.
_LABEL_KEYS = (
    *("label", "textcontent", "nameen", "names", "name", "class", "classname", "category", "finding"),
    *("disease", "abnormality", "object", "phrase", "description", "text", "type"),
)
_NESTED_LABEL_KEYS = ("en", "english", "name", "label")
#: The members of an object that are read as the confidence of its box.
SCORE_KEYS = ("confidence", "score", "conf", "probability")
#: `{"finding": false}` states that there is nothing, as does `{"boxes": []}`.
_STATEMENT_KEYS = frozenset({"finding", "findings", "abnormality", "abnormal", "detected", "found", "present"})
_LIST_KEYS = frozenset(
    [
        *("boxes", "bboxes", "boundingboxes", "objects", "detections", "predictions", "annotations", "results"),
        *("findings", "abnormalities", "lesions", "defects", "regions", "targets", "instances", "items"),
    ]
)
_REASON_BY_KEY = {
    "point2d": "point",
    "point": "point",
    "coordinate": "point",
    "points": "point",
    "quad": "quad",
    "quad2d": "quad",
    "polygon": "quad",
    "bbox3d": "box_3d",
    "box3d": "box_3d",
}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no coordinate")


_decode_prefix = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode
_FENCE = "```json\n"
_ENDINGS = frozenset({"", "\n", "```", "\n```", "\n```\n"})
_LABEL_TYPES = frozenset({str, type(None)})


def decode_plain_json(text: str) -> object:
    """The JSON value that makes up the whole text but for a markdown fence; None for any other text.

    Also None, to fall back to `scan_json`: with a backslash, which may hide an escaped key; with `<`, which may open a
    tag that moves the answer; and with booleans, which Python counts among the numbers.

    Example:
        >>> decode_plain_json("```json\\n[1, 2]\\n```"), decode_plain_json("Here: [1, 2]")
        ([1, 2], None)
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
    """Objects that hold a box and at most a label, or `[]`; None for any other text.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> read_plain_json('[{"bbox_2d": [1, 2, 3, 4], "label": "mass"}]', get_box_format("qwen3-vl")).labels
        ['mass']
    """
    items = decode_plain_json(text)
    if type(items) is dict:
        items = [items]
    elif type(items) is not list:
        return None
    if not items:
        return RawBoxes([], [], [], "empty", {})
    key = fmt.keys[0]
    # A decoded object keeps only the last of duplicate keys, so keys are counted in the text.
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
            labels.append((item["label"] or None) if len(item) == 2 else None)
        if not are_coordinates(coords) or not _LABEL_TYPES.issuperset(map(type, labels)):
            return None
    except (KeyError, TypeError):
        return None
    return RawBoxes(in_xyxy(coords, fmt.order), labels, [None] * len(labels), "boxes", {})


class _List(list["_Value"]):
    """A list or tuple as it stands in the text; `closed` once its closing bracket was read."""

    closed = False

    def containers(self) -> list[_List | _Object]:
        return [value for value in self if isinstance(value, _List | _Object)]


class _Root(NamedTuple):
    """A list or object at the top level, and where it stands in the text."""

    value: _List | _Object
    start: int
    end: int


class _Object:
    """An object: its members in the order of the text, also duplicates; keys are `folded`, None where there is none."""

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


def scan_json(text: str, fmt: BoxFormat, found: Findings) -> str:
    """Read every box out of JSON that may be broken in any way.

    Returns:
        The text without the JSON that was read; all of it where the family does not write JSON and no JSON in the text
        holds a box.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> found = Findings()
        >>> scan_json("Here: {'bbox_2d': [1, 2, 3, 4,]}!", get_box_format("qwen3-vl"), found), found.coords
        ('Here: !', [1.0, 2.0, 3.0, 4.0])
    """
    if not fmt.syntax.keyed and not _may_hold_boxes(text, fmt.keys):
        return text
    text = _plain(text)
    read = Findings()
    roots = _read_values(text, read)
    keys = _folded(fmt.keys)
    chosen = [root for root in roots if _holds_key(root.value, keys)]
    if not chosen and not fmt.syntax.keyed:
        found.stated_empty |= any(_denies(root.value) for root in roots)
        return text
    # Beside the answer's own objects, numbers in brackets are prose: "[3] nodules", "near [1, 2, 3, 4]".
    chosen = chosen or roots
    found.cut_off |= read.cut_off
    for reason in read.rejected:
        found.reject(reason)
    for root in chosen:
        if found.full:
            break
        _collect(root.value, None, fmt, found)
    starts, ends = [0, *(root.end for root in chosen)], [*(root.start for root in chosen), len(text)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))


def _may_hold_boxes(text: str, keys: tuple[str, ...]) -> bool:
    """Whether JSON with a box or a denial could be in the text of a family that does not write JSON."""
    lower = folded(text)
    return "false" in lower or any(key in lower for key in (*_folded(keys), *(names[0] for names in CORNER_NAMES)))


#: ms-swift fills templates of JSON with boxes in Qwen2-VL's tags.
_BOX_TAG = re.compile(r"<\|box_(?:start|end)\|>")


def _plain(text: str) -> str:
    """JSON without Qwen's box tags and without the backslashes of JSON in a string or in Markdown."""
    if "<|box" in text:
        text = _BOX_TAG.sub(" ", text)
    if "\\" in text:
        text = text.replace("\\_", "_")
        if text.count('"') == text.count('\\"'):
            text = text.replace('\\"', '"')
    return text


@functools.cache
def _folded(keys: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(folded, keys))


def _holds_key(value: _List | _Object, keys: frozenset[str]) -> bool:
    """Whether an object in the value has one of the keys, or corners as keys."""
    if isinstance(value, _List):
        return any(_holds_key(child, keys) for child in value.containers())
    return _has_corners(value) or any(
        key in keys or (isinstance(member, _List | _Object) and _holds_key(member, keys))
        for key, member in value.members
    )


def _denies(value: _List | _Object) -> bool:
    """Whether an object in the value says that there is no finding."""
    if isinstance(value, _List):
        return any(map(_denies, value.containers()))
    return any(member is False and key in _STATEMENT_KEYS for key, member in value.members)


def _read_values(text: str, found: Findings) -> list[_Root]:
    """Read the lists and objects at the top level, with all that their brackets enclose."""
    roots: list[_Root] = []
    frames: list[tuple[str, _List | _Object]] = []
    start = position = 0
    key: str | None = None
    for _ in range(MAX_TOKENS):
        if not frames:
            opener = _OPENER.search(text, position)
            if opener is None:
                return roots
            start = position = opener.start()
        token = _TOKEN.match(text, position)
        if token is None:
            found.cut_off = not _is_stray(frames)
            return [*roots, _Root(frames[0][1], start, len(text))]
        position = token.end()
        kind = token.lastgroup
        container = frames[-1][1] if frames else None
        if kind == "comma":
            key = None
        elif kind == "colon":
            key = _take_key(container)
        elif kind == "close":
            root = frames[0][1]
            _close(frames, _BRACKET[token["close"]])
            key = None
            if not frames:
                roots.append(_Root(root, start, position))
        elif kind == "open":
            if len(frames) == MAX_DEPTH:
                found.reject("too_deep")
                return [*roots, _Root(frames[0][1], start, len(text))]
            bracket = _BRACKET[token["open"]]
            child = _Object() if bracket == "{" else _List()
            if container is not None:
                _attach(container, key, child)
            frames.append((bracket, child))
            key = None
        elif container is not None:
            _attach(container, key, _scalar(token))
            key = None
    found.reject("too_long")
    return [*roots, _Root(frames[0][1], start, len(text))] if frames else roots


def _is_stray(frames: list[tuple[str, _List | _Object]]) -> bool:
    """Whether only braces around complete values were left open, as in "{ [{...}, {...}]"."""
    return all(
        isinstance(value, _Object)
        and value.members
        and all(key is None and isinstance(member, _List | _Object) for key, member in value.members)
        for _, value in frames
    )


def _take_key(container: _List | _Object | None) -> str | None:
    """The member that a colon has just turned into a key."""
    if isinstance(container, _Object) and container.members:
        key, value = container.members[-1]
        if key is None and isinstance(value, str):
            container.members.pop()
            return folded(value)
    return None


def _attach(container: _List | _Object, key: str | None, value: _Value) -> None:
    if isinstance(container, _Object):
        container.members.append((key, value))
    else:
        container.append(value)


def _close(frames: list[tuple[str, _List | _Object]], bracket: str) -> None:
    """Close the innermost frame of this bracket with everything open inside it; ignore a stray bracket."""
    for depth in range(len(frames) - 1, -1, -1):
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


def _collect(
    value: _List | _Object,
    key: str | None,
    fmt: BoxFormat,
    found: Findings,
    *,
    labelled: bool = False,
    boxed: bool = False,
) -> None:
    """Take the boxes out of the value of this key; what a list holds counts as under the list's key.

    `labelled` and `boxed`: the object that holds the value has a label, or a box of its own.
    """
    if isinstance(value, _Object):
        _collect_object(value, fmt, found, beside_box=boxed)
        return
    children = value.containers()
    for child in children:
        if found.full:
            break
        _collect(child, key, fmt, found, labelled=labelled, boxed=boxed)
    if children:
        return
    if key is None or key in _LIST_KEYS:
        for box in _read_box(value, fmt, found, named=False):
            found.take(box)
    elif not value:
        # {"answer": []}, but not {"label": "mass", "attributes": []}
        found.stated_empty |= value.closed and not labelled
    elif value.closed and not boxed and not isinstance(box_or_reason(_tokens(value)), str):
        found.reject("unknown_key")


def _collect_object(value: _Object, fmt: BoxFormat, found: Findings, *, beside_box: bool = False) -> None:
    """Take the boxes of an object and of what it holds, in the order of the text.

    `beside_box`: an object around it has a box of its own, so that other keys with four numbers are no failed boxes.
    """
    if not value.members:
        return
    keys = _folded(fmt.keys)
    members = _joined_corners(value.members)
    has_box = any(key in keys and isinstance(member, _List | _Object) for key, member in members)
    boxes: list[list[_BoxOrReason]] = [
        # "position": "left lower lobe" beside a box is a description.
        [] if key not in keys or (has_box and _is_words(member)) else _boxes_of(member, fmt, found)
        for key, member in members
    ]
    count = sum(map(len, boxes))
    # "{[1, 2, 3, 4]}": a pair of braces around a list is no object.
    is_object = any(key is not None for key, _ in members)
    labels = _labels_of(members)
    score = _score_of(members)
    if not count and _has_corners(value):
        found.take(_corner_box(value), labels[-1] if labels else None, score)
        count = 1
    index = 0
    for own, (key, member) in zip(boxes, members, strict=True):
        for box in own:
            # Duplicate keys: as many labels as boxes belong together in their order.
            found.take(box, labels[index] if len(labels) == count else labels[-1] if labels else None, score)
            index += 1
        if key in keys:
            continue
        if key in _REASON_BY_KEY:
            if not count:
                found.reject(_REASON_BY_KEY[key], labels[-1] if labels else None, score)
        elif isinstance(member, _List) or (isinstance(member, _Object) and not _is_label(key, member, keys)):
            _collect(
                member,
                "" if is_object and key is None else key,
                fmt,
                found,
                labelled=bool(labels),
                boxed=beside_box or count > 0,
            )
        elif key in _STATEMENT_KEYS and isinstance(member, bool):
            found.asserted |= member
            found.stated_empty |= not member


def _is_words(member: _Value) -> bool:
    return isinstance(member, str) and not any(map(str.isdecimal, member))


def _joined_corners(members: _Members) -> list[tuple[str | None, _Value]]:
    """The members with `"bbox": (1,2),(3,4)` as one: its second corner stands without a key."""
    joined: list[tuple[str | None, _Value]] = []
    for key, member in members:
        if not key and joined and _is_corner(member) and _is_corner(joined[-1][1]):
            joined[-1] = (joined[-1][0], _List([joined[-1][1], member]))
        else:
            joined.append((key, member))
    return joined


def _is_corner(value: _Value) -> bool:
    return isinstance(value, _List) and value.closed and len(value) == 2 and not value.containers()


def _is_label(key: str | None, member: _Object, keys: frozenset[str]) -> bool:
    """Whether an object is a label in several languages."""
    return key in _LABEL_KEYS and not _holds_key(member, keys)


#: A box, or the reason why what stands in its place is none.
_BoxOrReason: TypeAlias = "list[float] | str"


def _boxes_of(member: _Value, fmt: BoxFormat, found: Findings) -> list[_BoxOrReason]:
    """The boxes under a box key: a list of numbers, two corner points, a list of either, or any of it in a string."""
    if member is None:
        found.stated_empty = True
        return []
    if isinstance(member, str):
        return _boxes_in_string(member, fmt, found)
    if isinstance(member, _Object) and _has_corners(member):
        return [_corner_box(member)]
    if isinstance(member, _Object) and _holds_key(member, _folded(fmt.keys)):
        _collect_object(member, fmt, found)
        return []
    if not isinstance(member, _List):
        return ["not_a_number"]
    children = member.containers()
    if len(children) == 2 and all(map(_is_corner, children)):
        corners = [token for child in children if isinstance(child, _List) for token in _tokens(child)]
        box = box_or_reason(corners)
        if not isinstance(box, str):
            return [in_xyxy(box, fmt.order)]
    if children:
        return [box for child in children for box in _boxes_of(child, fmt, found)]
    return _read_box(member, fmt, found, named=True)


def _boxes_in_string(text: str, fmt: BoxFormat, found: Findings) -> list[_BoxOrReason]:
    content = text.translate(_BRACKETS_TO_BLANKS)
    if content.strip(" .").casefold() in NOTHING:
        found.stated_empty = True
        return []
    return [ordered_box_or_reason(tokens, fmt.order) for tokens in split_numbers(content)]


_BRACKETS_TO_BLANKS = str.maketrans("[](){}<>", "        ")


def _has_corners(value: _Object) -> bool:
    if len(value.members) < 4:
        return False
    names = {key for key, _ in value.members}
    return any(names.issuperset(corners) for corners in CORNER_NAMES)


def _corner_box(value: _Object) -> _BoxOrReason:
    """The box of an object that names its corners."""
    given = dict(value.members)
    corners = next(names for names in CORNER_NAMES if given.keys() >= set(names))
    return box_or_reason([_token(given[name]) for name in corners])


def _read_box(values: _List, fmt: BoxFormat, found: Findings, *, named: bool) -> list[_BoxOrReason]:
    """The box in a list of scalars; a list that begins with a word is prose unless it is `named` by a box key."""
    tokens = _tokens(values)
    if tokens and not named and not looks_numeric(tokens[0]):
        return []
    if all(token.casefold() in NOTHING for token in tokens):
        found.stated_empty |= values.closed
        return []
    return [ordered_box_or_reason(tokens, fmt.order) if values.closed else "unclosed"]


def _tokens(values: _List) -> list[str]:
    return [_token(value) for value in values[:MAX_LIST]]


def _token(value: _Value) -> str:
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, bool | None) else "{}"


_Members: TypeAlias = "Sequence[tuple[str | None, _Value]]"


def _labels_of(members: _Members) -> list[str | None]:
    """The values of the first label key that the object has."""
    for key in (*_LABEL_KEYS, "labels"):
        values = [member for name, member in members if name == key]
        if len(values) == 1 and isinstance(values[0], _List):
            # One list of labels for a list of boxes.
            return [_label(member) for member in values[0]]
        if values:
            return [_label(member) for member in values]
    return []


def _label(member: _Value) -> str | None:
    if isinstance(member, _Object):
        nested = {key: value for key, value in member.members if isinstance(value, str)}
        return next((nested[key] for key in _NESTED_LABEL_KEYS if key in nested), None)
    return member or None if isinstance(member, str) else None


def _score_of(members: _Members) -> float | None:
    for key, member in members:
        if key in SCORE_KEYS and isinstance(member, str):
            return read_number(member.strip())
    return None
