"""Where datasets come from and what may be done with them, for the card of what is made of them.

The rooms of the readers say the same at more length. A format that any dataset may be written in is not listed.
"""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """One dataset.

    title, url: Name and home.
    licence: In words.
    note: What is easily got wrong with it; empty where there is nothing.
    """

    title: str
    url: str
    licence: str
    note: str = ""


_CREDENTIALED = "PhysioNet Credentialed Health Data License 1.5.0; not redistributable"
_RESTRICTED = "PhysioNet Restricted Health Data License 1.5.0; not redistributable"
_KAGGLE = "rules of the competition; academic and non-commercial use"
_NOT_EXHAUSTIVE = "Not every finding is marked: a film without a box is no negative."

SOURCES = {
    "vindr-cxr": Source(
        "VinDr-CXR",
        "https://physionet.org/content/vindr-cxr/1.0.0/",
        "PhysioNet Credentialed Health Data License 1.5.0, or the rules on Kaggle; not redistributable",
        "No patient ids. The training films have three readers, the test films one consensus.",
    ),
    "vindr-pcxr": Source(
        "VinDr-PCXR", "https://physionet.org/content/vindr-pcxr/1.0.0/", _RESTRICTED, "No patient ids."
    ),
    "vindr-spinexr": Source("VinDr-SpineXR", "https://physionet.org/content/vindr-spinexr/1.0.0/", _RESTRICTED),
    "rsna-pneumonia": Source(
        "RSNA Pneumonia Detection Challenge",
        "https://www.kaggle.com/c/rsna-pneumonia-detection-challenge",
        _KAGGLE,
        "Two thirds of the films without a box show other findings. Films are of NIH ChestX-ray14: never train on one "
        "and test on the other.",
    ),
    "nih-chestxray14": Source(
        "NIH ChestX-ray14",
        "https://nihcc.app.box.com/v/ChestXray-NIHCC",
        "no restrictions; link, citation and acknowledgement of the NIH Clinical Center are asked for",
        _NOT_EXHAUSTIVE,
    ),
    "ms-cxr": Source(
        "MS-CXR",
        "https://physionet.org/content/ms-cxr/1.1.0/",
        _CREDENTIALED,
        "Phrases are text of reports. Most patients are in the training split of MIMIC-CXR.",
    ),
    "padchest-gr": Source(
        "PadChest-GR",
        "https://bimcv.cipf.es/bimcv-projects/padchest-gr/",
        "data use agreement of BIMCV for research; not redistributable",
    ),
    "chestx-det": Source(
        "ChestX-Det",
        "https://github.com/Deepwise-AILab/ChestX-Det-Dataset",
        "annotations Apache-2.0; images as NIH ChestX-ray14",
        "Films are of NIH ChestX-ray14 under other names.",
    ),
    "chestx-det10": Source(
        "ChestX-Det10",
        "https://github.com/Deepwise-AILab/ChestX-Det10-Dataset",
        "annotations not stated; images as NIH ChestX-ray14",
        "Films are of NIH ChestX-ray14 under other names.",
    ),
    "siim-acr": Source(
        "SIIM-ACR Pneumothorax Segmentation",
        "https://www.kaggle.com/c/siim-acr-pneumothorax-segmentation",
        _KAGGLE,
        "Films are of NIH ChestX-ray14.",
    ),
    "tbx11k": Source("TBX11K", "https://github.com/yun-liu/Tuberculosis", "CC BY-NC-SA"),
    "deeplesion": Source(
        "DeepLesion",
        "https://nihcc.app.box.com/v/DeepLesion",
        "no restrictions; attribution",
        f"{_NOT_EXHAUSTIVE} Stored values are Hounsfield units plus 32768: give a window.",
    ),
    "grazpedwri-dx": Source("GRAZPEDWRI-DX", "https://doi.org/10.6084/m9.figshare.14825193", "CC BY 4.0"),
    "fracatlas": Source("FracAtlas", "https://doi.org/10.6084/m9.figshare.22363012", "CC BY 4.0"),
    "object-cxr": Source(
        "Object-CXR", "https://github.com/jfhealthcare/object-CXR", "scientific research and non-commercial use"
    ),
    "chest-imagenome": Source("Chest ImaGenome", "https://physionet.org/content/chest-imagenome/1.0.0/", _CREDENTIALED),
}


def source_of(dataset: str, licence: str | None = None, source: str | None = None) -> Source:
    """The source of a reader's dataset; for a general format what is given, or one that leaves it to the card's reader.

    >>> source_of("tbx11k").licence, source_of("coco").licence
    ('CC BY-NC-SA', 'that of the dataset; not known here')
    >>> source_of("coco", "CC BY 4.0", "https://example.org/films").licence
    'CC BY 4.0'
    """
    general = Source(f"films in the format {dataset}", source or "", licence or "that of the dataset; not known here")
    return SOURCES.get(dataset, general)
