"""ChestX-Det and ChestX-Det10: the real sample, and the smaller file written to its schema."""

import json
import shutil

from grounding_rewards.sources.chestx_det import read_chestx_det, read_chestx_det10

# Two parallel lists; a negative has empty ones.
ENTRIES = [
    {"file_name": "36199.png", "syms": [], "boxes": []},
    {"file_name": "36302.png", "syms": ["Effusion", "Nodule"], "boxes": [[799, 666, 937, 761], [1, 2, 3, 4]]},
]


def test_the_real_sample(shared_dir, tmp_path):
    source = shared_dir / "data" / "annotations" / "chestx_det" / "ChestX_Det_test.sample.json"
    shutil.copy(source, tmp_path / "ChestX_Det_test.json")
    images = list(read_chestx_det(tmp_path, split="test"))
    entries = json.loads(source.read_text())
    assert [image.id for image in images] == [entry["file_name"] for entry in entries]
    assert [image.boxes for image in images] == [entry["boxes"] for entry in entries]
    assert [image.labels for image in images] == [entry["syms"] for entry in entries]
    # 60 images; the first is a negative, the second has the box of the file's second entry
    assert len(images) == 60
    assert (images[0].id, images[0].boxes) == ("36199.png", [])
    assert (images[1].boxes, images[1].labels) == ([[799, 666, 937, 761]], ["Effusion"])
    assert all(0 <= x1 < x2 <= 1024 and 0 <= y1 < y2 <= 1024 for image in images for x1, y1, x2, y2 in image.boxes)


def test_det10(write):
    images = list(read_chestx_det10(write({"train.json": ENTRIES, "test.json": ENTRIES})))
    files = [f"{split}_data/{name}.png" for split in ("train", "test") for name in ("36199", "36302")]
    assert [(image.split, image.file) for image in images] == [(file.partition("_")[0], file) for file in files]
    assert images[1].boxes == [[799.0, 666.0, 937.0, 761.0], [1.0, 2.0, 3.0, 4.0]]
    assert images[1].labels == ["Effusion", "Nodule"]
    assert (images[1].width, images[1].height, images[1].patient_id) == (1024, 1024, None)
