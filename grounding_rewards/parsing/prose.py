"""Statements in words: that there is nothing to mark, and instructions that were echoed instead of answered.

The rules are in the spirit of NegEx and ConText (a negation covers what stands behind it until something ends its
scope; some phrases only look like negations), but they judge a *whole* answer: each of its clauses must deny
something, call something normal or state nothing, and at least one must do one of the first two. Three steps:

1. The tables of `radiology_words.py` give each word a class: `find`, `no`, `normal`, … Some endings do too
   ("-itis" is a finding, "-al" an attribute). Other words are `word`: nouns that no table holds. What turns a negation
   around ("no change", "no other", "may") is `bad`, and has no move in step 2.
2. `_MOVES` reads the classes of a sentence one by one. Where a state has no move for a class, the answer is no
   negative. Any noun may be denied, and anything but a finding called normal; outside of that an unknown noun has no
   move to the end of a sentence, as it may be a finding: one that passes for a negative is free reward, while a missed
   negative only misses a bonus.
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
    r"""\b(?: (?<!\bi\ )(?<!\bto\ )(?<!not\ )returns? | respond | reply | outputs?(?!\ ?:|\ is\b) | print | write
      | (?<!not\ )provide | (?<!'d\ )(?<!’d\ )(?<!would\ )(?<!happy\ to\ )(?<!pleased\ to\ )(?<!glad\ to\ )say
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

#: Words that repeat at once are a generation that got stuck.
_STUCK = re.compile(r"\b(?:([a-z]{2,30}(?: [a-z]{1,30})?) \1|[a-z]{0,30}([a-z]{5,15})\2)\b")
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
#: Forms of words that no list holds, by class; the first that fits counts.
_FORMS = {
    name: re.compile(form, re.VERBOSE)
    for name, form in {
        # "bronchiolitis", "silicosis", "mesothelioma"
        "find": r""".*(?:itis|osis|oma|omata|megaly|thorax|thoraces|ectasis|ectasia|opathy|edema|emia|ema|monia|plasia
            |trophy|listhesis|lysis|lithiasis|malacia|phyte|cele|rrhage|cephalus|titis|algia)s?""",
        # "osteopenic", "cirrhotic", "hypodense"; adverbs that turn around what follows: "asymmetrically", "poorly"
        "abn": r""".*(?:otic|itic|metastatic|ectatic|rrhagic|penic|ematous|trophic|dense|lucent|cystic|isch[ae]{1,2}mic)
            |(?:a(?:bn|sym|typ)|un(?!fort|ambig|equiv|iform|doubt|ilat)|in(?!div|tern|fer|tri|ci)|ir|mal|dis|sub(?!se)
            |hyper|hypo|poor|partial).*ly""",
        "skip": r".+ly",
        # adjectives: "periapical", "supracondylar", "intraductal"
        "mod": r".{2,}(?:al|ar|ic|ary|eal|ous|oid|less)",
        # what was done to something, or happened to it: "fractured", "unbroken"
        "past": r".{2,}[^e]ed|un.{2,}en",
        "ing": r".{3,}ing",
    }.items()
}

_TOKEN = re.compile(
    "".join(f"(?P<{name}>{pattern})|" for name, pattern in PHRASES.items())
    + r"(?P<comma>,)|(?P<num>\d+(?:\.\d+)?(?:\ ?(?:mm|cm|%))?(?!\w))|(?P<word>[^\W\d_]+)|(?P<sign>[^\s])",
    re.VERBOSE,
)

#: How a clause begins.
_CLAUSE = """no > no, none > none, nothing > nothing, not > not_first, normal > normal, form > formed, find kind abn
    > finding, anat mod seen past num > part, word > thing, image > image, there > there, who > who, see > saw, in of
    look > frame, seek > seek, show have > shown, absent > absent, be > this_is, that > start"""
#: What may come behind a clause that is whole: another one.
_NEXT = "comma and with > start, but > but, that > since, there > there, no > scope"
#: What may come behind something named that is no finding: what is said of it.
_SAID = """be > part_be, have show > shown, colon > part_colon, normal > normal, not > part_not, find kind abn >
    finding, nothing > nothing"""
#: What may come behind a finding that a negation denies.
_FOUND = f"""{_NEXT}, comma > comma, or like > scope, in look > place, of > place_of, be > found_be, have > found_has,
        seen mark
    past > tail, colon > start"""
#: What may come behind what is called normal.
_NORMAL = "colon > start, show have > shown, or and > normal_and, in of > normal_in, comma > normal_comma"
#: What may come behind a comma behind what is denied: another clause, or more of the list.
_COMMA = f"""{_CLAUSE}, {_NEXT}, no > no, find kind > listed, abn > big, anat > item_part, mod past word > item,
        that > start, the > comma_the, one > article, or > scope"""
#: What may come behind the first words of an item of such a list.
_ITEM = """mod abn word past > item, find kind > listed, anat > item_part, or > scope, and > last, comma > list,
        image > image, normal > normal"""
#: For each state of a sentence: the classes that may come next, and the state that follows; later ones count.
_MOVES = {
    "start": f"{_CLAUSE}, {_NEXT}, no > no, that yes > start, one > article",
    # "a rounded density" is there
    "article": f"{_CLAUSE}, form > asserted, one > article",
    # "however, a density projects over the rib" asserts it, whatever the noun and the verb
    # "not seen on one view but on the other"
    "but_in": """anat image mod word past num in of look > but_in, comma > start, no > scope, none > none, nothing >
        nothing, there > there, who > who""",
    "asserted": "comma > asserted",
    "but": f"{_CLAUSE}, {_NEXT}, no > no, that > start, comma > but, one > but_a, in > but_in",
    "but_a": "normal > normal, form > asserted, image > image, look > frame, mod > but_a",
    "since": f"{_CLAUSE}",
    "formed": "form mod and > formed, normal anat image > normal, word > thing, find kind abn > finding",
    # something is named: parts of the body, or what no table holds
    "part": f"""{_SAID}, anat mod seen or > part, num > part_num, that > part_that, word past > thing_of, image >
        image, in of > part_of, and >
        part_and, comma > part_comma, no > scope, with > part_with""",
    # a measure may be a finding: "aorta 5 cm, no dissection"
    "part_num": f"{_SAID}, anat mod seen num in of > part_num",
    "part_that": "be have > part_be",
    "part_of": f"""{_SAID}, anat image mod seen past num or in of word > part_of, and > part_and, comma > part_comma,
        no > scope, with > part_with""",
    "part_with": "no > scope, normal > normal, mod > part_with",
    "part_and": f"{_SAID}, anat mod seen past num image > part, word > thing, no > scope",
    "part_comma": f"""{_SAID}, that > part_that, no > scope, image > image, who > who, there > there, see > saw, none
        > nothing, and >
        part_and, anat mod seen num > part_list, past > thing_of""",
    "part_list": """image > image, anat mod seen num or in of > part_list, and > part_and, comma > part_comma, colon >
        part_colon""",
    "part_colon": f"{_CLAUSE}, form > normal, comma > part_colon",
    "part_be": """and be seen in of have mod that anat > part_be, num > measured, look > reviewed, seek > seek,
        normal > normal, no > part_no, not > part_not""",
    "part_no": """find kind > found, word > odd, past abn > part_denied, mod seen num of or like > scope, anat >
        organ, image > organ_in, anything nothing > nothing""",
    "part_denied": f"{_NEXT}, or > part_no, past abn > part_denied, anat word find kind evid > odd, in > normal_in",
    "measured": "normal > normal, num mod > measured, comma and that with > start, in > part_be",
    "reviewed": f"""{_NEXT}, be > part_be, comma > reviewed_on, not > not_first, and in of image mod anat or word num
        look > reviewed, see seen >
        saw, seek > seek, none > none, nothing > nothing, who > who""",
    "reviewed_on": f"{_CLAUSE}, ing > reviewed, anat mod num word > reviewed, and > start",
    "part_not": "be > part_not, draw > drawn_not, abn past > normal, show have see > scope",
    "thing": """see > drawn, be > thing_be, have show > thing_shown, colon > thing_colon, normal > normal, not >
        thing_not, absent
        > tail, word mod seen past num or > thing, anat > part, image > image, in of > thing_of, and > thing_and, find
        kind abn > finding""",
    "thing_of": """be > thing_be, have show > thing_shown, colon > thing_colon, not > thing_not, absent > tail, word
        mod seen past num or anat image in of > thing_of, and > thing_and, find kind abn > finding""",
    "thing_and": "word mod seen past num > thing, anat > part, find kind abn > finding",
    "thing_be": """seek > sought, no > thing_no, none absent excluded > tail, be seen in of have mod that anat >
        thing_be, normal >
        normal, not > thing_not""",
    "thing_shown": "mod > thing_shown, normal > normal, no > thing_no",
    "thing_no": "mod evid abn of seen > thing_no, find kind > found",
    "thing_not": "show have > thing_no, be > thing_not, abn > normal, seen > tail",
    "thing_colon": "comma > thing_colon, no > no, none absent nothing > tail, normal > normal, not > thing_not",
    # a finding without a negation in front must be denied behind
    "finding": """seek > finding, find kind abn mod anat word past seen image num in of and or > finding, comma >
        findings, be have >
        finding_be, not > finding_not, absent excluded > tail, colon > finding_colon""",
    "findings": "find kind abn mod anat word past image in of > findings, comma > findings_end, and or > finding",
    # "the object, a nodule, is not seen"
    "findings_end": """find kind abn mod anat word past image in of comma > findings, and or > finding, be have >
        finding_be, not > finding_not, absent > tail""",
    "finding_be": "seek > sought, be have > finding_be, not > finding_not, absent excluded none > tail",
    "finding_not": "be > finding_not, seen > tail",
    "finding_colon": "comma > finding_colon, no none absent nothing normal excluded > tail, not > finding_not",
    # the picture and how it was read
    "image": f"""{_SAID}, see > drawn, be > image_be, colon comma and > start, not > image_not, image anat mod word
        past in of or
        look seen num > image, no > scope, with > part_with, none > nothing, that > since""",
    "image_be": f"""{_NEXT}, seek > seek, be mod image word past seen in of num anat look > image_be, normal >
        normal, not > image_not, show > shown, none > none, nothing > nothing""",
    "image_not": "be > image_not, show have see > scope, mod word past > image_be",
    "shown": """be > part_be, mod num colon > shown, image > image, no > scope, none > none, nothing > nothing, normal
        > normal,
        that > since, anat > part""",
    "this_is": "be mod anat > this_is, image > image, normal > normal, there > asked, in of > part_be",
    "asked": "find kind abn mod anat word past in of or > asked, colon > finding_colon",
    "frame": """see > drawn, ing image > framed, mod seen past look num in of and or > frame, word anat > located,
        comma colon >
        start, no > scope, none > none, nothing > nothing, there > there, who > who, show > shown, that > since, seek >
        seek""",
    "framed": """see > drawn, be > this_is, image mod word seen past look num in of and or > framed, anat > located,
        comma colon >
        start, no > scope, none > none, nothing > nothing, there > there, who > who, show > shown, seek > seek""",
    "located": """see > drawn, mod word seen past look num in of and or image anat > located, comma colon > start, no
        > scope,
        none > none, nothing > nothing, there > there, who > who, have show > shown, be > part_be,
        normal > normal, not >
        part_not, seek > seek""",
    "sought": "be and but comma > sought, normal none > tail, not > finding_not",
    "seek": """be > sought, find kind abn anat image mod word past normal in of or look > seek,
        comma and that but > seek_on,
        colon > seek_colon, see seen > saw, no > scope, none > none, nothing > nothing, who > who, there > there""",
    "seek_colon": f"{_CLAUSE}, comma > seek_colon, no none absent nothing normal excluded > tail, not > finding_not",
    "seek_on": f"{_CLAUSE}, find kind abn mod past word > seek, seen > saw, and comma but > seek_on",
    # who answers
    "who": """image see seen > saw, have be > who_be, seek > seek, draw > drawn, look word past > reviewed, not >
        who_not, show > shown""",
    "who_be": """nothing > nothing, none > none, be mod past in of > who_be, that > since, there > there, comma and >
        start,
        normal > normal, image > image,
        anat > this_is, draw > drawn, see seen > saw, seek > seek, look > reviewed, not > who_not, no > scope""",
    "who_not": "be > who_not, see seen show have > scope, draw > drawn_not",
    "drawn": "no > scope, none > none, nothing > nothing",
    "drawn_not": "find kind mod anat image word in of and or num > drawn_not, comma > start, that > since",
    "saw": """that > since, no > scope, none > none, nothing > nothing, normal > normal, there > there, anat mod >
        part, image > image""",
    "there": "be have seen > there_be, not > there_not",
    "there_not": """be seen > there_not, find kind > found, word > odd, past abn > odd_part, mod num > scope, anat
        image > organ, anything > nothing""",
    "there_be": """be have seen > there_be, not > there_not, no > scope, none > none, nothing > nothing, normal >
        normal""",
    # behind a negation, in front of what it denies
    "no": """comma colon > start, find kind > found, word > odd, past abn > odd_part, mod seen num of or like > scope,
        anat
        > organ, image > organ_in, anything nothing > nothing""",
    "scope": """that > denied_that, comma > scope_on, find kind > found, word > odd, past abn > odd_part, mod seen num
        of or like and >
        scope, anat > organ, image > organ_in, anything nothing > nothing, mark > tail""",
    # "no sign that the tooth is infected"
    "denied_that": "anat mod word in of > denied_that, be have > denied_is",
    "denied_is": "be mod seen > denied_is, find kind > found, abn past > tail",
    "scope_on": "mod num or and > scope, abn past > odd_part, comma > scope_on",
    "odd_part": """of > place, in > place, abn past mod or and > odd_part, anat image word find kind evid > odd, seen
        mark > tail""",
    "odd": f"{_FOUND}, ing > odd_ing, word find kind mod anat image abn num > odd",
    "odd_ing": f"{_FOUND}, the > place, word find kind mod anat image abn num > odd",
    "organ": """like show have > scope, anat mod or and > organ, word find kind evid > odd, past abn > odd_part, be >
        organ_be, in of > organ_in""",
    "organ_in": "anat mod image in of seen > organ_in, find kind > odd, be > organ_be, show have > scope",
    "organ_be": "be have > organ_be, abn past > normal",
    # behind what is denied: the scope goes on over "or", and over a list that ends with "or" or "and"
    "found": f"{_FOUND}, kind mod word anat num > found, ing > place",
    "found_has": "be have > found_be, past > tail, in > place",
    "found_be": "be have > found_be, in of > place, seen > tail",
    "tail": f"{_NEXT}, seen mark > tail, in > place, of > place_of, or like > scope, colon > start",
    "place": "in of > place, mod word look seen past num anat image > placed, one > place_of",
    "place_of": """the > place, in of one > place_of, mod word look seen past num anat image > placed, find kind abn
        > odd""",
    "placed": f"""{_NEXT}, comma > place_comma, and > place_and, anat image mod word seen past num in of > placed, or >
        any_or, be have > found_be, mark > tail, like > scope, colon > start""",
    # "in the lungs, the pleura or the bones", or a clause of its own: "in the lungs, the heart is normal"
    "comma_the": f"{_CLAUSE}, {_NEXT}, anat mod > placed_list, one > article",
    "placed_list": f"""{_SAID}, anat mod seen num > placed_list, in of > part_of, comma > placed_comma, or > any_or, and
        > part_and, no > scope""",
    "placed_comma": f"{_SAID}, {_CLAUSE}, the > comma_the, anat mod > placed_list, or > any_or, and > part_and",
    "place_and": f"{_CLAUSE}, anat mod image > placed_and",
    "placed_and": f"{_SAID}, anat image mod > placed_and, in of > place, comma with > start, but > but",
    "any_or": "in > place, mod seen > any_or, anat image word > placed, find kind abn past > scope",
    "comma": _COMMA,
    "place_comma": f"{_COMMA}, mod seen > place_item",
    "big": "mod anat abn word past > big, find kind > big_listed",
    "big_listed": "kind anat mod word > big_listed, comma > big_list, or > scope",
    "big_list": "find kind mod anat abn word past > big_listed, or > scope",
    "item": _ITEM,
    # "in the upper, middle or lower zones"
    "place_item": f"{_ITEM}, or > place_or, comma > place_comma",
    "place_or": "mod seen of in > place_or, anat > placed, find kind > found, word > odd, abn past > odd_part",
    "item_part": """anat mod word > item_part, find kind > listed, be > part_be, colon > part_colon, normal > normal,
        not > part_not, no > scope, show have > shown, and > item_and, or > any_or, comma > item_comma, in of >
        part_of""",
    "item_and": "mod > item_and, anat > item_last, find kind abn past word > last, no > scope",
    "item_last": """anat mod > item_last, be > part_be, normal > normal, find kind word > odd, show have > shown, not
        > part_not""",
    "item_comma": """and > item_and, or > any_or, anat mod > item_part, normal > normal, find kind > listed, no >
        scope""",
    "listed": "comma > list, or > scope, and > last, find kind anat mod word > listed",
    "list": "mod anat word past find kind > listed, abn > big, or > scope, and > last",
    "last": "mod anat abn past the > last, find kind word > odd",
    "listed_only": "find kind mod abn anat word past comma and or > listed_only",
    "none": """show have > scope, seen mark > tail, be > found_be, of > none_of, in > place, colon comma and > start,
        but > but, or like >
        scope, there > there, that > since""",
    "none_of": "mod evid of seen > none_of, anat image > organ",
    "nothing": """mod seen abn past image > nothing, word > nothing_does, mark > tail, like > scope, in of > place,
        be > nothing_be, that > nothing_that, comma and > start, but > but""",
    "nothing_be": "be have > nothing_be, in of > place, seen abn past > tail",
    "nothing_that": "be seen who have look > nothing_that, like > scope, mark > tail, word past abn > nothing_does",
    "nothing_does": """one word past find kind abn mod anat > nothing_does, in of > place, be > found_be, comma and >
        start, but > but""",
    "not_first": "abn past > normal, seen > seen_not, see show have > scope, be > not_first",
    "seen_not": "colon > listed_only, in of > place, comma and > start, but > but",
    "absent": "mod > absent, colon > listed_only, find kind > tail",
    # something is called normal
    "normal": f"""{_NORMAL}, the > start, but > but, with > normal_with, that > since, there > there, no > scope, normal
        anat image mod word past seen num be > normal""",
    "normal_with": f"{_CLAUSE}, the > normal_in",
    "normal_in": f"{_NEXT}, {_NORMAL}, and or word mod anat image num seen past normal > normal_in, be > part_be",
    "normal_comma": f"{_CLAUSE}, {_NEXT}, no > no, anat mod num > normal_item, word > normal_thing, that > start",
    "normal_thing": """be > thing_be, colon > thing_colon, normal > normal, not > thing_not, word mod anat >
        normal_thing, or > normal_in, and > normal_and""",
    "normal_item": f"""{_SAID}, anat mod seen past num > normal_item, word > normal_thing, and > normal_and, or >
        normal_in, comma > normal_comma, in of > part_of, no > scope, image > image""",
    "normal_and": f"{_CLAUSE}, form image > normal, anat > normal_part, mod > normal_and, of be > part_be",
    "normal_part": f"""{_NORMAL}, anat mod > normal_part, word > thing, be > part_be, normal > normal, not >
        part_not, no > scope, with > start, but > but, find kind abn > finding""",
}
#: Ends of a sentence that states a negative, and of one that states nothing: "PA and lateral views were obtained."
_STATED = frozenset(
    [
        "found",
        "listed_only",
        "none",
        "normal",
        "normal_in",
        "normal_part",
        "nothing",
        "nothing_does",
        "odd",
        "odd_ing",
        "part_denied",
        "placed",
        "placed_and",
        "seen_not",
        "tail",
    ]
)
_FRAMING = frozenset(["drawn_not", "framed", "image", "image_be", "reviewed", "seek"])
#: States in which no article may follow: one in the middle of a noun phrase stands behind a verb.
_STRICT = frozenset(
    ["finding_not", "found", "image_not", "last", "normal", "not_first", "nothing_does", "odd", "odd_ing"]
)
#: States in which no adverb may follow: what is "not fully seen" is seen.
_EXACT = frozenset(["finding_not", "thing_not"])
#: What a lesion may be, have or lack, so that it tells nothing of something unknown.
_OF_LESIONS = frozenset(["form", "trait", "feature"])


def _next_states() -> dict[tuple[str, str], str]:
    # Articles and words of the class `skip` may stand anywhere else.
    moves = {(state, name): state for state in _MOVES if state not in _STRICT for name in ("the", "one")}
    moves |= {(state, "skip"): state for state in _MOVES if state not in _EXACT}
    for state, row in _MOVES.items():
        for move in row.split(","):
            *names, _, target = move.split()
            moves |= {(state, name): target for name in names}
    # Words that differ only in one state: "region" is an attribute elsewhere, "marked" means seen.
    for special, usual in (
        ("form", "normal"),
        ("feature", "find"),
        ("trait", "abn"),
        ("ing", "word"),
        ("evid", "mod"),
        ("done", "mod"),
        ("draw", "seen"),
    ):
        moves = {
            (state, special): target
            for (state, name), target in moves.items()
            if name == usual and not (special in _OF_LESIONS and state.startswith("thing"))
        } | moves
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
    if _STUCK.search(text):
        return False
    clauses = Counter(map(str.strip, re.split(r"[.,;!\n]", text)))
    if any(count > MAX_REPEATS for clause, count in clauses.items() if clause):
        return False
    paths = [_read(sentence) for sentence in _sentences(text)]
    return all(path[-1] in _STATED | _FRAMING for path in paths) and any(map(_STATED.intersection, paths))


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
    return next((name for name, form in _FORMS.items() if form.fullmatch(word)), "word")


def _read(classes: list[str]) -> list[str]:
    """The states that a sentence goes through, the empty string at the end where there was no move."""
    states = ["start"]
    for name in classes:
        states.append(_NEXT_STATE.get((states[-1], name), ""))
    return states
