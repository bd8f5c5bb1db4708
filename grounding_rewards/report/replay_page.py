"""The page of a replay: which rewards order the same answers alike, and the answers that they order in opposite ways.

It shows images and what models wrote about them, where images are asked for: guard it like the images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.boxes_shown import drawn_answer, has_sides, image_summary
from grounding_rewards.metrics.estimates import NOTHING, counted, format_value
from grounding_rewards.metrics.outcomes import box_outcomes
from grounding_rewards.metrics.replay import Correlation, Replay, Reversal
from grounding_rewards.report.render import jpeg_uri, read_asset, render

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longest side in pixels of an image on the page; with the number of images it bounds the size of the file.
LONGEST_SIDE = 448
_MOST_TEXT = 4_000
# Of a heat map, in its own units: a cell, and the room for names beside and above.
_CELL, _HEIGHT, _CHARACTER = 64, 34, 7.6
# How strong the colour of a whole agreement is: letters on it can be read on both grounds.
_STRONGEST = 0.62


@dataclass(frozen=True, kw_only=True)
class ReplayPage:
    """What the page shows.

    Attributes:
        title: of the page.
        log: the name of the log.
        found: what was compared.
        answers: the n answers, each with its image.
        scored: by reward what it gives, n numbers.
        images: the name of each answer's image.
        steps: of a training, of each answer, None where that is not known.
        load_image: opens the image of the k-th answer, None where there is none; called only for images that are shown.
        shown: how many images at most.
        label_matching: by which boxes are called right.
    """

    title: str
    log: str
    found: Replay
    answers: Sequence[AnsweredImage]
    scored: Mapping[str, Sequence[float]]
    images: Sequence[str]
    steps: Sequence[Any]
    load_image: Callable[[int], Image | None]
    shown: int = 8
    label_matching: str = "ignore"


class Cell(NamedTuple):
    """One cell of a heat map: its corner, what is written in it, how it is coloured, and what it says in words."""

    x: float
    y: float
    text: str
    kind: str
    opacity: str
    words: str


def format_share(share: float) -> str:
    """A share in the tables of a replay, or a dash for NaN.

    Example:
        >>> format_share(0.1), format_share(math.nan)
        ('10%', '–')
    """
    return NOTHING if math.isnan(share) else f"{share:.0%}"


def headline(found: Replay) -> str:
    """What was compared, in one line.

    Example:
        >>> from grounding_rewards.metrics.replay import replay
        >>> headline(replay({"R3": [0.0, 1.0, 0.5]}, {}, groups=[[0, 1], [2]], images=["a", "a", "b"]))
        '3 answers to 2 images, 1 group of several answers to one image; intervals over 2 images'
    """
    units = counted(found.units, "patient" if found.by_patient else "image")
    groups = f"{counted(found.groups, 'group')} of several answers to one image"
    return f"{counted(found.answers, 'answer')} to {counted(found.images, 'image')}, {groups}; intervals over {units}"


def render_replay_page(page: ReplayPage) -> str:
    """Write the whole page.

    Returns:
        An HTML document that refers to nothing outside itself.
    """
    found = page.found
    tables = [
        {
            "title": title,
            "note": note,
            "per": per,
            "heat": _heat_map(found, table),
            "rows": [(name, [table[name, key] for key in found.rulers], table) for name in found.rewards],
        }
        for title, note, per, table in (
            (
                "Within groups",
                "The coefficient in every group of answers to one image in which both have an order, mean over groups: "
                "what GRPO sees.",
                "groups",
                found.within,
            ),
            (
                "Over all answers",
                "One order of all answers, whatever their images: an answer to an easy image stands before one "
                "to a hard "
                "image.",
                "answers",
                found.overall,
            ),
        )
        if any(one.of for one in table.values())
    ]
    shown = found.reversals[: page.shown]
    return render(
        "replay.html.jinja",
        title=page.title,
        subtitle=f"{page.log}: {headline(found)}",
        found=found,
        closest=_closest(found),
        tables=tables,
        reasons=list(
            dict.fromkeys(one.reason for table in (found.within, found.overall) for one in table.values() if one.reason)
        ),
        percent=format_share,
        shown=[_image(page, one, number) for number, one in enumerate(shown)],
        style=read_asset("page.css") + read_asset("diff_page.css") + read_asset("replay_page.css"),
        script="",
    )


def _closest(found: Replay) -> list[tuple[str, str, Correlation]]:
    """For each ruler the reward whose order within groups is the most alike, where there is one."""
    table = found.within if found.groups else found.overall
    chosen = []
    for key, metric in found.rulers.items():
        measured = [name for name in found.rewards if not math.isnan(table[name, key].estimate.value)]
        if measured:
            name = max(measured, key=lambda one: table[one, key].estimate.value)
            chosen.append((metric.heading, name, table[name, key]))
    return chosen


def _heat_map(found: Replay, table: Mapping[tuple[str, str], Correlation]) -> dict[str, Any]:
    """Where everything stands on a heat map: rewards beside rewards, then rulers."""
    columns = {**{name: name for name in found.rewards}, **{key: one.heading for key, one in found.rulers.items()}}
    left = 14 + _CHARACTER * max(map(len, found.rewards))
    # Names above stand on a slope of 45 degrees.
    above = 18 + _CHARACTER * 0.72 * max(map(len, columns.values()))
    gap = 12
    places = [left + _CELL * j + (gap if key in found.rulers else 0) for j, key in enumerate(columns)]
    cells = [
        _cell(places[j], above + _HEIGHT * i, name, columns[other], table.get((name, other)))
        for i, name in enumerate(found.rewards)
        for j, other in enumerate(columns)
    ]
    return {
        "width": places[-1] + _CELL + _CHARACTER * 0.72 * max(map(len, columns.values())),
        "height": above + _HEIGHT * len(found.rewards) + 2,
        "cell": (_CELL - 2, _HEIGHT - 2),
        "rows": [(left - 8, above + _HEIGHT * (i + 0.5), name) for i, name in enumerate(found.rewards)],
        "columns": [(x + _CELL / 2, above - 8, name) for x, name in zip(places, columns.values(), strict=True)],
        "cells": cells,
    }


def _cell(x: float, y: float, name: str, other: str, one: Correlation | None) -> Cell:
    if one is None:
        return Cell(x, y, "", "itself", "1", f"{name} with itself")
    value = one.estimate.value
    if math.isnan(value):
        return Cell(x, y, NOTHING, "none", "1", f"{name} and {other}: {one.reason}")
    kind = "alike" if value >= 0 else "opposite"
    opacity = f"{_STRONGEST * abs(value):.3f}"
    # Without the sign of a number that is 0 as it is shown.
    text = f"{round(value, 2) + 0.0:.2f}"
    return Cell(x, y, text, kind, opacity, f"{name} and {other}: {format_value(value)}")


def _image(page: ReplayPage, one: Reversal, number: int) -> dict[str, Any]:
    """What the template needs to draw two answers to one image."""
    image = page.load_image(one.answers[0])
    annotated = page.answers[one.answers[0]]
    step = page.steps[one.answers[0]]
    return {
        "name": f"image-{number}",
        "id": page.images[one.answers[0]],
        "findings": ", ".join(annotated.gt_labels) or "normal",
        "step": None if step is None else str(step),
        "rewards": one.rewards,
        "size": one.size,
        "uri": image and jpeg_uri(image, LONGEST_SIDE),
        "width": f"{annotated.width:g}",
        "height": f"{annotated.height:g}",
        "sides": (annotated.width, annotated.height) if has_sides(annotated) else None,
        "answers": [_answer(page, one, k, side) for k, side in zip(one.answers, "ab", strict=True)],
        "scores": [
            (name, name in one.rewards, *(page.scored[name][k] for k in one.answers)) for name in page.found.rewards
        ],
    }


def _answer(page: ReplayPage, one: Reversal, k: int, side: str) -> dict[str, Any]:
    image = page.answers[k]
    outcomes = box_outcomes(image, page.label_matching)
    return {
        "side": side,
        "name": f"preferred by {one.rewards['ab'.index(side)]}",
        "summary": image_summary(image, outcomes),
        "text": image.text[:_MOST_TEXT],
        "rectangles": drawn_answer(image, outcomes),
    }
