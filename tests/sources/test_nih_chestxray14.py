"""NIH ChestX-ray14: the real list of boxes in both variants, and the tables around it."""

import shutil
from collections import Counter

import pytest

from grounding_rewards.sources.nih_chestxray14 import read_nih_chestxray14
from tests.tables import table

BOXES = """\
Image Index,Finding Label,Bbox [x,y,w,h],,,
00000181_061.png,Atelectasis,10,20,30,40,
00000181_061.png,Infiltrate,50.5,60.25,7,8
00000468_033.png,Mass,1,2,3,4
"""
ENTRIES = table("sources/layouts", "nih_chestxray14")["ENTRIES"]


@pytest.fixture
def real(shared_dir, tmp_path):
    def copy(name, entries=False):
        folder = shared_dir / "data" / "annotations" / "nih_chestxray14"
        shutil.copy(folder / name, tmp_path / "BBox_List_2017.csv")
        if entries:
            shutil.copy(folder / "Data_Entry_2017_v2020.sample.csv", tmp_path / "Data_Entry_2017_v2020.csv")
        return list(read_nih_chestxray14(tmp_path))

    return copy


def test_the_real_list(real):
    images = real("BBox_List_2017.csv")
    assert len(images) == 880
    # Counts of the file itself, by label
    assert Counter(label for image in images for label in image.labels) == {
        "Atelectasis": 180, "Effusion": 153, "Cardiomegaly": 146, "Infiltrate": 123, "Pneumonia": 120,
        "Pneumothorax": 98, "Mass": 85, "Nodule": 79,
    }  # fmt: skip
    first = images[0]
    assert (first.id, first.file, first.patient_id) == ("00013118_008.png", "images/00013118_008.png", "00013118")
    # 225.084745762712 + 86.7796610169491 and 547.019216763771 + 79.1864406779661, by hand
    assert first.boxes[0] == pytest.approx([225.084745762712, 547.019216763771, 311.864406779661, 626.205657441737])
    assert all(0 <= x1 < x2 <= 1024 and 0 <= y1 < y2 <= 1024 for image in images for x1, y1, x2, y2 in image.boxes)


def test_the_list_saved_by_excel_is_the_same(real):
    ours, theirs = real("BBox_List_2017.csv"), real("BBox_List_2017.crlf_no_trailing_commas.csv")
    assert [(image.id, image.labels) for image in ours] == [(image.id, image.labels) for image in theirs]
    for a, b in zip(ours, theirs, strict=True):
        for box_a, box_b in zip(a.boxes, b.boxes, strict=True):
            # Excel kept 10 digits
            assert box_a == pytest.approx(box_b, abs=1e-5)


def test_the_real_entries(real):
    images = real("BBox_List_2017.csv", entries=True)
    # 50 rows, one of them an image without findings
    assert len(images) == 881
    assert (images[-1].boxes, images[-1].extra["finding_labels"]) == ([], "No Finding")
    facts = {image.id: image.extra for image in images if image.extra}
    assert facts["00000181_061.png"] == {"finding_labels": "Atelectasis|Effusion|Infiltration", "view": "AP"}


def test_negatives_come_from_the_entries(write):
    root = write({"BBox_List_2017.csv": BOXES, "Data_Entry_2017.csv": ENTRIES})
    a, b, negative = read_nih_chestxray14(root)
    assert (a.boxes, a.labels) == ([[10, 20, 40, 60], [50.5, 60.25, 57.5, 68.25]], ["Atelectasis", "Infiltrate"])
    assert a.extra["finding_labels"] == "Atelectasis|Effusion|Infiltration"
    assert (b.boxes, b.width, b.height, b.extra) == ([[1, 2, 4, 6]], 1024, 1024, {})
    assert (negative.id, negative.boxes, negative.patient_id) == ("00001000_003.png", [], "00001000")
    # The image is the scaled one, whose pixels the boxes mean; the radiograph had another size
    assert negative.width == 1024
    assert len(list(read_nih_chestxray14(root, negatives=False))) == 2


def test_splits_come_from_the_lists(write):
    root = write({"BBox_List_2017.csv": BOXES})
    with pytest.raises(ValueError, match=r"Expected test_list\.txt in the folder"):
        read_nih_chestxray14(root, split="test")
    assert [image.split for image in read_nih_chestxray14(root)] == [None, None]
    write({"test_list.txt": "00000468_033.png\n", "train_val_list.txt": "00000181_061.png\r\n00009999_000.png"})
    assert [image.split for image in read_nih_chestxray14(root)] == ["train_val", "test"]
    assert [image.id for image in read_nih_chestxray14(root, split="test")] == ["00000468_033.png"]
