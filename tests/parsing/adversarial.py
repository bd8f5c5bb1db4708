"""Texts made to be slow or to break a parser: each pattern repeated to any length.

The tests and the benchmark use them; run this to see how long the slowest take:

    python -m tests.parsing.adversarial
"""

from __future__ import annotations

import heapq
import re
import time

from grounding_rewards.parsing import format_boxes, get_box_format, list_box_formats, read_boxes
from grounding_rewards.parsing.bracket_syntax import TAG_ROLES

#: one format for each way of reading
FORMATS = [
    *("answer-list", "qwen2-vl", "qwen3-vl", "radvlm", "gemini", "internvl", "paligemma", "florence-2", "kosmos-2"),
    *("maira-2", "locate-anything", "minicpm-v"),
]
# What is repeated: brackets and quotes, numbers, separators, marks of answers, of labels and boxes, words, tokens,
# thinking, conversations.
PATTERNS = (
    *("[", "{", "(", "]", "}", "[]", "{}", '[{"', '{"bbox_2d":[', '{"bbox_2d": [1, 2, 3, ', '"', "'", "['"),
    *("[' ' ", "\\", '["\\"', "9", "[9", "[1" + "9" * 500 + ",", "[0." + "3" * 500 + ",", "[1.", "[1e9,", "[-+"),
    *(",", "[1,", ":", '"bbox_2d":', " ", "[ ", "\n", "<", "<answer>", "<answer></answer>", "<think>"),
    *("<think></think>", "<answer", "<|object_ref_start|>", "<|object_ref_start|>a<|object_ref_end|>"),
    *("<|box_start|>", "(1,2),(", "(1,2),", "(1,2),(3,4) ", "[1,2]", "[1,2,3],", "[1,2,3,4],"),
    *("[1,2,3,4,5,6,7,8,9]", "[a]", "(a, b)", '{"bbox_2d": [1, 2, 3, 4], "label": "mass"},'),
    *("{'bbox_2d': [1, 2, 3, 4], 'label': 'mass'},", "[x1, y1, x2, y2]", "[NaN, Infinity, 1, 2],", "```json\n"),
    *("No findings. ", "no ", "the chest radiograph ", "a", "［１，２，３，４］", "\0", "\ud800", "<|im_end|>"),
    *("<ref>", "<ref>a</ref>", "<box>", "<box>1 2 3 4</box>", "<box></box>", "<pred>a</pred><box>[[1,2,3,4]]</box>"),
    *("<loc_1>", "<loc0001>", "<loc_1> ", "a<loc_1><loc_2><loc_3><loc_4>", "<loc_" + "9" * 500 + ">", "<loc_1"),
    *("<patch_index_0033>", "<x1><y2><x3><y4>", "<1>", "<1,2,3,4>", "<" + "a" * 70, "<point>", "1,2,3,4\n"),
    *("mass: 1 2 3 4\n", 'data-bbox="1 2 3 4" ', "data-bbox=", "[1,2,3,4;", "◁think▷", "[THINK]", "THINK]"),
    *("<|channel|>final<|message|>", "<|channel|>final", "<seed:", '{"bbox_2d": [1, 2, 3, 4]', '{"a":{"b":', "1,"),
    *("<|im_start|>assistant\n", "<|im_start|>tool\n", "<tool_call></tool_call>", "<tool_call>"),
    *("a<tool_call></tool_call>", "</tool_call>", "<tool_response></tool_response>", "<tool_call"),
    *('{"name": "zoom", "arguments": {}}', '{"name": "zoom", "arguments": {'),
    *('{"arguments": {"<|im_start|>assistant\n', '{"name": "zoom", ', "[INST]", "USER: ASSISTANT: ", "assistant\n"),
    *("Action:\nAction Input:\nObservation:\n", "Action:\n", "```tool_code\n", "✿RESULT✿"),
    *('<grounding>{"source"', "<grounding>{"),
    *("~~", "~~a", "/*", "/**", "// [", "# [", "[// ", "<del>", "x0=1, ", '["1 2", ', "ribs (1,2,3,4) ", '{"l":1,'),
)
# what stands before the repetition: the place where a pattern meets a reader
OPENINGS = (
    *("", "[", '[{"bbox_2d": [', '[{"label": "', "[{'label': '", "<answer>[", "<answer>", "("),
    *("<|object_ref_start|>", "<ref>a</ref><box>"),
)


#: Marks that no format writes itself: of answers, thinking, conversations, and of formats in other spellings.
OTHER_MARKS = (
    *("<answer>", "</answer>", "<think>", "</think>", "<think></think>", "<answer></answer>", "<|channel>thought"),
    *("<|channel|>analysis", "<|channel|>final<|message|>", "<channel|>", "<|START_THINKING|>", "<|begin_of_thought|>"),
    *("[THINK]", "[/THINK]", "◁think▷", "[unused16]", "<unused94>", "<seed:think>", "<analysis>", "<reasoning>"),
    *("<s>", "</s>", "<eos>", "<pad>", "<|im_start|>", "<|end|>", "<|begin_of_text|>", "｜end▁of▁sentence｜"),
    *("<|im_start|>assistant\n", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "[INST]"),
    *("[/INST]", "USER:", "ASSISTANT:", "```tool_code", "Action Input:", '{"name": "zoom", "arguments": {', "✿RETURN✿"),
    *("boxed{", "\\text{", "x1=1, y1=2, x2=3, ", "x_min: 1 ", "left=", "bbox", "coordinates", "```", "data-bbox="),
)
_MARK = re.compile(r"<[^<>]*>?|[\[({][^\[({<]*")


def marks() -> list[str]:
    """Every mark of every format, whole and cut: what a generation that is stuck repeats."""
    sizes = dict.fromkeys(("width", "height", "resized_width", "resized_height"), 10)
    boxes = [[1, 2, 3, 4], [5, 6, 7, 8]]
    written = "".join(format_boxes(boxes, name, labels=["a", "b"], **sizes) for name in list_box_formats())
    whole = {*_MARK.findall(written), *TAG_ROLES, *OTHER_MARKS}
    return sorted({mark[:length] for mark in whole for length in (1, 2, 3, 4, len(mark) - 1, len(mark))} - {""})


def slowest_marks(length: int, count: int = 12) -> list[tuple[float, str, str]]:
    """The marks that take `read_boxes` longest when repeated: seconds of processor time, slowest format, mark."""
    repeated = {mark: (mark * (length // len(mark) + 1))[:length] for mark in marks()}
    taken = {mark: max(_seconds(text, name) for name in ("qwen3-vl", "paligemma")) for mark, text in repeated.items()}
    # One measurement each finds the candidates, the best of three in every format tells their time from noise.
    return sorted(
        (
            max((min(_seconds(repeated[mark], name) for _ in range(3)), name, mark) for name in list_box_formats())
            for mark in heapq.nlargest(count, taken, key=taken.__getitem__)
        ),
        reverse=True,
    )


def texts(opening: str, length: int) -> dict[str, str]:
    """The opening followed by each pattern, up to this length."""
    return {pattern: (opening + pattern * (length // len(pattern) + 1))[:length] for pattern in PATTERNS}


def slowest(length: int, count: int = 12) -> list[tuple[float, str, str, str]]:
    """The cases that take `read_boxes` longest: seconds of processor time, box format, opening, pattern."""
    cases = [
        (_seconds(text, name), name, opening, pattern)
        for opening in OPENINGS
        for pattern, text in texts(opening, length).items()
        for name in FORMATS
    ]
    # One measurement each finds the candidates, the best of five more tells their time from noise.
    return sorted(
        (
            (min(_seconds(texts(opening, length)[pattern], name) for _ in range(5)), name, opening, pattern)
            for _, name, opening, pattern in heapq.nlargest(count, cases)
        ),
        reverse=True,
    )


def _seconds(text: str, format_name: str) -> float:
    fmt = get_box_format(format_name)
    start = time.process_time()
    read_boxes(text, fmt)
    return time.process_time() - start


if __name__ == "__main__":
    for length in (1_000_000, 2_000_000):
        print(f"{length} characters, the slowest in milliseconds:")
        for seconds, *case in (*slowest_marks(length), *slowest(length)):
            print(f"  {1000 * seconds:6.1f}  {' '.join(map(repr, case))}")
