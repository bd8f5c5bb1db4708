"""Make the model of the demo: build it untrained, then teach it to point.

  python scripts/build_tiny_vlm.py                     # an hour and a half of two cores
  python scripts/build_tiny_vlm.py --max_steps 20      # does everything run here?

It learns by `grounding-rewards sft` with configs/demo/sft.yaml, in two trainings, the second one at half the learning
rate. Three in eight of the drawn images have a prompt as `grounding-rewards prepare` writes it. Options that are not
listed here go to both trainings.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from datasets import DatasetDict

from grounding_rewards.data.prompts import prompt_order, task_prompt, wordings
from grounding_rewards.models.tiny_vlm import BOX_FORMAT, save_untrained
from grounding_rewards.synthetic import LABELS, synthetic_dataset
from grounding_rewards.training.run_folder import CHECKPOINT, CONFIG

SFT = "configs/demo/sft.yaml"

#: Options of each training, which goes on where the one before it ended: masses are learned last.
TRAININGS = ((), ("--max_steps", "5000", "--learning_rate", "1.0e-3", "--seed", "1"))

# Weights, configuration, tokenizer and chat template; the card stays with the run.
_KEPT = (".safetensors", ".json", ".jinja")


def row_with_prompt(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The prompt and the answer of a drawn row: of eight five as drawn, two about all findings, one about one finding.

    An answer about one finding has the boxes of this finding alone.
    """
    rng = np.random.default_rng([0, number])
    prompt, boxes, labels = row["prompt"], row["boxes"], row["labels"]
    if number % 4 == 1:
        wording = int(rng.integers(wordings("detection")))
        prompt = task_prompt("detection", prompt_order(LABELS), BOX_FORMAT, wording=wording)
    elif number % 8 == 3:
        finding = str(rng.choice(prompt_order(LABELS)))
        prompt = task_prompt("finding", finding, BOX_FORMAT, wording=int(rng.integers(wordings("finding"))))
        boxes = [box for box, label in zip(boxes, labels, strict=True) if label == finding]
        labels = [finding] * len(boxes)
    return {"prompt": prompt, "boxes": boxes, "labels": labels}


def save_images(folder: Path, count: int) -> None:
    """Draw images and save them with their prompts."""
    # Phrases would contradict an answer about one finding. Without a split that is held out, images of train would be.
    columns = ["prompt", "image", "boxes", "labels", "width", "height", "id"]
    drawn = synthetic_dataset("train", count).select_columns(columns)
    held_out = synthetic_dataset("validation", 100).select_columns(columns)
    splits = {"train": drawn.map(row_with_prompt, with_indices=True), "validation": held_out}
    DatasetDict(splits).save_to_disk(folder)


def train(run: Path, model: Path, images: Path, overrides: Sequence[str]) -> None:
    """Train supervised in two processes, which share two cores best with one thread each."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "grounding_rewards.cli")
    words = ("--config", SFT, "--model_name_or_path", model, "--dataset", images, "--output_dir", run, "--overwrite")
    command = [sys.executable, *launcher, "sft", *words, *overrides]
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **os.environ}
    subprocess.run(list(map(str, command)), check=True, env=environment)


def main() -> None:
    """Read the arguments, build and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=Path("assets/tiny_vlm"), help="folder of the trained model")
    parser.add_argument("--runs", type=Path, default=Path("runs/tiny_vlm"), help="folder of the trainings")
    options, overrides = parser.parse_known_args()
    model, images = options.runs / "untrained", options.runs / "images"
    save_untrained(model)
    save_images(images, yaml.safe_load(Path(SFT).read_text(encoding="utf-8"))["train_images"])
    for number, changes in enumerate(TRAININGS, 1):
        run = options.runs / f"training_{number}"
        train(run, model, images, [*changes, *overrides])
        model = run / CHECKPOINT
    options.output.mkdir(parents=True, exist_ok=True)
    made = [path for path in model.iterdir() if path.suffix in _KEPT]
    for path in (*made, run / CONFIG):
        shutil.copy(path, options.output)


if __name__ == "__main__":
    main()
