"""How rewards respond, as one plot: a line of five panels for each reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.audit.response import Response
from grounding_rewards.report.plots import SERIES, SOFT, Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEADINGS = ("over IoU; dashed: slope", "over false boxes", "over share found", "box moved", "box walks; grey: IoU")
_REWARD, _SLOPE = SERIES[0], SERIES[1]
_WIDTH, _ROW, _MARGIN = 9.2, 1.3, 0.7
#: Slopes above this are cut off.
_STEEPEST = 2.5
# Ends of the heat map; the lighter one is what earns nothing.
_COLOURS = ("#f2f4f7", "#56b4e9", "#0072b2", "#00304d")


def response_plot(responses: Mapping[str, Response], name: str = "responses") -> Plot:
    """The responses of rewards, a line for each.

    Args:
        responses: by the name of the reward, from :func:`grounding_rewards.audit.response.response`.
        name: of the plot.

    Example:
        >>> import grounding_rewards as gr
        >>> from grounding_rewards.audit.response import response
        >>> len(response_plot({"R3": response(gr.get_reward("R3"))}).figure().axes)
        6
    """

    def draw(figure: Figure) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        axes = figure.subplots(len(responses), len(_HEADINGS), squeeze=False)
        colours = LinearSegmentedColormap.from_list("reward", _COLOURS)
        for row, (reward, shown) in enumerate(responses.items()):
            heat = _line(axes[row], shown, colours)
            axes[row][0].set_ylabel(reward, rotation=0, ha="right", va="center", fontweight="bold")
            for column, axis in enumerate(axes[row]):
                if row == 0:
                    axis.set_title(_HEADINGS[column], loc="left")
                if row < len(responses) - 1:
                    axis.tick_params(labelbottom=False)
        figure.colorbar(heat, ax=axes[:, 3], shrink=min(1.0, 2 / len(responses)), aspect=12, label="reward")

    note = (
        "Over IoU; over the number of false boxes behind a perfect one; over the share of eight findings that is found "
        "at IoU 0.8; a box of the finding's size moved by up to one and a half of its sides; and a box that walks at "
        "random around the finding."
    )
    return Plot(name, "One finding and one box", note, draw, (_WIDTH, _MARGIN + _ROW * len(responses)))


def _line(axes: Any, shown: Response, colours: Any) -> Any:
    fit, false_boxes, found, moved, walk = axes
    fit.plot(*shown.iou, color=_REWARD)
    fit.plot(shown.slope.x, np.minimum(shown.slope.y, _STEEPEST), color=_SLOPE, linewidth=1.0, linestyle=(0, (4, 2)))
    _axis(fit, (0, 0.5, 1), top=_STEEPEST)
    false_boxes.plot(*shown.false_boxes, color=_REWARD, marker="o", markersize=3)
    _axis(false_boxes, (0, 2, 4, 6, 8))
    found.plot(*shown.found, color=_REWARD, marker="o", markersize=3)
    _axis(found, (0, 0.5, 1))
    reach = shown.moves[-1]
    heat = moved.imshow(
        shown.moved, cmap=colours, vmin=0, vmax=1, extent=(-reach, reach, reach, -reach), interpolation="nearest"
    )
    moved.set_xticks((-1, 0, 1))
    moved.set_yticks((-1, 0, 1))
    walk.plot(shown.walk.x, shown.walk_iou, color=SOFT, linewidth=0.8)
    walk.plot(shown.walk.x, shown.walk.y, color=_REWARD, linewidth=1.2)
    _axis(walk, (0, 80, 160))
    return heat


def _axis(axis: Axes, ticks: tuple[float, ...], *, top: float = 1.0) -> None:
    axis.set_ylim(-0.04 * top, 1.06 * top)
    axis.set_yticks((0, 1) if top == 1 else (0, 1, 2))
    axis.set_xticks(ticks)
    axis.grid(visible=True)
