"""Images as they are stored, in 8 bits, upright, shrunk and encoded; and parquet shards of bounded size that hold them,
with the images left out in the footer. No shard is visible before it is complete.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grounding_rewards.common.atomic_files import publish, unfinished_name
from grounding_rewards.images.decoding import load_image, open_image, shown_image
from grounding_rewards.images.dicom import is_dicom

if TYPE_CHECKING:
    from PIL.Image import Image

_SAVE_OPTIONS: Mapping[str, Mapping[str, int]] = {
    # Three times as fast as Pillow's default level 6; files are 10 % larger.
    "png": {"compress_level": 3},
    "jpeg": {"quality": 95},
}


class StoredImage(NamedTuple):
    """An encoded image, its size, and the size of the image that it was made from, all in pixels."""

    data: bytes
    width: int
    height: int
    original_width: int
    original_height: int


def store_image(
    path: str | Path, *, side: int | None = None, image_format: str = "png", window: tuple[float, float] | None = None
) -> StoredImage:
    """Read an image, shrink it and encode it again.

    Images are read as everywhere in the package, see `grounding_rewards.images.decoding`. An image in colour whose
    channels are equal is stored grey. Only pixels are stored.

    Args:
        path: A DICOM file, or whatever Pillow reads.
        side: Longest side in pixels; None leaves the size.
        image_format: `png` or `jpeg`.
        window: The values of an image of more than 8 bits that become black and white; None for its smallest and
            largest.

    Raises:
        ValueError: The file cannot be read; the message says why.
    """
    from PIL.Image import Resampling

    # A DICOM file is shown by its own window.
    is_windowed = window is not None and not is_dicom(Path(path))
    image = shown_image(load_image(path), window) if is_windowed else open_image(path)
    image = _grey_if_colourless(image)
    original_width, original_height = image.size
    if side is not None and max(image.size) > side:
        scale = side / max(image.size)
        size = (max(1, round(original_width * scale)), max(1, round(original_height * scale)))
        # Pillow first averages whole pixels, down to three times the size: far faster, and hardly different.
        image = image.resize(size, Resampling.BICUBIC, reducing_gap=3.0)
    # Otherwise Pillow copies comments and profiles of the source.
    image.info = {}
    buffer = io.BytesIO()
    image.save(buffer, image_format, **_SAVE_OPTIONS[image_format])
    return StoredImage(buffer.getvalue(), *image.size, original_width, original_height)


def _grey_if_colourless(image: Image) -> Image:
    """The image in grey if its three channels are equal, else as it is."""
    from PIL.Image import fromarray

    if image.mode != "RGB":
        return image
    pixels = np.asarray(image)
    is_grey = np.array_equal(pixels[..., 0], pixels[..., 1]) and np.array_equal(pixels[..., 0], pixels[..., 2])
    return fromarray(np.ascontiguousarray(pixels[..., 0])) if is_grey else image


FOLDER = "data"
"""The folder of the shards in a prepared dataset."""

FOOTER = b"grounding_rewards"
"""The key of the package's values in the footer of a parquet file."""

# Size of its images at which a shard is closed.
_SHARD_BYTES = 256e6
# A row group is written when it has as many rows, or images of as many bytes.
_ROWS_PER_GROUP = 1000
_BYTES_PER_GROUP = 32e6


class ShardWriter:
    """Writes the rows of one split image by image, into new shards after the finished ones.

    Args:
        folder: of the prepared dataset.
        split: its name.
        features: the columns, as `datasets` has them.

    Attributes:
        images: Images of the split in finished shards, skipped ones included.
        skipped: Id and reason of each image left out since the last finished shard.
    """

    def __init__(self, folder: Path, split: str, features: Any) -> None:
        self._folder = folder / FOLDER
        self._split = split
        self._schema = features.arrow_schema
        finished_shards = shard_files(folder, split)
        # The open shard follows the finished ones, which count from 0.
        self._number = len(finished_shards)
        # A shard counts the images of the shards before it too.
        self.images = read_footer(finished_shards[-1])["images"] if finished_shards else 0
        # Those of the open shard are added as they come.
        self._seen_images = self.images
        # Of the open row group, and the bytes of its images and of those of the open shard.
        self._rows: list[Mapping[str, Any]] = []
        self._group_bytes = self._shard_bytes = 0
        # None until the open shard has its first row group.
        self._writer: Any = None
        self.skipped: list[list[str]] = []

    def add(self, rows: Sequence[Mapping[str, Any]], image_bytes: int) -> None:
        """Add all rows of one image, whose encoded file is `image_bytes` long; write or close what is full by then."""
        self._rows += rows
        self._seen_images += 1
        self._shard_bytes += image_bytes
        # Until the group is written each row holds the image, which the shard stores once.
        self._group_bytes += image_bytes * len(rows)
        if len(self._rows) >= _ROWS_PER_GROUP or self._group_bytes >= _BYTES_PER_GROUP:
            self._write_group()
        if self._shard_bytes >= _SHARD_BYTES:
            self.close()

    def skip(self, image: str, reason: str) -> None:
        """Record an image that is left out."""
        self._seen_images += 1
        self.skipped.append([image, reason])

    @property
    def is_empty(self) -> bool:
        """Whether neither the finished shards nor this one have a row."""
        return not (self._number or self._rows or self._writer)

    def close(self) -> None:
        """Finish the open shard, if there is one."""
        if self._rows:
            self._write_group()
        elif self._writer is None and self.skipped:
            # A shard without rows lists the images that were left out.
            self._open()
        if self._writer is None:
            return
        footer = {"images": self._seen_images, "skipped": self.skipped}
        self._writer.add_key_value_metadata({FOOTER: json.dumps(footer, ensure_ascii=False).encode()})
        self._writer.close()
        publish(unfinished_name(self._path), self._path)
        self._number += 1
        self._writer = None
        self._shard_bytes = 0
        self.skipped = []

    @property
    def _path(self) -> Path:
        """Where the open shard will be when it is finished."""
        return self._folder / f"{self._split}-{self._number:05d}.parquet"

    def _open(self) -> None:
        """Begin a shard under a name that says that it is unfinished."""
        import pyarrow.parquet as pq

        self._folder.mkdir(parents=True, exist_ok=True)
        # The rows of an image share it: a dictionary that may be 1 GiB large has it once per row group.
        self._writer = pq.ParquetWriter(unfinished_name(self._path), self._schema, dictionary_pagesize_limit=2**30)

    def _write_group(self) -> None:
        """Write the collected rows as one row group of the open shard."""
        import pyarrow as pa

        if self._writer is None:
            self._open()
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []
        self._group_bytes = 0


def count_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The counts of rows for the manifest.

    Args:
        rows: With `labels`, and where there are several readers `reader_labels`.

    Returns:
        The number of `rows`; of `negatives`, on which no reader drew a box; `boxes` of each label, of all readers; and
        `rows_with` at least one box of each label.

    >>> count_rows([{"labels": ["mass", "mass"]}, {"labels": []}])["rows_with"]
    {'mass': 1}
    """
    negatives = 0
    boxes, rows_with = Counter[str](), Counter[str]()
    for row in rows:
        # With several readers, `labels` has those of one of them alone.
        labels = list(chain.from_iterable(row.get("reader_labels") or ())) or row["labels"]
        negatives += not labels
        boxes.update(labels)
        rows_with.update(set(labels))
    return {
        "rows": len(rows),
        "negatives": negatives,
        "boxes": dict(sorted(boxes.items())),
        "rows_with": dict(sorted(rows_with.items())),
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
    """The footer of a shard: `images` of the split up to its end, and id and reason of each one `skipped` in it."""
    import pyarrow.parquet as pq

    return json.loads(pq.read_metadata(path).metadata[FOOTER])


def labels_in(path: Path) -> list[dict[str, Any]]:
    """The columns of a shard that :func:`count_rows` reads, row by row."""
    import pyarrow.parquet as pq

    columns = [name for name in ("labels", "reader_labels") if name in pq.read_schema(path).names]
    return pq.read_table(path, columns=columns).to_pylist()


def file_checksum(path: Path) -> str:
    """The sha256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
