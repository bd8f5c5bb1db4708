"""Draw chest radiographs of several views, sizes and findings by their index: first a plan, then its picture.

Objects over the image, such as markers, are no findings. The splits of a dataset share no image.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grounding_rewards.common.environment import package_versions
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.synthetic.anatomy import (
    Anatomy,
    Box,
    Canvas,
    Line,
    paint_anatomy,
    paint_heart,
    plan_anatomy,
    ramp,
    visible_box,
)
from grounding_rewards.synthetic.findings import FINDINGS, PlannedFinding, describe, paint_finding, plan_findings

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

# Width and height in millimetres: 14 by 17 inches upright and lying, and 17 by 17.
_UPRIGHT = (356.0, 432.0)
_LYING = (432.0, 356.0)
_SQUARE = (432.0, 432.0)
#: Strokes of the letters of a marker, in a square of side 1.
LETTERS = {
    "R": (
        ((0.1, 1.0), (0.1, 0.0), (0.55, 0.0), (0.75, 0.12), (0.75, 0.38), (0.55, 0.5), (0.1, 0.5)),
        ((0.4, 0.5), (0.8, 1.0)),
    ),
    "L": (((0.15, 0.0), (0.15, 1.0), (0.75, 1.0)),),
}
# Side of a marker in millimetres.
_MARKER = 15.0
# Probability of leads in each view.
_LEADS = {"PA": 0.06, "AP": 0.7}
# For each lead x and y of the electrode, in half widths and in heights of the chest, and x and y of the exit of its
# wire, as fractions of the image's sides.
_LEAD_PATHS = ((-0.62, 0.12, 0.1, 0.75), (0.66, 0.10, 0.9, 0.8), (0.72, 0.80, 0.95, 1.02))

SPLITS = ("train", "validation", "test")

# Indices in each split; the ranges of two splits do not overlap.
_PER_SPLIT = 10_000_000


class Occluders(NamedTuple):
    """Objects over one image, in millimetres; by default none.

    Attributes:
        marker: The letter and its upper left corner; None without a marker.
        leads: Curves of wires, `(n, 2)` points each, which end in an electrode.
        margins: Width of the black margin on the left, top, right and bottom.
    """

    marker: tuple[str, float, float] | None = None
    leads: tuple[np.ndarray, ...] = ()
    margins: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)


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


_MIXED = {"PA": 0.5, "AP": 0.5}

LABELS = ("cardiomegaly", "pleural effusion", "mass", "pacemaker")
"""The findings of the preset pa-112: those that differ visibly at the size that the tiny model sees."""

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
        boxes: xyxy in pixels of the image, one per finding, tight around its visible part.
        labels: One per box, from `FINDINGS`; only nodules occur several times.
        phrases: One per box, as a report would have it; two nodules in one place share their phrase.
        view: PA or AP.
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
    """Draw the image of an index; the same arguments always give the same image.

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
    """Plan the image of an index without painting it; arguments and errors as `draw_radiograph`.

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
        occluders=plan_occluders(rng, anatomy, width, height) if kind.occluders else Occluders(),
        gain=float(rng.uniform(0.85, 1.15)),
        noise=float(rng.uniform(0.010, 0.025)),
        seed=int(rng.integers(2**32)),
    )


def paint_radiograph(plan: RadiographPlan) -> Radiograph:
    """Paint the image of a plan.

    >>> paint_radiograph(plan_radiograph(15, "pa-256")).id
    'pa-256-0-15'
    """
    from PIL import Image
    from scipy.ndimage import gaussian_filter

    canvas = Canvas(plan.rows, plan.columns, plan.spacing)
    paint_anatomy(canvas, plan.anatomy)
    # An enlarged heart is painted as a finding.
    if not any(finding.label == "cardiomegaly" for finding in plan.findings):
        paint_heart(canvas, plan.anatomy, plan.anatomy.heart_ratio)
    exposure = exposed(canvas, plan.occluders)
    boxes, labels, phrases = [], [], []
    for finding in plan.findings:
        box = visible_box(paint_finding(canvas, plan.anatomy, finding) * exposure)
        # What lies in the black margin or behind another finding has no box.
        if box:
            _, y1, _, y2 = box
            boxes.append(box)
            labels.append(finding.label)
            phrases.append(describe(plan.anatomy, finding, (y1 + y2) / 2 * plan.spacing))
    paint_occluders(canvas, plan.occluders)
    # Beer-Lambert: the rays that pass fall exponentially with the attenuation; images show them inverted.
    grey = (1.0 - np.exp(-plan.gain * gaussian_filter(canvas.attenuation(), 0.5))) * exposure
    # The brighter, the noisier; the exponent is the curve from exposure to grey.
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


def plan_occluders(rng: np.random.Generator, anatomy: Anatomy, width: float, height: float) -> Occluders:
    """Choose the objects over an image of this size in millimetres; leads are common in the view AP, rare in PA."""
    margins = tuple(float(rng.uniform(0.0, 14.0)) * (rng.random() < 0.5) for _ in range(4))
    left_margin, top, right_margin, _ = margins
    marker = None
    if rng.random() < 0.85:
        # The marker names the side of the patient: his left is in the right half of the image.
        letter = str(rng.choice(["R", "L"]))
        inset = float(rng.uniform(8.0, 16.0))
        x = width - right_margin - inset - _MARKER if letter == "L" else left_margin + inset
        marker = letter, x, top + float(rng.uniform(8.0, 30.0))
    leads = []
    if rng.random() < _LEADS[anatomy.view]:
        half = anatomy.half_width
        for across, down, exit_x, exit_y in _LEAD_PATHS:
            x = anatomy.middle + (across + rng.normal(0.0, 0.06)) * half
            y = anatomy.top + (down + rng.normal(0.0, 0.05)) * (anatomy.base - anatomy.top)
            turn = (x + exit_x * width) / 2 + rng.normal(0.0, 25.0), y + rng.uniform(10.0, 60.0)
            # Twelve points of the quadratic Bézier curve from the exit over the turn to the electrode.
            points = np.array([(exit_x * width, exit_y * height + 60.0), turn, (x, y)])
            share = np.linspace(0, 1, 12)
            weights = np.stack([(1 - share) ** 2, 2 * share * (1 - share), share**2], axis=1)
            leads.append((weights[:, :, None] * points).sum(axis=1))
    return Occluders(marker, tuple(leads), margins)


def paint_occluders(canvas: Canvas, occluders: Occluders) -> None:
    """Paint marker and leads, denser than anything else."""
    if occluders.marker:
        letter, x, y = occluders.marker
        strokes = [Line(np.array(stroke) * _MARKER + [x, y], 2.6, 2.2) for stroke in LETTERS[letter]]
        canvas.add_lines(canvas.tissue, strokes)
    for lead in occluders.leads:
        canvas.add_lines(canvas.tissue, [Line(lead, width=1.7, amount=0.45)])
        x, y = lead[-1]
        canvas.tissue += 0.22 * canvas.ellipse(x, y, 9.0, 9.0, softness=1.5)
        canvas.tissue += 0.9 * canvas.ellipse(x, y, 3.0, 3.0, softness=1.5)


def exposed(canvas: Canvas, occluders: Occluders) -> np.ndarray:
    """A map `(rows, columns)` that is 1 where the image was exposed, and 0 in the black margins, with a soft edge."""
    left_margin, top, right_margin, bottom = occluders.margins
    rows, columns = canvas.tissue.shape
    sides = np.minimum(canvas.x - left_margin, columns * canvas.spacing - right_margin - canvas.x)
    ends = np.minimum(canvas.y - top, rows * canvas.spacing - bottom - canvas.y)
    return ramp(np.minimum(sides, ends), canvas.spacing)


def image_indices(split: str, n: int) -> range:
    """The indices of the first images of a split; two splits share none.

    Args:
        split: One of `SPLITS`.
        n: Number of images, from 1 to ten million.

    Raises:
        ValueError: Unknown split, or a number out of range.

    >>> image_indices("test", 2)
    range(20000000, 20000002)
    """
    check_word("split", split, SPLITS)
    if not 0 < n <= _PER_SPLIT:
        raise ValueError(f"Expected 1 to {_PER_SPLIT} for n, got {n}. Ask for a number in this range.")
    first = SPLITS.index(split) * _PER_SPLIT
    return range(first, first + n)


def synthetic_dataset(split: str, n: int, *, preset: str = "pa-112", seed: int = 0) -> Dataset:
    """The first `n` images of a split as a dataset with the package's columns; images drawn before come from the cache.

    Args:
        split: One of `SPLITS`.
        n: Number of images, from 1 to ten million.
        preset: One of `PRESETS`.
        seed: Of all images.

    Returns:
        Columns prompt, image, boxes (xyxy pixels), labels, phrases, width, height, view, spacing (millimetres per
        pixel) and id.

    Raises:
        ValueError: Unknown split or preset, or a number out of range.

    >>> synthetic_dataset("validation", 2).column_names
    ['prompt', 'image', 'boxes', 'labels', 'phrases', 'width', 'height', 'view', 'spacing', 'id']
    """
    from datasets import Dataset, Features, Image, List, NamedSplit, Value

    check_word("preset", preset, PRESETS)
    indices = image_indices(split, n)

    def rows() -> Iterator[dict[str, Any]]:
        """Draw the images, and yield each with its annotations."""
        for index in indices:
            radiograph = draw_radiograph(index, preset, seed=seed)
            width, height = radiograph.image.size
            yield {**vars(radiograph), "width": width, "height": height}

    number, word = Value("float64"), Value("string")
    columns = {
        "image": Image(),
        "boxes": List(List(number)),
        "labels": List(word),
        "phrases": List(word),
        "width": Value("int64"),
        "height": Value("int64"),
        "view": word,
        "spacing": number,
        "id": word,
    }
    # Another drawing program, or other versions of the libraries on which its numbers depend, draw anew.
    program = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    program.append(repr(package_versions(("numpy", "scipy", "pillow"))).encode())
    version = hashlib.sha256(b"\0".join(program)).hexdigest()[:16]
    drawn_images = Dataset.from_generator(
        rows,
        features=Features(columns),
        # What is computed from the images is not kept beside them, where it would outlive the code that did it.
        keep_in_memory=True,
        split=NamedSplit(split),
        fingerprint=f"{preset}-{split}-{n}-{seed}-{version}",
    )
    prompted = drawn_images.add_column("prompt", [prompt_messages(PRESETS[preset].labels)] * n)
    # The prompt comes first.
    return prompted.select_columns(["prompt", *drawn_images.column_names])
