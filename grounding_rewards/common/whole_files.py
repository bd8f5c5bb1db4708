"""Files that appear whole or not at all: a full disk or a killed process leaves what was there before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["publish", "unfinished_name", "whole_file", "whole_folder", "write_whole"]

#: What is being written: the ending of a file's name, and the name of a folder inside the one that is filled.
UNFINISHED = ".unfinished"


def unfinished_name(path: Path) -> Path:
    """Where a file is written until it is whole: beside it, so that it can be renamed.

    Example:
        >>> unfinished_name(Path("run/metrics.json")).as_posix()
        'run/metrics.json.unfinished'
    """
    return path.with_name(path.name + UNFINISHED)


def publish(unfinished: Path, path: Path) -> None:
    """Give a file its name once its bytes are on the disk; a file of that name is replaced.

    Raises:
        OSError: the disk is full, or the file cannot be renamed; a file of that name stays as it was.
    """
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, path)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in an error of the disk, which says of a full one no more than that it is full."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Write a file elsewhere and give it its name at the end; after an error, what was there before stays.

    Args:
        path: of the file; its folder is made.

    Returns:
        Where to write it.

    Raises:
        OSError: the file cannot be written; it is named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.txt")
        ...     _ = path.write_text("before")
        ...     try:
        ...         with whole_file(path) as unfinished:
        ...             _ = unfinished.write_text("half of")
        ...             raise OSError("No space left on device")
        ...     except OSError:
        ...         print(path.read_text(), os.listdir(folder))
        before ['a.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = unfinished_name(path)
    try:
        with _named(path):
            yield unfinished
            publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, texts in UTF-8 and with their own line ends, as :func:`whole_file` does.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "new", "a.txt"), "whole")
        ...     Path(folder, "new", "a.txt").read_text()
        'whole'
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with whole_file(path) as unfinished:
        unfinished.write_bytes(data)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Write several files elsewhere and put them all into a folder at the end.

    Files of the same names are replaced, others stay. After an error the folder is as it was, and one that was not
    there is not there.

    Args:
        folder: to fill; it is made.

    Returns:
        A folder to write into, inside it: both are on one disk.

    Raises:
        OSError: a file cannot be written; it is named, or the folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with whole_folder(Path(folder, "run")) as unfinished:
        ...         write_whole(unfinished / "metrics" / "a.txt", "whole")
        ...     [path.relative_to(folder).as_posix() for path in sorted(Path(folder).rglob("*"))]
        ['run', 'run/metrics', 'run/metrics/a.txt']
    """
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    unfinished = folder / UNFINISHED
    # What a killed process left.
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        with _named(folder):
            yield unfinished
            written = sorted(unfinished.rglob("*"))
            # All bytes are on the disk before the first name changes.
            for path in filter(Path.is_file, written):
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            for path in written:
                place = folder / path.relative_to(unfinished)
                if path.is_dir():
                    place.mkdir(exist_ok=True)
                else:
                    os.replace(path, place)
            made = []
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        for parent in made:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
