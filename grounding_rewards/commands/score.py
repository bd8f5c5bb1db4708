"""Score a file of completions without a model: text in, every component of every reward out.

The file is .jsonl, .json, .csv or .parquet; or it is the folder of a run that logged its completions,
with one such file a step. A row has the completion (column completion, text, response, output, answer, …; with two of
them --text-column names one) and what it is scored against: boxes (x1, y1, x2, y2 in original pixels), and, as far as
the box format and the rewards need them, width, height, resized_width, resized_height, labels, ignore_boxes,
reader_boxes and box_format. `grounding-rewards evaluate` writes such files.

A row of the output has row, id, status, rejected and boxes, and for a reward R3 the columns R3,
R3/f_beta, R3/quality, R3/precision, R3/recall, R3/mean_iou, R3/tp, R3/fp, R3/fn and R3/reason. The output is in the
order of the file, and appears once it is complete.

examples:
  grounding-rewards score completions.jsonl --rewards R3 --box-format qwen2.5-vl --out scored.jsonl
  grounding-rewards score run/completions.jsonl --rewards R1 R2 R3 R4 R5 --out scored.jsonl --processes 8
  grounding-rewards score runs/r4 --rewards R3 soft_f1 --out scored.jsonl
  grounding-rewards score log.csv --rewards R4:iou_threshold=0.4 random:seed=3 --out scored.jsonl
"""

from functools import partial
from pathlib import Path

from grounding_rewards.commands.console import say, stage_progress
from grounding_rewards.commands.options import BoxFormat, Rewards, TextColumn, rewards_from_words


def run(
    completions: Path,
    /,
    *,
    rewards: Rewards,
    out: Path,
    box_format: BoxFormat = None,
    text_column: TextColumn = None,
    processes: int | None = None,
) -> int:
    """Score the file, and print the means.

    Args:
        completions: file with completions, or the folder of a run
        out: a .jsonl file to write
        processes: that score; default: 1
    """
    from grounding_rewards.logs.score_file import score_file

    judges = rewards_from_words(rewards, box_format)
    with stage_progress() as on_progress:
        summary = score_file(
            completions,
            out,
            list(judges.values()),
            text_column=text_column,
            processes=processes,
            on_progress=partial(on_progress, "scoring"),
        )
    for warning in summary.warnings:
        say(f"warning: {warning}", stderr=True)
    print(f"{summary.completions} completions")
    print(", ".join(f"{status} {count}" for status, count in summary.statuses.items()))
    print(", ".join(f"mean {name} {mean:.4f}" for name, mean in summary.means.items()))
    return 0
