"""The figures that are ratios of sums over films: what an evaluation is headed by, and two runs are compared by.

The figure of a run is ``Σ numerator / Σ denominator`` over its films: rewards, the figures of
:mod:`grounding_rewards.metrics.counts`, and Dice and pixel accuracy of
:mod:`grounding_rewards.metrics.areas`. Whatever a reward matches with, the figures about boxes match for the
largest sum of IoUs, so that models trained with different rewards are measured alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.areas import SEGMENTATION_FIGURES, segmentation_areas
from grounding_rewards.metrics.counts import DETECTION_FIGURES, MatchedFilms, detection_sums
from grounding_rewards.metrics.ranking import label_name

Array = NDArray[np.float64]
#: Name → which of the reference boxes of all films, one film after the other, are in the group.
BoxGroups = dict[str, NDArray[np.bool_]]

MATCHING = "hungarian"

# The figures that reference boxes have by themselves, made of their IoUs.
_OF_IOU: dict[str, Callable[[Array], Array]] = {
    "mean_iou": lambda ious: ious,
    "recall_50": lambda ious: (ious >= 0.5).astype(np.float64),
    "recall_75": lambda ious: (ious >= 0.75).astype(np.float64),
}


class FilmFigure(NamedTuple):
    """A figure: its heading, what it is, and whether less is better; None where 0 is best from both sides."""

    heading: str
    definition: str
    lower_is_better: bool | None


def film_figures(films: Sequence[AnsweredFilm]) -> dict[str, FilmFigure]:
    """The figures by key, in the order of tables; rewards and sampled rewards only where every film has them.

    Example:
        >>> list(film_figures([AnsweredFilm("a", 9, 9, rewards={"R1": 0.5, "R4": 0.2})]))[:3]
        ['reward_R1', 'reward_R4', 'mean_iou']
    """
    figures = {
        f"reward_{name}": FilmFigure(f"reward {name}", f"mean over films of what {name} gives the answer", False)
        for name in _rewards(films)
    }
    if films and all(film.sampled_rewards for film in films):
        definition = "mean over the sampled answers to a film, then over films"
        figures["sampled_reward"] = FilmFigure("sampled reward", definition, False)
    if films and all(film.sampled_read for film in films):
        definition = "share of the sampled answers to a film with neither a box nor a stated negative, then over films"
        figures["sampled_unparseable_share"] = FilmFigure("unparseable sampled answers", definition, True)
    for key, one in DETECTION_FIGURES.items():
        figures[key] = FilmFigure(one.heading, one.definition, one.lower_is_better)
    for key in ("dice", "pixel_accuracy"):
        figures[key] = FilmFigure(SEGMENTATION_FIGURES[key].heading, SEGMENTATION_FIGURES[key].definition, False)
    return figures


def film_sums(films: Sequence[AnsweredFilm], *, labels: str = "ignore", areas: Array | None = None) -> dict[str, Array]:
    """The numerators and denominators of every figure of :func:`film_figures`, ``(films, 2)`` each.

    Args:
        films: answered films.
        labels: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's label.
        areas: of :func:`grounding_rewards.metrics.areas.segmentation_areas`, where they are known already.

    Example:
        >>> film = AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["x"], pred=[[0, 0, 4, 2], [6, 6, 9, 9]])
        >>> film_sums([film])["f1_50"]
        array([[2., 3.]])
    """
    sums = {f"reward_{name}": mean_sums([[film.rewards[name]] for film in films]) for name in _rewards(films)}
    if films and all(film.sampled_rewards for film in films):
        sums["sampled_reward"] = mean_sums([film.sampled_rewards for film in films])
    if films and all(film.sampled_read for film in films):
        sums["sampled_unparseable_share"] = mean_sums([[not read for read in film.sampled_read] for film in films])
    sums |= detection_sums(films, matching=MATCHING, labels=labels)
    hit, false, missed, rest = (segmentation_areas(films) if areas is None else areas).T
    sums["dice"] = np.column_stack([2 * hit, 2 * hit + false + missed])
    sums["pixel_accuracy"] = np.column_stack([hit + rest, hit + false + missed + rest])
    return sums


def reference_ious(films: Sequence[AnsweredFilm], *, labels: str = "ignore") -> Array:
    """The IoU of every reference box with its partner, 0 without one, in the order of the films.

    Args:
        films: answered films.
        labels: as for :func:`film_sums`.

    Returns:
        ``(reference boxes of all films,)`` in [0, 1].

    Example:
        >>> film = AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4], [5, 5, 9, 9]], gt_labels=["x", "x"], pred=[[0, 0, 4, 2]])
        >>> reference_ious([film])
        array([0.5, 0. ])
    """
    ious, there = MatchedFilms(films, MATCHING, labels).best_ious
    return ious[there]


def label_groups(films: Sequence[AnsweredFilm], labels: str = "exact") -> BoxGroups:
    """The reference boxes by label, the most frequent label first.

    Labels that are compared as one are one group, under the spelling that is most frequent.

    Args:
        films: answered films.
        labels: ``"exact"`` or ``"synonyms"``.

    Example:
        >>> label_groups([AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4], [5, 5, 9, 9]], gt_labels=["mass", "Mass"])])
        {'mass': array([ True,  True])}
    """
    written = [label for film in films for label in film.gt_labels]
    names = np.array([label_name(label, labels) for label in written], dtype=object)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for name, label in zip(names, written, strict=True):
        spellings[name][label.strip()] += 1
    by_frequency = sorted(spellings, key=lambda name: -spellings[name].total())
    return {spellings[name].most_common(1)[0][0]: names == name for name in by_frequency}


def reference_sums(
    films: Sequence[AnsweredFilm], groups: BoxGroups, *, labels: str = "ignore"
) -> dict[tuple[str, str], Array]:
    """Mean IoU and recall of groups of reference boxes: all that can be said of a label where answers state none.

    Args:
        films: answered films.
        groups: from :func:`label_groups`, for instance.
        labels: as for :func:`film_sums`.

    Returns:
        By group and key the numerators and denominators, ``(films, 2)``.

    Example:
        >>> film = AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4], [5, 5, 9, 9]], gt_labels=["x", "y"], pred=[[0, 0, 4, 2]])
        >>> reference_sums([film], label_groups([film]))["x", "mean_iou"]
        array([[0.5, 1. ]])
    """
    number = np.repeat(np.arange(len(films)), [len(film.gt) for film in films])
    ious = reference_ious(films, labels=labels)
    return {
        (name, key): np.stack(
            [np.bincount(number[members], weights, len(films)) for weights in (values(ious[members]), None)], axis=1
        )
        for name, members in groups.items()
        for key, values in _OF_IOU.items()
    }


def mean_sums(values: Sequence[Sequence[float]]) -> Array:
    """The sums of a figure that is a mean over the answers to a film, then over films: ``(films, 2)``.

    Example:
        >>> mean_sums([[0.25, 0.75], [1.0]])
        array([[0.5, 1. ],
               [1. , 1. ]])
    """
    return np.array([(float(np.mean(of_film)), 1.0) for of_film in values], dtype=np.float64).reshape(-1, 2)


def _rewards(films: Sequence[AnsweredFilm]) -> list[str]:
    return [name for name in films[0].rewards if all(name in film.rewards for film in films)] if films else []
