"""The span of a completion that is the answer: in the last turn, after the thinking, in the last answer tag.

A completion begins inside a turn of the assistant. Marks of chat templates end and begin turns, whether a decoder kept
them as tokens or left only the words of roles. What is asked of a tool, and what the tool says, is nobody's answer.
What a tool says also ends the turn in which it was asked, so that what stood before it was a draft.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from grounding_rewards.parsing.results import MAX_CHARACTERS

#: Marks of turns and tools that one completion may have.
MAX_TURN_MARKS = 5_000

# Tags around what is asked of a tool and around what it says, in any case; the rest of a name tells which, `_is_told`.
_NAMES = (
    "(?i:(?:minimax:|longcat_|seed:)?(?:tool|function)_(?:call|response|result|output|use|code)s?|toolcall|tools"
    "|observations?|information|sandbox_output|interpreter|search|tool|python|invoke"
    "|image_(?:zoom|crop)(?:_in)?(?:_tool)?|zoom(?:_in)?|crop)"
)
_TOKENS = re.compile(
    # Told by its first letters, so that a text full of `<` costs little.
    r"<(?=/?[|｜][\w/▁]|/s>|/?[tfoizcsmlgepTFOIZCSMLGEP][oubnmreailtypxOUBNMREAILTYPX])(?:"
    r"(?P<open>"
    rf"(?:start_(?=function_))?{_NAMES}(?![\w|-])[^<>{{}}\[\]]{{0,64}}>?|function=[^<>]{{0,64}}>"
    # Mini-o3; Kosmos-2 begins with the bare word. Thyme and DeepEyes ask by Python code.
    r'|grounding>(?=\s{0,8}\{[^{}<]{0,200}"source")|code>(?=\s{0,8}```py)'
    r"|\|(?:tool_calls?(?:_section)?_(?:begin|start)|tool_(?:call|response|result)s?|python_(?:tag|start)|tools_prefix"
    r"|START_(?:ACTION|TOOL_RESULT))\|>|\|tool_(?:call|response)>"
    r"|｜(?:tool▁(?:call|output)s?▁begin｜|DSML｜(?:function|tool)_calls)>)"
    r"|(?P<close>"
    rf"/(?:{_NAMES}|function|grounding|code)(?![\w-])\s{{0,8}}>?"
    r"|\|(?:tools_suffix|tool_calls?(?:_section)?_end|/tool_(?:call|response|result)s?|python_end|END_(?:ACTION|TOOL_RESULT))\|>"
    r"|tool_(?:call|response)\|>|end_function_(?:call|response)>"
    r"|｜tool▁(?:call|output)s?▁end｜>|/｜DSML｜(?:function|tool)_calls>)"
    # ChatML, Llama 3 and 4, Granite, Harmony, Cohere, Gemma 3 and 4
    r"|(?:\|(?:im_start|start_header_id|header_start|start_of_role|start|START_OF_TURN_TOKEN)\|>|start_of_turn>|\|turn>)"
    r"\s{0,4}(?:<\|)?(?P<role>\w{0,32})(?:[.\w]{0,64} to=\w{1,16}|\|>|:)?"
    r"(?:<\|(?:end_header_id|header_end|end_of_role)\|>)?"
    # Seed; Nemotron, in words as well; Apertus
    r"|seed:bos>(?P<seed>\w{1,16})|(?:SPECIAL_1[01]|extra_id_[01])>(?P<nemotron>System|User|Assistant|Tool)"
    r"|\|(?P<apertus>system|developer|user|assistant)_start\|>"
    # Kimi; GLM, Phi and others; DeepSeek and Hunyuan
    r"|\|im_(?P<kimi>user|assistant|system)\|>[\w.]{0,64}(?:<\|im_middle\|>)?"
    r"|\|(?P<token>(?i:user|assistant|bot|system|developer|observation|tool))\|>:?|｜(?:hy_)?(?P<wide>User|Assistant)｜>"
    # Llama's and Harmony's when a tool was asked
    r"|(?P<asked>\|(?:eom_id|eom|call)\|>)"
    # With the padding behind it.
    r"|(?P<end>\|(?:im_end|endoftext|eot_id|eot|end_of_text|return|end|END_RESPONSE|END_OF_TURN_TOKEN|end_of_turn|EOT"
    r"|endof(?:user|assistant)|(?:system|developer|user|assistant)_end|end_of_sentence)\|>"
    r"|seed:eos>|SPECIAL_12>|end_of_turn>|end_of_utterance>|turn\|>|/s>|eos>|pad>|｜end▁of▁sentence｜>)(?:<(?:pad>|\|endoftext\|>))*"
    r")"
)
# Marks without `<`, and what a text with such a mark holds: each pattern is searched for only where it may be found, as
# a text may have many other words and brackets. Without words of its own a pattern is told by its first character.
_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (),
        # Mistral
        r"\[(?:(?P<inst>/?)INST\]|(?P<bracket>/?)(?:TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\])"
        # MiniMax; Exaone
        r"|\]~b\](?P<minimax>\w{1,16})|(?P<minimax_end>\[e~\[)"
        r"|\[\|(?:(?P<exaone>system|user|assistant|tool)|(?P<exaone_end>endofturn))\|\]",
    ),
    (
        ("USER", "ASSISTANT", "ser", "ssistant", "uman", "model", "tool"),
        # Vicuna and its many heirs, in one line; others on lines of their own
        r"(?<!\S)(?P<capitals>USER|ASSISTANT):|(?m:^)(?P<speaker>User|Assistant|Human):"
        # What is left of ChatML, Gemma's and Llama's marks where special tokens were taken out
        r"|(?m:^)(?P<line>user|assistant|model|tool)[ \t]{0,4}\n|(?<=[^\w\s])(?P<glued>user|assistant)\n\n",
    ),
    # LLaVA's first, Alpaca and theirs
    (("##",), r"\#{2,4}(?=[ UAHIR])[ ]?(?P<heading>User|Assistant|Human|Instruction|Response):"),
    (
        (),
        # Gemma 3's tools; older agents of Qwen; ReAct
        r"```(?P<fence>tool_(?:code|call|output|result|response)s?)?|✿(?P<flower>FUNCTION|ARGS|RESULT|RETURN)✿:?"
        r"|(?m:^)(?P<react>Thought|Action|Action Input|Observation|Final Answer|Answer)[ \t]?:",
    ),
    # A call of Gemma 4, of Kimi and of LFM2 whose marks were taken out, and what the tool says
    (
        ("call:", "response:", "functions."),
        r"(?P<bare>(?<![\w.])(?:(?:call|response):\w{1,64}\s?|functions\.\w{1,64}:\d{1,4}\s?)(?=\{))",
    ),
    (
        ("zoom", "crop"),
        r"(?P<python>(?:\[\s?)?(?<!\w)\w{0,32}(?:zoom|crop)\w{0,32}\((?=\s?\w{1,32}\s?=)[^()]{0,400}\)(?:\s?[\],])?)",
    ),
    # A call without marks around it, as Llama, OpenAI, Anthropic and LangChain write it
    (
        ("function", "tool", "arguments", "parameters", "input", "args"),
        r"(?P<json>(?:\[\s{0,8})?"
        r"""\{\s{0,8}(?:["']\w{1,16}["']\s{0,4}:\s{0,4}(?:["'][^"'\n]{0,64}["']|null|None|\d{1,9})\s{0,8},\s{0,8}){0,4}"""
        r"""["'](?:(?:function|tool_calls|arguments|parameters|input|args|action_input|tool_input)["']\s{0,4}:\s{0,4}"""
        r"""(?=[\[{"'])|tool(?:_name)?["']\s{0,4}:\s{0,4}["']))""",
    ),
)


@functools.cache
def _tokens_or_words(held: tuple[bool, ...]) -> re.Pattern[str]:
    """Every mark that a text may have which holds the words of these entries of `_WORDS`."""
    patterns = (pattern for (_, pattern), one in zip(_WORDS, held, strict=True) if one)
    return re.compile("|".join((_TOKENS.pattern, *patterns)))


# A brace that counts, a string with those that do not, or the mark of a turn, which ends a call that is never closed.
_BRACE = re.compile(
    r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|(?P<up>\{)|(?P<down>\})'
    r"|(?P<turn><[|/｜](?:im_|e|s|a|u|t|User|A)|<(?:start|end)_of_turn>|\[/?INST|\[e~\[|<seed:|\n(?:user|tool|assistant|model)\n)"
)
_AFTER_CALL = re.compile(r"\s{0,8}[\],]?(?:\s{0,8}```(?!\w))?")
# An answer in tags stays one, whatever is asked behind it.
_TAGGED = re.compile(r"</(?i:answer)")
_START_OF_TEXT = re.compile(r"(?:\s{0,8}<(?:s>|/s>|bos>|pad>|\|begin_of_text\|>|｜begin▁of▁sentence｜>))*")
_ACTION, _ACTION_INPUT = re.compile(r"^Action[ \t]?:", re.MULTILINE), re.compile(r"^Action Input[ \t]?:", re.MULTILINE)
_NOT_LETTERS = re.compile(r"begin|start|end|prefix|suffix|[^a-z]")
#: These are never closed.
_TO_THE_END = frozenset({"<|python_tag|>", "[TOOL_CALLS]"})
#: What these close was no answer even where nothing opened it.
_SURE = ("toolc", "toolr", "toolo", "toolu", "functionc", "functionr", "observation")
_OURS = frozenset({"assistant", "model", "bot", "chatbot_token", "ai", "gpt", "response"})
_TOOLS = frozenset({"tool", "ipython", "observation", "function", "functions", "environment", "tool_response"})
# Who speaks: the assistant, who may be asking a tool; a tool; somebody else; nobody, as the turn is over.
_SAYS, _ASKS, _TOLD, _OTHER, _OVER = range(5)


class Turn(NamedTuple):
    """The last turn of the assistant.

    `text`: its words, without those of tools.
    `ended`: a mark ends it, so nothing in it is cut off.
    `asks`: a tool is asked in it or right before it.
    `waits`: a tool's words follow it, so that it was no answer.
    `breaks_off`: the text ends inside what is asked of a tool.
    `drafts`: what the assistant said before each answer of a tool, since a mark began its turn.
    `marked`: a mark of a turn is in the text.
    `begun`: such a mark begins this turn, which is not the one that the prompt began.
    `loops`: the text has more than `MAX_TURN_MARKS` marks.
    """

    text: str
    ended: bool = False
    asks: bool = False
    waits: bool = False
    breaks_off: bool = False
    drafts: tuple[str, ...] = ()
    marked: bool = False
    begun: bool = False
    loops: bool = False


def last_turn(text: str) -> Turn:
    """The last turn of the assistant in a text.

    Example:
        >>> talk = "A draft.<|im_end|>\\n<|im_start|>user\\nSure?<|im_end|>\\n<|im_start|>assistant\\n[]"
        >>> last_turn(talk)[:3]
        ('\\n[]', False, False)
        >>> last_turn("A draft. <tool_response>a crop</tool_response> The answer.").text
        ' The answer.'
    """
    words = has_turn_words(text) or (
        "{" in text
        and ("arguments" in text or "parameters" in text or "input" in text or "args" in text or "tool" in text)
    )
    if "<" not in text and not words:
        return Turn(text)
    pattern = _TOKENS
    if words:
        held = tuple(not any_of or any(word in text for word in any_of) for any_of, _ in _WORDS)
        pattern = _tokens_or_words(held)
    started = _START_OF_TEXT.match(text)
    start = started.end() if started else 0
    if pattern.search(text, start) is None:
        return Turn(text[start:])
    return _Talk(text, pattern, start).read()


def has_turn_words(text: str) -> bool:
    """Whether a text may have marks of turns that do not begin with `<`, other than calls in JSON.

    Example:
        >>> has_turn_words("[INST] Where? [/INST] []"), has_turn_words("no nodule")
        (True, False)
    """
    # A chain with few links, as this is asked of every completion.
    return (
        "ssistant" in text
        or "SSISTANT:" in text
        or "USER:" in text
        or "INST]" in text
        or "TOOL_" in text
        or "Action" in text
        or "✿" in text
        or "]~b]" in text
        or "[|" in text
        or "##" in text
        or "zoom" in text
        or "crop" in text
        or "call:" in text
        or "functions." in text
        or ("\n" in text and ("user\n" in text or "model\n" in text or "tool\n" in text or "```tool" in text))
    )


def moves_turn(words: str) -> bool:
    """Whether words within an answer would be taken for a mark of a turn or of a tool.

    Example:
        >>> moves_turn("nodule <tool_call>"), moves_turn("nodule < 5 mm")
        (True, False)
    """
    pattern = _tokens_or_words((True,) * len(_WORDS))
    return any(mark.lastgroup is not None for mark in pattern.finditer(words))


@functools.lru_cache(maxsize=256)
def _name(mark: str) -> str:
    """What a mark that opens and one that closes have in common: `toolcall` for `<tool_call>` and `<tool_call|>`."""
    return _NOT_LETTERS.sub("", mark.lower().split("=")[0].split(" ")[0])


def _is_told(name: str) -> bool:
    return any(word in name for word in ("response", "result", "output", "observation", "information", "interpreter"))


class _Talk:
    """Reads a text from mark to mark."""

    def __init__(self, text: str, pattern: re.Pattern[str], start: int) -> None:
        self.text = text
        self.pattern = pattern
        # Without an input or an observation "Action:" is a word of reports, as is "Observation:".
        self.reacts = "Action" in text and _reacts(text)
        self.state = _SAYS
        self.closer = ""
        # What the assistant said in this turn before it asked a tool, and after.
        self.preamble: list[str] = []
        self.pieces: list[str] = []
        self.drafts: list[str] = []
        self.ended = self.asks = self.waits = self.marked = self.begun = False
        self.since = start

    def read(self) -> Turn:
        position = self.since
        for _ in range(MAX_TURN_MARKS):
            mark = self.pattern.search(self.text, position)
            if mark is None:
                break
            position = max(self._take(mark), mark.end())
        else:
            return Turn("", loops=True)
        self._keep(len(self.text))
        words, preamble = "".join(self.pieces), "".join(self.preamble)
        if words.isspace() or not words or _TAGGED.search(preamble):
            words = preamble + words
        elif preamble:
            self.drafts.append(preamble)
        breaks_off = self.state == _ASKS and bool(self.closer)
        return Turn(words, self.ended, self.asks, self.waits, breaks_off, tuple(self.drafts), self.marked, self.begun)

    def _take(self, mark: re.Match[str]) -> int:
        """Take one mark; returns where to go on."""
        kind = mark.lastgroup
        start, end = mark.span()
        if kind == "close" or (kind == "bracket" and mark[kind]):
            self._close(_name(mark[0]), start, end)
        elif kind in ("open", "bracket"):
            self._open(_name(mark[0]), start, closed=mark[0] not in _TO_THE_END)
        elif kind in ("end", "asked", "minimax_end", "exaone_end"):
            self._keep(start)
            if self.state in (_SAYS, _ASKS):
                self.ended = True
                self.asks = self.asks or kind == "asked"
            self.state = _OVER
        elif kind == "inst":
            self._speak("assistant" if mark[kind] else "user", start, end)
        elif kind == "fence":
            self._open(_name(mark[kind]), start)
            self.closer = self.closer and "```"
        elif kind is None and self.closer == "```":
            # The end of any code closes that of a tool alone.
            self._close("```", start, end)
        elif kind == "json":
            return self._skip_json(start, end)
        elif kind == "bare":
            return self._skip_bare(mark)
        elif kind == "python" and self.state == _SAYS:
            # A call in Python, with the list around it.
            self._keep(start)
            self.asks = True
            self._set_aside()
            self.since = end
        elif kind == "flower":
            self._step({"RESULT": "Observation", "RETURN": "Answer"}.get(mark[kind], "Action"), start, end)
        elif kind == "react" and self.reacts:
            self._step(mark[kind], start, end)
        elif kind not in (None, "react", "python"):
            self._speak(mark[kind].lower(), start, end)
        return end

    def _keep(self, end: int) -> None:
        if self.state == _SAYS and end > self.since:
            self.pieces.append(self.text[self.since : end])

    def _speak(self, role: str, start: int, end: int) -> None:
        """The mark of a turn."""
        self._keep(start)
        self.marked = True
        if role in _OURS:
            self.preamble, self.pieces, self.drafts = [], [], []
            self.ended = self.asks = self.waits = False
            self.begun = True
            skipped = _START_OF_TEXT.match(self.text, end)
            self.state, self.since = _SAYS, skipped.end() if skipped else end
            return
        self.ended = self.ended or self.state in (_SAYS, _ASKS)
        self.waits = self.waits or role in _TOOLS
        self.state, self.closer = _OTHER, ""

    def _open(self, name: str, start: int, *, closed: bool = True) -> None:
        """The mark that opens what is asked of a tool, or what it says."""
        if _is_told(name):
            self._keep(start)
            self.waits = self.waits or self.state != _TOLD
            if self.state != _OTHER:
                self.state, self.closer = _TOLD, name
        elif self.state == _SAYS:
            self._keep(start)
            self.asks = True
            self.state, self.closer = _ASKS, name if closed else ""

    def _close(self, name: str, start: int, end: int) -> None:
        """The mark that closes it; where none opened it, that was left out, or part of the prompt."""
        opened = self.state in (_ASKS, _TOLD) and name == self.closer
        told = self.state == _TOLD if opened else _is_told(name)
        if not opened:
            surely = name.startswith(_SURE) and (self.state == _SAYS or (told and self.state in (_ASKS, _OVER)))
            if not surely:
                return
            self._keep(start)
        if told:
            self.drafts.append("".join(self.preamble + self.pieces))
            self.ended = self.waits = False
        if told or not opened:
            self.preamble, self.pieces = [], []
        else:
            self._set_aside()
        self.asks = True
        self.state, self.since, self.closer = _SAYS, end, ""

    def _set_aside(self) -> None:
        """A call is over: what was said before it counts only where nothing is said behind it."""
        self.preamble += self.pieces
        self.pieces = []

    def _step(self, word: str, start: int, end: int) -> None:
        """A step of an agent that writes each on a line of its own."""
        if word.endswith("Answer"):
            self._speak("assistant", start, end)
            return
        self._keep(start)
        self.asks = True
        self.waits = self.waits or word == "Observation"
        self.state, self.closer = (_TOLD if word == "Observation" else _ASKS), ""

    def _skip_json(self, start: int, end: int) -> int:
        """A call in JSON, with the list around it, which would say that there is nothing."""
        if self.state != _SAYS:
            return end
        self._keep(start)
        self.asks = True
        closed, position = self._end_of_braces(start)
        if not closed:
            self.state, self.closer = _ASKS, "json"
            return position
        self._set_aside()
        after = _AFTER_CALL.match(self.text, position)
        self.since = after.end() if after else position
        return self.since

    def _skip_bare(self, mark: re.Match[str]) -> int:
        """A call, or what a tool says, whose marks were taken out: a name and braces."""
        start, end = mark.span()
        if not mark[0].startswith("response"):
            return self._skip_json(start, end)
        self._open("response", start)
        closed, position = self._end_of_braces(end)
        if closed:
            self._close("response", start, position)
        return position

    def _end_of_braces(self, start: int) -> tuple[bool, int]:
        """Where the braces are closed that open behind `start`; where they never are, the next turn or the end."""
        depth = 0
        for part in _BRACE.finditer(self.text, self.text.index("{", start)):
            if part.lastgroup == "turn":
                return False, part.start()
            depth += (part.lastgroup == "up") - (part.lastgroup == "down")
            if not depth:
                return True, part.end()
        return False, len(self.text)


def _reacts(text: str) -> bool:
    """Whether a text has the steps of an agent: an action and its input, or what was observed after it."""
    action = _ACTION.search(text)
    return _ACTION_INPUT.search(text) is not None or (
        action is not None and text.find("\nObservation", action.end()) >= 0
    )


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
