"""Write the images and boxes of an evaluation, or its metrics, for another tool.

  coco        ground_truth.json and results.json for pycocotools and its kin
  dicom-sr    a measurement report (TID 1500) per DICOM image, unverified and marked as research
  model-card  a model-index block and a table of the metrics, for the README.md of a model

OUT is a new or empty folder; for model-card a file.

examples:
  grounding-rewards export runs/eval --to coco --out exports/coco
  grounding-rewards export runs/eval --to dicom-sr --dicom data/vindr/test --out exports/reports
  grounding-rewards export runs/eval --to model-card --name my-model --out MODEL_CARD.md
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from grounding_rewards.commands.console import say
from grounding_rewards.common.atomic_files import check_new, whole_folder, write_whole
from grounding_rewards.exchange.coco import write_coco
from grounding_rewards.exchange.dicom_sr import write_dicom_sr
from grounding_rewards.exchange.model_card import evaluated_model, model_card_block
from grounding_rewards.metrics.evaluation import read_evaluation
from grounding_rewards.metrics.prediction import load_predictions


def run(
    evaluation: Path,
    /,
    *,
    to: Literal["coco", "dicom-sr", "model-card"],
    out: Path,
    dicom: Path | None = None,
    name: str | None = None,
) -> int:
    """Write an evaluation for another tool.

    Args:
        evaluation: folder of an evaluation, or its images.jsonl
        to: the format
        out: folder to make; a file for model-card
        dicom: where the DICOM images are, named like the images; of dicom-sr
        name: of the model, for dicom-sr and model-card; default: that of the evaluation's first column
    """
    for option, value, formats in (("dicom", dicom, ["dicom-sr"]), ("name", name, ["dicom-sr", "model-card"])):
        if value is not None and to not in formats:
            raise ValueError(f"Expected --{option} with --to {' or '.join(formats)} only, got --to {to}. Leave it out.")
    if to == "model-card":
        block = model_card_block(read_evaluation(evaluation, required=True), name=name)
        check_new(out, "--out")
        write_whole(out, block)
        say(f"wrote {out}")
        return 0
    images = load_predictions(evaluation)
    check_new(out, "--out")
    with whole_folder(out) as unfinished:
        if to == "coco":
            write_coco(images, unfinished)
            lines = [f"wrote {len(images)} images to {out}"]
        else:
            model = name or evaluated_model(read_evaluation(evaluation))
            reports = write_dicom_sr(images, unfinished, model=model, dicom=dicom)
            lines = [f"{reports.reports} of {len(images)} images have a report in {out}"]
            for reason, ids in (
                ("there is no DICOM file", reports.without_file),
                ("the answer has neither a box nor a no-finding statement", reports.without_answer),
            ):
                if ids:
                    lines.append(f"left out because {reason}: {len(ids)}, the first {ids[0]!r}")
    say("\n".join(lines))
    return 0
