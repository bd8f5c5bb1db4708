"""Print what commands print: text without control characters, warnings in plain words, progress bars, JSON files."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grounding_rewards.common.atomic_files import write_whole

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")

#: Width in characters from which a terminal shows all columns of a table.
WIDE = 100
# Seconds over which the bar averages the speed: a batch of answers takes minutes.
_SPEED_PERIOD = 600.0


def output_console(width: int) -> Console:
    """A ``rich.console.Console`` on the standard output that escapes every text by :func:`printable`.

    Args:
        width: in characters, used only if the output is not a terminal, and no variable COLUMNS says its width.
    """
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render_str(self, text: str, **options: Any) -> Any:
            # Escaped before the cells of a table are measured: escapes are longer, and columns stay in line.
            return super().render_str(printable(text), **options)

        def render(self, *args: Any, **options: Any) -> Iterator[Segment]:
            for text, style, control in super().render(*args, **options):
                # A segment with `control` has codes that the console itself wrote for the terminal.
                yield Segment(text if control else printable(text), style, control)

        def on_broken_pipe(self) -> None:
            # rich would end the command with exit code 1; `cli.main` ends it with 0.
            raise BrokenPipeError

    console = PrintableConsole()
    return console if console.is_terminal or os.environ.get("COLUMNS") else PrintableConsole(width=width)


def printable(text: str, *, lines: bool = True) -> str:
    """Escape the characters of a text that a terminal would interpret instead of showing them.

    Control characters could move the cursor, write into the clipboard or hide what was printed before; characters that
    change the direction of writing show a text in another order.

    Args:
        text: of a dataset, a model or an error; may have lone surrogates.
        lines: whether line ends stay as they are.

    Example:
        >>> printable("a\\x1b[31m\\n"), printable("a\\tb\\nc", lines=False), printable("\\u202emass é")
        ('a\\\\x1b[31m\\n', 'a\\\\tb\\\\nc', '\\\\u202emass é')
    """
    if text.isprintable():
        return text
    characters = []
    for character in text:
        is_kept = character.isprintable() or (lines and character == "\n")
        characters.append(character if is_kept else character.encode("unicode_escape").decode())
    return "".join(characters)


def say(text: str, *, stderr: bool = False) -> None:
    """Print a line of text, made :func:`printable`, on the standard output; with `stderr` on the standard error.

    The standard error has what is no result: progress, warnings and errors.
    """
    print(printable(text), file=sys.stderr if stderr else sys.stdout)


def fold(text: str, indent: int = 6) -> str:
    """Break the long lines of a text at the width of the terminal, between words alone.

    Args:
        text: any number of lines.
        indent: spaces before the further lines that an indented line is broken into; those of others have none.

    Example:
        >>> print(fold("options:\\n  --seed INT: of the images"))
        options:
          --seed INT: of the images
    """
    width = shutil.get_terminal_size((120, 24)).columns
    lines = []
    for line in text.split("\n"):
        spaces = " " * indent if line.startswith(" ") else ""
        # Hyphens stand in names of options, which must stay whole.
        lines.append(
            textwrap.fill(line, width, subsequent_indent=spaces, break_long_words=False, break_on_hyphens=False)
        )
    return "\n".join(lines)


# A pattern of the modules whose warnings about future changes are hidden.
_LIBRARIES = r"(accelerate|datasets|huggingface_hub|peft|torch|transformers|trl)\b"


@contextmanager
def plain_warnings() -> Iterator[None]:
    """A context in which warnings are printed without path and line of code.

    A warning of this package begins with "warning", one of a library with its category. FutureWarnings of libraries
    are for developers and hidden, unless `python -W` says what to show.
    """
    default_format = warnings.formatwarning

    def format_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> str:
        """A warning in one line, after the word or the category that it begins with."""
        # The package warns with classes of its own, or with the plain one that `warnings.warn` takes by default.
        is_ours = category is UserWarning or category.__module__.startswith("grounding_rewards.")
        title = "warning" if is_ours else category.__name__
        return printable(f"{title}: {message}") + "\n"

    warnings.formatwarning = format_warning
    try:
        with warnings.catch_warnings():
            # The options of `python -W`.
            if not sys.warnoptions:
                warnings.filterwarnings("ignore", category=FutureWarning, module=_LIBRARIES)
            yield
    finally:
        warnings.formatwarning = default_format


@contextmanager
def stage_progress(first_stage: str = "") -> Iterator[Callable[..., None]]:
    """A context with a progress bar on the standard error, if that is a terminal.

    Args:
        first_stage: what is done at the beginning, in words.

    Returns:
        A function ``on_progress(stage, count, total)`` that shows what is done now, and how many of all items are
        done; the total is None if it is not known.

    Example:
        >>> with stage_progress() as on_progress:
        ...     on_progress("reading images", 3, 10)
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=console, transient=True, speed_estimate_period=_SPEED_PERIOD, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(first_stage, total=None)

        def on_progress(stage: str, count: int = 0, total: int | None = None) -> None:
            """Show the stage and its count."""
            description = printable(stage, lines=False)
            if description != bar.tasks[0].description:
                # Another stage has another speed, which is measured anew.
                bar.reset(task, description=description)
            # Set directly: `update` takes a total of None for no change, not for an unknown one.
            bar.tasks[0].total = total
            bar.update(task, completed=count)

        yield on_progress


def track(title: str, items: Iterable[Item], total: int | None = None) -> Iterator[Item]:
    """Yield the items, with a progress bar.

    Args:
        title: of the bar.
        items: any.
        total: their number; if left out, their length, if they have one.

    Example:
        >>> list(track("counting", [1, 2]))
        [1, 2]
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with stage_progress() as on_progress:
        for count, item in enumerate(items):
            on_progress(title, count, total)
            yield item


def write_numbers(path: Path, content: Any) -> None:
    """Write the file of an option `--json`: indented JSON in UTF-8."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
