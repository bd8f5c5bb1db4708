"""Mix prepared folders into one: their rows side by side, in shares of the training rows, each with its source."""

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
from grounding_rewards.prepare.manifest import PACKAGES, read_manifest, split_shards, write_manifest
from grounding_rewards.prepare.shards import ShardWriter
from grounding_rewards.prepare.split_duplicates import group_duplicates


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
    features = _features(parts)
    facts = _mix_facts(parts, out, seed)
    # An image is known by the id of its first row, and `row_ids` has those of all its rows.
    images, signatures, row_ids = [], [], []
    for rows in _rows_of_images(parts):
        row = rows[0]
        # Duplicates are found by the pixels and told apart by patient and split: neither file nor boxes are needed.
        images.append(AnnotatedImage(row["id"], "", [], [], patient_id=row["patient_id"], split=row["split"]))
        signatures.append(image_signature(open_image(row["image"])))
        row_ids.append([row["id"] for row in rows])
    check_one_split(splits_of_patients((patient_of_image(image), image.split) for image in images))
    duplicates = group_duplicates(zip(images, signatures, strict=True), {}, keeps_splits=True, bad_rows=bad_rows)
    train_rows: dict[str, list[str]] = {part.name: [] for part in parts}
    for image, ids in zip(images, row_ids, strict=True):
        # The id begins with the name of the folder.
        if image.split == TRAIN and image.id not in duplicates.left_out:
            train_rows[image.id.partition("/")[0]] += ids
    left_out = _left_out_rows(parts, train_rows, seed)
    left_out_ids = {*chain.from_iterable(left_out.values())}
    writers = {image.split: ShardWriter(out, image.split, features) for image in images if image.split}
    # Read again: the images of all folders are too large to keep.
    for rows in _rows_of_images(parts):
        writer, image_id = writers[rows[0]["split"]], rows[0]["id"]
        mixed_rows = [row for row in rows if row["id"] not in left_out_ids]
        if image_id in duplicates.left_out:
            writer.skip(image_id, duplicates.left_out[image_id])
        elif mixed_rows:
            writer.add(mixed_rows, len(rows[0]["image"]["bytes"]))
    for writer in writers.values():
        writer.close()
    rows_left_out = {name: len(ids) for name, ids in left_out.items() if ids}
    return write_manifest(out, {**facts, "rows_left_out": rows_left_out, "images_with_copies": duplicates.images})


def _mix_facts(parts: Sequence[Part], out: Path, seed: int) -> dict[str, Any]:
    """What the manifest of a mix says of its folders; refuse names, weights, formats or an output that do not fit."""
    names, weights = [part.name for part in parts], [part.weight for part in parts]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(
            f"Expected at least two folders of different names to mix, got {', '.join(names)}. Ids begin with these "
            "names: rename a folder."
        )
    # Either no folder has a weight, or each of them.
    if set(weights) != {None} and not all(weight and 0 < weight < float("inf") for weight in weights):
        raise ValueError(f"Expected a weight above 0 for every folder or for none, got {weights}. Write FOLDER=2.")
    check_new(out, "out")
    manifests = [read_manifest(part.folder) for part in parts]
    settings = [manifest["settings"] for manifest in manifests]
    formats = [part_settings["box_format"] for part_settings in settings]
    if any(box_format != formats[0] for box_format in formats):
        format_names = ", ".join(f"{box_format} ({name})" for name, box_format in zip(names, formats, strict=True))
        raise ValueError(
            f"Expected folders for one box format, got {format_names}. A model writes boxes in one way: "
            "prepare them again."
        )
    sources = [manifest["source"] for manifest in manifests]
    # Facts of the folders that are added up.
    counts = ("images_without_patient", "images_without_own_split", "images_drawn", "negatives_left_out", "small_boxes")
    # A general format has no url.
    titles = [f"{source['title']}, {source['url']}".removesuffix(", ") for source in sources]
    return {
        "settings": {
            "dataset": "mix",
            "task": ", ".join(dict.fromkeys(part_settings["task"] for part_settings in settings)),
            "box_format": formats[0],
            "seed": seed,
            "weights": dict(zip(names, weights, strict=True)),
            "parts": dict(zip(names, settings, strict=True)),
        },
        "images": {"count": sum(manifest["images"]["count"] for manifest in manifests)},
        "versions": package_versions(PACKAGES),
        "source": {
            "title": " and ".join(names),
            "url": _joined(names, titles),
            "licence": _joined(names, [source["licence"] for source in sources]),
            "note": _joined(names, [source["note"] for source in sources]),
        },
        "vocabulary": list(dict.fromkeys(chain.from_iterable(manifest["vocabulary"] for manifest in manifests))),
        **{name: sum(manifest[name] for manifest in manifests) for name in counts},
        "unreadable": [],
    }


def _joined(names: Sequence[str], texts: Sequence[str]) -> str:
    """One text for each folder as "name: text; name: text", without empty ones."""
    return "; ".join(f"{name}: {text}" for name, text in zip(names, texts, strict=True) if text)


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
    # The metadata tells `datasets` which column holds images.
    return Features.from_arrow_schema(joined.with_metadata(schemas[0].metadata))


def _rows_of_images(parts: Sequence[Part]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each image, with the ids, sources and patients that they have in the mix."""
    from datasets import Dataset, Image

    for part in parts:
        # As a stream, so that the images of a folder are neither copied nor all in memory.
        stored = Dataset.from_parquet(split_shards(part.folder, "all"), streaming=True)
        rows = stored.cast_column("image", Image(decode=False))
        # The rows of an image stand one after another.
        for _, group in groupby(rows, key=lambda row: (row["split"], row["image"]["bytes"])):
            image_rows = list(group)
            for row in image_rows:
                row["id"] = f"{part.name}/{row['id']}"
                row["source"] = stated_name(row.get("source")) or part.name
                patient = patient_of(row)
                row["patient_id"] = None if patient is None else f"{row['source']}/{patient}"
            yield image_rows


def _left_out_rows(parts: Sequence[Part], train_rows: Mapping[str, list[str]], seed: int) -> dict[str, list[str]]:
    """The ids of the training rows to leave out, by the name of the folder; empty without weights.

    Args:
        parts: The folders.
        train_rows: The ids of the rows of `train`, by the name of the folder.
        seed: Of the choice.
    """
    weights = {part.name: part.weight for part in parts if part.weight is not None}
    for name in weights:
        if not train_rows[name]:
            raise ValueError(
                f"Expected rows of {TRAIN} in every folder with a weight, got none in {name}. Weights are about "
                "training alone: leave them out, or mix the folders that have such rows."
            )
    # A folder gives weight * unit rows. This is the largest unit for which every folder has enough.
    unit = min((len(train_rows[name]) / weight for name, weight in weights.items()), default=0.0)
    # By the name of the folder: in the order of their hashes, the first rows stay.
    left_out = {}
    for name, weight in weights.items():
        shuffled_ids = sorted(train_rows[name], key=lambda row_id: hash_fraction("mix", seed, row_id))
        left_out[name] = shuffled_ids[round(unit * weight) :]
    return left_out
