"""Checks of splits and sources against each other: findings, labels, greys, and the frame on which boxes are drawn.

Greys take images of one source to be alike: all chest radiographs are dark in the middle of each half.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from grounding_rewards.data.patients import patient_in_name
from grounding_rewards.doctor.case import Case
from grounding_rewards.doctor.defects import Defect
from grounding_rewards.doctor.raw_rows import ImageRow
from grounding_rewards.sources.base import SPLIT_NAMES, split_name

_TRAIN = "train"
# How seldom chance alone leaves a kind of image out of a split.
_CHANCE = 1e-3
# With fewer boxes per label these are free phrases, each of which occurs once.
_FEWEST_PER_LABEL = 3
# A source is compared by this many boxes and, with the others, by labels with so many boxes there.
_FEWEST_BOXES, _FEWEST_OF_LABEL = 50, 5
# Boxes of a source that are smaller than this beside the others', by this many standard errors, are of another frame.
_LARGEST_SCALE, _STANDARD_ERRORS = 0.93, 3.5
# Beside the scale, means agree up to this many standard errors and this part of the image.
_AGREE, _SLACK = 3.0, 0.01
_FEWEST_IMAGES = 20
# Images of one source are alike if half of them correlate so far with what they have in common; inverted ones do the
# other way, and turned ones do by so much more once they are turned back; by less, they are as like the negative. All
# but so few correlate as far in one of these ways, or nothing can be told.
_ALIKE, _INVERTED, _TURNED, _CLEARER, _FEW = 0.5, -0.3, 0.4, 0.1, 0.2
# So many images with boxes, and so many without, are told apart by one number if it errs in so few of each, on average.
_FEWEST_TOLD, _MOST_ERRORS = 20, 0.04
# So large a part of the middle of an image is clipped if it is white in so many cells of its copy.
_WHITE, _CLIPPED = 254, 0.25
# Splits of so many images are of different greys if their means are so many standard deviations apart.
_FEWEST_OF_SPLIT, _APART = 10, 2.0


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
        patient = row.patient_id or patient_in_name(row.file) or f"{row.split} {row.number}"
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


def check_scales(case: Case) -> Iterator[Defect]:
    """Sources whose boxes lie as those of the others, on a smaller frame."""
    table = case.table
    # Boxes that are wrong in all are smaller in some source, too.
    if case.diagnoses:
        return
    chosen = np.flatnonzero(table.sound & table.answers)
    named = [k for k in chosen if table.places[k].row.columns.get("source") is not None]
    sources = np.array([str(table.places[k].row.columns["source"]) for k in named])
    labels = np.array([str(table.places[k].label) for k in named])
    for source in dict.fromkeys(sources.tolist()):
        if scale := _scale_of(sources == source, labels, table.parts[named]):
            shown = [table.places[k].row for k, one in zip(named, sources, strict=True) if one == source]
            found = (
                f"Source {source}: edges of boxes lie at {scale:.2f} times the place of those of the same labels "
                f"elsewhere, and none reaches beyond."
            )
            yield case.defect("source-scale", [(row, f"source {source}") for row in shown], of=len(named), found=found)


def _scale_of(mine: np.ndarray, labels: np.ndarray, parts: np.ndarray) -> float | None:
    """By how much smaller the boxes of a source are drawn towards the corner than others of the same labels; or None.

    Args:
        mine: (n,), which boxes are of the source.
        labels: (n,), of all boxes.
        parts: (n, 4), the boxes in parts of the image.
    """
    names, numbers = np.unique(labels, return_inverse=True)
    counts = np.bincount(numbers[~mine], minlength=len(names))
    shared = (counts >= _FEWEST_OF_LABEL)[numbers]
    here, there = mine & shared, ~mine & shared
    if min(here.sum(), there.sum()) < _FEWEST_BOXES:
        return None
    means, variance = parts[here].mean(axis=0), parts[here].var(axis=0) / here.sum()
    expected = np.zeros(4)
    for label in np.unique(numbers[here]):
        weight = np.mean(numbers[here] == label)
        others = parts[there & (numbers == label)]
        expected += weight * others.mean(axis=0)
        variance += weight**2 * others.var(axis=0) / len(others)
    errors = np.sqrt(variance)
    # How far boxes reach tells the scale; that their means follow it tells that findings are not merely elsewhere.
    reach, other_reach = (float(np.quantile(parts[one, 2:].max(axis=1), 0.99)) for one in (here, there))
    scale = reach / other_reach
    is_scaled = (
        scale <= _LARGEST_SCALE
        and (expected - means >= _STANDARD_ERRORS * errors)[2:].all()
        and (np.abs(means - scale * expected) <= _AGREE * errors + _SLACK).all()
    )
    return scale if is_scaled else None


def check_foreign(case: Case) -> Iterator[Defect]:
    """Splits and sources whose boxes are no more at home on their images than on others."""
    if case.diagnoses or case.content is None:
        return
    content, places = case.content
    rows = [case.table.places[k].row for k in places]
    for name, groups in (
        ("source", [str(row.columns.get("source", "")) for row in rows]),
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
    """A number that tells images with boxes from those without, and never looks at what they show."""
    has_boxes = np.array(case.counts, dtype=bool)
    if min(has_boxes.sum(), (~has_boxes).sum()) < _FEWEST_TOLD:
        return
    sizes = np.array([row.image_size or row.size or (np.nan, np.nan) for row in case.rows], dtype=np.float64)
    smalls = [row.facts.small if row.facts else b"" for row in case.rows]
    told: dict[str, np.ndarray] = {
        "size": sizes.prod(axis=1),
        "shape": sizes[:, 0] / sizes[:, 1],
        "mean grey": np.array([sum(small) / len(small) if small else np.nan for small in smalls]),
        "kind of file": np.array([hash(Path(row.file).suffix.casefold()) for row in case.rows], dtype=np.float64),
    }
    for name, values in told.items():
        known = np.isfinite(values)
        right = told_apart(values[known], has_boxes[known])
        if right >= 1 - _MOST_ERRORS:
            found = f"By their {name} alone, {right:.0%} of the images with boxes and of those without are told apart."
            yield case.defect("shortcut", count=len(case.rows), found=found)
            return


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
    of_source: defaultdict[str, list[tuple[ImageRow, bytes]]] = defaultdict(list)
    clipped: list[ImageRow] = []
    for row in case.rows:
        if row.facts and row.facts.small and row.facts.greys and row.facts.greys[0] < row.facts.greys[1]:
            of_source[str(row.columns.get("source", ""))].append((row, row.facts.small))
            side = round(len(row.facts.small) ** 0.5)
            middle = np.frombuffer(row.facts.small, dtype=np.uint8).reshape(side, side)[
                side // 4 : -side // 4, side // 4 : -side // 4
            ]
            if (middle >= _WHITE).mean() >= _CLIPPED:
                clipped.append(row)
    if clipped:
        yield case.defect("clipped-image", [(row, "much of the middle is nothing but white") for row in clipped])
    odd: dict[str, list[tuple[ImageRow | None, str]]] = {"inverted-image": [], "turned-image": []}
    for images in of_source.values():
        greys = np.array([np.frombuffer(small, dtype=np.uint8) for _, small in images])
        # Half the side tells images apart as well.
        side = round(greys.shape[1] ** 0.5) // 2
        greys = greys.reshape(-1, side, 2, side, 2).mean(axis=(2, 4)).reshape(-1, side * side)
        for name, places, words in zip(odd, find_odd(greys), _ODD, strict=True):
            odd[name] += [(images[k][0], words) for k in places]
    for name, shown in odd.items():
        if shown:
            yield case.defect(name, shown)
    shifts = [
        shift
        for source, images in of_source.items()
        for shift in _shifted_splits(
            source, [row for row, _ in images], [sum(small) / len(small) for _, small in images]
        )
    ]
    if shifts:
        found = " ".join(words for words, _ in shifts)
        yield case.defect("grey-shift", count=sum(count for _, count in shifts), found=found)


_ODD = (
    "dark where the other images of its source are bright, and bright where they are dark",
    "like the other images of its source once it is turned",
)


def find_odd(greys: np.ndarray) -> tuple[list[int], list[int]]:
    """The places of images that are the negative of what the others have in common, and of those that are turned.

    Args:
        greys: (n, side * side) of any numbers.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> images = np.outer([1, 4, 2, 1], [1, 2, 5, 1]) + rng.normal(0, 1, (30, 4, 4))
        >>> images[4], images[7] = 20 - images[4], images[7].T[::-1]
        >>> find_odd(images.reshape(30, 16))
        ([4], [7])
    """
    if len(greys) < _FEWEST_IMAGES:
        return [], []
    images = greys.astype(np.float64)
    images -= images.mean(axis=1, keepdims=True)
    images /= np.linalg.norm(images, axis=1, keepdims=True) + 1e-9
    # What they have in common, up to its sign: the mean would vanish where half of them are inverted.
    common = np.linalg.eigh(images.T @ images)[1][:, -1]
    cosines = images @ common
    sign = np.sign(np.median(cosines)) or 1.0
    cosines *= sign
    if np.median(np.abs(cosines)) < _ALIKE:
        return [], []
    side = round(greys.shape[1] ** 0.5)
    square = common.reshape(side, side) * sign
    turned = np.max([images @ np.rot90(square, k).ravel() for k in (1, 2, 3)], axis=0)
    # Cut-outs of every size look like anything.
    if np.quantile(np.maximum(np.abs(cosines), turned), _FEW) < _ALIKE:
        return [], []
    # Turning may exchange black and white: what is as like the negative is taken for that.
    is_turned = (turned >= _ALIKE) & (turned - np.abs(cosines) >= _CLEARER) & (turned - cosines >= _TURNED)
    # An image of the other side of the body may be as unlike, and is like once it is mirrored.
    otherwise = np.maximum(turned, images @ square[:, ::-1].ravel())
    is_inverted = (cosines <= _INVERTED) & (-cosines - otherwise >= _CLEARER)
    return np.flatnonzero(is_inverted).tolist(), np.flatnonzero(is_turned).tolist()


def _shifted_splits(source: str, rows: list[ImageRow], means: list[float]) -> Iterator[tuple[str, int]]:
    """Splits of a source that are darker or lighter than its other images, in words, and how many images they have."""
    greys, splits = np.array(means), np.array([row.split for row in rows])
    for split, count in Counter(splits.tolist()).items():
        first, others = greys[splits == split], greys[splits != split]
        if min(len(first), len(others)) < _FEWEST_OF_SPLIT:
            continue
        if abs(first.mean() - others.mean()) >= _APART * max(first.std(), others.std(), 1.0):
            where = f"{source}, {split}" if source else split
            yield f"{where}: the mean grey is {first.mean():.0f} of 255, elsewhere {others.mean():.0f}.", count
            # Of two splits, the other one is as far from this one.
            return
