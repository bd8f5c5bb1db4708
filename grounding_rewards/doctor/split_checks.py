"""Checks of splits and sources against each other: findings, labels, greys, and size and place of boxes.

Greys take images of one source to be alike: all chest radiographs are dark in the middle of each half.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import f as f_distribution

from grounding_rewards.data.held_out import patient_in_name
from grounding_rewards.doctor.case import Case, Place
from grounding_rewards.doctor.defects import Defect
from grounding_rewards.doctor.raw_rows import ImageRow
from grounding_rewards.sources.base import SPLIT_NAMES, split_name

_TRAIN = "train"
# How seldom chance alone leaves a kind of image out of a split, and a label out of a source.
_CHANCE, _SELDOM = 1e-3, 0.05
# With fewer boxes per label these are free phrases, each of which occurs once.
_FEWEST_PER_LABEL = 3
# Boxes of a split or source, of so many patients, are of another size or elsewhere if chance makes them so less often
# than this and they are so many standard deviations apart: for all labels, and for one of so many. Such a deviation of
# a place, in parts of the image, or of the logarithm of a side is the least.
_FEWEST_OF_GROUP, _UNLIKELY, _FAR, _FAR_OF_LABEL, _MOST_TESTED, _LEAST_SPREAD = 8, 1e-7, 0.6, 1.5, 50, 0.02
_FEWEST_IMAGES = 20
# Images of one source are alike if half of them correlate so far with what they have in common; inverted ones do the
# other way, and turned ones do by so much more once they are turned back; by less, they are as like the negative. All
# but so few correlate as far in one of these ways, or nothing can be told.
_ALIKE, _INVERTED, _TURNED, _CLEARER, _FEW = 0.5, -0.3, 0.4, 0.1, 0.2
# So many images are of something else if they correlate less far than this in any of these ways, and all others
# clearly further: crops of many shapes correlate to any degree.
_FEWEST_ODD, _UNLIKE, _LIKE = 3, 0.12, 0.3
# So many images with boxes, and so many without, are told apart by one number if it errs in so few of each, on average.
_FEWEST_TOLD, _MOST_ERRORS = 20, 0.04
# Findings that say it already where prompts tell the images apart.
_TOLD_BY_PROMPT = {"answer-in-prompt", "count-in-prompt", "prompt-contradiction"}
# So large a part of the middle of an image is clipped if it is white in so many cells of its copy.
_WHITE, _CLIPPED = 254, 0.25
# What images look like as a whole, with the least deviation that is thought of; their sharpness is a logarithm.
_LOOKS = {"mean grey": 1.0, "contrast": 2.0, "logarithm of the sharpness": 0.1, "grey of the border": 10.0}
# Splits of so many patients look otherwise if their means are so many standard deviations apart, or of so many times
# less deviation; sources differ more.
_FEWEST_OF_SPLIT, _APART, _APART_SOURCES, _EVENER = 10, 2.0, 2.3, 8.0


def check_splits(case: Case) -> Iterator[Defect]:
    """What one split or source has and another lacks."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for split in case.images:
        alike[split_name(split)].append(split)
    for splits in alike.values():
        if len(splits) > 1:
            found = f"{', '.join(f'{split}: {case.images[split]} images' for split in splits)}."
            yield case.defect("split-names", count=len(splits), of=len(case.images), found=found)
    slips = [split for split in case.images if split_name(split) == split and is_misspelt(split)]
    if slips:
        found = f"{', '.join(f'{split}: {case.images[split]} images' for split in slips)}."
        yield case.defect("split-names", count=len(slips), of=len(case.images), found=found)
    unnamed = [row for row in case.rows if row.columns.get("split") in ("", None)]
    if 0 < len(unnamed) < len(case.rows) and any(row.columns.get("split") for row in case.rows):
        yield case.defect(
            "split-names",
            [(row, f"no split, read as {row.split}") for row in unnamed],
            of=len(case.rows),
            found=f"{len(unnamed)} of {len(case.rows)} rows name no split.",
        )
    split_of = [row.split for row in case.rows]
    source_of = [None if row.columns.get("source") is None else str(row.columns["source"]) for row in case.rows]
    for name, groups, has_boxes, words in (
        ("split-without-findings", split_of, True, "has boxes"),
        ("split-without-negatives", split_of, False, "has none"),
        ("source-without-findings", source_of, True, "has boxes"),
    ):
        images = Counter(group for group in groups if group is not None)
        kind = Counter(
            group
            for group, count in zip(groups, case.counts, strict=True)
            if group is not None and bool(count) == has_boxes
        )
        bare = {group: images[group] for group in _bare(case, groups, has_boxes)}
        if bare and kind:
            of = sum(images[group] for group in kind)
            found = f"{', '.join(bare)}: none of {sum(bare.values())} images {words}; elsewhere {kind.total()} of {of}."
            yield case.defect(name, count=sum(bare.values()), of=len(case.rows), found=found)
    yield from _unseen(case)
    yield from _unlabelled(case)


def is_misspelt(split: str) -> bool:
    """Whether the name of a split is nearly that of another: with `ing` behind, two letters exchanged, or one lost.

    Example:
        >>> [is_misspelt(split) for split in ("training", "tets", "vaildation", "tran", "test", "testA", "train2017")]
        [True, True, True, True, False, False, False]
    """
    word = split.casefold()
    for right in SPLIT_NAMES:
        places = range(len(right))
        lost = (right[:k] + right[k + 1 :] for k in places)
        turned = (right[:k] + right[k + 1 : k + 2] + right[k] + right[k + 2 :] for k in places)
        if word != right and word in (f"{right}ing", *lost, *turned):
            return True
    return False


def _bare(case: Case, groups: Sequence[str | None], has_boxes: bool) -> list[str]:
    """Groups without an image of a kind, unless chance explains it. Patients count: the images of each are alike."""
    everyone: defaultdict[str, set[str]] = defaultdict(set)
    of_kind: defaultdict[str, set[str]] = defaultdict(set)
    for row, group, count in zip(case.rows, groups, case.counts, strict=True):
        if group is None:
            continue
        patient = row.patient_id or patient_in_name(row.file) or row.somebody
        everyone[group].add(patient)
        if bool(count) == has_boxes:
            of_kind[group].add(patient)
    share = sum(map(len, of_kind.values())) / max(1, sum(len(everyone[group]) for group in of_kind))
    return [group for group in everyone if group not in of_kind and (1 - share) ** len(everyone[group]) < _CHANCE]


def _unseen(case: Case) -> Iterator[Defect]:
    """Labels that the training split does not have."""
    images: defaultdict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for place in case.labelled():
        images[place.label][place.row.split].add(place.row.number)
    if not any(_TRAIN in of for of in images.values()) or len(images) * _FEWEST_PER_LABEL > case.labels.total():
        return
    shown: list[tuple[ImageRow | None, str]] = []
    for label, of in images.items():
        if _TRAIN not in of:
            where = (f"{len(one)} {'image' if len(one) == 1 else 'images'} of {split}" for split, one in of.items())
            shown.append((None, f"{label!r:.80} on {', '.join(where)}"))
    if shown:
        yield case.defect("label-not-in-train", shown, of=len(images))


def _unlabelled(case: Case) -> Iterator[Defect]:
    """Sources that have some of the labels and never others, which chance does not explain."""
    images: defaultdict[str, set[str]] = defaultdict(set)
    with_label: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in case.rows:
        source, patient = row.source, row.somebody
        images[source].add(patient)
        for label in {label for label in row.answers[0].labels if isinstance(label, str)}:
            with_label[label][source].add(patient)
    total = sum(map(len, images.values()))
    for source, mine in images.items():
        lacking: dict[str, float] = {}
        for label, of in with_label.items() if len(mine) >= _FEWEST_OF_GROUP else ():
            share = sum(map(len, of.values())) / max(1, total - len(mine))
            if source not in of and (chance := (1 - min(share, 1.0)) ** len(mine)) < _SELDOM:
                lacking[label] = chance
        # A source that shares none is a dataset of its own.
        shares = any(source in of and len(of) > 1 for of in with_label.values())
        if shares and lacking and math.prod(lacking.values()) < _UNLIKELY:
            found = f"{source}: on none of the images of {len(mine)} patients is {', '.join(map(repr, lacking)):.200}."
            yield case.defect("source-without-label", count=len(lacking), of=len(with_label), found=found)


def check_box_shifts(case: Case) -> Iterator[Defect]:
    """The source and the split whose boxes differ most in size or place from those of the same labels elsewhere."""
    table = case.table
    # Boxes that are wrong in all are of another size in some source, too.
    if case.diagnoses:
        return
    yield from _box_shifts(case, ("source", "split"), np.flatnonzero(table.sound & table.first))
    if any(row.readers for row in case.rows):
        yield from _box_shifts(case, ("reader",), np.flatnonzero(table.sound & table.answers))


def _box_shifts(case: Case, columns: Sequence[str], chosen: np.ndarray) -> Iterator[Defect]:
    """Those of sources, splits or readers, among the boxes of some places."""
    table = case.table
    if not len(chosen):
        return
    rows = [table.places[k].row for k in chosen]
    parts = table.parts[chosen]
    sides = parts[:, 2:] - parts[:, :2]
    values = np.concatenate([np.log(sides), parts[:, :2] + sides / 2], axis=1)
    _, labels = np.unique([str(table.places[k].label) for k in chosen], return_inverse=True)
    names, of = np.unique([str(table.places[k].label) for k in chosen], return_counts=True)
    _, patients = np.unique([row.somebody for row in rows], return_inverse=True)
    group_of: dict[str, Callable[[Place], str]] = {
        "source": lambda place: place.row.source,
        "split": lambda place: place.row.split,
        "reader": lambda place: place.drawing.name.removeprefix("reader "),
    }
    drawings = table.drawing[chosen]
    _, first, boxes = np.unique(drawings, return_index=True, return_counts=True)
    for column in columns:
        of_rows = [group_of[column](table.places[k]) for k in chosen]
        groups, found = np.array(of_rows), list[tuple[float, str, str]]()
        # A source of each row says nothing.
        large = [group for group, count in Counter(of_rows).items() if _FEWEST_OF_GROUP <= count < len(of_rows)]
        for group in large:
            mine = groups == group
            # All labels together, each beside its mean elsewhere; then each by itself.
            common = np.bincount(labels[~mine], minlength=len(names))[labels] >= _FEWEST_OF_GROUP
            rest = values.copy()
            for k in np.unique(labels[common]):
                rest[labels == k] -= values[(labels == k) & ~mine].mean(axis=0)
            tests = [("the same labels", common, rest, _FAR)]
            tests += [
                (f"{str(names[k])!r:.60}", labels == k, values, _FAR_OF_LABEL) for k in np.argsort(-of)[:_MOST_TESTED]
            ]
            apart, distance, chance = unlikeness(boxes[:, None], mine[first], patients[first])
            # Sources have labels of their own, and as many boxes as these have.
            if column != "source" and chance < _UNLIKELY and distance >= _FAR:
                found.append((chance, group, f"{apart[0]:+.1f} boxes on an image with boxes"))
            for words, here, numbers, far in tests:
                apart, distance, chance = unlikeness(numbers[here], mine[here], patients[here])
                if chance < _UNLIKELY and distance >= far:
                    (wider, higher), (right, down) = np.exp(apart[:2]), apart[2:]
                    said = f"boxes of {words} are {wider:.2f} times as wide and {higher:.2f} times as high"
                    said += f", and lie {right:+.2f} of the width to the right and {down:+.2f} of the height down"
                    found.append((chance, group, said))
        if found:
            _, group, said = min(found, key=lambda one: one[0])
            shown = [(row, f"{column} {group}") for row, one in zip(rows, of_rows, strict=True) if one == group]
            yield case.defect("box-shift", shown, of=len(rows), found=f"{column} {group}: {said}, beside the others.")


def unlikeness(values: np.ndarray, mine: np.ndarray, patients: np.ndarray) -> tuple[np.ndarray, float, float]:
    """How far a group lies from the others: by each number, in standard deviations, and how seldom by chance.

    Patients count, by their means: Hotelling's test of two samples.

    Args:
        values: (n, numbers).
        mine: (n,), which are of the group.
        patients: (n,), the number of the patient of each.

    Example:
        >>> values = np.random.default_rng(0).normal(0, 1, (60, 2))
        >>> values[:30, 1] += 3
        >>> unlikeness(values, np.arange(60) < 30, np.arange(60))[2] < 1e-9
        True
    """
    who, where, counts = np.unique(np.stack([patients, mine], axis=1), axis=0, return_inverse=True, return_counts=True)
    means = np.stack([np.bincount(where, column) for column in values.T], axis=1) / counts[:, None]
    here, there = means[who[:, 1] == 1], means[who[:, 1] == 0]
    n, m, numbers = len(here), len(there), values.shape[1]
    if min(n, m) < _FEWEST_OF_GROUP:
        return np.zeros(numbers), 0.0, 1.0
    apart = here.mean(axis=0) - there.mean(axis=0)
    spread = np.atleast_2d(np.cov(here.T, ddof=0) * n + np.cov(there.T, ddof=0) * m) / (n + m - 2)
    square = float(apart @ np.linalg.solve(spread + _LEAST_SPREAD**2 * np.eye(numbers), apart))
    freedom = n + m - numbers - 1
    ratio = square * n * m / (n + m) * freedom / (numbers * (n + m - 2))
    return apart, square**0.5, float(f_distribution.sf(ratio, numbers, freedom))


def check_foreign(case: Case) -> Iterator[Defect]:
    """Splits and sources whose boxes are no more at home on their images than on others."""
    if case.diagnoses or case.content is None:
        return
    content, places = case.content
    rows = [case.table.places[k].row for k in places]
    for name, groups in (
        ("source", [row.source for row in rows]),
        ("split", [row.split for row in rows]),
    ):
        for group in dict.fromkeys(groups) if len(set(groups)) > 1 else ():
            mine = np.array(groups) == group
            if shown := content.is_foreign(mine):
                found = (
                    f"{name} {group}: {shown[0]:.2f} in common with boxes of their labels, elsewhere {shown[1]:.2f}."
                )
                here = [(row, f"{name} {group}") for row, is_mine in zip(rows, mine, strict=True) if is_mine]
                yield case.defect("foreign-boxes", here, of=len(rows), found=found)


def check_shortcuts(case: Case) -> Iterator[Defect]:
    """What tells images with boxes from those without, and never looks at what they show: a number, a mark, a word."""
    has_boxes = np.array(case.counts, dtype=bool)
    if min(has_boxes.sum(), (~has_boxes).sum()) < _FEWEST_TOLD:
        return
    sizes = np.array([row.image_size or row.size or (np.nan, np.nan) for row in case.rows], dtype=np.float64)
    looks = np.array([_looks(row) for row in case.rows])
    told = {"size": sizes.prod(axis=1), "shape": sizes[:, 0] / sizes[:, 1], **dict(zip(_LOOKS, looks.T, strict=True))}
    # The darkest and the brightest grey of each part of the image: a mark.
    parts = np.array([_cells(row) for row in case.rows])
    told |= {f"grey at {k % 8}, {k // 8 % 8} of 8 x 8 parts": one for k, one in enumerate(parts.T)}
    with_word: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for row, has in zip(case.rows, case.counts, strict=True):
        # The kind of its file, and the words of its prompt, unless these were found to tell the answer.
        kind = Path(row.file).suffix.casefold().encode() + (row.facts.kind if row.facts else b"")
        words = re.findall(r"\w+", row.prompt or "") if case.found.isdisjoint(_TOLD_BY_PROMPT) else ()
        with_word[bool(has)].update(
            {f"kind of file ({kind!r})", *(f"prompt, with or without {one!r:.40}" for one in words)}
        )
    rights = {
        word: 0.5 + abs(with_word[1][word] / has_boxes.sum() - with_word[0][word] / (~has_boxes).sum()) / 2
        for word in with_word[0] | with_word[1]
    }
    for name, values in told.items():
        known = np.isfinite(values)
        rights[name] = told_apart(values[known], has_boxes[known])
    name = max(rights, key=lambda one: rights[one])
    if rights[name] >= 1 - _MOST_ERRORS:
        found = (
            f"By their {name} alone, {rights[name]:.0%} of the images with boxes and of those without are told apart."
        )
        yield case.defect("shortcut", count=len(case.rows), found=found)


def _cells(row: ImageRow) -> np.ndarray:
    """The darkest and the brightest grey of 8 x 8 parts of an image; nan without pixels."""
    if row.facts is None or (square := row.facts.square) is None:
        return np.full(128, np.nan)
    cells = square.reshape(8, 4, 8, 4)
    return np.concatenate([cells.min(axis=(1, 3)).ravel(), cells.max(axis=(1, 3)).ravel()]).astype(float)


def _looks(row: ImageRow) -> np.ndarray:
    """The :data:`_LOOKS` of an image; nan without pixels."""
    if row.facts is None or (square := row.facts.square) is None:
        return np.full(len(_LOOKS), np.nan)
    small = square.astype(np.float64)
    border = np.concatenate([small[[0, -1]].ravel(), small[1:-1, [0, -1]].ravel()])
    return np.array([small.mean(), small.std(), row.facts.sharpness, border.mean()])


def told_apart(values: np.ndarray, is_so: np.ndarray) -> float:
    """How often a number tells two kinds apart by one limit, on average over both; 0 where one is rare.

    >>> told_apart(np.arange(60), np.arange(60) < 30), told_apart(np.arange(60), np.arange(60) % 2 == 0)
    (1.0, 0.5166666666666667)
    """
    if min(is_so.sum(), (~is_so).sum()) < _FEWEST_TOLD:
        return 0.0
    order = np.argsort(values, kind="stable")
    # Above every limit between two different values.
    limits = np.flatnonzero(np.diff(values[order]) > 0)
    above = np.cumsum(is_so[order][::-1])[::-1][1:] / is_so.sum()
    others = np.cumsum(~is_so[order][::-1])[::-1][1:] / (~is_so).sum()
    return float(np.max(0.5 + np.abs(above - others)[limits] / 2, initial=0.0))


def check_greys(case: Case) -> Iterator[Defect]:
    """Images whose greys are unlike those of their source: inverted and turned ones, and splits that are darker."""
    of_source: defaultdict[str, list[tuple[ImageRow, np.ndarray]]] = defaultdict(list)
    clipped: list[ImageRow] = []
    for row in case.rows:
        if row.facts is None or (square := row.facts.square) is None:
            continue
        if row.facts.greys and row.facts.greys[0] < row.facts.greys[1]:
            of_source[row.source].append((row, square))
            quarter = len(square) // 4
            middle = square[quarter:-quarter, quarter:-quarter]
            if (middle >= _WHITE).mean() >= _CLIPPED:
                clipped.append(row)
    if clipped:
        yield case.defect("clipped-image", [(row, "much of the middle is nothing but white") for row in clipped])
    odd: dict[str, list[tuple[ImageRow | None, str]]] = {name: [] for name in _ODD}
    for images in of_source.values():
        greys = np.array([square for _, square in images])
        # Half the side tells images apart as well.
        side = greys.shape[1] // 2
        greys = greys.reshape(-1, side, 2, side, 2).mean(axis=(2, 4)).reshape(-1, side * side)
        for name, places in zip(_ODD, find_odd(greys), strict=True):
            odd[name] += [(images[k][0], _ODD[name]) for k in places]
    for name, shown in odd.items():
        if shown:
            yield case.defect(name, shown)
    shifts = [
        shift
        for source, images in of_source.items()
        for shift in _shifted([row for row, _ in images], "split", f"{source}, " if source else "", _APART)
    ]
    # Sources that share no finding are datasets of their own.
    labels = {
        source: {label for row, _ in images for label in row.answers[0].labels if isinstance(label, str)}
        for source, images in of_source.items()
    }
    several = Counter(label for mine in labels.values() for label in mine)
    alike = [
        row
        for source, images in of_source.items()
        for row, _ in images
        if any(several[one] > 1 for one in labels[source])
    ]
    shifts += _shifted(alike, "source", "source ", _APART_SOURCES)
    if shifts:
        found = " ".join(words for words, _ in shifts)
        yield case.defect("grey-shift", count=sum(count for _, count in shifts), found=found)


_ODD = {
    "inverted-image": "dark where the other images of its source are bright, and bright where they are dark",
    "turned-image": "like the other images of its source once it is turned",
    "odd-image": "in no way like the other images of its source",
}


def find_odd(greys: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """The places of images that are the negative of what the others have in common, turned, or quite unlike it.

    Args:
        greys: (n, side * side) of any numbers.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> images = np.outer([1, 4, 2, 1], [1, 2, 5, 1]) + rng.normal(0, 1, (30, 4, 4))
        >>> images[4], images[7] = 20 - images[4], images[7].T[::-1]
        >>> find_odd(images.reshape(30, 16))
        ([4], [7], [])
    """
    if len(greys) < _FEWEST_IMAGES:
        return [], [], []
    images = greys.astype(np.float64)
    images -= images.mean(axis=1, keepdims=True)
    images /= np.linalg.norm(images, axis=1, keepdims=True) + 1e-9
    # What they have in common, up to its sign: the mean would vanish where half of them are inverted.
    common = np.linalg.eigh(images.T @ images)[1][:, -1]
    cosines = images @ common
    sign = np.sign(np.median(cosines)) or 1.0
    cosines *= sign
    if np.median(np.abs(cosines)) < _ALIKE:
        return [], [], []
    side = round(greys.shape[1] ** 0.5)
    square = common.reshape(side, side) * sign
    turned = np.max([images @ np.rot90(square, k).ravel() for k in (1, 2, 3)], axis=0)
    # Cut-outs of every size look like anything.
    if np.quantile(np.maximum(np.abs(cosines), turned), _FEW) < _ALIKE:
        return [], [], []
    # Turning may exchange black and white: what is as like the negative is taken for that.
    is_turned = (turned >= _ALIKE) & (turned - np.abs(cosines) >= _CLEARER) & (turned - cosines >= _TURNED)
    # An image of the other side of the body may be as unlike, and is like once it is mirrored.
    otherwise = np.maximum(turned, images @ square[:, ::-1].ravel())
    is_inverted = (cosines <= _INVERTED) & (-cosines - otherwise >= _CLEARER)
    best = np.maximum(np.abs(cosines), otherwise)
    is_odd = best < _UNLIKE
    is_odd &= is_odd.sum() >= _FEWEST_ODD and (best[~is_odd] >= _LIKE).all()
    return tuple(np.flatnonzero(one).tolist() for one in (is_inverted, is_turned, is_odd))  # type: ignore[return-value]


def _shifted(rows: list[ImageRow], column: str, prefix: str, apart: float) -> Iterator[tuple[str, int]]:
    """The split or source whose images look least like the rest, in words, and how many images it has."""
    looks = np.array([_looks(row) for row in rows])
    groups = np.array([row.split if column == "split" else str(row.columns.get(column)) for row in rows])
    patients = np.array([row.somebody for row in rows])
    found: list[tuple[float, int, str]] = []
    for group, count in Counter(groups.tolist()).items():
        if count < _FEWEST_OF_SPLIT:
            continue
        both = looks[groups == group], looks[groups != group]
        if min(len(np.unique(patients[is_so])) for is_so in (groups == group, groups != group)) < _FEWEST_OF_SPLIT:
            continue
        means = np.array([one.mean(axis=0) for one in both])
        spreads = np.maximum([one.std(axis=0) for one in both], list(_LOOKS.values()))
        far = np.abs(means[0] - means[1]) / (apart * spreads.max(axis=0))
        # Images of which each was brought to the same greys differ less than others.
        far[:2] = np.maximum(far[:2], (spreads[1] / spreads[0] / _EVENER)[:2])
        k = int(far.argmax())
        if far[k] >= 1:
            here, there = (f"{mean:.3g} ± {std:.1g}" for mean, std in zip(means[:, k], spreads[:, k], strict=True))
            found.append((far[k], -count, f"{prefix}{group}: the {list(_LOOKS)[k]} is {here}, elsewhere {there}."))
    # Of two, one is as far from the other: the smaller one is named.
    if found:
        _, count, words = max(found)
        yield words, -count
