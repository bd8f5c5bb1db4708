"""How many tokens an answer takes, without its model's tokenizer."""

from __future__ import annotations

import math
import re

from grounding_rewards.parsing import BoxFormat

# The pieces into which Qwen2's tokenizer cuts a text before it merges anything (`pre_tokenizer` in tokenizer.json): a
# word with the mark or space before it, a single digit, a run of marks, line ends, spaces. Gemma and Llama 2 cut digits
# one by one too. A piece other than a word is one token.
_PIECES = re.compile(r"([^\r\n\w]?[^\W\d_]+)|\d| ?[^\s\w]+[\r\n]*|_+|\s*[\r\n]+|\s")
# Letters of a word that are a token: medical words are cut finely, "pleural" into three. Rather too few.
_LETTERS_PER_TOKEN = 3
# Tags that are tokens of their own where decoding without special tokens loses them.
_TAG = re.compile(r"<\|?/?[a-z_]+\|?>")


def estimated_tokens(answer: str, box_format: BoxFormat) -> int:
    """How many tokens an answer takes for a tokenizer that cuts digits one by one; rather too many than too few.

    Coordinate tokens, and tags that are special tokens of the family, count as one each. Tokenizers that keep up to
    three digits together, such as Llama 3's, need about two thirds. Measured by `scripts/measure_answer_tokens.py`.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> estimated_tokens("[100, 1167]", get_box_format("qwen3-vl"))
        11
        >>> estimated_tokens("<loc0100><loc0200><loc0300><loc0400> mass", get_box_format("paligemma"))
        6
    """
    whole = [rf"<{re.escape(token)}\d+>" for token in box_format.syntax.tokens]
    if box_format.stripped != "nothing":
        whole.append(_TAG.pattern)
    parts = re.split("|".join(whole), answer) if whole else [answer]
    return len(parts) - 1 + sum(map(_pieces, parts))


def _pieces(text: str) -> int:
    # A word, or an empty text for any other piece.
    return sum(math.ceil(len(word.lstrip(" ")) / _LETTERS_PER_TOKEN) if word else 1 for word in _PIECES.findall(text))
