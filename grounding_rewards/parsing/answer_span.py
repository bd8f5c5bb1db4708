"""The span of a completion that is the answer: in the last turn, after the thinking, in the last answer tag.

A completion begins inside a turn of the assistant. Marks of chat templates end and begin turns, whether a decoder kept
them as tokens or left only the words of roles. A call of a tool and its result are nobody's answer; a result also ends
the turn in which the tool was called, so that the words before it were a draft. The marks are those of
`answer_marks.toml`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from grounding_rewards.common.text_files import packaged_tables
from grounding_rewards.parsing.results import MAX_CHARACTERS

#: Marks of turns and tools that one completion may have.
MAX_TURN_MARKS = 5_000
#: Marks of answers and of thinking that one completion may have.
MAX_MARKS = 10_000
# Of a longer text only this much of its end is searched for marks, with the first `MAX_CHARACTERS`.
_MAX_END = 2**15

_MARKS: dict[str, Any] = packaged_tables("grounding_rewards.parsing", "answer_marks.toml")


def _any_case(pattern: str) -> str:
    """The pattern with each lower-case letter in both cases: `(?i:…)` matches the same, and is slower to search."""
    return re.sub("[a-z]", lambda letter: f"[{letter[0]}{letter[0].upper()}]", pattern)


_NAMES = {"names": _MARKS["tool_names"]}
_NAMES |= {kind: _any_case(_MARKS[f"{kind}_names"]) for kind in ("thinking", "answer")}


def _any_of(patterns: Iterable[str]) -> str:
    """One pattern of several of `answer_marks.toml`, with `_NAMES` in their slots, such as `%(thinking)s`."""
    return "|".join(patterns) % _NAMES


def _turn_tokens(tokens: dict[str, Any]) -> str:
    """The pattern of all special tokens that begin or end turns, calls and results; its groups say what each does."""
    calls = f"(?P<open>{_any_of(tokens['open'])})|(?P<close>{_any_of(tokens['close'])})"
    ends = f"(?P<end_asked>{_any_of(tokens['asked'])})|(?P<end>{_any_of(tokens['end'])}){tokens['padding']}"
    return f"<{tokens['first_letters']}(?:{calls}|{_any_of(tokens['turns'])}|{ends})"


_TURN_TOKENS = re.compile(_turn_tokens(_MARKS["tokens"]))
_WORD_PATTERNS = [(tuple(family["words"]), "|".join(family["patterns"])) for family in _MARKS["words"]]
_TURN_WORDS: list[str] = _MARKS["turn_words"]
_JSON_WORDS: list[str] = _MARKS["json_words"]
_RARE_WORDS = ("THINK]", "think▷", "[unused1")
# Marks of answers and of thinking: those that begin with `<`, which are found fast; and all, with those in brackets.
_TAG = re.compile(f"<{_MARKS['thinking']['first_letters']}(?:{_any_of(_MARKS['thinking']['tags'])})")
_ANY_MARK = re.compile(f"{_TAG.pattern}|{_MARKS['thinking']['rare']}")
# The groups that open thinking.
_OPENING = frozenset(["thinking", "token", "gemma", "harmony", "medgemma", "rare"])

# A brace that counts, a string with those that do not, or the mark of a turn, which ends a call that is never closed.
_BRACE = re.compile(
    r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|(?P<up>\{)|(?P<down>\})'
    r"|(?P<turn><[|/｜](?:im_|e|s|a|u|t|User|A)|<(?:start|end)_of_turn>|\[/?INST|\[e~\[|<seed:|\n(?:user|tool|assistant|model)\n)"
)
_AFTER_CALL = re.compile(r"\s{0,8}[\],]?(?:\s{0,8}```(?!\w))?")
# An answer in tags stays one, whatever is asked behind it.
_TAGGED = re.compile(f"</{_NAMES['answer']}")
_START_OF_TEXT = re.compile(r"(?:\s{0,8}<(?:s>|/s>|bos>|pad>|\|begin_of_text\|>|｜begin▁of▁sentence｜>))*")
_ACTION = re.compile(r"^Action(?: Input)?[ \t]?:", re.MULTILINE)
_NOT_LETTERS = re.compile(r"begin|start|end|prefix|suffix|[^a-z]")
# Calls after these marks are never closed.
_TO_THE_END = frozenset(_MARKS["calls_to_the_end"])
# Only tools' marks have names that begin so: what such a mark closes was no answer, even if no mark opened it.
_UNMISTAKABLE = tuple(_MARKS["unmistakable_names"])
_RESULT_WORDS: list[str] = _MARKS["result_words"]
_ASSISTANT_ROLES = frozenset(_MARKS["assistant_roles"])
_TOOL_ROLES = frozenset(_MARKS["tool_roles"])
_STEPS: dict[str, str] = {name: step for step, names in _MARKS["steps"].items() for name in names}
# Who speaks: the assistant, to the user or to a tool; a tool; the user or another role; nobody, as the turn is over.
_ASSISTANT, _CALL, _TOOL, _USER, _NOBODY = range(5)

# What may follow an open mark at the end of a prompt: white space, and Harmony's token before a message.
_NOTHING_THOUGHT = re.compile(r"\s{0,8}(?:<\|message\|>\s{0,8})?")
_DRAFT = re.compile(_MARKS["answer"]["draft"], re.IGNORECASE)
_ANNOUNCED = re.compile(_MARKS["answer"]["announced"], re.IGNORECASE)
_BOXED = re.compile(_MARKS["answer"]["boxed"])
# The fence around a call in JSON is no answer.
_BLANK = re.compile(r"\s*(?:```\w*\s*)?(?:```\s*)?")
# Harmony without its special tokens: "analysisWe see …assistantfinalNo finding."
_BARE_CHANNEL, _BARE_FINAL = re.compile(r"analysis(?=[A-Z])"), "assistantfinal"
# A text without any of these has no mark that moves the answer, but for those that begin with `<`.
_WORDS_OF_MARKS = (*_RARE_WORDS, *_TURN_WORDS, "inal", "INAL", "boxed")


class AnswerSpan(NamedTuple):
    """The part of a completion that counts.

    `closed`: it is between an opening and a closing answer tag.
    `cut_off`: the completion ends before its answer begins.
    `ended`: the model ended it by a special token, so nothing in it is cut off.
    `around`: the text outside the answer and the thinking.
    `thought`: the completion has tags of thinking or of an answer, or marks of a turn.
    `only_calls_tool`: the last turn calls a tool and says nothing else.
    """

    text: str
    closed: bool = False
    cut_off: bool = False
    ended: bool = False
    around: str = ""
    thought: bool = False
    only_calls_tool: bool = False


def find_answer(completion: str, scope: str = "answer", *, prompt_opens_thinking: bool = False) -> AnswerSpan:
    """Find the part of a completion that is its answer, and tell whether it is whole.

    Args:
        completion: any text.
        scope: `answer`: the content of the last answer tag, of an unclosed one to the end; without answer tags the text
            behind the thinking. `after_think`: the text behind the thinking, answer tags or not. `all`: the whole
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
    has_bare_channels = _BARE_CHANNEL.match(completion) is not None
    if has_bare_channels and _BARE_FINAL in completion:
        completion = completion.partition(_BARE_FINAL)[2]
    elif has_bare_channels and scope != "all":
        # Harmony's thinking was cut off before its channel of answers.
        return AnswerSpan("", cut_off=True, thought=True)
    # The last turn of the assistant; all before it is forgotten.
    turn = last_turn(completion)
    if turn.has_too_many_marks:
        # A generation that loops over its marks has no answer.
        return AnswerSpan("", thought=True)
    # The thinking that the prompt opens is over in a turn that begins later, and in a channel of answers.
    in_thinking = prompt_opens_thinking and not has_bare_channels and not turn.is_new
    # The thinking that is open before drafts, or begins in one, may still be open behind the last.
    for draft in turn.drafts:
        marks = _find_marks(draft)
        if marks is not None:
            # A mark opens it again, or none closes it: its end is 0 then.
            in_thinking = marks.open_thinking is not None or (in_thinking and not marks.thinking_end)
    # A part in a tag such as <draft>, in which the model tries things out, is none of the answer.
    words = turn.words if scope == "all" else _DRAFT.sub("", turn.words)
    answer = _find_in_turn(words, scope, in_thinking, turn.ended)
    if scope == "answer" and not answer.closed:
        answer = _behind_announcement(answer)
    # A tool has been asked, or the text breaks off in a call: what was said before is no answer, unless it is in tags.
    if turn.tool_follows or (turn.ends_in_call and not answer.closed):
        cut_off = turn.ends_in_call and not turn.ended and not turn.tool_follows
        return AnswerSpan("", cut_off=cut_off, ended=turn.ended, thought=True, only_calls_tool=not cut_off)
    # Nothing is said beside a call or the mark of a turn.
    if (
        (turn.calls_tool or turn.has_turn_mark)
        and not answer.closed
        and not answer.cut_off
        and _BLANK.fullmatch(answer.text)
    ):
        cut_off = not turn.calls_tool and not turn.ended and not answer.thought
        return AnswerSpan("", cut_off=cut_off, ended=turn.ended, thought=True, only_calls_tool=turn.calls_tool)
    return answer


def _without_middle(text: str) -> str:
    """The text; one that is too long, as of a generation that loops, without its middle.

    Patterns of marks are slow. Thinking that is open at the beginning stays open unless the end closes it, and an
    answer at the end is read.
    """
    if len(text) <= MAX_CHARACTERS + _MAX_END:
        return text
    return f"{text[:MAX_CHARACTERS]}\n{text[-_MAX_END:]}"


def _find_in_turn(text: str, scope: str, in_thinking: bool, ended: bool) -> AnswerSpan:
    """The answer in the words of one turn; `in_thinking`: they begin inside a thinking, `ended`: a mark ends them."""
    if scope == "all":
        return AnswerSpan(text, ended=ended)
    marks = _find_marks(text)
    if in_thinking and not (marks and marks.thinking_end):
        # The thinking was never closed.
        return AnswerSpan("", cut_off=True, thought=True)
    if marks is None:
        return AnswerSpan(text, ended=ended)
    # `thought` is True from here on: there are marks, be it of thinking or of an answer alone. The end of thinking is 0
    # where no mark closes it.
    thinking_end = marks.thinking_end
    before_thinking = ""
    if marks.first_thinking is not None and marks.first_thinking < thinking_end:
        before_thinking = text[: marks.first_thinking]
    end = len(text)
    # An answer tag within the thinking, marks.answer[0] being its start, counts only if nothing follows the thinking.
    if scope == "answer" and marks.answer and (marks.answer[0] >= thinking_end or not text[thinking_end:].strip()):
        tag_start, content_start = marks.answer
        # An answer that is never closed goes to the end of the text.
        content_end, closing_tag_end = marks.answer_close or (end, end)
        content = text[content_start:content_end]
        around = before_thinking + text[thinking_end:tag_start] + text[max(closing_tag_end, thinking_end) :]
        closed = marks.answer_close is not None
        cut_off = not closed and not content.strip()
        return AnswerSpan(content, closed=closed, cut_off=cut_off, ended=ended, around=around, thought=True)
    if scope == "answer" and marks.answer_end is not None:
        # The tag that opens the answer is missing.
        end = marks.answer_end
    cut_off = False
    if marks.open_thinking is not None and marks.open_thinking < end:
        # Thinking that opens behind the answer ends it, and is cut off itself.
        cut_off, end = True, marks.open_thinking
    return AnswerSpan(text[thinking_end:end], cut_off=cut_off, ended=ended, around=before_thinking, thought=True)


def _behind_announcement(answer: AnswerSpan) -> AnswerSpan:
    """The answer without what stands before "Final answer:" or `\\boxed{`; as it is without these."""
    text = answer.text
    # One of these stands in every announcement. Their pattern, without a fixed beginning, is slow on an endless text.
    if "nal" not in text.lower() and "boxed" not in text:
        return answer
    start = 0
    # The last announcement counts; braces are counted for a few only, as each count reads the text from its beginning.
    announcements = deque(itertools.islice(_ANNOUNCED.finditer(text), MAX_MARKS), maxlen=8)
    for announcement in announcements:
        announcement_end = announcement.end()
        # Within open braces it is part of a label or a note.
        if text.count("{", 0, announcement_end) <= text.count("}", 0, announcement_end):
            start = announcement_end
    boxed = _BOXED.search(text, start) if "boxed" in text else None
    if boxed is not None:
        start = boxed.start()
    if not start:
        return answer
    content = text[start:]
    around = answer.around + text[:start]
    return answer._replace(text=content, cut_off=not content.strip(), around=around, thought=True)


class Marks(NamedTuple):
    """Positions of the marks of answers and thinking that decide which part of a text counts; None for a missing mark.

    `answer`: start and end of the last mark that opens an answer.
    `answer_close`: start and end of the first mark that closes this answer.
    `answer_end`: start of the first mark that closes an answer behind the thinking.
    `first_thinking`: start of the first mark that opens thinking.
    `open_thinking`: start of the first mark that opens thinking behind `thinking_end`.
    `thinking_end`: end of the last mark that closes thinking, else 0.
    `unopened`: the first mark of thinking closes it.
    """

    answer: tuple[int, int] | None = None
    answer_close: tuple[int, int] | None = None
    answer_end: int | None = None
    first_thinking: int | None = None
    open_thinking: int | None = None
    thinking_end: int = 0
    unopened: bool = False


def _find_marks(text: str) -> Marks | None:
    """The marks of answers and of thinking in a text, None if it has none."""
    has_rare_marks = any(map(text.__contains__, _RARE_WORDS))
    if not has_rare_marks and "<" not in text:
        return None
    answer = answer_close = answer_end = first_thinking = open_thinking = mark_kind = None
    thinking_end, unopened = 0, False
    pattern = _ANY_MARK if has_rare_marks else _TAG
    for count, mark in enumerate(pattern.finditer(text)):
        if count == MAX_MARKS:
            # A generation that loops over its marks has no answer: all of it counts as thinking.
            return Marks(thinking_end=len(text))
        mark_kind = mark.lastgroup
        if mark_kind == "answer":
            # The last answer counts, and is not closed yet.
            answer, answer_close = mark.span(), None
        elif mark_kind == "answer_end":
            if answer and answer_close is None:
                answer_close = mark.span()
            # Where no mark opens an answer, it ends at the first one that closes it.
            if answer_end is None:
                answer_end = mark.start()
        elif mark_kind in _OPENING:
            if first_thinking is None:
                first_thinking = mark.start()
            if open_thinking is None:
                open_thinking = mark.start()
        else:
            # The end of thinking, never opened if no mark of thinking stands before it. A mark before it that closes an
            # answer counts no more.
            unopened = unopened or (first_thinking is None and not thinking_end)
            thinking_end, open_thinking, answer_end = mark.end(), None, None
    if mark_kind is None:
        return None
    return Marks(answer, answer_close, answer_end, first_thinking, open_thinking, thinking_end, unopened)


def opens_thinking(prompt: str) -> bool:
    """Whether a rendered prompt ends in an open mark of thinking, so that the completion begins inside it.

    Example:
        >>> opens_thinking("<|im_start|>assistant\\n<think>\\n"), opens_thinking("… <think>\\n\\n</think>\\n\\n")
        (True, False)
    """
    marks = list(_ANY_MARK.finditer(prompt))
    if not marks or marks[-1].lastgroup not in _OPENING:
        return False
    return _NOTHING_THOUGHT.fullmatch(prompt, marks[-1].end()) is not None


#: What the marks of thinking in a text tell: none are there; all in order; closed, but never opened; never closed.
THINKING_STATES = ("none", "paired", "unopened", "unclosed")


def thinking_state(completion: str) -> str:
    """What the marks of thinking in a completion tell, one of `THINKING_STATES`.

    Example:
        >>> thinking_state("a draft</think>[]"), thinking_state("<think>a draft"), thinking_state("[]")
        ('unopened', 'unclosed', 'none')
    """
    marks = _find_marks(_without_middle(completion))
    # The end of thinking is 0 where no mark closes it.
    if marks is None or not marks.thinking_end:
        return "unclosed" if marks and marks.open_thinking is not None else "none"
    return "unopened" if marks.unopened else "paired"


def marks_thinking(tokens: Iterable[str]) -> bool:
    """Whether one of a tokenizer's tokens is a mark of thinking.

    Example:
        >>> marks_thinking(["<eos>", "[THINK]", "[/THINK]"]), marks_thinking(["<eos>", "<box>"])
        (True, False)
    """
    return any(thinking_state(token) != "none" for token in tokens)


def has_answer_mark(words: str) -> bool:
    """Whether words, such as a label, hold a mark that begins or ends an answer or a turn.

    Example:
        >>> [has_answer_mark(label) for label in ("nodule <think>", "nodule <tool_call>", "nodule < 5 mm")]
        [True, True, False]
    """
    if _ANY_MARK.search(words):
        return True
    marks_of_all_families = _turn_pattern((True,) * len(_WORD_PATTERNS))
    # A bare ``` matches without a named group: it ends ordinary code too, so it is no mark here.
    return any(mark.lastgroup is not None for mark in marks_of_all_families.finditer(words))


def may_have_marks(text: str) -> bool:
    """Whether a text may have marks of answers or turns, apart from those that begin with `<`.

    Example:
        >>> may_have_marks("[INST] Where? [/INST] []"), may_have_marks("No nodule.")
        (True, False)
    """
    return any(map(text.__contains__, _WORDS_OF_MARKS))


def last_turn(text: str) -> Turn:
    """The last turn of the assistant in a text.

    Example:
        >>> talk = "A draft.<|im_end|>\\n<|im_start|>user\\nSure?<|im_end|>\\n<|im_start|>assistant\\n[]"
        >>> last_turn(talk).words, last_turn(talk).ended
        ('\\n[]', False)
        >>> last_turn("A draft. <tool_response>a crop</tool_response> The answer.").words
        ' The answer.'
    """
    # Marks without `<` are rare and their patterns slow, so a text is first asked for a word that one of them needs.
    may_have_words = any(map(text.__contains__, _TURN_WORDS))
    if not may_have_words and "{" in text:
        may_have_words = any(map(text.__contains__, _JSON_WORDS))
    if "<" not in text and not may_have_words:
        return Turn(text)
    pattern = _TURN_TOKENS
    if may_have_words:
        # A flag for each family. One without words is always included: its pattern has a fixed beginning, and is fast.
        included_families = [not words or any(word in text for word in words) for words, _ in _WORD_PATTERNS]
        pattern = _turn_pattern(tuple(included_families))
    turn = Turn(text, _skip_start_tokens(text, 0))
    turn.read(pattern)
    return turn


@functools.cache
def _turn_pattern(included: tuple[bool, ...]) -> re.Pattern[str]:
    """The pattern of all special tokens of turns and of the words of the included families of `_WORD_PATTERNS`."""
    patterns = itertools.compress([pattern for _, pattern in _WORD_PATTERNS], included)
    return re.compile("|".join([_TURN_TOKENS.pattern, *patterns]))


def _skip_start_tokens(text: str, position: int) -> int:
    """The position behind the tokens with which a text begins, such as `<s>`, if there are any at this position."""
    tokens = _START_OF_TEXT.match(text, position)
    return tokens.end() if tokens else position


@functools.lru_cache(maxsize=256)
def _mark_name(mark: str) -> str:
    """The name that an opening and a closing mark share: `toolcall` for `<tool_call id=3>` and `<tool_call|>`."""
    without_attributes = re.split("[= ]", mark.lower(), maxsplit=1)[0]
    return _NOT_LETTERS.sub("", without_attributes)


def _is_result(name: str) -> bool:
    """Whether a `_mark_name` is that of a tool's result, not of a call."""
    return any(word in name for word in _RESULT_WORDS)


class Turn:
    """The last turn of the assistant, read from mark to mark.

    `take_json` and so on each take the marks of the groups in `answer_marks.toml` whose names begin alike.

    What is read of the turn, beside what `__init__` explains:

    `ended`: a mark ends the turn, so nothing in it is cut off.
    `calls_tool`: a tool is called in the turn or right before it.
    `tool_follows`: a tool's words follow the turn, so that it was no answer.
    `ends_in_call`: the text ends inside a call.
    `has_turn_mark`: a mark of a turn is in the text.
    `is_new`: such a mark begins this turn, which is not the one that the prompt began.
    `has_too_many_marks`: the text has more than `MAX_TURN_MARKS` marks.
    """

    def __init__(self, text: str, start: int = 0) -> None:
        """Begin with the assistant's words at `start`; without a mark all that follows is one turn."""
        self.text = text
        # What the assistant says in the turn, without the words of tools.
        self.words = text[start:]
        # Whose words stand at the mark that is read, `_ASSISTANT`, `_CALL`, `_TOOL`, `_USER` or `_NOBODY`; where they
        # begin; and the name of the mark that closes the open call or result, empty if only another turn does.
        self.speaker = _ASSISTANT
        self.speaker_start = start
        self.closing_name = ""
        # What the assistant said in this turn before its last call, which counts only if nothing follows, and since.
        self.words_before_call: list[str] = []
        self.words_after_call: list[str] = []
        # The assistant's words before each result of a tool, since a mark began the turn.
        self.drafts: list[str] = []
        self.ended = self.calls_tool = self.tool_follows = self.ends_in_call = False
        self.has_turn_mark = self.is_new = self.has_too_many_marks = False

    def read(self, pattern: re.Pattern[str]) -> None:
        """Go through the marks of the text, matches of the pattern, and set what the class says of its last turn.

        A text with more than `MAX_TURN_MARKS` marks is a generation that loops, and has no answer: beside
        `has_too_many_marks` nothing that is set of it counts.
        """
        # Whether "Action:" is a mark, and not an ordinary word.
        self.has_steps = "Action" in self.text and _has_steps(self.text)
        position = self.speaker_start
        for _ in range(MAX_TURN_MARKS):
            mark = pattern.search(self.text, position)
            if mark is None:
                break
            # The group names the method for the mark: "step_react" is taken by `take_step`. Bare ``` has no group.
            group = mark.lastgroup or "fence"
            take_mark = getattr(self, f"take_{group.partition('_')[0]}")
            # A method that reads beyond its mark returns where it stopped; the others return None.
            position = max(take_mark(mark) or 0, mark.end())
        else:
            # No `break`: the marks did not end.
            self.has_too_many_marks = True
            return
        # The words behind the last mark, if they are the assistant's.
        self.keep_text_until(len(self.text))
        words_before_call = "".join(self.words_before_call)
        self.words = "".join(self.words_after_call)
        # Words before a call count if none follow it, or if they are an answer in tags.
        if not self.words.strip() or _TAGGED.search(words_before_call):
            self.words = words_before_call + self.words
        elif words_before_call:
            self.drafts.append(words_before_call)
        # A call that no mark closes goes to the end by its nature; one whose closing mark is missing is cut off.
        self.ends_in_call = self.speaker == _CALL and bool(self.closing_name)

    def keep_text_until(self, end: int) -> None:
        """Add the text from `speaker_start`, where the speaker began, to `end` to the assistant's words, if it speaks.

        What a user or a tool says, and a call, are not kept.
        """
        if self.speaker == _ASSISTANT and end > self.speaker_start:
            self.words_after_call.append(self.text[self.speaker_start : end])

    def set_aside(self) -> None:
        """Move the words before a call, which is over, to `words_before_call`: they count only if none follow."""
        self.words_before_call += self.words_after_call
        self.words_after_call = []

    def begin_turn(self, role: str, start: int, end: int) -> None:
        """Begin the turn of a role, whose mark stands from `start` to `end`.

        A turn of the assistant makes the last one a thing of the past: what was read of it is forgotten.
        """
        # Words before the mark belong to the turn before.
        self.keep_text_until(start)
        self.has_turn_mark = True
        if role not in _ASSISTANT_ROLES:
            # Somebody else speaks, so the assistant's turn is over, also in an open call, which is a part of it; its
            # words stay the last ones that it said.
            self.ended = self.ended or self.speaker in (_ASSISTANT, _CALL)
            self.tool_follows = self.tool_follows or role in _TOOL_ROLES
            self.speaker, self.closing_name = _USER, ""
            return
        self.words_before_call, self.words_after_call, self.drafts = [], [], []
        self.ended = self.calls_tool = self.tool_follows = False
        self.is_new = True
        self.speaker, self.speaker_start = _ASSISTANT, _skip_start_tokens(self.text, end)

    def open_tool(self, name: str, start: int, closing_name: str) -> None:
        """Begin a call of a tool or its result at `start`.

        Args:
            name: `_mark_name` of its mark, which tells a call from a result.
            start: where the mark stands.
            closing_name: the name of the mark that ends a call, empty if none does; a result ends at its own name.

        A call counts only in the assistant's words: elsewhere it is quoted, or part of what is open.
        """
        if _is_result(name):
            self.keep_text_until(start)
            # Within a tool's words its result is no other one.
            self.tool_follows = self.tool_follows or self.speaker != _TOOL
            # In the words of a user the mark is a quotation, or part of a turn that only a mark of a turn ends.
            if self.speaker != _USER:
                self.speaker, self.closing_name = _TOOL, name
        elif self.speaker == _ASSISTANT:
            self.keep_text_until(start)
            self.calls_tool = True
            self.speaker, self.closing_name = _CALL, closing_name

    def close_tool(self, name: str, start: int, end: int) -> None:
        """End a call or a result at its closing mark, which stands from `start` to `end`; the assistant speaks again.

        A closing mark without an opening one ends what began in the prompt, if its name is surely that of a tool. It is
        passed over in the words of somebody else, where it is quoted.

        Args:
            name: `_mark_name` of the mark.
            start: where the mark begins.
            end: where it ends.
        """
        has_opening = self.speaker in (_CALL, _TOOL) and name == self.closing_name
        is_result = self.speaker == _TOOL if has_opening else _is_result(name)
        if not has_opening:
            # A result may also follow a call that was never closed, or a turn that is over.
            possible_speakers = (_ASSISTANT, _CALL, _NOBODY) if is_result else (_ASSISTANT,)
            if not name.startswith(_UNMISTAKABLE) or self.speaker not in possible_speakers:
                return
            self.keep_text_until(start)
        if is_result:
            # After a result the model answers anew, so that its earlier words were a draft.
            self.drafts.append("".join(self.words_before_call + self.words_after_call))
            self.ended = self.tool_follows = False
        if has_opening and not is_result:
            # After a call the model may still mean its words before it.
            self.set_aside()
        else:
            # Of a call without an opening mark the words before the closing one are the call itself.
            self.words_before_call, self.words_after_call = [], []
        self.calls_tool = True
        self.speaker, self.speaker_start, self.closing_name = _ASSISTANT, end, ""

    def take_role(self, mark: re.Match[str]) -> None:
        """Take a mark that begins the turn of the role that it names."""
        self.begin_turn(mark[str(mark.lastgroup)].lower(), mark.start(), mark.end())

    def take_open(self, mark: re.Match[str]) -> None:
        """Take a mark that begins a call or a result, such as `<tool_call>`."""
        name = _mark_name(mark[0])
        closing_name = "" if mark[0] in _TO_THE_END else name
        self.open_tool(name, mark.start(), closing_name)

    def take_close(self, mark: re.Match[str]) -> None:
        """Take a mark that ends a call or a result, such as `</tool_call>`."""
        self.close_tool(_mark_name(mark[0]), mark.start(), mark.end())

    def take_end(self, mark: re.Match[str]) -> None:
        """Take a token that ends the turn; one of the group `end_asked` says that the turn asks a tool.

        Only the assistant's own turn becomes `ended`, so that nothing in it is cut off. Whoever spoke, nobody does
        until another turn begins.
        """
        self.keep_text_until(mark.start())
        # A call is a part of the assistant's turn; where it is still open, the token ends both.
        if self.speaker in (_ASSISTANT, _CALL):
            self.ended = True
            self.calls_tool = self.calls_tool or mark.lastgroup == "end_asked"
        self.speaker = _NOBODY

    def take_fence(self, mark: re.Match[str]) -> None:
        """Take a fence: ``` with the name of a tool's code or result begins it, and bare ``` ends it.

        Where none was begun, bare ``` is that of an ordinary fence, such as the one around JSON.
        """
        if mark["fence"]:
            self.open_tool(_mark_name(mark["fence"]), mark.start(), closing_name="```")
            if self.closing_name:
                # What is open, a call or a result by whatever mark it began, is closed by the next fence. A name that
                # is empty stays so: what is open is nothing, or what only another turn or step ends.
                self.closing_name = "```"
        elif self.closing_name == "```":
            self.close_tool("```", mark.start(), mark.end())

    def take_step(self, mark: re.Match[str]) -> None:
        """Take a step of an agent: `✿FUNCTION✿`, or "Action:", "Observation:" and the like where they are steps."""
        if mark.lastgroup == "step_react" and not self.has_steps:
            return
        # "call", "result" or "answer", by the word of the mark.
        step = _STEPS[mark[str(mark.lastgroup)]]
        if step == "answer":
            self.begin_turn("assistant", mark.start(), mark.end())
            return
        # A call or a result, which only the next step or turn ends; a result, too, tells that a tool was called.
        self.keep_text_until(mark.start())
        self.calls_tool = True
        self.closing_name = ""
        self.tool_follows = self.tool_follows or step == "result"
        self.speaker = _TOOL if step == "result" else _CALL

    def take_python(self, mark: re.Match[str]) -> None:
        """Take a tool call in Python with the list around it, all of which is the mark; elsewhere it is quoted."""
        if self.speaker == _ASSISTANT:
            self.keep_text_until(mark.start())
            self.calls_tool = True
            self.set_aside()
            self.speaker_start = mark.end()

    def take_json(self, mark: re.Match[str]) -> int | None:
        """Take a tool call in JSON, and return where to read on; None if it is not the assistant that speaks here.

        A list around the call is taken with it: left alone, `[]` would say that there is nothing.
        """
        if self.speaker != _ASSISTANT:
            return None
        self.keep_text_until(mark.start())
        self.calls_tool = True
        closed, position = self.end_of_braces(mark.start())
        if not closed:
            # No mark has this name: the call stays open until another turn begins, or to the end of the text.
            self.speaker, self.closing_name = _CALL, "json"
            return position
        self.set_aside()
        # The end of a list and of a fence around the call.
        after = _AFTER_CALL.match(self.text, position)
        self.speaker_start = after.end() if after else position
        return self.speaker_start

    def take_bare(self, mark: re.Match[str]) -> int | None:
        """Take "call:zoom{…}" or "response:zoom{…}", which lost the marks around it, and return where to read on.

        None if it is a call and not the assistant that speaks here.
        """
        if not mark[0].startswith("response"):
            return self.take_json(mark)
        # A result's own name closes it, whatever is given for a call.
        self.open_tool("response", mark.start(), closing_name="")
        closed, position = self.end_of_braces(mark.end())
        if closed:
            self.close_tool("response", mark.start(), position)
        return position

    def end_of_braces(self, start: int) -> tuple[bool, int]:
        """Whether the braces that open behind `start` are closed, and the position behind them.

        If they never are, it is that of the next mark of a turn, or the end of the text.
        """
        depth = 0
        # The first token is the opening brace, so the depth is 0 only behind the last; braces in strings do not count.
        for token in _BRACE.finditer(self.text, self.text.index("{", start)):
            if token.lastgroup == "turn":
                return False, token.start()
            if token.lastgroup == "up":
                depth += 1
            elif token.lastgroup == "down":
                depth -= 1
            if depth == 0:
                return True, token.end()
        return False, len(self.text)


def _has_steps(text: str) -> bool:
    """Whether "Action:" begins the step of an agent: it has an input, or something was observed after it."""
    action = _ACTION.search(text)
    if action is None:
        return False
    return "Action Input" in text or "\nObservation" in text[action.end() :]
