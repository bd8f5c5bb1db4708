"""The report of a study, all from the files that its runs left: one page, and the numbers as CSV and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grounding_rewards.common.atomic_files import whole_folder, write_whole
from grounding_rewards.common.formatting import capitalised, counted, format_value, percent
from grounding_rewards.metrics.comparison import LEVEL, direction, holm, p_cell
from grounding_rewards.report.page import Page, Section
from grounding_rewards.report.plots import ForestRow, Plot, curves, forest
from grounding_rewards.report.tables import Cell, Table, csv_text, estimate_cell
from grounding_rewards.study.analysis import NO_SPREAD, REFERENCE, START, ArmFound, StudyResult, find
from grounding_rewards.study.results import Measure, read_study
from grounding_rewards.study.rulers import RULERS
from grounding_rewards.study.statistics import RESAMPLES

#: Files of a report.
PAGE, ROWS, NUMBERS = "study.html", "findings.csv", "findings.json"
# Missing runs that are named.
_NAMED = 5

#: Below the tables of arms.
ARMS_NOTE = (
    "Means over runs with 95 % intervals over runs (over checkpoints, where there are several) and patients. ◦: "
    "controls. Holm: p, adjusted. Groups without spread, all completions of an image earning alike, teach nothing. "
    "Minutes are of one run."
)
_MATRIX_NOTE = (
    "Means over runs. +, -: higher or lower than the reference. The interval of the difference excludes 0, and Holm's "
    f"p is below {LEVEL:g}: over the primary metrics, or over all others of the table. R1 to soft f1 are the rewards "
    "with their default parameters."
)


def write_report(
    folder: str | Path,
    out: str | Path,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda what: None,
) -> StudyResult:
    """Measure all models of a study and write its report.

    Args:
        folder: of the study.
        out: where to write `study.html`, `findings.csv` and `findings.json`.
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
    page, rows = render_page(found), list(found.rows())
    with whole_folder(Path(out)) as unfinished:
        write_whole(unfinished / PAGE, page)
        write_whole(unfinished / ROWS, csv_text(rows))
        write_whole(unfinished / NUMBERS, json.dumps(found.to_dict(), indent=1, allow_nan=False) + "\n")
    return found


def render_page(found: StudyResult) -> str:
    """The page: at most five sentences, the tables of arms, plots, and every ruler on every set."""
    said = sentences(found)
    return Page(
        title=f"Which reward? {found.study.name}",
        subtitle=said[0],
        sections=[
            Section("What was found", [said[1:], *arms_tables(found)], ARMS_NOTE),
            Section("Plots", plots(found)),
            Section("By every ruler", [matrix_table(found, on) for on in found.study.sets], _MATRIX_NOTE),
        ],
        footer="The training run is the unit. Standard errors: between the runs of an arm, and over patients drawn "
        f"with replacement, {found.resamples:,} times, for all models together. Intervals and p are Student's.",
    ).render()


def sentences(found: StudyResult) -> list[str]:
    """What a reader must know, in at most five sentences for one primary metric, and two for each further one."""
    study = found.study
    names = " and ".join(f"{RULERS[one.metric].heading} on the set {one.on}" for one in study.primary)
    on = study.primary[0].on
    said = [
        f"{counted(sum(map(len, study.arms.values())), 'run')} of {counted(len(found.arms), 'arm')}; declared before "
        f"them: {names} ({counted(len(study.sets[on]), 'image')} of {counted(found.patients[on], 'patient')}, none "
        f"trained on), each arm against {study.reference}, p adjusted by Holm for "
        f"{counted(found.family, 'comparison')}."
    ]
    said += [_compared(found, one, against) for one in study.primary for against in (REFERENCE, START)]
    if study.missing:
        said.append(f"Not there yet: {', '.join(study.missing[:_NAMED])}{', …' if study.missing[_NAMED:] else ''}.")
    return said


def _compared(found: StudyResult, primary: Measure, against: str) -> str:
    """Which arms are shown to differ, and which to be equal within the margin; controls among them."""
    margin = found.study.equivalence
    parts = []
    for name in found.starts:
        better: list[str] = []
        worse: list[str] = []
        equal: list[str] = []
        for arm in found.of_start(name):
            one = arm.difference(primary, against)
            if one is None:
                continue
            if direction := arm.direction(primary, against):
                arms = better if direction > 0 else worse
                arms.append(f"{_marked(arm)} ({format_value(one.value, signed=True)})")
            if -margin < one.low and one.high < margin:
                equal.append(_marked(arm))
        told = {"better": better, "worse": worse, f"equal within {margin:g}": equal}
        clauses = [f"{word} {', '.join(names)}" for word, names in told.items() if names]
        parts.append(f"from {found.start_name(name)} {'; '.join(clauses) or 'none'}")
    other = "its initial checkpoint" if against == START else found.study.reference
    of = f" by {RULERS[primary.metric].heading}" if len(found.study.primary) > 1 else ""
    of += f" on {primary.on}" if len({one.on for one in found.study.primary}) > 1 else ""
    return f"Shown to differ from {other}{of}: {'; '.join(parts)}."


def arms_tables(found: StudyResult) -> list[Table]:
    """Initial checkpoints and arms, a table for each primary metric."""
    return [_arms_table(found, one) for one in found.study.primary]


def _arms_table(found: StudyResult, primary: Measure) -> Table:
    metric = RULERS[primary.metric].heading
    header: list[str | Cell] = [
        *("arm", Cell("reward", kind="words"), metric, f"less {found.study.reference}", "Holm"),
        *("since the initial checkpoint", "Holm", "groups without spread", "minutes"),
    ]
    rows: list[Sequence[str | Cell]] = []
    for start, metrics in found.starts.items():
        rows.append([found.start_name(start), "", estimate_cell(metrics[primary]), *[""] * 6])
        for arm in found.of_start(start):
            row: list[str | Cell] = [
                _marked(arm),
                Cell(reward_text(arm.reward), kind="words"),
                estimate_cell(arm.metrics[primary]),
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
    return Table(header, rows, f"{capitalised(metric)} on {primary.on}")


def matrix_table(found: StudyResult, on: str) -> Table:
    """Initial checkpoints and arms by every ruler on one set."""
    measures = [Measure(key, on) for key in RULERS]
    differences = {
        (arm.key, at): arm.against[REFERENCE][at] for arm in found.arms if REFERENCE in arm.against for at in measures
    }
    # Primary metrics are a family of their own, by which the sentences go too.
    secondary = [place for place in differences if place[1] not in found.study.primary]
    adjusted = dict(zip(secondary, holm([differences[place].p for place in secondary]), strict=True))
    adjusted |= {(arm.key, at): p for arm in found.arms for at, p in arm.holm.get(REFERENCE, {}).items()}
    rows: list[list[str]] = []
    for start, metrics in found.starts.items():
        rows.append([found.start_name(start), *(format_value(metrics[at].value) for at in measures)])
        for arm in found.of_start(start):
            cells = []
            for at in measures:
                place = arm.key, at
                sign = direction(differences[place].estimate, adjusted[place]) if place in differences else 0
                cells.append(format_value(arm.metrics[at].value) + {1: " +", -1: " -", 0: ""}[sign])
            rows.append([_marked(arm), *cells])
    headings = (ruler.heading + (" ↓" if ruler.lower_is_better else "") for ruler in RULERS.values())
    return Table(["arm", *headings], rows, f"Every ruler on {on}")


def reward_text(reward: Mapping[str, Any] | None) -> str:
    """A reward with its parameters, on one line; a supervised run has none.

    >>> reward_text({"name": "R3", "kwargs": {"beta": 1}}), reward_text(None)
    ('R3 {"beta": 1}', 'supervised')
    """
    if reward is None:
        return "supervised"
    name, options = reward["name"], reward["kwargs"]
    names = name if isinstance(name, str) else " + ".join(name)
    return f"{names} {json.dumps(options)}" if options else names


def plots(found: StudyResult) -> list[Plot]:
    """Differences from the reference and from the initial checkpoint, learning curves, and groups without spread."""
    study, made = found.study, []
    for number, primary in enumerate(study.primary):
        metric = RULERS[primary.metric].heading
        for name, against, other in (
            ("differences", REFERENCE, study.reference),
            ("changes", START, "the initial checkpoint"),
        ):
            groups = {
                f"from {found.start_name(start)}": [
                    ForestRow(arm.key.arm, one.estimate, arm.is_control, bool(arm.direction(primary, against)))
                    for arm in found.of_start(start)
                    if (one := arm.difference(primary, against)) is not None and not math.isnan(one.value)
                ]
                for start in found.starts
            }
            note = f"{metric} on {primary.on}; blue: interval without 0, Holm's p < {LEVEL:g}. Circles: controls."
            if any(groups.values()):
                file = f"{name}_{primary.metric}" if number else name
                made.append(forest(file, f"Differences from {other}", note, f"{metric}, less that of {other}", groups))
    for name, label in (("learning", RULERS[study.primary[0].metric].heading), (NO_SPREAD, "groups without spread")):
        panels = {
            f"from {found.start_name(start)}": [
                arm.curves[name]._replace(name=arm.key.arm) for arm in found.of_start(start) if name in arm.curves
            ]
            for start in found.starts
        }
        panels = {heading: several for heading, several in panels.items() if several}
        if panels:
            note = "Mean over seeds, lowest and highest seed."
            made.append(curves(name, f"{label} in training", note, panels, x="step", y=label))
    return made


def _marked(arm: ArmFound) -> str:
    return arm.key.arm + (" ◦" if arm.is_control else "")
