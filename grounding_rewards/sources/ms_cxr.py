"""MS-CXR: images of MIMIC-CXR with phrases of radiologists and the boxes that each phrase describes.

Folder: one of

    MS_CXR_Local_Alignment_v1.1.0.csv     dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split
    MS_CXR_Local_Alignment_v1.1.0.json    COCO, with `label_text` and `split` in the annotations
    MS_CXR_Local_Alignment_v1.0.0.csv     release 0.1 of the dataset: the same without `split`; or `.json`

The CSV is taken where both are there; they hold the same. In the COCO file an image has an image entry for each of its
labels, so an image is known by its `file_name`. The images are those of MIMIC-CXR-JPG:
`files/p10/p.../s.../<dicom_id>.jpg`.

A phrase with several boxes has several rows; an image with several phrases is one image, and `phrases` says which box
belongs to which. 752 of its 851 patients are in the training set of MIMIC-CXR.

Readers: one radiologist, reviewed by others.
Negative: none, the dataset has positives only.
Boxes: left, top, width and height in pixels of MIMIC-CXR-JPG.
Paper: Boecking et al., ECCV 2022, arXiv 2204.09817.
Access: credentialed PhysioNet account and training in human subjects research; images likewise, from MIMIC-CXR-JPG.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from grounding_rewards.boxes import is_box
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import CREDENTIALED, register_source, sound_images, split_name
from grounding_rewards.sources.documents import pixels, read_json
from grounding_rewards.sources.tables import RowPlace, check_split, find_file, grouped_rows, read_whole_table, xywh_box

_SPLITS = ("train", "validation", "test")
_NAMES = tuple(
    f"MS_CXR_Local_Alignment_v{version}.{kind}" for version in ("1.1.0", "1.0.0") for kind in ("csv", "json")
)
_COLUMNS = ("dicom_id", "category_name", "label_text", "path", "x", "y", "w", "h", "image_width", "image_height")
_IMAGE_KEYS = {"file_name", "path", "width", "height"}
_PATIENT = re.compile(r"/p(\d{3,})/s")


class _Phrase(NamedTuple):
    place: RowPlace
    label: str
    phrase: str
    box: list[float]
    image: tuple[str, int | None, int | None, str]
    """File, width, height and split, which all rows of an image share."""


@register_source(
    "ms-cxr",
    title="MS-CXR",
    url="https://physionet.org/content/ms-cxr/1.1.0/",
    licence=CREDENTIALED,
    note="Phrases are text of reports. Most patients are in the training split of MIMIC-CXR.",
)
def read_ms_cxr(root: str | Path, *, split: str | None = None, images: str | Path = "") -> Iterator[AnnotatedImage]:
    """The images of MS-CXR, each with all its phrases.

    Args:
        root: the folder of the dataset.
        split: `train`, `validation` or `test`, in release 1.1.0 alone; None takes all images.
        images: the folder of MIMIC-CXR-JPG which holds `files`, relative to the root or absolute; the root when left
            out.

    Returns:
        Images in the order in which images end in the CSV, or begin in the COCO file; `phrases` has one per box.
    """
    check_split(split, _SPLITS)
    path = find_file(root, *_NAMES)
    groups = _csv_images(path) if ".csv" in path.suffixes else _json_images(path)
    if split is not None and not _has_splits(path):
        raise ValueError(f"Expected None for split, got {split!r}, but {path} has no splits. Take release 1.1.0.")
    found = sound_images(lambda image, rows: _image(image, rows, images), groups)
    return (image for image in found if split is None or image.split == split)


def _image(image: str, rows: list[_Phrase], images: str | Path) -> AnnotatedImage:
    for row in rows:
        if row.image != rows[0].image:
            expected = f"the file, size and split of the image's first row, {rows[0].image},"
            raise row.place._replace(image=image).error(expected, row.image, "Correct the row.")
    file, width, height, split = rows[0].image
    patient = _PATIENT.search(file)
    return AnnotatedImage(
        id=image,
        file=PurePosixPath(images, file).as_posix(),
        boxes=[row.box for row in rows],
        labels=[row.label for row in rows],
        width=width,
        height=height,
        patient_id=None if patient is None else patient[1],
        split=split_name(split) or None,
        phrases=tuple(row.phrase for row in rows),
    )


def _has_splits(path: Path) -> bool:
    if ".csv" in path.suffixes:
        header, _ = read_whole_table(path)
        return "split" in header
    return any("split" in annotation for annotation in read_json(path)["annotations"])


def _csv_images(path: Path) -> Iterator[tuple[str, list[_Phrase]]]:
    groups = grouped_rows(path, _COLUMNS, ("split",))
    return ((image, [_csv_row(*row) for row in rows]) for image, rows in groups)


def _csv_row(place: RowPlace, cells: tuple[str, ...]) -> _Phrase:
    _, label, phrase, file, *numbers, split = cells
    box = xywh_box(place.numbers(numbers[:4]))
    width, height = map(int, place.numbers(numbers[4:]))
    return _Phrase(place, label, phrase, box, (file, width, height, split))


def _json_images(path: Path) -> Iterator[tuple[str, list[_Phrase]]]:
    document = read_json(path)
    if not isinstance(document, dict) or not document.keys() >= {"images", "annotations", "categories"}:
        raise ValueError(f"Expected images, annotations and categories in {path}, got others. Take it as published.")
    names = {category.get("id"): category.get("name") for category in document["categories"]}
    # Entries without one of these are skipped; their annotations are refused below.
    images = {image.get("id"): image for image in document["images"] if image.keys() >= _IMAGE_KEYS}
    annotated_images: dict[str, list[_Phrase]] = {}
    for number, annotation in enumerate(document["annotations"], start=1):
        place = RowPlace(path, number, str(annotation.get("id")))
        image, label = images.get(annotation.get("image_id")), names.get(annotation.get("category_id"))
        phrase = annotation.get("label_text")
        if image is None or label is None or not is_box(annotation.get("bbox")) or not isinstance(phrase, str):
            expected = "an image and a category of the file, four numbers for bbox, and label_text"
            # A phrase is text of a patient's report, which an error must not show.
            got = {key: value for key, value in annotation.items() if key != "label_text"}
            raise place.error(expected, got, "Correct the annotation.")
        box = [float(value) for value in xywh_box(annotation["bbox"])]
        shared = (image["path"], pixels(image["width"]), pixels(image["height"]), annotation.get("split", ""))
        found = _Phrase(place, label, phrase.strip(), box, shared)
        annotated_images.setdefault(PurePosixPath(image["file_name"]).stem, []).append(found)
    return iter(annotated_images.items())
