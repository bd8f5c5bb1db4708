"""FracAtlas: 4,083 images of hands, legs, hips and shoulders, 717 of them with fractures.

Folder::

    images/{Fractured,Non_fractured}/IMG0000019.jpg
    Annotations/COCO JSON/COCO_fracture_masks.json      or
    Annotations/PASCAL VOC/IMG0000019.xml               or
    Annotations/YOLO/IMG0000019.txt
    Utilities/Fracture Split/{train,valid,test}.csv     image_id; fractured images alone; optional
    dataset.csv                                         image_id, hand, leg, hip, shoulder, ...; optional

Boxes: x, y, width, height in pixels (COCO), xyxy in pixels from 0 (VOC), or fractions of the image (YOLO).
Negative: an image in Non_fractured; about 59 of its JPEG files are truncated. It belongs to no split.
Access: open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from grounding_rewards.common.legal import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import register_source, sound_images, split_name
from grounding_rewards.sources.coco import coco_images
from grounding_rewards.sources.documents import read_xml
from grounding_rewards.sources.tables import check_split, find_file, find_folder, optional_file, read_table
from grounding_rewards.sources.voc import voc_image
from grounding_rewards.sources.yolo import read_label_file, yolo_image

_FOLDERS = ("images/Fractured", "images/Non_fractured")
_COCO = "Annotations/COCO JSON/COCO_fracture_masks.json"
_REMEDY = "Choose a format of annotations that is there."
_SPLITS = ("train", "valid", "test")
_EXTRA = ("hand", "leg", "hip", "shoulder", "mixed", "hardware", "multiscan")


@register_source(
    "fracatlas", title="FracAtlas", url="https://doi.org/10.6084/m9.figshare.22363012", licence="CC BY 4.0"
)
def read_fracatlas(
    root: str | Path, *, split: str | None = None, annotations: Literal["coco", "voc", "yolo"] = "coco"
) -> Iterator[AnnotatedImage]:
    """The images of FracAtlas.

    Args:
        root: the folder of the dataset.
        split: `train`, `validation` or `test`, which hold fractured images alone; None takes these and the negatives.
        annotations: the format that is read: `coco`, `voc` or `yolo`.

    Returns:
        Images in the order of the files' names, fractured images first; `extra` names what `dataset.csv` marks with 1.
    """
    root = Path(root)
    check_word("annotations", annotations, ("coco", "voc", "yolo"))
    check_split(split, map(split_name, _SPLITS))
    splits = _splits(root)
    if split is not None and not splits:
        find_file(root, *(f"Utilities/Fracture Split/{name}.csv" for name in _SPLITS))
    find: Callable[[Path], AnnotatedImage | None] = {"coco": _coco, "voc": _voc, "yolo": _yolo}[annotations](root)
    marks = _marks(root)
    files = [path for folder in _FOLDERS for path in sorted((root / folder).glob("*.jpg"))]
    if not files:
        raise ValueError(
            f"Expected {' and '.join(_FOLDERS)} with JPEG files in the folder for root, got {str(root)!r} without. "
            "Point to the folder that holds them."
        )

    def image(path: Path) -> AnnotatedImage:
        name = path.stem
        found = find(path) or AnnotatedImage(name, "", [], [])
        if (path.parent.name == "Fractured") != bool(found.boxes):
            raise ValueError(
                f"Expected boxes for the images in Fractured and none for the others, got {len(found.boxes)} for "
                f"{path}. Correct its annotations, or remove the image."
            )
        extra = {"marks": marks[name]} if marks.get(name) else {}
        file = path.relative_to(root).as_posix()
        return found._replace(id=name, file=file, split=splits.get(name), ignored=(), extra=extra)

    return sound_images(image, ((path,) for path in files if split in (None, splits.get(path.stem))))


def _coco(root: Path) -> Callable[[Path], AnnotatedImage | None]:
    images = {Path(image.file).stem: image for image in coco_images(find_file(root, _COCO), images=".", split=None)}
    return lambda path: images.get(path.stem)


def _voc(root: Path) -> Callable[[Path], AnnotatedImage | None]:
    folder = find_folder(root, "Annotations/PASCAL VOC", remedy=_REMEDY)

    def found(path: Path) -> AnnotatedImage | None:
        xml = folder / f"{path.stem}.xml"
        return voc_image(read_xml(xml), xml, images=".", split=None, one_based=False) if xml.is_file() else None

    return found


def _yolo(root: Path) -> Callable[[Path], AnnotatedImage | None]:
    folder = find_folder(root, "Annotations/YOLO", remedy=_REMEDY)

    def found(path: Path) -> AnnotatedImage | None:
        labels, names = folder / f"{path.stem}.txt", ["fractured"]
        return yolo_image(root, path, labels, names, split=None) if any(read_label_file(labels, names)) else None

    return found


def _splits(root: Path) -> dict[str, str]:
    """Image to its split, by names without ending."""
    paths = {name: optional_file(root, f"Utilities/Fracture Split/{name}.csv") for name in _SPLITS}
    return {
        Path(image).stem: split_name(name)
        for name, path in paths.items()
        if path is not None
        for _, (image,) in read_table(path, ("image_id",))
    }


def _marks(root: Path) -> dict[str, str]:
    """Image to the names of the columns of `dataset.csv` that are 1 for it, joined by `|`."""
    path = optional_file(root, "dataset.csv")
    return (
        {}
        if path is None
        else {
            Path(image).stem: "|".join(name for name, cell in zip(_EXTRA, cells, strict=True) if cell == "1")
            for _, (image, *cells) in read_table(path, ("image_id",), _EXTRA)
        }
    )
