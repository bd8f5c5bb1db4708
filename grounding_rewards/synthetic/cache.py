"""Datasets of drawn images on disk, so that a command does not draw what an earlier one drew."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from grounding_rewards.common.atomic_files import publish
from grounding_rewards.common.environment import package_versions

if TYPE_CHECKING:
    from datasets import Dataset

FOLDER_VARIABLE = "GROUNDING_REWARDS_CACHE"
"""The environment variable with the folder of the cache; where it is empty nothing is kept."""

# Bytes of all files together. The files that were used least recently go first.
_MOST_BYTES = 2**30


def cached_dataset(name: str, draw: Callable[[], Dataset]) -> Dataset:
    """The dataset of this name from the cache, else drawn and kept there; several processes may do so at once.

    Args:
        name: of a file, without its ending. Drawings of another program or version of a library have files of their
            own.
        draw: makes the dataset.

    Example:
        >>> from grounding_rewards.synthetic import synthetic_dataset
        >>> cached_dataset("two-images", lambda: synthetic_dataset("test", 2)).num_rows
        2
    """
    from datasets import Dataset
    from pyarrow import ArrowInvalid

    folder = _folder()
    if folder is None:
        return draw()
    path = folder / f"{name}-{_version()}.arrow"
    # It may be missing, cut, or removed by another process at this moment.
    with contextlib.suppress(OSError, ArrowInvalid):
        dataset = Dataset.from_file(str(path), in_memory=True)
        with contextlib.suppress(OSError):
            path.touch()
        return dataset
    dataset = draw()
    # A disk that is full or may not be written is no reason to end.
    with contextlib.suppress(OSError):
        _write(dataset, path)
        _remove_oldest(folder)
    return dataset


def _folder() -> Path | None:
    """A folder for drawn images alone: whatever lies in it may be removed."""
    parent = os.environ.get(FOLDER_VARIABLE)
    if parent == "":
        return None
    if parent is None:
        user_cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if user_cache.startswith("~"):
            # A user without a home
            return None
        parent = f"{user_cache}/grounding_rewards"
    return Path(parent, "drawn_images")


def _version() -> str:
    """The program that draws, and the libraries that its numbers depend on, as one word."""
    parts = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    parts.append(repr(package_versions(("numpy", "scipy", "pillow"))).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _write(dataset: Dataset, path: Path) -> None:
    """Write a file under a name of this process, and then give it its name."""
    import pyarrow

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    table = dataset.data.table
    try:
        with pyarrow.ipc.new_stream(str(unfinished), table.schema) as writer:
            writer.write_table(table)
        publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_oldest(folder: Path) -> None:
    """Remove the files beyond :data:`_MOST_BYTES`, also those that a killed process did not finish."""
    states = {path: path.stat() for path in folder.iterdir() if path.is_file()}
    total = 0
    for path in sorted(states, key=lambda path: states[path].st_mtime, reverse=True):
        total += states[path].st_size
        if total > _MOST_BYTES:
            path.unlink(missing_ok=True)
