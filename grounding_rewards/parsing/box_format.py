"""A box format as a value: how one model family writes boxes in text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from grounding_rewards.boxes import ORDERS, CoordinateSpace
from grounding_rewards.common.text_files import packaged_tables

SCOPES = ("answer", "after_think", "all")
#: Words that all formats share: the tables of `keys_and_tags.toml`.
WORDS: dict[str, Any] = packaged_tables("grounding_rewards.parsing", "keys_and_tags.toml")
#: JSON keys that hold a box, in any spelling (`bbox2d`, `boundingBox`).
BOX_KEYS: tuple[str, ...] = tuple(WORDS["keys"]["box"])


class Layout(NamedTuple):
    """How the family lays out an answer: templates for `format_boxes`.

    box: one box; `{0}` … `{3}` are its numbers in the order of the text.
    item: boxes with their label; `{label}` and `{boxes}`.
    bare_item: boxes without a label; `{boxes}`.
    between_boxes: what joins boxes of one label; None where every box is an item of its own.
    between_items: what joins items.
    answer: the whole answer; `{items}`.
    negative: the whole answer where there is nothing to mark.
    """

    box: str
    item: str = "{boxes}"
    bare_item: str = "{boxes}"
    between_boxes: str | None = None
    between_items: str = ""
    answer: str = "{items}"
    negative: str = "None"


class Syntax(NamedTuple):
    """What families that write alike share.

    keyed: boxes are in JSON under a key of the format; four numbers under another key are not a box.
    tokens: how coordinate tokens begin: `loc_` for `<loc_12>`.
    patches: cells a side of the grid of which a pair of tokens names the first and the last cell; 0 without a grid.
    """

    keyed: bool = False
    tokens: tuple[str, ...] = ()
    patches: int = 0


@dataclass(frozen=True)
class BoxFormat:
    """How one model family writes boxes.

    Attributes:
        name: as users write it, for example `qwen2.5-vl`.
        family: the models that write it, for people.
        syntax: what is shared with other families.
        layout: what is written.
        space: what the numbers mean.
        order: of the four numbers in the text, one of `grounding_rewards.boxes.ORDERS`.
        scope: which part of a completion counts: `answer` is the last answer tag, else what follows the thinking;
            `after_think` ignores answer tags; `all` is the whole text.
        decimals: digits after the point that the family writes.
        largest: the largest number that the family can write; None without a limit.
        keys: JSON keys that hold a box, in any case, with or without underscores.
        untagged_label: where the label of a box stands when no tags mark it: `before` it, `after` it, or nowhere.
        negatives: what else states that there is nothing: `blank` text, a `zero_box` alone, an `unboxed_label`.
        no_finding: sentences of the user's own that state it as well.
        stripped: what is lost when special tokens are skipped in decoding: `nothing`, the `tags` (labels may run into
            the text around them), or the `boxes` themselves.
    """

    name: str
    family: str
    syntax: Syntax = field(repr=False)
    layout: Layout = field(repr=False)
    space: CoordinateSpace
    order: str = "xyxy"
    scope: str = "answer"
    decimals: int = 0
    largest: int | None = None
    keys: tuple[str, ...] = BOX_KEYS
    untagged_label: Literal["before", "after"] | None = None
    negatives: tuple[str, ...] = ()
    no_finding: tuple[str, ...] = ()
    stripped: Literal["nothing", "tags", "boxes"] = "nothing"

    @property
    def from_token_ids(self) -> bool:
        """Whether the text should be decoded from the token ids with `skip_special_tokens=False`.

        Example:
            >>> from grounding_rewards.parsing import get_box_format
            >>> get_box_format("qwen2-vl").from_token_ids, get_box_format("qwen3-vl").from_token_ids
            (True, False)
        """
        return self.stripped != "nothing"


def in_xyxy(coords: list[float], order: str) -> list[float]:
    """Convert boxes in one flat list from an order of `ORDERS` to `x1, y1, x2, y2`; for a few boxes faster than numpy.

    Example:
        >>> in_xyxy([1, 2, 3, 4], "yxyx"), in_xyxy([1, 2, 3, 4], "xywh"), in_xyxy([4, 5, 2, 4], "cxcywh")
        ([2, 1, 4, 3], [1, 2, 4, 6], [3.0, 3.0, 5.0, 7.0])
    """
    if order == "xyxy":
        return coords
    convert = ORDERS[order].to_xyxy
    boxes = zip(coords[0::4], coords[1::4], coords[2::4], coords[3::4], strict=True)
    return [value for box in boxes for value in convert(*box)]
