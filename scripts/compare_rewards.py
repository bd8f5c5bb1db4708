"""Run the demo under several rewards and seeds and write one table of all.

    python scripts/compare_rewards.py --output docs/rewards_compared.md

Runs that are finished are not repeated, so the command may be stopped and started again. Options that are not
listed here go to scripts/demo.py and on to scripts/train_grpo.py, for example `--max_steps 50`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from grounding_rewards.evaluation.compare import Comparison, comparison_table, make_runs
from grounding_rewards.rewards import SPECIFICATION_REWARDS

_PAGE = """\
# The rewards compared

The demo's tiny model, trained with GRPO under each reward from the same start, with the same settings, and measured on
the same held-out drawn films. Each line's sampled reward is its own reward's; the figures after it are the same ruler
for all. Intervals are paired 95 % bootstrap intervals over films. Made by

    {command}

{table}

The start was taught by readers who draw loosely: a margin around every finding, and some noise
(`configs/demo/sft.yaml`). It finds most findings, but its boxes are too large and its sampled answers vary. What GRPO
can add is what the rewards are about: tighter boxes and surer answers. Under R1 every box above IoU 0.5 is as good as a
perfect one, so R1 has the least reason to tighten them. This is one small model on drawn films: it shows that each
reward teaches, not which one to use on yours.
"""


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rewards", nargs="+", default=[*SPECIFICATION_REWARDS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="runs at the same time")
    parser.add_argument("--folder", type=Path, default=Path("runs/compare"))
    parser.add_argument("--output", type=Path, help="write the table into this Markdown file")
    return parser.parse_known_args()


def main() -> None:
    arguments, options = parse_arguments()
    comparison = Comparison(arguments.rewards, arguments.seeds, arguments.folder, options)
    make_runs(comparison, jobs=arguments.jobs)
    table = comparison_table(comparison)
    print(table)
    if arguments.output is not None:
        command = shlex.join(["python", *sys.argv])
        arguments.output.write_text(_PAGE.format(command=command, table=table), encoding="utf-8")


if __name__ == "__main__":
    main()
