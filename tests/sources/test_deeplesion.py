"""DL_info.csv, to the 18 columns of the release."""

import pytest

from grounding_rewards.sources.deeplesion import read_deeplesion
from tests.tables import table

HEADER = table("sources/layouts", "deeplesion")["HEADER"]


def row(name="000089_01_01_037.png", box="132.977, 171.808, 165.939, 214.029", kind="3", split="2", patient="89"):
    return (
        f'{name},{patient},1,1,37,"1, 2, 3, 4, 5, 6, 7, 8","{box}","33.5, 20.1","0.4, 0.5, 0.6",{kind},0,'
        f'"30, 44","0.82, 0.82, 5","512, 512","-1350, 150",F,61,{split}'
    )


def table(*rows):
    return {"DL_info.csv": "\n".join([HEADER, *rows])}


def test_one_image_a_slice(write):
    other_row = row("000001_01_01_109.png", "1, 2, 30.5, 40", kind="-1", split="1", patient="1")
    # The first slice again: its second lesion
    root = write(table(row(), other_row, row(box="10, 20, 30, 40", kind="5")))
    image, other = read_deeplesion(root)
    # The folder is the name without the slice.
    assert (image.id, image.file) == ("000089_01_01_037.png", "Images_png/000089_01_01/037.png")
    assert image.boxes == [[132.977, 171.808, 165.939, 214.029], [10, 20, 30, 40]]
    assert image.labels == ["mediastinum", "lung"]
    assert (image.patient_id, image.split, image.width, image.height) == ("89", "validation", 512, 512)
    assert image.extra["DICOM_windows"] == "-1350, 150"
    # No lesion of the training set has a type.
    assert (other.labels, other.split) == (["lesion"], "train")
    assert [found.id for found in read_deeplesion(root, split="validation")] == [image.id]


# both ways round, top and bottom, left and right
@pytest.mark.parametrize("box", ["30, 40, 10, 20", "10, 40, 30, 20", "30, 20, 10, 40"])
def test_corners_in_any_order(write, box):
    (image,) = read_deeplesion(write(table(row(box=box))))
    assert image.boxes == [[10, 20, 30, 40]]
