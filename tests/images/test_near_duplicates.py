"""Copies of images: found through re-encoding, and no real image taken for the copy of another one."""

import io

import numpy as np
import pytest

from grounding_rewards.images.near_duplicates import THRESHOLD, find_near_duplicates, image_signature

pytest.importorskip("datasets", reason="needs the train extra")

from PIL import Image

from grounding_rewards.images.decoding import open_image
from grounding_rewards.prepare.load import load_split


@pytest.fixture(scope="module")
def real_images(shared_dir):
    return [open_image(path) for path in sorted((shared_dir / "data" / "cxr_lungs" / "images").glob("*.jpg"))]


def drawn_images(name):
    images = load_split(name, "train", max_images=150)
    return [images[k]["image"] for k in range(images.num_rows)]


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return Image.open(buffer)


def copies_of(image):
    greys = np.asarray(image.convert("L"), dtype=float)
    yield encoded(image, "PNG")
    yield encoded(image, "JPEG", quality=95)
    yield encoded(image, "JPEG", quality=60)
    yield encoded(image, "WEBP", quality=80)
    yield encoded(image.resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC), "JPEG", quality=90)
    yield image.resize((512, 512), Image.Resampling.BICUBIC)
    yield Image.fromarray(np.uint8((greys - greys.min()) / np.ptp(greys) * 255))


def cosines(images):
    raw = np.stack([np.frombuffer(image_signature(image), np.int8) for image in images]).astype(float)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    return raw @ raw.T


def test_no_chest_image_is_called_a_copy_of_another_one(real_images):
    assert len(real_images) > 300
    assert list(find_near_duplicates([image_signature(image) for image in real_images])) == []
    # the two that are most alike are far from the threshold
    assert np.triu(cosines(real_images), k=1).max() < 0.85 < THRESHOLD - 0.1


@pytest.mark.parametrize("name", ["synthetic", "synthetic:pa-256"])
def test_no_drawn_image_is_called_a_copy_of_another_one(name):
    assert list(find_near_duplicates([image_signature(image) for image in drawn_images(name)])) == []


def test_copies_of_real_images_are_found_among_all_others(real_images):
    signatures = [image_signature(image) for image in real_images]
    for place in range(0, len(real_images), 20):
        copies = [image_signature(copy) for copy in copies_of(real_images[place])]
        found = [pair for pair in find_near_duplicates([*signatures, *copies]) if pair[1] >= len(signatures)]
        of_others = {pair for pair in found if pair[0] < len(signatures)}
        assert of_others == {(place, len(signatures) + k) for k in range(len(copies))}


def test_blocks_do_not_change_what_is_found(monkeypatch):
    images = drawn_images("synthetic")[:12]
    images += [images[3], Image.new("L", (9, 9)), images[7].resize((99, 99))]
    signatures = list(map(image_signature, images))
    found = sorted(find_near_duplicates(signatures))
    assert found == [(3, 12), (7, 14)]
    monkeypatch.setattr("grounding_rewards.images.near_duplicates._BLOCK", 4)
    assert sorted(find_near_duplicates(signatures)) == found
