"""How fast a file of completions is scored by R3, and in how much memory, at one size and at ten times that.

    python benchmarks/bench_scoring.py [--rows 50000] [--processes 2]

The rows are short: one box in JSON near the one reference box, an id and the size of the image. For every size, output
and number of processes it prints completions per second of wall time, the processor time of all processes as a ratio to
that of `json.loads` on the lines of the same file, and the peaks of memory: of the process that reads and writes, and
of the largest worker.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import grounding_rewards as gr
from grounding_rewards.logs.score_file import score_file

SIZE = 1000


def write_rows(path: Path, rows: int) -> None:
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for k in range(rows):
            x, y, side = rng.randrange(700), rng.randrange(700), rng.randrange(50, 200)
            gt = [x, y, x + side, y + side]
            pred = [{"bbox_2d": [value + rng.randrange(-15, 15) for value in gt], "label": "nodule"}]
            row = {"id": f"image-{k}", "completion": json.dumps(pred), "boxes": [gt], "width": SIZE, "height": SIZE}
            file.write(json.dumps(row) + "\n")


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def megabytes(who: int) -> float:
    peak = resource.getrusage(who).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def loads(path: Path) -> float:
    start = time.process_time()
    with path.open(encoding="utf-8") as file:
        for line in file:
            json.loads(line)
    return time.process_time() - start


def measure(path: Path, rows: int, out: Path, processes: int) -> None:
    """Score the file once; run in a fresh process, so that its peak is that of this run."""
    reward = gr.get_reward("R3", box_format="qwen3-vl")
    wall, used = time.perf_counter(), processor_seconds()
    summary = score_file(path, out, [reward], processes=processes)
    wall, used = time.perf_counter() - wall, processor_seconds() - used
    assert summary.completions == rows
    worker = f"{megabytes(resource.RUSAGE_CHILDREN):>12.0f}" if processes > 1 else f"{'–':>12}"
    print(
        f"{rows:>10,}{out.suffix:>10}{processes:>11}{rows / wall:>16,.0f}{used / loads(path):>10.1f}"
        f"{megabytes(resource.RUSAGE_SELF):>11.0f}{worker}",
        flush=True,
    )


def fresh(function: Callable[..., None], *arguments: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    print(
        f"{'rows':>10}{'output':>10}{'processes':>11}{'completions/s':>16}{'ratio':>10}{'main MB':>11}{'worker MB':>12}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for rows in (options.rows, 10 * options.rows):
            path = Path(folder, f"{rows}.jsonl")
            fresh(write_rows, path, rows)
            for suffix in (".jsonl", ".parquet"):
                for processes in sorted({1, options.processes}):
                    fresh(measure, path, rows, Path(folder, f"scored{suffix}"), processes)


if __name__ == "__main__":
    main()
