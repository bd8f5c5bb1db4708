"""Check boxes: each by itself, those of one image together, and all boxes of a split."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from grounding_rewards.boxes import as_box_array, is_number
from grounding_rewards.data.box_defects import WHOLE_IMAGE, box_defect, image_share
from grounding_rewards.doctor.context import Context, Defect, Fault, Problem
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

# Defects that show boxes of another order or frame: read as xyxy in pixels, they do not fit on their images.
_OFF_IMAGE = ("swapped-corners", "no-area", "off-image", "partly-off-image")


def check_boxes(context: Context) -> Iterator[Defect]:
    """Find boxes that are not xyxy in pixels, boxes with a defect, too small or as large as the image, and one box on
    many images."""
    yield from _check_conventions(context)
    table = context.table
    problems = []
    for index, (place, defect) in enumerate(zip(table.places, table.defects, strict=True)):
        if defect is not None:
            # A box that stands for "no finding" is known by its label.
            label = f", {place.label!r:.40}" if defect == "negative-placeholder" else ""
            problems.append(place.problem(defect, _box_words(context, index) + label))
    # Width and height of each box in pixels of the resized image that the model sees.
    seen_sides = (table.boxes[:, 2:] - table.boxes[:, :2]) * table.seen_sizes / table.image_sizes
    for index in np.flatnonzero(table.is_sound & table.is_answer).tolist():
        place = table.places[index]
        if seen_sides[index].min() < LEAST_SIDE:
            words = "is {:.1f} x {:.1f} pixels of {:g} x {:g}".format(*seen_sides[index], *table.seen_sizes[index])
            problems.append(place.problem("small-boxes", words))
        elif image_share(table.boxes[index], table.image_sizes[index]) >= WHOLE_IMAGE:
            problems.append(place.problem("giant-boxes", _box_words(context, index)))
    yield from context.collect(problems)
    yield from _check_constant_box(context)


def _check_conventions(context: Context) -> Iterator[Defect]:
    """Yield one defect for all splits whose boxes are in a wrong order, and one for those in a wrong frame."""
    table = context.table
    for check in ("box-order", "wrong-frame"):
        # `context.conventions` holds the mistaken splits alone.
        conventions = {split: found for split, found in context.conventions.items() if found.check == check}
        if not conventions:
            continue
        indices = [index for index, place in enumerate(table.places) if place.row.split in conventions]
        # The boxes that do not fit on their images show it. Where all fit, as in a corner, every box is shown.
        shown_indices = [index for index in indices if table.defects[index] in _OFF_IMAGE] or indices
        problems = [table.places[index].problem(check, _box_words(context, index)) for index in shown_indices]
        faults = [Fault(problem.row, problem.detail) for problem in problems]
        # Splits with the same mistake share a sentence.
        splits_by_words: defaultdict[str, list[str]] = defaultdict(list)
        for split, convention in conventions.items():
            splits_by_words[convention.words].append(split)
        summary = " ".join(f"{', '.join(splits)}: {words}" for words, splits in splits_by_words.items())
        fixes = dict.fromkeys(convention.fix for convention in conventions.values())
        # `checks.ini` has no advice for these two: what to do depends on the convention that was found.
        yield replace(context.defect(check, faults, of=len(indices), found=summary), fix=" ".join(fixes))


def _box_words(context: Context, index: int) -> str:
    """The box at an index of the table in words that follow its number, such as "is [1, 2, 3, 4] on 100 x 200"."""
    width, height = context.table.image_sizes[index]
    words = f"is {box_text(context.table.places[index].box)}"
    return words if np.isnan(width) else f"{words} on {width:g} x {height:g}"


def _check_constant_box(context: Context) -> Iterator[Defect]:
    """Find one box that many images have, in pixels or as fractions of the image, other than the whole image."""
    table = context.table
    inside = np.clip(table.fractions, 0, 1)
    is_whole_image = (inside[:, 2:] - inside[:, :2]).prod(axis=1) >= WHOLE_IMAGE
    indices = np.flatnonzero(table.is_sound & table.is_answer & ~is_whole_image)
    if not len(indices):
        return
    images = len(np.unique(table.row_indices[indices]))
    # Rounded, so that the same place on images of different sizes gives equal numbers.
    thousandths = np.round(1000 * table.fractions[indices])
    for boxes, unit in ((table.boxes[indices], "pixels"), (thousandths, "thousandths")):
        distinct_boxes, box_ids, counts = np.unique(boxes, axis=0, return_inverse=True, return_counts=True)
        commonest = int(counts.argmax())
        commonest_indices = indices[box_ids.ravel() == commonest]
        # One index for each image, which may have the box several times.
        _, first_of_image = np.unique(table.row_indices[commonest_indices], return_index=True)
        shown_indices = commonest_indices[first_of_image].tolist()
        if len(shown_indices) >= max(_MIN_CONSTANT_IMAGES, _MIN_CONSTANT_SHARE * images):
            problems = [table.places[k].problem("constant-box", _box_words(context, k)) for k in shown_indices]
            box = box_text(distinct_boxes[commonest].tolist())
            summary = f"{box} in {unit} is on {len(shown_indices)} of {images} images with boxes."
            yield from context.collect(problems, of=images, found=summary)
            # A box that is constant in pixels mostly is so as fractions too: it is reported once.
            return


def check_pairs(context: Context) -> Iterator[Defect]:
    """Find boxes of one label on an image that are equal, and splits in which boxes of several readers lie unmerged.

    In such a split many images have two boxes of one label that overlap without being equal, as two people draw one
    finding. Equal boxes are expected there, and are not reported by themselves.
    """
    # By split: how many images have several boxes of one label, and a problem for each of them on which two overlap.
    images_with_several: Counter[str] = Counter()
    overlap_problems: defaultdict[str, list[Problem]] = defaultdict(list)
    duplicate_problems: list[Problem] = []
    for row in context.rows:
        for drawing in row.answers:
            overlapping_pairs, has_several = same_label_pairs(drawing)
            problems_of_image = []
            repeated_boxes: set[int] = set()
            for first, second, iou in overlapping_pairs:
                label = drawing.label(first)
                label_words = "" if label is None else f", {label!r:.60}"
                words = f"{drawing.prefix}boxes {first} and {second}{label_words}, IoU {iou:.3f}"
                if iou <= _SAME_BOX:
                    problems_of_image.append(Problem("unmerged-readers", row, words))
                # The third of three equal boxes makes two pairs, and is reported once.
                elif second not in repeated_boxes:
                    repeated_boxes.add(second)
                    duplicate_problems.append(Problem("duplicate-boxes", row, words))
            # A drawing with a name is of one reader, whose own overlaps show no other reader.
            if has_several and not drawing.name:
                images_with_several[row.split] += 1
                # One pair for each image, so that these are numbers of images.
                overlap_problems[row.split] += problems_of_image[:1]
    unmerged_splits = []
    for split, images in images_with_several.items():
        if len(overlap_problems[split]) >= max(_MIN_UNMERGED_IMAGES, _MIN_UNMERGED_SHARE * images):
            unmerged_splits.append(split)
    problems = [problem for split in unmerged_splits for problem in overlap_problems[split]]
    image_count = sum(images_with_several[split] for split in unmerged_splits)
    summary = f"{len(problems)} of {image_count} images with several boxes of one label have two that overlap."
    yield from context.collect(problems, found=summary)
    yield from context.collect(problem for problem in duplicate_problems if problem.row.split not in unmerged_splits)


def same_label_pairs(drawing: Drawing) -> tuple[list[tuple[int, int, float]], bool]:
    """Find pairs of boxes of one label that overlap as two drawings of one finding do.

    Returns:
        For each overlapping pair the indices of both boxes, the lower first, and their IoU; and whether any label has
        several boxes, which need not overlap.

    >>> same_label_pairs(Drawing("", [[0, 0, 50, 50], [0, 0, 50, 40], [80, 0, 90, 9]], ["mass", "mass", "cyst"]))
    ([(0, 1, 0.8)], True)
    """
    # Boxes with a defect have no overlap to speak of.
    sound_indices = [index for index, box in enumerate(drawing.boxes) if box_defect(box, None) is None]
    labels = [drawing.label(index) for index in sound_indices]
    # As text, because what a dataset has for a label may not go into a set.
    if len(set(map(str, labels))) == len(labels):
        return [], False
    boxes = as_box_array([drawing.boxes[index] for index in sound_indices])
    # Above the diagonal: each pair once, and no box with itself.
    iou = np.triu(pairwise_iou(boxes, boxes), k=1)
    pairs = []
    for i, j in np.argwhere(iou >= _SAME_FINDING).tolist():
        if labels[i] == labels[j]:
            pairs.append((sound_indices[i], sound_indices[j], float(iou[i, j])))
    return pairs, True


def box_text(box: Any) -> str:
    """A box with six digits for each number; the start of the repr of anything else.

    >>> box_text([1, 2.0, 3.25, 4]), box_text("none")
    ('[1, 2, 3.25, 4]', "'none'")
    """
    has_four = isinstance(box, list | tuple) and len(box) == 4
    if has_four and all(isinstance(value, float) or is_number(value) for value in box):
        return f"[{', '.join(f'{value:.6g}' for value in box)}]"
    return f"{box!r:.60}"
