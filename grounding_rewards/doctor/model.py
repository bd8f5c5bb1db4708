"""What is known of the model that will be trained: its box format, the size at which it sees films, its tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grounding_rewards.data.checks import is_size
from grounding_rewards.data.raw_rows import FilmRow
from grounding_rewards.data.resize import has_resized_size, resized_size
from grounding_rewards.parsing import BoxFormat, get_box_format

#: Characters that a token stands for in answers full of digits, where no tokenizer is given.
CHARACTERS_PER_TOKEN = 3.5
#: The area that films are brought to where neither a model nor columns say: 1280 patches of 28 x 28, a usual limit.
ASSUMED_MAX_PIXELS = 1280 * 28 * 28


@dataclass(frozen=True)
class Model:
    """What is known of the model that will be trained.

    Attributes:
        box_format: how it writes boxes; None takes the rows' column.
        processor: its `transformers` processor, which resizes films and counts tokens; None makes assumptions.
        max_completion_length: tokens that it may write.
    """

    box_format: BoxFormat | None = None
    processor: Any = None
    max_completion_length: int = 256

    def format_of(self, row: FilmRow) -> BoxFormat | None:
        """The box format of the answer to a row; None where it is not given or unknown."""
        name = row.columns.get("box_format")
        return self.box_format or (None if name is None else _known_format(str(name)))

    def resized(self, row: FilmRow) -> tuple[float, float] | None:
        """Width and height of the film as the model gets it, by the row or the processor; None where neither says."""
        if own := own_resized_size(row):
            return own
        fed = row.image_size or row.size
        if self.processor is None or fed is None:
            return None
        if has_resized_size(self.processor):
            try:
                return resized_size(self.processor, int(fed[0]), int(fed[1]))
            except ValueError:
                return None
        fixed = getattr(getattr(self.processor, "image_processor", self.processor), "size", None) or {}
        # A processor with a fixed size squeezes every film into it.
        return (fixed["width"], fixed["height"]) if "width" in fixed and "height" in fixed else None

    def seen_size(self, row: FilmRow) -> tuple[float, float]:
        """Width and height of a film of known size as the model gets it; assumed where :meth:`resized` is None."""
        size = self.resized(row)
        if size is None:
            width, height = row.image_size or row.size or (1, 1)
            scale = min(1.0, math.sqrt(ASSUMED_MAX_PIXELS / (width * height)))
            size = max(1.0, round(width * scale)), max(1.0, round(height * scale))
        return size

    @property
    def counts_tokens(self) -> bool:
        """Whether there is a tokenizer; else the number of tokens is estimated."""
        return getattr(self.processor, "tokenizer", None) is not None

    def tokens(self, answer: str) -> int:
        """Tokens of an answer, with the one that ends it."""
        if not self.counts_tokens:
            return math.ceil(len(answer) / CHARACTERS_PER_TOKEN) + 1
        return len(self.processor.tokenizer(answer, add_special_tokens=False)["input_ids"]) + 1


def own_resized_size(row: FilmRow) -> tuple[float, float] | None:
    """The columns `resized_width` and `resized_height` of a row; None where they hold no size.

    >>> own_resized_size(FilmRow("train", 0, {"resized_width": 28, "resized_height": 56}))
    (28, 56)
    """
    size = row.columns.get("resized_width"), row.columns.get("resized_height")
    return size if all(map(is_size, size)) else None  # type: ignore[return-value]


@lru_cache(maxsize=64)
def _known_format(name: str) -> BoxFormat | None:
    try:
        return get_box_format(name)
    except ValueError:
        return None
