"""COCO instances: one JSON file per split, as CVAT, Label Studio, Roboflow and most detection datasets write it.

Folder::

    annotations/instances_<split>.json    images[id,file_name,width,height], annotations[image_id,category_id,bbox,
                                          iscrowd], categories[id,name]
    <split>/<file_name>                   or images/<split>/ or images/, as CVAT has them

or, as Roboflow writes it, <split>/_annotations.coco.json beside the images. Other names are given with `annotations`
and `images`. `bbox` is x, y, width, height in pixels of the image.
Negative: an image without annotations.
Patient: `patient_id` of an image entry or of an object in it, or what looks like it.
Carried along: what else an image entry says, such as age or view.
Ignored: a crowd (`iscrowd` 1).
Turned: a box with `attributes.rotation`, as CVAT writes it, is the box around the turned one.
Source: https://cocodataset.org/#format-data.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from grounding_rewards.boxes import ORDERS, is_box
from grounding_rewards.columns import stated_name
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import patient_column
from grounding_rewards.sources.base import Images, register_source, sound_images
from grounding_rewards.sources.documents import pixels, read_json_file
from grounding_rewards.sources.jsonl import KNOWN_KEYS, TRAINER_COLUMNS
from grounding_rewards.sources.tables import split_files, turned_box

MissingCategory = Literal["error", "ignore"]

# What else can be done about an annotation without a category.
_HINT = ", or take boxes without category_id as regions to ignore with --option missing_category=ignore"
_ANNOTATIONS = ("annotations/instances_{split}.json", "{split}/_annotations.coco.json")


@register_source("coco")
def read_coco(
    root: str | Path,
    *,
    split: str | None = None,
    annotations: str | None = None,
    images: str | None = None,
    missing_category: MissingCategory = "error",
) -> Images:
    """The images of COCO annotation files.

    Args:
        root: the folder of the dataset.
        split: name of a split; `validation` finds `val` and `valid` too; None takes all.
        annotations: the annotation file relative to the root; `{split}` stands for the name of the split. By default
            `annotations/instances_{split}.json`, else `{split}/_annotations.coco.json`.
        images: the folder of `file_name`, likewise; `.` is the root. By default `{split}`, `images/{split}` or
            `images`, the first that is there.
        missing_category: an annotation without `category_id` is an `error`, or its box is one to `ignore`: neither hit
            nor false positive.

    Returns:
        Images in the order of the image entries; `id` is the same as `file`.

    Raises:
        ValueError: no such file, no COCO instances, or annotations of no image; while iterating, an image that cannot
            be read.

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
    for file_split, spelling, path in split_files(root, annotations, split):
        folder = _image_folder(Path(root), images, spelling)
        images_of_files.append(coco_images(path, folder, file_split, missing_category))
    return chain.from_iterable(images_of_files)


def _image_folder(root: Path, images: str | None, split: str) -> str:
    """The folder of the images of a split, relative to the root.

    Args:
        root: the folder of the dataset.
        images: the pattern of the folder; None takes the first usual one that exists.
        split: as it is spelled in the file's name.
    """
    patterns = ("{split}", "images/{split}", "images") if images is None else (images,)
    folders = [pattern.replace("{split}", split) for pattern in patterns]
    existing = [folder for folder in folders if (root / folder).is_dir()]
    # Where none exists, the images are kept elsewhere, and the first is as good a name as any.
    return (existing or folders)[0]


def coco_images(
    path: str | Path, images: str, split: str | None, missing_category: MissingCategory = "error"
) -> Images:
    """Yield the images of one COCO file.

    Args:
        path: the JSON file.
        images: the folder of `file_name`, relative to the root of the dataset.
        split: of the images.
        missing_category: as for `read_coco`.

    Raises:
        ValueError: as `read_coco`.
    """
    document = _read_instances(path)
    names = _category_names(document["categories"], path)
    id_counts = Counter(_key(entry.get("id")) for entry in document["images"])
    annotations = defaultdict[Any, list[dict[str, Any]]](list)
    for annotation in document["annotations"]:
        annotations[_key(annotation.get("image_id"))].append(annotation)
    orphans = list(chain.from_iterable(annotations[key] for key in annotations if key not in id_counts))
    if orphans:
        raise ValueError(
            f"Expected annotations of images of {path}, got {len(orphans)} of other images: annotation "
            f"{orphans[0].get('id')} has image_id {orphans[0].get('image_id')!r}. Correct or drop them."
        )

    def image(entry: Mapping[str, Any]) -> AnnotatedImage:
        """The image of an entry, with its annotations."""
        image_id = _key(entry.get("id"))
        name = str(entry.get("file_name") or "")
        if not name or image_id is None or id_counts[image_id] > 1:
            raise ValueError(
                f"Expected file_name and an id of its own for every image of {path}, got {name!r} with id "
                f"{entry.get('id')!r}. Correct or drop it."
            )
        file = PurePosixPath(images, name).as_posix()
        boxes, labels, ignored = _read_annotations(annotations[image_id], names, missing_category, f"{file} in {path}")
        facts = _facts(entry)
        patient_key = patient_column(facts) or "patient_id"
        # Rows have the file and the patient under other names; `license` is a number from a list in the COCO file.
        reserved = {*KNOWN_KEYS, *TRAINER_COLUMNS, "file_name", "license", patient_key}
        extra = {key: value for key, value in entry.items() if key not in reserved and value is not None}
        patient = stated_name(facts.get(patient_key))
        width, height = pixels(entry.get("width")), pixels(entry.get("height"))
        return AnnotatedImage(file, file, boxes, labels, width, height, patient, split, ignored=ignored, extra=extra)

    yield from sound_images(image, ((entry,) for entry in document["images"]))


def _read_annotations(
    annotations: Sequence[Mapping[str, Any]],
    names: Mapping[int | str, str],
    missing_category: MissingCategory,
    place: str,
) -> tuple[list[list[float]], list[str], tuple[tuple[float, float, float, float], ...]]:
    """The boxes in the annotations of an image, their labels, and the regions to ignore.

    Args:
        annotations: of the image.
        names: of the categories, by id.
        missing_category: as for `read_coco`.
        place: of the image, for errors.
    """
    boxes, labels, ignored = [], [], []
    for annotation in annotations:
        category: Any = annotation.get("category_id")
        # COCO's own evaluation judges nothing in a crowd either.
        is_ignored = annotation.get("iscrowd") == 1 or (missing_category == "ignore" and category is None)
        problem = ""
        if not is_box(annotation.get("bbox")):
            problem = f"bbox {annotation.get('bbox')!r:.80} is not x, y, width, height"
        elif not is_ignored and _key(category) not in names:
            problem = f"category_id {category!r} is no category of the file"
        if problem:
            raise ValueError(
                f"Expected annotations that can be read for {place}, got annotation {annotation.get('id')}: {problem}. "
                f"Correct or drop it{_HINT if category is None else ''}."
            )
        box = _turned_corners(annotation)
        if is_ignored:
            x1, y1, x2, y2 = box
            ignored.append((x1, y1, x2, y2))
        else:
            boxes.append(box)
            labels.append(names[category])
    return boxes, labels, tuple(ignored)


def _facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of an entry, with those of its objects: `metadata` or `patient` may hold the patient's id.

    A key of an object is there twice: `id` of `patient` as `id` and as `patient_id`. Keys of the entry itself win.
    """
    object_facts: dict[str, Any] = {}
    entry_facts: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            object_facts |= value
            object_facts |= {f"{key}_{object_key}": fact for object_key, fact in value.items()}
        elif value is not None:
            entry_facts[key] = value
    return object_facts | entry_facts


def _category_names(categories: Sequence[Mapping[str, Any]], path: str | Path) -> dict[int | str, str]:
    """The name of each category by its id.

    Raises:
        ValueError: one id has several names: boxes of one class would be of another.
    """
    names: dict[int | str, str] = {}
    for category in categories:
        key, name = _key(category.get("id")), str(category.get("name"))
        if key is not None and names.setdefault(key, name) != name:
            raise ValueError(
                f"Expected one category of each id in {path}, got {name!r} and {names[key]!r} for id {key!r}. Files "
                "that were merged count their categories each from its own start: number them anew, in the "
                "annotations too."
            )
    return names


def _turned_corners(annotation: Mapping[str, Any]) -> list[float]:
    """The box around the turned box of an annotation, xyxy; CVAT writes it as it was before its rotation."""
    corners = [float(value) for value in ORDERS["xywh"].to_xyxy(*annotation["bbox"])]
    attributes = annotation.get("attributes")
    # Other tools may have anything under these names: only a finite number is a rotation.
    rotation = attributes.get("rotation") if isinstance(attributes, dict) else None
    degrees = float(rotation) if isinstance(rotation, int | float) and math.isfinite(rotation) else 0.0
    return turned_box(corners, degrees)


def _read_instances(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Read a COCO file; refuse one without lists of images, annotations and categories."""
    document = read_json_file(path)
    for key in ("images", "annotations", "categories"):
        entries = document.get(key) if isinstance(document, dict) else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(
                f"Expected a list of objects under {key!r} in {path}, got {entries!r:.80}. "
                "Point to a file of COCO instances."
            )
    return document


def _key(value: Any) -> int | str | None:
    """The value if it can be an id, a number or a text; None for any other value."""
    return value if isinstance(value, int | str) else None
