"""The text of a completion, however a trainer wraps it, and the tokens that a trainer takes out of it."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from grounding_rewards.parsing import BoxFormat

# What the call of a tool reads as, where a trainer keeps it beside the text.
_CALL = "<tool_call></tool_call>"
# What the words of a tool behind the last message of the assistant read as.
_TOOL_RESULT = "<tool_response></tool_response>"
# One of these is in every message and content block.
_MESSAGE_KEYS = frozenset({"content", "text", "type", "role", "tool_calls", "function_call"})
_SPEAKERS = ("assistant", "model")
# Types of blocks with words of the assistant; a block without a type is one too.
_TEXT_TYPES = frozenset({None, "text", "output_text", "message"})


def completion_text(completion: Any) -> str:
    """The text of a completion, however TRL or another trainer wraps it; empty for anything else.

    The call of a tool, and a tool's message behind the answer, leave marks in the text, by which a reader of the text
    tells a finished answer from one that waits for a tool. Images leave none.

    Args:
        completion: a string, a list of messages (the last assistant message counts), one message, or content blocks.

    Example:
        >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "[]"}]}])
        '[]'
        >>> call = {"type": "function", "function": {"name": "zoom", "arguments": {"bbox_2d": [1, 2, 3, 4]}}}
        >>> completion_text([{"role": "assistant", "content": None, "tool_calls": [call]}])
        '<tool_call></tool_call>'
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        kind = completion.get("type")
        if kind not in _TEXT_TYPES:
            # A content block: a call, such as Anthropic's `tool_use` and OpenAI's `function_call`, or an image.
            is_call = isinstance(kind, str) and kind.endswith(("_use", "_call"))
            return _CALL if is_call else ""
        content = completion.get("content", completion.get("text"))
        text = completion_text(content) if isinstance(content, str | Sequence) else ""
        if completion.get("tool_calls") or completion.get("function_call"):
            text += _CALL
        return text
    if isinstance(completion, Sequence) and not isinstance(completion, bytes | bytearray):
        messages = [item for item in completion if isinstance(item, Mapping) and "role" in item]
        if messages:
            return _last_message(messages)
        return "".join(completion_text(block) for block in completion)
    return ""


def check_completion_texts(completions: Sequence[Any]) -> None:
    """Refuse completions in a form that no trainer gives them: they would earn 0 in silence, a whole run long.

    Raises:
        ValueError: one text in the place of a list of them; token ids, bytes, numbers, other objects, or mappings
            without `content` or `text`.

    Example:
        >>> check_completion_texts(["[]", [{"role": "assistant", "content": "[]"}], None])
        >>> check_completion_texts([[151644, 77091]])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Expected texts or messages for `completions`, got a list of int for completion 0. Decode token ...
    """
    if isinstance(completions, str | Mapping):
        raise ValueError(
            f"Expected a list of texts or messages for `completions`, got one: {completions!r:.80}. "
            "Write [completion], and every column as a list of one."
        )
    for k, completion in enumerate(completions):
        defect = "" if type(completion) is str else answer_defect(completion)
        if defect:
            raise ValueError(
                f"Expected texts or messages for `completions`, got {defect} for completion {k}. "
                "Decode token ids and bytes, and give a string or the list of messages of each completion."
            )


def answer_defect(completion: Any) -> str:
    """Name the type of what is neither text nor message in a completion; empty if all is.

    >>> answer_defect({"content": "[]"}), answer_defect({"score": 1})
    ('', 'a mapping with the keys score')
    """
    if completion is None or isinstance(completion, str):
        return ""
    parts = [completion] if isinstance(completion, Mapping) else completion
    if not isinstance(parts, Sequence) or isinstance(parts, bytes | bytearray):
        return type(completion).__name__
    for part in parts:
        if not isinstance(part, str | Mapping):
            return f"a list of {type(part).__name__}"
        if isinstance(part, Mapping) and _MESSAGE_KEYS.isdisjoint(part):
            return f"a mapping with the keys {', '.join(map(str, part)) or 'none'}"
        # What a tool or the user says is no answer, and may be anything.
        if isinstance(part, Mapping) and part.get("role") in (None, *_SPEAKERS):
            defect = answer_defect(part.get("content", part.get("text")))
            if defect:
                return defect
    return ""


def _last_message(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the last message of the assistant, with a mark at its end where a tool has answered after it.

    So a draft that was only handed to a tool is not taken for the final answer. Empty without such a message.
    """
    mark_at_end = ""
    for message in reversed(messages):
        if message["role"] in _SPEAKERS:
            return completion_text(message) + mark_at_end
        if message["role"] in ("tool", "function"):
            mark_at_end = _TOOL_RESULT
    return ""


def decoded(tokenizer: Any, stop_ids: frozenset[int], token_ids: Any) -> str:
    """The text of token ids with its special tokens, but without those that end or pad it.

    Args:
        tokenizer: of the model.
        stop_ids: tokens that end an answer beside the tokenizer's own, as a model's generation settings name them.
        token_ids: of one completion, a list or a tensor.
    """
    left_out = stop_ids | {getattr(tokenizer, "eos_token_id", None), getattr(tokenizer, "pad_token_id", None)}
    kept_ids = [token for token in map(int, token_ids) if token not in left_out]
    return tokenizer.decode(kept_ids, skip_special_tokens=False)


@functools.cache
def box_tokens(fmt: BoxFormat) -> re.Pattern[str]:
    """A pattern of the special tokens that every box of this format contains: a text without them has lost its boxes.

    These are the numbers where a format has tokens for them, such as `<loc_123>`, else the marks around a box, such as
    `<|box_start|>`.
    """
    if fmt.syntax.tokens:
        return re.compile(rf"<(?:{'|'.join(map(re.escape, fmt.syntax.tokens))})\d")
    return re.compile("|".join(map(re.escape, re.findall(r"<[^<>]+>", fmt.layout.bare_item))))
