"""Write the boxes of an evaluation as DICOM SR: a measurement report (TID 1500) per DICOM image, unverified and marked
as research.

OUT is a new or empty folder.

examples:
  grounding-rewards export runs/eval --dicom data/vindr/test --name my-model --out exports/reports
"""

from __future__ import annotations

from pathlib import Path

from grounding_rewards.commands.console import say
from grounding_rewards.common.atomic_files import check_new, whole_folder
from grounding_rewards.exchange.dicom_sr import write_dicom_sr
from grounding_rewards.logs.run_log import model_name
from grounding_rewards.metrics.evaluation import read_evaluation
from grounding_rewards.metrics.prediction import load_predictions


def run(evaluation: Path, /, *, out: Path, dicom: Path | None = None, name: str | None = None) -> int:
    """Write the reports of an evaluation.

    Args:
        evaluation: folder of an evaluation
        out: folder to make
        dicom: where the DICOM images are, named like the images
        name: of the model; default: that of the evaluation
    """
    images = load_predictions(evaluation)
    check_new(out, "--out")
    stored = read_evaluation(evaluation)
    # The evaluation of a log names no model; its first system has the name of the log.
    model = name or model_name(str(stored.facts.get("model", ""))) or next(iter(stored.systems), "model")
    with whole_folder(out) as unfinished:
        reports, left_out = write_dicom_sr(images, unfinished, model=model, dicom=dicom)
    lines = [f"{reports} of {len(images)} images have a report in {out}"]
    for reason, ids in left_out.items():
        lines.append(f"left out because {reason}: {len(ids)}, the first {ids[0]!r}")
    say("\n".join(lines))
    return 0
