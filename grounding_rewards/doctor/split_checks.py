"""Checks of splits against each other: does each have images with findings, and training every finding of the test?"""

from __future__ import annotations

from collections.abc import Iterator

from grounding_rewards.doctor.case import Examiner
from grounding_rewards.doctor.defects import Check, Defect, Example

_TRAIN = "train"
# How seldom chance alone leaves a kind of image out of a split.
_CHANCE = 1e-3
# With fewer boxes per label these are free phrases, each of which occurs once.
_FEWEST_PER_LABEL = 3

_WITHOUT_FINDINGS = Check(
    "split-without-findings",
    "A split without a single box",
    "Images whose boxes were never published, or were lost on the way, look like normal images: every right answer "
    "counts "
    "as hallucinated there, and no sensitivity can be measured.",
    "Take the boxes from where they are, or leave the split out; to test, hold out images of the training set.",
    severity="warning",
    unit="images",
)
_WITHOUT_NEGATIVES = Check(
    "split-without-negatives",
    "A split in which every image has boxes, unlike the others",
    "Training without normal images teaches that there is always something; a test without them says nothing of false "
    "boxes on normal images.",
    "Draw all splits by patient from the same images.",
    severity="warning",
    unit="images",
)
_UNSEEN = Check(
    "label-not-in-train",
    "Findings that the training split does not have",
    "Nobody teaches the model to find them, or the splits name the same finding differently.",
    "Give the finding one name in all splits, split again so that training has it, or leave it out of the test.",
    severity="warning",
    unit="labels",
)


class SplitExaminer(Examiner):
    """What one split has and another lacks, from the metrics of the case."""

    checks = (_WITHOUT_FINDINGS, _WITHOUT_NEGATIVES, _UNSEEN)

    def defects(self) -> Iterator[Defect]:
        metrics = self.case.metrics
        total = sum(metrics.splits.values())
        for check, kind, words in (
            (_WITHOUT_FINDINGS, metrics.with_boxes, "has boxes"),
            (_WITHOUT_NEGATIVES, metrics.splits - metrics.with_boxes, "has none"),
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
            yield _UNSEEN.defect(len(unseen), len(metrics.labels), examples=examples)
