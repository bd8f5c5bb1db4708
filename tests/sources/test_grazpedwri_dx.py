"""GRAZPEDWRI-DX: dataset.csv, YOLO labels, images whose headers say the size."""

import pytest

from grounding_rewards.sources.grazpedwri_dx import read_grazpedwri_dx

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
STEMS = [row.split(",")[0] for row in ROWS]
FILES = {
    # The file begins with a byte order mark.
    "dataset.csv": "\ufeff" + "\n".join([HEADER, *ROWS]),
    **{f"images_part{part}/{stem}.png": (400, 800) for part, stem in zip((1, 1, 2), STEMS, strict=True)},
    f"yolov5/labels/{STEMS[0]}.txt": "3 0.5 0.5 0.5 0.25\n8 0.9 0.1 0.1 0.1\n5 0.25 0.5 0.1 0.1\n",
    f"yolov5/labels/{STEMS[1]}.txt": "8 0.9 0.1 0.1 0.1\n",
}


def test_images(write):
    first, second, third = read_grazpedwri_dx(write(FILES))
    assert (first.file, first.width, first.height) == (f"images_part1/{STEMS[0]}.png", 400, 800)
    assert first.labels == ["fracture", "periostealreaction"]
    assert first.boxes[0] == [100, 300, 300, 500]
    # The id of the patient keeps its zeros.
    assert [image.patient_id for image in (first, second, third)] == ["0001", "0001", "0002"]
    shown = {"laterality": "L", "projection": "1", "fracture_visible": "1", "pixel_spacing": "0.144"}
    assert first.extra == {"gender": "M", "age": "14", **shown}
    # The marker of the side is no finding, and a missing text file is a negative.
    assert second.boxes == third.boxes == []
    assert third.file == f"images_part2/{STEMS[2]}.png"


@pytest.mark.parametrize("cell", ["", "NaN", "None", "NA"])
def test_an_empty_cell_is_no_patient(write, cell):
    """pandas writes the nothing of a column as these, which would be one patient for all such images."""
    root = write({**FILES, "dataset.csv": FILES["dataset.csv"].replace("F012,0002,", f"F012,{cell},")})
    assert [image.patient_id for image in read_grazpedwri_dx(root)] == ["0001", "0001", None]


def test_a_second_row_of_an_image_is_not_dropped(write):
    root = write({**FILES, "dataset.csv": "\n".join([HEADER, *ROWS, ROWS[0].replace(",0001,", ",0009,")])})
    images = [image for image in read_grazpedwri_dx(root) if image.id == STEMS[0]]
    assert [image.patient_id for image in images] == ["0001", "0009"]


def test_what_is_missing_is_named(write):
    root = write(FILES)
    (root / "images_part2" / f"{STEMS[2]}.png").unlink()
    with pytest.raises(ValueError, match=r"an image for every image in line 4 .*\(id 0002_0354485735"):
        list(read_grazpedwri_dx(root))
    (root / "yolov5" / "labels").rename(root / "yolov5" / "elsewhere")
    with pytest.raises(ValueError, match="Unpack the labels: an image without a text file would count as a negative"):
        read_grazpedwri_dx(root)
