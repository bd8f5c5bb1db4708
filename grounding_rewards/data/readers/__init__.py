"""Readers of public datasets: a folder in, one record per film out, boxes in pixels of the original image."""

from __future__ import annotations

from grounding_rewards.data.readers.base import FilmRecord, Reader
from grounding_rewards.data.readers.chest_imagenome import read_chest_imagenome
from grounding_rewards.data.readers.chestx_det import read_chestx_det, read_chestx_det10
from grounding_rewards.data.readers.coco import read_coco
from grounding_rewards.data.readers.deeplesion import read_deeplesion
from grounding_rewards.data.readers.fracatlas import read_fracatlas
from grounding_rewards.data.readers.grazpedwri_dx import read_grazpedwri_dx
from grounding_rewards.data.readers.jsonl import read_jsonl
from grounding_rewards.data.readers.ms_cxr import read_ms_cxr
from grounding_rewards.data.readers.ms_swift import read_ms_swift
from grounding_rewards.data.readers.nih_chestxray14 import read_nih_chestxray14
from grounding_rewards.data.readers.object_cxr import read_object_cxr
from grounding_rewards.data.readers.padchest_gr import read_padchest_gr
from grounding_rewards.data.readers.rsna_pneumonia import read_rsna_pneumonia
from grounding_rewards.data.readers.siim_acr import read_siim_acr
from grounding_rewards.data.readers.tbx11k import read_tbx11k
from grounding_rewards.data.readers.vindr_cxr import read_vindr_cxr
from grounding_rewards.data.readers.vindr_pcxr import read_vindr_pcxr
from grounding_rewards.data.readers.vindr_spinexr import read_vindr_spinexr
from grounding_rewards.data.readers.vlm_r1 import read_vlm_r1
from grounding_rewards.data.readers.voc import read_voc
from grounding_rewards.data.readers.yolo import read_yolo

__all__ = ["READERS", "FilmRecord", "Reader", "get_reader", "list_datasets"]

READERS: dict[str, Reader] = {
    "vindr-cxr": read_vindr_cxr,
    "vindr-pcxr": read_vindr_pcxr,
    "vindr-spinexr": read_vindr_spinexr,
    "rsna-pneumonia": read_rsna_pneumonia,
    "nih-chestxray14": read_nih_chestxray14,
    "ms-cxr": read_ms_cxr,
    "padchest-gr": read_padchest_gr,
    "chestx-det": read_chestx_det,
    "chestx-det10": read_chestx_det10,
    "siim-acr": read_siim_acr,
    "tbx11k": read_tbx11k,
    "deeplesion": read_deeplesion,
    "grazpedwri-dx": read_grazpedwri_dx,
    "fracatlas": read_fracatlas,
    "object-cxr": read_object_cxr,
    "chest-imagenome": read_chest_imagenome,
    "coco": read_coco,
    "yolo": read_yolo,
    "voc": read_voc,
    "jsonl": read_jsonl,
    "vlm-r1": read_vlm_r1,
    "ms-swift": read_ms_swift,
}
"""Name of a dataset or a general format to its reader. Options beyond `root` and `split` are described where the reader
is. A dataset of the hub has no folder: see `grounding_rewards.data.readers.hub`."""


def list_datasets() -> list[str]:
    """The names that `get_reader` knows.

    >>> "vindr-cxr" in list_datasets()
    True
    """
    return list(READERS)


def get_reader(name: str) -> Reader:
    """The reader of a dataset.

    Args:
        name: One of `list_datasets()`.

    Raises:
        ValueError: Unknown name; the message lists the known ones.

    >>> get_reader("siim-acr").__name__
    'read_siim_acr'
    """
    try:
        return READERS[name]
    except KeyError:
        raise ValueError(
            f"Expected one of {', '.join(READERS)} for the name of a dataset, got {name!r}. Choose a name of the list."
        ) from None
