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
from grounding_rewards.doctor.raw_rows import ImageRow

# A group differs if chance makes it so less often than this; in greys, where it must be farther, than that. It and the
# others have so many patients at least, and of each column so many groups are compared, the largest.
_UNLIKELY, _UNLIKELY_GREYS, _FEWEST, _MOST_GROUPS = 1e-7, 1e-4, 8, 50
# In standard deviations: boxes of all labels, and of one of so many; images of splits, and of sources; and how near
# images that were each brought to the same greys lie to their middle.
_FAR, _FAR_OF_LABEL, _FAR_OF_KIND, _MOST_LABELS, _FAR_GREY, _FAR_GREY_OF_SOURCE, _EVENER = (
    0.6,
    1.5,
    1.5,
    50,
    2.0,
    2.3,
    1.9,
)
# The least standard deviation that is thought of: of places, in parts of the image, and of logarithms of sides.
_LEAST_SPREAD = 0.02
# So many images with boxes, and so many without, are told apart by one number if it errs in so few of each, on average.
_FEWEST_TOLD, _MOST_ERRORS = 20, 0.04
# Values of a column whose images show another side of the body, or other planes.
_ELSEWHERE = re.compile(r"lat|obl|axi|cor|sag|^(l|r|left|right|[lr]?-?(cc|mlo))$", re.IGNORECASE)
# Of more images some are looked at.
_MOST_TOLD = 2000
# Findings that say it already where prompts tell the images apart.
_TOLD_BY_PROMPT = {"answer-in-prompt", "count-in-prompt", "prompt-contradiction"}
# What images look like as a whole: the least deviation that is thought of, and what those far below and far above all
# others of their source are, if they are of another quality.
_LOOKS = {
    "mean grey": (1.0, "", ""),
    "contrast": (2.0, "", ""),
    "grey of the border": (10.0, "", ""),
    "logarithm of missing greys": (0.5, "", "of few greys, or compressed too far"),
    "logarithm of columns by rows": (0.3, "uneven in its rows", "striped, or its rows are shifted"),
    "part that is black or white": (0.5, "", "cut off at black or white"),
    "logarithm of the fineness": (0.15, "blurred or enlarged", "noisy or sharpened"),
    "logarithm of the sharpness": (0.1, "", ""),
    "logarithm of the reach of greys": (1.2, "flat: it has few of the greys", ""),
    "logarithm of the shorter side": (2.0, "tiny", ""),
}
# Some are unlike the others if the gap between is this part of the spread of the others, and the more the fewer images
# there are: of fifteen clean sets, real, drawn and of two scanners, none has a gap above 0.18, and none of 2,100 drawn
# parts of 40 to 200 images one above the limit. Or so many greys are missing: equalised images are at 1.75.
_FEWEST_IMAGES, _FEWEST_APART, _GAP, _MORE_OF_FEW, _MISSING = 40, 3, 0.23, 20, 2.2
# Sides above this many pixels are all large.
_LARGE = 256


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
        # Findings of a side view lie elsewhere, and parts of the image are other ones in images of another shape.
        kinds = {
            name: mine
            for name, mine in case.other_columns.items()
            if name != "shape" and not any(map(_ELSEWHERE.search, mine.tolist()))
        }
        yield from _differing_boxes(case, np.flatnonzero(table.sound & table.first), kinds | columns)
        if any(row.readers for row in case.rows):
            yield from _differing_boxes(case, np.flatnonzero(table.sound & table.answers), {})
    looks = np.array([_looks(row) for row in case.rows]).reshape(-1, len(_LOOKS))
    yield from _differing_images(case, columns, looks)
    yield from _of_other_quality(case, looks)


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
    _, first, boxes = np.unique(table.drawing[chosen], return_index=True, return_counts=True)

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
        # Of kinds of images, hearts alone may differ; all labels do by 1.13 in clean sets, by 1.54 in planted ones.
        if column in case.other_columns:
            of_column = [(everything, features[0][1]._replace(far=_FAR_OF_KIND))]
        found = [one for here, feature in of_column for one in differing(feature, mine[here], patients[here])]
        if found:
            best = min(found, key=_by_clearness)
            shown = [(places[k].row, f"{column} {best.group}") for k in np.flatnonzero(mine == best.group)]
            apart = f"{column} {best.group}: {best.said}, beside the others."
            yield case.defect("box-shift", shown, of=len(chosen), found=apart)


def _differing_images(case: Case, columns: Mapping[str, np.ndarray], looks: np.ndarray) -> Iterator[Defect]:
    """Splits and sources whose images are darker, flatter, blurred or framed otherwise, or each made alike."""
    known = np.isfinite(looks).all(axis=1)
    patients = np.unique([row.somebody for row in case.rows], return_inverse=True)[1]
    sources = np.array([row.source for row in case.rows], dtype=np.str_)
    found: list[tuple[str, GroupDifference]] = []
    for column, groups in columns.items():
        # Those of a split are compared with others of their source; a source that shares no finding is another dataset.
        is_split = column == "split"
        sharing = np.ones(len(known), dtype=bool) if is_split else _sharing(case.rows, groups)
        chosen = known & sharing
        if column == PART_OF_FILE or not chosen.any():
            continue
        kinds = np.unique(np.where(is_split, sources, ""), return_inverse=True)[1][chosen]
        here: list[GroupDifference] = []
        for (name, (least, *_)), look in zip(_LOOKS.items(), looks[chosen].T, strict=True):
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


def _of_other_quality(case: Case, looks: np.ndarray) -> Iterator[Defect]:
    """Images with a gap between them and the others of their source, in what tells how they were made."""
    sources = np.array([row.source for row in case.rows], dtype=np.str_)
    shown: dict[int, str] = {}
    for (name, (least, low, high)), look in zip(_LOOKS.items(), looks.T, strict=True):
        for source in np.unique(sources):
            here = np.flatnonzero((sources == source) & np.isfinite(look))
            for side, words in ((-1, low), (1, high)):
                apart = far_apart(look[here] * side, least) if words else here[:0]
                if name == "logarithm of missing greys" and words:
                    apart = np.union1d(apart, np.flatnonzero(look[here] >= _MISSING)).astype(int)
                for k in here[apart].tolist():
                    shown.setdefault(
                        k, f"{words}: the {name} is {look[k]:.2g}, half of all are at {np.median(look[here]):.2g}"
                    )
    if shown:
        yield case.defect("odd-quality", [(case.rows[k], words) for k, words in sorted(shown.items())])


def far_apart(values: np.ndarray, least: float) -> np.ndarray:
    """The places of the largest values, if between them and all others, which are most, is a gap.

    Args:
        values: (n,).
        least: is added to the spread of the others.

    Example:
        >>> far_apart(np.append(np.arange(57) % 7, [11, 12, 13]), 1.0).tolist()
        [57, 58, 59]
    """
    order, count = np.argsort(values), len(values)
    if count < _FEWEST_IMAGES:
        return order[:0]
    rising = values[order]
    others = np.arange(count - count // 2, count - _FEWEST_APART + 1)
    spread = rising[(0.95 * others).astype(int)] - rising[(0.05 * others).astype(int)] + least
    gaps = (rising[others] - rising[others - 1]) / np.maximum(spread, 1e-9)
    return np.sort(order[others[gaps.argmax()] :]) if gaps.max() >= _GAP * (1 + _MORE_OF_FEW / count) else order[:0]


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


def _looks(row: ImageRow) -> np.ndarray:
    """The :data:`_LOOKS` of an image; nan without pixels."""
    if row.facts is None or (square := row.facts.square) is None:
        return np.full(len(_LOOKS), np.nan)
    small = square.astype(np.float64)
    border = np.concatenate([small[[0, -1]].ravel(), small[1:-1, [0, -1]].ravel()])
    low, high = row.facts.greys or (0, 255)
    reach, side = np.log(high - low + 1), np.log(min(_LARGE, *row.image_size or (_LARGE,)))
    return np.array([small.mean(), small.std(), border.mean(), *(row.facts.making or [np.nan] * 5), reach, side])


def check_shortcuts(case: Case) -> Iterator[Defect]:
    """What tells images with boxes from those without, and never looks at what they show: a number, a mark, a word."""
    has_boxes = np.array(case.counts, dtype=bool)
    if min(has_boxes.sum(), (~has_boxes).sum()) < _FEWEST_TOLD:
        return
    step = max(1, len(has_boxes) // _MOST_TOLD)
    rows = case.rows[::step]
    sizes = np.array([row.image_size or row.size or (np.nan, np.nan) for row in rows], dtype=np.float64)
    numbers = {"size": sizes.prod(axis=1), "shape": sizes[:, 0] / sizes[:, 1]}
    numbers |= dict(zip(_LOOKS, np.array([_looks(row) for row in rows]).T, strict=True))
    # The darkest and the brightest grey of each part of the image: a mark.
    cells = np.array([_cells(row) for row in rows]).T
    numbers |= {f"grey at {k % 8}, {k // 8 % 8} of 8 x 8 parts": one for k, one in enumerate(cells)}
    # The kind of its file, and the words of its prompt, unless these were found to tell the answer.
    words = [{f"kind of file ({Path(row.file).suffix} {row.facts.kind if row.facts else b''!r})"} for row in rows]
    if case.found.isdisjoint(_TOLD_BY_PROMPT):
        labels = [label.casefold() for label, _ in case.labels.most_common(_MOST_LABELS)]
        prompts = [row.prompt or "" for row in rows]
        named = [sum(label in prompt.casefold() for label in labels) for prompt in prompts]
        numbers["prompt, by how many labels it names,"] = np.array(named, dtype=np.float64)
        for mine, prompt in zip(words, prompts, strict=True):
            mine.update(f"prompt, with or without {word!r:.40}" for word in re.findall(r"\w+", prompt))
    for word, count in Counter(word for mine in words for word in mine).items():
        if min(count, len(rows) - count) >= _FEWEST_TOLD:
            numbers[word] = np.array([word in mine for mine in words], dtype=np.float64)
    is_so = has_boxes[::step]
    rights = {name: told_apart(values, is_so) for name, values in numbers.items()}
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
