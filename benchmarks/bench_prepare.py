"""How fast images are prepared, by one and by two processes, and in how much memory: images per second and peaks.

python benchmarks/bench_prepare.py --images 400 --side 1024

The images are noise with soft structure, 8-bit PNG files of the size that is common in copies of chest radiographs;
each is read, shrunk, encoded as PNG and written. `tables` is the part without images: as many records, of which none is
read. The peak is that of the main process and of the largest worker.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.prepare.examples import make_plan

LABELS = ("mass", "effusion", "nodule", "cardiomegaly")
DISTINCT = 20


def made_records(images: int) -> Iterator[AnnotatedImage]:
    """So many records over few image files, two in three of them with a box."""
    for k in range(images):
        boxes = [[100.0, 100.0, 300.0, 400.0]] * (k % 3)
        yield AnnotatedImage(
            f"image-{k}", f"{k % DISTINCT}.png", boxes, [LABELS[k % 4]] * len(boxes), patient_id=f"p{k // 2}"
        )


def make_images(root: Path, width: int, height: int) -> None:
    """Soft noise, which compresses about as badly as an image."""
    for k in range(DISTINCT):
        rng = np.random.default_rng(k)
        coarse = Image.fromarray(rng.integers(30, 200, (height // 32, width // 32), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
        pixels += rng.integers(-6, 7, pixels.shape, dtype=np.int16)
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(root / f"{k}.png", compress_level=1)


def peak_megabytes(who: int) -> float:
    """The most memory that this process, or the largest of its children, has held."""
    peak = resource.getrusage(who).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def measure(root: Path, out: Path, images: int, side: int, image_format: str, processes: int) -> None:
    """Prepare once, in a process of its own, and print one line."""
    settings = PrepareSettings("jsonl", "qwen3-vl", side=side, image_format=image_format)
    start = time.perf_counter()
    prepare_images(made_records(images), root, out, settings, processes=processes)
    seconds = time.perf_counter() - start
    main, worker = peak_megabytes(resource.RUSAGE_SELF), peak_megabytes(resource.RUSAGE_CHILDREN)
    print(
        f"{processes} process{'es' if processes > 1 else '  '}  {images / seconds:7.1f} images/s, "
        f"peak {main:,.0f} MB" + (f" and {worker:,.0f} MB a worker" if processes > 1 else ""),
        flush=True,
    )


def measure_tables(images: int) -> None:
    """The first pass alone, in a process of its own."""
    start = time.perf_counter()
    make_plan(list(made_records(images)), PrepareSettings("jsonl", "qwen3-vl"))
    seconds = time.perf_counter() - start
    print(
        f"tables       {images / seconds:9,.0f} images/s, peak {peak_megabytes(resource.RUSAGE_SELF):,.0f} MB",
        flush=True,
    )


def main() -> None:
    """Make the images, then measure each case in a fresh process, so that no peak counts for another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[200, 800])
    parser.add_argument("--size", type=int, nargs=2, default=[2048, 2048], metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--image-format", default="png")
    parser.add_argument("--tables", type=int, default=1_000_000, help="images of the part without images")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")

    def fresh(function, *arguments) -> None:
        process = context.Process(target=function, args=arguments)
        process.start()
        process.join()

    with tempfile.TemporaryDirectory() as folder:
        make_images(Path(folder), *options.size)
        for images in options.images:
            print(f"{images} images of {options.size[0]} x {options.size[1]} to {options.side}, {options.image_format}")
            for processes in (1, 2):
                out = Path(folder, f"out-{images}-{processes}")
                fresh(measure, Path(folder), out, images, options.side, options.image_format, processes)
    print(f"{options.tables:,} images without images")
    fresh(measure_tables, options.tables)


if __name__ == "__main__":
    main()
