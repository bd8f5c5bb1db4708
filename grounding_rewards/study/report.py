"""The report of a study, all from the files that its runs left: a page, the same in Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.whole_files import whole_folder, write_whole
from grounding_rewards.metrics.comparison import p_cell
from grounding_rewards.metrics.estimates import counted, format_value, percent
from grounding_rewards.report.page import Page, Section
from grounding_rewards.report.plots import Plot
from grounding_rewards.report.study_plots import ForestRow, curves, forest
from grounding_rewards.report.tables import Cell, Table, estimate_cell
from grounding_rewards.study.findings import NO_SPREAD, ArmFound, Findings, find
from grounding_rewards.study.results import read_study
from grounding_rewards.study.rulers import RULERS
from grounding_rewards.study.statistics import ALPHA, POWER, RESAMPLES

if TYPE_CHECKING:
    from rich.console import Console

#: Files of a report.
PAGE, TEXT, ROWS, NUMBERS, PLOTS = "study.html", "study.md", "findings.csv", "findings.json", "plots"
# Missing runs that are named.
_NAMED = 5


def write_report(
    folder: str | Path,
    out: str | Path,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda what: None,
) -> Findings:
    """Measure all models of a study and write its report.

    Args:
        folder: of the study.
        out: where to write `study.html`, `study.md`, `findings.csv`, `findings.json` and `plots/`.
        resamples: draws of patients.
        seed: of all draws.
        on_progress: called with the name of each step before it is taken.

    Returns:
        What was found.

    Raises:
        ValueError: the folder holds no study that can be reported; nothing is written then.
        OSError: a file cannot be written.
    """
    found = find(read_study(folder), resamples=resamples, seed=seed, on_progress=on_progress)
    on_progress("drawing")
    drawn = plots(found)
    page = render_page(found, drawn)
    with whole_folder(Path(out)) as unfinished:
        write_whole(unfinished / PAGE, page)
        (unfinished / PLOTS).mkdir()
        for one in drawn:
            for file_format in ("png", "pdf"):
                one.save(unfinished / PLOTS / f"{one.name}.{file_format}", file_format)
        write_whole(unfinished / TEXT, render_markdown(found))
        write_whole(unfinished / ROWS, _csv(found))
        write_whole(unfinished / NUMBERS, json.dumps(found.to_dict(), indent=1, allow_nan=False) + "\n")
    return found


def render_page(found: Findings, drawn: Sequence[Plot]) -> str:
    """The page: at most five sentences, the table of arms, plots, and every ruler on every set."""
    said = sentences(found)
    matrices = [matrix_table(found, on) for on in found.study.sets]
    return Page(
        title=f"Which reward? {found.study.name}",
        subtitle=said[0],
        sections=[
            Section("What was found", [said[1:], arms_table(found)], _ARMS_NOTE),
            Section("Plots", list(drawn)),
            Section("By every ruler", matrices, _MATRIX_NOTE),
        ],
        footer="The training run is the unit. Standard errors: between the runs of an arm, and over patients drawn "
        f"with replacement, {found.resamples:,} times, for all models together. Intervals and p are Student's.",
    ).render()


def render_markdown(found: Findings, *, level: int = 2) -> str:
    """The same without plots as Markdown.

    Args:
        found: of :func:`grounding_rewards.study.findings.find`.
        level: of its headings.
    """
    mark = "#" * level
    first, *others = sentences(found)
    tables = [arms_table(found), *(matrix_table(found, on) for on in found.study.sets)]
    arms, *matrices = (f"{mark} {table.title}\n\n{table.markdown()}" for table in tables)
    parts = [first, "\n".join(f"- {one}" for one in others), arms, _ARMS_NOTE, *matrices, _MATRIX_NOTE]
    return "\n\n".join(parts) + "\n"


def print_report(found: Findings, console: Console) -> None:
    """Print the tables and the sentences."""
    from rich.text import Text

    for table in (arms_table(found), matrix_table(found, found.on)):
        console.print(table.rich(small=False))
    for sentence in sentences(found):
        console.print(Text(sentence))


def sentences(found: Findings) -> list[str]:
    """What a reader must know, in at most five sentences."""
    study, metric = found.study, RULERS[found.primary].heading
    rows = counted(len(study.sets[found.on]), "image")
    first = (
        f"{counted(len(study.runs()), 'run')} of {counted(len(found.arms), 'arm')}; declared before them: {metric} on "
        f"the set {found.on} ({rows} of {counted(found.patients[found.on], 'patient')}, none trained on), each arm "
        f"against {study.declared.reference}, p adjusted by Holm for {counted(found.family, 'comparison')}."
    )
    said = [first, *(_compared(found, start=start) for start in (False, True))]
    size = format_value(found.detectable(found.seeds))
    said.append(
        f"With {found.seeds} seeds, a true difference of {size} is found with a probability of {percent(POWER)}; what "
        "is not shown is not shown to be equal."
    )
    if missing := [*study.missing, *(f"enough runs of {key.arm} from {key.start}" for key in study.alone)]:
        said.append(f"Not there yet: {', '.join(missing[:_NAMED])}{', …' if len(missing) > _NAMED else ''}.")
    return said


def _compared(found: Findings, *, start: bool) -> str:
    """Which arms are shown to differ from the reference, or from their start; controls among them."""
    sign = RULERS[found.primary].sign
    parts = []
    for name in found.starts:
        clauses = []
        for word, wanted in (("better", sign), ("worse", -sign)):
            shown = []
            for arm in found.of_start(name):
                one = found.primary_difference(arm, start=start)
                if one is not None and _p(arm, start=start) < ALPHA and one.value * wanted > 0:
                    shown.append(f"{_marked(arm)} ({format_value(one.value, signed=True)})")
            clauses += [f"{word} {', '.join(shown)}"] if shown else []
        parts.append(f"from {found.start_name(name)} {' and '.join(clauses) or 'none'}")
    other = "its start" if start else found.study.declared.reference
    return f"Shown to differ from {other}: {'; '.join(parts)}."


_ARMS_NOTE = (
    "Means over seeds with 95 % intervals over seeds and patients. ◦: controls. Holm: p, adjusted. Groups without "
    "spread, all completions of an image earning alike, teach nothing. Minutes are of one run."
)


def arms_table(found: Findings) -> Table:
    """Starts and arms by the declared metric."""
    metric = RULERS[found.primary].heading
    header: list[str | Cell] = [
        *("arm", Cell("reward", kind="words"), metric, f"less {found.study.declared.reference}", "Holm"),
        *("since the start", "Holm", "groups without spread", "minutes"),
    ]
    rows: list[Sequence[str | Cell]] = []
    for start, tables in found.starts.items():
        rows.append([found.start_name(start), "", estimate_cell(tables[found.on][found.primary]), *[""] * 6])
        for arm in found.of_start(start):
            against, change = (found.primary_difference(arm, start=which) for which in (False, True))
            spread = arm.curves.get(NO_SPREAD)
            rows.append(
                [
                    _marked(arm),
                    Cell(reward_text(arm.reward), kind="words"),
                    estimate_cell(arm.metrics[found.on][found.primary]),
                    estimate_cell(against.estimate, signed=True) if against else "reference",
                    p_cell(arm.holm_reference) if against else "",
                    estimate_cell(change.estimate, signed=True) if change else "",
                    p_cell(arm.holm_start),
                    "" if spread is None else percent(float(spread.y.mean())),
                    f"{arm.compute.get('seconds', math.nan) / 60:.1f}",
                ]
            )
    return Table(header, rows, f"{metric[:1].upper()}{metric[1:]} on {found.on}")


_MATRIX_NOTE = (
    "Means over seeds. +, -: higher or lower than the reference by an interval of its own, not adjusted for how many "
    "there are. R1 to soft f1 are the rewards with their default parameters."
)


def matrix_table(found: Findings, on: str) -> Table:
    """Starts and arms by every ruler on one set."""
    header: list[str | Cell] = [
        "arm",
        *(ruler.heading + (" ↓" if ruler.lower_is_better else "") for ruler in RULERS.values()),
    ]
    rows: list[list[str]] = []
    for start, tables in found.starts.items():
        rows.append([found.start_name(start), *(format_value(tables[on][key].value) for key in RULERS)])
        for arm in found.of_start(start):
            cells = []
            for key in RULERS:
                one = None if arm.against_reference is None else arm.against_reference[on][key]
                mark = "" if one is None else " +" if one.low > 0 else " -" if one.high < 0 else ""
                cells.append(format_value(arm.metrics[on][key].value) + mark)
            rows.append([_marked(arm), *cells])
    return Table(header, rows, f"Every ruler on {on}")


def reward_text(reward: Mapping[str, Any] | None) -> str:
    """A reward with its parameters, on one line; a supervised run has none.

    >>> reward_text({"name": "R3", "kwargs": {"beta": 1}}), reward_text(None)
    ('R3 {"beta": 1}', 'supervised')
    """
    if reward is None:
        return "supervised"
    name, options = reward.get("name"), reward.get("kwargs") or {}
    names = name if isinstance(name, str) else " + ".join(map(str, name or ()))
    return f"{names} {json.dumps(options)}" if options else names


def plots(found: Findings) -> list[Plot]:
    """Differences from the reference and from the start, learning curves, and groups without spread."""
    metric, reference = RULERS[found.primary].heading, found.study.declared.reference
    made = []
    for name, other, start in (("differences", reference, False), ("changes", "the start", True)):
        groups = {}
        for of_start in found.starts:
            rows = []
            for arm in found.of_start(of_start):
                one = found.primary_difference(arm, start=start)
                if one is not None and not math.isnan(one.value):
                    rows.append(ForestRow(arm.key.arm, one.estimate, arm.is_control, _p(arm, start=start) < ALPHA))
            groups[f"from {found.start_name(of_start)}"] = rows
        note = f"{metric} on {found.on}; blue: stays after Holm (p < {ALPHA:g}). Circles: controls."
        if any(groups.values()):
            made.append(forest(name, f"Differences from {other}", note, f"{metric}, less that of {other}", groups))
    for name, label in (("learning", metric), (NO_SPREAD, "share of groups without spread")):
        panels = {}
        for of_start in found.starts:
            several = [(arm.key.arm, arm.curves[name]) for arm in found.of_start(of_start) if name in arm.curves]
            if several:
                panels[f"from {found.start_name(of_start)}"] = [one._replace(name=arm) for arm, one in several]
        if panels:
            note = "Mean over seeds, lowest and highest seed."
            made.append(curves(name, f"{label} in training", note, panels, x="step", y=label))
    return made


def _csv(found: Findings) -> str:
    rows = list(found.rows())
    text = io.StringIO()
    writer = csv.DictWriter(text, max(rows, key=len), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value != value else value for key, value in row.items()} for row in rows)
    return text.getvalue()


def _p(arm: ArmFound, *, start: bool) -> float:
    return arm.holm_start if start else arm.holm_reference


def _marked(arm: ArmFound) -> str:
    return arm.key.arm + (" ◦" if arm.is_control else "")
