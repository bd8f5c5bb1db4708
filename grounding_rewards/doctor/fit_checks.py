"""Checks of whether boxes are at home: on what their images show, and where other boxes of their labels lie.

How usual a box is for a label tells the boxes of other images: a density of sides and centres. Where a part of the
boxes was mistaken in one way, another density explains these better: that of boxes in another reading, of any label, or
anywhere. The mean of the factors by which it does so is 1 where nothing is wrong, so that their product over all images
is seldom large by chance: less often than 1 in e to its logarithm.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes
from grounding_rewards.doctor.box_checks import box_words
from grounding_rewards.doctor.box_content import errors
from grounding_rewards.doctor.case import Case, Defect

# Boxes are compared with so many others, and in other readings with so many.
_MOST_COMPARED, _MOST_READ = 700, 400
# The widths of the kernels, in logarithms of sides and in parts of the image: the narrow one, how many times wider the
# second is, and that for boxes of any label.
_NARROW, _WIDER, _WIDE = (0.2, 0.2, 0.05, 0.05), 2.2, (0.5, 0.5, 0.15, 0.15)
# The density that any box has, and the part of that of any label: so many boxes' worth, and so much at least.
_LEAST_DENSITY, _BOXES_WORTH, _LEAST_PART = 1e-4, 4, 0.03
# Parts of the images that are mistaken; the logarithm of the product of factors that is no chance, which is larger in
# other readings: real sets reach 9 there, and 2 elsewhere; the largest factor of an image. Where boxes of half of the
# images are not less usual by so much, labels have no places of their own, and nothing can be told; nor by few images.
_PARTS, _NO_CHANCE, _NO_CHANCE_OF_READING = np.array([0.02, 0.05, 0.1, 0.2, 0.4]), 7.0, 12.0
_MOST, _AT_HOME, _FEWEST_WRONG = 12.0, -0.5, 5
# Labels of images with several are exchanged in most if they are so many standard errors likelier in another order.
_ERRORS = 4.0
# Of so many images with two labels once, so many and so large a part have their boxes in another place to each other:
# by so many deviations, where real and drawn sets have hardly any.
_FEWEST_OF_SEVERAL, _FEWEST_APART, _LEAST_APART, _FAR_APART, _LEAST_SPREAD = 30, 8, 0.025, 6.0, 0.015
# Of so many images with boxes, so large a part has the same several labels, and so many lack some of them.
_FEWEST_WHOLE, _LEAST_WHOLE, _FEWEST_LACKING = 40, 0.8, 4
# Findings that explain boxes in unusual places.
_EXPLAIN = {
    *("box-shift", "side-label", "constant-box", "exchanged-labels", "one-size", "foreign-boxes", "unmerged-readers"),
    *("duplicate-boxes", "near-duplicate-boxes", "coarse-boxes", "odd-size", "moved-boxes", "cut-boxes"),
}
# The part of the boxes of a label that lie farthest from the others; they show less than this part of what the others
# show, and those of a split, source or part of the file less than that.
_UNUSUAL, _LESS, _FOREIGN = 0.15, 0.75, 0.35
# Between the sides of the boxes of a label and of the few others is a factor of e to this.
_FEWEST_OF_LABEL, _FEWEST_ODD, _MOST_ODD, _GAP = 30, 5, 0.25, 0.65


class Misreading(NamedTuple):
    """What was done to some boxes: its name, how to undo it in parts of the image, and the factor of all sides."""

    name: str
    undone: Callable[[Boxes], Boxes]
    factor: float = 1.0


def _larger(factor: float) -> Misreading:
    return Misreading(f"boxes on a frame {factor:.3g} times as large", lambda boxes: boxes / factor, factor)


def _moved_back(boxes: Boxes) -> Boxes:
    return boxes - np.tile((boxes[:, 2:] - boxes[:, :2]) / 2, 2)


_MISREADINGS = (
    *map(_larger, (0.5, 0.75, 4 / 3, 2.0)),
    Misreading("boxes as y1, x1, y2, x2", lambda boxes: boxes[:, [1, 0, 3, 2]]),
    Misreading("boxes with y counted from the lower edge", lambda boxes: np.abs(boxes[:, [0, 3, 2, 1]] - [0, 1, 0, 1])),
    Misreading("boxes whose centre was taken for the upper left corner", _moved_back),
)


@dataclass(frozen=True)
class UsualBoxes:
    """Where boxes of each label lie.

    Attributes:
        parts: (n, 4), boxes in parts of their images.
        labels: (n,), the number of the label of each.
        images: (n,), the image of each.
    """

    parts: Boxes
    labels: np.ndarray
    images: np.ndarray

    def likely(self, parts: Boxes | None = None) -> np.ndarray:
        """The logarithm of how usual boxes are for each label, and for any, by other images, (n, labels + 1).

        Args:
            parts: (n, 4), these boxes in another reading; as they are without.
        """
        here = _values(self.parts if parts is None else parts)
        densities = self._densities(here, np.array(_NARROW))
        wide = self._near(here, np.array(_WIDE)).sum(axis=1, keepdims=True)
        of_any = wide / (len(here) * (2 * np.pi) ** 2 * np.prod(_WIDE))
        part = np.minimum(_BOXES_WORTH / (self._given + _BOXES_WORTH) + _LEAST_PART, 1)
        return np.log((1 - part) * densities + part * of_any + _LEAST_DENSITY)

    def anywhere(self) -> np.ndarray:
        """The logarithm of the density of boxes of each one's size and label that lie anywhere on their images."""
        sides = _values(self.parts)[:, :2]
        own = self._densities(sides, np.array(_NARROW[:2]))[np.arange(len(sides)), self.labels]
        room = np.maximum(1 - np.exp(sides), 0.1).prod(axis=1)
        return np.log(own / room + _LEAST_DENSITY)

    def _densities(self, values: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """Those of each label, and of any, by two kernels, (n, labels + 1)."""
        sums = sum(self._near(values, k * widths) @ self._of_label / k ** len(widths) for k in (1, _WIDER))
        return sums / np.maximum(self._given, 1) / (2 * (2 * np.pi) ** (len(widths) / 2) * widths.prod())

    @cached_property
    def _others(self) -> np.ndarray:
        return (self.images[:, None] != self.images).astype(np.float32)

    @cached_property
    def _given(self) -> np.ndarray:
        """How many boxes of each label, and of any, other images have."""
        return self._others @ self._of_label

    @cached_property
    def _of_label(self) -> np.ndarray:
        of_label = np.eye(self.labels.max() + 2, dtype=np.float32)[self.labels]
        of_label[:, -1] = 1
        return of_label

    def _near(self, values: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """A kernel, 1 where boxes are the same; 0 on the same image."""
        scaled = [(one[:, : len(widths)] / widths).astype(np.float32) for one in (values, _values(self.parts))]
        first, second = ((one**2).sum(axis=1) for one in scaled)
        squares = first[:, None] + second - 2 * scaled[0] @ scaled[1].T
        return np.exp(-np.maximum(squares, 0) / 2) * self._others


def _values(parts: Boxes) -> np.ndarray:
    """The logarithms of both sides, and the centre."""
    sides = np.log(np.maximum(parts[:, 2:] - parts[:, :2], 1e-3))
    return np.concatenate([sides, (parts[:, :2] + parts[:, 2:]) / 2], axis=1)


def mistaken(gains: np.ndarray) -> tuple[float, np.ndarray]:
    """Whether a part of images is explained far better otherwise.

    Args:
        gains: (images,), the logarithm of how many times better each is.

    Returns:
        The logarithm of the product of the factors of a mixture, and which images are more likely of the other kind.

    Example:
        >>> [round(mistaken(np.array([9.0] * few + [-3.0] * 90))[0]) for few in (0, 2, 10)]
        [-2, 8, 58]
    """
    factors = np.exp(np.minimum(gains, _MOST)) * (np.median(gains) <= _AT_HOME)
    sums = np.log(1 - _PARTS[:, None] + _PARTS[:, None] * factors).sum(axis=1)
    part = _PARTS[sums.argmax()]
    return float(sums.max()), part * factors > 1 - part


def check_fit(case: Case) -> Iterator[Defect]:
    """Boxes that are not at home on their images, labels exchanged within an image, and boxes of another size."""
    if case.misread:
        return
    table = case.table
    if case.content is None:
        chosen = np.flatnonzero(table.sound & table.first)
        chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), _MOST_COMPARED)).astype(int)]
    else:
        chosen = case.content[1]
    if not len(chosen):
        return
    parts = table.parts[chosen]
    labels = np.unique([str(table.places[k].label) for k in chosen], return_inverse=True)[1]
    usual = UsualBoxes(parts, labels, table.drawing[chosen])
    likely = usual.likely()
    if case.found.isdisjoint(("side-label", "box-shift")):
        yield from _exchanged(case, chosen, likely, labels)
    yield from _foreign(case, chosen, likely[np.arange(len(chosen)), labels], labels)
    if case.content is not None and (moved := case.content[0].moved()):
        x, y = moved
        found = (
            f"Moved by {x:+.0%} of the width and {y:+.0%} of the height, they differ far more from what is around them."
        )
        yield case.defect("moved-boxes", count=len(chosen), of=len(chosen), found=found)
    yield from _of_odd_size(case)
    if not case.diagnoses and case.found.isdisjoint(_EXPLAIN):
        yield from _mixed(case, chosen, usual)
        yield from _apart(case)
        yield from _lacking_boxes(case)


def _exchanged(case: Case, chosen: np.ndarray, likely: np.ndarray, labels: np.ndarray) -> Iterator[Defect]:
    """Images whose boxes would be more usual under each other's labels."""
    table = case.table
    gains: dict[int, tuple[float, float]] = {}
    for here in table.by_image(chosen):
        mine = labels[here]
        if len(set(mine.tolist())) > 1:
            table_of = likely[here][:, mine]
            turned = np.array([np.trace(np.roll(table_of, k, axis=1)) for k in range(1, len(here))])
            own = np.trace(table_of)
            gains[int(here[0])] = float(np.log(np.exp(turned - own).mean())), float((turned - own).mean())
    if len(gains) < _FEWEST_OF_SEVERAL:
        return
    best, mean = np.array(list(gains.values())).T
    clear, is_wrong = mistaken(best)
    # Where most are exchanged, the usual places of a label are in part those of another.
    if together := errors(mean) >= _ERRORS:
        is_wrong = best >= 0
    if together or clear >= _NO_CHANCE:
        wrong = np.array(list(gains))[is_wrong].tolist()
        shown = [(table.places[chosen[k]].row, "boxes and labels fit in another order") for k in wrong]
        yield case.defect("exchanged-labels", shown, of=len(gains))


def _mixed(case: Case, chosen: np.ndarray, usual: UsualBoxes) -> Iterator[Defect]:
    """The way in which a part of the boxes was mistaken that explains most of them, if there is one."""
    some = np.linspace(0, len(chosen) - 1, min(len(chosen), _MOST_READ)).astype(int)
    chosen, usual = chosen[some], UsualBoxes(usual.parts[some], usual.labels[some], usual.images[some])
    likely = usual.likely()
    own = likely[np.arange(len(chosen)), usual.labels]
    ways = [
        ("boxes of any label, or under labels of other boxes,", likely[:, -1] - own, _NO_CHANCE),
        ("boxes that lie anywhere", usual.anywhere() - own, _NO_CHANCE),
    ]
    for one in _MISREADINGS:
        turned = usual.likely(one.undone(usual.parts))[np.arange(len(chosen)), usual.labels]
        ways.append((one.name, turned - 2 * np.log(one.factor) - own, _NO_CHANCE_OF_READING))
    images = np.unique(usual.images, return_inverse=True)[1]
    best: tuple[float, str, np.ndarray] | None = None
    for name, gains, no_chance in ways:
        clear, is_wrong = mistaken(np.bincount(images, gains))
        if is_wrong.sum() >= _FEWEST_WRONG and clear >= max(no_chance, best[0] if best else 0):
            best = clear, name, is_wrong
    if best is not None:
        wrong = np.flatnonzero(best[2][images])
        rows = [(case.table.places[k].row, box_words(case, k)) for k in chosen[wrong].tolist()]
        found = (
            f"{len(wrong)} of {len(chosen)} boxes are far likelier {best[1]} than boxes as the others of their labels."
        )
        yield case.defect("mixed-boxes", rows, of=len(chosen), found=found)


def _apart(case: Case) -> Iterator[Defect]:
    """Images on which the boxes of two labels lie to each other as on hardly any other."""
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    pairs: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for here in table.by_image(chosen):
        named = sorted((str(table.places[k].label), k) for k in chosen[here].tolist())
        if len(dict(named)) == len(named):
            for (one, k), (other, j) in combinations(named[:8], 2):
                pairs[one, other].append((k, j))
    for (one, other), places in pairs.items():
        if len(places) < _FEWEST_OF_SEVERAL:
            continue
        first, second = (np.concatenate([_values(table.parts[k]), table.parts[k]], axis=1) for k in np.array(places).T)
        apart = first - second
        low, middle, high = np.quantile(apart, (0.25, 0.5, 0.75), axis=0)
        # The wider side counts: places may be skewed.
        spread = np.maximum(np.maximum(middle - low, high - middle) / 0.674, _LEAST_SPREAD)
        far = np.flatnonzero((np.abs(apart - middle) >= _FAR_APART * spread).any(axis=1))
        if len(far) >= max(_FEWEST_APART, _LEAST_APART * len(places)):
            words = f"{one!r:.40} and {other!r:.40} lie to each other as on no other images"
            shown = [(table.places[places[k][0]].row, words) for k in far.tolist()]
            yield case.defect("mixed-boxes", shown, of=len(places), found=f"On {len(far)} images {words}.")
            return


def _lacking_boxes(case: Case) -> Iterator[Defect]:
    """Images that lack one of several boxes that nearly all images have."""
    labels = [tuple(sorted(map(str, row.answers[0].labels))) for row in case.rows]
    boxed = [(row, mine) for row, mine in zip(case.rows, labels, strict=True) if mine]
    usual, count = Counter(mine for _, mine in boxed).most_common(1)[0] if boxed else ((), 0)
    if len(set(usual)) > 1 and count >= max(_FEWEST_WHOLE, _LEAST_WHOLE * len(boxed)):
        lacking = [(row, f"has {', '.join(mine)} alone"[:120]) for row, mine in boxed if set(mine) < set(usual)]
        if len(lacking) >= _FEWEST_LACKING:
            found = f"{count} of {len(boxed)} images with boxes have {' and '.join(usual):.200}."
            yield case.defect("lacking-boxes", lacking, of=len(boxed), found=found)


def _foreign(case: Case, chosen: np.ndarray, usual: np.ndarray, labels: np.ndarray) -> Iterator[Defect]:
    """Groups of boxes that are no more at home on their images than on others, and those in unusual places."""
    if case.content is None:
        return
    content = case.content[0]
    rows = [case.table.places[k].row for k in chosen]
    is_unusual = np.zeros(len(chosen), dtype=bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        is_unusual[mine[np.argsort(usual[mine])[: round(_UNUSUAL * len(mine))]]] = True
    groups = [("Boxes far from the others of their labels", is_unusual, _LESS)]
    number = case.table.rows[chosen]
    columns = {name: mine[number] for name, mine in (case.columns | case.other_columns).items()}
    groups += [
        (f"{column} {group}", mine == group, _FOREIGN)
        for column, mine in columns.items()
        for group in np.unique(mine)
        if group
    ]
    for name, mine, _ in groups[1:]:
        if better := content.better_reading(mine):
            reading, gain, own = better
            found = (
                f"{name}: {gain:.2f} in common with others of their labels as {reading.name}, {own:.2f} as they are."
            )
            here = [(row, name) for row, is_mine in zip(rows, mine, strict=True) if is_mine]
            yield case.defect(reading.check, here, of=len(rows), found=found, fix=reading.fix)
            return
    for name, mine, limit in groups:
        if shown := content.is_foreign(mine, limit):
            found = f"{name}: {shown[0]:.2f} in common with boxes of their labels, elsewhere {shown[1]:.2f}."
            here = [(row, name) for row, is_mine in zip(rows, mine, strict=True) if is_mine]
            yield case.defect("foreign-boxes", here, of=len(rows), found=found)
            return


def _of_odd_size(case: Case) -> Iterator[Defect]:
    """Some boxes of a label that are much larger or smaller than all its others, with a gap between."""
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    sides = np.log(table.parts[chosen, 2:] - table.parts[chosen, :2]).mean(axis=1)
    labels = np.array([str(table.places[k].label) for k in chosen], dtype=np.str_)
    odd: list[int] = []
    for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
        most = int(_MOST_ODD * count)
        if count < _FEWEST_OF_LABEL or most < _FEWEST_ODD:
            continue
        mine = np.flatnonzero(labels == label)
        for order in (mine[np.argsort(sides[mine])], mine[np.argsort(-sides[mine])]):
            gaps = np.abs(np.diff(sides[order]))[_FEWEST_ODD - 1 : most]
            if gaps.max() >= _GAP:
                odd += order[: _FEWEST_ODD + int(gaps.argmax())].tolist()
    if odd:
        shown = [(table.places[k].row, box_words(case, k)) for k in chosen[odd].tolist()]
        yield case.defect("odd-size", shown, of=len(chosen))
