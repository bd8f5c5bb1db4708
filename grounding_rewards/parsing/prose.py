"""Statements in words: that there is nothing to mark, and instructions that were echoed instead of answered.

The rules are few and anchored: a sentence states a negative when it *begins* with one ("No effusion is seen", "There
is no ...", "The film shows no ...", "I can't find any ...") or says normal in a fixed phrase ("unremarkable", "clear
of any lesions"). A text states a negative when each of its sentences does. What only sounds negative ("no change in
the effusion", "cannot rule out", "no effusion, but a mass") is listed in `_NOT_NEGATIVE`.
"""

from __future__ import annotations

import re

#: A longer text is a report or a ramble, not a statement.
MAX_STATEMENT = 2000
#: A longer word is a generation that got stuck. The longest in the trade, lymphangioleiomyomatosis, has 24 letters.
MAX_WORD = 30

_WHOLE_ANSWERS = frozenset(
    [
        *("none", "null", "nil", "nothing", "no", "n/a", "nad", "normal", "negative", "empty", "absent"),
        *("clear", "all clear"),
        *("no object", "no objects", "no box", "no boxes", "no bounding box", "no bounding boxes"),
        *("no finding", "no findings", "no lesion", "no lesions", "no abnormality", "no abnormalities"),
        *("not found", "not present", "not visible", "not detected"),
    ]
)

_INSTRUCTION = re.compile(
    r"""\b(?: returns? | respond | reply | outputs? | print | write | provide | say
      | answer\ (?:with|only|in|using) | your\ answer | (?:the\ following|in\ the|this)\ format
      | if\ (?:there|no|none|nothing|not|you|the|it|any|an?)
      | [xy]_?(?:1|2|min|max) )\b""",
    re.VERBOSE | re.IGNORECASE,
)

_NEGATIVE = re.compile(
    r"""(?: # "Impression: ...", "Based on the image, ..."
        (?:yes|sorry|overall|in\ (?:summary|conclusion)|conclusion|impression|findings?|answer|result)\s?[:,]\s?
      | (?:based\ on|after|in|on|upon)\ (?:[\w-]+\ ){0,6}[\w-]+,[ ]
    )?(?:
      # "no ...", "there is no ...", "I see no ...", "the film shows no ...", "the lungs have no ..."
      (?: there\ (?:is|are|was|were|(?:appear|seem)s?\ to\ be)\ (?:currently\ )?
        | (?:i|we)\ (?:can\ )?(?:see|saw|find|found|detect|detected|observe|observed|identify|identified)[ ]
        | (?:the|this|these|both)\ (?:[\w-]+\ ){1,6}?
          (?: (?:show|reveal|demonstrate|contain|display|exhibit|indicate|present|suggest)(?:s|ed)?
            | has | have | had | is | are | with )[ ]
      )?
      (?:that\ there\ (?:is|are)\ )?(?:no|none|nothing|without|not\ any|neither|zero)\b
    | there\ (?:is|are|was|were)n't\ any\b
      # "I can't find any ...", "the film does not show any ..."
    | (?:(?:i|we|it|the|this|one)\ (?:[\w-]+\ ){0,6}?)?
      (?:can(?:\ ?not|'?t)|(?:could|do|does|did|was|were|am|is|are)(?:\ not|n'?t)|unable\ to|failed\ to)[ ]
      (?:able\ to\ )?(?:find|see|detect|identify|locate|observe|show|reveal|demonstrate|contain|have|visuali[sz]e)[ ]
      (?:any|an?|evidence|signs?)\b
      # "... is unremarkable", "the lungs are clear", "... free of ..."
    | (?:[\w'/-]+\ ){0,10}?
      (?: (?:clear|free|devoid)\ of | clean\ bill\ of\ health | unremarkable | within\ normal\ limits
        | negative\ for | absence\ of
        | (?:is|are|was|were|(?:appear|look|seem)s?)\ (?:to\ be\ )?
          (?:(?:entirely|completely|grossly|well[\ -](?:expanded|aerated|inflated)\ and)\ )?
          (?:normal|clear|healthy|intact)
        | (?:is|are|was|were)\ (?:not\ (?:seen|present|visible|detected|identified|found|observed)|absent) )\b
      # "Lungs clear."
    | (?:lungs?(?:\ fields)?|heart(?:\ size)?|mediastinum)\ (?:clear|normal)$
      # "normal chest film"
    | (?:(?:this|it)\ is\ )?(?:a\ )?(?:normal|healthy|clear|negative)\ (?:[\w-]+\ ){0,2}?
      (?:chest|lungs?|film|image|study|exam(?:ination)?|x-?ray|radiograph|scan|cxr)\b
    )""",
    re.VERBOSE,
)

_NOT_NEGATIVE = re.compile(
    r"""\b(?: but | however | except | although | though | (?:other|rather)\ than | (?:apart|aside)\ from | besides
      | whereas | yet | unchanged | exclude[ds]? | rul(?:e|ed|ing)\ out | possibl[ey] | probabl[ey] | likely
      | (?<!no\ )(?<!any\ )(?<!of\ )suspicious | suspected | may | might | could\ be | located\ at
      | not\ (?:normal|clear|free|unremarkable)
      | (?:no|without|any)\ (?:[\w-]+\ )?
        (?:changes?|decrease|difference|doubt|longer|improvement|resolution|progression)
      | (?:no|without)\ (?:further|additional|other|new|more|less|fewer|prior|previous)
      # a finding after the negative: "no effusion and a mass", "the lungs are clear, there is a mass"
      | there\ (?:is|are)\ (?!(?:currently\ )?(?:no|not|none|nothing|neither|zero|without|clear|normal)\b|an?\ absence)
      | (?:and|with|no,)\ an?\ (?!normal|healthy|clear) | (?:is|are)\ enlarged
      | (?:,|and|with)\ (?:stable|chronic|enlarged|mild|moderate|severe|large)\b(?!.*\bor\b)
      # what is missing is healthy: "no normal lung", "none of the lobes is clear", "no lung markings"
      | (?:no|none|neither|nothing|zero)\ (?:(?!and\b|or\b|with\b)[\w-]+\ ){0,4}?(?:normal|healthy|aerated|markings)
      | (?:no|none|neither|nothing|zero)\ (?:(?!and\b|or\b|with\b)[\w-]+\ ){1,5}?(?:clear|spared)
      | clear\ (?:evidence|that|there)
      # about another film
      | previously | (?:on|in)\ (?:the\ )?(?:prior|previous|last|earlier)
      # about the question instead of the film: "no idea", "no image was provided", "nothing comes to mind"
      | (?:no|without|any|an?|the)\ (?:answer|clue|comment|context|idea|information)
      | (?:no|without|any|an?|the)\ (?:need|problem|question|reply|response|way)
      | (?:no|any|an?)\ (?:attachment|film|file|image|photo|picture|radiograph|scan|x-?ray)
      | of\ the\ above | (?:come|comes|came)\ to\ mind | know | say | tell | sure | unsure | uncertain )\b""",
    re.VERBOSE,
)

#: "Pneumothorax: absent"
_HEADING = re.compile(r"(?:[\w/-]+ ){0,2}[\w/-]+: ")
_FENCE = re.compile(r"```(?:json)?")
_TAG = re.compile(r"<[^<>]{0,40}>")
_SENTENCE_END = re.compile(r"(?<=[.!?;。])\s+|\n+")
_AROUND = " \t\r\n.!\"'`[](){}*:,。"


def states_nothing(answer: str) -> bool:
    """Whether the answer says in words that there is nothing to mark.

    >>> states_nothing("There is no pneumothorax. The lungs are clear.")
    True
    >>> states_nothing("No change in the left effusion.")
    False
    """
    if len(answer) > MAX_STATEMENT or echoes_prompt(answer):
        return False
    text = _TAG.sub(" ", _FENCE.sub(" ", answer)).replace("’", "'").casefold().strip(_AROUND)
    text = text.removeprefix("json\n").strip(_AROUND)
    if text in _WHOLE_ANSWERS:
        return True
    sentences = [sentence.strip(_AROUND).split() for sentence in _SENTENCE_END.split(text)]
    return any(sentences) and all(_is_negative(words) for words in sentences if words)


def echoes_prompt(answer: str) -> bool:
    """Whether the answer reads like an instruction: then a negative in it is quoted, not stated.

    >>> echoes_prompt("If there is no finding, return 'No Objects'.")
    True
    """
    return _INSTRUCTION.search(answer, 0, MAX_STATEMENT) is not None


def _is_negative(words: list[str]) -> bool:
    if max(map(len, words)) > MAX_WORD:
        return False
    sentence = " ".join(words)
    heading = _HEADING.match(sentence)
    if heading and sentence[heading.end() :] in _WHOLE_ANSWERS:
        return True
    return _NEGATIVE.match(sentence) is not None and _NOT_NEGATIVE.search(sentence) is None
