"""Curves of a training run, from the log that TRL keeps."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Series = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Panel:
    """One curve: its title, its key in the log, and whether it is a share of something."""

    title: str
    key: str
    is_share: bool = False


#: Metrics carry the name of their reward (``R4/mean_iou``), so a key is also found behind the first slash.
PANELS = (
    Panel("reward", "reward", is_share=True),
    Panel("mean IoU", "mean_iou", is_share=True),
    Panel("boxes per completion", "boxes"),
    Panel("unparseable completions", "status/unparseable", is_share=True),
    Panel("hallucination on normal films", "hallucination_rate", is_share=True),
    Panel("KL to the start", "kl"),
    Panel("loss", "loss"),
)

_INK = {False: ("#1b1f24", "#d8dce1", "#ffffff"), True: ("#e6e8eb", "#3a4048", "#16191d")}
_LINE = {False: "#0b6bcb", True: "#6cb6ff"}


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
    index = np.arange(len(values))
    start, stop = np.maximum(index - reach, 0), np.minimum(index + reach + 1, len(values))
    total = np.concatenate([[0.0], np.cumsum(values)])
    return (total[stop] - total[start]) / (stop - start)


def draw_curves(log_history: Sequence[Mapping[str, Any]], *, dark: bool = False) -> bytes:
    """Draw what the log holds of :data:`PANELS`, each value pale and its running mean strong.

    Args:
        log_history: the trainer's ``state.log_history``.
        dark: light lines on a dark ground.

    Returns:
        A PNG, or no bytes where the log holds none of the panels.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    series = {panel: read_series(log_history, panel.key) for panel in PANELS}
    series = {panel: (steps, values) for panel, (steps, values) in series.items() if len(steps)}
    if not series:
        return b""
    ink, grid, ground = _INK[dark]
    columns = min(3, len(series))
    rows = math.ceil(len(series) / columns)
    style = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "axes.edgecolor": grid,
        "axes.facecolor": ground,
        "figure.facecolor": ground,
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(
            rows, columns, figsize=(3.7 * columns, 2.5 * rows), squeeze=False, layout="constrained"
        )
        for axis in axes.flat[len(series) :]:
            axis.remove()
        for axis, (panel, (steps, values)) in zip(axes.flat, series.items(), strict=False):
            _draw_panel(axis, panel, steps, values, colour=_LINE[dark], grid=grid)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130)
        plt.close(figure)
    return buffer.getvalue()


def _draw_panel(
    axis: Any,
    panel: Panel,
    steps: NDArray[np.float64],
    values: NDArray[np.float64],
    *,
    colour: str,
    grid: str,
) -> None:
    axis.plot(steps, values, color=colour, alpha=0.3, linewidth=1)
    axis.plot(steps, smooth(values, reach=max(1, len(values) // 16)), color=colour, linewidth=2)
    axis.set_title(panel.title, loc="left", fontsize=10)
    axis.set_xlabel("step")
    axis.grid(axis="y", color=grid, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.margins(x=0.01)
    if panel.is_share:
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, -0.02), min(max(high, 0.05), 1.02))
