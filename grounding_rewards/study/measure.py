"""Ask checkpoints about all sets of a study, greedily, in one process: `python -m grounding_rewards.study.measure JOB`.

The job is a JSON file: `checkpoints` (folders, in order), `sets`, `box_format`, `batch_size`, `max_new_tokens`,
`images` (where the references stand, or are to be written) and `output`. A process takes longer to start than a small
model to answer, so all checkpoints of a run are asked in one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS, patient_of
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.models.robustness import corrupt
from grounding_rewards.study.plan import ImageSet

# What metrics are computed from, beside `id` and `patient`.
_REFERENCE = (*SIZE_COLUMNS, "box_format", *BOX_COLUMNS)
# Columns of boxes, and of what belongs to each, that a change of the image would have to move along.
_OTHER_BOXES = ("phrases", *BOX_COLUMNS[2:])


def load_set(one: ImageSet) -> Dataset:
    """The images of a set, changed as it says.

    Raises:
        ValueError: there are no such images, or a row has a reference that no metric can be computed of.
    """
    from grounding_rewards.data.checks import without_bad_rows
    from grounding_rewards.data.dataset_columns import light_rows
    from grounding_rewards.logs.join import image_problems
    from grounding_rewards.prepare.load import load_split

    images = load_split(one.dataset, one.split, max_images=one.images)
    expected = "sizes, boxes and labels that fit the image"
    images = without_bad_rows(images, image_problems(light_rows(images)), expected, f"set {one.name}", "refuse")
    if not one.changes:
        return images
    images = images.remove_columns([name for name in _OTHER_BOXES if name in images.column_names])
    changed = (_changed(images[number], one.changes, number) for number in range(images.num_rows))
    return Dataset.from_list(list(changed), features=images.features)


def _changed(row: dict[str, Any], changes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """An image after some changes, with the boxes that still lie in it."""
    for kind, strength in changes.items():
        found = corrupt(row["image"], row["boxes"], kind, strength, seed=seed)
        labels = [label for label, kept in zip(row["labels"], found.kept, strict=True) if kept]
        width, height = found.image.size
        kept = {"boxes": found.boxes[found.kept].tolist(), "labels": labels, "width": width, "height": height}
        row = {**row, "image": found.image, **kept}
    return row


def references(images: Dataset) -> list[dict[str, Any]]:
    """What metrics need to know of each image: no pixel, no prompt."""
    from grounding_rewards.data.dataset_columns import light_rows

    found = []
    for number, row in enumerate(light_rows(images)):
        name = str(row.get("id", number))
        kept = {key: _rounded(row[key]) for key in _REFERENCE if row.get(key) is not None}
        found.append({"id": name, "patient": patient_of(row) or name, **kept})
    return found


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """Ask every checkpoint about every set, and write the references where they are not written yet.

    Returns:
        `box_format`, and `checkpoints`: for each its `sets`, with `answers` in the order of the images.

    Raises:
        ValueError: the images are not those that earlier models were measured on, or model and images do not fit.
    """
    from grounding_rewards.data.dataset_columns import add_columns, add_prompts
    from grounding_rewards.images.resize import fit_images
    from grounding_rewards.models.generate import Sampling, generate, reads_special_tokens
    from grounding_rewards.models.load import load_model, model_type_of
    from grounding_rewards.parsing import box_format_for_model_type, box_format_from_option
    from grounding_rewards.rewards.grounding import get_reward

    sets = {one["name"]: load_set(ImageSet(**one)) for one in job["sets"]}
    given = box_format_from_option(job["box_format"])
    named = given if isinstance(given, str) else None
    if given is None and any("box_format" not in images.column_names for images in sets.values()):
        named = box_format_for_model_type(model_type_of(job["checkpoints"][0]))
    reward = get_reward("R3", box_format=given or named)
    asked: dict[str, tuple[Dataset, Sampling]] = {}
    found = []
    for checkpoint in job["checkpoints"]:
        model, processor = load_model(checkpoint)
        if not asked:
            sized = {name: add_columns(images, processor, named) for name, images in sets.items()}
            _keep_references(Path(job["images"]), {name: references(images) for name, images in sized.items()})
            for name, images in sized.items():
                shown = fit_images(add_prompts(images, reward.box_format), processor)
                kept = reads_special_tokens(images, reward, getattr(processor, "tokenizer", processor))
                asked[name] = shown, Sampling(max_new_tokens=job["max_new_tokens"], skip_special_tokens=not kept)
        answers = {}
        for name, (shown, sampling) in asked.items():
            texts = generate(model, processor, shown, sampling, batch_size=job["batch_size"])
            answers[name] = {"answers": [text for (text,) in texts]}
        found.append({"sets": answers})
    return {"box_format": given or named, "checkpoints": found}


def _keep_references(path: Path, sets: Mapping[str, Any]) -> None:
    content = {"sets": dict(sets)}
    if not path.is_file():
        write_whole(path, json.dumps(content, ensure_ascii=True, separators=(",", ":")) + "\n")
    elif json.loads(path.read_text(encoding="utf-8")) != content:
        raise ValueError(
            f"Expected the images that {path} lists, on which earlier models of the study were measured, got others: "
            "the dataset has changed, or this model sees images in another size. Restore it, or begin another study."
        )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 2)
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def main() -> None:
    """Do the job that is named on the command line."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        found = measure(job)
    except ValueError as error:
        sys.exit(str(error))
    write_whole(Path(job["output"]), json.dumps(found))


if __name__ == "__main__":
    main()
