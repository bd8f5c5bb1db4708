"""Drawn images: the same for everyone, no image in two splits, findings where the boxes say."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from grounding_rewards.synthetic import LABELS, SPLITS, draw_image, image_seeds, synthetic_dataset


def test_same_seed_same_pixels_in_a_fresh_process():
    code = "import hashlib; from grounding_rewards.synthetic import draw_image; " + (
        "print(hashlib.sha256(draw_image(7).image.tobytes()).hexdigest(), draw_image(7).boxes)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_same_seed_same_image_after_others_were_drawn():
    first = draw_image(11)
    draw_image(12)
    again = draw_image(11)
    assert first.image.tobytes() == again.image.tobytes()
    assert (first.boxes, first.labels) == (again.boxes, again.labels)


def test_boxes_of_a_seed_stay_what_they_are():
    # Written down from this program: a change means that published numbers no longer hold.
    assert [(image.labels, image.boxes) for image in map(draw_image, (0, 4, 20_000_000))] == [
        (("pacemaker",), ((6, 17, 26, 32),)),
        (("cardiomegaly", "mass", "pacemaker"), ((34, 48, 85, 88), (65, 49, 90, 77), (79, 23, 99, 38))),
        (("pacemaker",), ((80, 23, 97, 39),)),
    ]


@pytest.mark.parametrize(
    ("seed", "size", "checksum"),
    [
        (0, 112, "6923856fa847afc8"),
        (4, 112, "1fb32f535313eaea"),
        (20_000_000, 112, "ed40367cb95d5981"),
        (7, 224, "f939d598e3cff149"),
    ],
)
def test_pixels_of_a_seed_stay_what_they_are(seed, size, checksum):
    # Written down from this program: the demo's model was trained on these images, to the bit.
    pixels = draw_image(seed, size).image.tobytes()
    assert hashlib.sha256(pixels).hexdigest()[:16] == checksum


def test_splits_never_share_a_seed():
    # The largest sizes that can be asked for.
    ranges = [image_seeds(split, 10_000_000) for split in SPLITS]
    for one, other in itertools.pairwise(ranges):
        assert one.stop <= other.start
    assert len({row_id for split in SPLITS for row_id in synthetic_dataset(split, 5)["id"]}) == 15


@pytest.mark.parametrize(
    ("split", "n", "message"),
    [
        ("dev", 3, "Expected a known word for `split`, got 'dev'. Use one of: train, validation, test"),
        ("train", 0, "Expected 1 to 10000000 for n, got 0"),
        ("train", 10_000_001, "Expected 1 to 10000000 for n, got 10000001"),  # would run into the next split
    ],
)
def test_wrong_request_is_refused(split, n, message):
    with pytest.raises(ValueError, match=message):
        image_seeds(split, n)


def test_a_quarter_is_normal_and_every_finding_is_common():
    images = [draw_image(seed) for seed in range(600)]
    counts = Counter(len(image.boxes) for image in images)
    assert set(counts) == {0, 1, 2, 3}
    assert 0.20 < counts[0] / 600 < 0.30
    kinds = Counter(label for image in images for label in image.labels)
    assert set(kinds) == set(LABELS)
    assert min(kinds.values()) > 100


def test_boxes_lie_inside_the_image_and_are_large_enough_to_learn():
    for seed in range(300):
        image = draw_image(seed)
        assert len(image.boxes) == len(image.labels) == len(set(image.labels))
        for x1, y1, x2, y2 in image.boxes:
            assert 0 <= x1 < x2 <= 112
            assert 0 <= y1 < y2 <= 112
            assert min(x2 - x1, y2 - y1) >= 10


def test_findings_are_brighter_than_the_lung_beside_them():
    for seed in range(40):
        image = draw_image(seed)
        pixels = np.asarray(image.image, dtype=float)
        for (x1, y1, x2, y2), label in zip(image.boxes, image.labels, strict=True):
            if label in ("mass", "pacemaker"):
                centre = pixels[(y1 + y2) // 2 - 2 : (y1 + y2) // 2 + 2, (x1 + x2) // 2 - 2 : (x1 + x2) // 2 + 2]
                assert centre.mean() > np.median(pixels) + 20


def test_image_scales_with_its_size():
    small, large = draw_image(8, 112), draw_image(8, 224)
    assert large.image.size == (224, 224)
    assert small.labels == large.labels
    np.testing.assert_allclose(np.array(large.boxes), 2 * np.array(small.boxes), atol=1)


def test_dataset_has_the_packages_columns():
    dataset = synthetic_dataset("train", 3)
    assert dataset.column_names == ["prompt", "image", "boxes", "labels", "width", "height", "id"]
    row = dataset[0]
    assert row["image"].size == (row["width"], row["height"]) == (112, 112)
    assert row["prompt"][0]["content"][0]["type"] == "image"
    assert all(label in row["prompt"][0]["content"][1]["text"] for label in LABELS)
