"""From answered films to the rows of a table, ``metrics.json`` and the page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.evaluation.figures import FIGURES, run_sums
from grounding_rewards.metrics.answered_film import AnsweredFilm, patients_of
from grounding_rewards.metrics.bootstrap import difference_estimates, ratio_estimates
from grounding_rewards.metrics.estimates import Estimate, Figures, estimate_as_json
from grounding_rewards.metrics.pairing import pair_film
from grounding_rewards.report.curves import draw_curves
from grounding_rewards.report.page import PageAnswer, PageFilm, Tile, choose_films, render_page
from grounding_rewards.report.picture import draw_films
from grounding_rewards.report.tables import Row

if TYPE_CHECKING:
    from PIL.Image import Image

BEFORE, AFTER, DIFFERENCE = "before", "after", "after − before"

_TILES = ("sampled_reward", "mean_iou", "hallucination_rate", "unparseable_share")
_LOWER_IS_BETTER = ("hallucination_rate", "unparseable_share")

_DEFINITIONS = {
    "sampled reward": "mean over the sampled answers to a film, then over films",
    "mean IoU": "greedy answers; predicted and reference boxes are paired one to one for the largest sum "
    "of IoUs; mean over reference boxes, 0 for one without a partner",
    "F1 at IoU 0.5": "greedy answers, boxes of all films pooled",
    "boxes above IoU": "greedy answers, share of the reference boxes whose partner reaches that IoU",
    "hallucination": "share of the films without a finding whose greedy answer has a box",
    "unparseable": "share of the sampled answers with neither a complete box nor a stated negative",
    "right label": "greedy answers, share of the boxes at IoU 0.5 that bear the reference's label",
    "interval": "95 % percentile bootstrap over films, or over patients where they are known; paired for "
    "differences; without width where a share is 0 or 1 on every film",
    "another reader": "where several radiologists read the films: the boxes of one more, against the reference's",
    "constant box": "the mean training box of each label that at least half of the films carry",
}


def summarise(systems: Mapping[str, Sequence[AnsweredFilm]]) -> list[Row]:
    """One row of figures for each system, and their difference after :data:`AFTER`.

    Args:
        systems: by name (:data:`BEFORE`, :data:`AFTER`, a baseline's) the answers to the same films in the same order.
            Where patients are known, the films of a patient are resampled together.
    """
    sums = {name: run_sums(films) for name, films in systems.items()}
    rows = []
    for name, films in systems.items():
        groups = patients_of(films)
        rows.append(Row(name, ratio_estimates(sums[name], groups=groups)))
        if name == AFTER and BEFORE in sums:
            changes = difference_estimates(sums[BEFORE], sums[AFTER], groups=groups)
            rows.append(Row(DIFFERENCE, changes, is_difference=True))
    return rows


def write_metrics(path: Path, rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """Write figures and what they were measured on as JSON; what was not measured is null.

    Args:
        path: of the file.
        rows: from :func:`summarise`.
        facts: model, reward, dataset, decoding, ….
    """
    figures = {row.name: {key: estimate_as_json(row.figures[key]) for key in FIGURES} for row in rows}
    text = json.dumps({**facts, "figures": figures}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_figures(path: Path) -> dict[str, Figures]:
    """The figures that :func:`write_metrics` wrote, by row and key."""
    stored = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return {
        name: {
            key: Estimate(*(math.nan if value is None else value for value in estimate.values()))
            for key, estimate in figures.items()
        }
        for name, figures in stored.items()
    }


def write_page(
    path: Path,
    *,
    title: str,
    subtitle: str,
    rows: Sequence[Row],
    before: Sequence[AnsweredFilm],
    after: Sequence[AnsweredFilm],
    reward: str,
    load_image: Callable[[int], Image],
    log_history: Sequence[Mapping[str, Any]],
) -> None:
    """Write the page of a run and its curves beside it.

    Args:
        path: of the HTML file; ``curves.png`` and ``films.png`` land in the same folder.
        title: what was trained.
        subtitle: on what it was measured.
        rows: from :func:`summarise`.
        before: the held-out films, answered before training.
        after: the same, answered after training.
        reward: name of the reward that the run is about.
        load_image: gives the k-th film as an image.
        log_history: the trainer's log.
    """
    curves = draw_curves(log_history), draw_curves(log_history, dark=True)
    if curves[0]:
        path.with_name("curves.png").write_bytes(curves[0])
    by_name = {row.name: row.figures for row in rows}
    tiles = [
        Tile(
            FIGURES[key],
            by_name[BEFORE][key],
            by_name[AFTER][key],
            by_name[DIFFERENCE][key],
            lower_is_better=key in _LOWER_IS_BETTER,
        )
        for key in _TILES
        if not math.isnan(by_name[AFTER][key][0])
    ]
    films = [
        PageFilm(
            name=film.id,
            load_image=partial(load_image, k),
            width=film.width,
            height=film.height,
            boxes=film.gt.tolist(),
            labels=film.gt_labels,
            before=_page_answer(before[k], reward),
            after=_page_answer(film, reward),
        )
        for k, film in enumerate(after)
    ]
    path.with_name("films.png").write_bytes(draw_films(films))
    page = render_page(
        title=title,
        subtitle=subtitle,
        tiles=tiles,
        rows=rows,
        headings=FIGURES,
        curves=curves if curves[0] else None,
        sections=choose_films(films),
        definitions=_DEFINITIONS,
    )
    path.write_text(page, encoding="utf-8")


def _page_answer(film: AnsweredFilm, reward: str) -> PageAnswer:
    return PageAnswer(
        boxes=film.pred.tolist(),
        labels=film.pred_labels,
        ious=pair_film(film).pred_ious.tolist(),
        reward=film.rewards[reward],
        reason=film.reason,
        text=film.text,
    )
