"""VinDr-PCXR (PediCXR): chest radiographs of children, each with the boxes of one radiologist.

Folder, PhysioNet 1.0.0::

    annotations_{train,test}.csv     image_id,rad_ID,class_name,x_min,y_min,x_max,y_max; also below annotations/
    image_labels_{train,test}.csv    image_id, rad_ID, a column of 0 and 1 per label; optional
    train/<image_id>.dicom, test/<image_id>.dicom

Labels are kept as published, with their misspellings: "Brocho-pneumonia", "Diagphramatic hernia".

Readers: one of three radiologists per image.
Negative: an image without boxes; its row says "No finding".
Boxes: pixels of the DICOM file. The tables have neither its size nor the patient.
Paper: Pham et al., Scientific Data 10, 240 (2023).
Access: PhysioNet account and the signed data use agreement.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import RESTRICTED, register_source
from grounding_rewards.sources.tables import chosen_splits
from grounding_rewards.sources.vindr import read_vindr_chest

_TABLES = {name: (f"annotations_{name}.csv", f"annotations/annotations_{name}.csv") for name in ("train", "test")}


@register_source(
    "vindr-pcxr",
    title="VinDr-PCXR",
    url="https://physionet.org/content/vindr-pcxr/1.0.0/",
    licence=RESTRICTED,
    note="No patient ids.",
)
def read_vindr_pcxr(
    root: str | Path, *, split: str | None = None, sizes: str | Path | None = None
) -> Iterator[AnnotatedImage]:
    """The images of VinDr-PCXR; records as those of `read_vindr_cxr`.

    Args:
        root: the folder of the dataset.
        split: `train` or `test`; None takes both.
        sizes: a CSV file with the width and height of every image, as for `read_vindr_cxr`.
    """
    return read_vindr_chest(root, {name: _TABLES[name] for name in chosen_splits(split, _TABLES)}, sizes)
