"""Follow a training in the terminal: its reward and the parts of it, and whether answers differ enough to learn from.

It reads log.jsonl in the folder of the run and writes nothing; the run knows nothing of it, and may have been started
anywhere. It ends when the run ends, or with Ctrl-C.

Each row has the latest value, the mean of the latest ten logged steps, and the course from the first step to the last.

examples:
  grounding-rewards watch runs/demo
  grounding-rewards watch runs/r4 --every 10
  grounding-rewards watch runs/r4 --once
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean as mean
from typing import Annotated, Any

from grounding_rewards.commands.console import output_console, printable
from grounding_rewards.commands.options import within
from grounding_rewards.logs.run_log import LOG, RunSoFar, read_run
from grounding_rewards.metrics.estimates import NOTHING
from grounding_rewards.metrics.signal import CAUSES, SIGNAL_KEYS, main_cause
from grounding_rewards.report.tables import Cell, Table

#: Logged steps whose mean stands beside the latest value.
RECENT = 10

# What rows are called; of a reward, without its name, which stands before the key in the log.
_TITLES = {
    "reward": "reward",
    "f_beta": "F-beta",
    "quality": "quality",
    "mean_iou": "mean IoU",
    "boxes": "boxes per answer",
    "status/unparseable": "unparseable",
    "status/truncated": "cut off",
    "hallucination_rate": "hallucination rate",
    "signal/effective_group_size": "answers per image that teach",
    "completions/mean_length": "tokens per answer",
    "kl": "KL to the start",
    "entropy": "entropy",
    "loss": "loss",
    "mean_token_accuracy": "accuracy of tokens",
    "learning_rate": "learning rate",
}
_BARS = "▁▂▃▄▅▆▇█"
_COURSE = 32
# Seconds without a new step after which a frame says so.
_QUIET = 120.0


def run(folder: Path, /, *, every: Annotated[float, within(above=True)] = 2.0, once: bool = False) -> int:
    """Show a run until it ends.

    Args:
        folder: of a training, its output_dir
        every: how many seconds apart to look
        once: print how the run stands and end
    """
    console = output_console(100)
    if once:
        console.print(_frame(folder))
        return 0
    from rich.live import Live

    with Live(_frame(folder), console=console, auto_refresh=False) as live:
        while not read_run(folder).ended:
            time.sleep(every)
            live.update(_frame(folder), refresh=True)
        live.update(_frame(folder), refresh=True)
    return 0


def _frame(folder: Path) -> Any:
    """How the run stands, as one thing that rich prints."""
    from rich.console import Group
    from rich.text import Text

    log, name = folder / LOG, printable(folder.name or str(folder), lines=False)
    found = read_run(folder)
    if not found.entries:
        return Text(f"{name}: no step is logged yet", style="bold")
    of = "" if found.steps is None else f" of {found.steps}"
    quiet = time.time() - log.stat().st_mtime
    late = f", nothing new for {quiet / 60:.0f} minutes" if quiet > _QUIET else ""
    parts: list[Any] = [Text(f"{name}: step {found.step}{of}{', ended' if found.ended else late}", style="bold")]
    rows: list[list[str | Cell]] = [
        [printable(title, lines=False), _number(values[-1]), _number(mean(values[-RECENT:])), course(values)]
        for title, values in _rows(found)
    ]
    course_of = Cell("from the first step to the last", kind="words")
    parts += [Table(["", "now", f"last {RECENT}", course_of], rows).rich(unbroken=range(4))] if rows else []
    parts += map(Text, _signal_lines(found))
    evaluated: dict[str, Any] = next(
        (one for one in reversed(found.entries) if {"eval_reward", "eval_loss"} & set(one)), {}
    )
    last = [(key, evaluated.get(f"eval_{key}")) for key in ("reward", "image_dependence", "image_dependence_p", "loss")]
    if shown := [f"{key.replace('_', ' ')} {_number(one)}" for key, one in last if isinstance(one, int | float)]:
        parts.append(Text(f"Last evaluation, step {evaluated.get('step', NOTHING)}: {', '.join(shown)}"))
    return Group(*parts)


def reward_names(keys: Sequence[str]) -> list[str]:
    """The rewards whose parts are logged, in the order of the log.

    Example:
        >>> reward_names(["loss", "R4/signal/all_empty", "rewards/R4/mean", "rewards/brevity/mean"])
        ['R4', 'brevity']
    """
    found = [re.fullmatch("rewards/(.+)/mean|(?!eval_)(.+)/signal/all_empty", key) for key in keys]
    return list(dict.fromkeys(one[1] or one[2] for one in found if one))


def course(values: Sequence[float], width: int = _COURSE) -> str:
    """The course of values as a line of bars, the first to the last, each the mean of those in its place.

    Example:
        >>> course([0, 0, 1, 1, 2, 2], 3), course([5.0, 5.0])
        ('▁▅█', '▁▁')
    """
    cells = min(width, len(values))
    cuts = [len(values) * k // cells for k in range(cells + 1)] if cells else []
    means = [mean(values[a:b]) for a, b in pairwise(cuts)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    top = len(_BARS) - 1
    return "".join(_BARS[round((mean - low) / (high - low) * top) if high > low else 0] for mean in means)


def _keys(found: RunSoFar) -> list[str]:
    return list(dict.fromkeys(key for entry in found.entries for key in entry))


def _rows(found: RunSoFar) -> Iterator[tuple[str, list[float]]]:
    """What each row is called, and its values."""
    keys = _keys(found)
    names = reward_names(keys)
    # What answers are like hardly depends on the reward: of the first one that reads boxes.
    first = next((name for name in names if f"{name}/mean_iou" in keys), "")
    titles = {key: title for part, title in _TITLES.items() for key in (part, f"{first}/{part}")}
    titles |= {f"rewards/{name}/mean": name for name in names if len(names) > 1}
    for kind in ("source", "label"):
        own = [key for key in keys if key.startswith(f"{first}/{kind}/")]
        titles |= {key: ", ".join(key.split("/", 2)[2].rsplit("/", 1)) for key in own}
    yield from ((title, values) for key, title in titles.items() if (values := found.series(key)))


def _number(value: float) -> str:
    return f"{value:.2e}" if 0 < abs(value) < 5e-4 else f"{value:.3f}"


def _signal_lines(found: RunSoFar) -> Iterator[str]:
    """Of every reward: in how many images all answers earned the same lately, why, and what helps."""
    for name in reward_names(_keys(found)):
        series = {key: found.series(f"{name}/signal/{key}")[-RECENT:] for key in SIGNAL_KEYS}
        if not all(series.values()):
            continue
        means = {key: mean(values) for key, values in series.items()}
        no_spread = sum(means[cause] for cause in CAUSES)
        line = f"{name}: {no_spread:.0%} of the images had answers that all earned the same"
        causes = sorted((cause for cause in CAUSES if means[cause] > 0), key=lambda cause: -means[cause])
        if causes:
            line += ": " + ", ".join(f"{CAUSES[cause].title} {means[cause]:.0%}" for cause in causes)
        yield f"{line}."
        cause = main_cause(means)
        if cause is not None and no_spread >= 0.5:
            yield f"  Most often {CAUSES[cause].meaning}. {CAUSES[cause].remedy}"
