"""Folders of studies as runs leave them, without training: drawn answers, better or worse as asked."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from grounding_rewards.study.results import write_json

SIDE = 200


class Arm(dict):
    """`error`: of the edges of a box, in its sizes; `junk`: false boxes an image; `spread`: between seeds."""

    def __init__(self, name: str, start: str = "strong", **more: Any) -> None:
        defaults = {"error": 0.1, "junk": 0.1, "spread": 0.01, "role": "arm", "reward": {"name": name, "kwargs": {}}}
        super().__init__(name=name, start=start, **{**defaults, "zero": 0.2, **more})


ARMS = (
    Arm("R3", spread=0.005),
    Arm("R1", error=0.2),
    Arm("soft_f1", error=0.03, junk=0.05, spread=0.003, zero=0.0),
    Arm("constant", error=0.15, role="control", zero=1.0),
    Arm("sft", error=0.04, spread=0.002, role="control", reward=None),
    Arm("R3", "weak", error=0.3, zero=0.7),
    Arm("soft_f1", "weak", error=0.2, zero=0.05),
    Arm(
        "scheduled",
        "weak",
        error=0.21,
        zero=0.2,
        reward={"name": "R3", "kwargs": {"iou_threshold": {"schedule": "linear", "from": 0.1, "to": 0.5, "over": 0.4}}},
    ),
)


def images(seed: int, count: int = 30, name: str = "image") -> list[dict[str, Any]]:
    """References of a set; two images a patient, a quarter without a finding."""
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        boxes = _boxes(rng, 0 if k % 4 == 3 else int(rng.integers(1, 3)))
        about = {"id": f"{name}-{k}", "patient": f"{name}-p{k // 2}", "width": SIDE, "height": SIDE}
        made.append({**about, "boxes": boxes, "labels": ["mass"] * len(boxes)})
    return made


def answers(rng: np.random.Generator, rows: Sequence[Mapping[str, Any]], error: float, junk: float) -> list[str]:
    """Texts in qwen3-vl, on a scale of 1000."""
    texts = []
    for row in rows:
        boxes = [_moved(rng, box, error) for box in row["boxes"]] + _boxes(rng, int(rng.poisson(junk)))
        scaled = [[round(1000 * edge / SIDE) for edge in box] for box in boxes]
        texts.append(json.dumps([{"bbox_2d": box, "label": "mass"} for box in scaled]))
    return texts


def write_study(
    folder: Path,
    arms: Sequence[Arm] = ARMS,
    *,
    seeds: int = 3,
    steps: Sequence[int] = (10, 20),
    reference: str = "R3",
    metric: str = "mean_iou",
    count: int = 30,
) -> Path:
    """Write the folder of a finished study, and give it back."""
    sets = {"test": images(1, count), "other": images(2, count, "elsewhere")}
    starts = {arm["start"]: 0.2 if arm["start"] == "strong" else 0.4 for arm in arms}
    plan = {
        "schema": 1,
        "name": "fake",
        "declared": {"primary": [{"metric": metric, "set": "test"}], "equivalence": 0.02, "reference": reference},
        "checkpoints": len(steps),
        "sets": {name: {"dataset": "synthetic", "split": "test"} for name in sets},
        "starts": {name: {"model": "tiny", "kind": name} for name in starts},
        "arms": [{"arm": arm["name"], "start": arm["start"], "role": arm["role"]} for arm in arms],
        "runs": {run_name(arm, k): "fingerprint" for arm in arms for k in range(seeds)},
    }
    write(folder / "study.yaml", yaml.safe_dump(plan, sort_keys=False))
    write(folder / "images.json", {"sets": sets})
    for number, (start, error) in enumerate(starts.items()):
        rng = np.random.default_rng(100 + number)
        said = {name: {"answers": answers(rng, rows, error, 0.5)} for name, rows in sets.items()}
        write_json(folder / "starts" / f"{start}.json.gz", {"step": 0, "sets": said})
    for number, arm in enumerate(arms):
        for seed in range(seeds):
            rng = np.random.default_rng([number, seed])
            error = max(0.0, arm["error"] + arm["spread"] * rng.normal())
            begun = starts[arm["start"]]
            checkpoints = []
            for k, step in enumerate(steps, 1):
                now = begun + (error - begun) * k / len(steps)
                said = {name: {"answers": answers(rng, rows, now, arm["junk"])} for name, rows in sets.items()}
                checkpoints.append({"step": step, "sets": said})
            write_json(folder / "results" / f"{run_name(arm, seed)}.json.gz", result(arm, seed, checkpoints))
    return folder


def result(arm: Arm, seed: int, checkpoints: list[dict[str, Any]]) -> dict[str, Any]:
    """A result as `study` writes it."""
    last = checkpoints[-1]["step"]
    curve: dict[str, Any] = {"step": [last // 2, last], "loss": [0.1, 0.05]}
    if arm["reward"]:
        curve |= {"reward": [0.3, 0.4], "frac_reward_zero_std": [arm["zero"], arm["zero"]], "mean_iou": [0.4, None]}
    return {
        **{"schema": 1, "study": "fake", "box_format": "qwen3-vl", "versions": {"torch": "2"}},
        **{"arm": arm["name"], "start": arm["start"], "seed": seed, "role": arm["role"], "reward": arm["reward"]},
        **{"kind": "train" if arm["reward"] else "sft", "curve": curve},
        **{"checkpoints": checkpoints, "fingerprint": "fingerprint"},
    }


def run_name(arm: Arm, seed: int) -> str:
    return f"{arm['start']}--{arm['name']}--seed{seed}"


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def _boxes(rng: np.random.Generator, count: int) -> list[list[float]]:
    corners, sizes = rng.uniform(0, 120, (count, 2)), rng.uniform(20, 70, (count, 2))
    return [list(map(float, box)) for box in np.hstack([corners, corners + sizes]).round(1)]


def _moved(rng: np.random.Generator, box: Sequence[float], error: float) -> list[float]:
    x1, y1, x2, y2 = box
    size = np.array([x2 - x1, y2 - y1])
    shift = rng.normal(0, error, 2) * size
    return [float(min(max(edge, 0), SIDE)) for edge in (x1 + shift[0], y1 + shift[1], x2 + shift[0], y2 + shift[1])]
