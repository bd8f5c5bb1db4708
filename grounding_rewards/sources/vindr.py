"""VinDr's three datasets, of PhysioNet and of Kaggle: a table with a row per box and reader, and no sizes of images.

Folder of VinDr-CXR, adult chest radiographs, 1.0.0 (on Kaggle: `train.csv` with the same columns and class_id, 14
labels instead of 22)::

    annotations/annotations_train.csv    image_id,rad_id,class_name,x_min,y_min,x_max,y_max
    annotations/annotations_test.csv     image_id,class_name,x_min,y_min,x_max,y_max
    annotations/image_labels_{train,test}.csv    image_id, rad_id (train alone), a column of 0 and 1 per label; optional
    train/<image_id>.dicom, test/<image_id>.dicom

Folder of VinDr-PCXR (PediCXR), chest radiographs of children, 1.0.0: the same with rad_ID in both tables, which may lie
beside the images; labels keep their misspellings, "Brocho-pneumonia", "Diagphramatic hernia".

Folder of VinDr-SpineXR, 1.0.0::

    annotations/{train,test}.csv         study_id,series_id,image_id,rad_id,lesion_type,xmin,ymin,xmax,ymax
    annotations/{train,test}_meta.csv    image_id,image_height,image_width; made from the DICOM files, optional
    train_images/<image_id>.dicom, test_images/<image_id>.dicom

Readers: an image of VinDr-CXR's training set was read by 3 of 17 radiologists, whose boxes are not merged; one of its
test set has the consensus of 5, and names no reader. The others have one radiologist per image.
Negative: an image on which nobody drew a box; its rows say "No finding", one per reader.
Boxes: pixels of the DICOM file. Tables have neither its size nor the patient; `patient_id` of SpineXR is the study,
whose images belong together. Where images are kept as PNG or JPEG copies, these are found by their ids, and a table of
sizes is needed: a copy may be smaller.
SpineXR: rows of other lesion types than the seven of the dataset are skipped, with or without a box. Boxes without
width or height (any side below 0.001 pixels, as in the dataset's own loader) are dropped; an image with no other box is
left out, since it is no negative.
On Kaggle: VinBigData Chest X-ray Abnormalities Detection.
Papers: Pham et al., Scientific Data 10, 240 (2023); Nguyen et al., MICCAI 2021, arXiv 2106.12930.
Access: PhysioNet account and the signed data use agreement, for VinDr-CXR a credentialed one; or a Kaggle account.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from grounding_rewards.columns import stated_name
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.images.dicom import is_dicom
from grounding_rewards.sources import tables
from grounding_rewards.sources.base import RESTRICTED, Images, register_source

_NO_FINDING = "No finding"
_KAGGLE = "train.csv"
# In pixels.
_SMALLEST_SIDE = 1e-3


class _Layout(NamedTuple):
    """The layout of one of the datasets.

    Attributes:
        tables: possible paths of the table of each split.
        images: the folder of a split's images.
        label: column of the finding.
        corners: columns of x1, y1, x2 and y2.
        sizes: the table of sizes beside the table of a split; empty if the dataset has none.
        findings: labels that have boxes; None takes all, and refuses a box beside "No finding".
    """

    tables: Mapping[str, Sequence[str]]
    images: str = "{split}"
    label: str = "class_name"
    corners: Sequence[str] = ("x_min", "y_min", "x_max", "y_max")
    sizes: str = ""
    findings: Collection[str] | None = None


_CXR = _Layout(
    {
        "train": ("annotations/annotations_train.csv", "annotations_train.csv", _KAGGLE),
        "test": ("annotations/annotations_test.csv", "annotations_test.csv"),
    }
)
_PCXR = _Layout(
    {name: (f"annotations_{name}.csv", f"annotations/annotations_{name}.csv") for name in ("train", "test")}
)
_SPINEXR = _Layout(
    {name: (f"annotations/{name}.csv", f"{name}.csv") for name in ("train", "test")},
    "{split}_images",
    "lesion_type",
    ("xmin", "ymin", "xmax", "ymax"),
    "{split}_meta.csv",
    # As the tables spell them.
    (
        "Osteophytes", "Surgical implant", "Spondylolysthesis", "Foraminal stenosis", "Disc space narrowing",
        "Vertebral collapse", "Other lesions",
    ),
)  # fmt: skip


@register_source(
    "vindr-cxr",
    title="VinDr-CXR",
    url="https://physionet.org/content/vindr-cxr/1.0.0/",
    licence="PhysioNet Credentialed Health Data License 1.5.0, or the rules on Kaggle; not redistributable",
    note="No patient ids. The training images have three readers, the test images one consensus.",
)
def read_vindr_cxr(root: str | Path, *, split: str | None = None, sizes: str | Path | None = None) -> Images:
    """The images of VinDr-CXR, as published by PhysioNet or on Kaggle, whichever files are there.

    Args:
        root: the folder of the dataset.
        split: `train` or `test`; None takes both, or `train` where the folder is Kaggle's, which has no boxes for test.
        sizes: a CSV file with `image_id` and the `width` and `height` of every DICOM file (or `Columns` and `Rows`, or
            Kaggle's `dim1` and `dim0`); without it, width and height are None, and the DICOM file has to say. Needed
            where images are PNG or JPEG copies, which may lie anywhere below the root as `<image_id>.png` or `.jpg`.

    Returns:
        Images in the order of the tables; readers who drew nothing are known where the folder has `image_labels`.
    """
    path = tables.optional_file(root, *_CXR.tables["train"])
    # Kaggle's table is train.csv, also as train.csv.gz.
    if split is None and path is not None and path.name.startswith(_KAGGLE):
        split = "train"
    return _read(_CXR, root, split, sizes)


@register_source(
    "vindr-pcxr",
    title="VinDr-PCXR",
    url="https://physionet.org/content/vindr-pcxr/1.0.0/",
    licence=RESTRICTED,
    note="No patient ids.",
)
def read_vindr_pcxr(root: str | Path, *, split: str | None = None, sizes: str | Path | None = None) -> Images:
    """The images of VinDr-PCXR, as those of `read_vindr_cxr`.

    Args:
        root: the folder of the dataset.
        split: `train` or `test`; None takes both.
        sizes: a CSV file with the width and height of every image, as for `read_vindr_cxr`.
    """
    return _read(_PCXR, root, split, sizes)


@register_source(
    "vindr-spinexr", title="VinDr-SpineXR", url="https://physionet.org/content/vindr-spinexr/1.0.0/", licence=RESTRICTED
)
def read_vindr_spinexr(root: str | Path, *, split: str | None = None, sizes: str | Path | None = None) -> Images:
    """The images of VinDr-SpineXR.

    Args:
        root: the folder of the dataset.
        split: `train` or `test`; None takes both.
        sizes: as for `read_vindr_cxr`, in place of the folder's `<split>_meta.csv`.
    """
    return _read(_SPINEXR, root, split, sizes)


def _read(layout: _Layout, root: str | Path, split: str | None, sizes: str | Path | None) -> Images:
    """The images of a split, or of all splits, of one dataset."""
    paths = tables.split_paths(root, split, layout.tables)
    return chain.from_iterable([_read_table(layout, Path(root), name, path, sizes) for name, path in paths.items()])


def _read_table(layout: _Layout, root: Path, split: str, path: Path, sizes: str | Path | None) -> Images:
    """The images of one table, which is read at the call.

    Args:
        layout: of the dataset.
        root: the folder of the dataset.
        split: of the table.
        path: of the table.
        sizes: the table of sizes that the caller gave; without one, that of the dataset is taken if it is there.
    """
    # Readers who drew nothing on an image stand in the table of its labels alone.
    label_readers = defaultdict[str, list[str]](list)
    labels_table = f"image_labels_{split}.csv"
    for _, (image_id, reader) in tables.optional_rows(path.parent, labels_table, ("image_id",), ("rad_id",)):
        label_readers[image_id].append(reader)
    if not sizes and layout.sizes:
        sizes = tables.optional_file(path.parent, layout.sizes.format(split=split))
    known_sizes = None if sizes is None else tables.read_sizes(sizes, "image_id")
    find = tables.image_finder(root)

    def image(name: str, rows: list[tables.TableRow]) -> AnnotatedImage | None:
        """The image of this name, of all its rows; None if all its boxes are empty."""
        boxes, labels, box_readers, row_readers = [], [], [], []
        has_empty_box = False
        for place, (_name, label, *corners, reader, _study) in rows:
            # Also of a row without a box: who drew nothing has read the image.
            row_readers.append(reader)
            if layout.findings is not None and label not in layout.findings:
                continue
            if label == _NO_FINDING:
                if any(corners):
                    raise place.error("no box beside 'No finding'", tuple(corners), "Correct the row.")
                continue
            x1, y1, x2, y2 = place.numbers(corners)
            # SpineXR has boxes without width or height, which its own loader drops too.
            if layout.findings is not None and min(abs(x2 - x1), abs(y2 - y1)) < _SMALLEST_SIDE:
                has_empty_box = True
                continue
            boxes.append([x1, y1, x2, y2])
            labels.append(label)
            box_readers.append(reader)
        # It has a finding whose box is lost, so it is no negative.
        if has_empty_box and not boxes:
            return None
        place, (*_, study) = rows[0]
        file = find(name, f"{layout.images.format(split=split)}/{name}.dicom")
        if known_sizes is None and not is_dicom(file):
            fix = "Its boxes are in pixels of the DICOM file: give a table with image_id, width and height of these."
            raise place.error("`sizes` for an image that is a copy", file, fix)
        width, height = tables.known_size(known_sizes, place)
        # No table has the patient, but all images of a study are of one.
        patient = stated_name(study)
        # Where a table has no column of readers, their cells are empty.
        readers = tuple(box_readers) if any(box_readers) else ()
        read_by = tuple(reader for reader in dict.fromkeys((*row_readers, *label_readers[name])) if reader)
        return AnnotatedImage(
            name, file, boxes, labels, width, height, patient, split, readers=readers, read_by=read_by
        )

    return tables.table_images(image, path, ("image_id", layout.label, *layout.corners), ("rad_id", "study_id"))
