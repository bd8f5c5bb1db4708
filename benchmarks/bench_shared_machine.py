"""How long a step of the demo takes on a machine that others use too, by how its threads wait for each other.

python benchmarks/bench_shared_machine.py --steps 4

`grounding-rewards train --config configs/demo/grpo.yaml` with smaller batches, alone and beside busy loops, as many as
the machine has cores. Threads of OpenMP wait by spinning unless OMP_WAIT_POLICY says otherwise, which the command sets
to passive; here GOMP_SPINCOUNT brings libgomp's own habit back. Printed are the medians of the steps after the first,
and their ratios to the shortest of the same load: of a machine with other loads only ratios mean something.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
#: What libgomp does without OMP_WAIT_POLICY: so many looks before a thread sleeps.
SPINNING = {"GOMP_SPINCOUNT": "300000"}
SETTINGS = {
    "threads spin": SPINNING,
    "threads sleep": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def spin() -> None:
    """A process that needs a core for itself."""
    while True:
        pass


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Inside, so many busy loops run beside."""
    running = [multiprocessing.Process(target=spin, daemon=True) for _ in range(loops)]
    for one in running:
        one.start()
    try:
        yield
    finally:
        for one in running:
            one.terminate()
            one.join()


def seconds_a_step(setting: dict[str, str], threads: int, steps: int) -> float:
    """The median of the steps after the first."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environment = {**inherited, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", **setting}
    with tempfile.TemporaryDirectory() as folder:
        words = ["--config", "configs/demo/grpo.yaml", "--per_device_train_batch_size", "32", "--train_images", "64"]
        words += ["--max_steps", str(steps), "--save_strategy", "no", "--disable_tqdm", "true", "--output_dir", folder]
        command = [sys.executable, "-m", "grounding_rewards.cli", "train", *words]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        logged = [json.loads(line) for line in Path(folder, "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return statistics.median([entry["step_time"] for entry in logged if "step_time" in entry][1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4, help="of each training; default: %(default)s")
    parser.add_argument("--loops", type=int, nargs="+", help="busy loops beside; default: none, and one for each core")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of OpenMP; default: all cores")
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    print(f"{cores} cores, {options.threads} threads, load {os.getloadavg()[0]:.1f} at the start\n")
    print("| beside | waiting | seconds a step | ratio |\n|---|---|---|---|")
    for loops in options.loops or (0, cores):
        with busy(loops):
            found = {name: seconds_a_step(one, options.threads, options.steps) for name, one in SETTINGS.items()}
        for name, seconds in found.items():
            print(f"| {loops} busy loops | {name} | {seconds:.2f} | {seconds / min(found.values()):.2f} |", flush=True)


if __name__ == "__main__":
    main()
