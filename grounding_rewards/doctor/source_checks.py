"""Checks of sources against each other and of the greys of images: boxes on another scale, inverted and darker images.

They take images of one source to be alike: all chest radiographs are dark in the middle of each half.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from grounding_rewards.doctor.box_defects import box_defect, is_placeholder
from grounding_rewards.doctor.case import QUICK, Case, Examiner
from grounding_rewards.doctor.defects import CHECKS, Defect, Example, Problem, named
from grounding_rewards.doctor.raw_rows import ImageRow

# A source is compared by this many boxes and, with the others, by labels with so many boxes there.
_FEWEST_BOXES, _FEWEST_OF_LABEL = 50, 5
# Boxes of a source that are smaller than this beside the others', by this many standard errors, are of another frame.
_LARGEST_SCALE, _STANDARD_ERRORS = 0.93, 3.5
# Beside the scale, means agree up to this many standard errors and this part of the image.
_AGREE, _SLACK = 3.0, 0.01
_FEWEST_IMAGES = 20
# Images of one source are alike if half of them correlate so far with what they have in common; inverted ones do the
# other way.
_ALIKE, _INVERTED = 0.5, -0.3
# Splits of so many images are of different greys if their means are so many standard deviations apart.
_FEWEST_OF_SPLIT, _APART = 10, 2.0


class SourceExaminer(Examiner):
    """Sources whose boxes lie as those of the others, on a smaller frame."""

    checks = named("source-scale")

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        # x1, y1, x2, y2 in parts of the image, one box after another, by source and label.
        self._parts: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))
        self._first: dict[str, list[Example]] = defaultdict(list)

    def look(self, row: ImageRow) -> Iterator[Problem]:
        source, size = row.columns.get("source"), row.trusted_size
        if source is None or size is None:
            return
        for drawing in row.answers:
            for index, box in enumerate(drawing.boxes):
                label = str(drawing.label(index))
                if box_defect(box, size) is None and not is_placeholder(box, label):
                    parts = self._parts[str(source), label]
                    parts.extend((box[0] / size[0], box[1] / size[1], box[2] / size[0], box[3] / size[1]))
                    self.case.keep(self._first[str(source)], row, f"source {source}")
        yield from ()

    def defects(self) -> Iterator[Defect]:
        # Boxes that are wrong in all are smaller in some source, too.
        if self.case.diagnoses:
            return
        boxes = {key: np.frombuffer(parts).reshape(-1, 4) for key, parts in self._parts.items()}
        total = sum(map(len, boxes.values()))
        for source in dict.fromkeys(source for source, _ in boxes):
            if scale := _scale_of(source, boxes):
                count = sum(len(one) for key, one in boxes.items() if key[0] == source)
                found = (
                    f"Source {source}: edges of boxes lie at {scale:.2f} times the place of those of the same labels "
                    f"elsewhere, and none reaches beyond."
                )
                yield CHECKS["source-scale"].defect(count, total, found, self._first[source])

    def unchecked(self) -> dict[str, str]:
        few = len({source for source, _ in self._parts}) < 2
        return {"source-scale": "no column source with several sources"} if few else {}


def _scale_of(source: str, boxes: dict[tuple[str, str], np.ndarray]) -> float | None:
    """By how much smaller the boxes of a source are drawn towards the corner than others of the same labels; or None.

    Args:
        source: its name.
        boxes: (n, 4) in parts of the image, by source and label.
    """
    mine = {label: one for (name, label), one in boxes.items() if name == source}
    others = {
        label: np.concatenate([one for (name, other), one in boxes.items() if name != source and other == label])
        for label in mine
        if any(name != source and other == label for name, other in boxes)
    }
    shared = [label for label, one in others.items() if len(one) >= _FEWEST_OF_LABEL]
    if min(sum(len(one[label]) for label in shared) for one in (mine, others)) < _FEWEST_BOXES:
        return None
    here = np.concatenate([mine[label] for label in shared])
    there = np.concatenate([others[label] for label in shared])
    weights = np.array([len(mine[label]) / len(here) for label in shared])
    means = here.mean(axis=0)
    expected = weights @ np.array([others[label].mean(axis=0) for label in shared])
    errors = np.sqrt(
        here.var(axis=0) / len(here)
        + weights**2 @ np.array([others[label].var(axis=0) / len(others[label]) for label in shared])
    )
    # How far boxes reach tells the scale; that their means follow it tells that findings are not merely elsewhere.
    reach, other_reach = (float(np.quantile(one[:, 2:].max(axis=1), 0.99)) for one in (here, there))
    scale = reach / other_reach
    is_scaled = (
        scale <= _LARGEST_SCALE
        and (expected - means >= _STANDARD_ERRORS * errors)[2:].all()
        and (np.abs(means - scale * expected) <= _AGREE * errors + _SLACK).all()
    )
    return scale if is_scaled else None


class GreyExaminer(Examiner):
    """Images whose greys are unlike those of their source: inverted ones, and splits that are darker or lighter."""

    checks = named("inverted-image", "grey-shift")

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        # Small images and their places, by source.
        self._greys: defaultdict[str, bytearray] = defaultdict(bytearray)
        self._places: defaultdict[str, list[Example]] = defaultdict(list)

    def look(self, row: ImageRow) -> Iterator[Problem]:
        if row.pixels is not None and row.pixels.greys and row.pixels.grey is None:
            source = str(row.columns.get("source", ""))
            self._greys[source] += row.pixels.greys
            self._places[source].append(Example(row.split, row.number, row.id, ""))
        yield from ()

    def defects(self) -> Iterator[Defect]:
        turned: list[Example] = []
        shifts: list[tuple[str, int]] = []
        for source, places in self._places.items():
            greys = np.frombuffer(self._greys[source], dtype=np.uint8).reshape(len(places), -1)
            turned += [places[k] for k in find_inverted(greys)]
            shifts += _shifted_splits(source, greys.mean(axis=1), [place.split for place in places])
        images = self.case.totals["images"]
        if turned:
            detail = "dark where the other images of its source are bright, and bright where they are dark"
            yield CHECKS["inverted-image"].defect(
                len(turned), images, examples=[place._replace(detail=detail) for place in turned]
            )
        if shifts:
            found = " ".join(words for words, _ in shifts)
            yield CHECKS["grey-shift"].defect(sum(count for _, count in shifts), images, found)

    def unchecked(self) -> dict[str, str]:
        return dict.fromkeys((check.name for check in self.checks), QUICK) if self.case.is_quick else {}


def find_inverted(greys: np.ndarray) -> list[int]:
    """The places of images that are the negative of what the others have in common; none where they have nothing.

    Args:
        greys: (n, pixels) of any numbers.

    Example:
        >>> images = np.tile(np.arange(9.0), (30, 1)) + np.random.default_rng(0).normal(0, 1, (30, 9))
        >>> images[4] = 9 - images[4]
        >>> find_inverted(images)
        [4]
    """
    if len(greys) < _FEWEST_IMAGES:
        return []
    images = greys.astype(np.float64)
    images -= images.mean(axis=1, keepdims=True)
    images /= np.linalg.norm(images, axis=1, keepdims=True) + 1e-9
    # What they have in common, up to its sign: the mean would vanish where half of them are inverted.
    common = np.linalg.eigh(images.T @ images)[1][:, -1]
    cosines = images @ common
    cosines *= np.sign(np.median(cosines)) or 1.0
    return np.flatnonzero(cosines <= _INVERTED).tolist() if np.median(np.abs(cosines)) >= _ALIKE else []


def _shifted_splits(source: str, means: np.ndarray, splits: list[str]) -> Iterator[tuple[str, int]]:
    """Splits of a source that are darker or lighter than its other images, in words, and how many images they have."""
    counts = Counter(splits)
    for split, count in counts.items():
        here = np.array([one == split for one in splits])
        if min(count, len(splits) - count) < _FEWEST_OF_SPLIT:
            continue
        first, others = means[here], means[~here]
        apart = abs(first.mean() - others.mean())
        if apart >= _APART * max(first.std(), others.std(), 1.0):
            where = f"{source}, {split}" if source else split
            yield f"{where}: the mean grey is {first.mean():.0f} of 255, elsewhere {others.mean():.0f}.", count
            # Of two splits, the other one is as far from this one.
            return
