"""Make all checks in one pass over the rows of a dataset."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grounding_rewards.doctor.answer_checks import AnswerExaminer, GoldExaminer
from grounding_rewards.doctor.box_checks import BoxExaminer
from grounding_rewards.doctor.case import Case, Examiner
from grounding_rewards.doctor.defects import CHECKS, SEVERITIES, Defect, ImagePicture
from grounding_rewards.doctor.histograms import Metrics
from grounding_rewards.doctor.image_checks import ImageExaminer, RowExaminer, rows_with_pixels
from grounding_rewards.doctor.label_checks import LabelExaminer
from grounding_rewards.doctor.model import Model
from grounding_rewards.doctor.raw_rows import ImageRow, RowSource, numbered, open_rows
from grounding_rewards.doctor.reader_checks import ReaderExaminer
from grounding_rewards.doctor.repeat_checks import RepeatExaminer
from grounding_rewards.doctor.source_checks import GreyExaminer, SourceExaminer
from grounding_rewards.doctor.split_checks import SplitExaminer

#: The examiners in stages: a row with an error does not reach the next stage.
STAGES: tuple[tuple[type[Examiner], ...], ...] = (
    (RowExaminer,),
    # Readers first: their boxes explain repeated ones.
    (
        *(ReaderExaminer, BoxExaminer, ImageExaminer, RepeatExaminer, LabelExaminer, AnswerExaminer, SplitExaminer),
        *(SourceExaminer, GreyExaminer),
    ),
    (GoldExaminer,),
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
    rows: bool = False,
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
        rows: whether each defect lists all its rows.
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
    case, chance = Case(source, model or Model(), thumbnails, quick, rows), random.Random(seed)
    stages = [[make(case) for make in stage] for stage in STAGES]
    sample: list[ImagePicture] = []
    images = source.open() if quick else rows_with_pixels(source.open(), source.total, processes)
    images = images if names else numbered(images)
    for done, row in enumerate(track(images, source.total) if track else images, start=1):
        case.metrics.images[row.split] += 1
        case.totals["images"] = done
        for stage in stages:
            errors = [examiner.add(row) for examiner in stage]
            if any(errors):
                break
        if thumbnails:
            # A uniform sample of unknown size: Vitter's algorithm R.
            place = chance.randrange(done)
            if len(sample) < SAMPLE:
                sample.append(case.picture(row))
            elif place < SAMPLE:
                sample[place] = case.picture(row)
    examiners = [examiner for stage in stages for examiner in stage]
    order = list(CHECKS)
    defects = sorted(
        (defect for examiner in examiners for defect in examiner.defects()),
        key=lambda defect: (SEVERITIES.index(defect.severity), order.index(defect.name)),
    )
    return Checkup(
        source.name,
        tuple(defects),
        {name: why for examiner in examiners for name, why in examiner.unchecked().items()} | _no_signal(case),
        tuple(assumption for examiner in examiners for assumption in examiner.assumptions()),
        case.metrics,
        tuple(sample),
    )


def _no_signal(case: Case) -> dict[str, str]:
    """Only the model's own answers say whether a reward tells them apart; another command asks for them."""
    words = ("grounding-rewards", "signal", "--model", case.model.name or "MODEL", "--dataset", case.source.name)
    return {"no-signal": f"it takes answers of the model: {shlex.join(words)}"}
