"""A box format as a value: how one model family writes boxes in text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grounding_rewards.boxes import CoordinateSpace
from grounding_rewards.parsing.results import Findings, RawBoxes


class Syntax(NamedTuple):
    """How boxes stand in text; shared by all families that write them alike.

    quick: reads a text that is nothing but plain, complete syntax, and returns None for any other. Only there for
        speed: on what it reads, `scan` gives the same.
    scan: reads boxes out of any answer, tolerantly, in linear time.
    write: boxes and labels to text; `[]` as boxes gives the format's own negative.
    """

    quick: Callable[[str, BoxFormat], RawBoxes | None]
    scan: Callable[[str, BoxFormat, Findings], None]
    write: Callable[[Sequence[Sequence[float]], Sequence[str | None], BoxFormat], str]


@dataclass(frozen=True)
class BoxFormat:
    """How one model family writes boxes.

    Attributes:
        name: as users write it, for example `qwen2.5-vl`.
        syntax: the functions that read and write it.
        space: what the numbers mean.
        decimals: digits after the point that the family writes.
        keys: JSON keys that hold a box; the first one is written.
        label_tags: the tokens around a label; None where labels are not tagged.
        glued_labels: the words right before a box are its label, as after special tokens were stripped.
        box_tags: what is written around a box.
        negative: what is written for "nothing to mark".
        from_token_ids: syntax or coordinates are special tokens, so the text must be decoded from the token ids
            with `skip_special_tokens=False`; text without them is still read as far as it can be.
        model_types: the `model_type` of transformers configurations whose models write this format.
    """

    name: str
    syntax: Syntax
    space: CoordinateSpace
    decimals: int = 0
    keys: tuple[str, ...] = ()
    label_tags: tuple[str, str] | None = None
    glued_labels: bool = False
    box_tags: tuple[str, str] = ("", "")
    negative: str = "[]"
    from_token_ids: bool = False
    model_types: tuple[str, ...] = ()

    def numbers(self, box: Sequence[float]) -> list[str]:
        """The coordinates as the family prints them.

        >>> from grounding_rewards.parsing import get_box_format
        >>> get_box_format("radvlm").numbers([0.123, 0.5, 0.75, 1.0])
        ['0.12', '0.50', '0.75', '1.00']
        """
        # + 0.0 turns -0.0 into 0.0, so that nobody is taught to write "-0.00"
        return [f"{round(value, self.decimals) + 0.0:.{self.decimals}f}" for value in box]

    def list_of(self, box: Sequence[float]) -> str:
        """The coordinates as a list in square brackets.

        >>> from grounding_rewards.parsing import get_box_format
        >>> get_box_format("qwen3-vl").list_of([1.0, 2.0, 30.4, 40.6])
        '[1, 2, 30, 41]'
        """
        return f"[{', '.join(self.numbers(box))}]"
