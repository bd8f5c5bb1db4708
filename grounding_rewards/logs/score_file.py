"""Score a log of completions without a model: block by block, by one worker or many, in constant memory."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.columns import SCORED_COLUMNS
from grounding_rewards.common.atomic_files import whole_file
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.workers import check_workers, map_in_workers
from grounding_rewards.logs.job_shares import Share, parts_of
from grounding_rewards.logs.read import (
    Block,
    Log,
    LogBlocks,
    LogDoubts,
    check_completions,
    find_text_column,
    log_files,
    read_blocks,
    text_column_notes,
    with_answer_references,
)
from grounding_rewards.parsing import STATUSES
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards.grounding import GroundingReward, check_alike, score_columns

#: The columns of a row that rewards read, beside the text.
_COLUMNS = (*SCORED_COLUMNS, "ground_truth")
_OUTPUTS = (".parquet", ".jsonl")
# Rows of a row group of a parquet file: small groups are slow to read.
_ROW_GROUP = 1 << 16
# Of each two rewards so many rows are named on which they disagree.
_MOST_ROWS = 5


class RewardPair(NamedTuple):
    """How alike two rewards order the same completions.

    Attributes:
        a, b: their names.
        correlation: Spearman's of their rewards, in [-1, 1]; None where one of them pays every completion the same.
        rows: lines of the output, from 1, whose ranks under the two are furthest apart, the furthest first.
    """

    a: str
    b: str
    correlation: float | None
    rows: tuple[int, ...]


def reward_pairs(rewards: Mapping[str, ArrayLike]) -> tuple[RewardPair, ...]:
    """Compare each two rewards of the same completions by the order in which they put them.

    Args:
        rewards: ``(completions,)`` of each by name.

    Source: Spearman, American Journal of Psychology 1904; ties share their mean rank.

    Example:
        >>> reward_pairs({"R3": [0.0, 0.5, 1.0], "R5": [0.0, 0.9, 0.4]})
        (RewardPair(a='R3', b='R5', correlation=0.5, rows=(2, 3)),)
    """
    ranks = {}
    for name, values in rewards.items():
        # Ties share their mean rank; scipy.stats has this too, and takes longer to load than short files to score.
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks[name] = (counts.cumsum() - (counts - 1) / 2)[place]
    pairs = []
    for (a, x), (b, y) in combinations(ranks.items(), 2):
        apart = np.abs(x - y)
        order = np.argsort(-apart, kind="stable")[:_MOST_ROWS]
        flat = min(np.ptp(x), np.ptp(y)) == 0
        correlation = None if flat else round(float(np.corrcoef(x, y)[0, 1]), 12)
        pairs.append(RewardPair(a, b, correlation, tuple(int(k) + 1 for k in order if apart[k] > 0)))
    return tuple(pairs)


@dataclass(frozen=True)
class ScoreSummary:
    """What was scored.

    Attributes:
        completions: how many.
        means: of each reward.
        statuses: how many completions have each of `STATUSES`.
        pairs: how alike each two rewards order the completions.
        warnings: where the numbers contradict the declared space or order of the box format, and what is doubtful
            about the rows.
    """

    completions: int
    means: dict[str, float]
    statuses: dict[str, int]
    warnings: tuple[str, ...]
    pairs: tuple[RewardPair, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "pairs": [pair._asdict() for pair in self.pairs]}


def score_file(
    path: str | Path,
    out: str | Path,
    rewards: Sequence[GroundingReward],
    *,
    text_column: str | None = None,
    processes: int | None = None,
    share: Share | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> ScoreSummary:
    """Score every completion of a file and write what came out, in the order of the file.

    A row of the output has ``row`` (the line or row of the file, from 1), ``id`` (that of the row, or null), of a
    folder ``file`` (its name), ``status``, ``rejected`` and ``boxes``, and for every reward the columns that
    :func:`grounding_rewards.rewards.grounding.score_columns` gives. The output appears under its name once it is
    complete.

    Args:
        path: a file that :func:`grounding_rewards.logs.read.read_blocks` takes, or a folder that
            :func:`grounding_rewards.logs.read.log_files` does; its rows have the columns that rewards read:
            ``boxes``, and ``width``, ``height`` and so on as the box format needs them.
        out: a file that ends in .parquet or .jsonl, another one than that; its folder is made.
        rewards: what to score by, all with the same box format.
        text_column: the column with the completions, as for
            :func:`grounding_rewards.logs.read.find_text_column`.
        processes: that score, see :func:`grounding_rewards.common.workers.map_in_workers`; this one writes.
        share: of the rows, whose part of ``out`` is written, see :func:`join_scored`; None for all.
        on_progress: called with the number of completions that are done, after each block.

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
    if out.suffix not in _OUTPUTS:
        raise ValueError(f"Expected a file that ends in .parquet or .jsonl for `out`, got {str(out)!r}. Rename it.")
    check_workers(processes)
    out = out if share is None else share.part(out)
    if out.exists() and path.exists() and out.samefile(path):
        raise ValueError(
            f"Expected another file than the completions for `out`, got {str(out)!r} for both. Give it another name: "
            "the completions would be lost."
        )
    check_alike(rewards)
    files = tuple(log_files([path]))
    # The same column for every share.
    first = next(iter(LogBlocks(files)), None)
    rows = [] if first is None else [row for _, row in first.rows()]
    column = find_text_column(rows, text_column)
    scorer = _Scorer(tuple(rewards), column, text_column is not None, out.suffix, path.is_dir())
    blocks = LogBlocks(files, share)
    total = _Scored()
    with (
        whole_file(out) as unfinished,
        map_in_workers(scorer, blocks, processes=processes) as scored,
    ):
        _write(unfinished, _added(total, scored, on_progress), scorer.schema() if out.suffix == ".parquet" else None)
    summary = total.summary(scorer.names)
    return summary if scorer.is_named else replace(summary, warnings=(*text_column_notes(column), *summary.warnings))


def join_scored(out: str | Path, on_progress: Callable[[int], None] | None = None) -> ScoreSummary:
    """Write what the shares of :func:`score_file` scored as one file, the same as without shares, and remove the parts.

    Args:
        out: as it was given for every share.
        on_progress: called with the number of completions that are written, after each part.

    Returns:
        What they scored, without warnings: those were given when they scored.

    Raises:
        ValueError: parts are missing, or differ in their columns.
    """
    out = Path(out)
    parts = [part for _, part in parts_of(out)]
    columns = _columns_of_all(parts)
    rewards = [column.removesuffix("/reason") for column in columns if column.endswith("/reason")]
    total = _Scored()
    # The schema that a file states is not, to the byte, the one that it was written with.
    schema = _schema(rewards, names_files="file" in columns) if out.suffix == ".parquet" else None
    with whole_file(out) as unfinished:
        _write(unfinished, _added(total, _read_parts(parts, rewards), on_progress), schema)
    for part in parts:
        part.unlink()
    return total.summary(rewards)


def _read_parts(parts: Sequence[Path], rewards: Sequence[str]) -> Iterator[tuple[Any, _Scored]]:
    names = ["status", *rewards]
    for block in chain.from_iterable(map(read_blocks, parts)):
        content = block.content
        if isinstance(content, bytes):
            rows = [json.loads(line) for line in content.split(b"\n")]
            yield content + b"\n", _Scored.of(rewards, {name: [row[name] for row in rows] for name in names})
        else:
            yield content, _Scored.of(rewards, {name: content.column(name).to_pylist() for name in names})


def _columns_of_all(parts: Sequence[Path]) -> list[str]:
    """The columns of all parts; those that were scored in other ways are refused."""
    expected: list[str] = []
    for part in parts:
        if part.suffix == ".parquet":
            import pyarrow.parquet as parquet

            columns = list(parquet.read_schema(part).names)
        else:
            # None of a part of no lines.
            with part.open("rb") as file:
                columns = list(json.loads(file.readline() or b"{}"))
        expected = expected or columns
        if columns and columns != expected:
            raise ValueError(
                f"Expected the columns {', '.join(expected)} in every part, got {', '.join(columns)} in {str(part)!r}. "
                "Score all shards with the same rewards."
            )
    return expected


@dataclass
class _Scored:
    """What is added up over blocks of scored rows.

    Attributes:
        values: of the rewards, ``(rewards, rows)`` for each block: eight bytes a completion and reward are all that
            grows.
        statuses: how many completions have each.
        warnings: by their text without numbers: every worker warns for itself, with other ones.
        doubts: about the rows.
    """

    values: list[Array] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    warnings: dict[str, str] = field(default_factory=dict)
    doubts: LogDoubts = field(default_factory=LogDoubts)

    @classmethod
    def of(cls, rewards: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> _Scored:
        """Of the columns of one block."""
        return cls([np.array([columns[name] for name in rewards], dtype=np.float64)], Counter(columns["status"]))

    def add(self, later: _Scored) -> None:
        """Add a later block."""
        self.values += later.values
        self.statuses += later.statuses
        for warning, text in later.warnings.items():
            self.warnings.setdefault(warning, text)
        self.doubts.add(later.doubts)

    def summary(self, names: Sequence[str]) -> ScoreSummary:
        n = self.statuses.total()
        # A share of a short file may have none.
        rewards = dict(zip(names, np.concatenate(self.values, axis=1), strict=True)) if n else {}
        return ScoreSummary(
            n,
            {name: math.fsum(values) / n for name, values in rewards.items()},
            {status: self.statuses[status] for status in STATUSES},
            (*self.warnings.values(), *self.doubts.sentences()),
            reward_pairs(rewards) if n > 1 else (),
        )


def _added(
    total: _Scored, blocks: Iterable[tuple[Any, _Scored]], on_progress: Callable[[int], None] | None
) -> Iterator[Any]:
    """What is to be written of each block that has rows, which is added up on the way."""
    for content, scored in blocks:
        total.add(scored)
        if on_progress is not None:
            on_progress(total.statuses.total())
        if content is not None:
            yield content


@dataclass(frozen=True)
class _Scorer:
    """Scores blocks; every worker has a copy."""

    rewards: tuple[GroundingReward, ...]
    text_column: str
    is_named: bool
    kind: str
    names_files: bool

    def __call__(self, block: Block) -> tuple[Any, _Scored]:
        numbered = block.rows()
        if not numbered:
            # Empty lines alone.
            return None, _Scored()
        rows = [row for _, row in numbered]
        if not self.is_named:
            # Refuses a second candidate that only later rows have.
            find_text_column(rows)
        check_completions(((block.place(number), row) for number, row in numbered), self.text_column)
        rows = with_answer_references(Log([], rows, []), self.rewards[0].box_format).rows
        numbered = [(number, row) for (number, _), row in zip(numbered, rows, strict=True)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SpaceWarning)
            try:
                found = self._score(rows)
            except ValueError:
                self._name_the_row(block, numbered)
                raise
        scored = _Scored.of(self.names, found)
        scored.doubts.look((block.place(number), row) for number, row in numbered)
        for said in (str(one.message) for one in caught if issubclass(one.category, SpaceWarning)):
            scored.warnings.setdefault(re.sub(r"[\d.]+", "", said), said)
        ids = [row.get("id") for row in rows]
        columns: dict[str, list[Any]] = {
            "row": [number for number, _ in numbered],
            "id": [None if one is None else str(one) for one in ids],
            **({"file": [Path(block.path).name] * len(rows)} if self.names_files else {}),
            **found,
        }
        return _as_record_batch(columns, self) if self.kind == ".parquet" else _as_lines(columns), scored

    @property
    def names(self) -> list[str]:
        """Of the rewards, which are those of their columns."""
        return [reward.__name__ for reward in self.rewards]

    def schema(self) -> Any:
        """Of a parquet file of what is scored."""
        return _schema(self.names, names_files=self.names_files)

    def _score(self, rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
        columns = {name: [row.get(name) for row in rows] for name in _COLUMNS if any(name in row for row in rows)}
        return score_columns(self.rewards, [row[self.text_column] for row in rows], **columns)

    def _name_the_row(self, block: Block, numbered: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Raise the error of the first bad row, with its number."""
        for number, row in numbered:
            try:
                self._score([row])
            except ValueError as error:
                raise ValueError(f"{block.place(number)}: {str(error).replace(' in row 0', '')}") from None


def _as_lines(columns: dict[str, list[Any]]) -> bytes:
    names = list(columns)
    # ASCII, because an id may hold a lone surrogate, which UTF-8 cannot encode.
    lines = [json.dumps(dict(zip(names, values, strict=True))) for values in zip(*columns.values(), strict=True)]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _as_record_batch(columns: dict[str, list[Any]], scorer: _Scorer) -> Any:
    import pyarrow

    ids = [None if one is None else one.encode("utf-8", "backslashreplace").decode() for one in columns["id"]]
    rejected = [list(counts.items()) for counts in columns["rejected"]]
    schema = scorer.schema()
    return pyarrow.RecordBatch.from_pydict({**columns, "id": ids, "rejected": rejected}, schema=schema)


def _schema(rewards: Iterable[str], *, names_files: bool) -> Any:
    import pyarrow

    number, count, text = pyarrow.float64(), pyarrow.int32(), pyarrow.string()
    fields = [
        ("row", pyarrow.int64()),
        ("id", text),
        *([("file", text)] if names_files else []),
        ("status", text),
        ("rejected", pyarrow.map_(text, count)),
        ("boxes", count),
    ]
    for name in rewards:
        fields.append((name, number))
        fields += [(f"{name}/{part}", number) for part in ("f_beta", "quality", "precision", "recall", "mean_iou")]
        fields += [(f"{name}/{part}", count) for part in ("tp", "fp", "fn")]
        fields.append((f"{name}/reason", text))
    return pyarrow.schema(fields)


def _write(path: Path, contents: Iterable[Any], schema: Any) -> None:
    """Write lines, or, with a schema, record batches in row groups of one size, so that the bytes depend on the
    rows alone, not on how they were shared out."""
    if schema is None:
        with path.open("wb") as file:
            file.writelines(contents)
        return
    import pyarrow
    import pyarrow.parquet as parquet

    with parquet.ParquetWriter(path, schema) as writer:
        waiting = pyarrow.Table.from_batches([], schema)
        for batch in contents:
            waiting = pyarrow.concat_tables([waiting, pyarrow.Table.from_batches([batch], schema)])
            while waiting.num_rows >= _ROW_GROUP:
                writer.write_table(waiting.slice(0, _ROW_GROUP).combine_chunks())
                waiting = waiting.slice(_ROW_GROUP)
        if waiting.num_rows:
            writer.write_table(waiting.combine_chunks())
