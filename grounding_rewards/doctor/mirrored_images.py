"""Images that are mirrored while their boxes are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from scipy.ndimage import uniform_filter

from grounding_rewards.doctor.box_content import MIRRORED
from grounding_rewards.doctor.case import Case, Defect
from grounding_rewards.doctor.registration import contrasts, fitted, taken, zoom

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


def check_mirrored_images(case: Case) -> Iterator[Defect]:
    """Images like the mirror images of most others, unless their boxes were mirrored too."""
    of_source: defaultdict[str, defaultdict[object, list[int]]] = defaultdict(lambda: defaultdict(list))
    for k, row in enumerate(case.rows):
        if row.facts and row.facts.square is not None:
            # An image may be asked about several times.
            of_source[row.source][row.facts.digest or k].append(k)
    mirrored: list[int] = []
    for images in of_source.values():
        rows = list(images.values())[:: len(images) // _MOST + 1]
        facts = [case.rows[one[0]].facts for one in rows]
        for place in find_mirrored(np.stack([one.square for one in facts if one is not None])):  # type: ignore[misc]
            mirrored += rows[place]
    if mirrored and not _are_mirrored_along(case, mirrored):
        words = "like the mirror images of most others of its source"
        yield case.defect("mirrored-image", [(case.rows[k], words) for k in sorted(mirrored)])


def _are_mirrored_along(case: Case, rows: list[int]) -> bool:
    """Whether the boxes of mirrored images show that they were mirrored too."""
    if case.content is None:
        return False
    content, places = case.content
    mine = np.isin(case.table.rows[places], rows)
    gained = content.gained(MIRRORED.read(content.boxes, content.sizes))
    if not mine.any() or mine.all() or (lost := -gained[~mine].mean()) < _LEAST_LOST:
        return False
    return bool(-gained[mine].mean() >= _ALONG * lost)


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
        ridge = (_RIDGE * np.trace(spread) / _NUMBERS + 1e-9) * np.eye(_NUMBERS)
        way = np.linalg.solve(spread + ridge, others.mean(axis=0))
        told[k::_PARTS] = numbers[k::_PARTS] @ way / np.sqrt(way @ spread @ way + 1e-9)
    alike = (laid * common).sum(axis=(1, 2)) / (np.linalg.norm(laid, axis=(1, 2)) * np.linalg.norm(common) + 1e-9)
    wrong = np.flatnonzero((told <= _WRONG) & (alike >= _ALIKE))
    is_firm = np.quantile(told, 0.25) >= _RIGHT and len(wrong) >= max(_FEWEST_MIRRORED, _MIRRORED * len(small))
    return wrong.tolist() if is_firm else []
