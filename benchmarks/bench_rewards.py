"""Speed from text to reward, as ratios to `json.loads` on the same texts.

    python benchmarks/bench_rewards.py [--completions 512] [--repeats 30]

Prints, for R1 and R5, how many times longer one batch takes than `json.loads` alone on the same answers in clean JSON,
for answers in JSON and for mixed ones as models write them (compare.py), and the time per completion. It is processor
time, the two measured in turn, and the median of the paired ratios, so that a machine whose speed drifts gives the same
metric. Then the time from text to boxes alone for six formats, with and without 600 characters of thinking in front, as
ratios to `json.loads` on the same boxes in JSON. Last the time for adversarial texts of 1 MB and 2 MB: made patterns
behind openings, and every mark that a format writes, repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from compare import clean, mixed, rows

import grounding_rewards as gr

# The adversarial texts are shared with the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from grounding_rewards.parsing import format_boxes, get_box_format, read_boxes
from tests.parsing.adversarial import slowest, slowest_marks

SIZE = 1000
SIZES = {"width": SIZE, "height": SIZE, "resized_width": SIZE, "resized_height": SIZE}
THINKING = f"<think>{('The left lower zone is denser than the right one, [1, 2, 3] or so. ' * 10)[:600]}</think>"
LABELS = ("nodule", "pleural effusion", "cardiomegaly")


def random_boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    corner = rng.integers(0, SIZE - 200, (count, 2))
    side = rng.integers(20, 200, (count, 2))
    return np.concatenate([corner, corner + side], axis=1).astype(float)


def make_batch(rng: np.random.Generator, completions: int, boxes: int) -> tuple[list[str], dict[str, list]]:
    """Answers near the truth: most boxes match, none exactly."""
    texts, truth = [], []
    for _ in range(completions):
        gt = random_boxes(rng, boxes)
        pred = np.clip(gt + rng.integers(-15, 15, gt.shape), 0, SIZE)
        labels = [LABELS[k % 3] for k in range(boxes)]
        texts.append(
            json.dumps(
                [{"bbox_2d": [int(v) for v in box], "label": label} for box, label in zip(pred, labels, strict=True)]
            )
        )
        truth.append(gt.tolist())
    return texts, {"boxes": truth, "width": [SIZE] * completions, "height": [SIZE] * completions}


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def bench_boxes(completions: int, repeats: int) -> None:
    print(f"{completions} completions a batch, median of {repeats} pairs\n")
    print(f"{'reward':8}{'boxes':>6}{'ratio':>8}{'µs/completion':>16}{'json.loads µs':>16}")
    rng = np.random.default_rng(0)
    for count in (1, 3, 10, 100, "mixed"):
        if count == "mixed":
            made, plain = (rows(write, (0, 1, 2, 3), completions) for write in (mixed, clean))
            texts, clean_texts = ([row["completion"] for row in several] for several in (made, plain))
            columns = {name: [row[name] for row in made] for name in ("boxes", "width", "height")}
        else:
            texts, columns = make_batch(rng, completions, int(count))
            clean_texts = texts
        rounds = max(3, repeats // 10) if count == 100 else repeats
        for name in ("R1", "R5"):
            reward = gr.get_reward(name, box_format="qwen3-vl")
            reward(texts, **columns)
            pairs = [
                (
                    seconds(lambda reward=reward, texts=texts, columns=columns: reward(texts, **columns)),
                    seconds(lambda texts=clean_texts: [json.loads(text) for text in texts]),
                )
                for _ in range(rounds)
            ]
            ours = statistics.median(a for a, _ in pairs) / completions * 1e6
            loads = statistics.median(b for _, b in pairs) / completions * 1e6
            ratio = statistics.median(a / b for a, b in pairs)
            print(f"{name:8}{count:>6}{ratio:>8.2f}{ours:>16.2f}{loads:>16.2f}")


def bench_formats(completions: int, repeats: int, boxes: int = 3) -> None:
    print(f"\ntext to boxes, {boxes} boxes a completion\n")
    print(f"{'format':14}{'thinking':>10}{'µs/completion':>16}{'ratio to json.loads':>22}")
    rng = np.random.default_rng(0)
    drawn = [random_boxes(rng, boxes) for _ in range(completions)]
    labels = [LABELS[k % 3] for k in range(boxes)]
    plain = [
        json.dumps(
            [{"bbox_2d": box, "label": label} for box, label in zip(one.astype(int).tolist(), labels, strict=True)]
        )
        for one in drawn
    ]
    for name in ("qwen2.5-vl", "qwen3-vl", "qwen2-vl", "internvl", "paligemma", "answer-list"):
        fmt = get_box_format(name)
        answers = [format_boxes(one, fmt, labels=labels, **SIZES) for one in drawn]
        for thinking in (False, True):
            texts = [THINKING + answer for answer in answers] if thinking else answers
            assert all(len(read_boxes(text, fmt).labels) == boxes for text in texts)
            pairs = [
                (
                    seconds(lambda texts=texts, fmt=fmt: [read_boxes(text, fmt) for text in texts]),
                    seconds(lambda: [json.loads(text) for text in plain]),
                )
                for _ in range(repeats)
            ]
            ours = statistics.median(a for a, _ in pairs) / completions * 1e6
            ratio = statistics.median(a / b for a, b in pairs)
            print(f"{name:14}{'600' if thinking else '–':>10}{ours:>16.2f}{ratio:>22.2f}")


def bench_adversarial(count: int) -> None:
    print(f"\nadversarial texts, the {count} slowest, milliseconds of processor time")
    for length in (1_000_000, 2_000_000):
        print(f"\n{length:>9,} characters")
        for taken, box_format, opening, pattern in slowest(length, count):
            print(f"{1000 * taken:>9.1f}  {box_format}: {opening!r} and then {pattern}")
        print(f"\n{length:>9,} characters of one mark, whole or cut, that any format or model has")
        for taken, box_format, mark in slowest_marks(length, count):
            print(f"{1000 * taken:>9.1f}  {box_format}: {mark!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--slowest", type=int, default=5, help="adversarial texts to show")
    arguments = parser.parse_args()
    bench_boxes(arguments.completions, arguments.repeats)
    bench_formats(arguments.completions, arguments.repeats)
    bench_adversarial(arguments.slowest)


if __name__ == "__main__":
    main()
