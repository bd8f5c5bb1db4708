"""A study as an array job of SLURM: the same YAML, a job for each run."""

from __future__ import annotations

import shlex
from pathlib import Path

from grounding_rewards.study.plan import Plan

_SCRIPT = """\
#!/bin/bash
# The runs of the study {name}, a job each: sbatch THIS_FILE. Given again, it makes what is missing.
# Set account, partition, GPUs and time as your cluster wants them; every job needs the same folder and environment.
#SBATCH --job-name={name}
#SBATCH --array=0-{last}%8
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
# Trainings leave a checkpoint when the time is nearly up.
#SBATCH --signal=B:TERM@120
set -e
cd {here}
{command} --index "$SLURM_ARRAY_TASK_ID" &
study=$!
trap 'kill -TERM $study; wait $study' TERM
wait $study
"""


def array_script(plan: Plan, config: Path, out: Path, dataset: str | None) -> str:
    """The script that `sbatch` takes.

    Args:
        plan: of the study.
        config: its YAML.
        out: its folder.
        dataset: that was given on the command line.
    """
    words = ["grounding-rewards", "study", str(config), "--out", str(out)]
    words += [] if dataset is None else ["--dataset", dataset]
    return _SCRIPT.format(
        name=plan.name,
        last=len(plan.runs) - 1,
        here=shlex.quote(str(Path.cwd())),
        command=shlex.join(words),
    ).rstrip("\n")
