"""The plots of a study: differences with their intervals, and curves over steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grounding_rewards.metrics.curves import Curve
from grounding_rewards.metrics.estimates import Estimate
from grounding_rewards.report.plots import DASHES, SERIES, Plot, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.24
_PANEL = (2.4, 2.0)
_COLUMNS, _MOST_IN_PANEL = 3, 3
_WIDTH = 7.2


class ForestRow(NamedTuple):
    """A difference with its interval.

    is_control: drawn hollow.
    is_shown: whether it stays after the adjustment for their number; drawn strong.
    """

    name: str
    difference: Estimate
    is_control: bool
    is_shown: bool


def forest(name: str, title: str, note: str, axis_label: str, groups: Mapping[str, Sequence[ForestRow]]) -> Plot:
    """Differences with their intervals, below each other, each group under its heading.

    Args:
        name: of the files.
        title: of the plot.
        note: its caption.
        axis_label: what is compared.
        groups: rows by heading.
    """
    lines = sum(1 + len(rows) for rows in groups.values())

    def draw(figure: Figure) -> None:
        axis = figure.subplots()
        ink, soft = _inks()
        at, ticks, names = 0.0, [], []
        for heading, rows in groups.items():
            axis.text(0.0, at, heading, transform=axis.get_yaxis_transform(), va="center", fontweight="bold", color=ink)
            at += 1
            for row in rows:
                value, low, high = row.difference
                colour = SERIES[0] if row.is_shown else soft
                axis.hlines(at, low, high, color=colour, linewidth=2.0 if row.is_shown else 1.1)
                axis.plot(
                    value,
                    at,
                    marker="o" if row.is_control else "s",
                    color=colour,
                    markerfacecolor="none" if row.is_control else colour,
                    markersize=5,
                )
                ticks.append(at)
                names.append(row.name)
                at += 1
        axis.axvline(0, color=ink, linewidth=0.8)
        axis.set_yticks(ticks, names)
        axis.set_ylim(at - 0.4, -0.7)
        axis.set_xlabel(axis_label)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x")

    return Plot(name, title, note, draw, (_WIDTH, 0.75 + _ROW * lines))


def curves(name: str, title: str, note: str, panels: Mapping[str, Sequence[Curve]], *, x: str, y: str) -> Plot:
    """Curves with bands as small multiples, at most three in one panel; a name has one colour in all panels.

    Args:
        name: of the files.
        title: of the plot.
        note: its caption.
        panels: curves by heading.
        x: label.
        y: label.
    """
    names = list(dict.fromkeys(one.name for several in panels.values() for one in several))
    shown = [
        (heading if start == 0 else f"{heading}, continued", several[start : start + _MOST_IN_PANEL])
        for heading, several in panels.items()
        for start in range(0, len(several), _MOST_IN_PANEL)
    ]
    columns = min(_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)

    def draw(figure: Figure) -> None:
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axis in axes.flat[len(shown) :]:
            axis.remove()
        for axis, (heading, several) in zip(axes.flat, shown, strict=False):
            for one in several:
                _line(axis, one, names.index(one.name))
            axis.set_title(heading, loc="left")
            axis.set_xlabel(x)
            axis.grid(axis="y")
            axis.legend(loc="best", fontsize=6.5)
        for row in axes:
            row[0].set_ylabel(y)

    return Plot(name, title, note, draw, (_PANEL[0] * columns + 0.4, _PANEL[1] * rows))


def _line(axis: Axes, curve: Curve, number: int) -> None:
    colour, dashes = SERIES[number % len(SERIES)], DASHES[number // len(SERIES) % len(DASHES)]
    if curve.low is not None and curve.high is not None:
        axis.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    axis.plot(curve.x, curve.y, color=colour, linestyle=dashes, linewidth=1.4, label=short(curve.name, 24))


def _inks() -> tuple[str, str]:
    import matplotlib

    return matplotlib.rcParams["text.color"], matplotlib.rcParams["axes.edgecolor"]
