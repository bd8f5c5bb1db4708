"""Rewards × initial checkpoints × seeds → one report; :func:`run` makes and reports a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grounding_rewards.study.analysis import StudyResult


def run(
    plan: str | Path | Mapping[str, Any], *, out: str | Path, dataset: str | None = None, jobs: int = 1
) -> StudyResult:
    """Make the missing runs of a study, write its report into `report/` of ``out``, and return the result.

    Args:
        plan: path of the YAML of the study, or its content; docs/run_a_study.md has the keys.
        out: folder of the study; an interrupted study continues.
        dataset: images, instead of those that the plan names at its top.
        jobs: runs at the same time.

    Raises:
        ValueError: the plan is wrong, the folder holds another study, or runs failed; names which and why.
    """
    from grounding_rewards.study.plan import read_plan
    from grounding_rewards.study.report import write_report
    from grounding_rewards.study.results import Folder
    from grounding_rewards.study.runs import make_runs

    resolved = read_plan(plan, dataset=dataset)
    folder = Folder(out)
    errors = make_runs(resolved, folder, resolved.runs, jobs=jobs)
    if errors:
        name, error = next(iter(errors.items()))
        raise ValueError(f"Expected every run to finish, got {len(errors)} that failed. {name}: {error}")
    return write_report(folder.root, folder.root / "report")
