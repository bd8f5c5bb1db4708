"""Chest ImaGenome 1.0.0: regions of the chest on 243,310 images of MIMIC-CXR, found by a detector, 1,000 by people.

Folder::

    silver_dataset/scene_graph/<dicom_id>_SceneGraph.json      objects[bbox_name, original_x1, ..., original_y2]
    silver_dataset/splits/{train,valid,test}.csv               subject_id, study_id, dicom_id, path, ViewPosition
    silver_dataset/splits/images_to_avoid.csv                  the images of the gold patients; optional
    gold_dataset/gold_bbox_coordinate_annotations_1000images.csv

The images come with MIMIC-CXR-JPG, as `path` with the ending `.jpg`.
Boxes: pixels of the original image. The columns without `original_` are of a 224 x 224 copy with padding; `width` and
`height`, with `original_` too, are those of the box. The size of an image is in MIMIC's own table, for `sizes`.
Readers: the silver boxes are a detector's; the gold ones name their annotator.
Negative: there are none: a region that an image does not show has no object. The labels are regions, not findings.
Splits: train, validation and test are silver and part MIMIC's own training patients otherwise than MIMIC does; gold is
apart. An image of a split whose scene graph was never published is left out.
Access: credentialed PhysioNet account.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from grounding_rewards.boxes import is_box
from grounding_rewards.columns import stated_name
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources import tables
from grounding_rewards.sources.base import CREDENTIALED, Images, register_source, sound_images, split_name
from grounding_rewards.sources.documents import read_json_file
from grounding_rewards.sources.tables import RowPlace, Size, TableRow

_SILVER = ("train", "valid", "test")
_FACTS = ("dicom_id", "subject_id", "path")
# By name: the file has them in the order x1, x2, y1, y2.
_CORNERS = ("original_x1", "original_y1", "original_x2", "original_y2")


@register_source(
    "chest-imagenome",
    title="Chest ImaGenome",
    url="https://physionet.org/content/chest-imagenome/1.0.0/",
    licence=CREDENTIALED,
)
def read_chest_imagenome(root: str | Path, *, split: str | None = None, sizes: str | Path | None = None) -> Images:
    """The images of Chest ImaGenome.

    Args:
        root: the folder of the dataset.
        split: `train`, `validation` or `test` of the silver set, or `gold`; None takes the three silver ones.
        sizes: a CSV file with `dicom_id`, `Columns` and `Rows` of every image, such as `mimic-cxr-2.0.0-metadata.csv`;
            without it, width and height are None, and the image has to say.

    Returns:
        Images in the order of the tables; `extra["view"]` is the projection.
    """
    root = Path(root)
    tables.check_split(split, [*map(split_name, _SILVER), "gold"])
    known_sizes = None if sizes is None else tables.read_sizes(sizes, "dicom_id")
    if split == "gold":
        return _gold_images(root, known_sizes)
    graphs = tables.find_file(root, "silver_dataset/scene_graph", remedy="Unpack scene_graph.zip.")
    files = {split_name(name): [f"silver_dataset/splits/{name}.csv"] for name in _SILVER}
    # Split, place and cells of each image.
    rows = []
    for table_split, path in tables.split_paths(root, split, files).items():
        rows += [(table_split, *row) for row in tables.read_rows(path, _FACTS, ("ViewPosition",))]

    def image(split: str, place: RowPlace, facts: Sequence[str]) -> AnnotatedImage | None:
        """The image of a row, with the boxes of its scene graph; None if that was never published."""
        graph = graphs / f"{place.image}_SceneGraph.json"
        if not graph.is_file():
            return None
        size = tables.known_size(known_sizes, place)
        boxes, labels = _objects(graph)
        return _image(facts, split, size, boxes, labels)

    return sound_images(image, rows)


def _image(
    facts: Sequence[str], split: str, size: Size | tuple[None, None], boxes: list[list[float]], labels: list[str]
) -> AnnotatedImage:
    """The image of a row of a table, whose cells are id, patient, path and view, with its boxes."""
    image_id, patient, path, view = facts
    # The tables name the DICOM file of MIMIC-CXR; the images are those of MIMIC-CXR-JPG.
    file = PurePosixPath(path).with_suffix(".jpg").as_posix()
    width, height = size
    extra = {"view": view} if view else {}
    return AnnotatedImage(image_id, file, boxes, labels, width, height, stated_name(patient), split, extra=extra)


def _objects(path: Path) -> tuple[list[list[float]], list[str]]:
    """The boxes of the regions in the scene graph of an image, and the names of these regions."""
    graph = read_json_file(path)
    regions = graph.get("objects") if isinstance(graph, dict) else None
    if not isinstance(regions, list):
        raise ValueError(f"Expected a scene graph with objects in {path}, got none. Unpack the file again.")
    boxes, labels = [], []
    for number, region in enumerate(regions, start=1):
        box: list[Any] = [region.get(key) for key in _CORNERS] if isinstance(region, dict) else []
        if not is_box(box) or not region.get("bbox_name"):
            expected = f"bbox_name and {', '.join(_CORNERS)}"
            raise RowPlace(path, number, path.stem).error(expected, region, "Correct or drop the object.")
        boxes.append([float(value) for value in box])
        labels.append(str(region["bbox_name"]))
    return boxes, labels


def _gold_images(root: Path, sizes: Mapping[str, Size] | None) -> Images:
    """The images of the gold set, whose boxes name their annotator."""
    # The table of boxes has neither patient nor path; the list of the gold patients' images has both.
    gold_rows = tables.optional_rows(root, "silver_dataset/splits/images_to_avoid.csv", _FACTS, ("ViewPosition",))
    facts_of_images = {cells[0]: cells for _, cells in gold_rows}

    def gold_image(name: str, rows: list[TableRow]) -> AnnotatedImage:
        """The image of that name, with the boxes of its rows and their annotators."""
        image_id = name.removesuffix(".dcm")
        # Of an image that the list lacks neither patient nor view are known, and its path is its name.
        facts = facts_of_images.get(image_id, (image_id, "", f"{image_id}.dcm", ""))
        first_place, _ = rows[0]
        size = tables.known_size(sizes, first_place._replace(image=image_id))
        boxes = [place.numbers(corners) for place, (_name, _region, *corners, _annotator) in rows]
        image = _image(facts, "gold", size, boxes, labels=[region for _, (_name, region, *_) in rows])
        annotators = tuple(annotator for _, (*_, annotator) in rows)
        # Without the column of annotators all are empty.
        read_by = tuple(dict.fromkeys(annotator for annotator in annotators if annotator))
        return image._replace(readers=annotators if read_by else (), read_by=read_by)

    path = tables.find_file(root, "gold_dataset/gold_bbox_coordinate_annotations_1000images.csv")
    return tables.table_images(gold_image, path, ("image_id", "bbox_name", *_CORNERS), ("annotator",))
