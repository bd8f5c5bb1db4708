"""Write and read `manifest.json` of a prepared folder and its card `README.md`, and compare them with the files."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from grounding_rewards.common.atomic_files import UNFINISHED, check_new, check_settings, write_whole
from grounding_rewards.common.environment import package_versions
from grounding_rewards.common.text_files import parse_json, read_text
from grounding_rewards.data.splits import ALL, check_split_exists, in_usual_order
from grounding_rewards.prepare.examples import FolderPlan
from grounding_rewards.prepare.shards import FOLDER, count_rows, file_checksum, labels_in, read_footer, shard_files
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
    # An attempt stopped before the first shard: nothing of it is worth keeping, so that any settings may replace it.
    if not manifest["complete"] and not _has_shards(out):
        return None
    # Other versions may write other bytes, which matters only while work is left.
    compared_keys = ("settings", "images") if manifest["complete"] else ("settings", "images", "versions")
    identity = _identity_of(plan)
    remedy = "Name another folder, or remove this one."
    for key in compared_keys:
        # A run that stopped at a bad image may continue with bad_rows="drop", and skip it.
        check_settings(out, manifest.get(key, {}), identity[key], remedy, may_change=["bad_rows"], kind=key)
    return manifest if manifest["complete"] else None


def begin_folder(out: Path, plan: FolderPlan) -> None:
    """Write the first manifest of a new folder; remove unfinished files, which an interrupted run left in an older one.

    `find_finished` has refused a folder that holds something else.
    """
    # A folder with shards is resumed: it keeps its manifest, which is that of the same settings and images.
    if not (out / MANIFEST).is_file() or not _has_shards(out):
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / MANIFEST, _as_json({"complete": False, **_identity_of(plan)}))
    for unfinished in (out / FOLDER).glob(f"*{UNFINISHED}"):
        unfinished.unlink()


def _has_shards(out: Path) -> bool:
    """Whether the folder has a finished shard."""
    return any((out / FOLDER).glob("*.parquet"))


def finish_folder(out: Path, plan: FolderPlan) -> dict[str, Any]:
    """Write the manifest and the card of a source's finished shards, and return the manifest."""
    source = {"source": source_of(plan.settings.dataset), "vocabulary": list(plan.vocabulary)}
    return write_manifest(out, {**_identity_of(plan), **source, **plan.facts})


def write_manifest(out: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest and the card of a folder from its shards and from facts about them; return the manifest."""
    splits, skipped = _written_splits(out)
    manifest = {"complete": True, **facts, "splits": splits, "skipped": skipped}
    write_whole(out / CARD, _card_text(manifest))
    manifest["card"] = {"file": CARD, "sha256": file_checksum(out / CARD)}
    write_whole(out / MANIFEST, _as_json(manifest))
    return manifest


def _card_text(manifest: Mapping[str, Any]) -> str:
    """The dataset card in Markdown, with a head from which `datasets.load_dataset` reads the splits."""
    from jinja2 import Environment, StrictUndefined

    # Texts of datasets stay as they are: this is Markdown, not HTML.
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    # Texts in the YAML of the head are written as JSON, which is YAML whatever they hold.
    environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    # A bar would end the cell of a table.
    environment.filters["cell"] = lambda value: str(value).replace("|", "&#124;")
    template = environment.from_string(Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8"))
    skipped = [f"{image} ({split}): {reason}" for split, image, reason in manifest["skipped"]]
    return template.render(
        **manifest,
        left_out=list(left_out_sentences(manifest)),
        lists_of_images={
            "were left out because they cannot be used": skipped,
            "could not be read and were left out": manifest["unreadable"],
        },
    )


def left_out_sentences(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what `negatives`, `smallest_box` and the weights of a mix left out of a folder.

    >>> list(left_out_sentences({"negatives_left_out": 0, "small_boxes": 0, "rows_left_out": {"det": 3}}))
    ['3 rows of det are left out of train, for the weights of the mix.']
    """
    images = manifest["negatives_left_out"]
    if images:
        yield f"{images} images without findings are left out of train, for the wanted share of negatives."
    boxes = manifest["small_boxes"]
    if boxes:
        yield f"{boxes} boxes are too small (--smallest-box) and left out; an image without another box is no negative."
    for folder, rows in manifest.get("rows_left_out", {}).items():
        yield f"{rows} rows of {folder} are left out of train, for the weights of the mix."


def _written_splits(out: Path) -> tuple[dict[str, Any], list[list[str]]]:
    """Read the shards of a folder.

    Returns:
        The counts and shards of each split by its name, and split, id and reason of each image that was left out.
    """
    splits, skipped = {}, []
    # A shard is called train-00000.parquet.
    split_names = [path.stem.rpartition("-")[0] for path in (out / FOLDER).glob("*.parquet")]
    for split in in_usual_order(split_names):
        images, rows, shards, split_skipped = 0, [], [], []
        for path in shard_files(out, split):
            footer, shard_rows = read_footer(path), labels_in(path)
            # A shard counts the images of the shards before it too.
            images = footer["images"]
            rows += shard_rows
            split_skipped += footer["skipped"]
            size, checksum = path.stat().st_size, file_checksum(path)
            shards.append({"file": f"{FOLDER}/{path.name}", "rows": len(shard_rows), "bytes": size, "sha256": checksum})
        skipped += [[split, *image] for image in split_skipped]
        splits[split] = {"images_with_rows": images - len(split_skipped), **count_rows(rows), "shards": shards}
    return splits, skipped


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The contents of `manifest.json` in a prepared folder.

    Raises:
        ValueError: There is none, or it cannot be read.
    """
    path = Path(folder) / MANIFEST
    try:
        manifest = parse_json(read_text(path))
        # Other programs write files of this name too.
        if not (isinstance(manifest, dict) and "complete" in manifest):
            raise ValueError("that of another program")
        return manifest
    except ValueError as error:
        problem = f"({error})" if path.is_file() else "without it"
        raise ValueError(
            f"Expected {MANIFEST} in the folder of a prepared dataset, got {str(folder)!r} {problem}. "
            "Point to what `grounding-rewards prepare` wrote."
        ) from error


def split_shards(folder: str | Path, split: str) -> list[str]:
    """The paths of the shards of a split of a prepared folder; those of every split for `all`.

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
    if split not in splits:
        # `val` is `validation`.
        split = split_name(split)
    check_split_exists(split, list(splits), str(folder), "Choose one of these.")
    shards = _shards(manifest) if split == ALL else splits[split]["shards"]
    return [str(Path(folder) / shard["file"]) for shard in shards]


def why_unfinished(folder: str | Path) -> str:
    """Why training would refuse a prepared folder, in words; empty if it would not, or the folder is not prepared.

    >>> why_unfinished("synthetic")
    ''
    """
    if not Path(folder, MANIFEST).is_file():
        return ""
    try:
        manifest = read_manifest(folder)
    except ValueError as error:
        return str(error)
    if not manifest["complete"]:
        return f"{MANIFEST} says that the preparation was not completed."
    files = [shard["file"] for shard in _shards(manifest)]
    missing_files = [file for file in files if not Path(folder, file).is_file()]
    if not missing_files:
        return ""
    return f"{len(missing_files)} of {len(files)} shards are missing, the first is {missing_files[0]}."


def _shards(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The shards of all splits of a manifest."""
    return list(chain.from_iterable(counts["shards"] for counts in manifest["splits"].values()))


def verify_images(folder: str | Path) -> list[str]:
    """Compare the shards and the card of a prepared folder with their checksums; returns a sentence for each problem.

    Raises:
        ValueError: There is no manifest.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if not manifest["complete"]:
        return ["the preparation was interrupted; run the same command again"]
    checksums = {file["file"]: file["sha256"] for file in [*_shards(manifest), manifest["card"]]}
    problems = []
    for name, checksum in checksums.items():
        if not (folder / name).is_file():
            problems.append(f"{name} is missing")
        elif file_checksum(folder / name) != checksum:
            problems.append(f"{name} was changed: its checksum is another one")
    present_files = {path.relative_to(folder).as_posix() for path in (folder / FOLDER).glob("*")}
    return problems + [f"{name} is not part of the dataset" for name in sorted(present_files - checksums.keys())]


def _identity_of(plan: FolderPlan) -> dict[str, Any]:
    """The parts of the manifest that must be equal to continue a preparation, see `find_finished`."""
    # Of all images and their annotations, so that a resumed run notices other ones.
    digest = hashlib.blake2b(digest_size=16)
    for image in plan.images:
        digest.update(repr(image).encode("utf-8", "surrogatepass"))
    return {
        # Through JSON, as they are compared with what is read from it: tuples become lists.
        "settings": json.loads(json.dumps(asdict(plan.settings))),
        "images": {"count": len(plan.images), "digest": digest.hexdigest()},
        "versions": package_versions(PACKAGES),
    }


def _as_json(value: Any) -> str:
    """The content of the file of a manifest."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
