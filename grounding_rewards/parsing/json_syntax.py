"""Boxes in JSON: `[{"bbox_2d": [x1, y1, x2, y2], "label": "mass"}]`, and what models make of it.

Two readers. `read_plain_json` hands the text to the C decoder of the standard library and takes only the shape
that a well-behaved model writes. `scan_json` reads everything else: single quotes, trailing commas, missing or
stray braces, duplicate keys, numbers as strings, nested labels, text around it, and text that breaks off. It too
leaves each list and object that is sound in itself to the C decoder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import grounding_rewards.parsing.numbers as numbers
from grounding_rewards.parsing.answer_span import may_have_marks
from grounding_rewards.parsing.formats import WORDS, in_xyxy
from grounding_rewards.parsing.no_finding import asserts_finding, states_nothing
from grounding_rewards.parsing.results import MAX_BOXES, MAX_DEPTH, MAX_LIST, MAX_TOKENS, BoxCollector, RawBoxes

if TYPE_CHECKING:
    from grounding_rewards.parsing.formats import BoxFormat

_KEYS = WORDS["keys"]
_LABEL_KEYS: tuple[str, ...] = tuple(_KEYS["label"])
_NESTED_LABEL_KEYS: tuple[str, ...] = tuple(_KEYS["nested_label"])
_FIRST_CORNERS = frozenset(names[0] for names in numbers.CORNER_NAMES if len(names[0]) > 1)
#: The members of an object that are read as the confidence of its box.
SCORE_KEYS: tuple[str, ...] = tuple(_KEYS["score"])
_STATEMENT_KEYS = frozenset(_KEYS["statement"])
_NAMING_KEYS = _STATEMENT_KEYS.union(_LABEL_KEYS)
_NORMAL_KEY = re.compile("(?<!ab)normal|healthy|negative|no(?:finding|abnormal)")
_LIST_KEYS = frozenset(_KEYS["list"])
_REASON_BY_KEY: dict[str, str] = {key: reason for reason, keys in _KEYS["rejected"].items() for key in keys}


_decode_prefix = json.JSONDecoder().raw_decode


def decode_plain_json(text: str) -> object:
    """Decode a text that is one JSON value, with or without a Markdown fence around; None for any other text.

    None, too, for JSON that only `scan_json` reads rightly: with a backslash, which may hide an escaped key; with `<`,
    which may open a tag that moves the answer; and with booleans, which Python counts among the numbers.

    Example:
        >>> decode_plain_json("```json\\n[1, 2]\\n```"), decode_plain_json("Here: [1, 2]")
        ([1, 2], None)
    """
    if text[:1] in ("[", "{"):
        start = 0
    elif text.startswith(("```json\n[", "```json\n{")):
        start = len("```json\n")
    else:
        return None
    # Cheaper than decoding: most texts that are not plain JSON end in prose, not in a bracket or a fence.
    if text[-1] not in "]}`\n" or "<" in text or "\\" in text or "true" in text or "false" in text:
        return None
    try:
        value, end = _decode_prefix(text, start)
    except (ValueError, RecursionError):
        return None
    # Behind the value only the fence may end.
    return value if text[end:] in ("", "\n", "```", "\n```", "\n```\n") else None


@functools.lru_cache(maxsize=4096)
def _is_plain_label(label: object) -> bool:
    """Whether a decoded label is None, or a text without a mark that moves the answer, as in "mass [INST]"."""
    return label is None or (isinstance(label, str) and not may_have_marks(label))


def read_plain_json(text: str, fmt: BoxFormat) -> RawBoxes | None:
    """Read JSON whose objects hold a box and at most a label, or `[]`; None for any other text.

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
    if len(items) > MAX_BOXES:
        return None
    key = fmt.keys[0]
    coords: list[float] = []
    labels: list[str | None] = []
    # The quotes that these keys and labels take in the text, two for each string; a label `null` has none.
    quote_count = 0
    try:
        # Any value may stand here: what is no object with a list raises, and is left to `scan_json`.
        for item in items:
            box = item[key]
            if len(box) != 4:
                return None
            coords += box
            if len(item) == 2:
                label = item["label"]
                labels.append(label or None)
                # Of two keys, and of the label.
                quote_count += 6 if type(label) is str else 4
            elif len(item) == 1:
                labels.append(None)
                quote_count += 2
            else:
                return None
        # No number is larger than their norm, which takes a third of the time of `max` and `min`; NaN is not less.
        if not math.hypot(*coords) < numbers.MAX_COORDINATE or not all(map(_is_plain_label, {*labels})):
            return None
    except (KeyError, OverflowError, TypeError):
        # Another key, an integer that is too large for a float, or a value of another type.
        return None
    # More quotes are those of duplicate keys, of which a decoded object keeps only the last.
    if text.count('"') != quote_count:
        return None
    return RawBoxes(in_xyxy(coords, fmt.order), labels, [None] * len(labels), "boxes", {})


class _Node:
    """A list, a tuple or an object as it stands in the text.

    bracket: its opening one.
    is_object: that is a brace.
    members: (key, value) in the order of the text, also duplicates; a key is `folded`, None where there is none.
    start, end: where a node at the top level stands in the text.
    closed: its own closing bracket was read.
    """

    __slots__ = ("bracket", "closed", "end", "is_object", "members", "start")

    def __init__(self, bracket: str, start: int) -> None:
        self.bracket, self.is_object = bracket, _KIND_OF_BRACKET[bracket] == "{"
        self.start, self.end, self.closed = start, start, False
        self.members: _Members = []

    def nodes(self) -> list[_Node]:
        """The lists and objects among the members."""
        return [value for _, value in self.members if isinstance(value, _Node)]

    def tokens(self) -> list[str]:
        """The first members as they are written, `{}` for nodes."""
        return [_token(value) for _, value in self.members[:MAX_LIST]]


_Value: TypeAlias = "str | bool | _Node | None"
_Members: TypeAlias = "list[tuple[str | None, _Value]]"

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
    | (?P<comment>//[^\n]*|\#[ \t][^\n]*|/\*(?s:.*?)(?:\*/|\Z))
    | (?P<bare>[^\s,:;\[\](){}"'“，：；、［］（）｛｝]+)
    )""",
    re.VERBOSE,
)
#: What a list or an object at the top level begins with.
OPENER = re.compile(r"[\[{［｛]")
#: What may close what: "[" stands for all brackets of lists, as models close "[" by ")", and "{" for those of objects.
_KIND_OF_BRACKET = dict(zip("[({［（｛])}］）｝", "[[{[[{[[{[[{", strict=True))
_CONSTANTS = {"null": None, "None": None, "true": True, "True": True, "false": False, "False": False}


def scan_json(text: str, fmt: BoxFormat, collector: BoxCollector) -> str:
    """Add every box in JSON, however broken it may be, to the collector, and return the text outside of that JSON.

    Where the family does not write JSON, and no JSON in the text holds a box, the whole text is returned.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> collector = BoxCollector()
        >>> scan_json("Here: {'bbox_2d': [1, 2, 3, 4,]}!", get_box_format("qwen3-vl"), collector), collector.coords
        ('Here: !', [1.0, 2.0, 3.0, 4.0])
    """
    # A family that is `keyed` writes JSON.
    if not fmt.syntax.keyed:
        folded_text = numbers.folded(text)
        # JSON without a box or a denial is left to the other readers.
        if not any(word in folded_text for word in ("false", *_folded(fmt.keys), *_FIRST_CORNERS)):
            return text
    unescaped = _without_escapes(text)
    reader = _Reader(unescaped)
    roots = reader.read()
    roots_with_boxes = [root for root in roots if _holds_key(root, fmt)]
    # In another syntax JSON counts only for its boxes, and for a denial such as {"present": false}.
    if not roots_with_boxes and not fmt.syntax.keyed:
        collector.stated_empty |= any(map(_denies, roots))
        return text
    collector.cut_off |= reader.cut_off
    if reader.limit is not None:
        collector.reject(reader.limit)
    # The parts of the text between the roots, and where the last root ends.
    outside = []
    end = 0
    # Beside objects with boxes, numbers in brackets are prose: "[3] nodules", "near [1, 2, 3, 4]".
    for root in roots_with_boxes or roots:
        outside.append(unescaped[end : root.start])
        end = root.end
        if not collector.full:
            _collect(root, None, fmt, collector)
    return "".join([*outside, unescaped[end:]])


# ms-swift fills templates of JSON with boxes in Qwen2-VL's tags; others write <bbox> for a bracket.
_BOX_TAG = re.compile(
    r"(?P<open><(?:\|box_start\||b?box)>(?=\s{0,8}[-+.\d]))|(?P<close>(?:(?<=\d)|(?<=\d\s))<(?:\|box_end\||/b?box)>)"
    r"|<(?:\|box_(?:start|end)\||/?b?box)>"
)
_BRACKET_OF_TAG = {"open": "[", "close": "]", None: " "}


def _without_escapes(text: str) -> str:
    """JSON with brackets for box tags and without the backslashes of JSON in a string or in Markdown."""
    # A tag before or behind a number becomes a bracket, any other a blank, by the name of the group that matched.
    if "box" in text and "<" in text:
        text = _BOX_TAG.sub(lambda tag: _BRACKET_OF_TAG[tag.lastgroup], text)
    if "\\" in text:
        # Markdown: "bbox\_2d".
        text = text.replace("\\_", "_")
        # JSON in a string has a backslash before each of its quotes; else it is part of a label.
        if text.count('"') == text.count('\\"'):
            text = text.replace('\\"', '"')
    return text


@functools.cache
def _folded(keys: tuple[str, ...]) -> frozenset[str]:
    """The keys of a format as `_Node` has them."""
    return frozenset(map(numbers.folded, keys))


def _holds_key(node: _Node, fmt: BoxFormat) -> bool:
    """Whether the node, or an object in it, has one of the format's keys, or names of corners as keys."""
    keys = _folded(fmt.keys)
    if _corners(node, fmt) is not None or any(key in keys for key, _ in node.members):
        return True
    return any(_holds_key(child, fmt) for child in node.nodes())


def _denies(node: _Node) -> bool:
    """Whether an object, or one in a list of objects, says that there is no finding, as in `{"present": false}`."""
    if not node.is_object:
        return any(map(_denies, node.nodes()))
    return any(member is False and key in _STATEMENT_KEYS for key, member in node.members)


class _Reader:
    """Reads the lists and objects at the top level of a text, with all that their brackets enclose."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Whether the text breaks off inside a list or an object.
        self.cut_off = False
        # The reason why reading stopped before the end of the text: `too_long` or `too_deep`.
        self.limit: str | None = None
        # The lists and objects at the top level.
        self.roots: list[_Node] = []
        # The nodes whose closing bracket was not read yet, the innermost last.
        self.open_nodes: list[_Node] = []
        # The key of the next member.
        self.key: str | None = None
        # Where the last closing bracket stands, by its opening one: what opens behind it is not whole. Nothing is given
        # to the decoder if the text may have too many tokens, as the decoder does not count them.
        self.last_closer = {"[": text.rfind("]"), "{": text.rfind("}")} if len(text) < MAX_TOKENS else {}

    def read(self) -> list[_Node]:
        """Read the whole text, and return its `roots`."""
        position = 0
        for _ in range(MAX_TOKENS):
            if not self.open_nodes:
                # Outside all brackets there is prose, which is passed over.
                opener = OPENER.search(self.text, position)
                if opener is None:
                    return self.roots
                position = opener.start()
            token = _TOKEN.match(self.text, position)
            if token is None:
                # The text ends: only braces around complete values may stay open, as in "{ [{...}, {...}]".
                # Outside all brackets no node is open, and nothing is cut off.
                self.cut_off = not all(map(_holds_nodes_only, self.open_nodes))
                break
            position = self.take(token)
            if self.limit is not None:
                break
        else:
            self.limit = "too_long"
        if self.open_nodes:
            # What is never closed goes to the end of the text.
            self.open_nodes[0].end = len(self.text)
        return self.roots

    def take(self, token: re.Match[str]) -> int:
        """Take a match of `_TOKEN`, and return where the next one begins. Outside all brackets it is an opening one."""
        kind = token.lastgroup
        end = token.end()
        if kind == "comment":
            # It may stand between a key and its value.
            return end
        if kind == "colon":
            self.take_colon()
            return end
        if kind == "open":
            end = self.take_open(token["open"], end)
        elif kind == "close":
            self.take_close(token["close"], end)
        elif kind != "comma":
            self.open_nodes[-1].members.append((self.key, _scalar(token)))
        # The key was that of the member which this token is, begins or ends: the next one has none so far.
        self.key = None
        return end

    def take_colon(self) -> None:
        """Make the member before a colon, a string in an object, the key of the next member.

        Any other colon, such as a stray one, makes no key.
        """
        self.key = None
        parent = self.open_nodes[-1]
        if parent.is_object and parent.members:
            key, value = parent.members[-1]
            # What has a key itself is a value, and not the key of another.
            if key is None and isinstance(value, str):
                parent.members.pop()
                self.key = numbers.folded(value)

    def take_close(self, bracket: str, end: int) -> None:
        """Close the innermost node that the bracket, which ends at `end`, may close, with all that is open inside it.

        A stray bracket, for which there is no such node, closes none.
        """
        for depth in reversed(range(len(self.open_nodes))):
            node = self.open_nodes[depth]
            if _KIND_OF_BRACKET[node.bracket] == _KIND_OF_BRACKET[bracket]:
                both_or_neither_round = (node.bracket in "(（") == (bracket in ")）")
                # "[1, 2, 3, 4)" is a box, but "[)" is not taken for the statement "[]".
                node.closed = bool(node.members) or both_or_neither_round
                node.end = end
                del self.open_nodes[depth:]
                return

    def take_open(self, bracket: str, end: int) -> int:
        """Begin the list or object whose opening bracket ends at `end`, and return where the next token begins.

        If it is sound JSON to its closing bracket, it is decoded at once, and the next token is behind it; else it is
        opened, and its first member comes next.
        """
        depth = len(self.open_nodes)
        if depth == MAX_DEPTH:
            self.limit = "too_deep"
            return end
        # A bracket is one character.
        start = end - 1
        parent = self.open_nodes[-1] if self.open_nodes else None
        # Only `[` and `{` are JSON: for other brackets no last closing one is known.
        may_be_whole = start < self.last_closer.get(bracket, -1)
        node = _decoded_node(self.text, start, MAX_DEPTH - depth) if may_be_whole else None
        if node is not None:
            end = node.end
        else:
            node = _Node(bracket, start)
            self.open_nodes.append(node)
        if parent is None:
            self.roots.append(node)
        else:
            parent.members.append((self.key, node))
        return end


def _holds_nodes_only(node: _Node) -> bool:
    """Whether a node is a pair of braces around lists and objects without keys, so that nothing in it is incomplete."""
    if not node.is_object or not node.members:
        return False
    return all(key is None and isinstance(member, _Node) for key, member in node.members)


# Numbers as they are written, and objects with their duplicate keys.
_decode_node = json.JSONDecoder(object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=str).raw_decode


def _decoded_node(text: str, start: int, room: int) -> _Node | None:
    """The node that begins at `start`, if it is JSON without a fault and at most `room` levels deep; else None."""
    try:
        value, end = _decode_node(text, start)
        node = _node_of(value, start, room)
    except (ValueError, RecursionError):
        return None
    node.end = end
    return node


def _node_of(value: Any, start: int, room: int) -> _Node:
    """The node of a list or an object as `_decode_node` gives it: a list of values, or a tuple of (key, value) pairs.

    Raises:
        RecursionError: it is more than `room` levels deep.
    """
    if not room:
        raise RecursionError
    node = _Node("{" if isinstance(value, tuple) else "[", start)
    node.closed = True
    pairs = value if node.is_object else [(None, member) for member in value]
    for key, member in pairs:
        if isinstance(member, list | tuple):
            # Only where a node at the top level stands is ever asked, so nested ones get its place.
            member = _node_of(member, start, room - 1)
        node.members.append((None if key is None else numbers.folded(key), member))
    return node


class _Cut(str):
    """Words or a number in which the text breaks off: nobody knows what would have followed, a digit perhaps."""


def _scalar(token: re.Match[str]) -> str | bool | None:
    """The value of a token: its text, numbers too, or that of a constant; a `_Cut` if the text breaks off in it."""
    kind = str(token.lastgroup)
    text: str = token[kind]
    # The group ends where the text does, without a closing quote or anything else behind it.
    if token.end(kind) == len(token.string):
        return _Cut(text)
    if kind == "bare":
        return _CONSTANTS.get(text, text)
    if kind == "double" and "\\" in text:
        # A backslash that JSON does not know stays as it is.
        with contextlib.suppress(ValueError):
            return str(json.loads(f'"{text}"'))
    return text


def _collect(
    node: _Node,
    key: str | None,
    fmt: BoxFormat,
    collector: BoxCollector,
    *,
    beside_label: bool = False,
    beside_box: bool = False,
) -> None:
    """Add the boxes in a node, which stands under this key, to the collector.

    Args:
        node: a list or an object.
        key: None for no key; what a list holds counts as under the list's key.
        fmt: the box format.
        collector: takes the boxes.
        beside_label: the object that holds the node has a label.
        beside_box: the object that holds the node has a box of its own.
    """
    if node.is_object:
        _collect_object(node, fmt, collector, beside_box=beside_box)
        return
    children = node.nodes()
    if children:
        # A list of lists or objects: numbers between them are no box.
        for child in children:
            if collector.full:
                break
            _collect(child, key, fmt, collector, beside_label=beside_label, beside_box=beside_box)
        return
    # A list of numbers or words. Without a key, or under one of a list of answers, it stands for a box of the answer.
    if key is None or key in _LIST_KEYS:
        for box_or_reason in _read_box(node, fmt, collector, has_box_key=False):
            collector.take(box_or_reason)
    elif not node.members:
        # {"answer": []}, but not {"label": "mass", "attributes": []}
        collector.stated_empty |= node.closed and not beside_label
    elif node.closed and not beside_box and not isinstance(numbers.box_or_reason(node.tokens()), str):
        # Four numbers, which `box_or_reason` gives as a list and not as a reason: a box under a key that is none of the
        # format's.
        collector.reject("unknown_key")


def _collect_object(node: _Node, fmt: BoxFormat, collector: BoxCollector, *, beside_box: bool = False) -> None:
    """Add the boxes of an object and of what it holds to the collector, in the order of the text.

    `beside_box`: an object around it has a box of its own, so that other keys with four numbers are no failed boxes.
    """
    keys = _folded(fmt.keys)
    corners = _corners(node, fmt)
    may_hold_boxes = corners is not None or any(
        key in keys or key in _REASON_BY_KEY or isinstance(member, bool | _Node) for key, member in node.members
    )
    if not may_hold_boxes:
        # Left at once, so that a text full of '{"a": 1}' takes no longer than others.
        return
    members = _joined_corners(node.members)
    boxes_by_member = _boxes_by_member(members, fmt, collector)
    box_count = sum(map(len, boxes_by_member))
    labels = _labels_of(members)
    # Of several, under duplicate keys or in a list, the last counts.
    last_label = labels[-1] if labels else None
    # Confidences are numbers, which like words are kept as they are written.
    scores = [member for key, member in members if key in SCORE_KEYS and isinstance(member, str)]
    score = numbers.read_number(scores[0].strip()) if scores else None
    if not box_count and corners is not None:
        # The object itself is the box: {"x1": 1, "y1": 2, "x2": 3, "y2": 4}.
        collector.take(_corner_box(node, *corners), last_label, score)
        box_count = 1
    elif not box_count:
        # "{"bbox_2d": [], "label": "large mass"}" names a finding, so that its empty box states no negative.
        collector.asserted |= _asserts_without_box(members, keys)
    # With duplicate keys there may be as many labels as boxes: these belong together in their order.
    label_of_next_box = iter(labels if len(labels) == box_count else [last_label] * box_count)
    # "{[1, 2, 3, 4]}": a pair of braces around a list is no object, and the list stands under no key at all.
    is_braces_only = all(key is None for key, _ in members)
    members_with_boxes = [member for _, member in members if isinstance(member, _Node) and _holds_key(member, fmt)]
    for boxes_of_member, (key, member) in zip(boxes_by_member, members, strict=True):
        for box_or_reason in boxes_of_member:
            collector.take(box_or_reason, next(label_of_next_box), score)
        if key in keys or boxes_of_member:
            # All that it holds was read by `_boxes_by_member`.
            continue
        # Beside a box, or another member that holds boxes, numbers under a name of their own are no failed boxes.
        has_box_beside = beside_box or box_count > 0 or any(other is not member for other in members_with_boxes)
        if key in _REASON_BY_KEY:
            if not has_box_beside:
                collector.reject(_REASON_BY_KEY[key], last_label, score)
        elif isinstance(member, _Node):
            # "label": {"en": "mass"} was read as a label.
            is_label_in_languages = member.is_object and key in _LABEL_KEYS and not _holds_key(member, fmt)
            if not is_label_in_languages:
                # "" is a key that is unknown, None says that none was needed.
                key_of_member = None if is_braces_only else key or ""
                _collect(member, key_of_member, fmt, collector, beside_label=bool(labels), beside_box=has_box_beside)
        elif isinstance(member, bool):
            collector.asserted |= _asserts_finding(key, member)
            collector.stated_empty |= key in _STATEMENT_KEYS and not member


def _boxes_by_member(members: _Members, fmt: BoxFormat, collector: BoxCollector) -> list[list[_BoxOrReason]]:
    """The boxes, or the reasons why they are none, under each member whose key holds boxes; none for the others.

    The collector is told of what `_boxes_of` finds beside them.
    """
    keys = _folded(fmt.keys)
    has_box = any(key in keys and isinstance(member, _Node) for key, member in members)
    boxes_by_member: list[list[_BoxOrReason]] = []
    for key, member in members:
        # "position": "left lower lobe" beside a box is a description.
        is_description = has_box and isinstance(member, str) and not any(map(str.isdecimal, member))
        holds_boxes = _is_list_of_boxes(key, member) or (key in keys and not is_description)
        boxes_by_member.append(_boxes_of(member, fmt, collector) if holds_boxes else [])
    return boxes_by_member


def _is_list_of_boxes(key: str | None, member: _Value) -> bool:
    """Whether a member is a list of lists such as `"boxes": [[1, 2, 3, 4]]`, whose labels stand beside it.

    A list of objects is not meant: its labels stand in the objects.
    """
    if not key or not key.endswith("boxes") or not isinstance(member, _Node) or member.is_object:
        return False
    # Without a list in it, it is one list of numbers, which is read like any other.
    nodes = member.nodes()
    return bool(nodes) and not any(node.is_object for node in nodes)


def _asserts_without_box(members: _Members, box_keys: frozenset[str]) -> bool:
    """Whether an object without a box of its own says that there is a finding: `{"bbox": null, "size": "3 cm"}`.

    It does if it has the key of a box, some other member asserts a finding, and no member denies one.

    Args:
        members: of an object under whose box keys, if it has any, neither a box nor a broken one was read: it holds
            nothing, a word for it such as "none", or an object that is read by itself.
        box_keys: the keys that hold a box, `folded` as those of the members.
    """
    # An object without such a key is about something else than a box.
    if box_keys.isdisjoint(key for key, _ in members) or any(_denies_finding(key, member) for key, member in members):
        return False
    return any(_asserts_finding(key, member) for key, member in members if key not in box_keys)


def _denies_finding(key: str | None, value: _Value) -> bool:
    """Whether a member says that there is no finding: `"present": false`, `"label": "none"`.

    `key`: `folded`, None for no key. Only under a key of statements or labels the words are about the finding.
    """
    return key in _NAMING_KEYS and (value is False or (isinstance(value, str) and _is_nothing(value)))


def _asserts_finding(key: str | None, value: _Value) -> bool:
    """Whether a member beside an empty box says that there is a finding: `"is_anomaly": true`, `"size": "3 cm"`.

    Whatever describes something says so; what is empty, nothing or 0 does not. `key`: `folded`, None for no key.
    """
    if isinstance(value, _Node):
        for inner_key, member in value.members:
            # What has no key, or the two letters of a language such as "en", counts as under the key of the whole.
            if _asserts_finding(inner_key if inner_key and len(inner_key) > 2 else key, member):
                return True
        return False
    if isinstance(value, bool):
        # "present": true and "normal": false both say that there is a finding.
        is_about_normality = bool(key and _NORMAL_KEY.search(key))
        # True under a key of findings, or False under one of normality.
        return value != is_about_normality
    if value is None or _is_nothing(value) or numbers.read_number(value) == 0:
        return False
    # A label alone may be what is denied by the empty box, unless its words assert it, "large mass".
    return key not in _LABEL_KEYS or asserts_finding(value)


def _is_nothing(words: str) -> bool:
    """Whether the words of a member say that there is nothing: `none`, `false`, `no finding`."""
    return words.strip().casefold() in numbers.NOTHING or words == "false" or states_nothing(words)


def _joined_corners(members: _Members) -> _Members:
    """The members, with two corner points as one list under the key of the first.

    In `"bbox": (1,2),(3,4)` the comma ends the member, so that the second point stands as a member without a key.
    """
    joined: _Members = []
    for key, member in members:
        if not key and joined and _is_corner(member) and _is_corner(joined[-1][1]):
            key, first_corner = joined.pop()
            # Where it stands is asked of nodes at the top level alone.
            both_corners = _Node("[", start=0)
            both_corners.members = [(None, first_corner), (None, member)]
            member = both_corners
        joined.append((key, member))
    return joined


def _is_corner(value: _Value) -> bool:
    """Whether a member is a list of two numbers or words."""
    if not isinstance(value, _Node) or value.is_object:
        return False
    return value.closed and len(value.members) == 2 and not value.nodes()


#: A box, or the reason why what stands in its place is none.
_BoxOrReason: TypeAlias = "list[float] | str"


def _boxes_of(member: _Value, fmt: BoxFormat, collector: BoxCollector) -> list[_BoxOrReason]:
    """The boxes in a member under a box key, or the reasons why there are none.

    It is a list of numbers, two corner points, a list of either, any of these in a string, or an object that names
    corners. Boxes of findings in an object go to the collector, which is also told of a no-finding statement.
    """
    # `null`.
    if member is None:
        collector.stated_empty = True
        return []
    if isinstance(member, _Cut):
        # The text breaks off in it. It is a string too, so this comes first.
        return ["unclosed"]
    if isinstance(member, str):
        # "[1, 2, 3, 4]" in quotes: without its brackets it is split into numbers.
        content = member.translate(_BRACKETS_TO_BLANKS)
        if content.strip(" .").casefold() in numbers.NOTHING:
            collector.stated_empty = True
            return []
        return [numbers.ordered_box_or_reason(tokens, fmt.order) for tokens in numbers.split_numbers(content)]
    if isinstance(member, bool):
        return ["not_a_number"]
    if member.is_object:
        corners = _corners(member, fmt)
        if corners is not None:
            return [_corner_box(member, *corners)]
        if _holds_key(member, fmt):
            # Objects with boxes of their own, each with its own label.
            _collect_object(member, fmt, collector)
            return []
        return ["not_a_number"]
    children = member.nodes()
    # Two corner points are a box; if their tokens are no numbers, each is rejected below.
    if len(children) == 2 and all(map(_is_corner, children)):
        box = numbers.box_or_reason([token for child in children for token in child.tokens()])
        if not isinstance(box, str):
            return [in_xyxy(box, fmt.order)]
    if children:
        return [box_or_reason for child in children for box_or_reason in _boxes_of(child, fmt, collector)]
    return _read_box(member, fmt, collector, has_box_key=True)


_BRACKETS_TO_BLANKS = str.maketrans("[](){}<>", "        ")


def _corners(node: _Node, fmt: BoxFormat) -> tuple[Sequence[str], str] | None:
    """The keys of an object that name the numbers of a box, and the order of these; None where it names no box."""
    return numbers.find_corners([key for key, _ in node.members], fmt.order)


def _corner_box(node: _Node, corners: Sequence[str], order: str) -> _BoxOrReason:
    """The box of an object that names its corners, or the reason why it is none.

    `corners`, the keys of its numbers, and `order`, that of these numbers, are as :func:`_corners` gives them.
    """
    # Of duplicate keys the last counts.
    value_by_key = dict(node.members)
    tokens: list[str] = []
    for corner in corners:
        value = value_by_key[corner]
        if isinstance(value, _Cut):
            return "unclosed"
        if isinstance(value, _Node):
            # A corner {"x": 1, "y": 2}: sorted by key, x comes before y. In [1, 2] there are no keys to sort by.
            point = sorted(value.members, key=lambda key_and_number: key_and_number[0] or "")
            tokens += [_token(number) for _, number in point[:MAX_LIST]]
        else:
            tokens.append(_token(value))
    return numbers.ordered_box_or_reason(tokens, order)


def _read_box(node: _Node, fmt: BoxFormat, collector: BoxCollector, *, has_box_key: bool) -> list[_BoxOrReason]:
    """A list with the one box in a list of scalars, or with the reason why it is none.

    It is empty for prose, as which a list counts that begins with a word, unless its key holds boxes (`has_box_key`);
    and for a no-finding statement, of which the collector is told.
    """
    tokens = node.tokens()
    if tokens and not has_box_key and not numbers.looks_numeric(tokens[0]):
        return []
    # This holds for an empty list as well: [] says that there is nothing, but not "[", in which the text breaks off.
    if all(token.casefold() in numbers.NOTHING for token in tokens):
        collector.stated_empty |= node.closed
        return []
    return [numbers.ordered_box_or_reason(tokens, fmt.order) if node.closed else "unclosed"]


def _token(value: _Value) -> str:
    """A member of a list or an object as a token for `box_or_reason`: as it is written, `{}` for a node."""
    if isinstance(value, str):
        return value.strip()
    return "{}" if isinstance(value, _Node) else str(value)


def _labels_of(members: _Members) -> list[str | None]:
    """The labels of an object: what stands under the first label key that it has; a list there is a list of labels."""
    keys = {key for key, _ in members}
    label_key = next((key for key in (*_LABEL_KEYS, "labels") if key in keys), None)
    if label_key is None:
        return []
    values = [member for key, member in members if key == label_key]
    if len(values) == 1 and isinstance(values[0], _Node) and not values[0].is_object:
        # One list of labels for a list of boxes. Several values are those of duplicate keys, a label each.
        values = [member for _, member in values[0].members]
    return list(map(_label, values))


def _label(member: _Value) -> str | None:
    """The label that a member under a label key is, or holds under a key such as `name`; None for anything else."""
    if isinstance(member, str):
        return member or None
    if isinstance(member, _Node) and member.is_object:
        words_by_key = {key: value for key, value in member.members if isinstance(value, str)}
        return next((words_by_key[key] for key in _NESTED_LABEL_KEYS if key in words_by_key), None)
    return None
