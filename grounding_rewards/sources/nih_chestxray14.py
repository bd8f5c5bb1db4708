"""NIH ChestX-ray14: the 880 images of the chest radiograph collection that have boxes, and its images without findings.

Folder::

    BBox_List_2017.csv                       image, label, x, y, w, h
    Data_Entry_2017_v2020.csv                what is known of every image, also as Data_Entry_2017.csv; optional
    train_val_list.txt, test_list.txt        names of images; optional
    images/<name>.png                        or images_001/images/<name>.png and so on

The header of the list, `Image Index,Finding Label,Bbox [x,y,w,h],,,`, has unquoted commas in a name: four columns are
called `Bbox [x`, `y`, `w` and `h]`. Copies saved again lack the last commas or end lines with CRLF.

The list has at most one box per image and label, and none for most findings: an image with findings and without a box
is no negative and is left out. The label "Infiltrate" is "Infiltration" in the other table.

Readers: one radiologist.
Negative: an image whose only label in `Data_Entry_2017` is "No Finding", found by text mining; 60 thousand images. The
list of boxes alone has none.
Boxes: left, top, width and height in pixels of the PNG file, which is 1024 x 1024.
Paper: Wang et al., CVPR 2017, arXiv 1705.02315.
Access: open.
"""

from pathlib import Path

from grounding_rewards.common.text_files import read_text
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources import tables
from grounding_rewards.sources.base import Images, register_source, sound_images

_SIDE = 1024
_LISTS = {"train_val": "train_val_list.txt", "test": "test_list.txt"}


@register_source(
    "nih-chestxray14",
    title="NIH ChestX-ray14",
    url="https://nihcc.app.box.com/v/ChestXray-NIHCC",
    licence="no restrictions; link, citation and acknowledgement of the NIH Clinical Center are asked for",
    note="Not every finding is marked: an image without a box is no negative.",
)
def read_nih_chestxray14(root: str | Path, *, split: str | None = None, negatives: bool = True) -> Images:
    """The images with boxes, then the images without findings.

    Args:
        root: the folder of the dataset.
        split: `train_val` or `test`, by the dataset's two lists; None takes all.
        negatives: give the images without findings as well; there are seventy for every image with boxes.

    Returns:
        Images in the order of the tables. `extra` has `finding_labels` (all labels of the image, joined by `|`,
        with and without box) and `view`, where the folder has `Data_Entry_2017`.
    """
    tables.check_split(split, _LISTS)
    # The published header has the name "Bbox [x,y,w,h]" without quotes: a table has four columns of its parts.
    columns = ("Image Index", "Finding Label", "Bbox [x", "y", "w", "h]")
    rows_of_images = tables.image_rows(tables.find_file(root, "BBox_List_2017.csv"), columns)
    if split is not None:
        # Refuses a folder without the list of the wanted split; without a split both lists are optional.
        tables.find_file(root, _LISTS[split])
    splits: dict[str, str] = {}
    for list_split, file in _LISTS.items():
        path = tables.optional_file(root, file)
        if path is not None and split in (None, list_split):
            splits |= dict.fromkeys(read_text(path).split(), list_split)
    path = tables.optional_file(root, "Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
    entries = [] if path is None else tables.read_rows(path, ("Image Index", "Finding Labels"), ("View Position",))
    # Facts about images with boxes and about negatives; images with findings and without a box are left out.
    facts = {}
    for _, (name, labels, view) in entries:
        if labels == "No Finding" or name in rows_of_images:
            facts[name] = {"finding_labels": labels, "view": view}
    if negatives:
        # A negative has no row in the list of boxes.
        rows_of_images |= {name: [] for name in facts if name not in rows_of_images}
    find = tables.image_finder(root)

    def image(name: str) -> AnnotatedImage:
        """The image of that name, with the boxes of its rows and the facts about it."""
        rows = rows_of_images[name]
        boxes = [place.box(box, "xywh") for place, (_name, _label, *box) in rows]
        labels = [label for _, (_name, label, *_box) in rows]
        file = find(name, f"images/{name}")
        # A name is the number of the patient, a _ and the number of the follow-up.
        patient = name.split("_")[0]
        extra = facts.get(name, {})
        return AnnotatedImage(name, file, boxes, labels, _SIDE, _SIDE, patient, splits.get(name), extra=extra)

    names = [(name,) for name in rows_of_images if split is None or name in splits]
    return sound_images(image, names)
