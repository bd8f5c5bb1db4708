"""Numbers as models write them, and the four of them that make a box."""

import itertools
import re
from collections.abc import Collection, Sequence

from grounding_rewards.parsing.formats import WORDS, in_xyxy
from grounding_rewards.parsing.results import MAX_BOXES, MAX_GROUPS, MAX_LIST

#: Coordinates of this size or more are digit loops, not places in an image.
MAX_COORDINATE = 1e9

# `\d` and float() both know every script's decimal digits, so full-width digits need no extra care. No two
# neighbouring parts can match the same character, so a mismatch costs time linear in the length.
_is_number = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?").fullmatch
_is_not_finite = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE).fullmatch
_is_placeholder = re.compile(r"[xy][_ ]?(?:\d|min|max|left|right|top|bottom|center)\d?", re.IGNORECASE).fullmatch

_COMMA = re.compile(r"[,，、]")
_SEMICOLON = re.compile(r"[;；]")
_QUOTES = " \t\r\n\"'`“”()[]"
_PLACEHOLDERS = (frozenset("xywh"), frozenset({"left", "top", "right", "bottom"}))
#: Words that, in the place of boxes, say that there are none.
NOTHING = frozenset(WORDS["nothing"])
#: Names of corners state the order themselves, whatever the order of the format; `folded`.
CORNER_NAMES = tuple(map(tuple, WORDS["corners"]))
_SIZE_NAMES = tuple(map(tuple, WORDS["sizes"]))
_FIRST_NAMES = frozenset(names[0] for names in (*CORNER_NAMES, *_SIZE_NAMES))
_JOINERS = str.maketrans("", "", "_- ")

_REASON_BY_COUNT = {2: "point", 8: "quad", 9: "box_3d"}


def folded(name: str) -> str:
    """A name without what its spellings differ in: case, underscores, hyphens and blanks.

    Example:
        >>> folded("bounding_box_2d"), folded("boundingBox"), folded("X-Min")
        ('boundingbox2d', 'boundingbox', 'xmin')
    """
    return name.casefold().translate(_JOINERS)


def find_corners(names: Collection[str | None], order: str) -> tuple[Sequence[str], str] | None:
    """The names of a box's numbers among `folded` names, and the order of those numbers; None where they name no box.

    Names of corners state their order themselves; `order` is that of the format, which names of sizes depend on.

    Example:
        >>> find_corners(["label", "ymin", "xmin", "ymax", "xmax"], "yxyx")
        (('xmin', 'ymin', 'xmax', 'ymax'), 'xyxy')
        >>> find_corners(["x", "y", "w", "h"], "xywh"), find_corners(["x", "y", "w", "h"], "xyxy")
        ((('x', 'y', 'w', 'h'), 'xywh'), None)
    """
    if _FIRST_NAMES.isdisjoint(names):
        return None
    for box_names in CORNER_NAMES:
        if all(name in names for name in box_names):
            return box_names, "xyxy"
    # "x", "y", "width", "height" say that there is a size, but not whether x and y are a corner or the centre.
    if not order.endswith("wh"):
        return None
    for box_names in _SIZE_NAMES:
        if all(name in names for name in box_names):
            # "cx" is the centre.
            return box_names, "cxcywh" if "c" in box_names[0] else order
    return None


def looks_numeric(token: str) -> bool:
    """Whether a token belongs in a list of coordinates: a number, NaN, infinity or a placeholder such as `x1`.

    Example:
        >>> looks_numeric("0.5"), looks_numeric("x1"), looks_numeric("left")
        (True, True, False)
    """
    return bool(_is_number(token) or _is_not_finite(token) or _is_placeholder(token))


def read_number(token: str) -> float | None:
    """The number that a token is; None for a token that is no number, or one that is not below `MAX_COORDINATE`.

    Example:
        >>> read_number("086"), read_number("high")
        (86.0, None)
    """
    if not _is_number(token):
        return None
    value = float(token)
    return value if abs(value) < MAX_COORDINATE else None


def split_numbers(content: str) -> list[list[str]]:
    """Split the content of a pair of brackets into lists of tokens; of an endless list only the beginning is kept.

    Lists are separated by semicolons, tokens by commas, or by blanks where there are no commas.

    Example:
        >>> [split_numbers(content) for content in ("1, 2, '3', 4", "1 2 3 4;5 6 7 8", "1;2;3;4", " ")]
        [[['1', '2', '3', '4']], [['1', '2', '3', '4'], ['5', '6', '7', '8']], [['1', '2', '3', '4']], []]
    """
    lists = list(filter(None, map(_tokens, _SEMICOLON.split(content, MAX_BOXES))))
    if len(lists) > 1 and all(len(tokens) == 1 for tokens in lists):
        # Semicolons in the place of commas.
        return [[tokens[0] for tokens in lists[: MAX_LIST + 1]]]
    return lists


# Remarks, the unit of pixels, and what LaTeX's own brackets begin with; `\left[` has its `\right]`.
_NOISE = re.compile(r"(?://|\#[ \t])[^\n]*|/\*[^*]*\*/|(?<=\d)\s?px\b|\\(?:right)?")
# A character of each of these, and the full-width point.
_MAY_BE_NOISE = re.compile(r"[/#p\\．]").search


def _tokens(text: str) -> list[str]:
    """Split a text at its commas, or at its blanks if it has no comma; quotes and units of the tokens are left out.

    It is split `MAX_LIST` times at most, as no shape with a name of its own has more numbers.
    """
    # Remarks, units and full-width points are rare, and one quick search tells that there are none.
    if _MAY_BE_NOISE(text):
        text = _NOISE.sub("", text).replace("．", ".")
    between_commas = _COMMA.split(text, MAX_LIST)
    if len(between_commas) == 1:
        return [word.strip(_QUOTES) for word in text.split(maxsplit=MAX_LIST)]
    tokens = [token.strip(_QUOTES) for token in between_commas]
    if " " in tokens[0] and tokens[0][-1].isdecimal():
        # "12 34, 56 78": commas part corner points, and blanks their numbers.
        numbers: list[str] = []
        for point in tokens:
            words = point.split(maxsplit=MAX_LIST)
            numbers += words if words and all(map(_is_number, words)) else [point]
        tokens = numbers
    # Behind a comma at the end there is an empty token.
    return tokens if tokens[-1] else tokens[:-1]


def box_or_reason(tokens: Sequence[str]) -> list[float] | str:
    """The four numbers of a box, or the reason (one of `REJECT_REASONS`) why these tokens are not a box.

    Example:
        >>> box_or_reason(["086", ".5", "1e2", "30"])
        [86.0, 0.5, 100.0, 30.0]
        >>> box_or_reason(["1", "2", "3"])
        'wrong_count'
    """
    if all(map(_is_number, tokens)):
        if len(tokens) != 4:
            return _REASON_BY_COUNT.get(len(tokens), "wrong_count")
        box = [float(token) for token in tokens]
        return box if max(map(abs, box)) < MAX_COORDINATE else "number_too_large"
    # A token may hold a corner, "12, 34", or a number with its unit, "12 px".
    inner_tokens = [inner for token in tokens for inner in _tokens(token) or [token]]
    if all(map(_is_number, inner_tokens)):
        return box_or_reason(inner_tokens)
    if any(map(_is_placeholder, tokens)) or {token.casefold() for token in tokens} in _PLACEHOLDERS:
        return "placeholder"
    if any(map(_is_not_finite, tokens)):
        return "not_finite"
    if not any(map(str.isdecimal, "".join(tokens))):
        return "words"
    # Some are numbers, and others not.
    return "missing_number" if {"", "None", "null"}.intersection(tokens) else "not_a_number"


def ordered_box_or_reason(tokens: Sequence[str], order: str) -> list[float] | str:
    """A box as x1, y1, x2, y2, of numbers in an order of `ORDERS`; or the reason why these tokens are no box.

    Example:
        >>> ordered_box_or_reason(["1", "2", "3", "4"], "yxyx"), ordered_box_or_reason(["1", "2"], "yxyx")
        ([2.0, 1.0, 4.0, 3.0], 'point')
    """
    box = box_or_reason(tokens)
    if isinstance(box, list):
        return in_xyxy(box, order)
    # Tokens such as "x1=1", "y1=2" name their numbers.
    boxes = named_boxes(", ".join(tokens))
    return boxes[0] if len(boxes) == 1 else box


_NAMED_NUMBER = re.compile(
    r"""\b(?P<name>[xy][ _-]?(?:[012]|min|max|left|right|top|bottom|start|end)|(?:min|max|start|end)[ _-]?[xy]"""
    r"""|(?:left|right|top|bottom)(?:[ _-]?[xy])?)\b["'`*]{0,3}[ \t]{0,4}[=:：]"""
    r"""["'`*]{0,3}[ \t]{0,4}(?P<number>[-+]?(?:\d{1,9}(?:\.\d{0,20})?|\.\d{1,20}))(?![\w.%])""",
    re.IGNORECASE,
)
_CORNER_NAMES_BY_SET = {frozenset(names): names for names in CORNER_NAMES}
_AFTER_NUMBER = " \t\r\n,.;:-，。；：、[]()*`\\&"


def named_boxes(text: str) -> list[list[float] | str]:
    """The boxes whose corners are named one by one, as x1, y1, x2, y2, or the reasons why they are no boxes.

    Example:
        >>> named_boxes("The mass: y0=200, x0=100, x1=300, y1=400. The heart: left: 1, top: 2, right:")
        [[100.0, 200.0, 300.0, 400.0]]
    """
    # Each number has one of these before it, and fewer than three numbers are no box, nor a broken one.
    if sum(map(text.count, "=:：")) < 3:
        return []
    boxes: list[list[float] | str] = []
    # The numbers of the box that is not complete, by their names.
    corners: dict[str, str] = {}
    end = 0
    for match in itertools.islice(_NAMED_NUMBER.finditer(text), MAX_GROUPS):
        name = folded(match["name"])
        names_so_far = {*corners, name}
        fits_some_box = any(names_so_far <= names_of_box for names_of_box in _CORNER_NAMES_BY_SET)
        if name in corners or not fits_some_box:
            # Another box begins here.
            # Three corners of four are a broken box; fewer may be prose, "left: 2 nodules, right: 1".
            if len(corners) == 3:
                boxes.append("wrong_count")
            corners = {}
        corners[name] = match["number"]
        end = match.end()
        if len(corners) == 4:
            # In the order x1, y1, x2, y2, whatever that of the text.
            names = _CORNER_NAMES_BY_SET[frozenset(corners)]
            boxes.append(box_or_reason([corners[name] for name in names]))
            corners = {}
    if len(corners) == 3:
        # The text may break off before the fourth.
        boxes.append("wrong_count" if text[end:].strip(_AFTER_NUMBER) else "unclosed")
    return boxes
