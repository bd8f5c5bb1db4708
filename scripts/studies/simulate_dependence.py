"""How often are the interval and the p of image dependence right? By simulation; writes its part of docs/metrics.md.

    python scripts/studies/simulate_dependence.py

Images have one box each, and share their question with one, three or 39 others, or some of them with none. Models that
never look answer them, and one that looks a little. Every set is measured by the code of `evaluate` and `diff`. It
takes some minutes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.numeric import Array
from grounding_rewards.metrics.comparison import swap_p_values
from grounding_rewards.metrics.image_dependence import dependence_sums, image_dependence
from grounding_rewards.metrics.intervals import SIGNED, Estimate, jackknifed_difference, jackknifed_ratio
from grounding_rewards.metrics.prediction import Prediction
from scripts.docs.page_parts import markdown_table, marks_of, replace_part

#: By name how many images share each question.
GROUPS: Mapping[str, Sequence[int]] = {
    "20 groups of 2": [2] * 20,
    "10 groups of 4": [4] * 10,
    "one group of 40": [40],
    "16, 4, 4, 2, 2, 2, 2 and 8 alone": [16, 4, 4, 2, 2, 2, 2, *[1] * 8],
}
SIDE = 100.0
#: Spread of the middle of boxes; of the second model that never looks, and how far the third one looks.
_SPREAD, _STEADY, _LOOKS = 12.0, 4.0, 0.3

_PART = """\
**Image dependence.** 40 images, {draws:,} sets a row. Two models that never look, one of which writes nearly the same
box everywhere: share of intervals that exclude 0 and of p below 0.05, for one model and in `diff`; each should be 0.05
(standard error {error:.3f}). *Holds*: share of intervals that hold the image dependence of a model that looks a little;
it should be 0.95.

{table}"""
MARKS = marks_of("dependence")


def draw_boxes(rng: np.random.Generator, count: int, spread: float) -> Array:
    middle, size = rng.normal(SIDE / 2, spread, (count, 2)), rng.lognormal(3.2, 0.4, (count, 2))
    return np.hstack([middle - size / 2, middle + size / 2])


def draw_runs(rng: np.random.Generator, sizes: Sequence[int]) -> list[list[Prediction]]:
    """Three models' answers to the same images: two never look, the last one looks a little."""
    count = sum(sizes)
    questions = np.repeat(np.arange(len(sizes)), sizes).astype(str).tolist()
    gt, blind, steady = (draw_boxes(rng, count, spread) for spread in (_SPREAD, _SPREAD, _STEADY))
    looks = _LOOKS * gt + (1 - _LOOKS) * draw_boxes(rng, count, _SPREAD)
    return [
        [
            Prediction(f"{k:02d}", SIDE, SIDE, gt=gt[k : k + 1], gt_labels=["x"], pred=pred[k : k + 1], question=name)
            for k, name in enumerate(questions)
        ]
        for pred in (blind, steady, looks)
    ]


def excludes_0(estimate: Estimate) -> bool:
    return not estimate.low <= 0 <= estimate.high


def measure(sizes: Sequence[int], draws: int) -> list[float]:
    """The shares of a row of the table."""
    rng = np.random.default_rng(len(sizes))
    shares, looking = np.zeros((draws, 4)), []
    for k in range(draws):
        *runs, looks = draw_runs(rng, sizes)
        one = image_dependence(runs[0], seed=k)
        sums = [dependence_sums(run) for run in runs]
        before, after = (jackknifed_ratio(found.by_image, SIGNED) for found in sums)
        [p] = swap_p_values([sums[0].by_answer], [sums[1].by_answer], resamples=999, seed=k)
        change = jackknifed_difference(before, after).estimate
        shares[k] = excludes_0(one.dependence), one.p < 0.05, excludes_0(change), p < 0.05
        looking.append(jackknifed_ratio(dependence_sums(looks).by_image, SIGNED).estimate)
    # Nothing in its definition leans to one side, so that the mean over all sets is the truth.
    truth = np.mean([found.value for found in looking])
    return [*shares.mean(axis=0), float(np.mean([found.low <= truth <= found.high for found in looking]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/metrics.md"), help="default: %(default)s")
    parser.add_argument("--draws", type=int, default=2000, help="default: %(default)s")
    options = parser.parse_args()
    rows = [[name, *(f"{share:.3f}" for share in measure(sizes, options.draws))] for name, sizes in GROUPS.items()]
    header = ["images that share a question", "interval", "p", "`diff`: interval", "`diff`: p", "holds"]
    error = math.sqrt(0.95 * 0.05 / options.draws)
    part = _PART.format(draws=options.draws, error=error, table=markdown_table(header, rows))
    write_whole(options.output, replace_part(options.output.read_text(encoding="utf-8"), MARKS, part))


if __name__ == "__main__":
    main()
