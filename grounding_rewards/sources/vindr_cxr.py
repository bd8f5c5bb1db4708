"""VinDr-CXR: adult chest radiographs with the boxes of three radiologists each, as published by PhysioNet or on Kaggle.

Folder, PhysioNet 1.0.0::

    annotations/annotations_train.csv    image_id,rad_id,class_name,x_min,y_min,x_max,y_max
    annotations/annotations_test.csv     image_id,class_name,x_min,y_min,x_max,y_max
    annotations/image_labels_{train,test}.csv    image_id, rad_id (train alone), a column of 0 and 1 per label; optional
    train/<image_id>.dicom, test/<image_id>.dicom

Folder, Kaggle: `train.csv` with the same columns and class_id, and `train/<image_id>.dicom`; 14 labels instead of 22.

Readers: an image of the training set was read by 3 of 17 radiologists, whose boxes are not merged; an image of the test
set has the consensus of 5, and names no reader.
Negative: an image on which nobody drew a box; its rows say "No finding", one per reader.
Boxes: pixels of the DICOM file. The tables have neither its size nor the patient.
On Kaggle: VinBigData Chest X-ray Abnormalities Detection.
Access: credentialed PhysioNet account and training in human subjects research, or a Kaggle account.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import register_source
from grounding_rewards.sources.tables import chosen_splits, find_file
from grounding_rewards.sources.vindr import read_vindr_chest

_KAGGLE = "train.csv"
_TABLES = {
    "train": ("annotations/annotations_train.csv", "annotations_train.csv", _KAGGLE),
    "test": ("annotations/annotations_test.csv", "annotations_test.csv"),
}


@register_source(
    "vindr-cxr",
    title="VinDr-CXR",
    url="https://physionet.org/content/vindr-cxr/1.0.0/",
    licence="PhysioNet Credentialed Health Data License 1.5.0, or the rules on Kaggle; not redistributable",
    note="No patient ids. The training images have three readers, the test images one consensus.",
)
def read_vindr_cxr(
    root: str | Path, *, split: str | None = None, sizes: str | Path | None = None
) -> Iterator[AnnotatedImage]:
    """The images of VinDr-CXR, as published by PhysioNet or on Kaggle, whichever files are there.

    Args:
        root: the folder of the dataset.
        split: `train` or `test`; None takes both, or `train` where the folder is Kaggle's, which has no boxes for test.
        sizes: a CSV file with `image_id` and the `width` and `height` of every DICOM file (or `Columns` and `Rows`, or
            Kaggle's `dim1` and `dim0`); without it, width and height are None, and the DICOM file has to say. Needed
            where images are PNG or JPEG copies, which may lie anywhere below the root as `<image_id>.png` or `.jpg`.

    Returns:
        Records in the order in which images end in the tables; `extra["image_labels"]` where the folder has them.
    """
    names = chosen_splits(split, _TABLES)
    if split is None and find_file(root, *_TABLES["train"]).name == _KAGGLE:
        names = ["train"]
    return read_vindr_chest(root, {name: _TABLES[name] for name in names}, sizes)
