"""Text to boxes and back: the functions that everything else in the package calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.boxes import as_box_array, from_pixel, to_pixel
from grounding_rewards.parsing.box_format import BoxFormat
from grounding_rewards.parsing.formats import get_box_format
from grounding_rewards.parsing.prose import echoes_prompt, states_nothing
from grounding_rewards.parsing.results import MAX_CHARACTERS, Findings, ParsedBoxes, RawBoxes
from grounding_rewards.parsing.scope import Answer, find_answer


def parse_boxes(
    text: str,
    box_format: str,
    *,
    width: float | None = None,
    height: float | None = None,
    resized_width: float | None = None,
    resized_height: float | None = None,
) -> ParsedBoxes:
    """Read the boxes that a completion states, in pixels of the original image.

    Args:
        text: the completion, any string at all.
        box_format: how the model writes boxes, one of `list_box_formats()`.
        width: width of the original image in pixels; needed unless the format writes original pixels.
        height: height of the original image in pixels, likewise.
        resized_width: width of the image that the processor fed to the model, for formats whose numbers are pixels
            of that image. Without it and `resized_height` the original size is taken, with a warning.
        resized_height: height of that image, likewise.

    Returns:
        The boxes as written, neither repaired nor clipped, with labels, confidences, the status of the text and
        the reasons why anything was refused.

    Raises:
        ValueError: the format is unknown, a size that it needs is missing, or `text` is no string. A string never
            raises.

    Example:
        >>> parsed = parse_boxes(
        ...     '[{"bbox_2d": [250, 100, 500, 300], "label": "mass"}, {"bbox_2d": [7, 8, 9]}]',
        ...     box_format="qwen3-vl", width=2000, height=1000,
        ... )
        >>> parsed.boxes
        array([[ 500.,  100., 1000.,  300.]])
        >>> parsed.labels, parsed.status, parsed.rejected
        (('mass',), 'boxes', {'wrong_count': 1})
        >>> parse_boxes("No Objects", box_format="qwen3-vl", width=2000, height=1000).status
        'empty'
    """
    fmt = get_box_format(box_format)
    if not isinstance(text, str):
        raise ValueError(f"Expected a string for `text`, got {text!r:.200}. Of a message list give the last content.")
    raw = read_boxes(text, fmt)
    boxes = to_pixel(
        np.array(raw.coords, dtype=np.float64).reshape(-1, 4),
        fmt.space,
        width=width,
        height=height,
        resized_width=resized_width,
        resized_height=resized_height,
    )
    return ParsedBoxes(boxes, tuple(raw.labels), tuple(raw.scores), raw.status, raw.rejected)


def format_boxes(
    boxes: ArrayLike,
    box_format: str,
    *,
    labels: Sequence[str | None] | None = None,
    width: float | None = None,
    height: float | None = None,
    resized_width: float | None = None,
    resized_height: float | None = None,
) -> str:
    """Write boxes as a model of this format would, coordinates rounded as it rounds them.

    `parse_boxes` reads the same boxes back within half a unit of the last digit, and no boxes as status `empty`.

    Args:
        boxes: (n, 4) xyxy in pixels of the original image.
        box_format: one of `list_box_formats()`.
        labels: one for each box, None for a box without; a format without a place for labels leaves them out.
        width: as for `parse_boxes`, like the other sizes.
        height: see `width`.
        resized_width: see `width`.
        resized_height: see `width`.

    Raises:
        ValueError: the format is unknown, a size is missing, a box is not finite, labels and boxes differ in
            number, or a label is no string.

    Example:
        >>> format_boxes([[500, 100, 1000, 300]], "answer-list", width=2000, height=1000)
        '<answer>[0.250, 0.100, 0.500, 0.300]</answer>'
        >>> format_boxes([], "answer-list", width=2000, height=1000)
        '<answer></answer>'
    """
    fmt = get_box_format(box_format)
    array = as_box_array(boxes)
    if not np.isfinite(array).all():
        raise ValueError(
            f"Expected finite numbers for `boxes`, got {array.tolist()!s:.200}. Remove boxes with NaN or infinity."
        )
    if labels is not None and (isinstance(labels, str) or len(labels) != len(array)):
        raise ValueError(
            f"Expected one label for each of the {len(array)} boxes for `labels`, got "
            f"{repr(labels) if isinstance(labels, str) else len(labels)}. Give None for a box without a label."
        )
    if labels is not None and not all(label is None or isinstance(label, str) for label in labels):
        raise ValueError(
            f"Expected words or None for `labels`, got {list(labels)!r:.200}. Give the finding's name, not its number."
        )
    in_space = from_pixel(
        array,
        fmt.space,
        width=width,
        height=height,
        resized_width=resized_width,
        resized_height=resized_height,
    )
    return fmt.syntax.write(in_space.tolist(), [None] * len(array) if labels is None else labels, fmt)


def read_boxes(text: str, fmt: BoxFormat) -> RawBoxes:
    """What `parse_boxes` does before it converts coordinates; for scoring many completions at once.

    Never raises for a string, takes time linear in its length, and gives finite numbers only.

    >>> read_boxes("<answer>[0.1,0.2,0.3,0.4]</answer>", get_box_format("answer-list")).coords
    [0.1, 0.2, 0.3, 0.4]
    """
    quick = fmt.syntax.quick
    raw = quick(text, fmt) if len(text) <= MAX_CHARACTERS else None
    if raw is not None:
        return raw
    answer = find_answer(text)
    content = answer.text.strip()
    if content != text and not answer.cut_off and len(content) <= MAX_CHARACTERS:
        raw = quick(content, fmt)
    return raw or _scan_answer(answer, fmt)


def _scan_answer(answer: Answer, fmt: BoxFormat) -> RawBoxes:
    found = Findings()
    text = answer.text[:MAX_CHARACTERS]
    fmt.syntax.scan(text, fmt, found)
    # A syntax left open in front of a closing tag, or where reading stopped, is broken, not cut off.
    cut_off = answer.cut_off or (found.cut_off and not answer.closed and len(text) == len(answer.text))
    if len(text) < len(answer.text):
        found.reject("too_long")
    if cut_off:
        status = "truncated"
    elif found.labels:
        status = "boxes"
    else:
        status = _status_without_boxes(text, answer.closed, found)
    return RawBoxes(found.coords, found.labels, found.scores, status, found.rejected)


def _status_without_boxes(text: str, closed: bool, found: Findings) -> str:
    """`empty` where nothing is stated in earnest, else `unparseable` with at least one reason."""
    if found.rejected:
        return "unparseable"
    if not text.strip():
        if closed:
            return "empty"
        found.reject("no_answer")
    elif echoes_prompt(text):
        found.reject("echoed_prompt")
    elif found.stated_empty or states_nothing(text):
        return "empty"
    else:
        found.reject("nothing_stated")
    return "unparseable"
