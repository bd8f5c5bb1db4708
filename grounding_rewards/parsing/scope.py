"""Where in a completion the answer stands: behind the thinking, in the last answer tag, before the end token."""

from __future__ import annotations

import re
from typing import NamedTuple

_OPEN_THINKING = ("<think>", "<thinking>")
_CLOSE_THINKING = ("</think>", "</thinking>")
_END_OF_TEXT = re.compile(r"<\|im_end\|>|<\|endoftext\|>|<\|eot_id\|>|<end_of_turn>|</s>|<eos>|<pad>")


class Answer(NamedTuple):
    """The part of a completion that counts.

    `closed`: it stands between an opening and a closing answer tag.
    `cut_off`: the completion ends before its answer begins.
    """

    text: str
    closed: bool = False
    cut_off: bool = False


def find_answer(completion: str) -> Answer:
    """The answer of a completion.

    The last answer tag wins and an unclosed one reads to the end. Without answer tags the answer is what follows
    the thinking. Thinking itself never counts: it holds drafts.

    >>> find_answer("<think>[1, 2, 3, 4]?</think><answer>[5, 6, 7, 8]</answer>").text
    '[5, 6, 7, 8]'
    """
    if "<" not in completion:
        return Answer(completion)
    end = _END_OF_TEXT.search(completion)
    text = completion[: end.start()] if end else completion
    answer_at = text.rfind("<answer>")
    thinking_end = _last_end(text, _CLOSE_THINKING)
    if answer_at >= 0 and (answer_at >= thinking_end or not text[thinking_end:].strip()):
        content, closing, _ = text[answer_at + len("<answer>") :].partition("</answer>")
        closed = closing != ""
        return Answer(content, closed=closed, cut_off=not closed and not content.strip())
    after_thinking = text[max(thinking_end, 0) :].partition("</answer>")[0]
    answer = after_thinking
    for tag in _OPEN_THINKING:
        answer = answer.partition(tag)[0]
    return Answer(answer, cut_off=len(answer) < len(after_thinking))


def _last_end(text: str, tags: tuple[str, ...]) -> int:
    """The index behind the last of the tags, -1 without one."""
    end = -1
    for tag in tags:
        start = text.rfind(tag)
        if start >= 0:
            end = max(end, start + len(tag))
    return end
