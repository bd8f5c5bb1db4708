"""Checks of whether boxes are at home: on what their images show, and where other boxes of their labels lie."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grounding_rewards.boxes import Boxes
from grounding_rewards.doctor.box_checks import box_words
from grounding_rewards.doctor.box_content import READINGS_OF_SOME, BoxReading, errors
from grounding_rewards.doctor.case import Case, Defect

# Boxes are compared with so many others. By which part of the image two may lie apart to be near each other, and by
# which logarithm their sides may differ.
_MOST_COMPARED, _NEAR, _AS_LARGE, _LEAST_DENSITY = 1000, 0.08, 0.35, 1e-3
# Labels are likely where they are by a factor of e to this, in half of so many images with several, and unlikely by a
# factor of e to that in so many; or all together by so many standard errors.
_FEWEST_OF_SEVERAL, _LIKELY, _EXCHANGED, _FEWEST_EXCHANGED, _ERRORS = 20, 5.0, -3.0, 5, -4.0
# The part of the boxes of a label that lie farthest from the others; they show less than this part of what the others
# show, and those of a split, source or part of the file less than that.
_UNUSUAL, _LESS, _FOREIGN = 0.15, 0.75, 0.35
# Between the sides of the boxes of a label and of the few others is a factor of e to this.
_FEWEST_OF_LABEL, _FEWEST_ODD, _MOST_ODD, _GAP = 30, 5, 0.25, 0.65
# Parts of the images that may be misread. All together they are likelier so by a factor of e to this, which clean sets
# reach by 7 and planted ones by 18 to 100; no image tells more than that; most are less likely so by that, and so many
# are misread. Boxes reach over the edge by this part of a side.
_SHARES, _NO_CHANCE, _MOST, _LIKELIER, _FEWEST_MISREAD, _OVER = (
    np.array([0.02, 0.05, 0.1, 0.2, 0.4]),
    12.0,
    10.0,
    -1.0,
    5,
    0.05,
)


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
    labels = np.unique([str(table.places[k].label) for k in chosen], return_inverse=True)[1]
    likely = likelihoods(table.parts[chosen], labels, table.drawing[chosen])
    own = likely[np.arange(len(chosen)), labels]
    yield from _exchanged(case, chosen, likely, labels)
    misread = tuple(_group_misread(case, chosen))
    # In which part boxes keep to one corner is told already.
    misread = misread or (() if case.diagnoses else tuple(_some_misread(case, chosen, own, labels)))
    yield from misread or _foreign(case, chosen, own, labels)
    if case.content is not None and (moved := case.content[0].moved()):
        x, y = moved
        found = (
            f"Moved by {x:+.0%} of the width and {y:+.0%} of the height, they differ far more from what is around them."
        )
        yield case.defect("moved-boxes", count=len(chosen), of=len(chosen), found=found)
    if not misread:
        yield from _of_odd_size(case)


def likelihoods(parts: Boxes, labels: np.ndarray, images: np.ndarray, read: Boxes | None = None) -> np.ndarray:
    """The logarithm of how usual each box is for each label, by the boxes of other images, (n, labels).

    Args:
        parts: (n, 4), in parts of the image.
        labels: (n,), the number of the label of each.
        images: (n,), the image of each.
        read: (n, 4), the boxes in another reading, if these are looked at.
    """
    scale = np.array([_AS_LARGE, _AS_LARGE, 2 * _NEAR, 2 * _NEAR])
    given, mine = (
        (np.hstack([np.log(np.maximum(one[:, 2:] - one[:, :2], 1e-3)), one[:, :2] + one[:, 2:]]) / scale).astype("f4")
        for one in (parts, parts if read is None else read)
    )
    near = (mine**2).sum(axis=1)[:, None] + (given**2).sum(axis=1) - 2 * mine @ given.T
    near = np.exp(-np.maximum(near, 0) / 2)
    others = (images[:, None] != images).astype(np.float32)
    of_label = np.eye(labels.max() + 1, dtype=np.float32)[labels]
    return np.log((near * others) @ of_label / np.maximum(others @ of_label, 1) + _LEAST_DENSITY)


def _exchanged(case: Case, chosen: np.ndarray, likely: np.ndarray, labels: np.ndarray) -> Iterator[Defect]:
    """Images whose boxes would be more usual under each other's labels."""
    table = case.table
    margins: dict[int, tuple[float, float]] = {}
    for first, here in _together(table.drawing[chosen]):
        mine = labels[here]
        if len(set(mine.tolist())) > 1:
            table_of = likely[here][:, mine]
            turned = [np.trace(np.roll(table_of, k, axis=1)) for k in range(1, len(here))]
            own = np.trace(table_of)
            margins[first] = float(own - max(turned)), float(own - np.mean(turned))
    if len(margins) < _FEWEST_OF_SEVERAL:
        return
    closest, all_others = np.array(list(margins.values())).T
    # Where most are exchanged, the usual places of a label are in part those of another.
    together = errors(all_others) <= _ERRORS
    wrong = [k for k, (margin, _) in margins.items() if margin <= (0.0 if together else _EXCHANGED)]
    if together or (np.median(closest) >= _LIKELY and len(wrong) >= _FEWEST_EXCHANGED):
        shown = [(table.places[chosen[k]].row, "boxes and labels fit in another order") for k in wrong]
        yield case.defect("exchanged-labels", shown, of=len(margins))


def _together(drawings: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The first place and all places of each drawing."""
    ends = np.flatnonzero(np.diff(drawings, append=np.inf)) + 1
    start = 0
    for end in ends.tolist():
        yield start, np.arange(start, end)
        start = end


def _some_misread(case: Case, chosen: np.ndarray, own: np.ndarray, labels: np.ndarray) -> Iterator[Defect]:
    """Images whose boxes are far likelier in another reading: by where their labels usually lie, and what they show."""
    table = case.table
    best: tuple[float, BoxReading, np.ndarray] | None = None
    drawing, corners = table.drawing[chosen], np.tile(table.sizes[chosen], 2)
    images = np.unique(drawing, return_inverse=True)[1]
    # Mirrored boxes may be exchanged labels, if pixels do not tell or labels name the other side.
    is_side = case.content is None or "side-label" in case.found
    for reading in [one for one in READINGS_OF_SOME if not is_side or one.check != "flipped-boxes"]:
        boxes = reading.read(table.numbers[chosen], table.sizes[chosen])
        parts = boxes / corners
        fits = (
            (parts.min(axis=1) >= -_OVER) & (parts.max(axis=1) <= 1 + _OVER) & (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        )
        likely = likelihoods(table.parts[chosen], labels, drawing, parts)[np.arange(len(chosen)), labels]
        gains = np.where(fits, likely, np.log(_LEAST_DENSITY)) - own
        if case.content is not None:
            gains += case.content[0].evidence(boxes)
        by_image = np.bincount(images, gains)
        clear, is_wrong = mistaken(by_image)
        if (
            clear >= (best[0] if best else _NO_CHANCE)
            and np.median(by_image) <= _LIKELIER
            and is_wrong.sum() >= _FEWEST_MISREAD
        ):
            best = clear, reading, is_wrong[images]
    if best is not None:
        _, reading, wrong = best
        shown = [(table.places[k].row, box_words(case, k)) for k in chosen[wrong].tolist()]
        words = f"{wrong.sum()} of {len(chosen)} boxes are far likelier as {reading.name}, the others as they are."
        fix = f"In these rows alone: {reading.fix}"
        yield case.defect(reading.check, shown, of=len(chosen), found=words, fix=fix)


def mistaken(gains: np.ndarray) -> tuple[float, np.ndarray]:
    """Whether a part of images is far likelier otherwise.

    Args:
        gains: (images,), the logarithm of how many times likelier each is.

    Returns:
        The logarithm of how many times likelier all are as a mixture, and which are more likely of the other kind.

    Example:
        >>> [round(mistaken(np.array([9.0] * few + [-3.0] * 90))[0]) for few in (0, 2, 10)]
        [-2, 8, 58]
    """
    factors = np.exp(np.minimum(gains, _MOST))
    sums = np.log(1 - _SHARES[:, None] + _SHARES[:, None] * factors).sum(axis=1)
    share = _SHARES[sums.argmax()]
    return float(sums.max()), share * factors > 1 - share


def _groups(case: Case, chosen: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """All groups of rows by name, with which of these boxes are of each."""
    number = case.table.rows[chosen]
    for column, values in (case.columns | case.other_columns).items():
        mine = values[number]
        yield from ((f"{column} {group}", mine == group) for group in np.unique(mine) if group)


def _group_misread(case: Case, chosen: np.ndarray) -> Iterator[Defect]:
    """The first group of boxes that fit their images far better in another reading."""
    if case.content is None:
        return
    for name, mine in _groups(case, chosen):
        if better := case.content[0].better_reading(mine):
            reading, gain, own = better
            found = (
                f"{name}: {gain:.2f} in common with others of their labels as {reading.name}, {own:.2f} as they are."
            )
            here = [(case.table.places[k].row, name) for k in chosen[mine]]
            yield case.defect(reading.check, here, of=len(chosen), found=found, fix=reading.fix)
            return


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
    groups += [(name, mine, _FOREIGN) for name, mine in _groups(case, chosen)]
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
