"""Statements in words: that there is nothing to mark, and instructions that were echoed instead of answered.

The rules are in the spirit of NegEx and ConText (a negation covers the findings behind it until something ends its
scope; some phrases only look like negations), but they judge a *whole* answer: each of its clauses must deny findings,
call something normal or state nothing, and at least one must do one of the first two. Three steps:

1. The tables of `radiology_words.py` give each word a class: `find`, `no`, `normal`, … Some endings do too
   ("-itis" is a finding, "-al" an adjective). Other words are `word`; what turns a negation around ("no change", "no
   other", "may") is `bad`, and has no move in step 2.
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
    r"""\b(?: (?<!\bi\ )(?<!\bto\ )returns? | respond | reply | outputs?(?!\ ?:|\ is\b) | print | write | provide | say
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
_EMPTY_LIST = re.compile(r"\[\s{0,8}\]")
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
    r".*(?:itis|osis|oma|omata|megaly|thorax|thoraces|ectasis|ectasia|opathy|edema|emia|ema|monia|plasia|trophy|listhesis"
    r"|lysis|lithiasis|malacia|phyte|cele|rrhage|cephalus|titis|algia)s?"
)
#: Adjectives that claim a finding: "osteopenic", "cirrhotic", "hypodense".
_ABNORMAL = re.compile(
    r".*(?:otic|itic|metastatic|ectatic|rrhagic|penic|ematous|trophic|dense|lucent|cystic|ischemic|ischaemic)"
)
#: Adjectives that no list holds: "periapical", "supracondylar", "intraductal".
_ADJECTIVE = re.compile(r".{2,}(?:al|ar|ic|ary|eal|ous|oid|less)")

_TOKEN = re.compile(
    "".join(f"(?P<{name}>{pattern})|" for name, pattern in PHRASES.items())
    + r"(?P<comma>,)|(?P<colon>:)|(?P<word>[^\W\d_]+)|(?P<sign>[^\s])",
    re.VERBOSE,
)

#: What may stand in a negation, and behind the finding that it denies.
_SCOPE = """or and mod size side seen clear > scope, word > odd, find > found, evid > evidence, anat image > organ,
    abn > abnormal, anything > nothing"""
_FOUND = """or like > scope, and > and, comma > comma, be have > found_be, seen detected mark > tail, in > place, with
    the that > start, there > there"""
_COMMA = """mod adj > item, find > listed, size > list_sized, side > sided, no or > scope, and > and, the one with
    that > start, none > none, there > there, who > who, normal clear > normal, image > image, show > shown"""
_ITEM_ORGAN = """anat mod adj > item_organ, find > listed, be > anatomy_be, colon > start, normal clear > normal, and
    > anatomy, no > scope, not > verb_not, show > shown"""
#: For each state of a sentence: the classes that may come next, and the state that follows.
_MOVES = {
    # nothing said yet
    "start": """yes > yes, seek > seek, the mod side comma and that with > start, seen done > bare_seen, no > no, none
        > none, nothing > nothing, not > bare_not, find evid > finding, anat > anatomy, adj > described, image >
        image, normal clear > normal, there > there, who > who, see > saw, in look > frame, show > shown, be >
        this_is, absent > tail""",
    "bare_seen": """seen mod side anat image > anatomy, adj > described, normal clear > normal, find evid > finding,
        no > scope""",
    "seek": """find evid anat image mod adj size side normal clear in or and comma that > seek, see seen > saw, no >
        scope, none > none, nothing > nothing, who > who, abn > seek_abnormal""",
    "seek_abnormal": "find > seek",
    "reviewed": """mod adj side anat image in look and done > reviewed, comma colon that > start, there > there, who >
        who, not > who_not, see seen > saw, no > scope, none > none, nothing > nothing""",
    "yes": "comma > start, there > there",
    "this_is": "be mod side > this_is, image > image, normal clear > normal",
    "frame": """mod adj image look in and seen done > frame, side anat > located, comma colon > start, no > scope,
        there > there, who > who, show > shown, none > none, nothing > nothing, not > who_not""",
    "located": """mod adj side image anat look in and or seen done > located, comma colon > start, no > scope, there >
        there, who > who, show > shown, none > none, nothing > nothing, be > anatomy_be, not > who_not""",
    "image": """image anat mod side in look and or seen done > image, comma colon that > start, show have > shown, be
        > image_be, not > verb_not, normal clear > normal, no > scope, with > start, find evid > finding""",
    "image_be": """be in mod > image_be, image > image, normal clear > normal, no > scope, done > provided, not >
        verb_not""",
    "provided": "comma and with > start, in > image, show > shown",
    "shown": """mod side colon > shown, image > image, no > scope, nothing > nothing, none > none, normal clear >
        normal, that > start, anat > anatomy""",
    "there": "be have > there_be, not > there_not",
    "there_not": "be > scope",
    "there_be": "be have > there_be, no not > scope, none > none, nothing > nothing, normal clear > normal",
    "who": """have > who, seek > seek, draw > drawn, look done > reviewed, see seen detected > saw, not > who_not, be
        > who_be, show > shown""",
    "drawn": "none > none, nothing > nothing, no > scope",
    "drawn_not": "find mod adj size side in anat > drawn_not_any",
    "drawn_not_any": "find mod anat word > drawn_not_any, in > place",
    "who_not": "be > who_not, draw > drawn_not, see seen detected show have > scope",
    "who_be": """in > frame, be > who_be, that > start, there > there, normal > normal, no > scope, image > image, not
        > who_not, anat > anatomy""",
    "saw": """no > scope, none > none, nothing > nothing, that > start, normal clear > normal, there > there, anat >
        anatomy""",
    "bare_not": "see > scope, seen detected > tail",
    "none": "seen detected > tail, be > found_be, in > place, colon > start",
    "nothing": "mod seen detected abn > nothing, mark > tail, like > scope, in > place, be > found_be",
    # behind a negation, in front of the finding that it denies
    "no": f"comma > start, adj > adjectives, {_SCOPE}",
    "scope": f"adj > adjectives, {_SCOPE}",
    "adjectives": f"adj > adjectives, comma > adjectives_on, {_SCOPE}",
    "adjectives_on": "adj > adjectives, or > scope",
    "evidence": "in like mod adj > scope, find > found, seen detected > tail, be > found_be",
    "odd": "mod adj word anat size side > odd, find > found, evid > odd_sign, detected > tail, be > label",
    "odd_sign": "in like mod adj > scope, find > found, seen detected mark > tail, be > found_be",
    "label": "word mod adj find be > label, detected > tail",
    "organ_be": "be have > organ_be, abn > normal",
    "organ": "be > organ_be, show have > scope, anat image mod adj size side or and > organ, find > found",
    "abnormal": """mod adj size side abn > abnormal, word > found_organ, or and > scope, anat image > found_organ,
        evid find > found, detected > tail""",
    # behind the finding: the scope goes on over "or", and over a list that ends with "or" or "and"
    "found": _FOUND,
    "found_organ": f"find > found, anat > found_organ, {_FOUND}",
    "found_be": "be have > found_be, in > place, seen detected > tail",
    "and": """mod > and, none > none, adj > described, no > scope, side the one with > start, anat > anatomy, image >
        image, there > there, who > who, normal clear > normal""",
    "comma": f"anat > item_organ, {_COMMA}",
    "placed_comma": f"anat > place_item, {_COMMA}",
    "place_item": f"comma > placed_comma, or > place_or, {_ITEM_ORGAN}",
    "item": "mod adj > item, find > listed, anat > item_organ, size > list_sized, side > sided",
    "item_organ": _ITEM_ORGAN,
    "listed": "comma > list, or > scope, and > last",
    "list": "mod adj anat > list, find > listed, size side > list_sized, or > scope, and > last",
    "last": "mod adj anat the skip size side > last, find > found",
    "sided": """mod adj side anat > sided, size > list_sized, find > sized_listed, be > anatomy_be, normal clear >
        normal""",
    "sized_listed": "comma > list_sized, or > scope",
    "list_sized": "mod size side anat > list_sized, find > sized_listed, or > scope",
    "place": "mod adj look seen done word > place, side anat image evid > placed",
    "placed": """side anat image > placed, in > place, be have > found_be, seen detected mark > tail, like > scope,
        comma > placed_comma, and > place_and, or > place_or, with the one > start, there > there""",
    "place_or": "mod adj > place_or, side anat image > placed, find > found",
    "place_and": """mod adj side > place_and, anat image > placed_and, no > scope, there > there, who > who, normal
        clear > normal, find > finding""",
    "placed_and": """anat image > placed_and, be > anatomy_be, normal clear > normal, comma > start, in > place, and >
        place_and""",
    "tail": """seen detected mark > tail, in > place, comma and with the that > start, like > scope, there > there, no
        > scope""",
    # a finding without a negation in front must be denied behind
    "finding": """find evid mod adj size side anat in and or > finding, be have > finding_be, not > finding_not,
        absent > tail, colon > finding_colon""",
    "finding_be": "be have > finding_be, not > finding_not, absent > tail",
    "finding_not": "be > finding_not, seen detected > tail",
    "finding_colon": "no none absent nothing normal > tail, not > finding_not",
    # anatomy must be called normal, or not abnormal
    "described": """anat evid mod adj side and or > described, comma > described_on, image > image, be have >
        anatomy_be, colon > start, normal clear > normal, not > verb_not""",
    "described_on": "adj > described",
    "anatomy": """anat evid image mod side in and or comma > anatomy, adj > described, be have > anatomy_be, colon >
        start, normal clear > normal, no > scope, show > shown, not > verb_not, find > finding""",
    "anatomy_be": "be in have > anatomy_be, normal clear > normal, no > scope, not > verb_not",
    "verb_not": "be > verb_not, abn > normal, show have > scope",
    "normal": """normal clear evid anat image mod adj side > normal, colon > start, in > normal_in, and > normal_and,
        comma with the one > start, no > scope, there > there, show > shown""",
    "normal_in": "word mod adj > normal_in, side anat image > normal",
    "normal_and": """normal clear > normal, mod adj side > normal_and, anat image > normal_anatomy, the one > start,
        no > scope, there > there, who > who""",
    "normal_anatomy": """anat mod adj side > normal_anatomy, be > anatomy_be, normal clear > normal, and > normal_and,
        comma with > start, in > normal_in, no > scope""",
}
#: Ends of a sentence that states a negative, and of one that states nothing: "PA and lateral views were obtained."
_STATED = frozenset(
    [
        "no",
        "none",
        "nothing",
        "found",
        "found_organ",
        "odd_sign",
        "tail",
        "placed",
        "placed_and",
        "normal",
        "normal_anatomy",
    ]
)
_FRAMING = frozenset(["image", "provided", "frame", "seek", "reviewed", "drawn_not_any"])
#: States in which no article or adverb may follow: what is "not fully seen" is seen.
_STRICT = frozenset(["odd", "label", "finding_not", "last"])


def _next_states() -> dict[tuple[str, str], str]:
    # Articles and words of the class `skip` may stand anywhere else.
    moves = {(state, name): state for state in _MOVES if state not in _STRICT for name in ("the", "one", "skip")}
    for state, row in _MOVES.items():
        for move in row.split(","):
            *names, _, target = move.split()
            moves |= {(state, name): target for name in names}
    # A finding of the class `kind` is one like any other, and may follow another.
    moves |= {(state, "kind"): target for (state, name), target in moves.items() if name == "find"}
    moves["found", "kind"] = "found"
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
    text = _EMPTY_LIST.sub(" none ", _TAG.sub(" ", unicodedata.normalize("NFKC", answer).casefold())).translate(
        _DECORATION
    )
    for written, meant in _CONTRACTIONS.items():
        text = text.replace(written, meant)
    text = re.sub(r"(?<=\w)-(?=\w)", " ", text.replace("'", " "))
    # "Fracture - none" is "Fracture: none".
    text = re.sub(r":[\s•–—-]+|\ [–—-]\ (?=(?:none|no|not|nil|absent|negative)\b)", ": ", text)
    return re.sub(r"[^\S\n]+", " ", text)


def _sentences(text: str) -> list[list[str]]:
    """The classes of the words, sentence by sentence; sentences without a word that counts are left out."""
    sentences: list[list[str]] = [[]]
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "stop":
            sentences.append([])
        else:
            sentences[-1].append(_word_class(token[0]) if token.lastgroup == "word" else str(token.lastgroup))
    return [classes for classes in sentences if set(classes) - {"skip", "comma", "the", "one"}]


def _word_class(word: str) -> str:
    if len(word) > MAX_WORD or not word.isascii():
        return "bad"
    american = word.replace("ae", "e").replace("oe", "e").replace("our", "or").replace("ise", "ize")
    for spelled in (word, american):
        singular = spelled.removesuffix("ies") + "y" if spelled.endswith("ies") else spelled
        for form in (spelled, spelled.removesuffix("s"), spelled.removesuffix("es"), singular):
            if form in _CLASS:
                return _CLASS[form]
    if _FINDING.fullmatch(word):
        return "find"
    if word.endswith("ically"):
        return "skip"
    if _ABNORMAL.fullmatch(word):
        return "abn"
    return "adj" if _ADJECTIVE.fullmatch(word) else "word"


def _read(classes: list[str]) -> str:
    """The state at the end of a sentence, the empty string where there was no move."""
    state = "start"
    for name in classes:
        state = _NEXT_STATE.get((state, name), "")
    return state
