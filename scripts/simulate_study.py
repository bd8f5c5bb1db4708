"""How often do the intervals of a study hold the true difference, and how often is a difference found? By simulation.

    python scripts/simulate_study.py --output docs/simulated_study.md

Runs of two arms are drawn, whose metric on a patient is made of what the patient, the arm, the seed and chance add, so
that the true difference is known; then they are compared by the code of the study's report. It takes some minutes.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.report.tables import markdown_table
from grounding_rewards.study.statistics import ALPHA, difference, paired_difference, patient_weights

_PAGE = """\
# Intervals of studies, simulated

Two arms whose runs differ by the seed (standard deviation {seed_sd}), in what an arm does to each patient ({arm_sd})
and in what a run does on a patient by chance ({chance_sd}); patients differ by {patient_sd}. So it is with IoUs of a
small model. Each line: {draws:,} drawn studies, {resamples} draws of patients in each. Made by

    python scripts/simulate_study.py --output docs/simulated_study.md

Of 95 % intervals of the difference of two arms, 95 of 100 should hold it; one standard error of a share of 0.95 among
{draws:,} is {error:.3f}. *Report*: what a study reports. *Crossed percentiles*: of the crossed bootstrap as it is, of
seeds and patients. *Patients alone*: one run an arm, and a bootstrap of the patients, as most papers have it: it says
how these two models compare, not how their rewards do. *Seeds alone*: Welch's test of the runs on these very images.
Pairs of runs begin from the same checkpoint, checkpoints differ by {checkpoint_sd}.

{coverage}

Without a difference, the share of studies that find one should be {alpha:g} or less, and that of p < 0.001, which Holm
may ask for, 0.001. With one, it is the power, beside what a formula that takes variances for known promises for a
difference of that size, of runs that are not paired: {power:.0%}.

{tests}
"""


class World(NamedTuple):
    """Standard deviations of what is added."""

    seed: float = 0.02
    arm: float = 0.05
    chance: float = 0.2
    patient: float = 0.3
    checkpoint: float = 0.0


#: How the lines of the tables differ: seeds, patients, and the world.
LINES = (
    ("2 seeds, 128 patients", 2, 128, World()),
    ("3 seeds, 128 patients", 3, 128, World()),
    ("5 seeds, 128 patients", 5, 128, World()),
    ("10 seeds, 128 patients", 10, 128, World()),
    ("5 seeds, 40 patients", 5, 40, World()),
    ("5 seeds, 128 patients, seeds alike", 5, 128, World(seed=0.0)),
    ("5 seeds, 128 patients, seeds far apart", 5, 128, World(seed=0.06)),
    ("2 pairs, 128 patients, seeds far apart", 2, 128, World(seed=0.06, checkpoint=0.05)),
    ("3 pairs, 40 patients", 3, 40, World(checkpoint=0.05)),
    ("3 pairs, 128 patients, seeds far apart", 3, 128, World(seed=0.06, checkpoint=0.05)),
)
_POWER = 0.8


def draw_arms(rng: np.random.Generator, seeds: int, patients: int, world: World, gap: float) -> tuple[Array, Array]:
    """Metrics of the runs of two arms on each patient, ``(seeds, patients)`` each; the first is better by the gap."""
    hard = rng.normal(0, world.patient, patients) + rng.normal(0, world.checkpoint, (seeds, 1))

    def arm(mean: float) -> Array:
        own = hard + rng.normal(0, world.arm, patients)
        return mean + own + rng.normal(0, world.seed, (seeds, 1)) + rng.normal(0, world.chance, (seeds, patients))

    return arm(gap), arm(0.0)


def judge(rng: np.random.Generator, seeds: int, patients: int, world: World, gap: float, resamples: int) -> list[bool]:
    """Which intervals hold the true difference, and whether the report finds one."""
    from scipy.stats import ttest_ind

    own, other = draw_arms(rng, seeds, patients, world, gap)
    weights = patient_weights(patients, resamples=resamples, seed=int(rng.integers(1 << 30))) / patients
    one, two = weights @ own.T, weights @ other.T
    found = (paired_difference if world.checkpoint else difference)(one, two, patients=patients)
    places = [rng.integers(0, seeds, (resamples, seeds)) for _ in range(2)]
    crossed = [np.take_along_axis(table[1:], place, 1).mean(1) for table, place in zip((one, two), places, strict=True)]
    welch = ttest_ind(own.mean(1), other.mean(1), equal_var=False).confidence_interval()
    intervals = (
        (found.low, found.high),
        np.quantile(crossed[0] - crossed[1], [0.025, 0.975]),
        np.quantile(one[1:, 0] - two[1:, 0], [0.025, 0.975]),
        (welch.low, welch.high),
    )
    return [*(bool(low <= gap <= high) for low, high in intervals), found.p < ALPHA, found.p < 0.001]


def promised(seeds: int, patients: int, world: World) -> float:
    """The difference that the formula promises to find."""
    from scipy.stats import t

    between, of_patients, freedom = (
        world.seed**2 + world.chance**2 / patients,
        2 * world.arm**2 / patients,
        2 * seeds - 2,
    )
    reach = t.ppf(1 - ALPHA / 2, freedom) + t.ppf(_POWER, freedom)
    return float(reach * math.sqrt(2 * between / seeds + of_patients))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000, help="studies for each line")
    parser.add_argument("--resamples", type=int, default=200, help="draws of patients in each")
    parser.add_argument("--output", type=Path, help="write the page into this file")
    arguments = parser.parse_args()
    coverage, tests = [], []
    for name, seeds, patients, world in LINES:
        gap = promised(seeds, patients, world)
        shares = []
        for size in (0.0, gap):
            rng = np.random.default_rng(0)
            judged = [judge(rng, seeds, patients, world, size, arguments.resamples) for _ in range(arguments.draws)]
            shares.append(np.mean(judged, axis=0))
        coverage.append([name, *(f"{share:.3f}" for share in shares[0][:4])])
        tests.append([name, f"{shares[0][4]:.3f}", f"{shares[0][5]:.4f}", f"{gap:.3f}", f"{shares[1][4]:.3f}"])
        print(name, flush=True)
    usual = World()
    page = _PAGE.format(
        seed_sd=usual.seed,
        arm_sd=usual.arm,
        chance_sd=usual.chance,
        patient_sd=usual.patient,
        checkpoint_sd=0.05,
        draws=arguments.draws,
        resamples=arguments.resamples,
        error=math.sqrt(0.95 * 0.05 / arguments.draws),
        alpha=ALPHA,
        power=_POWER,
        coverage=markdown_table(["", "report", "crossed percentiles", "patients alone", "seeds alone"], coverage),
        tests=markdown_table(["", "found without a difference", "p < 0.001", "difference", "found with it"], tests),
    )
    print(page)
    if arguments.output is not None:
        write_whole(arguments.output, page)


if __name__ == "__main__":
    main()
