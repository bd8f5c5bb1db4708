"""TBX11K: 11,200 chest radiographs with tuberculosis boxed, healthy and otherwise sick ones beside them.

Folder::

    annotations/json/TBX11K_{train,val}.json     COCO; file_name relative to imgs/
    imgs/{tb,health,sick}/*.png                  512 x 512

The VOC files beside the JSON are in pixels of the clinics' originals and not of these images: they are not read.
Boxes: x, y, width, height in pixels; two of the three categories are used, active and obsolete (latent) tuberculosis.
Negative: an image entry without annotation, healthy or sick with something else. An image in tb/ without a box is left
out: it has tuberculosis that nobody located.
Splits: train and validation. The labels of test were never published.
Access: open, by a link in the repository.
"""

from collections.abc import Mapping
from pathlib import Path

from grounding_rewards.sources.base import Images, register_source
from grounding_rewards.sources.coco import coco_images
from grounding_rewards.sources.tables import split_paths


@register_source("tbx11k", title="TBX11K", url="https://github.com/yun-liu/Tuberculosis", licence="CC BY-NC-SA")
def read_tbx11k(root: str | Path, *, split: str | None = None) -> Images:
    """The images of TBX11K, in the order of the image entries; `extra["group"]` is `tb`, `health` or `sick`."""
    names = {"train": "TBX11K_train.json", "validation": "TBX11K_val.json"}
    return _images(split_paths(root, split, {name: [f"annotations/json/{file}"] for name, file in names.items()}))


def _images(paths: Mapping[str, Path]) -> Images:
    """The images in the COCO files of the splits, each with its group."""
    for split, path in paths.items():
        for image in coco_images(path, images="imgs", split=split):
            if isinstance(image, ValueError):
                yield image
            # An image in imgs/tb/ without a box has tuberculosis that nobody located: it is left out.
            elif image.boxes or "/tb/" not in image.file:
                # The group is the folder below imgs/.
                yield image._replace(extra={"group": image.file.split("/")[1]})
