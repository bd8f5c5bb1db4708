"""Checks of whether boxes are at home: on what their images show, and where other boxes of their labels lie."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from grounding_rewards.doctor.box_content import errors
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


def check_fit(case: Case) -> Iterator[Defect]:
    """Boxes that are not at home on their images, and labels exchanged within an image."""
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
    sides = np.log(parts[:, 2:] - parts[:, :2])
    labels = np.unique([str(table.places[k].label) for k in chosen], return_inverse=True)[1]
    likely = likelihoods(np.concatenate([sides, parts[:, :2] + parts[:, 2:]], axis=1), labels, table.drawing[chosen])
    yield from _exchanged(case, chosen, likely, labels)
    yield from _foreign(case, chosen, likely[np.arange(len(chosen)), labels], labels)
    if case.content is not None and (moved := case.content[0].moved()):
        x, y = moved
        found = (
            f"Moved by {x:+.0%} of the width and {y:+.0%} of the height, they differ far more from what is around them."
        )
        yield case.defect("moved-boxes", count=len(chosen), of=len(chosen), found=found)


def likelihoods(values: np.ndarray, labels: np.ndarray, images: np.ndarray) -> np.ndarray:
    """The logarithm of how usual each box is for each label, by the boxes of other images, (n, labels).

    Args:
        values: (n, 4), the logarithms of both sides, and twice the centre, in parts of the image.
        labels: (n,), the number of the label of each.
        images: (n,), the image of each.
    """
    scale = np.array([_AS_LARGE, _AS_LARGE, 2 * _NEAR, 2 * _NEAR], dtype=np.float32)
    scaled = (values / scale).astype(np.float32)
    squares = (scaled**2).sum(axis=1)
    near = np.exp(-np.maximum(squares[:, None] + squares - 2 * scaled @ scaled.T, 0) / 2)
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
