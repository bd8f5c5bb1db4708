"""Where the answer stands in a completion: in the last turn, after the thinking, in the last answer tag.

Also whether many completions begin inside a thinking that nobody declared.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from grounding_rewards.parsing.conversation import has_turn_words, last_turn, moves_turn
from grounding_rewards.parsing.results import MAX_CHARACTERS


def _any_case(pattern: str) -> str:
    """The pattern with each letter in both cases: unlike with `(?i:…)`, the search passes over others at once."""
    return "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in pattern)


# Each pattern begins with a character that is rare in prose, so that thinking is skipped at the speed of a search.
# Models drop the closing bracket of a tag now and then: "</think <answer>".
_ANSWER = _any_case("answer")
# `<analysis>` is Keye-VL's; with a prefix Seed-OSS, MiniMax and LongCat.
_THINKING = _any_case("(?:th(?:ink(?:ing)?|ought)|reasoning|analysis|(?:seed:|mm:|longcat_)think)")
_TAG = re.compile(
    # Told by its first three letters, so that a text full of `<` costs little.
    r"<(?=/?[acmlrstuALMRST]|\|[SEbceit])"
    r"(?=/?(?:[aA][nN][aAsS]|[lL][oO][nN]|[mM][mM]:|[rR][eE][aA]|[sS][eE][eE]|[tT][hH][iIoO])"
    r"|cha|unu|\|(?:STA|END|beg|cha|end|inn|thi))(?:"
    rf"(?:(?P<answer>{_ANSWER})|(?P<thinking>{_THINKING})"
    rf"|/(?:(?P<answer_end>{_ANSWER})|(?P<thinking_end>{_THINKING})))(?![\w-])\s{{0,8}}>?"
    r"|\|(?:"
    # Cohere, Sky-T1, Apertus, Solar Open 2
    r"(?P<token>(?:START_THINKING|begin_of_thought|inner_prefix|think:start)\|>)"
    r"|(?P<token_end>(?:END_THINKING|end_of_thought|inner_suffix|think:end)\|>)"
    # Gemma 4; Harmony, in which an answer is what the channel `final` holds
    r"|(?P<gemma>channel>(?:thought)?)"
    r"|(?P<harmony_end>channel\|>final[^<]{0,64}(?:<\|constrain\|>[^<]{0,64})?<\|message\|>)"
    r"|(?P<harmony>channel\|>\w{0,16}))"
    r"|(?P<gemma_end>channel\|>)"
    # MedGemma 1.5
    r"|unused9(?:(?P<medgemma>4>(?:thought)?)|(?P<medgemma_end>5>)))"
)
# Magistral, Kimi-VL, openPangu: searched for only where the text has them, as it may have many other brackets.
_TAG_OR_RARE = re.compile(
    rf"{_TAG.pattern}|(?P<rare>\[THINK\]|◁think▷|\[unused16\])|(?P<rare_end>\[/THINK\]|◁/think▷|\[unused17\])"
)
#: The groups that open thinking.
_OPENING = frozenset(["thinking", "token", "gemma", "harmony", "medgemma", "rare"])
_ENDS_OPEN = re.compile(r"\s{0,8}(?:<\|message\|>\s{0,8})?")
# A part of a completion in which models try things out; unlike a mark of thinking it may stand behind the answer.
_DRAFT = re.compile(
    # Told by its first letter, so that a text full of `<` costs little.
    r"<(?=/?[srpdcvln])(/?)(scratchpad|reflect(?:ion)?|rethink|plan(?:ning)?|draft|describe|description|critique|check"
    r"|verify|verification|look|caption|summary|notes?)(?![\w-])[^<>]{0,64}>",
    re.IGNORECASE,
)
# Words that announce the answer: "Final answer:", "**Final Answer:**", "## Final Response"; the last one counts. And
# the first box of LaTeX, as there may be one around each of several.
_ANNOUNCED = re.compile(
    r"(?:(?:#{1,6}\s{0,4}\**|\*\*)\s?final\s(?:answer|response)\b|\bfinal\s(?:answer|response)(?:\sis\b|\s?\**\s?:))[:*\s]{0,8}",
    re.IGNORECASE,
)
_FINAL_TAG = re.compile(r"</?final[_-](?:answer|response)\s{0,8}>", re.IGNORECASE)
_BOXED = re.compile(r"\\{1,2}f?boxed\s{0,2}\{")
# The fence around a call in JSON is no answer.
_BLANK = re.compile(r"\s*(?:```\w*\s*)?(?:```\s*)?")
# Harmony without its special tokens: "analysisWe see …assistantfinalNo finding."
_BARE_CHANNEL, _BARE_FINAL = re.compile(r"analysis(?=[A-Z])"), "assistantfinal"


class Answer(NamedTuple):
    """The part of a completion that counts.

    `closed`: it stands between an opening and a closing answer tag.
    `cut_off`: the completion ends before its answer begins.
    `ended`: the model ended it by a token of its own, so nothing in it is cut off.
    `around`: what stands outside the answer and the thinking.
    `thought`: the completion has tags of thinking or of an answer, or marks of a turn.
    `asks`: the last turn asks a tool and says nothing else.
    """

    text: str
    closed: bool = False
    cut_off: bool = False
    ended: bool = False
    around: str = ""
    thought: bool = False
    asks: bool = False


#: Marks of answers and of thinking that one completion may have.
MAX_MARKS = 10_000


class Marks(NamedTuple):
    """Positions of the marks of answers and of thinking that decide which part of a text counts, None where none is.

    `answer`: start and end of the last mark that opens an answer; `answer_close`: of the first that closes it.
    `answer_end`: start of the first mark that closes an answer behind the thinking.
    `first_thinking`: start of the first mark that opens thinking; `open_thinking`: of the first behind `thinking_end`.
    `thinking_end`: end of the last mark that closes thinking, else 0.
    `unopened`: the first mark of thinking closes it.
    """

    answer: tuple[int, int] | None
    answer_close: tuple[int, int] | None
    answer_end: int | None
    first_thinking: int | None
    open_thinking: int | None
    thinking_end: int
    unopened: bool


#: Of a longer text only so much of its end is searched for marks, beside the first `MAX_CHARACTERS`.
_MAX_END = 2**15


def _without_middle(text: str) -> str:
    """An endless text without its middle: the marks at its beginning and at its end decide what counts.

    A generation that loops costs time in proportion to its length otherwise, and patterns of marks are slow. Thinking
    that is open at the beginning stays open unless the end closes it, and an answer at the end is read.
    """
    kept = MAX_CHARACTERS + _MAX_END
    return text if len(text) <= kept else f"{text[:MAX_CHARACTERS]}\n{text[-_MAX_END:]}"


def find_answer(completion: str, scope: str = "answer", *, prompt_opens_thinking: bool = False) -> Answer:
    """The part of a completion that counts.

    Args:
        completion: any text.
        scope: `answer`: the content of the last answer tag, of an unclosed one to the end; without answer tags what
            follows the thinking. `after_think`: what follows the thinking, answer tags or not. `all`: the whole
            text, for models that state their boxes while they think.
        prompt_opens_thinking: the prompt ends in an open mark of thinking: a completion that never closes it has no
            answer.

    Example:
        >>> find_answer("<think>[1, 2, 3, 4]?</think><answer>[5, 6, 7, 8]</answer>").text
        '[5, 6, 7, 8]'
        >>> find_answer("<think>[1, 2, 3, 4]</think>", "all").text
        '<think>[1, 2, 3, 4]</think>'
        >>> find_answer("Perhaps [1, 2, 3, 4]", prompt_opens_thinking=True)[:3]
        ('', False, True)
        >>> find_answer("<tool_call>[1, 2, 3, 4]</tool_call>[5, 6, 7, 8]").text
        '[5, 6, 7, 8]'
    """
    completion = _without_middle(completion)
    if bare := _BARE_CHANNEL.match(completion):
        thinking, final, completion = completion.partition(_BARE_FINAL)
        if not final and scope != "all":
            return Answer("", cut_off=True, thought=True)
        completion = completion if final else thinking
    turn = last_turn(completion)
    if turn.loops:
        return Answer("", thought=True)
    opened = prompt_opens_thinking and not bare and not turn.begun
    said = turn.text if scope == "all" else _without_drafts(turn.text)
    found = _find_said(said, scope, _inside(turn.drafts, opened), turn.ended)
    if scope == "answer" and not found.closed:
        found = _behind_announcement(found)
    if turn.waits or (turn.breaks_off and not found.closed):
        cut_off = turn.breaks_off and not turn.ended and not turn.waits
        return Answer("", cut_off=cut_off, ended=turn.ended, thought=True, asks=not cut_off)
    if (turn.asks or turn.marked) and not found.closed and not found.cut_off and _BLANK.fullmatch(found.text):
        cut_off = not turn.asks and not turn.ended and not found.thought
        return Answer("", cut_off=cut_off, ended=turn.ended, thought=True, asks=turn.asks)
    return found


def _without_drafts(text: str) -> str:
    """The text without what stands between tags of drafts; one that is not closed goes to the end."""
    if "<" not in text:
        return text
    kept, start, opened = [], 0, None
    for tag in itertools.islice(_DRAFT.finditer(text), MAX_MARKS):
        name = tag[2].casefold()
        if opened is None and not tag[1]:
            kept.append(text[start : tag.start()])
            opened = name
        elif opened == name and tag[1]:
            start, opened = tag.end(), None
    return text if not kept else "".join(kept if opened else [*kept, text[start:]])


def _behind_announcement(found: Answer) -> Answer:
    """The answer behind the words or the mark that announce it, where there are any."""
    text = found.text
    # What all marks hold: a pattern without a fixed beginning is slow on an endless text.
    if "nal" not in text.lower() and "boxed" not in text:
        return found
    ends = deque((mark.end() for mark in itertools.islice(_ANNOUNCED.finditer(text), MAX_MARKS)), maxlen=8)
    # Not within the braces of a label or a note.
    start = next((end for end in reversed(ends) if text.count("{", 0, end) <= text.count("}", 0, end)), 0)
    tags = [*itertools.islice(_FINAL_TAG.finditer(text, start), MAX_MARKS)]
    opening = max((k for k, tag in enumerate(tags) if not tag[0].startswith("</")), default=None)
    end = len(text)
    if opening is not None:
        start = tags[opening].end()
        end = tags[opening + 1].start() if opening + 1 < len(tags) else end
    elif boxed := "boxed" in text and _BOXED.search(text, start):
        start = boxed.start()
    if not start:
        return found
    content = text[start:end]
    closed = end < len(text)
    return found._replace(
        text=content,
        closed=closed,
        cut_off=not closed and not content.strip(),
        around=found.around + text[:start] + text[end:],
        thought=True,
    )


def _inside(drafts: Iterable[str], opened: bool) -> bool:
    """Whether the thinking that is open before drafts, or begins in one, is still open behind the last."""
    for draft in drafts:
        marks = _find_marks(draft)
        if marks is not None:
            opened = marks.open_thinking is not None or (opened and not marks.thinking_end)
    return opened


def _find_said(text: str, scope: str, opened: bool, ended: bool) -> Answer:
    """`find_answer` in the words of one turn; `opened`: it begins inside a thinking."""
    if scope == "all":
        return Answer(text, ended=ended)
    marks = _find_marks(text)
    if opened and not (marks and marks.thinking_end):
        return Answer("", cut_off=True, thought=True)
    if marks is None:
        return Answer(text, ended=ended)
    first, thinking_end = marks.first_thinking, marks.thinking_end
    before = "" if first is None or first >= thinking_end else text[:first]
    end = len(text)
    if scope == "answer":
        if marks.answer and (marks.answer[0] >= thinking_end or not text[thinking_end:].strip()):
            tag_start, start = marks.answer
            close, behind = marks.answer_close or (end, end)
            content = text[start:close]
            around = before + text[thinking_end:tag_start] + text[behind:]
            closed = marks.answer_close is not None
            return Answer(content, closed, not closed and not content.strip(), ended, around, thought=True)
        end = end if marks.answer_end is None else marks.answer_end
    start = end if marks.open_thinking is None else min(marks.open_thinking, end)
    return Answer(text[thinking_end:start], False, start < end, ended, before, thought=True)


def opens_thinking(prompt: str) -> bool:
    """Whether a rendered prompt ends in an open mark of thinking, so that the completion begins inside it.

    Example:
        >>> opens_thinking("<|im_start|>assistant\\n<think>\\n"), opens_thinking("… <think>\\n\\n</think>\\n\\n")
        (True, False)
    """
    last = deque(_TAG_OR_RARE.finditer(prompt), maxlen=1)
    return any(mark.lastgroup in _OPENING and _ENDS_OPEN.fullmatch(prompt, mark.end()) for mark in last)


#: What the marks of thinking in a text tell: none are there; all in order; closed, but never opened; never closed.
THINKING_STATES = ("none", "paired", "unopened", "unclosed")


def thinking_state(completion: str) -> str:
    """What the marks of thinking in a completion tell, one of `THINKING_STATES`.

    Example:
        >>> thinking_state("a draft</think>[]"), thinking_state("<think>a draft"), thinking_state("[]")
        ('unopened', 'unclosed', 'none')
    """
    marks = _find_marks(_without_middle(completion))
    if marks is None or not marks.thinking_end:
        return "unclosed" if marks and marks.open_thinking is not None else "none"
    return "unopened" if marks.unopened else "paired"


def moves_answer(words: str) -> bool:
    """Whether words within an answer would be taken for a mark that begins or ends it.

    Example:
        >>> moves_answer("nodule <think>"), moves_answer("nodule < 5 mm")
        (True, False)
    """
    return _TAG_OR_RARE.search(words) is not None or moves_turn(words)


def marks_thinking(tokens: Iterable[str]) -> bool:
    """Whether one of a tokenizer's tokens is a mark of thinking.

    Example:
        >>> marks_thinking(["<eos>", "[THINK]", "[/THINK]"]), marks_thinking(["<eos>", "<box>"])
        (True, False)
    """
    return any(thinking_state(token) != "none" for token in tokens)


def has_rare_marks(text: str) -> bool:
    """Whether a text may have marks of thinking that do not begin with `<`.

    Example:
        >>> has_rare_marks("[THINK]hm[/THINK][]"), has_rare_marks("<think>hm</think>[]")
        (True, False)
    """
    return "THINK]" in text or "think▷" in text or "[unused1" in text


#: How parts of a text that are struck out or commented out begin.
EDITS = ("~~", "/*", "//", "#", "<del>", "<strike>")


def may_have_marks(text: str) -> bool:
    """Whether a text may have marks that do not begin with `<` and that move the answer.

    Example:
        >>> may_have_marks("[INST] Where? [/INST] []"), may_have_marks("No nodule.")
        (True, False)
    """
    if "~~" in text or "//" in text or "#" in text or "/*" in text:
        return True
    return has_rare_marks(text) or has_turn_words(text) or "inal" in text or "INAL" in text or "boxed" in text


def _find_marks(text: str) -> Marks | None:
    """The marks in a text, None where it has none."""
    rare = has_rare_marks(text)
    if not rare and "<" not in text:
        return None
    answer = answer_close = answer_end = first_thinking = open_thinking = kind = None
    thinking_end, unopened = 0, False
    for count, tag in enumerate((_TAG_OR_RARE if rare else _TAG).finditer(text)):
        if count == MAX_MARKS:
            # A generation that loops over its marks has no answer.
            return Marks(None, None, None, None, None, len(text), False)
        kind = tag.lastgroup
        if kind == "answer":
            answer, answer_close = tag.span(), None
        elif kind == "answer_end":
            answer_close = answer_close or (tag.span() if answer else None)
            answer_end = tag.start() if answer_end is None else answer_end
        elif kind in _OPENING:
            first_thinking = tag.start() if first_thinking is None else first_thinking
            open_thinking = tag.start() if open_thinking is None else open_thinking
        else:
            unopened = unopened or (first_thinking is None and not thinking_end)
            thinking_end, open_thinking, answer_end = tag.end(), None, None
    if kind is None:
        return None
    return Marks(answer, answer_close, answer_end, first_thinking, open_thinking, thinking_end, unopened)


# Some completions begin inside a thinking that their prompt opened, and nobody said so: chat templates of some models
# end in an open mark. Such a completion has only the closing mark; one that was cut off in its thinking has no mark at
# all, and is read as an answer, drafts and musings included. A single text cannot show that, but many can.

# Fewer completions prove nothing: a model may forget its opening mark now and then.
_FEWEST_UNOPENED, _FEWEST_UNCLOSED = 4, 64
_MOST_WATCHED = 4096
# Completions that come alone are looked at so many at a time: looking takes longer than to wait.
_TOGETHER = 64


def count_thinking(texts: Iterable[str]) -> Counter[str]:
    """How many texts have each `thinking_state`.

    Example:
        >>> dict(count_thinking(["hm</think>[]", "hm", "<think>hm</think>[]"]))
        {'unopened': 1, 'none': 1, 'paired': 1}
    """
    return Counter(map(thinking_state, texts))


def thinking_suspicion(states: Mapping[str, int], *, prompt_opens_thinking: bool) -> str | None:
    """What is suspect about these counts, in two sentences with the remedy; None where nothing is.

    Args:
        states: counts by `thinking_state`.
        prompt_opens_thinking: what was declared.

    Example:
        >>> print(thinking_suspicion({"unopened": 7, "none": 3}, prompt_opens_thinking=False))
        7 of 10 completions close a thinking that they never opened, so the prompt seems to open it, and the 3 without \
any mark were cut off inside it: their drafts count as answers. Set prompt_opens_thinking to true.
        >>> thinking_suspicion({"unopened": 7, "none": 3}, prompt_opens_thinking=True)
    """
    unopened, paired, unclosed, unmarked = (states.get(name, 0) for name in ("unopened", "paired", "unclosed", "none"))
    total = unopened + paired + unclosed + unmarked
    if prompt_opens_thinking:
        if total < _FEWEST_UNCLOSED or unopened or paired:
            return None
        return (
            f"None of {total} completions closes its thinking, so none of them has an answer. Allow more new tokens; "
            "or, if the prompt does not end in an open mark of thinking, set prompt_opens_thinking to false."
        )
    # A model that opens its thinking itself, and forgets to now and then, is no such case.
    if not unmarked or unopened < _FEWEST_UNOPENED or unopened <= paired + unclosed:
        return None
    return (
        f"{unopened} of {total} completions close a thinking that they never opened, so the prompt seems to open it, "
        f"and the {unmarked} without any mark were cut off inside it: their drafts count as answers. "
        "Set prompt_opens_thinking to true."
    )


class ThinkingWatcher:
    """Watches batch after batch, and reports a suspicion once.

    Example:
        >>> watcher = ThinkingWatcher()
        >>> watcher.watch(["hm</think>[]"] * 3 + ["hm"], prompt_opens_thinking=False)
        >>> watcher.watch(["hm</think>[]", "hm"], prompt_opens_thinking=False)[:40]
        '4 of 6 completions close a thinking that'
        >>> watcher.watch(["hm</think>[]"], prompt_opens_thinking=False)
    """

    def __init__(self) -> None:
        self._states: Counter[str] = Counter()
        self._waiting: list[str] = []
        self._done = False
        # Trainers score in many threads.
        self._lock = threading.Lock()

    # A copy, in another process or saved with a trainer, has seen nothing.
    def __reduce__(self) -> tuple[type[ThinkingWatcher], tuple[()]]:
        return ThinkingWatcher, ()

    def watch(self, texts: Iterable[str], *, prompt_opens_thinking: bool) -> str | None:
        """Take a batch into account; returns what is suspect, the first time."""
        with self._lock:
            before = len(self._waiting)
            if self._done:
                return None
            self._waiting += texts
            if len(self._waiting) < min(before + 2, _TOGETHER):
                return None
            self._states += count_thinking(self._waiting)
            self._waiting.clear()
            found = thinking_suspicion(self._states, prompt_opens_thinking=prompt_opens_thinking)
            self._done = found is not None or self._states.total() >= _MOST_WATCHED
        return found
