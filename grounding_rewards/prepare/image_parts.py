"""What a share of a preparation leaves: the image as they are stored, and what copies are found by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.common.whole_files import whole_file
from grounding_rewards.prepare.shards import FOOTER, parquet_rows
from grounding_rewards.prepare.stored_images import StoredImage

#: The ending of a part; its name begins with that of the folder that is prepared.
PART = ".images.parquet"
# Bytes of images in a row group.
_GROUP = 32e6


class MadeImage(NamedTuple):
    """An image of a share.

    id: That of the annotated image.
    signature: What copies are found by; None where they are not looked for, or the file cannot be read.
    image: What is stored; why there is none; or None where no row needs it, as far as the share knew.
    """

    id: str
    signature: bytes | None
    image: StoredImage | str | None


def write_part(path: Path, images: Iterable[MadeImage], identity: Mapping[str, Any]) -> None:
    """Write the images of a share; the file appears once all are there.

    Args:
        path: Where to write.
        images: In the order of the tables.
        identity: Of the preparation, which `read_footer` reads.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = pa.int64()
    fields = [("id", pa.string()), ("signature", pa.binary()), ("problem", pa.string()), ("data", pa.large_binary())]
    fields += [(name, number) for name in ("width", "height", "original_width", "original_height")]
    schema = pa.schema([*fields, ("original_spacing", pa.list_(pa.float64()))])
    with whole_file(path) as unfinished, pq.ParquetWriter(unfinished, schema, use_dictionary=False) as writer:
        rows: list[dict[str, Any]] = []
        size = 0
        for annotated in images:
            image = annotated.image
            stored = image._asdict() if isinstance(image, StoredImage) else {}
            problem = image if isinstance(image, str) else None
            rows.append({"id": annotated.id, "signature": annotated.signature, "problem": problem, **stored})
            size += len(stored.get("data", b""))
            if size >= _GROUP:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                rows, size = [], 0
        writer.write_table(pa.Table.from_pylist(rows, schema))
        writer.add_key_value_metadata({FOOTER: json.dumps(identity).encode()})


def read_signatures(parts: Sequence[Path]) -> Iterator[bytes | None]:
    """The signatures of all images in their order, without a look at the images."""
    for row in parquet_rows(parts, ["signature"]):
        yield row["signature"]


def read_images(parts: Sequence[Path]) -> Iterator[tuple[str, StoredImage | str | None]]:
    """The id of every image, and its image as in `MadeImage`."""
    for row in parquet_rows(parts, ["id", "problem", *StoredImage._fields]):
        name, problem, data = row.pop("id"), row.pop("problem"), row["data"]
        spacing = row.pop("original_spacing")
        image = problem if data is None else StoredImage(**row, original_spacing=spacing and tuple(spacing))
        yield name, image
