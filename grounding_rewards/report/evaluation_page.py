"""The report of an evaluation as one HTML file: figures with intervals, diagrams, films with boxes, every reward.

Everything is inside the file, and a policy in its head forbids it to load anything. What a model wrote is data and
never markup. The file shows films and the model's words, so it is to be guarded like the films.

Its size is bounded: at most :data:`FILMS_PER_GROUP` pictures in each of six groups, each of at most
:data:`PICTURE_BYTES`, which is under 4 MB in all; of what the model wrote :data:`TEXT_BUDGET` characters, shared
equally; :data:`MOST_LISTED` films in the table, with :data:`MOST_BOXES` boxes each.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.data.film_rows import small_film
from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.calibration import Calibration
from grounding_rewards.metrics.confusion import Confusion
from grounding_rewards.metrics.curves import Curve
from grounding_rewards.metrics.pairing import pair_film
from grounding_rewards.metrics.robustness import RobustnessPoint
from grounding_rewards.report.evaluation_diagrams import Diagram, diagrams, robustness_rows
from grounding_rewards.report.tables import (
    NOTHING,
    Row,
    format_interval,
    format_value,
    html_table,
    measured_columns,
)

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longer side in pixels of a film on the page.
LONGEST_SIDE = 512
#: Size of a film's JPEG at most; a noisy film is compressed more.
PICTURE_BYTES = 40_000
FILMS_PER_GROUP = 12
MOST_LISTED = 20_000
MOST_BOXES = 50
TEXT_BUDGET = 4_000_000
_LEAST_TEXT, _MOST_TEXT = 160, 4_000
_TILES = 4

#: What an answer can be, beside its status and what was rejected in it; the words of the page's filter.
HALLUCINATED = "box on a normal film"
MISSED = "finding without a box"
FALSE_BOX = "box beside the findings"


@dataclass(frozen=True, kw_only=True)
class EvaluationPage:
    """What the report of an evaluation shows.

    Attributes:
        title: what was evaluated.
        subtitle: on what.
        films: every film with its answer.
        reward: name of the reward that films are ranked by, a key of their `rewards`.
        load_image: called with the place of a film in `films`, for the few that are shown; None where there is no
            image. Without it the page shows boxes without films.
        headline: the figures of the evaluated system and, below it, of everything that it is compared with.
        headings: key of every figure and its heading.
        definitions: key of a figure and what it means, in a sentence.
        lower_is_better: keys of the figures for which that holds.
        unranked: keys of the figures of which neither more nor less is better, such as a signed error.
        per_label: figures of each label.
        per_size: figures of each size of reference boxes.
        pr_curves: recall and precision.
        froc_curves: false positives per film and sensitivity.
        calibration: None where answers state no confidences.
        ious: for each reference box the IoU with its partner, 0 without one.
        confusion: between labels.
        robustness: answers to changed films.
        facts: what someone needs who wants the same figures again: model, dataset, decoding, versions, seed.

    Raises:
        ValueError: `reward` is no reward of the films.
    """

    title: str
    subtitle: str
    films: Sequence[AnsweredFilm]
    reward: str
    load_image: Callable[[int], Image | None] | None = None
    headline: Sequence[Row] = ()
    headings: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)
    lower_is_better: Collection[str] = ()
    unranked: Collection[str] = ()
    per_label: Sequence[Row] = ()
    per_size: Sequence[Row] = ()
    pr_curves: Sequence[Curve] = ()
    froc_curves: Sequence[Curve] = ()
    calibration: Calibration | None = None
    ious: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    confusion: Confusion | None = None
    robustness: Sequence[RobustnessPoint] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.reward_names
        if self.films and self.reward not in names:
            raise ValueError(
                f"Expected one of {', '.join(names) or 'the rewards of the films'} for `reward`, got {self.reward!r}. "
                "Give the name under which the films carry it."
            )

    @property
    def reward_names(self) -> list[str]:
        """The rewards of the films, in the order in which the first film with them has them."""
        return list(dict.fromkeys(name for film in self.films for name in film.rewards))


@dataclass(frozen=True)
class Group:
    """Films of the gallery under one heading; ``films`` are places in the sequence of all films."""

    title: str
    note: str
    films: tuple[int, ...]


@dataclass(frozen=True)
class _Seen:
    """A film with what its boxes overlap: for each box the IoU with its partner, 0 without one."""

    film: AnsweredFilm
    gt_ious: NDArray[np.float64]
    pred_ious: NDArray[np.float64]

    @property
    def tags(self) -> list[str]:
        """Status, reasons of rejection, and what is wrong."""
        tags = [self.film.status]
        if self.film.is_normal and len(self.film.pred):
            tags.append(HALLUCINATED)
        if np.any(self.gt_ious <= 0):
            tags.append(MISSED)
        if not self.film.is_normal and np.any(self.pred_ious <= 0):
            tags.append(FALSE_BOX)
        return [*tags, *self.film.rejected]


def choose_films(films: Sequence[AnsweredFilm], reward: str, *, count: int = FILMS_PER_GROUP) -> list[Group]:
    """Choose the films that tell what a model can do and how it fails; no film comes twice.

    Best, typical and worst are ranked by their reward. Of the failures that many films share the group holds an even
    selection over the whole dataset: nobody chose them.

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
    return _groups([_see(film) for film in films], reward, count)


def render_evaluation_page(page: EvaluationPage) -> str:
    """Write the whole page.

    Args:
        page: what it shows.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.

    Example:
        >>> film = AnsweredFilm("a", 10, 10, text="</script>", rewards={"R4": 0.2})
        >>> page = EvaluationPage(title="my model", subtitle="one film", films=[film], reward="R4")
        >>> render_evaluation_page(page).count("</script>")  # its own two: the data and the program
        2
    """
    seen = [_see(film) for film in page.films]
    groups = _groups(seen, page.reward, FILMS_PER_GROUP)
    pictures = _pictures(page, groups)
    drawn = {diagram.name: diagram for diagram in diagrams(page)}
    sections = [
        ("figures", "Figures", _headline(page) + _diagrams(drawn, ["systems"])),
        ("curves", "Curves", _diagrams(drawn, ["precision_recall", "froc", "calibration", "iou_histogram"])),
        ("breakdown", "By label and size", _breakdown(page, drawn)),
        ("robustness", "Robustness", _robustness(page, drawn)),
        ("films", "Films", _film_part(page, seen, groups, pictures) if seen else ""),
        ("facts", "How it was measured", _facts(page)),
    ]
    sections = [section for section in sections if section[2]]
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{content}</section>'
        for name, title, content in sections
    )
    style, script = _asset("page.css") + _asset("evaluation_page.css"), _asset("evaluation_page.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    document = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{html.escape(page.title)}</title><style>{style}</style></head><body>"
        '<a class="skip" href="#main">Skip to the figures</a>'
        f'<header class="top"><h1>{_isolated(page.title)}</h1><p class="soft">{_isolated(page.subtitle)}</p>'
        f'{_tiles(page)}<nav aria-label="Parts of the report"><ul>{links}</ul></nav></header>'
        f'<main id="main" tabindex="-1">{body}</main>'
        "<footer><p>Shows films and what a model wrote about them: guard it like the films. "
        "Not a medical device and not for clinical use.</p></footer>"
        f"<script>{script}</script></body></html>\n"
    )
    # Half a character, which a model may write, can't be stored.
    return document.encode("utf-8", "replace").decode("utf-8")


@cache
def _asset(name: str) -> str:
    return (files("grounding_rewards.report") / name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}"


def _isolated(text: str) -> str:
    """Escaped, and unable to turn the direction of what stands beside it."""
    return f"<bdi>{html.escape(text)}</bdi>"


def _see(film: AnsweredFilm) -> _Seen:
    pairs = pair_film(film)
    return _Seen(film, pairs.ious, pairs.pred_ious)


# The films of the gallery


def _groups(seen: Sequence[_Seen], reward: str, count: int) -> list[Group]:
    def earned(place: int) -> float:
        return seen[place].film.rewards.get(reward, 0.0)

    tags = [set(one.tags) for one in seen]
    unreadable = [
        place
        for place, one in enumerate(seen)
        if one.film.status == "unparseable" or (one.film.status == "truncated" and not len(one.film.pred))
    ]
    rest = [place for place in range(len(seen)) if place not in set(unreadable)]
    hallucinated = [place for place in rest if HALLUCINATED in tags[place]]
    missed = [place for place in rest if MISSED in tags[place]]
    normal = sum(one.film.is_normal for one in seen)
    overlapped = sorted(
        (place for place in rest if not seen[place].film.is_normal and MISSED not in tags[place]),
        key=lambda place: -earned(place),
    )
    best, left = overlapped[:count], overlapped[count:]
    worst = left[::-1][:count]
    shown_missed = _evenly(missed, count)
    ranking = sorted((place for place in range(len(seen)) if not seen[place].film.is_normal), key=lambda p: -earned(p))
    taken = {*best, *worst, *shown_missed, *_evenly(unreadable, count)}
    typical = _around_the_middle(ranking, taken, count)
    with_findings = len(seen) - normal
    groups = [
        Group("Best", f"{len(overlapped)} films have a box on every finding; the highest {reward}.", tuple(best)),
        Group(
            "Typical",
            f"From the middle of the ranking of the {with_findings} films with findings by {reward}.",
            tuple(typical),
        ),
        Group("Worst", f"A box on every finding, and the lowest {reward}.", tuple(worst)),
        Group("Missed", _share(missed, with_findings, "films with findings", MISSED), tuple(shown_missed)),
        Group(
            "Hallucinated",
            _share(hallucinated, normal, "normal films", "box, where there is nothing to find"),
            tuple(_evenly(hallucinated, count)),
        ),
        Group(
            "Unparseable",
            _share(unreadable, len(seen), "answers", "text that holds neither a complete box nor a stated negative"),
            tuple(_evenly(unreadable, count)),
        ),
    ]
    return [group for group in groups if group.films]


def _share(places: Sequence[int], of: int, what: str, having: str) -> str:
    share = f" ({100 * len(places) / of:.1f} %)" if of else ""
    return f"{len(places)} of {of} {what}{share} with a {having}; an even selection over the dataset."


def _evenly(places: Sequence[int], count: int) -> list[int]:
    """At most `count` of the places, from the first to the last."""
    if len(places) <= count:
        return list(places)
    return [places[round(k)] for k in np.linspace(0, len(places) - 1, count)]


def _around_the_middle(ranking: Sequence[int], taken: set[int], count: int) -> list[int]:
    middle = (len(ranking) - 1) / 2
    nearest = sorted(range(len(ranking)), key=lambda rank: abs(rank - middle))
    free = [rank for rank in nearest if ranking[rank] not in taken][:count]
    return [ranking[rank] for rank in sorted(free)]


def _pictures(page: EvaluationPage, groups: Sequence[Group]) -> dict[int, str]:
    if page.load_image is None:
        return {}
    places = [place for group in groups for place in group.films]
    images = ((place, page.load_image(place)) for place in places)
    return {place: _jpeg_uri(image) for place, image in images if image is not None}


def _jpeg_uri(image: Image) -> str:
    film = small_film(image, LONGEST_SIDE)
    for quality in (85, 70, 50, 30):
        content = _jpeg(film, quality)
        if len(content) <= PICTURE_BYTES:
            break
    while len(content) > PICTURE_BYTES:
        film = film.resize((max(1, film.width // 2), max(1, film.height // 2)))
        content = _jpeg(film, quality)
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode('ascii')}"


def _jpeg(film: Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    film.save(buffer, format="JPEG", quality=quality, optimize=True)
    return buffer.getvalue()


# Figures


def _tiles(page: EvaluationPage) -> str:
    """The first figures of the evaluated system, each with the best of what it is compared with."""
    rows = [row for row in page.headline if not row.is_difference]
    if not rows:
        return ""
    first, others = rows[0], rows[1:]
    keys = [key for key in measured_columns([first], page.headings) if key not in page.unranked][:_TILES]
    tiles = []
    for key in keys:
        rivals = [(_merit(page, row, key), number) for number, row in enumerate(others)]
        rivals = [(merit, -number) for merit, number in rivals if not math.isnan(merit)]
        rival = others[-max(rivals)[1]] if rivals else None
        note = f"best of the others: {_isolated(rival.name)} {format_value(rival.figures[key][0])}" if rival else ""
        tiles.append(
            f'<div class="tile"><span class="soft">{html.escape(page.headings[key])}</span>'
            f"<b>{format_value(first.figures[key][0])}</b>"
            f"<span>{format_interval(first.figures[key])}</span> <small>{note}</small></div>"
        )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _merit(page: EvaluationPage, row: Row, key: str) -> float:
    value = row.figures.get(key, (math.nan,))[0]
    return -value if key in page.lower_is_better else value


def _headline(page: EvaluationPage) -> str:
    """The table of figures, one a line, so that a page in a journal can hold it; systems are its columns."""
    columns = measured_columns(page.headline, page.headings)
    if not columns:
        return ""
    systems = list(page.headline)
    head = "".join(f'<th scope="col">{_isolated(row.name)}</th>' for row in systems)
    body = "".join(_figure_line(page, key, systems) for key in columns)
    return (
        '<p class="note">95\N{NO-BREAK SPACE}% bootstrap intervals beneath the values. '
        f'<span class="ahead">▲</span> marks what is better than {_isolated(systems[0].name)}. ↓: lower is better.</p>'
        '<div class="panel" tabindex="0" role="region" aria-label="Table of figures"><table class="headline">'
        f'<thead><tr><th scope="col">figure</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _figure_line(page: EvaluationPage, key: str, systems: Sequence[Row]) -> str:
    own = _merit(page, systems[0], key)
    arrow = ' <abbr title="lower is better">↓</abbr>' if key in page.lower_is_better else ""
    meaning = page.definitions.get(key)
    definition = f"<small>{html.escape(meaning)}</small>" if meaning else ""
    cells = []
    for row in systems:
        figure = row.figures.get(key)
        if figure is None or math.isnan(figure[0]):
            cells.append(f"<td>{NOTHING}</td>")
            continue
        signed = row.is_difference or key in page.unranked
        ahead = key not in page.unranked and not row.is_difference and _merit(page, row, key) > own
        mark = '<span class="ahead" title="better than the first column">▲</span> ' if ahead else ""
        value, interval = format_value(figure[0], signed=signed), format_interval(figure, signed=signed)
        cells.append(f"<td>{mark}{value}<small>{interval}</small></td>")
    return f'<tr><th scope="row">{html.escape(page.headings[key])}{arrow}{definition}</th>{"".join(cells)}</tr>'


def _diagrams(drawn: Mapping[str, Diagram], names: Sequence[str]) -> str:
    shown = [drawn[name] for name in names if name in drawn]
    if not shown:
        return ""
    return f'<div class="diagrams">{"".join(map(_diagram, shown))}</div>'


def _diagram(diagram: Diagram) -> str:
    width = diagram.size[0]
    kind, drawn = ("wide" if width > 6.5 else "middle" if width > 4 else ""), diagram.svg()
    if kind:
        title = html.escape(diagram.title)
        drawn = f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{drawn}</div>'
    return (
        f'<figure class="diagram {kind}" id="{diagram.name}"><h3>{html.escape(diagram.title)}</h3>'
        f"{drawn}<figcaption>{_unbroken(html.escape(diagram.note))}</figcaption></figure>"
    )


def _unbroken(text: str) -> str:
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _breakdown(page: EvaluationPage, drawn: Mapping[str, Diagram]) -> str:
    tables = _folded_table("Labels", page.per_label, page.headings) + _folded_table(
        "Sizes", page.per_size, page.headings
    )
    return _diagrams(drawn, ["per_label", "per_size", "confusion"]) + tables


def _robustness(page: EvaluationPage, drawn: Mapping[str, Diagram]) -> str:
    table = _folded_table("Robustness", *robustness_rows(page.robustness))
    return _diagrams(drawn, ["robustness_corruptions", "robustness_pgd"]) + table


def _folded_table(title: str, rows: Sequence[Row], headings: Mapping[str, str]) -> str:
    if not measured_columns(rows, headings):
        return ""
    return (
        f'<details><summary>{title} as a table</summary><div class="panel" tabindex="0" role="region" '
        f'aria-label="{title}">{html_table(rows, headings)}</div></details>'
    )


def _facts(page: EvaluationPage) -> str:
    items = "".join(f"<dt>{html.escape(key)}</dt><dd>{_isolated(value)}</dd>" for key, value in page.facts.items())
    return f'<dl class="facts">{items}</dl>' if items else ""


# Films: everything below is drawn by the script from one block of data


def _film_part(
    page: EvaluationPage, seen: Sequence[_Seen], groups: Sequence[Group], pictures: Mapping[int, str]
) -> str:
    chosen = {place for group in groups for place in group.films}
    listed = sorted({*range(min(MOST_LISTED, len(seen))), *chosen})
    data = {
        "rewards": page.reward_names,
        "reward": page.reward,
        "total": len(seen),
        "groups": [{"title": one.title, "note": one.note, "films": one.films} for one in groups],
        "pictures": {str(place): uri for place, uri in pictures.items()},
        "places": listed,
        "films": list(_film_records([seen[place] for place in listed], page.reward_names)),
    }
    # Names that begin with a capital don't clash with a figure's id.
    return (
        f'<p class="note">Pictures of {len(pictures):,} of {len(seen):,} films; the table below lists '
        f"{'all' if len(listed) == len(seen) else f'{len(listed):,}'} of them. Dashed: reference. Solid: predicted. "
        "Numbers at a box: IoU with its partner.</p>"
        "<noscript><p>Films and their rewards need JavaScript, which this program does not allow; "
        "the figures above are complete.</p></noscript>"
        f'<div id="Films"></div><script type="application/json" id="Data">{_as_data(data)}</script>'
    )


def _film_records(seen: Sequence[_Seen], rewards: Sequence[str]) -> Iterator[dict[str, Any]]:
    most = min(_MOST_TEXT, max(_LEAST_TEXT, TEXT_BUDGET // max(1, len(seen))))
    for one in seen:
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
    """Corners, label, IoU and, for predicted boxes, the confidence; what is not finite is None."""
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


def _as_data(data: Any) -> str:
    """JSON that can't end the element around it: pure ASCII, without any sign that means something in HTML."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
