"""Speed of one completion alone, as verl and OpenRLHF call a reward, beside a loop in plain Python and beside a batch.

    python benchmarks/bench_alone.py [--repeats 300] [--page docs/trainers.md]

For R1, R3, R4 and R5, for 0, 1 and 3 boxes and for answers as models write them (`mixed` of compare.py: in fences,
behind thinking or prose, 0 to 3 boxes, one in ten broken) it prints microseconds per completion: of a call with one
completion; of what people write by hand for such a call, which reads the JSON, compares boxes in two loops, matches
greedily and gives F-beta times the mean IoU, R3's number; and in a batch of 512. The first two are measured in turn, in
short rounds, of which the fastest counts: that gives nearly the same ratios on a busy machine. Before that each reward
has seen enough completions to have stopped watching for a wrong coordinate space; `watching` is the time of the calls
before. `loads` is `json.loads` of the answers as clean JSON. `--page` writes R3's ratios into the page, between marks.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench_rewards import make_batch
from compare import clean, mixed, rows

import grounding_rewards as gr
from scripts.docs.page_parts import marks_of, replace_part

BATCH = 512
# Of the batch, those that are measured alone.
ALONE = 16
MIXED = "mixed"
# Completions after which no watcher looks any more.
WATCHED = 4096


def iou_by_hand(a: list[float], b: list[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    inter = width * height
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


def r3_by_hand(text: str, truth: list[list[float]], width: int, height: int) -> float:
    """R3 of a well-formed answer, as in a reward function of one's own: no labels, no broken text, no regions."""
    found = re.search(r"\[.*\]", text.rpartition("</think>")[2], re.DOTALL)
    try:
        items = json.loads(found.group(0)) if found else []
        written = [item["bbox_2d"] for item in items]
    except (ValueError, KeyError, TypeError):
        return 0.0
    pred = [
        [x1 * width / 1000, y1 * height / 1000, x2 * width / 1000, y2 * height / 1000] for x1, y1, x2, y2 in written
    ]
    if not pred or not truth:
        return 0.2 if not pred and not truth else 0.0
    table = [[iou_by_hand(p, g) for g in truth] for p in pred]
    taken: set[int] = set()
    matched = []
    for row in sorted(table, key=max, reverse=True):
        free = [(value, -j) for j, value in enumerate(row) if j not in taken]
        if free and max(free)[0] >= 0.5:
            value, j = max(free)
            taken.add(-j)
            matched.append(value)
    if not matched:
        return 0.0
    precision, recall = len(matched) / len(pred), len(matched) / len(truth)
    f_beta = (1 + 1.5**2) * precision * recall / (1.5**2 * precision + recall)
    return f_beta * sum(matched) / len(matched)


def fastest(functions: dict[str, tuple[Callable[[], object], int]], repeats: int) -> dict[str, float]:
    """Microseconds per call of each, the fastest of many short rounds, in turn; each with its calls per round."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, (function, calls) in functions.items():
            start = time.process_time()
            for _ in range(calls):
                function()
            best[name] = min(best[name], (time.process_time() - start) / calls * 1e6)
    return best


def watch_out(reward: Any, texts: list[str], columns: dict[str, list[Any]]) -> None:
    for _ in range(2 * WATCHED // len(texts)):
        reward(texts, **columns)


def batch_of(boxes: int | str) -> tuple[list[str], dict[str, list[Any]], list[str]]:
    """Texts, columns, and the answers in clean JSON."""
    if boxes == MIXED:
        made, plain = (rows(write, (0, 1, 2, 3), BATCH) for write in (mixed, clean))
        columns = {name: [row[name] for row in made] for name in ("boxes", "width", "height")}
        return [row["completion"] for row in made], columns, [row["completion"] for row in plain]
    texts, columns = make_batch(np.random.default_rng(0), BATCH, int(boxes))
    return texts, columns, texts


def measure(name: str, boxes: int | str, repeats: int) -> dict[str, float]:
    """Microseconds per completion."""
    texts, columns, plain = batch_of(boxes)
    single = [
        (texts[k : k + 1], {column: values[k : k + 1] for column, values in columns.items()}) for k in range(ALONE)
    ]
    by_hand = [(text[0], *(one[column][0] for column in ("boxes", "width", "height"))) for text, one in single]
    new, reward = (gr.get_reward(name, box_format="qwen3-vl") for _ in range(2))
    watch_out(reward, texts, columns)
    if name == "R3" and boxes != MIXED:
        assert all(
            abs(r3_by_hand(*one) - reward(s[0], **s[1])[0]) < 1e-12 for one, s in zip(by_hand, single, strict=True)
        )
    times = fastest(
        {
            "alone": (lambda: [reward(text, **one) for text, one in single], 1),
            "by hand": (lambda: [r3_by_hand(*one) for one in by_hand], 2),
        },
        repeats,
    )
    few = min(repeats, WATCHED // 20 // ALONE)
    times |= fastest({"watching": (lambda: [new(text, **one) for text, one in single], 1)}, few)
    times = {key: value / ALONE for key, value in times.items()}
    # By itself: between calls of one completion it would leave them a cold cache.
    of_batch = {"batch": (lambda: reward(texts, **columns), 1), "loads": (lambda: [*map(json.loads, plain)], 1)}
    return times | {key: value / BATCH for key, value in fastest(of_batch, max(10, repeats // 5)).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--page", type=Path, help="into which the table of R3 is written")
    options = parser.parse_args()
    columns = ("alone", "watching", "by hand", "batch", "loads")
    print("µs per completion\n")
    heads = "".join(f"{column:>10}" for column in columns)
    print(f"{'reward':8}{'boxes':>6}{heads}{'batch / loads':>15}{'alone / by hand':>17}")
    table = [
        "| answers | batch of 512: × `json.loads` | alone: × a loop by hand | `json.loads`, µs |",
        "|---|---|---|---|",
    ]
    for name in ("R1", "R3", "R4", "R5"):
        for boxes in (0, 1, 3, MIXED):
            found = measure(name, boxes, options.repeats)
            batch, alone = found["batch"] / found["loads"], found["alone"] / found["by hand"]
            shown = "".join(f"{found[column]:>10.2f}" for column in columns)
            print(f"{name:8}{boxes:>6}{shown}{batch:>15.1f}{alone:>17.1f}", flush=True)
            if name == "R3":
                told = "mixed" if boxes == MIXED else f"{boxes} box{'es' * (boxes != 1)}"
                table.append(f"| {told} | {batch:.1f} | {alone:.1f} | {found['loads']:.1f} |")
    if options.page is not None:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(replace_part(page, marks_of("speed"), "\n".join(table)), encoding="utf-8")


if __name__ == "__main__":
    main()
