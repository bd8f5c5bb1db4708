"""Copies of images that were altered: cropped, enlarged, turned a little, mirrored, inverted, or of another contrast.

The most alike images, by the slopes of their greys over a coarse grid, are laid over one another: first as a whole,
then the middle at four times the scale. How far the contrasts correlate there tells copies: what images of one kind
show lies in the same places, its details do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from grounding_rewards.doctor.registration import contrasts, fitted, taken, zoom

if TYPE_CHECKING:
    from PIL.Image import Image

# Pixels of a side of the middle of an image, and how many times larger it is than in a copy of the whole.
_MIDDLE, _SCALE = 64, 4
# Least correlation of two copies; of their whole, before the middle is looked at; the most that it lacks to 1, as a
# part of what another image lacks. In 32 clean sets, cut in two, different images reach 0.3 and drawn ones 0.7; copies
# cropped by a twentieth of a side or turned by 5 degrees lie at 0.87 and above, but for one in twenty.
_COPY, _WHOLE, _LACK = 0.84, 0.55, 0.5
# Images that are laid over each; images at a time; at which sizes they are compared before.
_CANDIDATES, _BLOCK, _ZOOMS = 3, 32, (0.92, 1.0, 1.08)
# Slopes of a side of a cell; pixels around one that its grey is compared with; steps of a fit.
_CELL, _AROUND, _STEPS = 4, 5, 4
# What a copy is, by whether it is mirrored and whether its greys are inverted.
_WHAT = (("an altered", "an inverted"), ("a mirrored", "a mirrored and inverted"))


def middle_of(image: Image) -> bytes:
    """The greys of the middle of an image, of half its sides, as 64 x 64 pixels; empty for a small image."""
    from PIL.Image import Resampling

    width, height = image.size
    if min(width, height) < _MIDDLE * 3 // 2:
        return b""
    box = (width / 4, height / 4, width * 3 / 4, height * 3 / 4)
    return image.resize((_MIDDLE, _MIDDLE), Resampling.BOX, box=box).tobytes()


def find_altered_copies(
    small: Sequence[bytes], middle: Sequence[bytes], groups: Sequence[str]
) -> Iterator[tuple[int, int, str]]:
    """The images that are copies of one in another group, their places first; none is looked for in the largest group.

    Args:
        small: the greys of a copy of each image, 32 x 32.
        middle: from :func:`middle_of`.
        groups: of each image.

    Example:
        >>> from PIL import Image
        >>> greys = np.random.default_rng(0).integers(0, 200, (6, 32, 32), dtype=np.uint8)
        >>> greys[5] = 250 - greys[1, :, ::-1]
        >>> middles = [middle_of(Image.fromarray(one).resize((128, 128), Image.Resampling.NEAREST)) for one in greys]
        >>> list(find_altered_copies([one.tobytes() for one in greys], middles, ["train"] * 4 + ["test"] * 2))
        [(5, 1, 'a mirrored and inverted')]
    """
    known = np.array([k for k, one in enumerate(middle) if one], dtype=int)
    names, of = np.unique([groups[k] for k in known], return_inverse=True)
    if len(names) < 2:
        return
    wholes, middles = (
        np.frombuffer(b"".join(one[k] for k in known), dtype=np.uint8).reshape(len(known), side, side)
        for one, side in ((small, _MIDDLE * 2 // _SCALE), (middle, _MIDDLE))
    )
    slopes = [_slopes(greys) for greys in (wholes, wholes[:, :, ::-1])]
    asked = np.flatnonzero(of != np.bincount(of).argmax())
    for block in np.split(asked, range(_BLOCK, len(asked), _BLOCK)):
        # At each size, as it is and mirrored.
        zoomed = [_slopes(taken(wholes[block], zoom(len(block), by))[0]) for by in _ZOOMS]
        likeness = np.stack([one @ other.T for one in zoomed for other in slopes])
        likeness[:, of[block][:, None] == of] = 0
        most = np.argsort(-np.abs(likeness).max(axis=0), axis=1)[:, :_CANDIDATES]
        mine, its = np.repeat(np.arange(len(block)), most.shape[1]), most.ravel()
        way = np.abs(likeness[:, mine, its]).argmax(axis=0)
        sign, maps = np.sign(likeness[way, mine, its]), np.concatenate([zoom(1, by) for by in _ZOOMS])[way // 2]
        pairs = _Pairs(block[mine], its, way % 2 == 1, sign.astype(np.float32), maps)
        maps, fits = pairs.laid_over(wholes)
        maps[:, :, 2] *= _SCALE
        pairs, by_image = pairs._replace(maps=maps), fits.reshape(most.shape)
        first = np.arange(len(block)) * most.shape[1]
        # The one that fits best, and one that is most likely another image; of two images only, there is none.
        best, other = first + by_image.argmax(axis=1), first + by_image.argmin(axis=1)
        for least in (_WHOLE, _COPY):
            is_so = fits[best] >= least
            best, other = best[is_so], other[is_so]
            now = best if least == _WHOLE else other
            fits[now] = _Pairs(*(one[now] for one in pairs)).laid_over(middles)[1]
        lack = 1 - np.where(best == other, 0, fits[other])
        for k in best[1 - fits[best] <= _LACK * lack].tolist():
            what = _WHAT[int(pairs.mirrored[k])][int(pairs.sign[k] < 0)]
            yield int(known[pairs.mine[k]]), int(known[pairs.its[k]]), what


class _Pairs(NamedTuple):
    """Places of two images each, whether the second is mirrored, the sign of its greys, and what maps it to the first.

    maps: (n, 2, 3), from places in the first image, counted from its middle, to those in the second.
    """

    mine: np.ndarray
    its: np.ndarray
    mirrored: np.ndarray
    sign: np.ndarray
    maps: np.ndarray

    def laid_over(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best maps near these, and how far the contrasts correlate there."""
        others = images[self.its] * self.sign[:, None, None]
        others[self.mirrored] = others[self.mirrored, :, ::-1]
        mine, its = (contrasts(one, _AROUND) for one in (images[self.mine], others))
        maps = fitted(mine, its, self.maps, _STEPS, step=2)
        found, within = taken(its, maps)
        inside = within.sum(axis=(1, 2), keepdims=True) + 1e-6
        both = [np.where(within, one, 0) for one in (mine, found)]
        a, b = (np.where(within, one - one.sum(axis=(1, 2), keepdims=True) / inside, 0) for one in both)
        product, *squares = ((one * two).sum(axis=(1, 2)) for one, two in ((a, b), (a, a), (b, b)))
        return maps, product / np.sqrt(squares[0] * squares[1] + 1e-6)


def _slopes(greys: np.ndarray) -> np.ndarray:
    """The slopes to the right and below, one for each cell; of length 1."""
    numbers = greys.astype(np.float32)
    both = np.stack([np.diff(numbers, axis=2)[:, :-1], np.diff(numbers, axis=1)[:, :, :-1]], axis=1)
    cells = both.shape[-1] // _CELL
    edge = slice((both.shape[-1] - cells * _CELL) // 2, None)
    inner = both[:, :, edge, edge][:, :, : cells * _CELL, : cells * _CELL]
    means = inner.reshape(len(greys), 2, cells, _CELL, cells, _CELL).mean(axis=(3, 5)).reshape(len(greys), -1)
    return means / (np.linalg.norm(means, axis=1, keepdims=True) + 1e-6)
