"""The report of a run as one HTML file: figures, curves, and films with boxes before and after.

Everything is inside the file, so it opens without a network and can be sent to a colleague. It shows films
and the model's words, so it is to be guarded like the films.
"""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from grounding_rewards.metrics.estimates import Estimate, format_interval, format_value
from grounding_rewards.report.render import _environment
from grounding_rewards.report.tables import Row, measured_columns

if TYPE_CHECKING:
    from PIL.Image import Image

Box = Sequence[float]

#: Longest side in pixels of a film on the page; with the number of films it bounds the size of the file.
LONGEST_SIDE = 448
FILMS_PER_SECTION = 6

_LEGEND = (
    '<h2>Films</h2><div class="legend"><span class="k-reference">reference</span>'
    '<span class="k-before">before</span><span class="k-after">after</span></div>'
)


@dataclass(frozen=True)
class PageAnswer:
    """One answer to one film.

    ``boxes``, ``labels`` and ``ious`` have one entry per predicted box; ``ious`` is the IoU with the box's
    partner among the reference boxes, 0 without one.
    """

    boxes: Sequence[Box]
    labels: Sequence[str | None]
    ious: Sequence[float]
    reward: float
    reason: str
    text: str


@dataclass(frozen=True)
class PageFilm:
    """One held-out film; boxes in pixels of a film of ``width`` by ``height``.

    ``load_image`` is called for the few films that are shown.
    """

    name: str
    load_image: Callable[[], Image]
    width: float
    height: float
    boxes: Sequence[Box]
    labels: Sequence[str]
    before: PageAnswer
    after: PageAnswer

    @property
    def gain(self) -> float:
        """Reward after minus reward before."""
        return self.after.reward - self.before.reward


@dataclass(frozen=True)
class Tile:
    """One figure at the top of the page."""

    heading: str
    before: Estimate
    after: Estimate
    difference: Estimate
    lower_is_better: bool = False


@dataclass(frozen=True)
class Section:
    """Films under one heading."""

    title: str
    note: str
    films: Sequence[PageFilm]


def choose_films(films: Sequence[PageFilm], *, count: int = FILMS_PER_SECTION) -> list[Section]:
    """Choose the films that tell what changed: largest gains, the middle, largest losses, normal films.

    The middle stands for the run as a whole; a section of gains alone would flatter any model. No film
    comes twice.

    Args:
        films: all held-out films.
        count: films per section at most.

    Returns:
        The sections that have a film.
    """
    findings = sorted((film for film in films if len(film.boxes)), key=lambda film: -film.gain)
    normal = sorted((film for film in films if not len(film.boxes)), key=lambda film: (-film.gain, -film.after.reward))
    up, down = [f for f in findings if f.gain > 0], [f for f in findings if f.gain < 0]
    gains, losses = up[:count], down[::-1][:count]
    rest = [film for film in findings if film not in gains and film not in losses]
    start = max(0, (len(rest) - count) // 2)
    middle = rest[start : start + count]
    tally = f"{len(up)} of {len(findings)} films with findings earn more than before, {len(down)} less"
    sections = [
        Section("Largest gains", f"{tally}; the {len(gains)} that gained most.", gains),
        Section("In the middle", "Films from the middle of the ranking by change: what to expect.", middle),
        Section("Largest losses", f"{tally}; the {len(losses)} that lost most.", losses),
        Section("Normal films", _normal_note(normal), _spread(normal, count)),
    ]
    return [section for section in sections if section.films]


def _normal_note(films: Sequence[PageFilm]) -> str:
    clean_before = sum(not len(film.before.boxes) for film in films)
    clean_after = sum(not len(film.after.boxes) for film in films)
    return (
        "Nothing is to be found here; any box is invented. "
        f"Without a box: {clean_before} of {len(films)} before, {clean_after} of {len(films)} after."
    )


def _spread(films: Sequence[PageFilm], count: int) -> list[PageFilm]:
    """The best and the worst halves of ``count``, in order."""
    if len(films) <= count:
        return list(films)
    head = (count + 1) // 2
    return [*films[:head], *films[len(films) - (count - head) :]]


def render_page(
    *,
    title: str,
    subtitle: str,
    tiles: Sequence[Tile],
    rows: Sequence[Row],
    headings: Mapping[str, str],
    curves: tuple[bytes, bytes] | None,
    sections: Sequence[Section],
    definitions: Mapping[str, str],
) -> str:
    """Write the whole page.

    Args:
        title: what was trained.
        subtitle: on what it was measured.
        tiles: the figures at the top.
        rows: the table's rows.
        headings: the table's columns.
        curves: PNGs for a light and a dark ground, from :func:`grounding_rewards.report.curves.draw_curves`.
        sections: from :func:`choose_films`.
        definitions: word and meaning, for the foot of the page.

    Returns:
        An HTML document that refers to nothing outside itself.
    """
    css = _style_sheet()
    numbers = iter(range(1_000_000))
    macros: Any = _environment().get_template("macros.html.jinja").module
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="soft">{html.escape(subtitle)}</p>',
        f'<div class="tiles">{"".join(map(_tile, tiles))}</div>',
        "<h2>Held-out films</h2>",
        '<p class="note">95 % bootstrap intervals under the values.</p>',
        f'<div class="panel">{macros.figure_table(rows, measured_columns(rows, headings))}</div>',
        _curves(curves) if curves else "",
        _LEGEND if sections else "",
        *(_section(section, [next(numbers) for _ in section.films]) for section in sections),
        _footer(definitions),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{css}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


@cache
def _style_sheet() -> str:
    return (files("grounding_rewards.report") / "page.css").read_text(encoding="utf-8")


def _tile(tile: Tile) -> str:
    change, low, high = tile.difference
    gain = (-high, -low) if tile.lower_is_better else (low, high)
    kind = "better" if gain[0] > 0 else "worse" if gain[1] < 0 else "soft"
    interval = format_interval(tile.difference, signed=True)
    difference = (
        f'<span class="{kind}">{format_value(change, signed=True)}</span> <small>{interval}</small>'
        if not math.isnan(change)
        else "<small>not measured</small>"
    )
    return (
        f'<div class="tile"><span class="soft">{html.escape(tile.heading)}</span>'
        f"<b>{format_value(tile.before[0])}<i>→</i>{format_value(tile.after[0])}</b>{difference}</div>"
    )


def _curves(curves: tuple[bytes, bytes]) -> str:
    light, dark = (_data_uri(png, "image/png") for png in curves)
    return (
        '<h2>Training</h2><p class="note">Pale: every logged step. Strong: running mean.</p>'
        '<div class="panel curves"><picture>'
        f'<source srcset="{dark}" media="(prefers-color-scheme: dark)">'
        f'<img src="{light}" alt="Curves of the training run over its steps"></picture></div>'
    )


def _section(section: Section, numbers: Sequence[int]) -> str:
    cards = "".join(_card(film, number) for film, number in zip(section.films, numbers, strict=True))
    return (
        f'<section><h3>{html.escape(section.title)}</h3><p class="note">{html.escape(section.note)}</p>'
        f'<div class="films">{cards}</div></section>'
    )


def _card(film: PageFilm, number: int) -> str:
    kind = "better" if film.gain > 0 else "worse" if film.gain < 0 else "soft"
    findings = ", ".join(film.labels) if film.labels else "normal"
    # Defined once per card and used by both panels, so that the film is in the file only once.
    name = f"film-{number}"
    symbol = (
        f'<image id="{name}" href="{_film_uri(film.load_image())}" '
        f'width="{film.width:g}" height="{film.height:g}" preserveAspectRatio="none"/>'
    )
    return (
        f'<article><header><span title="{html.escape(film.name)}">{html.escape(findings)}</span>'
        f'<b class="{kind}">{format_value(film.gain, signed=True)}</b></header><div class="pair">'
        f"{_panel('before', film, film.before, f'<defs>{symbol}</defs>', name)}"
        f"{_panel('after', film, film.after, '', name)}</div></article>"
    )


def _panel(when: str, film: PageFilm, answer: PageAnswer, definition: str, image: str) -> str:
    reference = "".join(_rect(box, "reference", label) for box, label in zip(film.boxes, film.labels, strict=True))
    predicted = "".join(
        _rect(box, "predicted", label or "") for box, label in zip(answer.boxes, answer.labels, strict=True)
    )
    boxes = "".join(
        f"<li><span>{html.escape(label or 'box')}</span><span>IoU {iou:.2f}</span></li>"
        for label, iou in zip(answer.labels, answer.ious, strict=True)
    )
    return (
        f'<figure class="{when}"><svg viewBox="0 0 {film.width:g} {film.height:g}" role="img" '
        f'aria-label="{html.escape(film.name)}, {when}">'
        f'{definition}<use href="#{image}"/>{reference}{predicted}</svg>'
        f"<figcaption><strong>{when} {answer.reward:.2f}</strong>"
        f'<div class="bar"><span style="width:{100 * min(max(answer.reward, 0), 1):.0f}%"></span></div>'
        f'{html.escape(answer.reason)}<ul class="boxes">{boxes}</ul>'
        f"<details><summary>answer</summary><pre>{html.escape(answer.text)}</pre></details>"
        "</figcaption></figure>"
    )


def _rect(box: Box, kind: str, label: str) -> str:
    """A rectangle on a dark halo; nothing for a box without area, which can't be drawn."""
    x1, y1, x2, y2 = box
    if not (all(map(math.isfinite, box)) and x1 < x2 and y1 < y2):
        return ""
    shape = f'x="{x1:.1f}" y="{y1:.1f}" width="{x2 - x1:.1f}" height="{y2 - y1:.1f}"'
    return f'<rect class="halo" {shape}/><rect class="{kind}" {shape}><title>{html.escape(label)}</title></rect>'


def _footer(definitions: Mapping[str, str]) -> str:
    items = "".join(
        f"<dt>{html.escape(word)}</dt><dd>{html.escape(meaning)}</dd>" for word, meaning in definitions.items()
    )
    return f"<footer><dl>{items}</dl><p>Not a medical device and not for clinical use.</p></footer>"


def _film_uri(image: Image) -> str:
    film = image.convert("L" if image.mode in ("1", "L", "I;16", "LA") else "RGB")
    film.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    buffer = io.BytesIO()
    film.save(buffer, format="JPEG", quality=88)
    return _data_uri(buffer.getvalue(), "image/jpeg")


def _data_uri(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
