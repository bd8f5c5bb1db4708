"""PadChest-GR, written to the published schema with made-up sentences."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from grounding_rewards.sources import AnnotatedImage
from grounding_rewards.sources.padchest_gr import read_padchest_gr

# 39 digits, which a double would round
STUDY = "216840111366964013590140476722013028132133659"[:39]
REPORTS = [
    {
        "StudyID": STUDY,
        "ImageID": "a.png",
        "PreviousStudyID": None,
        "findings": [
            # Two readers, of whom the second drew one box; two labels
            {
                "sentence_en": "Left basal opacity.",
                "sentence_es": "Opacidad basal izquierda.",
                "abnormal": True,
                "boxes": [[0.5, 0.5, 0.75, 1.0], [0.1, 0.2, 0.3, 0.4]],
                "extra_boxes": [[0.5, 0.25, 1.0, 1.0]],
                "labels": ["alveolar pattern", "atelectasis"],
            },
            # Not to be localised
            {
                "sentence_en": "Hyperinflation.",
                "sentence_es": "-",
                "abnormal": True,
                "boxes": [],
                "labels": ["air trapping"],
            },
            # Normal sentences lack the other keys
            {"sentence_en": "Normal heart.", "sentence_es": "-", "abnormal": False},
        ],
    },
    {
        "StudyID": "2",
        "ImageID": "b.png",
        "findings": [{"sentence_en": "No change.", "sentence_es": "-", "abnormal": False, "boxes": None}],
    },
    # Abnormal and without any box: neither positive nor negative
    {
        "StudyID": "3",
        "ImageID": "c.png",
        "findings": [{"sentence_en": "Hyperinflation.", "sentence_es": "-", "abnormal": True, "extra_boxes": []}],
    },
]
# A row per study and label; image b has none.
MASTER = """\
StudyID,ImageID,label,boxes_count,split,PatientID
1,a.png,alveolar pattern,2,train,00017
1,a.png,atelectasis,2,train,00017
3,c.png,air trapping,0,test,00018
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "grounded_reports_20240819.json").write_text(json.dumps(REPORTS))
    (tmp_path / "master_table.csv").write_text(MASTER)
    (tmp_path / "Padchest_GR_files" / "PadChest_GR").mkdir(parents=True)
    Image.new("I;16", (400, 200)).save(tmp_path / "Padchest_GR_files" / "PadChest_GR" / "a.png")
    return tmp_path


def test_images(root):
    a, b = read_padchest_gr(root)
    assert a == AnnotatedImage(
        id="a.png",
        file="Padchest_GR_files/PadChest_GR/a.png",
        # Fractions of 400 x 200, by hand
        boxes=[[200, 100, 300, 200], pytest.approx([40, 40, 120, 80]), [200, 50, 400, 200]],
        labels=["alveolar pattern|atelectasis"] * 3,
        width=400,
        height=200,
        patient_id="00017",
        split="train",
        readers=("boxes", "boxes", "extra_boxes"),
        read_by=("boxes", "extra_boxes"),
        phrases=("Left basal opacity.",) * 3,
        extra={"study_id": STUDY, "findings_without_box": "1"},
    )
    assert (b.id, b.boxes, b.read_by, b.patient_id, b.split) == ("b.png", [], ("boxes",), None, None)


def test_spanish(root):
    a, *_ = read_padchest_gr(root, language="es")
    assert set(a.phrases) == {"Opacidad basal izquierda."}
    with pytest.raises(ValueError, match="Expected a known word for `language`, got 'de'"):
        read_padchest_gr(root, language="de")


def test_split(root):
    assert [image.id for image in read_padchest_gr(root, split="train")] == ["a.png"]
    assert list(read_padchest_gr(root, split="test")) == []


def test_the_size_is_read_or_told_and_never_guessed(root):
    image = root / "Padchest_GR_files" / "PadChest_GR" / "a.png"
    image.unlink()
    with pytest.raises(ValueError, match="Expected an image in "):
        list(read_padchest_gr(root))
    (root / "sizes.csv").write_text("ImageID,width,height\na.png,800,100\nb.png,30,40\n")
    a, b = read_padchest_gr(root, sizes=root / "sizes.csv")
    assert a.boxes[0] == [400, 50, 600, 100]
    assert (b.width, b.height) == (30, 40)
    (root / "sizes.csv").write_text("ImageID,width,height\nb.png,30,40\n")
    with pytest.raises(ValueError, match=r"whose size is known in entry 1 of .* \(id a\.png\)"):
        list(read_padchest_gr(root, sizes=root / "sizes.csv"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"findings": None}, r"findings with a sentence and boxes in entry 4 of .* \(id d\.png\), got 'no list"),
        ({"findings": [{"sentence_en": "x", "boxes": [[1, 2, 30, 40]]}]}, "which is not four fractions"),  # pixels
        ({"findings": [{"sentence_en": "x", "extra_boxes": [[0.1, 0.2, 0.3]]}]}, "which is not four fractions"),
        ({"findings": [{"boxes": [[0.1, 0.2, 0.3, 0.4]]}]}, "boxes and no sentence_en"),
    ],
)
def test_a_bad_report_is_named(root, change, message):
    reports = [*REPORTS, {"StudyID": "4", "ImageID": "d.png", **change}]
    (root / "grounded_reports_20240819.json").write_text(json.dumps(reports))
    with pytest.raises(ValueError, match=message):
        list(read_padchest_gr(root))
