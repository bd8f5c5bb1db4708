"""Checks of splits against each other: does each have images with findings, and training every finding of the test?"""

from __future__ import annotations

from collections.abc import Iterator

from grounding_rewards.doctor.case import Examiner
from grounding_rewards.doctor.defects import CHECKS, Defect, Example, named

_TRAIN = "train"
# How seldom chance alone leaves a kind of image out of a split.
_CHANCE = 1e-3
# With fewer boxes per label these are free phrases, each of which occurs once.
_FEWEST_PER_LABEL = 3


class SplitExaminer(Examiner):
    """What one split has and another lacks, from the metrics of the case."""

    checks = named("split-without-findings", "split-without-negatives", "label-not-in-train")

    def defects(self) -> Iterator[Defect]:
        metrics = self.case.metrics
        total = sum(metrics.splits.values())
        for check, kind, words in (
            (CHECKS["split-without-findings"], metrics.with_boxes, "has boxes"),
            (CHECKS["split-without-negatives"], metrics.splits - metrics.with_boxes, "has none"),
        ):
            bare = {split: images for split, images in metrics.splits.items() if not kind[split]}
            elsewhere = total - sum(bare.values())
            share = sum(kind.values()) / max(1, elsewhere)
            here = {split: images for split, images in bare.items() if (1 - share) ** images < _CHANCE}
            if here and share:
                count = sum(here.values())
                found = (
                    f"{', '.join(here)}: none of {count} images {words}; elsewhere {sum(kind.values())} of {elsewhere}."
                )
                yield check.defect(count, total, found)
        yield from self._unseen()

    def unchecked(self) -> dict[str, str]:
        alone = len(self.case.metrics.splits) < 2
        return dict.fromkeys((check.name for check in self.checks), "there is one split only") if alone else {}

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
