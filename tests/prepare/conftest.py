"""Made images: noise with a bright rectangle where a box is, so that a box can be checked against the pixels."""

import numpy as np
import pytest
from PIL import Image

from grounding_rewards.data.annotated_image import AnnotatedImage
from tests.conftest import write_lines

LABELS = ("mass", "effusion", "mass", "effusion")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """What `datasets` unpacks goes with the test."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def write_annotations(root, images):
    """The table of made images, as the source jsonl reads it."""
    fields = ("file", "id", "boxes", "labels", "patient_id")
    lines = [{**{name: getattr(image, name) for name in fields}, "width": 96, "height": 64} for image in images]
    return write_lines(root / "annotations.jsonl", lines)


@pytest.fixture
def make_images(tmp_path):
    """Draw images into a folder and return it with their records: none, one or two boxes, two images a patient."""

    def make(n, *, width=96, height=64, **fields):
        root = tmp_path / "images"
        root.mkdir(exist_ok=True)
        records = []
        for k in range(n):
            pixels = np.random.default_rng(k).integers(0, 100, (height, width), dtype=np.uint8)
            boxes = [[8 + 2 * k % 16, 8, 40, 30], [50, 20, 90, 60]][: k % 3]
            for x1, y1, x2, y2 in boxes:
                pixels[y1:y2, x1:x2] = 255
            Image.fromarray(pixels).save(root / f"{k}.png")
            labels = list(LABELS[k % 3 : k % 3 + len(boxes)])
            records.append(AnnotatedImage(f"image-{k}", f"{k}.png", boxes, labels, patient_id=f"p{k // 2}", **fields))
        return root, records

    return make
