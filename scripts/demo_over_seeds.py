"""Run the demo over seeds, threads and rewards, keep its answers, and write the tables of docs/tutorial.md.

  python scripts/demo_over_seeds.py                                    # seeds 0 to 4, with 1 and with 2 threads
  python scripts/demo_over_seeds.py --rewards default R1 R2 R3 R4 R5 soft_f1 --seeds 0 1 2 --threads 1
  python scripts/demo_over_seeds.py --no-runs                          # the tables alone, from the kept answers

A run whose answers are kept is not repeated. A kept run is a file of docs/demo_over_seeds with the answers before and
after, and the log of the training; all metrics are reckoned from it, by the definitions of today. The images are drawn.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.logs.run_log import first_and_last, read_entries
from grounding_rewards.metrics.comparison import Change, RunDifference
from grounding_rewards.report.comparison import compare_evaluations
from scripts.docs.page_parts import marks_of, replace_part

KEPT = Path("docs/demo_over_seeds")
PAGE = Path("docs/tutorial.md")
#: The reward that configs/demo/grpo.yaml names, with its parameters.
DEFAULT = "default"
#: Seeds that every reward has.
SHARED_SEEDS = "012"

_FILES = ("before/images.jsonl", "before/evaluation.json", "after/images.jsonl", "after/evaluation.json", "log.jsonl")
_MINUTES = "minutes.json"
# A change of mean IoU, F1 or image dependence that is promised: the least change, and what its interval lies above.
_PROMISED = {"mean_iou": (0.10, 0.08), "f1_50": (-1.0, -0.02), "image_dependence": (0.08, 0.0)}
# No finding may lose more recall over all runs together.
_LEAST_RECALL_CHANGE = -0.03


class DemoRun(NamedTuple):
    """One run of the demo, read from its kept answers.

    minutes: from the command to the page.
    reward: in training, from the first steps to the last.
    """

    name: str
    minutes: float
    difference: RunDifference
    reward: str


def run_name(reward: str, seed: int, threads: int) -> str:
    """The name of a kept run.

    >>> run_name("R4", 0, 2)
    'R4-seed-0-threads-2'
    """
    return f"{reward}-seed-{seed}-threads-{threads}"


def run_demo(reward: str, seed: int, threads: int, runs: Path, options: Sequence[str]) -> None:
    """Run the demo and keep its answers."""
    folder = runs / run_name(reward, seed, threads)
    command = [sys.executable, "-m", "grounding_rewards.cli", "demo", "--seed", str(seed)]
    if reward != DEFAULT:
        command += ["--reward", reward]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    start = time.monotonic()
    subprocess.run([*command, "--output_dir", str(folder), *options], check=True, env=environment)
    minutes = (time.monotonic() - start) / 60
    write_whole(folder / _MINUTES, json.dumps(round(minutes, 1)))
    KEPT.mkdir(exist_ok=True)
    with tarfile.open(KEPT / f"{folder.name}.tar.xz", "w:xz") as archive:
        for name in (*_FILES, _MINUTES):
            archive.add(folder / name, name)


def read_run(archive: Path) -> DemoRun:
    """Reckon the metrics of a kept run."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")
        root = Path(folder)
        # No p stands in the tables, so that the permutation test may be short.
        comparison = compare_evaluations(root / "before", root / "after", resamples=100)
        reward = first_and_last(read_entries(root / "log.jsonl"), "reward")
        minutes = json.loads((root / _MINUTES).read_text(encoding="utf-8"))
    name = archive.name.removesuffix(".tar.xz")
    return DemoRun(name, minutes, comparison.difference, reward.partition(",")[0])


def keeps_promise(difference: RunDifference) -> bool:
    """Whether mean IoU, F1 and image dependence changed as the demo promises of every run."""
    changes = {key: difference.metrics[key].difference for key in _PROMISED}
    return all(changes[key].value >= least and changes[key].low > above for key, (least, above) in _PROMISED.items())


def _cell(change: Change) -> str:
    ends = f"[{change.difference.low:+.3f}, {change.difference.high:+.3f}]"
    return f"{change.a.value:.3f} → {change.b.value:.3f} {ends}"


def seeds_table(runs: Sequence[DemoRun]) -> str:
    """A row for each run with one reward, and what became of every finding over all of them."""
    lines = [
        "| seed, threads | mean IoU | F1@0.5 | image dependence | training reward | minutes | as promised |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        _, _, seed, _, threads = run.name.split("-")
        cells = [_cell(run.difference.metrics[key]) for key in _PROMISED]
        kept = "yes" if keeps_promise(run.difference) else "no"
        lines.append(f"| {seed}, {threads} | {' | '.join(cells)} | {run.reward} | {run.minutes:.1f} | {kept} |")
    recalls = [f"{label} {before:.3f} → {after:.3f}" for label, (before, after) in mean_recalls(runs).items()]
    before, after = mean_of([run.difference.metrics["hallucination_rate"] for run in runs])
    lines += ["", f"Recall@0.5, mean of all runs: {', '.join(recalls)}. Hallucination {before:.3f} → {after:.3f}."]
    return "\n".join(lines)


def mean_of(changes: Sequence[Change]) -> tuple[float, float]:
    """The means of a metric before and after."""
    return fmean(change.a.value for change in changes), fmean(change.b.value for change in changes)


def mean_recalls(runs: Sequence[DemoRun]) -> dict[str, tuple[float, float]]:
    """By finding, the mean recall@0.5 before and after."""
    return {
        group.name: mean_of([run.difference.labels[number].changes["recall_50"] for run in runs])
        for number, group in enumerate(runs[0].difference.labels)
    }


def broken_promises(runs: Sequence[DemoRun]) -> list[str]:
    """Runs without the promised changes, and what became worse over all of them."""
    broken = [run.name for run in runs if not keeps_promise(run.difference)]
    for label, (before, after) in mean_recalls(runs).items():
        if after - before < _LEAST_RECALL_CHANGE:
            broken.append(f"recall of {label}")
    before, after = mean_of([run.difference.metrics["hallucination_rate"] for run in runs])
    if after > before:
        broken.append("hallucination")
    return broken


def rewards_table(runs: Sequence[DemoRun]) -> str:
    """A row for each reward: means over its runs."""
    keys = ("mean_iou", "recall_75", "f1_50", "image_dependence", "hallucination_rate")
    runs_of: dict[str, list[DemoRun]] = {}
    for run in runs:
        runs_of.setdefault(run.name.partition("-seed-")[0], []).append(run)

    def row(name: str, number: str, own: Sequence[DemoRun], side: int) -> str:
        values = [mean_of([run.difference.metrics[key] for run in own])[side] for key in keys]
        values += [means[side] for means in mean_recalls(own).values()]
        return f"| {name} | {number} | {' | '.join(f'{value:.3f}' for value in values)} |"

    headings = [runs[0].difference.metrics[key].metric.heading for key in keys]
    headings += [f"recall@0.5: {label}" for label in mean_recalls(runs)]
    lines = [
        f"| reward | runs | {' | '.join(headings)} |",
        f"|{'---|' * (2 + len(headings))}",
        row("before", "", runs, 0),
    ]
    lines += [row(reward, str(len(own)), own, 1) for reward, own in runs_of.items()]
    return "\n".join(lines)


def kept_runs(folder: Path) -> list[DemoRun]:
    """The kept runs of a folder, by name."""
    return [read_run(archive) for archive in sorted(folder.glob("*.tar.xz"))]


def default_runs(runs: Sequence[DemoRun]) -> list[DemoRun]:
    """The runs with the reward that the demo has without options."""
    return [run for run in runs if run.name.startswith(DEFAULT)]


def tables(runs: Sequence[DemoRun]) -> dict[str, str]:
    """The tables of the tutorial by the names of their marks: of the default reward, and of all with one thread."""
    single = [run for run in runs if run.name.endswith("-threads-1") and run.name.split("-")[2] in SHARED_SEEDS]
    return {"demo seeds": seeds_table(default_runs(runs)), "demo rewards": rewards_table(single)}


def main() -> int:
    """Read the arguments, run what is missing, and write the tables; 1 where a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rewards", nargs="+", default=[DEFAULT])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="of OpenMP, OMP_NUM_THREADS")
    parser.add_argument("--runs", type=Path, default=Path("runs/demo_over_seeds"), help="folder of the runs")
    parser.add_argument("--no-runs", action="store_true", help="write the tables of the kept runs alone")
    arguments, options = parser.parse_known_args()
    if not arguments.no_runs:
        for reward in arguments.rewards:
            for seed in arguments.seeds:
                for threads in arguments.threads:
                    if not (KEPT / f"{run_name(reward, seed, threads)}.tar.xz").exists():
                        run_demo(reward, seed, threads, arguments.runs, options)
    runs = kept_runs(KEPT)
    day = datetime.datetime.now(datetime.UTC).date()
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables(runs).items():
        page = replace_part(page, marks_of(name), f"{table}\n\n*{day}*")
        print(table)
    write_whole(PAGE, page)
    broken = broken_promises(default_runs(runs))
    if broken:
        print(f"Not as promised: {', '.join(broken)}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
