"""FracAtlas: 4,083 images of hands, legs, hips and shoulders, 717 of them with fractures.

Folder::

    images/{Fractured,Non_fractured}/IMG0000019.jpg
    Annotations/COCO JSON/COCO_fracture_masks.json      the VOC, YOLO and VGG files beside it hold the same
    Utilities/Fracture Split/{train,valid,test}.csv     image_id; fractured images alone; optional

Boxes: x, y, width, height in pixels.
Negative: an image in Non_fractured; about 59 of its JPEG files are truncated. It belongs to no split.
Access: open.
"""

from itertools import chain
from pathlib import Path

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import Images, register_source, sound_images, split_name
from grounding_rewards.sources.coco import coco_images
from grounding_rewards.sources.tables import check_split, find_file, optional_rows

_FOLDERS = ("images/Fractured", "images/Non_fractured")
_SPLITS = {split_name(name): f"Utilities/Fracture Split/{name}.csv" for name in ("train", "valid", "test")}


@register_source(
    "fracatlas", title="FracAtlas", url="https://doi.org/10.6084/m9.figshare.22363012", licence="CC BY 4.0"
)
def read_fracatlas(root: str | Path, *, split: str | None = None) -> Images:
    """The images of FracAtlas.

    Args:
        root: the folder of the dataset.
        split: `train`, `validation` or `test`, which hold fractured images alone; None takes these and the negatives.

    Returns:
        Images in the order of the files' names, fractured images first.
    """
    root = Path(root)
    check_split(split, _SPLITS)
    if split is not None:
        # Refuses a folder without the table of the wanted split; without a split all three are optional.
        find_file(root, _SPLITS[split])
    # By the name without its ending: some tables have it with, others without.
    splits: dict[str, str] = {}
    for table_split, file in _SPLITS.items():
        splits |= {Path(name).stem: table_split for _, (name,) in optional_rows(root, file, ("image_id",))}
    coco_images_by_stem: dict[str, AnnotatedImage] = {}
    errors: list[ValueError] = []
    coco_file = find_file(root, "Annotations/COCO JSON/COCO_fracture_masks.json")
    for image_or_error in coco_images(coco_file, images=".", split=None):
        if isinstance(image_or_error, ValueError):
            errors.append(image_or_error)
        else:
            coco_images_by_stem[Path(image_or_error.file).stem] = image_or_error
    files = [path for folder in _FOLDERS for path in sorted((root / folder).glob("*.jpg"))]
    if not files:
        raise ValueError(
            f"Expected {' and '.join(_FOLDERS)} with JPEG files in the folder for `root`, got {str(root)!r} without. "
            "Point to the folder that holds them."
        )

    def image(path: Path) -> AnnotatedImage:
        """The image in a file, with its annotations, which must fit the file's folder."""
        name = path.stem
        # The COCO file may leave out an image without boxes.
        coco_image = coco_images_by_stem.get(name) or AnnotatedImage(name, "", [], [])
        if (path.parent.name == "Fractured") != bool(coco_image.boxes):
            raise ValueError(
                f"Expected boxes for the images in Fractured and none for the others, got {len(coco_image.boxes)} for "
                f"{path}. Correct its annotations, or remove the image."
            )
        file = path.relative_to(root).as_posix()
        # Of the COCO entry only size, boxes and labels are taken.
        return coco_image._replace(id=name, file=file, split=splits.get(name), ignored=(), extra={})

    files_of_split = [(path,) for path in files if split in (None, splits.get(path.stem))]
    return chain(errors, sound_images(image, files_of_split))
