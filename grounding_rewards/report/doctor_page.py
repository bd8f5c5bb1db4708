"""The page of the doctor as one HTML file: defects, a contact sheet, and the centres of boxes.

The file loads nothing: everything is inside it. Where it shows images, keep it as private as the images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.common.formatting import percent
from grounding_rewards.data.box_defects import box_defect
from grounding_rewards.doctor.context import CHECKS, SEVERITIES, Defect, Example, ImagePicture
from grounding_rewards.doctor.examine import Checkup, Metrics
from grounding_rewards.report.page import GUARD, Card, Cards, Page, Panel, Section, Tile, data_uri
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


def render_doctor_page(checkup: Checkup) -> str:
    """Render the page of a check-up.

    Args:
        checkup: from :func:`grounding_rewards.doctor.examine.examine`; its images, where it keeps any, are shown.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    metrics = checkup.metrics
    images = max(1, sum(metrics.per_image.values()))
    per_image = f"{metrics.boxes / max(1, images - metrics.negatives):.1f} per image with boxes"
    splits = ", ".join(f"{name} {count:,}" for name, count in metrics.images.items())
    common = ", ".join(label for label, _ in metrics.labels.most_common(3))
    sample = []
    for picture in checkup.sample:
        labels = ", ".join(filter(None, dict.fromkeys(map(str, picture.labels))))
        content = labels or ("boxes without labels" if picture.boxes else "no boxes")
        sample.append(_card(picture, f"{picture.title}: {content}"))
    unchecked = {CHECKS[name].title: reason for name, reason in checkup.unchecked.items()}
    return Page(
        title=f"Check-up of {checkup.dataset}",
        verdict=f"{doctor_verdict(checkup)} {doctor_advice(checkup)}",
        tiles=[
            Tile("images", f"{metrics.rows:,}", note=splits),
            Tile("images without boxes", percent(metrics.negatives / images), note=f"{metrics.negatives:,} images"),
            Tile("boxes", f"{metrics.boxes:,}", note=per_image),
            Tile("labels", f"{len(metrics.labels):,}", note=common),
        ],
        sections=[
            Section("Defects", _defects(checkup)),
            Section("Images", [Cards(sample, small=True)] if sample else [], _SHEET),
            _labels(metrics),
            Section("Boxes of each label", [_centres(metrics.centres)] if metrics.centres else []),
            Section("Assumed", [checkup.assumptions] if checkup.assumptions else []),
            Section("Not looked for", [unchecked] if unchecked else []),
        ],
        footer=GUARD if sample else "",
    ).render()


def _defects(checkup: Checkup) -> list[Any]:
    """The blocks of defects: a table of all, then a section for each."""
    if not checkup.defects:
        return [["Nothing was found."]]
    rows: list[list[str | Cell]] = []
    for defect in checkup.defects:
        rows.append([Cell(defect.severity, kind=defect.severity), Cell(defect.title, kind="words"), extent(defect)])
    return [Table(["severity", Cell("defect", kind="words"), "extent"], rows), *map(_defect, checkup.defects)]


def _labels(metrics: Metrics) -> Section:
    """The section with a row for each frequent label: its boxes, and its images in each split."""
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
        >>> doctor_verdict(Checkup("images", (), {}, (), Metrics(), ()))
        '0 images: no errors, no warnings.'
    """
    counts = []
    for severity in SEVERITIES[:2]:
        n = checkup.count(severity)
        counts.append(f"{n or 'no'} {severity}{'' if n == 1 else 's'}")
    images = checkup.metrics.rows
    return f"{images:,} {'image' if images == 1 else 'images'}: {', '.join(counts)}."


def doctor_advice(checkup: Checkup) -> str:
    """The advice: may one train on the dataset, and which defect to mend first.

    Example:
        >>> doctor_advice(Checkup("images", (), {}, (), Metrics(), ()))
        'Nothing was found that speaks against training.'
    """
    if not checkup.defects:
        return "Nothing was found that speaks against training."
    first = checkup.defects[0]
    start = "Do not train yet" if first.severity == SEVERITIES[0] else "You may train"
    return f"{start}. First: {first.title}. {first.fix}".rstrip()


def extent(defect: Defect) -> str:
    """The part of the dataset that a defect concerns, as in `4 of 90 boxes (4 %)`.

    Example:
        >>> extent(Defect("off-image", "error", "", 4, 90, "boxes", "", "", "", ()))
        '4 of 90 boxes (4 %)'
    """
    unit = defect.unit
    if (defect.of or defect.count) == 1:
        unit = "box" if unit == "boxes" else unit.removesuffix("s")
    if defect.share is None:
        return f"{defect.count:,} {unit}"
    return f"{defect.count:,} of {defect.of:,} {unit} ({percent(defect.share)})"


def place(example: Example) -> str:
    """The place of an example, as in `train, row 3 (id 0003.png)`; empty if it is not a row.

    Example:
        >>> place(Example("train", 3, "0003.png", "…"))
        'train, row 3 (id 0003.png)'
    """
    return f"{example.split}, row {example.row} (id {example.id})" if example.row >= 0 else ""


def _defect(defect: Defect) -> Section:
    """The section of one defect: what it is, and its examples as images or in words."""
    words = {"found": defect.found, "why it matters": defect.why, "what to do": defect.fix}
    blocks: list[Any] = [{word: text for word, text in words.items() if text}]
    captions = [": ".join(filter(None, (place(example), example.detail))) for example in defect.examples]
    cards = []
    for example in defect.examples:
        for shown in (example, example.partner):
            if shown is not None and shown.image is not None:
                cards.append(_card(shown.image, f"{place(shown)}: {shown.detail}"))
    if cards:
        # Two panels next to each other need the room of a whole card.
        blocks.append(Cards(cards, small=all(len(card.panels) == 1 for card in cards)))
    elif any(captions):
        blocks.append(list(filter(None, captions)))
    return Section(defect.title, blocks, f"{defect.severity}: {extent(defect)}", "defect")


def _card(image: ImagePicture, caption: str) -> Card:
    """The card of one image with its boxes, and beside them the proposed ones, if there are any."""
    labelled_boxes = [(box, label) for box, label in zip(image.boxes, image.labels, strict=True) if is_box(box)]
    panels = [_panel(image, labelled_boxes, "as given" if image.proposed else "", caption)]
    if image.proposed:
        proposed = [(box, label) for box, (_, label) in zip(image.proposed, labelled_boxes, strict=True)]
        panels.append(_panel(image, proposed, "as proposed", ""))
    uri = data_uri(image.jpeg, "image/jpeg") if image.jpeg else ""
    return Card("", image.title, uri, (image.width, image.height), panels)


def _panel(image: ImagePicture, labelled_boxes: Sequence[tuple[Any, str]], name: str, caption: str) -> Panel:
    """The panel of an image with these boxes, each marked as sound or bad."""
    width, height = size = image.width, image.height
    boxes = []
    # The panel shows the image, and up to half an image on every side if boxes are outside it.
    left, top, right, bottom = 0.0, 0.0, width, height
    for (x1, y1, x2, y2), label in labelled_boxes:
        # Corners may be swapped.
        corners = min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
        boxes.append((corners, "sound" if box_defect((x1, y1, x2, y2), size) is None else "bad", label))
        left, top = min(left, corners[0]), min(top, corners[1])
        right, bottom = max(right, corners[2]), max(bottom, corners[3])
    left, top = max(left, -width / 2), max(top, -height / 2)
    right, bottom = min(right, 1.5 * width), min(bottom, 1.5 * height)
    view = f"{left:.6g} {top:.6g} {right - left:.6g} {bottom - top:.6g}"
    return Panel(boxes, name, caption, view=view)


def _centres(counts_of: Mapping[str | None, np.ndarray]) -> Plot:
    """The map of the centres of all boxes and, where there are several labels, of the most frequent ones."""
    labels = [label for label in counts_of if label is not None][: _MAPS - 1]
    map_labels: list[str | None] = [None]
    if len(labels) > 1:
        map_labels += labels
    columns = min(6, len(map_labels))
    rows = math.ceil(len(map_labels) / columns)

    def draw(figure: Figure) -> None:
        """Draw a map for each label."""
        for axis, label in zip(panels_of(figure, len(map_labels), columns), map_labels, strict=True):
            counts = counts_of[label]
            # Opacity grows with the number, so that the ground shows where there are none; the root makes rare places
            # visible.
            alpha = np.sqrt(counts / max(1, counts.max()))
            axis.imshow(np.ones_like(alpha), cmap=_HEAT_COLOURS, vmin=0, vmax=1.4, alpha=alpha)
            axis.set_title(short(f"{label or 'all boxes'}, {int(counts.sum()):,}", 24))
            axis.set_xticks([])
            axis.set_yticks([])

    return Plot("centres", "Centres of boxes", _CENTRES, draw, (1.5 * columns, 1.75 * rows))
