"""Checks of splits and sources against each other: does each have images with findings, and training every finding?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from grounding_rewards.data.patients import patient_in_name
from grounding_rewards.doctor.box_defects import is_placeholder
from grounding_rewards.doctor.case import Case, Examiner
from grounding_rewards.doctor.defects import CHECKS, Defect, Example, Problem, named
from grounding_rewards.doctor.raw_rows import ImageRow
from grounding_rewards.sources.base import split_name

_TRAIN = "train"
# How seldom chance alone leaves a kind of image out of a split.
_CHANCE = 1e-3
# With fewer boxes per label these are free phrases, each of which occurs once.
_FEWEST_PER_LABEL = 3


@dataclass
class _Kind:
    """Images of one kind, and their patients, by group; the images of a patient are alike."""

    images: Counter[str] = field(default_factory=Counter)
    patients: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, group: str, patient: str) -> None:
        self.images[group] += 1
        self.patients[group].add(patient)


@dataclass
class _Groups:
    """All images of several groups, those with boxes and those without."""

    all: _Kind = field(default_factory=_Kind)
    drawn: _Kind = field(default_factory=_Kind)
    normal: _Kind = field(default_factory=_Kind)

    def add(self, group: str, patient: str, has_boxes: bool) -> None:
        self.all.add(group, patient)
        (self.drawn if has_boxes else self.normal).add(group, patient)

    def without(self, kind: _Kind) -> dict[str, int]:
        """Images of each group that lacks a kind, unless chance explains it."""
        bare = [group for group in self.all.images if not kind.images[group]]
        elsewhere = sum(len(self.all.patients[group]) for group in kind.images)
        share = sum(map(len, kind.patients.values())) / max(1, elsewhere)
        return {
            group: self.all.images[group] for group in bare if (1 - share) ** len(self.all.patients[group]) < _CHANCE
        }


class SplitExaminer(Examiner):
    """What one split or source has and another lacks."""

    checks = named(
        *("split-names", "split-without-findings", "split-without-negatives", "source-without-findings"),
        "label-not-in-train",
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._splits, self._sources = _Groups(), _Groups()

    def look(self, row: ImageRow) -> Iterator[Problem]:
        has_boxes = any(
            not is_placeholder(box, drawing.label(k)) for drawing in row.answers for k, box in enumerate(drawing.boxes)
        )
        patient = row.patient_id or patient_in_name(row.file) or f"{row.split} {row.number}"
        self._splits.add(row.split, patient, has_boxes)
        if (source := row.columns.get("source")) is not None:
            self._sources.add(str(source), patient, has_boxes)
        yield from ()

    def defects(self) -> Iterator[Defect]:
        splits, sources = self._splits, self._sources
        spellings: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for split, images in splits.all.images.items():
            spellings[split_name(split)][split] = images
        for alike in spellings.values():
            if len(alike) > 1:
                found = f"{', '.join(f'{split}: {images} images' for split, images in alike.items())}."
                yield CHECKS["split-names"].defect(len(alike), len(splits.all.images), found)
        for name, groups, kind, words in (
            ("split-without-findings", splits, splits.drawn, "has boxes"),
            ("split-without-negatives", splits, splits.normal, "has none"),
            ("source-without-findings", sources, sources.drawn, "has boxes"),
        ):
            here = groups.without(kind)
            if here and kind.images:
                count, of = sum(here.values()), sum(groups.all.images[group] for group in kind.images)
                found = f"{', '.join(here)}: none of {count} images {words}; elsewhere {kind.images.total()} of {of}."
                yield CHECKS[name].defect(count, groups.all.images.total(), found)
        yield from self._unseen()

    def unchecked(self) -> dict[str, str]:
        named_sources = len(self._sources.all.images)
        unchecked = {} if named_sources > 1 else {"source-without-findings": "no column source with several sources"}
        if len(self._splits.all.images) > 1:
            return unchecked
        alone = [check.name for check in self.checks if check.name != "source-without-findings"]
        return unchecked | dict.fromkeys(alone, "there is one split only")

    def assumptions(self) -> Iterator[str]:
        if drawn := self.case.source.drawn:
            yield (
                f"{drawn} Here all images are looked at together. Copies of an image under other patients may part; "
                "`grounding-rewards prepare` keeps them in one split."
            )

    def _unseen(self) -> Iterator[Defect]:
        metrics = self.case.metrics
        taught = {label for split, label in metrics.label_images if split == _TRAIN}
        free = len(metrics.labels) * _FEWEST_PER_LABEL > sum(metrics.labels.values())
        if not taught or free:
            return
        unseen: dict[str, list[str]] = {}
        for (split, label), images in metrics.label_images.items():
            if label not in taught:
                unseen.setdefault(label, []).append(f"{images} {'image' if images == 1 else 'images'} of {split}")
        if unseen:
            examples = [Example("", -1, "", f"{label!r:.80} on {', '.join(where)}") for label, where in unseen.items()]
            yield CHECKS["label-not-in-train"].defect(len(unseen), len(metrics.labels), examples=examples)
