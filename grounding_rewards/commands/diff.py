"""The command `grounding-rewards diff`: is run B better than run A, in the terminal, as JSON and as Markdown."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.metrics.answered_film import read_answered
from grounding_rewards.metrics.bootstrap import RESAMPLES
from grounding_rewards.metrics.comparison import MAIN_FIGURE, Change, Group, RunDifference, compare_runs, format_p
from grounding_rewards.metrics.estimates import NOTHING, format_interval, format_value
from grounding_rewards.metrics.sizes import SIZES
from grounding_rewards.report.tables import markdown_table
from grounding_rewards.rewards.label_matching import LABEL_MATCHING

if TYPE_CHECKING:
    from rich.console import Console

DESCRIPTION = """\
Compare two runs of `grounding-rewards evaluate` on the films that both have: is B better than A, by how much, and on
which labels and sizes of findings. Films are matched by id; runs with different reference boxes are refused.

Every figure of both runs has a 95 % bootstrap interval, and so has their difference, B - A, with the same patients
drawn for both (or the same films, where no patient is known). Beside it a sign test says whether B is better on more
patients than it is worse, and Holm's p takes into account how many tests the table has. The verdict is about one
figure: choose it before you look.
"""

EXAMPLES = """\
examples:
  grounding-rewards diff runs/before runs/after
  grounding-rewards diff runs/R3 runs/R4 --figure mean_iou --json diff.json --markdown diff.md
  grounding-rewards diff one/films.jsonl other/films.jsonl --seed 1 --resamples 20000
"""

#: One table of figures: its title, then for each line its name and the change.
_Table = tuple[str, list[tuple[str, Change]]]

_LONGEST_FACT = 80
_HEADER = ("", "A", "B", "B − A", "better / worse / same", "sign test", "Holm")
_CAPTION = (
    "Intervals: 95 %, not adjusted for the number of figures. Sign test: exact, two-sided, without the {units} that "
    "are the same. Holm: its p, adjusted for all tests of this table."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("a", type=Path, metavar="A", help="folder of an evaluation, or its films.jsonl")
    parser.add_argument("b", type=Path, metavar="B", help="the run that is compared with it")
    parser.add_argument(
        "--figure",
        default=MAIN_FIGURE,
        metavar="KEY",
        help="what the verdict is about, such as mean_iou or reward_R4; a wrong key lists the right ones; "
        "default: %(default)s",
    )
    parser.add_argument(
        "--label-matching",
        choices=LABEL_MATCHING,
        default="ignore",
        help="whether a box is right only under the finding's label, as for `evaluate`; default: %(default)s",
    )
    parser.add_argument(
        "--sizes",
        choices=SIZES,
        default="film",
        help="sizes of reference boxes: parts of the film's area, or COCO's in pixels; default: %(default)s",
    )
    parser.add_argument(
        "--resamples", type=int, default=RESAMPLES, metavar="N", help="of the bootstrap; default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the bootstrap; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the verdict and the tables as Markdown")


def run(options: argparse.Namespace) -> int:
    """Compare two runs and report.

    Returns:
        0, whatever the verdict is.

    Raises:
        ValueError: a run cannot be read, or the two cannot be compared.
        OSError: a file cannot be written.
    """
    from rich.console import Console

    found = compare_runs(
        read_answered(options.a),
        read_answered(options.b),
        label_matching=options.label_matching,
        sizes=options.sizes,
        main=options.figure,
        resamples=options.resamples,
        seed=options.seed,
    )
    if options.json is not None:
        content = {"a": str(options.a), "b": str(options.b), **found.as_json()}
        options.json.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    names = {"A": str(options.a), "B": str(options.b)}
    settings = _settings_that_differ(options.a, options.b)
    if options.markdown is not None:
        options.markdown.write_text(render_markdown(found, names, settings), encoding="utf-8")
    # What the terminal cannot write must not end the command.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console()
    # A log has no terminal's edge.
    print_difference(found, names, settings, console if console.is_terminal else Console(width=140))
    return 0


def print_difference(
    found: RunDifference, names: dict[str, str], settings: dict[str, tuple[str, str]], console: Console
) -> None:
    """Print the tables, and the verdict last, where it is seen.

    Args:
        found: from :func:`grounding_rewards.metrics.comparison.compare_runs`.
        names: what A and B are.
        settings: what differs in how the runs were made.
        console: a ``rich.console.Console``.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    for line in _introduction(found, names, settings):
        console.print(Text(line))
    for title, rows in _tables(found):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
        table.add_column(_HEADER[0])
        for heading in _HEADER[1:]:
            table.add_column(heading, justify="right", no_wrap=True)
        for name, change in rows:
            bold = "bold" if change.direction(adjusted=True) else None
            table.add_row(*map(Text, _cells(name, change)), style=bold)
        console.print(table)
    console.print(Text(_CAPTION.format(units=found.units), style="dim"))
    console.print(Text(found.verdict, style="bold"))


def render_markdown(found: RunDifference, names: dict[str, str], settings: dict[str, tuple[str, str]]) -> str:
    """The verdict and the tables as Markdown.

    Args:
        found: from :func:`grounding_rewards.metrics.comparison.compare_runs`.
        names: what A and B are.
        settings: what differs in how the runs were made.
    """
    parts = [found.verdict, "\n".join(f"- {line}" for line in _introduction(found, names, settings))]
    for title, rows in _tables(found):
        cells = [_cells(_escaped(name), change) for name, change in rows]
        parts += [f"**{title}**", markdown_table(_HEADER, cells)]
    return "\n\n".join([*parts, _CAPTION.format(units=found.units)]) + "\n"


def _introduction(found: RunDifference, names: dict[str, str], settings: dict[str, tuple[str, str]]) -> Iterator[str]:
    yield from (f"{letter} = {name}" for letter, name in names.items())
    alone = f"{found.only_a} only in A and {found.only_b} only in B play no part"
    drawn = f" of {found.n} patients" if found.units == "patients" else ""
    yield f"{found.films} films{drawn} in both; {alone}"
    yield f"{found.resamples} resamplings of {found.units}, seed {found.seed}"
    yield from (f"{name}: A has {one}, B has {other}" for name, (one, other) in settings.items())


def _tables(found: RunDifference) -> Iterator[_Table]:
    yield "all films", [(f"{change.heading}{_sense(change)}", change) for change in found.figures.values()]
    for title, groups in (("reference boxes by label", found.labels), ("reference boxes by size", found.sizes)):
        if groups:
            yield title, [row for group in groups for row in _group_rows(group)]


def _group_rows(group: Group) -> list[tuple[str, Change]]:
    boxes = "1 box" if group.boxes == 1 else f"{group.boxes} boxes"
    return [(f"{group.name} ({boxes}), {change.heading}", change) for change in group.changes.values()]


def _sense(change: Change) -> str:
    return " (less is better)" if change.lower_is_better else ""


def _cells(name: str, change: Change) -> list[str]:
    signs = change.signs
    difference = format_value(change.difference.value, signed=True)
    interval = format_interval(change.difference, signed=True)
    return [
        name,
        format_value(change.a.value),
        format_value(change.b.value),
        f"{difference} {interval}".rstrip(),
        f"{signs.better} / {signs.worse} / {signs.tied}" if any(signs[:3]) else NOTHING,
        *(
            NOTHING if math.isnan(p) else format_p(p).removeprefix("p ").removeprefix("= ")
            for p in (signs.p, change.holm)
        ),
    ]


def _escaped(name: str) -> str:
    """Labels are text of others: a bar would end the cell, and a tag would be a tag."""
    return name.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _settings_that_differ(a: Path, b: Path) -> dict[str, tuple[str, str]]:
    """What evaluation.json says differently of the two runs, where both have one."""
    one, other = _facts(a), _facts(b)
    if one is None or other is None:
        return {}
    return {
        name: (_short(one.get(name)), _short(other.get(name)))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    }


def _facts(run: Path) -> dict[str, Any] | None:
    file = (run if run.is_dir() else run.parent) / "evaluation.json"
    if not file.is_file():
        return None
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))["facts"]
        return dict(facts)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"Expected an object with `facts` in {str(file)!r}, got {type(error).__name__} ({error}). "
            "Make it anew with `grounding-rewards evaluate`."
        ) from error


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"
