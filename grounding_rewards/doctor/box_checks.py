"""Checks of boxes: single ones, those of one image together, and all boxes of a split or reader."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import Boxes, as_box_array, box_area, is_number
from grounding_rewards.doctor.box_defects import Diagnosis, box_defect
from grounding_rewards.doctor.case import Case, Defect, Problem, group
from grounding_rewards.doctor.raw_rows import Drawing, ImageRow
from grounding_rewards.overlap import pairwise_iou

#: How boxes in parts of the image become pixels.
_TO_PIXELS = "boxes = [[x1 * width, y1 * height, x2 * width, y2 * height] for x1, y1, x2, y2 in boxes]"
# One box on at least so many images, and so large a part of those with boxes; less where it is so many times as common
# as the next one.
_FEWEST_CONSTANT, _LEAST_CONSTANT, _LEAST_DEFAULT, _TIMES_NEXT = 10, 0.25, 0.04, 4
# Boxes of so many images, and so large a part of all, share a number: so many times as many as share another one that
# lies so near. In 19 clean sets at most 1.6 times as many do, in planted ones 4 times.
_FEWEST_PILED, _LEAST_PILED, _TIMES_RIVAL, _RIVALS = 12, 0.04, 3, 16
_RATIOS = {"squares": 1, "4 : 3": 4 / 3, "3 : 4": 3 / 4, "3 : 2": 3 / 2, "2 : 3": 2 / 3, "2 : 1": 2, "1 : 2": 1 / 2}
_ALL_OF_RATIO, _BETTER_RATIO = 0.9, 1.2
# Sides of a box in parts of the image that differ by less are the same, after rounding to pixels.
_ROUNDING = 0.002
# Boxes of so many images, and so large a part of all, have all edges on a grid whose step is not small beside them.
_FEWEST_ON_GRID, _LEAST_ON_GRID, _COARSE = 15, 0.05, 0.1
_GRID_STEPS, _GRID_CELLS = (128, 100, 64, 50, 40, 32, 25, 20, 16, 10, 8, 5, 4), (7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
# So many boxes, and so large a part, end at one side of the image, and so many times as many as at the other side. In a
# corner fewer: of clean sets at most 1 % do.
_FEWEST_CUT, _FEWEST_IN_CORNER, _TIMES_OTHER = (15, 0.15), (12, 0.03), 5
_FEWEST_TURNED = 10
# Boxes of this part of the image or more are giant; of so many sound boxes, half are too many.
_GIANT, _FEWEST_GIANT = 0.5, 10
# Two people who draw one finding agree so far; boxes of one label with a larger IoU are one drawn twice.
_LEAST_OVERLAP, _NEAR_DUPLICATE = 0.3, 0.95
# Of the images with several boxes of one label, where one person draws them hardly any two overlap so far: 2 of 1,006
# images of VinDr-CXR by one reader each, 4,290 of 4,365 with the boxes of all three together.
_LEAST_SHARE, _FEWEST_IMAGES = 0.3, 5
# On so many images, and so large a part of those with several boxes of one label, two of them abut along this part of a
# side, or lie within each other to this part: in 19 clean sets on 1 at most, of up to 23.
_FEWEST_RELATED, _LEAST_RELATED, _BESIDE, _WITHIN = 6, 0.1, 0.5, 0.95
# Where more boxes than this part have two labels, they are meant to.
_MOST_SHARED = 0.1
# Of so many images on which others drew, a reader draws on some. Two readers draw other boxes on all but so few.
_FEWEST_OF_READER, _MOST_ALIKE = 20, 0.9


def check_boxes(case: Case) -> Iterator[Defect]:
    """Mistakes that all boxes of a split or reader share, and defects of single boxes."""
    constant = list(_constant(case))
    for name in ("shifted-rows", "box-order", "flipped-boxes", "wrong-frame", "one-corner"):
        here = {groups: one for groups, one in case.diagnoses.items() if one.name == name}
        # A box that is everywhere the same lies in some corner.
        if here and not (name == "one-corner" and constant):
            yield _shared(case, name, here)
    for defect in case.collect(_box_problems(case)):
        found, fix = _details(case, defect.name)
        yield replace(defect, found=found or defect.found, fix=fix or defect.fix)
    yield from constant or (*_giant(case), *(tuple(_grid(case)) or _piled_up(case)))
    if not case.diagnoses:
        yield from _cut(case)
    yield from _empty_readers(case)
    yield from _copied_readers(case)


def _shared(case: Case, name: str, here: Mapping[tuple[str, ...], Diagnosis]) -> Defect:
    """A mistake that all boxes of some groups share."""
    table, names = case.table, set(case.table.groups.tolist()) - {""}
    symptoms = {"off-image", "partly-off-image", *(("swapped-corners",) if name == "box-order" else ())}
    shown: list[tuple[ImageRow | None, str]] = []
    for groups in here:
        chosen = np.flatnonzero(np.isin(table.groups, groups)).tolist()
        # Boxes that are bad because of it, else the first of each drawing.
        bad = [k for k in chosen if table.defects[k] in symptoms]
        firsts = {table.drawing[k]: k for k in reversed(chosen)}
        shown += [(table.places[k].row, box_words(case, k)) for k in bad or sorted(firsts.values())]
    count, of = sum(one.shown_by for one in here.values()), sum(one.of for one in here.values())
    found = " ".join(
        one.found if len(groups) == len(names) else f"{' and '.join(groups)}: {one.found}"
        for groups, one in here.items()
    )
    fix = " ".join(dict.fromkeys(one.fix for one in here.values()))
    return case.defect(name, shown, count=count, of=of, found=found, fix=fix, diagnosis=next(iter(here.values())))


def box_words(case: Case, k: int) -> str:
    """The box at a place of the table, in words."""
    place, size = case.table.places[k], case.table.sizes[k]
    return f"{place.drawing.prefix}box {place.number} is {shown(place.box)} on {size[0]:g} x {size[1]:g}"


def _box_problems(case: Case) -> Iterator[Problem]:
    for k, (place, name) in enumerate(zip(case.table.places, case.table.defects, strict=True)):
        if name is None:
            continue
        detail = f"{place.drawing.prefix}box {place.number} is {shown(place.box)}"
        if name == "negative-placeholder":
            detail += f", {place.label!r:.40}"
        elif name in ("off-image", "partly-off-image", "normalised-boxes"):
            detail = box_words(case, k)
        yield Problem(name, place.row, detail, place.drawing.name)


def _details(case: Case, name: str) -> tuple[str, str]:
    """What all boxes with a defect show together, and what to do then; both may be empty."""
    table = case.table
    if name == "normalised-boxes":
        fit = table.fit(np.array([defect == name for defect in table.defects]), frame=(1.0, 1.0))
        if order := fit.other_order():
            return order.found, f"{order.fix} Then to pixels: {_TO_PIXELS}."
    written = [table.places[k].box for k, defect in enumerate(table.defects) if defect == "not-finite"]
    if name == "not-finite" and all(map(_is_text, written)):
        return "All of them are texts.", "Write numbers: boxes = [[float(one) for one in box] for box in boxes]."
    if name == "swapped-corners":
        fit = table.fit(table.groups != "")
        turned = fit.boxes[fit.turned]
        if len(turned) >= _FEWEST_TURNED and (turned[:, 0] < turned[:, 2]).all():
            return (
                f"In all {len(turned)} only y2 < y1: do their y count from the lower edge?",
                "Look at some of them. If y counts from the lower edge: boxes = [[x1, height - y1, x2, height - y2] "
                "for x1, y1, x2, y2 in boxes]; if the corners are only given in another order, take min and max of y1 "
                "and y2.",
            )
    return "", ""


def _is_text(box: Any) -> bool:
    """Whether a box is four texts that are numbers."""
    try:
        return len(box) == 4 and all(isinstance(one, str) and math.isfinite(float(one)) for one in box)
    except (TypeError, ValueError):
        return False


def _constant(case: Case) -> Iterator[Defect]:
    table, images = case.table, sum(map(bool, case.counts))
    chosen = table.sound & table.first
    for numbers, unit in ((table.numbers, "pixels"), (table.parts.round(3), "parts of the image")):
        # Each box once for each image.
        distinct = np.unique(np.column_stack([table.drawing, numbers])[chosen], axis=0)[:, 1:]
        boxes, counts = np.unique(distinct, axis=0, return_counts=True)
        rest, count = np.sort(np.pad(counts, (2, 0)))[-2:].tolist()
        least = _LEAST_DEFAULT if count >= _TIMES_NEXT * rest else _LEAST_CONSTANT
        if count >= max(_FEWEST_CONSTANT, least * images):
            default = boxes[counts.argmax()]
            found = f"{shown(default.tolist())} in {unit} on {count} of {images} images with boxes."
            places = [table.places[k] for k in np.flatnonzero(chosen & (numbers == default).all(axis=1))]
            same = [(one.row, f"box {one.number}") for one in places]
            yield case.defect("constant-box", same, count=count, of=images, found=found)
            return
    seen: dict[tuple[str | None, str], str] = {}
    same = []
    for row, boxed in zip(case.rows, case.counts, strict=True):
        image = str(row.facts.digest if row.facts and row.facts.digest else row.file)
        if boxed and row.patient_id and image:
            first = seen.setdefault((row.patient_id, repr([(one.boxes, one.labels) for one in row.answers])), image)
            if first != image:
                same.append((row, "has the very boxes of another image of its patient"))
    if len(same) >= _FEWEST_CONSTANT:
        yield case.defect("constant-box", same, of=images, found="They have the boxes of another image of the patient.")
        return
    first_boxes = np.flatnonzero(np.diff(table.drawing[chosen], prepend=-1))
    drawn = np.split(table.parts[chosen], first_boxes[1:])
    rows = [table.places[k].row for k in np.flatnonzero(chosen)[first_boxes]]
    same = [
        (row, "has the boxes of the image before it, scaled with the image")
        for before, row, mine, those in zip(rows, rows[1:], drawn[1:], drawn, strict=False)
        if before.file != row.file and len(mine) == len(those) and np.abs(mine - those).max() <= _ROUNDING
    ]
    if len(same) >= _FEWEST_CONSTANT:
        yield case.defect("constant-box", same, of=images, found="They have the boxes of the image before them.")


def _giant(case: Case) -> Iterator[Defect]:
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    giant = chosen[np.prod(table.parts[chosen, 2:] - table.parts[chosen, :2], axis=1) >= _GIANT]
    if len(giant) > max(_FEWEST_GIANT, len(chosen) / 2):
        yield case.defect("giant-boxes", [(table.places[k].row, box_words(case, k)) for k in giant], of=len(chosen))


def _piled_up(case: Case) -> Iterator[Defect]:
    """Boxes that share one number, as hardly any others do: a width, an edge, a ratio of the sides."""
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    images = table.rows[chosen]
    most, found, mine = 0, "", np.zeros(len(chosen), dtype=bool)
    fewest = max(_FEWEST_PILED, _LEAST_PILED * len(np.unique(images)))
    for words, values, is_ratio in _numbers(
        table.numbers[chosen], table.parts[chosen], np.tile(table.sizes[chosen], 2)
    ):
        halves, counts = np.unique(np.round(2 * values[np.isfinite(values)]), return_counts=True)
        number = 0.0 if is_ratio or not len(halves) else halves[counts.argmax()] / 2
        beside = np.abs(halves / 2 - number)
        rivals = counts[(beside > 0.5) & (beside <= _RIVALS)].max(initial=1)
        piled = np.abs(values - number) <= 0.3
        count = len(np.unique(images[piled]))
        # Where nearly all are squares, that is how they are drawn.
        is_clear = count >= max(fewest, _TIMES_RIVAL * rivals) and count > _BETTER_RATIO**is_ratio * most
        if is_clear and not (is_ratio and piled.mean() >= _ALL_OF_RATIO):
            most, found, mine = count, f"{piled.sum()} of {len(chosen)} boxes {words.format(number)}.", piled
    if found:
        shown = [(table.places[k].row, box_words(case, k)) for k in chosen[mine].tolist()]
        yield case.defect("pile-up", shown, of=len(chosen), found=found)


def _numbers(boxes: Boxes, parts: Boxes, corners: Boxes) -> Iterator[tuple[str, np.ndarray, bool]]:
    """What boxes may share, in words: their numbers, and whether these are 0 for boxes of one ratio of the sides."""
    for unit, given, limits in (("pixels", boxes, corners), ("thousandths", 1000 * parts, np.full_like(parts, 1000))):
        # At the edges of the image boxes are cut.
        inner = np.where((given > 0.5) & (given < limits - 0.5), given, np.nan)
        sides = given[:, 2:] - given[:, :2]
        for words, values in zip(("wide", "high"), sides.T, strict=True):
            yield f"are {{:g}} {unit} {words}", values, False
        for words, values in zip(("x1", "y1", "x2", "y2"), inner.T, strict=True):
            yield f"have {words} at {{:g}} {unit}", values, False
        for words, values in zip(("right", "lower"), (limits - inner)[:, 2:].T, strict=True):
            yield f"end {{:g}} {unit} before the {words} edge", values, False
    sides = boxes[:, 2:] - boxes[:, :2]
    for words, ratio in _RATIOS.items():
        yield f"are {words}", sides[:, 0] - ratio * sides[:, 1], True


def _grid(case: Case) -> Iterator[Defect]:
    """Boxes of whole cells, as of a heat map."""
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    edges, sides = table.numbers[chosen], np.tile(table.sizes[chosen], 2)
    inner = (edges > 0) & (edges < sides)
    is_inside = inner.sum(axis=1) >= 3
    if not is_inside.any():
        return
    shorter = (edges[:, 2:] - edges[:, :2]).min(axis=1)
    grids = [(f"{step} pixels", np.full(sides.shape, float(step))) for step in _GRID_STEPS]
    grids += [(f"a part in {cells} of the image", sides / cells) for cells in _GRID_CELLS]
    found = (np.zeros(len(edges), dtype=bool), "")
    for words, step in grids:
        # Up to a pixel that was rounded.
        on_grid = ((np.abs(edges - np.round(edges / step) * step) <= 0.51) | ~inner).all(axis=1) & is_inside
        # A few boxes more lie on a finer grid by chance.
        if on_grid.sum() > 1.2 * found[0].sum() and np.median(step[on_grid]) >= _COARSE * np.median(shorter[on_grid]):
            found = on_grid, words
    count, images = int(found[0].sum()), len(np.unique(table.rows[chosen[found[0]]]))
    if images >= _FEWEST_ON_GRID and count >= _LEAST_ON_GRID * len(edges):
        shown = [(table.places[k].row, box_words(case, k)) for k in chosen[found[0]].tolist()]
        words = f"All edges of {count} of {len(edges)} boxes are multiples of {found[1]}."
        yield case.defect("coarse-boxes", shown, of=len(edges), found=words)


def _cut(case: Case) -> Iterator[Defect]:
    """Boxes that were clipped to their images, on which they do not belong."""
    table = case.table
    chosen = np.flatnonzero(table.sound & table.first)
    left, upper, right, lower = np.hstack([table.parts[chosen, :2] <= 0, table.parts[chosen, 2:] >= 1]).T
    edges = ("left edge", left), ("right edge", right)
    corners = ("upper left corner", left & upper), ("lower right corner", right & lower)
    for pair, (fewest, least) in ((edges, _FEWEST_CUT), (corners, _FEWEST_IN_CORNER)):
        (other, others), (side, mine) = sorted(pair, key=lambda one: int(one[1].sum()))
        here, there = int(mine.sum()), int(others.sum())
        if here >= max(fewest, least * len(chosen)) and here >= _TIMES_OTHER * there:
            found = f"{here} of {len(chosen)} boxes end at the {side} of their images, {there} at the {other}."
            shown = [(table.places[k].row, box_words(case, k)) for k in chosen[mine]]
            yield case.defect("cut-boxes", shown, of=len(chosen), found=found)
            return


def _empty_readers(case: Case) -> Iterator[Defect]:
    drawn: dict[str, list[tuple[ImageRow, bool]]] = defaultdict(list)
    for row in case.rows:
        for drawing in row.readers if any(drawing.boxes for drawing in row.readers) else ():
            drawn[drawing.name].append((row, bool(drawing.boxes)))
    for name, images in drawn.items():
        if len(images) >= _FEWEST_OF_READER and not any(has_boxes for _, has_boxes in images):
            found = f"{name} drew nothing on {len(images)} images on which others did."
            yield case.defect("empty-reader", [(row, f"{name} drew nothing") for row, _ in images], found=found)


def _copied_readers(case: Case) -> Iterator[Defect]:
    """Two readers who drew the same boxes, to the last digit."""
    drawn: dict[tuple[str, str], list[tuple[ImageRow, bool]]] = defaultdict(list)
    for row in case.rows:
        for one, other in combinations(row.readers, 2):
            if one.boxes or other.boxes:
                drawn[one.name, other.name].append((row, one.boxes == other.boxes))
    for (name, other_name), images in drawn.items():
        same = [row for row, is_same in images if is_same]
        if len(same) >= max(_FEWEST_OF_READER, _MOST_ALIKE * len(images)):
            shown = [(row, f"{name} and {other_name} drew the same") for row in same]
            yield case.defect("copied-reader", shown, of=len(images))


def check_pairs(case: Case) -> Iterator[Defect]:
    """Boxes of an image that are nearly the same, and overlap as those of several readers do."""
    repeated: Counter[str] = Counter()
    overlapping: dict[str, list[tuple[ImageRow | None, str]]] = defaultdict(list)
    related: dict[str, list[tuple[ImageRow | None, str]]] = defaultdict(list)
    doubles: list[Problem] = []
    for row in case.rows:
        for drawing in row.answers:
            pairs, is_repeated = box_pairs(drawing)
            whose = group(row, drawing.name)
            repeated[whose] += is_repeated
            for how, label in (_relations(row, drawing) if is_repeated else {}).items():
                related[how].append((row, f"{drawing.prefix}two boxes {label!r:.60} {how}"))
            if alike := [one for one in pairs if one.same_label and one.iou <= _NEAR_DUPLICATE]:
                label = drawing.label(alike[0].first)
                if isinstance(label, str):
                    words = f"{drawing.prefix}{alike[0].named} are {label!r:.60} with IoU {alike[0].iou:.2f}"
                    overlapping[whose].append((row, words))
            doubles += _doubles(row, drawing, [one for one in pairs if one.iou > _NEAR_DUPLICATE])
    unmerged = {
        whose for whose, rows in overlapping.items() if len(rows) >= max(_FEWEST_IMAGES, _LEAST_SHARE * repeated[whose])
    }
    if unmerged:
        rows = [one for whose in overlapping if whose in unmerged for one in overlapping[whose]]
        found = (
            f"On {len(rows)} of the {sum(repeated[whose] for whose in unmerged)} images with several boxes of one "
            f"label, two of them overlap with an IoU of {_LEAST_OVERLAP} to {_NEAR_DUPLICATE}."
        )
        yield case.defect("unmerged-readers", rows, found=found)
    how, rows = max(related.items(), key=lambda one: len(one[1]), default=("", []))
    if not unmerged and len(rows) >= max(_FEWEST_RELATED, _LEAST_RELATED * repeated.total()):
        found = f"On {len(rows)} of {repeated.total()} images with several boxes of one label two of them {how}."
        yield case.defect("related-boxes", rows, found=found)
    for defect in case.collect(one for one in doubles if group(one.row, one.drawing) not in unmerged):
        # Where many boxes have several labels, that is how the dataset is made.
        if defect.name != "shared-box" or defect.count <= _MOST_SHARED * defect.of:
            yield defect


class Pair(NamedTuple):
    """Two boxes of a drawing that overlap: their places, IoU, and whether they have one label."""

    first: int
    second: int
    iou: float
    same_label: bool

    @property
    def named(self) -> str:
        """Which boxes they are."""
        return f"boxes {self.first} and {self.second}"


def box_pairs(drawing: Drawing) -> tuple[list[Pair], bool]:
    """Pairs of boxes that overlap as two drawings of one finding do, and whether a label has several boxes.

    >>> box_pairs(Drawing("", [[0, 0, 50, 50], [0, 0, 50, 40], [80, 0, 90, 9]], ["mass", "cyst", "mass"]))
    ([Pair(first=0, second=1, iou=0.8, same_label=False)], True)
    """
    if len(drawing.boxes) < 2:
        return [], False
    sound = _sound(drawing)
    labels = [label for index in sound if isinstance(label := drawing.label(index), str)]
    boxes = as_box_array([drawing.boxes[index] for index in sound])
    iou = np.triu(pairwise_iou(boxes, boxes), k=1)
    pairs = [(sound[a], sound[b], float(iou[a, b])) for a, b in np.argwhere(iou >= _LEAST_OVERLAP)]
    return [Pair(*pair, drawing.label(pair[0]) == drawing.label(pair[1])) for pair in pairs], len(set(labels)) < len(
        labels
    )


def _sound(drawing: Drawing) -> list[int]:
    """The places of the sound boxes of a drawing."""
    return [index for index, box in enumerate(drawing.boxes) if box_defect(box, None) is None]


def _relations(row: ImageRow, drawing: Drawing) -> dict[str, Any]:
    """How two boxes of one label lie to each other as two findings seldom do, with the label."""
    found: dict[str, Any] = {}
    width = row.trusted_size[0] if row.trusted_size else math.inf
    sound = _sound(drawing)
    area = dict(zip(sound, box_area(as_box_array([drawing.boxes[index] for index in sound])).tolist(), strict=True))
    for first, second in combinations(sound, 2):
        if (label := drawing.label(first)) != drawing.label(second):
            continue
        one, other = drawing.boxes[first], drawing.boxes[second]
        common = [min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1)]
        parts = [common[k] / min(one[k + 2] - one[k], other[k + 2] - other[k]) for k in (0, 1)]
        if any(abs(common[k]) <= 1 and parts[1 - k] >= _BESIDE for k in (0, 1)):
            found["abut"] = label
        if min(parts) >= _WITHIN and math.prod(common) < _NEAR_DUPLICATE * max(area[first], area[second]):
            found["lie one within the other"] = label
        if abs(one[0] + other[2] - width) + abs(one[2] + other[0] - width) + abs(one[1] - other[1]) <= 1:
            found["mirror each other"] = label
    return found


def _doubles(row: ImageRow, drawing: Drawing, pairs: list[Pair]) -> Iterator[Problem]:
    """Boxes that repeat an earlier one, exactly or almost."""
    given, reported = drawing.boxes, set()
    for pair in pairs:
        first, second = given[pair.first], given[pair.second]
        if pair.second in reported:
            continue
        is_same = list(first) == list(second)
        if not pair.same_label:
            if is_same:
                both = f"{drawing.label(pair.first)!r:.40} and {drawing.label(pair.second)!r:.40}"
                yield Problem("shared-box", row, f"{drawing.prefix}{shown(first)} is {both}", drawing.name)
            continue
        reported.add(pair.second)
        name = "duplicate-boxes" if is_same else "near-duplicate-boxes"
        words = f" are {shown(first)}" if is_same else f", IoU {pair.iou:.3f}: {shown(first)}, {shown(second)}"
        yield Problem(name, row, f"{drawing.prefix}{pair.named}{words}", drawing.name)


def shown(box: Any) -> str:
    """A box in short; anything else as its repr, cut off.

    >>> shown([1, 2.0, 3.25, 4]), shown("none")
    ('[1, 2, 3.25, 4]', "'none'")
    """
    if (
        isinstance(box, list | tuple)
        and len(box) == 4
        and all(isinstance(value, float) or is_number(value) for value in box)
    ):
        return f"[{', '.join(f'{value:.6g}' for value in box)}]"
    return f"{box!r:.60}"
