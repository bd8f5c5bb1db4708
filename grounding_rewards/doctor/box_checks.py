"""Check boxes: each by itself, those of one image together, and all boxes of a split."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from grounding_rewards.boxes import as_box_array, is_number
from grounding_rewards.data.box_defects import WHOLE_IMAGE, box_defect, image_share
from grounding_rewards.doctor.context import Context, Defect, Problem
from grounding_rewards.doctor.rows import Drawing
from grounding_rewards.overlap import pairwise_iou

#: Shortest side, in pixels that the model sees, of a box that can be learned.
LEAST_SIDE = 4.0
# Fewest images with the same box, and their smallest share of the images with boxes.
_MIN_CONSTANT_IMAGES = 10
_MIN_CONSTANT_SHARE = 0.04
# IoU above which two boxes of one label are one box twice.
_SAME_BOX = 0.95
# Smallest IoU of the boxes of two people for one finding: in VinDr-CXR 4,290 of 4,365 images with several boxes of one
# label have such a pair if the boxes of all three readers are together, 2 of 1,006 if they are apart.
_SAME_FINDING = 0.3
# Fewest images with such a pair that show unmerged readers, and their smallest share of the images with several boxes
# of one label.
_MIN_UNMERGED_IMAGES = 5
_MIN_UNMERGED_SHARE = 0.3

# Defects that boxes in another order or frame have.
_OFF_IMAGE = ("swapped-corners", "no-area", "off-image", "partly-off-image")


def check_boxes(context: Context) -> Iterator[Defect]:
    """Find boxes of a split in another convention, defects of single boxes, and one box on many images."""
    yield from _check_conventions(context)
    table = context.table
    problems = []
    for index, (place, name) in enumerate(zip(table.places, table.defects, strict=True)):
        if name is not None:
            label = f", {place.label!r:.40}" if name == "negative-placeholder" else ""
            problems.append(place.problem(name, _box_words(context, index) + label))
    seen_sides = (table.numbers[:, 2:] - table.numbers[:, :2]) * table.seen / table.sizes
    for index in np.flatnonzero(table.sound & table.answers).tolist():
        place = table.places[index]
        if seen_sides[index].min() < LEAST_SIDE:
            words = "is {:.1f} x {:.1f} pixels of {:g} x {:g}".format(*seen_sides[index], *table.seen[index])
            problems.append(place.problem("small-boxes", words))
        elif image_share(table.numbers[index], table.sizes[index]) >= WHOLE_IMAGE:
            problems.append(place.problem("giant-boxes", _box_words(context, index)))
    yield from context.collect(problems)
    yield from _check_constant_box(context)


def _check_conventions(context: Context) -> Iterator[Defect]:
    """Find splits whose boxes are in another order or frame."""
    table = context.table
    for name in ("box-order", "wrong-frame"):
        conventions = {split: rule for split, rule in context.conventions.items() if rule.check == name}
        if not conventions:
            continue
        indices = [index for index, place in enumerate(table.places) if place.row.split in conventions]
        # Boxes that are all in a corner of their images have no defect by themselves: then all are shown.
        shown_indices = [index for index in indices if table.defects[index] in _OFF_IMAGE] or indices
        problems = [table.places[index].problem(name, _box_words(context, index)) for index in shown_indices]
        rows = [(problem.row, problem.detail) for problem in problems]
        splits_by_words: defaultdict[str, list[str]] = defaultdict(list)
        for split, convention in conventions.items():
            splits_by_words[convention.words].append(split)
        summary = " ".join(f"{', '.join(splits)}: {words}" for words, splits in splits_by_words.items())
        fixes = dict.fromkeys(convention.fix for convention in conventions.values())
        yield replace(context.defect(name, rows, of=len(indices), found=summary), fix=" ".join(fixes))


def _box_words(context: Context, index: int) -> str:
    """The box at an index of the table in words that follow its number, such as "is [1, 2, 3, 4] on 100 x 200"."""
    width, height = context.table.sizes[index]
    words = f"is {box_text(context.table.places[index].box)}"
    return words if np.isnan(width) else f"{words} on {width:g} x {height:g}"


def _check_constant_box(context: Context) -> Iterator[Defect]:
    """Find one box that many images have, in pixels or as fractions of the image, other than the whole image."""
    table = context.table
    inside = np.clip(table.fractions, 0, 1)
    is_whole = (inside[:, 2:] - inside[:, :2]).prod(axis=1) >= WHOLE_IMAGE
    indices = np.flatnonzero(table.sound & table.answers & ~is_whole)
    if not len(indices):
        return
    images = len(np.unique(table.rows[indices]))
    thousandths = np.round(1000 * table.fractions[indices])
    for boxes, unit in ((table.numbers[indices], "pixels"), (thousandths, "thousandths")):
        distinct_boxes, box_ids, counts = np.unique(boxes, axis=0, return_inverse=True, return_counts=True)
        commonest = int(counts.argmax())
        box_indices = indices[box_ids.ravel() == commonest]
        # The box is shown once for each image.
        _, first = np.unique(table.rows[box_indices], return_index=True)
        if len(first) >= max(_MIN_CONSTANT_IMAGES, _MIN_CONSTANT_SHARE * images):
            shown_indices = box_indices[first].tolist()
            problems = [table.places[k].problem("constant-box", _box_words(context, k)) for k in shown_indices]
            box = box_text(distinct_boxes[commonest].tolist())
            summary = f"{box} in {unit} is on {len(first)} of {images} images with boxes."
            yield from context.collect(problems, of=images, found=summary)
            return


def check_pairs(context: Context) -> Iterator[Defect]:
    """Find boxes of one label on an image that are equal, or that overlap as those of several readers do."""
    images_with_several: Counter[str] = Counter()
    overlapping: defaultdict[str, list[Problem]] = defaultdict(list)
    duplicates: list[Problem] = []
    for row in context.rows:
        for drawing in row.answers:
            pairs, has_several = same_label_pairs(drawing)
            # Boxes by reader are apart: that one reader's overlap is another matter.
            images_with_several[row.split] += has_several and not drawing.name
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
            if overlaps and not drawing.name:
                overlapping[row.split].append(Problem("unmerged-readers", row, overlaps[0]))
    unmerged_splits = []
    problems = []
    for split, problems_of_split in overlapping.items():
        if len(problems_of_split) >= max(_MIN_UNMERGED_IMAGES, _MIN_UNMERGED_SHARE * images_with_several[split]):
            unmerged_splits.append(split)
            problems += problems_of_split
    if unmerged_splits:
        images = sum(images_with_several[split] for split in unmerged_splits)
        summary = f"{len(problems)} of {images} images with several boxes of one label have two that overlap."
        yield from context.collect(problems, found=summary)
    yield from context.collect(problem for problem in duplicates if problem.row.split not in unmerged_splits)


def same_label_pairs(drawing: Drawing) -> tuple[list[tuple[int, int, float]], bool]:
    """Find pairs of boxes of one label that overlap as two drawings of one finding do.

    Returns:
        The numbers of both boxes and their IoU, for each pair; and whether any label has several boxes.

    >>> same_label_pairs(Drawing("", [[0, 0, 50, 50], [0, 0, 50, 40], [80, 0, 90, 9]], ["mass", "mass", "cyst"]))
    ([(0, 1, 0.8)], True)
    """
    sound_indices = [index for index, box in enumerate(drawing.boxes) if box_defect(box, None) is None]
    labels = [drawing.label(index) for index in sound_indices]
    if len(sound_indices) < 2 or len(set(map(str, labels))) == len(labels):
        return [], False
    boxes = as_box_array([drawing.boxes[index] for index in sound_indices])
    iou = np.triu(pairwise_iou(boxes, boxes), k=1)
    pairs = []
    for first, second in np.argwhere(iou >= _SAME_FINDING).tolist():
        if labels[first] == labels[second]:
            pairs.append((sound_indices[first], sound_indices[second], float(iou[first, second])))
    return pairs, True


def box_text(box: Any) -> str:
    """A box with six digits for each number; the start of the repr of anything else.

    >>> box_text([1, 2.0, 3.25, 4]), box_text("none")
    ('[1, 2, 3.25, 4]', "'none'")
    """
    is_short = isinstance(box, list | tuple) and len(box) == 4
    if is_short and all(isinstance(value, float) or is_number(value) for value in box):
        return f"[{', '.join(f'{value:.6g}' for value in box)}]"
    return f"{box!r:.60}"
