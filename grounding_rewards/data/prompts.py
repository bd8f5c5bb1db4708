"""Prompts, the answers to them that earn the full reward, and what a prompt says of the way to write boxes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from grounding_rewards.boxes import ORDERS, as_box_array, from_xyxy
from grounding_rewards.common.text_files import packaged_tables
from grounding_rewards.common.validation import check_word
from grounding_rewards.parsing import BoxFormat, format_boxes, get_box_format
from grounding_rewards.parsing.no_finding import states_nothing

_TABLES = packaged_tables("grounding_rewards.data", "prompts.toml")
_WORDINGS: Mapping[str, Sequence[str]] = _TABLES["wordings"]

TASKS = tuple(_WORDINGS)
"""All findings of an image; one finding, which may be absent; one phrase of a report."""

# By task, what a person's own template may say, besides {format}.
_PLACEHOLDERS: Mapping[str, str] = _TABLES["placeholders"]
_FORMAT = "format"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")

LOOKED_FOR = "looked_for"
"""The column that says what to look for on images that have no prompt; their prompts are made of it."""


def prompt_messages(labels: Sequence[str]) -> list[dict[str, Any]]:
    """The prompt of drawn chest radiographs, and of the small model that learns from them.

    It does not state a format: a warm start teaches it. Other images are asked about by `task_prompt`.

    Args:
        labels: what to look for, at least one name.

    Raises:
        ValueError: no labels.

    Example:
        >>> prompt_messages(["effusion", "mass"])[0]["content"][1]["text"]
        'Locate every effusion, mass in this chest radiograph and report the boxes in JSON format.'
    """
    if not labels:
        raise ValueError("Expected at least one name for labels, got none. Name what the model should look for.")
    text = f"Locate every {', '.join(labels)} in this chest radiograph and report the boxes in JSON format."
    return [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]


def prompt_order(labels: Iterable[str]) -> tuple[str, ...]:
    """The order in which prompts name labels: alphabetical, so that it does not depend on the order of a file.

    A model that was trained on one order answers differently to another.

    Args:
        labels: names, some of them several times.

    Example:
        >>> prompt_order(["mass", "Effusion", "mass"])
        ('Effusion', 'mass')
    """
    return tuple(sorted(set(labels), key=lambda label: (label.casefold(), label)))


def wordings(task: str) -> int:
    """How many ways there are to ask for a task.

    Raises:
        ValueError: unknown task.

    Example:
        >>> wordings("detection")
        4
    """
    check_word("task", task, TASKS)
    return len(_WORDINGS[task])


def task_prompt(
    task: str, what: str | Sequence[str], box_format: str | Mapping[str, Any] | BoxFormat, *, wording: int = 0
) -> list[dict[str, Any]]:
    """The conversational prompt of a task, which states the format of the answer.

    A model that copies the prompt earns nothing: its example holds placeholders, not numbers. A family of models that
    was trained on one way to ask, such as PaliGemma on `detect mass ; nodule`, is asked so, whatever `wording` is.

    Args:
        task: one of `TASKS`.
        what: for `detection` the names of all findings to look for, else one finding or one phrase.
        box_format: the format of the answer: its name, or what else `get_box_format` takes.
        wording: which of the `wordings(task)` ways to ask.

    Raises:
        ValueError: unknown task, wording or box format, or nothing to look for.

    Example:
        >>> print(task_prompt("finding", "mass", "kimi-vl", wording=1)[0]["content"][1]["text"])
        Does the image show mass? Mark each one with a box.
        If there is nothing to mark, answer with []
        Coordinates are fractions of the width and the height of the image, from 0 to 1 with 3 decimals, x from the \
left and y from the top.
        Otherwise answer with one entry for each finding, in this format, its name in place of finding:
        [{"bbox_2d": [x1, y1, x2, y2], "label": "finding"}]
    """
    if not 0 <= wording < wordings(task):
        raise ValueError(f"Expected 0 to {wordings(task) - 1} for wording, got {wording}. Choose one of these.")
    names = [what] if isinstance(what, str) else what
    if not "".join(names).strip():
        raise ValueError(f"Expected something to look for as what, got {what!r}. Name a finding or a phrase.")
    fmt = get_box_format(box_format)
    trained_wording = _TABLES["trained"].get(fmt.name)
    if trained_wording is not None:
        return conversation(trained_wording["words"].format(what=trained_wording["between"].join(names)))
    question = _WORDINGS[task][wording].format(what=", ".join(names))
    return conversation(f"{question}\n{format_instruction(fmt)}")


def template_prompt(
    template: str, task: str, what: str | Sequence[str], box_format: str | Mapping[str, Any] | BoxFormat
) -> list[dict[str, Any]]:
    """The prompt of a task in one's own words.

    Args:
        template: a text that :func:`check_template` accepts. `{labels}` stands for all findings to look for,
            `{finding}` for one, `{phrase}` for a phrase, `{format}` for :func:`format_instruction`.
        task: one of `TASKS`.
        what: as for :func:`task_prompt`.
        box_format: the format of the answer.

    Example:
        >>> template_prompt("Mark each {finding}.", "finding", "mass", "qwen3-vl")[0]["content"][1]["text"]
        'Mark each mass.'
    """
    names = what if isinstance(what, str) else ", ".join(what)
    words = {_PLACEHOLDERS[task]: names, _FORMAT: format_instruction(box_format)}
    # In one pass, so that a finding's own braces stay.
    return conversation(_PLACEHOLDER.sub(lambda placeholder: words[placeholder[1]], template))


def check_template(template: str, task: str, box_format: str | Mapping[str, Any] | BoxFormat) -> None:
    """Refuse a template that says nothing, has a placeholder that its task doesn't fill, or another box format.

    Args:
        template: see :func:`template_prompt`.
        task: one of `TASKS`.
        box_format: the format that answers are read in.

    Raises:
        ValueError: the template is such a one.

    Example:
        >>> check_template("Find {labels} in JSON as [x, y, w, h].", "detection", "qwen3-vl")
        Traceback (most recent call last):
        ...
        ValueError: Expected a template that asks for the box format qwen3-vl, got one that contradicts it: the prompt \
asks for the order xywh, qwen3-vl has xyxy. Let {format} state the format, or choose the one that the template states.
    """
    task_placeholder = _PLACEHOLDERS[task]
    placeholders = set(_PLACEHOLDER.findall(template))
    # All findings may be asked for without their names; without its own finding every row would be asked the same.
    says_what = task_placeholder in placeholders or (task == "detection" and template.strip())
    if not says_what or placeholders - {task_placeholder, _FORMAT}:
        raise ValueError(
            f"Expected words with {{{task_placeholder}}}, and besides it {{{_FORMAT}}} alone, for the template of the "
            f"task {task}, got {template!r:.200}. Write {{{task_placeholder}}} where the words belong, and no other "
            "placeholder."
        )
    fmt = get_box_format(box_format)
    # What {format} says is the format's own, and what a finding is called claims nothing.
    claims = list(prompt_contradictions(_PLACEHOLDER.sub("", template), fmt))
    if claims:
        raise ValueError(
            f"Expected a template that asks for the box format {fmt.name}, got one that contradicts it: "
            f"{'; '.join(claims)}. Let {{{_FORMAT}}} state the format, or choose the one that the template states."
        )


def conversation(prompt: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A prompt as messages whose content is a list of parts; the image comes first where no part stands for it.

    Args:
        prompt: a text, or messages whose content is a text or a list of parts, as :func:`prompt_problem` accepts it.

    Example:
        >>> conversation("Where is the mass?")
        [{'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': 'Where is the mass?'}]}]
    """
    messages: Sequence[Mapping[str, Any]] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    turns: list[dict[str, Any]] = []
    has_image = False
    for message in messages:
        content = message["content"]
        parts = []
        for part in [content] if isinstance(content, str) else content:
            if isinstance(part, str):
                parts.append({"type": "text", "text": part})
            else:
                # `datasets` gives every part all keys, None where it has none, and an image may have others.
                parts.append({name: part[name] for name in ("type", "text") if part.get(name) is not None})
            has_image = has_image or parts[-1]["type"] == "image"
        turns.append({"role": message["role"], "content": parts})
    if not has_image:
        # The image belongs to the first turn of the user, or to the first of all if no turn is the user's.
        user_turns = [turn for turn in turns if turn["role"] == "user"]
        (user_turns or turns)[0]["content"].insert(0, {"type": "image"})
    return turns


def prompt_words(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """The words of a prompt, without roles and images.

    Example:
        >>> prompt_words([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Where?"}]}])
        'Where?'
    """
    parts = chain.from_iterable(turn["content"] for turn in conversation(prompt))
    return "".join(part["text"] for part in parts if part["type"] == "text")


def prompt_problem(prompt: Any, *, several_images: bool = False) -> str | None:
    """What is wrong with the prompt of a row; None where it asks something, or the row has none and gets one.

    Args:
        prompt: a text or messages.
        several_images: whether a row may have more than one.

    Example:
        >>> prompt_problem("Where?"), prompt_problem(None), prompt_problem(" ")
        (None, None, "prompt is ' ', without a word")
    """
    if prompt is None:
        return None
    try:
        turns = conversation(prompt)
        is_blank = not prompt_words(prompt).strip()
    except (AttributeError, IndexError, KeyError, TypeError):
        return f"prompt is {prompt!r:.100}, neither a text nor a list of messages with role and content"
    if is_blank:
        return f"prompt is {prompt!r:.100}, without a word"
    types = [part["type"] for part in chain.from_iterable(turn["content"] for turn in turns)]
    for kind in types:
        if kind not in ("image", "text"):
            return f"prompt has a part of type {kind!r:.100}, which is neither text nor image"
    if types.count("image") > 1 and not several_images:
        return f"prompt has {types.count('image')} places for its one image"
    return None


def format_instruction(box_format: str | Mapping[str, Any] | BoxFormat) -> str:
    """The part of a prompt that states the format of the answer.

    The example comes last, so that in formats with answer tags the last answer in the text is not the negative.

    Args:
        box_format: its name, or what else `get_box_format` takes.

    Raises:
        ValueError: unknown box format.

    Example:
        >>> print(format_instruction("answer-list").splitlines()[-1])
        <answer>[x1, y1, x2, y2]</answer>
    """
    fmt = get_box_format(box_format)
    negative = f"answer with {fmt.layout.negative}" if fmt.layout.negative else "leave the answer empty"
    separator = fmt.layout.between_items.strip()
    # The comma of a list needs no word.
    separator_words = f' and "{separator}" between two' if separator and not fmt.syntax.keyed else ""
    label_words = ", its name in place of finding" if "{label}" in fmt.layout.item else ""
    lines = [
        f"If there is nothing to mark, {negative}",
        _coordinates(fmt),
        f"Otherwise answer with one entry for each finding{separator_words}, in this format{label_words}:",
        format_example(fmt, ORDERS[fmt.order].numbers),
    ]
    return "\n".join(lines)


def format_example(fmt: BoxFormat, values: Sequence[str]) -> str:
    """An answer with one box, in the layout of a box format, with four words in place of its numbers.

    Args:
        fmt: the box format.
        values: words for the four numbers, in the order in which the format writes them.

    Example:
        >>> format_example(get_box_format("paligemma"), ["y1", "x1", "y2", "x2"])
        '<locy1><locx1><locy2><locx2> finding'
    """
    layout = fmt.layout
    # A slot of the layout is {0} to {3}, or {0:0>4} with a width that is for numbers: each becomes its word.
    box = re.sub(r"\{(\d)[^}]*\}", lambda slot: values[int(slot[1])], layout.box)
    # Formats with keys are JSON, in which a text has quotes.
    label = '"finding"' if fmt.syntax.keyed else "finding"
    return layout.answer.format(items=layout.item.format(key=fmt.keys[0], label=label, boxes=box))


def _coordinates(fmt: BoxFormat) -> str:
    """One sentence that says what the numbers of a box format mean."""
    # The number of cells along a side, for formats that name two cells instead of four coordinates; else 0.
    cells = fmt.syntax.patches
    if cells:
        return (
            f"The image is cut into {cells} x {cells} cells, numbered row by row from 0 with 4 digits: the first "
            "number is the cell of the top left corner (x1), the second that of the bottom right corner (y1)."
        )
    if fmt.space.frame == "original":
        meaning = "pixels of the original image"
    elif fmt.space.frame == "resized":
        meaning = "pixels of the image as you see it"
    elif fmt.space.unit == 1:
        meaning = f"fractions of {_TABLES['frames'][fmt.space.frame]}, from 0 to 1 with {fmt.decimals} decimals"
    else:
        largest = round(fmt.space.unit) if fmt.largest is None else fmt.largest
        kind = "whole numbers" if fmt.decimals == 0 else f"numbers with {fmt.decimals} decimals"
        meaning = f"{kind} from 0 to {largest} over {_TABLES['frames'][fmt.space.frame]}"
        # A layout with {0:0>4} writes 7 as 0007.
        digits = re.search(r"\{0:0>(\d)\}", fmt.layout.box)
        if digits:
            meaning += f", each written with {digits[1]} digits"
    return f"Coordinates are {meaning}, x from the left and y from the top."


def gold_answer(row: Mapping[str, Any], box_format: str | Mapping[str, Any] | BoxFormat) -> str:
    """The reference boxes of a row, written as a model of this box format would write them.

    Args:
        row: `boxes`, `width` and `height`; `labels`, `resized_width` and `resized_height` where there are.
        box_format: its name, or what else `get_box_format` takes.

    Example:
        >>> row = {"boxes": [[8, 16, 24, 32]], "labels": ["mass"], "width": 112, "height": 112}
        >>> gold_answer(row, "answer-list")
        '<answer>[0.071, 0.143, 0.214, 0.286]</answer>'
    """
    return format_boxes(
        row["boxes"],
        box_format,
        labels=row.get("labels"),
        width=row["width"],
        height=row["height"],
        resized_width=row.get("resized_width"),
        resized_height=row.get("resized_height"),
    )


_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.(\d+))?|(?<=[a-z_])\d+(?=>)")
# What the right and the lower edge of the image may be called, besides its pixels.
_UNITS = (1.0, 100.0, 1000.0, 1024.0)
_DENIAL = re.compile(r"\b(?:no|normal|without|clear|unremarkable|nothing)\b", re.IGNORECASE)
_CONDITION = re.compile(
    r"\b(?:if|when|where|whether|unless|otherwise|for|in case|say|answer|write|return|reply|or)\b", re.IGNORECASE
)
_ZERO_TO = r"(?:\b0(?:\.0+)?\s*(?:-|–|to|and|\.\.+|…)\s*|[\[(]0(?:\.0+)?, ?(?=[\d.]+[\])]))"


def prompt_contradictions(prompt: str, box_format: BoxFormat) -> Iterator[str]:
    """A sentence for each way in which a prompt asks for another box format than this one.

    A prompt that names several orders or spaces agrees if one of them fits: it may explain one by the other.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> list(prompt_contradictions("Answer in JSON with [x, y, w, h].", get_box_format("qwen3-vl")))
        ['the prompt asks for the order xywh, qwen3-vl has xyxy']
    """
    layout = box_format.layout
    # What the box format has, by the kinds of claims that `prompts.toml` knows.
    traits = {"order": box_format.order, "space": box_format.space.name, "syntax": layout.item, "answer": "boxes"}
    # The claims that are found in the prompt; each has a `kind`, the `legal` values that agree with it, and what it
    # `says` in words.
    claims_by_trait: dict[str, list[Mapping[str, Any]]] = {}
    for claim in _TABLES["claims"]:
        if re.search(claim["pattern"].replace("{zero_to}", _ZERO_TO), prompt, re.IGNORECASE):
            claims_by_trait.setdefault(claim["kind"], []).append(claim)
    for trait, claims in claims_by_trait.items():
        # One of several claims about a trait is enough, as a prompt may explain one by the other.
        legal_values = chain.from_iterable(claim["legal"] for claim in claims)
        # Legal values of a syntax are marks, which are parts of the layout; other legal values are whole names.
        own_values = layout.item + layout.box if trait == "syntax" else [traits[trait]]
        if not any(value in own_values for value in legal_values):
            claimed_words = " or ".join(claim["says"] for claim in claims)
            yield f"the prompt asks for the {trait} {claimed_words}, {box_format.name} has {traits[trait]}"


def told_box(
    prompt: str, boxes: Sequence[Sequence[float]], size: tuple[float, float], resized: tuple[float, float] | None = None
) -> str:
    """The first four numbers of a prompt, next to each other, that are one of the boxes; empty where none are.

    Args:
        prompt: its text.
        boxes: of the image, xyxy in pixels, each four finite numbers.
        size: width and height of the image in pixels.
        resized: width and height at which the model sees it, where they are known.

    Numbers may be pixels of the image or of the resized one, parts, per cent, thousandths or bins of 1024, in any order
    of :data:`grounding_rewards.boxes.ORDERS`, rounded or cut off.

    Example:
        >>> told_box("The nodule is at (100, 250), (300, 400).", [[50, 100, 150, 160]], (500, 400))
        '100, 250, 300, 400'
        >>> told_box("Answer with [x1, y1, x2, y2] in 0 to 1000.", [[50, 100, 150, 160]], (500, 400))
        ''
    """
    matches = list(_NUMBER.finditer(prompt))
    if len(matches) < 4 or not boxes:
        return ""
    numbers = np.array([float(match[0]) for match in matches])
    # One unit of the last digit of each number, which may be rounded or cut off. `match[1]` holds the decimals.
    steps = np.array([1.0 if match[1] is None else 10.0 ** -len(match[1]) for match in matches])
    # Every four numbers that follow each other.
    four_numbers = np.lib.stride_tricks.sliding_window_view(numbers, 4)
    four_steps = np.lib.stride_tricks.sliding_window_view(steps, 4)
    fractions = as_box_array(boxes) / np.array([*size, *size])
    # Width and height of the image in each unit in which its boxes may be told.
    frames = [size, *((unit, unit) for unit in _UNITS)]
    if resized is not None:
        frames.append(resized)
    for frame in frames:
        # Whole numbers say nothing of fractions: a step has to be small beside the frame.
        is_exact = (four_steps <= 0.02 * max(frame)).all(axis=1)
        for order in ORDERS:
            written_boxes = from_xyxy(fractions * np.array([*frame, *frame]), order)
            # Of each four numbers and each box, whether all four are at most a step apart, up to float error.
            is_near = np.all(np.abs(four_numbers[:, None] - written_boxes) <= 1.001 * four_steps[:, None], axis=2)
            starts = np.flatnonzero(is_exact & np.any(is_near, axis=1))
            if len(starts):
                return ", ".join(match[0] for match in matches[starts[0] : starts[0] + 4])
    return ""


def told_nothing(prompt: str) -> str:
    """The first sentence of a prompt that says that there is nothing to find; an empty text if none does.

    A sentence with a condition, such as "If there is no finding, say so", tells nothing of the image.

    Example:
        >>> told_nothing("This image is normal. Find all boxes."), told_nothing("If there is no finding, say so.")
        ('This image is normal', '')
        >>> told_nothing("Report: The lungs are clear.")
        'The lungs are clear'
    """
    # Most prompts have no word of denial, and are not looked at closely.
    if not _DENIAL.search(prompt):
        return ""
    for sentence in re.split(r"[.;!?\n]+(?:\s|$)|```", prompt):
        # Without a heading of a report, such as "Findings:".
        sentence = re.sub(r"^(?:report|findings?|impression)\s*:\s*", "", sentence.strip(), flags=re.IGNORECASE)
        if _DENIAL.search(sentence) and not _CONDITION.search(sentence) and states_nothing(f"{sentence}."):
            return sentence
    return ""
