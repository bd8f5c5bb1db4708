"""Parquet shards of bounded size with counts of their rows in the footer; no shard is visible before it is complete."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grounding_rewards.common.atomic_files import publish, unfinished_name

FOLDER = "data"
"""The folder of the shards in a prepared dataset."""

FOOTER = b"grounding_rewards"
"""The key of the package's counts in the footer of a parquet file."""

# A row group is written when it has as many rows, or images of as many bytes.
_ROWS_PER_GROUP = 1000
_BYTES_PER_GROUP = 32e6
# Rows that are read at once; they may all have large images.
_ROWS_AT_ONCE = 16
# The rows of an image share it: dictionary encoding stores it once per row group, if the dictionary is large enough.
_DICTIONARY_BYTES = 2**30


class ShardWriter:
    """Writes the rows of one split image by image, into new shards after the finished ones.

    Args:
        folder: of the prepared dataset.
        split: its name.
        features: the columns, as `datasets` has them.
        max_bytes: size of its images at which a shard is closed.

    Attributes:
        images: Images of the split in finished shards, skipped ones included.
    """

    def __init__(self, folder: Path, split: str, features: Any, max_bytes: float) -> None:
        self._folder = folder / FOLDER
        self._split = split
        self._max_bytes = max_bytes
        self._schema = features.arrow_schema
        finished = shard_files(folder, split)
        self._number = len(finished)
        self.images = read_footer(finished[-1])["images"] if finished else 0
        self._seen = self.images
        self._rows: list[dict[str, Any]] = []
        self._group_bytes = self._shard_bytes = 0
        self._writer: Any = None
        self._counts = ShardCounts()

    def add(self, rows: Sequence[Mapping[str, Any]], image_bytes: int) -> None:
        """Add all rows of one image, whose file has `image_bytes`."""
        self._rows += map(dict, rows)
        self._seen += 1
        self._shard_bytes += image_bytes
        self._group_bytes += image_bytes * len(rows)
        self._counts.add(rows)
        if len(self._rows) >= _ROWS_PER_GROUP or self._group_bytes >= _BYTES_PER_GROUP:
            self._write_group()
        if self._shard_bytes >= self._max_bytes:
            self.close()

    def skip(self, image: str, reason: str) -> None:
        """Record an image that is left out."""
        self._seen += 1
        self._counts.skipped.append([image, reason])

    @property
    def is_empty(self) -> bool:
        """Whether neither the finished shards nor this one have a row."""
        return not self._number and not self._counts.rows

    @property
    def skipped(self) -> Sequence[Sequence[str]]:
        """Id and reason of each image left out since the last finished shard."""
        return self._counts.skipped

    def close(self) -> None:
        """Finish the open shard, if there is one."""
        if self._rows:
            self._write_group()
        elif self._writer is None and self._counts.skipped:
            # A shard without rows lists the images that were left out.
            self._open()
        if self._writer is None:
            return
        footer = {"images": self._seen, **self._counts.as_json()}
        self._writer.add_key_value_metadata({FOOTER: json.dumps(footer, ensure_ascii=False).encode()})
        self._writer.close()
        publish(unfinished_name(self._path), self._path)
        self._number += 1
        self._writer = None
        self._shard_bytes = 0
        self._counts = ShardCounts()

    @property
    def _path(self) -> Path:
        """Where the open shard will be when it is finished."""
        return self._folder / f"{self._split}-{self._number:05d}.parquet"

    def _open(self) -> None:
        """Begin a shard under a name that says that it is unfinished."""
        import pyarrow.parquet as pq

        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(
            unfinished_name(self._path), self._schema, dictionary_pagesize_limit=_DICTIONARY_BYTES
        )

    def _write_group(self) -> None:
        """Write the collected rows as one row group of the open shard."""
        import pyarrow as pa

        if self._writer is None:
            self._open()
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []
        self._group_bytes = 0


class ShardCounts:
    """The counts of a shard or of a split.

    Args:
        counts: From :meth:`as_json`; zero without them.

    Attributes:
        images: Images with rows.
        rows: Rows.
        negatives: Rows on which no reader drew a box.
        boxes: Boxes of each label, of all readers.
        rows_with: Rows with at least one box of each label.
        origins: Rows of each pair of source and licence; rows that have neither are not counted.
        skipped: Id and reason of each image left out.
    """

    def __init__(self, counts: Mapping[str, Any] | None = None) -> None:
        counts = counts or {}
        self.images = counts.get("images_with_rows", 0)
        self.rows = counts.get("rows", 0)
        self.negatives = counts.get("negatives", 0)
        self.boxes = Counter(counts.get("boxes", {}))
        self.rows_with = Counter(counts.get("rows_with", {}))
        self.origins = Counter({tuple(origin): rows for *origin, rows in counts.get("origins", [])})
        self.skipped: list[list[str]] = list(counts.get("skipped", []))

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the rows of one image."""
        self.images += 1
        self.rows += len(rows)
        for row in rows:
            labels = [label for reader_labels in row.get("reader_labels", ()) for label in reader_labels]
            # With several readers, `labels` has those of one of them.
            labels = labels or row["labels"]
            if not labels:
                self.negatives += 1
            self.boxes.update(labels)
            self.rows_with.update(set(labels))
            origin = (row.get("source"), row.get("licence"))
            if any(origin):
                self.origins[origin] += 1

    def __add__(self, other: ShardCounts) -> ShardCounts:
        total = ShardCounts()
        for name in vars(total):
            setattr(total, name, getattr(self, name) + getattr(other, name))
        return total

    def as_json(self) -> dict[str, Any]:
        """The counts as plain values that `ShardCounts` takes."""
        return {
            "images_with_rows": self.images,
            "rows": self.rows,
            "negatives": self.negatives,
            "boxes": dict(sorted(self.boxes.items())),
            "rows_with": dict(sorted(self.rows_with.items())),
            "origins": [[*origin, rows] for origin, rows in sorted(self.origins.items(), key=str)],
            "skipped": self.skipped,
        }


def shard_files(folder: Path, split: str) -> list[Path]:
    """The finished shards of a split in order, up to the first gap in their numbers."""
    files: list[Path] = []
    while True:
        path = folder / FOLDER / f"{split}-{len(files):05d}.parquet"
        if not path.is_file():
            return files
        files.append(path)


def read_footer(path: Path) -> dict[str, Any]:
    """The counts in the footer of a shard; `images` is the number of images of the split up to its end."""
    import pyarrow.parquet as pq

    return json.loads(pq.read_metadata(path).metadata[FOOTER])


def parquet_rows(paths: Sequence[str | Path]) -> Iterator[dict[str, Any]]:
    """Yield the rows of parquet files with images; only a few are in memory."""
    import pyarrow.parquet as pq

    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                yield from batch.to_pylist()


def file_checksum(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
