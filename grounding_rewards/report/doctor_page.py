"""The page of the doctor as one HTML file: defects, a contact sheet, and centres and sizes of boxes.

The file loads nothing: everything is inside it. Where it shows images, keep it as private as the images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.common.formatting import percent
from grounding_rewards.data.box_defects import box_defect
from grounding_rewards.doctor.context import CHECKS, Defect, Fault
from grounding_rewards.doctor.examine import Checkup, Metrics
from grounding_rewards.doctor.rows import ImageRow
from grounding_rewards.report.page import GUARD, Card, Cards, Page, Panel, Section, data_uri
from grounding_rewards.report.plots import Plot, panels_of, short
from grounding_rewards.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Longer side in pixels of an image on the page; together with three examples per defect it bounds the file's size.
LONGEST_SIDE = 256
_MAX_LABELS = 40
_MAPS = 12
# Its upper end is visible on light and dark grounds.
_HEAT_COLOURS = "Oranges"
_SHEET = (
    "Some of each split at random, then those with the largest and smallest box, most boxes and the rarest label. Do "
    "the boxes lie on what their labels say? Blue: nothing is wrong with the box; red: a defect."
)
_CENTRES = "Every image is stretched to a square. The left of an image is the right of the patient."
_SIZES = (
    "Width to the right and height upwards, as shares of the image: a box of the whole image is in the upper right."
)


def render_doctor_page(checkup: Checkup) -> str:
    """Render the page of a check-up.

    Args:
        checkup: from :func:`grounding_rewards.doctor.examine.examine`; its images, where it keeps any, are shown.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    metrics = checkup.metrics
    splits = ", ".join(f"{name} {count:,}" for name, count in metrics.images.items())
    sample = []
    for row, reason in checkup.sample:
        labelled_boxes = _labelled_boxes(row)
        # Each label once; that of a box without any is empty.
        labels = ", ".join(filter(None, dict.fromkeys(label for _, label in labelled_boxes)))
        content = labels or ("boxes without labels" if labelled_boxes else "no boxes")
        title = f"{_title(row)} · {reason}"
        sample.append(_card(row, checkup.jpegs[row.key], title, f"{title}: {content}"))
    unchecked = {CHECKS[name].title: reason for name, reason in checkup.unchecked.items()}
    return Page(
        title=f"Check-up of {checkup.dataset}",
        subtitle=f"{splits} images, {metrics.negatives:,} of them without boxes; {metrics.boxes:,} boxes",
        verdict=doctor_verdict(checkup),
        sections=[
            Section("Defects", _defects(checkup)),
            Section("Images", [Cards(sample, small=True)] if sample else [], _SHEET),
            _labels(metrics),
            Section("Boxes of each label", _maps(metrics)),
            Section("Assumed", [checkup.assumptions] if checkup.assumptions else []),
            Section("Not looked for", [unchecked] if unchecked else []),
        ],
        footer=GUARD if sample else "",
    ).render()


def _defects(checkup: Checkup) -> list[Any]:
    """The blocks of defects: a table of all, then a section for each; without defects a sentence."""
    if not checkup.defects:
        return [["Nothing was found."]]
    rows: list[list[str | Cell]] = []
    for defect in checkup.defects:
        rows.append([Cell(defect.severity, kind=defect.severity), Cell(defect.title, kind="words"), extent(defect)])
    table = Table(["severity", Cell("defect", kind="words"), "extent"], rows)
    return [table, *(_defect(defect, checkup) for defect in checkup.defects)]


def _labels(metrics: Metrics) -> Section:
    """The section with a row for each of the most frequent labels: its boxes, and its images in each split."""
    labels = metrics.labels.most_common(_MAX_LABELS)
    rows = []
    for label, boxes in labels:
        image_counts = [f"{metrics.label_images[split, label]:,}" for split in metrics.images]
        rows.append([label, f"{boxes:,}", *image_counts])
    table = Table(["label", "boxes", *(f"images, {split}" for split in metrics.images)], rows)
    hidden = len(metrics.labels) - len(labels)
    return Section("Labels", [table] if rows else [], f"{hidden:,} rarer labels are not shown." if hidden else "")


def doctor_verdict(checkup: Checkup) -> str:
    """The result in one sentence.

    Example:
        >>> doctor_verdict(Checkup("images", (), {}, (), Metrics()))
        '0 images: no errors, no warnings.'
    """
    severity_counts = []
    # Notes, the mildest of the three severities, are no part of the verdict.
    for severity in ("error", "warning"):
        n = checkup.count(severity)
        severity_counts.append(f"{n or 'no'} {severity}{'' if n == 1 else 's'}")
    images = checkup.metrics.rows
    return f"{images:,} {'image' if images == 1 else 'images'}: {', '.join(severity_counts)}."


def extent(defect: Defect) -> str:
    """The part of the dataset that a defect concerns, as in `4 of 90 boxes (4 %)`.

    Example:
        >>> extent(Defect("off-image", "error", "", 4, 90, "boxes", "", "", ""))
        '4 of 90 boxes (4 %)'
    """
    if defect.share is None:
        return f"{defect.count:,} {defect.unit}"
    return f"{defect.count:,} of {defect.of:,} {defect.unit} ({percent(defect.share)})"


def place(fault: Fault) -> str:
    """The place of an example, as in `train, row 3 (id 0003.png)`; empty if it is not a row.

    Example:
        >>> place(Fault(ImageRow("train", 3, {"id": "0003.png"}), "…"))
        'train, row 3 (id 0003.png)'
    """
    split, number, row_id = fault.place
    return f"{split}, row {number} (id {row_id})" if number >= 0 else ""


def _defect(defect: Defect, checkup: Checkup) -> Section:
    """The section of one defect: what it is, and its examples as images, or in words where there are none."""
    words = {"found": defect.found, "why it matters": defect.why, "what to do": defect.fix}
    blocks: list[Any] = [{word: text for word, text in words.items() if text}]
    captions = [": ".join(filter(None, (place(fault), fault.detail))) for fault in defect.examples]
    cards = []
    for fault, caption in zip(defect.examples, captions, strict=True):
        # A fault may be none of a single row, and a check-up that keeps no images has no JPEGs.
        if fault.row is not None and checkup.jpegs:
            cards.append(_card(fault.row, checkup.jpegs[fault.row.key], _title(fault.row), caption))
    if cards:
        blocks.append(Cards(cards, small=True))
    elif any(captions):
        blocks.append(list(filter(None, captions)))
    return Section(defect.title, blocks, f"{defect.severity}: {extent(defect)}", "defect")


def _title(row: ImageRow) -> str:
    """The title of the picture of a row."""
    return f"{row.split} {row.number} · {row.id}"


def _labelled_boxes(row: ImageRow) -> list[tuple[Any, str]]:
    """The boxes of a row that can be drawn, each with its label, as in `reader 2: mass`, which may be empty."""
    labelled_boxes = []
    # The column `boxes` is a drawing without a name; those of each reader, and ignored regions, have one.
    for drawing in row.drawings:
        for index, box in enumerate(drawing.boxes):
            # Something that is not four numbers is a defect, but no box.
            if is_box(box):
                label = drawing.label(index)
                words = [drawing.name, "" if label is None else str(label)]
                labelled_boxes.append((box, ": ".join(filter(None, words))))
    return labelled_boxes


def _card(row: ImageRow, jpeg: bytes, title: str, caption: str) -> Card:
    """The card of the image of a row with its boxes, each marked as sound or bad."""
    # Boxes are in pixels of the size that the row states; without any size the page can still show the picture.
    size = row.size or row.image_size or (1, 1)
    width, height = size
    boxes = []
    for box, label in _labelled_boxes(row):
        x1, y1, x2, y2 = box
        # A box whose corners are swapped is bad, but drawn too.
        corners = min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
        boxes.append((corners, "sound" if box_defect(box, size) is None else "bad", label))
    # The panel shows the image, and up to half an image on every side if boxes are outside it.
    image_and_boxes = np.array([(0.0, 0.0, width, height), *(corners for corners, _, _ in boxes)])
    x_min, y_min = np.maximum(image_and_boxes[:, :2].min(axis=0), (-width / 2, -height / 2))
    x_max, y_max = np.minimum(image_and_boxes[:, 2:].max(axis=0), (1.5 * width, 1.5 * height))
    # The `viewBox` of SVG: left, top, width and height.
    view = f"{x_min:.6g} {y_min:.6g} {x_max - x_min:.6g} {y_max - y_min:.6g}"
    panel = Panel(boxes, name="", summary=caption, view=view)
    return Card(title="", id=title, uri=data_uri(jpeg, "image/jpeg") if jpeg else "", size=size, panels=[panel])


def _maps(metrics: Metrics) -> list[Plot]:
    """Two plots, of where boxes are and how large: a map of all boxes and, of several labels, of each frequent one."""
    if not metrics.centres:
        return []
    labels = [label for label in metrics.centres if label is not None][: _MAPS - 1]
    # None stands for all boxes; where there is one label, its map would be the same.
    map_labels: list[str | None] = [None]
    if len(labels) > 1:
        map_labels += labels
    columns = min(6, len(map_labels))
    # In inches: a map is a square of 1.5, with its title above it.
    size = (1.5 * columns, 1.75 * math.ceil(len(map_labels) / columns))

    def draw(figure: Figure, counts_of: Mapping[str | None, np.ndarray], origin: Literal["upper", "lower"]) -> None:
        """Draw a map for each label."""
        for axis, label in zip(panels_of(figure, len(map_labels), columns), map_labels, strict=True):
            counts = counts_of[label]
            # Where there are no boxes the page shows through; the root makes places with few of them visible.
            opacity = np.sqrt(counts / max(1, counts.max()))
            # One colour everywhere, at 1 of 1.4: the upper end of the scale would be too dark.
            axis.imshow(np.ones_like(opacity), cmap=_HEAT_COLOURS, vmin=0, vmax=1.4, alpha=opacity, origin=origin)
            axis.set_title(short(f"{label or 'all boxes'}, {int(counts.sum()):,}", 24))
            axis.set(xticks=[], yticks=[])

    # Rows of centres run down as in an image; widths and heights grow away from a common zero at the lower left.
    return [
        Plot("centres", "Centres of boxes", _CENTRES, partial(draw, counts_of=metrics.centres, origin="upper"), size),
        Plot("sizes", "Sizes of boxes", _SIZES, partial(draw, counts_of=metrics.sizes, origin="lower"), size),
    ]
