"""VinDr-SpineXR: spine images, each with the boxes of one radiologist.

Folder, PhysioNet 1.0.0::

    annotations/{train,test}.csv         study_id,series_id,image_id,rad_id,lesion_type,xmin,ymin,xmax,ymax
    annotations/{train,test}_meta.csv    image_id,image_height,image_width; made from the DICOM files, optional
    train_images/<image_id>.dicom, test_images/<image_id>.dicom

Empty boxes: the table has boxes without width or height. They are dropped, as by the dataset's own loader (any side
below 0.001 pixels), and counted in the image's `extra["empty_boxes"]`; an image with no other box is left out, since it
is no negative. A warning gives the counts at the end of the table.

Readers: one radiologist per image.
Labels: the dataset's seven findings. Rows of other lesion types are skipped, with or without a box, and named in the
image's `extra["other_labels"]`.
Negative: an image on which none of the seven was found; mostly its row says "No finding".
Boxes: pixels of the DICOM file. The patient is unknown; `patient_id` is the study, whose images belong together.
Paper: Nguyen et al., MICCAI 2021, arXiv 2106.12930.
Access: PhysioNet account and the signed data use agreement.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import RESTRICTED, register_source
from grounding_rewards.sources.tables import chosen_splits, find_file, image_finder, read_sizes
from grounding_rewards.sources.vindr import read_vindr_table

_SPLITS = ("train", "test")
# As the tables spell them.
_FINDINGS = (
    "Osteophytes", "Surgical implant", "Spondylolysthesis", "Foraminal stenosis", "Disc space narrowing",
    "Vertebral collapse", "Other lesions",
)  # fmt: skip
_SMALLEST_SIDE = 1e-3

logger = logging.getLogger(__name__)


@register_source(
    "vindr-spinexr", title="VinDr-SpineXR", url="https://physionet.org/content/vindr-spinexr/1.0.0/", licence=RESTRICTED
)
def read_vindr_spinexr(
    root: str | Path, *, split: str | None = None, sizes: str | Path | None = None
) -> Iterator[AnnotatedImage]:
    """The images of VinDr-SpineXR.

    Args:
        root: the folder of the dataset.
        split: `train` or `test`; None takes both.
        sizes: a CSV file with `image_id` and the width and height of every image, in place of the folder's
            `<split>_meta.csv`. Without either, width and height are None, and the DICOM file has to say. One of them is
            needed where images are PNG or JPEG copies, which may lie anywhere below the root as `<image_id>.png`.

    Returns:
        Records in the order in which images end in the tables; `extra["empty_boxes"]` where some were dropped.
    """
    return chain.from_iterable([_read_split(Path(root), name, sizes) for name in chosen_splits(split, _SPLITS)])


def _read_split(root: Path, split: str, sizes: str | Path | None) -> Iterator[AnnotatedImage]:
    path = find_file(root, f"annotations/{split}.csv", f"{split}.csv")
    meta = path.with_name(f"{split}_meta.csv")
    stated = sizes or (meta if meta.is_file() else None)
    known_sizes = None if stated is None else read_sizes(stated, "image_id")
    corners, find = ("xmin", "ymin", "xmax", "ymax"), image_finder(root)
    images = read_vindr_table(path, split, f"{split}_images", "lesion_type", corners, known_sizes, find, _FINDINGS)
    return _without_empty_boxes(images, path)


def _without_empty_boxes(records: Iterator[AnnotatedImage], path: Path) -> Iterator[AnnotatedImage]:
    dropped, shortened, left_out = 0, 0, 0
    for record in records:
        kept = [k for k, box in enumerate(record.boxes) if not _is_empty(box)]
        missing = len(record.boxes) - len(kept)
        dropped += missing
        if not missing:
            yield record
        elif kept:
            shortened += 1
            yield record._replace(
                boxes=[record.boxes[k] for k in kept],
                labels=[record.labels[k] for k in kept],
                readers=tuple(record.readers[k] for k in kept) if record.readers else (),
                extra={**record.extra, "empty_boxes": str(missing)},
            )
        else:
            left_out += 1
    if dropped:
        said = "%s: dropped %d boxes without width or height; %d images keep others, %d images have none: left out."
        logger.warning(said, path, dropped, shortened, left_out)


def _is_empty(box: list[float]) -> bool:
    x1, y1, x2, y2 = box
    return abs(x2 - x1) < _SMALLEST_SIDE or abs(y2 - y1) < _SMALLEST_SIDE
