"""What all plots share: their colours and fonts, how they are written, and how they stand on a page.

A plot has no heading or caption inside: papers set their own, and the page writes `title` and `note` around it.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.metrics.curves import Curve
from grounding_rewards.report.render import data_uri

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A palette for colour-blind readers: Okabe and Ito's, then Tol's muted colours for plots of many arms.
SERIES = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9"),
    *("#332288", "#882255", "#44aa99", "#999933", "#aa4499", "#661100"),
)
INK, SOFT, GRID, GROUND = "#1b1f24", "#5b6570", "#dde1e6", "#ffffff"
# What each colour becomes on a dark ground: those of `page.css`, and lighter series.
_DARK = (
    *("#e6e8eb", "#9aa4af", "#2b3037", "#16191d", "#5cb3f0", "#ff9a4d", "#3ecf9f", "#e59ac5", "#d8b93a", "#8fd0ff"),
    *("#9d8df2", "#e0709f", "#7fd6c8", "#cfcf66", "#e58ad6", "#d98a6e"),
)
_ON_DARK = dict(zip((INK, SOFT, GRID, GROUND, *SERIES), _DARK, strict=True))
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4)))
MARKERS = ("o", "s", "^", "D", "v", "P")
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
    # Fonts of browsers are wider than the one that the room for numbers is measured with.
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

    def figure(self) -> Figure:
        """The plot as a ``matplotlib.figure.Figure``, without a window."""
        import matplotlib
        from matplotlib.figure import Figure

        with matplotlib.rc_context(_RC):
            figure = Figure(figsize=self.size, facecolor="none", layout="constrained")
            self.draw(figure)
        return figure

    def save(self, target: Any, file_format: str, *, dpi: int = 300) -> None:
        """Write it to a path or an open file; the same plot always gives the same bytes.

        Args:
            target: the path or the file.
            file_format: `png` (on white), `pdf` or `svg`.
            dpi: of what is no drawing of lines; 300, as journals want it.
        """
        import matplotlib

        dates = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[file_format]
        ground = GROUND if file_format == "png" else "none"
        with matplotlib.rc_context({**_RC, "svg.hashsalt": self.name}), warnings.catch_warnings():
            # Glyphs that matplotlib's font lacks become boxes in the files; on the page the browser's font is used.
            warnings.filterwarnings("ignore", message="Glyph")
            self.figure().savefig(target, format=file_format, dpi=dpi, facecolor=ground, metadata=dates)

    def svg(self) -> str:
        """The plot as a document in SVG, for a light ground."""
        buffer = io.StringIO()
        self.save(buffer, "svg")
        return buffer.getvalue()

    def uris(self) -> tuple[str, str]:
        """Addresses of the plot for a light and for a dark ground.

        A page shows a plot as an image rather than as part of itself: so ids and styles of several never meet, and no
        text in one can become markup.
        """
        # A browser may hold the policy of the page, which forbids styles, against the image: attributes say the same.
        light = re.sub(r' style="([^"]*)"', lambda found: _attributes(found[1]), self.svg())
        dark = re.sub("|".join(_ON_DARK), lambda found: _ON_DARK[found[0]], light)
        return data_uri(light.encode(), "image/svg+xml"), data_uri(dark.encode(), "image/svg+xml")


def _attributes(style: str) -> str:
    pairs = (one.partition(":") for one in style.split(";"))
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs if value)


def panels_of(figure: Figure, count: int, columns: int, **shared: Any) -> list[Axes]:
    """The axes of small multiples, row by row."""
    axes = figure.subplots(math.ceil(count / columns), columns, squeeze=False, **shared).ravel()
    for axis in axes[count:]:
        axis.remove()
    return list(axes[:count])


def draw_curve(axis: Axes, curve: Curve, number: int) -> None:
    """One of several curves with its band; a single point gets a marker and a bar."""
    keep = np.unique(np.linspace(0, len(curve.x) - 1, min(_POINTS, len(curve.x))).round().astype(int))
    x, y = np.asarray(curve.x, dtype=np.float64)[keep], np.asarray(curve.y)[keep]
    style: dict[str, Any] = {"color": SERIES[number % len(SERIES)], "label": short(curve.name)}
    if len(x) == 1:
        style |= {"marker": MARKERS[number % len(MARKERS)], "clip_on": False}
    else:
        style |= {"linestyle": DASHES[number // len(SERIES) % len(DASHES)]}
    axis.plot(x, y, **style)
    if curve.low is not None and curve.high is not None:
        width = 1.2 if len(x) == 1 else 0
        axis.fill_between(x, curve.low[keep], curve.high[keep], color=style["color"], alpha=0.16, linewidth=width)


def share_axis(axis: Any, label: str | None = None) -> None:
    """From 0 to 1 with a grid; `axis` is a matplotlib Axis."""
    axis.set_ticks(np.linspace(0, 1, 6))
    axis.grid(visible=True)
    getattr(axis.axes, f"set_{axis.axis_name}lim")(-0.015, 1.015)
    if label:
        axis.set_label_text(label)


def short(name: str, most: int = 34) -> str:
    """The name, shortened to `most` characters and without characters that XML forbids.

    Example:
        >>> short("a long name", 6)
        'a lon…'
    """
    name = _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", name)
    return name if len(name) <= most else name[: most - 1] + "…"
