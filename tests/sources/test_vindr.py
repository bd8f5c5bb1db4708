"""VinDr's datasets, written to the published schemas: VinDr-CXR in both layouts, VinDr-PCXR, VinDr-SpineXR."""

import pytest

from grounding_rewards.sources import AnnotatedImage
from grounding_rewards.sources.vindr import read_vindr_cxr, read_vindr_pcxr, read_vindr_spinexr
from tests.tables import table

LAYOUT = table("sources/layouts", "vindr")


@pytest.fixture
def kaggle(write):
    return write({"train.csv": LAYOUT["KAGGLE"]})


@pytest.fixture
def physionet(write):
    tables = {"train": LAYOUT["PHYSIONET_TRAIN"], "test": LAYOUT["PHYSIONET_TEST"]}
    return write({f"annotations/annotations_{split}.csv": content for split, content in tables.items()})


def test_kaggle(kaggle):
    a, b = read_vindr_cxr(kaggle)
    # Everybody who read an image without findings is kept: three readers agree that there is none.
    assert a == AnnotatedImage("a", "train/a.dicom", [], [], split="train", read_by=("R11", "R7", "R10"))
    boxes = [[691.0, 1375.0, 1653.0, 1831.0], [1264.0, 743.0, 1611.0, 1019.0], [700.0, 1380.0, 1660.0, 1840.0]]
    labels, read = ["Cardiomegaly", "Aortic enlargement", "Cardiomegaly"], ("R10", "R8", "R9")
    assert b == AnnotatedImage("b", "train/b.dicom", boxes, labels, split="train", readers=read, read_by=read)


def test_physionet(physionet):
    b, a, c, d = read_vindr_cxr(physionet)
    assert [image.id for image in (a, b, c, d)] == ["a", "b", "c", "d"]
    assert [image.file for image in (b, c)] == ["train/b.dicom", "test/c.dicom"]
    assert [image.split for image in (a, b, c, d)] == ["train", "train", "test", "test"]
    assert b.boxes == [[900.96, 587.85, 1205.36, 950.5], [880.5, 590.25, 1210.0, 960.0]]
    assert b.readers == b.read_by == ("R1", "R2")
    # A consensus has no readers
    assert (c.labels, c.readers, c.read_by) == (["Pneumothorax"], (), ())
    assert (d.boxes, d.readers, d.read_by) == ([], (), ())


def test_image_labels_complete_the_readers(write, physionet):
    write({"annotations/image_labels_train.csv": LAYOUT["IMAGE_LABELS"]})
    b, a = read_vindr_cxr(physionet, split="train")
    assert a.read_by == ("R2",)
    assert (b.readers, b.read_by) == (("R1", "R2"), ("R1", "R2", "R3"))


def test_copies_need_the_sizes_of_the_originals(write, kaggle):
    # As Kaggle's sets of shrunk images have them, with the sizes in dim0 (height) and dim1 (width)
    write({"train/a.png": "", "train/b.png": ""})
    write({"train_meta.csv": "image_id,dim0,dim1\na,2000,1500\nb,2880,2304\n"})
    a, b = read_vindr_cxr(kaggle, sizes=kaggle / "train_meta.csv")
    assert (b.file, b.width, b.height) == ("train/b.png", 2304, 2880)
    assert b.boxes[0] == [691.0, 1375.0, 1653.0, 1831.0]
    assert (a.file, a.width, a.height) == ("train/a.png", 1500, 2000)
    # The original is preferred.
    write({"train/a.dicom": ""})
    files = [image.file for image in read_vindr_cxr(kaggle, sizes=kaggle / "train_meta.csv")]
    assert files == ["train/a.dicom", "train/b.png"]


PCXR_TEST = "image_id,rad_ID,class_name,x_min,y_min,x_max,y_max\nc,R3,No finding,,,,\n"


@pytest.mark.parametrize("folder", [".", "annotations"])
def test_pcxr(write, folder):
    root = write({f"{folder}/annotations_train.csv": LAYOUT["PCXR_TRAIN"], f"{folder}/annotations_test.csv": PCXR_TEST})
    a, b, c = read_vindr_pcxr(root)
    assert a.labels == ["Diffuse aveolar opacity", "Diagphramatic hernia"]
    assert a.boxes == [[10.5, 20.5, 300.5, 400.5], [50, 60, 70, 80]]
    assert (a.readers, a.read_by, a.patient_id, a.width) == (("R1", "R1"), ("R1",), None, None)
    assert (b.boxes, b.read_by, b.file, b.split) == ([], ("R2",), "train/b.dicom", "train")
    assert (c.file, c.split) == ("test/c.dicom", "test")
    assert [image.id for image in read_vindr_pcxr(root, split="test")] == ["c"]


SPINE_TEST = "study_id,series_id,image_id,rad_id,lesion_type,xmin,ymin,xmax,ymax\ns3,t4,d,rad1,No finding,,,,\n"


@pytest.fixture
def spine(write):
    """Write the folder, and rows of images e in its test set."""

    def write_rows(*rows):
        test = "\n".join([SPINE_TEST.rstrip(), *rows])
        return write({"annotations/train.csv": LAYOUT["SPINE_TRAIN"], "annotations/test.csv": test})

    return write_rows


def test_spine_images(spine):
    a, b, d = read_vindr_spinexr(spine())
    # The second box has no width and goes, its label and reader with it
    assert a.boxes == [[712.6, 961.3, 786.5, 1011.7], [200, 100, 260, 180]]
    assert a.labels == ["Osteophytes", "Other lesions"]
    assert a.readers == ("rad1", "rad1")
    assert (a.file, a.split) == ("train_images/a.dicom", "train")
    # Images of one study belong on one side of a split
    assert a.patient_id == b.patient_id == "s1"
    assert (b.boxes, b.read_by) == ([], ("rad1",))
    # Image c has an empty box alone: it is no negative, and it is not given as one
    assert d.file == "test_images/d.dicom"


def test_sizes_of_the_folder_and_of_the_caller(write, spine):
    root = spine()
    write({"annotations/train_meta.csv": "image_id,image_height,image_width\na,2000,1000\nb,1800,900\nc,1,1\n"})
    a, b = read_vindr_spinexr(root, split="train")
    assert (a.width, a.height, b.width, b.height) == (1000, 2000, 900, 1800)
    write({"sizes.csv": "image_id,width,height\na,10,20\nb,30,40\nc,1,1\n"})
    a, b = read_vindr_spinexr(root, split="train", sizes=root / "sizes.csv")
    assert (a.width, a.height, b.width, b.height) == (10, 20, 30, 40)


# Images with none of the seven findings are negatives.
@pytest.mark.parametrize(("rows", "boxes"), table("sources/tables", "other_findings_than_the_seven"))
def test_other_findings_than_the_seven_are_left_out(spine, rows, boxes):
    *_, e = read_vindr_spinexr(spine(*rows), split="test")
    assert (e.boxes, e.labels) == (boxes, ["Osteophytes"] * len(boxes))
    assert (e.readers, e.read_by) == (("rad1",) * len(boxes), ("rad1",))
