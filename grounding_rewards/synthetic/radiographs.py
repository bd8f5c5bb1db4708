"""Chest radiographs of several views, sizes and findings, any number of them by index: a plan first, then its
picture."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from grounding_rewards.common.legal import check_word
from grounding_rewards.synthetic.anatomy import Anatomy, paint_anatomy, paint_heart, plan_anatomy
from grounding_rewards.synthetic.canvas import Box, Canvas, visible_box
from grounding_rewards.synthetic.findings import FINDINGS, PlannedFinding, describe, paint_finding, plan_findings
from grounding_rewards.synthetic.occluders import (
    NO_OCCLUDERS,
    Occluders,
    exposed,
    paint_occluders,
    plan_occluders,
)

if TYPE_CHECKING:
    from PIL.Image import Image

# Width and height in millimetres: 14 by 17 inches upright and lying, and 17 by 17.
_UPRIGHT, _LYING, _SQUARE = (356.0, 432.0), (432.0, 356.0), (432.0, 432.0)


@dataclass(frozen=True)
class Preset:
    """A kind of image.

    Attributes:
        long_sides: Lengths of the longer side in pixels, equally likely.
        formats: Widths and heights in millimetres, equally likely.
        views: Probabilities of the projections.
        occluders: Whether markers, leads and collimation are drawn.
        labels: The findings that occur, in the order of `FINDINGS`.
    """

    long_sides: tuple[int, ...]
    formats: tuple[tuple[float, float], ...]
    views: Mapping[str, float]
    occluders: bool
    labels: tuple[str, ...] = FINDINGS


_MIXED = {"PA": 0.5, "AP": 0.3, "LL": 0.2}

LABELS = ("cardiomegaly", "pleural effusion", "mass", "pacemaker")
"""The findings of the preset pa-112: what can be told apart on images that the tiny model takes as they are."""

PRESETS: Mapping[str, Preset] = {
    "pa-112": Preset((112,), (_SQUARE,), {"PA": 1.0}, occluders=False, labels=LABELS),
    "pa-256": Preset((256,), (_UPRIGHT,), {"PA": 1.0}, occluders=False),
    "mixed-512": Preset((448, 480, 512), (_UPRIGHT, _LYING, _SQUARE), _MIXED, occluders=True),
    "mixed-1024": Preset((896, 960, 1024), (_UPRIGHT, _LYING, _SQUARE), _MIXED, occluders=True),
}
"""The kinds of images that can be drawn, by name."""


@dataclass(frozen=True)
class RadiographPlan:
    """Everything about an image before it is painted.

    Attributes:
        id: Preset, seed and index.
        rows: Height in pixels.
        columns: Width in pixels.
        spacing: Millimetres per pixel.
        anatomy: The chest.
        findings: The findings to paint.
        occluders: Objects over the image.
        gain: Of the exposure.
        noise: Standard deviation of the noise where the image is brightest.
        seed: Of the noise.
    """

    id: str
    rows: int
    columns: int
    spacing: float
    anatomy: Anatomy
    findings: tuple[PlannedFinding, ...]
    occluders: Occluders
    gain: float
    noise: float
    seed: int


@dataclass(frozen=True)
class Radiograph:
    """One drawn image.

    Attributes:
        image: 8-bit grey; the left of the image is the right of the patient.
        boxes: xyxy in pixels of the image, one per finding, tight around what can be seen of it.
        labels: As many as boxes, from `FINDINGS`; only nodules occur several times.
        phrases: As many as boxes: what a report says; two nodules in one place share their phrase.
        view: PA, AP or LL (from the side).
        spacing: Millimetres per pixel.
        id: Preset, seed and index.
    """

    image: Image
    boxes: tuple[Box, ...]
    labels: tuple[str, ...]
    phrases: tuple[str, ...]
    view: str
    spacing: float
    id: str


def draw_radiograph(index: int, preset: str = "mixed-512", *, seed: int = 0) -> Radiograph:
    """Draw the image of this index; the same arguments always give the same image.

    Args:
        index: Any number from 0 up.
        preset: One of `PRESETS`.
        seed: Of all images.

    Raises:
        ValueError: Unknown preset, or a negative number.

    >>> image = draw_radiograph(15, "pa-256")
    >>> image.image.size, image.view, image.phrases, image.boxes
    ((211, 256), 'PA', ('consolidation in the right middle zone',), ((21, 79, 88, 146),))
    """
    return paint_radiograph(plan_radiograph(index, preset, seed=seed))


def plan_radiograph(index: int, preset: str = "mixed-512", *, seed: int = 0) -> RadiographPlan:
    """Plan the image of this index, without painting it; arguments and errors as `draw_radiograph`.

    >>> [finding.label for finding in plan_radiograph(15, "pa-256").findings]
    ['consolidation']
    """
    check_word("preset", preset, PRESETS)
    if index < 0 or seed < 0:
        raise ValueError(f"Expected numbers from 0 up for index and seed, got {index} and {seed}. Count from 0.")
    kind = PRESETS[preset]
    rng = np.random.default_rng([zlib.crc32(preset.encode()), seed, index])
    view = str(rng.choice(list(kind.views), p=list(kind.views.values())))
    width, height = kind.formats[int(rng.integers(len(kind.formats)))]
    spacing = max(width, height) / int(rng.choice(kind.long_sides))
    anatomy = plan_anatomy(rng, view, width, height)
    return RadiographPlan(
        id=f"{preset}-{seed}-{index}",
        rows=round(height / spacing),
        columns=round(width / spacing),
        spacing=spacing,
        anatomy=anatomy,
        findings=plan_findings(rng, anatomy, kind.labels),
        occluders=plan_occluders(rng, anatomy, width, height) if kind.occluders else NO_OCCLUDERS,
        gain=float(rng.uniform(0.85, 1.15)),
        noise=float(rng.uniform(0.010, 0.025)),
        seed=int(rng.integers(2**32)),
    )


def paint_radiograph(plan: RadiographPlan) -> Radiograph:
    """Paint a plan.

    >>> paint_radiograph(plan_radiograph(15, "pa-256")).id
    'pa-256-0-15'
    """
    from PIL import Image
    from scipy.ndimage import gaussian_filter

    canvas = Canvas(plan.rows, plan.columns, plan.spacing)
    paint_anatomy(canvas, plan.anatomy)
    if not any(finding.label == "cardiomegaly" for finding in plan.findings):
        paint_heart(canvas, plan.anatomy, plan.anatomy.heart_ratio)
    image = exposed(canvas, plan.occluders)
    boxes, labels, phrases = [], [], []
    for finding in plan.findings:
        box = visible_box(paint_finding(canvas, plan.anatomy, finding) * image)
        if box:
            boxes.append(box)
            labels.append(finding.label)
            x, y = (box[0] + box[2]) / 2 * plan.spacing, (box[1] + box[3]) / 2 * plan.spacing
            phrases.append(describe(plan.anatomy, finding, x, y))
    paint_occluders(canvas, plan.occluders)
    # Beer-Lambert: what passes falls exponentially with what lies in the way; images show it inverted
    grey = (1.0 - np.exp(-plan.gain * gaussian_filter(canvas.attenuation(), 0.5))) * image
    grain = np.random.default_rng(plan.seed).normal(0.0, plan.noise, grey.shape)
    grey = np.clip(grey + grain * np.sqrt(np.maximum(grey, 0.05)), 0.0, 1.0) ** 1.25
    return Radiograph(
        image=Image.fromarray(np.rint(grey * 255).astype(np.uint8)),
        boxes=tuple(boxes),
        labels=tuple(labels),
        phrases=tuple(phrases),
        view=plan.anatomy.view,
        spacing=plan.spacing,
        id=plan.id,
    )
