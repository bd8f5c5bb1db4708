"""YOLO, as Ultralytics reads it: one text file per image, a box or an outline a line, in fractions of the image.

Folder::

    data.yaml                              names, and train, val, test: a folder of images, a list of folders, or a text
                                           file with a path a line; or instead
    classes.txt                            a name a line; may also be in labels/
    images/<split>/<name>.jpg              the size of an image is read from its header
    labels/<split>/<name>.txt              cls cx cy w h, or cls x1 y1 ... xn yn (an outline, whose box is taken)

Without data.yaml, the first folder below images/ names the split of an image.
Negative: an image whose text file is empty or missing.
Source: https://docs.ultralytics.com/datasets/detect/.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.boxes import ORDERS
from grounding_rewards.common.text_files import read_yaml, text_lines
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import Images, register_source, sound_images, split_name
from grounding_rewards.sources.tables import IMAGE_SUFFIXES, RowPlace, check_split, header_size, outline_box, scaled_box

# Rounding can put a box at the border a little beyond it.
_SLACK = 0.01


class _SplitFiles(NamedTuple):
    """The files of images of a split.

    Attributes:
        split: None if the dataset has no splits.
        files: of the images.
        folder: that has them all; None if a list names them, as it may leave out images with labels.
    """

    split: str | None
    files: list[Path]
    folder: Path | None


@register_source("yolo")
def read_yolo(root: str | Path, *, split: str | None = None) -> Images:
    """The images of a YOLO folder.

    Args:
        root: the folder with `data.yaml` (any `.yaml` that has `names`), or with `classes.txt` and `images`.
        split: `train`, `validation` (for `val`), `test`, or what else the folder has; None takes all.

    Returns:
        Images in the order of the names of the images; `id` is the same as `file`.

    Raises:
        ValueError: no names of classes, images or labels; labels without an image; while iterating, a line that cannot
            be read, such as a prediction.
    """
    root = Path(root)
    names, all_images = _read_description(root) or _read_classes(root)
    check_split(split, (images.split for images in all_images))
    arguments = []
    for images in all_images:
        if split in (None, images.split):
            _check_labels(images)
            arguments += [(root, path, _label_path(path), names, images.split) for path in images.files]
    return sound_images(yolo_image, arguments)


def read_label_file(path: str | Path, names: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    """Yield label and box of each line of a text file, xyxy in fractions of the image; none if the file is missing.

    A corner up to 0.01 beyond the image is moved to its edge.

    Args:
        path: the text file.
        names: name of every class, by its number.

    Raises:
        ValueError: a line that is neither a box nor an outline, or a class without a name.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.txt").write_text("1 0.5 0.5 0.5 1")
        ...     list(read_label_file(Path(root, "a.txt"), ["mass", "nodule"]))
        [('nodule', [0.25, 0.0, 0.75, 1.0])]
    """
    path = Path(path)
    if not path.is_file():
        return
    for number, text in enumerate(text_lines(path), start=1):
        line, fields = text.strip(), text.split()
        place = RowPlace(path, number, path.stem)
        if not fields:
            continue
        if len(fields) == 6:
            fix = "Six are a prediction with its confidence: point to the labels, not to what a model wrote."
            raise place.error("5 fields, or an odd number from 7 on,", line, fix)
        if len(fields) % 2 == 0 or len(fields) < 5:
            raise place.error("cls cx cy w h, or cls and three points or more,", line, "Correct the line.")
        index, *values = place.numbers(fields)
        if index not in range(len(names)):
            raise place.error(f"a class from 0 to {len(names) - 1}", fields[0], "Name it with the others.")
        if not all(map(_is_near, values)):
            raise place.error("fractions of the image", line, "Divide pixels by the image's width and height.")
        # Four numbers are a box, more of them the points of an outline.
        box = ORDERS["cxcywh"].to_xyxy(*values) if len(values) == 4 else outline_box(values)
        # Rounding is mended; a corner farther off the image is left for later checks.
        box = [min(max(value, 0.0), 1.0) if _is_near(value) else value for value in box]
        yield names[int(index)], box


def _is_near(value: float) -> bool:
    """Whether a number is in [0, 1], or outside by no more than rounding."""
    return -_SLACK <= value <= 1 + _SLACK


def yolo_image(root: Path, path: Path, labels: Path, names: Sequence[str], split: str | None) -> AnnotatedImage:
    """An image with the boxes of its text file; without boxes if that is missing.

    Args:
        root: the folder of the dataset.
        path: the image, whose header has its size.
        labels: the text file.
        names: name of every class, by its number.
        split: of the image.

    Raises:
        ValueError: as `read_label_file`, or the image cannot be read.
    """
    width, height = header_size(path)
    labelled_boxes = list(read_label_file(labels, names))
    file = Path(os.path.relpath(path, root)).as_posix()
    boxes = [scaled_box(box, width, height) for _, box in labelled_boxes]
    box_labels = [label for label, _ in labelled_boxes]
    return AnnotatedImage(file, file, boxes, box_labels, width, height, split=split)


def _label_path(path: Path) -> Path:
    """The text file of an image, as Ultralytics finds it: in `labels` instead of the last `images`, else beside it."""
    *folders, file = path.parts
    if "images" in folders:
        last_position = len(folders) - 1 - folders[::-1].index("images")
        folders[last_position] = "labels"
    return Path(*folders, file).with_suffix(".txt")


def _check_labels(images: _SplitFiles) -> None:
    """Refuse images without any labels, and labels without an image; warn of images without a text file."""
    label_paths = {_label_path(path) for path in images.files}
    missing = sorted(str(path) for path in label_paths if not path.is_file())
    if len(missing) == len(label_paths):
        raise ValueError(
            f"Expected labels for the images of split {images.split}, got no text file such as "
            f"{min(label_paths, default='labels/<name>.txt')}. Put the labels beside the images, in `labels` for "
            "`images`."
        )
    if missing:
        warnings.warn(
            f"{len(missing)} of {len(label_paths)} images have no text file, such as {missing[0]}: "
            "they are taken for images without findings. Where files were lost, put them back.",
            stacklevel=3,
        )
    # A list may name a part of the images alone.
    if images.folder is None:
        return
    # Some tools write classes.txt beside the labels.
    text_files = chain.from_iterable(folder.glob("*.txt") for folder in {path.parent for path in label_paths})
    without_image = sorted(str(path) for path in text_files if path not in label_paths and path.name != "classes.txt")
    if without_image:
        raise ValueError(
            f"Expected an image in {images.folder} for every label, got {len(without_image)} without: "
            f"{', '.join(without_image[:3])}. Download the images, or remove the labels."
        )


def _read_description(root: Path) -> tuple[list[str], list[_SplitFiles]] | None:
    """The names of classes, and the images of each split, from a YAML file; None if the folder has none with names."""
    for path in sorted(root.glob("*.y*ml")):
        content = read_yaml(path)
        if not isinstance(content, dict) or "names" not in content:
            continue
        if "kpt_shape" in content:
            raise ValueError(
                f"Expected labels with boxes or outlines in {path}, got kpt_shape: a pose dataset, whose points would "
                "read as outlines. Export boxes."
            )
        images = []
        for key, value in content.items():
            if key in ("train", "val", "valid", "test") and value:
                for entry in value if isinstance(value, list) else [value]:
                    images.append(_images_of_entry(root, content.get("path"), str(entry), split_name(key)))
        if not images:
            raise ValueError(f"Expected train, val or test in {path}, got none of them. Name the folders of images.")
        return _class_names(content["names"], path), images
    return None


def _class_names(content: Any, path: Path) -> list[str]:
    """The names of classes in their order, from a list or a mapping of numbers in a YAML file."""
    if isinstance(content, dict) and content.keys() == set(range(len(content))):
        content = [content[index] for index in range(len(content))]
    if not isinstance(content, list) or not content:
        raise ValueError(
            f"Expected a list, or a mapping of 0, 1, 2 ..., for names in {path}, got {content!r:.200}. Name every "
            "class."
        )
    return [str(name) for name in content]


def _images_of_entry(root: Path, base: Any, entry: str, split: str) -> _SplitFiles:
    """The images of an entry of a YAML file, which is a folder or a list of images.

    Args:
        root: the folder of the YAML file.
        base: its key `path`, to which the entry is relative, unless that is a path of another machine.
        entry: the path of the folder or list.
        split: of the images.
    """
    # `base` may be a folder of another machine, and Roboflow writes ../train/images in a file beside train/.
    for path in (root / str(base or "") / entry, root / entry, root / entry.removeprefix("../")):
        if path.is_dir():
            return _SplitFiles(split, _images_below(path), path)
        if path.is_file():
            files = [path.parent / line.strip() for line in text_lines(path) if line.strip()]
            return _SplitFiles(split, sorted(files), folder=None)
    raise ValueError(
        f"Expected a folder or a list of images for {split}, got {entry!r}, which is not in {str(root)!r}. "
        "Correct the path in the file."
    )


def _images_below(folder: Path) -> list[Path]:
    """The files of images anywhere below a folder."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)


def _read_classes(root: Path) -> tuple[list[str], list[_SplitFiles]]:
    """The names of classes from classes.txt, and the images of each split below images/."""
    lists = [path for path in (root / "classes.txt", root / "labels" / "classes.txt") if path.is_file()]
    folder = root / "images"
    if not lists or not folder.is_dir():
        raise ValueError(
            f"Expected a .yaml file with names, or classes.txt and the folder images, in the folder for `root`, got "
            f"{str(root)!r} without. Write the names of the classes, one a line, into classes.txt."
        )
    names = [line.strip() for line in text_lines(lists[0])]
    # Blank lines at the end are no classes.
    while names and not names[-1]:
        names.pop()
    if "" in names:
        raise ValueError(
            f"Expected the name of a class in every line of {lists[0]}, got none in line {names.index('') + 1}. "
            "A class is the number of its line: name it, or remove the line if it never had a number."
        )
    files_of_splits: dict[str | None, list[Path]] = {}
    for path in _images_below(folder):
        *folders, _ = path.relative_to(folder).parts
        # The first folder below images/ is the split; an image directly in images/ has none.
        split = split_name(folders[0]) if folders else None
        files_of_splits.setdefault(split, []).append(path)
    return names, [_SplitFiles(split, files, folder) for split, files in files_of_splits.items()]
