"""What the doctor found in a dataset, as one HTML file: defects, histograms, where the boxes lie, and images.

The file loads nothing: everything is inside it. Where it shows images, guard it like the images.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.doctor.answer_checks import LEAST_SIDE
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.defects import SEVERITIES, Defect, Example, ImagePicture
from grounding_rewards.doctor.examine import CHECKS, Checkup
from grounding_rewards.doctor.histograms import AREA_EDGES, ASPECT_EDGES, MOST_BOXES, SIDE_EDGES, Metrics
from grounding_rewards.metrics.estimates import percent
from grounding_rewards.report.render import data_uri, read_asset, render

#: Longer side in pixels of an image on the page; together with three examples per defect it bounds the file's size.
LONGEST_SIDE = 256
_MOST_LABELS = 40
_HEAT_MAPS = 12
#: The colour of the heat maps, visible on light and dark backgrounds.
_HEAT_COLOUR = (214, 90, 20)


def render_doctor_page(checkup: Checkup) -> str:
    """Render the page.

    Args:
        checkup: from :func:`grounding_rewards.doctor.examine.examine`; its images, where it keeps any, are shown.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    metrics = checkup.metrics
    labels = metrics.labels.most_common(_MOST_LABELS)
    return render(
        "doctor.html.jinja",
        style=read_asset("page.css") + read_asset("doctor_page.css"),
        script="",
        title=f"Check-up of {checkup.dataset}",
        verdict=verdict(checkup),
        tiles=_tiles(metrics),
        defects=[_defect(defect) for defect in checkup.defects],
        charts=_charts(metrics),
        splits=list(metrics.images),
        labels={
            label: [boxes, *(metrics.label_images[split, label] for split in metrics.images)] for label, boxes in labels
        },
        more_labels=len(metrics.labels) - len(labels),
        heat_maps=list(_heat_maps(metrics)),
        sample=[(_image(image), f"{image.title}: {_content(image)}") for image in checkup.sample],
        assumptions=checkup.assumptions,
        unchecked={CHECKS[name].title: why for name, why in checkup.unchecked.items()},
        passed=[CHECKS[name].title for name in checkup.passed],
    )


def verdict(checkup: Checkup) -> str:
    """The result in one sentence.

    Example:
        >>> verdict(Checkup("images", (), {}, (), Metrics(), ()))
        '0 images: no errors, no warnings.'
    """
    errors, warnings = ((checkup.count(severity), severity) for severity in SEVERITIES[:2])
    counted = [f"{n or 'no'} {name}{'' if n == 1 else 's'}" for n, name in (errors, warnings)]
    n = checkup.metrics.rows
    return f"{n:,} {'image' if n == 1 else 'images'}: {', '.join(counted)}."


def extent(defect: Defect) -> str:
    """How much of the dataset a defect concerns, as in `4 of 90 boxes (4 %)`.

    Example:
        >>> extent(Defect("off-image", "error", "", 4, 90, "boxes", "", "", "", ()))
        '4 of 90 boxes (4 %)'
    """
    unit = defect.unit
    if (defect.of or defect.count) == 1:
        unit = {"boxes": "box"}.get(unit, unit.removesuffix("s"))
    if defect.share is None:
        return f"{defect.count:,} {unit}"
    return f"{defect.count:,} of {defect.of:,} {unit} ({percent(defect.share)})"


def place(example: Example) -> str:
    """Where an example stands, as in `train, row 3 (id 0003.png)`; empty where it is not a row.

    Example:
        >>> place(Example("train", 3, "0003.png", "…"))
        'train, row 3 (id 0003.png)'
    """
    return f"{example.split}, row {example.row} (id {example.id})" if example.row >= 0 else ""


def _tiles(metrics: Metrics) -> list[tuple[str, str, str]]:
    """The heading, value and note of each tile."""
    images = max(1, sum(metrics.per_image.values()))
    per_image = f"{metrics.boxes / max(1, images - metrics.negatives):.1f} per image with boxes"
    return [
        ("images", f"{metrics.rows:,}", ", ".join(f"{split} {count:,}" for split, count in metrics.images.items())),
        ("images without boxes", percent(metrics.negatives / images), f"{metrics.negatives:,} images"),
        ("boxes", f"{metrics.boxes:,}", per_image),
        ("labels", f"{len(metrics.labels):,}", ", ".join(label for label, _ in metrics.labels.most_common(3))),
    ]


def _defect(defect: Defect) -> dict[str, Any]:
    images = [(_image(one.image), f"{place(one)}: {one.detail}") for one in defect.examples if one.image is not None]
    examples = [": ".join(filter(None, (place(one), one.detail))) for one in defect.examples]
    words = [("found", defect.found), ("why it matters", defect.why), ("what to do", defect.fix)]
    return {
        "name": defect.name,
        "severity": defect.severity,
        "title": defect.title,
        "extent": extent(defect),
        "words": words if defect.found else words[1:],
        "images": images,
        "examples": [] if images else list(filter(None, examples)),
    }


def _image(image: ImagePicture) -> dict[str, Any]:
    """What the macro `image` takes, as plain values."""
    size = (image.width, image.height)
    labels = [*image.labels, *[""] * len(image.boxes)]
    return {
        "title": image.title,
        "view": _view(image),
        "width": f"{image.width:g}",
        "height": f"{image.height:g}",
        "uri": data_uri(image.jpeg, "image/jpeg") if image.jpeg else "",
        "boxes": [
            (_corners(box), "sound" if box_defect(box, size) is None else "bad", str(label))
            for box, label in zip(image.boxes, labels, strict=False)
            if is_box(box)
        ],
    }


def _view(image: ImagePicture) -> str:
    """The `viewBox`: the image, and up to half an image on every side where boxes lie outside it."""
    drawn = [box for box in image.boxes if is_box(box)]
    xs = [0.0, image.width, *(box[k] for box in drawn for k in (0, 2))]
    ys = [0.0, image.height, *(box[k] for box in drawn for k in (1, 3))]
    x1, x2 = max(min(xs), -image.width / 2), min(max(xs), 1.5 * image.width)
    y1, y2 = max(min(ys), -image.height / 2), min(max(ys), 1.5 * image.height)
    return f"{x1:.6g} {y1:.6g} {x2 - x1:.6g} {y2 - y1:.6g}"


def _corners(box: Sequence[float]) -> tuple[float, float, float, float]:
    """The top left and the bottom right, also of a box whose corners are swapped."""
    x1, x2 = sorted((box[0], box[2]))
    y1, y2 = sorted((box[1], box[3]))
    return x1, y1, x2, y2


_Chart = tuple[str, str, list[int], dict[float, str], float | None]


def _charts(metrics: Metrics) -> list[_Chart]:
    """The arguments of the macro `chart`: title, note, counts, ticks by edge of bin, and an edge to mark."""
    counts = [metrics.per_image[n] for n in range(MOST_BOXES + 1)]
    most = max((n for n, count in enumerate(counts) if count), default=0)
    shown = counts[: max(most + 1, 6)]
    limit = float(np.interp(math.log(LEAST_SIDE), np.log(SIDE_EDGES), np.arange(len(SIDE_EDGES))))
    return [
        (
            "Area of boxes",
            "share of the image, logarithmic",
            metrics.areas.tolist(),
            {k: f"{100 * AREA_EDGES[k]:.4g} %" for k in range(4, len(AREA_EDGES), 4)},
            None,
        ),
        (
            "Shorter side of boxes",
            f"pixels that the model sees, logarithmic; under {LEAST_SIDE:g} nothing is learned",
            metrics.sides.tolist(),
            {k: f"{SIDE_EDGES[k]:g}" for k in range(0, len(SIDE_EDGES), 4)},
            limit,
        ),
        (
            "Boxes per image",
            "number of images",
            shown,
            {n + 0.5: f"{n}{'+' if n == MOST_BOXES else ''}" for n in range(len(shown))},
            None,
        ),
        (
            "Shape of boxes",
            "width through height, logarithmic",
            metrics.aspects.tolist(),
            {k: f"{ASPECT_EDGES[k]:.3g}" for k in range(2, len(ASPECT_EDGES), 2)},
            None,
        ),
    ]


def _heat_maps(metrics: Metrics) -> Iterator[tuple[str, str]]:
    """The map of all boxes and, where there are several labels, of the most frequent ones."""
    if None not in metrics.centres:
        return
    labels = [label for label, _ in metrics.labels.most_common() if label in metrics.centres][: _HEAT_MAPS - 1]
    for label in (None, *(labels if len(labels) > 1 else ())):
        counts = metrics.centres[label]
        yield _heat_uri(counts), f"{label or 'all boxes'}, {int(counts.sum()):,}"


def _heat_uri(counts: np.ndarray) -> str:
    """A PNG whose opacity grows with the number of centres, so that the background shows where there are none."""
    from PIL import Image

    pixels = np.zeros((*counts.shape, 4), dtype=np.uint8)
    pixels[..., :3] = _HEAT_COLOUR
    # The square root makes rare places visible.
    pixels[..., 3] = np.round(255 * np.sqrt(counts / max(1, counts.max())))
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((160, 160), Image.Resampling.BICUBIC).save(buffer, format="PNG")
    return data_uri(buffer.getvalue(), "image/png")


def _content(image: ImagePicture) -> str:
    labels = ", ".join(filter(None, dict.fromkeys(map(str, image.labels))))
    return labels or ("boxes without labels" if image.boxes else "no boxes")
