"""How fast a file of completions is scored by R3, and in how much memory, at one size and at ten times that.

    python benchmarks/bench_scoring.py [--rows 20000] [--processes 2] [--page docs/scoring.md]

Rows are those of compare.py: clean ones, with one box in JSON near the one reference box, and mixed ones as models
write them. For every size, output and number of processes it prints how the processor time of all processes compares
with `json.loads` on the lines of the same file, and with a loop by hand over them that reads row and answer, scores and
writes; completions per second of wall time; and the peaks of memory: of the process that reads and writes, and of the
largest worker. `--page` writes the ratios of one process into the page, between marks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_alone import r3_by_hand
from compare import clean, mixed, rows

import grounding_rewards as gr
from grounding_rewards.logs.score_file import score_file
from scripts.docs.page_parts import marks_of, replace_part

KINDS = {"clean": (clean, (1,)), "mixed": (mixed, (0, 1, 2, 3))}


def write_rows(path: Path, kind: str, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows(*KINDS[kind], count))


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def megabytes(who: int) -> float:
    peak = resource.getrusage(who).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def by_hand(path: Path, out: Path) -> tuple[float, float]:
    """Processor seconds of `json.loads` on all lines, and of a loop that scores them as people write it."""
    start = time.process_time()
    with path.open(encoding="utf-8") as file:
        for line in file:
            json.loads(line)
    between = time.process_time()
    with path.open(encoding="utf-8") as file, out.open("w", encoding="utf-8") as scored:
        for line in file:
            row = json.loads(line)
            reward = r3_by_hand(row["completion"], row["boxes"], row["width"], row["height"])
            scored.write(json.dumps({"id": row["id"], "R3": reward}) + "\n")
    return between - start, time.process_time() - between


def measure(path: Path, out: Path, processes: int, found: Any) -> None:
    """Score the file once; run in a fresh process, so that its peak is that of this run."""
    reward = gr.get_reward("R3", box_format="qwen3-vl")
    wall, used = time.perf_counter(), processor_seconds()
    summary = score_file(path, out, [reward], processes=processes)
    wall, used = time.perf_counter() - wall, processor_seconds() - used
    loads, loop = by_hand(path, out.with_suffix(".hand"))
    found.put((used / loads, used / loop, 1e6 * loads / summary.completions))
    worker = f"{megabytes(resource.RUSAGE_CHILDREN):>12.0f}" if processes > 1 else f"{'–':>12}"
    print(
        f"{path.stem:16}{processes:>11}{used / loads:>14.1f}{used / loop:>16.1f}"
        f"{summary.completions / wall:>16,.0f}{megabytes(resource.RUSAGE_SELF):>10.0f}{worker}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--page", type=Path, help="into which the ratios of one process are written")
    options = parser.parse_args()
    heads = ("processes", "× json.loads", "× loop by hand", "completions/s", "main MB", "worker MB")
    print(f"{'rows':16}" + "".join(f"{one:>{w}}" for one, w in zip(heads, (11, 14, 16, 16, 10, 12), strict=True)))
    table = ["| rows | × `json.loads` | × a loop by hand | `json.loads`, µs |", "|---|---|---|---|"]
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for size in (options.rows, 10 * options.rows):
                path = Path(folder, f"{kind}, {size}.jsonl")
                write_rows(path, kind, size)
                for processes in sorted({1, options.processes}):
                    found: Any = context.Queue()
                    arguments = path, Path(folder, "scored.jsonl"), processes, found
                    process = context.Process(target=measure, args=arguments)
                    process.start()
                    process.join()
                    if process.exitcode:
                        raise SystemExit(process.exitcode)
                    if (size, processes) == (options.rows, 1):
                        loads, loop, took = found.get()
                        table.append(f"| {kind} | {loads:.1f} | {loop:.1f} | {took:.1f} |")
    if options.page is not None:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(replace_part(page, marks_of("speed"), "\n".join(table)), encoding="utf-8")


if __name__ == "__main__":
    main()
