"""Files that appear whole or not at all, and never over other work: a full disk or a killed process leaves what was
there before.

One rule for runs, answers, evaluations and datasets: a new or empty place may be filled; work that was started there
continues with its own settings; everything else is refused, and the message names the differences.
"""

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: What is being written: the ending of a file's name, and the name of a folder inside the one that is filled.
UNFINISHED = ".unfinished"


def unfinished_name(path: Path) -> Path:
    """The path of a file until it is complete: in the same folder, so that it can be renamed.

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
def whole_file(path: str | Path) -> Iterator[Path]:
    """Within this context, write a file elsewhere; it gets its name at the end, and after an error nothing changed.

    Args:
        path: of the file; its folder is made.

    Returns:
        Where to write it.

    Raises:
        OSError: the file cannot be written.

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
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = unfinished_name(path)
    try:
        yield unfinished
        publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: str | Path, content: str | bytes) -> None:
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
    """Within this context, write several files elsewhere; at the end they are all put into a folder.

    Files of the same names are replaced, others stay. After an error the folder is as it was; one that was not there is
    empty.

    Args:
        folder: to fill; it is made.

    Returns:
        A folder to write into, inside it: both are on one disk.

    Raises:
        OSError: a file cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with whole_folder(Path(folder, "run")) as unfinished:
        ...         write_whole(unfinished / "metrics" / "a.txt", "whole")
        ...     [path.relative_to(folder).as_posix() for path in sorted(Path(folder).rglob("*"))]
        ['run', 'run/metrics', 'run/metrics/a.txt']
    """
    unfinished = folder / UNFINISHED
    # What a killed process left.
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        # Sorted, a folder comes before what is in it.
        paths = sorted(unfinished.rglob("*"))
        # All bytes are on the disk before the first name changes.
        for path in paths:
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        for path in paths:
            target = folder / path.relative_to(unfinished)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                os.replace(path, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def check_new(place: Path, option: str, remedy: str = "Name another one.") -> None:
    """Refuse a file that is there, or a folder with files.

    Args:
        place: where something is to be written.
        option: that names it.
        remedy: what to do.

    Raises:
        ValueError: the place is taken.

    Example:
        >>> check_new(Path("."), "--out")
        Traceback (most recent call last):
        ValueError: Expected a new or empty place for --out, got the folder '.' with files. Name another one.
    """
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    content = f"the folder {str(place)!r} with files" if place.is_dir() else f"the file {str(place)!r}"
    raise ValueError(f"Expected a new or empty place for {option}, got {content}. {remedy}")


def check_settings(
    place: object,
    stored: Mapping[str, Any],
    settings: Mapping[str, Any],
    remedy: str,
    *,
    may_change: Collection[str] = (),
    digests: Collection[str] = (),
    kind: str = "settings",
) -> dict[str, str]:
    """Refuse to continue work that was started with other settings.

    Args:
        place: of the work.
        stored: settings with which it was started.
        settings: of this call; a missing one counts as None.
        remedy: what to do.
        may_change: names of settings that need not be the same.
        digests: names of settings whose values are hashes, which tell a person nothing: only their change is told.
        kind: the word for all of them in the error.

    Returns:
        The changes that are allowed, in words by name.

    Raises:
        ValueError: another setting differs.

    Example:
        >>> check_settings("run", {"seed": 1, "steps": 5}, {"seed": 1, "steps": 9}, "", may_change=["steps"])
        {'steps': 'steps 9 instead of 5'}
    """
    changed = changed_settings(stored, settings, digests=digests)
    refused = [change for name, change in changed.items() if name not in may_change]
    if refused:
        raise ValueError(
            f"Expected the {kind} that {str(place)!r} was started with, got {', '.join(refused)}. {remedy}"
        )
    return changed


def changed_settings(
    stored: Mapping[str, Any], settings: Mapping[str, Any], *, digests: Collection[str] = ()
) -> dict[str, str]:
    """The change in words of each setting that differs between two runs, by its name; a missing one counts as None.

    Settings in `digests` have hashes for values, which are not shown.

    Example:
        >>> changed_settings({"seed": 1, "model": "a"}, {"seed": 2, "model": "b"}, digests=["model"])
        {'seed': 'seed 2 instead of 1', 'model': 'another model'}
    """
    changes = {}
    for name in dict.fromkeys([*stored, *settings]):
        before, after = stored.get(name), settings.get(name)
        if not _equal_settings(before, after):
            changes[name] = f"another {name}" if name in digests else f"{name} {after!r} instead of {before!r}"
    return changes


def _equal_settings(value: Any, other_value: Any) -> bool:
    """Whether two values of a setting are equal, or paths of one file or folder."""
    if value == other_value:
        return True
    are_texts = isinstance(value, str) and isinstance(other_value, str)
    are_paths = are_texts and os.path.exists(value) and os.path.exists(other_value)
    return are_paths and os.path.realpath(value) == os.path.realpath(other_value)
