"""The common parts of all plots (colours, fonts, files, their form on a page); the plots of evaluations.

A plot has no heading or caption inside: papers set their own, and the page writes `title` and `note` around it.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.metrics.average_precision import Curve
from grounding_rewards.metrics.evaluation import Evaluation
from grounding_rewards.report.page import data_uri

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A palette for colour-blind readers: Okabe and Ito's.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")
INK, SOFT, GRID, GROUND = "#1b1f24", "#5b6570", "#dde1e6", "#ffffff"
_MARKERS = ("o", "s", "^", "D", "v", "P")
# Points of a curve that are drawn.
_POINTS = 400
_NOT_IN_XML = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_RC = {
    "font.size": 8,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.facecolor": "none",
    "axes.linewidth": 0.7,
    "axes.labelpad": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.5,
    "text.parse_math": False,
    # Keep text as text, which can be searched and edited; as TrueType in PDF, which journals require.
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Plot:
    """One plot, drawn on request.

    Attributes:
        name: name of its files without suffix, and its id on the page.
        title: its heading on the page.
        note: its caption.
        draw: draws into an empty ``matplotlib.figure.Figure``.
        size: width and height in inches.
    """

    name: str
    title: str
    note: str
    draw: Callable[[Figure], None]
    size: tuple[float, float]

    @cached_property
    def figure(self) -> Figure:
        """The plot as a ``matplotlib.figure.Figure``, without a window, laid out once for all of its forms."""
        import matplotlib
        from matplotlib.figure import Figure

        with matplotlib.rc_context(_RC), warnings.catch_warnings():
            # Glyphs that matplotlib's font lacks become boxes in the files; on the page the browser's font is used.
            warnings.filterwarnings("ignore", message="Glyph")
            figure = Figure(figsize=self.size, facecolor="none", layout="constrained")
            self.draw(figure)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        return figure

    def save(self, target: Any, file_format: str) -> None:
        """Write it to a path or an open file; the same plot always gives the same bytes.

        Args:
            target: the path or the file.
            file_format: `png` (on white, at 300 dpi, as journals want it), `pdf` or `svg`.
        """
        import matplotlib

        dates = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[file_format]
        ground = GROUND if file_format == "png" else "none"
        with matplotlib.rc_context({**_RC, "svg.hashsalt": self.name}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")
            self.figure.savefig(target, format=file_format, dpi=300, facecolor=ground, metadata=dates)

    def uri(self) -> str:
        """An address that holds the plot as PNG."""
        buffer = io.BytesIO()
        self.save(buffer, "png")
        return data_uri(buffer.getvalue(), "image/png")


def write_plots(plots: Iterable[Plot], folder: Path) -> list[Path]:
    """Write every plot as PNG and as PDF into a folder, which is made, and return the paths of the files.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     [path.name for path in write_plots([Plot("line", "", "", bool, (1, 1))], Path(folder))]
        ['line.png', 'line.pdf']
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot, file_format in product(plots, ("png", "pdf")):
        paths.append(folder / f"{plot.name}.{file_format}")
        plot.save(paths[-1], file_format)
    return paths


def panels_of(figure: Figure, count: int, columns: int, **shared: Any) -> list[Axes]:
    """The axes of `count` small plots in so many columns, row by row; `shared`: as `subplots` takes it."""
    axes = figure.subplots(math.ceil(count / columns), columns, squeeze=False, **shared).ravel()
    for axis in axes[count:]:
        axis.remove()
    return list(axes[:count])


def draw_curve(axis: Axes, curve: Curve, number: int) -> None:
    """Draw a curve in the style of this number; a single point gets a marker."""
    drawn_points = np.unique(np.linspace(0, len(curve.x) - 1, min(_POINTS, len(curve.x))).round().astype(int))
    x, y = np.asarray(curve.x, dtype=np.float64)[drawn_points], np.asarray(curve.y)[drawn_points]
    style: dict[str, Any] = {"color": SERIES[number % len(SERIES)], "label": short(curve.name)}
    if len(x) == 1:
        style |= {"marker": _MARKERS[number % len(_MARKERS)], "clip_on": False}
    axis.plot(x, y, **style)


def share_axis(axis: Any, label: str) -> None:
    """Let a matplotlib Axis run from 0 to 1, with a grid and a label."""
    axis.set_ticks(np.linspace(0, 1, 6))
    axis.grid(visible=True)
    getattr(axis.axes, f"set_{axis.axis_name}lim")(-0.015, 1.015)
    axis.set_label_text(label)


def short(name: str, max_length: int = 34) -> str:
    """The name, cut to `max_length` characters and without characters that XML forbids.

    Example:
        >>> short("a long name", 6)
        'a lon…'
    """
    name = _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", name)
    return name if len(name) <= max_length else name[: max_length - 1] + "…"


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
        ['precision_recall', 'froc']
    """
    plots = [
        _curve_plot(
            "precision_recall",
            "Precision and recall",
            "A curve, boxes in order of their confidence, ends at the recall that is reached.",
            [_reached(curve) for curve in evaluation.pr_curves if len(curve.x)],
            _recall_frame,
        ),
        _curve_plot(
            "froc",
            "Sensitivity and false positives",
            "How many findings are found for how many false boxes an image is allowed; a curve ends where all boxes "
            "are taken.",
            [_steps(curve) for curve in evaluation.froc_curves if len(curve.x)],
            _rate_frame,
        ),
    ]
    return [plot for plot in plots if plot is not None]


def _curve_plot(
    name: str, title: str, note: str, curves: Sequence[Curve], frame: Callable[[Axes], None]
) -> Plot | None:
    """The curves in one plot, around which `frame` sets scales and labels; None without curves."""
    if not curves:
        return None

    def draw(figure: Figure) -> None:
        """Draw the curves, then scales, labels and the legend around them."""
        axis = figure.subplots()
        for number, curve in enumerate(curves):
            draw_curve(axis, curve, number)
        frame(axis)
        figure.legend(loc="outside lower left", ncols=2, columnspacing=1.2)

    if any(len(curve.x) == 1 for curve in curves):
        note += " A single mark is an operating point, all boxes together: answers without confidences have no curve."
    return Plot(name, title, note, draw, (3.6, 2.85 + 0.17 * math.ceil(len(curves) / 2)))


def _recall_frame(axis: Axes) -> None:
    """Set scales and labels around curves of precision over recall."""
    share_axis(axis.xaxis, "recall")
    share_axis(axis.yaxis, "precision")


def _reached(curve: Curve) -> Curve:
    """The curve up to the recall that is reached: beyond it precision is 0 by convention, and nothing was measured."""
    end = int(np.flatnonzero(np.asarray(curve.y) > 0).max(initial=0)) + 1
    return curve._replace(x=curve.x[:end], y=curve.y[:end])


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
