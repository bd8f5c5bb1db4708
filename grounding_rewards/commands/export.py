"""Write the images and boxes of an evaluation for another tool.

  coco        ground_truth.json and results.json for pycocotools and its kin
  dicom-sr    a measurement report (TID 1500) per DICOM image, unverified and marked as research

OUT is a new or empty folder.

examples:
  grounding-rewards export runs/eval --to coco --out exports/coco
  grounding-rewards export runs/eval --to dicom-sr --dicom data/vindr/test --name my-model --out exports/reports
"""

from pathlib import Path
from typing import Literal

from grounding_rewards.commands.console import say
from grounding_rewards.common.atomic_files import check_new, whole_folder
from grounding_rewards.exchange.coco import write_coco
from grounding_rewards.exchange.dicom_sr import write_dicom_sr
from grounding_rewards.logs.run_log import model_name
from grounding_rewards.metrics.evaluation import read_evaluation
from grounding_rewards.metrics.prediction import load_predictions


def run(
    evaluation: Path,
    /,
    *,
    to: Literal["coco", "dicom-sr"],
    out: Path,
    dicom: Path | None = None,
    name: str | None = None,
) -> int:
    """Write an evaluation for another tool.

    Args:
        evaluation: folder of an evaluation, or its images.jsonl
        to: the format
        out: folder to make
        dicom: of dicom-sr: where the DICOM images are, named like the images
        name: of dicom-sr: the model; default: that of the evaluation
    """
    for option, value in (("dicom", dicom), ("name", name)):
        if value is not None and to != "dicom-sr":
            raise ValueError(f"Expected --{option} with --to dicom-sr only, got --to {to}. Leave it out.")
    images = load_predictions(evaluation)
    check_new(out, "--out")
    with whole_folder(out) as unfinished:
        if to == "coco":
            write_coco(images, unfinished)
            lines = [f"wrote {len(images)} images to {out}"]
        else:
            stored = read_evaluation(evaluation)
            # The evaluation of a log names no model; its first system has the name of the log.
            model = name or model_name(str(stored.facts.get("model", ""))) or stored.system
            reports, left_out = write_dicom_sr(images, unfinished, model=model, dicom=dicom)
            lines = [f"{reports} of {len(images)} images have a report in {out}"]
            for reason, ids in left_out.items():
                lines.append(f"left out because {reason}: {len(ids)}, the first {ids[0]!r}")
    say("\n".join(lines))
    return 0
