"""What a completion says in words when there is nothing to find, and instructions that it echoes instead of answering.

There is no grammar of English here. A whole answer is a no-finding statement if each of its sentences is one of

* a short list, the `sentences` of `no_finding.toml`: "No finding.", "None.", "Within normal limits.";
* a denial of findings, each of which stands in the vocabulary of labels: "No effusion or pneumothorax.", "There is no
  evidence of fracture.", "Pneumothorax: none.", "Pleural effusion is not seen.";
* a normal structure: "The lungs are clear.", "Heart size is normal.";
* one that the user declared.

Any other word leaves the answer undeclared. Denying what is no finding never counts, because rules that guess leak:
"No excretion from the left kidney" is a disease. A statement that passes wrongly is free reward on every image, while
one that is missed costs a bonus, and a model learns the declared form at once.
"""

import re
import unicodedata
from collections.abc import Collection
from functools import cache, lru_cache
from itertools import dropwhile

from grounding_rewards.common.text_files import packaged_tables
from grounding_rewards.labels import anatomy, normalize_label

#: A longer text is a report or a ramble, not a statement.
MAX_STATEMENT = 2000

_TABLES = packaged_tables("grounding_rewards.parsing", "no_finding.toml")
_PATTERNS: dict[str, str] = _TABLES.pop("patterns")
_WORDS = {
    name: frozenset(filter(None, map(str.strip, re.split(r"[|\n]" if "|" in text else r"\s+", text))))
    for name, text in _TABLES.items()
}
_ALTERNATIVES = {name: "|".join(sorted(words, key=len, reverse=True)) for name, words in _WORDS.items()}

SENTENCES = _WORDS["sentences"]
_PLACES = _WORDS["places"]
_FINDINGS = _WORDS["findings"] | _WORDS["headings"]
_FRAME = _PLACES | _WORDS["frame"]


_REGEX = {
    name: re.compile(pattern % _ALTERNATIVES, re.VERBOSE | re.IGNORECASE if name in ("instruction", "command") else 0)
    for name, pattern in _PATTERNS.items()
}

# Joints that a list of findings may have.
_LONGEST_LIST = 12
_DECORATION = str.maketrans({**dict.fromkeys('*_`"#<>|\\[]{}$~•', " "), "(": ",", ")": ","})
_CONTRACTIONS = {"’": "'", "can't": "can not", "n't": " not", "there's": "there is", "it's": "it is"}


def states_nothing(answer: str, declared: Collection[str] = ()) -> bool:
    """Whether the answer says in a declared way that there is nothing to find.

    Args:
        answer: the whole answer, without thinking and fences.
        declared: sentences of the user's own; case and full stops do not matter.

    Example:
        >>> states_nothing("There is no pneumothorax. The lungs are clear.")
        True
        >>> states_nothing("No change in the left effusion."), states_nothing("No red reflex.")
        (False, False)
        >>> states_nothing("Nichts zu sehen.", ["nichts zu sehen"])
        True
    """
    return len(answer) <= MAX_STATEMENT and not echoes_prompt(answer) and _says_nothing(answer, tuple(declared))


# Cached, because models say the same over and over.
@lru_cache(maxsize=4096)
def _says_nothing(answer: str, declared: tuple[str, ...]) -> bool:
    """Whether every sentence of an answer says that there is nothing, or introduces a sentence that does."""
    text = _normalize(answer)
    declared_sentences = frozenset(_normalize(sentence).strip(" .") for sentence in declared)
    if _REGEX["chinese"].fullmatch(text.strip(" .。")) or text.strip(" .") in declared_sentences:
        return True
    sentences = list(filter(None, (sentence.strip(" .,:") for sentence in re.split(r"[.;!\n]+(?:\s|$)", text))))
    # A sentence that is said three times is a generation that got stuck.
    if any(sentences.count(sentence) > 2 for sentence in sentences):
        return False
    verdicts = [sentence in declared_sentences or _judge(sentence) for sentence in sentences]
    # A sentence without a verdict may introduce a statement; behind the statement it may say where something is.
    verdicts = list(dropwhile(lambda verdict: verdict is None, verdicts))
    return bool(verdicts) and all(verdicts)


@lru_cache(maxsize=4096)
def asserts_finding(text: str) -> bool:
    """Whether words say that there is a finding, by a verb, a side or a size: its name alone does not.

    Example:
        >>> asserts_finding("There is a mass."), asserts_finding("large left effusion")
        (True, True)
        >>> asserts_finding("No mass is seen."), asserts_finding("effusion"), asserts_finding("left lung")
        (False, False, False)
    """
    for clause in _REGEX["clause_end"].split(_normalize(text[:MAX_STATEMENT])):
        clause = clause.strip(" ,:")
        if not _REGEX["asserts"].search(clause) or _REGEX["denies"].search(clause):
            continue
        words = re.findall(r"[\w/-]+", clause)
        # The name of a finding has four words at most.
        for start in range(len(words)):
            for end in range(start + 1, start + 5):
                phrase = words[start:end]
                if _is_named(phrase) and " ".join(phrase) not in _WORDS["headings"]:
                    return True
    return False


def echoes_prompt(answer: str) -> bool:
    """Whether the answer reads like an instruction: then a negative in it is quoted, not stated.

    Example:
        >>> echoes_prompt("If there is no finding, return 'No Objects'.")
        True
    """
    return _instructs(answer[:MAX_STATEMENT])


@lru_cache(maxsize=4096)
def _instructs(words: str) -> bool:
    """Whether words hold what prompts say and answers do not, such as "if there is no"."""
    return _REGEX["instruction"].search(words) is not None


def gives_instructions(around: str) -> bool:
    """Whether the words around an answer are instructions, rather than an introduction to it.

    Example:
        >>> gives_instructions("If there is none, output"), gives_instructions("So I will output:")
        (True, False)
    """
    return _REGEX["command"].search(around, 0, MAX_STATEMENT) is not None


def _normalize(answer: str) -> str:
    """The text in lower case, without tags, quotes, emphasis, brackets, contractions and repeated blanks."""
    text = _REGEX["tag"].sub(" ", unicodedata.normalize("NFKC", answer).casefold()).translate(_DECORATION)
    for contraction, words in _CONTRACTIONS.items():
        text = text.replace(contraction, words)
    text = re.sub(r"(?<=\w)-(?=\w)", " ", text.replace("'", " ").replace("n/a", "na"))
    # What begins an item of a list, "- " or "1. ".
    text = re.sub(r"(?m)^\s*(?:[-–—]|\d\.)\s", "", text)
    # A fence ```json lost its backquotes above, and loses its language here.
    return re.sub(r"[^\S\n]+", " ", text).strip().removeprefix("json").strip()


def _judge(sentence: str) -> bool | None:
    """Whether a sentence says that there is nothing; None for one that only introduces what follows.

    It does if it can be cut into clauses that introduce or say so: "on this view, the lungs are clear, with no
    effusion, edema or mass". A list of findings is one clause, of :data:`_LONGEST_LIST` joints at most.
    """
    if "?" in sentence or sentence.rpartition(" ")[2] in _WORDS["unfinished"]:
        return False
    # The sentence falls into parts at its joints, such as ", "; a clause is one part or several in a row. All ways to
    # cut it into clauses are tried together, from its first part to its last.
    joints = list(_REGEX["joint"].finditer(sentence))
    part_starts = [0, *(joint.end() for joint in joints)]
    part_ends = [*(joint.start() for joint in joints), len(sentence)]
    # What the first k parts say, by k: True that there is nothing; None that they introduce. A k is missing where its
    # parts cannot be cut into clauses that do so. No part at all says nothing yet.
    verdicts: dict[int, bool | None] = {0: None}
    for first_part, start in enumerate(part_starts):
        if first_part not in verdicts:
            continue
        before = verdicts[first_part]
        for last_part in range(first_part, min(first_part + _LONGEST_LIST, len(part_ends))):
            verdict = _judge_clause(sentence[start : part_ends[last_part]])
            # An introduction stands before a clause that says so; behind one it may be where a finding is.
            if verdict or (verdict is None and before is None):
                verdicts[last_part + 1] = verdicts.get(last_part + 1) or verdict or before
    return verdicts.get(len(part_ends), False)


def _judge_clause(clause: str) -> bool | None:
    """Whether a clause says that there is nothing to find; None for one that only introduces the next clause."""
    # "json" is left of a fence whose marks `_normalize` has taken out.
    words = clause.removeprefix("the ").removeprefix("json ")
    if words in SENTENCES or re.sub(rf" (?:{_ALTERNATIVES['seen']})$", "", words) in SENTENCES:
        return True
    # `_FRAME`: words of introductions and places.
    if _FRAME.issuperset(re.findall(r"\w+", words)):
        return None
    frame, colon, content = words.partition(": ")
    if colon and _FRAME.issuperset(frame.split()):
        return _judge_clause(content)
    return _is_denial(words) or _is_normal(words)


def _is_normal(words: str) -> bool:
    """Whether parts of the body or of an image, and nothing else, are called normal."""
    other_words, normal_count = _REGEX["normality"].subn(" ", words)
    if not normal_count:
        return False
    # "The image is clear" speaks of how sharp it is, and "not normal" denies it.
    if re.search(r"\b(?:image|answer|it) (?:is|looks) clear", words) or re.search(r"\bnot?\b", other_words):
        return False
    # What is left, apart from adverbs, may only be places and words that introduce.
    return _FRAME.issuperset(re.findall(r"\w+", _REGEX["adverbs"].sub(" ", other_words)))


def _is_denial(words: str) -> bool:
    """Whether findings are denied, before or behind their names: "no effusion", "effusion is not seen"."""
    # "effusion is not seen in the left lung": behind the denial there may be places alone.
    denial_behind = _REGEX["absent"].search(words)
    if denial_behind and _PLACES.issuperset((denial_behind["place"] or "").split()):
        return _are_findings(words[: denial_behind.start()])
    # "no effusion", but not "is no effusion", which denies something named before.
    denial_before = _REGEX["denied"].match(words)
    if denial_before is None or re.match("(?:is|are|was|were) ", words):
        return False
    # What is said before the denial must be an introduction, such as "the image shows".
    if not _FRAME.issuperset(re.findall(r"\w+", denial_before["frame"])):
        return False
    return _are_findings(words[denial_before.end() :])


def _are_findings(text: str) -> bool:
    """Whether a text is a list of findings, perhaps with places, or with "seen" and the like at its end."""
    text = _REGEX["seen_behind"].sub("", text)
    # "a, b or c" is ["a, b", "c"]: only the last alternative stands behind an "or".
    alternatives = re.split(r",? (?:and|or|nor) (?:no )?|, no |/", text)
    # "No effusion, edema" and "no effusion and a mass" assert the last; "no effusion, edema or mass" denies it.
    if "," in alternatives[-1] or re.search(r",? and an? ", text):
        return False
    return all(_is_finding(name) for names in alternatives for name in names.split(", "))


@cache
def _is_finding(text: str) -> bool:
    """Whether words are a finding, after modifiers and before places.

    Example:
        >>> _is_finding("evidence of pleural effusion on the left"), _is_finding("red reflex")
        (True, False)
    """
    words = text.split()
    for start, word in enumerate(words):
        # The longest name first, of five words at most.
        for end in range(min(len(words), start + 5), start, -1):
            if _is_named(words[start:end]) and _PLACES.issuperset(words[end:]):
                return True
        # The name may begin later only behind a modifier, such as "small".
        if word not in _WORDS["modifiers"]:
            return False
    return False


def _is_named(words: list[str]) -> bool:
    """Whether words are the name of a finding, in the singular or the plural, and nothing else."""
    name = " ".join(words)
    if name.endswith("ies"):
        singular = name[:-3] + "y"
    elif name.endswith(("sses", "xes")):
        singular = name[:-2]
    else:
        singular = name.removesuffix("s")
    if {name, singular} & _FINDINGS:
        return True
    # The vocabulary of labels; a part of the body is no finding.
    label = normalize_label(singular)
    if not label.known:
        label = normalize_label(name)
    return label.known and label.name not in anatomy() and "normal" not in words and "clear" not in words
