"""How fast the table of VinDr-CXR is read, and in how much memory: rows per second and the peak of the process.

python benchmarks/bench_tables.py --rows 500000

The made table has the columns, the share of "No finding" rows and the three readers of PhysioNet's training set. Its
rows are shuffled, which costs the most memory: nearly every image has begun before the first one ends.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from grounding_rewards.sources.vindr import read_vindr_cxr

LABELS = ("Aortic enlargement", "Cardiomegaly", "Pleural thickening", "Pulmonary fibrosis", "Nodule/Mass", "ILD")
NORMAL = 0.7
BOXES_PER_READER = (1, 5)


def write_table(path: Path, rows: int, shuffle: bool) -> None:
    """Write so many rows: three readers an image, of whom all or none found something."""
    rng = random.Random(0)
    lines: list[str] = []
    while len(lines) < rows:
        image, normal = f"{rng.getrandbits(128):032x}", rng.random() < NORMAL
        for reader in rng.sample(range(1, 18), 3):
            for _ in range(1 if normal else rng.randint(*BOXES_PER_READER)):
                if normal:
                    lines.append(f"{image},R{reader},No finding,,,,")
                else:
                    x, y = rng.uniform(0, 2000), rng.uniform(0, 2000)
                    box = f"{x:.6f},{y:.6f},{x + rng.uniform(20, 900):.6f},{y + rng.uniform(20, 900):.6f}"
                    lines.append(f"{image},R{reader},{rng.choice(LABELS)},{box}")
    if shuffle:
        rng.shuffle(lines)
    path.parent.mkdir(parents=True)
    path.write_text("image_id,rad_id,class_name,x_min,y_min,x_max,y_max\n" + "\n".join(lines[:rows]) + "\n")


def peak_megabytes() -> float:
    """The most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def main() -> None:
    """Make the table in another process, read it in this one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--sorted", action="store_true", help="leave the rows of an image together, as on Kaggle")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "annotations", "annotations_train.csv")
        # In another process, so that making the rows does not count towards the peak of reading them
        making = multiprocessing.get_context("spawn").Process(
            target=write_table, args=(table, options.rows, not options.sorted)
        )
        making.start()
        making.join()
        start = time.perf_counter()
        images = boxes = 0
        for record in read_vindr_cxr(folder, split="train"):
            images += 1
            boxes += len(record.boxes)
        seconds = time.perf_counter() - start
    print(f"{options.rows:,} rows, {images:,} images, {boxes:,} boxes, {'sorted' if options.sorted else 'shuffled'}")
    print(f"{options.rows / seconds:,.0f} rows/s, peak {peak_megabytes():,.0f} MB")


if __name__ == "__main__":
    main()
