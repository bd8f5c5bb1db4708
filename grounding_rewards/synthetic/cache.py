"""Keep datasets of drawn images on disk, so that a command does not draw again what an earlier one drew."""

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
"""The environment variable with the folder of the cache; if it is empty, nothing is kept."""

# Bytes of all files together; beyond them the least recently used files are removed.
_MOST_BYTES = 2**30


def cached_dataset(name: str, draw: Callable[[], Dataset]) -> Dataset:
    """Read the dataset of a name from the cache, or draw it and keep it there; several processes may do so at once.

    Args:
        name: of the file, without its ending. Another version of the drawing program or of a library has other files.
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
    # The file may be missing, cut, or just being removed by another process.
    with contextlib.suppress(OSError, ArrowInvalid):
        dataset = Dataset.from_file(str(path), in_memory=True)
        with contextlib.suppress(OSError):
            path.touch()
        return dataset
    dataset = draw()
    # If the disk is full or cannot be written, the dataset is still returned.
    with contextlib.suppress(OSError):
        _write(dataset, path)
        _remove_oldest(folder)
    return dataset


def _folder() -> Path | None:
    """The folder of the cache, whose files may all be removed; None if nothing is to be kept."""
    parent = os.environ.get(FOLDER_VARIABLE)
    if parent == "":
        return None
    if parent is None:
        user_cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if user_cache.startswith("~"):
            # The user has no home.
            return None
        parent = f"{user_cache}/grounding_rewards"
    return Path(parent, "drawn_images")


def _version() -> str:
    """A hash of the drawing program and of the versions of libraries on which its numbers depend."""
    parts = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    parts.append(repr(package_versions(("numpy", "scipy", "pillow"))).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _write(dataset: Dataset, path: Path) -> None:
    """Write a dataset under a temporary name of this process, and then rename the file."""
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
    """Remove the least recently used files beyond :data:`_MOST_BYTES`, also unfinished ones of killed processes."""
    stats = {path: path.stat() for path in folder.iterdir() if path.is_file()}
    total = 0
    for path in sorted(stats, key=lambda path: stats[path].st_mtime, reverse=True):
        total += stats[path].st_size
        if total > _MOST_BYTES:
            path.unlink(missing_ok=True)
