"""A nodule of six pixels, with and without a closer look.

Drawn images of 1024 x 1024 pixels show four smudges. One of them, or on every fifth image none, holds a nodule of six
by six pixels; the others hold as much light, spread out, so that on the picture that the model sees the two look alike.
A scripted policy looks at pictures alone, and answers in the box format: once from the whole image, and once after it
has zoomed into each smudge. Its answers are scored by R4.

  python scripts/studies/find_small_nodules.py
  python scripts/studies/find_small_nodules.py --images 200 --seed 1
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter
from transformers import Qwen2VLImageProcessor

import grounding_rewards as gr
from grounding_rewards.images.resize import resized_size
from grounding_rewards.parsing import format_boxes
from grounding_rewards.training.look_closer import LookCloser, LookEnvironment

SIDE, NODULE, SMUDGES = 1024, 6, 4
FORMAT = "qwen3-vl"
# How much lighter than its surroundings a nodule is, in greys, and the noise of a pixel.
_LIGHT, _NOISE = 90.0, 6.0
_PART = 128

DrawnImage = dict[str, Any]


def draw(rng: np.random.Generator, with_nodule: bool) -> DrawnImage:
    """An image as a row of a dataset."""
    # One smudge in each quarter, away from its edges.
    corners = [(0, 0), (SIDE // 2, 0), (0, SIDE // 2), (SIDE // 2, SIDE // 2)]
    centers = [(x + int(rng.integers(120, 392)), y + int(rng.integers(120, 392))) for x, y in corners]
    smudges, spread = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE))
    nodule = np.zeros((SIDE, SIDE))
    chosen = int(rng.integers(SMUDGES)) if with_nodule else None
    for k, (x, y) in enumerate(centers):
        smudges[y, x] = 1.0
        if k == chosen:
            nodule[y : y + NODULE, x : x + NODULE] = _LIGHT
        else:
            spread[y, x] = _LIGHT * NODULE**2
    wide = gaussian_filter(smudges, 20.0)
    greys = 80.0 + 50.0 * wide / wide.max() + gaussian_filter(spread, 6.0) + nodule
    pixels = np.clip(greys + rng.normal(0.0, _NOISE, greys.shape), 0, 255).astype(np.uint8)
    boxes = [] if chosen is None else [[*centers[chosen], *(value + NODULE for value in centers[chosen])]]
    return {"image": Image.fromarray(pixels), "boxes": boxes, "width": SIDE, "height": SIDE, "box_format": FORMAT}


def seen(picture: Image.Image, processor: Any) -> np.ndarray:
    """The greys of a picture at the size at which a model gets it."""
    resized = picture.convert("L").resize(resized_size(processor, *picture.size), Image.Resampling.BICUBIC)
    return np.asarray(resized, dtype=float)


def smudges(greys: np.ndarray) -> list[tuple[float, float]]:
    """The lightest place of each quarter of a picture, as fractions of its sides."""
    smooth = gaussian_filter(greys, 1.5)
    height, width = smooth.shape
    found = []
    for top in (0, height // 2):
        for left in (0, width // 2):
            quarter = smooth[top : top + height // 2, left : left + width // 2]
            y, x = np.unravel_index(int(quarter.argmax()), quarter.shape)
            found.append(((left + x + 0.5) / width, (top + y + 0.5) / height))
    return found


def sharp_spot(greys: np.ndarray) -> tuple[float, list[float]]:
    """How far the sharpest light spot stands out, in greys, and its box as fractions of the picture's sides."""
    height, width = greys.shape
    above = greys - gaussian_filter(greys, 8.0)
    y, x = np.unravel_index(int(gaussian_filter(above, 1.0).argmax()), above.shape)
    stands_out = float(gaussian_filter(above, 1.0)[y, x])
    around = above[max(y - 8, 0) : y + 9, max(x - 8, 0) : x + 9] > stands_out / 2
    rows, columns = np.flatnonzero(around.any(axis=1)), np.flatnonzero(around.any(axis=0))
    left, top = max(x - 8, 0), max(y - 8, 0)
    box = [left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1]
    return stands_out, [box[0] / width, box[1] / height, box[2] / width, box[3] / height]


def written(boxes: list[list[float]]) -> str:
    """Boxes in pixels of the image as an answer in the box format."""
    return format_boxes(boxes, FORMAT, width=SIDE, height=SIDE)


def without_zoom(image: DrawnImage, environment: LookEnvironment, processor: Any) -> str:
    """The spot that stands out most on the whole image; the width of a nodule is known."""
    greys = seen(image["image"], processor)
    best = max(smudges(greys), key=lambda place: greys[_pixel(place, greys.shape)])
    x, y = (part * SIDE for part in best)
    return written([[x - NODULE / 2, y - NODULE / 2, x + NODULE / 2, y + NODULE / 2]])


def with_zoom(image: DrawnImage, environment: LookEnvironment, processor: Any) -> str:
    """The sharpest spot of all parts around smudges; none where no spot is sharp."""
    found: list[tuple[float, list[float]]] = []
    for x, y in smudges(seen(image["image"], processor)):
        left, top = round(x * SIDE - _PART / 2), round(y * SIDE - _PART / 2)
        # In the model's numbers, from 0 to 1000.
        shown = environment.zoom(*(1000 / SIDE * edge for edge in (left, top, left + _PART, top + _PART)))
        stands_out, box = sharp_spot(seen(shown[0]["image"], processor))
        corner = (left, top, left, top)
        found.append((stands_out, [start + _PART * edge for start, edge in zip(corner, box, strict=True)]))
    stands_out, box = max(found)
    return written([box] if stands_out > _LIGHT / 4 else [])


def _pixel(place: tuple[float, float], shape: tuple[int, ...]) -> tuple[int, int]:
    return min(int(place[1] * shape[0]), shape[0] - 1), min(int(place[0] * shape[1]), shape[1] - 1)


def accuracies(images: int, seed: int = 0) -> dict[str, float]:
    """The share of images that each policy answers right: the nodule found at IoU 0.5, or rightly none."""
    rng = np.random.default_rng(seed)
    # About as coarse for these images as a few hundred thousand pixels are for a radiograph.
    processor = Qwen2VLImageProcessor(size={"shortest_edge": 112**2, "longest_edge": 140**2})
    environment = LookEnvironment(LookCloser(looks=SMUDGES))
    policies: dict[str, Callable[..., str]] = {"without zoom": without_zoom, "with zoom": with_zoom}
    right = dict.fromkeys(policies, 0)
    reward = gr.get_reward("R4", box_format=FORMAT)
    for k in range(images):
        image = draw(rng, with_nodule=k % 5 != 4)
        for name, policy in policies.items():
            environment.reset(**image)
            columns = {column: [image[column]] for column in ("boxes", "width", "height")}
            scored = reward.details([policy(image, environment, processor)], **columns)[0]
            right[name] += scored.fp == scored.fn == 0
    return {name: count / images for name, count in right.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50, help="how many images are drawn (default: 50)")
    parser.add_argument("--seed", type=int, default=0, help="of the images (default: 0)")
    options = parser.parse_args()
    for name, share in accuracies(options.images, options.seed).items():
        print(f"{name:>12}: {share:.2f} of {options.images} images answered right")


if __name__ == "__main__":
    main()
