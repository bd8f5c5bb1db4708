"""Images that a source cannot read: an error, or left out and listed by `prepare --bad-rows drop`; its options."""

import json
from pathlib import Path

import pytest

pytest.importorskip("datasets", reason="needs the train extra")

from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.sources import get_source
from grounding_rewards.sources.base import source_options
from grounding_rewards.sources.jsonl import read_jsonl
from grounding_rewards.sources.tables import table_images
from tests.tables import table

SOUND = {"file": "a.png", "width": 40, "height": 30, "boxes": [[1, 2, 11, 22]], "labels": ["mass"], "split": "train"}
BROKEN = [b"{", b"\xff", b'{"a": "\\ud800"}', b"[" * 100_000, json.dumps({**SOUND, "boxes": [[1, 2, 3]]}).encode()]


@pytest.mark.parametrize("broken", BROKEN, ids=[str(line[:20]) for line in BROKEN])
def test_prepare_stops_at_a_line_or_leaves_it_out(write, broken):
    lines = [json.dumps({**SOUND, "id": "1"}).encode(), broken, json.dumps({**SOUND, "id": "3"}).encode()]
    root = write({"a.png": (40, 30), "annotations.jsonl": b"\n".join(lines)})
    with pytest.raises(ValueError, match="line 2"):
        prepare_images(read_jsonl(root), root, root / "out", PrepareSettings("jsonl", "qwen3-vl"))
    faults = []
    images = list(read_jsonl(root, faults=faults))
    settings = PrepareSettings("jsonl", "qwen3-vl", bad_rows="drop")
    manifest = prepare_images(images, root, root / "out", settings, unreadable=faults)
    assert manifest["splits"]["train"]["images_with_rows"] == 2
    (fault,) = manifest["unreadable"]
    assert "line 2" in fault
    card = (root / "out" / "README.md").read_text()
    assert "1 images could not be read and were left out:" in card
    assert fault in card


def coco(broken):
    """Three images, of which b has a good box and another annotation."""
    annotations = [{"id": k, "image_id": k, "category_id": 1, "bbox": [1, 2, 9, 18]} for k in range(3)]
    return {
        "images": [{"id": k, "file_name": f"{name}.jpg", "width": 40, "height": 30} for k, name in enumerate("abc")],
        "annotations": [*annotations, {**annotations[1], "id": 3, **broken}],
        "categories": [{"id": 1, "name": "mass"}],
    }


def voc(name, corner):
    box = f"<bndbox><xmin>{corner}</xmin><ymin>2</ymin><xmax>10</xmax><ymax>20</ymax></bndbox>"
    return f"<annotation><filename>{name}.jpg</filename><object><name>mass</name>{box}</object></annotation>"


def voc_files(broken):
    return {f"Annotations/{name}.xml": broken if name == "b" else voc(name, 1) for name in "abc"}


VINDR = "image_id,class_name,x_min,y_min,x_max,y_max\nb,Mass,1,2,3,4\n{}\nc,Mass,1,2,3,4\na,Mass,1,2,3,4"
YOLO = {
    **{f"images/{name}.png": (40, 30) for name in "abc"},
    **{f"labels/{name}.txt": "0 .5" if name == "b" else "0 .5 .5 .5 .5" for name in "abc"},
    "classes.txt": "mass",
}


# The row, entry or file of the second image is broken.
@pytest.mark.parametrize(
    ("name", "files", "options"),
    [
        ("vindr-cxr", {"train.csv": VINDR.format("b,Mass,1,2,3,x")}, {}),
        ("csv", {"t.csv": "file,x1,y1,x2,y2\na.jpg,1,2,3,4\nb.jpg,1,2,3,x\nc.jpg,1,2,3,4"}, {}),
        ("coco", {"train.json": coco({"bbox": [1, 2]})}, {"annotations": "train.json"}),
        ("voc", voc_files(voc("b", "one")), {"one_based": False}),
        ("voc", voc_files("<annotation>"), {"one_based": False}),
        ("yolo", YOLO, {}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_an_image_that_cannot_be_read_costs_no_other(write, name, files, options):
    root = write(files)
    with pytest.raises(ValueError, match="Expected"):
        list(get_source(name).read(root, **options))
    faults = []
    images = list(get_source(name).read(root, faults=faults, **options))
    assert sorted(Path(image.file).stem for image in images) == ["a", "c"]
    assert all(len(image.boxes) == 1 for image in images)
    assert faults


def test_a_fault_of_no_image_stays_an_error(write):
    """Passed over, it would leave some image without one of its boxes."""
    files = {"t.csv": "image_id,x\na\na,1\n", "train.json": coco({"image_id": 12})}
    root = write({**files, "Annotations/a.xml": voc("a", 1)})
    with pytest.raises(ValueError, match="as in the header, in line 2"):
        table_images(lambda name, rows: None, root / "t.csv", ("image_id", "x"))
    with pytest.raises(ValueError, match="annotation 3 has image_id 12"):
        list(get_source("coco").read(root, faults=[], annotations="train.json"))
    with pytest.raises(ValueError, match="one_based"):
        list(get_source("voc").read(root, faults=[]))


@pytest.mark.parametrize(("dataset", "given", "options"), table("sources/tables", "options"))
def test_options_are_read_or_refused(dataset, given, options):
    if isinstance(options, dict):
        # Tuples are lists in the table.
        assert json.loads(json.dumps(source_options(get_source(dataset).read, given))) == options
    else:
        with pytest.raises(ValueError, match=options):
            source_options(get_source(dataset).read, given)
