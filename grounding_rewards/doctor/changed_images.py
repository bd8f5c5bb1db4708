"""Images that were changed while their boxes were not: padded with bars, put together of pieces, mirrored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy.ndimage import uniform_filter

from grounding_rewards.doctor.box_content import MIRRORED
from grounding_rewards.doctor.case import Case, Defect
from grounding_rewards.doctor.registration import contrasts, fitted, taken, zoom

if TYPE_CHECKING:
    from PIL.Image import Image

# Pixels of the longer side that is looked at, and lines of it; greys in which the pixels of a bar differ at most; its
# least width; into which part of it a box reaches; by how much it misses the width that padding to a square gives. In
# 11 clean sets no box reaches into one, and none is as wide as that on both sides.
_SIDE, _LINES, _FLAT, _BAR, _DEEP, _SQUARE = 256, 64, 12, 0.02, 0.25, 0.012
# Pixels along a line differ by so much if it shows anything; a seam is so far from the edge, of so many lines at least;
# blocks have more lines like it than so many.
_UNEVEN, _EDGE, _FEWEST_LINES, _RIVALS = 12, 8, 96, 8
# A seam is a step so many times larger than those beside it, on this part of its length; opposite edges that differ so
# many times more than neighbours go on in each other. Both hold for 1 % of a clean set at most.
_STEP, _LENGTH, _ONE = 3.0, 0.3, 1.5
_FEWEST_ROLLED, _ROLLED = 4, 0.02
# So many images, of all and of those with a seam, have it at one place; of 11 clean sets 2 % at most, but for drawn
# ones, of which most have seams.
_FEWEST_PIECED, _PIECED, _OF_SEAMS, _PLACE = 8, 0.04, 0.5, 0.008
# Images of a source are mirrored if left and right are told apart, in all but a quarter so clearly, and so many are
# clearly told the other way: of 17 clean sets at most 5 or 1.5 %, of those with 6 % mirrored 3.4 % or more.
_FEWEST_ALIKE, _RIGHT, _WRONG, _FEWEST_MIRRORED, _MIRRORED = 80, 0.15, -0.6, 8, 0.03
# How right and left are told: images at most, pixels around one, steps of the fit, numbers that are kept, by how much
# they are evened out, parts of which each is told by the others.
_MOST, _AROUND, _STEPS, _NUMBERS, _RIDGE, _PARTS = 1000, 9, 6, 40, 0.3, 10
# How far an image correlates with what all have in common: inverted and turned ones to 0.4 in nine of ten cases.
_ALIKE = 0.45
# Boxes were mirrored along if, mirrored back, they lose this part of what those of other images lose, which is so much:
# 0.9 where they were, nothing where they were not.
_ALONG, _LEAST_LOST = 0.5, 0.05


def edges_of(image: Image) -> tuple[float, ...]:
    """What tells whether an image is of one piece, in parts of its sides.

    Returns:
        The widths of bars of one grey at the left and right; of the clearest seam between columns by how much it is a
        larger step than those beside it, on which part of its length, and where; how far opposite edges differ, in
        differences of neighbours. Then the same of rows.

    Example:
        >>> from PIL import Image
        >>> greys = np.add.outer(np.arange(90.0), np.arange(100.0) ** 0.5 * 10)
        >>> greys[:, :10] = 0
        >>> left, right, *_ = edges_of(Image.fromarray(greys.astype(np.uint8)))
        >>> left, right
        (0.1, 0.0)
    """
    greys = np.asarray(image.reduce(max(1, round(max(image.size) / _SIDE))))
    return (*_edges(greys), *_edges(greys.T))


def _edges(greys: np.ndarray) -> tuple[float, ...]:
    flat = np.append(np.ptp(greys, axis=0) <= _FLAT, False)
    bars = [int(one.argmin()) / greys.shape[1] for one in (flat, np.append(flat[-2::-1], False))]
    some = greys[:: max(1, len(greys) // _LINES)].astype(np.float32)
    steps = np.abs(np.diff(some, axis=1))
    mean, uneven = steps.mean(axis=0), some.std(axis=0) >= _UNEVEN
    if len(mean) < _FEWEST_LINES:
        return (*bars, 0.0, 0.0, 0.0, np.inf)
    beside = np.max([np.roll(mean, k) for k in (-3, -2, 2, 3)], axis=0)
    known = uneven[1:] & uneven[:-1]
    known[:_EDGE] = known[-_EDGE:] = False
    larger = np.where(known, (mean + 0.5) / (beside + 1), 0)
    k = int(larger.argmax())
    if (larger >= larger[k] / 2).sum() > _RIVALS:
        larger[k] = 0
    part = (steps[:, k] > 2 * beside[k] + 2).mean()
    apart = (np.abs(some[:, 0] - some[:, -1]).mean() + 0.5) / ((mean[0] + mean[-1]) / 2 + 0.5)
    return (*bars, float(larger[k]), float(part), k / len(mean), float(apart if uneven[0] and uneven[-1] else np.inf))


def check_changed_images(case: Case) -> Iterator[Defect]:
    """Bars that boxes know nothing of, seams, and images that are mirrored."""
    edges = np.full((len(case.rows), 2, 6), np.nan)
    of_source: defaultdict[str, defaultdict[object, list[int]]] = defaultdict(lambda: defaultdict(list))
    for k, row in enumerate(case.rows):
        if row.facts and row.facts.edges:
            edges[k] = np.reshape(row.facts.edges, (2, 6))
            # An image may be asked about several times.
            of_source[row.source][row.facts.digest or k].append(k)
    said = {"padded-image": _padded(case, edges), "pieced-image": _pieced(edges), "mirrored-image": {}}
    for images in of_source.values():
        rows = list(images.values())[:: len(images) // _MOST + 1]
        greys = (case.rows[one[0]].facts for one in rows)
        for place in find_mirrored(np.stack([facts.square for facts in greys if facts is not None])):  # type: ignore[misc]
            said["mirrored-image"] |= dict.fromkeys(rows[place], "like the mirror images of most others of its source")
    if _are_mirrored_along(case, [*said["mirrored-image"]]):
        said["mirrored-image"] = {}
    for name, of_row in said.items():
        if of_row:
            yield case.defect(name, [(case.rows[k], of_row[k]) for k in sorted(of_row)])


def _are_mirrored_along(case: Case, rows: list[int]) -> bool:
    """Whether the boxes of mirrored images show that they were mirrored too."""
    if not rows or case.content is None:
        return False
    content, places = case.content
    mine = np.isin(case.table.rows[places], rows)
    gained = content.gained(MIRRORED.read(content.boxes, content.sizes))
    if not mine.any() or mine.all() or (lost := -gained[~mine].mean()) < _LEAST_LOST:
        return False
    return bool(-gained[mine].mean() >= _ALONG * lost)


def _padded(case: Case, edges: np.ndarray) -> dict[int, str]:
    """By row, what is said of bars of one grey."""
    said: dict[int, str] = {}
    for k, row in enumerate(case.rows):
        width, height = row.image_size or (1, 1)
        bar = (1 - min(width, height) / max(width, height)) / 2
        axis = int(height < width)
        # Borders all around are no such bars.
        is_square = bar >= _BAR and (np.abs(edges[k, axis, :2] - bar) <= _SQUARE).all()
        if is_square and (edges[k, 1 - axis, :2] < _BAR).all():
            said[k] = f"bars of {bar:.0%} at two opposite sides, as padding to a square leaves them"
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    rows, parts = table.rows[chosen], table.parts[chosen]
    bars = edges[rows, :, :2]
    # By side: left, top, right, bottom.
    reach = np.concatenate([bars[:, :, 0] - parts[:, :2], bars[:, :, 1] - 1 + parts[:, 2:]], axis=1)
    wide = np.concatenate([bars[:, :, 0], bars[:, :, 1]], axis=1)
    deep = ((wide >= _BAR) & (reach > _DEEP * wide)).any(axis=1)
    for k, place in zip(rows[deep].tolist(), chosen[deep].tolist(), strict=True):
        said.setdefault(k, f"box {table.places[place].number} lies on a bar of one grey")
    return said if len(said) > 1 else {}


def _pieced(edges: np.ndarray) -> dict[int, str]:
    """By row, what is said of seams: those of images that were rolled, or at one place of many images."""
    said: dict[int, str] = {}
    count = np.isfinite(edges[:, 0, 0]).sum()
    for axis, words in enumerate(("of the width", "of the height")):
        step, length, where, apart = edges[:, axis, 2:].T
        seams = np.flatnonzero((step >= _STEP) & (length >= _LENGTH))
        rolled = seams[apart[seams] <= _ONE].tolist()
        if len(rolled) >= max(_FEWEST_ROLLED, _ROLLED * count):
            said |= {k: f"a seam at {where[k]:.0%} {words}, and opposite edges go on in each other" for k in rolled}
        seams = seams[np.argsort(where[seams])]
        ends = np.searchsorted(where[seams], where[seams] + 2 * _PLACE)
        start = int((ends - np.arange(len(seams))).argmax()) if len(seams) else 0
        best = seams[start : ends[start]].tolist() if len(seams) else []
        if len(best) >= max(_FEWEST_PIECED, _PIECED * count, _OF_SEAMS * len(seams)):
            same = f"a seam at {where[best[0]]:.0%} {words}, as {len(best)} images have it"
            said = dict.fromkeys(best, same) | said
    return said


def find_mirrored(small: np.ndarray) -> list[int]:
    """The places of images that are like the mirror images of most others.

    All are laid over what they have in common, whichever way round; then a linear discriminant tells right from left.

    Args:
        small: (n, side, side), images of one kind.
    """
    if len(small) < _FEWEST_ALIKE:
        return []
    sharp = contrasts(small, _AROUND)
    laid, maps = sharp, zoom(len(small))
    parts = np.array_split(np.arange(len(small)), len(small) // 64 + 1)
    for _ in range(2):
        common = laid.mean(axis=0)
        common = common + common[:, ::-1]
        common *= sharp.std() / (common.std() + 1e-9)
        fits = [fitted(np.tile(common, (len(part), 1, 1)), sharp[part], maps[part], _STEPS) for part in parts]
        maps = np.concatenate(fits)
        found, within = taken(sharp, maps)
        laid = found * within
    soft = uniform_filter(laid, (0, 3, 3))
    odd = (soft - soft[:, :, ::-1])[:, :, : small.shape[2] // 2].reshape(len(small), -1)
    odd /= np.linalg.norm(odd, axis=1, keepdims=True) + 1e-6
    numbers = odd @ np.linalg.eigh(odd.T @ odd)[1][:, -_NUMBERS:]
    told = np.zeros(len(small))
    for k in range(_PARTS):
        others = np.delete(numbers, np.s_[k::_PARTS], axis=0)
        spread = others.T @ others / len(others)
        ridge = _RIDGE * np.trace(spread) / _NUMBERS * np.eye(_NUMBERS)
        way = np.linalg.solve(spread + ridge, others.mean(axis=0))
        told[k::_PARTS] = numbers[k::_PARTS] @ way / np.sqrt(way @ spread @ way + 1e-9)
    alike = (laid * common).sum(axis=(1, 2)) / (np.linalg.norm(laid, axis=(1, 2)) * np.linalg.norm(common) + 1e-9)
    wrong = np.flatnonzero((told <= _WRONG) & (alike >= _ALIKE))
    is_firm = np.quantile(told, 0.25) >= _RIGHT and len(wrong) >= max(_FEWEST_MIRRORED, _MIRRORED * len(small))
    return wrong.tolist() if is_firm else []
