"""The report of an evaluation as one HTML file: figures with intervals, diagrams, films with boxes, every reward.

The file loads nothing: everything is inside it, and its Content-Security-Policy forbids the rest. What a model wrote
is data and never markup. The file shows films and what a model wrote about them: guard it like the films.

Its size is bounded: at most :data:`MOST_PICTURES` pictures take :data:`PICTURE_BUDGET` characters, first those of the
groups, then others while there is room; :data:`TEXT_BUDGET` characters of answers are shared equally between the films;
:data:`MOST_LISTED` films are in the table with :data:`MOST_BOXES` boxes each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.baselines import REFERENCE
from grounding_rewards.metrics.boxes_shown import broken_count, film_summary, format_iou, has_sides
from grounding_rewards.metrics.counts import MatchedFilms
from grounding_rewards.metrics.estimates import Estimate, format_estimate, format_interval, format_value
from grounding_rewards.metrics.evaluation import Evaluation
from grounding_rewards.metrics.outcomes import (
    IGNORED,
    MISSED,
    WRONG_LABEL,
    WRONG_PLACE,
    BoxOutcomes,
    outcomes_of,
)
from grounding_rewards.metrics.robustness import ROBUSTNESS_FIGURES
from grounding_rewards.report.evaluation_diagrams import plots
from grounding_rewards.report.figure_groups import group_figures, rewards_explained
from grounding_rewards.report.render import jpeg_uri, read_asset, render
from grounding_rewards.report.tables import (
    Row,
    group_rows,
    measured_columns,
    robustness_rows,
    system_rows,
)
from grounding_rewards.rewards.registry import summary_of

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longer side in pixels of a film on the page.
LONGEST_SIDE = 512
FILMS_PER_GROUP = 12
#: Characters of all pictures together: there is room for those of every group.
PICTURE_BUDGET = 6_000_000
#: Pictures at most, however small: each must be opened.
MOST_PICTURES = 300
MOST_LISTED = 20_000
MOST_BOXES = 50
TEXT_BUDGET = 4_000_000
_LEAST_TEXT, _MOST_TEXT = 160, 4_000

#: Tags of an answer in the filter of the page, beside its status and the reasons for which boxes were rejected.
HALLUCINATED = "box on a normal film"
MISSED_FINDING = "missed finding"
MISLABELLED = "wrong label"
MISPLACED = "box in the wrong place"
RIGHT_NORMAL = "normal film without a box"


@dataclass(frozen=True, kw_only=True)
class EvaluationPage:
    """What the report of an evaluation shows.

    Attributes:
        title: what was evaluated.
        subtitle: on which films.
        evaluation: the figures.
        films: every film with its answer.
        reward: name of the reward that ranks the films, a key of their `rewards`.
        load_image: loads the image of ``films[i]``, given `i`, or returns None; called for those that are shown.
            Without it boxes are shown without images.
        label_matching: by which boxes are called right, as in the figures.
        reference: the same films with the reference as answer: what they earn is the ceiling, 1 without them.

    Raises:
        ValueError: no film has `reward`.
    """

    title: str
    subtitle: str
    evaluation: Evaluation
    films: Sequence[AnsweredFilm]
    reward: str
    load_image: Callable[[int], Image | None] | None = None
    label_matching: str = "ignore"
    reference: Sequence[AnsweredFilm] = ()

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


class _JudgedFilm(NamedTuple):
    """A film with what became of its boxes, and the part of each reward that it earned of what it could."""

    film: AnsweredFilm
    outcomes: BoxOutcomes
    overlap: float | None
    ceilings: Mapping[str, float]

    def part(self, reward: str) -> float:
        """The reward as a part of what the reference itself would earn."""
        ceiling = self.ceilings.get(reward, 1.0)
        return self.film.rewards.get(reward, 0.0) / ceiling if ceiling > 0 else 1.0

    @property
    def is_unreadable(self) -> bool:
        return self.film.status == "unparseable" or (self.film.status == "truncated" and not len(self.film.pred))

    @property
    def tags(self) -> list[str]:
        """Status of the answer, what it is right or wrong about, and reasons for which boxes were rejected."""
        boxes = [one for one in self.outcomes.pred if one != IGNORED]
        has_box = bool(boxes) or broken_count(self.film) > 0
        found = {
            HALLUCINATED: self.film.is_normal and has_box,
            RIGHT_NORMAL: self.film.is_normal and not has_box and self.film.status == "empty",
            MISSED_FINDING: MISSED in self.outcomes.gt,
            MISLABELLED: WRONG_LABEL in boxes,
            MISPLACED: not self.film.is_normal and WRONG_PLACE in boxes,
        }
        return [self.film.status, *(tag for tag, holds in found.items() if holds), *self.film.rejected]


def choose_films(page: EvaluationPage, *, count: int = FILMS_PER_GROUP) -> list[FilmGroup]:
    """Choose the films that show how a model fails and what it can do, failures first; no film is chosen twice.

    Best, typical and worst films are chosen by reward; failures (missed, wrong label, hallucinated, unparseable) and
    right normal films are spread evenly over the dataset, so that nobody hand-picks them.

    Args:
        page: its films, and the reward that ranks them.
        count: films in a group at most.

    Returns:
        The groups that have a film.

    Example:
        >>> from grounding_rewards.metrics.evaluation import Measures, evaluate
        >>> box = [[0, 0, 9, 9]]
        >>> films = [
        ...     AnsweredFilm("a", 10, 10, gt=box, gt_labels=["mass"], pred=box, rewards={"R4": 1.0}),
        ...     AnsweredFilm("b", 10, 10, pred=box, rewards={"R4": 0.0}),
        ... ]
        >>> found = evaluate({"my model": films}, Measures("R4", resamples=10))
        >>> page = EvaluationPage(title="", subtitle="", evaluation=found, films=films, reward="R4")
        >>> [(group.title, group.films) for group in choose_films(page)]
        [('Hallucinated', (1,)), ('Best', (0,))]
    """
    return _groups(_judged(page), page.reward, count)


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
    judged = _judged(page)
    groups = _groups(judged, page.reward, FILMS_PER_GROUP)
    found = page.evaluation
    systems = system_rows(found)
    return render(
        "evaluation.html.jinja",
        style=read_asset("page.css") + read_asset("evaluation_page.css"),
        script=read_asset("evaluation_page.js"),
        title=page.title,
        subtitle=page.subtitle,
        tiles=_tiles(page, systems),
        systems=list(found.systems),
        reference=REFERENCE,
        groups=_figure_groups(found, systems),
        rewards=rewards_explained(page.reward_names),
        drawn={plot.name: plot for plot in plots(found)},
        tables={
            "labels": _table(group_rows(found.per_label), found.headings),
            "sizes": _table(group_rows(found.per_size), found.headings),
            "sources": _table(group_rows(found.per_source), found.headings),
            "robustness": _table(robustness_rows(found.robustness), ROBUSTNESS_FIGURES),
        },
        data=_data(page, judged, groups) if judged else None,
        compares_labels=page.label_matching != "ignore",
        facts={name: str(value) for name, value in found.facts.items() if value != ""},
    )


def _judged(page: EvaluationPage) -> list[_JudgedFilm]:
    ceilings = [film.rewards for film in page.reference] or [{}] * len(page.films)
    matched = MatchedFilms(page.films, page.label_matching)
    ious, there = matched.best_ious
    return [
        _JudgedFilm(film, outcomes, None if film.is_normal else float(own[boxes].mean()), most)
        for film, outcomes, own, boxes, most in zip(
            page.films, outcomes_of(matched), ious, there, ceilings, strict=True
        )
    ]


# The films of the gallery


def _groups(judged: Sequence[_JudgedFilm], reward: str, count: int) -> list[FilmGroup]:
    def having(tag: str) -> list[int]:
        return [place for place in readable if tag in tags[place]]

    tags = [set(one.tags) for one in judged]
    unreadable = [place for place, one in enumerate(judged) if one.is_unreadable]
    readable = [place for place, one in enumerate(judged) if not one.is_unreadable]
    normal = [place for place, one in enumerate(judged) if one.film.is_normal]
    by_reward = sorted(
        (place for place, one in enumerate(judged) if not one.film.is_normal),
        key=lambda place: judged[place].part(reward),
    )
    missed, hallucinated, kept = having(MISSED_FINDING), having(HALLUCINATED), having(RIGHT_NORMAL)
    mislabelled = [place for place in having(MISLABELLED) if MISSED_FINDING not in tags[place]]
    failed = {*missed, *mislabelled, *unreadable}
    complete = [place for place in by_reward if place not in failed]
    worst = tuple(complete[: min(count, len(complete) // 2)])
    best = tuple(complete[len(worst) :][::-1][:count])
    shown = {name: _evenly(places, count) for name, places in (("missed", missed), ("unreadable", unreadable))}
    labels = _evenly(mislabelled, count)
    taken = {*worst, *best, *labels, *chain.from_iterable(shown.values())}
    with_findings = len(by_reward)
    groups = [
        FilmGroup(
            "Missed",
            _share(missed, with_findings, "films with findings", "have a finding that no box is right about"),
            shown["missed"],
        ),
        FilmGroup(
            "Wrong label",
            _share(mislabelled, with_findings, "films with findings", "miss none, but call one something else"),
            labels,
        ),
        FilmGroup(
            "Hallucinated",
            _share(hallucinated, len(normal), "normal films", "have a box, where there is nothing to find"),
            _evenly(hallucinated, count),
        ),
        FilmGroup(
            "Worst of the complete",
            f"{len(complete)} of {with_findings} films with findings have every finding found; here the lowest "
            f"{reward}: loose boxes, or some too many.",
            worst,
        ),
        FilmGroup(
            "Unparseable",
            _share(unreadable, len(judged), "answers", "hold neither a complete box nor a stated negative"),
            shown["unreadable"],
        ),
        FilmGroup(
            "Typical",
            f"From the middle of the ranking of the {with_findings} films with findings by {reward}.",
            _around_the_middle(by_reward, taken, count),
        ),
        FilmGroup("Best", f"Every finding found, and the highest {reward}.", best),
        FilmGroup(
            "Right normal films",
            _share(kept, len(normal), "normal films", "have no box, as it should be"),
            _evenly(kept, count),
        ),
    ]
    return [group for group in groups if group.films]


def _share(places: Sequence[int], of: int, what: str, having: str) -> str:
    share = f" ({100 * len(places) / of:.1f} %)" if of else ""
    return f"{len(places)} of {of} {what}{share} {having}; an even selection over the dataset."


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


class _Tile(NamedTuple):
    heading: str
    value: str
    interval: str
    note: str


def _tiles(page: EvaluationPage, systems: Sequence[Row]) -> list[_Tile]:
    """What a reader asks first: what is found, what is false, what normal films get; then the reward."""
    if not systems:
        return []
    figures = systems[0].figures
    films = page.films
    references, normal = sum(len(film.gt) for film in films), sum(film.is_normal for film in films)

    def count(key: str, of: int) -> str:
        return f"{round(figures[key][0] * of):,} of {of:,}"

    tiles = []
    if _is_measured(figures.get("recall_50")):
        best = _best_of_others(page.evaluation, systems, "recall_50")
        note = f"{count('recall_50', references)} reference boxes found{best}"
        tiles.append(_tile("sensitivity at IoU 0.5", figures["recall_50"], note))
    if _is_measured(figures.get("false_per_film")):
        note = f"{count('false_per_film', len(films)).replace(' of ', ' false boxes on ')} films"
        tiles.append(_tile("false boxes per film", figures["false_per_film"], note))
    if _is_measured(figures.get("hallucination_rate")):
        found = figures["hallucination_rate"]
        interval = format_estimate(found)
        tiles.append(
            _Tile("hallucination", count("hallucination_rate", normal), interval, "normal films whose answer has a box")
        )
    key = f"reward_{page.reward}"
    if _is_measured(figures.get(key)):
        ceiling = next(
            (row.figures[key][0] for row in systems if row.name == REFERENCE and key in row.figures), math.nan
        )
        told = summary_of(page.reward)
        told += f" The reference itself would earn {format_value(ceiling)}." * (not math.isnan(ceiling))
        tiles.append(_tile(f"reward {page.reward}", figures[key], told.strip()))
    return tiles


def _tile(heading: str, estimate: Estimate, note: str) -> _Tile:
    return _Tile(heading, format_value(estimate[0]), format_interval(estimate), note)


def _is_measured(estimate: Estimate | None) -> bool:
    return estimate is not None and not math.isnan(estimate[0])


def _best_of_others(evaluation: Evaluation, systems: Sequence[Row], key: str) -> str:
    """The best of what the evaluated system stands beside, the reference left out."""
    rivals = [row for row in systems[1:] if row.name != REFERENCE and _is_measured(row.figures.get(key))]
    if not rivals:
        return ""
    best = max(rivals, key=lambda row: _merit(evaluation, row, key))
    return f"; best of the others: {best.name}, {format_value(best.figures[key][0])}"


def _merit(evaluation: Evaluation, row: Row, key: str) -> float:
    """The value of a figure, negated where lower is better: more is better. NaN where nothing was measured."""
    value = row.figures.get(key, (math.nan,))[0]
    return -value if evaluation.figures[key].lower_is_better else value


def _figure_groups(evaluation: Evaluation, systems: Sequence[Row]) -> list[dict[str, Any]]:
    """The table: a line for each figure, in groups; a column for each system, to fit on a journal's page."""
    measured = measured_columns(systems, evaluation.headings)
    return [
        {
            "title": group.title,
            "definition": group.definition,
            "lines": [_line(evaluation, key, systems) for key in keys],
        }
        for group, keys in group_figures(measured)
    ]


def _line(evaluation: Evaluation, key: str, systems: Sequence[Row]) -> dict[str, Any]:
    figure = evaluation.figures[key]
    is_ranked = figure.lower_is_better is not None
    own = _merit(evaluation, systems[0], key)
    return {
        "figure": figure,
        "signed": not is_ranked,
        "cells": [
            (row.figures.get(key), is_ranked and row.name != REFERENCE and _merit(evaluation, row, key) > own)
            for row in systems
        ],
    }


def _table(rows: Sequence[Row], headings: Mapping[str, str]) -> tuple[Sequence[Row], dict[str, str]]:
    return rows, measured_columns(rows, headings)


# Films, which evaluation_page.js draws from one block of JSON


def _data(page: EvaluationPage, judged: Sequence[_JudgedFilm], groups: Sequence[FilmGroup]) -> dict[str, Any]:
    chosen = [place for group in groups for place in group.films]
    pictures = _pictures(page, judged, chosen)
    listed = sorted({*range(min(MOST_LISTED, len(judged))), *chosen, *pictures})
    return {
        "rewards": page.reward_names,
        "reward": page.reward,
        "total": len(judged),
        "groups": [{"title": one.title, "note": one.note, "films": one.films} for one in groups],
        "pictures": {str(place): uri for place, uri in pictures.items()},
        "places": listed,
        "films": list(_film_records([judged[place] for place in listed], page.reward_names)),
    }


def _pictures(page: EvaluationPage, judged: Sequence[_JudgedFilm], chosen: Sequence[int]) -> dict[int, str]:
    """Of the films of the groups, then of others from the worst up, until the budget is spent."""
    pictures: dict[int, str] = {}
    if page.load_image is None:
        return pictures
    others = sorted({*range(len(judged))} - {*chosen}, key=lambda place: judged[place].part(page.reward))
    left = PICTURE_BUDGET
    for place in islice(chain(chosen, others), MOST_PICTURES):
        image = page.load_image(place)
        if image is None:
            continue
        uri = jpeg_uri(image, LONGEST_SIDE)
        left -= len(uri)
        if left < 0:
            break
        pictures[place] = uri
    return pictures


def _film_records(judged: Sequence[_JudgedFilm], rewards: Sequence[str]) -> Iterator[dict[str, Any]]:
    most = min(_MOST_TEXT, max(_LEAST_TEXT, TEXT_BUDGET // max(1, len(judged))))
    for one in judged:
        film, outcomes = one.film, one.outcomes
        scores = [_rounded(score, 4) for score in film.pred_scores.tolist()]
        yield {
            "id": film.id,
            "patient": film.patient,
            "view": film.view,
            "sides": has_sides(film),
            "size": [_rounded(film.width), _rounded(film.height)],
            "gt": _boxes(film.gt.tolist(), film.gt_labels, outcomes.gt, _ious(outcomes.gt_ious)),
            "pred": _boxes(
                film.pred.tolist(),
                film.pred_labels,
                outcomes.pred,
                _ious(outcomes.pred_ious),
                scores,
                [label or renamed for label, renamed in zip(outcomes.labels, outcomes.renamed, strict=True)],
            ),
            "ignore": _boxes(film.ignore.tolist()),
            "n": [len(film.gt), len(film.pred)],
            "overlap": None if one.overlap is None else _rounded(one.overlap, 4),
            "tags": one.tags,
            "summary": film_summary(film, outcomes),
            "reason": film.reason,
            "rewards": [_rounded(film.rewards.get(name, math.nan), 4) for name in rewards],
            "ceilings": [_rounded(one.ceilings.get(name, 1.0), 4) for name in rewards],
            "sampled": [_rounded(reward, 4) for reward in film.sampled_rewards],
            "text": film.text[:most],
            "cut": max(0, len(film.text) - most),
        }


def _boxes(boxes: Sequence[Sequence[float]], *columns: Sequence[Any]) -> list[list[Any]]:
    """For each box its corners, None for what is not finite, and what else is known of it, a column each."""
    corners = ([_rounded(corner) for corner in box] for box in boxes[:MOST_BOXES])
    return [[*box, *others] for box, *others in zip(corners, *columns, strict=False)]


def _ious(ious: Any) -> list[str]:
    return [format_iou(iou) for iou in ious.tolist()]


def _rounded(value: float, digits: int = 1) -> float | int | None:
    if not math.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded
