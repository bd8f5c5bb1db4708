"""What is wrong with a dataset of films and boxes, before a GPU-hour is spent on it.

One pass over the rows, one film at a time; what is kept are counters, a few examples, and a few bytes per film to know
it again. A check is a pure function of a row, or of the counters. Every finding says how often, where, why it matters
and what to do.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.data.checks import gold_problems
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.data.raw_rows import IGNORED, Drawing, FilmRow, RowSource
from grounding_rewards.data.resize import has_resized_size, resized_size
from grounding_rewards.doctor.box_defects import BoxFit, Diagnosis, box_defect
from grounding_rewards.doctor.checks import CHECKS, SEVERITIES
from grounding_rewards.doctor.label_variants import label_variants
from grounding_rewards.doctor.row_defects import (
    Problem,
    find_bad_boxes,
    find_bad_labels,
    find_duplicate_boxes,
    find_prompt_problems,
    find_small_boxes,
    find_unreadable,
    find_wrong_size,
    image_scale,
    shown,
    trusted_size,
)
from grounding_rewards.parsing import BoxFormat, get_box_format
from grounding_rewards.rewards.grounding import GroundingReward, get_reward

EXAMPLES = 3
#: Films in the sample of the report.
SAMPLE = 12
#: Characters that a token stands for in answers full of digits, where no tokenizer is given.
CHARACTERS_PER_TOKEN = 3.5
#: The area that films are brought to where neither a model nor columns say: 1280 patches of 28 x 28, a usual limit.
ASSUMED_MAX_PIXELS = 1280 * 28 * 28

_MOST_NEGATIVES = 0.95
_FEWEST_FILMS = 10
_CHUNK = 64
_HEAT = 32
_MOST_HEAT_LABELS = 64
_MOST_LABELS = 5000
#: Edges of the histograms: share of the film's area, width through height, shorter side in pixels that the model sees.
AREA_EDGES = np.logspace(-6, 0, 25)
ASPECT_EDGES = np.logspace(-4, 4, 17, base=2)
SIDE_EDGES = np.logspace(0, 11, 23, base=2)
#: Films with more boxes are counted together.
MOST_BOXES = 20


# Where all boxes are meant in another way, these would only say so once more, box by box.
_FOLLOWS = frozenset(
    ("swapped-corners", "no-area", "off-film", "partly-off-film", "small-boxes", "gold-reward", "near-duplicate-boxes")
)


class FilmPicture(NamedTuple):
    """A film to show: a small JPEG (no bytes where it can't be read), its size, and its boxes as they are given."""

    jpeg: bytes
    width: float
    height: float
    boxes: Sequence[Any]
    labels: Sequence[Any]
    title: str


class Example(NamedTuple):
    """Where a finding was met: split, number of the row in it, its id, what is there; `film` where films are kept."""

    split: str
    row: int
    id: str
    detail: str
    film: FilmPicture | None = None


@dataclass(frozen=True)
class Finding:
    """What was found.

    Attributes:
        name: a key of :data:`CHECKS`.
        severity: one of :data:`SEVERITIES`.
        title: what it is called.
        count: how many `unit` it concerns.
        of: how many there are; 0 where there is no such number.
        unit: what is counted.
        found: what was found beyond the count, a sentence; may be empty.
        why: why it matters.
        fix: what to do.
        examples: the first three.
    """

    name: str
    severity: str
    title: str
    count: int
    of: int
    unit: str
    found: str
    why: str
    fix: str
    examples: tuple[Example, ...]

    @property
    def share(self) -> float | None:
        """The part of all that it concerns; None where there is no such number."""
        return self.count / self.of if self.of else None

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON, without films."""
        return {
            "name": self.name,
            "severity": self.severity,
            "title": self.title,
            "count": self.count,
            "of": self.of or None,
            "share": self.share,
            "unit": self.unit,
            "found": self.found,
            "why": self.why,
            "fix": self.fix,
            "examples": [
                {"split": one.split, "row": one.row, "id": one.id, "detail": one.detail} for one in self.examples
            ],
        }


@dataclass
class Figures:
    """Counts over all films; those of boxes over sound boxes alone.

    Attributes:
        films: by split.
        negatives: films without a box; where there are `reader_boxes`, films on which no reader drew any.
        boxes: all that a right answer may hold: those of each reader, or else `boxes`.
        per_film: how many films have so many boxes, of the reader who drew most; those with :data:`MOST_BOXES` or more
            together.
        areas: histogram over :data:`AREA_EDGES` of the share of the film.
        aspects: histogram over :data:`ASPECT_EDGES` of width through height.
        sides: histogram over :data:`SIDE_EDGES` of the shorter side, in pixels that the model sees.
        labels: boxes by label.
        label_films: films by split and label.
        centres: by label, and under None of all, where the boxes' centres lie: (32, 32) counts, rows from the top.
        longest_gold: tokens of the longest right answer; 0 where there is no box format.
    """

    films: Counter[str] = field(default_factory=Counter)
    negatives: int = 0
    boxes: int = 0
    per_film: Counter[int] = field(default_factory=Counter)
    areas: np.ndarray = field(default_factory=lambda: np.zeros(len(AREA_EDGES) - 1, dtype=np.int64))
    aspects: np.ndarray = field(default_factory=lambda: np.zeros(len(ASPECT_EDGES) - 1, dtype=np.int64))
    sides: np.ndarray = field(default_factory=lambda: np.zeros(len(SIDE_EDGES) - 1, dtype=np.int64))
    labels: Counter[str] = field(default_factory=Counter)
    label_films: Counter[tuple[str, str]] = field(default_factory=Counter)
    centres: dict[str | None, np.ndarray] = field(default_factory=dict)
    longest_gold: int = 0

    @property
    def rows(self) -> int:
        """Films of all splits."""
        return sum(self.films.values())

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "films": dict(self.films),
            "negatives": self.negatives,
            "boxes": self.boxes,
            "boxes_per_film": {str(n): count for n, count in sorted(self.per_film.items())},
            "box_area_share": {"edges": AREA_EDGES.tolist(), "counts": self.areas.tolist()},
            "box_aspect": {"edges": ASPECT_EDGES.tolist(), "counts": self.aspects.tolist()},
            "shorter_side_seen": {"edges": SIDE_EDGES.tolist(), "counts": self.sides.tolist()},
            "labels": dict(self.labels.most_common()),
            "longest_gold_answer_tokens": self.longest_gold or None,
        }


@dataclass(frozen=True)
class Checkup:
    """The findings of a dataset.

    Attributes:
        dataset: its name.
        findings: the worst first.
        unchecked: what could not be looked for, and why, by the name of the check.
        assumptions: what was assumed, a sentence each.
        figures: counts over all films.
        sample: films drawn at random, where films are kept.
    """

    dataset: str
    findings: tuple[Finding, ...]
    unchecked: dict[str, str]
    assumptions: tuple[str, ...]
    figures: Figures
    sample: tuple[FilmPicture, ...]

    def count(self, severity: str) -> int:
        """How many findings are so bad."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def passed(self) -> tuple[str, ...]:
        """The checks that found nothing."""
        found = {finding.name for finding in self.findings}
        return tuple(name for name in CHECKS if name not in found and name not in self.unchecked)

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON, without films."""
        return {
            "dataset": self.dataset,
            **{f"{severity}s": self.count(severity) for severity in SEVERITIES},
            "findings": [finding.as_json() for finding in self.findings],
            "passed": list(self.passed),
            "unchecked": self.unchecked,
            "assumptions": list(self.assumptions),
            "figures": self.figures.as_json(),
        }


@dataclass(frozen=True)
class Model:
    """What is known of the model that will be trained.

    Attributes:
        box_format: how it writes boxes; None takes the rows' column.
        processor: its `transformers` processor, which resizes films and counts tokens; None makes assumptions.
        max_completion_length: tokens that it may write.
    """

    box_format: BoxFormat | None = None
    processor: Any = None
    max_completion_length: int = 256


def examine(
    source: RowSource,
    model: Model | None = None,
    *,
    thumbnails: int = 0,
    seed: int = 0,
    track: Callable[[Iterable[FilmRow], int | None], Iterable[FilmRow]] | None = None,
) -> Checkup:
    """Look for everything in :data:`CHECKS`, in one pass over the rows.

    Args:
        source: the rows, see :func:`grounding_rewards.data.raw_rows.open_rows`.
        model: what is known of the model; None knows nothing.
        thumbnails: longer side in pixels of the films that are kept for a report; 0 keeps none.
        seed: of the sample of films.
        track: goes through the rows, of which there are so many, and may show how far it got.

    Returns:
        A :class:`Checkup`. Nothing in a row makes it raise.
    """
    model = model or Model()
    patient = _Patient(source, model, thumbnails, random.Random(seed))
    rows = source.open()
    for row in track(rows, source.total) if track else rows:
        patient.add(row)
    return patient.checkup(source.name)


@dataclass
class _Bucket:
    """How often a problem was met in a split, and the first times."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)


class _Seen(NamedTuple):
    """What is kept of a film to know it again: its split, and what stands for its image and its prompt."""

    split: str
    row: int
    image: bytes | None
    prompt: int


class _Gold(NamedTuple):
    """A right answer that waits to be weighed: its row, whose it is, its box format, and its columns."""

    row: FilmRow
    drawing: Drawing
    box_format: BoxFormat
    columns: dict[str, Any]


class _Patient:
    """The dataset under examination: counters only, but for a few bytes per film."""

    def __init__(self, source: RowSource, model: Model, thumbnails: int, chance: random.Random) -> None:
        self._has_prompts = source.has_prompts
        self._unfinished = source.unfinished
        self._scales: dict[str, _Bucket] = {}
        self._rounded_scales: Counter[float] = Counter()
        self._model = model
        self._thumbnails = thumbnails
        self._chance = chance
        self._figures = Figures()
        # By check, and by split and drawing.
        self._buckets: dict[str, dict[str, _Bucket]] = {}
        self._listed = 0
        self._with_boxes: dict[str, list[Example]] = {}
        self._fits: dict[str, BoxFit] = {}
        self._by_id: dict[str, _Seen] = {}
        self._by_image: dict[bytes, _Seen] = {}
        self._split_of_patient: dict[str, str] = {}
        self._leaked: set[str] = set()
        self._formats: dict[str, BoxFormat | None] = {}
        self._gold: list[_Gold] = []
        self._sample: list[FilmPicture] = []
        self._assumed_resize = self._estimated_length = self._has_patients = self._has_format = False

    def add(self, row: FilmRow) -> None:
        self._figures.films[row.split] += 1
        problems = list(find_unreadable(row))
        if not problems:
            problems = self._look(row)
        for problem in problems:
            self._note(row, problem)
        self._draw_lot(row)

    def checkup(self, name: str) -> Checkup:
        self._weigh_gold()
        diagnoses = self._diagnose()
        by_split = {split: found for splits, found in diagnoses.items() for split in splits}
        findings = [
            *self._of_folder(),
            *self._diagnosed(diagnoses),
            *self._counted(by_split),
            *self._of_scales(),
            *self._of_labels(),
            *self._of_negatives(),
        ]
        findings.sort(key=lambda finding: (SEVERITIES.index(finding.severity), list(CHECKS).index(finding.name)))
        return Checkup(
            name, tuple(findings), self._unchecked(), tuple(self._assumptions()), self._figures, tuple(self._sample)
        )

    def _look(self, row: FilmRow) -> list[Problem]:
        problems = [
            *find_wrong_size(row),
            *find_bad_boxes(row),
            *find_bad_labels(row),
            *find_duplicate_boxes(row),
            *self._find_repeated(row),
        ]
        box_format, format_problems = self._format_of(row)
        problems += format_problems
        if self._has_prompts:
            problems += find_prompt_problems(row, box_format)
        self._has_format |= box_format is not None
        self._weigh_scale(row)
        if row.size is not None:
            seen = self._seen_size(row)
            problems += find_small_boxes(row, seen)
            self._count_boxes(row, seen)
            self._listed += sum(len(drawing.boxes) for drawing in row.drawings)
            sound = all(CHECKS[problem.name].severity != "error" for problem in problems)
            if box_format is not None and sound:
                self._expect_gold(row, box_format, seen)
        return problems

    def _note(self, row: FilmRow, problem: Problem) -> None:
        bucket = self._buckets.setdefault(problem.name, {}).setdefault(_group(row, problem.drawing), _Bucket())
        self._fill(bucket, row, problem.detail)

    def _fill(self, bucket: _Bucket, row: FilmRow, detail: str) -> None:
        bucket.count += 1
        if len(bucket.examples) < EXAMPLES:
            bucket.examples.append(self._example(row, detail))

    def _example(self, row: FilmRow, detail: str) -> Example:
        return Example(row.split, row.number, row.id, detail, self._picture(row) if self._thumbnails else None)

    def _picture(self, row: FilmRow) -> FilmPicture:
        width, height = row.size or row.image_size or (1, 1)
        title = f"{row.split} {row.number} · {row.id}"
        boxes = [box for drawing in row.drawings for box in drawing.boxes]
        labels = [_caption(drawing, k) for drawing in row.drawings for k in range(len(drawing.boxes))]
        return FilmPicture(row.thumbnail(self._thumbnails), width, height, boxes, labels, title)

    def _draw_lot(self, row: FilmRow) -> None:
        """Every film has the same chance to be shown, however many there are (Vitter's algorithm R)."""
        if not self._thumbnails:
            return
        place = self._chance.randrange(self._figures.rows)
        if len(self._sample) < SAMPLE:
            self._sample.append(self._picture(row))
        elif place < SAMPLE:
            self._sample[place] = self._picture(row)

    def _find_repeated(self, row: FilmRow) -> Iterator[Problem]:
        """Films and patients that were met before: in this split, or in another."""
        this = _Seen(row.split, row.number, row.image_hash, hash(row.prompt))
        by_image = None if this.image is None else self._by_image.setdefault(this.image, this)
        by_id = None if row.id == "-" else self._by_id.setdefault(row.id, this)
        # The same name for two images is a counter that starts anew, no film in two splits.
        if by_id is not None and by_id.split != row.split and None not in (by_id.image, this.image):
            by_id = None
        is_leak = False
        for how, before in (("image", by_image), ("id", by_id)):
            if before is None or before is this:
                continue
            where = f"row {before.row} of {before.split} has the same {how}"
            if before.split != row.split:
                is_leak = True
                yield Problem("film-leak", where)
                break
            if before.prompt == this.prompt:
                yield Problem("repeated-film" if how == "image" else "repeated-id", where)
                break
        patient = row.patient_id
        if patient is None:
            return
        self._has_patients = True
        split = self._split_of_patient.setdefault(patient, row.split)
        if split != row.split and not is_leak and patient not in self._leaked:
            self._leaked.add(patient)
            yield Problem("patient-leak", f"patient {patient} is also in {split}")

    def _format_of(self, row: FilmRow) -> tuple[BoxFormat | None, list[Problem]]:
        if self._model.box_format is not None:
            return self._model.box_format, []
        name = row.columns.get("box_format")
        if name is None:
            return None, []
        key = str(name)
        if key not in self._formats:
            try:
                self._formats[key] = get_box_format(key)
            except ValueError:
                self._formats[key] = None
        problems = [Problem("box-format", f"box_format is {key!r:.60}")] if self._formats[key] is None else []
        return self._formats[key], problems

    def _seen_size(self, row: FilmRow) -> tuple[float, float]:
        """The size of the film as the model gets it: by the row's columns, the processor, or an assumption."""
        assert row.size is not None
        resized = row.columns.get("resized_width"), row.columns.get("resized_height")
        if all(isinstance(side, int | float) and side > 0 for side in resized):
            return resized  # type: ignore[return-value]
        fed = row.image_size or row.size
        size = _processed_size(self._model.processor, fed)
        if size is None:
            self._assumed_resize = True
            scale = min(1.0, math.sqrt(ASSUMED_MAX_PIXELS / (fed[0] * fed[1])))
            size = max(1.0, round(fed[0] * scale)), max(1.0, round(fed[1] * scale))
        return size

    def _count_boxes(self, row: FilmRow, seen: tuple[float, float]) -> None:
        figures = self._figures
        counts = [len(drawing.boxes) for drawing in row.answers]
        figures.boxes += sum(counts)
        figures.negatives += not any(counts)
        figures.per_film[min(max(counts), MOST_BOXES)] += 1
        labels = [label for drawing in row.answers for label in drawing.labels or () if isinstance(label, str)]
        for label in labels:
            if label in figures.labels or len(figures.labels) < _MOST_LABELS:
                figures.labels[label] += 1
        for label in set(labels):
            if label in figures.labels:
                figures.label_films[row.split, label] += 1
        size = trusted_size(row)
        if size is None:
            return
        for drawing in row.drawings:
            self._fit_boxes(row, drawing, size)
        for drawing in row.answers:
            sound = [k for k, box in enumerate(drawing.boxes) if box_defect(box, size) is None]
            if sound:
                boxes = as_box_array([drawing.boxes[k] for k in sound])
                _measure(figures, boxes, [drawing.label(k) for k in sound], size, seen)

    def _fit_boxes(self, row: FilmRow, drawing: Drawing, size: tuple[float, float]) -> None:
        plain = [k for k, box in enumerate(drawing.boxes) if box_defect(box, size) != "normalised-boxes"]
        if not plain:
            return
        group = _group(row, drawing.name)
        self._fits.setdefault(group, BoxFit()).add(
            [drawing.boxes[k] for k in plain], size, _resized(row), [drawing.label(k) for k in plain]
        )
        if len(self._with_boxes.setdefault(group, [])) < EXAMPLES:
            found = f"box {plain[0]} is {shown(drawing.boxes[plain[0]])} on {size[0]:g} x {size[1]:g}"
            self._with_boxes[group].append(self._example(row, drawing.prefix + found))

    def _expect_gold(self, row: FilmRow, box_format: BoxFormat, seen: tuple[float, float]) -> None:
        for drawing in row.answers:
            self._gold.append(_Gold(row, drawing, box_format, _gold_columns(row, drawing, seen)))
        if len(self._gold) >= _CHUNK:
            self._weigh_gold()

    def _weigh_gold(self) -> None:
        """Write the right answers of the rows that wait, measure them, and see what they earn."""
        by_format: dict[int, list[_Gold]] = {}
        for one in self._gold:
            by_format.setdefault(id(one.box_format), []).append(one)
        for group in by_format.values():
            reward: GroundingReward = get_reward("R4", box_format=group[0].box_format)
            lost = gold_problems([one.columns for one in group], reward)
            # A film counts once, however many readers it has.
            details: dict[tuple[int, str], tuple[FilmRow, list[str]]] = {}
            for one, found in zip(group, lost, strict=True):
                long = list(self._find_long_answer(gold_answer(one.columns, one.box_format)))
                for problem in [*long, *([Problem("gold-reward", "; ".join(found))] if found else [])]:
                    said = details.setdefault((id(one.row), problem.name), (one.row, []))[1]
                    said.append(one.drawing.prefix + problem.detail)
            for (_, name), (row, said) in details.items():
                self._note(row, Problem(name, "; ".join(said)))
        self._gold.clear()

    def _find_long_answer(self, answer: str) -> Iterator[Problem]:
        tokens = self._tokens(answer)
        self._figures.longest_gold = max(self._figures.longest_gold, tokens)
        if tokens > self._model.max_completion_length:
            limit = self._model.max_completion_length
            yield Problem("gold-length", f"{tokens} tokens, max_completion_length is {limit}")

    def _tokens(self, answer: str) -> int:
        tokenizer = getattr(self._model.processor, "tokenizer", None)
        if tokenizer is None:
            self._estimated_length = True
            return math.ceil(len(answer) / CHARACTERS_PER_TOKEN) + 1
        # The token that ends the answer counts as well.
        return len(tokenizer(answer, add_special_tokens=False)["input_ids"]) + 1

    def _diagnose(self) -> dict[tuple[str, ...], Diagnosis]:
        """The mistakes that all boxes of a split and reader share; the others are judged together."""
        diagnoses: dict[tuple[str, ...], Diagnosis] = {}
        for group, fit in self._fits.items():
            is_ignored = group.endswith(f", {IGNORED}")
            # Regions to ignore may well be in one corner, such as a marker of the side.
            found = fit.diagnose(corners=not is_ignored)
            if found is not None and (found.whole or found.certain):
                diagnoses[group,] = found
        rest = tuple(group for group in self._fits if (group,) not in diagnoses and not group.endswith(f", {IGNORED}"))
        together = sum((self._fits[split] for split in rest), BoxFit())
        if found := together.diagnose():
            diagnoses[rest] = found
        return diagnoses

    def _diagnosed(self, diagnoses: dict[tuple[str, ...], Diagnosis]) -> Iterator[Finding]:
        for name in dict.fromkeys(found.name for found in diagnoses.values()):
            here = {splits: found for splits, found in diagnoses.items() if found.name == name}
            found = " ".join(
                one.found if len(splits) == len(self._fits) else f"{' and '.join(splits)}: {one.found}"
                for splits, one in here.items()
            )
            fix = " ".join(dict.fromkeys(one.fix for one in here.values()))
            count, of = sum(one.shown_by for one in here.values()), sum(one.of for one in here.values())
            examples = [
                example for splits in here for split in splits for example in self._diagnosed_examples(split, name)
            ]
            check = CHECKS[name]
            is_doubtful = name == "one-corner" and not any(one.certain for one in here.values())
            yield Finding(
                name,
                "warning" if is_doubtful else check.severity,
                check.title,
                count,
                of,
                check.unit,
                found,
                check.why,
                fix,
                tuple(examples[:EXAMPLES]),
            )

    def _diagnosed_examples(self, split: str, name: str) -> list[Example]:
        symptoms = ("swapped-corners",) if name == "box-order" else ()
        met = [
            example
            for symptom in (*symptoms, "off-film", "partly-off-film")
            if split in self._buckets.get(symptom, {})
            for example in self._buckets[symptom][split].examples
        ]
        return met or self._with_boxes.get(split, [])

    def _counted(self, diagnoses: dict[str, Diagnosis]) -> Iterator[Finding]:
        for name, by_split in self._buckets.items():
            buckets = [bucket for split, bucket in by_split.items() if not _is_explained(name, diagnoses.get(split))]
            count = sum(bucket.count for bucket in buckets)
            if not count:
                continue
            examples = tuple(example for bucket in buckets for example in bucket.examples)[:EXAMPLES]
            check = CHECKS[name]
            of = {
                "boxes": self._listed,
                "films": self._figures.rows,
                "patients": len(self._split_of_patient),
            }[check.unit]
            severity = "warning" if name == "gold-length" and self._estimated_length else check.severity
            found = self._extent(name)
            yield Finding(name, severity, check.title, count, of, check.unit, found, check.why, check.fix, examples)

    def _extent(self, name: str) -> str:
        if name == "gold-length":
            counted = "about " if self._estimated_length else ""
            return f"The longest takes {counted}{self._figures.longest_gold} tokens."
        return ""

    def _of_folder(self) -> Iterator[Finding]:
        if self._unfinished:
            check, found = CHECKS["unfinished-folder"], self._unfinished
            yield Finding(
                "unfinished-folder", check.severity, check.title, 1, 0, check.unit, found, check.why, check.fix, ()
            )

    def _weigh_scale(self, row: FilmRow) -> None:
        if row.image_size is None or trusted_size(row) is None:
            return
        assert row.size is not None
        detail = (
            f"width {row.size[0]:g}, height {row.size[1]:g}; the image is {row.image_size[0]} x {row.image_size[1]}"
        )
        self._fill(self._scales.setdefault(image_scale(row.image_size, row.size), _Bucket()), row, detail)
        self._rounded_scales[round(row.image_size[0] / row.size[0], 2)] += 1

    def _of_scales(self) -> Iterator[Finding]:
        """Images of another size than declared, unless all films are smaller copies or most are."""
        films = sum(bucket.count for bucket in self._scales.values())
        alike = max(
            (sum(self._rounded_scales[round(scale + step, 2)] for step in (0, 0.01)) for scale in self._rounded_scales),
            default=0,
        )
        are_most_exact = self._scales.get("same", _Bucket()).count > films / 2
        doubtful = {"larger": True, "near": True, "near-copy": alike < films, "smaller": are_most_exact}
        buckets = [self._scales[kind] for kind, is_doubtful in doubtful.items() if is_doubtful and kind in self._scales]
        if not buckets:
            return
        check = CHECKS["image-scale"]
        count = sum(bucket.count for bucket in buckets)
        examples = tuple(example for bucket in buckets for example in bucket.examples)[:EXAMPLES]
        found = f"{films - count} of {films} images are of the declared size or plain copies."
        yield Finding(
            "image-scale",
            check.severity,
            check.title,
            count,
            films,
            check.unit,
            found,
            check.why,
            check.fix,
            examples,
        )

    def _of_labels(self) -> Iterator[Finding]:
        groups = label_variants(self._figures.labels)
        for name in ("label-spelling", "label-words"):
            mine = [group for group in groups if (group.why == "words") == (name == "label-words")]
            if not mine:
                continue
            check = CHECKS[name]
            examples = [
                Example("", -1, "", ", ".join(f"{label!r} × {n}" for label, n in zip(*group[:2], strict=True)))
                for group in mine[:EXAMPLES]
            ]
            count = sum(len(group.labels) for group in mine)
            found = f"{len(mine)} {'group' if len(mine) == 1 else 'groups'} of labels that are probably one each."
            of = len(self._figures.labels)
            yield Finding(
                name, check.severity, check.title, count, of, check.unit, found, check.why, check.fix, tuple(examples)
            )

    def _of_negatives(self) -> Iterator[Finding]:
        films, negatives = sum(self._figures.per_film.values()), self._figures.negatives
        if films < _FEWEST_FILMS or 0 < negatives <= _MOST_NEGATIVES * films:
            return
        check = CHECKS["negatives"]
        found = f"{negatives} of {films} films have no box."
        yield Finding(
            "negatives", check.severity, check.title, negatives, films, check.unit, found, check.why, check.fix, ()
        )

    def _unchecked(self) -> dict[str, str]:
        unchecked: dict[str, str] = {}
        if not self._has_prompts:
            why = "the rows have no prompts of their own; they get them when they are loaded"
            unchecked |= {"prompt-missing": why, "prompt-format": why}
        if not self._has_format:
            why = "no box format: give --box-format, or add the column box_format"
            unchecked |= {
                name: why for name in ("prompt-format", "gold-length", "gold-reward") if name not in unchecked
            }
        splits = len(self._figures.films)
        if splits < 2:
            unchecked |= dict.fromkeys(("film-leak", "patient-leak"), "there is one split only")
        elif not self._has_patients:
            unchecked["patient-leak"] = "no column patient_id"
        return unchecked

    def _assumptions(self) -> Iterator[str]:
        if self._assumed_resize:
            yield (
                f"Films reach the model with at most {ASSUMED_MAX_PIXELS:,} pixels (1280 patches of 28 x 28); give "
                "--model, or the columns resized_width and resized_height, for the real size."
            )
        if self._estimated_length:
            yield f"A token is {CHARACTERS_PER_TOKEN:g} characters of an answer; give --model for the real number."


def _group(row: FilmRow, drawing: str) -> str:
    """Boxes that one hand may have written in another way: of a split, and of a reader where there are several."""
    return f"{row.split}, {drawing}" if drawing else row.split


def _caption(drawing: Drawing, index: int) -> str:
    label = drawing.label(index)
    return ": ".join(filter(None, (drawing.name, "" if label is None else str(label))))


def _gold_columns(row: FilmRow, drawing: Drawing, seen: tuple[float, float]) -> dict[str, Any]:
    return {
        "boxes": [list(box) for box in drawing.boxes],
        "labels": [str(label) for label in drawing.labels] if drawing.labels else None,
        "width": row.size[0] if row.size else None,
        "height": row.size[1] if row.size else None,
        "resized_width": seen[0],
        "resized_height": seen[1],
    }


def _measure(
    figures: Figures,
    boxes: np.ndarray,
    labels: Sequence[Any],
    size: tuple[float, float],
    seen: tuple[float, float],
) -> None:
    """Count sound boxes, (n, 4), of one film into the histograms."""
    film = np.array([*size, *size])
    parts = boxes / film
    sides = parts[:, 2:] - parts[:, :2]
    pixels = (boxes[:, 2:] - boxes[:, :2]) * np.array(seen) / np.array(size)
    figures.areas += _histogram(sides.prod(axis=1), AREA_EDGES)
    figures.aspects += _histogram((boxes[:, 2] - boxes[:, 0]) / (boxes[:, 3] - boxes[:, 1]), ASPECT_EDGES)
    figures.sides += _histogram(pixels.min(axis=1), SIDE_EDGES)
    cells = np.clip((parts[:, :2] + parts[:, 2:]) / 2 * _HEAT, 0, _HEAT - 1).astype(int)
    for (x, y), label in zip(cells, labels, strict=True):
        for key in (None, label) if isinstance(label, str) else (None,):
            if key not in figures.centres and len(figures.centres) <= _MOST_HEAT_LABELS:
                figures.centres[key] = np.zeros((_HEAT, _HEAT), dtype=np.int64)
            if key in figures.centres:
                figures.centres[key][y, x] += 1


def _histogram(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]


def _resized(row: FilmRow) -> tuple[float, float] | None:
    """The row's own resized size, where it differs from the film's."""
    sides = row.columns.get("resized_width"), row.columns.get("resized_height")
    return sides if all(isinstance(side, int | float) for side in sides) else None  # type: ignore[return-value]


def _is_explained(name: str, diagnosis: Diagnosis | None) -> bool:
    """Whether a mistake that all boxes of the split share says this already."""
    if diagnosis is None:
        return False
    if diagnosis.whole:
        return name in _FOLLOWS
    return diagnosis.name == "box-order" and name in ("swapped-corners", "no-area")


def _processed_size(processor: Any, size: tuple[float, float]) -> tuple[float, float] | None:
    """The size to which a processor brings a film; None where that cannot be told."""
    if processor is None:
        return None
    if has_resized_size(processor):
        try:
            return resized_size(processor, int(size[0]), int(size[1]))
        except ValueError:
            return None
    fixed = getattr(getattr(processor, "image_processor", processor), "size", None) or {}
    # A processor with a fixed size squeezes every film into it.
    return (fixed["width"], fixed["height"]) if "width" in fixed and "height" in fixed else None
