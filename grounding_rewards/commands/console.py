"""What commands share: progress bars that appear once something takes long, and options written in JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


@contextmanager
def late_progress(
    patience: float, *columns: ProgressColumn, transient: bool = False
) -> Iterator[tuple[Progress, Callable[[], None]]]:
    """A progress bar on the error stream of a terminal, which is not there yet.

    Args:
        patience: seconds after which it may be shown.
        *columns: of the bar; rich's own without any.
        transient: whether it goes away at the end.

    Returns:
        The bar, and what is to be called now and then: it shows the bar when it is time.

    Example:
        >>> with late_progress(60.0) as (bar, show):
        ...     task = bar.add_task("counting", total=2)
        ...     bar.advance(task)
        ...     show()
        ...     int(bar.tasks[task].completed), bar.live.is_started
        (1, False)
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(*columns, console=console, transient=transient)
    shown_from = time.monotonic() + patience

    def show() -> None:
        if not bar.live.is_started and console.is_terminal and time.monotonic() > shown_from:
            bar.start()

    try:
        yield bar, show
    finally:
        # It would leave an empty line where it was never shown.
        if bar.live.is_started:
            bar.stop()
            sys.stderr.flush()


def count_columns() -> tuple[ProgressColumn, ...]:
    """What is done, how many of how many, and the time that is left."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    return TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()


def parameters_from_option(given: str | None) -> dict[str, Any]:
    """The parameters of a reward that --reward-kwargs gives.

    Raises:
        ValueError: it is no JSON object.

    Example:
        >>> parameters_from_option('{"iou_threshold": 0.4}')
        {'iou_threshold': 0.4}
    """
    try:
        parameters = json.loads(given or "{}")
    except json.JSONDecodeError:
        parameters = None
    if not isinstance(parameters, dict):
        raise ValueError(
            f"Expected a JSON object for --reward-kwargs, got {given!r}. Write it as '{{\"iou_threshold\": 0.4}}'."
        )
    return parameters
