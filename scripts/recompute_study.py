"""Recompute every number of a kept study from its completions, by other code than the package's.

  python scripts/recompute_study.py docs/study/drawn

Boxes are read by `parse_boxes`; all else is done again in the plainest way: overlaps by torchvision, pairs by scipy,
image dependence by dealing every answer to every other image, Student's t by scipy. Each number of findings.csv is
compared, of the metrics in METRICS and of the recall of each finding: values, differences from the reference arm and
from the initial checkpoint, their intervals and p; of an arm with a single run, whose intervals are over patients,
values and differences alone. Exits with 1 where one differs by more than its last digit.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from scipy.optimize import linear_sum_assignment
from scipy.stats import t
from torchvision.ops import box_iou

from grounding_rewards.parsing import parse_boxes

METRICS = ("mean_iou", "f1_50", "precision_50", "recall_50", "hallucination_rate", "image_dependence", "placing")
#: findings.csv has four decimals.
TOLERANCE = 1.5e-4


def read_file(path: Path) -> Any:
    """A JSON file, compressed or not."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def read_answers(rows: list[dict[str, Any]], texts: list[str], box_format: Any) -> tuple[list[np.ndarray], list[int]]:
    """The boxes of each answer in the pixels of the image, ``(n, 4)``, and the number of its broken boxes."""
    answers, broken = [], []
    for row, text in zip(rows, texts, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = parse_boxes(
                text,
                box_format or row["box_format"],
                width=row["width"],
                height=row["height"],
                resized_width=row.get("resized_width"),
                resized_height=row.get("resized_height"),
            )
        answers.append(parsed.boxes)
        broken.append(len(parsed.broken))
    return answers, broken


def largest_sum(iou: np.ndarray) -> float:
    """The largest sum of the overlaps of pairs of boxes, one to one."""
    return float(iou[linear_sum_assignment(iou, maximize=True)].sum())


def found_references(iou: np.ndarray) -> np.ndarray:
    """The reference boxes that are overlapped by half: as many as there can be, then those that are overlapped most."""
    worth = np.where(iou >= 0.5, len(iou) + iou, 0.0)
    box, reference = linear_sum_assignment(worth, maximize=True)
    return reference[worth[box, reference] > 0]


def overlaps(answer: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """IoU of every box with every reference box; a box whose corners are exchanged or meet has none."""
    iou = box_iou(torch.from_numpy(answer), torch.from_numpy(reference)).numpy()
    iou[(answer[:, 2:] <= answer[:, :2]).any(axis=1)] = 0.0
    return iou


def dependence(answers: list[np.ndarray], rows: list[dict[str, Any]], groups: dict[Any, list[int]]) -> float:
    """Mean IoU of the answers, less what the others' answers reach on the same image, over images that have others."""
    scale = [np.array([row["width"], row["height"]] * 2, dtype=np.float64) for row in rows]
    above = boxes = 0.0
    for members in groups.values():
        references = [np.array(rows[k]["boxes"], dtype=np.float64).reshape(-1, 4) / scale[k] for k in members]
        count = len(references[0])
        if len(members) < 2 or any(len(reference) != count for reference in references):
            continue
        if not count:
            continue
        relative = [answers[k] / scale[k] for k in members]
        sizes = np.array([len(answer) for answer in relative])
        ends = np.cumsum(sizes)
        every = overlaps(np.concatenate(relative), np.concatenate(references))
        credit = np.zeros((len(members), len(members)))
        for image in range(len(members)):
            columns = every[:, image * count : (image + 1) * count]
            for answer in range(len(members)):
                iou = columns[ends[answer] - sizes[answer] : ends[answer]]
                credit[image, answer] = iou.max() if 1 in iou.shape and iou.size else largest_sum(iou)
        own = np.diag(credit)
        above += float((own - (credit.sum(axis=1) - own) / (len(members) - 1)).sum())
        boxes += count * len(members)
    return above / boxes if boxes else float("nan")


def measure(rows: list[dict[str, Any]], texts: list[str], box_format: Any) -> dict[str, float]:
    """Every metric of a model's answers to a set of images."""
    answers, broken = read_answers(rows, texts, box_format)
    total = hits = predicted = wanted = normal = hallucinated = 0.0
    by_count: dict[Any, list[int]] = defaultdict(list)
    by_labels: dict[Any, list[int]] = defaultdict(list)
    found_by_label: dict[str, list[bool]] = defaultdict(list)
    for number, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        reference = np.array(row["boxes"], dtype=np.float64).reshape(-1, 4)
        iou = overlaps(answer, reference)
        found = found_references(iou)
        for place, label in enumerate(row["labels"]):
            found_by_label[label].append(place in found)
        total += largest_sum(iou)
        hits += len(found)
        predicted += len(answer) + broken[number]
        wanted += len(reference)
        normal += not len(reference)
        hallucinated += not len(reference) and len(answer) + broken[number] > 0
        by_count[len(reference)].append(number)
        by_labels[tuple(sorted(row["labels"]))].append(number)
    recalls = {f"recall_50 of {label}": float(np.mean(is_found)) for label, is_found in found_by_label.items()}
    return {
        **recalls,
        "mean_iou": total / wanted,
        "f1_50": 2 * hits / (predicted + wanted),
        "precision_50": hits / predicted if predicted else float("nan"),
        "recall_50": hits / wanted,
        "hallucination_rate": hallucinated / normal if normal else float("nan"),
        "image_dependence": dependence(answers, rows, by_count),
        "placing": dependence(answers, rows, by_labels),
    }


def student(values: list[float]) -> dict[str, float]:
    """The mean of independent values with its 95 % interval, and the p of Student's test against 0."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return {"value": mean}
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = float(t.ppf(0.975, len(values) - 1)) * error
    if error > 1e-12:
        p = float(2 * t.sf(abs(mean) / error, len(values) - 1))
    else:
        # Nothing varies: no difference at all is certain, and of another one there is no test.
        p = 1.0 if abs(mean) < 1e-12 else float("nan")
    return {"value": mean, "low": mean - reach, "high": mean + reach, "p": p}


def units(values: dict[tuple[str, int], float]) -> list[float]:
    """The means of each checkpoint's runs; every run, where all began at one checkpoint."""
    checkpoints = sorted({checkpoint for checkpoint, _ in values})
    if len(checkpoints) == 1:
        return list(values.values())
    return [float(np.mean([v for (name, _), v in values.items() if name == checkpoint])) for checkpoint in checkpoints]


def recompute(folder: Path) -> dict[tuple[str, str, str, str], dict[str, float]]:
    """By start, set, metric and arm the columns of findings.csv; the arm of an initial checkpoint is empty."""
    plan = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    sets = read_file(folder / "images.json")["sets"]
    kind = {name: start["kind"] for name, start in plan["starts"].items()}
    reference = plan["declared"]["reference"]
    results = [read_file(path) for path in sorted((folder / "results").glob("*.json.gz"))]
    box_format = results[0]["box_format"]
    # By start, set, metric and arm the value of each run: checkpoint and seed.
    values: dict[tuple[str, str, str, str], dict[tuple[str, int], float]] = defaultdict(dict)
    initial: dict[tuple[str, str, str], float] = {}
    begun = {result["start"] for result in results}
    models = [(result["start"], result["arm"], result["seed"], result["checkpoints"][-1]) for result in results]
    models += [(name, "", 0, read_file(folder / "starts" / f"{name}.json.gz")) for name in sorted(begun)]
    for number, (start, arm, seed, model) in enumerate(models, 1):
        print(f"\r{number} of {len(models)} models", end="", file=sys.stderr, flush=True)
        for name, rows in sets.items():
            for metric, value in measure(rows, model["sets"][name]["answers"], box_format).items():
                values[kind[start], name, metric, arm][start, seed] = value
                if not arm:
                    initial[start, name, metric] = value
    print(file=sys.stderr)
    found: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for (start, name, metric, arm), runs in values.items():
        row = {"value": float(np.mean(units(runs)))}
        if arm:
            changes = {run: value - initial[run[0], name, metric] for run, value in runs.items()}
            row |= {f"against_start_{key}": number for key, number in student(units(changes)).items()}
        if arm and arm != reference:
            partners = values[start, name, metric, reference]
            gains = {run: value - partners[run] for run, value in runs.items() if run in partners}
            row |= {f"against_reference_{key}": number for key, number in student(units(gains)).items()}
        found[start, name, metric, arm] = row
    return found


def differences(findings: Path, recomputed: dict[tuple[str, str, str, str], dict[str, float]]) -> tuple[int, list[str]]:
    """How many numbers of findings.csv were compared, and a sentence for each that differs."""
    compared, different = 0, []
    with findings.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            place = (row["start"], row["set"], row["metric"], row["arm"])
            for column, value in recomputed.get(place, {}).items():
                if not row[column]:
                    continue
                compared += 1
                if not abs(float(row[column]) - value) <= TOLERANCE:
                    different.append(f"{', '.join(place)}: {column} {row[column]}, recomputed {value:.4f}")
    return compared, different


def main() -> int:
    """Recompute the study of the command line, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a kept study, such as docs/study/drawn")
    folder = parser.parse_args().folder
    compared, different = differences(folder / "findings.csv", recompute(folder))
    print(*different, sep="\n")
    print(f"{compared} numbers of {', '.join(METRICS)} compared, {len(different)} differ by more than {TOLERANCE:g}")
    return int(bool(different) or not compared)


if __name__ == "__main__":
    sys.exit(main())
