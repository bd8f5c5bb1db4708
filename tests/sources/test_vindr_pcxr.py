"""VinDr-PCXR, written to the published schema."""

from __future__ import annotations

import pytest

from grounding_rewards.sources.vindr_pcxr import read_vindr_pcxr

# The column of the reader is rad_ID here, and labels have slips that stay as they are.
TRAIN = """\
image_id,rad_ID,class_name,x_min,y_min,x_max,y_max
a,R1,Diffuse aveolar opacity,10.5,20.5,300.5,400.5
a,R1,Diagphramatic hernia,50,60,70,80
b,R2,No finding,,,,
"""
TEST = "image_id,rad_ID,class_name,x_min,y_min,x_max,y_max\nc,R3,No finding,,,,\n"


@pytest.mark.parametrize("folder", [".", "annotations"])
def test_images(tmp_path, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "annotations_train.csv").write_text(TRAIN)
    (tmp_path / folder / "annotations_test.csv").write_text(TEST)
    a, b, c = read_vindr_pcxr(tmp_path)
    assert a.labels == ["Diffuse aveolar opacity", "Diagphramatic hernia"]
    assert a.boxes == [[10.5, 20.5, 300.5, 400.5], [50, 60, 70, 80]]
    assert (a.readers, a.read_by, a.patient_id, a.width) == (("R1", "R1"), ("R1",), None, None)
    assert (b.boxes, b.read_by, b.file, b.split) == ([], ("R2",), "train/b.dicom", "train")
    assert (c.file, c.split) == ("test/c.dicom", "test")
    assert [image.id for image in read_vindr_pcxr(tmp_path, split="test")] == ["c"]


def test_copies_need_the_sizes_of_the_originals(tmp_path):
    (tmp_path / "annotations_train.csv").write_text(TRAIN)
    (tmp_path / "png").mkdir()
    (tmp_path / "png" / "b.jpg").touch()
    with pytest.raises(ValueError, match=r"Expected `sizes` for an image that is a copy in line 4 of .*\(id b\)"):
        list(read_vindr_pcxr(tmp_path, split="train"))
    (tmp_path / "sizes.csv").write_text("image_id,width,height\na,600,800\nb,500,700\n")
    a, b = read_vindr_pcxr(tmp_path, split="train", sizes=tmp_path / "sizes.csv")
    assert (a.file, a.width) == ("train/a.dicom", 600)
    assert (b.file, b.width, b.height) == ("png/b.jpg", 500, 700)


def test_a_missing_table_is_named(tmp_path):
    (tmp_path / "annotations_train.csv").write_text(TRAIN)
    with pytest.raises(ValueError, match=r"Expected annotations_test\.csv or annotations/annotations_test\.csv"):
        read_vindr_pcxr(tmp_path)
