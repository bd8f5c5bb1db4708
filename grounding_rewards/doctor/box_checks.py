"""Checks of boxes: single ones, those of one image together, and all boxes of a split."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from grounding_rewards.boxes import as_box_array, is_number
from grounding_rewards.doctor.box_defects import WHOLE_IMAGE, box_defect, find_convention, image_share
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import Drawing
from grounding_rewards.overlap import pairwise_iou

#: Shortest side, in pixels that the model sees, of a box that can be learned.
LEAST_SIDE = 4.0
# One box on at least so many images, and their part of the images with boxes.
_MIN_CONSTANT_IMAGES, _MIN_CONSTANT_SHARE = 10, 0.04
# Boxes of one label with a larger IoU are one box twice.
_SAME_BOX = 0.95
# Two people who draw one finding agree so far: 4,290 of 4,365 images of VinDr-CXR with several boxes of one label have
# such a pair where all three readers are together, 2 of 1,006 where they are apart.
_SAME_FINDING = 0.3
# Images with such pairs, and their part of those with several boxes of one label, where readers were not merged.
_MIN_UNMERGED_IMAGES, _MIN_UNMERGED_SHARE = 5, 0.3

_TO_PIXELS = "boxes = [[x1 * width, y1 * height, x2 * width, y2 * height] for x1, y1, x2, y2 in boxes]"
# Defects of boxes that are in another order, or in another frame.
_OFF_IMAGE = ("swapped-corners", "no-area", "off-image", "partly-off-image")


def check_boxes(context: Context) -> Iterator[Defect]:
    """Conventions that all boxes of a split follow, and defects of single boxes."""
    yield from _other_conventions(context)
    table = context.table
    problems = []
    for k, (place, name) in enumerate(zip(table.places, table.defects, strict=True)):
        if name is not None:
            label = f", {place.label!r:.40}" if name == "negative-placeholder" else ""
            problems.append(place.problem(name, _box_words(context, k) + label))
    for k in np.flatnonzero(table.sound & table.answers).tolist():
        sides = (table.numbers[k, 2:] - table.numbers[k, :2]) * table.seen[k] / table.sizes[k]
        if sides.min() < LEAST_SIDE:
            size = "{:.1f} x {:.1f} pixels of {:g} x {:g}".format(*sides, *table.seen[k])
            problems.append(table.places[k].problem("small-boxes", f"is {size}"))
        elif image_share(table.numbers[k], table.sizes[k]) >= WHOLE_IMAGE:
            problems.append(table.places[k].problem("giant-boxes", _box_words(context, k)))
    for defect in context.collect(problems):
        if defect.name == "normalised-boxes" and (order := _normalised_order(context)):
            yield replace(defect, found=order[0], fix=order[1])
        else:
            yield defect
    yield from _constant(context)


def _other_conventions(context: Context) -> Iterator[Defect]:
    table = context.table
    for name in ("box-order", "wrong-frame"):
        conventions = {split: rule for split, rule in context.conventions.items() if rule.check == name}
        if not conventions:
            continue
        indices = [k for k, place in enumerate(table.places) if place.row.split in conventions]
        # In a corner of the image nothing is wrong with any box by itself.
        symptoms = [k for k in indices if table.defects[k] in _OFF_IMAGE] or indices
        rows = [(table.places[k].row, f"box {table.places[k].number} {_box_words(context, k)}") for k in symptoms]
        splits: defaultdict[str, list[str]] = defaultdict(list)
        for split, convention in conventions.items():
            splits[convention.words].append(split)
        summary = " ".join(f"{', '.join(names)}: {words}" for words, names in splits.items())
        fixes = dict.fromkeys(convention.fix for convention in conventions.values())
        order = next(iter(conventions.values())).order
        yield context.defect(name, rows, of=len(indices), found=summary, fix=" ".join(fixes), order=order)


def _box_words(context: Context, k: int) -> str:
    """The box at a place of the table, after its number, in words."""
    size = context.table.sizes[k]
    words = f"is {box_text(context.table.places[k].box)}"
    return words if np.isnan(size[0]) else f"{words} on {size[0]:g} x {size[1]:g}"


def _normalised_order(context: Context) -> tuple[str, str] | None:
    """What boxes in parts of the image are if not x1, y1, x2, y2, and what to do about it."""
    table = context.table
    indices = np.array([defect == "normalised-boxes" for defect in table.defects])
    boxes = table.numbers[indices]
    convention = find_convention(boxes, table.rows[indices], np.ones((len(boxes), 2)))
    return convention and (convention.words, f"{convention.fix} Then to pixels: {_TO_PIXELS}.")


def _constant(context: Context) -> Iterator[Defect]:
    """One box on many images, in pixels or in parts of the image; the whole image is named by itself."""
    table = context.table
    parts = table.parts
    is_whole = (np.clip(parts[:, 2:], 0, 1) - np.clip(parts[:, :2], 0, 1)).prod(axis=1) >= WHOLE_IMAGE
    indices = np.flatnonzero(table.sound & table.answers & ~is_whole)
    if not len(indices):
        return
    images = len(np.unique(table.rows[indices]))
    for boxes, unit in ((table.numbers[indices], "pixels"), (np.round(1000 * parts[indices]), "thousandths")):
        distinct_boxes, box_ids, counts = np.unique(boxes, axis=0, return_inverse=True, return_counts=True)
        commonest = int(counts.argmax())
        places = indices[box_ids.ravel() == commonest]
        _, first = np.unique(table.rows[places], return_index=True)
        if len(first) >= max(_MIN_CONSTANT_IMAGES, _MIN_CONSTANT_SHARE * images):
            problems = [table.places[k].problem("constant-box", _box_words(context, k)) for k in places[first].tolist()]
            box = box_text(distinct_boxes[commonest].tolist())
            summary = f"{box} in {unit} is on {len(first)} of {images} images with boxes."
            yield from context.collect(problems, of=images, found=summary)
            return


def check_pairs(context: Context) -> Iterator[Defect]:
    """Boxes of one label on an image that are the same, or overlap as those of several readers do."""
    images_with_several: Counter[str] = Counter()
    overlapping: defaultdict[str, list[Problem]] = defaultdict(list)
    duplicates: list[Problem] = []
    for row in context.rows:
        for drawing in row.answers:
            pairs, has_several = same_label_pairs(drawing)
            images_with_several[row.split] += has_several
            repeated: set[int] = set()
            overlaps = []
            for first, second, iou in pairs:
                label = f", {drawing.label(first)!r:.60}" if drawing.label(first) is not None else ""
                words = f"{drawing.prefix}boxes {first} and {second}{label}, IoU {iou:.3f}"
                if iou <= _SAME_BOX:
                    overlaps.append(words)
                elif second not in repeated:
                    repeated.add(second)
                    duplicates.append(Problem("duplicate-boxes", row, words))
            if overlaps:
                overlapping[row.split].append(Problem("unmerged-readers", row, overlaps[0]))
    unmerged = [
        split
        for split, rows in overlapping.items()
        if len(rows) >= max(_MIN_UNMERGED_IMAGES, _MIN_UNMERGED_SHARE * images_with_several[split])
    ]
    if unmerged:
        problems = [problem for split in unmerged for problem in overlapping[split]]
        images = sum(images_with_several[split] for split in unmerged)
        summary = f"{len(problems)} of {images} images with several boxes of one label have two that overlap."
        yield from context.collect(problems, found=summary)
    yield from context.collect(problem for problem in duplicates if problem.row.split not in unmerged)


def same_label_pairs(drawing: Drawing) -> tuple[list[tuple[int, int, float]], bool]:
    """Pairs of boxes of one label that overlap as two drawings of one finding do, and whether a label has several.

    >>> same_label_pairs(Drawing("", [[0, 0, 50, 50], [0, 0, 50, 40], [80, 0, 90, 9]], ["mass", "mass", "cyst"]))
    ([(0, 1, 0.8)], True)
    """
    sound_indices = [k for k, box in enumerate(drawing.boxes) if box_defect(box, None) is None]
    labels = [drawing.label(k) for k in sound_indices]
    if len(sound_indices) < 2 or len(set(map(str, labels))) == len(labels):
        return [], False
    boxes = as_box_array([drawing.boxes[k] for k in sound_indices])
    iou = np.triu(pairwise_iou(boxes, boxes), k=1)
    pairs = []
    for first, second in np.argwhere(iou >= _SAME_FINDING).tolist():
        if labels[first] == labels[second]:
            pairs.append((sound_indices[first], sound_indices[second], float(iou[first, second])))
    return pairs, True


def box_text(box: Any) -> str:
    """A box in short; anything else as its repr, cut off.

    >>> box_text([1, 2.0, 3.25, 4]), box_text("none")
    ('[1, 2, 3.25, 4]', "'none'")
    """
    is_short = isinstance(box, list | tuple) and len(box) == 4
    if is_short and all(isinstance(value, float) or is_number(value) for value in box):
        return f"[{', '.join(f'{value:.6g}' for value in box)}]"
    return f"{box!r:.60}"
