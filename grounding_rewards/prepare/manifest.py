"""`manifest.json` of a prepared folder: written, read, and compared with the files."""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grounding_rewards.common.atomic_files import UNFINISHED, check_new, check_settings, write_whole
from grounding_rewards.common.environment import package_versions
from grounding_rewards.common.text_files import parse_json, read_text
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import ALL, check_split_exists, in_usual_order
from grounding_rewards.prepare.card import card_text
from grounding_rewards.prepare.examples import FolderPlan
from grounding_rewards.prepare.shards import FOLDER, ShardCounts, file_checksum, read_footer, shard_files
from grounding_rewards.sources import source_of
from grounding_rewards.sources.base import split_name

MANIFEST = "manifest.json"
CARD = "README.md"

PACKAGES = ("grounding_rewards", "datasets", "numpy", "pillow", "pyarrow", "pydicom")


def find_finished(out: Path, plan: FolderPlan) -> dict[str, Any] | None:
    """The manifest of a finished folder, or None if work is left. Writes nothing.

    Raises:
        ValueError: The folder holds other files, or was started with other settings, images or versions.
    """
    if not (out / MANIFEST).is_file():
        check_new(out, "out")
        return None
    manifest = read_manifest(out)
    if not manifest["complete"] and not _has_shards(out):
        # An attempt that was refused: nothing of it is worth keeping.
        return None
    # Other versions may write other bytes, which matters only while work is left.
    decisive = ("settings", "images") if manifest["complete"] else ("settings", "images", "versions")
    identity = _identity_of(plan)
    for part in decisive:
        remedy = "Name another folder, or remove this one."
        # A run that stopped at a bad image may continue and skip it.
        check_settings(out, manifest.get(part, {}), identity[part], remedy, may_change=["bad_rows"], kind=part)
    return manifest if manifest["complete"] else None


def begin_folder(out: Path, plan: FolderPlan) -> None:
    """Prepare a new or unfinished folder for writing, after `find_finished`."""
    if not (out / MANIFEST).is_file() or not _has_shards(out):
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / MANIFEST, _as_json({"complete": False, **_identity_of(plan)}))
    for unfinished in (out / FOLDER).glob(f"*{UNFINISHED}"):
        unfinished.unlink()


def _has_shards(out: Path) -> bool:
    return any((out / FOLDER).glob("*.parquet"))


def finish_folder(out: Path, plan: FolderPlan) -> dict[str, Any]:
    """Write the manifest and the card from the finished shards, and return the manifest."""
    splits, skipped = written_splits(out)
    manifest = {"complete": True, **_identity_of(plan), **known_facts(plan), "splits": splits, "skipped": skipped}
    return write_manifest(out, manifest)


def write_manifest(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write the card of a finished folder and its manifest, and return the manifest with the checksum of the card."""
    write_whole(out / CARD, card_text(manifest))
    manifest["card"] = {"file": CARD, "sha256": file_checksum(out / CARD)}
    write_whole(out / MANIFEST, _as_json(manifest))
    return manifest


def written_splits(out: Path) -> tuple[dict[str, Any], list[list[str]]]:
    """ShardCounts and shards of each split of a folder, and split, id and reason of each image that was left out."""
    splits, skipped = {}, []
    for split in in_usual_order(path.stem.rpartition("-")[0] for path in (out / FOLDER).glob("*.parquet")):
        files = shard_files(out, split)
        footers = [ShardCounts(read_footer(path)) for path in files]
        counts = functools.reduce(operator.add, footers).as_json()
        skipped += [[split, *image] for image in counts.pop("skipped")]
        shards = [
            {
                "file": path.relative_to(out).as_posix(),
                "rows": footer.rows,
                "bytes": path.stat().st_size,
                "sha256": file_checksum(path),
            }
            for path, footer in zip(files, footers, strict=True)
        ]
        splits[split] = {**counts, "shards": shards}
    return splits, skipped


def known_facts(plan: FolderPlan) -> dict[str, Any]:
    """The part of the manifest that is known before any image is opened."""
    settings = plan.settings
    source = source_of(settings.dataset, settings.licence, settings.source)
    return {"source": source, "vocabulary": list(plan.vocabulary), **plan.facts}


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The contents of `manifest.json` in a prepared folder.

    Raises:
        ValueError: There is none, or it cannot be read.
    """
    path = Path(folder) / MANIFEST
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        problem = f"({error})" if path.is_file() else "without it"
        raise ValueError(
            f"Expected {MANIFEST} in the folder of a prepared dataset, got {str(folder)!r} {problem}. "
            "Point to what `grounding-rewards prepare` wrote."
        ) from error


def readers_agreement(dataset: str | Path) -> dict[str, Any] | None:
    """How well the readers of a prepared dataset agree; None where the dataset is another one, or doesn't say.

    >>> readers_agreement("synthetic") is None
    True
    """
    return read_manifest(dataset).get("agreement") if Path(dataset, MANIFEST).is_file() else None


def split_shards(folder: str | Path, split: str) -> list[str]:
    """The shards of a split of a prepared folder; those of every split for `all`.

    Raises:
        ValueError: The folder is not finished, or has no such split.
    """
    manifest = read_manifest(folder)
    if not manifest["complete"]:
        raise ValueError(
            f"Expected a folder that is finished, got {str(folder)!r}, whose preparation was interrupted. Run the same "
            "command again: it goes on."
        )
    splits = manifest["splits"]
    split = split if split in splits else split_name(split)
    check_split_exists(split, list(splits), str(folder), "Choose one of these.")
    split_names = splits if split == ALL else [split]
    return [str(Path(folder) / shard["file"]) for name in split_names for shard in splits[name]["shards"]]


def verify_images(folder: str | Path) -> list[str]:
    """Problems of the shards and the card of a prepared folder, one sentence each.

    Raises:
        ValueError: There is no manifest.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if not manifest["complete"]:
        return ["the preparation was interrupted; run the same command again"]
    shards = [shard for counts in manifest["splits"].values() for shard in counts["shards"]]
    problems = []
    for entry in (*shards, manifest["card"]):
        path = folder / entry["file"]
        if not path.is_file():
            problems.append(f"{entry['file']} is missing")
        elif file_checksum(path) != entry["sha256"]:
            problems.append(f"{entry['file']} was changed: its checksum is another one")
    listed = {shard["file"] for shard in shards}
    present_files = {path.relative_to(folder).as_posix() for path in (folder / FOLDER).glob("*")}
    return problems + [f"{name} is not part of the dataset" for name in sorted(present_files - listed)]


def _identity_of(plan: FolderPlan) -> dict[str, Any]:
    """What must be equal to continue a preparation, see `find_finished`."""
    return {
        "settings": json.loads(json.dumps(asdict(plan.settings))),
        "images": {"count": len(plan.images), "digest": _digest(plan.images)},
        "versions": package_versions(PACKAGES),
    }


def _digest(images: Iterable[AnnotatedImage]) -> str:
    """A hash of all images, so that a resumed run notices other images."""
    digest = hashlib.blake2b(digest_size=16)
    for image in images:
        digest.update(repr(image).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
