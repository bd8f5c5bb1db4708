"""The report of an evaluation as one HTML file: figures with intervals, diagrams, films with boxes, every reward.

The file loads nothing: everything is inside it, and its Content-Security-Policy forbids the rest. What a model wrote
is data and never markup. The file shows films and what a model wrote about them: guard it like the films.

Its size is bounded: six groups of at most :data:`FILMS_PER_GROUP` pictures, each of at most
:data:`~grounding_rewards.report.render.PICTURE_BYTES`, under 4 MB together; :data:`TEXT_BUDGET` characters of answers,
shared equally between the films; :data:`MOST_LISTED` films in the table with :data:`MOST_BOXES` boxes each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.evaluation import Evaluation
from grounding_rewards.metrics.pairing import pair_film
from grounding_rewards.metrics.robustness import ROBUSTNESS_FIGURES
from grounding_rewards.report.evaluation_diagrams import diagrams
from grounding_rewards.report.render import jpeg_uri, read_asset, render
from grounding_rewards.report.tables import (
    Row,
    group_rows,
    measured_columns,
    robustness_rows,
    system_rows,
)

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longer side in pixels of a film on the page.
LONGEST_SIDE = 512
FILMS_PER_GROUP = 12
MOST_LISTED = 20_000
MOST_BOXES = 50
TEXT_BUDGET = 4_000_000
_LEAST_TEXT, _MOST_TEXT = 160, 4_000
_TILES = 4

#: Tags of an answer in the filter of the page, beside its status and the reasons for which boxes were rejected.
HALLUCINATED = "box on a normal film"
MISSED = "finding without a box"
FALSE_BOX = "box beside the findings"


@dataclass(frozen=True, kw_only=True)
class EvaluationPage:
    """What the report of an evaluation shows.

    Attributes:
        title: what was evaluated.
        subtitle: on which films.
        evaluation: the figures.
        films: every film with its answer.
        reward: name of the reward that ranks the films, a key of their `rewards`.
        load_image: loads the image of ``films[i]``, given `i`, or returns None; called for the few that are shown.
            Without it boxes are shown without images.

    Raises:
        ValueError: no film has `reward`.
    """

    title: str
    subtitle: str
    evaluation: Evaluation
    films: Sequence[AnsweredFilm]
    reward: str
    load_image: Callable[[int], Image | None] | None = None

    def __post_init__(self) -> None:
        names = self.reward_names
        if self.films and self.reward not in names:
            raise ValueError(
                f"Expected one of {', '.join(names) or 'the rewards of the films'} for `reward`, got {self.reward!r}. "
                "Give the name under which the films carry it."
            )

    @property
    def reward_names(self) -> list[str]:
        """The names of all rewards of the films, in order of first appearance."""
        return list(dict.fromkeys(name for film in self.films for name in film.rewards))


class FilmGroup(NamedTuple):
    """Films of the gallery under one heading; ``films`` are indices into the sequence of all films."""

    title: str
    note: str
    films: tuple[int, ...]


class _PairedFilm(NamedTuple):
    """A film and, for each of its boxes, the IoU with its partner: 0 without one."""

    film: AnsweredFilm
    gt_ious: NDArray[np.float64]
    pred_ious: NDArray[np.float64]

    @property
    def tags(self) -> list[str]:
        """Status of the answer, mistakes, and reasons for which boxes were rejected."""
        tags = [self.film.status]
        if self.film.is_normal and len(self.film.pred):
            tags.append(HALLUCINATED)
        if np.any(self.gt_ious <= 0):
            tags.append(MISSED)
        if not self.film.is_normal and np.any(self.pred_ious <= 0):
            tags.append(FALSE_BOX)
        return [*tags, *self.film.rejected]


def choose_films(films: Sequence[AnsweredFilm], reward: str, *, count: int = FILMS_PER_GROUP) -> list[FilmGroup]:
    """Choose the films that show what a model can do and how it fails; no film is chosen twice.

    Best, typical and worst films are chosen by reward; failures (missed, hallucinated, unparseable) are spread evenly
    over the dataset, so that nobody hand-picks them.

    Args:
        films: all films.
        reward: name of the reward that ranks them.
        count: films in a group at most.

    Returns:
        The groups that have a film.

    Example:
        >>> box = [[0, 0, 9, 9]]
        >>> films = [
        ...     AnsweredFilm("a", 10, 10, gt=box, gt_labels=["mass"], pred=box, rewards={"R4": 1.0}),
        ...     AnsweredFilm("b", 10, 10, pred=box, rewards={"R4": 0.0}),
        ... ]
        >>> [(group.title, group.films) for group in choose_films(films, "R4")]
        [('Best', (0,)), ('Hallucinated', (1,))]
    """
    return _groups([_paired(film) for film in films], reward, count)


def render_evaluation_page(page: EvaluationPage) -> str:
    """Render the report.

    Args:
        page: what it shows.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.

    Example:
        >>> from grounding_rewards.metrics.evaluation import Measures, evaluate
        >>> film = AnsweredFilm("a", 10, 10, text="</script>", rewards={"R4": 0.2})
        >>> found = evaluate({"my model": [film]}, Measures("R4", resamples=10))
        >>> page = EvaluationPage(title="my model", subtitle="one film", evaluation=found, films=[film], reward="R4")
        >>> render_evaluation_page(page).count("</script>")  # its own two: the data and the program
        2
    """
    paired = [_paired(film) for film in page.films]
    groups = _groups(paired, page.reward, FILMS_PER_GROUP)
    found = page.evaluation
    systems = system_rows(found)
    return render(
        "evaluation.html.jinja",
        style=read_asset("page.css") + read_asset("evaluation_page.css"),
        script=read_asset("evaluation_page.js"),
        title=page.title,
        subtitle=page.subtitle,
        tiles=_tiles(found, systems),
        systems=list(found.systems),
        lines=[_line(found, key, systems) for key in measured_columns(systems, found.headings)],
        drawn={diagram.name: diagram for diagram in diagrams(found)},
        tables={
            "labels": _table(group_rows(found.per_label), found.headings),
            "sizes": _table(group_rows(found.per_size), found.headings),
            "robustness": _table(robustness_rows(found.robustness), ROBUSTNESS_FIGURES),
        },
        data=_data(page, paired, groups) if paired else None,
        facts={name: str(value) for name, value in found.facts.items() if value != ""},
    )


def _paired(film: AnsweredFilm) -> _PairedFilm:
    pairs = pair_film(film)
    return _PairedFilm(film, pairs.ious, pairs.pred_ious)


# The films of the gallery


def _groups(paired: Sequence[_PairedFilm], reward: str, count: int) -> list[FilmGroup]:
    def earned(place: int) -> float:
        return paired[place].film.rewards.get(reward, 0.0)

    unreadable = [
        place
        for place, one in enumerate(paired)
        if one.film.status == "unparseable" or (one.film.status == "truncated" and not len(one.film.pred))
    ]
    readable = {place: one.tags for place, one in enumerate(paired) if place not in set(unreadable)}
    hallucinated = [place for place, tags in readable.items() if HALLUCINATED in tags]
    missed = [place for place, tags in readable.items() if MISSED in tags]
    with_findings = sorted(
        (place for place, one in enumerate(paired) if not one.film.is_normal), key=lambda place: -earned(place)
    )
    overlapped = tuple(place for place in with_findings if place in readable and MISSED not in readable[place])
    best, worst = overlapped[:count], overlapped[count:][::-1][:count]
    shown_missed, shown_unreadable = _evenly(missed, count), _evenly(unreadable, count)
    typical = _around_the_middle(with_findings, {*best, *worst, *shown_missed, *shown_unreadable}, count)
    groups = [
        FilmGroup("Best", f"{len(overlapped)} films have a box on every finding; the highest {reward}.", best),
        FilmGroup(
            "Typical",
            f"From the middle of the ranking of the {len(with_findings)} films with findings by {reward}.",
            typical,
        ),
        FilmGroup("Worst", f"A box on every finding, and the lowest {reward}.", worst),
        FilmGroup("Missed", _share(missed, len(with_findings), "films with findings", MISSED), shown_missed),
        FilmGroup(
            "Hallucinated",
            _share(
                hallucinated,
                len(paired) - len(with_findings),
                "normal films",
                "box, where there is nothing to find",
            ),
            _evenly(hallucinated, count),
        ),
        FilmGroup(
            "Unparseable",
            _share(unreadable, len(paired), "answers", "text that holds neither a complete box nor a stated negative"),
            shown_unreadable,
        ),
    ]
    return [group for group in groups if group.films]


def _share(places: Sequence[int], of: int, what: str, having: str) -> str:
    share = f" ({100 * len(places) / of:.1f} %)" if of else ""
    return f"{len(places)} of {of} {what}{share} with a {having}; an even selection over the dataset."


def _evenly(places: Sequence[int], count: int) -> tuple[int, ...]:
    """At most `count` of the places, evenly spaced from the first to the last."""
    if len(places) <= count:
        return tuple(places)
    return tuple(places[round(k)] for k in np.linspace(0, len(places) - 1, count))


def _around_the_middle(ranking: Sequence[int], taken: set[int], count: int) -> tuple[int, ...]:
    """At most `count` of the places that are not taken: those nearest to the middle, in the order of the ranking."""
    middle = (len(ranking) - 1) / 2
    nearest = sorted(range(len(ranking)), key=lambda rank: abs(rank - middle))
    free = [rank for rank in nearest if ranking[rank] not in taken][:count]
    return tuple(ranking[rank] for rank in sorted(free))


# Figures


def _tiles(evaluation: Evaluation, systems: Sequence[Row]) -> list[dict[str, Any]]:
    """The first figures of the evaluated system, each with the best of the other systems."""
    if not systems:
        return []
    first, *others = systems
    figures = evaluation.figures
    keys = [key for key in measured_columns([first], evaluation.headings) if figures[key].lower_is_better is not None]
    tiles = []
    for key in keys[:_TILES]:
        rivals = [row for row in others if not math.isnan(_merit(evaluation, row, key))]
        best = max(rivals, key=lambda row: _merit(evaluation, row, key), default=None)
        tiles.append(
            {
                "heading": figures[key].heading,
                "estimate": first.figures[key],
                "rival": best and best.name,
                "best": best and best.figures[key][0],
            }
        )
    return tiles


def _merit(evaluation: Evaluation, row: Row, key: str) -> float:
    """The value of a figure, negated where lower is better: more is better. NaN where nothing was measured."""
    value = row.figures.get(key, (math.nan,))[0]
    return -value if evaluation.figures[key].lower_is_better else value


def _line(evaluation: Evaluation, key: str, systems: Sequence[Row]) -> dict[str, Any]:
    """One figure of every system: a line of the table, which has a column per system to fit on a journal's page."""
    figure = evaluation.figures[key]
    is_ranked = figure.lower_is_better is not None
    own = _merit(evaluation, systems[0], key)
    return {
        "figure": figure,
        "signed": not is_ranked,
        "cells": [(row.figures.get(key), is_ranked and _merit(evaluation, row, key) > own) for row in systems],
    }


def _table(rows: Sequence[Row], headings: Mapping[str, str]) -> tuple[Sequence[Row], dict[str, str]]:
    return rows, measured_columns(rows, headings)


# Films, which evaluation_page.js draws from one block of JSON


def _data(page: EvaluationPage, paired: Sequence[_PairedFilm], groups: Sequence[FilmGroup]) -> dict[str, Any]:
    chosen = [place for group in groups for place in group.films]
    listed = sorted({*range(min(MOST_LISTED, len(paired))), *chosen})
    return {
        "rewards": page.reward_names,
        "reward": page.reward,
        "total": len(paired),
        "groups": [{"title": one.title, "note": one.note, "films": one.films} for one in groups],
        "pictures": _pictures(page, chosen),
        "places": listed,
        "films": list(_film_records([paired[place] for place in listed], page.reward_names)),
    }


def _pictures(page: EvaluationPage, places: Sequence[int]) -> dict[str, str]:
    if page.load_image is None:
        return {}
    images = ((place, page.load_image(place)) for place in places)
    return {str(place): jpeg_uri(image, LONGEST_SIDE) for place, image in images if image is not None}


def _film_records(paired: Sequence[_PairedFilm], rewards: Sequence[str]) -> Iterator[dict[str, Any]]:
    most = min(_MOST_TEXT, max(_LEAST_TEXT, TEXT_BUDGET // max(1, len(paired))))
    for one in paired:
        film = one.film
        yield {
            "id": film.id,
            "patient": film.patient,
            "size": [_rounded(film.width), _rounded(film.height)],
            "gt": _boxes(film.gt, film.gt_labels, one.gt_ious),
            "pred": _boxes(film.pred, film.pred_labels, one.pred_ious, film.pred_scores.tolist()),
            "ignore": _boxes(film.ignore, ("",) * len(film.ignore), np.zeros(len(film.ignore))),
            "n": [len(film.gt), len(film.pred)],
            "tags": one.tags,
            "reason": film.reason,
            "rewards": [_rounded(film.rewards.get(name, math.nan), 4) for name in rewards],
            "sampled": [_rounded(reward, 4) for reward in film.sampled_rewards],
            "text": film.text[:most],
            "cut": max(0, len(film.text) - most),
        }


def _boxes(
    boxes: NDArray[np.float64],
    labels: Sequence[str | None],
    ious: NDArray[np.float64],
    scores: Sequence[float] = (),
) -> list[list[Any]]:
    """For each box: corners, label, IoU and, for predicted boxes, confidence; None for what is not finite."""
    values = [
        [*(_rounded(corner) for corner in box), label, _rounded(iou, 3)]
        for box, label, iou in zip(boxes[:MOST_BOXES].tolist(), labels, ious.tolist(), strict=False)
    ]
    return [[*box, _rounded(score, 4)] for box, score in zip(values, scores, strict=False)] if scores else values


def _rounded(value: float, digits: int = 1) -> float | int | None:
    if not math.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded
