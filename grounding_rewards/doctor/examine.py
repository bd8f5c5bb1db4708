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
from grounding_rewards.doctor.answer_checks import check_expected_answers, check_gold, check_prompts
from grounding_rewards.doctor.box_checks import check_boxes, check_pairs
from grounding_rewards.doctor.case import CHECKS, SEVERITIES, Case, Defect, Example, ImagePicture, Problem, picture
from grounding_rewards.doctor.fit_checks import check_fit
from grounding_rewards.doctor.group_checks import check_differences, check_shortcuts
from grounding_rewards.doctor.histograms import Metrics
from grounding_rewards.doctor.image_checks import check_greys, check_image_files, check_unreadable_rows, rows_with_facts
from grounding_rewards.doctor.label_checks import check_labels
from grounding_rewards.doctor.mirrored_images import check_mirrored_images
from grounding_rewards.doctor.model import ASSUMED_MAX_PIXELS, Model
from grounding_rewards.doctor.raw_rows import ImageRow, RowSource, numbered, open_rows
from grounding_rewards.doctor.repeat_checks import check_repeats
from grounding_rewards.doctor.split_checks import check_splits
from grounding_rewards.images.decoding import load_image, small_image

#: What is looked for: each takes the case, and yields defects of :data:`CHECKS`. The last one takes rows in which the
#: others found no error.
ALL_CHECKS: tuple[Callable[[Case], Iterator[Defect]], ...] = (
    *(check_unreadable_rows, check_greys, check_boxes, check_pairs, check_image_files, check_repeats, check_labels),
    *(
        check_expected_answers,
        check_prompts,
        check_splits,
        check_differences,
        check_fit,
        check_mirrored_images,
        check_shortcuts,
        check_gold,
    ),
)
#: Images in the sample for the page.
SAMPLE = 12


@dataclass(frozen=True)
class Checkup:
    """The defects of a dataset.

    Attributes:
        dataset: its name.
        defects: the worst first.
        unchecked: names of checks that could not be made, and why.
        assumptions: one sentence each.
        metrics: counts over all images.
        sample: images drawn at random, if images are kept.
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
        found = {defect.name for defect in self.defects}
        return tuple(name for name in CHECKS if name not in found and name not in self.unchecked)

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
            (defect.name, one.split, str(one.row) if one.row >= 0 else "", one.id, one.detail)
            for defect in self.defects
            for one in defect.rows or (Example("", -1, "", defect.found),)
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
        seed: of the sample of images.
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
    case = Case(source, model or Model(), is_quick=quick, has_pictures=thumbnails > 0)
    images = rows_with_facts(source.open(), source.total, processes, quick=quick)
    images = images if names else numbered(images)
    # Most prompts are the same words: one copy of them is kept.
    prompts: dict[str, Any] = {}
    for row in track(images, source.total) if track else images:
        case.images[row.split] += 1
        if damage := row.damage or "; ".join(row_problems(row.columns, about=["lists"])):
            case.damaged.append(Problem("unreadable-row", row, damage))
            continue
        if (prompt := row.columns.get("prompt")) is not None:
            row = replace(row, columns={**row.columns, "prompt": prompts.setdefault(repr(prompt), prompt)})
        case.rows.append(row)
    order = list(CHECKS)
    # Numbers near the largest are wrong, and named.
    with np.errstate(all="ignore"):
        defects = sorted(
            (defect for check in ALL_CHECKS for defect in check(case)),
            key=lambda defect: (SEVERITIES.index(defect.severity), order.index(defect.name)),
        )
    metrics = Metrics.of(case)
    sample: list[ImagePicture] = []
    if thumbnails:
        chosen = random.Random(seed).sample(case.rows, min(SAMPLE, len(case.rows)))
        shown = {(one.split, one.row) for defect in defects for one in defect.examples if one.image}
        jpegs = _thumbnails(source, shown | {row.key for row in chosen}, thumbnails)
        sample = [picture(row)._replace(jpeg=jpegs[row.key]) for row in chosen]
        defects = [_with_thumbnails(defect, jpegs) for defect in defects]
    return Checkup(source.name, tuple(defects), _unchecked(case), tuple(_assumptions(case)), metrics, tuple(sample))


def _thumbnails(source: RowSource, keys: set[tuple[str, int]], side: int) -> dict[tuple[str, int], bytes]:
    """Small copies of the images of rows as JPEG, by key; empty where one cannot be read.

    The rows are read once more: which images are shown is known only after the last one.
    """
    found = dict.fromkeys(keys, b"")
    for row in source.open():
        if row.key in found and row.image is not None:
            buffer = BytesIO()
            try:
                small_image(load_image(row.image, draft=side), side).save(buffer, format="JPEG", quality=80)
            except ValueError:
                continue
            found[row.key] = buffer.getvalue()
    return found


def _with_thumbnails(defect: Defect, jpegs: dict[tuple[str, int], bytes]) -> Defect:
    examples = (
        one._replace(image=one.image and one.image._replace(jpeg=jpegs[one.split, one.row])) for one in defect.examples
    )
    return replace(defect, examples=tuple(examples))


def _unchecked(case: Case) -> dict[str, str]:
    """Names of checks that could not be made, and why."""
    why = {
        "splits": "" if len(case.images) > 1 else "there is one split only",
        "patients": "" if any(row.patient_id for row in case.rows) else "no column patient_id",
        "pixels": "--quick reads the headers of images, not their pixels" if case.is_quick else "",
        "format": ""
        if any(case.model.format_of(row) for row in case.rows)
        else "no box format: give --box-format, or add the column box_format",
    }
    unchecked = {
        name: missing[0]
        for name, check in CHECKS.items()
        if (missing := [why[what] for what in check.needs if why[what]])
    }
    # Only the model's own answers say whether a reward tells them apart; another command asks for them.
    words = ("grounding-rewards", "signal", "--model", case.model.name or "MODEL", "--dataset", case.source.name)
    return unchecked | {"no-signal": f"it takes answers of the model: {shlex.join(words)}"}


def _assumptions(case: Case) -> Iterator[str]:
    if any(row.size is not None and case.model.resized(row) is None for row in case.rows):
        yield (
            f"Images reach the model with at most {ASSUMED_MAX_PIXELS:,} pixels (1280 patches of 28 x 28); give "
            "--model, or the columns resized_width and resized_height, for the real size."
        )
    if without := sum(row.prompt is None for row in case.rows):
        yield (
            f"{without} of {case.images.total()} rows have no prompt: training and evaluation ask for every label of "
            "the dataset, in the words of `grounding-rewards prepare`."
        )
    if case.longest_gold and not case.model.counts_tokens:
        yield "Every digit of an answer is a token of its own, as in Qwen or Gemma; give --model to count them."
    if case.source.drawn:
        yield (
            f"{case.source.drawn} Here all images are looked at together. Copies of an image under other patients may "
            "part; `grounding-rewards prepare` keeps them in one split."
        )
