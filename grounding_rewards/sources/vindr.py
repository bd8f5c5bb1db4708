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
    image_finder,
    is_copy,
    read_groups,
    read_numbers,
    read_rows,
    read_sizes,
    row_error,
)

NO_FINDING = "No finding"

_NOBODY: tuple[tuple[str, ...], str] = ((), "")


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
    known_sizes = None if sizes is None else read_sizes(sizes, "image_id")
    find = image_finder(root)
    return chain.from_iterable(
        [
            read_vindr_table(
                find_file(root, *places),
                split=split,
                images=split,
                label="class_name",
                corners=("x_min", "y_min", "x_max", "y_max"),
                sizes=known_sizes,
                find=find,
            )
            for split, places in tables.items()
        ]
    )


def read_vindr_table(
    path: Path,
    *,
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
    groups = read_groups(path, ("image_id", label, *corners), ("rad_id", "study_id"))
    labels_path = path.with_name(f"image_labels_{split}.csv")
    image_labels = _read_image_labels(labels_path) if labels_path.is_file() else {}
    return (
        record
        for image, rows in groups
        for record in sound_images(
            _image,
            path,
            image,
            rows,
            split,
            find(f"{images}/{image}.dicom", image),
            sizes,
            image_labels.get(image, _NOBODY),
            findings,
        )
    )


def _image(
    path: Path,
    image: str,
    rows: list[TableRow],
    split: str,
    file: str,
    sizes: dict[str, Size] | None,
    image_labels: tuple[tuple[str, ...], str],
    findings: Collection[str] | None,
) -> AnnotatedImage:
    boxes, labels, readers, read_by, others = [], [], [], [], []
    for line, (_, label, x1, y1, x2, y2, reader, _study) in rows:
        corners = (x1, y1, x2, y2)
        read_by.append(reader)
        if findings is not None and label not in findings:
            others += [label] if label and label != NO_FINDING else []
        elif label != NO_FINDING:
            boxes.append(read_numbers(corners, path, line, image))
            labels.append(label)
            readers.append(reader)
        elif any(corners):
            raise row_error(path, line, image, "no box beside 'No finding'", corners, "Correct the row.")
    first_line, cells = rows[0]
    size: tuple[int | None, int | None] = (None, None)
    if sizes is not None:
        if image not in sizes:
            raise row_error(
                path, first_line, image, "an image whose size is known", image, "Add it to the table of sizes."
            )
        size = sizes[image]
    elif is_copy(file):
        raise row_error(
            path, first_line, image, "`sizes` for an image that is a copy", file,
            "Its boxes are in pixels of the DICOM file: give a table with image_id, width and height of these files.",
        )  # fmt: skip
    more_readers, named = image_labels
    return AnnotatedImage(
        id=image,
        file=file,
        boxes=boxes,
        labels=labels,
        width=size[0],
        height=size[1],
        patient_id=stated_name(cells[-1]),
        split=split,
        readers=tuple(readers) if any(readers) else (),
        read_by=tuple(name for name in dict.fromkeys((*read_by, *more_readers)) if name),
        extra={
            **({"image_labels": named} if named else {}),
            **({"other_labels": "|".join(dict.fromkeys(others))} if others else {}),
        },
    )


def _read_image_labels(path: Path) -> dict[str, tuple[tuple[str, ...], str]]:
    """For each image its readers, and the labels that any of them gave it, joined by `|` in the order of the
    columns."""
    _, header = next(read_rows(path), (0, []))
    names = [name.strip() for name in header]
    labels = [name for name in names if name.lower() not in ("image_id", "rad_id") and name != NO_FINDING]
    found = {}
    for image, rows in read_groups(path, ("image_id", *labels), ("rad_id",)):
        given = [any(cells[k] not in ("", "0", "0.0") for _, cells in rows) for k in range(1, len(labels) + 1)]
        found[image] = (tuple(cells[-1] for _, cells in rows), "|".join(compress(labels, given)))
    return found
