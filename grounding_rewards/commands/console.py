"""What the commands share: the console they print on, and progress bars."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grounding_rewards.common.atomic_files import write_whole

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")

#: Characters of a terminal that shows all columns of a table.
WIDE = 100
# Seconds before a progress bar appears: a shorter one only flickers.
_PATIENCE = 2.0
# Seconds between lines where there is no terminal for a bar.
_BETWEEN_LINES = 60.0
# Seconds over which the bar takes the speed: a batch of answers takes minutes.
_SPEED_PERIOD = 600.0


def output_console(width: int) -> Console:
    """A ``rich.console.Console`` on the standard output that prints what :func:`printable` leaves of every text.

    Args:
        width: in characters, where the output is not a terminal: a log has no edge to fold tables at.
    """
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render_str(self, text: str, **options: Any) -> Any:
            # Before cells are measured, so that the columns of a table stay in line.
            return super().render_str(printable(text), **options)

        def render(self, *given: Any, **options: Any) -> Iterator[Segment]:
            for text, style, control in super().render(*given, **options):
                # The console's own codes are no text.
                yield Segment(text if control else printable(text), style, control)

        def on_broken_pipe(self) -> None:
            # It would end the command with 1; the command line knows what this means.
            raise BrokenPipeError

    console = PrintableConsole()
    return console if console.is_terminal else PrintableConsole(width=width)


def printable(text: str, *, lines: bool = True) -> str:
    """Text of a dataset, a model or an error as a terminal may have it: what it would interpret is escaped.

    Control characters could move the cursor, write into the clipboard or hide what was printed before; signs that turn
    the direction of writing show a text in another order.

    Args:
        text: any, with half surrogates too.
        lines: whether line ends stay as they are.

    Example:
        >>> printable("a\\x1b[31m\\n"), printable("a\\tb\\nc", lines=False), printable("\\u202emass é")
        ('a\\\\x1b[31m\\n', 'a\\\\tb\\\\nc', '\\\\u202emass é')
    """
    signs = (
        sign if sign.isprintable() or (lines and sign == "\n") else sign.encode("unicode_escape").decode()
        for sign in text
    )
    return text if text.isprintable() else "".join(signs)


def say(text: str, *, error: bool = False) -> None:
    """Print a line of text on the standard output, or on the standard error, see :func:`printable`."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


# The modules of libraries, as a pattern.
_LIBRARIES = r"(accelerate|datasets|huggingface_hub|peft|torch|transformers|trl)\b"


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings without path and line of code, which do not help who types a command; those of libraries are
    told by their category. What a library will call otherwise one day is for its developers, and hidden, unless Python
    was told what to show (`-W`).
    """
    default_format = warnings.formatwarning

    def format_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> str:
        is_own = category is UserWarning or category.__module__.startswith("grounding_rewards.")
        return f"{'warning' if is_own else category.__name__}: {printable(str(message))}\n"

    warnings.formatwarning = format_warning
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.filterwarnings("ignore", category=FutureWarning, module=_LIBRARIES)
            yield
    finally:
        warnings.formatwarning = default_format


@contextmanager
def sign_of_life(text: str, *, patience: float = _PATIENCE) -> Iterator[None]:
    """Say once on the standard error that a command works, if it takes a while: libraries load before any bar is shown.

    Of several processes the first says it.

    Args:
        text: what works.
        patience: seconds before it is said.
    """
    timer = threading.Timer(patience, say, (text,), {"error": True})
    timer.daemon = True
    if int(os.environ.get("RANK", 0)) == 0:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def stage_progress(
    first: str = "", *, patience: float = _PATIENCE, transient: bool = False
) -> Iterator[Callable[..., None]]:
    """A progress bar on the standard error, when the work takes a while; where that is a file, a line now and then.

    Args:
        first: what is being done at first.
        patience: seconds before it appears.
        transient: whether it goes away at the end.

    Returns:
        An ``on_progress`` that takes what is being done, the count, and the total where it is known.

    Example:
        >>> with stage_progress() as on_progress:
        ...     on_progress("reading images", 3, 10)
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=console, transient=transient, speed_estimate_period=_SPEED_PERIOD)
    task = bar.add_task(first, total=None)
    start_time = time.monotonic() + patience
    next_line_time = time.monotonic() + _BETWEEN_LINES
    last_count: int | None = None

    def on_progress(stage: str, count: int = 0, total: int | None = None) -> None:
        nonlocal last_count, next_line_time
        description = printable(stage, lines=False)
        if last_count is None or count < last_count:
            # The count of another stage, or of a run before this one, is no measure of the speed.
            bar.reset(task, completed=count, total=total, description=description)
        else:
            bar.update(task, description=description, completed=count, total=total)
        last_count = count
        if console.is_terminal:
            if not bar.live.is_started and time.monotonic() > start_time:
                bar.start()
        elif time.monotonic() > next_line_time:
            say(f"{description}: {count:,}{'' if total is None else f' of {total:,}'}", error=True)
            next_line_time = time.monotonic() + _BETWEEN_LINES

    try:
        yield on_progress
    finally:
        # Stopping a bar that was never started prints an empty line.
        if bar.live.is_started:
            bar.stop()
            sys.stderr.flush()


def track(title: str, items: Iterable[Item], total: int | None = None) -> Iterator[Item]:
    """Go through the items, with a progress bar where it takes a while; their number is their length, if they have one.

    Example:
        >>> list(track("counting", [1, 2]))
        [1, 2]
    """
    total = len(items) if total is None and isinstance(items, Sized) else total
    with stage_progress(transient=True) as on_progress:
        for count, item in enumerate(items):
            on_progress(title, count, total)
            yield item


def write_numbers(path: Path, content: Any) -> None:
    """Write the file of an option `--json`: indented, in UTF-8."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
