"""What a prompt says about the way to write boxes, whether the box format agrees, and whether it says the boxes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from grounding_rewards.boxes import ORDERS, as_box_array, from_xyxy
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.parsing.no_finding import states_nothing

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.(\d+))?|(?<=[a-z_])\d+(?=>)")
# What the right and the lower edge of the image may be called, besides its pixels.
_UNITS = (1.0, 100.0, 1000.0, 1024.0)
_DENIAL = re.compile(r"\b(?:no|normal|without|clear|unremarkable|nothing)\b", re.IGNORECASE)
_CONDITION = re.compile(
    r"\b(?:if|when|where|whether|unless|otherwise|for|in case|say|answer|write|return|reply|or)\b", re.IGNORECASE
)
_RANGE = r"(?:\b0(?:\.0+)?\s*(?:-|–|to|and|\.\.+|…)\s*|[\[(]0(?:\.0+)?, ?(?=[\d.]+[\])]))"


class Claim(NamedTuple):
    """A pattern in prompts and what it claims about the box format.

    kind: what it is about: `order`, `space` or `syntax`.
    says: the claim, for messages.
    words: the pattern.
    agrees: whether a box format fits the claim.
    """

    kind: str
    says: str
    words: re.Pattern[str]
    agrees: Callable[[BoxFormat], bool]


def _order(order: str, words: str) -> Claim:
    """The claim of prompts with these words that the format has this order."""
    return Claim("order", order, re.compile(words, re.IGNORECASE), lambda fmt: fmt.order == order)


def _space(says: str, words: str, *names: str) -> Claim:
    """The claim of prompts with these words that the format has a space of one of these names."""
    return Claim("space", says, re.compile(words, re.IGNORECASE), lambda fmt: fmt.space.name in names)


CLAIMS = (
    _order("yxyx", r"\by_?(?:1|min|0)\W+x_?(?:1|min|0)\W+y_?(?:2|max|1)\W+x_?(?:2|max|1)\b"),
    _order("xyxy", r"\bx_?(?:1|min|0)\W+y_?(?:1|min|0)\W+x_?(?:2|max|1)\W+y_?(?:2|max|1)\b"),
    _order("xywh", r"\bx\W+y\W+w(?:idth)?\W+h(?:eight)?\b"),
    _order("cxcywh", r"\b(?:cx|x_?center|center_?x)\W+(?:cy|y_?center|center_?y)\W+w(?:idth)?\W+h(?:eight)?\b"),
    _space("0 to 1000", _RANGE + r"(?:1000|999)\b|thousandth", "norm1000", "norm999", "bin1000", "pad999", "pad1000"),
    _space("0 to 1024", _RANGE + r"102[34]\b", "bin1024", "norm1023"),
    _space("0 to 100", _RANGE + r"100\b|\bper ?cent", "norm100", "crop100"),
    _space("0 to 1", _RANGE + r"1(?:\.0+)?(?!\.?\d)", "norm1", "pad1"),
    _space(
        "pixels", r"\b(?:in|as|absolute|image) pixels?\b|\bpixel coordinates", "pixel", "resized_pixel", "squash840"
    ),
    Claim(
        "answer",
        "words",
        re.compile(
            r"\byes (?:or|/) no\b|^\W*(?:describe|summari[sz]e)\b(?!.*\b(?:box|coord|locat|where))", re.IGNORECASE
        ),
        lambda fmt: False,
    ),
    Claim("syntax", "JSON", re.compile(r"\bJSON\b", re.IGNORECASE), lambda fmt: fmt.syntax.keyed),
    Claim("syntax", "<loc…> tokens", re.compile(r"<loc", re.IGNORECASE), lambda fmt: "<loc" in fmt.layout.box),
    Claim("syntax", "<box> tags", re.compile(r"<box>", re.IGNORECASE), lambda fmt: "<box>" in fmt.layout.item),
)


def prompt_contradictions(prompt: str, box_format: BoxFormat) -> Iterator[str]:
    """A sentence for each way in which a prompt asks for another box format than this one.

    A prompt that names several orders or spaces agrees if one of them fits: it may explain one by the other.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> list(prompt_contradictions("Answer in JSON with [x, y, w, h].", get_box_format("qwen3-vl")))
        ['the prompt asks for the order xywh, qwen3-vl has xyxy']
    """
    by_kind: dict[str, list[Claim]] = {}
    for claim in CLAIMS:
        if claim.words.search(prompt):
            by_kind.setdefault(claim.kind, []).append(claim)
    for kind, claims in by_kind.items():
        if not any(claim.agrees(box_format) for claim in claims):
            claimed_words = " or ".join(claim.says for claim in claims)
            own_values = {
                "order": box_format.order,
                "space": box_format.space.name,
                "syntax": box_format.layout.item,
                "answer": "boxes",
            }
            yield f"the prompt asks for the {kind} {claimed_words}, {box_format.name} has {own_values[kind]}"


def told_box(
    prompt: str, boxes: Sequence[Sequence[float]], size: tuple[float, float], resized: tuple[float, float] | None = None
) -> str:
    """The first four numbers of a prompt, next to each other, that are one of the boxes; empty where none are.

    Args:
        prompt: its text.
        boxes: of the image, xyxy in pixels, each four finite numbers.
        size: width and height of the image in pixels.
        resized: width and height at which the model sees it, where they are known.

    Numbers may be pixels of the image or of the resized one, parts, per cent, thousandths or bins of 1024, in any order
    of :data:`grounding_rewards.boxes.ORDERS`, rounded or cut off.

    Example:
        >>> told_box("The nodule is at (100, 250), (300, 400).", [[50, 100, 150, 160]], (500, 400))
        '100, 250, 300, 400'
        >>> told_box("Answer with [x1, y1, x2, y2] in 0 to 1000.", [[50, 100, 150, 160]], (500, 400))
        ''
    """
    matches = list(_NUMBER.finditer(prompt))
    if len(matches) < 4 or not boxes:
        return ""
    numbers = np.array([float(match[0]) for match in matches])
    # The last digit may be rounded either way.
    slack = np.array([1.0 if match[1] is None else 10.0 ** -len(match[1]) for match in matches])
    windows = np.lib.stride_tricks.sliding_window_view(numbers, 4)
    slacks = np.lib.stride_tricks.sliding_window_view(slack, 4)
    fractions = as_box_array(boxes) / np.array([*size, *size])
    frames = [size, *((unit, unit) for unit in _UNITS)]
    if resized is not None:
        frames.append(resized)
    for frame in frames:
        # Whole numbers say nothing of fractions.
        is_fine = (slacks <= 0.02 * max(frame)).all(axis=1)
        for order in ORDERS:
            written_boxes = from_xyxy(fractions * np.array([*frame, *frame]), order)
            is_near = (np.abs(windows[:, None] - written_boxes) <= 1.001 * slacks[:, None]).all(axis=2)
            starts = np.flatnonzero(is_fine & is_near.any(axis=1))
            if len(starts):
                return ", ".join(match[0] for match in matches[starts[0] : starts[0] + 4])
    return ""


def told_nothing(prompt: str) -> str:
    """The first sentence of a prompt that says, without a condition, that there is nothing to find; empty without one.

    Example:
        >>> told_nothing("This image is normal. Find all boxes."), told_nothing("If there is no finding, say so.")
        ('This image is normal', '')
        >>> told_nothing("Report: The lungs are clear.")
        'The lungs are clear'
    """
    if not _DENIAL.search(prompt):
        return ""
    for sentence in re.split(r"[.;!?\n]+(?:\s|$)|```", prompt):
        # Without the name of a report's part.
        sentence = re.sub(r"^(?:report|findings?|impression)\s*:\s*", "", sentence.strip(), flags=re.IGNORECASE)
        if _DENIAL.search(sentence) and not _CONDITION.search(sentence) and states_nothing(f"{sentence}."):
            return sentence
    return ""
