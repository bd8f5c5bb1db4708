"""Sources, one module per public layout, which read a folder into annotated images with boxes in their pixels.

Every file of this folder is imported, and registers the layouts that it reads.
"""

import importlib
import pkgutil

from grounding_rewards.common.validation import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import SOURCES, Source

__all__ = ["SOURCES", "AnnotatedImage", "Source", "get_source", "list_datasets", "source_of"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)


def list_datasets() -> list[str]:
    """The names that `get_source` knows, of datasets and of general formats.

    Example:
        >>> "vindr-cxr" in list_datasets()
        True
    """
    return sorted(SOURCES)


def get_source(name: str) -> Source:
    """The source of a dataset or general format. Its options are described at its `read`.

    Args:
        name: one of `list_datasets()`.

    Raises:
        ValueError: unknown name; the message lists the known ones.

    Example:
        >>> get_source("siim-acr").title
        'SIIM-ACR Pneumothorax Segmentation'
    """
    check_word("dataset", name, list_datasets())
    return SOURCES[name]


def source_of(dataset: str) -> dict[str, str]:
    """Title, url, licence and note of a dataset, for its card.

    Args:
        dataset: name of its source.

    Example:
        >>> source_of("tbx11k")["licence"], source_of("coco")["licence"]
        ('CC BY-NC-SA', 'that of the dataset; not known here')
    """
    source = SOURCES.get(dataset)
    if source is None or not source.title:
        licence = "that of the dataset; not known here"
        return {"title": f"images in the format {dataset}", "url": "", "licence": licence, "note": ""}
    return {"title": source.title, "url": source.url, "licence": source.licence, "note": source.note}
