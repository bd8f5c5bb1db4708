"""Ask checkpoints about all sets of a study, greedily, in one process: `python -m grounding_rewards.study.measure JOB`.

The job is a JSON file: `checkpoints` (folders, in order), `sets`, `box_format`, `batch_size`, `max_new_tokens`,
`images` (path of the references, written by the first job) and `output`. A process takes longer to start than a small
model to answer, so all checkpoints of a run are asked in one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset

from grounding_rewards.columns import BOX_COLUMNS, OPTIONAL_BOX_COLUMNS, SIZE_COLUMNS, image_id, patient_of
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.models.robustness import corrupt, corrupt_boxes
from grounding_rewards.study.plan import ImageSet
from grounding_rewards.study.results import read_json, write_json

if TYPE_CHECKING:
    from grounding_rewards.models.generate import Sampling

# Columns from which metrics are computed, besides `id` and `patient`.
_REFERENCE = (*SIZE_COLUMNS, "box_format", *BOX_COLUMNS)
# Columns with other boxes, or with a value for each box, which do not follow when the image is changed.
_OTHER_BOXES = ("phrases", *OPTIONAL_BOX_COLUMNS)


def load_set(image_set: ImageSet) -> Dataset:
    """Load the images of a set, and change them as the set says.

    Raises:
        ValueError: there are no such images, or no metric can be computed from the reference of a row.
    """
    from grounding_rewards.data.checks import without_bad_rows
    from grounding_rewards.data.dataset_columns import light_rows
    from grounding_rewards.logs.join import image_problems
    from grounding_rewards.prepare.load import load_split

    images = load_split(image_set.dataset, image_set.split, max_images=image_set.images)
    expected = "sizes, boxes and labels that fit the image"
    images = without_bad_rows(images, image_problems(light_rows(images)), expected, f"set {image_set.name}", "refuse")
    if not image_set.changes:
        return images
    # Only `boxes` and `labels` follow when an image is changed: columns of other boxes would no longer fit it.
    images = images.remove_columns([name for name in _OTHER_BOXES if name in images.column_names])
    rows = [_corrupted_row(images[number], image_set.changes, seed=number) for number in range(images.num_rows)]
    return Dataset.from_list(rows, features=images.features)


def _corrupted_row(row: dict[str, Any], changes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """The row with a changed image, and with the boxes that are still visible in it.

    Args:
        row: image, boxes, width and height; maybe labels. The image may be smaller than width × height (shrunken).
        changes: the strength of each change.
        seed: of the changes.
    """
    size = {"width": row["width"], "height": row["height"]}
    for kind, strength in changes.items():
        # Without the boxes, which are in pixels of width × height: those of a shrunken image are others.
        image = corrupt(row["image"], [], kind, strength, seed=seed).image
        boxes, is_visible = corrupt_boxes(row["boxes"], kind, strength, **size, seed=seed)
        labels = row.get("labels")
        row = {**row, "image": image, "boxes": boxes[is_visible].tolist()}
        if labels is not None:
            row["labels"] = [label for label, is_kept in zip(labels, is_visible, strict=True) if is_kept]
    return row


def references(images: Dataset) -> list[dict[str, Any]]:
    """A row for each image with the columns that metrics need, without pixels and prompt."""
    from grounding_rewards.data.dataset_columns import light_rows

    rows = []
    for number, row in enumerate(light_rows(images)):
        name = image_id(row, number)
        columns = {key: _rounded(row[key]) for key in _REFERENCE if row.get(key) is not None}
        # An image without a patient counts as one.
        rows.append({"id": name, "patient": patient_of(row) or name, **columns})
    return rows


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """Ask every checkpoint of a job about every set; the first job of a study also writes the references of the images.

    Args:
        job: the content of its file, see the head of this module.

    Returns:
        `box_format`, and `checkpoints`: for each in the order of the job its `sets`, with `answers` to the images.

    Raises:
        ValueError: the images are not those that earlier models were measured on, or model and images do not fit.
    """
    from grounding_rewards.models.generate import generate
    from grounding_rewards.models.load import load_later, load_model
    from grounding_rewards.parsing import box_format_for_model_type

    sets = {entry["name"]: load_set(ImageSet(**entry)) for entry in job["sets"]}
    box_format = job["box_format"]
    # Where neither the study nor the images say how boxes are written, it is the usual format of the model.
    if box_format is None and any("box_format" not in images.column_names for images in sets.values()):
        first_model, _ = load_later(job["checkpoints"][0])
        box_format = box_format_for_model_type(first_model.model_type)
    inputs: dict[str, tuple[Dataset, Sampling]] = {}
    measured = []
    for checkpoint in job["checkpoints"]:
        model, processor = load_model(checkpoint)
        # All checkpoints of a job are of one model: the processor of the first prepares the images for all.
        inputs = inputs or _prepare_inputs(job, sets, box_format, processor)
        completions = {}
        for name, (prompted, sampling) in inputs.items():
            texts = generate(model, processor, prompted, sampling, batch_size=job["batch_size"])
            # One greedy answer to each image.
            completions[name] = {"answers": [text for (text,) in texts]}
        measured.append({"sets": completions})
    return {"box_format": box_format, "checkpoints": measured}


def _prepare_inputs(
    job: Mapping[str, Any], sets: Mapping[str, Dataset], box_format: Any, processor: Any
) -> dict[str, tuple[Dataset, Sampling]]:
    """Prepare the images of each set for a model; return by set its rows with prompts, and how the model answers.

    On the way the references are written, or compared with those that an earlier job has written.
    """
    from grounding_rewards.data.dataset_columns import add_columns, add_prompts
    from grounding_rewards.images.resize import fit_images
    from grounding_rewards.models.generate import Sampling, reads_special_tokens
    from grounding_rewards.rewards.grounding import get_reward

    # A box format that is a mapping has no name for the column; the reward has it.
    format_name = box_format if isinstance(box_format, str) else None
    sized = {name: add_columns(images, processor, format_name) for name, images in sets.items()}
    _keep_references(Path(job["images"]), {name: references(images) for name, images in sized.items()})
    # Any reward would do: none is computed, only its box format is read.
    reward = get_reward("R3", box_format=box_format)
    inputs = {}
    for name, images in sized.items():
        prompted = fit_images(add_prompts(images, reward.box_format), processor)
        keeps_special_tokens = reads_special_tokens(images, reward, getattr(processor, "tokenizer", processor))
        sampling = Sampling(max_new_tokens=job["max_new_tokens"], skip_special_tokens=not keeps_special_tokens)
        inputs[name] = prompted, sampling
    return inputs


def _keep_references(path: Path, sets: Mapping[str, Any]) -> None:
    """Write the references of all sets, or refuse ones that differ from those that are written."""
    content = {"sets": dict(sets)}
    if not path.is_file():
        write_json(path, content)
    elif read_json(path) != content:
        raise ValueError(
            f"Expected the images that {path} lists, on which earlier models of the study were measured, got others: "
            "the dataset has changed, or this model sees images in another size. Restore it, or begin another study."
        )


def _rounded(value: Any) -> Any:
    """A value with all its floats, also in lists, rounded to two digits."""
    if isinstance(value, float):
        return round(value, 2)
    return [_rounded(number) for number in value] if isinstance(value, list) else value


def main() -> None:
    """Do the job whose file the command line names, and write what was measured into its `output`."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        measured = measure(job)
    except ValueError as error:
        sys.exit(str(error))
    write_whole(Path(job["output"]), json.dumps(measured))


if __name__ == "__main__":
    main()
