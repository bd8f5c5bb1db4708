"""The table of box formats: one entry per model family."""

from __future__ import annotations

from grounding_rewards.boxes import NORM1, NORM1000, RESIZED_PIXEL
from grounding_rewards.parsing.box_format import BoxFormat, Syntax
from grounding_rewards.parsing.bracket_syntax import (
    read_plain_lists,
    read_plain_pairs,
    read_plain_sentences,
    scan_brackets,
    write_lists,
    write_pairs,
    write_sentences,
)
from grounding_rewards.parsing.json_syntax import read_plain_json, scan_json, write_json

JSON = Syntax(read_plain_json, scan_json, write_json)
LISTS = Syntax(read_plain_lists, scan_brackets, write_lists)
PAIRS = Syntax(read_plain_pairs, scan_brackets, write_pairs)
SENTENCES = Syntax(read_plain_sentences, scan_brackets, write_sentences)

BOX_FORMATS = {
    box_format.name: box_format
    for box_format in (
        BoxFormat("answer-list", LISTS, NORM1, decimals=3, box_tags=("<answer>", "</answer>"), negative=""),
        BoxFormat(
            "qwen2-vl",
            PAIRS,
            NORM1000,
            label_tags=("<|object_ref_start|>", "<|object_ref_end|>"),
            glued_labels=True,
            box_tags=("<|box_start|>", "<|box_end|>"),
            negative="None",
            from_token_ids=True,
            model_types=("qwen2_vl",),
        ),
        BoxFormat(
            "qwen2.5-vl",
            JSON,
            RESIZED_PIXEL,
            keys=("bbox_2d", "bbox"),
            model_types=("qwen2_5_vl",),
        ),
        BoxFormat(
            "qwen3-vl",
            JSON,
            NORM1000,
            keys=("bbox_2d", "bbox"),
            model_types=("qwen3_vl", "qwen3_vl_moe"),
        ),
        BoxFormat(
            "radvlm",
            SENTENCES,
            NORM1,
            decimals=2,
            negative="No abnormalities are detected on this film.",
        ),
    )
}


def get_box_format(name: str) -> BoxFormat:
    """The box format of this name.

    Raises:
        ValueError: no such format; the message lists all names.

    >>> get_box_format("qwen3-vl").space.name
    'norm1000'
    """
    try:
        return BOX_FORMATS[name]
    except (KeyError, TypeError):
        raise ValueError(
            f"Expected a known name for `box_format`, got {name!r}. Use one of: {', '.join(BOX_FORMATS)}."
        ) from None


def list_box_formats() -> list[str]:
    """The names of all box formats.

    >>> "qwen2.5-vl" in list_box_formats()
    True
    """
    return list(BOX_FORMATS)


def box_format_for_model_type(model_type: str) -> str:
    """The name of the box format that models of a `model_type` (as in their transformers configuration) write.

    Raises:
        ValueError: no format is known for it; the message lists the model types that have one.

    >>> box_format_for_model_type("qwen2_5_vl")
    'qwen2.5-vl'
    """
    names = {known: fmt.name for fmt in BOX_FORMATS.values() for known in fmt.model_types}
    if model_type not in names:
        raise ValueError(
            f"Expected one of {', '.join(names)} for `model_type`, got {model_type!r}. "
            f"For any other model state `box_format`, one of: {', '.join(BOX_FORMATS)}."
        )
    return names[model_type]
