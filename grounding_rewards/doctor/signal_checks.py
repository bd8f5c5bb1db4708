"""Whether the reward tells the model's answers apart, before the first step."""

from __future__ import annotations

from collections.abc import Iterator

from grounding_rewards.doctor.case import Examiner
from grounding_rewards.doctor.defects import Check, Defect
from grounding_rewards.metrics.signal_report import ENOUGH, SignalReport

_NO_SIGNAL = Check(
    "no-signal",
    "Answers of the model to the same image that all earn the same",
    "GRPO compares the answers to one image: where all of them earn the same, the image teaches nothing, and a run on "
    "many such images is spent for nothing.",
    "Train with the reward that tells the answers apart, or first with `grounding-rewards sft`; `grounding-rewards "
    "signal --model … --dataset … --html signal.html` asks about more images, and shows them.",
    severity="warning",
    unit="images",
)


class SignalExaminer(Examiner):
    """What the model's own answers earn, where it was asked; no row is looked at."""

    checks = (_NO_SIGNAL,)

    def defects(self) -> Iterator[Defect]:
        report = self.case.model.signal
        if report is not None and report.configured.no_spread.value > ENOUGH:
            yield _NO_SIGNAL.defect(_flat(report), report.groups, report.recommendation)

    def unchecked(self) -> dict[str, str]:
        return {} if self.case.model.signal is not None else {_NO_SIGNAL.name: self.case.model.unasked}

    def assumptions(self) -> Iterator[str]:
        report = self.case.model.signal
        if report is not None:
            yield (
                f"{report.groups} images and {report.size} answers to each speak for all: {report.configured.name} "
                f"tells the model's answers apart on {report.groups - _flat(report)} of them."
            )


def _flat(report: SignalReport) -> int:
    """Groups without spread."""
    return sum(cause is not None for cause in report.causes)
