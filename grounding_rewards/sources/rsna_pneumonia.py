"""RSNA Pneumonia Detection Challenge (2018): chest radiographs with boxes around opacities that suggest pneumonia.

Folder::

    stage_2_train_labels.csv           patientId,x,y,width,height,Target; a row per box
    stage_2_detailed_class_info.csv    patientId,class; optional
    stage_2_train_images/<patientId>.dcm

`patientId` numbers images, not patients, so `patient_id` is None.

Readers: several radiologists, merged by the authors.
Negative: an image with Target 0. Two thirds of them show something else: their `extra["class"]` is "No Lung Opacity /
Not Normal".
Copies: where the DICOM file isn't there, `<patientId>.png` or `.jpg` is taken from anywhere below the root.
Boxes: left, top, width and height in pixels of the DICOM file, which is 1024 x 1024, however large a copy is.
All are labelled "Lung Opacity", the name of their class.
Paper: Shih et al., Radiology: AI, 2019.
Access: Kaggle account.
"""

import sys
from pathlib import Path

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources import tables
from grounding_rewards.sources.base import KAGGLE, Images, register_source

_SIDE = 1024


@register_source(
    "rsna-pneumonia",
    title="RSNA Pneumonia Detection Challenge",
    url="https://www.kaggle.com/c/rsna-pneumonia-detection-challenge",
    licence=KAGGLE,
    note="Two thirds of the images without a box show other findings. Images are of NIH ChestX-ray14: never train on "
    "one and test on the other.",
)
def read_rsna_pneumonia(root: str | Path, *, split: str | None = None) -> Images:
    """The images of the challenge's training set, the only one with boxes, in the order of the table."""
    tables.check_split(split, ["train"])
    path = tables.find_file(root, "stage_2_train_labels.csv")
    table = tables.optional_rows(root, "stage_2_detailed_class_info.csv", ("patientId", "class"))
    # One string for each class, not for each image.
    classes = {name: sys.intern(class_name) for _, (name, class_name) in table}
    find = tables.image_finder(root)

    def image(name: str, rows: list[tables.TableRow]) -> AnnotatedImage:
        """The image of that name, with the boxes of its rows and its class."""
        boxes = []
        for place, cells in rows:
            _name, *box, target = cells
            if target == "1":
                boxes.append(place.box(box, "xywh"))
            # A negative has one row, whose cells of the box are empty.
            elif target != "0" or any(box):
                raise place.error("Target 1 with a box, or Target 0 without", cells, "Correct the row.")
        file = find(name, f"stage_2_train_images/{name}.dcm")
        extra = {"class": classes[name]} if name in classes else {}
        labels = ["Lung Opacity"] * len(boxes)
        return AnnotatedImage(name, file, boxes, labels, _SIDE, _SIDE, split="train", extra=extra)

    return tables.table_images(image, path, ("patientId", "x", "y", "width", "height", "Target"))
