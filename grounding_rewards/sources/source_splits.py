"""Splits that the names of files tell, and the spellings of a split."""

from __future__ import annotations

import re
from pathlib import Path

from grounding_rewards.sources.tables import check_split

_SPELLINGS = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}


def split_name(spelling: str) -> str:
    """The name of a split in records; an unusual one stays as it is.

    Example:
        >>> split_name("val"), split_name("Train"), split_name("train2017")
        ('validation', 'train', 'train2017')
    """
    return _SPELLINGS.get(spelling.lower(), spelling)


def split_files(root: str | Path, pattern: str, split: str | None) -> list[tuple[str | None, str, Path]]:
    """The files of a split, or of all.

    Args:
        root: the folder of the dataset.
        pattern: path relative to it. `{split}` stands for the name of the split; a pattern without it is one file of no
            split.
        split: `validation` finds `val`, `valid` and `dev` too; None takes all.

    Returns:
        Name of the split, its spelling in the file's name, and the file; sorted by the file's name.

    Raises:
        ValueError: there is no such file; the message lists what lies there instead.
    """
    root = Path(root)
    if "{split}" not in pattern:
        check_split(split, ())
        files: list[tuple[str | None, str, Path]] = [(None, "", root / pattern)] if (root / pattern).is_file() else []
    else:
        name = re.compile(re.escape(pattern).replace(re.escape("{split}"), "([^/]+)", 1))
        matches = [
            (match, path)
            for path in sorted(root.glob(pattern.replace("{split}", "*")))
            if (match := name.fullmatch(path.relative_to(root).as_posix()))
        ]
        files = [(split_name(match[1]), match[1], path) for match, path in matches]
    if not files:
        others = sorted(path.relative_to(root).as_posix() for path in root.rglob(f"*{Path(pattern).suffix}"))[:5]
        raise ValueError(
            f"Expected {pattern} in the folder for root, got {str(root)!r} with {', '.join(others) or 'no such file'}. "
            "Name the file in `annotations`; {split} stands for the name of the split."
        )
    check_split(split, dict.fromkeys(name for name, _, _ in files if name is not None))
    return [file for file in files if split in (None, file[0])]
