"""PadChest-GR, written to the published schema with made-up sentences."""

import pytest

from grounding_rewards.sources import AnnotatedImage
from grounding_rewards.sources.padchest_gr import read_padchest_gr
from tests.tables import table

# 39 digits, which a double would round
STUDY = "216840111366964013590140476722013028132133659"[:39]
AIR = {"sentence_en": "Hyperinflation.", "sentence_es": "-", "abnormal": True, "boxes": [], "labels": ["air trapping"]}
# Two readers, of whom the second drew one box; two labels
BASAL = {"sentence_en": "Left basal opacity.", "sentence_es": "Opacidad basal izquierda.", "abnormal": True}
BASAL |= {"boxes": [[0.5, 0.5, 0.75, 1.0], [0.1, 0.2, 0.3, 0.4]], "extra_boxes": [[0.5, 0.25, 1.0, 1.0]]}
BASAL["labels"] = ["alveolar pattern", "atelectasis"]
# Normal sentences lack the other keys
HEART = {"sentence_en": "Normal heart.", "sentence_es": "-", "abnormal": False}
REPORTS = [
    # The second is not to be localised
    {"StudyID": STUDY, "ImageID": "a.png", "findings": [BASAL, AIR, HEART]},
    {"StudyID": "2", "ImageID": "b.png", "findings": [{"sentence_en": "x", "abnormal": False, "boxes": None}]},
    # Abnormal and without any box: neither positive nor negative
    {"StudyID": "3", "ImageID": "c.png", "findings": [{**AIR, "extra_boxes": []}]},
]
MASTER = table("sources/layouts", "padchest_gr")["MASTER"]
PLACE = "Padchest_GR_files/PadChest_GR/a.png"
FILES = {"grounded_reports_20240819.json": REPORTS, "master_table.csv": MASTER, PLACE: (400, 200)}


def test_images(write):
    a, b = read_padchest_gr(write(FILES))
    # Fractions of 400 x 200, by hand
    boxes = [[200, 100, 300, 200], pytest.approx([40, 40, 120, 80]), [200, 50, 400, 200]]
    read = {"readers": ("boxes", "boxes", "extra_boxes"), "read_by": ("boxes", "extra_boxes")}
    said = {"phrases": ("Left basal opacity.",) * 3, "extra": {"study_id": STUDY}}
    labels = ["alveolar pattern|atelectasis"] * 3
    assert a == AnnotatedImage("a.png", PLACE, boxes, labels, 400, 200, "00017", "train", **read, **said)
    assert (b.id, b.boxes, b.read_by, b.patient_id, b.split) == ("b.png", [], ("boxes",), None, None)


def test_language_and_split(write):
    root = write(FILES)
    a, *_ = read_padchest_gr(root, language="es")
    assert set(a.phrases) == {"Opacidad basal izquierda."}
    assert [image.id for image in read_padchest_gr(root, split="train")] == ["a.png"]
    assert list(read_padchest_gr(root, split="test")) == []
