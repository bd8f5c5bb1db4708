"""The model to be trained, as far as it is known: its box format, the size at which it sees images, its tokenizer."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grounding_rewards.doctor.rows import ImageRow
from grounding_rewards.images.resize import resized_size
from grounding_rewards.parsing import BoxFormat, get_box_format

#: Largest area of an image in pixels, assumed without a processor: 1280 patches of 28 x 28, a usual limit.
ASSUMED_MAX_PIXELS = 1280 * 28 * 28

# The pieces into which Qwen2's tokenizer first cuts a text (`pre_tokenizer` in tokenizer.json): a word with the mark or
# space before it, which is the group of the pattern; a single digit, a run of marks, line ends, spaces. Gemma and
# Llama 2 cut digits one by one too. A piece other than a word is one token.
_PIECES = re.compile(r"([^\r\n\w]?[^\W\d_]+)|\d| ?[^\s\w]+[\r\n]*|_+|\s*[\r\n]+|\s")
# Letters of a word in a token. Medical words are cut finely, "pleural" into three tokens; this is rather too few.
_LETTERS_PER_TOKEN = 3
# Tags such as <|box_start|>, which are single tokens in families whose special tokens decoding removes.
_TAG = re.compile(r"<\|?/?[a-z_]+\|?>")


@dataclass(frozen=True)
class Model:
    """The model to be trained, as far as it is known.

    Attributes:
        box_format: how it writes boxes; None takes the column `box_format`.
        processor: its `transformers` processor, for sizes and tokens; without it both are estimated.
        max_completion_length: tokens that a completion may have.
        name: its path or id; empty if it is not known.
    """

    box_format: BoxFormat | None = None
    processor: Any = None
    max_completion_length: int = 256
    name: str = ""

    def format_of(self, row: ImageRow) -> BoxFormat | None:
        """The box format for the answer to a row; None if it is missing or unknown."""
        if self.box_format is not None:
            return self.box_format
        name = row.columns.get("box_format")
        return None if name is None else _known_format(str(name))

    def resized(self, row: ImageRow) -> tuple[float, float] | None:
        """Width and height at which the model sees the image, by the row or the processor; None if neither says it."""
        if row.resized_size:
            return row.resized_size
        size = row.image_size or row.size
        if self.processor is None or size is None:
            return None
        try:
            return resized_size(self.processor, int(size[0]), int(size[1]))
        except ValueError:
            return None

    def seen_size(self, row: ImageRow) -> tuple[float, float]:
        """As :meth:`resized`, but with an assumed size instead of None; the size of the image must be known."""
        size = self.resized(row)
        if size is None:
            width, height = row.image_size or row.size or (1, 1)
            scale = min(1.0, math.sqrt(ASSUMED_MAX_PIXELS / (width * height)))
            size = max(1.0, round(width * scale)), max(1.0, round(height * scale))
        return size

    @property
    def counts_tokens(self) -> bool:
        """Whether there is a tokenizer; without one the number of tokens is an estimate."""
        return getattr(self.processor, "tokenizer", None) is not None

    def tokens(self, answer: str, box_format: BoxFormat) -> int:
        """Tokens of an answer, the end token included; an estimate without a tokenizer."""
        if not self.counts_tokens:
            return estimated_tokens(answer, box_format) + 1
        return len(self.processor.tokenizer(answer, add_special_tokens=False)["input_ids"]) + 1


@lru_cache(maxsize=64)
def _known_format(name: str) -> BoxFormat | None:
    """The box format of a name; None if there is none."""
    try:
        return get_box_format(name)
    except ValueError:
        return None


def estimated_tokens(answer: str, box_format: BoxFormat) -> int:
    """Estimate the tokens of an answer for a tokenizer that cuts digits one by one; rather too many than too few.

    Coordinate tokens, and tags that are special tokens of the family, count as one each. Tokenizers that keep up to
    three digits together, such as Llama 3's, need about two thirds: scripts/docs/measure_answer_tokens.py.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> estimated_tokens("[100, 1167]", get_box_format("qwen3-vl"))
        11
        >>> estimated_tokens("<loc0100><loc0200><loc0300><loc0400> mass", get_box_format("paligemma"))
        6
    """
    specials = [rf"<{re.escape(token)}\d+>" for token in box_format.syntax.tokens]
    if box_format.stripped != "nothing":
        specials.append(_TAG.pattern)
    # The texts between special tokens: one more than there are special tokens.
    texts = re.split("|".join(specials), answer) if specials else [answer]
    tokens = len(texts) - 1
    for text in texts:
        # `findall` gives the word, or an empty text for a piece that is no word.
        for word in _PIECES.findall(text):
            tokens += math.ceil(len(word.lstrip(" ")) / _LETTERS_PER_TOKEN) if word else 1
    return tokens
