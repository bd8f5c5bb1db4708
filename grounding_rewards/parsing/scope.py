"""Where the answer stands in a completion: after the thinking, in the last answer tag, before the end token."""

from __future__ import annotations

import re
from typing import NamedTuple

# Each pattern begins with a character that is rare in prose, so that thinking is skipped at the speed of a search.
# Models drop the closing bracket of a tag now and then: "</think <answer>".
_TAG = re.compile(
    r"<(?:(?i:(?P<answer>answer)|(?P<answer_end>/answer)"
    r"|(?P<thinking>think(?:ing)?|thought|reasoning)|(?P<thinking_end>/(?:think(?:ing)?|thought|reasoning)))"
    r"(?![\w-])\s{0,8}>?"
    # MedGemma 1.5
    r"|unused9(?:(?P<gemma_thinking>4>(?:thought)?)|(?P<gemma_thinking_end>5>)))"
)
_END_OF_TEXT = re.compile(
    r"<(?:\|(?:im_end|endoftext|eot_id|end|end_of_text|user)\|>|end_of_turn>|/s>|eos>|pad>|｜end▁of▁sentence｜>)"
)
_START_OF_TEXT = re.compile(r"(?:\s{0,8}<(?:s>|/s>|bos>|pad>|\|begin_of_text\|>|｜begin▁of▁sentence｜>))*")


class Answer(NamedTuple):
    """The part of a completion that counts.

    `closed`: it stands between an opening and a closing answer tag.
    `cut_off`: the completion ends before its answer begins.
    `ended`: the model ended it by a token of its own, so nothing in it is cut off.
    `around`: what stands outside the answer and the thinking.
    `thought`: the completion has tags of thinking or of an answer.
    """

    text: str
    closed: bool = False
    cut_off: bool = False
    ended: bool = False
    around: str = ""
    thought: bool = False


def find_answer(completion: str, scope: str = "answer") -> Answer:
    """The part of a completion that counts.

    Args:
        completion: any text.
        scope: `answer`: the content of the last answer tag, of an unclosed one to the end; without answer tags what
            follows the thinking. `after_think`: what follows the thinking, answer tags or not. `all`: the whole
            text, for models that state their boxes while they think.

    Example:
        >>> find_answer("<think>[1, 2, 3, 4]?</think><answer>[5, 6, 7, 8]</answer>").text
        '[5, 6, 7, 8]'
        >>> find_answer("<think>[1, 2, 3, 4]</think>", "all").text
        '<think>[1, 2, 3, 4]</think>'
    """
    if "◁" in completion:
        # Kimi-VL
        completion = completion.replace("◁think▷", "<think>").replace("◁/think▷", "</think>")
    if "<" not in completion:
        return Answer(completion)
    start = _START_OF_TEXT.match(completion)
    begin = start.end() if start else 0
    end = _END_OF_TEXT.search(completion, begin)
    text = completion[begin : end.start()] if end else completion[begin:]
    ended = end is not None
    return Answer(text, ended=ended) if scope == "all" else _find_in(text, scope, ended)


def _find_in(text: str, scope: str, ended: bool) -> Answer:
    answers, answer_ends, thinking, thinking_end = [], [], [], 0
    for tag in _TAG.finditer(text):
        kind = tag.lastgroup
        if kind == "answer":
            answers.append(tag)
        elif kind == "answer_end":
            answer_ends.append(tag)
        elif kind in ("thinking", "gemma_thinking"):
            thinking.append(tag.start())
        else:
            thinking_end = tag.end()
    if not (answers or answer_ends or thinking or thinking_end):
        return Answer(text, ended=ended)
    before = text[: thinking[0]] if thinking and thinking[0] < thinking_end else ""
    end = len(text)
    if scope == "answer":
        if answers and (answers[-1].start() >= thinking_end or not text[thinking_end:].strip()):
            start = answers[-1].end()
            close = next((tag for tag in answer_ends if tag.start() >= start), None)
            content = text[start : close.start() if close else end]
            around = before + text[thinking_end : answers[-1].start()] + (text[close.end() :] if close else "")
            return Answer(content, close is not None, not close and not content.strip(), ended, around, thought=True)
        end = next((tag.start() for tag in answer_ends if tag.start() >= thinking_end), end)
    start = next((start for start in thinking if thinking_end <= start < end), end)
    return Answer(text[thinking_end:start], False, start < end, ended, before, thought=True)
