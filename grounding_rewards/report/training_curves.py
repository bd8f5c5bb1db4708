"""Curves of a training run, from the log that TRL keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.report.plots import SERIES, Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = tuple[NDArray[np.float64], NDArray[np.float64]]

#: What is drawn: titles by key, in order. Metrics carry the name of their reward (``R4/mean_iou``), so a key is also
#: found behind the first slash.
PANELS = {
    "reward": "reward",
    "mean_iou": "mean IoU",
    "boxes": "boxes per completion",
    "status/unparseable": "unparseable completions",
    "hallucination_rate": "hallucination on normal images",
    "kl": "KL to the start",
    "loss": "loss",
}
_MOST_IN_PANEL = 3
_SHARES = ("reward", "mean_iou", "status/unparseable", "hallucination_rate")


def read_series(log_history: Sequence[Mapping[str, Any]], key: str) -> Series:
    """One metric over the steps of a run.

    Args:
        log_history: the trainer's ``state.log_history``: one dict per logged step.
        key: name of the metric; ``mean_iou`` also stands for ``R4/mean_iou``.

    Returns:
        Steps and values, ``(n,)`` each; values that are not finite are left out.

    Example:
        >>> log = [{"step": 1, "R4/mean_iou": 0.5}, {"step": 2, "R4/mean_iou": 0.75}, {"step": 2, "loss": 1}]
        >>> read_series(log, "mean_iou")
        (array([1., 2.]), array([0.5 , 0.75]))
    """
    points = [
        (entry["step"], value)
        for entry in log_history
        for name, value in entry.items()
        if key in (name, name.partition("/")[2]) and not name.startswith("eval_") and "step" in entry
    ]
    finite = [(step, value) for step, value in points if isinstance(value, int | float) and math.isfinite(value)]
    steps, values = np.array(finite, dtype=np.float64).reshape(-1, 2).T
    return steps, values


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
    """What the log holds of :data:`PANELS`, each value pale and its running mean strong.

    Where several rewards log a metric each has a colour, and no panel has more than three.

    Args:
        log_history: the trainer's ``state.log_history``.

    Returns:
        The plot, or None where the log holds none of the panels.
    """
    names = list(dict.fromkeys(name for entry in log_history for name in entry))
    shown: list[tuple[str, dict[str, Series]]] = []
    for key in PANELS:
        own = [name for name in names if key in (name, name.partition("/")[2]) and not name.startswith("eval_")]
        series = {name: one for name in own if len((one := read_series(log_history, name))[0])}
        for start in range(0, len(series), _MOST_IN_PANEL):
            shown.append((key, dict(list(series.items())[start : start + _MOST_IN_PANEL])))
    if not shown:
        return None
    rewards = list(dict.fromkeys(name.partition("/")[0] for _, series in shown for name in series if "/" in name))
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)

    def draw(figure: Figure) -> None:
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat[len(shown) :]:
            axis.remove()
        for axis, (key, series) in zip(axes.flat, shown, strict=False):
            for name, (steps, values) in series.items():
                reward = name.removesuffix(key).removesuffix("/")
                colour = SERIES[rewards.index(reward) % len(SERIES) if reward in rewards else 0]
                axis.plot(steps, values, color=colour, alpha=0.3, linewidth=1)
                axis.plot(steps, smooth(values, reach=max(1, len(values) // 16)), color=colour, label=reward)
            if len(rewards) > 1 and any(name != key for name in series):
                axis.legend(loc="best", fontsize=6.5)
            axis.set_title(PANELS[key], loc="left")
            axis.set_xlabel("step")
            axis.grid(axis="y")
            axis.locator_params("x", integer=True)
            axis.margins(x=0.01)
            if key in _SHARES:
                low, high = axis.get_ylim()
                axis.set_ylim(max(low, -0.02), min(max(high, 0.05), 1.02))

    note = "Pale: every logged step. Strong: running mean."
    return Plot("training", "Training", note, draw, (3.0 * columns, 2.1 * rows))
