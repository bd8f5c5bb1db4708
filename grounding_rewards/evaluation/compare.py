"""The same demo under several rewards and seeds, one line of a table each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from grounding_rewards.evaluation.summary import AFTER, BEFORE, DIFFERENCE, read_figures
from grounding_rewards.metrics.estimates import Estimate, Figures, format_interval, format_value
from grounding_rewards.report.tables import markdown_table

_HEADER = (
    "reward",
    "seed",
    "sampled reward",
    "difference, 95 % interval",
    "greedy mean IoU",
    "difference, 95 % interval",
    "F1 at IoU 0.5",
    "hallucination",
    "unparseable",
)


@dataclass(frozen=True)
class Comparison:
    """Runs to make: one for each reward and seed, in folders below ``folder``.

    ``options`` go to ``scripts/demo.py``.
    """

    rewards: Sequence[str]
    seeds: Sequence[int]
    folder: Path
    options: Sequence[str] = ()

    def runs(self) -> list[tuple[str, int, Path]]:
        """Reward, seed and folder of every run.

        Example:
            >>> [str(path) for *_, path in Comparison(["R1", "R2"], [0], Path("runs")).runs()]
            ['runs/R1-seed0', 'runs/R2-seed0']
        """
        return [
            (reward, seed, self.folder / f"{reward}-seed{seed}") for reward, seed in product(self.rewards, self.seeds)
        ]


def make_runs(comparison: Comparison, *, jobs: int = 1) -> None:
    """Run the demo for every reward and seed that has no ``metrics.json`` yet.

    Args:
        comparison: the runs. What the demo prints lands in ``demo.log`` in each folder.
        jobs: how many to run at the same time.

    Raises:
        RuntimeError: runs failed; the others are finished first.
    """
    missing = [run for run in comparison.runs() if not _is_finished(run[2])]
    with ThreadPoolExecutor(jobs) as pool:
        codes = list(pool.map(lambda run: _demo(run[0], run[1], run[2], comparison.options), missing))
    failed = [str(path / "demo.log") for (*_, path), code in zip(missing, codes, strict=True) if code]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(missing)} runs failed. Read {', '.join(failed)}.")


def comparison_table(comparison: Comparison) -> str:
    """A Markdown table of the runs that are finished, and what the answers that need no look at a film earn."""
    rows: list[list[str]] = []
    # Every run scores the same films: the first of each reward stands for all, and rewards that agree share a line.
    baselines: dict[tuple[str, ...], list[str]] = {}
    seen: set[str] = set()
    for reward, seed, path in comparison.runs():
        if not _is_finished(path):
            continue
        figures = read_figures(path / "metrics.json")
        rows.append([reward, str(seed), *_change_cells(figures)])
        if reward in seen:
            continue
        seen.add(reward)
        for name in figures.keys() - {BEFORE, AFTER, DIFFERENCE}:
            baselines.setdefault((name, *_baseline_cells(figures[name])), []).append(reward)
    lines = [[", ".join(rewards), *cells] for cells, rewards in sorted(baselines.items())]
    return markdown_table(_HEADER, [*rows, *lines])


def _is_finished(path: Path) -> bool:
    return (path / "metrics.json").is_file()


def _demo(reward: str, seed: int, path: Path, options: Sequence[str]) -> int:
    path.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "scripts/demo.py", "--reward", reward, "--seed", str(seed)]
    with (path / "demo.log").open("w", encoding="utf-8") as log:
        code = subprocess.call([*command, "--output_dir", str(path), *options], stdout=log, stderr=log)
    print(f"{reward}, seed {seed}: {'failed' if code else 'done'}", flush=True)
    return code


def _change_cells(figures: dict[str, Figures]) -> list[str]:
    before, after, difference = (figures[name] for name in (BEFORE, AFTER, DIFFERENCE))

    def arrow(key: str) -> str:
        return f"{format_value(before[key].value)} → {format_value(after[key].value)}"

    return [
        arrow("sampled_reward"),
        _signed(difference["sampled_reward"]),
        arrow("mean_iou"),
        _signed(difference["mean_iou"]),
        arrow("f1_50"),
        arrow("hallucination_rate"),
        arrow("unparseable_share"),
    ]


def _baseline_cells(figures: Figures) -> list[str]:
    keys = ("sampled_reward", None, "mean_iou", None, "f1_50", "hallucination_rate", "unparseable_share")
    return ["" if key is None else format_value(figures[key].value) for key in keys]


def _signed(estimate: Estimate) -> str:
    return f"{format_value(estimate.value, signed=True)} {format_interval(estimate, signed=True)}"
