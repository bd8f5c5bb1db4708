"""RSNA Pneumonia, written to the schema of the challenge."""

from grounding_rewards.sources import AnnotatedImage
from grounding_rewards.sources.rsna_pneumonia import read_rsna_pneumonia
from tests.tables import table

LABELS = table("sources/layouts", "rsna_pneumonia")["LABELS"]
# Rows repeat as the boxes do.
CLASSES = "patientId,class\na,No Lung Opacity / Not Normal\nb,Lung Opacity\nb,Lung Opacity\n"


def test_images(write):
    root = write({"stage_2_train_labels.csv": LABELS})
    assert [image.extra for image in read_rsna_pneumonia(root)] == [{}, {}]
    a, b = read_rsna_pneumonia(write({"stage_2_detailed_class_info.csv": CLASSES}), split="train")
    boxes = [[264.0, 152.0, 477.0, 531.0], [562.0, 152.0, 818.0, 605.0]]  # by hand: x + width, y + height
    others = {"width": 1024, "height": 1024, "split": "train", "extra": {"class": "Lung Opacity"}}
    assert b == AnnotatedImage("b", "stage_2_train_images/b.dcm", boxes, ["Lung Opacity"] * 2, **others)
    assert (a.boxes, a.extra) == ([], {"class": "No Lung Opacity / Not Normal"})
