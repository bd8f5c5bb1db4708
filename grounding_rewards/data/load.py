"""Load any dataset by one name: drawn films, a folder of films, a prepared or saved dataset, a dataset on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.data.film_folder import load_films
from grounding_rewards.data.images import rows_without_images, stored_images
from grounding_rewards.data.prepare.manifest import MANIFEST, split_files
from grounding_rewards.data.readers.jsonl import ANNOTATIONS

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

SYNTHETIC = "synthetic"
"""The name of the films that `grounding_rewards.data.synthetic` draws."""

_DEFAULT_SYNTHETIC_FILMS = 1024


def load_split(dataset: str, split: str, *, films: int | None = None) -> Dataset:
    """Load one split with the columns that every part of the package uses.

    Args:
        dataset: `"synthetic"`, or `"synthetic:<preset>"` for drawn radiographs; a folder that
            `grounding-rewards prepare` wrote; a folder with `annotations.jsonl`; a folder written by
            `Dataset.save_to_disk` or `DatasetDict.save_to_disk`; or the name of a dataset on the hub.
        split: name of the split, for example `"train"`.
        films: take the first so many films; None takes all (of drawn films, 1024).

    Returns:
        A map-style dataset.

    Raises:
        ValueError: the dataset cannot be found, or it has no split of this name.

    Example:
        >>> load_split("synthetic", "test", films=3).num_rows
        3
    """
    name, _, preset = dataset.partition(":")
    if name == SYNTHETIC:
        from grounding_rewards.data.synthetic import radiograph_dataset, synthetic_dataset

        count = films or _DEFAULT_SYNTHETIC_FILMS
        return radiograph_dataset(split, count, preset=preset) if preset else synthetic_dataset(split, count)
    from grounding_rewards.data.film_column import with_film_column

    loaded = _load_folder(Path(dataset), split) if Path(dataset).is_dir() else _load_from_hub(dataset, split)
    loaded = with_film_column(loaded)
    return loaded if films is None else loaded.select(range(min(films, loaded.num_rows)))


def light_rows(dataset: Dataset) -> list[dict[str, Any]]:
    """The rows of a dataset without prompts and images, with the column `image_path` where its images are files.

    Example:
        >>> sorted(light_rows(load_split("synthetic", "test", films=1))[0])
        ['boxes', 'height', 'id', 'labels', 'width']
    """
    from datasets import Image

    rows = rows_without_images(dataset, "prompt")
    if isinstance(dataset.features.get("image"), Image):
        for row, image in zip(rows, stored_images(dataset), strict=True):
            # Images stored in a parquet file keep the name of a file that may be elsewhere.
            if image is not None and image["bytes"] is None and image["path"] and Path(image["path"]).is_file():
                row["image_path"] = image["path"]
    return rows


def load_dataset_image(dataset: Dataset, k: int) -> Image | None:
    """The k-th film of a dataset, None where it has no images."""
    return dataset[k]["image"] if "image" in dataset.column_names else None


def _load_folder(folder: Path, split: str) -> Dataset:
    from datasets import Dataset, DatasetDict, load_from_disk

    if (folder / MANIFEST).is_file():
        # The shards are unpacked into the cache of `datasets`, so that rows can be taken in any order.
        return Dataset.from_parquet(split_files(folder, split))
    if (folder / ANNOTATIONS).is_file():
        return load_films(folder, split)
    try:
        loaded = load_from_disk(str(folder))
    except FileNotFoundError:
        raise ValueError(
            f"Expected annotations.jsonl, a prepared or a saved dataset in the folder for dataset, got {str(folder)!r} "
            "without any. Point to the folder that holds annotations.jsonl, or that `grounding-rewards prepare` wrote."
        ) from None
    if not isinstance(loaded, DatasetDict):
        return _only_split(loaded, folder, split)
    if split not in loaded:
        raise ValueError(
            f"Expected one of {', '.join(loaded)} for the split of {str(folder)!r}, got {split!r}. "
            "Choose one of the dataset's own splits."
        )
    return loaded[split]


def _only_split(dataset: Dataset, folder: Path, split: str) -> Dataset:
    """A dataset that was saved alone: it is the split that it names, and no other."""
    own = None if dataset.split is None else str(dataset.split)
    if own != split:
        raise ValueError(
            f"Expected a dataset with splits in {str(folder)!r} to take the split {split!r} of, got a single one "
            f"{'without a name' if own is None else f'named {own!r}'}. Save it with splits, the films of a patient "
            'in one of them: DatasetDict({"train": train, "validation": validation, "test": test}).save_to_disk(path).'
        )
    return dataset


def _load_from_hub(name: str, split: str) -> Dataset:
    from datasets import load_dataset

    try:
        return load_dataset(name, split=split)
    except (FileNotFoundError, ConnectionError, ValueError) as error:
        raise ValueError(
            f"Expected {SYNTHETIC!r}, an existing folder or the name of a dataset on the hub with a split "
            f"{split!r} for dataset, got {name!r} ({error}). Check the path and the spelling."
        ) from error
