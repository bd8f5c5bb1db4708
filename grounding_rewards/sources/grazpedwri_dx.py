"""GRAZPEDWRI-DX: 20,327 images of children's wrists from the University Hospital Graz.

Folder::

    dataset.csv                   a row per image with its patient; begins with a byte order mark
    labels/<filestem>.txt         YOLO; also found in yolov5/labels and folder_structure/yolov5/labels
    images/<filestem>.png         16 bits; also found in images_part1 ... images_part4

Boxes: fractions of the image, whose size is read from its header. Nine classes; `text`, the marker of the side, is on
almost every image and no finding: it is left out unless `classes` names it.
Negative: an image without a box of the classes that were asked for, also where its text file is missing.
Splits: none; keep a patient on one side.
Access: open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from grounding_rewards.columns import stated_name
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import register_source
from grounding_rewards.sources.passed_over import sound_images
from grounding_rewards.sources.tables import (
    check_split,
    find_file,
    header_size,
    image_files,
    read_table,
    row_error,
    scaled_box,
)
from grounding_rewards.sources.yolo import read_label_file

CLASSES = (
    "boneanomaly",
    "bonelesion",
    "foreignbody",
    "fracture",
    "metal",
    "periostealreaction",
    "pronatorsign",
    "softtissue",
    "text",
)
_LABELS = ("labels", "yolov5/labels", "folder_structure/yolov5/labels")
_EXTRA = (
    "gender", "age", "laterality", "projection", "fracture_visible", "cast", "diagnosis_uncertain", "pixel_spacing",
)  # fmt: skip


@register_source(
    "grazpedwri-dx", title="GRAZPEDWRI-DX", url="https://doi.org/10.6084/m9.figshare.14825193", licence="CC BY 4.0"
)
def read_grazpedwri_dx(
    root: str | Path, *, split: str | None = None, classes: Collection[str] = CLASSES[:-1]
) -> Iterator[AnnotatedImage]:
    """The images of GRAZPEDWRI-DX.

    Args:
        root: the folder of the dataset.
        split: None; the dataset has no splits.
        classes: whose boxes are kept. `["fracture"]` makes every image without a fracture a negative.

    Returns:
        Records in the order of `dataset.csv`; `extra` keeps sex, age, side, projection and what
        the table says of the image.
    """
    check_split(split, ())
    if isinstance(classes, str) or not set(classes) <= set(CLASSES):
        raise ValueError(f"Expected some of {', '.join(CLASSES)} for classes, got {classes!r}. Correct the names.")
    root = Path(root)
    path = find_file(root, "dataset.csv")
    labels = next((root / name for name in _LABELS if (root / name).is_dir()), None)
    if labels is None:
        raise ValueError(
            f"Expected {' or '.join(_LABELS)} in the folder for root, got {str(root)!r} without. Unpack the labels: an "
            "image without a text file would count as a negative."
        )
    images = {
        name: f"{folder.name}/{file}"
        for folder in (root / "images", *sorted(root.glob("images_part*")))
        if folder.is_dir()
        for name, file in image_files(folder, [".png"]).items()
    }
    rows = read_table(path, ("filestem", "patient_id"), _EXTRA)
    return (
        image
        for line, (stem, patient, *extra) in rows
        for image in sound_images(_image, root, path, line, stem, patient, extra, images, labels, classes)
    )


def _image(
    root: Path,
    path: Path,
    line: int,
    stem: str,
    patient: str,
    extra: list[str],
    images: dict[str, str],
    labels: Path,
    classes: Collection[str],
) -> AnnotatedImage:
    file = images.get(f"{stem}.png")
    if file is None:
        raise row_error(path, line, stem, "an image for every image", f"no {stem}.png", "Unpack images_part1 to 4.")
    width, height = header_size(root / file)
    found = [entry for entry in read_label_file(labels / f"{stem}.txt", CLASSES) if entry[0] in classes]
    return AnnotatedImage(
        id=stem,
        file=file,
        boxes=[scaled_box(box, width, height) for _, box in found],
        labels=[label for label, _ in found],
        width=width,
        height=height,
        patient_id=stated_name(patient),
        extra={key: value for key, value in zip(_EXTRA, extra, strict=True) if value},
    )
