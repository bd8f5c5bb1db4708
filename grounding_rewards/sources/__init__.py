"""Readers of public datasets: a folder in, one record per image out, boxes in pixels of the original image.

Every file of this folder is imported, and registers its readers. A dataset of the hub has no folder: see
`grounding_rewards.sources.hub_dataset`.
"""

from __future__ import annotations

import importlib
import pkgutil

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import READERS, SOURCES, Reader, Source

__all__ = ["READERS", "SOURCES", "AnnotatedImage", "Reader", "get_reader", "list_datasets", "source_of"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)


def list_datasets() -> list[str]:
    """The names that `get_reader` knows, of datasets and of general formats.

    Example:
        >>> "vindr-cxr" in list_datasets()
        True
    """
    return sorted(READERS)


def get_reader(name: str) -> Reader:
    """The reader of a dataset. Its options beyond `root` and `split` are described where the reader is.

    Args:
        name: one of `list_datasets()`.

    Raises:
        ValueError: unknown name; the message lists the known ones.

    Example:
        >>> get_reader("siim-acr").__name__
        'read_siim_acr'
    """
    try:
        return READERS[name]
    except KeyError:
        raise ValueError(
            f"Expected one of {', '.join(list_datasets())} for the name of a dataset, got {name!r}. "
            "Choose a name of the list."
        ) from None


def source_of(dataset: str, licence: str | None = None, source: str | None = None) -> Source:
    """The source of a dataset, as its reader declares it; of images in a general format, what the arguments say.

    Example:
        >>> source_of("tbx11k").licence, source_of("coco").licence
        ('CC BY-NC-SA', 'that of the dataset; not known here')
        >>> source_of("coco", "CC BY 4.0", "https://example.org/images").licence
        'CC BY 4.0'
    """
    general = Source(f"images in the format {dataset}", source or "", licence or "that of the dataset; not known here")
    return SOURCES.get(dataset, general)
