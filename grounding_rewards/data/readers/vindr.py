"""What the three VinDr datasets share: a table with a row per box and reader, "No finding" rows, no sizes of films."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path

from grounding_rewards.data.readers.base import FilmRecord
from grounding_rewards.data.readers.tables import Row, Size, read_groups, read_numbers, read_rows, row_error

NO_FINDING = "No finding"

_NOBODY: tuple[tuple[str, ...], str] = ((), "")


def read_vindr_table(
    path: Path, *, split: str, images: str, label: str, corners: Sequence[str], sizes: dict[str, Size] | None
) -> Iterator[FilmRecord]:
    """The films of one table; its header is checked at the call.

    Args:
        path: The table of boxes. Where `image_labels_<split>.csv` lies beside it, it completes `read_by` with readers
            who drew nothing, and `extra["image_labels"]` names what any reader said of the film as a whole.
        split: Name of the split.
        images: Folder of the films, relative to the root.
        label: Column of the finding.
        corners: Columns of x1, y1, x2 and y2, in pixels of the DICOM file.
        sizes: Width and height of every film; None where they are not known.

    Raises:
        ValueError: A column is missing; while iterating, a row that cannot be read or a film without a size.
    """
    groups = read_groups(path, ("image_id", label, *corners), ("rad_id", "study_id"))
    labels_path = path.with_name(f"image_labels_{split}.csv")
    image_labels = _read_image_labels(labels_path) if labels_path.is_file() else {}
    return (_film(path, film, rows, split, images, sizes, image_labels.get(film, _NOBODY)) for film, rows in groups)


def _film(
    path: Path,
    film: str,
    rows: list[Row],
    split: str,
    images: str,
    sizes: dict[str, Size] | None,
    image_labels: tuple[tuple[str, ...], str],
) -> FilmRecord:
    boxes, labels, readers, read_by = [], [], [], []
    for line, (_, label, x1, y1, x2, y2, reader, _study) in rows:
        corners = (x1, y1, x2, y2)
        read_by.append(reader)
        if label != NO_FINDING:
            boxes.append(read_numbers(corners, path, line, film))
            labels.append(label)
            readers.append(reader)
        elif any(corners):
            raise row_error(path, line, film, "no box beside 'No finding'", corners, "Correct the row.")
    first_line, cells = rows[0]
    size: tuple[int | None, int | None] = (None, None)
    if sizes is not None:
        if film not in sizes:
            raise row_error(path, first_line, film, "a film whose size is known", film, "Add it to the table of sizes.")
        size = sizes[film]
    more_readers, named = image_labels
    return FilmRecord(
        id=film,
        file=f"{images}/{film}.dicom",
        boxes=boxes,
        labels=labels,
        width=size[0],
        height=size[1],
        patient_id=cells[-1] or None,
        split=split,
        readers=tuple(readers) if any(readers) else (),
        read_by=tuple(name for name in dict.fromkeys((*read_by, *more_readers)) if name),
        extra={"image_labels": named} if named else {},
    )


def _read_image_labels(path: Path) -> dict[str, tuple[tuple[str, ...], str]]:
    """Film to its readers, and to the labels that any of them gave it, joined by `|` in the order of the columns."""
    _, header = next(read_rows(path), (0, []))
    names = [name.strip() for name in header]
    labels = [name for name in names if name.lower() not in ("image_id", "rad_id") and name != NO_FINDING]
    found = {}
    for film, rows in read_groups(path, ("image_id", *labels), ("rad_id",)):
        given = [any(cells[k] not in ("", "0", "0.0") for _, cells in rows) for k in range(1, len(labels) + 1)]
        found[film] = (tuple(cells[-1] for _, cells in rows), "|".join(compress(labels, given)))
    return found
