"""The page of the signal of rewards: a sentence, and one table with the causes of groups without spread."""

from __future__ import annotations

from grounding_rewards.metrics.signal import CAUSES, SignalReport
from grounding_rewards.report.page import Page, Section
from grounding_rewards.report.tables import Cell, Table


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
        [signal_table(report), *looking, meanings],
        "GRPO compares the answers to one image, a group. Where all of them earn the same, the image teaches nothing. "
        "A reward with spread tells answers apart; whether it prefers the right ones is another question.",
        "fold" if report.is_fine else "",
    )
    return Page(title=title, verdict=report.recommendation, sections=[section]).render()


def signal_table(report: SignalReport) -> Table:
    """A row for every reward: the share of groups without spread, why, and what is left to learn from."""
    headings, rows = report.table()
    lines: list[list[str | Cell]] = [[*row[:2], Cell(row[2], kind="words"), *row[3:]] for row in (headings, *rows)]
    return Table(lines[0], lines[1:])
