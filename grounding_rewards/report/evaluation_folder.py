"""The folder of an evaluation: metrics, images with their answers, plots and the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grounding_rewards.common.atomic_files import check_settings, whole_folder, write_whole
from grounding_rewards.metrics.evaluation import evaluation_file, read_evaluation, write_evaluation
from grounding_rewards.metrics.prediction import save_predictions
from grounding_rewards.report.evaluation_page import EvaluationPage, render_evaluation_page
from grounding_rewards.report.plots import write_plots


def check_evaluation_folder(folder: Path, command: str) -> None:
    """Refuse a folder with another evaluation, which would be lost.

    Args:
        folder: to be written.
        command: options of the evaluation that is to be written.

    Raises:
        ValueError: it is a file, or has files of another command.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected a folder for --out, got the file {str(folder)!r}. Give another name.")
    files = [name for name in ("evaluation.json", "images.jsonl", "report.html") if (folder / name).exists()]
    if files:
        previous = read_evaluation(folder).command if evaluation_file(folder).is_file() else None
        previous = previous or f"{files[0]} of another one"
        remedy = "Name another folder, or replace what is there with --overwrite."
        check_settings(folder, {"evaluate": previous}, {"evaluate": command}, remedy)


def write_evaluation_folder(folder: Path, page: EvaluationPage) -> None:
    """Write all files of an evaluation, or none: what the folder held before stays until all are there.

    Args:
        folder: is made.
        page: with the metrics and images.
    """
    with whole_folder(folder) as unfinished:
        save_predictions(unfinished / "images.jsonl", page.images)
        write_evaluation(unfinished, page.evaluation)
        plots = {path.name for path in write_plots(page.plots, unfinished / "metrics")}
        write_whole(unfinished / "report.html", render_evaluation_page(page))
    for path in (folder / "metrics").iterdir():
        if path.name not in plots:
            # A plot of an evaluation before, which had other metrics.
            path.unlink()


def evaluated_images(facts: Mapping[str, Any]) -> str:
    """Number and source of the images of an evaluation, for a title.

    Args:
        facts: of the evaluation.

    Example:
        >>> counts = {"images": 8, "patients": 3, "images without a finding": 2, "reference boxes": 9}
        >>> evaluated_images({**counts, "dataset": "data/vindr", "split": "test"})
        '8 images of 3 patients of vindr (test), 2 without a finding, 9 reference boxes'
    """
    split = f" ({facts['split']})" if facts["split"] else ""
    patients = f" of {facts['patients']} patients" if isinstance(facts["patients"], int) else ""
    # The name of the dataset alone: its path is among the facts.
    return (
        f"{facts['images']} images{patients} of {Path(facts['dataset']).name}{split}, "
        f"{facts['images without a finding']} without a finding, {facts['reference boxes']} reference boxes"
    )
