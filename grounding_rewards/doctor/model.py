"""What is known of the model to be trained: its box format, the size at which it sees images, its tokenizer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grounding_rewards.doctor.answer_length import estimated_tokens
from grounding_rewards.doctor.raw_rows import ImageRow
from grounding_rewards.images.resize import resized_size
from grounding_rewards.parsing import BoxFormat, get_box_format

#: Largest area of an image in pixels, assumed without a processor: 1280 patches of 28 x 28, a usual limit.
ASSUMED_MAX_PIXELS = 1280 * 28 * 28


@dataclass(frozen=True)
class Model:
    """What is known of the model to be trained.

    Attributes:
        box_format: how it writes boxes; None takes the column `box_format`.
        processor: its `transformers` processor, for sizes and tokens; without it both are estimated.
        max_completion_length: tokens that a completion may have.
        name: its path or id; empty where it is not known.
    """

    box_format: BoxFormat | None = None
    processor: Any = None
    max_completion_length: int = 256
    name: str = ""

    def format_of(self, row: ImageRow) -> BoxFormat | None:
        """The box format for the answer to a row; None if it is missing or unknown."""
        name = row.columns.get("box_format")
        return self.box_format or (None if name is None else _known_format(str(name)))

    def resized(self, row: ImageRow) -> tuple[float, float] | None:
        """Width and height at which the model sees the image, by the row or the processor; None if neither says."""
        if row.resized_size:
            return row.resized_size
        fed = row.image_size or row.size
        if self.processor is None or fed is None:
            return None
        try:
            return resized_size(self.processor, int(fed[0]), int(fed[1]))
        except ValueError:
            return None

    def seen_size(self, row: ImageRow) -> tuple[float, float]:
        """As :meth:`resized`, but an assumption in place of None; for images of known size."""
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
    try:
        return get_box_format(name)
    except ValueError:
        return None
