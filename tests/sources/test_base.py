"""Images that a reader cannot read: an error, or left out and listed by `prepare --bad-rows drop`."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

pytest.importorskip("datasets", reason="needs the train extra")

from PIL import Image

from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.sources import get_source
from grounding_rewards.sources.base import source_options
from grounding_rewards.sources.jsonl import read_jsonl
from grounding_rewards.sources.tables import table_images

SOUND = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 11, 22]], "labels": ["mass"], "split": "train"}
BROKEN = [
    b"{",
    b"\xff",
    b'{"a": "\\ud800"}',
    b"[" * 100_000,
    json.dumps({**SOUND, "boxes": [[1, 2, 3]]}).encode(),
    json.dumps({**SOUND, "labels": []}).encode(),
]


def write(root, lines):
    Image.linear_gradient("L").resize((40, 30)).save(root / "a.png")
    (root / "annotations.jsonl").write_bytes(b"\n".join(lines))


@pytest.mark.parametrize("broken", BROKEN, ids=[str(line[:20]) for line in BROKEN])
def test_prepare_stops_at_a_line_or_leaves_it_out(tmp_path, broken):
    write(tmp_path, [json.dumps({**SOUND, "id": "1"}).encode(), broken, json.dumps({**SOUND, "id": "3"}).encode()])
    with pytest.raises(ValueError, match="line 2"):
        prepare_images(read_jsonl(tmp_path), tmp_path, tmp_path / "out", PrepareSettings("jsonl", "qwen3-vl"))
    faults = []
    images = list(read_jsonl(tmp_path, faults=faults))
    settings = PrepareSettings("jsonl", "qwen3-vl", bad_rows="drop")
    manifest = prepare_images(images, tmp_path, tmp_path / "out", settings, unreadable=faults)
    assert manifest["splits"]["train"]["images_with_rows"] == 2
    (fault,) = manifest["unreadable"]
    assert "line 2" in fault
    card = (tmp_path / "out" / "README.md").read_text()
    assert "1 images could not be read and were left out:" in card
    assert fault in card


BOX = [1, 2, 10, 20]
NAMES = ("a", "b", "c")


def as_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def coco(root, annotations="train.json", broken=None):
    """The second image has a good box and a broken one."""
    images = [{"id": k, "file_name": f"{name}.jpg", "width": 40, "height": 30} for k, name in enumerate(NAMES)]
    boxes = [{"id": k, "image_id": k, "category_id": 1, "bbox": BOX} for k in range(3)]
    boxes.append(
        {"id": 3, "image_id": 1, "category_id": 1, "bbox": BOX, **({"bbox": [1, 2]} if broken is None else broken)}
    )
    categories = [{"id": 1, "name": "mass"}]
    as_json(root / annotations, {"images": images, "annotations": boxes, "categories": categories})
    return {"annotations": annotations, "images": "."}


def voc_text(name, corner):
    box = f"<bndbox><xmin>{corner}</xmin><ymin>2</ymin><xmax>10</xmax><ymax>20</ymax></bndbox>"
    return f"<annotation><filename>{name}.jpg</filename><object><name>mass</name>{box}</object></annotation>"


def voc(root, broken=None):
    (root / "Annotations").mkdir()
    for name in NAMES:
        (root / "Annotations" / f"{name}.xml").write_text(
            broken or voc_text("b", "one") if name == "b" else voc_text(name, 1)
        )
    return {"one_based": False}


def voc_cut_off(root):
    return voc(root, voc_text("b", 1)[:50])


def fracatlas(root):
    for name in NAMES:
        (root / "images" / "Fractured").mkdir(parents=True, exist_ok=True)
        Image.new("L", (40, 30)).save(root / "images" / "Fractured" / f"{name}.jpg")
    coco(root, "Annotations/COCO JSON/COCO_fracture_masks.json")
    return {}


def yolo(root):
    for folder in ("images", "labels"):
        (root / folder).mkdir()
    (root / "classes.txt").write_text("mass\n")
    for name in NAMES:
        Image.new("L", (40, 30)).save(root / "images" / f"{name}.png")
        (root / "labels" / f"{name}.txt").write_text("0 0.5 0.5 0.5 0.5" if name != "b" else "0 0.5")
    return {}


def table(name, header, *rows):
    """The row of the second image is broken."""

    def write_table(root):
        (root / name).write_text("\n".join([header, *rows]))
        return {}

    write_table.__name__ = f"{rows[1].count(',')} commas"
    return write_table


def nih(*broken):
    return table(
        "BBox_List_2017.csv",
        "Image Index,Finding Label,Bbox [x,y,w,h],,,",
        "a.jpg,Mass,1,2,3,4,,,",
        ",".join(["b.jpg", "Mass", *broken]),
        "c.jpg,Mass,1,2,3,4,,,",
        "b.jpg,Mass,1,2,3,4,,,",
    )


def vindr(*broken):
    rows = ["b,R1,Mass,1,2,3,4", ",".join(["b", *broken]), "c,R1,Mass,1,2,3,4", "a,R1,Mass,1,2,3,4"]
    return table("train.csv", "image_id,rad_id,class_name,x_min,y_min,x_max,y_max", *rows)


@pytest.mark.parametrize(
    ("name", "write_folder"),
    [
        ("nih-chestxray14", nih("1", "2", "3")),
        ("nih-chestxray14", nih("1", "2", "3", "x", "", "", "")),
        ("vindr-cxr", vindr("R1", "Mass", "1", "2", "3")),
        ("vindr-cxr", vindr("R1", "Mass", "1", "2", "3", "x")),
        ("yolo", yolo),
        ("coco", coco),
        ("voc", voc),
        ("voc", voc_cut_off),
        ("fracatlas", fracatlas),
        ("csv", table("boxes.csv", "file,x1,y1,x2,y2", "a.jpg,1,2,3,4", "b.jpg,1,2,3", "c.jpg,1,2,3,4")),
    ],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
def test_an_image_that_cannot_be_read_costs_no_other(tmp_path, name, write_folder):
    options = write_folder(tmp_path)
    read = functools.partial(get_source(name).read, str(tmp_path), **options)
    with pytest.raises(ValueError, match="Expected"):
        list(read())
    faults = []
    images = list(read(faults=faults))
    assert sorted(Path(image.file).stem for image in images) == ["a", "c"]
    assert all(len(image.boxes) == 1 for image in images)
    assert faults
    with pytest.raises(ValueError, match="Expected"):
        list(read())


def test_a_fault_of_no_image_stays_an_error(tmp_path):
    """Passed over, it would leave some image without one of its boxes."""
    options = coco(tmp_path, broken={"image_id": 12})
    # The image of a row with too few cells is not sure where it is named behind others.
    (tmp_path / "t.csv").write_text("x,image_id\n1\n1,a\n")
    with pytest.raises(ValueError, match="as in the header, in line 2"):
        list(table_images(lambda name, rows: None, tmp_path / "t.csv", ("image_id", "x")))
    with pytest.raises(ValueError, match="annotation 3 has image_id 12"):
        list(get_source("coco").read(str(tmp_path), faults=[], **options))


def test_an_option_that_is_missing_is_no_fault_of_images(tmp_path):
    voc(tmp_path)
    with pytest.raises(ValueError, match="one_based"):
        list(get_source("voc").read(str(tmp_path), faults=[]))


@pytest.mark.parametrize(
    ("dataset", "given", "options"),
    [
        ("vindr-cxr", [], {}),
        ("vindr-cxr", ["sizes=a=b.csv"], {"sizes": "a=b.csv"}),  # the first sign separates
        ("nih-chestxray14", ["negatives=False"], {"negatives": False}),
        ("grazpedwri-dx", ["classes=fracture,metal"], {"classes": ("fracture", "metal")}),
        ("vlm-r1", ['box_format={"syntax": "vlm-r1"}'], {"box_format": {"syntax": "vlm-r1"}}),
        ("vlm-r1", ["annotations={split}.json"], {"annotations": "{split}.json"}),
    ],
)
def test_options(dataset, given, options):
    assert source_options(get_source(dataset).read, given) == options


@pytest.mark.parametrize(
    ("dataset", "given", "message"),
    [
        ("vindr-cxr", ["sizes"], "Expected NAME=VALUE for --option, got 'sizes'"),
        ("vindr-cxr", ["size=a.csv"], "got 'size'. It has: sizes"),
        ("siim-acr", ["sizes=a.csv"], "It has: none"),
        ("vlm-r1", ['box_format={"syntax"'], "Expected JSON for --option"),
    ],
)
def test_mistakes_are_named(dataset, given, message):
    with pytest.raises(ValueError, match=message):
        source_options(get_source(dataset).read, given)
