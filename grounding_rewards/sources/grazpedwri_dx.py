"""GRAZPEDWRI-DX: 20,327 images of children's wrists from the University Hospital Graz.

Folder::

    dataset.csv                   a row per image with its patient; begins with a byte order mark
    labels/<filestem>.txt         YOLO; also found in yolov5/labels and folder_structure/yolov5/labels
    images/<filestem>.png         16 bits; found anywhere below the folder

Boxes: fractions of the image, whose size is read from its header. Nine classes; `text`, the marker of the side, is on
almost every image and no finding: it is left out.
Negative: an image without another box, also where its text file is missing.
Splits: none; keep a patient on one side.
Access: open.
"""

from pathlib import Path

from grounding_rewards.columns import stated_name
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import Images, register_source, sound_images
from grounding_rewards.sources.tables import TableRow, check_split, find_file, image_finder, image_rows
from grounding_rewards.sources.yolo import yolo_image

CLASSES = (
    "boneanomaly", "bonelesion", "foreignbody", "fracture", "metal", "periostealreaction", "pronatorsign",
    "softtissue", "text",
)  # fmt: skip
_EXTRA = (
    "gender", "age", "laterality", "projection", "fracture_visible", "cast", "diagnosis_uncertain", "pixel_spacing",
)  # fmt: skip


@register_source(
    "grazpedwri-dx", title="GRAZPEDWRI-DX", url="https://doi.org/10.6084/m9.figshare.14825193", licence="CC BY 4.0"
)
def read_grazpedwri_dx(root: str | Path, *, split: str | None = None) -> Images:
    """The images of GRAZPEDWRI-DX.

    Args:
        root: the folder of the dataset.
        split: None; the dataset has no splits.

    Returns:
        Images in the order of `dataset.csv`; `extra` keeps sex, age, side, projection and what
        the table says of the image.
    """
    check_split(split, ())
    root = Path(root)
    path = find_file(root, "dataset.csv")
    remedy = "Unpack the labels: an image without a text file would count as a negative."
    labels = find_file(root, "labels", "yolov5/labels", "folder_structure/yolov5/labels", remedy=remedy)
    find = image_finder(root, (".png",))

    def image(stem: str, rows: list[TableRow]) -> AnnotatedImage:
        """The image of that name, with its patient and the boxes of its findings."""
        place, (_, patient, *extra_cells) = rows[0]
        file = find(stem)
        if not file:
            raise place.error("an image for every image", f"no {stem}.png", "Unpack images_part1 to 4.")
        labelled_image = yolo_image(root, root / file, labels / f"{stem}.txt", CLASSES, split=None)
        # `text` is the marker of the side, and no finding.
        findings = [index for index, label in enumerate(labelled_image.labels) if label != "text"]
        return labelled_image._replace(
            id=stem,
            boxes=[labelled_image.boxes[index] for index in findings],
            labels=[labelled_image.labels[index] for index in findings],
            patient_id=stated_name(patient),
            extra={key: value for key, value in zip(_EXTRA, extra_cells, strict=True) if value},
        )

    rows_of_images = image_rows(path, ("filestem", "patient_id"), _EXTRA)
    # A second row makes a second image of the same id, which `prepare` refuses: no row is dropped unseen.
    single_rows = [(stem, [row]) for stem, rows in rows_of_images.items() for row in rows]
    return sound_images(image, single_rows)
