"""Shares of a job that machines do on their own, such as the tasks of a SLURM array, and the parts they leave."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

# Files and error messages name shares with as many digits, so that the order of names is theirs.
_DIGITS = 5
# How many missing shares an error names.
_NAMED = 8


class Share(NamedTuple):
    """One of `total` shares of a job, counted from 1.

    Example:
        >>> str(Share(3, 64)), [list(Share(k, 3).of(7)) for k in (1, 2, 3)]
        ('3/64', [[0, 1], [2, 3], [4, 5, 6]])
    """

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def of(self, count: int) -> range:
        """Which of so many items are this share's: neighbours, as many as in every other share or one more."""
        return range(count * (self.number - 1) // self.total, count * self.number // self.total)

    def part(self, path: Path) -> Path:
        """The file that this share leaves of what the whole job writes.

        Args:
            path: what the whole job writes.

        Example:
            >>> Share(3, 64).part(Path("out/scored.jsonl")).as_posix()
            'out/scored-00003-of-00064.jsonl'
        """
        label = f"{self.number:0{_DIGITS}d}-of-{self.total:0{_DIGITS}d}"
        return path.with_name(f"{path.stem}-{label}{path.suffix}")


def share_from_text(text: str) -> Share:
    """The share that an option names, such as `3/64`.

    Raises:
        ValueError: it is none, or does not count from 1.

    Example:
        >>> share_from_text("3/64")
        Share(number=3, total=64)
        >>> share_from_text("0/64")
        Traceback (most recent call last):
        ...
        ValueError: Expected K/N with K from 1 to N for --shard, got '0/64'. Shards count from 1: with SLURM, give \
--array=1-64, and --shard $SLURM_ARRAY_TASK_ID/64.
    """
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    share = Share(int(found[1]), int(found[2])) if found else Share(0, 0)
    if not 1 <= share.number <= share.total:
        total = share.total or 64
        raise ValueError(
            f"Expected K/N with K from 1 to N for --shard, got {text!r}. Shards count from 1: with SLURM, give "
            f"--array=1-{total}, and --shard $SLURM_ARRAY_TASK_ID/{total}."
        )
    return share


def parts_of(path: Path) -> list[tuple[Share, Path]]:
    """The parts that the shares of a job left, in their order.

    Args:
        path: what the whole job writes.

    Raises:
        ValueError: there is none, some are missing, or they are of several divisions.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for share in (Share(1, 3), Share(3, 3)):
        ...         share.part(Path(folder, "a.jsonl")).touch()
        ...     try:
        ...         parts_of(Path(folder, "a.jsonl"))
        ...     except ValueError as error:
        ...         print(str(error).replace(folder, "out"))
        Expected the parts of all 3 shards of 'out/a.jsonl', got none of 2. Run --shard 2/3 again, then --join.
    """
    found = set()
    # No glob: the name may contain brackets.
    for file in path.parent.iterdir() if path.parent.is_dir() else ():
        if named := re.search(r"-(\d{5,9})-of-(\d{5,9})(?=$|\.)", file.name):
            share = Share(int(named[1]), int(named[2]))
            if file == share.part(path):
                found.add(share)
    totals = sorted({share.total for share in found})
    if len(totals) != 1:
        several = f"parts of {', '.join(map(str, totals))} shards" if totals else "none"
        raise ValueError(
            f"Expected the parts of {'one division' if totals else 'shards'} of {str(path)!r}, got {several}. "
            + ("Remove those of an earlier one." if totals else "Write them with --shard 1/N to N/N.")
        )
    shares = [Share(number, totals[0]) for number in range(1, totals[0] + 1)]
    if missing := [share for share in shares if share not in found]:
        numbers = ", ".join(str(share.number) for share in missing[:_NAMED])
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        again = f"--shard {missing[0]}" if len(missing) == 1 else f"these, --shard {missing[0]} for example,"
        raise ValueError(
            f"Expected the parts of all {totals[0]} shards of {str(path)!r}, got none of {numbers}{more}. "
            f"Run {again} again, then --join."
        )
    return [(share, share.part(path)) for share in shares]
