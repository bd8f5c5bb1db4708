"""The plots of trainings: curves over the steps of one run or of a study's arms, and differences between arms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.metrics.curves import Curve
from grounding_rewards.metrics.estimates import Estimate
from grounding_rewards.report.plots import INK, SERIES, SOFT, Plot, draw_curve, panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What is drawn of a log: titles by key, in order. Metrics carry the name of their reward (``R4/mean_iou``), so a key
#: is also found behind the first slash.
PANELS = {
    "reward": "reward",
    "mean_iou": "mean IoU",
    "boxes": "boxes per completion",
    "status/unparseable": "unparseable completions",
    "hallucination_rate": "hallucination on normal images",
    "kl": "KL to the start",
    "loss": "loss",
}
# More lines in one panel cannot be told apart.
_MOST_IN_PANEL = 3
_COLUMNS = 3


def read_series(log_history: Sequence[Mapping[str, Any]], key: str) -> dict[str, Curve]:
    """One metric over the steps of a run, by the name of the reward that logs it, in order; empty without a reward.

    Args:
        log_history: the trainer's ``state.log_history``: one dict per logged step.
        key: name of the metric; ``mean_iou`` also stands for ``R4/mean_iou``. Values that are not finite are left out.

    Example:
        >>> log = [{"step": 1, "R4/mean_iou": 0.5}, {"step": 2, "R4/mean_iou": 0.75}, {"step": 2, "loss": 1}]
        >>> found = read_series(log, "mean_iou")["R4"]
        >>> found.x, found.y
        (array([1., 2.]), array([0.5 , 0.75]))
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for entry in log_history:
        for name, value in entry.items():
            reward, _, metric = name.partition("/")
            named = name == key or (metric == key and not name.startswith("eval_"))
            if named and "step" in entry and isinstance(value, int | float) and math.isfinite(value):
                points.setdefault("" if name == key else reward, []).append((entry["step"], value))
    return {name: Curve(name, *np.array(own, dtype=np.float64).T) for name, own in points.items()}


def smooth(values: NDArray[np.float64], *, reach: int) -> NDArray[np.float64]:
    """Centred running mean, which does not lag behind; at both ends its window is cut.

    Args:
        values: ``(n,)``.
        reach: how many values on either side are averaged over; 0 changes nothing.

    Returns:
        ``(n,)``.

    Example:
        >>> smooth(np.array([0.0, 3.0, 6.0, 3.0]), reach=1)
        array([1.5, 3. , 4. , 4.5])
    """
    window, inside = np.ones(2 * reach + 1), slice(reach, reach + len(values))
    return np.convolve(values, window)[inside] / np.convolve(np.ones(len(values)), window)[inside]


def training_plot(log_history: Sequence[Mapping[str, Any]]) -> Plot | None:
    """What the log holds of :data:`PANELS`, each value pale and its running mean strong; None where it holds none.

    Args:
        log_history: the trainer's ``state.log_history``.
    """
    panels = {title: [*read_series(log_history, key).values()] for key, title in PANELS.items()}
    note = "Pale: every logged step. Strong: running mean."
    found = {title: several for title, several in panels.items() if several}
    return curves("training", "Training", note, found, x="step", smoothed=True) if found else None


def curves(
    name: str,
    title: str,
    note: str,
    panels: Mapping[str, Sequence[Curve]],
    *,
    x: str,
    y: str = "",
    smoothed: bool = False,
) -> Plot:
    """Curves as small multiples, at most three in one panel; a name has one colour in all panels.

    Args:
        name: of the files.
        title: of the plot.
        note: its caption.
        panels: curves by heading, with their bands.
        x: label.
        y: label of an axis that all panels share; each has its own where it is empty.
        smoothed: whether the curves are pale behind their running means.
    """
    # A metric of the trainer itself has no name, and the first colour.
    names = list(dict.fromkeys(one.name for several in panels.values() for one in several if one.name)) or [""]
    shown = [
        (heading if start == 0 else f"{heading}, continued", several[start : start + _MOST_IN_PANEL])
        for heading, several in panels.items()
        for start in range(0, len(several), _MOST_IN_PANEL)
    ]
    columns = min(_COLUMNS, len(shown))

    def draw(figure: Figure) -> None:
        axes = panels_of(figure, len(shown), columns, sharey=bool(y))
        for axis, (heading, several) in zip(axes, shown, strict=True):
            for one in several:
                number = names.index(one.name) if one.name else 0
                if smoothed:
                    axis.plot(one.x, one.y, color=SERIES[number % len(SERIES)], alpha=0.3, linewidth=1)
                    one = one._replace(y=smooth(np.asarray(one.y), reach=max(1, len(one.y) // 16)))
                draw_curve(axis, one, number)
            axis.set_title(heading, loc="left")
            axis.set_xlabel(x)
            axis.grid(axis="y")
            axis.locator_params("x", integer=True)
            axis.margins(x=0.01)
            if len(names) > 1 and several[0].name:
                axis.legend(loc="best", fontsize=6.5)
        for axis, (_, several) in zip(axes, shown, strict=True):
            # An axis that is shared has its limits by all panels, so all are drawn before it is cut.
            on_axis = [one for _, own in shown for one in own] if y else several
            low, high = axis.get_ylim()
            if all(0 <= value <= 1 for one in on_axis for value in one.y):
                # A share has no room beyond its ends.
                axis.set_ylim(max(low, -0.02), min(high, 1.02))
        for axis in axes[::columns]:
            axis.set_ylabel(y)

    return Plot(name, title, note, draw, (2.4 * columns + 0.4, 2.0 * math.ceil(len(shown) / columns)))


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
    lines: list[str | ForestRow] = []
    for heading, rows in groups.items():
        lines += [heading, *rows]

    def draw(figure: Figure) -> None:
        axis = figure.subplots()
        for at, row in enumerate(lines):
            if isinstance(row, str):
                axis.text(0.0, at, row, transform=axis.get_yaxis_transform(), va="center", fontweight="bold")
                continue
            value, low, high = row.difference
            colour, width = (SERIES[0], 2.0) if row.is_shown else (SOFT, 1.1)
            axis.hlines(at, low, high, color=colour, linewidth=width)
            marker, face = ("o", "none") if row.is_control else ("s", colour)
            axis.plot(value, at, marker=marker, color=colour, markerfacecolor=face, markersize=5)
        axis.axvline(0, color=INK, linewidth=0.8)
        named = {at: row.name for at, row in enumerate(lines) if not isinstance(row, str)}
        axis.set_yticks([*named], [*named.values()])
        axis.set_ylim(len(lines) - 0.4, -0.7)
        axis.set_xlabel(axis_label)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x")

    return Plot(name, title, note, draw, (7.2, 0.75 + 0.24 * len(lines)))
