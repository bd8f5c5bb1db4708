"""Whether a reward will teach a model, as one HTML file: causes, what would have given signal, and images.

The file loads nothing: everything is inside it. Where it shows images, guard it like the images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grounding_rewards.boxes import is_box
from grounding_rewards.metrics.estimates import percent
from grounding_rewards.metrics.signal import CAUSES
from grounding_rewards.metrics.signal_report import RewardSignal, SignalReport, boxes_of_all_readers
from grounding_rewards.report.render import jpeg_uri, read_asset, render
from grounding_rewards.rewards.grounding import GroundingReward

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longer side in pixels of an image on the page.
LONGEST_SIDE = 320
#: Groups that are shown of each cause.
SHOWN = 3
_SPREAD = "with spread"
# Bins of the histogram of advantages: half a standard deviation each.
_EDGES = np.arange(-3.25, 3.5, 0.5)
_MOST_BOXES = 40


def signal_matrix(report: SignalReport) -> tuple[list[str], list[tuple[str, list[RewardSignal | None]]]]:
    """The rewards that were tried as a table: a line for each, a column for each threshold, and one for none.

    Returns:
        The headings of the columns, and of each line its name and cells, None where nothing was tried.
    """
    thresholds = sorted({one.threshold for one in report.all if one.threshold is not None}, reverse=True)
    columns: list[float | None] = [*thresholds, *([None] if any(one.threshold is None for one in report.all) else [])]
    lines: dict[str, list[RewardSignal | None]] = {}
    for one in report.all:
        line = lines.setdefault(one.reward, [None] * len(columns))
        line[columns.index(one.threshold)] = one
    return ["no τ" if one is None else f"τ {one:g}" for one in columns], list(lines.items())


class _Shown(NamedTuple):
    """A group on the page."""

    title: str
    view: str
    width: str
    height: str
    uri: str
    boxes: list[tuple[tuple[float, float, float, float], str, str]]
    rewards: list[tuple[str, str]]


def render_signal_page(
    report: SignalReport,
    rows: Sequence[Mapping[str, Any]],
    texts: Sequence[Sequence[Any]],
    reward: GroundingReward,
    load_image: Callable[[int], Image | None] | None,
    *,
    title: str,
) -> str:
    """Render the page.

    Args:
        report: from :func:`grounding_rewards.metrics.signal_report.measure_signal`.
        rows: the images of the groups, as it took them.
        texts: the completions, likewise.
        reward: the configured one.
        load_image: the image of the k-th group, or None; without it no image is shown.
        title: of the page.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    own = report.configured
    best = next(one for one in report.all if one.name == report.best)
    headings, lines = signal_matrix(report)
    chosen = list(dict.fromkeys((own.name, best.name)))
    return render(
        "signal.html.jinja",
        style=read_asset("page.css") + read_asset("signal_page.css"),
        script="",
        title=title,
        report=report,
        own=own,
        best=best,
        causes=CAUSES,
        percent=percent,
        bars=[(one, list(_segments(one))) for one in report.all],
        headings=headings,
        matrix=lines,
        advantages=_advantages(report),
        smaller=[one for one in report.all if one.name in chosen],
        tables=[
            (name, parts)
            for name, parts in (
                ("finding", report.labels),
                ("size", report.sizes),
                ("temperature", report.temperatures),
            )
            if parts
        ],
        sections=[] if load_image is None else list(_sections(report, rows, texts, reward, load_image)),
    )


def _segments(one: RewardSignal) -> Iterator[tuple[str, str, float, float]]:
    """The stacked bar of a reward: class, words, start and width in per cent; first what has spread."""
    start = 0.0
    for name, share in {_SPREAD: 1 - one.no_spread.value, **one.causes}.items():
        if share > 0:
            title = CAUSES[name].title if name in CAUSES else name
            yield name.replace("_", "-").replace(" ", "-"), f"{title}: {percent(share)}", 100 * start, 100 * share
        start += share


def _advantages(report: SignalReport) -> tuple[str, str, list[int], dict[float, str], None]:
    """The arguments of the macro `chart`."""
    counts = np.histogram(np.clip(report.advantages, _EDGES[0], _EDGES[-1]), bins=_EDGES)[0]
    ticks = {float(np.interp(one, _EDGES, np.arange(len(_EDGES)))): f"{one:+g}" if one else "0" for one in range(-3, 4)}
    note = "in standard deviations of the group (scale_rewards: group); at 0 an answer changes nothing"
    return "Advantages of the answers", note, counts.tolist(), ticks, None


def _sections(
    report: SignalReport,
    rows: Sequence[Mapping[str, Any]],
    texts: Sequence[Sequence[Any]],
    reward: GroundingReward,
    load_image: Callable[[int], Image | None],
) -> Iterator[tuple[str, str, list[_Shown]]]:
    """Of each cause, the most frequent first, and of groups with spread: heading, meaning, and some groups."""
    names = sorted(CAUSES, key=lambda name: -report.configured.causes[name])
    for name in (*names, None):
        members = [k for k, cause in enumerate(report.causes) if cause == name][:SHOWN]
        if members:
            cause = CAUSES[name] if name else None
            heading, meaning = (
                (cause.title, cause.meaning) if cause else (_SPREAD, "the answers earn different rewards")
            )
            yield heading, meaning, [_shown(report, k, rows[k], texts[k], reward, load_image(k)) for k in members]


def _shown(
    report: SignalReport,
    k: int,
    row: Mapping[str, Any],
    texts: Sequence[Any],
    reward: GroundingReward,
    image: Image | None,
) -> _Shown:
    columns = {name: [value] * len(texts) for name, value in row.items()}
    found = reward.details(list(texts), **columns)
    width, height = float(row["width"]), float(row["height"])
    references = boxes_of_all_readers(row).tolist()
    labels = row.get("labels") or [""] * len(references)
    boxes = [
        (_corners(box), "answer", f"answer {number}")
        for number, one in enumerate(found, start=1)
        for box in one.parsed.boxes[:_MOST_BOXES].tolist()
        if is_box(box)
    ]
    boxes += [
        (_corners(box), "reference", str(label))
        for box, label in zip(references, [*labels, *[""] * len(references)], strict=False)
    ]
    own, chosen = report.rewards[k]
    earned = [(report.configured.name, _numbers(own))]
    if report.best != report.configured.name:
        earned.append((report.best, _numbers(chosen)))
    named = str(row.get("id", f"group {k}"))
    at = f", temperature {row['temperature']:g}" if report.temperatures and row.get("temperature") is not None else ""
    return _Shown(
        named + at,
        f"0 0 {width:.6g} {height:.6g}",
        f"{width:g}",
        f"{height:g}",
        "" if image is None else jpeg_uri(image, LONGEST_SIDE),
        boxes,
        earned,
    )


def _corners(box: Sequence[float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = box
    return x1, y1, x2, y2


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{one:.2f}" for one in values)
