"""Whether `score --engine ray` needs more memory for more rows, and what a machine that is lost costs.

    python benchmarks/bench_ray.py [--rows 10000 40000 160000] [--workers 2] [--lose]

For each number of rows a fresh Ray on this machine, with so many workers and little room for objects, scores the short
rows of bench_scoring.py by R3. Printed are the rows per second and the most memory, in MB: of the command itself, of
its largest worker, the one that reads the file among them, of all workers at once, and of the object store. Memory of
processes is looked at four times a second and counts what each has by itself: without libraries, and without objects,
which lie in memory that processes share and are counted for themselves.

With `--lose` the cluster is two machines (two raylets here) with half of the workers each, the second of which is
killed once its workers score. The table then says whether the output is the same, to the byte.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from bench_scoring import fresh, write_rows

import grounding_rewards as gr
from grounding_rewards.logs.score_file import score_file

#: Room for objects, in bytes: the least that Ray takes.
STORE = 80 << 20
_EVERY = 0.25


class Watch(threading.Thread):
    """Looks at the memory of processes again and again, and keeps the most of it, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.most = {"command": 0.0, "largest worker": 0.0, "all workers": 0.0, "objects": 0.0}

    def run(self) -> None:
        import ray

        own = psutil.Process()
        while not self.ended.wait(_EVERY):
            workers = [_megabytes(one) for one in _workers(own)]
            total, free = ray.cluster_resources(), ray.available_resources()
            name = "object_store_memory"
            seen = {
                "command": _megabytes(own),
                "largest worker": max(workers, default=0.0),
                "all workers": sum(workers),
                "objects": (total.get(name, 0.0) - free.get(name, 0.0)) / 1e6,
            }
            self.most = {name: max(value, seen[name]) for name, value in self.most.items()}


def _megabytes(process: psutil.Process) -> float:
    try:
        info = process.memory_info()
        return (info.rss - info.shared) / 1e6
    except psutil.Error:
        return 0.0


def _workers(own: psutil.Process) -> list[psutil.Process]:
    """The processes of Ray that have work; those that wait for some are called IDLE."""
    found = []
    for one in own.children(recursive=True):
        try:
            if (title := " ".join(one.cmdline())).startswith("ray::") and "IDLE" not in title:
                found.append(one)
        except psutil.Error:
            continue
    return found


def measure(path: Path, rows: int, out: Path, workers: int, lose: bool, expected: Path | None) -> None:
    """Score the file once; run in a fresh process, so that its peak is that of this run."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    half = workers // 2 if lose else 0
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": workers - half, "object_store_memory": STORE, "include_dashboard": False},
    )
    second: Any = cluster.add_node(num_cpus=half, object_store_memory=STORE) if lose else None
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    watch = Watch()
    lost: list[int] = []

    def on_progress(done: int) -> None:
        if lose and not lost and done > rows // 4:
            lost.append(done)
            _kill(second)

    watch.start()
    started = time.perf_counter()
    reward = gr.get_reward("R3", box_format="qwen3-vl")
    summary = score_file(path, out, [reward], engine="ray", processes=workers, on_progress=on_progress)
    seconds = time.perf_counter() - started
    watch.ended.set()
    watch.join()
    assert summary.completions == rows
    same = "" if expected is None else "same" if out.read_bytes() == expected.read_bytes() else "DIFFERENT"
    most = "".join(f" {value:.0f} |" for value in watch.most.values())
    print(f"| {rows:,} | {rows / seconds:,.0f} |{most} {same or '–'} |", flush=True)
    ray.shutdown()
    cluster.shutdown()
    assert same != "DIFFERENT"


def _kill(node: Any) -> None:
    """kill -9 of all processes of a machine at once, as when it loses its power."""
    pids = [one.process.pid for several in node.all_processes.values() for one in several]
    for pid in pids:
        for one in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            one.send_signal(signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 40_000, 160_000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lose", action="store_true")
    options = parser.parse_args()
    print("| rows | rows a second | command | largest worker | all workers | objects | second machine lost |")
    print("|---:|---:|---:|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            path = Path(folder, f"{rows}.jsonl")
            fresh(write_rows, path, rows)
            expected = None
            if options.lose:
                expected = Path(folder, f"expected-{rows}.jsonl")
                score_file(path, expected, [gr.get_reward("R3", box_format="qwen3-vl")])
            fresh(measure, path, rows, Path(folder, "scored.jsonl"), options.workers, options.lose, expected)


if __name__ == "__main__":
    main()
