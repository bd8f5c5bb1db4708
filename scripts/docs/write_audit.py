"""Write the tables of docs/audit.md: what can be gamed, what each matching does, which incentives there are.

    python scripts/docs/write_audit.py            about a minute
    python scripts/docs/write_audit.py --check    only say whether the page is up to date

Every number is computed here, from the rewards themselves, with fixed seeds. The page's own words stay as they are: a
table stands between the marks `<!-- name: begin -->` and `<!-- name: end -->`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grounding_rewards as gr
from grounding_rewards.audit.audit_images import images_of
from grounding_rewards.audit.run import Audit, audit
from grounding_rewards.data.dataset_columns import light_rows
from grounding_rewards.matching import MATCHERS
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import get_box_format
from grounding_rewards.prepare.load import SYNTHETIC, load_split
from grounding_rewards.rewards.f_beta import OVERLAPS
from scripts.docs.page_parts import markdown_table, marks_of, replace_part, write_or_check

PAGE = Path(__file__).resolve().parents[2] / "docs" / "audit.md"
#: The rewards of the page: heading, name and parameters.
REWARDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *((name, name, {}) for name in ("R1", "R2", "R3", "R4", "R5", "soft_f1", "pointing")),
    ("R1 tied", "R1", {"ranking": "tied"}),
    ("R2 geometric", "R2", {"product": "geometric"}),
)
#: The rewards with a column.
COLUMNS = ("R1", "R1 tied", "R2", "R3", "soft_f1")
#: Of the others, those that earn what R3 earns, to 0.01, as the page says.
AS_R3 = ("R4", "R2 geometric")
#: Honest answers of the page.
HONEST_ROWS = ("IoU 0.55, all found", "IoU 0.75, all found", "IoU 0.9, all found", "IoU 0.75, half found")
#: Crowded images that each claim about matching is tried on.
CROWDED = 12_000
_TAU = 0.5

Boxes = NDArray[np.float64]


# scripts


def played(images: int = 128) -> Audit:
    """The audit of the page."""
    box_format = get_box_format("qwen3-vl")
    rewards = {heading: gr.get_reward(name, box_format=box_format, **given) for heading, name, given in REWARDS}
    return audit(rewards, images_of(light_rows(load_split(SYNTHETIC, "test", max_images=images))), box_format)


def gamed(done: Audit) -> str:
    """What each script with a finding earns, bold where it should not; scripts that agree in that share a row."""
    names = list(dict.fromkeys(one.script for one in done.findings if one.reward in COLUMNS))
    grouped: dict[tuple[Any, ...], list[str]] = {}
    for script in (one for one in done.scripts if one.name in names):
        cells = []
        for name in COLUMNS:
            one = done.of(name, script.name)
            cells.append((one.mean.value if one.finding else math.nan, one.gain if one.finding == "pays" else math.nan))
        key = (script.base, tuple(f"{value:.2f} {gain:.2f}" for value, gain in cells))
        grouped.setdefault(key, []).append(script.name)
    rows = []
    for scripts in grouped.values():
        cells = []
        for name in COLUMNS:
            all_of = [done.of(name, one) for one in scripts]
            low, high = (f"{most(one.mean.value for one in all_of):.2f}" for most in (min, max))
            told = f" ({all_of[0].gain:+.2f})" if all_of[0].finding == "pays" else ""
            said = low if low == high else f"{low}–{high}"
            cells.append(f"**{said}**{told}" if all_of[0].finding else said)
        said_of = scripts[0] if len(scripts) == 1 else f"{scripts[0]}, and {len(scripts) - 1} more of this kind"
        rows.append([said_of, *cells])
    return markdown_table(["scripted answer", *COLUMNS], rows)


def check_alike(done: Audit) -> None:
    """What the page says of the rewards that are alike.

    Raises:
        ValueError: one of them does not earn what R3 earns, to 0.01.
    """
    for name in AS_R3:
        far = [one.name for one in done.scripts if abs(done.of(name, one.name).mean.value - _r3(done, one.name)) > 0.01]
        if far:
            raise ValueError(f"Expected {name} to earn what R3 earns, got another reward of {far}. Give it a column.")


def _r3(done: Audit, script: str) -> float:
    return done.of("R3", script).mean.value


def honest(done: Audit) -> str:
    """What honest answers earn, and the best of the blind ones."""
    rows = [
        [name, *(f"{done.of(reward, f'honest: {name}').mean.value:.3f}" for reward in COLUMNS)] for name in HONEST_ROWS
    ]
    blind = [script.name for script in done.scripts if script.kind == "blind" and not script.image_set]
    best = (max(done.of(name, one).mean.value for one in blind) for name in COLUMNS)
    rows.append(["best blind one", *(f"{value:.3f}" for value in best)])
    return markdown_table(["scripted answer", *COLUMNS], rows)


# matching


@lru_cache(maxsize=1)
def crowded_images(count: int, seed: int = 0) -> list[tuple[Boxes, Boxes]]:
    """Predictions and references that all overlap each other."""
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(count):
        refs, preds = rng.integers(2, 5), rng.integers(1, 5)
        corner = rng.uniform(0, 0.45, (refs + preds, 2))
        side = rng.uniform(0.7, 1.3, (refs + preds, 2))
        boxes = np.concatenate([corner, corner + side], axis=1)
        images.append((boxes[refs:], boxes[:refs]))
    return images


@lru_cache(maxsize=1)
def with_junk(images: int, seed: int = 1) -> list[tuple[Boxes, Boxes, Boxes]]:
    """To each image a box that reaches τ with no reference, but overlaps some."""
    rng = np.random.default_rng(seed)
    made = []
    for pred, gt in crowded_images(images):
        while True:
            corner = rng.uniform(-0.4, 0.8, 2)
            junk = np.concatenate([corner, corner + rng.uniform(0.5, 1.3, 2)])
            if 0 < pairwise_iou(junk[None], gt).max() < _TAU:
                break
        made.append((pred, np.concatenate([pred, junk[None]]), gt))
    return made


def junk_helps(reward: str, matching: str, images: int = CROWDED) -> tuple[int, float]:
    """On how many of the images a junk box raises the reward, and by how much at most."""
    scorer = gr.get_reward(reward, matching=matching)
    cases = with_junk(images)
    without = np.array(scorer.score_many([case[0] for case in cases], [case[2] for case in cases]))
    beside = np.array(scorer.score_many([case[1] for case in cases], [case[2] for case in cases]))
    gain = beside - without
    return int((gain > 1e-9).sum()), float(max(gain.max(), 0.0))


def better_box_costs(reward: str, matching: str, images: int = CROWDED) -> tuple[int, int, float]:
    """How many boxes cost when they are replaced by one that fits every reference as well or better, of how many."""
    scorer = gr.get_reward(reward, matching=matching)
    rng = np.random.default_rng(2)
    before, after, refs = [], [], []
    for pred, gt in crowded_images(images):
        target = gt[rng.integers(len(gt))]
        moved = pred[0] + rng.uniform(0, 1, 4) * (target - pred[0])
        if (pairwise_iou(moved[None], gt) >= pairwise_iou(pred[:1], gt)).all():
            before.append(pred)
            after.append(np.concatenate([moved[None], pred[1:]]))
            refs.append(gt)
    loss = np.array(scorer.score_many(before, refs)) - np.array(scorer.score_many(after, refs))
    return int((loss > 1e-9).sum()), len(loss), float(max(loss.max(), 0.0))


def half_box() -> dict[str, tuple[float, float]]:
    """Reward of R5 under each matching before and after the left half of the first finding is added."""
    gt = [[0, 0, 10, 10], [7.1, 0, 17.1, 10]]
    first, second = [3.3, 0, 13.3, 10], [0, 0, 4.9, 10]
    return {
        matching: tuple(gr.get_reward("R5", matching=matching).score(pred, gt) for pred in ([first], [first, second]))
        for matching in MATCHERS
    }


def matching() -> str:
    """What each matching does on crowded images."""
    halves = half_box()
    rows = []
    for name in MATCHERS:
        helped = [junk_helps(reward, name) for reward in ("R3", "R5")]
        worse = [better_box_costs(reward, name) for reward in ("R3", "R5")]
        rows.append(
            [
                name,
                *(f"{count:,} ({most:+.2f})" if count else "0" for count, most in helped),
                *(f"{count:,} ({-most:.2f})" if count else "0" for count, _, most in worse),
                "{:.2f} → {:.2f}".format(*halves[name]),
            ]
        )
    return markdown_table(
        [
            "matching",
            "junk raises R3",
            "junk raises R5",
            "a better box lowers R3",
            "a better box lowers R5",
            "R5, half of a finding added",
        ],
        rows,
    )


# incentives


def omission(reward: str, loose: float = 0.5, others: int = 9, **given: Any) -> tuple[float, float]:
    """The reward with and without one loose box beside perfect ones."""
    gt = [[20.0 * k, 0.0, 20.0 * k + 10, 10.0] for k in range(others + 1)]
    with_it = [[*gt[0][:3], 10 * loose], *gt[1:]]
    scorer = gr.get_reward(reward, **given)
    return scorer.score(with_it, gt), scorer.score(with_it[1:], gt)


def omissions() -> str:
    """What leaving out a box at IoU 0.5 does beside nine perfect ones."""
    rows = []
    tried = [one for one in REWARDS if one[0] in ("R2", "R3", "R5")]
    for heading, name, given in (*tried, ("R3, β 0.5", "R3", {"beta": 0.5})):
        with_it, without = omission(name, **given)
        rows.append([heading, f"{with_it:.3f}", f"{without:.3f}", "yes" if without > with_it else "no"])
    return markdown_table(["reward", "ten boxes, one at IoU 0.5", "the nine perfect ones", "leaving it out pays"], rows)


def guesses(beta: float, k: int) -> tuple[float, float]:
    """The expected R3 of one guess, and of all, where a finding is in one of k places with equal probability."""
    scorer = gr.get_reward("R3", beta=beta)
    places = [[20.0 * one, 0.0, 20.0 * one + 10, 10.0] for one in range(k)]
    return scorer.score(places[:1], places[:1]) / k, scorer.score(places, places[:1])


def exclusive_guesses() -> str:
    """What k guesses of k places gain over one."""
    rows = []
    for beta in (1.5, 1.0, 0.5):
        gains = [(after - before) for before, after in (guesses(beta, k) for k in (2, 5))]
        rows.append([f"R3, β {beta:g}", *(f"{gain:+.2f}" for gain in gains)])
    return markdown_table(["", "2 places", "5 places"], rows)


def near_misses() -> str:
    """What a box of the right size beside a finding of 40 pixels earns, and the whole image."""
    gt, near, whole = [[400, 400, 440, 440]], [[450, 400, 490, 440]], [[0, 0, 1024, 1024]]
    scorers = {overlap: gr.get_reward("soft_f1", overlap=overlap) for overlap in OVERLAPS}
    rows = [[f"`{name}`", *(f"{one.score(pred, gt):.4f}" for pred in (near, whole))] for name, one in scorers.items()]
    return markdown_table(["`soft_f1` with `overlap`", "10 pixels beside it", "the whole image"], rows)


def break_even(bonus: float, *, scaled: bool, groups: int = 40_000, size: int = 8, seed: int = 0) -> float:
    """The probability of a finding from which writing a box is reinforced rather than saying that there is nothing.

    A model answers `nothing` half of the time, and where there is a finding its boxes hit two times out of three, at an
    IoU from 0.5 to 1. Advantages are those of GRPO in groups of 8, divided by their spread or not.
    """
    rng = np.random.default_rng(seed)
    silent = rng.random((groups, size)) < 0.5
    hit = rng.random((groups, size)) < 2 / 3
    positive = np.where(silent | ~hit, 0.0, rng.uniform(0.5, 1.0, (groups, size)))
    negative = np.where(silent, bonus, 0.0)
    drawn_to_boxes = _advantage_of(positive, ~silent, scaled=scaled)
    drawn_to_silence = _advantage_of(negative, silent, scaled=scaled)
    return drawn_to_silence / (drawn_to_boxes + drawn_to_silence)


def _advantage_of(rewards: Boxes, chosen: NDArray[np.bool_], *, scaled: bool) -> float:
    advantage = rewards - rewards.mean(axis=1, keepdims=True)
    if scaled:
        # As TRL: the spread of a sample, and a small number against a division by 0.
        advantage = advantage / (rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4)
    return float((advantage * chosen).sum() / len(rewards))


def break_evens() -> str:
    bonuses = (0.05, 0.2, 0.5, 1.0)
    rows = [
        [f"`scale_rewards: {name}`", *(f"{break_even(bonus, scaled=scaled):.2f}" for bonus in bonuses)]
        for name, scaled in (("group", True), ("none", False))
    ]
    return markdown_table(["probability of a finding", *(f"`no_box_bonus` {bonus:g}" for bonus in bonuses)], rows)


def tables() -> dict[str, Callable[[], str]]:
    """What stands between the marks of the page."""
    done = played()
    check_alike(done)
    return {
        "honest": lambda: honest(done),
        "gamed": lambda: gamed(done),
        "matching": matching,
        "omission": omissions,
        "guesses": exclusive_guesses,
        "near misses": near_misses,
        "break-even": break_evens,
    }


def filled(page: str) -> str:
    """The page with its tables computed.

    Raises:
        ValueError: a table has no marks on the page.
    """
    for name, table in tables().items():
        page = replace_part(page, marks_of(name), table())
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PAGE, help="the page; default: docs/audit.md")
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit with 1 where the page is out of date"
    )
    options = parser.parse_args()
    page = filled(options.output.read_text(encoding="utf-8"))
    sys.exit(write_or_check(options.output, page, check=options.check))


if __name__ == "__main__":
    main()
