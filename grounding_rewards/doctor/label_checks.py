"""Has every box one label, and every finding one name?"""

from __future__ import annotations

from collections.abc import Iterator

from grounding_rewards.data.checks import is_blank, label_count_problems
from grounding_rewards.data.film_rows import FilmRow
from grounding_rewards.doctor.case import Examiner
from grounding_rewards.doctor.findings import Check, Example, Finding, Problem
from grounding_rewards.doctor.label_variants import label_variants

_SPELLING = Check(
    "label-spelling",
    "Several spellings of one label",
    "Each spelling becomes a finding of its own in prompts, in label-aware rewards and in every table.",
    "Map them to one: `grounding_rewards.labels.normalize_label`, or a table of your own.",
    severity="warning",
    unit="labels",
)
_WORDS = Check(
    "label-words",
    "Several words for one finding",
    "By the shared vocabulary these are one finding; counted apart, each is rarer than it is.",
    "Map them to one name with `grounding_rewards.labels.normalize_label`, or reward with "
    "`label_matching: synonyms`. If the dataset means different things by them, leave them.",
    severity="warning",
    unit="labels",
)


class LabelExaminer(Examiner):
    """Missing and blank labels, and several labels for one finding."""

    checks = (
        Check(
            "label-count",
            "Labels that are not as many as the boxes",
            "It can't be told which label belongs to which box.",
            "Give one label for each box, in the same order.",
            unit="films",
        ),
        Check(
            "blank-label",
            "Boxes with a blank label",
            "The right answer then names a finding without a name.",
            'Name the finding, or call all of them "finding" if only places are of interest.',
            severity="warning",
        ),
        _SPELLING,
        _WORDS,
    )

    def look(self, row: FilmRow) -> Iterator[Problem]:
        if wrong := list(label_count_problems(row.columns)):
            yield Problem("label-count", "; ".join(wrong))
        for drawing in row.drawings:
            for index, label in enumerate(drawing.labels or ()):
                if is_blank(label):
                    yield Problem("blank-label", f"{drawing.prefix}label {index} is {label!r:.40}", drawing.name)

    def findings(self) -> Iterator[Finding]:
        yield from super().findings()
        labels = self.case.figures.labels
        groups = label_variants(labels)
        for check in (_SPELLING, _WORDS):
            mine = [group for group in groups if (group.why == "words") == (check is _WORDS)]
            if mine:
                found = f"{len(mine)} {'group' if len(mine) == 1 else 'groups'} of labels that are probably one each."
                listed = [", ".join(f"{label!r} × {labels[label]}" for label in group.labels) for group in mine]
                examples = [Example("", -1, "", one) for one in listed]
                yield check.finding(sum(len(group.labels) for group in mine), len(labels), found, examples)
