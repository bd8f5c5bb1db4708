"""Upload a prepared folder to the hub, as a private dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grounding_rewards.prepare.manifest import CARD, MANIFEST, read_manifest, verify_images
from grounding_rewards.prepare.shards import FOLDER

# In the words of a licence.
_FORBIDS = ("not redistributable", "no redistribution", "credentialed", "restricted health data", "not known")


def push_private(folder: str | Path, name: str, *, licence_allows: bool = False) -> None:
    """Upload a finished folder as a private dataset: its shards, card and manifest.

    Args:
        folder: What `grounding-rewards prepare` wrote.
        name: Of the dataset on the hub; made if there is none.
        licence_allows: Whether somebody says that the images may be uploaded although their licence is not known, or
            forbids to pass them on.

    Raises:
        ValueError: The folder is not as it was written, a licence forbids it, or the dataset on the hub is public.
    """
    from huggingface_hub import HfApi

    folder = Path(folder)
    if problems := verify_images(folder):
        raise ValueError(
            f"Expected a folder that is as it was written, got {str(folder)!r}: {problems[0]}. Prepare it again."
        )
    forbidding = forbidding_licences(read_manifest(folder))
    if forbidding and not licence_allows:
        raise ValueError(
            f"Expected images that may be passed on, got some under: {'; '.join(forbidding)}. A private dataset lies "
            "on somebody else's machine too: keep them here, or say that you have the right with "
            "--licence-allows-upload."
        )
    api = HfApi()
    api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
    if not api.repo_info(name, repo_type="dataset").private:
        raise ValueError(
            f"Expected a private dataset on the hub, got {name!r}, which is public. Name another one, or make it "
            "private first. Nothing was uploaded."
        )
    api.upload_folder(
        repo_id=name, repo_type="dataset", folder_path=folder, allow_patterns=[CARD, MANIFEST, f"{FOLDER}/*.parquet"]
    )


def forbidding_licences(manifest: Mapping[str, Any]) -> list[str]:
    """The licences of the rows that forbid to pass them on, or are not known.

    >>> manifest = {"source": {"licence": "CC BY 4.0"}, "splits": {"train": {"rows": 1, "origins": []}}}
    >>> forbidding_licences(manifest)
    []
    >>> forbidding_licences({**manifest, "source": {"licence": "CC BY 4.0; Not redistributable"}})
    ['CC BY 4.0; Not redistributable']
    """
    origins = [origin for counts in manifest["splits"].values() for origin in counts["origins"]]
    rows_with_licence = sum(rows for _, licence, rows in origins if licence)
    licences = [licence for _, licence, _ in origins if licence]
    # Rows without a licence of their own have that of the whole.
    if rows_with_licence < sum(counts["rows"] for counts in manifest["splits"].values()):
        licences.append(manifest["source"]["licence"])
    return [
        licence for licence in dict.fromkeys(map(str, licences)) if any(word in licence.casefold() for word in _FORBIDS)
    ]
