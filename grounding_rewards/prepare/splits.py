"""The splits that a dataset gives its patients, each in one of them; how others are drawn: `data.held_out`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.patients import patient_of_image
from grounding_rewards.prepare.settings import check_split_name

_SHOWN = 5


class PatientSplits:
    """Collects a dataset's own splits of its patients, and finds patients in several.

    >>> splits = PatientSplits()
    >>> splits.add(AnnotatedImage("a", "a.png", [], [], patient_id="7", split="train"))
    >>> splits.add(AnnotatedImage("b", "b.png", [], [], patient_id="7", split="test"))
    >>> splits.check()
    Traceback (most recent call last):
    ...
    ValueError: Expected every patient in one split of the dataset, got 1 in several: 7 (train, test). Draw the splits \
anew with splits_from="hash" (--splits-from hash).
    """

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self._several: dict[str, dict[str, None]] = {}

    def add(self, record: AnnotatedImage) -> None:
        """Add one image."""
        if record.split is None:
            return
        check_split_name(record.split)
        patient = patient_of_image(record)
        if patient is not None:
            first = self.known.setdefault(patient, record.split)
            if first != record.split:
                self._several.setdefault(patient, {first: None})[record.split] = None

    def check(self) -> None:
        """Raise an error that names patients in several splits."""
        if self._several:
            raise ValueError(
                "Expected every patient in one split of the dataset, got "
                f"{len(self._several)} in several: {_named(self._several.items())}. "
                'Draw the splits anew with splits_from="hash" (--splits-from hash).'
            )


def _named(several: Iterable[tuple[str, Mapping[str, None]]]) -> str:
    names = [f"{patient} ({', '.join(splits)})" for patient, splits in several]
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
