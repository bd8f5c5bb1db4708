"""Where in a completion the answer stands: behind the thinking, in the last answer tag, before the end token."""

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
_KIMI_TAG = re.compile(r"◁(/?)think▷")
_END_OF_TEXT = re.compile(
    r"<(?:\|(?:im_end|endoftext|eot_id|end|end_of_text|user)\|>|end_of_turn>|/s>|eos>|pad>|｜end▁of▁sentence｜>)"
)
_START_OF_TEXT = re.compile(r"(?:\s{0,8}<(?:s>|/s>|bos>|pad>|\|begin_of_text\|>|｜begin▁of▁sentence｜>))*")


class Answer(NamedTuple):
    """The part of a completion that counts.

    `closed`: it stands between an opening and a closing answer tag.
    `ended`: the model ended it by a token of its own, so nothing in it is cut off.
    `cut_off`: the completion ends before its answer begins.
    """

    text: str
    closed: bool = False
    cut_off: bool = False
    ended: bool = False


def find_answer(completion: str, scope: str = "answer") -> Answer:
    """The part of a completion that counts.

    Args:
        completion: any text.
        scope: `answer`: the content of the last answer tag, of an unclosed one to the end; without answer tags what
            follows the thinking. `after_think`: what follows the thinking, answer tags or not. `all`: the whole
            text, for models that state their boxes while they think.

    >>> find_answer("<think>[1, 2, 3, 4]?</think><answer>[5, 6, 7, 8]</answer>").text
    '[5, 6, 7, 8]'
    >>> find_answer("<think>[1, 2, 3, 4]</think>", "all").text
    '<think>[1, 2, 3, 4]</think>'
    """
    if "◁" in completion:
        completion = _KIMI_TAG.sub(r"<\1think>", completion)
    if "<" not in completion:
        return Answer(completion)
    start = _START_OF_TEXT.match(completion)
    begin = start.end() if start else 0
    end = _END_OF_TEXT.search(completion, begin)
    text = completion[begin : end.start()] if end else completion[begin:]
    ended = end is not None
    return Answer(text, ended=ended) if scope == "all" else _find_in(text, scope, ended)


def _find_in(text: str, scope: str, ended: bool) -> Answer:
    answer_open, thinking_close = -1, 0
    answer_closes, thinking_opens = [], []
    for tag in _TAG.finditer(text):
        kind = tag.lastgroup
        if kind == "answer":
            answer_open = tag.end()
        elif kind == "answer_end":
            answer_closes.append(tag.start())
        elif kind in ("thinking", "gemma_thinking"):
            thinking_opens.append(tag.start())
        else:
            thinking_close = tag.end()
    end = len(text)
    if scope == "answer":
        if answer_open > thinking_close or (answer_open >= 0 and not text[thinking_close:].strip()):
            close = next((start for start in answer_closes if start >= answer_open), None)
            content = text[answer_open:close]
            return Answer(content, close is not None, close is None and not content.strip(), ended)
        end = next((start for start in answer_closes if start >= thinking_close), end)
    start = next((start for start in thinking_opens if thinking_close <= start < end), end)
    return Answer(text[thinking_close:start], cut_off=start < end, ended=ended)
