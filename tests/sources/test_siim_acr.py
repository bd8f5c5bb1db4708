"""SIIM-ACR: masks written as relative run lengths, column by column, become boxes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.sources.siim_acr import mask_boxes, read_siim_acr

SIDE = 11
# The example of the competition's data page, shortened: the first run starts at pixel 387620 of the column-major image,
# 378 columns of 1024 pixels and 548 rows, and the next one 996 pixels after the first has ended, one column on.
EXAMPLE = "387620 23 996 33"


def encode(image):
    """Run lengths of an image of booleans, rows first, written independently of the reader: pixel by pixel."""
    numbers, last, position = [], 0, 0
    pixels = image.T.ravel().tolist()
    while position < len(pixels):
        start = position
        while position < len(pixels) and pixels[position] == pixels[start]:
            position += 1
        if pixels[start]:
            numbers += [start - last, position - start]
            last = position
    return numbers


def closed(image):
    """Pixels, also beyond the image, of which every square of 5 x 5 that holds them meets the mask: by definition."""
    taken = {(int(y), int(x)) for y, x in np.argwhere(image)}
    span = range(-2, 3)
    wide = range(-4, SIDE + 4)
    meets = {(y, x) for y in wide for x in wide if any((y + dy, x + dx) in taken for dy in span for dx in span)}
    return {(y, x) for y, x in meets if all((y + dy, x + dx) in meets for dy in span for dx in span)}


def parts(image):
    """Boxes of connected parts by flooding, written independently of the reader."""
    taken = {(int(y), int(x)) for y, x in np.argwhere(image)}
    left = closed(image)
    boxes = []
    while left:
        front, part = [left.pop()], []
        while front:
            y, x = front.pop()
            part.append((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            front += near
        if drawn := taken.intersection(part):
            ys, xs = zip(*drawn, strict=True)
            boxes.append([min(xs), min(ys), max(xs) + 1, max(ys) + 1])
    return sorted(boxes)


def drawn(pixels):
    image = np.zeros(SIDE * SIDE, dtype=bool)
    image[list(pixels)] = True
    return image.reshape(SIDE, SIDE)


# Few pixels, so that some are too far apart to be joined.
images = st.sets(st.integers(0, SIDE * SIDE - 1), max_size=8).map(drawn)


@given(masks=st.lists(images, min_size=1, max_size=3))
def test_boxes_of_any_masks(masks):
    assert sorted(mask_boxes([encode(mask) for mask in masks], side=SIDE)) == parts(np.any(masks, axis=0))


@pytest.fixture
def root(write):
    def write_rows(*rows):
        # The second name starts with a space, in every release.
        return write({"train-rle.csv": "\n".join(["ImageId, EncodedPixels", *rows])})

    return write_rows


def test_images(root):
    # By hand: 387620 = 378 * 1024 + 548; 387620 + 23 + 996 = 388639 = 379 * 1024 + 543
    # b is a negative with the space that some releases have; d has two rows, whose masks touch: one part
    a, b, c, d = read_siim_acr(root(f"a, {EXAMPLE}", "b, -1", "c,-1", "d, 0 2", "d, 1025 2"))
    assert a.boxes == [[378, 543, 380, 576]]
    assert (a.labels, a.width, a.height, a.split) == (["Pneumothorax"], 1024, 1024, "train")
    assert (b.boxes, b.labels, c.boxes) == ([], [], [])
    assert d.boxes == [[0, 0, 2, 3]]


@pytest.mark.parametrize(("gap", "boxes"), [(4, 1), (5, 2)])
def test_a_gap_of_up_to_four_pixels_is_closed(root, gap, boxes):
    # Two runs of 20 pixels in a column: strokes of one pneumothorax
    (image,) = read_siim_acr(root(f"a,{500 * 1024 + 300} 20 {gap} 20"))
    assert len(image.boxes) == boxes
    assert (image.boxes[0][1], image.boxes[-1][3]) == (300, 340 + gap)
