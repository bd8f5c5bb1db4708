"""Answer "which reward?" on your own images: runs of every arm with several seeds from the same initial checkpoint, at
the same cost, each measured on images never trained on, and on images from elsewhere.

The YAML names initial checkpoints (`starts`), arms (a reward, its parameters, or any other option of `train`),
controls, seeds, sets, and, before any run, the metrics that decide. configs/study/ has some; docs/run_a_study.md
explains every key. The folder --out then holds

  study.yaml, images.json   what was asked, and the references
  starts/, results/        a small file for each checkpoint and run: metrics, curves and pages are made from these alone
  runs/, logs/             trainings that are not finished, and what the programs printed

  report/                  the report, made when all runs that were asked for are finished

The same command resumes an interrupted study: finished runs stay, others continue from their last checkpoint. Arms and
seeds can be added. A folder of another study is refused.

examples:
  grounding-rewards study configs/study/drawn.yaml --out runs/drawn --dry-run       # the runs, and what they cost
  grounding-rewards study configs/study/drawn.yaml --out runs/drawn --jobs 2
  grounding-rewards study configs/study/drawn.yaml --out runs/drawn --only R3 soft_f1
  grounding-rewards study configs/study/lungs.yaml --dataset path/to/images --out runs/lungs
  grounding-rewards study --report-only --out runs/drawn --report page        # without any training

exit code:
  0  all runs that were asked for are finished        1  a run failed        2  a wrong file, argument or folder
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from grounding_rewards.commands.console import output_console, say, say_loading, stage_progress, step_status
from grounding_rewards.commands.options import in_range

if TYPE_CHECKING:
    from grounding_rewards.study.plan import Plan, Run
    from grounding_rewards.study.results import Folder
    from grounding_rewards.study.runs import Ended


def run(
    config: Path | None = None,
    /,
    *,
    out: Path,
    dataset: str | None = None,
    jobs: Annotated[int, in_range(1)] = 1,
    only: Sequence[str] = (),
    index: int | None = None,
    report: Path | None = None,
    dry_run: bool = False,
    report_only: bool = False,
) -> int:
    """Plan, run, and say what failed.

    Args:
        config: YAML of the study; not needed with --report-only
        out: folder of the study
        dataset: images, instead of those that the YAML names at its top
        jobs: runs at the same time
        only: only runs of these arms
        index: only the run of this number, from 0, which is a job of an array
        report: folder of the report; default: report/ in --out
        dry_run: list the runs with their cost, and start nothing
        report_only: report on the runs that are finished, start nothing
    """
    if not report_only:
        say_loading("PyTorch, transformers and TRL")
    from grounding_rewards.commands.train import hide_name_warnings
    from grounding_rewards.study.plan import read_plan
    from grounding_rewards.study.results import Folder
    from grounding_rewards.study.runs import FAILED, make_runs

    if dry_run and report_only:
        raise ValueError("Expected --dry-run or --report-only, got both. Leave one out.")
    report = report or out / "report"
    if report_only:
        _report(out, report)
        return 0
    if config is None:
        raise ValueError("Expected the YAML of a study, got none. configs/study/ has some; --report-only needs none.")
    hide_name_warnings()
    plan = read_plan(config, dataset=dataset, elsewhere=dry_run)
    folder = Folder(out)
    runs = _chosen(plan, only, index)
    if dry_run:
        _list(plan, runs, folder)
        return 0
    with _progress(len(runs)) as (begin, end):
        ended = make_runs(plan, folder, runs, jobs=jobs, on_begin=begin, on_end=end)
    _sum_up(ended)
    if any(one.state == FAILED for one in ended):
        return 1
    # Jobs of an array and chosen arms are parts of a study; the whole is reported.
    if index is None and all(folder.result(one.name).is_file() for one in plan.runs):
        _report(out, report)
    return 0


def _report(study: Path, out: Path) -> None:
    from rich.text import Text

    from grounding_rewards.study.report import arms_tables, sentences, write_report

    with step_status("reading the study") as on_progress:
        found = write_report(study, out, on_progress=on_progress)
    for table in arms_tables(found):
        output_console(140).print(table.rich(small=False))
    for sentence in sentences(found):
        output_console(140).print(Text(sentence))
    say(f"the report is in {out}")


def _chosen(plan: Plan, only: Sequence[str], index: int | None) -> list[Run]:
    arms = list(dict.fromkeys(run.arm for run in plan.runs))
    if unknown := [name for name in only if name not in arms]:
        raise ValueError(f"Expected arms of the study for --only, got {', '.join(unknown)}. It has {', '.join(arms)}.")
    runs = [run for run in plan.runs if not only or run.arm in only]
    if index is None:
        return runs
    if not 0 <= index < len(runs):
        raise ValueError(f"Expected 0 to {len(runs) - 1} for --index, got {index}. --dry-run lists the runs.")
    return [runs[index]]


def _list(plan: Plan, runs: Sequence[Run], folder: Folder) -> None:
    from grounding_rewards.report.tables import Cell, Table
    from grounding_rewards.study.report import reward_text
    from grounding_rewards.study.runs import estimated_cost

    words = [Cell(name, kind="words") for name in ("run", "role", "reward")]
    rows = []
    for number, one in enumerate(runs):
        state = "finished" if folder.result(one.name).is_file() else "to be made"
        rows.append([str(number), one.name, one.role, reward_text(one.reward), str(one.config["max_steps"]), state])
    title = f"{plan.name}: {len(runs)} runs from {len(plan.starts)} initial checkpoints"
    output_console(140).print(Table(["", *words, "steps", "state"], rows, title).rich())
    say(estimated_cost(runs, folder))


def _sum_up(ended: Sequence[Ended]) -> None:
    from grounding_rewards.study.runs import ELSEWHERE, FAILED, FINISHED, KNOWN

    counts = {state: sum(one.state == state for one in ended) for state in (FINISHED, KNOWN, ELSEWHERE, FAILED)}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    say(f"{len(ended)} runs: {said or 'none'}")
    for why in dict.fromkeys(one.why for one in ended if one.state == FAILED):
        # Runs whose start failed have failed for one reason.
        names = ", ".join(one.name for one in ended if one.why == why)
        say(f"failed: {names}: {why}", error=True)
    if counts[ELSEWHERE]:
        say("Runs at work elsewhere belong to another process of this study; give the command again when it is done.")


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[Ended], None]]]:
    """A bar over runs with the names of those at work; in a log, a line for each that is done."""
    working: list[str] = []
    done = 0
    with stage_progress("starting", patience=0.0) as on_progress:

        def begin(name: str) -> None:
            working.append(name)
            on_progress(", ".join(working), done, total)

        def end(one: Ended) -> None:
            nonlocal done
            if one.name in working:
                working.remove(one.name)
            # A start is no run.
            done += not one.name.startswith("start ")
            if one.seconds:
                say(f"{one.name}: {one.state} in {one.seconds:.0f} s ({done} of {total})", error=True)
            on_progress(", ".join(working) or "waiting", done, total)

        yield begin, end
