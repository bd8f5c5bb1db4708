"""What a log of completions says: how many were read, why the others were not, and whether the space fits."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grounding_rewards.boxes import positive_sizes, to_pixel
from grounding_rewards.columns import SIZE_COLUMNS, image_sizes
from grounding_rewards.common.formatting import as_json, html_table, percent
from grounding_rewards.common.numeric import Array
from grounding_rewards.parsing import (
    REJECT_REASONS,
    STATUSES,
    BoxFormat,
    RawBoxes,
    get_box_format,
    list_box_formats,
    read_boxes,
)
from grounding_rewards.parsing.answer_span import THINKING_STATES, find_answer, thinking_state
from grounding_rewards.parsing.space_check import SpaceCheck, check_space, thinking_suspicion
from grounding_rewards.rewards.completions import completion_text

#: A log with a larger share of unparseable completions is suspect.
MOST_UNPARSEABLE = 0.1

# Tolerance as a fraction of the image's sides: a box on the edge is on the image.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Inspection:
    """The metrics of a log.

    Attributes:
        texts: the completions.
        answers: the part of each that counts, without the thinking for example.
        statuses: how many completions have each of `STATUSES`.
        reasons: how often each of `REJECT_REASONS` was met; one that never was is left out.
        boxes: of all completions.
        most_boxes: of one completion.
        located: boxes for which it is known whether they are on the image.
        off_image: how many of the located boxes reach off the image.
        space_checks: by the name of the box format.
        thinking: how many completions have marks of thinking that are ``paired``, ``unopened`` (closed, but never
            opened), ``unclosed``, or ``none``.
        thinking_suspicion: what is suspect about these counts, or None.
        examples: the numbers of all completions that have a status or a reason, by its name.
        notes: warnings about the log.
    """

    texts: tuple[str, ...]
    answers: tuple[str, ...]
    statuses: dict[str, int]
    reasons: dict[str, int]
    boxes: int
    most_boxes: int
    located: int
    off_image: int
    space_checks: dict[str, SpaceCheck]
    thinking: dict[str, int]
    thinking_suspicion: str | None
    examples: dict[str, list[int]]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        statuses = ", ".join(f"{count} {status}" for status, count in self.statuses.items() if count)
        lines = [f"{len(self.texts)} completions: {statuses}."]
        lines += [f"{name}: {check.message}" for name, check in self.space_checks.items()]
        if self.thinking_suspicion:
            lines.append(self.thinking_suspicion)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        n = len(self.texts)
        rows = [[status, f"{count} ({percent(count / max(n, 1))})"] for status, count in self.statuses.items()]
        rows += [[f"rejected: {reason}", str(count)] for reason, count in self.reasons.items()]
        rows += [[f"box format {name}", check.message] for name, check in self.space_checks.items()]
        return html_table(["", f"{n} completions"], rows)

    @property
    def is_suspect(self) -> bool:
        """Whether numbers or marks of thinking contradict what was declared, or more than a tenth is unparseable.

        Numbers contradict it if they fit another space, or if most boxes reach off the image.
        """
        return (
            self.statuses["unparseable"] > MOST_UNPARSEABLE * len(self.texts)
            or 2 * self.off_image > self.located
            or self.thinking_suspicion is not None
            or any(check.likely for check in self.space_checks.values())
        )

    def to_dict(self) -> dict[str, Any]:
        """The metrics as plain values for JSON, without any text of the log; what was not measured is None."""
        names = ("statuses", "reasons", "boxes", "most_boxes", "located", "off_image")
        return as_json(
            {
                "completions": len(self.texts),
                **{name: getattr(self, name) for name in names},
                "thinking": {**self.thinking, "suspicion": self.thinking_suspicion},
                "spaces": self.space_checks,
                "notes": self.notes,
            }
        )

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each completion: its text, what was read as the answer, its status."""
        import pandas

        statuses = [""] * len(self.texts)
        # Every completion has one status, so that each is set once.
        for status in STATUSES:
            for k in self.examples.get(status, ()):
                statuses[k] = status
        return pandas.DataFrame({"text": self.texts, "answer": self.answers, "status": statuses})


def inspect_completions(
    completions: Sequence[Any],
    rows: Sequence[Mapping[str, Any]],
    box_format: str | Mapping[str, Any] | BoxFormat | None = None,
    *,
    sizes: Mapping[str, float | None] | None = None,
    prompt_opens_thinking: bool = False,
    track: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Inspection:
    """Read the boxes of a log of completions, and check the numbers against the reference boxes of rows that have any.

    Args:
        completions: n texts or message lists.
        rows: n rows with any of the columns ``boxes``, ``width``, ``height``, ``resized_width``, ``resized_height``,
            ``box_format`` and ``prompt_opens_thinking``.
        box_format: how the model writes boxes; None takes it from the column.
        sizes: sizes for the rows that have none, by the name of the column.
        prompt_opens_thinking: as for :func:`grounding_rewards.get_reward`.
        track: iterates over its argument, and may show progress.

    Raises:
        ValueError: no or an unknown box format, or reference boxes or sizes that are none; never for a completion.

    Example:
        >>> inspection = inspect_completions(["[]", "no idea"], [{}, {}], "qwen3-vl")
        >>> inspection.statuses, inspection.reasons
        ({'boxes': 0, 'empty': 1, 'truncated': 0, 'unparseable': 1}, {'nothing_stated': 1})
    """
    formats = _formats(rows, box_format)
    texts = [completion_text(completion) for completion in completions]
    opened = [prompt_opens_thinking or bool(row.get("prompt_opens_thinking")) for row in rows]
    raws = [read_boxes(texts[k], formats[k], prompt_opens_thinking=opened[k]) for k in track(range(len(texts)))]
    spans = [find_answer(texts[k], formats[k].scope, prompt_opens_thinking=opened[k]) for k in range(len(texts))]
    defaults = sizes or {}
    columns = {}
    for side in SIZE_COLUMNS:
        columns[side] = [defaults.get(side) if row.get(side) is None else row[side] for row in rows]
    row_sizes = image_sizes(columns, len(rows))
    references = [row["boxes"] if isinstance(row.get("boxes"), list) else [] for row in rows]
    box_counts: Counter[str] = Counter()
    space_checks: dict[str, SpaceCheck] = {}
    distinct_formats = {id(fmt): fmt for fmt in formats}.values()
    for fmt in distinct_formats:
        members = [k for k, row_format in enumerate(formats) if row_format is fmt]
        format_raws, format_sizes = [raws[k] for k in members], row_sizes[members]
        box_counts.update(_count_boxes(format_raws, fmt, format_sizes))
        space_checks[fmt.name] = check_space(format_raws, fmt, [references[k] for k in members], format_sizes)
    # Under the scope "all" thinking is read like any other text.
    thinking = Counter(thinking_state(text) for text, fmt in zip(texts, formats, strict=True) if fmt.scope != "all")
    examples: dict[str, list[int]] = {}
    reasons: Counter[str] = Counter()
    for k, raw in enumerate(raws):
        reasons.update(raw.rejected)
        for key in (raw.status, *raw.rejected):
            examples.setdefault(key, []).append(k)
    return Inspection(
        texts=tuple(texts),
        answers=tuple(span.text for span in spans),
        statuses={status: len(examples.get(status, ())) for status in STATUSES},
        reasons={reason: reasons[reason] for reason in REJECT_REASONS if reasons[reason]},
        boxes=sum(len(raw.labels) for raw in raws),
        most_boxes=max((len(raw.labels) for raw in raws), default=0),
        located=box_counts["located"],
        off_image=box_counts["off_image"],
        space_checks=space_checks,
        thinking={state: thinking[state] for state in THINKING_STATES},
        thinking_suspicion=thinking_suspicion(thinking, prompt_opens_thinking=any(opened)),
        examples=examples,
    )


def _formats(rows: Sequence[Mapping[str, Any]], box_format: Any) -> list[BoxFormat]:
    """The box format of each row, the given one or that of its column; equal ones are one object."""
    if box_format is not None:
        return [get_box_format(box_format)] * len(rows)
    # By its text: a format may be a mapping, which has no hash.
    formats: dict[str, BoxFormat] = {}
    for k, row in enumerate(rows):
        option = row.get("box_format")
        if option is None:
            raise ValueError(
                f"Expected a box format, got none for row {k}. Give --box-format, or add a column `box_format`; "
                f"known are {', '.join(list_box_formats())}."
            )
        if repr(option) not in formats:
            formats[repr(option)] = get_box_format(option)
    return [formats[repr(row["box_format"])] for row in rows]


def _count_boxes(raws: Sequence[RawBoxes], fmt: BoxFormat, sizes: Array) -> dict[str, int]:
    """Count the boxes of completions in one box format, which are on or off their images.

    Args:
        raws: what was read in the completions.
        fmt: their box format.
        sizes: (completions, 4), as `SIZE_COLUMNS` has them, NaN where unknown.

    Returns:
        `located` and `off_image`, as in :class:`Inspection`; nothing where the format needs a size that some image
        lacks.
    """
    box_counts = [len(raw.labels) for raw in raws]
    boxes = np.array([value for raw in raws for value in raw.coords], dtype=np.float64).reshape(-1, 4)
    columns = {}
    for side, values in zip(SIZE_COLUMNS, sizes.T, strict=True):
        if positive_sizes(values).all():
            # The size of each box's image.
            columns[side] = np.repeat(values, box_counts)
    if "width" not in columns or "height" not in columns:
        if fmt.space.frame != "image":
            return {}
        # For fractions of the image its size does not matter.
        columns = {"width": np.ones(len(boxes)), "height": np.ones(len(boxes))}
    if fmt.space.frame == "resized" and len(columns) < len(SIZE_COLUMNS):
        # A resized size is not known.
        return {}
    # (boxes, 4): the ends of the image for x, y, x and y.
    edges = np.tile(np.stack([columns["width"], columns["height"]], axis=-1), 2)
    pixels = to_pixel(boxes, fmt.space, **columns)
    off_image = ((pixels < -_ROUNDING * edges) | (pixels > (1 + _ROUNDING) * edges)).any(axis=1)
    return {"located": len(boxes), "off_image": int(off_image.sum())}
