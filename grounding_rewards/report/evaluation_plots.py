"""The plots of an evaluation, as files for papers and for its page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.metrics.average_precision import Curve
from grounding_rewards.metrics.evaluation import Evaluation
from grounding_rewards.report.plots import DASHES, GRID, SERIES, SOFT, Plot, draw_curve, share_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_IOU_BINS = 10
# The smallest rate of false positives that is shown.
_LEAST_RATE = 1 / 16


def plots_of(evaluation: Evaluation) -> list[Plot]:
    """The plots for which the evaluation has metrics, in the order in which they are shown.

    Args:
        evaluation: what was measured.

    Example:
        >>> from grounding_rewards.metrics.prediction import Prediction
        >>> from grounding_rewards.metrics.evaluation import Measures, evaluate
        >>> image = Prediction("a", 100, 100, gt=[[0, 0, 10, 10]], gt_labels=["mass"], pred=[[0, 0, 10, 8]],
        ...                     rewards={"R4": 0.8})
        >>> [plot.name for plot in plots_of(evaluate({"model": [image]}, Measures("R4")))]
        ['precision_recall', 'froc', 'ious']
    """
    plots = [
        _curves(
            "precision_recall",
            "Precision and recall",
            "A curve, boxes in order of their confidence, ends at the recall that is reached. Pale lines: equal F1.",
            [_reached(curve) for curve in evaluation.pr_curves if len(curve.x)],
            _recall_frame,
        ),
        _curves(
            "froc",
            "Sensitivity and false positives",
            "How many findings are found for how many false boxes an image is allowed; a curve ends where all boxes "
            "are taken.",
            [_steps(curve) for curve in evaluation.froc_curves if len(curve.x)],
            _rate_frame,
        ),
        _ious(evaluation.ious),
    ]
    return [plot for plot in plots if plot is not None]


def _curves(name: str, title: str, note: str, curves: Sequence[Curve], frame: Callable[[Axes], None]) -> Plot | None:
    """The curves in one plot, around which `frame` sets scales and labels; None without curves."""
    if not curves:
        return None

    def draw(figure: Figure) -> None:
        axis = figure.subplots()
        for number, curve in enumerate(curves):
            draw_curve(axis, curve, number)
        frame(axis)
        figure.legend(loc="outside lower left", ncols=2, columnspacing=1.2)

    if any(len(curve.x) == 1 for curve in curves):
        note += " A single mark is an operating point, all boxes together: answers without confidences have no curve."
    return Plot(name, title, note, draw, (3.6, 2.85 + 0.17 * math.ceil(len(curves) / 2)))


def _recall_frame(axis: Axes) -> None:
    """Draw lines of equal F1 behind curves of precision over recall, and set scales and labels."""
    for f1 in (0.2, 0.4, 0.6, 0.8):
        recall = np.linspace(f1 / (2 - f1), 1, 60)
        axis.plot(recall, f1 * recall / (2 * recall - f1), color=GRID, linewidth=0.7, linestyle=DASHES[1])
        axis.annotate(f"F1 {f1:g}", (1, f1 / (2 - f1)), (2, 0), textcoords="offset points", color=SOFT, fontsize=6)
    share_axis(axis.xaxis, "recall")
    share_axis(axis.yaxis, "precision")
    axis.grid(visible=False)


def _reached(curve: Curve) -> Curve:
    """The curve up to the recall that is reached: beyond it precision is 0 by convention, and nothing was measured."""
    end = int(np.flatnonzero(np.asarray(curve.y) > 0).max(initial=0)) + 1
    return Curve(curve.name, curve.x[:end], curve.y[:end])


def _steps(curve: Curve) -> Curve:
    """The stairs of a FROC curve, which rises at its points, from the smallest rate that is shown."""
    first = max(0, int(np.sum(curve.x <= _LEAST_RATE)) - 1)
    x = np.maximum(np.asarray(curve.x, dtype=np.float64)[first:], _LEAST_RATE)
    return Curve(curve.name, np.repeat(x, 2)[1:], np.repeat(curve.y[first:], 2)[:-1])


def _rate_frame(axis: Axes) -> None:
    """Set scales and labels around curves of sensitivity over the rate of false positives."""
    axis.set_xscale("log", base=2)
    furthest = max(float(np.max(line.get_xdata())) for line in axis.lines)
    # To the first mark at which no curve is left, and to 1 at least.
    marks = [2.0**power for power in range(-3, max(0, math.ceil(math.log2(max(furthest, 1)))) + 1)]
    axis.set_xlim(_LEAST_RATE, 1.06 * marks[-1])
    names = [f"{mark:g}" if mark >= 1 else f"1/{1 / mark:g}" for mark in marks]
    axis.set_xticks([_LEAST_RATE, *marks], [f"≤1/{1 / _LEAST_RATE:g}", *names])
    axis.minorticks_off()
    axis.xaxis.grid(visible=True)
    axis.set_xlabel("false positives per image")
    share_axis(axis.yaxis, "sensitivity")


def _ious(ious: NDArray[np.float64]) -> Plot | None:
    """The numbers of reference boxes by the IoU with their partner, those without one first; None without boxes."""
    if not len(ious):
        return None
    counts, edges = np.histogram(ious[ious > 0], _IOU_BINS, (0, 1))
    names = ["none", *(f"{low:.1f}–{high:.1f}" for low, high in pairwise(edges))]

    def draw(figure: Figure) -> None:
        axis = figure.subplots()
        bars = axis.bar(names, [int(np.sum(ious <= 0)), *counts], color=SERIES[0])
        axis.bar_label(bars, fontsize=6.5)
        axis.tick_params(axis="x", labelrotation=60)
        axis.locator_params("y", integer=True)

    shares = ", ".join(f"{100 * np.mean(ious >= threshold):.1f} % from {threshold:g} up" for threshold in (0.5, 0.75))
    note = f"{len(ious):,} reference boxes: {shares}; {100 * np.mean(ious <= 0):.1f} % have no partner. Mean "
    return Plot("ious", "IoU of a reference box with its partner", f"{note}{np.mean(ious):.3f}.", draw, (3.6, 2.8))
