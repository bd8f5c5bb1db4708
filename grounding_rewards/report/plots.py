"""The common parts of all plots (colours, fonts, files, their form on a page); the plots of evaluations.

A plot has no heading or caption inside: papers set their own, and the page writes `title` and `note` around it.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.report.page import data_uri

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A palette for colour-blind readers: Okabe and Ito's.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")
INK, SOFT, GRID, GROUND = "#1b1f24", "#5b6570", "#dde1e6", "#ffffff"
# Logged values of which a running mean is drawn, at least.
_LEAST_SMOOTHED = 10
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
        """The plot as a ``matplotlib.figure.Figure``, drawn and laid out once, from which every file is written."""
        import matplotlib
        from matplotlib.figure import Figure

        with matplotlib.rc_context(_RC), warnings.catch_warnings():
            # A label may have characters that matplotlib's font lacks: they become boxes, without a warning for each.
            warnings.filterwarnings("ignore", message="Glyph")
            figure = Figure(figsize=self.size, facecolor="none", layout="constrained")
            self.draw(figure)
            # The layout is computed once and then fixed: else each file would compute it anew.
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

        # The date, and ids in SVG that are random without a salt, would make every file different.
        no_date = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[file_format]
        background = GROUND if file_format == "png" else "none"
        with matplotlib.rc_context({**_RC, "svg.hashsalt": self.name}), warnings.catch_warnings():
            # As in `figure`: characters that the font lacks.
            warnings.filterwarnings("ignore", message="Glyph")
            self.figure.savefig(target, format=file_format, dpi=300, facecolor=background, metadata=no_date)

    def uri(self) -> str:
        """A data URI with the plot as PNG."""
        buffer = io.BytesIO()
        self.save(buffer, "png")
        return data_uri(buffer.getvalue(), "image/png")


def write_plots(plots: Iterable[Plot], folder: Path) -> list[Path]:
    """Write every plot as PNG and as PDF into a folder, which is made, and return the paths of the files.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> line = Plot("line", "", "", lambda canvas: canvas.subplots().plot([0, 1]), (1, 1))
        >>> with TemporaryDirectory() as folder:
        ...     [path.name for path in write_plots([line], Path(folder))]
        ['line.png', 'line.pdf']
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot, file_format in product(plots, ("png", "pdf")):
        path = folder / f"{plot.name}.{file_format}"
        plot.save(path, file_format)
        paths.append(path)
    return paths


def panels_of(figure: Figure, count: int, columns: int, **shared: Any) -> list[Axes]:
    """The axes of `count` small plots in so many columns, row by row; `shared`: `sharex`, `sharey` of `subplots`."""
    axes = figure.subplots(math.ceil(count / columns), columns, squeeze=False, **shared).ravel()
    # The last row may have more places than plots.
    for axis in axes[count:]:
        axis.remove()
    return list(axes[:count])


def short(name: str, max_length: int = 34) -> str:
    """The name, cut to `max_length` characters and without characters that XML forbids.

    Example:
        >>> short("a long name", 6)
        'a lon…'
    """
    name = _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", name)
    return name if len(name) <= max_length else name[: max_length - 1] + "…"


def reward_plot(entries: Sequence[Mapping[str, Any]]) -> Plot | None:
    """The reward over the steps of a training, with that of its evaluations; None if the log has no reward.

    Args:
        entries: of the log, a mapping for each logged step.
    """
    # By name two rows: steps, and the reward at each.
    curves: dict[str, NDArray[np.float64]] = {}
    for key, name in (("reward", "training images"), ("eval_reward", "held-out images")):
        points = []
        for entry in entries:
            value = entry.get(key)
            if value is not None and math.isfinite(value):
                points.append((entry["step"], value))
        if points:
            curves[name] = np.array(points, dtype=np.float64).T
    if not curves:
        return None

    def draw(figure: Figure) -> None:
        """Draw many rewards pale, with their running mean over them; few, of which no mean is drawn, as marks."""
        axis = figure.subplots()
        for colour, (name, (steps, values)) in zip(SERIES, curves.items(), strict=False):
            if len(values) < _LEAST_SMOOTHED:
                axis.plot(steps, values, marker="o", color=colour, label=name)
                continue
            axis.plot(steps, values, color=colour, alpha=0.3, linewidth=1)
            # A mean is of about an eighth of all values: a step, and equally many before and after it.
            window = np.ones(2 * (len(values) // 16) + 1)
            # At both ends of the curve the window reaches beyond it: there fewer values are averaged.
            counts = np.convolve(np.ones(len(values)), window, "same")
            axis.plot(steps, np.convolve(values, window, "same") / counts, color=colour, label=name)
        axis.set(xlabel="step", ylabel="reward")
        axis.grid(axis="y")
        axis.locator_params("x", integer=True)
        if len(curves) > 1:
            axis.legend(loc="best")

    return Plot("reward", "Reward in training", "Pale: every step. Strong: running mean.", draw, (5.6, 2.4))


def iou_plot(ious: NDArray[np.float64]) -> Plot:
    """A plot of how many reference boxes have which IoU with their partner.

    Args:
        ious: of each reference box, 0 if it has no partner; these have a bar of their own, the first.
    """
    counts, edges = np.histogram(ious[ious > 0], bins=10, range=(0, 1))
    names = ["none", *(f"{low:.1f}–{high:.1f}" for low, high in pairwise(edges))]

    def draw(figure: Figure) -> None:
        """Draw a bar for each range of IoU."""
        axis = figure.subplots()
        bars = axis.bar(names, [int(np.sum(ious <= 0)), *counts], color=SERIES[0])
        axis.bar_label(bars, fontsize=6.5)
        axis.tick_params(axis="x", labelrotation=60)
        axis.locator_params("y", integer=True)

    shares = ", ".join(f"{100 * np.mean(ious >= threshold):.1f} % from {threshold:g} up" for threshold in (0.5, 0.75))
    note = f"{len(ious):,} reference boxes: {shares}; {100 * np.mean(ious <= 0):.1f} % have no partner. Mean "
    return Plot("ious", "IoU of a reference box with its partner", f"{note}{np.mean(ious):.3f}.", draw, (3.6, 2.8))
