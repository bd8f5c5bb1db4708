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
# name -> what is repeated
PATTERNS = {
    "open brackets": "[",
    "open braces": "{",
    "open parentheses": "(",
    "close brackets": "]",
    "close braces": "}",
    "empty lists": "[]",
    "empty objects": "{}",
    "open pairs": '[{"',
    "open keys": '{"bbox_2d":[',
    "open box": '{"bbox_2d": [1, 2, 3, ',
    "double quotes": '"',
    "single quotes": "'",
    "quotes in a list": "['",
    "spaced single quotes": "[' ' ",
    "backslashes": "\\",
    "escaped quotes": '["\\"',
    "digits": "9",
    "digits in a list": "[9",
    "digit runs": "[1" + "9" * 500 + ",",
    "fractions": "[0." + "3" * 500 + ",",
    "dots": "[1.",
    "exponents": "[1e9,",
    "signs": "[-+",
    "commas": ",",
    "commas in a list": "[1,",
    "colons": ":",
    "keys": '"bbox_2d":',
    "spaces": " ",
    "space after bracket": "[ ",
    "newlines": "\n",
    "tags": "<",
    "open answers": "<answer>",
    "answer pairs": "<answer></answer>",
    "open thinking": "<think>",
    "thinking pairs": "<think></think>",
    "half tags": "<answer",
    "label tags": "<|object_ref_start|>",
    "label pairs": "<|object_ref_start|>a<|object_ref_end|>",
    "box tags": "<|box_start|>",
    "open corners": "(1,2),(",
    "corners": "(1,2),",
    "corner pairs": "(1,2),(3,4) ",
    "points": "[1,2]",
    "threes": "[1,2,3],",
    "boxes": "[1,2,3,4],",
    "nines": "[1,2,3,4,5,6,7,8,9]",
    "words in brackets": "[a]",
    "words in parentheses": "(a, b)",
    "plain objects": '{"bbox_2d": [1, 2, 3, 4], "label": "mass"},',
    "quoted objects": "{'bbox_2d': [1, 2, 3, 4], 'label': 'mass'},",
    "placeholders": "[x1, y1, x2, y2]",
    "not a number": "[NaN, Infinity, 1, 2],",
    "fences": "```json\n",
    "negatives": "No findings. ",
    "negative starts": "no ",
    "subjects": "the chest radiograph ",
    "letters": "a",
    "full-width": "［１，２，３，４］",
    "NUL": "\0",
    "lone surrogates": "\ud800",
    "end tokens": "<|im_end|>",
    "label tags of Qwen-VL": "<ref>",
    "labels of Qwen-VL": "<ref>a</ref>",
    "boxes of Qwen-VL": "<box>",
    "bare boxes": "<box>1 2 3 4</box>",
    "empty boxes": "<box></box>",
    "predicates": "<pred>a</pred><box>[[1,2,3,4]]</box>",
    "coordinate tokens": "<loc_1>",
    "padded tokens": "<loc0001>",
    "tokens and blanks": "<loc_1> ",
    "labelled tokens": "a<loc_1><loc_2><loc_3><loc_4>",
    "long tokens": "<loc_" + "9" * 500 + ">",
    "open tokens": "<loc_1",
    "patches": "<patch_index_0033>",
    "bins": "<x1><y2><x3><y4>",
    "bare tokens": "<1>",
    "numbers in angle brackets": "<1,2,3,4>",
    "long tags": "<" + "a" * 70,
    "point tags": "<point>",
    "lines of numbers": "1,2,3,4\n",
    "named lines": "mass: 1 2 3 4\n",
    "attributes": 'data-bbox="1 2 3 4" ',
    "open attributes": "data-bbox=",
    "semicolons": "[1,2,3,4;",
    "Kimi's thinking": "◁think▷",
    "thinking in square brackets": "[THINK]",
    "half of such a mark": "THINK]",
    "Harmony's channels": "<|channel|>final<|message|>",
    "half of a channel": "<|channel|>final",
    "thinking with a prefix": "<seed:",
    "half objects": '{"bbox_2d": [1, 2, 3, 4]',
    "nested objects": '{"a":{"b":',
    "long list": "1,",
    "turns": "<|im_start|>assistant\n",
    "turns of tools": "<|im_start|>tool\n",
    "calls": "<tool_call></tool_call>",
    "open calls": "<tool_call>",
    "words between calls": "a<tool_call></tool_call>",
    "closed calls": "</tool_call>",
    "what tools say": "<tool_response></tool_response>",
    "half a call": "<tool_call",
    "calls in JSON": '{"name": "zoom", "arguments": {}}',
    "open calls in JSON": '{"name": "zoom", "arguments": {',
    "open calls in JSON and turns": '{"arguments": {"<|im_start|>assistant\n',
    "keys of a call": '{"name": "zoom", ',
    "instructions": "[INST]",
    "speakers": "USER: ASSISTANT: ",
    "roles": "assistant\n",
    "steps": "Action:\nAction Input:\nObservation:\n",
    "open steps": "Action:\n",
    "code of tools": "```tool_code\n",
    "flowers": "✿RESULT✿",
    "Mini-o3": '<grounding>{"source"',
    "half of it": "<grounding>{",
}
# what stands before the repetition: the place where a pattern meets a reader
OPENINGS = (
    "",
    "[",
    '[{"bbox_2d": [',
    '[{"label": "',
    "[{'label': '",
    "<answer>[",
    "<answer>",
    "(",
    "<|object_ref_start|>",
    "<ref>a</ref><box>",
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
    written = "".join(
        format_boxes(
            [[1, 2, 3, 4], [5, 6, 7, 8]],
            name,
            labels=["a", "b"],
            width=10,
            height=10,
            resized_width=10,
            resized_height=10,
        )
        for name in list_box_formats()
    )
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
    return {name: (opening + pattern * (length // len(pattern) + 1))[:length] for name, pattern in PATTERNS.items()}


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
