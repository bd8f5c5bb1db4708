"""Load any dataset by one name: drawn images, a folder of images, a prepared or saved dataset, a dataset on the hub."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import patient_of, stated_name
from grounding_rewards.data.held_out import ALL, TRAIN, assign_splits, check_split_exists, in_usual_order
from grounding_rewards.prepare.image_folder import load_images
from grounding_rewards.prepare.manifest import MANIFEST, split_shards
from grounding_rewards.sources.jsonl import ANNOTATIONS

if TYPE_CHECKING:
    from datasets import Dataset

SYNTHETIC = "synthetic"
"""The name of the images that `grounding_rewards.synthetic` draws."""

_DEFAULT_SYNTHETIC_IMAGES = 1024
_SHARD = re.compile(r"(?P<split>.+?)-\d+(-of-\d+)?")


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
            `train`, its patients are drawn (`grounding_rewards.data.held_out`), and a warning says so.
        max_images: take the first so many images; None takes all (of drawn images, 1024).
        allow_outside: whether the images that `annotations.jsonl` names may lie outside its folder.
        bad_rows: `refuse` lines of `annotations.jsonl` that are no images, or `drop` them, which a warning says. What
            is wrong with the values of rows is found later, by `grounding_rewards.data.checks`.

    Returns:
        A map-style dataset.

    Raises:
        ValueError: the dataset cannot be found, or it has no split of this name.

    Example:
        >>> load_split("synthetic", "test", max_images=3).num_rows
        3
    """
    name, _, preset = dataset.partition(":")
    if name == SYNTHETIC:
        from grounding_rewards.synthetic import synthetic_dataset

        count = max_images or _DEFAULT_SYNTHETIC_IMAGES
        return synthetic_dataset(split, count, preset=preset or "pa-112")
    from grounding_rewards.images.image_column import with_image_column

    if Path(dataset).is_dir():
        loaded = _load_folder(Path(dataset), split, allow_outside, bad_rows)
    else:
        loaded = _split_of(dataset_parts(dataset), split, dataset)
    loaded = with_image_column(loaded)
    return loaded if max_images is None else loaded.select(range(min(max_images, loaded.num_rows)))


def _load_folder(folder: Path, split: str, allow_outside: bool, bad_rows: str) -> Dataset:
    from datasets import Dataset

    if (folder / MANIFEST).is_file():
        # The shards are unpacked into the cache of `datasets`, so that rows can be taken in any order.
        return Dataset.from_parquet(split_shards(folder, split))
    if (folder / ANNOTATIONS).is_file():
        return load_images(folder, split, allow_outside=allow_outside, bad_rows=bad_rows)
    return _split_of(dataset_parts(str(folder)), split, str(folder))


def parquet_shards(path: str | Path) -> dict[str, list[str]]:
    """The parquet files of every split, below a folder or one file; `train-00000.parquet` is of the split train.

    Example:
        >>> parquet_shards("no such folder")
        {}
    """
    path = Path(path)
    shards: dict[str, list[str]] = {}
    for file in [path] if path.is_file() and path.suffix == ".parquet" else sorted(path.glob("**/*.parquet")):
        named = _SHARD.fullmatch(file.stem)
        shards.setdefault(named["split"] if named else file.stem, []).append(str(file))
    return shards


def dataset_parts(dataset: str, *, streaming: bool = False) -> dict[str, Any]:
    """The splits of a dataset as it holds them: drawn images, parquet files, a saved dataset, or one on the hub.

    Args:
        dataset: as for :func:`load_split`.
        streaming: whether a dataset on the hub is read row by row instead of downloaded.

    Raises:
        ValueError: the dataset cannot be found.

    Example:
        >>> sorted(dataset_parts("synthetic"))
        ['test', 'train', 'validation']
    """
    from datasets import Dataset, load_dataset, load_from_disk

    if dataset.partition(":")[0] == SYNTHETIC:
        return {split: load_split(dataset, split) for split in (TRAIN, "validation", "test")}
    if shards := parquet_shards(dataset):
        return {split: Dataset.from_parquet(files) for split, files in shards.items()}
    if Path(dataset).is_dir():
        try:
            loaded = load_from_disk(dataset)
        except FileNotFoundError:
            raise ValueError(
                f"Expected annotations.jsonl, parquet files, a prepared or a saved dataset in the folder for dataset, "
                f"got {dataset!r} without any. {_layout_hint(Path(dataset))}Point to the folder that holds "
                "annotations.jsonl, or that `grounding-rewards prepare` wrote."
            ) from None
    else:
        try:
            loaded = load_dataset(dataset, **({"streaming": True} if streaming else {}))
        except (FileNotFoundError, ConnectionError, ValueError) as error:
            raise ValueError(
                f"Expected {SYNTHETIC!r}, an existing folder or the name of a dataset on the hub for dataset, got "
                f"{dataset!r} ({error}). Check the path and the spelling."
            ) from error
    return dict(loaded) if isinstance(loaded, dict) else {str(loaded.split or TRAIN): loaded}


# Files that tell the layout of a folder, the most telling first.
_LAYOUTS = {
    "imagefolder": ("metadata.jsonl", "metadata.csv", "*/metadata.jsonl", "*/metadata.csv"),
    "yolo": ("data.yaml", "data.yml", "classes.txt", "labels/**/*.txt"),
    "coco": ("*.coco.json", "*/*.coco.json", "annotations/*.json", "instances*.json"),
    "voc": ("Annotations/*.xml", "*.xml", "annotations/*.xml"),
    "csv": ("*.csv", "*.tsv", "*.csv.gz"),
}


def _layout_hint(folder: Path) -> str:
    """The command for a folder in another layout, as a sentence; empty where none is known."""
    for name, patterns in _LAYOUTS.items():
        for pattern in patterns:
            if (found := next(folder.glob(pattern), None)) is not None:
                return (
                    f"With {found.relative_to(folder)} it may be one that `grounding-rewards prepare {name} "
                    f"--root {folder} --box-format FORMAT --out OUT` reads. "
                )
    return ""


def _split_of(parts: Mapping[str, Dataset], split: str, name: str) -> Dataset:
    """A split of a dataset; where it holds nothing out its images are drawn, as those of any other source."""
    from datasets import concatenate_datasets

    if split == ALL:
        return concatenate_datasets(list(parts.values()))
    remedy = (
        "To choose yourself, save it with splits, the images of a patient in one of them: "
        'DatasetDict({"train": train, "validation": validation, "test": test}).save_to_disk(path).'
    )
    if len(parts) > 1:
        check_split_exists(split, in_usual_order(parts), name, "Choose one of the dataset's own splits.")
        return parts[split]
    ((own, images),) = parts.items()
    plain = images.with_format(None)
    patients, ids = (
        plain[column][:] if column in images.column_names else [None] * images.num_rows
        for column in ("patient_id", "id")
    )
    named = zip((patient_of({"patient_id": patient}) for patient in patients), map(stated_name, ids), strict=True)
    assigned = assign_splits(
        ((own, patient, image or str(row)) for row, (patient, image) in enumerate(named)),
        name,
    )
    check_split_exists(split, assigned.names, name, remedy)
    if not assigned.drawn:
        return images
    warnings.warn(f"{assigned.said} {remedy} The split {ALL} is every image.", stacklevel=4)
    return images.select([number for number, drawn in enumerate(assigned.splits) if drawn == split])
