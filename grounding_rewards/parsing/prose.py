"""Statements in words: that there is nothing to mark, and instructions that were echoed instead of answered.

The rules are in the spirit of NegEx and ConText (a negation covers the findings behind it until something ends its
scope; some phrases only look like negations), but they judge a *whole* answer: each of its clauses must deny findings,
call something normal or state nothing, and at least one must do one of the first two. Three steps:

1. The tables of `radiology_words.py` give each word a class: `find`, `no`, `normal`, … Words that they don't know are
   `word`; what turns a negation around ("no change", "no other", "may") is `bad`, and has no move in step 2.
2. `_MOVES` reads the classes of a sentence one by one. Where a state has no move for a class, the answer is no
   negative; unknown words have a move only behind a negation. So what the tables don't know is refused: a finding that
   passes for a negative is free reward, while a negative in rare words only misses a bonus.
3. The sentence must end in a state of `_STATED`, or of `_FRAMING` if it states nothing.

No library does this: negspacy and medspacy need spaCy and marked findings, and judge each finding, not the answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from grounding_rewards.parsing.radiology_words import PHRASES, WORDS

#: A longer text is a report or a ramble, not a statement.
MAX_STATEMENT = 2000
#: A longer word is a generation that got stuck: the longest in radiology, lymphangioleiomyomatosis, has 24 letters.
MAX_WORD = 30
#: A clause that is repeated more often is one too.
MAX_REPEATS = 2

_INSTRUCTION = re.compile(
    r"""\b(?: returns? | respond | reply | outputs?(?!\ ?:) | print | write | provide | say
      | answer\ (?:with|only|in|using) | your\ answer | (?:the\ following|in\ the|this)\ format
      | (?:if|when|unless)\ (?:there|no|none|nothing|not|you|the|it|any|an?)
      | (?:you|please)\ (?:must|should|need|detect|find|locate|identify|mark|draw|list|give|use)
      | [xy]_?(?:1|2|min|max) )\b
      | (?:^|[.!?:>\n]\s?)(?:detect|find|locate|identify|mark|draw|list|give|use)\ (?:all|any|each|every|the|an?)\b""",
    re.VERBOSE | re.IGNORECASE,
)

#: An instruction among words that a model may say itself: a condition, or a sentence that begins with a command.
_COMMAND = re.compile(
    r"""\b(?:if|when|unless)\ (?:there|no|none|nothing|not|you|the|it|any|an?)\b
      | (?:^|[.!?:>\n])\s{0,8}(?:please\ )?(?:returns?|respond|reply|outputs?|print|write|provide|say
      |answer\ (?:with|only|in|using)|detect|find|locate|identify|mark|draw|list|give|use)\b(?!\s?:)""",
    re.VERBOSE | re.IGNORECASE,
)

_CHINESE = re.compile(
    r"(?:(?:该|此|这张)?(?:图像|图片|影像|胸片|胸部|肺部|双肺|心肺|图|片)[中上里内]?,?)?"
    r"(?:[无未没](?:有|发现|见|检测到|检出|有发现|有检测到)?|不存在)(?:任何|明显|可见)?(?:异常|病变|病灶|目标|物体)?"
)

_TAG = re.compile(r"<[^<>]{0,40}>|\\(?:boxed|text)\b")
_DECORATION = str.maketrans(dict.fromkeys('*_`"#<>|\\[]{}$~', " "))
_CONTRACTIONS = {
    "’": "'",
    "can't": "can not",
    "cannot": "can not",
    "n't": " not",
    "it's": "it is",
    "there's": "there is",
    "i'm": "i am",
    "'s ": " ",
}

_CLASS = {word: name for name, words in WORDS.items() for word in words.split()}
#: Names of findings that no list holds: "bronchiolitis", "silicosis", "mesothelioma".
_FINDING = re.compile(
    r".*(?:itis|osis|oma|omata|megaly|thorax|thoraces|ectasis|opathy|edema|emia|ema|monia|plasia|trophy)s?"
)

_TOKEN = re.compile(
    "".join(f"(?P<{name}>{pattern})|" for name, pattern in PHRASES.items())
    + r"(?P<comma>,)|(?P<colon>:)|(?P<word>[^\W\d_]+)|(?P<sign>[^\s])",
    re.VERBOSE,
)

#: What may stand in a negation, and behind the finding that it denies.
_SCOPE = """or and mod size side seen clear > scope, word > odd, find > found, evid > evidence, anat image > organ,
    abn > abnormal, anything > nothing"""
_FOUND = """or like > scope, and > and, comma > comma, be have > found_be, seen detected mark > tail, in > place,
    with the that > start, there > there"""
#: For each state of a sentence: the classes that may come next, and the state that follows.
_MOVES = {
    # nothing said yet
    "start": """yes > yes, the mod side seen done comma and that with > start, no > no, none > none, nothing > nothing,
        not > bare_not, find evid > finding, anat > anatomy, image > image, normal clear > normal, there > there,
        who > who, see > saw, in look > frame, show > shown, be > this_is, absent > tail""",
    "yes": "comma > start, there > there",
    "this_is": "be mod side > this_is, image > image, normal clear > normal",
    "frame": """mod side image anat look in and seen done > frame, comma colon > start, no > scope, there > there,
        who > who, show > shown, none > none, nothing > nothing""",
    "image": """image anat mod side in look and or seen done > image, comma colon that > start, show have > shown,
        be > image_be, not > verb_not, normal clear > normal, no > scope, with > start, find evid > finding""",
    "image_be": """be in mod > image_be, image > image, normal clear > normal, no > scope, done > provided,
        not > verb_not""",
    "provided": "comma and with > start, in > image, show > shown",
    "shown": """mod side colon > shown, no > scope, nothing > nothing, none > none, normal clear > normal,
        that > start, anat > anatomy""",
    "there": "be have > there_be, not > there_not",
    "there_not": "be > scope",
    "there_be": "be have > there_be, no not > scope, none > none, nothing > nothing, normal clear > normal",
    "who": "have > who, look done > frame, see seen detected > saw, not > who_not, be > who_be, show > shown",
    "who_not": "be > who_not, see seen detected show have > scope",
    "who_be": """be > who_be, that > start, there > there, normal > normal, no > scope, image > image, not > who_not,
        anat > anatomy""",
    "saw": "no > scope, nothing > nothing, that > start, normal clear > normal, there > there, anat > anatomy",
    "bare_not": "see > scope, seen detected > tail",
    "none": "seen detected > tail, be > found_be",
    "nothing": "mod seen detected abn > nothing, mark > tail, like > scope, in > place, be > found_be",
    # behind a negation, in front of the finding that it denies
    "no": f"comma > start, {_SCOPE}",
    "scope": _SCOPE,
    "evidence": "in like > scope, find > found",
    "odd": "mod > odd, find > found, evid > evidence, word > label, detected > tail, be > label",
    "label": "word mod find be > label, detected > tail",
    "organ": "anat image mod side or and > organ, find > found",
    "abnormal": """mod size side abn > abnormal, or and > scope, anat image > found_organ, evid find > found,
        detected > tail""",
    # behind the finding: the scope goes on over "or", and over a list that ends with "or" or "and"
    "found": _FOUND,
    "found_organ": f"find > found, {_FOUND}",
    "found_be": "be have > found_be, seen detected > tail",
    "and": """mod > and, no > scope, side the with > start, anat > anatomy, image > image, there > there, who > who,
        normal clear > normal""",
    "comma": """mod > item, find > listed, size > list_sized, side > sided, anat > item_organ, no or > scope, and > and,
        the with > start, there > there, who > who, normal clear > normal, image > image, show > shown""",
    "item": "mod > item, find > listed, anat > item_organ, size > list_sized, side > sided",
    "item_organ": """anat mod > item_organ, find > listed, be > anatomy_be, colon > start, normal clear > normal,
        and > anatomy, no > scope""",
    "listed": "comma > list, or > scope, and > last",
    "list": "mod anat > list, find > listed, size side > list_sized, or > scope, and > last",
    "last": "mod anat > last, find > found",
    "sided": "mod side anat > sided, size > list_sized, find > sized_listed, be > anatomy_be, normal clear > normal",
    "sized_listed": "comma > list_sized, or > scope",
    "list_sized": "mod size side anat > list_sized, find > sized_listed, or > scope",
    "place": "mod look seen done > place, side anat image > placed",
    "placed": """side anat image > placed, in > place, be have > found_be, seen detected mark > tail, like > scope,
        comma > comma, and > place_and, or > place_or, with the > start, there > there""",
    "place_or": "mod > place_or, side anat image > placed, find > found",
    "place_and": """mod side > place_and, anat image > placed_and, no > scope, there > there, who > who,
        normal clear > normal, find > finding""",
    "placed_and": """anat image > placed_and, be > anatomy_be, normal clear > normal, comma > start, in > place,
        and > place_and""",
    "tail": """seen detected mark > tail, in > place, comma and with the that > start, like > scope, there > there,
        no > scope""",
    # a finding without a negation in front must be denied behind
    "finding": """find evid mod size side anat in and or > finding, be have > finding_be, not > finding_not,
        absent > tail, colon > finding_colon""",
    "finding_be": "be have > finding_be, not > finding_not, absent > tail",
    "finding_not": "be > finding_not, seen detected > tail",
    "finding_colon": "no none absent nothing normal > tail, not > finding_not",
    # anatomy must be called normal, or not abnormal
    "anatomy": """anat image mod side in and or comma > anatomy, be have > anatomy_be, colon > start,
        normal clear > normal, no > scope, show > shown, not > verb_not, find > finding""",
    "anatomy_be": "be in have > anatomy_be, normal clear > normal, no > scope, not > verb_not",
    "verb_not": "be > verb_not, abn > normal, show have > scope",
    "normal": """normal clear anat image mod side > normal, in > normal_in, and > normal_and, comma with the > start,
        no > scope, there > there, show > shown""",
    "normal_in": "mod > normal_in, side anat image > normal",
    "normal_and": """normal clear > normal, mod side > normal_and, anat image > normal_anatomy, the > start,
        no > scope, there > there, who > who""",
    "normal_anatomy": """anat mod > normal_anatomy, be > anatomy_be, normal clear > normal, and > normal_and,
        comma with > start, in > normal_in, no > scope""",
}
#: Ends of a sentence that states a negative, and of one that states nothing: "PA and lateral views were obtained."
_STATED = frozenset(
    ["no", "none", "nothing", "found", "found_organ", "tail", "placed", "placed_and", "normal", "normal_anatomy"]
)
_FRAMING = frozenset(["image", "provided", "frame"])
#: States in which no article or adverb may follow: what is "not fully seen" is seen.
_STRICT = frozenset(["odd", "label", "finding_not"])


def _next_states() -> dict[tuple[str, str], str]:
    # Articles and words of the class `skip` may stand anywhere else.
    moves = {(state, name): state for state in _MOVES if state not in _STRICT for name in ("the", "skip")}
    for state, row in _MOVES.items():
        for move in row.split(","):
            names, target = move.split(" > ")
            moves |= {(state, name): target for name in names.split()}
    return moves


_NEXT_STATE = _next_states()


def states_nothing(answer: str) -> bool:
    """Whether the answer says in words that there is nothing to mark.

    Example:
        >>> states_nothing("There is no pneumothorax. The lungs are clear.")
        True
        >>> states_nothing("No change in the left effusion.")
        False
    """
    if len(answer) > MAX_STATEMENT or echoes_prompt(answer):
        return False
    text = _plain(answer)
    if _CHINESE.fullmatch(text.strip(" .。")):
        return True
    clauses = Counter(map(str.strip, re.split(r"[.,;!\n]", text)))
    if any(count > MAX_REPEATS for clause, count in clauses.items() if clause):
        return False
    ends = [_read(sentence) for sentence in _sentences(text)]
    return all(end in _STATED | _FRAMING for end in ends) and any(end in _STATED for end in ends)


def echoes_prompt(answer: str) -> bool:
    """Whether the answer reads like an instruction: then a negative in it is quoted, not stated.

    Example:
        >>> echoes_prompt("If there is no finding, return 'No Objects'.")
        True
    """
    return _INSTRUCTION.search(answer, 0, MAX_STATEMENT) is not None


def gives_instructions(around: str) -> bool:
    """Whether the words around an answer are instructions, rather than an introduction to it.

    Example:
        >>> gives_instructions("If there is none, output"), gives_instructions("So I will output:")
        (True, False)
    """
    return _COMMAND.search(around, 0, MAX_STATEMENT) is not None


def _plain(answer: str) -> str:
    """The text in lower case, without tags, quotes, emphasis, brackets, contractions and repeated blanks."""
    text = _TAG.sub(" ", unicodedata.normalize("NFKC", answer).casefold()).translate(_DECORATION)
    for written, meant in _CONTRACTIONS.items():
        text = text.replace(written, meant)
    text = re.sub(r"(?<=\w)-(?=\w)", " ", text.replace("'", " "))
    text = re.sub(r":[\s•–—-]+", ": ", text)
    return re.sub(r"[^\S\n]+", " ", text)


def _sentences(text: str) -> list[list[str]]:
    """The classes of the words, sentence by sentence; sentences without a word that counts are left out."""
    sentences: list[list[str]] = [[]]
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "stop":
            sentences.append([])
        else:
            sentences[-1].append(_word_class(token[0]) if token.lastgroup == "word" else str(token.lastgroup))
    return [classes for classes in sentences if set(classes) - {"skip", "comma"}]


def _word_class(word: str) -> str:
    if len(word) > MAX_WORD or not word.isascii():
        return "bad"
    for form in (word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ies") + "y"):
        if form in _CLASS:
            return _CLASS[form]
    return "find" if _FINDING.fullmatch(word) else "word"


def _read(classes: list[str]) -> str:
    """The state at the end of a sentence, the empty string where there was no move."""
    state = "start"
    for name in classes:
        state = _NEXT_STATE.get((state, name), "")
    return state
