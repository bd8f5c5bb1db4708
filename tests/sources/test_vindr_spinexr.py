"""VinDr-SpineXR, written to the published schema, with its empty boxes."""

from __future__ import annotations

import pytest

from grounding_rewards.sources.vindr_spinexr import read_vindr_spinexr

TRAIN = """\
study_id,series_id,image_id,rad_id,lesion_type,xmin,ymin,xmax,ymax
s1,t1,a,rad1,Osteophytes,712.6,961.3,786.5,1011.7
s1,t1,a,rad1,Spondylolysthesis,100,100,100,180
s1,t1,a,rad1,Other lesions,200,100,260,180
s1,t2,b,rad1,No finding,,,,
s2,t3,c,rad2,Disc space narrowing,50,60,90,60.0005
"""
TEST = "study_id,series_id,image_id,rad_id,lesion_type,xmin,ymin,xmax,ymax\ns3,t4,d,rad1,No finding,,,,\n"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "train.csv").write_text(TRAIN)
    (tmp_path / "annotations" / "test.csv").write_text(TEST)
    return tmp_path


def test_images(root, caplog):
    a, b, d = read_vindr_spinexr(root)
    # The second box has no width and goes, its label and reader with it
    assert a.boxes == [[712.6, 961.3, 786.5, 1011.7], [200, 100, 260, 180]]
    assert a.labels == ["Osteophytes", "Other lesions"]
    assert (a.readers, a.extra) == (("rad1", "rad1"), {"empty_boxes": "1"})
    assert (a.file, a.split) == ("train_images/a.dicom", "train")
    # Images of one study belong on one side of a split
    assert a.patient_id == b.patient_id == "s1"
    assert (b.boxes, b.extra, b.read_by) == ([], {}, ("rad1",))
    # Image c has an empty box alone: it is no negative, and it is not given as one
    assert d.file == "test_images/d.dicom"
    assert "dropped 2 boxes without width or height; 1 images keep others, 1 images have none" in caplog.text


def test_swapped_corners_are_left_to_the_check(root):
    (root / "annotations" / "test.csv").write_text(TEST + "s3,t4,e,rad1,Osteophytes,90,10,50,60\n")
    *_, e = read_vindr_spinexr(root, split="test")
    assert e.boxes == [[90, 10, 50, 60]]


def test_sizes_of_the_folder_and_of_the_caller(root):
    (root / "annotations" / "train_meta.csv").write_text(
        "image_id,image_height,image_width\na,2000,1000\nb,1800,900\nc,1,1\n"
    )
    a, b = read_vindr_spinexr(root, split="train")
    assert (a.width, a.height, b.width, b.height) == (1000, 2000, 900, 1800)
    (root / "sizes.csv").write_text("image_id,width,height\na,10,20\nb,30,40\nc,1,1\n")
    a, b = read_vindr_spinexr(root, split="train", sizes=root / "sizes.csv")
    assert (a.width, a.height, b.width, b.height) == (10, 20, 30, 40)


@pytest.mark.parametrize(
    ("rows", "others"),
    [
        ("s3,t4,e,rad1,No finding,,,,", None),
        ("s3,t4,e,rad1,No finding,0,0,1,1", None),
        ("s3,t4,e,rad1,Scoliosis,,,,", "Scoliosis"),
        ("s3,t4,e,rad1,Scoliosis,1,2,3,4\ns3,t4,e,rad1,Enthesophytes,1,2,3,4", "Scoliosis|Enthesophytes"),
        ("s3,t4,e,rad1,,,,,", None),
    ],
)
def test_images_with_none_of_the_seven_findings_are_negatives(root, rows, others):
    (root / "annotations" / "test.csv").write_text(f"{TEST}{rows}\n")
    *_, e = read_vindr_spinexr(root, split="test")
    assert (e.boxes, e.labels, e.readers, e.read_by) == ([], [], (), ("rad1",))
    assert e.extra.get("other_labels") == others


def test_other_lesions_beside_the_seven(root):
    (root / "annotations" / "test.csv").write_text(
        TEST + "s3,t4,e,rad1,Scoliosis,,,,\ns3,t4,e,rad1,Osteophytes,10,20,30,40\n"
    )
    *_, e = read_vindr_spinexr(root, split="test")
    assert (e.boxes, e.labels, e.extra) == ([[10, 20, 30, 40]], ["Osteophytes"], {"other_labels": "Scoliosis"})


def test_a_finding_without_a_box_is_named(root):
    (root / "annotations" / "test.csv").write_text(TEST + "s3,t4,e,rad1,Osteophytes,,,,\n")
    with pytest.raises(ValueError, match=r"4 finite numbers in line 3 of .*test\.csv \(id e\)"):
        list(read_vindr_spinexr(root, split="test"))


def test_copies_take_their_sizes_from_the_folder(root):
    (root / "test_images").mkdir()
    (root / "test_images" / "d.png").touch()
    with pytest.raises(ValueError, match="Expected `sizes` for an image that is a copy in line 2"):
        list(read_vindr_spinexr(root, split="test"))
    (root / "annotations" / "test_meta.csv").write_text("image_id,image_height,image_width\nd,2000,1000\n")
    (d,) = read_vindr_spinexr(root, split="test")
    assert (d.file, d.width, d.height) == ("test_images/d.png", 1000, 2000)
