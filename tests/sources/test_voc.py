"""Pascal VOC and CVAT 1.1, told apart by the root; documents that declare entities are not read."""

import pytest
from hypothesis import HealthCheck, given, settings

from grounding_rewards.sources.voc import read_voc
from tests.conftest import valid_box_lists
from tests.tables import table

SIZE = "<size><width>40</width><height>30</height><depth>1</depth></size>"


def item(box, name="mass", more=""):
    named = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    corners = "".join(f"<{key}>{value}</{key}>" for key, value in named)
    return f"<object><name>{name}</name>{more}<bndbox>{corners}</bndbox></object>"


def voc(*objects, name="a.jpg", size=SIZE):
    return f"<annotation><folder>x</folder><filename>{name}</filename>{size}{''.join(objects)}</annotation>"


def test_voc(write):
    part = "<part><name>rib</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
    easy, difficult = (f"<difficult>{n}</difficult>" for n in (0, 1))
    # a part's own box is not the object's; floats occur
    nodule = item((3.5, 4, 10, 20), "nodule", part)
    a = voc(item((1, 2, 10, 20), more=easy), nodule, item((5, 6, 9, 9), more=difficult))
    # no objects: a negative; size 0, as some tools write where they did not look
    b = voc(name="b.jpg", size=SIZE.replace("40", "0").replace("30", "0"))
    root = write({"Annotations/a.xml": a, "Annotations/b.xml": b})
    first, second = read_voc(root, one_based=False)
    assert (first.file, first.width, first.height) == ("JPEGImages/a.jpg", 40, 30)
    assert (first.boxes, first.labels) == ([[1, 2, 10, 20], [3.5, 4, 10, 20]], ["mass", "nodule"])
    assert first.ignored == ((5, 6, 9, 9),)
    assert (second.boxes, second.width, second.split) == ([], None, None)
    # the first pixel is 1 and the last one belongs to the box: its edges are xmin - 1 and xmax
    assert next(read_voc(root, one_based=True)).boxes == [[0, 1, 10, 20], [2.5, 3, 10, 20]]


def test_the_first_pixel_is_declared_and_not_guessed(write):
    root = write({"Annotations/a.xml": voc(item((0, 2, 10, 20)))})
    with pytest.raises(ValueError, match="Expected true or false for --option one_based="):
        list(read_voc(root))
    # pixel 0 does not exist where they count from 1
    with pytest.raises(ValueError, match=r"pixels from 1 on, .* in entry 1 .*Give --option one_based=false"):
        list(read_voc(root, one_based=True))


def test_image_sets_name_the_splits(write):
    files = {f"Annotations/{name}.xml": voc(name=f"{name}.jpg") for name in ("a", "b 1", "c")}
    root = write(files | {"ImageSets/Main/train.txt": "a\r\nb 1\n", "ImageSets/Main/val.txt": "c -1\n"})
    assert [image.split for image in read_voc(root, one_based=True)] == ["train", "train", "validation"]
    assert [image.file for image in read_voc(root, split="validation", one_based=True)] == ["JPEGImages/c.jpg"]
    with pytest.raises(ValueError, match="Expected one of train, validation or None for split"):
        read_voc(root, split="test", one_based=True)


CVAT = table("sources/layouts", "voc")["CVAT"]


def test_cvat(write):
    root = write({"annotations.xml": CVAT})
    first, second = read_voc(root)
    assert (first.file, first.split, first.width) == ("images/a.png", "train", 40)
    assert (first.boxes, first.labels) == ([[1.5, 2, 10, 20], [1, 2, 10, 25]], ["mass", "lung"])
    assert (second.boxes, second.split) == ([], "validation")
    assert [image.file for image in read_voc(root, split="train")] == ["images/a.png"]
    # by the root and not by the name of the file
    write({"some_voc_xml_format.xml": CVAT})
    assert len(list(read_voc(root, annotations="some_voc_xml_format.xml", images="."))) == 2


@pytest.mark.parametrize(("files", "expected"), table("sources/tables", "voc_layouts"))
def test_usual_layouts_need_no_option(write, files, expected):
    images = read_voc(write(files), one_based=False)
    assert [[image.file, image.split or "no split"] for image in images] == expected


def test_a_turned_box_is_the_box_around_it(write):
    first, _ = read_voc(write({"annotations.xml": CVAT.replace("<box ", '<box rotation="90" ')}))
    # by hand: 8.5 x 18 about (5.75, 11)
    assert first.boxes[0] == [-3.25, 6.75, 14.75, 15.25]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(boxes=valid_box_lists())
def test_round_trip_in_both_conventions(write, boxes):
    root = write({"Annotations/a.xml": voc(*map(item, boxes))})
    assert next(read_voc(root, one_based=False)).boxes == boxes
    write({"Annotations/a.xml": voc(*(item((x1 + 1, y1 + 1, x2, y2)) for x1, y1, x2, y2 in boxes))})
    assert next(read_voc(root, one_based=True)).boxes == boxes
