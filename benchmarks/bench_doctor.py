"""Rows a second that the doctor looks at, without images: tables of drawn boxes, in one process.

python benchmarks/bench_doctor.py
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.rows import ImageRow, RowSource

ROWS = 5000
LABELS = ("Pleural effusion", "Nodule/Mass", "Cardiomegaly", "Calcification")


def draw_rows(count: int) -> list[ImageRow]:
    """Images of 2000 to 3000 pixels, two of a patient, one in four without findings, else with one to three boxes."""
    rng, rows = np.random.default_rng(0), []
    for k in range(count):
        size = rng.integers((2000, 2450), (2400, 3000))
        n = 0 if k % 4 == 1 else 1 + k % 3
        sides = rng.uniform(0.06, 0.3, (n, 2)) * size
        starts = rng.uniform(0, 1, (n, 2)) * (size - sides)
        columns = {
            "id": f"image-{k}",
            "patient_id": f"p{k // 2}",
            "width": int(size[0]),
            "height": int(size[1]),
            "boxes": np.round(np.concatenate([starts, starts + sides], axis=1)).tolist(),
            "labels": [LABELS[(k // 3 + j) % 4] for j in range(n)],
            "box_format": "qwen3-vl",
        }
        rows.append(ImageRow("train" if k < 0.8 * count else "test", k, columns))
    return rows


def main() -> None:
    rows = draw_rows(ROWS)

    def images() -> Iterator[ImageRow]:
        yield from rows

    # CPU seconds, which do not depend on what else the machine does.
    started = time.process_time()
    checkup = examine(RowSource("drawn", images, ROWS))
    seconds = time.process_time() - started
    print(f"{ROWS} rows, {len(checkup.defects)} defects: {ROWS / seconds:.0f} rows a CPU second")


if __name__ == "__main__":
    main()
