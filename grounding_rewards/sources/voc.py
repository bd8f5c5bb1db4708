"""Pascal VOC, one XML file per image, and CVAT 1.1, one XML file for all; the root tag tells which.

Folder, VOC::

    Annotations/<name>.xml               annotation/{filename,size/{width,height},object/{name,difficult,bndbox}}
    JPEGImages/<filename>
    ImageSets/Main/{train,val,test}.txt  a name a line, without its ending; optional

or each XML file beside its image, in the folder itself (labelImg) or in train/, valid/ and test/ (Roboflow).

Folder, CVAT 1.1::

    annotations.xml                      annotations/image[name,width,height,subset]/{box,polygon}[label]
    images/<name>                        or images/<subset>/<name>

Boxes: pixels. The VOC challenge counts pixels from 1 and gives the last pixel inside the box; most tools that write its
format count from 0 and give the edge. The numbers seldom tell which, so `one_based` has to. CVAT writes edges; a box
with `rotation` is the box around the turned one. Boxes are pixels of `size`.
Negative: an image without objects.
Ignored: an object that is difficult.
Source: http://host.robots.ox.ac.uk/pascal/VOC/; https://docs.cvat.ai/docs/manual/advanced/formats/format-cvat/.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from grounding_rewards.common.text_files import text_lines
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import SPLIT_NAMES, Images, register_source, sound_images, split_name
from grounding_rewards.sources.documents import pixels, read_xml
from grounding_rewards.sources.tables import NO_SUBSET, RowPlace, check_split, outline_box, turned_box

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# Whether an image has the class of a list in ImageSets, behind its name.
_FLAG = re.compile(r"\s+-?[01]$")


@register_source("voc")
def read_voc(
    root: str | Path,
    *,
    split: str | None = None,
    annotations: str | None = None,
    images: str | None = None,
    one_based: bool | None = None,
) -> Images:
    """The images of Pascal VOC or CVAT 1.1 files.

    Args:
        root: the folder of the dataset.
        split: `train`, `validation` (for `val`) or `test` of `ImageSets/Main` or of folders of these names, or a
            subset of CVAT; None takes all.
        annotations: a folder of XML files or one such file, relative to the root; by default `Annotations`, else
            `annotations`, else `annotations.xml`, else folders of splits, else the root.
        images: the folder of the images, likewise; by default `JPEGImages`, or the folder of the XML file, for VOC, and
            `images` for CVAT.
        one_based: True where the first pixel is 1 and `xmax` the last pixel inside, as in the VOC challenge: 1 is taken
            from `xmin` and `ymin`. False where they are edges from 0. VOC files are refused without it.

    Returns:
        Images in the order of the files' names.

    Raises:
        ValueError: no such file, or an unknown split; while iterating, a file that cannot be read, or a VOC file
            without `one_based`.

    Example:
        >>> import tempfile
        >>> box = '<box label="mass" xtl="1" ytl="2" xbr="11" ybr="22"/>'
        >>> cvat = f'<annotations><image name="a.png" width="40" height="30">{box}</image></annotations>'
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "annotations.xml").write_text(cvat)
        ...     [(image.file, image.boxes, image.labels) for image in read_voc(root)]
        [('images/a.png', [[1.0, 2.0, 11.0, 22.0]], ['mass'])]
    """
    root = Path(root)
    paths = _xml_files(root, annotations)
    listed_splits = _image_sets(root)
    split_folders = [root / name for name in SPLIT_NAMES]
    splits = {path: listed_splits.get(path.stem) for path in paths}
    for path in paths:
        if splits[path] is None and path.parent in split_folders:
            splits[path] = split_name(path.parent.name)
    # CVAT's one file has no split here: its images have subsets, which are checked when it is read.
    if any(splits.values()):
        check_split(split, splits.values())
        paths = [path for path in paths if split in (None, splits[path])]

    def images_of_file(path: Path) -> Images:
        """The images of one XML file, a Pascal VOC or a CVAT export."""
        try:
            tree = read_xml(path)
        except ValueError as error:
            # A broken file is the error of one image.
            return iter([error])
        if tree.tag == "annotations":
            return _cvat_images(tree, path, root, images or "images", split)
        if tree.tag != "annotation":
            raise ValueError(
                f"Expected <annotation> (Pascal VOC) or <annotations> (CVAT 1.1) as the root of {path}, got "
                f"<{tree.tag}>. Export the annotations in one of the two."
            )
        # Files of other splits are left out above, unless no file has a split: then the wanted one is refused.
        if split not in (None, splits[path]):
            check_split(split, ())
        if one_based is None:
            raise ValueError(
                f"Expected true or false for --option one_based=, got none with a Pascal VOC file ({path}). Give true "
                "where xmin of the first pixel is 1, as in the VOC challenge, and false where it is 0, as most tools "
                "write."
            )
        folder = images or _image_folder(root, path, (tree.findtext("filename") or "").strip())
        return sound_images(_voc_image, [(tree, path, folder, splits[path], one_based)])

    return chain.from_iterable(images_of_file(path) for path in paths)


def _xml_files(root: Path, annotations: str | None) -> list[Path]:
    """The XML files of a dataset; refuses a folder without any.

    Args:
        root: the folder of the dataset.
        annotations: a file or folder in it; None takes the first usual one that has files.
    """
    names = ("Annotations", "annotations", "annotations.xml") if annotations is None else (annotations,)
    for name in names:
        path = root / name
        files = [path] if path.is_file() else sorted(path.glob("*.xml"))
        if files:
            return files
    if annotations is None:
        # Roboflow writes a folder for each split, labelImg into the folder of the images.
        files = [path for name in SPLIT_NAMES for path in sorted(root.glob(f"{name}/*.xml"))]
        files = files or sorted(root.glob("*.xml"))
        if files:
            return files
    raise ValueError(
        f"Expected {' or '.join(names)} with XML in the folder for `root`, got {str(root)!r} without. "
        "Name the file or folder: --option annotations=NAME."
    )


def _image_folder(root: Path, path: Path, name: str) -> str:
    """The folder of the image `name` of a VOC file, relative to the root: where it is, or else where it should be."""
    xml_folder = path.parent.relative_to(root).as_posix()
    for folder in ("JPEGImages", "images", xml_folder):
        if (root / folder / name).is_file():
            return folder
    # The image is nowhere: beside Annotations the VOC challenge has JPEGImages, other tools write both files together.
    return "JPEGImages" if xml_folder.casefold() == "annotations" else xml_folder


def _image_sets(root: Path) -> dict[str, str]:
    """The split of each image in `ImageSets/Main`, by its name without the ending."""
    splits: dict[str, str] = {}
    splits_without_flags: dict[str, str] = {}
    for name in ("train", "val", "test"):
        path = root / "ImageSets" / "Main" / f"{name}.txt"
        for line in text_lines(path) if path.is_file() else ():
            # Lists of a class have "a 1" or "a -1" for the image a, which may also be a name with a space.
            splits[line.strip()] = split_name(name)
            splits_without_flags[_FLAG.sub("", line.strip())] = split_name(name)
    # The whole line as a name wins.
    return splits_without_flags | splits


def _voc_image(root: Element, path: Path, images: str, split: str | None, one_based: bool) -> AnnotatedImage:
    """The image of a VOC file.

    Args:
        root: of the XML.
        path: of the file, for errors.
        images: the folder of the images.
        split: of the image.
        one_based: as for `read_voc`.
    """
    name = (root.findtext("filename") or "").strip()
    if not name:
        raise RowPlace(path, 1, path.stem).error("<filename>", name, "Name the image.")
    boxes, labels, ignored = [], [], []
    for number, shape in enumerate(root.iterfind("object"), start=1):
        place = RowPlace(path, number, name)
        label = (shape.findtext("name") or "").strip()
        if not label:
            raise place.error("<name> of an object", label, "Name it.")
        corners = [shape.findtext(f"bndbox/{key}") or "" for key in ("xmin", "ymin", "xmax", "ymax")]
        x1, y1, x2, y2 = place.numbers(corners)
        if one_based:
            if min(x1, y1) < 1:
                raise place.error("pixels from 1 on, as one_based says,", (x1, y1), "Give --option one_based=false.")
            # x2 and y2 stay: the number of the last pixel from 1 on is that of its far edge from 0 on.
            x1, y1 = x1 - 1, y1 - 1
        # The challenge does not judge difficult objects.
        if (shape.findtext("difficult") or "").strip() == "1":
            ignored.append((x1, y1, x2, y2))
        else:
            boxes.append([x1, y1, x2, y2])
            labels.append(label)
    file = PurePosixPath(images, name).as_posix()
    width, height = (pixels(root.findtext(f"size/{side}")) for side in ("width", "height"))
    return AnnotatedImage(file, file, boxes, labels, width, height, split=split, ignored=tuple(ignored))


def _cvat_images(tree: Element, path: Path, root: Path, images: str, split: str | None) -> Images:
    """The images of a CVAT file.

    Args:
        tree: the root of the XML.
        path: of the file, for errors.
        root: the folder of the dataset.
        images: the folder of the images in it.
        split: only this subset; None takes all.
    """
    if tree.find("track") is not None:
        raise ValueError(f"Expected images in {path}, got <track>, a video. Export the task as CVAT for images.")
    elements = list(tree.iterfind("image"))
    # A task that was not divided has this one subset, which is no split.
    is_divided = {element.get("subset", "") for element in elements} != {NO_SUBSET}
    arguments = []
    splits = []
    for element in elements:
        subset = element.get("subset", "")
        folder = f"{images}/{subset}" if subset and (root / images / subset).is_dir() else images
        image_split = split_name(subset) if subset and is_divided else None
        splits.append(image_split)
        if split in (None, image_split):
            arguments.append((element, path, folder, image_split))
    check_split(split, splits)
    return sound_images(_cvat_image, arguments)


def _cvat_image(image: Element, path: Path, images: str, split: str | None) -> AnnotatedImage:
    """The image of an `<image>` of a CVAT file.

    Args:
        image: the element.
        path: of the file, for errors.
        images: the folder of the image.
        split: of the image.
    """
    name = image.get("name") or ""
    if not name:
        raise RowPlace(path, 1, "").error("a name of the image", image.get("name"), "Add it.")
    # A tag or an attribute says something of the whole image.
    shapes = [shape for shape in image if shape.tag not in ("tag", "attribute")]
    boxes = [_cvat_box(shape, RowPlace(path, number, name)) for number, shape in enumerate(shapes, start=1)]
    labels = [shape.get("label", "") for shape in shapes]
    file = f"{images}/{name}"
    width, height = (pixels(image.get(side)) for side in ("width", "height"))
    return AnnotatedImage(file, file, boxes, labels, width, height, split=split)


def _cvat_box(shape: Element, place: RowPlace) -> list[float]:
    """The box around a shape of a CVAT file; refuses a shape without a label, and other shapes than box and polygon."""
    if not shape.get("label"):
        raise place.error("a label of the shape", shape.get("label"), "Add it.")
    if shape.tag == "box":
        box = place.numbers([shape.get(key, "") for key in ("xtl", "ytl", "xbr", "ybr")])
        return turned_box(box, *place.numbers([shape.get("rotation", "0")]))
    if shape.tag == "polygon":
        return outline_box(place.numbers(shape.get("points", "").replace(";", ",").split(",")))
    raise place.error("a box or a polygon", shape.tag, "Draw a box around it, or remove it.")
