"""COCO instances: one JSON file per split, as CVAT, Label Studio, Roboflow and most detection datasets write it.

Folder::

    annotations/instances_<split>.json    images[id,file_name,width,height], annotations[image_id,category_id,bbox,
                                          iscrowd], categories[id,name]
    <split>/<file_name>                   or images/<split>/ or images/, as CVAT has them

or, as Roboflow writes it, <split>/_annotations.coco.json beside the images. Other names are given with `annotations`
and `images`. `bbox` is x, y, width, height in pixels of the image.
Negative: an image without annotations.
Carried along: what else an image entry says, such as age or view, and the name of its `license` as `licence`.
Ignored: a crowd (`iscrowd` 1).
Turned: a box with `attributes.rotation`, as CVAT writes it, is the box around the turned one.
Source: https://cocodataset.org/#format-data.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from grounding_rewards.boxes import ORDERS, is_box
from grounding_rewards.columns import stated_name
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import patient_column
from grounding_rewards.sources.base import Images, register_source, sound_images
from grounding_rewards.sources.documents import objects_in, pixels, read_json_file
from grounding_rewards.sources.jsonl import KNOWN_KEYS, TAKEN
from grounding_rewards.sources.tables import split_files, turned_box

MissingCategory = Literal["error", "ignore"]

_ANNOTATIONS = ("annotations/instances_{split}.json", "{split}/_annotations.coco.json")
_IMAGES = ("{split}", "images/{split}", "images")

_SHOWN = 5


@register_source("coco")
def read_coco(
    root: str | Path,
    *,
    split: str | None = None,
    annotations: str | None = None,
    images: str | None = None,
    patient_key: str | None = None,
    missing_category: MissingCategory = "error",
) -> Images:
    """The images of COCO annotation files; several image entries of one file are one image.

    Args:
        root: the folder of the dataset.
        split: name of a split; `validation` finds `val` and `valid` too; None takes all.
        annotations: the annotation file relative to the root; `{split}` stands for the name of the split. By default
            `annotations/instances_{split}.json`, else `{split}/_annotations.coco.json`.
        images: the folder of `file_name`, likewise; `.` is the root. By default `{split}`, `images/{split}` or
            `images`, the first that is there.
        patient_key: the key of an image entry that holds the patient, with dots into nested objects:
            `metadata.patientid`; by default `patient_id`, or what looks like it.
        missing_category: an annotation without `category_id` is an `error`, or its box is one to `ignore`: neither hit
            nor false positive.

    Returns:
        Images in the order of the image entries; `id` is the same as `file`.

    Raises:
        ValueError: no such file, a file of results, or annotations of no image; while iterating, an image
            that cannot be read: how many faults it has, and the first ones.

    Example:
        >>> import json, tempfile
        >>> content = {"images": [{"id": 1, "file_name": "a.png", "width": 40, "height": 30}],
        ...            "annotations": [{"id": 1, "image_id": 1, "category_id": 5, "bbox": [1, 2, 10, 20]}],
        ...            "categories": [{"id": 5, "name": "mass"}]}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "all.json").write_text(json.dumps(content))
        ...     images = list(read_coco(root, annotations="all.json", images="images"))
        >>> [(image.file, image.boxes, image.labels) for image in images]
        [('images/a.png', [[1.0, 2.0, 11.0, 22.0]], ['mass'])]
    """
    check_word("missing_category", missing_category, get_args(MissingCategory))
    if annotations is None:
        # The first pattern with a file; without any, the first one is named in the error.
        existing = [name for name in _ANNOTATIONS if any(Path(root).glob(name.replace("{split}", "*")))]
        annotations = (existing or _ANNOTATIONS)[0]
    images_of_files = []
    for name, spelling, path in split_files(root, annotations, split):
        folder = _image_folder(Path(root), images, spelling)
        images_of_files.append(coco_images(path, folder, name, patient_key, missing_category))
    return chain.from_iterable(images_of_files)


def _image_folder(root: Path, images: str | None, split: str) -> str:
    """The folder of the images of a split, relative to the root.

    Args:
        root: the folder of the dataset.
        images: the pattern of the folder; None takes the first usual one that exists.
        split: as it is spelled in the file's name.
    """
    patterns = _IMAGES if images is None else (images,)
    folders = [pattern.replace("{split}", split) for pattern in patterns]
    existing = [folder for folder in folders if (root / folder).is_dir()]
    return (existing or folders)[0]


def coco_images(
    path: str | Path,
    images: str,
    split: str | None,
    patient_key: str | None = None,
    missing_category: MissingCategory = "error",
) -> Images:
    """Yield the images of one COCO file.

    Args:
        path: the JSON file.
        images: the folder of `file_name`, relative to the root of the dataset.
        split: of the images.
        patient_key: as for `read_coco`.
        missing_category: as for `read_coco`.

    Raises:
        ValueError: as `read_coco`.
    """
    content = _Content(path, patient_key, missing_category)

    def image(name: str, entries: Sequence[Mapping[str, Any]]) -> AnnotatedImage:
        """The image of that file name, from all entries with the name."""
        file = PurePosixPath(images, name).as_posix() if name else ""
        return _image(content, file, entries, split)

    yield from sound_images(image, content.entries_of_files.items())


class _Content:
    """The content of a COCO file, for lookup.

    Attributes:
        path: of the file.
        patient_key: as for `read_coco`.
        missing_category: likewise.
        names: of categories by id.
        licences: names of licences by id.
        entries_of_files: image entries by `file_name`.
        image_ids: number of image entries by id.
        annotations: by image id.
    """

    def __init__(self, path: str | Path, patient_key: str | None, missing_category: MissingCategory) -> None:
        document = _document(path)
        self.path, self.patient_key, self.missing_category = path, patient_key, missing_category
        self.names = _category_names(document["categories"], path)
        self.licences = _names(licence for licence in objects_in(document.get("licenses")) if licence.get("name"))
        self.image_ids = Counter(_key(entry.get("id")) for entry in document["images"])
        self.entries_of_files = defaultdict[str, list[dict[str, Any]]](list)
        self.annotations = defaultdict[Any, list[dict[str, Any]]](list)
        for entry in document["images"]:
            self.entries_of_files[str(entry.get("file_name") or "")].append(entry)
        orphans = []
        for annotation in document["annotations"]:
            image_id = _key(annotation.get("image_id"))
            self.annotations[image_id].append(annotation)
            if image_id not in self.image_ids:
                orphans.append(annotation)
        if orphans:
            raise ValueError(
                f"Expected annotations of images of {path}, got {len(orphans)} of other images: annotation "
                f"{orphans[0].get('id')} has image_id {orphans[0].get('image_id')!r}. Correct or drop them."
            )
        entries = document["images"]
        if patient_key and entries and all(_value(entry, patient_key) is None for entry in entries):
            raise ValueError(
                f"Expected the key {patient_key!r} of --option patient_key in the images of {path}, got none. Name a "
                "key that they have, or leave it out."
            )


def _image(content: _Content, file: str, entries: Sequence[Mapping[str, Any]], split: str | None) -> AnnotatedImage:
    """The image of all image entries of one file; refuse one that has a problem, and name the problems.

    Args:
        content: of the COCO file.
        file: the path of the image; empty without a `file_name`.
        entries: the image entries.
        split: of the image.
    """
    image_ids = [_key(entry.get("id")) for entry in entries]
    patient_keys = [content.patient_key or _patient_key(tuple(entry)) for entry in entries]
    # All entries of a file have to agree.
    sizes_and_patients = []
    for entry, patient_key in zip(entries, patient_keys, strict=True):
        width, height = pixels(entry.get("width")), pixels(entry.get("height"))
        sizes_and_patients.append((width, height, _value(entry, patient_key)))
    problems = []
    is_ambiguous = None in image_ids or any(content.image_ids[image_id] > 1 for image_id in image_ids)
    if not file or is_ambiguous or len(set(sizes_and_patients)) > 1:
        problems.append(f"images {image_ids}: id, file_name, size or patient is missing or contradicts another image's")
    boxes, labels, ignored = [], [], []
    for annotation in chain.from_iterable(content.annotations[image_id] for image_id in dict.fromkeys(image_ids)):
        category: Any = annotation.get("category_id")
        is_missing = content.missing_category == "ignore" and category is None
        is_ignored = annotation.get("iscrowd") == 1 or is_missing
        problem = _problem(annotation, content.names, is_ignored)
        if problem:
            problems.append(f"annotation {annotation.get('id')}: {problem}")
            continue
        box = [float(value) for value in ORDERS["xywh"].to_xyxy(*annotation["bbox"])]
        # CVAT writes the box before it was turned.
        box = turned_box(box, _rotation(annotation))
        if is_ignored:
            x1, y1, x2, y2 = box
            ignored.append((x1, y1, x2, y2))
        else:
            boxes.append(box)
            labels.append(content.names[category])
    if problems:
        raise _unreadable(content.path, file, problems)
    extra: dict[str, Any] = {}
    for entry, patient_key in zip(entries, patient_keys, strict=True):
        # The first of several entries with a value is kept.
        extra = {**_extra(entry, patient_key, content.licences), **extra}
    width, height, patient = sizes_and_patients[0]
    return AnnotatedImage(file, file, boxes, labels, width, height, patient, split, ignored=tuple(ignored), extra=extra)


def _unreadable(path: str | Path, file: str, problems: Sequence[str]) -> ValueError:
    """The error to raise for an image with problems, the first of which it names."""
    sentences = list(problems[:_SHOWN])
    if len(problems) > _SHOWN:
        sentences.append("…")
    text = "; ".join(sentences)
    count, pronoun = ("", "it") if len(problems) == 1 else (f"{len(problems)} faults: ", "them")
    hint = _HINT if "category_id is missing" in text else ""
    return ValueError(
        f"Expected an image that can be read for {file} in {path}, got {count}{text}. Correct or drop {pronoun}{hint}."
    )


@cache
def _patient_key(keys: tuple[str, ...]) -> str | None:
    """The key among those of an image entry that has the patient; None if there is none."""
    return "patient_id" if "patient_id" in keys else patient_column(keys)


def _category_names(categories: Sequence[Mapping[str, Any]], path: str | Path) -> dict[int | str, str]:
    """The name of each category by its id.

    Raises:
        ValueError: one id has several names: boxes of one class would be of another.
    """
    names = _names(categories)
    for category in categories:
        key, name = _key(category.get("id")), str(category.get("name"))
        if key is not None and names[key] != name:
            raise ValueError(
                f"Expected one category of each id in {path}, got {name!r} and {names[key]!r} for id {key!r}. Files "
                "that were merged count their categories each from its own start: number them anew, in the "
                "annotations too."
            )
    return names


def _rotation(annotation: Mapping[str, Any]) -> float:
    """Degrees by which the box of an annotation is turned; 0 if it has no `attributes.rotation`."""
    attributes = annotation.get("attributes")
    rotation = attributes.get("rotation") if isinstance(attributes, dict) else None
    return float(rotation) if isinstance(rotation, int | float) and math.isfinite(rotation) else 0.0


def _names(entries: Iterable[Mapping[str, Any]]) -> dict[int | str, str]:
    """The name of each entry by its id; entries without an id are left out."""
    names = {}
    for entry in entries:
        key = _key(entry.get("id"))
        if key is not None:
            names[key] = str(entry.get("name"))
    return names


def _extra(image: Mapping[str, Any], patient_key: str | None, licences: Mapping[int | str, str]) -> dict[str, Any]:
    """The other values of an image entry, whose names rows do not use, with the name of its licence.

    Args:
        image: the entry.
        patient_key: its key of the patient.
        licences: names of licences by id.
    """
    reserved = {*KNOWN_KEYS, *TAKEN, "file_name", "license", patient_key}
    extra = {name: value for name, value in image.items() if name not in reserved and value is not None}
    licence = _key(image.get("license"))
    if licence is not None and licence in licences:
        extra["licence"] = licences[licence]
    return extra


_HINT = ", or take boxes without category_id as regions to ignore with --option missing_category=ignore"


def _document(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Read a COCO file; refuse one without lists of images, annotations and categories."""
    document = read_json_file(path)
    if isinstance(document, list):
        raise ValueError(
            f"Expected COCO annotations in {path}, got a bare list, which is a file of results: a model's boxes with "
            "scores, without the images and the names of the categories. Point to the annotations that the results "
            "were measured against."
        )
    for key in ("images", "annotations", "categories"):
        entries = document.get(key) if isinstance(document, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(
                f"Expected a list of objects under {key!r} in {path}, got {type(entries).__name__}. "
                "Point to a file of COCO instances."
            )
    return document


def _key(value: Any) -> int | str | None:
    """The value if it can be an id, a number or a text; None for any other value."""
    return value if isinstance(value, int | str) else None


def _value(image: Mapping[str, Any], key: str | None) -> str | None:
    """The text under a key of an image entry, with dots into nested objects; None if there is none."""
    if not key:
        return None
    value: Any = image
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return stated_name(value)


def _problem(annotation: Mapping[str, Any], names: Mapping[Any, str], ignored: bool) -> str | None:
    """Why an annotation cannot be read, in words; None if it can.

    Args:
        annotation: of the file.
        names: of the categories by id.
        ignored: whether it is a region to ignore, which needs no category.
    """
    category = annotation.get("category_id")
    if not is_box(annotation.get("bbox")):
        return f"bbox {annotation.get('bbox')!r:.80} is not x, y, width, height"
    if category is None and not ignored:
        return "category_id is missing"
    if not ignored and _key(category) not in names:
        return f"category_id {category!r} is no category of the file"
    return None
