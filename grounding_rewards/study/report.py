"""Write the report of a study from the files of its runs: one page, and the numbers as CSV and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grounding_rewards.common.atomic_files import whole_folder, write_whole
from grounding_rewards.common.formatting import capitalised, counted, format_value, percent
from grounding_rewards.metrics.average_precision import Curve
from grounding_rewards.metrics.comparison import LEVEL, p_cell
from grounding_rewards.report.page import Page, Section
from grounding_rewards.report.plots import ForestRow, Plot, curves, forest
from grounding_rewards.report.tables import Cell, Table, csv_text, estimate_cell
from grounding_rewards.study.analysis import METRICS, NO_SPREAD, REFERENCE, START, ArmResult, StudyResult, analyse
from grounding_rewards.study.results import Measure, read_study

#: Files of a report.
PAGE, ROWS, NUMBERS = "study.html", "findings.csv", "findings.json"
# At most this many missing runs are named.
_NAMED_RUNS = 5

#: Below the tables of arms.
ARMS_NOTE = (
    "Means with 95 % intervals (Student's t) over checkpoints, from a single checkpoint over runs. ◦: controls. "
    "Holm: adjusted p. Groups without spread, in which all completions have the same reward, teach nothing. "
    "Minutes are of one run."
)


def write_report(
    folder: str | Path, out: str | Path, *, on_progress: Callable[[str], None] = lambda what: None
) -> StudyResult:
    """Measure all models of a study and write its report.

    Args:
        folder: of the study.
        out: where to write `study.html`, `findings.csv` and `findings.json`.
        on_progress: called with the name of each step before it is taken.

    Returns:
        The result of the study.

    Raises:
        ValueError: the folder holds no study that can be reported; nothing is written then.
        OSError: a file cannot be written.
    """
    result = analyse(read_study(folder), on_progress=on_progress)
    on_progress("drawing")
    page, rows = render_page(result), list(result.rows())
    with whole_folder(Path(out)) as unfinished:
        write_whole(unfinished / PAGE, page)
        write_whole(unfinished / ROWS, csv_text(rows))
        write_whole(unfinished / NUMBERS, json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n")
    return result


def render_page(result: StudyResult) -> str:
    """The page of a study in HTML: at most five sentences, the tables of arms, and plots."""
    summary, *comparisons = sentences(result)
    return Page(
        title=f"Which reward? {result.study.name}",
        subtitle=summary,
        sections=[
            Section("What was found", [comparisons, *arms_tables(result)], ARMS_NOTE),
            Section("Plots", plots(result)),
        ],
        footer="Intervals and p are Student's, over initial checkpoints; from a single checkpoint over its runs. "
        f"{ROWS} has every metric on every set, and intervals over patients.",
    ).render()


def sentences(result: StudyResult) -> list[str]:
    """The result in words: the runs, two sentences for each primary metric, and the missing runs."""
    study = result.study
    names = " and ".join(f"{METRICS[measure.metric].heading} on the set {measure.on}" for measure in study.primary)
    on = study.primary[0].on
    runs = counted(sum(map(len, study.arms.values())), "run")
    images = counted(len(study.sets[on]), "image")
    patients = counted(result.patients[on], "patient")
    lines = [
        f"{runs} of {counted(len(result.arms), 'arm')}; declared before them: {names} ({images} of {patients}, none "
        f"trained on), each arm against {study.reference}, p adjusted by Holm for "
        f"{counted(result.family, 'comparison')}."
    ]
    for measure in study.primary:
        for partner in (REFERENCE, START):
            lines.append(_comparison_sentence(result, measure, partner))
    if study.missing:
        missing = list(study.missing[:_NAMED_RUNS])
        if len(study.missing) > _NAMED_RUNS:
            missing.append("…")
        lines.append(f"Not there yet: {', '.join(missing)}.")
    return lines


def _starts_of(result: StudyResult, primary: Measure) -> list[str]:
    """The kinds of initial checkpoints for which a primary metric decides."""
    return [start for start in result.starts if primary in result.study.primary_of(start)]


def _comparison_sentence(result: StudyResult, primary: Measure, partner: str) -> str:
    """A sentence on the arms that are shown to differ, or to be equal within the margin.

    Args:
        result: of the study.
        primary: the metric.
        partner: what arms are compared with, :data:`REFERENCE` or :data:`START`.
    """
    study, margin = result.study, result.study.equivalence
    start_clauses = []
    for start in _starts_of(result, primary):
        names: dict[str, list[str]] = {"better": [], "worse": [], f"equal within {margin:g}": []}
        for arm in result.of_start(start):
            difference = arm.difference(primary, partner)
            if difference is None:
                continue
            direction = arm.direction(primary, partner)
            if direction != 0:
                word = "better" if direction > 0 else "worse"
                names[word].append(f"{_marked_name(arm)} ({format_value(difference.value, signed=True)})")
            if -margin < difference.low and difference.high < margin:
                names[f"equal within {margin:g}"].append(_marked_name(arm))
        clauses = [f"{word} {', '.join(arms)}" for word, arms in names.items() if arms]
        start_clauses.append(f"from {result.start_name(start)} {'; '.join(clauses) or 'none'}")
    partner_name = "its initial checkpoint" if partner == START else study.reference
    metric = f" by {METRICS[primary.metric].heading}" if len(study.primary) > 1 else ""
    image_set = f" on {primary.on}" if len({measure.on for measure in study.primary}) > 1 else ""
    return f"Shown to differ from {partner_name}{metric}{image_set}: {'; '.join(start_clauses)}."


def arms_tables(result: StudyResult) -> list[Table]:
    """A table of initial checkpoints and arms for each primary metric."""
    return [_arms_table(result, measure) for measure in result.study.primary]


def _arms_table(result: StudyResult, primary: Measure) -> Table:
    """A row for each initial checkpoint, and one for each arm from it, with their values of a primary metric."""
    metric = METRICS[primary.metric].heading
    header: list[str | Cell] = [
        *("arm", Cell("reward", kind="words"), metric, f"less {result.study.reference}", "Holm"),
        *("since the initial checkpoint", "Holm", "groups without spread", "minutes"),
    ]
    rows: list[Sequence[str | Cell]] = []
    for start in _starts_of(result, primary):
        empty_cells = [""] * (len(header) - 3)
        rows.append([result.start_name(start), "", estimate_cell(result.starts[start][primary]), *empty_cells])
        for arm in result.of_start(start):
            row: list[str | Cell] = [_marked_name(arm), Cell(reward_text(arm.reward), kind="words")]
            row.append(estimate_cell(arm.metrics[primary]))
            for partner in (REFERENCE, START):
                difference = arm.difference(primary, partner)
                if difference is None:
                    row += ["reference", ""]
                else:
                    row += [estimate_cell(difference.estimate, signed=True), p_cell(arm.holm[partner][primary])]
            spread = arm.curves.get(NO_SPREAD)
            row.append("" if spread is None else percent(float(spread.y.mean())))
            row.append(f"{arm.compute.get('seconds', math.nan) / 60:.1f}")
            rows.append(row)
    return Table(header, rows, f"{capitalised(metric)} on {primary.on}")


def reward_text(reward: Mapping[str, Any] | None) -> str:
    """The name of a reward with its parameters, on one line; "supervised" for a run without a reward.

    >>> reward_text({"name": "R3", "kwargs": {"beta": 1}}), reward_text(None)
    ('R3 {"beta": 1}', 'supervised')
    """
    if reward is None:
        return "supervised"
    name, options = reward["name"], reward["kwargs"]
    names = name if isinstance(name, str) else " + ".join(name)
    return f"{names} {json.dumps(options)}" if options else names


def plots(result: StudyResult) -> list[Plot]:
    """The plots: differences from reference and initial checkpoint, learning curves, groups without spread."""
    drawings = []
    partners = (("differences", REFERENCE, result.study.reference), ("changes", START, "the initial checkpoint"))
    for number, primary in enumerate(result.study.primary):
        metric = METRICS[primary.metric].heading
        note = f"{metric} on {primary.on}; blue: interval without 0, Holm's p < {LEVEL:g}. Circles: controls."
        for name, partner, partner_name in partners:
            groups = _forest_rows(result, primary, partner)
            if any(groups.values()):
                # The files of the first primary metric have the names alone.
                file = f"{name}_{primary.metric}" if number else name
                label = f"{metric}, less that of {partner_name}"
                drawings.append(forest(file, f"Differences from {partner_name}", note, label, groups))
    learning_label = METRICS[result.study.primary[0].metric].heading
    for name, label in (("learning", learning_label), (NO_SPREAD, "groups without spread")):
        panels: dict[str, list[Curve]] = {}
        for start in result.starts:
            curves_of_start = []
            for arm in result.of_start(start):
                if name in arm.curves:
                    curves_of_start.append(arm.curves[name]._replace(name=arm.key.arm))
            if curves_of_start:
                panels[f"from {result.start_name(start)}"] = curves_of_start
        if panels:
            note = "Mean over seeds, lowest and highest seed."
            drawings.append(curves(name, f"{label} in training", note, panels, x="step", y=label))
    return drawings


def _forest_rows(result: StudyResult, primary: Measure, partner: str) -> dict[str, list[ForestRow]]:
    """The rows of a plot of differences from a partner, by initial checkpoint."""
    groups: dict[str, list[ForestRow]] = {}
    for start in _starts_of(result, primary):
        rows = groups.setdefault(f"from {result.start_name(start)}", [])
        for arm in result.of_start(start):
            difference = arm.difference(primary, partner)
            if difference is not None and not math.isnan(difference.value):
                is_shown = bool(arm.direction(primary, partner))
                rows.append(ForestRow(arm.key.arm, difference.estimate, arm.is_control, is_shown))
    return groups


def _marked_name(arm: ArmResult) -> str:
    """The name of an arm, with a mark behind that of a control."""
    return arm.key.arm + (" ◦" if arm.is_control else "")
