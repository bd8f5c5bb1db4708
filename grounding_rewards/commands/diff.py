"""Compare two runs of `grounding-rewards evaluate` on the films that both have: is B better than A, by how much, and on
which labels and sizes of findings. Films are matched by id; runs with different reference boxes are refused.

Every figure of both runs has a 95 % bootstrap interval, and so has their difference, B - A, with the same patients
drawn for both (or the same films, where no patient is known). Beside it a sign test says whether B is better on more
patients than it is worse, and Holm's p takes into account how many tests the table has. The verdict is about one
figure: choose it before you look.

Answers that need no look at the film, which `evaluate` measured beside B, stand beside both runs. The page --html shows
films and what the models wrote about them: guard it like the films. Beside it lie films.png and, where there is a log
of the training, curves.png.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.commands.console import output_console, write_json
from grounding_rewards.metrics.answered_film import AnsweredFilm, read_answered
from grounding_rewards.metrics.bootstrap import RESAMPLES
from grounding_rewards.metrics.comparison import MAIN_FIGURE, Change, Group, RunDifference, compare_runs, format_p
from grounding_rewards.metrics.estimates import (
    NOTHING,
    Estimate,
    Figures,
    estimate_as_json,
    format_interval,
    format_value,
)
from grounding_rewards.metrics.film_figures import film_figures
from grounding_rewards.report.tables import Row, markdown_table, terminal_table
from grounding_rewards.rewards.label_matching import LABEL_MATCHING

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.console import Console

EXAMPLES = """\
examples:
  grounding-rewards diff runs/before runs/after
  grounding-rewards diff runs/R3 runs/R4 --figure mean_iou --json diff.json --markdown diff.md
  grounding-rewards diff runs/before runs/after --html runs/after/diff.html --figures reward_R4 mean_iou f1_50
  grounding-rewards diff one/films.jsonl other/films.jsonl --seed 1 --resamples 20000
"""

_LONGEST_FACT = 80
_HEADER = ("", "A", "B", "B − A", "better / worse / same", "sign test", "Holm")
_CAPTION = (
    "Intervals: 95 %, not adjusted for the number of figures. Sign test: exact, two-sided, without the {units} that "
    "are the same. Holm: its p, adjusted for all tests of this table."
)


@dataclass(frozen=True)
class _Evaluation:
    """What evaluation.json says of a run; nothing where there is none."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    systems: Mapping[str, Figures] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)
    reward: str = "R4"


@dataclass(frozen=True)
class _Comparison:
    """What the command says, whatever it is written into.

    Attributes:
        found: how the runs differ.
        paths: of A and of B.
        names: of A and of B, short enough for a heading.
        settings: what differs in how the runs were made.
        figures: keys of the figures that are shown; all of them where none was chosen.
        baselines: the figures of answers that need no look at the film.
    """

    found: RunDifference
    paths: tuple[Path, Path]
    names: tuple[str, str]
    settings: Mapping[str, tuple[str, str]]
    figures: Sequence[str]
    baselines: Mapping[str, Figures]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
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
        "--figures",
        nargs="+",
        default=(),
        metavar="KEY",
        help="show these alone, with intervals for all, and the runs as lines; default: all figures, as lines",
    )
    parser.add_argument(
        "--labels",
        choices=LABEL_MATCHING,
        default="ignore",
        help="whether a box is right only under the finding's label, as for `evaluate`; default: %(default)s",
    )
    parser.add_argument(
        "--resamples", type=int, default=RESAMPLES, metavar="N", help="of the bootstrap; default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the bootstrap; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the verdict and the tables as Markdown")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with figures, curves and films")
    parser.add_argument(
        "--reward",
        metavar="NAME",
        help="by whose change the films of the page are chosen; default: what the evaluation of B is about, else R4",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="log.jsonl of the training, for the curves of the page; default: the one beside the checkpoint of B",
    )


def run(options: argparse.Namespace) -> int:
    """Compare two runs and report.

    Returns:
        0, whatever the verdict is.

    Raises:
        ValueError: a run cannot be read, or the two cannot be compared.
        OSError: a file cannot be written.
    """
    a, b = read_answered(options.a), read_answered(options.b)
    found = compare_runs(
        a, b, labels=options.labels, main=options.figure, resamples=options.resamples, seed=options.seed
    )
    evaluations = _read_evaluation(options.a), _read_evaluation(options.b)
    comparison = _Comparison(
        found=found,
        paths=(options.a, options.b),
        names=_names(options.a, options.b),
        settings=_settings_that_differ(*evaluations),
        figures=_chosen(options.figures, found),
        baselines=_baselines(evaluations[1], found, options.labels),
    )
    if options.markdown is not None:
        options.markdown.write_text(render_markdown(comparison), encoding="utf-8")
    if options.html is not None:
        _write_page(options, comparison, a, b, evaluations[1])
    if options.json is not None:
        write_json(options.json, _as_json(comparison))
    console = output_console(170)
    (print_figures if options.figures else print_difference)(comparison, console)
    if options.html is not None:
        console.print(f"Page: {options.html.resolve().as_uri()}", soft_wrap=True, markup=False)
    return 0


def print_difference(comparison: _Comparison, console: Console) -> None:
    """Print the tables, and the verdict last, where it is seen."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = comparison.found
    for line in _introduction(comparison):
        console.print(Text(line))
    for title, header, rows in _tables(comparison):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
        table.add_column(header[0])
        for heading in header[1:]:
            table.add_column(Text(heading), justify="right", no_wrap=True)
        for change, cells in rows:
            bold = "bold" if change.direction(adjusted=True) else None
            table.add_row(*map(Text, cells), style=bold)
        console.print(table)
    console.print(Text(_CAPTION.format(units=found.units), style="dim"))
    console.print(Text(found.verdict, style="bold"))


def print_figures(comparison: _Comparison, console: Console) -> None:
    """Print the chosen figures as columns, the runs and the baselines as lines, and the verdict."""
    from rich.text import Text

    a, b = comparison.names
    changes = {key: comparison.found.figures[key] for key in comparison.figures}
    rows = [
        Row(a, {key: change.a for key, change in changes.items()}),
        Row(b, {key: change.b for key, change in changes.items()}),
        Row(f"{b} − {a}", {key: change.difference for key, change in changes.items()}, is_difference=True),
        *(Row(name, figures) for name, figures in comparison.baselines.items()),
    ]
    headings = {key: change.heading for key, change in changes.items()}
    title = f"{comparison.found.films} films, 95 % bootstrap intervals"
    console.print(terminal_table(rows, headings, title=title))
    console.print(Text(f"A is {a}, B is {b}. {comparison.found.verdict}", style="bold"))


def render_markdown(comparison: _Comparison) -> str:
    """The verdict and the tables as Markdown."""
    parts = [comparison.found.verdict, "\n".join(f"- {line}" for line in _introduction(comparison))]
    for title, header, rows in _tables(comparison):
        body = [[_escaped(cells[0]), *cells[1:]] for _, cells in rows]
        parts += [f"**{title}**", markdown_table([_escaped(heading) for heading in header], body)]
    return "\n\n".join([*parts, _CAPTION.format(units=comparison.found.units)]) + "\n"


def _as_json(comparison: _Comparison) -> dict[str, Any]:
    a, b = map(str, comparison.paths)
    baselines = {
        name: {key: list(estimate_as_json(one).values()) for key, one in figures.items()}
        for name, figures in comparison.baselines.items()
    }
    return {"a": a, "b": b, **comparison.found.as_json(), "baselines": baselines}


def _names(a: Path, b: Path) -> tuple[str, str]:
    """What the runs are called where they stand side by side: their folders, unless these have one name.

    Example:
        >>> _names(Path("runs/before"), Path("runs/after")), _names(Path("R1/evaluation"), Path("R2/evaluation"))
        (('before', 'after'), ('A', 'B'))
    """
    one, other = ((path.parent if path.is_file() else path).resolve().name for path in (a, b))
    return (one, other) if one != other and one and other else ("A", "B")


def _chosen(keys: Sequence[str], found: RunDifference) -> Sequence[str]:
    for key in keys:
        if key not in found.figures:
            raise ValueError(
                f"Expected figures of both runs for --figures, got {key!r}. They have: {', '.join(found.figures)}."
            )
    return list(dict.fromkeys(keys)) or list(found.figures)


def _baselines(evaluation: _Evaluation, found: RunDifference, labels: str) -> Mapping[str, Figures]:
    """The baselines of B, where they were measured on the same films by the same rule."""
    if found.only_b or evaluation.facts.get("labels") != labels:
        return {}
    return dict(list(evaluation.systems.items())[1:])


def _introduction(comparison: _Comparison) -> Iterator[str]:
    found = comparison.found
    yield from (f"{letter} = {path}" for letter, path in zip("AB", comparison.paths, strict=True))
    alone = f"{found.only_a} only in A and {found.only_b} only in B play no part"
    drawn = f" of {found.n} patients" if found.units == "patients" else ""
    yield f"{found.films} films{drawn} in both; {alone}"
    yield f"{found.resamples} resamplings of {found.units}, seed {found.seed}"
    yield from (f"{name}: A has {one}, B has {other}" for name, (one, other) in comparison.settings.items())


def _tables(comparison: _Comparison) -> Iterator[tuple[str, list[str], list[tuple[Change, list[str]]]]]:
    """For each table its title, its header, and for each line the change with its cells."""
    found, baselines = comparison.found, comparison.baselines
    rows = []
    for key in comparison.figures:
        change = found.figures[key]
        beside = [format_value(figures[key].value) if key in figures else NOTHING for figures in baselines.values()]
        rows.append((change, _cells(f"{change.heading}{_sense(change)}", change) + beside))
    yield "all films", [*_HEADER, *baselines], rows
    if len(comparison.figures) < len(found.figures):
        return
    for title, groups in (("reference boxes by label", found.labels), ("reference boxes by size", found.sizes)):
        if groups:
            named = [row for group in groups for row in _group_rows(group)]
            yield title, [*_HEADER], [(change, _cells(name, change)) for name, change in named]


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


def _settings_that_differ(a: _Evaluation, b: _Evaluation) -> dict[str, tuple[str, str]]:
    """What evaluation.json says differently of the two runs, where both have one."""
    one, other = a.facts, b.facts
    if not one or not other:
        return {}
    return {
        name: (_short(one.get(name)), _short(other.get(name)))
        for name in dict.fromkeys([*one, *other])
        if one.get(name) != other.get(name)
    }


def _read_evaluation(run: Path) -> _Evaluation:
    file = (run if run.is_dir() else run.parent) / "evaluation.json"
    if not file.is_file():
        return _Evaluation()
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        systems = {
            str(name): {key: _estimate(one) for key, one in figures.items()}
            for name, figures in content.get("systems", {}).items()
        }
        definitions = content.get("definitions", {})
        # The first figure of an evaluation is the reward that it is about.
        first = next(iter(content.get("headings", {})), "")
        reward = first.removeprefix("reward_") if first.startswith("reward_") else _Evaluation.reward
        return _Evaluation(dict(content["facts"]), systems, dict(definitions), reward)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"Expected an object with `facts` in {str(file)!r}, got {type(error).__name__} ({error}). "
            "Make it anew with `grounding-rewards evaluate`."
        ) from error


def _estimate(stored: Mapping[str, float | None]) -> Estimate:
    ends = (stored[end] for end in Estimate._fields)
    return Estimate(*(math.nan if end is None else float(end) for end in ends))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_FACT else text[: _LONGEST_FACT - 1] + "…"


def _write_page(
    options: argparse.Namespace,
    comparison: _Comparison,
    a: Sequence[AnsweredFilm],
    b: Sequence[AnsweredFilm],
    evaluation: _Evaluation,
) -> None:
    from grounding_rewards.report.curves import draw_curves
    from grounding_rewards.report.diff_page import DiffPage, FilmPair, render_diff_page
    from grounding_rewards.report.picture import draw_films

    in_b = {film.id: film for film in b}
    pairs = [FilmPair(film, in_b[film.id]) for film in a if film.id in in_b]
    reward = _reward(options.reward or evaluation.reward, pairs)
    load_image = _image_loader(b, evaluation.facts)
    log = _read_log(options.log, evaluation.facts)
    curves = draw_curves(log), draw_curves(log, dark=True)
    first, second = comparison.names
    page = DiffPage(
        title=f"{second} compared with {first}",
        subtitle=_subtitle(comparison.found, evaluation.facts),
        names=comparison.names,
        found=comparison.found,
        figures=comparison.figures,
        pairs=pairs,
        reward=reward,
        load_image=load_image,
        baselines=comparison.baselines,
        definitions={
            **evaluation.definitions,
            **{key: one.definition for key, one in film_figures([film for pair in pairs for film in pair]).items()},
        },
        curves=curves if curves[0] else None,
        facts=list(_introduction(comparison)),
    )
    options.html.parent.mkdir(parents=True, exist_ok=True)
    options.html.write_text(render_diff_page(page), encoding="utf-8")
    options.html.with_name("films.png").write_bytes(draw_films(pairs, comparison.names, reward, load_image))
    if curves[0]:
        options.html.with_name("curves.png").write_bytes(curves[0])


def _subtitle(found: RunDifference, facts: Mapping[str, Any]) -> str:
    split = f" ({facts['split']})" if facts.get("split") else ""
    # Where the films lie is nobody's business who reads the page.
    return f"{found.films} films" + (f" of {Path(str(facts['dataset'])).name}{split}" if "dataset" in facts else "")


def _reward(name: str, pairs: Sequence[Any]) -> str:
    names = [name for name in pairs[0].a.rewards if all(name in film.rewards for pair in pairs for film in pair)]
    if name not in names:
        raise ValueError(
            f"Expected a reward that all films of both runs have for --reward, got {name!r}. "
            f"They have: {', '.join(names) or 'none'}."
        )
    return name


def _read_log(given: Path | None, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the trainer logged; nothing where no log is given and none lies beside the evaluated checkpoint."""
    path = given
    if path is None:
        path = Path(str(facts.get("model", ""))).parent / "log.jsonl"
        if "model" not in facts or not path.is_file():
            return []
    try:
        return [dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"Expected one JSON object a line in {str(path)!r}, got {error}. Give the log.jsonl of a training run."
        ) from error


def _image_loader(films: Sequence[AnsweredFilm], facts: Mapping[str, Any]) -> Callable[[AnsweredFilm], Image | None]:
    """What gives the image of a film: its file, or its row in the dataset that was evaluated on."""
    from grounding_rewards.data.images import open_film
    from grounding_rewards.data.load import load_dataset_image, load_split

    files = {film.id: film.image for film in films if film.image is not None and Path(film.image).is_file()}
    dataset: Any = None
    places: dict[str, int] = {}
    if len(files) < len(films) and facts.get("dataset") and facts.get("split"):
        try:
            count = facts["films"] if isinstance(facts.get("films"), int) else None
            dataset = load_split(str(facts["dataset"]), str(facts["split"]), films=count)
            places = {name: k for k, name in enumerate(map(str, dataset["id"]))}
        except (ValueError, KeyError, OSError, ImportError) as error:
            print(f"grounding-rewards: films are drawn without their images: {error}", file=sys.stderr)

    def load(film: AnsweredFilm) -> Image | None:
        if film.id in places:
            return load_dataset_image(dataset, places[film.id])
        return open_film(files[film.id]) if film.id in files else None

    return load
