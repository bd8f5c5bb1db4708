"""Text to boxes and back."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.boxes import as_box_array, frame_to_pixel, pixel_to_frame, space_frame
from grounding_rewards.parsing.answer_span import AnswerSpan, find_answer
from grounding_rewards.parsing.bracket_syntax import scan_attributes, scan_brackets, scan_lines
from grounding_rewards.parsing.formats import BoxFormat, get_box_format
from grounding_rewards.parsing.json_syntax import OPENER, read_plain_json, scan_json
from grounding_rewards.parsing.no_finding import asserts_finding, echoes_prompt, gives_instructions, states_nothing
from grounding_rewards.parsing.numbers import named_boxes
from grounding_rewards.parsing.results import MAX_CHARACTERS, BoxCollector, ParsedBoxes, RawBoxes
from grounding_rewards.parsing.write import write_answer


def parse_boxes(
    text: str,
    box_format: str | Mapping[str, Any] | BoxFormat,
    *,
    width: float | None = None,
    height: float | None = None,
    resized_width: float | None = None,
    resized_height: float | None = None,
    prompt_opens_thinking: bool = False,
) -> ParsedBoxes:
    """Read the boxes that a completion states, in pixels of the original image.

    Args:
        text: the completion, any string at all.
        box_format: how the model writes boxes: one of `list_box_formats()`, or what else `get_box_format` takes.
        width: width of the original image in pixels; needed unless the format writes original pixels.
        height: height of the original image in pixels, likewise.
        resized_width: width of the image that the processor fed to the model, for formats whose numbers are pixels
            of that image, which then need it and `resized_height`.
        resized_height: height of that image, likewise.
        prompt_opens_thinking: the prompt ends in an open mark of thinking, such as `<think>`, so that the text begins
            inside it: without a closing mark it has no answer, and is `truncated`.

    Returns:
        The boxes as written, neither repaired nor clipped, with labels, confidences, the status of the text and
        the reasons for what was rejected.

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
    raw = read_boxes(text, fmt, prompt_opens_thinking=prompt_opens_thinking)
    frame = space_frame(fmt.space, width, height, resized_width, resized_height)
    boxes = frame_to_pixel(np.array(raw.coords, dtype=np.float64).reshape(-1, 4), frame)
    return ParsedBoxes(boxes, tuple(raw.labels), tuple(raw.scores), raw.status, raw.rejected, raw.broken)


def format_boxes(
    boxes: ArrayLike,
    box_format: str | Mapping[str, Any] | BoxFormat,
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
        box_format: as for `parse_boxes`.
        labels: one for each box, None for a box without; a format without labels leaves them out. In a format that
            writes a label once for several boxes, a box without one is read back with the label before it.
        width: as for `parse_boxes`, like the other sizes.
        height: see `width`.
        resized_width: see `width`.
        resized_height: see `width`.

    Raises:
        ValueError: the format is unknown, a size is missing, a box is not finite, labels and boxes differ in
            number, a label is no string, or one holds a mark such as `<think>` in a format that cannot escape it.

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
    in_space = pixel_to_frame(array, space_frame(fmt.space, width, height, resized_width, resized_height))
    return write_answer(in_space.tolist(), [None] * len(array) if labels is None else labels, fmt)


def read_boxes(text: str, fmt: BoxFormat, *, prompt_opens_thinking: bool = False) -> RawBoxes:
    """Read the boxes that a completion states, in the coordinate space of its format: `parse_boxes` then converts them.

    Never raises for a string, takes time linear in its length, and gives finite numbers only.

    Example:
        >>> read_boxes("<answer>[0.1,0.2,0.3,0.4]</answer>", get_box_format("answer-list")).coords
        [0.1, 0.2, 0.3, 0.4]
    """
    # Plain JSON, which most models write most of the time, takes the decoder a tenth of what the scanner needs.
    may_be_plain = fmt.syntax.keyed and fmt.scope == "answer"
    if may_be_plain and not prompt_opens_thinking and len(text) <= MAX_CHARACTERS:
        raw = read_plain_json(text, fmt)
        if raw is not None:
            return raw
    answer = find_answer(text, fmt.scope, prompt_opens_thinking=prompt_opens_thinking)
    if may_be_plain and not answer.cut_off:
        # The answer alone may be plain JSON, as behind thinking.
        stripped = json_text = answer.text.strip()
        bracket = OPENER.search(stripped)
        # Words before the first bracket say nothing, unless a tag among them changes what follows.
        if bracket is not None and "<" not in stripped[: bracket.start()]:
            json_text = stripped[bracket.start() :]
        # The whole text was tried above.
        if json_text != text and len(stripped) <= MAX_CHARACTERS:
            raw = read_plain_json(json_text, fmt)
            # A negative with words around it may be a quotation, which only the scanner can tell.
            if raw is not None and (raw.coords or (json_text == stripped and not answer.around)):
                return raw
    return _scan_answer(answer, fmt)


def _scan_answer(answer: AnswerSpan, fmt: BoxFormat) -> RawBoxes:
    """Read the boxes of an answer in any spelling, and decide which of `STATUSES` the text has."""
    full_text = answer.text.strip()
    text = full_text[:MAX_CHARACTERS]
    collector = BoxCollector()
    outside_json = _scan(text, fmt, collector)
    if collector.labels and "placeholder" in collector.rejected:
        # The form that the prompt gave, [x1, y1, x2, y2], is no failed box where an answer stands beside it: the
        # text is read again without it.
        without_form = _FORM.sub(" ", text)
        if without_form != text:
            collector = BoxCollector()
            outside_json = _scan(without_form, fmt, collector)
    # Syntax that is open where a mark closes the answer, or where too long a text is read no further, is broken rather
    # than cut off.
    is_open_at_end = collector.cut_off and len(text) == len(full_text) and not (answer.closed or answer.ended)
    cut_off = answer.cut_off or is_open_at_end
    if len(text) < len(full_text):
        collector.reject("too_long")
    # Boxes of zeros alone state that there is nothing, unless something beside them was rejected. Where the text is cut
    # off they are no boxes either, whatever would have followed.
    has_zeros_alone = bool(collector.labels) and not any(collector.coords)
    if "zero_box" in fmt.negatives and has_zeros_alone and (cut_off or not collector.rejected):
        collector = BoxCollector(stated_empty=True)
    if cut_off:
        status = "truncated"
    elif collector.labels:
        status = "boxes"
    else:
        status = _status_without_boxes(text, outside_json, answer, fmt, collector)
    broken = collector.broken_beside_boxes(cut_off=cut_off)
    return RawBoxes(collector.coords, collector.labels, collector.scores, status, collector.rejected, broken)


#: Commands of LaTeX whose braces are no object of JSON; the brace that closes them is a stray one, which nobody reads.
_LATEX = re.compile(r"(?:\\{0,2}f?boxed|\\{1,2}(?:text|math)(?:bf|tt|rm|it)?)\s{0,2}\{")


# "Format: {"bbox_2d": [x1, y1, x2, y2]}", up to its brackets; and such an object alone, in no list.
_REST = r"[^\[\](){}\n]{0,80}"
_OBJECT = rf"\{{{_REST}\[\s?(?:x|left){_REST}\]{_REST}\}}"
_FORM = re.compile(
    rf"\b(?:format|form|example|template|schema)\b[^\[\](){{}}\n]{{0,40}}[\[({{][^\n]{{0,80}}?\bx_?(?:1|min)\b{_REST}"
    rf"[\])}}]{{0,3}}(?:{_REST}[\])}}]{{1,3}})?|(?<![\[,{{\s])\s{{0,8}}(?:\[{_OBJECT}\]|{_OBJECT})",
    re.IGNORECASE,
)


def _scan(text: str, fmt: BoxFormat, collector: BoxCollector) -> str:
    """Add all boxes in the text to the collector, and return the text outside JSON.

    Boxes stand in JSON, in HTML, in brackets, tags and tokens, under names of corners, or on lines of their own; the
    next syntax is tried only where the one before it met nothing.
    """
    if "boxed" in text or "\\" in text:
        text = _LATEX.sub("", text)
    outside_json = scan_json(text, fmt, collector) if "{" in text or "｛" in text else text
    if not collector.met_nothing:
        return outside_json
    scan_attributes(outside_json, fmt, collector)
    # Beside boxes in attributes of HTML there may be others in brackets; beside `<boxes>` there are none.
    if collector.met_nothing or "<boxes" not in outside_json:
        scan_brackets(outside_json, fmt, collector)
    if collector.met_nothing and not collector.cut_off:
        for box_or_reason in named_boxes(outside_json):
            collector.take(box_or_reason)
            # Only the last one can be unclosed.
            collector.cut_off = box_or_reason == "unclosed"
    if collector.met_nothing and not collector.cut_off:
        scan_lines(outside_json, fmt, collector)
    return outside_json


def _status_without_boxes(
    text: str, outside_json: str, answer: AnswerSpan, fmt: BoxFormat, collector: BoxCollector
) -> str:
    """`empty` where the model itself says that there is nothing, else `unparseable`, for a reason in the collector.

    What shows that a statement is not the model's own, or not true, is looked for before the statement itself.
    """
    if collector.rejected:
        return "unparseable"
    if answer.only_calls_tool:
        collector.reject("only_tools")
    elif echoes_prompt(outside_json) or gives_instructions(answer.around):
        collector.reject("echoed_prompt")
    elif not text:
        # Nothing between answer tags is a statement; nothing at all is one in formats that have no other.
        if answer.closed or ("blank" in fmt.negatives and not answer.thought):
            return "empty"
        collector.reject("no_answer")
    elif collector.asserted or (collector.stated_empty and asserts_finding(outside_json)):
        collector.reject("finding_without_box")
    elif collector.stated_empty or states_nothing(text, fmt.no_finding):
        return "empty"
    else:
        collector.reject("nothing_stated")
    return "unparseable"
