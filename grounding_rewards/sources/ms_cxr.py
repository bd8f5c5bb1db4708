"""MS-CXR: images of MIMIC-CXR with phrases of radiologists and the boxes that each phrase describes.

Folder: one of

    MS_CXR_Local_Alignment_v1.1.0.csv     dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split
    MS_CXR_Local_Alignment_v1.0.0.csv     release 0.1 of the dataset: the same without `split`

The JSON file beside it holds the same and is not read. The images are those of MIMIC-CXR-JPG:
`files/p10/p.../s.../<dicom_id>.jpg`.

A phrase with several boxes has several rows; an image with several phrases is one image, and `phrases` says which box
belongs to which. 752 of its 851 patients are in the training set of MIMIC-CXR.

Readers: one radiologist, reviewed by others.
Negative: none, the dataset has positives only.
Boxes: left, top, width and height in pixels of MIMIC-CXR-JPG.
Paper: Boecking et al., ECCV 2022, arXiv 2204.09817.
Access: credentialed PhysioNet account and training in human subjects research; images likewise, from MIMIC-CXR-JPG.
"""

import re
from pathlib import Path, PurePosixPath

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources.base import CREDENTIALED, Images, register_source, split_name
from grounding_rewards.sources.tables import TableRow, check_split, find_file, read_header, table_images

_COLUMNS = ("dicom_id", "category_name", "label_text", "x", "y", "w", "h", "path", "image_width", "image_height")


@register_source(
    "ms-cxr",
    title="MS-CXR",
    url="https://physionet.org/content/ms-cxr/1.1.0/",
    licence=CREDENTIALED,
    note="Phrases are text of reports. Most patients are in the training split of MIMIC-CXR.",
)
def read_ms_cxr(root: str | Path, *, split: str | None = None, images: str | Path = "") -> Images:
    """The images of MS-CXR, each with all its phrases.

    Args:
        root: the folder of the dataset.
        split: `train`, `validation` or `test`, in release 1.1.0 alone; None takes all images.
        images: the folder of MIMIC-CXR-JPG which holds `files`, relative to the root or absolute; the root when left
            out.

    Returns:
        Images in the order of the table; `phrases` has one per box.
    """
    check_split(split, ("train", "validation", "test"))
    path = find_file(root, "MS_CXR_Local_Alignment_v1.1.0.csv", "MS_CXR_Local_Alignment_v1.0.0.csv")
    if split is not None and "split" not in read_header(path):
        raise ValueError(f"Expected None for split, got {split!r}, but {path} has no splits. Take release 1.1.0.")

    def image(name: str, rows: list[TableRow]) -> AnnotatedImage | None:
        """The image of that name, with the boxes of its rows; None if it is of another split than the wanted one."""
        first_place, first_cells = rows[0]
        # Behind the id, the finding, the phrase and the four numbers of the box: all rows of an image share these.
        shared_cells = first_cells[7:]
        for place, cells in rows:
            if cells[7:] != shared_cells:
                expected = f"the file, size and split of the image's first row, {shared_cells},"
                raise place.error(expected, cells[7:], "Correct the row.")
        image_path, *size, split_spelling = shared_cells
        # Release 1.0.0 has no splits.
        image_split = split_name(split_spelling) or None
        if split not in (None, image_split):
            return None
        width, height = map(int, first_place.numbers(size))
        # files/p10/p…/s…/: studies lie in the folder of their patient.
        patient = re.search(r"/p(\d{3,})/s", image_path)
        patient_id = None if patient is None else patient[1]
        file = PurePosixPath(images, image_path).as_posix()
        boxes = [place.box(cells[3:7], "xywh") for place, cells in rows]
        labels = [finding for _, (_id, finding, *_) in rows]
        phrases = tuple(phrase for _, (_id, _finding, phrase, *_) in rows)
        return AnnotatedImage(name, file, boxes, labels, width, height, patient_id, image_split, phrases=phrases)

    return table_images(image, path, _COLUMNS, ("split",))
