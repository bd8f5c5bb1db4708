"""TBX11K: 11,200 chest films with tuberculosis boxed, healthy and otherwise sick ones beside them.

Folder::

    annotations/json/TBX11K_{train,val}.json     COCO; file_name relative to imgs/
    imgs/{tb,health,sick}/*.png                  512 x 512

The VOC files beside the JSON are in pixels of the clinics' originals and not of these images: they are not read.
Boxes: x, y, width, height in pixels; two of the three categories are used, active and obsolete (latent) tuberculosis.
Negative: an image entry without annotation, healthy or sick with something else. A film in tb/ without a box is left
out: it has tuberculosis that nobody located.
Splits: train and validation. The labels of test were never published.
Access: open, by a link in the repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from grounding_rewards.data.readers.base import FilmRecord, register_reader
from grounding_rewards.data.readers.coco import coco_films
from grounding_rewards.data.readers.tables import chosen_splits, find_file

_FILES = {"train": "annotations/json/TBX11K_train.json", "validation": "annotations/json/TBX11K_val.json"}


@register_reader("tbx11k", title="TBX11K", url="https://github.com/yun-liu/Tuberculosis", licence="CC BY-NC-SA")
def read_tbx11k(root: str | Path, *, split: str | None = None) -> Iterator[FilmRecord]:
    """The films of TBX11K, in the order of the image entries; `extra["group"]` is `tb`, `health` or `sick`."""
    paths = {name: find_file(root, _FILES[name]) for name in chosen_splits(split, _FILES)}
    films = chain.from_iterable(coco_films(path, images="imgs", split=name) for name, path in paths.items())
    return (_with_group(film) for film in films if film.boxes or "/tb/" not in film.file)


def _with_group(film: FilmRecord) -> FilmRecord:
    return film._replace(extra={"group": film.file.split("/")[1]})
