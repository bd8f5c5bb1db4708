"""Images that were mirrored while their boxes were not."""

import numpy as np
import pytest

from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.mirrored_images import find_mirrored
from grounding_rewards.doctor.raw_rows import ImageFacts, ImageRow, RowSource

Image = pytest.importorskip("PIL.Image", reason="needs the images extra")
COUNT = 120


def scenes(seed, height=120, width=100):
    """Uneven images with a bright place at the left, each a little elsewhere."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / [[[height]], [[width]]]
    for _ in range(COUNT):
        middles = np.array([[0.3, 0.6, 0.16], [0.7, 0.3, 0.08], [0.75, 0.75, 0.1]]) + rng.normal(0, 0.02, (3, 3))
        light = sum(np.exp(-((x - a) ** 2 + (y - b) ** 2) / c**2) for a, b, c in middles)
        yield np.uint8(np.clip(20 + 60 * y + 80 * x + 90 * light + rng.normal(0, 3, y.shape), 0, 255))


def found(images, boxes=((20, 20, 35, 40),) * COUNT):
    rows = []
    for k, (greys, box) in enumerate(zip(images, boxes, strict=True)):
        height, width = greys.shape
        image = Image.fromarray(greys)
        small = image.resize((32, 32), Image.Resampling.BOX).tobytes()
        facts = ImageFacts((width, height), digest=str(k).encode(), greys=(0, 255), small=small)
        columns = {"id": f"f{k}", "boxes": [list(box)], "labels": ["mass"], "width": width, "height": height}
        rows.append(ImageRow("train", k, columns, facts=facts))
    defects = examine(RowSource("images", lambda: iter(rows), len(rows))).defects
    return [example.id for one in defects if one.name == "mirrored-image" for example in one.rows]


def some(change, *chosen):
    return [change(one) if k in chosen else one for k, one in enumerate(scenes(0))]


def test_mirrored_images_are_named():
    mirrored = range(0, 108, 12)
    assert found(some(lambda greys: greys[:, ::-1], *mirrored)) == [f"f{k}" for k in mirrored]


@pytest.mark.parametrize(
    "images",
    [
        some(lambda greys: greys),
        some(lambda greys: greys[:, ::-1], 4, 9),
        some(lambda greys: greys[:, ::-1], *range(0, COUNT, 2)),
        some(lambda greys: 255 - greys, *range(0, COUNT, 12)),
    ],
)
def test_sound_images_and_few_odd_ones_pass(images):
    assert found(images) == []


def test_images_whose_boxes_were_mirrored_along_pass():
    mirrored = [f"f{k}" for k in range(0, COUNT, 12)]
    images, boxes, along = [], [], []
    moves = np.random.default_rng(1).integers(0, (40, 32), (COUNT, 2)).tolist()
    for k, (greys, (down, right)) in enumerate(zip(scenes(0, 160, 132), moves, strict=True)):
        here = greys[down : down + 120, right : right + 100]
        box = (32 - right, 80 - down, 48 - right, 112 - down)
        is_mirrored = f"f{k}" in mirrored
        images.append(here[:, ::-1] if is_mirrored else here)
        boxes.append(box)
        along.append((100 - box[2], box[1], 100 - box[0], box[3]) if is_mirrored else box)
    assert found(images, boxes) == mirrored
    assert found(images, along) == []


def test_images_that_show_nothing_are_not_called_mirrored():
    assert find_mirrored(np.zeros((100, 32, 32), dtype=np.uint8)) == []


def test_few_images_are_not_called_mirrored():
    assert find_mirrored(np.stack(list(scenes(0, 32, 32)))[:60]) == []
