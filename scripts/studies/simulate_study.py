"""How often do the intervals of a study hold the true difference, and how often is a difference found? By
simulation; writes its part of docs/metrics.md.

    python scripts/studies/simulate_study.py

Runs of two arms are drawn, whose metric on a patient is made of what the patient, the arm, the seed and chance add, so
that the true difference is known; then they are compared by the code of the study's report. It takes some minutes.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.numeric import Array
from grounding_rewards.report.tables import markdown_table
from grounding_rewards.study.statistics import ALPHA, difference, paired_difference, patient_weights
from scripts.docs.page_parts import marks_of, replace_part

_PART = """\
**Studies.** Two arms on {patients} patients, compared {draws:,} times: share of intervals that hold the true
difference, those of the *report* and those over *patients alone*, from one run an arm, as most papers have it; tests
with *p < {alpha:g}* without a difference; differences *found* where a formula for unpaired runs promises {power:.0%}.
Standard deviations: seed {seed_sd}, far apart {far_sd}; arm on a patient {arm_sd}, chance on a patient {chance_sd};
patient {patient_sd}; checkpoint of a pair {checkpoint_sd}.

{table}"""
MARKS = marks_of("studies")


class World(NamedTuple):
    """Standard deviations of what is added."""

    seed: float = 0.02
    arm: float = 0.05
    chance: float = 0.2
    patient: float = 0.3
    checkpoint: float = 0.0


_CHECKPOINT, _FAR = 0.05, 0.06
_PATIENTS = 128
#: How the lines of the table differ: seeds, and the world.
LINES = (
    ("2 seeds", 2, World()),
    ("3 seeds", 3, World()),
    ("5 seeds", 5, World()),
    ("10 seeds", 10, World()),
    ("5 seeds, far apart", 5, World(seed=_FAR)),
    ("3 pairs, far apart", 3, World(seed=_FAR, checkpoint=_CHECKPOINT)),
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
    own, other = draw_arms(rng, seeds, patients, world, gap)
    weights = patient_weights(patients, resamples=resamples, seed=int(rng.integers(1 << 30))) / patients
    one, two = weights @ own.T, weights @ other.T
    found = (paired_difference if world.checkpoint else difference)(one, two, patients=patients)
    intervals = (
        (found.low, found.high),
        np.quantile(one[1:, 0] - two[1:, 0], [0.025, 0.975]),
    )
    return [*(bool(low <= gap <= high) for low, high in intervals), found.p < ALPHA]


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
    parser.add_argument("--draws", type=int, default=1000, help="studies for each line; default: %(default)s")
    parser.add_argument("--resamples", type=int, default=200, help="draws of patients in each")
    parser.add_argument(
        "--output", type=Path, default=Path("docs/metrics.md"), help="page to write; default: %(default)s"
    )
    arguments = parser.parse_args()
    rows = []
    for name, seeds, world in LINES:
        gap = promised(seeds, _PATIENTS, world)
        shares = []
        for size in (0.0, gap):
            rng = np.random.default_rng(0)
            judged = [judge(rng, seeds, _PATIENTS, world, size, arguments.resamples) for _ in range(arguments.draws)]
            shares.append(np.mean(judged, axis=0))
        rows.append([name, *(f"{share:.3f}" for share in (*shares[0], shares[1][2]))])
        print(name, flush=True)
    usual = World()
    part = _PART.format(
        seed_sd=usual.seed,
        arm_sd=usual.arm,
        chance_sd=usual.chance,
        patient_sd=usual.patient,
        checkpoint_sd=_CHECKPOINT,
        far_sd=_FAR,
        draws=arguments.draws,
        patients=_PATIENTS,
        alpha=ALPHA,
        power=_POWER,
        table=markdown_table(["", "report", "patients alone", f"p < {ALPHA:g}", "found"], rows),
    )
    write_whole(arguments.output, replace_part(arguments.output.read_text(encoding="utf-8"), MARKS, part))


if __name__ == "__main__":
    main()
