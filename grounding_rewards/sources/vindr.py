"""What the three VinDr datasets share: a table with a row per box and reader, "No finding" rows, no sizes of images.

Where images are kept as PNG or JPEG copies, these are found by their ids, and a table of sizes is needed: boxes are in
pixels of the DICOM file, and a copy may be smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, compress
from pathlib import Path

from grounding_rewards.columns import stated_name
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.passed_over import sound_images
from grounding_rewards.sources.tables import (
    Size,
    TableRow,
    find_file,
    grouped_rows,
    image_finder,
    is_copy,
    known_size,
    read_rows,
    read_sizes,
)

NO_FINDING = "No finding"


def read_vindr_chest(
    root: str | Path, tables: Mapping[str, Sequence[str]], sizes: str | Path | None
) -> Iterator[AnnotatedImage]:
    """The images of VinDr-CXR or VinDr-PCXR.

    Args:
        root: the folder of the dataset.
        tables: name of each split that is wanted to the places where its table may lie, relative to the root.
        sizes: a CSV file as `read_sizes` takes it, by `image_id`; None where there is none.

    Raises:
        ValueError: a file or column is missing; while iterating, as `read_vindr_table`.
    """
    known_sizes, find = None if sizes is None else read_sizes(sizes, "image_id"), image_finder(root)
    corners = ("x_min", "y_min", "x_max", "y_max")
    found = [(find_file(root, *places), split, split, "class_name") for split, places in tables.items()]
    return chain.from_iterable([read_vindr_table(*one, corners, known_sizes, find) for one in found])


def read_vindr_table(
    path: Path,
    split: str,
    images: str,
    label: str,
    corners: Sequence[str],
    sizes: dict[str, Size] | None,
    find: Callable[[str, str], str],
    findings: Collection[str] | None = None,
) -> Iterator[AnnotatedImage]:
    """The images of one table; its header is checked at the call.

    Args:
        path: the table of boxes. Where `image_labels_<split>.csv` lies beside it, it completes `read_by` with readers
            who drew nothing, and `extra["image_labels"]` names the labels that any reader gave the whole image.
        split: name of the split.
        images: folder of the images as it was published, relative to the root.
        label: column of the finding.
        corners: columns of x1, y1, x2 and y2, in pixels of the DICOM file.
        sizes: width and height of every image; None where they are not known.
        find: what `image_finder` gives.
        findings: the labels that count; rows of others are skipped, whatever their cells hold, and
            `extra["other_labels"]` names them. None takes all, and refuses a box beside "No finding".

    Raises:
        ValueError: a column is missing; while iterating, a row that cannot be read, an image without a size, or a copy
            of an image where no sizes are given.
    """
    groups = grouped_rows(path, ("image_id", label, *corners), ("rad_id", "study_id"))
    labels_path = path.with_name(f"image_labels_{split}.csv")
    image_labels = _read_image_labels(labels_path) if labels_path.is_file() else {}

    def annotated(image: str, rows: list[TableRow]) -> AnnotatedImage:
        boxes, labels, readers, read_by, others = [], [], [], [], []
        for place, (_, name, *cells, reader, _study) in rows:
            read_by.append(reader)
            if findings is not None and name not in findings:
                others += [name] if name and name != NO_FINDING else []
            elif name != NO_FINDING:
                boxes.append(place.numbers(cells))
                labels.append(name)
                readers.append(reader)
            elif any(cells):
                raise place.error("no box beside 'No finding'", tuple(cells), "Correct the row.")
        place, first = rows[0]
        file = find(f"{images}/{image}.dicom", image)
        if sizes is None and is_copy(file):
            fix = "Its boxes are in pixels of the DICOM file: give a table with image_id, width and height of these."
            raise place.error("`sizes` for an image that is a copy", file, fix)
        width, height = (None, None) if sizes is None else known_size(sizes, place)
        more_readers, named = image_labels.get(image, ((), ""))
        extra = {"image_labels": named, "other_labels": "|".join(dict.fromkeys(others))}
        return AnnotatedImage(
            id=image,
            file=file,
            boxes=boxes,
            labels=labels,
            width=width,
            height=height,
            patient_id=stated_name(first[-1]),
            split=split,
            readers=tuple(readers) if any(readers) else (),
            read_by=tuple(name for name in dict.fromkeys((*read_by, *more_readers)) if name),
            extra={name: value for name, value in extra.items() if value},
        )

    return sound_images(annotated, groups)


def _read_image_labels(path: Path) -> dict[str, tuple[tuple[str, ...], str]]:
    """For each image its readers, and the labels that any of them gave it, joined by `|` in the order of the
    columns."""
    _, header = next(read_rows(path), (0, []))
    names = [name.strip() for name in header]
    labels = [name for name in names if name.lower() not in ("image_id", "rad_id") and name != NO_FINDING]
    found = {}
    for image, rows in grouped_rows(path, ("image_id", *labels), ("rad_id",)):
        given = [any(cells[k] not in ("", "0", "0.0") for _, cells in rows) for k in range(1, len(labels) + 1)]
        found[image] = (tuple(cells[-1] for _, cells in rows), "|".join(compress(labels, given)))
    return found
