"""Text to boxes: what a completion says, in the box format that its model writes.

`parse_boxes` reads one completion, `format_boxes` writes one; `read_boxes` is the first half of `parse_boxes`,
for scoring in batches. A new format is a table in `formats.toml`. The scanners of `json_syntax.py` and
`bracket_syntax.py` read all formats.
"""

from grounding_rewards.parsing.formats import (
    BoxFormat,
    box_format_for_model_type,
    box_formats_of,
    get_box_format,
    list_box_formats,
)
from grounding_rewards.parsing.parse import format_boxes, parse_boxes, read_boxes
from grounding_rewards.parsing.results import REJECT_REASONS, STATUSES, BrokenBox, ParsedBoxes, RawBoxes, is_silent

__all__ = [
    "REJECT_REASONS",
    "STATUSES",
    "BoxFormat",
    "BrokenBox",
    "ParsedBoxes",
    "RawBoxes",
    "box_format_for_model_type",
    "box_formats_of",
    "format_boxes",
    "get_box_format",
    "is_silent",
    "list_box_formats",
    "parse_boxes",
    "read_boxes",
]
