"""Make all checks in one pass over the rows of a dataset, and count its boxes and labels."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np

from grounding_rewards.doctor.answer_checks import check_gold, check_negatives, check_prompts
from grounding_rewards.doctor.box_checks import check_boxes, check_pairs
from grounding_rewards.doctor.context import ASSUMED_MAX_PIXELS, CHECKS, SEVERITIES, Context, Defect, Fault, Model
from grounding_rewards.doctor.image_checks import check_images, rows_with_facts
from grounding_rewards.doctor.label_checks import check_labels
from grounding_rewards.doctor.rows import ImageRow, RowSource, open_rows
from grounding_rewards.doctor.split_checks import check_labels_of_training, check_repeats, check_split_names
from grounding_rewards.images.decoding import load_image, small_image

#: The functions that check; each takes the context, and yields defects of :data:`CHECKS`.
ALL_CHECKS: tuple[Callable[[Context], Iterator[Defect]], ...] = (
    *(check_images, check_boxes, check_pairs, check_labels, check_split_names, check_labels_of_training),
    *(check_repeats, check_negatives, check_prompts, check_gold),
)
#: Images of the contact sheet.
SHEET = 24
# Those of them that are drawn at random: at most of each split, and of all splits together.
_MAX_RANDOM_OF_SPLIT = 6
_MAX_RANDOM = 16

# Cells on a side of a map of centres or sizes of boxes.
_CELLS = 32
# The most frequent labels have maps.
_MAX_MAPS = 64


@dataclass
class Metrics:
    """Counts over all images. Centres and sizes are those of boxes without a defect.

    Attributes:
        images: images by split.
        negatives: images without a box of any reader; a box that stands for "no finding" does not count.
        boxes: boxes of all right answers: those of each reader, or else `boxes`.
        labels: boxes by label.
        label_images: images by split and label.
        centres: counts of box centres by label, and of all boxes under None; (32, 32), rows from the top.
        sizes: likewise of width and height of boxes, in shares of the image.
        longest_gold: tokens of the longest right answer; 0 if they are not counted.
    """

    images: Counter[str] = field(default_factory=Counter)
    negatives: int = 0
    boxes: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    label_images: Counter[tuple[str, str]] = field(default_factory=Counter)
    centres: dict[str | None, np.ndarray] = field(default_factory=dict)
    sizes: dict[str | None, np.ndarray] = field(default_factory=dict)
    longest_gold: int = 0

    @property
    def rows(self) -> int:
        """Images of all splits."""
        return sum(self.images.values())

    @classmethod
    def of(cls, context: Context) -> Metrics:
        """Count the images, boxes and labels of a dataset, and where boxes lie and how large they are."""
        table = context.table
        metrics = cls(context.images, labels=context.labels, longest_gold=context.longest_gold)
        metrics.negatives = context.box_counts.count(0)
        metrics.boxes = sum(1 for _ in context.answer_places())
        # An image counts once for each of its labels.
        images_of_labels = {(place.row.key, place.label) for place in context.labelled_places()}
        metrics.label_images.update((split, label) for (split, _), label in images_of_labels)
        is_sound = table.is_sound & table.is_answer
        fractions = table.fractions[is_sound]
        sides = fractions[:, 2:] - fractions[:, :2]
        labels = np.array([str(table.places[index].label) for index in np.flatnonzero(is_sound)], dtype=np.str_)
        frequent_labels = [label for label, _ in metrics.labels.most_common(_MAX_MAPS)]
        # None stands for all boxes.
        for label in (None, *frequent_labels):
            selection = np.full(len(labels), True) if label is None else labels == label
            if selection.any():
                metrics.centres[label] = _count_in_cells((fractions[:, :2] + sides / 2)[selection])
                metrics.sizes[label] = _count_in_cells(sides[selection])
        return metrics

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "images": dict(self.images),
            "negatives": self.negatives,
            "boxes": self.boxes,
            "labels": dict(self.labels.most_common()),
            # 0 means that tokens are not counted: null in JSON.
            "longest_gold_answer_tokens": self.longest_gold or None,
        }


@dataclass(frozen=True)
class Checkup:
    """The defects of a dataset.

    Attributes:
        dataset: its name.
        defects: the worst first.
        unchecked: names of checks that could not be made, and why.
        assumptions: one sentence each.
        metrics: counts over all images.
        sample: the contact sheet, if images are kept: rows, each with why it is shown.
        jpegs: small copies of images by the key of their row, if images are kept; empty for one that cannot be read.
    """

    dataset: str
    defects: tuple[Defect, ...]
    unchecked: dict[str, str]
    assumptions: tuple[str, ...]
    metrics: Metrics
    sample: tuple[tuple[ImageRow, str], ...] = ()
    jpegs: dict[tuple[str, int], bytes] = field(default_factory=dict)

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
        """A ``pandas.DataFrame`` with a line for each row of each defect, and one for a defect that no row shows."""
        import pandas

        lines = []
        for defect in self.defects:
            # A defect of the whole dataset has no row: its line says what was found, without split, number and id.
            for fault in defect.rows or (Fault(None, defect.found),):
                # The number is -1 where there is no row.
                split, number, row_id = fault.place
                lines.append((defect.name, split, str(number) if number >= 0 else "", row_id, fault.detail))
        return pandas.DataFrame(lines, columns=["check", "split", "row", "id", "detail"])


def examine(
    dataset: str | RowSource,
    model: Model | None = None,
    *,
    splits: Sequence[str] = (),
    allow_outside: bool = False,
    thumbnails: int = 0,
    names: bool = True,
    processes: int = 1,
    track: Callable[[Iterable[ImageRow], int | None], Iterable[ImageRow]] | None = None,
) -> Checkup:
    """Make all of :data:`CHECKS` in one pass over the rows.

    Args:
        dataset: its name, as for :func:`grounding_rewards.doctor.rows.open_rows`, or its rows.
        splits: only these; empty for all.
        allow_outside: whether the images that `annotations.jsonl` names may lie outside its folder.
        model: the model to be trained, as far as it is known.
        thumbnails: longer side in pixels of the images that are kept for a page; 0 keeps none.
        names: whether ids, patients and files are named; else rows have their numbers alone, and of what is wrong with
            them only what is said of boxes and labels stands.
        processes: how many decode images.
        track: takes the rows and how many there are, and yields the same rows, for a progress bar.

    Returns:
        A :class:`Checkup`. Nothing in a row makes it raise.

    Raises:
        ValueError: the dataset cannot be found, has no rows, no such split, or no column `boxes`.

    Example:
        >>> row = ImageRow("train", 0, {"boxes": [[90, 10, 110, 20]], "width": 100, "height": 200, "prompt": "Where?"})
        >>> checkup = examine(RowSource("images", lambda: iter([row]), 1))
        >>> [(defect.severity, defect.name, defect.examples[0].detail) for defect in checkup.defects]
        [('error', 'partly-off-image', 'box 0 is [90, 10, 110, 20] on 100 x 200')]
    """
    source = dataset if isinstance(dataset, RowSource) else open_rows(dataset, splits, allow_outside=allow_outside)
    context = Context(source, model or Model(), names)
    read_rows: Iterable[ImageRow] = rows_with_facts(source.open(), source.total, processes)
    # Most prompts and labels are equal: one object is kept for all equal ones.
    distinct_values: dict[str, Any] = {}
    for row in read_rows if track is None else track(read_rows, source.total):
        for column in {"prompt", "labels", "box_format"} & row.columns.keys():
            value = row.columns[column]
            row.columns[column] = distinct_values.setdefault(repr(value), value)
        context.add(row)
    if not context.images and not source.unfinished:
        raise ValueError(f"Expected at least one row in {source.name!r}, got none. Check the path.")
    defects: list[Defect] = []
    # Numbers that overflow are wrong, and a check names them.
    with np.errstate(all="ignore"):
        for check in ALL_CHECKS:
            defects += check(context)
        # The worst first; among equals in the order of reports.
        order = list(CHECKS)
        defects.sort(key=lambda defect: (SEVERITIES.index(defect.severity), order.index(defect.name)))
        metrics = Metrics.of(context)
        sheet = contact_sheet(context) if thumbnails else []
    unchecked, assumptions = _unchecked(context), _assumptions(context)
    if not thumbnails:
        return Checkup(source.name, tuple(defects), unchecked, assumptions, metrics)
    # The page shows the contact sheet and the examples of every defect.
    shown_rows = [row for row, _ in sheet]
    for defect in defects:
        shown_rows += [fault.row for fault in defect.examples if fault.row is not None]
    jpegs = _thumbnails(source, {row.key for row in shown_rows}, thumbnails)
    return Checkup(source.name, tuple(defects), unchecked, assumptions, metrics, tuple(sheet), jpegs)


def _count_in_cells(points: np.ndarray) -> np.ndarray:
    """Count points, (n, 2) of x and y in [0, 1], in the cells of a map, (32, 32), whose rows begin at the top."""
    x, y = np.clip((points * _CELLS).astype(int), 0, _CELLS - 1).T
    return np.bincount(y * _CELLS + x, minlength=_CELLS**2).reshape(_CELLS, _CELLS)


def contact_sheet(context: Context) -> list[tuple[ImageRow, str]]:
    """Choose images for a person to look at; returns their rows, each with why it is shown.

    Some of each split are drawn at random. Then come those with the largest and the smallest box, most boxes and the
    rarest labels, one of each kind in turn, until there are :data:`SHEET`.
    """
    rows_by_split: dict[str, list[ImageRow]] = {}
    for row in context.rows:
        rows_by_split.setdefault(row.split, []).append(row)
    rng = random.Random(0)
    drawn_per_split = min(_MAX_RANDOM_OF_SPLIT, _MAX_RANDOM // max(1, len(rows_by_split)))
    # The row and why it is shown, by the key of the row, so that no image is shown twice.
    sheet: dict[tuple[str, int], tuple[ImageRow, str]] = {}
    for rows in rows_by_split.values():
        for row in rng.sample(rows, min(drawn_per_split, len(rows))):
            sheet[row.key] = row, "at random"
    table = context.table
    indices = np.flatnonzero(table.is_sound & table.is_answer)
    sides = table.fractions[indices, 2:] - table.fractions[indices, :2]
    # By the area of the box, a fraction of the image: the smallest first.
    ascending_indices = indices[np.argsort(sides.prod(axis=1))].tolist()
    rows_by_area = [table.places[index].row for index in ascending_indices]
    crowded_rows = np.argsort([-count for count in context.box_counts], kind="stable")[:SHEET].tolist()
    rarest_places = sorted(context.labelled_places(), key=lambda place: context.labels[place.label])
    rows_by_reason = {
        # From the end backwards.
        "largest box": rows_by_area[: -SHEET - 1 : -1],
        "smallest box": rows_by_area[:SHEET],
        "most boxes": [context.rows[number] for number in crowded_rows if context.box_counts[number]],
        "rarest label": [place.row for place in rarest_places[:SHEET]],
    }
    # One row for each reason in each turn; a row that is shown already keeps its first reason.
    for turn in range(SHEET):
        for reason, rows in rows_by_reason.items():
            if turn < len(rows) and len(sheet) < SHEET:
                sheet.setdefault(rows[turn].key, (rows[turn], reason))
    return list(sheet.values())


def _thumbnails(source: RowSource, keys: set[tuple[str, int]], side: int) -> dict[tuple[str, int], bytes]:
    """Small copies of the images of rows as JPEG, by the key of the row; empty for an image that cannot be read.

    The rows are read a second time: only after the last one it is known which images are shown.
    """
    jpegs = dict.fromkeys(keys, b"")
    for row in source.open():
        if row.key in jpegs and row.image is not None:
            buffer = BytesIO()
            with suppress(ValueError):
                small_image(load_image(row.image), side).save(buffer, format="JPEG", quality=80)
                jpegs[row.key] = buffer.getvalue()
    return jpegs


def _unchecked(context: Context) -> dict[str, str]:
    """The reason for each check that could not be made, by its name."""
    # By a need of checks, such as `splits`, that this dataset or model does not meet: why.
    reasons: dict[str, str] = {}
    if len(context.images) < 2:
        reasons["splits"] = "there is one split only"
    if not any(owner is not None and owner.check == "patient-leak" for owner in context.owners):
        reasons["patients"] = "no column patient_id"
    if not any(context.model.format_of(row) for row in context.rows):
        reasons["format"] = "no box format: give --box-format, or add the column box_format"
    if not context.model.has_tokenizer:
        reasons["tokens"] = "no tokenizer: give --model"
    unchecked: dict[str, str] = {}
    for name, check in CHECKS.items():
        for need in check.needs:
            if need in reasons:
                # The first reason is enough.
                unchecked.setdefault(name, reasons[need])
    return unchecked


def _assumptions(context: Context) -> tuple[str, ...]:
    """A sentence for each thing that the checks assume, as neither dataset nor model say it."""
    assumptions = []
    if any(row.size is not None and context.model.resized(row) is None for row in context.rows):
        assumptions.append(
            f"Images reach the model with at most {ASSUMED_MAX_PIXELS:,} pixels (1280 patches of 28 x 28); give "
            "--model, or the columns resized_width and resized_height, for the real size."
        )
    without_prompt = sum(row.prompt is None for row in context.rows)
    if without_prompt:
        assumptions.append(
            f"{without_prompt} of {context.images.total()} rows have no prompt: training and evaluation ask for every "
            "label of the dataset, in the words of `grounding-rewards prepare`."
        )
    if context.source.draw_note:
        assumptions.append(
            f"{context.source.draw_note} Here all images are looked at together. Copies of an image under other "
            "patients may part; `grounding-rewards prepare` keeps them in one split."
        )
    return tuple(assumptions)
