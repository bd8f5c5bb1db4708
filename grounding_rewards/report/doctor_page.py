"""What the doctor found in a dataset, as one HTML file: findings, histograms, where the boxes lie, and films.

Everything is inside the file. With films in it, it is to be guarded like the films.
"""

from __future__ import annotations

import base64
import html
import io
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.doctor.box_defects import box_defect
from grounding_rewards.doctor.checks import CHECKS, LEAST_SIDE, SEVERITIES
from grounding_rewards.doctor.examine import (
    AREA_EDGES,
    ASPECT_EDGES,
    MOST_BOXES,
    SIDE_EDGES,
    Checkup,
    Example,
    Figures,
    FilmPicture,
    Finding,
)

#: Longer side in pixels of a film on the page. With it and the three examples of each finding the file is bounded.
LONGEST_SIDE = 256
_MOST_LABELS = 40
_HEAT_MAPS = 12
#: The colour of the heat maps, readable on light and dark ground.
_HEAT_COLOUR = (214, 90, 20)
_WIDTH, _HEIGHT, _FOOT = 360, 130, 18


def render_doctor_page(checkup: Checkup) -> str:
    """Write the page.

    Args:
        checkup: from :func:`grounding_rewards.doctor.examine.examine`; films are shown where it keeps them.

    Returns:
        An HTML document that refers to nothing outside itself.
    """
    title = f"Check-up of {checkup.dataset}"
    figures = checkup.figures
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="verdict">{html.escape(verdict(checkup))}</p>',
        f'<div class="tiles">{"".join(_tiles(figures))}</div>',
        "<h2>Findings</h2>",
        _summary(checkup.findings),
        *(_finding(finding) for finding in checkup.findings),
        '<h2>Distributions</h2><p class="note">Sound boxes only.</p>',
        f'<div class="charts">{"".join(_charts(figures))}</div>',
        _label_table(figures),
        _heat_maps(figures),
        _sample(checkup.sample),
        _remarks(checkup),
        "<footer><p>Not a medical device and not for clinical use.</p></footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_style_sheet()}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def verdict(checkup: Checkup) -> str:
    """What came out, in a sentence.

    Example:
        >>> from grounding_rewards.doctor.examine import Figures
        >>> verdict(Checkup("films", (), {}, (), Figures(), ()))
        '0 films: no errors, no warnings.'
    """
    errors, warnings = ((checkup.count(severity), severity) for severity in SEVERITIES[:2])
    counted = [f"{n or 'no'} {name}{'' if n == 1 else 's'}" for n, name in (errors, warnings)]
    n = checkup.figures.rows
    return f"{n:,} {'film' if n == 1 else 'films'}: {', '.join(counted)}."


def extent(finding: Finding) -> str:
    """How much a finding concerns, as in `4 of 90 boxes (4 %)`.

    Example:
        >>> extent(Finding("off-film", "error", "", 4, 90, "boxes", "", "", "", ()))
        '4 of 90 boxes (4 %)'
    """
    unit = finding.unit if (finding.of or finding.count) != 1 else finding.unit.removesuffix("s").removesuffix("e")
    if finding.unit == "boxes" and (finding.of or finding.count) == 1:
        unit = "box"
    if finding.share is None:
        return f"{finding.count:,} {unit}"
    return f"{finding.count:,} of {finding.of:,} {unit} ({percent(finding.share)})"


def percent(share: float) -> str:
    """A share in per cent, never rounded to none or all of it.

    Example:
        >>> percent(0.0004), percent(0.25), percent(0.9999), percent(0)
        ('< 1 %', '25 %', '> 99 %', '0 %')
    """
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def place(example: Example) -> str:
    """Where an example stands, as in `train, row 3 (id 0003.png)`; nothing for what stands in no row.

    Example:
        >>> place(Example("train", 3, "0003.png", "…"))
        'train, row 3 (id 0003.png)'
    """
    return f"{example.split}, row {example.row} (id {example.id})" if example.row >= 0 else ""


@cache
def _style_sheet() -> str:
    folder = files("grounding_rewards.report")
    return "".join((folder / name).read_text(encoding="utf-8") for name in ("page.css", "doctor_page.css"))


def _tiles(figures: Figures) -> Iterator[str]:
    splits = ", ".join(f"{split} {count:,}" for split, count in figures.films.items())
    yield _tile("films", f"{figures.rows:,}", splits)
    films = max(1, sum(figures.per_film.values()))
    yield _tile("films without boxes", percent(figures.negatives / films), f"{figures.negatives:,} films")
    positive = max(1, films - figures.negatives)
    yield _tile("boxes", f"{figures.boxes:,}", f"{figures.boxes / positive:.1f} per film with boxes")
    yield _tile("labels", f"{len(figures.labels):,}", ", ".join(label for label, _ in figures.labels.most_common(3)))


def _tile(heading: str, value: str, note: str) -> str:
    return (
        f'<div class="tile"><span class="soft">{html.escape(heading)}</span><b>{html.escape(value)}</b>'
        f"<small>{html.escape(note)}</small></div>"
    )


def _summary(findings: Sequence[Finding]) -> str:
    if not findings:
        return '<p><span class="badge passed">passed</span> Nothing was found.</p>'
    rows = "".join(
        f"<tr><td>{_badge(one.severity)}</td>"
        f'<td><a href="#{one.name}">{html.escape(one.title)}</a></td>'
        f'<td class="number">{html.escape(extent(one))}</td></tr>'
        for one in findings
    )
    return f'<div class="panel"><table class="findings"><tbody>{rows}</tbody></table></div>'


def _badge(severity: str) -> str:
    return f'<span class="badge {severity}">{severity}</span>'


def _finding(finding: Finding) -> str:
    items = [("found", finding.found)] if finding.found else []
    items += [("why it matters", finding.why), ("what to do", finding.fix)]
    lines = "".join(f"<dt>{word}</dt><dd>{_with_code(text)}</dd>" for word, text in items)
    films = [(one.film, f"{place(one)}: {one.detail}") for one in finding.examples if one.film is not None]
    if films:
        examples = f'<div class="grid">{"".join(_film(film, caption) for film, caption in films)}</div>'
    else:
        examples = ""
        texts = "".join(
            f"<li>{html.escape(': '.join(filter(None, (place(one), one.detail))))}</li>" for one in finding.examples
        )
        lines += f"<dt>examples</dt><dd><ul>{texts}</ul></dd>" if texts else ""
    return (
        f'<section class="finding" id="{finding.name}"><h3>{_badge(finding.severity)}{html.escape(finding.title)} '
        f"<small>{html.escape(extent(finding))}</small></h3><dl>{lines}</dl>{examples}</section>"
    )


def _with_code(text: str) -> str:
    """Escaped, and what stands between backticks as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def _film(film: FilmPicture, caption: str) -> str:
    size = (film.width, film.height)
    drawn = "".join(
        _rect(box, "sound" if box_defect(box, size) is None else "bad", label)
        for box, label in zip(film.boxes, [*film.labels, *[""] * len(film.boxes)], strict=False)
        if is_box(box)
    )
    x1, y1, x2, y2 = _view(film)
    edge = f'<rect class="edge" x="0" y="0" width="{film.width:g}" height="{film.height:g}"/>'
    image = (
        f'<image href="data:image/jpeg;base64,{base64.b64encode(film.jpeg).decode("ascii")}" width="{film.width:g}" '
        f'height="{film.height:g}" preserveAspectRatio="none"/>'
        if film.jpeg
        else ""
    )
    return (
        f'<figure><svg viewBox="{x1:.6g} {y1:.6g} {x2 - x1:.6g} {y2 - y1:.6g}" role="img" '
        f'aria-label="{html.escape(film.title)}">{image}{edge}{drawn}</svg>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _view(film: FilmPicture) -> tuple[float, float, float, float]:
    """What is shown: the film, and of boxes beside it as much as half a film on every side."""
    sound = [box for box in film.boxes if is_box(box)]
    xs = [0.0, film.width, *(box[k] for box in sound for k in (0, 2))]
    ys = [0.0, film.height, *(box[k] for box in sound for k in (1, 3))]
    x1, x2 = max(min(xs), -film.width / 2), min(max(xs), 1.5 * film.width)
    y1, y2 = max(min(ys), -film.height / 2), min(max(ys), 1.5 * film.height)
    return x1, y1, x2, y2


def _rect(box: Sequence[float], kind: str, label: object) -> str:
    """A rectangle on a dark halo; a turned box is drawn between its corners."""
    x1, x2 = sorted((box[0], box[2]))
    y1, y2 = sorted((box[1], box[3]))
    shape = f'x="{x1:.6g}" y="{y1:.6g}" width="{x2 - x1:.6g}" height="{y2 - y1:.6g}"'
    return f'<rect class="halo" {shape}/><rect class="{kind}" {shape}><title>{html.escape(str(label))}</title></rect>'


def _charts(figures: Figures) -> Iterator[str]:
    yield _chart(
        "Area of boxes",
        "share of the film, logarithmic",
        figures.areas.tolist(),
        {k: f"{100 * AREA_EDGES[k]:.4g} %" for k in range(4, len(AREA_EDGES), 4)},
    )
    yield _chart(
        "Shorter side of boxes",
        f"pixels that the model sees, logarithmic; under {LEAST_SIDE:g} nothing is learned",
        figures.sides.tolist(),
        {k: f"{SIDE_EDGES[k]:g}" for k in range(0, len(SIDE_EDGES), 4)},
        limit=float(np.interp(math.log(LEAST_SIDE), np.log(SIDE_EDGES), np.arange(len(SIDE_EDGES)))),
    )
    counts = [figures.per_film[n] for n in range(MOST_BOXES + 1)]
    most = max((n for n, count in enumerate(counts) if count), default=0)
    shown = counts[: max(most + 1, 6)]
    names = {n + 0.5: f"{n}{'+' if n == MOST_BOXES else ''}" for n in range(len(shown))}
    yield _chart("Boxes per film", "number of films", shown, names)
    yield _chart(
        "Shape of boxes",
        "width through height, logarithmic",
        figures.aspects.tolist(),
        {k: f"{ASPECT_EDGES[k]:.3g}" for k in range(2, len(ASPECT_EDGES), 2)},
    )


def _chart(
    title: str,
    note: str,
    counts: Sequence[int],
    ticks: dict[int, str] | dict[float, str],
    *,
    limit: float | None = None,
) -> str:
    """A histogram; ticks and limit stand at edges of bins, counted from the left."""
    top, step = max(1, *counts), _WIDTH / len(counts)
    bars = "".join(
        f'<rect x="{k * step + 0.5:.2f}" y="{_HEIGHT - _bar(count, top):.2f}" width="{step - 1:.2f}" '
        f'height="{_bar(count, top):.2f}"><title>{count:,}</title></rect>'
        for k, count in enumerate(counts)
        if count
    )
    names = "".join(
        f'<text x="{k * step:.2f}" y="{_HEIGHT + 13}" text-anchor="{_anchor(k, len(counts))}">'
        f"{html.escape(name)}</text>"
        for k, name in ticks.items()
    )
    line = (
        "" if limit is None else f'<line class="limit" x1="{limit * step:.2f}" x2="{limit * step:.2f}" y2="{_HEIGHT}"/>'
    )
    return (
        f'<div class="chart"><h3>{html.escape(title)}</h3><p>{html.escape(note)}</p>'
        f'<svg viewBox="0 -14 {_WIDTH} {_HEIGHT + _FOOT + 14}" role="img" aria-label="{html.escape(title)}">'
        f'{bars}{line}<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/>'
        f'<text x="0" y="-4">most: {max(0, *counts):,}</text>{names}</svg></div>'
    )


def _bar(count: int, top: int) -> float:
    # One box among thousands is still to be seen.
    return max(1.0, _HEIGHT * count / top)


def _anchor(k: float, bins: int) -> str:
    return "start" if k == 0 else "end" if k == bins else "middle"


def _label_table(figures: Figures) -> str:
    if not figures.labels:
        return ""
    splits = list(figures.films)
    shown = figures.labels.most_common(_MOST_LABELS)
    head = "".join(f"<th>films, {html.escape(split)}</th>" for split in splits)
    rows = "".join(
        f"<tr><th>{html.escape(label)}</th><td>{boxes:,}</td>"
        + "".join(f"<td>{figures.label_films[split, label]:,}</td>" for split in splits)
        + "</tr>"
        for label, boxes in shown
    )
    rest = len(figures.labels) - len(shown)
    note = f'<p class="note">{rest:,} rarer labels are not shown.</p>' if rest else ""
    return (
        "<h2>Labels</h2>"
        f'<div class="panel"><table><thead><tr><th></th><th>boxes</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{note}"
    )


def _heat_maps(figures: Figures) -> str:
    if None not in figures.centres:
        return ""
    labels = [label for label, _ in figures.labels.most_common() if label in figures.centres][: _HEAT_MAPS - 1]
    maps = "".join(
        f'<figure><img src="{_heat_uri(figures.centres[label])}" alt="Heat map of box centres">'
        f"<figcaption>{html.escape(label or 'all boxes')}, {int(figures.centres[label].sum()):,}</figcaption></figure>"
        for label in (None, *(labels if len(labels) > 1 else ()))
    )
    return (
        '<h2>Where the boxes lie</h2><p class="note">Centres of the boxes, every film stretched to a square. '
        f'The left of a film is the right of the patient.</p><div class="heat">{maps}</div>'
    )


def _heat_uri(counts: np.ndarray) -> str:
    """A PNG whose opacity is the number of centres, so that any ground shows through where there are none."""
    from PIL import Image

    pixels = np.zeros((*counts.shape, 4), dtype=np.uint8)
    pixels[..., :3] = _HEAT_COLOUR
    # The root brings out what is rare.
    pixels[..., 3] = np.round(255 * np.sqrt(counts / max(1, counts.max())))
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((160, 160), Image.Resampling.BICUBIC).save(buffer, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _sample(films: Sequence[FilmPicture]) -> str:
    if not films:
        return ""
    cards = "".join(_film(film, f"{film.title}: {_content(film)}") for film in films)
    return (
        '<h2>Films</h2><p class="note">Drawn at random. Blue boxes are sound, red ones are not.</p>'
        f'<div class="grid">{cards}</div>'
    )


def _content(film: FilmPicture) -> str:
    labels = ", ".join(filter(None, dict.fromkeys(map(str, film.labels))))
    return labels or ("boxes without labels" if film.boxes else "no boxes")


def _remarks(checkup: Checkup) -> str:
    parts = []
    if checkup.assumptions:
        items = "".join(f"<li>{html.escape(one)}</li>" for one in checkup.assumptions)
        parts.append(f"<h2>Assumed</h2><ul>{items}</ul>")
    if checkup.unchecked:
        items = "".join(
            f"<li>{html.escape(CHECKS[name].title)}: {html.escape(why)}</li>" for name, why in checkup.unchecked.items()
        )
        parts.append(f"<h2>Not looked for</h2><ul>{items}</ul>")
    passed = "".join(f"<li>{html.escape(CHECKS[name].title)}</li>" for name in checkup.passed)
    parts.append(f'<h2>Looked for and not found</h2><ul class="plain">{passed}</ul>')
    return "".join(parts)
