"""Load any dataset by one name: drawn images, a folder of images, a prepared or saved dataset, a dataset on the hub.

A folder of images is trained on as it is: images, and `annotations.jsonl`, which `sources.jsonl` describes. Whatever a
line says becomes a column; an image without a prompt is asked about when the model's box format is known, by
`data.dataset_columns.add_prompts`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import stated_name
from grounding_rewards.common.validation import Interval, check_number, check_word
from grounding_rewards.data.checks import BAD_ROWS, warn_of_dropped
from grounding_rewards.data.dataset_columns import ExtraColumns
from grounding_rewards.data.prompts import LOOKED_FOR, conversation, prompt_order
from grounding_rewards.data.splits import ALL, TRAIN, check_split_exists, in_usual_order, splits_of_rows
from grounding_rewards.images.decoding import image_path
from grounding_rewards.prepare.examples import column_types
from grounding_rewards.prepare.manifest import MANIFEST, split_shards
from grounding_rewards.sources.base import split_name
from grounding_rewards.sources.jsonl import ANNOTATIONS, KNOWN_KEYS, annotated_image, sound_rows
from grounding_rewards.sources.tables import RowPlace, header_size

if TYPE_CHECKING:
    from datasets import Dataset

# Columns of every folder; the other ones that the package knows are there where an image has them.
_ALWAYS = ("image", "boxes", "labels", "width", "height", "id", "split")


def load_images(
    root: str | Path, split: str | None = None, *, allow_outside: bool = False, bad_rows: str = "refuse"
) -> Dataset:
    """Load the images of a folder with the columns that every part of the package uses.

    An image without a prompt is asked for the labels of all images in the folder, of every split, in alphabetical
    order: so its prompt depends neither on the split that was asked for nor on the order of the lines.

    Args:
        root: the folder that holds `annotations.jsonl`.
        split: only images of this split; None and `all` take every image. An image without a split has that of its
            patient, else `train`; if no image is held out, patients are drawn (`data.splits`), which a warning
            reports.
        allow_outside: whether images may lie outside the folder.
        bad_rows: `refuse` lines that are no images, or `drop` them, which a warning says.

    Returns:
        Columns image, boxes (xyxy pixels), labels, width, height, id and split; if any image has them patient_id,
        prompt (conversational), box_format, resized_width, resized_height, ignore_boxes, phrases, reader_boxes and
        reader_labels; other keys of the lines, as `ExtraColumns` holds them; and `looked_for` if an image has no
        prompt.

    Raises:
        ValueError: no such file, a line that cannot be read (named by number), an image that is missing, or no image in
            the split.
    """
    from datasets import Dataset, Features

    root = Path(root)
    rows = folder_rows(root, allow_outside, bad_rows)
    if split:
        # `val` is `validation`, as in the lines.
        split = split_name(split)
    remedy = f'To choose yourself, give every image in {ANNOTATIONS} its "split", the images of a patient on one side.'
    splits = _assigned_splits(rows, split, str(root), remedy)
    # What a line says beyond the package's own keys becomes columns.
    other_values = []
    for row in rows:
        other_values.append({name: value for name, value in row.items() if name not in KNOWN_KEYS})
    extra = ExtraColumns(other_values)
    # What an image without a prompt is asked for; None if all have one.
    vocabulary = None if all(row.get("prompt") for row in rows) else vocabulary_of(rows, root)
    columns = {*_ALWAYS} if vocabulary is None else {*_ALWAYS, LOOKED_FOR}
    for row, row_split, values in zip(rows, splits, other_values, strict=True):
        row |= {"image": str(root / row["file"]), "split": row_split, **extra.values(values)}
        row[LOOKED_FOR] = None if row.get("prompt") else vocabulary
        columns.update(name for name in KNOWN_KEYS if row.get(name) is not None)
    features = {name: kind for name, kind in column_types().items() if name in columns} | extra.features()
    # Only now: columns and vocabulary are those of all images, so that every split has the same.
    split_rows = [row for row in rows if split in (None, ALL, row["split"])]
    table = {name: [row.get(name) for row in split_rows] for name in features}
    return Dataset.from_dict(table, Features(features))


def _assigned_splits(rows: Sequence[Mapping[str, Any]], split: str | None, name: str, remedy: str) -> list[str]:
    """The split of each image: its own, or a drawn one, which a warning reports; refuses a split that none has.

    Args:
        rows: of the images, as `splits_of_rows` takes them.
        split: the one that is asked for, which has to exist.
        name: of the dataset, for messages.
        remedy: how to choose the splits instead, for messages.
    """
    assigned = splits_of_rows(rows, name)
    check_split_exists(split or ALL, in_usual_order(assigned.splits), name, remedy)
    if assigned.note and split not in (None, ALL):
        warnings.warn(f"{assigned.note} {remedy} The split {ALL} is every image.", stacklevel=4)
    return assigned.splits


def vocabulary_of(rows: list[dict[str, Any]], root: Path) -> tuple[str, ...]:
    """Every label of the rows of a folder, in the order of prompts; refuse rows without any."""
    labels: list[str] = []
    for row in rows:
        labels += annotated_image(row).labels
    vocabulary = prompt_order(labels)
    if not vocabulary:
        raise ValueError(
            f"Expected at least one labelled box in {root / ANNOTATIONS}, got none. "
            "Add images with findings, so that a prompt can say what to look for, or give every image a prompt."
        )
    return vocabulary


def folder_rows(root: Path, allow_outside: bool = False, bad_rows: str = "refuse") -> list[dict[str, Any]]:
    """The rows of a folder with `annotations.jsonl`, with the sizes of their images, and prompts as conversations.

    A row without an image is refused or dropped, see :func:`load_images`.
    """
    path = root / ANNOTATIONS
    if not path.is_file():
        raise ValueError(
            f"Expected a folder with {ANNOTATIONS} for root, got {str(root)!r}. "
            "Write one JSON object per image with file, width, height, boxes and labels."
        )
    check_word("bad_rows", bad_rows, BAD_ROWS)

    rows, faults = [], []
    for row_or_error in sound_rows(path):
        try:
            if isinstance(row_or_error, ValueError):
                raise row_or_error
            place, row = row_or_error
            rows.append(_usable_row(root, place, row, allow_outside))
        except ValueError as error:
            # Collected, so that all faulty lines are named at once, each on a line.
            faults.append(" ".join(str(error).split()))
    count = len(rows) + len(faults)
    if faults and (bad_rows == "refuse" or not rows):
        remedy = "Correct them" if bad_rows == "drop" else "Correct them, or go on without them by bad_rows: drop"
        raise ValueError(
            f"Expected one image per line in {path}, got {len(faults)} bad of {count} lines. {remedy}:\n"
            + "\n".join(faults)
        )
    if faults:
        warn_of_dropped(len(faults), f"{count} lines of {path}", faults)
    return rows


def _usable_row(root: Path, place: RowPlace, row: dict[str, Any], allow_outside: bool) -> dict[str, Any]:
    """The row with the size of its image and a conversation; refuse one without an image."""
    try:
        file = image_path(root, row["file"], allow_outside=allow_outside)
    except ValueError as error:
        raise ValueError(f"In line {place.line} (id {place.image}): {error}") from error
    if not file.is_file():
        raise place.error("an image that is there", row["file"], "Correct the name, or add the image.")
    width, height = row.get("width"), row.get("height")
    # A line may leave both out.
    if width is None or height is None:
        width, height = header_size(file)
    usable = {**row, "width": int(width), "height": int(height)}
    if row.get("prompt") is not None:
        usable["prompt"] = conversation(row["prompt"])
    return usable


SYNTHETIC = "synthetic"
"""The name of the images that `grounding_rewards.synthetic` draws."""

_SHARD = re.compile(r"(?P<split>.+?)-(?P<number>\d+)(-of-(?P<total>\d+))?")


def load_split(
    dataset: str, split: str, *, max_images: int | None = None, allow_outside: bool = False, bad_rows: str = "refuse"
) -> Dataset:
    """Load one split with the columns that every part of the package uses.

    Args:
        dataset: `"synthetic"`, or `"synthetic:<preset>"` for drawn radiographs; a folder that
            `grounding-rewards prepare` wrote; a folder with `annotations.jsonl`; a folder of parquet files whose names
            begin with their split, or one such file; a folder written by
            `Dataset.save_to_disk` or `DatasetDict.save_to_disk`; or the name of a dataset on the hub.
        split: name of the split, for example `"train"`; `"all"` is every image. Where a dataset has no splits, or only
            `train`, its patients are drawn (`grounding_rewards.data.splits`), and a warning says so.
        max_images: take the first so many images, from 1 up; None takes all (of drawn images, 1024).
        allow_outside: whether the images that `annotations.jsonl` names may lie outside its folder.
        bad_rows: `refuse` lines of `annotations.jsonl` that are no images, or `drop` them, which a warning reports.
            Wrong values of rows are found later, by `grounding_rewards.data.checks`.

    Returns:
        A map-style dataset.

    Raises:
        ValueError: the dataset cannot be found, it has no split of this name, or `max_images` is below 1.

    Example:
        >>> load_split("synthetic", "test", max_images=3).num_rows
        3
    """
    from datasets import Dataset

    from grounding_rewards.images.image_column import with_image_column

    if max_images is not None:
        check_number("max_images", max_images, Interval(1))
    name, _, preset = dataset.partition(":")
    if name == SYNTHETIC:
        from grounding_rewards.synthetic import synthetic_dataset

        # Drawing has no end of its own.
        return synthetic_dataset(split, max_images or 1024, preset=preset or "pa-112")
    if Path(dataset, MANIFEST).is_file():
        # The shards are unpacked into the cache of `datasets`, so that rows can be taken in any order.
        shards = split_shards(dataset, split)
        _check_whole(shards)
        loaded = Dataset.from_parquet(shards)
    elif Path(dataset, ANNOTATIONS).is_file():
        loaded = load_images(dataset, split, allow_outside=allow_outside, bad_rows=bad_rows)
    else:
        loaded = _loaded_split(dataset_parts(dataset), split, dataset)
    loaded = with_image_column(loaded)
    return loaded if max_images is None else loaded.select(range(min(max_images, loaded.num_rows)))


def parquet_shards(path: str | Path) -> dict[str, list[str]]:
    """The parquet files of a folder, or a single one, by split; `train-00000.parquet` is of the split train.

    Raises:
        ValueError: a file is cut, or one of `train-00000-of-00002.parquet` and its like is missing; it is named.

    Example:
        >>> parquet_shards("no such folder")
        {}
    """
    path = Path(path)
    files = [path] if path.is_file() and path.suffix == ".parquet" else sorted(path.glob("**/*.parquet"))
    shards: dict[str, list[str]] = {}
    # Of a name such as train-00000-of-00002: folder, split, how many digits a number has, and the text of the total.
    numbered_shards = set()
    for file in files:
        match = _SHARD.fullmatch(file.stem)
        split = match["split"] if match else file.stem
        shards.setdefault(split, []).append(str(file))
        if match and match["total"]:
            numbered_shards.add((file.parent, split, len(match["number"]), match["total"]))
    # Such a name says which other files there have to be.
    expected_files = {*map(str, files)}
    for folder, split, digits, total in numbered_shards:
        for index in range(int(total)):
            expected_files.add(str(folder / f"{split}-{index:0{digits}}-of-{total}.parquet"))
    _check_whole(sorted(expected_files))
    return shards


def _check_whole(files: Sequence[str]) -> None:
    """Refuse a missing or cut parquet file by its name, which a later error of `datasets` would not have."""
    import pyarrow
    import pyarrow.parquet as pq

    for file in files:
        try:
            pq.read_metadata(file)
        except (OSError, pyarrow.ArrowInvalid) as error:
            raise ValueError(
                f"Expected whole parquet files in the dataset, got {file!r}, which is missing or cut ({error}). "
                "Download or write it again."
            ) from None


def dataset_parts(dataset: str, splits: Sequence[str] = (), *, streaming: bool = False) -> dict[str, Any]:
    """The splits that a dataset itself has, by name: drawn images, parquet files, a saved dataset, or one on the hub.

    Args:
        dataset: as for :func:`load_split`.
        splits: the wanted ones; others of drawn images are left out, as drawing takes time.
        streaming: whether parquet files, or a dataset on the hub, are read row by row without a copy.

    Raises:
        ValueError: the dataset cannot be found.

    Example:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Dataset.from_list([{"id": "a"}]).to_parquet(Path(folder, "test.parquet"))
        ...     list(dataset_parts(folder))
        ['test']
    """
    from datasets import Dataset, load_dataset, load_from_disk

    if dataset.partition(":")[0] == SYNTHETIC:
        synthetic_splits = (TRAIN, "validation", "test")
        # An unknown split is refused later, with the names of all.
        drawn_splits = splits if splits and {*splits} <= {*synthetic_splits} else synthetic_splits
        return {split: load_split(dataset, split) for split in drawn_splits}
    shards = parquet_shards(dataset)
    if shards:
        return {split: Dataset.from_parquet(files, streaming=streaming) for split, files in shards.items()}
    path = Path(dataset)
    if path.is_file():
        raise ValueError(
            f"Expected a folder, parquet files or the name of a dataset on the hub for `dataset`, got the file "
            f"{dataset!r}. Name the folder, or one that `grounding-rewards prepare` wrote: it reads other layouts."
        )
    if path.is_dir():
        try:
            loaded = load_from_disk(dataset)
        except FileNotFoundError:
            raise ValueError(
                "Expected annotations.jsonl, parquet files, a prepared or a saved dataset in the folder for "
                f"`dataset`, got {dataset!r} without any. Point to the folder that holds annotations.jsonl, or that "
                "`grounding-rewards prepare` wrote, which reads COCO, YOLO, CSV and other layouts."
            ) from None
    else:
        try:
            loaded = load_dataset(dataset, streaming=streaming)
        # `datasets` raises RuntimeError for a dataset with a script.
        except (FileNotFoundError, ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"Expected {SYNTHETIC!r}, an existing folder or the name of a dataset on the hub for `dataset`, got "
                f"{dataset!r} ({error}). Check the path and the spelling."
            ) from error
    return dict(loaded) if isinstance(loaded, dict) else {str(loaded.split or TRAIN): loaded}


def _loaded_split(parts: Mapping[str, Dataset], split: str, name: str) -> Dataset:
    """One split of a dataset; if it has only `train`, patients are drawn into splits.

    Args:
        parts: the splits of the dataset by name.
        split: the one that is asked for, or `all`.
        name: of the dataset, for messages.
    """
    from datasets import concatenate_datasets

    if split == ALL:
        return concatenate_datasets(list(parts.values()))
    if len(parts) > 1:
        check_split_exists(split, in_usual_order(parts), name, "Choose one of the dataset's own splits.")
        return parts[split]
    # The dataset has one part, most often `train`.
    ((part_name, images),) = parts.items()
    # In a format such as torch's, numbers would be tensors.
    unformatted = images.with_format(None)
    unknown = [None] * images.num_rows
    patients = unformatted["patient_id"][:] if "patient_id" in images.column_names else unknown
    ids = unformatted["id"][:] if "id" in images.column_names else unknown
    # What decides the split of an image: as for a folder of images.
    rows = []
    for number, (patient, image_id) in enumerate(zip(patients, ids, strict=True)):
        rows.append({"split": part_name, "patient_id": patient, "id": stated_name(image_id) or str(number)})
    remedy = (
        "To choose yourself, save it with splits, the images of a patient in one of them: "
        'DatasetDict({"train": train, "validation": validation, "test": test}).save_to_disk(path).'
    )
    splits = _assigned_splits(rows, split, name, remedy)
    row_numbers = [number for number, image_split in enumerate(splits) if image_split == split]
    # Without a selection of rows a dataset is read faster.
    return images if len(row_numbers) == images.num_rows else images.select(row_numbers)
