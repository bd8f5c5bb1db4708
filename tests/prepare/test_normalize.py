"""An image's labels in the words of the shared vocabulary."""

from __future__ import annotations

import pytest

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.labels import _file
from grounding_rewards.prepare.pipeline import with_shared_labels
from grounding_rewards.sources import list_datasets


@pytest.mark.parametrize(
    ("label", "dataset", "expected"),
    [
        ("Infiltrate", "nih-chestxray14", "infiltration"),
        ("lung", "deeplesion", "lung lesion"),
        ("lung", None, "lung"),
        ("right hilar structures", "chest-imagenome", "right hilar structures"),
        ("pleural effusion|atelectasis basal", "padchest-gr", "pleural effusion|atelectasis"),
        ("Own  Label", "coco", "own label"),
    ],
)
def test_labels_are_translated_and_nothing_else(label, dataset, expected):
    image = AnnotatedImage("1", "1.png", [[0, 0, 9, 9]], [label], readers=("R1",), extra={"view": "PA"})
    assert with_shared_labels(image, dataset) == image._replace(labels=[expected])


def test_datasets_of_the_vocabulary_are_readers():
    assert set(_file()["datasets"]) <= set(list_datasets())
