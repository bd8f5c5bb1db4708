"""Small square chest radiographs for tests and demos, with boxes around what was drawn.

They are no substitute for real images; they let every part of the package run without patients' data. An image holds a
thorax with ribs, spine, clavicles, two lungs, a heart and noise, and up to three findings. A quarter of the images has
none. The left of the image is the right of the patient, as on every image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from grounding_rewards.common.legal import check_word
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.synthetic.canvas import Box

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

LABELS = ("cardiomegaly", "effusion", "mass", "pacemaker")
"""The findings that may be drawn, in the order of an image's labels; each occurs at most once on an image."""

SPLITS = ("train", "validation", "test")

# Each split has a range of seeds of its own, so that no image is in two splits.
_SEEDS_PER_SPLIT = 10_000_000

_COUNT_PROBABILITIES = {0: 0.25, 1: 0.50, 2: 0.18, 3: 0.07}


@dataclass(frozen=True)
class DrawnImage:
    """One drawn image.

    Attributes:
        image: 8-bit grey.
        boxes: xyxy in pixels of the image, one per finding.
        labels: As many as boxes, from `LABELS`.
        seed: Of the image.
    """

    image: Image
    boxes: tuple[Box, ...]
    labels: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class _Anatomy:
    """Where one image's organs lie, in fractions of the side."""

    middle: float
    top: float
    base: float
    lung_offset: float
    lung_width: float


class _Canvas:
    """A square grey image in [0, 1]; all lengths are fractions of its side, all edges are blurred by `softness`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.grey = np.full((size, size), 0.05)
        self._middles = (np.arange(size) + 0.5) / size

    def ellipse(
        self,
        cx: float,
        cy: float,
        rx: float,
        ry: float,
        *,
        brightness: float,
        opacity: float = 1.0,
        softness: float = 0.03,
    ) -> Box:
        """Paint an axis-parallel ellipse and return its box."""
        window, x, y = self._window(cx - rx - softness, cy - ry - softness, cx + rx + softness, cy + ry + softness)
        radius = np.sqrt(((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2)
        self._blend(window, (1.0 - radius) * min(rx, ry), softness, brightness, opacity)
        return self._box(cx - rx, cy - ry, cx + rx, cy + ry)

    def panel(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        brightness: float,
        opacity: float = 1.0,
        softness: float = 0.02,
        slope: float = 0.0,
    ) -> Box:
        """Paint a rectangle with rounded corners, its upper edge tilted by `slope`, and return its box."""
        window, x, y = self._window(x1 - softness, y1 - softness, x2 + softness, y2 + softness)
        upper = y1 + abs(slope) * (x2 - x1) / 2 + slope * (x - (x1 + x2) / 2)
        sides = np.minimum(x - x1, x2 - x), np.minimum(y - upper, y2 - y)
        corner = 2 * softness
        # Signed distance of a rounded rectangle.
        inner = [corner - side for side in sides]
        outside = np.hypot(np.maximum(inner[0], 0.0), np.maximum(inner[1], 0.0))
        distance = corner - outside - np.minimum(np.maximum(inner[0], inner[1]), 0.0)
        self._blend(window, distance, softness, brightness, opacity)
        return self._box(x1, y1, x2, y2)

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        *,
        width: float,
        brightness: float,
        opacity: float = 1.0,
    ) -> None:
        """Paint a straight line with round ends."""
        reach = width / 2 + 0.01
        window, x, y = self._window(min(x1, x2) - reach, min(y1, y2) - reach, max(x1, x2) + reach, max(y1, y2) + reach)
        dx, dy = x2 - x1, y2 - y1
        along = np.clip(((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
        distance = width / 2 - np.hypot(x - x1 - along * dx, y - y1 - along * dy)
        self._blend(window, distance, 0.01, brightness, opacity)

    def _window(self, x1: float, y1: float, x2: float, y2: float) -> tuple[tuple[slice, slice], np.ndarray, np.ndarray]:
        columns = slice(max(0, int(x1 * self.size) - 1), max(0, int(x2 * self.size) + 2))
        rows = slice(max(0, int(y1 * self.size) - 1), max(0, int(y2 * self.size) + 2))
        return (rows, columns), self._middles[None, columns], self._middles[rows, None]

    def _blend(
        self,
        window: tuple[slice, slice],
        inward: np.ndarray,
        softness: float,
        brightness: float,
        opacity: float,
    ) -> None:
        ramp = np.clip(inward / softness + 0.5, 0.0, 1.0)
        mask = opacity * ramp * ramp * (3.0 - 2.0 * ramp)
        self.grey[window] += mask * (brightness - self.grey[window])

    def _box(self, x1: float, y1: float, x2: float, y2: float) -> Box:
        edges = np.clip(np.rint(np.array([x1, y1, x2, y2]) * self.size), 0, self.size)
        left, top, right, bottom = edges.astype(int).tolist()
        return left, top, right, bottom


def _draw_anatomy(canvas: _Canvas, rng: np.random.Generator) -> _Anatomy:
    anatomy = _Anatomy(
        middle=0.5 + rng.uniform(-0.03, 0.03),
        top=0.16 + rng.uniform(-0.03, 0.03),
        base=0.80 + rng.uniform(-0.04, 0.04),
        lung_offset=0.205 + rng.uniform(-0.015, 0.015),
        lung_width=0.145 + rng.uniform(-0.012, 0.012),
    )
    middle, top, base = anatomy.middle, anatomy.top, anatomy.base
    canvas.ellipse(middle, 0.72, 0.47, 0.66, brightness=0.50, softness=0.04)
    canvas.ellipse(middle, 0.02, 0.15, 0.22, brightness=0.50, softness=0.04)
    height = (base - top) / 2
    air = 0.17 + rng.uniform(-0.02, 0.02)
    for side in (-1, 1):
        x = middle + side * anatomy.lung_offset
        canvas.ellipse(x, top + height, anatomy.lung_width, height, brightness=air)
        # A lung is wider below than above.
        canvas.ellipse(x + side * 0.015, top + height + 0.12, anatomy.lung_width * 1.08, height - 0.12, brightness=air)
        # The dome of the diaphragm.
        canvas.ellipse(x, base + 0.10, 0.20, 0.14, brightness=0.55)
        for rib in range(7):
            y = top + 0.03 + 0.085 * rib
            knee = x + side * 0.02
            canvas.line(middle + side * 0.03, y, knee, y - 0.02, width=0.022, brightness=0.75, opacity=0.22)
            canvas.line(knee, y - 0.02, x + side * 0.17, y + 0.07, width=0.022, brightness=0.75, opacity=0.22)
        collar = top + rng.uniform(-0.01, 0.01)
        canvas.line(
            middle + side * 0.04, collar + 0.03, x + side * 0.15, collar - 0.03, width=0.03, brightness=0.8, opacity=0.5
        )
    canvas.line(middle, 0.0, middle, 1.0, width=0.09, brightness=0.72, opacity=0.5)
    return anatomy


def _draw_heart(canvas: _Canvas, rng: np.random.Generator, anatomy: _Anatomy, *, large: bool) -> Box:
    half_width = rng.uniform(0.20, 0.255) if large else rng.uniform(0.115, 0.14)
    half_height = half_width * (rng.uniform(0.72, 0.85) if large else rng.uniform(0.95, 1.1))
    x = anatomy.middle + 0.045 + rng.uniform(-0.015, 0.015)
    y = anatomy.base - 0.05 - half_height * 0.75
    return canvas.ellipse(x, y, half_width, half_height, brightness=0.68, opacity=0.95)


def _draw_effusion(canvas: _Canvas, rng: np.random.Generator, anatomy: _Anatomy) -> Box:
    side = int(rng.choice([-1, 1]))
    x = anatomy.middle + side * (anatomy.lung_offset + 0.03)
    half_width = anatomy.lung_width * rng.uniform(0.85, 1.0)
    level = anatomy.base - rng.uniform(0.16, 0.38)
    # The fluid climbs towards the chest wall.
    return canvas.panel(
        x - half_width,
        level,
        x + half_width,
        anatomy.base + 0.04,
        brightness=0.80,
        opacity=0.9,
        softness=0.03,
        slope=-side * 0.25,
    )


def _draw_mass(canvas: _Canvas, rng: np.random.Generator, anatomy: _Anatomy) -> Box:
    side = int(rng.choice([-1, 1]))
    radius = rng.uniform(0.065, 0.11)
    x = anatomy.middle + side * (anatomy.lung_offset + rng.uniform(-0.03, 0.06))
    y = rng.uniform(anatomy.top + 0.10, anatomy.base - 0.22)
    return canvas.ellipse(x, y, radius, radius * rng.uniform(0.85, 1.15), brightness=0.78, opacity=0.9)


def _draw_pacemaker(canvas: _Canvas, rng: np.random.Generator, anatomy: _Anatomy) -> Box:
    side = int(rng.choice([-1, 1]))
    x = anatomy.middle + side * rng.uniform(0.27, 0.35)
    y = anatomy.top + rng.uniform(0.02, 0.14)
    half_width, half_height = rng.uniform(0.065, 0.09), rng.uniform(0.055, 0.075)
    bend = anatomy.middle + 0.02, anatomy.top + 0.12
    canvas.line(x, y, *bend, width=0.012, brightness=0.95)
    canvas.line(*bend, anatomy.middle + 0.05, anatomy.base - 0.12, width=0.012, brightness=0.95)
    return canvas.panel(x - half_width, y - half_height, x + half_width, y + half_height, brightness=1.0)


def draw_image(seed: int, size: int = 112) -> DrawnImage:
    """Draw the image of this seed; the same arguments give the same pixels.

    Args:
        seed: Any number from 0 up.
        size: Side of the square image in pixels.

    >>> image = draw_image(1)
    >>> image.image.size, image.labels, image.boxes
    ((112, 112), ('pacemaker',), ((16, 14, 33, 27),))
    """
    from PIL import Image

    rng = np.random.default_rng(seed)
    count = int(rng.choice(list(_COUNT_PROBABILITIES), p=list(_COUNT_PROBABILITIES.values())))
    chosen = set(rng.permutation(LABELS)[:count].tolist())
    canvas = _Canvas(size)
    anatomy = _draw_anatomy(canvas, rng)
    boxes = {"cardiomegaly": _draw_heart(canvas, rng, anatomy, large="cardiomegaly" in chosen)}
    for label, draw in (("mass", _draw_mass), ("effusion", _draw_effusion), ("pacemaker", _draw_pacemaker)):
        if label in chosen:
            boxes[label] = draw(canvas, rng, anatomy)
    grey = np.clip(canvas.grey, 0.0, 1.0) ** rng.uniform(0.85, 1.2) * rng.uniform(0.85, 1.1)
    grey += rng.normal(0.0, 0.03, grey.shape)
    labels = tuple(label for label in LABELS if label in chosen)
    return DrawnImage(
        image=Image.fromarray(np.rint(np.clip(grey, 0.0, 1.0) * 255).astype(np.uint8)),
        boxes=tuple(boxes[label] for label in labels),
        labels=labels,
        seed=seed,
    )


def image_seeds(split: str, n: int) -> range:
    """The seeds of the first images of a split; splits share no seed.

    Args:
        split: One of `SPLITS`.
        n: Number of images, from 1 to ten million.

    Raises:
        ValueError: Unknown split, or a number out of range.

    >>> image_seeds("test", 2)
    range(20000000, 20000002)
    """
    check_word("split", split, SPLITS)
    if not 0 < n <= _SEEDS_PER_SPLIT:
        raise ValueError(f"Expected 1 to {_SEEDS_PER_SPLIT} for n, got {n}. Ask for a number in this range.")
    first = SPLITS.index(split) * _SEEDS_PER_SPLIT
    return range(first, first + n)


def synthetic_dataset(split: str, n: int, *, size: int = 112) -> Dataset:
    """The first `n` images of a split with the columns that the package uses.

    Args:
        split: One of `SPLITS`.
        n: Number of images.
        size: Side of the images in pixels.

    Returns:
        Columns prompt, image, boxes (xyxy pixels), labels, width, height and id.

    Raises:
        ValueError: As `image_seeds`.

    >>> synthetic_dataset("validation", 2).column_names
    ['prompt', 'image', 'boxes', 'labels', 'width', 'height', 'id']
    """
    from datasets import Dataset, Image

    images = [draw_image(seed, size) for seed in image_seeds(split, n)]
    columns = {
        "prompt": [prompt_messages(LABELS)] * n,
        "image": [image.image for image in images],
        "boxes": [[[float(value) for value in box] for box in image.boxes] for image in images],
        "labels": [list(image.labels) for image in images],
        "width": [size] * n,
        "height": [size] * n,
        "id": [f"{split}-{image.seed}" for image in images],
    }
    return Dataset.from_dict(columns).cast_column("image", Image())
