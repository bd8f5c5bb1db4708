"""Write docs/study.md and docs/study_tables.md, with their plots, from the results that are kept; nothing is trained.

    python scripts/docs/write_study.py

The page is about the studies of faults, on drawn images and on real ones; the other folders of docs/study/ that have a
study.yaml are the older studies of the tables. NIH_FINDINGS holds the answers of a model to questions about real
findings, as `evaluate` wrote them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.formatting import counted, format_value
from grounding_rewards.metrics.baselines import CONSTANT_OF_THESE, baseline_systems
from grounding_rewards.metrics.comparison import direction
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.image_dependence import image_dependence
from grounding_rewards.metrics.intervals import Estimate, format_estimate, jackknifed_ratio, sum_by_group
from grounding_rewards.metrics.prediction import patients_of
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.metrics.signal import SignalReport, measure_signal, recommend
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.report.plots import SERIES, SOFT, Plot, panels_of
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.study.analysis import (
    METRICS,
    REFERENCE,
    START,
    ArmResult,
    Difference,
    ModelMetric,
    StudyResult,
    analyse,
    compare_rows,
    model_predictions,
)
from grounding_rewards.study.report import ROWS
from grounding_rewards.study.results import ArmKey, Measure, Study, read_json, read_study
from scripts.docs.page_parts import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The folders of the page, in docs/study.
FAULTS_STUDY, LONG_STUDY, LONG_AGAIN = "faults", "faults_long", "faults_long_anew"
REAL_STUDY, NIH_FINDINGS = "faults_real", "nih_findings"
#: What each kind of checkpoint of the study was taught to do wrong.
FAULTS = {
    "loose": "boxes too wide, above an IoU of 0.5",
    "far": "boxes far too wide, below it",
    "extra": "boxes of findings that are not there",
    "missed": "one of several findings left out",
    "eager": "boxes on normal images",
    "clean": "no fault",
}
#: The metric whose fall is the price of mending another one.
PRICE = "mean_iou"
#: The interval over checkpoints of fewer of them says nothing: then the one over images is given, and no verdict.
FEWEST_CHECKPOINTS = 3
#: The reward that the others, and more SFT, are compared with.
DEFAULT = "R4"
#: The older studies: which images and models.
OLDER = {
    "placed_lungs": "Both lungs of real radiographs, at random places. Saturated: after all of SFT. Early: SFT was "
    "stopped where F1@0.5 was at most half as high. Added after the first results: arms beside R3, soft_f1, R3_low, "
    "sft and blank, the early kind, and three more checkpoints of each kind.",
    "drawn": "Drawn images. R1_tied, R2, R4 and R5, checkpoints 3 to 5 and the early kind were added after the others "
    "had run.",
    "lungs": "Both lungs of real radiographs, where they are. No run from the weak checkpoint beats a box that never "
    "moves.",
    "placed_anew": "As placed_lungs, with every image at a new size and place in each epoch: the beginning of a study.",
    "moonshot": "A search for a setting of GRPO that adds something to one saturated checkpoint of placed_lungs, on "
    "validation patients: reward, overlap, temperature, group size, learning rate, KL, share of images without lungs. "
    "None ended at least 0.01 above the checkpoint and above more SFT in both, which was the condition, set before, "
    "for a run on the test patients. All were declared at a learning rate of 5e-4; the first, soft_f1, fell, and the "
    "others were declared again at 1.5e-4.",
    "moonshot_long": "The best setting of that search, and SFT, for longer.",
}


class Column(NamedTuple):
    """A column of the matrix: a kind of checkpoint, and a metric that was declared for it."""

    start: str
    measure: Measure

    @property
    def heading(self) -> str:
        """As the matrix has it."""
        return f"{self.start}: {METRICS[self.measure.metric].heading}"


def main() -> None:
    """Write both pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=Path, default=Path("docs/study"), help="folder of studies")
    parser.add_argument("--output", type=Path, default=Path("docs/study.md"), help="the page; the tables lie beside it")
    parser.add_argument("--readme", type=Path, default=Path("README.md"), help="its advice is the page's")
    arguments = parser.parse_args()
    folder = arguments.studies / FAULTS_STUDY
    result = analyse(read_study(folder, fewest=1))
    write_rows(result, folder)
    columns = columns_of(result)
    for plot in (gains_plot(result, columns), learning_plot(result)):
        plot.save(folder / f"{plot.name}.svg", "svg")
    real_folder = arguments.studies / REAL_STUDY
    real_study = read_study(real_folder, fewest=1)
    text = _PAGE.format(
        state=state(result),
        matrices=matrices(result, columns),
        beside=beside_table(result, columns),
        specification=specification_table(result, columns),
        margin=result.study.equivalence,
        signal=signal_record(result, folder, columns),
        advice=advice(result, columns),
        long=longer_runs(arguments.studies / LONG_STUDY, arguments.studies / LONG_AGAIN),
        real=real_radiographs(real_study, real_folder),
        findings=real_findings(arguments.studies / NIH_FINDINGS),
        cut=cut_runs(result.study),
        clean_losses=mean_iou_losses(result, ("R1", "R3", DEFAULT, "R5", "soft_f1")),
        clean_control_losses=mean_iou_losses(result, ("sft", "blank")),
        blank_ties=groups_without_spread(result.study),
        real_ties=groups_without_spread(real_study),
        parameters=parameters(),
    )
    write_whole(arguments.output, text)
    readme = arguments.readme.read_text(encoding="utf-8")
    before, heading, after = readme.partition(_README_HEADING)
    _, end, after = after.partition(_README_END)
    write_whole(arguments.readme, f"{before}{heading}{advice(result, columns)}{end}{after}")
    older = [older_study(arguments.studies / name) for name in OLDER if (arguments.studies / name).is_dir()]
    tables = arguments.output.with_name(f"{arguments.output.stem}_tables.md")
    write_whole(tables, _TABLES.format(studies="\n\n".join(older)))


def write_rows(result: StudyResult, folder: Path) -> None:
    """Write every metric of every model with its intervals into the folder of the study."""
    rows = [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}
        for row in result.rows()
    ]
    write_whole(folder / ROWS, pandas.DataFrame(rows).to_csv(index=False))


def advice(result: StudyResult, columns: Sequence[Column]) -> str:
    """The choice between rewards, with the numbers that speak for it."""
    numbers = {}
    for start, measure in deciding_measures(columns).items():
        numbers[f"{start}_before"] = f"{result.starts[start][measure].value:.3f}"
        for arm in result.of_start(start):
            name = f"{start}_{arm.key.arm}"
            numbers[f"{name}_gain"] = f"{abs(gain(arm, measure).value):.3f}"
            halfway = rows_of_arm(result, start, arm.key.arm, measure, min)
            numbers[f"{name}_halfway"] = f"{np.mean([row.metric.value for row in halfway]):.2f}"
            numbers[f"{name}_after"] = f"{arm.metrics[measure].value:.2f}"
            numbers[f"{name}_price"] = f"{abs(price(arm, measure)):.3f}"
        precision = arm_of(result, start, DEFAULT).differences[REFERENCE][Measure("precision_50", measure.on)]
        numbers[f"{start}_precision"] = f"{precision.estimate.value:+.3f}"
    extra = arm_of(result, "extra", "soft_f1")
    numbers["extra_more"] = f"{extra.differences[REFERENCE][deciding_measures(columns)['extra']].estimate.value:.3f}"
    numbers["widest"] = f"{widest_difference(result, columns):.3f}"
    main_rewards = [arm for arm in result.arms if not arm.is_control and arm.key.arm in settled_arms(result)]
    numbers["fewest"] = counted(min(len(arm.seeds) for arm in main_rewards), "checkpoint")
    return _ADVICE.format_map(numbers)


def widest_difference(result: StudyResult, columns: Sequence[Column]) -> float:
    """The largest difference in mean IoU of R3, R5 or soft_f1 from R4, over all their runs; rounded up."""
    widest = 0.0
    for start, deciding in deciding_measures(columns).items():
        for checkpoint in result.study.starts[start]:
            gains = gains_from(result, checkpoint, Measure(PRICE, deciding.on))
            widest = max(widest, *(abs(gains[arm] - gains[DEFAULT]) for arm in ("R3", "R5", "soft_f1") if arm in gains))
    return math.ceil(widest * 1000) / 1000


# The matrix of faults and rewards


def columns_of(result: StudyResult) -> list[Column]:
    """The kinds of checkpoints that a reward was trained from, each with the metrics that were declared for it."""
    columns = []
    for start in FAULTS:
        if any(not arm.is_control for arm in result.of_start(start)):
            columns += [Column(start, measure) for measure in result.study.primary_of(start)]
    return columns


def state(result: StudyResult) -> str:
    """The number of declared runs that were made."""
    study = result.study
    runs = sum(map(len, study.arms.values()))
    if not study.missing:
        return f"All {runs} runs were made."
    return f"{runs} of {runs + len(study.missing)} declared runs were made; [the others were cut](#how-it-was-made)."


def cut_runs(study: Study) -> str:
    """The declared runs that were not made: of each arm the checkpoints without it, or the few that have it."""
    made_from: dict[str, list[str]] = defaultdict(list)
    for key, runs in study.arms.items():
        made_from[key.arm] += [run.start for run in runs]
    missing_from: dict[str, list[str]] = defaultdict(list)
    for name in study.missing:
        start, arm, _ = name.split("--")
        missing_from[arm].append(start)
    arms_cut_alike: dict[str, list[str]] = defaultdict(list)
    for arm, starts in missing_from.items():
        if len(starts) <= len(made_from[arm]):
            arms_cut_alike[f"from {' and '.join(sorted(starts))}"].append(arm)
        else:
            arms_cut_alike[f"except from {' and '.join(sorted(made_from[arm]))}"].append(arm)
    return "; ".join(f"{', '.join(arms)} {starts}" for starts, arms in arms_cut_alike.items())


def gain(arm: ArmResult, measure: Measure) -> Estimate:
    """The improvement over the checkpoint; of few checkpoints with the interval over images."""
    difference = arm.differences[START][measure]
    return improvement(interval_of(difference, len(arm.seeds)), measure)


def interval_of(difference: Difference, checkpoints: int) -> Estimate:
    """The difference with its interval over checkpoints, or over images where these are few.

    No share and no IoU can change by more than 1, as Student's t does not know.
    """
    value, low, high = difference.estimate if checkpoints >= FEWEST_CHECKPOINTS else difference.patients
    return Estimate(value, max(low, -1.0), min(high, 1.0))


def improvement(change: Estimate, measure: Measure) -> Estimate:
    """A change of a metric, with the sign turned where less of it is better."""
    if METRICS[measure.metric.partition(" of ")[0]].lower_is_better:
        return Estimate(-change.value, -change.high, -change.low)
    return change


def is_shown(arm: ArmResult, measure: Measure) -> bool:
    """Whether a change since the checkpoint is shown, over enough checkpoints, by its interval and Holm's p."""
    return len(arm.seeds) >= FEWEST_CHECKPOINTS and bool(direction(gain(arm, measure), arm.holm[START][measure]))


def price(arm: ArmResult, measure: Measure) -> float:
    """The change in :data:`PRICE` that came with that of another metric on the same images."""
    return arm.differences[START][Measure(PRICE, measure.on)].value


def has_price(column: Column, result: StudyResult) -> bool:
    """Whether a column says what mean IoU did: the first one of its kind of checkpoint, unless it is mean IoU."""
    return column.measure == result.study.primary_of(column.start)[0] and column.measure.metric != PRICE


def mean_iou_losses(result: StudyResult, arms: Sequence[str]) -> str:
    """The least and the largest fall in mean IoU of a run of some arms without a fault."""
    changes = []
    for checkpoint in result.study.starts["clean"]:
        gains = gains_from(result, checkpoint, Measure(PRICE, result.study.primary[0].on))
        changes += [gains[arm] for arm in arms if arm in gains]
    return f"{-max(changes):.3f} to {-min(changes):.3f}"


def groups_without_spread(study: Study) -> str:
    """The share of groups without spread in the training on grey images: of the run with least, and with most."""
    shares = []
    for key, runs in study.arms.items():
        if key.arm == "blank":
            shares += [float(np.mean(run.curve["frac_reward_zero_std"])) for run in runs]
    return f"{min(shares):.0%} to {max(shares):.0%}"


def settled_arms(result: StudyResult) -> list[str]:
    """The names of the arms that have runs from enough checkpoints of some kind."""
    most_checkpoints: dict[str, int] = defaultdict(int)
    for arm in result.arms:
        most_checkpoints[arm.key.arm] = max(most_checkpoints[arm.key.arm], len(arm.seeds))
    return [name for name in arm_names(result) if most_checkpoints[name] >= FEWEST_CHECKPOINTS]


def matrices(result: StudyResult, columns: Sequence[Column]) -> str:
    """The gains of all arms, those that few checkpoints speak for in a table of their own."""
    settled = settled_arms(result)
    unsettled = [name for name in arm_names(result) if name not in settled]
    tables = []
    for names in (settled, unsettled):
        with_runs = [column for column in columns if any(arm_of(result, column.start, name) for name in names)]
        if with_runs:
            tables.append(matrix(result, with_runs, names))
    return "\n\nFrom one or two checkpoints, and so with intervals over images:\n\n".join(tables)


def matrix(result: StudyResult, columns: Sequence[Column], names: Sequence[str]) -> str:
    """The gains of some arms from every kind of checkpoint."""
    header = ["", *(column.heading for column in columns)]
    rows = [["checkpoint", *(format_value(result.starts[column.start][column.measure].value) for column in columns)]]
    for name in names:
        row = [f"{name} ◦" if any(arm.is_control for arm in result.arms if arm.key.arm == name) else name]
        for column in columns:
            arm = arm_of(result, column.start, name)
            row.append("" if arm is None else matrix_cell(arm, column, result))
        rows.append(row)
    return markdown_table(header, rows)


def arm_names(result: StudyResult) -> list[str]:
    """The names of all arms, controls last."""
    ordered = sorted(result.arms, key=lambda arm: arm.is_control)
    return list(dict.fromkeys(arm.key.arm for arm in ordered))


def arm_of(result: StudyResult, start: str, name: str) -> ArmResult | None:
    """An arm from a kind of checkpoint, where it has a run."""
    return next((arm for arm in result.of_start(start) if arm.key.arm == name), None)


def matrix_cell(arm: ArmResult, column: Column, result: StudyResult) -> str:
    """The gain, bold where it is shown; in small letters the change in mean IoU, and from how many checkpoints."""
    text = estimate_text(gain(arm, column.measure))
    if is_shown(arm, column.measure):
        text = f"**{text}**"
    notes = []
    if has_price(column, result):
        notes.append(f"{METRICS[PRICE].heading} {price(arm, column.measure):+.3f}")
    checkpoints = len(result.study.starts[column.start])
    if len(arm.seeds) < checkpoints:
        notes.append(f"{len(arm.seeds)} of {checkpoints} checkpoints")
    return f"{text}<br><sub>{', '.join(notes)}</sub>" if notes else text


def estimate_text(estimate: Estimate) -> str:
    """A change with its interval, for Markdown."""
    return format_estimate(estimate, signed=True).replace("[", "\\[")


def beside_table(result: StudyResult, columns: Sequence[Column]) -> str:
    """The default reward less each other, and less SFT, in the metric of each fault."""
    measures = deciding_measures(columns)
    rows = []
    for name in settled_arms(result) or arm_names(result):
        is_control = any(arm.is_control for arm in result.arms if arm.key.arm == name)
        if name == DEFAULT or (is_control and name != result.study.reference):
            continue
        row = [f"{DEFAULT} less {name}"]
        for start, measure in measures.items():
            rows_of_both = [rows_of_arm(result, start, arm, measure) for arm in (DEFAULT, name)]
            checkpoints = len(shared_checkpoints(*rows_of_both))
            change = improvement(interval_of(compare_rows(*rows_of_both), checkpoints), measure)
            row.append(estimate_text(change) if checkpoints >= FEWEST_CHECKPOINTS else f"{change.value:+.3f}")
        rows.append(row)
    return markdown_table(["", *(f"{start}: {METRICS[measures[start].metric].heading}" for start in measures)], rows)


def shared_checkpoints(rows: Iterable[ModelMetric], partner_rows: Iterable[ModelMetric]) -> set[str]:
    """The checkpoints from which both arms have a run."""
    return {row.checkpoint for row in rows} & {row.checkpoint for row in partner_rows}


def gains_plot(result: StudyResult, columns: Sequence[Column]) -> Plot:
    """The matrix as a plot: gains with intervals, the change in mean IoU as a grey line."""

    def draw(figure: Figure) -> None:
        for axis, column in zip(panels_of(figure, len(columns), 2), columns, strict=True):
            arms = result.of_start(column.start)
            for at, arm in enumerate(arms):
                value, low, high = gain(arm, column.measure)
                colour = SERIES[0] if is_shown(arm, column.measure) else SOFT
                axis.hlines(at, low, high, color=colour, linewidth=1.6)
                face = "none" if arm.is_control else colour
                axis.plot(value, at, marker="o", color=colour, markerfacecolor=face, markersize=4)
                if has_price(column, result):
                    axis.plot(price(arm, column.measure), at, marker="|", color=SOFT, markersize=7)
            axis.axvline(0, color=SOFT, linewidth=0.8)
            axis.set_yticks(range(len(arms)), [arm.key.arm for arm in arms])
            axis.invert_yaxis()
            axis.margins(x=0.12)
            axis.set_title(column.heading, loc="left")
            axis.grid(axis="x")

    height = 2.4 * math.ceil(len(columns) / 2)
    return Plot("gains", "Gains since the checkpoint", "", draw, (7.6, height + 0.4))


def learning_plot(result: StudyResult) -> Plot:
    """The reward of every arm over its steps: a panel each, a line for each checkpoint."""
    runs_of_arm = result.study.arms
    arms = []
    for name in arm_names(result):
        if any(key.arm == name and "reward" in runs[0].curve for key, runs in runs_of_arm.items()):
            arms.append(name)
    starts = [start for start in FAULTS if start in result.starts]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(len(arms), len(starts), squeeze=False, sharex=True)
        for row, arm in zip(axes, arms, strict=True):
            row[0].set_ylabel(arm, rotation=0, ha="right", va="center")
            for axis, start in zip(row, starts, strict=True):
                runs = runs_of_arm.get(ArmKey(start, arm), ())
                for run in runs:
                    axis.plot(run.curve["step"], run.curve["reward"], color=SERIES[0], linewidth=0.8)
                axis.set_ylim(0, 1)
                axis.set_yticks([0, 1])
                axis.tick_params(labelsize=5)
                if not runs:
                    # The label of the row and the heading of the column stay.
                    axis.spines[:].set_visible(False)
                    axis.tick_params(length=0, labelleft=False, labelbottom=False)
        for axis, start in zip(axes[0], starts, strict=True):
            axis.set_title(start)

    return Plot("learning", "Reward in training", "", draw, (7.6, 0.62 * len(arms) + 0.4))


# What the specification recommends


class Claim(NamedTuple):
    """A recommendation of the specification (§8.6), tested by the difference of two arms.

    use_case, said: as the specification has them.
    arms: the recommended one, and the one that it is compared with.
    findings: of the images that count, the fewest and the most; None for all images and the metric of each fault.
    is_best: the first arm is said to be the better one, not merely as good.
    """

    use_case: str
    said: str
    arms: tuple[str, str]
    findings: tuple[int, int] | None = None
    is_best: bool = False


CLAIMS = (
    Claim("Production", "R3: stable, proven, fast", ("R3", "R4")),
    Claim("RL training", "R4: best gradients", ("R4", "R3"), is_best=True),
    Claim("RL training", "R4: best gradients", ("R4", "R5"), is_best=True),
    Claim("Medical applications", "R5: strict, optimal matching", ("R5", "R3"), is_best=True),
    Claim("Several boxes", "R3, R4, R5; avoid R2", ("R3", "R2"), findings=(2, 99), is_best=True),
    Claim("One box", "R1, R3, R4: all perform well", ("R1", "R3"), findings=(1, 1)),
)
#: Recommendations for another reason than what a reward ends at, which no training tests.
UNTESTABLE = (
    ("Fast prototyping", "R1: simple, a standard metric"),
    ("Interpretability", "R1, R3"),
    ("Research", "R4, R5: worth studying"),
)


def specification_table(result: StudyResult, columns: Sequence[Column]) -> str:
    """Each recommendation of the specification, with what the runs say about it."""
    rows = []
    for claim in CLAIMS:
        differences = claim_differences(result, claim, columns)
        rows.append([claim.use_case, claim.said, claim_verdict(claim, differences, result.study.equivalence)])
    rows += [[use_case, said, "not testable here"] for use_case, said in UNTESTABLE]
    return markdown_table(["use case", "the specification", "here"], rows)


def claim_differences(result: StudyResult, claim: Claim, columns: Sequence[Column]) -> dict[str, Estimate]:
    """The first arm less the second by fault, where enough checkpoints have runs of both.

    In the first metric that decides for the fault, or in mean IoU on the images that count.
    """
    differences = {}
    for start, measure in deciding_measures(columns).items():
        if claim.findings is None:
            rows, partner_rows = (rows_of_arm(result, start, arm, measure) for arm in claim.arms)
        else:
            measure = Measure("mean_iou", measure.on)
            rows, partner_rows = (
                rows_with_findings(result.study, ArmKey(start, arm), measure, claim.findings) for arm in claim.arms
            )
        if len(shared_checkpoints(rows, partner_rows)) >= FEWEST_CHECKPOINTS:
            differences[start] = improvement(compare_rows(rows, partner_rows).estimate, measure)
    return differences


def deciding_measures(columns: Sequence[Column]) -> dict[str, Measure]:
    """The first metric that decides for each kind of checkpoint."""
    measures: dict[str, Measure] = {}
    for column in columns:
        measures.setdefault(column.start, column.measure)
    return measures


def rows_of_arm(
    result: StudyResult, start: str, arm: str, measure: Measure, step: Callable[[Iterable[int]], int] = max
) -> list[ModelMetric]:
    """A metric of the models of an arm, at its first or last step."""
    rows = [row for row in result.table if (row.start, row.arm, row.measure) == (start, arm, measure)]
    return [row for row in rows if row.step == step(row.step for row in rows)]


def rows_with_findings(study: Study, key: ArmKey, measure: Measure, findings: tuple[int, int]) -> list[ModelMetric]:
    """A metric of the trained models of an arm, on the images that have as many findings."""
    metric_rows = []
    for run in study.arms.get(key, ()):
        rows, texts = [], []
        for row, text in zip(study.sets[measure.on], run.checkpoints[run.last_step][measure.on], strict=True):
            if findings[0] <= len(row["boxes"]) <= findings[1]:
                rows.append(row)
                texts.append(text)
        images = model_predictions(rows, texts, study.box_format)
        sums = MatchedImages(images).sums([measure.metric])[measure.metric]
        metric = jackknifed_ratio(sum_by_group(sums, patients_of(images) or range(len(images))))
        metric_rows.append(ModelMetric(key.start, run.start, key.arm, run.seed, run.last_step, measure, metric))
    return metric_rows


def claim_verdict(claim: Claim, differences: Mapping[str, Estimate], margin: float) -> str:
    """Confirmed, refuted or open, and the differences that say so."""
    if not differences:
        return f"fewer than {FEWEST_CHECKPOINTS} checkpoints: no verdict"
    words: dict[str, list[str]] = {"better": [], "worse": [], "alike": [], "open": []}
    for start, (value, low, high) in differences.items():
        if -margin <= low and high <= margin:
            word = "alike"
        elif abs(value) > margin and (low > 0 or high < 0):
            word = "better" if low > 0 else "worse"
        else:
            word = "open"
        words[word].append(start if word == "alike" else f"{start} {format_value(value, signed=True)}")
    if claim.is_best:
        is_confirmed, is_refuted = words["better"] and not words["worse"], not words["better"] and not words["open"]
    else:
        is_confirmed, is_refuted = not words["worse"] and not words["open"], words["worse"] and not words["better"]
    verdict = "confirmed" if is_confirmed else "refuted" if is_refuted else "open"
    clauses = "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items() if names)
    return f"**{verdict}**. {' less '.join(claim.arms)}: {clauses}"


# What can be told beforehand


#: The arms of the study by the names that `signal` gives their rewards, where these differ.
SIGNAL_NAMES = {"R3 at τ 0.3": "R3_low", "R4 at τ 0.3": "R4_low"}
#: Fewer rewards have no order.
FEWEST_REWARDS = 3
#: The steps at which gains are told, of those that a run was measured at.
FIRST, LAST = "after 100 steps", "after 200 steps"
TIMES: dict[str, Callable[[Iterable[int]], int]] = {FIRST: min, LAST: max}


class Advice(NamedTuple):
    """What `signal` advised in place of a reward, and how much more that one gained, by time."""

    start: str
    asked: str
    further_gains: dict[str, float]


def signal_record(result: StudyResult, folder: Path, columns: Sequence[Column]) -> str:
    """The record of `signal`: whether its measures of a checkpoint's samples told which reward would gain more."""
    correlations: dict[str, list[float]] = defaultdict(list)
    advices: list[Advice] = []
    teachable, taught = [], []
    deciding = deciding_measures(columns)
    for path in sorted((folder / "samples").glob("*.jsonl.gz")):
        checkpoint = path.name.removesuffix(".jsonl.gz")
        start = checkpoint.partition(".")[0]
        if start not in deciding or checkpoint not in result.study.starts[start]:
            continue
        gains = {when: gains_from(result, checkpoint, deciding[start], step) for when, step in TIMES.items()}
        reports = signal_reports(path)
        signals = {}
        for report in reports:
            for signal in report.all:
                name = SIGNAL_NAMES.get(signal.name, signal.name)
                if name in gains[LAST]:
                    signals[name] = signal
        if len(signals) < FEWEST_REWARDS:
            continue
        gained_iou = gains_from(result, checkpoint, Measure("mean_iou", deciding[start].on))
        teachable.append(reports[0].best_of_k_gain.value)
        taught.append(float(np.mean([gained_iou[name] for name in signals])))
        spread = {name: 1 - signal.no_spread.value for name, signal in signals.items()}
        measured = {
            "groups with spread": spread,
            "effective group size": {name: signal.effective_group_size for name, signal in signals.items()},
            "correlation with IoU": {name: signal.iou_correlation or 0.0 for name, signal in signals.items()},
            "without R1": {name: share for name, share in spread.items() if name != "R1"},
        }
        for measure, values in measured.items():
            earned = [gains[LAST][name] for name in values]
            correlations[measure].append(rank_correlation(list(values.values()), earned))
        for name, signal in signals.items():
            best, _ = recommend(signal, [other for other in signals.values() if other is not signal])
            advised = SIGNAL_NAMES.get(best, best)
            if advised != name:
                more = {when: gains[when][advised] - gains[when][name] for when in TIMES}
                advices.append(Advice(start, name, more))
    if not teachable:
        return "Too few runs are there yet."
    margin = result.study.equivalence

    def times_ahead(cases: Sequence[Advice], when: str) -> int:
        return sum(case.further_gains[when] > margin for case in cases)

    of_r1 = [case for case in advices if case.asked == "R1"]
    of_others = [case for case in advices if case.asked != "R1"]
    r1_by_fault = []
    for start in FAULTS:
        cases = [case for case in of_r1 if case.start == start]
        r1_by_fault.append(f"{start} {times_ahead(cases, LAST)} of {len(cases)}")
    spread_correlations = correlations["groups with spread"]
    others = [
        f"{name} {np.nanmean(correlations[name]):+.2f}" for name in ("effective group size", "correlation with IoU")
    ]
    return _SIGNAL.format(
        checkpoints=counted(len(teachable), "checkpoint"),
        margin=margin,
        advices=len(advices),
        of_r1=len(of_r1),
        of_r1_first=times_ahead(of_r1, FIRST),
        of_r1_last=times_ahead(of_r1, LAST),
        r1_by_fault=", ".join(r1_by_fault),
        of_others=len(of_others),
        others_from=" and ".join(dict.fromkeys(case.start for case in of_others)),
        of_others_first=times_ahead(of_others, FIRST),
        of_others_last=times_ahead(of_others, LAST),
        lost=sum(case.further_gains[LAST] < -margin for case in advices),
        spread=f"{np.nanmean(spread_correlations):+.2f}",
        lowest=f"{np.nanmin(spread_correlations):+.2f}",
        highest=f"{np.nanmax(spread_correlations):+.2f}",
        without_r1=f"{np.nanmean(correlations['without R1']):+.2f}",
        others=", ".join(others),
        teachable=f"{min(teachable):.2f} to {max(teachable):.2f}",
        taught=f"{min(taught):+.2f} to {max(taught):+.2f}",
        correlation=f"{rank_correlation(teachable, taught):+.2f}",
    )


def rank_correlation(values: Sequence[float], others: Sequence[float]) -> float:
    """Spearman's; NaN where one of them does not differ."""
    from scipy.stats import spearmanr

    if len(set(values)) == 1 or len(set(others)) == 1:
        return math.nan
    return float(spearmanr(values, others).statistic)


def gains_from(
    result: StudyResult, checkpoint: str, measure: Measure, step: Callable[[Iterable[int]], int] = max
) -> dict[str, float]:
    """The improvement of a metric by each arm from one checkpoint, at its first or last step."""
    rows = [row for row in result.table if (row.checkpoint, row.measure) == (checkpoint, measure)]
    initial = next(row.metric.value for row in rows if row.arm is None)
    told_step = step(row.step for row in rows if row.arm is not None)
    gains = {}
    for row in rows:
        if row.arm is not None and row.step == told_step:
            change = row.metric.value - initial
            gains[row.arm] = improvement(Estimate(change, change, change), measure).value
    return gains


def signal_reports(path: Path) -> list[SignalReport]:
    """What `signal` says of the rewards of the arms on the samples of a checkpoint: of R4 and others, and of R3."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            groups[row["id"]].append(row)
    rows = [samples[0] for samples in groups.values()]
    texts = [[row["completion"] for row in samples] for samples in groups.values()]
    reports = []
    for name, tried in (("R4", ("R1", "R2", "R5", "soft_f1")), ("R3", ())):
        reward = get_reward(name, box_format=rows[0]["box_format"], no_box_bonus=0.2)
        reports.append(measure_signal(rows, texts, reward, tried=tried))
    return reports


# Beside the study of faults


def longer_runs(folder: Path, again: Path) -> str:
    """The study of three times as many steps: the deciding metrics after each third, and what the later ones added.

    Args:
        folder: of the study.
        again: of its runs from checkpoints that were taught again, whose rows are marked.
    """
    results = {"": analyse(read_study(folder, fewest=1)), " †": analyse(read_study(again, fewest=1))}
    for path, result in zip((folder, again), results.values(), strict=True):
        write_rows(result, path)
    columns = columns_of(results[""])
    steps = sorted({row.step for row in results[""].table if row.arm is not None})
    header = [""]
    for column in columns:
        header += [f"{column.heading} at {steps[0]}, {steps[1]}, {steps[2]}", "later"]
    rows = []
    for mark, result in results.items():
        for name in arm_names(result):
            is_control = any(arm.is_control for arm in result.arms if arm.key.arm == name)
            row = [f"{name} ◦{mark}" if is_control else f"{name}{mark}"]
            for column in columns:
                if arm_of(result, column.start, name) is None:
                    row += ["", ""]
                    continue
                of_arm = [
                    model
                    for model in result.table
                    if (model.start, model.arm, model.measure) == (column.start, name, column.measure)
                ]
                row.append(", ".join(format_value(model.metric.value) for model in of_arm))
                row.append(estimate_text(compare_rows(of_arm[-1:], of_arm[:1]).patients))
            rows.append(row)
    before = []
    for column in columns:
        values = [
            f"{format_value(result.starts[column.start][column.measure].value)}{mark}"
            for mark, result in results.items()
            if column.start in result.starts
        ]
        before.append(f"{column.heading} {', '.join(values)}")
    of_start = results[""].of_start(columns[0].start)
    last = {arm.key.arm: arm.metrics[columns[0].measure].value for arm in of_start}
    names = {(key.start, key.arm) for result in results.values() for key in result.study.arms}
    declared = {(key.start, key.arm) for key in [*results[""].study.arms, *results[""].study.left_out]}
    return _LONG.format(
        runs=len(names),
        declared=len(declared),
        steps=f"{steps[0]}, {steps[1]} and {steps[2]}",
        first=steps[0],
        before="; ".join(before),
        table=markdown_table(header, rows),
        behind=f"{last['R4'] - last['R1']:.2f}",
        rows=" and ".join(f"[{path.name}]({path.parent.name}/{path.name}/{ROWS})" for path in (folder, again)),
    )


def real_radiographs(study: Study, folder: Path) -> str:
    """The study of faults on real radiographs: its matrix, and a sentence for each fault."""
    result = analyse(study)
    write_rows(result, folder)
    columns = columns_of(result)
    measure = columns[0].measure
    # No arm begins at the clean checkpoints, so that the result of the study has none of their metrics.
    clean = [read_json(path)["sets"][measure.on]["metrics"] for path in sorted((folder / "starts").glob("clean.*"))]
    rows = result.study.sets[measure.on]
    never_moving = baseline_systems(rows, None, get_reward("R3", box_format=result.study.box_format))[CONSTANT_OF_THESE]
    return _REAL.format(
        state=state(result),
        constant=format_value(jackknifed_ratio(MatchedImages(never_moving).sums([PRICE])[PRICE]).value),
        images=len(result.study.sets[measure.on]),
        patients=result.patients[measure.on],
        clean=format_value(np.mean([metrics[measure.metric] for metrics in clean])),
        matrices=matrices(result, columns),
        beside=beside_table(result, columns),
        rows=f"[{ROWS}]({folder.parent.name}/{folder.name}/{ROWS})",
    )


def real_findings(folder: Path) -> str:
    """Whether a model looked at real findings, with the number, and at which of them."""
    lines = (folder / "completions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    reward = get_reward("R3", box_format="qwen2.5-vl")
    answers = read_predictions(rows, [[row["completion"]] for row in rows], reward)
    # The question names the finding: dealt to other findings, answers would differ by the question alone.
    whole = image_dependence(answers, same_labels=True)
    medians = json.loads((folder / "median_boxes.json").read_text(encoding="utf-8"))
    labels = sorted({row["labels"][0] for row in rows})
    seen_labels, constant = [], 0.0
    for label in labels:
        of_label = image_dependence([answer for answer in answers if answer.gt_labels == (label,)], same_labels=True)
        if of_label.dependence.low > 0:
            seen_labels.append(label)
        asked = [row for row in rows if row["labels"] == [label]]
        boxes = np.concatenate([row["boxes"] for row in asked]) / np.tile([asked[0]["width"], asked[0]["height"]], 2)
        constant += float(pairwise_iou([medians[label]], boxes).mean()) * len(asked) / len(rows)
    return _FINDINGS.format(
        iou=format_value(whole.value),
        dealt=format_value(whole.dealt),
        dependence=format_estimate(whole.dependence, signed=True),
        labels=", ".join(seen_labels),
        constant=format_value(constant),
        questions=whole.images,
        patients=len({row["patient_id"] for row in rows}),
        findings=len(labels),
    )


def older_study(folder: Path) -> str:
    """One older study with the changes by its arms; every metric goes into its folder."""
    result = analyse(read_study(folder, fewest=1))
    write_rows(result, folder)
    study = result.study
    runs = [run for of_arm in study.arms.values() for run in of_arm]
    steps = sorted({run.last_step for run in runs if run.reward is not None})
    checkpoints = " and ".join(f"{len(names)} {kind}" for kind, names in study.starts.items())
    images, patients = (len(study.sets[study.primary[0].on]), result.patients[study.primary[0].on])
    facts = (
        f"{len(runs)} runs of {len(result.arms)} arms from {checkpoints} checkpoints, GRPO of "
        f"{' or '.join(map(str, steps))} steps; {images} images of {patients} patients."
    )
    header = ["arm", *(f"{METRICS[measure.metric].heading} on {measure.on}" for measure in study.primary)]
    rows = []
    for start, metrics in result.starts.items():
        rows.append([f"the {start} checkpoint", *(format_value(metrics[measure].value) for measure in study.primary)])
        for arm in result.of_start(start):
            changes = [older_change(arm, measure) for measure in study.primary]
            rows.append([f"{arm.key.arm} ◦" if arm.is_control else arm.key.arm, *changes])
    every = f"Every metric on every set: [{ROWS}]({folder.parent.name}/{folder.name}/{ROWS})."
    return "\n\n".join([f"## {study.name}", f"{OLDER[folder.name]} {facts}", markdown_table(header, rows), every])


def older_change(arm: ArmResult, measure: Measure) -> str:
    """Since the checkpoint, marked where the arm is shown to differ from the reference."""
    estimate = arm.differences[START][measure].estimate
    text = format_estimate(estimate, signed=True).replace("[", "\\[")
    differs = measure in arm.holm.get(REFERENCE, {}) and arm.direction(measure, REFERENCE)
    return f"{text} \\*" if differs else text


def parameters() -> str:
    """The number of weights of the small model, in words."""
    from safetensors import safe_open

    count = 0
    for file in sorted((Path(__file__).parents[2] / "assets" / "tiny_vlm").glob("*.safetensors")):
        with safe_open(file, "numpy") as weights:
            count += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return f"{count / 1e6:.1f} million"


_LONG = """\
The same arms and images, after {steps} steps, one run of an arm from each checkpoint of one seed
({before}):
{runs} of {declared} runs were made. † marks runs from a checkpoint that was taught again with the same settings, and
came out with other weights, on another processor. "Later" is what the steps after {first} added, with its interval
over images, which says nothing of another training. Every metric:
{rows}.

{table}

From loose boxes no further change is shown for R3, R4 and soft_f1, and R5 rose by another 0.01; R1 rose further and
stayed {behind} below R4; SFT fell, from both checkpoints, to where R3, R4 and soft_f1 are. Without a fault SFT fell
too, further than R4."""

_REAL = """\
{state} Both lungs on real radiographs, at random sizes and places: {images} images of
{patients} patients who were never trained on. A pair of boxes that never moves, fitted on the other patients, reaches
a mean IoU of {constant}; before a fault was taught the model had {clean}.

{matrices}

{beside}

SFT is ahead of R4 from both; that R1 is behind R4 is shown from far boxes alone.

Every metric: {rows}. configs/study/faults_real.yaml says what was declared, and what was changed before any arm ran,
when the mean IoU of the first clean checkpoint on these images was known.
The reference boxes are by General Blockchain Inc. (Dr. Ayoub El Hajjami, Dr. Mohamed Soliman;
GeneralBlockchain/covid-19-chest-xray-lung-bounding-boxes-dataset on GitHub; CC BY 4.0), scaled and moved with the
images."""

_FINDINGS = """\
Asked for one finding of NIH's radiographs, the shipped model, taught on once, is worse than a box that never moves, and
depends a little on the image: a mean IoU of {iou}, where the same answers dealt to other images with the same finding
reach {dealt}, so an image dependence of {dependence}. Of single findings that interval is above 0 for {labels}. The
median training box of each finding, which never moves, reaches {constant}. These are {questions} questions about
{patients} patients who were never trained on, each for one of {findings} findings (configs/study/nih_findings.yaml).
The reference boxes are those of NIH ChestX-ray14, scaled; the NIH Clinical Center provides the data
([download](https://nihcc.app.box.com/v/ChestXray-NIHCC); Wang et al., ChestX-ray8, CVPR 2017)."""

#: README's copy of the advice stands between these.
_README_HEADING, _README_END = "**Which one?**\n\n", "\n\nNumbers: "
_ADVICE = """\
- **SFT first**: as many answers with right boxes raised mean IoU by {loose_sft_gain} (loose boxes, from {loose_before})
  and {far_sft_gain} (far ones, from {far_before}); R4 by {loose_R4_gain} and {far_R4_gain}, with fewer false boxes
  (precision {loose_precision} and {far_precision}). After 600 steps from loose boxes SFT's lead was gone (one run
  each). From spurious boxes soft_f1 ended {extra_more} above SFT in precision. Without a fault neither raised what was
  declared; mean IoU fell by {clean_R4_price} (R4) and {clean_sft_price} (SFT).
- **R4**, the default. R3, R5 and soft_f1 ended within {widest} of its mean IoU in every run.
- **soft_f1** if few boxes reach an IoU of 0.5: it begins sooner (far boxes, 100 steps: {far_soft_f1_halfway}, R4
  {far_R4_halfway}); at 200 it is not shown to differ.
- **Not R1**: mean IoU rose by {loose_R1_gain} and {far_R1_gain}; most spurious boxes stayed (precision
  +{extra_R1_gain}, R4 +{extra_R4_gain}).
- **Boxes on normal images** became fewer in every run ({eager_before} of them have one, after R4 {eager_R4_after}), on
  grey images too ({eager_blank_after}): no proof of looking.

At least {fewest} each; faults taught on purpose, 1.2 million parameters, drawn images; nothing ran at 3B."""

_SIGNAL = """\
16 answers of each checkpoint to 200 validation images were kept before it was trained, and `signal` read them
afterwards. Of R1 it advised another reward at {of_r1} of {checkpoints}: the advised one gained over {margin} more than
R1 in {of_r1_first} after 100 steps and in {of_r1_last} after 200 ({r1_by_fault}). So it did not tell where R1 is worse.
In {of_others} more cases, all from {others_from}, it advised a lower τ or none: over {margin} more in {of_others_first}
after 100 steps and in {of_others_last} after 200. There it told which rewards begin sooner, not which end better. In
{lost} of all {advices} cases the advised one gained over {margin} less in the end. The time of 100 steps, and to count
R1 apart, were chosen after the first runs.

How many groups have spread goes with the gain after 200 steps at a rank correlation of {spread} over the rewards of a
checkpoint, from {lowest} to {highest} ({others}), mostly because R1 gains least: without it {without_r1}. The best of
the 16 answers was {teachable} mean IoU above their mean, and rewards changed mean IoU by {taught}: rank correlation
{correlation}, over checkpoints of six kinds, which differ little within a kind."""

_PAGE = """\
# Which reward mends which fault?

{state}

A policy has a fault: which reward mends it, at what price, and can one tell beforehand? A model of {parameters}
parameters was taught five faults on purpose, each by a short SFT on changed references or without normal images, and
then, as without a fault, trained with one reward at a time, all rewards alike: 200 steps of 64 answers to drawn
radiographs.

## What to choose

{advice}

## Gains

In the metric that was declared for the fault, on 500 test images:

{matrices}

**Bold**: shown over at least three checkpoints, by Student's t, with Holm's p within the fault. Intervals are 95 %,
over checkpoints, one run of an arm each; with fewer than three checkpoints over images, or patients where these are
known, which says how sure these runs are and nothing of another training. Small: what mean IoU did meanwhile. ◦:
controls (sft: as many answers learned from, with right boxes; blank: R3 on grey images). A gain in hallucination is a
fall; its intervals are cut at 1. Placing is the part of mean IoU that is
[owed to placing](metrics.md#image-dependence).

![Gains since the checkpoint, blue where they are shown; open: controls; line: mean IoU](study/faults/gains.svg)

What the runs add: far boxes are mended at τ 0.5 too, though few reach it at first; findings that were left out come
back under each of the five rewards that were trained from there; R1 leaves most spurious boxes, as its formula says;
and without a fault each of the five lowers mean IoU in every run, by {clean_losses}, as SFT and grey images do
({clean_control_losses}). On grey images nearly all answers to an image earn the same ({blank_ties} of the groups had no
spread, by run; on real radiographs {real_ties}), so that `blank` hardly trains: that a part of the spurious boxes, and
of those on normal images, goes there too shows that their fall needs no looking; that other gains stay away shows
little.

The default reward beside the others, in the same metrics (the intervals are not adjusted for their number):

{beside}

![Reward in training](study/faults/learning.svg)

The reward that each arm is trained on, from 0 to 1, over its 200 steps; a line for each checkpoint.

## Does it go on?

{long}

## What the specification recommends

Its recommendations (§8.6), row by row, by the difference of two rewards from the same checkpoints: in the metric of
each fault, or for several boxes and one box in mean IoU on images with as many findings, at most three here. The
pairs and mean IoU on some images were chosen after the first runs; that differences within {margin} count as alike
was declared before. Better and worse: by more than that, and the 95 % interval, over checkpoints and not adjusted, is
on one side of 0. Only which reward ends better is tested: not whether one is simple, stable or fast.

{specification}

## What can be told beforehand

{signal}

## The same on real radiographs

{real}

## Real findings

{findings}

## Beside what others report

- **SFT and RL.** Jeddi et al. ([arXiv 2603.01301](https://arxiv.org/abs/2603.01301)): RL sharpens what a model can do
  already, SFT extends it. Gundersen et al. ([arXiv 2512.10691](https://arxiv.org/abs/2512.10691), RadVLM-GRPO): a
  strong SFT remains crucial, and GRPO adds to it in grounding. Here SFT is ahead in loose and far boxes. From
  spurious boxes R3, R4, R5 and soft_f1 ended 0.02 above as much SFT in precision, which after Holm is shown for soft_f1
  alone, just; in nothing else that was declared is a reward shown to end above it. In an
  [older study](study_tables.md) one is: drawn, from early checkpoints, on shifted images.
- **The threshold.** Yang et al. ([arXiv 2603.28120](https://arxiv.org/abs/2603.28120), MedLoc-R1): a fixed τ of 0.5
  stays far below raw IoU as the reward, and their schedule of τ above both. Here, from far boxes, R4 at τ 0.5 ended
  within 0.02 mean IoU of soft_f1; the few runs of τ 0.3, and the one of a τ that follows the hits (R3_paced), ended
  0.01 to 0.02 above it.
- **After SFT.** Yao et al. ([arXiv 2511.18676](https://arxiv.org/abs/2511.18676), MedVision): GRPO after SFT raised
  the IoU of lesions from .298 to .382. Here no rise is shown from the checkpoints without a fault. Of the
  [older studies](study_tables.md) one (lungs, its strong checkpoint) rose by 0.02 mean IoU, under SFT nearly as much.
- **Looking.** Zafar et al. ([arXiv 2603.03437](https://arxiv.org/abs/2603.03437)): RL raised accuracy in answering
  questions, and answers hung less on the image. Here image dependence rose with mean IoU (loose, far, missed), and fell
  under every reward where boxes fitted already (eager, clean), as under SFT; from spurious boxes it rose under all but
  R1 ([findings.csv](study/faults/findings.csv)).

[What such rewards pay](published_rewards.md) on the same boxes.

## How it was made

configs/study/faults.yaml was committed before the first answer to a test image: faults, arms, metrics that decide,
number of steps and checkpoints, and the learning rates: of two for rewards, chosen with R4 from loose boxes of one
seed on validation images and given to all, and of two for SFT, which did not differ there. A seed is a clean
checkpoint: the shipped model taught on with right boxes to its plateau. Its faults are taught from it, and each arm
has one run from each fault. A checkpoint that is taught again on another processor comes out with other weights:
different clean ones stand behind loose.2, behind missed.2, and behind clean.2, extra.2 and eager.2, on real
radiographs one of its own behind far.2; and R1 and R5 began from loose.1 otherwise than R3, R4 and soft_f1, as their
first batches show. [Running a study](run_a_study.md) says how one makes one's own.

Cut for want of time, the last when most results were known (a checkpoint is named by its fault and seed): {cut}.

    grounding-rewards study configs/study/faults.yaml --out docs/study/faults --jobs 2
    python scripts/docs/write_study.py                     # this page and the tables, from docs/study
    python scripts/recompute_study.py docs/study/faults    # the numbers again, by code that shares only the parser

The older studies, 40 to 160 steps from checkpoints that were saturated or had learned little, are in
[the tables](study_tables.md).

## What this does not show

- The models have {parameters} parameters. What teaches them need not be what teaches a model a thousand times as large,
  whose answers vary otherwise and which has seen more before. The same YAML runs for such a model.
- Each fault was taught to a model that had drawn right boxes before, one at a time: this shows which reward brings a
  skill back, not which one teaches it.
- A checkpoint is one seed of teaching one shipped model on. All arms share it, the training images and the test images.
- Equal is the number of answers learned from, 12,800. Under a reward they are 8 to each of 1,600 images, in 200
  updates at a constant rate; SFT sees 2,000 images 6 times, in 800 updates at a rate that falls to 0. The faults
  themselves were taught by such an SFT.
- Drawn images are easier than patients: findings have clear edges, each kind looks alike, and nobody disagrees about
  the references.
- Settings other than the reward were not tuned for each arm: learning rate and temperature may suit one reward better
  than another. There is no KL term.
- What is not shown to differ is not shown to be equal.
"""
_TABLES = """\
# Older studies: tables

What rewards did to checkpoints that were saturated or had learned little; [which reward mends which
fault](study.md) is the newer question. Changes since the checkpoint with 95 % intervals: Student's t over
checkpoints, from a single one over runs, of a single run over patients. \\*: shown to differ from the reference arm,
sft or, in lungs, R3 (p adjusted by Holm). ◦: controls. Written by `python scripts/docs/write_study.py`.

{studies}

The reference boxes of lungs and placed_lungs that are kept here are by General Blockchain Inc. (Dr. Ayoub El Hajjami,
Dr. Mohamed Soliman; GeneralBlockchain/covid-19-chest-xray-lung-bounding-boxes-dataset on GitHub), those of other
readers by V7 Labs (v7labs/covid-19-xray-dataset). Both are CC BY 4.0, and were scaled and moved with the images.
"""


if __name__ == "__main__":
    main()
