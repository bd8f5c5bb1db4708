"""Write the report of a study from the files of its runs: one page, and the numbers as CSV."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grounding_rewards.common.atomic_files import whole_folder, write_whole
from grounding_rewards.common.formatting import capitalised, counted
from grounding_rewards.metrics.comparison import p_cell
from grounding_rewards.report.page import Page, Section
from grounding_rewards.report.tables import Cell, Table, estimate_cell, kind_of
from grounding_rewards.study.analysis import METRICS, REFERENCE, START, ArmResult, StudyResult, analyse
from grounding_rewards.study.results import Measure, read_study

#: Files of a report.
PAGE, ROWS = "study.html", "findings.csv"

#: Below the table of arms.
ARMS_NOTE = (
    "Means with 95 % intervals (Student's t) over checkpoints, from a single checkpoint over runs. ◦: controls. "
    "Green and red: shown to be better or worse. ≈: the interval lies within ±{margin:g}, too little to matter. Holm: "
    "adjusted p."
)


def write_report(
    folder: str | Path, out: str | Path, *, on_progress: Callable[[str], None] = lambda what: None
) -> StudyResult:
    """Measure all models of a study and write its report.

    Args:
        folder: of the study.
        out: where to write `study.html` and `findings.csv`.
        on_progress: called with the name of each step before it is taken.

    Returns:
        The result of the study.

    Raises:
        ValueError: the folder holds no study that can be reported; nothing is written then.
        OSError: a file cannot be written.
    """
    result = analyse(read_study(folder), on_progress=on_progress)
    on_progress("drawing")
    page, rows = render_page(result), result.to_dataframe().to_csv(index=False)
    with whole_folder(Path(out)) as unfinished:
        write_whole(unfinished / PAGE, page)
        write_whole(unfinished / ROWS, rows)
    return result


def render_page(result: StudyResult) -> str:
    """The page of a study in HTML: what was compared, and its table of arms."""
    # Runs that are missing or left out, if any are, are named above the table.
    summary, *caveats = sentences(result)
    return Page(
        title=f"Which reward? {result.study.name}",
        subtitle=summary,
        opening=[caveats] if caveats else [],
        sections=[Section("Every arm", [arms_table(result)], ARMS_NOTE.format(margin=result.study.equivalence))],
        footer="Intervals and p are Student's, over initial checkpoints; from a single checkpoint over its runs. "
        f"{ROWS} has every metric on every set, and intervals over patients.",
    ).render()


def sentences(result: StudyResult) -> list[str]:
    """A sentence about what was compared; then one each about the runs that are missing, and left out, if any are."""
    study = result.study
    metrics = " and ".join(f"{METRICS[measure.metric].heading} on the set {measure.on}" for measure in study.primary)
    main_set = study.primary[0].on
    runs = counted(sum(map(len, study.arms.values())), "run")
    images = counted(len(study.sets[main_set]), "image")
    patients = counted(result.patients[main_set], "patient")
    lines = [
        f"{runs} of {counted(len(result.arms), 'arm')}; declared before them: {metrics} ({images} of {patients}, none "
        f"trained on), each arm against {study.reference}, p adjusted by Holm for "
        f"{counted(result.family, 'comparison')}."
    ]
    if study.missing:
        lines.append(f"Not there yet, {counted(len(study.missing), 'run')}: {', '.join(study.missing)}.")
    if study.left_out:
        left_out_arms = counted(len(study.left_out), "arm")
        left_out_runs = counted(sum(study.left_out.values()), "run")
        names = ", ".join(f"{key.arm} from {key.start}" for key in study.left_out)
        lines.append(f"Left out, {left_out_arms} of too few runs, {left_out_runs} in all: {names}.")
    return lines


def arms_table(result: StudyResult) -> Table:
    """The table of arms: for each primary metric its name, then by kind of initial checkpoint a row of it and its arms.

    A metric stands only with the kinds for which it decides.
    """
    header: list[str | Cell] = [
        *("arm", Cell("reward", kind="words"), "metric", f"less {result.study.reference}", "Holm"),
        *("since the initial checkpoint", "Holm"),
    ]
    rows: list[Sequence[str | Cell]] = []
    for primary in result.study.primary:
        starts = [start for start in result.starts if primary in result.study.primary_of(start)]
        if starts:
            rows.append([_metric_name(primary)])
        for start in starts:
            # An initial checkpoint has neither a reward nor partners: after its metric the cells are empty.
            empty_cells = [""] * (len(header) - 3)
            rows.append([f"the {start} checkpoint", "", estimate_cell(result.starts[start][primary]), *empty_cells])
            rows += [_arm_row(arm, primary, result.study.equivalence) for arm in result.of_start(start)]
    return Table(header, rows)


def _arm_row(arm: ArmResult, primary: Measure, margin: float) -> list[str | Cell]:
    """The cells of an arm by a primary metric, in the order of the header of :func:`arms_table`.

    ◦ marks a control, and ≈ a difference whose whole interval lies within the margin.
    """
    name = f"{arm.key.arm} ◦" if arm.is_control else arm.key.arm
    row: list[str | Cell] = [name, Cell(reward_text(arm.reward), kind="words"), estimate_cell(arm.metrics[primary])]
    for partner in (REFERENCE, START):
        difference = arm.difference(primary, partner)
        if difference is None:
            # The reference is not compared with itself. With an initial checkpoint every arm is compared.
            row += ["reference", ""]
            continue
        cell = estimate_cell(difference.estimate, signed=True, kind=kind_of(arm.direction(primary, partner)))
        if -margin < difference.low and difference.high < margin:
            cell = cell._replace(text=f"≈ {cell.text}")
        row += [cell, p_cell(arm.holm[partner][primary])]
    return row


def _metric_name(primary: Measure) -> str:
    """A metric with its set and, where less of it is better, an arrow."""
    metric = METRICS[primary.metric]
    arrow = " ↓" if metric.lower_is_better else ""
    return f"{capitalised(metric.heading)} on {primary.on}{arrow}"


def reward_text(reward: Mapping[str, Any] | None) -> str:
    """The name of a reward, or the names of several, with parameters and weights; "supervised" for None.

    >>> reward_text({"name": ["R3", "R1"], "kwargs": {"beta": 1}, "weights": [1, 0.5]}), reward_text(None)
    ('R3 + R1 {"beta": 1} weights [1, 0.5]', 'supervised')
    """
    if reward is None:
        return "supervised"
    name, options, weights = reward["name"], reward["kwargs"], reward.get("weights")
    names = name if isinstance(name, str) else " + ".join(name)
    texts = [names, json.dumps(options) if options else "", f"weights {json.dumps(weights)}" if weights else ""]
    return " ".join(filter(None, texts))
