"""Small copies of images laid over one another: an affine map, fitted to contrasts, many images at a time."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import uniform_filter

# How far an image is enlarged or turned at most, and moved by this part of half a side.
_FARTHEST = 0.3


def contrasts(images: np.ndarray, around: int) -> np.ndarray:
    """By how much each grey differs from those around it, so many pixels, in deviations of these.

    Args:
        images: (n, side, side).
        around: pixels of a side.
    """
    numbers = images.astype(np.float32)
    numbers -= uniform_filter(numbers, (0, around, around))
    spread = np.sqrt(np.maximum(uniform_filter(numbers**2, (0, 2 * around + 1, 2 * around + 1)), 0))
    return numbers / (spread + spread.mean(axis=(1, 2), keepdims=True) / 4 + 1e-3)


def zoom(count: int, by: float = 1.0) -> np.ndarray:
    """(count, 2, 3): maps from places in an image, counted from its middle, to such in another one."""
    return np.tile(np.array([[by, 0, 0], [0, by, 0]], dtype=np.float32), (count, 1, 1))


def taken(images: np.ndarray, maps: np.ndarray, step: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of images at the mapped places, each the mean of four pixels, and which lie within the image.

    Args:
        images: (n, side, side).
        maps: (n, 2, 3), as from :func:`zoom`.
        step: of the places.
    """
    side = images.shape[1]
    middle = (side - 1) / 2
    line = np.arange(0, side, step, dtype=np.float32) - middle
    x, y = (maps[:, k, :1, None] * line + maps[:, k, 1:2, None] * line[:, None] + maps[:, k, 2:, None] for k in (0, 1))
    within = np.maximum(np.abs(x), np.abs(y)) <= middle
    x, y = (np.clip(one + middle, 0, side - 1.01) for one in (x, y))
    left, above = x.astype(np.int32), y.astype(np.int32)
    x, y = x - left, y - above
    numbers = images.astype(np.float32).ravel()
    first = above * side + left + (np.arange(len(images), dtype=np.int32) * side**2)[:, None, None]
    upper, lower = (numbers.take(k) * (1 - x) + numbers.take(k + 1) * x for k in (first, first + side))
    return upper * (1 - y) + lower * y, within


def fitted(images: np.ndarray, others: np.ndarray, maps: np.ndarray, steps: int, step: int = 1) -> np.ndarray:
    """The maps by which other images fit best, near the given ones.

    As Lucas and Kanade fit, in the inverse compositional way (Baker and Matthews, 2004): first blurred, then sharp.

    Args:
        images: (n, side, side), contrasts.
        others: as these.
        maps: (n, 2, 3).
        steps: of the fit, at each sharpness.
        step: of the places that are compared.

    Example:
        >>> image = np.add.outer(np.sin(np.arange(32) / 3), np.cos(np.arange(32) / 4))[None]
        >>> fitted(image, np.roll(image, 2, axis=2), zoom(1), steps=9).round(1).tolist()
        [[[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]]
    """
    soft = [uniform_filter(uniform_filter(one, (0, 3, 3)), (0, 3, 3)) for one in (images, others)]
    count, side = images.shape[:2]
    line = np.arange(0, side, step, dtype=np.float32) - (side - 1) / 2
    x, y = np.meshgrid(line, line)
    still, far = np.eye(3, dtype=np.float32), np.array([_FARTHEST, _FARTHEST, _FARTHEST * side / 2])
    for mine, its in (soft, (images, others)):
        down, right = (one[:, ::step, ::step] for one in np.gradient(mine, axis=(1, 2)))
        by = np.stack([right * x, right * y, right, down * x, down * y, down], axis=1).reshape(count, 6, x.size)
        inverse = np.linalg.inv(by @ by.swapaxes(1, 2) + 0.01 * np.eye(6, dtype=np.float32))
        for _ in range(steps):
            found, within = taken(its, maps, step)
            off = np.clip((found - mine[:, ::step, ::step]) * within, -2, 2).reshape(count, x.size, 1)
            change, whole = np.tile(still, (2, count, 1, 1))
            change[:, :2] += (inverse @ (by @ off)).reshape(count, 2, 3)
            whole[:, :2] = maps
            moved = (whole @ np.linalg.inv(change))[:, :2] - still[:2]
            maps = (still[:2] + np.clip(moved, -far, far)).astype(np.float32)
    return maps
