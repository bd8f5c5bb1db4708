"""Boxes that are odd for their label: of another size or place than all its others, with a gap between; sizes at which
those of a group end; and parts of a file whose boxes fit the labels of the row beside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from grounding_rewards.doctor.box_checks import box_words
from grounding_rewards.doctor.box_defects import JOIN
from grounding_rewards.doctor.case import PART_OF_FILE, Case, Defect, orders
from grounding_rewards.doctor.fit_checks import likelihoods

# Between the sides of the boxes of a label and of the few others is a factor of e to this.
_FEWEST_OF_LABEL, _FEWEST_ODD, _MOST_ODD, _GAP = 30, 5, 0.25, 0.65
# One step apart are sides whose logarithms differ by this, or centres at this part of the image. So many boxes
# lie so many steps from all others of their label: in 36 clean sets at most 2.85, a planted clump 4.9. Of a label so
# many are compared.
_AS_LARGE, _NEAR, _FAR, _FEWEST_APART, _MOST_COMPARED = 0.35, 0.08, 3.6, 6, 1000
# So many boxes end at an edge of the image, and are so many times as long towards it as others of their labels: in
# clean sets at most 1.26 times, with a number that was lost 3.5 times.
_FEWEST_AT_EDGE, _LONGER = 8, 1.6
# Of so many images nearly all have the same few labels. A part of them is parted from the others by so many deviations,
# by what their boxes have in common, or by all numbers: parts of a set of lungs at most 4.4 and 4.8 in 480 draws, with
# half lungs 4.9 to 6, with the sides exchanged 20.
_FEWEST_ORGANS, _LEAST_ORGANS, _MOST_OF_IMAGE = 100, 0.8, 3
_FEWEST_PARTED, _LEAST_PARTED, _MOST_PARTED, _PARTED, _PARTED_BY_ALL, _MOST_IMAGES = 12, 0.05, 0.35, 4.7, 6.0, 2000
# A number of them lies so far apart, logarithms of both sides or centres; their share of each kind of images does not.
_LEAST_APART, _SAME_KIND = (0.25, 0.25, 0.08, 0.08), 0.7
_STARTS, _STEPS = 12, 5
# Chance leaves a group without boxes below a size by a factor of e to this, and next to the limit, up to this
# logarithm, are as many of its boxes as elsewhere: in 36 clean sets at -4.6, in planted ones at -6.6 to -12.
_SELDOM, _EDGE, _FEWEST_OF_GROUP, _MOST_GROUPS = -6.0, 0.3, 15, 12
# In so many rows or more labels of the row beside fit better by a sum of logarithms, so many times more than those of
# rows that are farther away, up to this number: in clean sets 5 at most for any row, in a planted part 45, beside 17.
_FEWEST_ROWS, _FITS_OTHER, _TIMES_SECOND, _MOST_SHIFT = 10, 14.0, 2.0, 6
# Findings that say already what numbers of one box, or of boxes in turn, show.
_TOLD = {"constant-box", "coarse-boxes", "side-label"}
_MISREAD = {"shifted-rows", "box-order", "flipped-boxes", "wrong-frame"}


def check_odd(case: Case) -> Iterator[Defect]:
    """Boxes far from the others of their label in size or place, or longer towards an edge at which they end."""
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    if case.misread or case.found & _MISREAD or not len(chosen):
        return
    parts = table.parts[chosen]
    values = np.hstack([np.log(parts[:, 2:] - parts[:, :2]), (parts[:, :2] + parts[:, 2:]) / 2])
    labels = np.array([str(table.places[k].label) for k in chosen], dtype=np.str_)
    odd: dict[int, None] = {}
    found = []
    rows = table.rows[chosen]
    kinds = [mine[rows] for mine in case.other_columns.values()]
    is_told = bool(case.found & _TOLD)
    ends = list(_parted(values, labels, rows, kinds, is_told))
    if case.found.isdisjoint({"coarse-boxes", "cut-boxes"}):
        ends += _at_edges(values, labels, parts)
    sizes = list(_of_odd_size(values, labels))
    for words, mine in ends or (sizes if is_told else [*_apart(values, labels), *sizes]):
        if not odd.keys() >= {*mine.tolist()}:
            found.append(words)
            odd |= dict.fromkeys(mine.tolist())
    if odd:
        shown = [(table.places[k].row, box_words(case, k)) for k in chosen[list(odd)].tolist()]
        yield case.defect("odd-size", shown, of=len(chosen), found=" ".join(found))


def _of_label(labels: np.ndarray, fewest: int) -> Iterator[tuple[str, np.ndarray]]:
    """Labels with so many boxes, and the places of these."""
    for label, count in Counter(labels.tolist()).items():
        if count >= fewest:
            yield repr(label)[:60], np.flatnonzero(labels == label)


def _of_odd_size(values: np.ndarray, labels: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Boxes much larger or smaller than the others, with a gap between."""
    sides = values[:, :2].mean(axis=1)
    for label, mine in _of_label(labels, _FEWEST_OF_LABEL):
        most = int(_MOST_ODD * len(mine))
        for order in (mine[np.argsort(sides[mine])], mine[np.argsort(-sides[mine])]):
            gaps = np.abs(np.diff(sides[order]))[_FEWEST_ODD - 1 : most]
            if gaps.max() >= _GAP:
                few, rest = np.split(order, [_FEWEST_ODD + int(gaps.argmax())])
                yield f"{len(few)} of {len(mine)} boxes {label} are {_times(values, few, rest)}.", few


def _times(values: np.ndarray, some: np.ndarray, others: np.ndarray) -> str:
    wide, high = np.exp(np.median(values[some, :2], axis=0) - np.median(values[others, :2], axis=0))
    return f"{wide:.2f} times as wide and {high:.2f} times as high as the others"


def _apart(values: np.ndarray, labels: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Boxes in a clump far from the others, in size and place; left and right are alike."""
    steps = np.hstack([values[:, :2] / _AS_LARGE, np.abs(values[:, 2:] - (0.5, 0)) / _NEAR])
    for label, mine in _of_label(labels, _FEWEST_OF_LABEL):
        some = mine[np.linspace(0, len(mine) - 1, min(len(mine), _MOST_COMPARED)).astype(int)]
        clump = fcluster(linkage(steps[some], "single"), _FAR, "distance")
        for number, count in enumerate(np.bincount(clump)):
            if _FEWEST_APART <= count <= _MOST_ODD * len(some):
                few = some[clump == number]
                x, y = np.median(values[few, 2:], axis=0)
                words = f"{count} of {len(some)} boxes {label} lie apart, about {x:.2f} of the width to the right and"
                yield f"{words} {y:.2f} of the height down, {_times(values, few, some[clump != number])}.", few


def _at_edges(values: np.ndarray, labels: np.ndarray, parts: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Boxes that reach to an edge, as if a number had been lost, and are long for it."""
    gaps = np.hstack([parts[:, :2], 1 - parts[:, 2:]])
    for k, edge in enumerate(("left", "upper", "right", "lower")):
        ends = gaps[:, k] <= 0
        sides, longer = values[:, k % 2], np.full(len(parts), np.nan)
        for _, mine in _of_label(labels, _FEWEST_AT_EDGE):
            if (~ends[mine]).sum() >= _FEWEST_AT_EDGE:
                longer[mine] = sides[mine] - np.median(sides[mine][~ends[mine]])
        mine = np.flatnonzero(ends & np.isfinite(longer))
        if len(mine) >= _FEWEST_AT_EDGE and (times := np.exp(np.median(longer[mine]))) >= _LONGER:
            how = ("wide", "high")[k % 2]
            words = f"{len(mine)} boxes end at the {edge} edge of their images, {times:.1f} times as {how} as others"
            yield f"{words} of their labels.", mine


def _parted(
    values: np.ndarray, labels: np.ndarray, rows: np.ndarray, kinds: list[np.ndarray], is_told: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Images on which the boxes of organs that all images show are a clump of their own, and that are no kind."""
    order = np.lexsort([values[:, 2], labels, rows])
    images = np.split(order, np.flatnonzero(np.diff(rows[order])) + 1)
    ((organs, count),) = Counter(tuple(labels[one].tolist()) for one in images).most_common(1)
    if count < max(_FEWEST_ORGANS, _LEAST_ORGANS * len(images)) or len(organs) > _MOST_OF_IMAGE:
        return
    same = np.array([one for one in images if tuple(labels[one].tolist()) == organs])[:_MOST_IMAGES]
    numbers = values[same]
    ways = (numbers.mean(axis=1), _PARTED), (numbers.reshape(len(same), -1), _PARTED_BY_ALL)
    for given, least in ways[: 1 if is_told else 2]:
        deviations, few = parted(given)
        apart = numbers[few].mean(axis=0) - numbers[~few].mean(axis=0)
        is_kind = any(_goes_with(few, kind[same[:, 0]]) for kind in kinds)
        if deviations >= least and (np.abs(apart) >= _LEAST_APART).any() and not is_kind:
            wide, high, right, down = apart.mean(axis=0)
            words = f"On {few.sum()} of {len(same)} images the boxes ({', '.join(organs)}) are a clump of their own: "
            words += f"{np.exp(wide):.2f} times as wide and {np.exp(high):.2f} times as high as on the others, "
            yield (
                f"{words}{right:+.2f} of the width to the right and {down:+.2f} of the height down.",
                same[few].ravel(),
            )
            return


def _goes_with(few: np.ndarray, kinds: np.ndarray) -> bool:
    """Whether a few are images of one kind, such as those from the side."""
    return any((kinds[few] == kind).mean() - (kinds[~few] == kind).mean() >= _SAME_KIND for kind in np.unique(kinds))


def parted(values: np.ndarray) -> tuple[float, np.ndarray]:
    """By how many deviations the clearest smaller part of many is parted from the rest, and which are of it.

    Each direction in which they are parted is turned, step by step, into that in which both parts are narrow.

    Args:
        values: (n, numbers).

    Example:
        >>> values = np.random.default_rng(0).normal(0, 1, (200, 3))
        >>> values[:30, 1] += 9
        >>> apart, few = parted(values)
        >>> bool(apart > 8), few[:30].all(), few[30:].any()
        (True, np.True_, np.False_)
    """
    n, many = values.shape
    values = values - values.mean(axis=0)
    spread = np.atleast_2d(np.cov(values.T)) + 1e-5 * np.eye(many)
    values = values @ np.linalg.cholesky(np.linalg.inv(spread))
    below = np.arange(1, n)
    smaller = np.minimum(below, n - below)
    allowed = (smaller >= max(_FEWEST_PARTED, _LEAST_PARTED * n)) & (smaller <= _MOST_PARTED * n)
    farthest = np.argsort(-(values**2).sum(axis=1))[:_STARTS]
    best, few = 0.0, np.zeros(n, dtype=bool)
    for direction in np.concatenate([np.eye(many), values[farthest]]):
        for _ in range(_STEPS):
            along = values @ direction
            order = np.argsort(along)
            between = np.abs(np.cumsum(along[order])[:-1]) * n / (below * (n - below))
            within = (along @ along - between**2 * below * (n - below) / n) / n
            deviations = np.where(allowed, between / np.sqrt(within + 1e-9), 0)
            k = int(deviations.argmax())
            lower = np.zeros(n, dtype=bool)
            lower[order[: k + 1]] = True
            if deviations[k] > best:
                best, few = float(deviations[k]), lower if 2 * (k + 1) < n else ~lower
            apart = values[~lower].mean(axis=0) - values[lower].mean(axis=0)
            share = lower.mean()
            narrow = (1 + 1e-3) * np.eye(many) - share * (1 - share) * np.outer(apart, apart)
            direction = np.linalg.solve(narrow, apart)
    return best, few


def check_limits(case: Case) -> Iterator[Defect]:
    """Splits and sources in which boxes below a size were left out, as those of the others show."""
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    if case.misread or not len(chosen) or case.found & {"box-shift", "constant-box", "shifted-rows"}:
        return
    labels = np.unique([str(table.places[k].label) for k in chosen], return_inverse=True)[1]
    patients = np.unique([table.places[k].row.somebody for k in chosen], return_inverse=True)[1]
    sizes: dict[str, np.ndarray] = {}
    for unit, boxes in (("pixels", table.numbers[chosen]), ("of the image", table.parts[chosen])):
        sides = boxes[:, 2:] - boxes[:, :2]
        sizes |= {f"{unit} on the longer side": sides.max(axis=1), f"{unit} on the shorter side": sides.min(axis=1)}
        sizes[f"{unit} as the root of the area"] = sides.prod(axis=1) ** 0.5
    clearest, found, mine = _SELDOM, "", labels < 0
    for column, groups in case.columns.items():
        for group, count in Counter(groups[table.rows[chosen]].tolist()).most_common(_MOST_GROUPS):
            here = groups[table.rows[chosen]] == group
            if not group or column == PART_OF_FILE or not _FEWEST_OF_GROUP <= count <= len(chosen) - _FEWEST_OF_GROUP:
                continue
            others = np.bincount(labels[~here], minlength=labels.max() + 1) / np.bincount(labels)
            known = (others > 0) & (others < 1)
            for unit, size in sizes.items():
                seldom, limit, below = _below(np.log(size), here, others[labels], known[labels], patients)
                if seldom < clearest:
                    words = f"{column} {group}: no box has less than {np.exp(limit):.4g} {unit}, unlike"
                    clearest, found, mine = seldom, f"{words} {below} of {(~here).sum()} elsewhere.", here
    if found:
        shown = [(table.places[k].row, box_words(case, k)) for k in chosen[mine].tolist()]
        yield case.defect("box-shift", shown, of=len(chosen), found=found)


def _below(
    sizes: np.ndarray, here: np.ndarray, others: np.ndarray, known: np.ndarray, patients: np.ndarray
) -> tuple[float, float, int]:
    """The logarithm of how seldom chance leaves a group without sizes below its least, that size, and how many are."""
    if not (here & known).any():
        return 0.0, 0.0, 0
    limit = sizes[here & known].min()
    below = known & ~here & (sizes < limit - 1e-9)
    # Of each patient the box that says least.
    seldom = np.full(patients.max() + 1, -np.inf)
    np.maximum.at(seldom, patients[below], np.log(others[below]))
    # A hard limit has as many boxes next to it as elsewhere.
    edge = known & (sizes >= limit) & (sizes < limit + _EDGE)
    is_hard = (here & edge).sum() >= (1 - others[edge]).sum()
    return float(seldom[np.isfinite(seldom)].sum()) if is_hard else 0.0, float(limit), int(below.sum())


def check_labels_of_rows(case: Case) -> Iterator[Defect]:
    """A part of the file whose boxes fit the labels of a row before or after, and not their own."""
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    if case.misread or not len(chosen):
        return
    parts = table.parts[chosen]
    labels = np.unique([str(table.places[k].label) for k in chosen], return_inverse=True)[1]
    for order in orders(case.rows):
        places = np.argsort(order)[table.rows[chosen]]
        in_order = np.argsort(places, kind="stable")
        for some in np.array_split(in_order, range(_MOST_COMPARED, len(in_order), _MOST_COMPARED)):
            where, mine = _of_other_rows(parts[some], labels[some], places[some])
            if len(mine):
                shown = [(table.places[k].row, box_words(case, k)) for k in chosen[some[mine]].tolist()]
                found = (
                    f"In a part of the file the boxes of {len(mine)} images fit the labels of {where}, not their own."
                )
                yield case.defect("shifted-rows", shown, of=len(case.rows), found=found, fix=JOIN)
                return


def _of_other_rows(parts: np.ndarray, labels: np.ndarray, places: np.ndarray) -> tuple[str, np.ndarray]:
    """Which row has the labels that boxes in a part of the file fit, and the first box of each row of this part.

    Args:
        parts: (n, 4), boxes in parts of the image.
        labels: (n,), the number of the label of each.
        places: (n,), the place of the row of each in the file.
    """
    likely = likelihoods(parts, labels, places)
    own = likely[np.arange(len(labels)), labels]
    _, first, row = np.unique(places, return_index=True, return_inverse=True)
    named = np.zeros((len(first), likely.shape[1]), dtype=bool)
    named[row, labels] = True
    windows = {}
    for shift in (*range(-_MOST_SHIFT, 0), *range(1, _MOST_SHIFT + 1)):
        other = np.clip(row + shift, 0, len(first) - 1)
        better = np.where(named[other], likely, -np.inf).max(axis=1) - own
        better[(named[other] == named[row]).all(axis=1)] = 0
        sums = np.append(0, np.cumsum(np.bincount(row, better) / np.bincount(row)))
        # The part in which the sum rises most.
        rises = sums - np.minimum.accumulate(sums)
        end = int(rises.argmax())
        windows[shift] = rises[end], int(sums[: end + 1].argmin()), end
    best, second = sorted(windows, key=lambda one: -windows[one][0])[:2]
    sum_of, start, end = windows[best]
    if abs(best) > 1 or end - start < _FEWEST_ROWS or sum_of < max(_FITS_OTHER, _TIMES_SECOND * windows[second][0]):
        return "", first[:0]
    return f"the row {'before' if best < 0 else 'after'}", first[start:end]
