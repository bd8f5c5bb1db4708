"""Whether a reward will teach a model, as one HTML file: one table, and a plot of its causes. It loads nothing."""

from __future__ import annotations

from collections.abc import Iterator

from grounding_rewards.metrics.estimates import percent
from grounding_rewards.metrics.signal import CAUSES, RewardSignal, SignalReport
from grounding_rewards.report.render import fill_template, read_asset

_SPREAD = "with spread"


def render_signal_page(report: SignalReport, *, title: str) -> str:
    """Render the page.

    Args:
        report: from :func:`grounding_rewards.metrics.signal.measure_signal`.
        title: of the page.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    headings, rows = report.table()
    return fill_template(
        "signal.html.jinja",
        style=read_asset("page.css") + read_asset("signal_page.css"),
        script="",
        title=title,
        report=report,
        headings=headings,
        rows=rows,
        causes=CAUSES,
        bars=[(one, list(_segments(one))) for one in report.all],
    )


def _segments(one: RewardSignal) -> Iterator[tuple[str, str, float, float]]:
    """The stacked bar of a reward: class, words, start and width in per cent; first what has spread."""
    start = 0.0
    for name, share in {_SPREAD: 1 - one.no_spread.value, **one.causes}.items():
        if share > 0:
            title = CAUSES[name].title if name in CAUSES else name
            yield name.replace("_", "-").replace(" ", "-"), f"{title}: {percent(share)}", 100 * start, 100 * share
        start += share
