"""Make all checks in one pass over the rows of a dataset."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import numpy as np

from grounding_rewards.data.checks import row_problems
from grounding_rewards.data.splits import patient_in_name
from grounding_rewards.doctor.answer_checks import check_gold, check_negatives, check_prompts
from grounding_rewards.doctor.box_checks import check_boxes, check_pairs
from grounding_rewards.doctor.context import (
    CHECKS,
    SEVERITIES,
    Context,
    Defect,
    Example,
    ImagePicture,
    Problem,
    picture,
)
from grounding_rewards.doctor.image_checks import check_images, check_readability, rows_with_facts
from grounding_rewards.doctor.label_checks import check_labels
from grounding_rewards.doctor.rows import ImageRow, RowSource, numbered, open_rows
from grounding_rewards.doctor.split_checks import check_repeats, check_splits
from grounding_rewards.doctor.summary import Metrics
from grounding_rewards.doctor.target_model import ASSUMED_MAX_PIXELS, Model
from grounding_rewards.images.decoding import load_image, small_image

#: What is looked for: each takes the context, and yields defects of :data:`CHECKS`.
ALL_CHECKS: tuple[Callable[[Context], Iterator[Defect]], ...] = (
    *(check_readability, check_images, check_boxes, check_pairs, check_labels, check_splits, check_repeats),
    *(check_negatives, check_prompts, check_gold),
)
#: Images of the contact sheet, of each split at random, and of all splits together at random.
SHEET = 24
_SPLIT_SHARE, _RANDOM_SHARE = 6, 16


@dataclass(frozen=True)
class Checkup:
    """The defects of a dataset.

    Attributes:
        dataset: its name.
        defects: the worst first.
        unchecked: names of checks that could not be made, and why.
        assumptions: one sentence each.
        metrics: counts over all images.
        sample: the contact sheet, if images are kept.
    """

    dataset: str
    defects: tuple[Defect, ...]
    unchecked: dict[str, str]
    assumptions: tuple[str, ...]
    metrics: Metrics
    sample: tuple[ImagePicture, ...]

    def count(self, severity: str) -> int:
        """The number of defects of a severity."""
        return sum(defect.severity == severity for defect in self.defects)

    @property
    def passed(self) -> tuple[str, ...]:
        """The checks that found nothing."""
        failed = {defect.name for defect in self.defects}
        return tuple(name for name in CHECKS if name not in failed and name not in self.unchecked)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without images."""
        return {
            "dataset": self.dataset,
            **{f"{severity}s": self.count(severity) for severity in SEVERITIES},
            "defects": [defect.to_dict() for defect in self.defects],
            "passed": list(self.passed),
            "unchecked": self.unchecked,
            "assumptions": list(self.assumptions),
            "metrics": self.metrics.to_dict(),
        }

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a line for each row of each defect; what no row shows has no number."""
        import pandas

        lines = [
            (defect.name, row.split, str(row.row) if row.row >= 0 else "", row.id, row.detail)
            for defect in self.defects
            for row in defect.rows or (Example("", -1, "", defect.found),)
        ]
        return pandas.DataFrame(lines, columns=["check", "split", "row", "id", "detail"])


def examine(
    dataset: str | RowSource,
    model: Model | None = None,
    *,
    splits: Sequence[str] = (),
    allow_outside: bool = False,
    thumbnails: int = 0,
    names: bool = True,
    seed: int = 0,
    quick: bool = False,
    processes: int = 1,
    track: Callable[[Iterable[ImageRow], int | None], Iterable[ImageRow]] | None = None,
) -> Checkup:
    """Make all of :data:`CHECKS` in one pass over the rows.

    Args:
        dataset: its name, as for :func:`grounding_rewards.doctor.raw_rows.open_rows`, or its rows.
        splits: only these; all without.
        allow_outside: whether the images that `annotations.jsonl` names may lie outside its folder.
        model: what is known of the model to be trained.
        thumbnails: longer side in pixels of the images that are kept for a page; 0 keeps none.
        names: whether ids, patients and files are named; else they have numbers.
        seed: of the images of the contact sheet that are drawn.
        quick: whether to read only the headers of images.
        processes: how many decode images.
        track: takes the rows and their number, and yields the rows, for a progress bar.

    Returns:
        A :class:`Checkup`. Nothing in a row makes it raise.

    Raises:
        ValueError: the dataset cannot be found, has no such split, or has no column `boxes`.

    Example:
        >>> row = ImageRow("train", 0, {"boxes": [[90, 10, 110, 20]], "width": 100, "height": 200, "prompt": "Where?"})
        >>> checkup = examine(RowSource("images", lambda: iter([row]), 1))
        >>> [(defect.severity, defect.name, defect.examples[0].detail) for defect in checkup.defects]
        [('error', 'partly-off-image', 'box 0 is [90, 10, 110, 20] on 100 x 200')]
    """
    source = dataset if isinstance(dataset, RowSource) else open_rows(dataset, splits, allow_outside=allow_outside)
    context = Context(source, model or Model(), is_quick=quick, has_pictures=thumbnails > 0)
    rows = rows_with_facts(source.open(), source.total, processes, quick=quick)
    rows = rows if names else numbered(rows)
    # Most prompts and labels are the same words: one copy of them is kept.
    words: dict[str, Any] = {}
    for row in track(rows, source.total) if track else rows:
        context.images[row.split] += 1
        if damage := row.damage or "; ".join(row_problems(row.columns, parts=["lists"])):
            context.damaged.append(Problem("unreadable-row", row, damage))
            continue
        for column in ("prompt", "labels", "box_format"):
            if (value := row.columns.get(column)) is not None:
                row.columns[column] = words.setdefault(repr(value), value)
        context.rows.append(row)
    order = list(CHECKS)
    # Numbers near the largest are wrong, and named.
    with np.errstate(all="ignore"):
        defects = sorted(
            (defect for check in ALL_CHECKS for defect in check(context)),
            key=lambda defect: (SEVERITIES.index(defect.severity), order.index(defect.name)),
        )
        metrics = Metrics.of(context)
        sheet = contact_sheet(context, seed) if thumbnails else []
    pictures: list[ImagePicture] = []
    if thumbnails:
        examples = [example for defect in defects for example in defect.examples if example.image]
        examples += [example.partner for example in examples if example.partner]
        keys = {(example.split, example.row) for example in examples}
        jpegs = _thumbnails(source, keys | {row.key for row, _ in sheet}, thumbnails)
        for row, reason in sheet:
            image = picture(row)
            pictures.append(image._replace(jpeg=jpegs[row.key], title=f"{image.title} · {reason}"))
        defects = [_with_thumbnails(defect, jpegs) for defect in defects]
    return Checkup(source.name, tuple(defects), _unchecked(context), _assumptions(context), metrics, tuple(pictures))


def contact_sheet(context: Context, seed: int) -> list[tuple[ImageRow, str]]:
    """Images for a person to look at, each with why: some of each split at random, then those with the largest and the
    smallest box, most boxes and the rarest labels, in turn.
    """
    by_split: dict[str, list[ImageRow]] = {}
    for row in context.rows:
        by_split.setdefault(row.split, []).append(row)
    rng = random.Random(seed)
    of_each = min(_SPLIT_SHARE, _RANDOM_SHARE // max(1, len(by_split)))
    sheet: dict[tuple[str, int], tuple[ImageRow, str]] = {}
    for rows in by_split.values():
        for row in rng.sample(rows, min(of_each, len(rows))):
            sheet[row.key] = row, "at random"
    table = context.table
    indices = np.flatnonzero(table.sound & table.answers)
    sides = table.parts[indices, 2:] - table.parts[indices, :2]
    by_area = [table.places[k].row for k in indices[np.argsort(sides.prod(axis=1))[::-1]].tolist()]
    crowded = np.argsort([-count for count in context.counts], kind="stable")[:SHEET].tolist()
    rarest = sorted(context.labelled(), key=lambda place: context.labels[place.label])
    lists = {
        "largest box": by_area[:SHEET],
        "smallest box": by_area[: -SHEET - 1 : -1],
        "most boxes": [context.rows[k] for k in crowded if context.counts[k]],
        "rarest label": [place.row for place in rarest[:SHEET]],
    }
    for turn in range(SHEET):
        for reason, rows in lists.items():
            if turn < len(rows) and len(sheet) < SHEET:
                sheet.setdefault(rows[turn].key, (rows[turn], reason))
    return list(sheet.values())


def _thumbnails(source: RowSource, keys: set[tuple[str, int]], side: int) -> dict[tuple[str, int], bytes]:
    """Small copies of the images of rows as JPEG, by key; empty where one cannot be read.

    The rows are read once more: which images are shown is known only after the last one.
    """
    jpegs = dict.fromkeys(keys, b"")
    for row in source.open():
        if row.key in jpegs and row.image is not None:
            buffer = BytesIO()
            try:
                small_image(load_image(row.image, draft=side), side).save(buffer, format="JPEG", quality=80)
            except ValueError:
                continue
            jpegs[row.key] = buffer.getvalue()
    return jpegs


def _with_thumbnails(defect: Defect, jpegs: dict[tuple[str, int], bytes]) -> Defect:
    def with_thumbnail(example: Example) -> Example:
        image = example.image and example.image._replace(jpeg=jpegs[example.split, example.row])
        return example._replace(image=image, partner=example.partner and with_thumbnail(example.partner))

    return replace(defect, examples=tuple(map(with_thumbnail, defect.examples)))


def _unchecked(context: Context) -> dict[str, str]:
    """Names of checks that could not be made, and why."""
    reasons: dict[str, str] = {}
    if len(context.images) < 2:
        reasons["splits"] = "there is one split only"
    if not any(row.patient_id or patient_in_name(row.file) for row in context.rows):
        reasons["patients"] = "no column patient_id"
    if context.is_quick:
        reasons["pixels"] = "--quick reads the headers of images, not their pixels"
    if not any(context.model.format_of(row) for row in context.rows):
        reasons["format"] = "no box format: give --box-format, or add the column box_format"
    unchecked = {
        name: reasons[need] for name, check in CHECKS.items() for need in reversed(check.needs) if need in reasons
    }
    # Only the model's own answers say whether a reward tells them apart; another command asks for them.
    words = ("grounding-rewards", "signal", "--model", context.model.name or "MODEL", "--dataset", context.source.name)
    return unchecked | {"no-signal": f"it takes answers of the model: {shlex.join(words)}"}


def _assumptions(context: Context) -> tuple[str, ...]:
    assumptions = []
    if any(row.size is not None and context.model.resized(row) is None for row in context.rows):
        assumptions.append(
            f"Images reach the model with at most {ASSUMED_MAX_PIXELS:,} pixels (1280 patches of 28 x 28); give "
            "--model, or the columns resized_width and resized_height, for the real size."
        )
    if count := sum(row.prompt is None for row in context.rows):
        assumptions.append(
            f"{count} of {context.images.total()} rows have no prompt: training and evaluation ask for every label "
            "of the dataset, in the words of `grounding-rewards prepare`."
        )
    if context.longest_gold and not context.model.counts_tokens:
        assumptions.append(
            "Every digit of an answer is a token of its own, as in Qwen or Gemma; give --model to count them."
        )
    if context.source.draw_note:
        assumptions.append(
            f"{context.source.draw_note} Here all images are looked at together. Copies of an image under other "
            "patients may part; `grounding-rewards prepare` keeps them in one split."
        )
    return tuple(assumptions)
