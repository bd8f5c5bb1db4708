"""Train on a folder of films as it is: images, and `annotations.jsonl`, which `data.readers.jsonl` describes.

Here a film without `split` is one of `train`; of the optional keys only `id`, `split` and `patient_id` are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.data.film_paths import film_path
from grounding_rewards.data.images import open_film
from grounding_rewards.data.prompts import prompt_messages, prompt_order
from grounding_rewards.data.readers.documents import json_lines
from grounding_rewards.data.readers.jsonl import ANNOTATIONS
from grounding_rewards.data.readers.tables import scaled_box

if TYPE_CHECKING:
    from datasets import Dataset

_REQUIRED: Mapping[str, type | tuple[type, ...]] = {
    "file": str,
    "width": (int, float),
    "height": (int, float),
    "boxes": list,
    "labels": list,
}


def load_films(root: str | Path, split: str | None = None, *, allow_outside: bool = False) -> Dataset:
    """Load the films of a folder with the columns that every part of the package uses.

    The prompt names the labels of all films in the folder, of every split, in alphabetical order: so the prompt of a
    film depends neither on the split that was asked for nor on the order of the lines.

    Args:
        root: the folder that holds `annotations.jsonl`.
        split: only films of this split; None takes all.
        allow_outside: whether images may lie outside the folder.

    Returns:
        Columns prompt, image, boxes (xyxy pixels), labels, width, height, id, and patient_id where a film has one.

    Raises:
        ValueError: no such file, a line that cannot be read (named by number), an image that is missing, or no film in
            the split.
    """
    from datasets import Dataset, Image

    root = Path(root)
    rows = list(_read(root, allow_outside))
    vocabulary = prompt_order(label for row in rows for label in row["labels"])
    if not vocabulary:
        raise ValueError(
            f"Expected at least one labelled box in {root / ANNOTATIONS}, got none. "
            "Add films with findings, so that the prompt can say what to look for."
        )
    chosen = [row for row in rows if split in (None, split_of(row))]
    if not chosen:
        known = ", ".join(sorted(set(map(split_of, rows))))
        raise ValueError(
            f"Expected one of {known} for split, got {split!r}. Choose a split of {root}, or give its films one in "
            f'{ANNOTATIONS}: "split": "{split}", the films of a patient on one side.'
        )
    columns: dict[str, Any] = {
        "prompt": [prompt_messages(vocabulary)] * len(chosen),
        "image": [str(root / row["file"]) for row in chosen],
        "boxes": [[[float(value) for value in box] for box in row["boxes"]] for row in chosen],
        "labels": [row["labels"] for row in chosen],
        "width": [int(row["width"]) for row in chosen],
        "height": [int(row["height"]) for row in chosen],
        "id": [str(row.get("id", row["file"])) for row in chosen],
    }
    if any("patient_id" in row for row in chosen):
        columns["patient_id"] = [str(row.get("patient_id", "")) for row in chosen]
    return Dataset.from_dict(columns).cast_column("image", Image())


def write_square_films(root: str | Path, output: str | Path, size: int) -> None:
    """Copy a folder of films, resizing every film, and its boxes, to a square.

    A small model learns boxes faster on films of one shape. The IoU of two boxes does not change, because each axis is
    scaled as a whole.

    Args:
        root: the folder that holds `annotations.jsonl`.
        output: the new folder; images become 8-bit grey PNG files, all other keys of a film are kept.
        size: side in pixels.

    Raises:
        ValueError: as `load_films`.
    """
    from PIL.Image import Resampling

    output = Path(output)
    lines = []
    for row in _read(Path(root)):
        file = Path("images", *Path(row["file"]).with_suffix(".png").parts)
        (output / file).parent.mkdir(parents=True, exist_ok=True)
        image = open_film(Path(root) / row["file"]).convert("L")
        image.resize((size, size), Resampling.BICUBIC, reducing_gap=3.0).save(output / file)
        boxes = [scaled_box(box, size / row["width"], size / row["height"]) for box in row["boxes"]]
        lines.append(json.dumps({**row, "file": file.as_posix(), "width": size, "height": size, "boxes": boxes}))
    (output / ANNOTATIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _read(root: Path, allow_outside: bool = False) -> Iterator[dict[str, Any]]:
    path = root / ANNOTATIONS
    if not path.is_file():
        raise ValueError(
            f"Expected a folder with {ANNOTATIONS} for root, got {str(root)!r}. "
            "Write one JSON object per film with file, width, height, boxes and labels."
        )
    problems = []
    for number, row, no_object in json_lines(path):
        if problem := no_object or _problem(row, root, allow_outside):
            problems.append(f"line {number}: {problem}")
        else:
            yield row
    if problems:
        raise ValueError(
            f"Expected one film per line in {path}, got {len(problems)} bad lines. Correct:\n" + "\n".join(problems)
        )


def split_of(row: Mapping[str, Any]) -> str:
    """The split of a film; one without a split belongs to `train`.

    Args:
        row: a line of `annotations.jsonl`.

    Example:
        >>> split_of({"split": "test"}), split_of({"split": None}), split_of({})
        ('test', 'train', 'train')
    """
    return str(row.get("split") or "train")


def _problem(row: Mapping[str, Any], root: Path, allow_outside: bool) -> str | None:
    """What is wrong with a line; its geometry is checked before training."""
    for key, kind in _REQUIRED.items():
        if not isinstance(row.get(key), kind):
            return f"{key} is {row.get(key)!r}"
    if any(not isinstance(box, Sequence) or len(box) != 4 for box in row["boxes"]):
        return f"boxes is {row['boxes']!r}, not lists of four numbers"
    try:
        path = film_path(root, row["file"], allow_outside=allow_outside)
    except ValueError as error:
        return str(error)
    if not path.is_file():
        return f"no such image: {row['file']}"
    return None
