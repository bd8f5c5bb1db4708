"""Is this working tree slower than another commit? The same short benchmarks on both, alternately, in fresh processes.

    python benchmarks/compare.py v0.9.0
    python benchmarks/compare.py HEAD~1 --rounds 9 --only batch score

The other commit is checked out beside this one for the time of the run. Each round measures both, one after the other,
in processor time of the process and its children; what counts is the median of the rounds' ratios, so that a machine
whose speed drifts says the same. Beside it stands the spread, half of the distance between the smallest and the largest
ratio without the outermost two, and how many times longer than `json.loads` of the same texts this tree takes. Ends
with 1 where something is slower by more than its spread and by more than a tenth.

Texts are clean, or mixed as models write: in fences, behind thinking or prose, with none to three boxes, one in ten
broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZE = 1000
LABELS = ("nodule", "mass", "consolidation")
# A benchmark is repeated until it has run for so long, so that the smallest count as much as the largest.
SECONDS = 0.3


def draw_box(rng: random.Random) -> list[int]:
    """A box of 50 to 200 of 1000 pixels."""
    x, y, side = rng.randrange(700), rng.randrange(700), rng.randrange(50, 200)
    return [x, y, x + side, y + side]


def clean(rng: random.Random, truth: list[list[int]]) -> str:
    """Boxes near the truth, in JSON."""
    moved = [[value + rng.randrange(-15, 15) for value in box] for box in truth]
    return json.dumps([{"bbox_2d": box, "label": LABELS[k % 3]} for k, box in enumerate(moved)])


def mixed(rng: random.Random, truth: list[list[int]]) -> str:
    """The same as models write it."""
    text = clean(rng, truth) if truth else rng.choice(("[]", "No finding."))
    if rng.random() < 0.1:
        return text[: len(text) // 2]
    return rng.choice(
        (
            text,
            f"```json\n{text}\n```",
            f"<think>The lungs are clear, [1, 2] aside. I look again.</think>{text}",
            f"There is something in the left lower zone: {text}",
        )
    )


def rows(write: Callable[[random.Random, list[list[int]]], str], counts: tuple[int, ...], n: int) -> list[dict]:
    """`n` rows with as many boxes as `counts` says in turn; whatever is written, the boxes are the same."""
    rng, words = random.Random(0), random.Random(1)
    made = []
    for k in range(n):
        truth = [draw_box(rng) for _ in range(counts[k % len(counts)])]
        labels = [LABELS[j % 3] for j in range(len(truth))]
        made.append(
            {
                "id": f"image-{k}",
                "completion": write(words, truth),
                "boxes": truth,
                "labels": labels,
                "width": SIZE,
                "height": SIZE,
            }
        )
    return made


def columns(made: list[dict]) -> dict[str, list]:
    """What a reward takes."""
    names = {"completion": "completions", "boxes": "boxes", "width": "width", "height": "height"}
    return {to: [row[name] for row in made] for name, to in names.items()}


def benchmarks(folder: Path) -> Iterator[tuple[str, Callable[[], object], list[str]]]:
    """Name, what is measured, and the texts whose `json.loads` it is compared with."""
    import grounding_rewards as gr

    files = {"clean": rows(clean, (0, 1, 2, 3), 2000), "mixed": rows(mixed, (0, 1, 2, 3), 2000)}
    batches = {f"{n} boxes": rows(clean, (n,), 512) for n in (1, 3, 10)} | {"mixed": files["mixed"][:512]}
    for kind, made in batches.items():
        batch = columns(made)
        texts = [json.dumps(row["completion"]) if kind == "mixed" else row["completion"] for row in made]
        for name in ("R1", "R3", "R5"):
            reward = gr.get_reward(name, box_format="qwen3-vl")
            yield f"batch, {name}, {kind}", lambda reward=reward, batch=batch: reward(**batch), texts
        reward = gr.get_reward("R3", box_format="qwen3-vl")
        yield f"details, {kind}", lambda reward=reward, batch=batch: reward.details(**batch), texts
        alone = [{name: values[k : k + 1] for name, values in batch.items()} for k in range(64)]
        yield f"alone, R3, {kind}", lambda reward=reward, alone=alone: [reward(**one) for one in alone], texts[:64]
    for text in ("<|", "</", "Action: ", "<", "[", '{"bbox_2d": [1, 2', "No finding. "):
        hostile = (text * (1_000_000 // len(text)))[:1_000_000]
        plain = json.dumps([draw_box(random.Random(0)) for _ in range(48_000)])
        yield f"1 MB of {text!r}", lambda t=hostile: gr.parse_boxes(t, "qwen3-vl", width=SIZE, height=SIZE), [plain]
    for kind, made in files.items():
        log = folder / f"{kind}.jsonl"
        log.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
        lines = log.read_text(encoding="utf-8").splitlines()
        words = ("--box-format", "qwen3-vl")
        yield (
            f"score, {kind}",
            command("score", log, "--rewards", "R3", *words, "--out", folder / "scored.jsonl"),
            lines,
        )
        out = folder / f"evaluated-{kind}"
        evaluate = command("evaluate", "--completions", log, *words, "--out", out, "--overwrite")
        yield f"evaluate, {kind}", evaluate, lines
        if not out.exists():
            # What `diff` compares is made even where only `diff` is asked for.
            evaluate()
    a, b = folder / "evaluated-clean", folder / "evaluated-mixed"
    yield "diff", command("diff", a, b, "--json", folder / "diff.json"), lines


def command(*words: object) -> Callable[[], None]:
    """Run `grounding-rewards` in a process of its own, without what it prints."""

    def run() -> None:
        done = subprocess.run(
            [sys.executable, "-m", "grounding_rewards.cli", *map(str, words)], capture_output=True, text=True
        )
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")

    return run


def processor_seconds(function: Callable[[], object]) -> float:
    """Of one call, with the processes that it starts; short ones are repeated."""
    calls, used = 0, 0.0
    while used < SECONDS:
        before = os.times()
        function()
        after = os.times()
        used += sum(after[k] - before[k] for k in range(4))
        calls += 1
    return used / calls


def measure(only: list[str]) -> dict[str, dict[str, float]]:
    """Seconds of every benchmark, and of `json.loads` of its texts, by the package that stands first on the path."""
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, function, texts in benchmarks(Path(folder)):
            if not any(name.startswith(word) for word in only):
                continue
            # What the first call alone does is no part of it: imports, and watching for a wrong coordinate space.
            function()
            loads = processor_seconds(lambda texts=texts: [json.loads(text) for text in texts])
            took[name] = {"seconds": processor_seconds(function), "loads": loads}
    return took


def measured_in(tree: Path, only: list[str]) -> dict[str, dict[str, float]]:
    """`measure` in a fresh process with the package of `tree`."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--measure", "--only", *only],
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        cwd=tree,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"Expected the benchmarks to run in {tree}, got:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def judge(ratios: list[float]) -> tuple[float, float, bool]:
    """The median ratio, its spread, and whether that is slower by more than the spread and a tenth."""
    ordered = sorted(ratios)
    inner = ordered[1:-1] if len(ordered) > 3 else ordered
    ratio, spread = statistics.median(ordered), (inner[-1] - inner[0]) / 2
    return ratio, spread, ratio > 1 + max(spread, 0.1)


def compare(commit: str, rounds: int, only: list[str]) -> list[str]:
    """Print the table and return what is slower."""
    pairs: list[tuple[dict, dict]] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "other")
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            for number in range(rounds):
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
                pairs.append((measured_in(ROOT, only), measured_in(tree, only)))
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    loads = statistics.median(one["loads"] for ours, _ in pairs for one in ours.values())
    print(f"{'against ' + commit[:12]:28}{'ratio':>8}{'spread':>8}{'× json.loads':>14}")
    slower = []
    for name in pairs[0][0]:
        if any(name not in other for _, other in pairs):
            continue
        ratio, spread, is_slower = judge([ours[name]["seconds"] / other[name]["seconds"] for ours, other in pairs])
        to_loads = statistics.median(ours[name]["seconds"] / ours[name]["loads"] for ours, _ in pairs)
        if is_slower:
            slower.append(name)
        print(f"{name:28}{ratio:>8.2f}{spread:>8.2f}{to_loads:>14.1f}{'  slower' if is_slower else ''}")
    print(f"json.loads takes {1e6 * loads:.0f} µs of a benchmark's texts here, in the median")
    return slower


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="what to compare the working tree with")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="how the names of benchmarks begin")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.only)))
        return 0
    if options.commit is None:
        parser.error("Expected a commit to compare with, got none. Name one, such as HEAD~1.")
    return 1 if compare(options.commit, options.rounds, options.only) else 0


if __name__ == "__main__":
    sys.exit(main())
