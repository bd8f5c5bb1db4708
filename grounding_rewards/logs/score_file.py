"""Score a log of completions without a model: read it, score its rows, write what they earn."""

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grounding_rewards.columns import SCORED_COLUMNS
from grounding_rewards.common.atomic_files import whole_file
from grounding_rewards.common.workers import check_workers, map_in_workers
from grounding_rewards.logs.read import Log, log_files, off_image_notes, read_completions
from grounding_rewards.parsing import STATUSES
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards.grounding import GroundingReward, check_alike, score_columns

# Columns of a row that rewards read, beside the text.
_COLUMNS = (*SCORED_COLUMNS, "ground_truth")
# Rows that are scored together: larger chunks leave the cache of the processor.
_CHUNK = 1 << 10


@dataclass(frozen=True)
class ScoreSummary:
    """Summary of a scored log.

    Attributes:
        completions: how many.
        means: of each reward.
        statuses: how many completions have each of `STATUSES`.
        warnings: where the numbers contradict the declared space or order of the box format, and boxes off the image.
    """

    completions: int
    means: dict[str, float]
    statuses: dict[str, int]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain values."""
        return asdict(self)


def score_file(
    path: str | Path,
    out: str | Path,
    rewards: Sequence[GroundingReward],
    *,
    text_column: str | None = None,
    processes: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> ScoreSummary:
    """Score every completion of a file, and write the scores in the order of the file.

    A row of the output has ``row`` (the number of the completion, from 1), ``id`` (that of the row, or null),
    ``status``, ``rejected`` and ``boxes``, and for every reward the columns that
    :func:`grounding_rewards.rewards.grounding.score_columns` gives. The output appears under its name once it is
    complete.

    Args:
        path: a file or folder that :func:`grounding_rewards.logs.read.read_completions` takes; its rows have the
            columns that rewards read: ``boxes``, and ``width``, ``height`` and so on as the box format needs them.
        out: where to write, a file that ends in .jsonl and is not `path`; its folder is made.
        rewards: all with the same box format.
        text_column: the column with the completions, as for :func:`grounding_rewards.logs.read.find_text_column`.
        processes: that score, see :func:`grounding_rewards.common.workers.map_in_workers`; this one reads and writes.
        on_progress: called with the number of completions that are done.

    Raises:
        ValueError: the file, a row of it (named by number) or an argument is wrong, or there is no row.

    Example:
        >>> import tempfile
        >>> from grounding_rewards import get_reward
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log, out = Path(folder, "log.jsonl"), Path(folder, "scored.jsonl")
        ...     _ = log.write_text('{"id": "a", "completion": "[]", "boxes": [], "width": 9, "height": 9}')
        ...     summary = score_file(log, out, [get_reward("R3", box_format="qwen3-vl")])
        ...     row = json.loads(out.read_text())
        >>> summary.means, row["id"], row["status"], row["R3"], row["R3/reason"]
        ({'R3': 0.2}, 'a', 'empty', 0.2, 'nothing to find, and says so')
    """
    path, out = Path(path), Path(out)
    _check_output(path, out)
    check_workers(processes)
    check_alike(rewards)
    log = read_completions([path], text_column=text_column)
    chunks = []
    for start in range(0, len(log.rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        chunks.append(Log(log.completions[part], log.rows[part], log.places[part]))
    all_rewards: dict[str, list[float]] = {reward.__name__: [] for reward in rewards}
    scored_count = 0
    statuses: Counter[str] = Counter()
    space_warnings: dict[str, str] = {}
    with (
        whole_file(out) as unfinished,
        # ASCII, because an id may hold a lone surrogate, which UTF-8 cannot encode.
        unfinished.open("w", encoding="ascii", newline="\n") as file,
        map_in_workers(partial(_score_chunk, tuple(rewards)), chunks, processes=processes) as scored_chunks,
    ):
        for chunk, (scores, messages) in zip(chunks, scored_chunks, strict=True):
            ids = [row.get("id") for row in chunk.rows]
            columns: dict[str, Sequence[Any]] = {
                "row": range(scored_count + 1, scored_count + 1 + len(ids)),
                "id": [None if name is None else str(name) for name in ids],
                **scores,
            }
            for values in zip(*columns.values(), strict=True):
                file.write(json.dumps(dict(zip(columns, values, strict=True))) + "\n")
            for name, rewards_so_far in all_rewards.items():
                rewards_so_far += scores[name]
            statuses.update(scores["status"])
            for message in messages:
                # Every worker warns for itself, with other numbers: messages that differ in these alone are one.
                space_warnings.setdefault(re.sub(r"[\d.]+", "", message), message)
            scored_count += len(ids)
            if on_progress is not None:
                on_progress(scored_count)
    return ScoreSummary(
        len(log.rows),
        {name: math.fsum(values) / len(values) for name, values in all_rewards.items()},
        {status: statuses[status] for status in STATUSES},
        (*log.notes, *space_warnings.values(), *off_image_notes(log)),
    )


def _check_output(path: Path, out: Path) -> None:
    """Refuse an output of another kind, a file of the completions itself, or one that would be read as such."""
    if out.suffix != ".jsonl":
        raise ValueError(
            f"Expected a file that ends in .jsonl for `out`, got {str(out)!r}. Rename it; "
            "`pandas.read_json(out, lines=True).to_parquet(...)` makes a table of it."
        )
    files = [file.resolve() for file in log_files([path])]
    # All files of a folder are read, so that a later run would read the output too; but where the folder has
    # completions.jsonl, that file alone.
    wholly_read_folder = files[0].parent if path.is_dir() and files[0].name != "completions.jsonl" else None
    if out.resolve() in files or out.resolve().parent == wholly_read_folder:
        raise ValueError(
            f"Expected another file than the completions for `out`, got {str(out)!r} in their place. Give it another "
            "name, or folder: completions would be lost, or scores be read as such."
        )


def _score_chunk(rewards: Sequence[GroundingReward], log: Log) -> tuple[dict[str, list[Any]], list[str]]:
    """The columns of :func:`score_columns` for some rows of a log, and the warnings that scoring gave.

    Raises:
        ValueError: a row is wrong; its place in the log is named.
    """
    # Warnings of another process would be lost.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SpaceWarning)
        try:
            columns = _score_rows(rewards, log.completions, log.rows)
        except ValueError:
            # Each row alone, to find the first that is wrong; "row 0" would be its number there.
            for completion, row, place in zip(log.completions, log.rows, log.places, strict=True):
                try:
                    _score_rows(rewards, [completion], [row])
                except ValueError as error:
                    raise ValueError(f"{place}: {str(error).replace(' in row 0', '')}") from None
            raise
    return columns, [str(warning.message) for warning in caught if issubclass(warning.category, SpaceWarning)]


def _score_rows(
    rewards: Sequence[GroundingReward], completions: Sequence[Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """The columns of :func:`score_columns` for these rows."""
    # Not all at once: a column that no row has must be missing, not empty.
    names = [name for name in _COLUMNS if any(name in row for row in rows)]
    return score_columns(rewards, completions, **{name: [row.get(name) for row in rows] for name in names})
