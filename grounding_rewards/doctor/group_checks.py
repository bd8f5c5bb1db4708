"""Who differs? Each split, source and reader beside all others, in what its boxes and images are like.

A feature is a number, or several, of each box or image. Those of a group are compared with others of their kind (boxes
of one label, images of one source) by the means of patients: one test for all of them, and a distance below which a
difference says nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import f as f_distribution

from grounding_rewards.doctor.case import PART_OF_FILE, Case, Defect
from grounding_rewards.doctor.raw_rows import LOOKS, ImageRow

# A group differs if chance makes it so less often than this; in greys, where it must be farther, than that. It and the
# others have so many patients at least, and of each column so many groups are compared, the largest.
_UNLIKELY, _UNLIKELY_GREYS, _FEWEST, _MOST_GROUPS = 1e-7, 1e-4, 8, 50
# In standard deviations: boxes of all labels, and of one of so many; images of splits, and of sources; and how near
# images that were each brought to the same greys lie to their middle.
_FAR, _FAR_OF_LABEL, _MOST_LABELS, _FAR_GREY, _FAR_GREY_OF_SOURCE, _EVENER = 0.6, 1.5, 50, 2.0, 2.3, 1.9
# The least standard deviation that is thought of: of places, in parts of the image, and of logarithms of sides.
_LEAST_SPREAD = 0.02
# So many images with boxes, and so many without, are told apart by one number if it errs in so few of each, on average.
_FEWEST_TOLD, _MOST_ERRORS = 20, 0.04
# So are those of so many labels.
_MOST_TOLD_LABELS = 12
# Of more images some are looked at.
_MOST_TOLD = 2000
# Findings that say it already where prompts tell the images apart.
_TOLD_BY_PROMPT = {"answer-in-prompt", "count-in-prompt", "prompt-contradiction"}
# So many images at one end, and at most so large a part of those of their source, are apart from all others by a gap of
# so many deviations, and of more where they are few: in so many images, a gap of one occurs by chance.
# The column of the spacing of pixels, and the least deviations of logarithms of sides and of shapes.
_SPACING = re.compile(r"((imager_?)?pixel_?)?spacing(_mm)?|mm_per_pixel|pixel_size(_mm)?", re.IGNORECASE)
_LEAST_OF_SIDE, _LEAST_OF_SHAPE = 0.25, 0.02
_FEWEST_APART, _MOST_APART, _GAP, _GAP_OF_FEW, _FEWEST_OF_SOURCE = 6, 0.3, 1.8, 18.0, 30


class Feature(NamedTuple):
    """Numbers of boxes or images in which groups should not differ.

    name: of what is compared.
    values: (n, numbers).
    kinds: (n,), the number of the kind of each: it is compared with others of its kind.
    far: in how many standard deviations a difference counts.
    said: the mean differences in words.
    """

    name: str
    values: np.ndarray
    kinds: np.ndarray
    far: float
    said: Callable[[np.ndarray], str]


class GroupDifference(NamedTuple):
    """A group that differs: how seldom chance makes it so, its name, what differs, and which are its items."""

    chance: float
    group: str
    said: str
    mine: np.ndarray


def differing(
    feature: Feature, groups: np.ndarray, patients: np.ndarray, unlikely: float = _UNLIKELY
) -> Iterator[GroupDifference]:
    """The groups that differ from all others in a feature.

    Args:
        feature: of items.
        groups: (n,), the group of each; empty for none.
        patients: (n,), the number of the patient of each.
        unlikely: how seldom chance alone makes a group differ so.
    """
    _, kinds = np.unique(feature.kinds, return_inverse=True)
    for group, count in Counter(groups.tolist()).most_common(_MOST_GROUPS):
        if not group or not _FEWEST <= count < len(groups):
            continue
        mine = groups == group
        others = np.bincount(kinds[~mine], minlength=len(kinds))[kinds]
        known = others >= _FEWEST
        sums = [np.bincount(kinds[~mine], column[~mine], minlength=len(kinds)) for column in feature.values.T]
        rest = feature.values - np.stack(sums, axis=1)[kinds] / np.maximum(others, 1)[:, None]
        apart, distance, chance = unlikeness(rest[known], mine[known], patients[known])
        if chance < unlikely and distance >= feature.far:
            yield GroupDifference(chance, group, feature.said(apart), mine)


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
    if min(n, m) < _FEWEST:
        return np.zeros(numbers), 0.0, 1.0
    apart = here.mean(axis=0) - there.mean(axis=0)
    spread = np.atleast_2d(np.cov(here.T, ddof=0) * n + np.cov(there.T, ddof=0) * m) / (n + m - 2)
    square = float(apart @ np.linalg.solve(spread + _LEAST_SPREAD**2 * np.eye(numbers), apart))
    freedom = n + m - numbers - 1
    ratio = square * n * m / (n + m) * freedom / (numbers * (n + m - 2))
    return apart, square**0.5, float(f_distribution.sf(ratio, numbers, freedom))


def check_differences(case: Case) -> Iterator[Defect]:
    """Of each column, the group that differs most from the others: in its boxes, and in what its images look like."""
    columns = case.columns
    table = case.table
    # Boxes that are wrong in all are of another size in some source, too.
    if not case.misread:
        yield from _differing_boxes(case, np.flatnonzero(table.sound & table.first), columns)
        if any(row.readers for row in case.rows):
            yield from _differing_boxes(case, np.flatnonzero(table.sound & table.answers), {})
    yield from _differing_images(case, columns)


def _differing_boxes(case: Case, chosen: np.ndarray, columns: Mapping[str, np.ndarray]) -> Iterator[Defect]:
    """Groups whose boxes are of another size, number or place than those of the same labels elsewhere."""
    table = case.table
    if not len(chosen):
        return
    places = [table.places[k] for k in chosen]
    groups = {name: mine[table.rows[chosen]] for name, mine in columns.items()} or {
        "reader": np.array([place.drawing.name.removeprefix("reader ") for place in places], dtype=np.str_)
    }
    parts = table.parts[chosen]
    sides = parts[:, 2:] - parts[:, :2]
    values = np.concatenate([np.log(sides), parts[:, :2] + sides / 2], axis=1)
    names, labels, of = np.unique([str(place.label) for place in places], return_inverse=True, return_counts=True)
    patients = np.unique([place.row.somebody for place in places], return_inverse=True)[1]
    first, boxes = np.array([(here[0], len(here)) for here in table.by_image(chosen)]).T

    def moved(words: str) -> Callable[[np.ndarray], str]:
        def said(apart: np.ndarray) -> str:
            (wider, higher), (right, down) = np.exp(apart[:2]), apart[2:]
            return (
                f"boxes of {words} are {wider:.2f} times as wide and {higher:.2f} times as high, and lie {right:+.2f} "
                f"of the width to the right and {down:+.2f} of the height down"
            )

        return said

    everything = np.arange(len(chosen))
    features = [(everything, Feature("boxes", values, labels, _FAR, moved("the same labels")))]
    for k in np.argsort(-of)[:_MOST_LABELS]:
        here = np.flatnonzero(labels == k)
        words = moved(f"{str(names[k])!r:.60}")
        features.append((here, Feature("boxes of a label", values[here], labels[here], _FAR_OF_LABEL, words)))
    counts = Feature(
        "number",
        boxes[:, None].astype(float),
        np.zeros(len(boxes), dtype=int),
        _FAR,
        lambda apart: f"{apart[0]:+.1f} boxes on an image with boxes",
    )
    for column, mine in groups.items():
        # Files may be sorted by the place of findings.
        if column == PART_OF_FILE:
            continue
        # Sources have labels of their own, and as many boxes as these have.
        of_column = [*features, (first, counts)] if column in ("split", "reader") else features
        found = [one for here, feature in of_column for one in differing(feature, mine[here], patients[here])]
        if found:
            best = min(found, key=_by_clearness)
            shown = [(places[k].row, f"{column} {best.group}") for k in np.flatnonzero(mine == best.group)]
            apart = f"{column} {best.group}: {best.said}, beside the others."
            yield case.defect("box-shift", shown, of=len(chosen), found=apart)


def _differing_images(case: Case, columns: Mapping[str, np.ndarray]) -> Iterator[Defect]:
    """Splits and sources whose images are darker, flatter, blurred or framed otherwise, or each made alike."""
    patients = np.unique([row.somebody for row in case.rows], return_inverse=True)[1]
    sources = np.array([row.source for row in case.rows], dtype=np.str_)
    found: list[tuple[str, GroupDifference]] = []
    for column, groups in columns.items():
        # Those of a split are compared with others of their source; a source that shares no finding is another dataset.
        is_split = column == "split"
        sharing = np.ones(len(sources), dtype=bool) if is_split else _sharing(case.rows, groups)
        if column == PART_OF_FILE:
            continue
        here: list[GroupDifference] = []
        for name, least in LOOKS.items():
            chosen = sharing & np.isfinite(case.looks[name])
            if not chosen.any():
                continue
            look = case.looks[name][chosen]
            kinds = np.unique(np.where(is_split, sources, "")[chosen], return_inverse=True)[1]
            middles = np.array([np.median(look[kinds == kind]) for kind in range(kinds.max() + 1)])
            near = np.log(np.abs(look - middles[kinds]) + least)
            far = _FAR_GREY if is_split else _FAR_GREY_OF_SOURCE
            for values, least_far in ((look / least * _LEAST_SPREAD, far), (near, _EVENER)):
                feature = Feature(name, values[:, None], kinds, least_far, lambda _: "")
                for one in differing(feature, groups[chosen], patients[chosen], _UNLIKELY_GREYS):
                    both = look[one.mine], look[~one.mine]
                    mine, others = (f"{part.mean():.3g} ± {part.std():.1g}" for part in both)
                    here.append(one._replace(said=f"the {feature.name} is {mine}, elsewhere {others}"))
        if here:
            found.append((column, min(here, key=_by_clearness)))
    if found:
        words = " ".join(f"{column} {one.group}: {one.said}." for column, one in found)
        yield case.defect("grey-shift", count=sum(int(one.mine.sum()) for _, one in found), found=words)


def _by_clearness(one: GroupDifference) -> tuple[float, int]:
    """The least chance first; of two groups that differ from each other, the smaller one."""
    return float(f"{one.chance:.6g}"), int(one.mine.sum())


def _sharing(rows: list[ImageRow], groups: np.ndarray) -> np.ndarray:
    """Which rows are of groups that have a label in common with another group."""
    labels: defaultdict[str, set[str]] = defaultdict(set)
    for row, group in zip(rows, groups.tolist(), strict=True):
        labels[group] |= labels_of(row)
    several = Counter(label for mine in labels.values() for label in mine)
    sharing = [group for group, mine in labels.items() if any(several[label] > 1 for label in mine)]
    return np.isin(groups, sharing)


def labels_of(row: ImageRow) -> set[str]:
    """The labels of a row's first right answer."""
    return {label for label in row.answers[0].labels if isinstance(label, str)}


def check_apart(case: Case) -> Iterator[Defect]:
    """A few images that one number sets apart from all others of their source, or whose sizes contradict each other."""
    for name, (values, least) in _proportions(case.rows).items():
        known = np.flatnonzero(np.isfinite(values))
        away = np.abs(values[known] - np.median(values[known])) if len(known) else values[known]
        few = known[set_apart(away, least)[1]]
        if len(few):
            found = f"{name} differs in {len(few)} of {len(known)} images from that of all others."
            yield case.defect(
                "size-apart", [(case.rows[k], f"{name} is another") for k in np.sort(few).tolist()], found=found
            )
    sources = np.unique([row.source for row in case.rows], return_inverse=True)[1]
    best: tuple[float, str, np.ndarray] = (0.0, "", np.array([]))
    # Greys have long tails.
    for name in [name for name in case.looks if name.startswith("log")]:
        values = case.looks[name]
        for source in range(sources.max(initial=-1) + 1):
            here = np.flatnonzero((sources == source) & np.isfinite(values))
            gap, few = set_apart(values[here], LOOKS[name])
            if gap > best[0]:
                others = np.delete(values[here], few)
                words = f"The {name} of {len(few)} images is {np.median(values[here][few]):.3g}, of the others "
                best = gap, f"{words}{others.min():.3g} to {others.max():.3g}.", here[few]
    if best[0] and "grey-shift" not in case.found:
        shown = [(case.rows[k], "stands apart from the others of its source") for k in np.sort(best[2]).tolist()]
        yield case.defect("images-apart", shown, found=best[1])


def _proportions(rows: list[ImageRow]) -> dict[str, tuple[np.ndarray, float]]:
    """Logarithms of what hardly differs between images: the shape beside the original one, and sides in millimetres.

    Each with the least deviation that is thought of.
    """
    names = dict.fromkeys(name for row in rows for name in row.columns)
    numbers: dict[str, tuple[np.ndarray, float]] = {}

    def column(name: str) -> np.ndarray:
        given = (row.columns.get(name) for row in rows)
        first = (one[0] if isinstance(one, list | tuple) and one else one for one in given)
        return np.array([float(one) if isinstance(one, int | float) and one > 0 else np.nan for one in first])

    sizes = np.array([row.size or (np.nan, np.nan) for row in rows], dtype=np.float64).reshape(-1, 2)
    for name in names:
        other = name.replace("width", "height")
        if _SPACING.fullmatch(name):
            numbers[f"{name} × the longer side"] = np.log(column(name) * sizes.max(axis=1)), _LEAST_OF_SIDE
        elif name not in ("width", "resized_width") and other != name and other in names:
            shape = column(name) / column(other) * sizes[:, 1] / sizes[:, 0]
            numbers[f"{name} : {other} beside width : height"] = np.log(shape), _LEAST_OF_SHAPE
    return numbers


def set_apart(values: np.ndarray, least: float) -> tuple[float, np.ndarray]:
    """A few values at one end, with a gap between them and all others, and how many deviations it is; 0 without one.

    >>> set_apart(np.array([*np.arange(40.0), *range(95, 101)]), 1.0)[1].tolist()
    [45, 44, 43, 42, 41, 40]
    """
    best: tuple[float, np.ndarray] = (0.0, np.array([], dtype=int))
    most = int(_MOST_APART * len(values))
    if len(values) < _FEWEST_OF_SOURCE or most < _FEWEST_APART:
        return best
    low, high = np.quantile(values, (0.25, 0.75))
    order = np.argsort(values)
    for from_end in (order, order[::-1]):
        gaps = np.abs(np.diff(values[from_end]))[_FEWEST_APART - 1 : most] / max(least, (high - low) / 1.35)
        few = np.arange(_FEWEST_APART, _FEWEST_APART + len(gaps))
        gaps[gaps < np.maximum(_GAP, _GAP_OF_FEW / few)] = 0
        if gaps.max() > best[0]:
            best = float(gaps.max()), from_end[: few[gaps.argmax()]]
    return best


def check_shortcuts(case: Case) -> Iterator[Defect]:
    """What tells images with boxes from those without, or those of a label, and never looks at what they show."""
    step = max(1, len(case.rows) // _MOST_TOLD)
    rows, has_boxes = case.rows[::step], np.array(case.counts, dtype=bool)[::step]
    sizes = np.array([row.image_size or row.size or (np.nan, np.nan) for row in rows], dtype=np.float64).reshape(-1, 2)
    numbers = {"size": sizes.prod(axis=1), "shape": sizes[:, 0] / sizes[:, 1]}
    # The kind of its file, and the words of its prompt, unless these were found to tell the answer.
    words = [{f"kind of file ({Path(row.file).suffix} {row.facts.kind if row.facts else b''!r})"} for row in rows]
    numbers |= _occurring(words)
    # The darkest and the brightest grey of each part of the image: a mark.
    cells = np.array([_cells(row) for row in rows]).reshape(-1, 128).T
    marks = {f"grey at {k % 8}, {k // 8 % 8} of 8 x 8 parts": one for k, one in enumerate(cells)}
    # What is seen at the border, and how fine images are, no finding changes.
    beside = [name for k, name in enumerate(marks) if {k % 8, k // 8 % 8} & {0, 7}]
    alone = numbers | {name: marks[name] for name in beside}
    alone |= {name: values[::step] for name, values in case.looks.items() if name.startswith("logarithm of the e")}
    numbers |= {name: values[::step] for name, values in case.looks.items()} | marks
    if case.found.isdisjoint(_TOLD_BY_PROMPT):
        labels = [label.casefold() for label, _ in case.labels.most_common(_MOST_LABELS)]
        prompts = [row.prompt or "" for row in rows]
        named = [sum(label in prompt.casefold() for label in labels) for prompt in prompts]
        numbers["prompt, by how many labels it names,"] = np.array(named, dtype=np.float64)
        numbers |= _occurring(
            [{f"prompt, with or without {word!r:.40}" for word in re.findall(r"\w+", prompt)} for prompt in prompts]
        )
    kinds = [("boxes", has_boxes, numbers, np.ones(len(rows), dtype=bool))]
    for label, _ in case.labels.most_common(_MOST_TOLD_LABELS):
        kinds.append((f"boxes of {label!r:.60}", np.array([label in labels_of(row) for row in rows]), alone, has_boxes))
    for kind, is_so, of_kind, among in kinds:
        if min(is_so[among].sum(), (~is_so[among]).sum()) < _FEWEST_TOLD:
            continue
        rights = {name: told_apart(values[among], is_so[among]) for name, values in of_kind.items()}
        name = max(rights, key=lambda one: rights[one])
        if rights[name] >= 1 - _MOST_ERRORS:
            found = f"By their {name} alone, {rights[name]:.0%} of the images with {kind} and of those without are "
            yield case.defect("shortcut", count=len(case.rows), found=f"{found}told apart.")
            return


def _occurring(words: list[set[str]]) -> dict[str, np.ndarray]:
    """Which rows have each word that some have and some have not."""
    counts = Counter(word for mine in words for word in mine)
    some = [word for word, count in counts.items() if min(count, len(words) - count) >= _FEWEST_TOLD]
    return {word: np.array([word in mine for mine in words], dtype=np.float64) for word in some}


def _cells(row: ImageRow) -> np.ndarray:
    """The darkest and the brightest grey of 8 x 8 parts of an image; nan without pixels."""
    if row.facts is None or (square := row.facts.square) is None:
        return np.full(128, np.nan)
    cells = square.reshape(8, 4, 8, 4)
    return np.concatenate([cells.min(axis=(1, 3)).ravel(), cells.max(axis=(1, 3)).ravel()]).astype(float)


def told_apart(values: np.ndarray, is_so: np.ndarray) -> float:
    """How often a number tells two kinds apart by one limit, on average over both; 0 where one is rare.

    >>> told_apart(np.arange(60.0), np.arange(60) < 30), told_apart(np.arange(60.0), np.arange(60) % 2 == 0)
    (1.0, 0.5166666666666667)
    """
    known = np.isfinite(values)
    values, is_so = values[known], is_so[known]
    if min(is_so.sum(), (~is_so).sum()) < _FEWEST_TOLD:
        return 0.0
    order = np.argsort(values, kind="stable")
    # Below every limit between two different values.
    below, others = (np.cumsum(kind[order])[:-1] / kind.sum() for kind in (is_so, ~is_so))
    return float(np.max(0.5 + np.abs(below - others)[np.diff(values[order]) > 0] / 2, initial=0.0))
