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
from grounding_rewards.study.findings import NO_SPREAD, REFERENCE, START, ArmFound, Findings, find
from grounding_rewards.study.results import Primary, read_study
from grounding_rewards.study.rulers import RULERS
from grounding_rewards.study.statistics import ALPHA, RESAMPLES

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
    """The page: at most five sentences, the tables of arms, plots, and every ruler on every set."""
    said = sentences(found)
    matrices = [matrix_table(found, on) for on in found.study.sets]
    return Page(
        title=f"Which reward? {found.study.name}",
        subtitle=said[0],
        sections=[
            Section("What was found", [said[1:], *arms_tables(found)], _ARMS_NOTE),
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
    first, *others = sentences(found)

    def written(tables: Sequence[Table]) -> list[str]:
        return [f"{'#' * level} {table.title}\n\n{table.markdown()}" for table in tables]

    matrices = [matrix_table(found, on) for on in found.study.sets]
    said = "\n".join(f"- {one}" for one in others)
    parts = [first, said, *written(arms_tables(found)), _ARMS_NOTE, *written(matrices), _MATRIX_NOTE]
    return "\n\n".join(parts) + "\n"


def print_report(found: Findings, console: Console) -> None:
    """Print the tables and the sentences."""
    from rich.text import Text

    for table in (*arms_tables(found), matrix_table(found, found.study.declared.primary[0].on)):
        console.print(table.rich(small=False))
    for sentence in sentences(found):
        console.print(Text(sentence))


def sentences(found: Findings) -> list[str]:
    """What a reader must know, in at most five sentences for one primary metric, and two for each further one."""
    study, declared = found.study, found.study.declared
    names = " and ".join(f"{RULERS[one.metric].heading} on the set {one.on}" for one in declared.primary)
    on = declared.primary[0].on
    said = [
        f"{counted(len(study.runs()), 'run')} of {counted(len(found.arms), 'arm')}; declared before them: {names} "
        f"({counted(len(study.sets[on]), 'image')} of {counted(found.patients[on], 'patient')}, none trained on), each "
        f"arm against {declared.reference}, p adjusted by Holm for {counted(found.family, 'comparison')}."
    ]
    said += [_compared(found, one, against) for one in declared.primary for against in (REFERENCE, START)]
    if missing := [*study.missing, *(f"enough runs of {key.arm} from {key.start}" for key in study.alone)]:
        said.append(f"Not there yet: {', '.join(missing[:_NAMED])}{', …' if len(missing) > _NAMED else ''}.")
    return said


def _compared(found: Findings, primary: Primary, against: str) -> str:
    """Which arms are shown to differ, and which to be equal within the margin; controls among them."""
    sign, margin = RULERS[primary.metric].sign, found.study.declared.equivalence
    parts = []
    for name in found.starts:
        told: dict[str, list[str]] = {"better": [], "worse": [], f"equal within {margin:g}": []}
        better, worse, equal = told.values()
        for arm in found.of_start(name):
            one = arm.difference(primary, against)
            if one is None:
                continue
            if arm.holm[against][primary] < ALPHA:
                shown = better if one.value * sign > 0 else worse
                shown.append(f"{_marked(arm)} ({format_value(one.value, signed=True)})")
            if -margin < one.low and one.high < margin:
                equal.append(_marked(arm))
        clauses = [f"{word} {', '.join(arms)}" for word, arms in told.items() if arms]
        parts.append(f"from {found.start_name(name)} {'; '.join(clauses) or 'none'}")
    other = "its start" if against == START else found.study.declared.reference
    of = f" by {RULERS[primary.metric].heading}" if len(found.study.declared.primary) > 1 else ""
    return f"Shown to differ from {other}{of}: {'; '.join(parts)}."


_ARMS_NOTE = (
    "Means over seeds with 95 % intervals over seeds (and their checkpoints, where each has its own) and patients. ◦: "
    "controls. Holm: p, adjusted. Groups without spread, all completions of an image earning alike, teach nothing. "
    "Minutes are of one run."
)


def arms_tables(found: Findings) -> list[Table]:
    """Starts and arms, a table for each primary metric."""
    return [_arms_table(found, one) for one in found.study.declared.primary]


def _arms_table(found: Findings, primary: Primary) -> Table:
    metric = RULERS[primary.metric].heading
    header: list[str | Cell] = [
        *("arm", Cell("reward", kind="words"), metric, f"less {found.study.declared.reference}", "Holm"),
        *("since the start", "Holm", "groups without spread", "minutes"),
    ]
    rows: list[Sequence[str | Cell]] = []
    for start, tables in found.starts.items():
        rows.append([found.start_name(start), "", estimate_cell(tables[primary.on][primary.metric]), *[""] * 6])
        for arm in found.of_start(start):
            row: list[str | Cell] = [
                _marked(arm),
                Cell(reward_text(arm.reward), kind="words"),
                estimate_cell(arm.metrics[primary.on][primary.metric]),
            ]
            for against in (REFERENCE, START):
                one = arm.difference(primary, against)
                row += (
                    ["reference", ""]
                    if one is None
                    else [estimate_cell(one.estimate, signed=True), p_cell(arm.holm[against][primary])]
                )
            spread = arm.curves.get(NO_SPREAD)
            row.append("" if spread is None else percent(float(spread.y.mean())))
            rows.append([*row, f"{arm.compute.get('seconds', math.nan) / 60:.1f}"])
    return Table(header, rows, f"{metric[:1].upper()}{metric[1:]} on {primary.on}")


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
                one = arm.difference(Primary(key, on), REFERENCE)
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
    declared, made = found.study.declared, []
    for number, primary in enumerate(declared.primary):
        metric = RULERS[primary.metric].heading
        for name, against in (("differences", REFERENCE), ("changes", START)):
            other = "the start" if against == START else declared.reference
            groups = {}
            for start in found.starts:
                rows = []
                for arm in found.of_start(start):
                    one = arm.difference(primary, against)
                    if one is not None and not math.isnan(one.value):
                        stays = arm.holm[against][primary] < ALPHA
                        rows.append(ForestRow(arm.key.arm, one.estimate, arm.is_control, stays))
                groups[f"from {found.start_name(start)}"] = rows
            note = f"{metric} on {primary.on}; blue: stays after Holm (p < {ALPHA:g}). Circles: controls."
            if any(groups.values()):
                file = f"{name}_{primary.metric}" if number else name
                made.append(forest(file, f"Differences from {other}", note, f"{metric}, less that of {other}", groups))
    for name, label in (("learning", RULERS[declared.primary[0].metric].heading), (NO_SPREAD, "groups without spread")):
        panels = {}
        for start in found.starts:
            several = [
                arm.curves[name]._replace(name=arm.key.arm) for arm in found.of_start(start) if name in arm.curves
            ]
            if several:
                panels[f"from {found.start_name(start)}"] = several
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


def _marked(arm: ArmFound) -> str:
    return arm.key.arm + (" ◦" if arm.is_control else "")
