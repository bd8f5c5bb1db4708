"""What a finished training leaves of its log: a thin curve and the compute that it took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grounding_rewards.logs.run_log import CLOSING

#: At most so many points of a curve are kept, each the mean over its steps.
POINTS = 50

_OF_TRAINER = ("reward", "reward_std", "frac_reward_zero_std", "entropy", "loss", "mean_token_accuracy")
_OF_REWARD = (
    *("mean_iou", "f_beta", "precision", "recall", "boxes", "hallucination_rate"),
    *("status/truncated", "status/unparseable"),
)


def thin_curve(rows: Sequence[Mapping[str, Any]], equivalent: float = 1.0, points: int = POINTS) -> dict[str, Any]:
    """The curves of a log: `step`, the last of those that a point is the mean of, and the metrics at it.

    The metrics of a reward stand under their own names, without that of the reward; of several rewards, those of the
    first.

    Args:
        rows: entries of the log; the closing one, of the whole run, is left out.
        equivalent: steps of GRPO that a step costs as much as.
        points: at most so many.

    >>> thin_curve([{"step": 1, "reward": 0.2}, {"step": 2, "reward": 0.3}], points=1)
    {'step': [2], 'reward': [0.25]}
    """
    rows = [row for row in rows if CLOSING not in row]
    keys = dict.fromkeys(_OF_TRAINER)
    found = {name: name for name in keys if any(name in row for row in rows)}
    for name in _OF_REWARD:
        for row in rows[:1]:
            for key in row:
                if key.endswith(f"/{name}") and key.removesuffix(f"/{name}").count("/") == 0:
                    found.setdefault(name, key)
    size = max(1, math.ceil(len(rows) / points))
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    curve: dict[str, Any] = {"step": [round(part[-1]["step"] * equivalent) for part in parts]}
    for name, key in found.items():
        curve[name] = [_mean([row.get(key) for row in part]) for part in parts]
    return curve


def compute_of(rows: Sequence[Mapping[str, Any]], sequences: int, from_step: int) -> dict[str, Any]:
    """What a run cost: seconds, steps, and the sequences and tokens that it learned from.

    Args:
        rows: entries of the log.
        sequences: that a step learns from.
        from_step: from which the last attempt went on; the runtime of a supervised run is known of that one alone.
    """
    steps = max(row.get("step", 0) for row in rows)
    times = [row["step_time"] for row in rows if row.get("step_time") is not None]
    if times:
        seconds = sum(times) * steps / len(times)
    else:
        runtime = next((row[CLOSING] for row in reversed(rows) if CLOSING in row), 0.0)
        seconds = runtime * steps / max(1, steps - from_step)
    tokens = max((row["num_tokens"] for row in rows if row.get("num_tokens") is not None), default=0)
    return {
        "seconds": round(seconds, 1),
        "steps": steps,
        "completions": steps * sequences if times else 0,
        "sequences": steps * sequences,
        "tokens": int(tokens),
    }


def _mean(values: Sequence[Any]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return round(sum(known) / len(known), 4) if known else None
