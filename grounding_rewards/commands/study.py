"""Answer "which reward?" on your own images: runs of every arm with several seeds from the same initial checkpoint, at
the same cost, each measured on images never trained on, and on images from elsewhere.

The YAML names initial checkpoints (`starts`), arms (a reward, its parameters, or any other option of `train`),
controls, seeds, sets, and, before any run, the metrics that decide. configs/study/ has some; docs/run_a_study.md
explains every key. The folder --out then holds

  study.yaml, images.json   the resolved plan, and the references
  starts/, results/         a small compressed file for each checkpoint and run; the report is made from these alone
  runs/, logs/              unfinished trainings, and the output of the programs
  report/                   the report, made when all runs are finished

The same command resumes an interrupted study: finished runs stay, others continue from their last checkpoint. Arms and
seeds can be added. A folder of another study is refused.

examples:
  grounding-rewards study configs/study/drawn.yaml --out runs/drawn --dry-run       # the runs and their steps
  grounding-rewards study configs/study/drawn.yaml --out runs/drawn --jobs 2
  grounding-rewards study configs/study/drawn.yaml --out runs/drawn --only R3 soft_f1
  grounding-rewards study configs/study/drawn.yaml --out runs/drawn --seeds 0    # all arms once, then --seeds 1, …
  grounding-rewards study configs/study/lungs.yaml --dataset path/to/images --out runs/lungs
  grounding-rewards study configs/study/lungs.yaml --out runs/lungs --starts-only   # then an array: --index 0, 1, …
  grounding-rewards study --report-only --out runs/drawn        # without any training

exit code:
  0  all runs that were asked for are finished        1  a run failed        2  a wrong file, argument or folder
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from grounding_rewards.commands.console import output_console, say, stage_progress
from grounding_rewards.commands.options import in_range
from grounding_rewards.common.formatting import counted

if TYPE_CHECKING:
    from grounding_rewards.study.plan import Plan, Run
    from grounding_rewards.study.results import Folder


def run(
    config: Path | None = None,
    /,
    *,
    out: Path,
    dataset: str | None = None,
    jobs: Annotated[int, in_range(1)] = 1,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    index: int | None = None,
    starts_only: bool = False,
    dry_run: bool = False,
    report_only: bool = False,
) -> int:
    """Plan and run a study, and print which runs failed.

    Args:
        config: YAML of the study; not needed with --report-only
        out: folder of the study
        dataset: images, instead of those that the YAML names at its top
        jobs: runs at the same time
        only: only runs of these arms
        seeds: only runs with these seeds
        index: only the run of this number, from 0, which is a job of an array; initial checkpoints must be there
        starts_only: only the initial checkpoints
        dry_run: list the runs with their steps, and start nothing
        report_only: report on the runs that are finished, start nothing
    """
    from grounding_rewards.study.plan import read_plan
    from grounding_rewards.study.results import Folder
    from grounding_rewards.study.runs import missing_runs

    if dry_run and report_only:
        raise ValueError("Expected --dry-run or --report-only, got both. Leave one out.")
    if report_only:
        _report(out)
        return 0
    if config is None:
        raise ValueError("Expected the YAML of a study, got none. configs/study/ has some; --report-only needs none.")
    # A dry run starts nothing, so this machine may lack what the runs need, such as a GPU.
    plan = read_plan(config, dataset=dataset, elsewhere=dry_run)
    folder = Folder(out)
    runs = _selected_runs(plan, only, seeds, index)
    if dry_run:
        _print_runs(plan, runs, folder)
        return 0
    if starts_only:
        # Without any runs all initial checkpoints are made.
        runs = []
    elif index is not None and not folder.start(runs[0].start).is_file():
        raise ValueError(
            f"Expected the initial checkpoint {runs[0].start} in {str(out)!r} for --index, got none. Make all of them "
            "first, with --starts-only: jobs of an array would each make their own."
        )
    if not _make_runs(plan, folder, runs, jobs):
        return 1
    # A job of an array is a part of a study; only a finished study is reported.
    if index is None and not missing_runs(plan.runs, folder):
        _report(out)
    return 0


def _make_runs(plan: Plan, folder: Folder, runs: Sequence[Run], jobs: int) -> bool:
    """Make those runs that are not finished, or all initial checkpoints, and print how each ended.

    Args:
        plan: of the study.
        folder: of the study.
        runs: to be made with their initial checkpoints; if empty, initial checkpoints alone are made.
        jobs: runs at the same time.

    Returns:
        Whether none failed.
    """
    from grounding_rewards.study.runs import make_runs, missing_runs

    missing_names = [run.name for run in missing_runs(runs, folder)]
    if len(missing_names) < len(runs):
        say(f"{len(runs) - len(missing_names)} of {counted(len(runs), 'run')} finished before")
    ended_names: list[str] = []

    def print_end(name: str, error: str, seconds: float) -> None:
        """Print how a run or an initial checkpoint ended, and how many of the missing runs have ended by now."""
        if name in missing_names:
            ended_names.append(name)
        outcome = "failed" if error else "finished"
        say(f"{name}: {outcome} in {seconds:.0f} s ({len(ended_names)} of {len(missing_names)})", stderr=True)

    errors = make_runs(plan, folder, runs, jobs=jobs, on_end=print_end)
    goal = counted(len(runs), "run") if runs else counted(len(plan.starts), "initial checkpoint")
    say(f"{goal}: {len(errors)} failed")
    # All runs from an initial checkpoint that failed have its error: it is printed once, after all their names.
    for error in dict.fromkeys(errors.values()):
        failed_names = [name for name in errors if errors[name] == error]
        say(f"failed: {', '.join(failed_names)}: {error}", stderr=True)
    return not errors


def _report(study: Path) -> None:
    """Write the report of a study into its folder report/, and print its table of arms and its conclusions."""
    from rich.text import Text

    from grounding_rewards.study.report import arms_table, sentences, write_report

    out = study / "report"
    with stage_progress("reading the study") as on_progress:
        result = write_report(study, out, on_progress=on_progress)
    output_console(140).print(arms_table(result).rich(small=False))
    for sentence in sentences(result):
        output_console(140).print(Text(sentence))
    say(f"the report is in {out}")


def _selected_runs(plan: Plan, only: Sequence[str], seeds: Sequence[int], index: int | None) -> list[Run]:
    """The runs of a plan that the options `--only`, `--seeds` and `--index` choose, all without them; refuse unknown.

    The number of `--index` counts those runs that the other options leave.
    """
    arms = list(dict.fromkeys(run.arm for run in plan.runs))
    unknown = [name for name in only if name not in arms]
    if unknown:
        raise ValueError(f"Expected arms of the study for --only, got {', '.join(unknown)}. It has {', '.join(arms)}.")
    for seed in seeds:
        if seed not in plan.seeds:
            plan_seeds = ", ".join(map(str, plan.seeds))
            raise ValueError(f"Expected seeds of the study for --seeds, got {seed}. It has {plan_seeds}.")
    runs = [run for run in plan.runs if (not only or run.arm in only) and (not seeds or run.seed in seeds)]
    if index is None:
        return runs
    if not 0 <= index < len(runs):
        raise ValueError(f"Expected 0 to {len(runs) - 1} for --index, got {index}. --dry-run lists the runs.")
    return [runs[index]]


def _print_runs(plan: Plan, runs: Sequence[Run], folder: Folder) -> None:
    """Print a table of runs, each with its steps and its state, and what the missing ones cost in steps of GRPO."""
    from grounding_rewards.report.tables import Cell, Table
    from grounding_rewards.study.report import reward_text
    from grounding_rewards.study.runs import missing_runs

    missing = missing_runs(runs, folder)
    word_columns = [Cell(name, kind="words") for name in ("run", "role", "reward")]
    rows = []
    for number, run in enumerate(runs):
        state = "to be made" if run in missing else "finished"
        rows.append([str(number), run.name, run.role, reward_text(run.reward), str(run.config["max_steps"]), state])
    title = f"{plan.name}: {counted(len(runs), 'run')} from {counted(len(plan.starts), 'initial checkpoint')}"
    output_console(140).print(Table(["", *word_columns, "steps", "state"], rows, title).rich())
    # One step of a run costs as much as `equivalent` steps of GRPO.
    steps = sum(run.config["max_steps"] * run.equivalent for run in missing)
    say(f"{len(missing)} of {len(runs)} runs are to be made, {steps:.0f} steps")
