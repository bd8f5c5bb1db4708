"""VinDr-CXR in both layouts, written to the published schema."""

from __future__ import annotations

import random

import pytest

from grounding_rewards.sources import AnnotatedImage
from grounding_rewards.sources.vindr_cxr import read_vindr_cxr

KAGGLE = """\
image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max
a,No finding,14,R11,,,,
a,No finding,14,R7,,,,
b,Cardiomegaly,3,R10,691.0,1375.0,1653.0,1831.0
b,Aortic enlargement,0,R8,1264.0,743.0,1611.0,1019.0
b,Cardiomegaly,3,R9,700.0,1380.0,1660.0,1840.0
a,No finding,14,R10,,,,
"""
# Rows of an image are apart, coordinates are fractional, and there is no class_id.
PHYSIONET_TRAIN = """\
image_id,rad_id,class_name,x_min,y_min,x_max,y_max
b,R1,Edema,900.96,587.85,1205.36,950.5
a,R2,No finding,,,,
b,R2,Edema,880.5,590.25,1210.0,960.0
"""
# The consensus: no rad_id.
PHYSIONET_TEST = """\
image_id,class_name,x_min,y_min,x_max,y_max
c,Pneumothorax,10.5,20.5,30.5,40.5
d,No finding,,,,
"""
# Three readers of b, of whom R3 drew nothing; global labels; "Other diseases" by one of them.
IMAGE_LABELS = """\
image_id,rad_id,Edema,Other diseases,Tuberculosis,No finding
a,R2,0,0,0,1
b,R1,1,0,0,0
b,R2,1,1,0,0
b,R3,0,0,0,1
"""


@pytest.fixture
def kaggle(tmp_path):
    (tmp_path / "train.csv").write_text(KAGGLE)
    return tmp_path


@pytest.fixture
def physionet(tmp_path):
    folder = tmp_path / "annotations"
    folder.mkdir()
    (folder / "annotations_train.csv").write_text(PHYSIONET_TRAIN)
    (folder / "annotations_test.csv").write_text(PHYSIONET_TEST)
    return tmp_path


def test_kaggle(kaggle):
    assert list(read_vindr_cxr(kaggle)) == [
        AnnotatedImage(
            id="b",
            file="train/b.dicom",
            boxes=[[691.0, 1375.0, 1653.0, 1831.0], [1264.0, 743.0, 1611.0, 1019.0], [700.0, 1380.0, 1660.0, 1840.0]],
            labels=["Cardiomegaly", "Aortic enlargement", "Cardiomegaly"],
            split="train",
            readers=("R10", "R8", "R9"),
            read_by=("R10", "R8", "R9"),
        ),
        # Everybody who read an image without findings is kept: three readers agree that there is none.
        AnnotatedImage(id="a", file="train/a.dicom", boxes=[], labels=[], split="train", read_by=("R11", "R7", "R10")),
    ]


def test_physionet(physionet):
    a, b, c, d = read_vindr_cxr(physionet)
    assert [image.id for image in (a, b, c, d)] == ["a", "b", "c", "d"]
    assert [image.file for image in (b, c)] == ["train/b.dicom", "test/c.dicom"]
    assert [image.split for image in (a, b, c, d)] == ["train", "train", "test", "test"]
    assert b.boxes == [[900.96, 587.85, 1205.36, 950.5], [880.5, 590.25, 1210.0, 960.0]]
    assert b.readers == b.read_by == ("R1", "R2")
    # A consensus has no readers
    assert (c.labels, c.readers, c.read_by) == (["Pneumothorax"], (), ())
    assert (d.boxes, d.readers, d.read_by) == ([], (), ())


def test_image_labels_complete_the_readers(physionet):
    (physionet / "annotations" / "image_labels_train.csv").write_text(IMAGE_LABELS)
    a, b = read_vindr_cxr(physionet, split="train")
    assert (a.read_by, a.extra) == (("R2",), {})
    assert (b.readers, b.read_by) == (("R1", "R2"), ("R1", "R2", "R3"))
    assert b.extra == {"image_labels": "Edema|Other diseases"}


def test_sizes_come_from_a_table_or_stay_unknown(kaggle):
    (kaggle / "sizes.csv").write_text("image_id,Rows,Columns\na,2000,1500\nb,2880,2304\n")
    assert [(image.id, image.width, image.height) for image in read_vindr_cxr(kaggle, sizes=kaggle / "sizes.csv")] == [
        ("b", 2304, 2880),
        ("a", 1500, 2000),
    ]
    (kaggle / "sizes.csv").write_text("image_id,Rows,Columns\na,2000,1500\n")
    with pytest.raises(ValueError, match=r"whose size is known in line 4 of .*train\.csv \(id b\)"):
        list(read_vindr_cxr(kaggle, sizes=kaggle / "sizes.csv"))


def test_copies_need_the_sizes_of_the_originals(kaggle):
    # As Kaggle's sets of shrunk images have them, with the sizes in dim0 (height) and dim1 (width)
    (kaggle / "train").mkdir()
    for name in ("a.png", "b.png"):
        (kaggle / "train" / name).touch()
    with pytest.raises(ValueError, match=r"Expected `sizes` for an image that is a copy in line 4 of .*\(id b\), got"):
        list(read_vindr_cxr(kaggle))
    (kaggle / "train_meta.csv").write_text("image_id,dim0,dim1\na,2000,1500\nb,2880,2304\n")
    b, a = read_vindr_cxr(kaggle, sizes=kaggle / "train_meta.csv")
    assert (b.file, b.width, b.height) == ("train/b.png", 2304, 2880)
    assert b.boxes[0] == [691.0, 1375.0, 1653.0, 1831.0]
    assert (a.file, a.width, a.height) == ("train/a.png", 1500, 2000)
    # The original is preferred
    (kaggle / "train" / "a.dicom").touch()
    assert [image.file for image in read_vindr_cxr(kaggle, sizes=kaggle / "train_meta.csv")] == [
        "train/b.png",
        "train/a.dicom",
    ]


def test_the_order_of_the_rows_does_not_matter(kaggle):
    header, *lines = KAGGLE.splitlines()
    expected = {
        image.id: sorted(zip(image.labels, image.boxes, image.readers, strict=True)) for image in read_vindr_cxr(kaggle)
    }
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        (kaggle / "train.csv").write_text("\n".join([header, *lines]))
        images = list(read_vindr_cxr(kaggle))
        assert {
            image.id: sorted(zip(image.labels, image.boxes, image.readers, strict=True)) for image in images
        } == expected
        assert all(len(image.read_by) == 3 for image in images)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,Cardiomegaly,3,R1,,,,", r"4 finite numbers in line 8 of .*train\.csv \(id a\)"),  # a finding, no box
        ("a,Cardiomegaly,3,R1,1,2,3,x", "4 finite numbers in line 8"),
        ("a,No finding,14,R1,0,0,1,1", "no box beside 'No finding' in line 8"),  # as submissions are written
        ("a,Cardiomegaly,3,R1,1,2,3", "8 cells, as in the header, in line 8"),
        (",Cardiomegaly,3,R1,1,2,3,4", "an id for image_id in line 8"),
    ],
)
def test_a_bad_row_is_named(kaggle, row, message):
    (kaggle / "train.csv").write_text(KAGGLE + row + "\n")
    with pytest.raises(ValueError, match=message):
        list(read_vindr_cxr(kaggle))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("val", "Expected one of train, test or None for split"),
        ("test", r"Expected annotations/annotations_test\.csv or annotations_test\.csv"),  # Kaggle has no boxes for it
    ],
)
def test_a_split_that_is_not_there(kaggle, split, message):
    # By the call, before any image is asked for
    with pytest.raises(ValueError, match=message):
        read_vindr_cxr(kaggle, split=split)


def test_another_folder(tmp_path):
    with pytest.raises(ValueError, match=r"Expected annotations/annotations_train\.csv or .* in the folder for root"):
        read_vindr_cxr(tmp_path)
    (tmp_path / "train.csv").write_text("image_id,label\n")
    with pytest.raises(ValueError, match="Expected the columns image_id, class_name, x_min"):
        read_vindr_cxr(tmp_path)
