"""DeepLesion: 32,735 lesions on slices of computed tomography, measured by radiologists in their daily work.

Folder::

    DL_info.csv                                  a row per lesion, 18 columns
    Images_png/000089_01_01/037.png              File_name 000089_01_01_037.png; 16 bits, Hounsfield units + 32768

Boxes: `Bounding_boxes` is "x1, y1, x2, y2" in pixels: the end points of the two diameters and 5 pixels around them.
Either corner may come first; the box reaches from the smaller to the larger number.
Labels: where the lesion is, for validation and test; `lesion` for every lesion of the training set, which has none.
Negative: there are none, and about half of the lesions on these slices are not marked: a wrong box may be right.
Show the slices through a window, `extra["DICOM_windows"]`.
Access: open.
"""

from functools import partial
from pathlib import Path

from grounding_rewards.columns import stated_name
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import Images, register_source
from grounding_rewards.sources.documents import pixels
from grounding_rewards.sources.tables import TableRow, check_split, find_file, table_images

_SPLITS = {"1": "train", "2": "validation", "3": "test"}
_TYPES = {
    "-1": "lesion", "1": "bone", "2": "abdomen", "3": "mediastinum", "4": "liver", "5": "lung", "6": "kidney",
    "7": "soft tissue", "8": "pelvis",
}  # fmt: skip
_COLUMNS = ("File_name", "Patient_index", "Bounding_boxes", "Coarse_lesion_type", "Image_size", "Train_Val_Test")
_EXTRA = ("DICOM_windows", "Spacing_mm_px_", "Possibly_noisy", "Key_slice_index")


@register_source(
    "deeplesion",
    title="DeepLesion",
    url="https://nihcc.app.box.com/v/DeepLesion",
    licence="no restrictions; attribution",
    note="Not every finding is marked: an image without a box is no negative. Stored values are Hounsfield units plus "
    "32768: give a window.",
)
def read_deeplesion(root: str | Path, *, split: str | None = None) -> Images:
    """The key slices of DeepLesion, one image a slice, in the order of the table.

    `extra` keeps window, spacing and whether a lesion was found to be noisy.
    """
    check_split(split, _SPLITS.values())
    return table_images(partial(_image, split), find_file(root, "DL_info.csv"), _COLUMNS, _EXTRA)


def _image(split: str | None, name: str, rows: list[TableRow]) -> AnnotatedImage | None:
    """The image of the rows of a slice; None if it is of another split."""
    boxes, labels = [], []
    for place, (_file, _patient, corners, lesion_type, *_) in rows:
        x1, y1, x2, y2 = place.box(corners.split(","))
        # The table has either corner first.
        boxes.append([min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)])
        labels.append(place.one_of(_TYPES, lesion_type))
    # All rows of a slice agree in these cells.
    place, (_file, patient, _corners, _type, size, split_number, *extra_cells) = rows[0]
    image_split = place.one_of(_SPLITS, split_number)
    if split not in (None, image_split):
        return None
    # The table joins the name of the series, which is the folder of its slices, and that of the file by a _.
    series, _, slice_file = name.rpartition("_")
    file = f"Images_png/{series}/{slice_file}"
    # The cell is "512, 512".
    width, _, height = size.partition(",")
    extra = {key: value for key, value in zip(_EXTRA, extra_cells, strict=True) if value}
    return AnnotatedImage(
        name, file, boxes, labels, pixels(width), pixels(height), stated_name(patient), image_split, extra=extra
    )
