"""Write the images and boxes of an evaluation, or its metrics, for another tool.

  coco        ground_truth.json and results.json for pycocotools and its kin
  cvat        reference.zip and predictions.zip for the format COCO 1.0, labels.json for the task
  dicom-sr    a measurement report (TID 1500) per DICOM image, unverified and marked as research
  model-card  a model-index block and a table of the metrics, for the README.md of a model

OUT is a new or empty folder; for model-card a file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from grounding_rewards.commands.console import say
from grounding_rewards.common.whole_files import whole_folder, write_whole
from grounding_rewards.exchange.coco import write_coco, write_cvat
from grounding_rewards.exchange.dicom_sr import write_dicom_sr
from grounding_rewards.exchange.model_card import evaluated_model, model_card_block
from grounding_rewards.metrics.answered_image import AnsweredImage, read_answered
from grounding_rewards.metrics.evaluation import read_evaluation

EXAMPLES = """\
examples:
  grounding-rewards export runs/eval --to coco --out exports/coco
  grounding-rewards export runs/eval --to dicom-sr --dicom data/vindr/test --out exports/reports
  grounding-rewards export runs/eval --to model-card --name my-model --out MODEL_CARD.md
"""

#: Options that only some formats take.
_OPTIONS = {
    "dicom": ("dicom-sr",),
    "system": ("model-card",),
    "name": ("dicom-sr", "model-card"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `grounding-rewards export`."""
    parser.add_argument("run", type=Path, help="folder of an evaluation, or its images.jsonl")
    parser.add_argument("--to", required=True, choices=[*_WRITERS, "model-card"], help="the format")
    parser.add_argument("--out", required=True, type=Path, metavar="PATH", help="folder to make; a file for model-card")
    parser.add_argument(
        "--dicom", type=Path, metavar="FOLDER", help="where the DICOM images are, named like the images"
    )
    parser.add_argument("--system", metavar="NAME", help="whose metrics the model card has; default: the model's")
    parser.add_argument("--name", metavar="NAME", help="of the model; default: that of the evaluation's first column")


def run(options: argparse.Namespace) -> int:
    """Write an evaluation for another tool."""
    _check_options(options)
    out: Path = options.out
    if options.to == "model-card":
        evaluation = read_evaluation(options.run, required=True)
        block = model_card_block(evaluation, name=options.name, system=options.system)
        _check_new(out, out.exists())
        write_whole(out, block)
        say(f"wrote {out}")
        return 0
    images = read_answered(options.run)
    _check_new(out, out.exists() and (not out.is_dir() or any(out.iterdir())))
    with whole_folder(out) as unfinished:
        message = _WRITERS[options.to](images, unfinished, options)
    say(f"wrote {len(images)} images to {out}" if message is None else message)
    return 0


def _dicom_sr(images: Sequence[AnsweredImage], out: Path, options: argparse.Namespace) -> str:
    written = write_dicom_sr(images, out, model=_model(options), dicom=options.dicom)
    left_out = [
        f"left out because {why}: {len(ids)}, the first {ids[0]!r}"
        for ids, why in (
            (written.without_file, "there is no DICOM file"),
            (written.without_answer, "the answer has neither a box nor a no-finding statement"),
        )
        if ids
    ]
    return "\n".join([f"{written.reports} of {len(images)} images have a report in {options.out}", *left_out])


_WRITERS: Mapping[str, Callable[[Sequence[AnsweredImage], Path, argparse.Namespace], str | None]] = {
    "coco": lambda images, out, _: write_coco(images, out),
    "cvat": lambda images, out, _: write_cvat(images, out),
    "dicom-sr": _dicom_sr,
}


def _model(options: argparse.Namespace) -> str:
    return options.name or evaluated_model(read_evaluation(options.run))


def _check_options(options: argparse.Namespace) -> None:
    for name, formats in _OPTIONS.items():
        if getattr(options, name) is not None and options.to not in formats:
            raise ValueError(
                f"Expected --{name.replace('_', '-')} with --to {' or '.join(formats)} only, got --to {options.to}. "
                "Leave it out."
            )


def _check_new(out: Path, taken: bool) -> None:
    if taken:
        raise ValueError(f"Expected a new or empty place for --out, got {str(out)!r} with files. Name another one.")
