"""The page of the signal of rewards: a sentence, one table, and a plot of the causes of groups without spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.metrics.signal import CAUSES, RewardSignal, SignalReport
from grounding_rewards.report.page import Page, Section
from grounding_rewards.report.plots import SERIES, Plot, share_axis, short
from grounding_rewards.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def render_signal_page(report: SignalReport, *, title: str) -> str:
    """Render the page; where nothing is wrong all but the sentence is folded.

    Args:
        report: from :func:`grounding_rewards.metrics.signal.measure_signal`.
        title: of the page.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    meanings = {cause.title: cause.meaning for cause in CAUSES.values()}
    looking = [[sentence] for sentence in (report.best_of_k, report.looking) if sentence]
    section = Section(
        f"{report.groups:,} groups, {report.completions:,} answers under each reward",
        [signal_table(report), *looking, causes_plot(report.all), meanings],
        "GRPO compares the answers to one image, a group. Where all of them earn the same, the image teaches nothing. "
        "A reward with spread tells answers apart; whether it prefers the right ones is another question.",
        "fold" if report.is_fine else "",
    )
    return Page(title=title, verdict=report.recommendation, sections=[section]).render()


def signal_table(report: SignalReport) -> Table:
    """A row for every reward: the share of groups without spread, why, and what is left to learn from."""
    headings, rows = report.table()

    def words(row: Sequence[str]) -> list[str | Cell]:
        return [heading if k != 2 else Cell(heading, kind="words") for k, heading in enumerate(row)]

    return Table(words(headings), [words(row) for row in rows])


def causes_plot(rewards: Sequence[RewardSignal]) -> Plot:
    """The groups of each reward as a bar: first those with spread, then those without, by cause."""
    titles = ["with spread", *(cause.title for cause in CAUSES.values())]
    shares = np.array([[1 - reward.no_spread.value, *(reward.causes[name] for name in CAUSES)] for reward in rewards])

    def draw(figure: Figure) -> None:
        axis: Any = figure.subplots()
        starts = np.cumsum(shares, axis=1) - shares
        for number, cause in enumerate(titles):
            if shares[:, number].any():
                widths, bar_starts = shares[:, number], starts[:, number]
                axis.barh(range(len(rewards)), widths, 0.62, bar_starts, color=SERIES[number], label=cause)
        axis.set_yticks(range(len(rewards)), [short(reward.name, 40) for reward in rewards])
        axis.set_ylim(len(rewards) - 0.4, -0.6)
        axis.tick_params(axis="y", length=0)
        share_axis(axis.xaxis, "share of the groups")
        figure.legend(loc="outside upper left", ncols=4)

    return Plot("causes", "Groups by reward", "Why groups have no spread.", draw, (7.2, 1.1 + 0.26 * len(rewards)))
