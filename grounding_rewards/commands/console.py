"""What the commands share: the console they print on, progress bars, and rewards by words."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grounding_rewards.common.whole_files import write_whole

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from grounding_rewards.rewards.grounding import GroundingReward

Item = TypeVar("Item")

# Seconds before a progress bar appears: a shorter one only flickers.
_PATIENCE = 2.0


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


@contextmanager
def late_progress(
    *columns: ProgressColumn, patience: float = _PATIENCE, transient: bool = False
) -> Iterator[tuple[Progress, Callable[[], None]]]:
    """A progress bar on the standard error, which appears only in a terminal and only when a task takes a while.

    Args:
        *columns: of the bar; by default the count, the total and the time left.
        patience: seconds before it appears.
        transient: whether it goes away at the end.

    Returns:
        The bar, and a function to be called now and then, which shows it when it is time.

    Example:
        >>> with late_progress(patience=60.0) as (bar, show):
        ...     task = bar.add_task("counting", total=2)
        ...     bar.advance(task)
        ...     show()
        ...     int(bar.tasks[task].completed), bar.live.is_started
        (1, False)
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(*(columns or count_columns()), console=console, transient=transient)
    shown_from = time.monotonic() + patience

    def show() -> None:
        if not bar.live.is_started and console.is_terminal and time.monotonic() > shown_from:
            bar.start()

    try:
        yield bar, show
    finally:
        # Stopping a bar that was never started prints an empty line.
        if bar.live.is_started:
            bar.stop()
            sys.stderr.flush()


def count_columns() -> tuple[ProgressColumn, ...]:
    """The columns of a bar: what is being done, how many of how many are done, and the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    return TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()


def track(title: str, items: Iterable[Item], total: int | None = None) -> Iterator[Item]:
    """Go through the items, with a progress bar where it takes a while.

    Args:
        title: what is being done.
        items: any.
        total: how many they are; None for their length, if they have one.

    Example:
        >>> list(track("counting", [1, 2]))
        [1, 2]
    """
    with late_progress(transient=True) as (bar, show):
        task = bar.add_task(title, total=len(items) if total is None and isinstance(items, Sized) else total)
        for item in items:
            show()
            yield item
            bar.advance(task)


@contextmanager
def stage_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar over several stages: an ``on_progress`` that takes the stage, the count and the total.

    Example:
        >>> with stage_progress() as on_progress:
        ...     on_progress("reading images", 3, 10)
    """
    with late_progress() as (bar, show):
        task = bar.add_task("", total=None)

        def on_progress(stage: str, done: int, total: int | None) -> None:
            bar.update(task, description=stage, completed=done, total=total)
            show()

        yield on_progress


@contextmanager
def generation_progress(title: str) -> Iterator[Callable[[int, int, int], None]]:
    """A bar over images with the rates of images and tokens."""
    from rich.progress import TextColumn

    with late_progress(*count_columns(), TextColumn("{task.fields[rates]}"), patience=0.0) as (bar, show):
        task = bar.add_task(title, total=None, rates="")
        started = time.monotonic()

        def on_progress(images: int, total: int, tokens: int) -> None:
            seconds = time.monotonic() - started
            rates = f"{images / seconds:.1f} images/s, {tokens / seconds:.0f} tokens/s"
            bar.update(task, completed=images, total=total, rates=rates)
            show()

        yield on_progress


@contextmanager
def step_status(first: str) -> Iterator[Callable[[str], None]]:
    """A line in the terminal that names the current step; nothing is written to a log.

    Args:
        first: the first step.

    Example:
        >>> with step_status("reading") as on_progress:
        ...     on_progress("drawing")
    """
    from rich.console import Console

    with Console(stderr=True).status(first) as status:
        yield status.update


def parameters_from_option(given: str | None) -> dict[str, Any]:
    """The parameters of a reward that --reward-kwargs gives.

    Raises:
        ValueError: it is no JSON object.

    Example:
        >>> parameters_from_option('{"iou_threshold": 0.4}')
        {'iou_threshold': 0.4}
    """
    parameters = _plain_value(given or "{}")
    if not isinstance(parameters, dict):
        raise ValueError(
            f"Expected a JSON object for --reward-kwargs, got {given!r}. Write it as '{{\"iou_threshold\": 0.4}}'."
        )
    return parameters


def rewards_from_words(
    words: Sequence[str], reward_kwargs: str | None = None, box_format: Any = None
) -> list[GroundingReward]:
    """Rewards as a command line names them: by name, and after a colon parameters of their own.

    Args:
        words: `R3` or `R3:iou_threshold=0.3,matching=greedy`; a value is JSON or a word.
        reward_kwargs: JSON, parameters of all of them, or a list with those of each; own ones go before.
        box_format: how the model writes boxes, where the rows do not say it.

    Returns:
        The rewards, scheduled parameters at their final values. One with parameters of its own is named as it was
        given, and one that is given twice with its parameters, so that it may stand beside itself with others.

    Raises:
        ValueError: an unknown name or parameter, or parameters that are written in another way.

    Example:
        >>> rewards = rewards_from_words(["R3", "R3:iou_threshold=0.3"], '{"beta": 1}', "qwen3-vl")
        >>> [(reward.__name__, reward.box_reward.iou_threshold, reward.box_reward.beta) for reward in rewards]
        [('R3', 0.5, 1.0), ('R3:iou_threshold=0.3', 0.3, 1.0)]
        >>> [reward.__name__ for reward in rewards_from_words(["R1", "R1"], '[null, {"ranking": "tied"}]')]
        ['R1', 'R1:ranking=tied']
    """
    from grounding_rewards.rewards.grounding import get_reward

    rewards = []
    for word, (name, parameters) in zip(words, names_and_parameters(words, reward_kwargs), strict=True):
        made = get_reward(name, **{"box_format": box_format, **parameters})
        if word.partition(":")[2]:
            made = replace(made, name=word)
        elif words.count(word) > 1:
            made = replace(made, name=word_of(made.name, parameters))
        rewards.append(final_reward(made))
    return rewards


def names_and_parameters(words: Sequence[str], reward_kwargs: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    """The name of each reward of a command line and its parameters, those after its colon before those of all.

    Args:
        words: as for :func:`rewards_from_words`.
        reward_kwargs: likewise.

    Raises:
        ValueError: parameters that are written in another way, or a list of another length.

    Example:
        >>> names_and_parameters(["R1", "R3:iou_threshold=0.3"], '{"iou_threshold": 0.4}')
        [('R1', {'iou_threshold': 0.4}), ('R3', {'iou_threshold': 0.3})]
        >>> names_and_parameters(["R3", "format_only"], '[{"beta": 1}, null]')
        [('R3', {'beta': 1}), ('format_only', {})]
    """
    from grounding_rewards.rewards.registry import spread_kwargs

    parts = [word.partition(":") for word in words]
    names, given = [name for name, *_ in parts], _plain_value(reward_kwargs or "{}")
    of_all = given if isinstance(given, list) else [parameters_from_option(reward_kwargs)] * len(parts)
    found = []
    for (name, _, own), shared in zip(parts, spread_kwargs(names, of_all), strict=True):
        pairs = [pair.partition("=") for pair in own.split(",") if pair]
        if not all(key and value for key, _, value in pairs):
            raise ValueError(
                f"Expected parameters as name=value, with commas between them, for the reward {name!r}, got {own!r}. "
                "Write it as R3:iou_threshold=0.3,beta=1."
            )
        found.append((name, {**shared, **{key: _plain_value(value) for key, _, value in pairs}}))
    return found


def word_of(name: str, parameters: Mapping[str, Any]) -> str:
    """A reward with its parameters in one word, as a command line takes it.

    Example:
        >>> word_of("R3", {"iou_threshold": 0.3, "beta": 1}), word_of("R3", {})
        ('R3:iou_threshold=0.3,beta=1', 'R3')
    """
    given = ",".join(f"{key}={value}" for key, value in parameters.items())
    return f"{name}:{given}" if given else name


def _plain_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def final_reward(reward: GroundingReward) -> GroundingReward:
    """The reward with every scheduled parameter at its final value, which a line on the standard error says."""
    for name, schedule in reward.schedules:
        say(f"{reward.name}: {name} is {schedule.to:g}, where its schedule ends: nothing is trained here.", error=True)
    return reward.final()


def write_json(path: Path, content: Any) -> None:
    """Write the file of an option `--json`: indented, in UTF-8."""
    write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
