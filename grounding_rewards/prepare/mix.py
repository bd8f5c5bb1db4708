"""Mix prepared folders into one: their rows side by side, in shares of the training rows, each with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.columns import patient_of, stated_name
from grounding_rewards.common.atomic_files import check_new
from grounding_rewards.common.environment import package_versions
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import TRAIN, check_one_split, hash_fraction, patient_of_image, splits_of_patients
from grounding_rewards.images.decoding import open_image
from grounding_rewards.images.near_duplicates import image_signature
from grounding_rewards.prepare.manifest import PACKAGES, read_manifest, split_shards, write_manifest, written_splits
from grounding_rewards.prepare.shards import ShardWriter, parquet_rows
from grounding_rewards.prepare.split_duplicates import DuplicateGroups, group_duplicates


class Part(NamedTuple):
    """A prepared folder in a mix.

    Attributes:
        folder: what `prepare_images` wrote.
        weight: its share of the training rows, relative to the other weights; None takes all its rows.
    """

    folder: Path
    weight: float | None = None

    @property
    def name(self) -> str:
        """The name of the folder, with which the ids of its rows begin in the mix."""
        return self.folder.resolve().name


def mix_folders(parts: Sequence[Part], out: str | Path, *, seed: int = 0, bad_rows: str = "refuse") -> dict[str, Any]:
    """Write the rows of prepared folders as one, each with its source.

    Splits stay. With weights, rows of `train` are left out by a hash, as few as give each folder its share; no row is
    taken twice, and other splits keep all rows. Ids begin with the name of the folder. Patients of different sources
    are different, even if they have the same name. A source is the column `source`, else the folder's name.

    Args:
        parts: At least two folders for one box format, with different names; all or none with a weight.
        out: The folder to write, new or empty.
        seed: Of the rows that are left out.
        bad_rows: `drop` leaves out an image with a copy in another, smaller split; `refuse` raises an error.

    Returns:
        The contents of `manifest.json`.

    Raises:
        ValueError: The folders do not fit together, or a patient or an image is in two splits.
    """
    out = Path(out)
    manifests = _checked_manifests(parts, out)
    features = _features(parts)
    images, signatures = [], []
    ids_of_images = {}
    for part in parts:
        for rows in _rows_of_images(part):
            first = rows[0]
            images.append(AnnotatedImage(first["id"], "", [], [], patient_id=first["patient_id"], split=first["split"]))
            signatures.append(image_signature(open_image({"bytes": first["image"]["bytes"], "path": None})))
            ids_of_images[first["id"]] = [row["id"] for row in rows]
    check_one_split(splits_of_patients((patient_of_image(image), image.split) for image in images))
    duplicates = group_duplicates(zip(images, signatures, strict=True), {}, keeps_splits=True, bad_rows=bad_rows)
    train_rows: dict[str, list[str]] = {part.name: [] for part in parts}
    for image in images:
        if image.split == TRAIN and image.id not in duplicates.left_out:
            train_rows[image.id.partition("/")[0]] += ids_of_images[image.id]
    left_out = _left_out_rows(parts, train_rows, seed)
    out.mkdir(parents=True, exist_ok=True)
    _write_rows(parts, out, features, left_out, duplicates)
    facts = {
        "rows_left_out": {name: len(rows) for name, rows in left_out.items() if rows},
        "images_with_copies": duplicates.images,
    }
    return write_manifest(out, _manifest(parts, manifests, out, seed) | facts)


def _left_out_rows(parts: Sequence[Part], train_rows: Mapping[str, list[str]], seed: int) -> dict[str, list[str]]:
    """The ids of the training rows to leave out, by the name of the folder; empty without weights.

    Args:
        parts: The folders.
        train_rows: The ids of the rows of `train`, by the name of the folder.
        seed: Of the choice.
    """
    if parts[0].weight is None:
        return {}
    for name, rows in train_rows.items():
        if not rows:
            raise ValueError(
                f"Expected rows of {TRAIN} in every folder with a weight, got none in {name}. Weights are about "
                "training alone: leave them out, or mix the folders that have such rows."
            )
    weights = {part.name: part.weight or 1.0 for part in parts}
    # A folder gives weight * unit rows. This is the largest unit for which every folder has enough.
    unit = min(len(rows) / weights[name] for name, rows in train_rows.items())
    left_out = {}
    for name, rows in train_rows.items():
        in_order = sorted(rows, key=lambda row: hash_fraction("mix", seed, row))
        left_out[name] = in_order[round(unit * weights[name]) :]
    return left_out


def _write_rows(
    parts: Sequence[Part], out: Path, features: Any, left_out: Mapping[str, list[str]], duplicates: DuplicateGroups
) -> None:
    """Write the rows of all folders, without those left out, into shards by split."""
    writers: dict[str, ShardWriter] = {}
    for part in parts:
        left_out_ids = {*left_out.get(part.name, ())}
        for rows in _rows_of_images(part):
            split, image_id = rows[0]["split"], rows[0]["id"]
            if split not in writers:
                writers[split] = ShardWriter(out, split, features)
            mixed_rows = []
            for row in rows:
                if row["id"] not in left_out_ids:
                    mixed_rows.append({name: row.get(name) for name in features})
            if image_id in duplicates.left_out:
                writers[split].skip(image_id, duplicates.left_out[image_id])
            elif mixed_rows:
                writers[split].add(mixed_rows, len(rows[0]["image"]["bytes"]))
    for writer in writers.values():
        writer.close()


def _manifest(parts: Sequence[Part], manifests: Sequence[dict[str, Any]], out: Path, seed: int) -> dict[str, Any]:
    """The manifest of the mix, from those of its parts and from the shards that are written."""
    splits, skipped = written_splits(out)
    sources = [manifest["source"] for manifest in manifests]
    titles = [", ".join(text for text in (source["title"], source["url"]) if text) for source in sources]
    part_settings = []
    for part, manifest in zip(parts, manifests, strict=True):
        part_settings.append({"folder": part.name, "weight": part.weight, "settings": manifest["settings"]})
    sums = {}
    for name in ("images_without_patient", "images_without_own_split", "images_drawn"):
        sums[name] = sum(manifest[name] for manifest in manifests)
    return {
        "complete": True,
        "settings": {
            "dataset": "mix",
            "task": ", ".join(dict.fromkeys(manifest["settings"]["task"] for manifest in manifests)),
            "box_format": manifests[0]["settings"]["box_format"],
            "seed": seed,
            "parts": part_settings,
        },
        "images": {"count": sum(manifest["images"]["count"] for manifest in manifests)},
        "versions": package_versions(PACKAGES),
        "source": {
            "title": " and ".join(part.name for part in parts),
            "url": _join_texts(parts, titles),
            "licence": _join_texts(parts, [source["licence"] for source in sources]),
            "note": _join_texts(parts, [source["note"] for source in sources]),
        },
        "vocabulary": list(dict.fromkeys(chain.from_iterable(manifest["vocabulary"] for manifest in manifests))),
        **sums,
        "splits": splits,
        "skipped": skipped,
    }


def _join_texts(parts: Sequence[Part], texts: Sequence[str]) -> str:
    """One text for each part as "name: text; name: text", without empty ones."""
    return "; ".join(f"{part.name}: {text}" for part, text in zip(parts, texts, strict=True) if text)


def _checked_manifests(parts: Sequence[Part], out: Path) -> list[dict[str, Any]]:
    """The manifest of each folder; refuse names, weights, formats or an output folder that do not fit together."""
    names = [part.name for part in parts]
    if len(set(names)) < max(2, len(names)):
        raise ValueError(
            f"Expected at least two folders of different names to mix, got {', '.join(names)}. Ids begin with these "
            "names: rename a folder."
        )
    weights = [part.weight for part in parts]
    is_weighted = any(weight is not None for weight in weights)
    if is_weighted and not all(weight is not None and 0 < weight < float("inf") for weight in weights):
        raise ValueError(f"Expected a weight above 0 for every folder or for none, got {weights}. Write FOLDER=2.")
    check_new(out, "out")
    manifests = [read_manifest(part.folder) for part in parts]
    formats = [manifest["settings"]["box_format"] for manifest in manifests]
    if any(box_format != formats[0] for box_format in formats):
        format_names = ", ".join(f"{box_format} ({name})" for name, box_format in zip(names, formats, strict=True))
        raise ValueError(
            f"Expected folders for one box format, got {format_names}. A model writes boxes in one way: "
            "prepare them again."
        )
    return manifests


def _features(parts: Sequence[Part]) -> Any:
    """The columns of all folders together with `source`, as `datasets.Features`."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Features

    schemas = [pq.read_schema(path) for part in parts for path in split_shards(part.folder, "all")]
    try:
        joined = pa.unify_schemas([*schemas, pa.schema([("source", pa.string())])], promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(
            f"Expected one type for each column of all folders, got: {error}. Write its values alike and prepare them "
            "again."
        ) from error
    return Features.from_arrow_schema(joined.with_metadata(schemas[0].metadata))


def _rows_of_images(part: Part) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each image of a folder, with the ids, sources and patients that they have in the mix."""
    # The rows of an image stand one after another.
    rows = parquet_rows(split_shards(part.folder, "all"))
    for _, group in groupby(rows, key=lambda row: (row["split"], row["image"]["bytes"])):
        image_rows = list(group)
        for row in image_rows:
            row["id"] = f"{part.name}/{row['id']}"
            row["source"] = stated_name(row.get("source")) or part.name
            patient = patient_of(row)
            if patient is not None:
                row["patient_id"] = f"{row['source']}/{patient}"
        yield image_rows
