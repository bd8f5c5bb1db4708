"""GRAZPEDWRI-DX: dataset.csv, YOLO labels, images whose headers say the size."""

from __future__ import annotations

import pytest

from grounding_rewards.sources.grazpedwri_dx import read_grazpedwri_dx

Image = pytest.importorskip("PIL.Image", reason="needs the train extra")

HEADER = (
    "filestem,patient_id,study_number,timehash,gender,age,laterality,projection,initial_exam,ao_classification,cast,"
    "diagnosis_uncertain,osteopenia,fracture_visible,metal,pixel_spacing,device_manufacturer"
)
ROWS = (
    # a fracture; booleans are 1 or empty
    "0001_1297860395_01_WRI-L1_M014,0001,1,1297860395,M,14,L,1,1,23-M/3.1,,,,1,,0.144,Siemens",
    # the same patient; only the marker of the side is boxed
    "0001_1297860395_01_WRI-L2_M014,0001,1,1297860395,M,14,L,2,1,,,,,,,0.144,Siemens",
    # no text file
    "0002_0354485735_01_WRI-R1_F012,0002,1,354485735,F,12,R,1,1,,,,,,,0.144,Siemens",
)


@pytest.fixture
def root(tmp_path):
    # the file begins with a byte order mark
    (tmp_path / "dataset.csv").write_text("\n".join([HEADER, *ROWS]) + "\n", encoding="utf-8-sig")
    stems = [row.split(",")[0] for row in ROWS]
    for folder, stem in zip(("images_part1", "images_part1", "images_part2"), stems, strict=True):
        (tmp_path / folder).mkdir(exist_ok=True)
        Image.new("I;16", (400, 800)).save(tmp_path / folder / f"{stem}.png")
    labels = tmp_path / "yolov5" / "labels"
    labels.mkdir(parents=True)
    (labels / f"{stems[0]}.txt").write_text("3 0.5 0.5 0.5 0.25\n8 0.9 0.1 0.1 0.1\n5 0.25 0.5 0.1 0.1\n")
    (labels / f"{stems[1]}.txt").write_text("8 0.9 0.1 0.1 0.1\n")
    return tmp_path


def test_images(root):
    first, second, third = read_grazpedwri_dx(root)
    assert (first.file, first.width, first.height) == ("images_part1/0001_1297860395_01_WRI-L1_M014.png", 400, 800)
    assert first.labels == ["fracture", "periostealreaction"]
    assert first.boxes[0] == [100, 300, 300, 500]
    # the id of the patient keeps its zeros
    assert [image.patient_id for image in (first, second, third)] == ["0001", "0001", "0002"]
    assert first.extra == {
        "gender": "M", "age": "14", "laterality": "L", "projection": "1", "fracture_visible": "1",
        "pixel_spacing": "0.144",
    }  # fmt: skip
    # the marker of the side is no finding, and a missing text file is a negative
    assert second.boxes == third.boxes == []
    assert third.file == "images_part2/0002_0354485735_01_WRI-R1_F012.png"


@pytest.mark.parametrize("cell", ["", "nan", "NaN", "None", "NULL", "NA"])
def test_an_empty_cell_is_no_patient(root, cell):
    """pandas writes the nothing of a column as these; today they are one patient for all such images."""
    table = root / "dataset.csv"
    table.write_text(table.read_text(encoding="utf-8-sig").replace("F012,0002,", f"F012,{cell},"), encoding="utf-8")
    assert [image.patient_id for image in read_grazpedwri_dx(root)] == ["0001", "0001", None]


def test_classes(root):
    assert [image.labels for image in read_grazpedwri_dx(root, classes=["fracture"])] == [["fracture"], [], []]
    assert [image.labels for image in read_grazpedwri_dx(root, classes={"text"})] == [["text"], ["text"], []]
    with pytest.raises(ValueError, match=r"Expected some of boneanomaly, .* for classes, got 'fracture'"):
        read_grazpedwri_dx(root, classes="fracture")


def test_what_is_missing_is_named(root):
    image = root / "images_part2" / "0002_0354485735_01_WRI-R1_F012.png"
    image.unlink()
    with pytest.raises(ValueError, match=r"an image for every image in line 4 .*\(id 0002_0354485735"):
        list(read_grazpedwri_dx(root))
    (root / "yolov5" / "labels").rename(root / "yolov5" / "elsewhere")
    with pytest.raises(ValueError, match="Unpack the labels: an image without a text file would count as a negative"):
        read_grazpedwri_dx(root)
