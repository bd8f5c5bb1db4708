"""Write the tables and pictures of docs/published_rewards.md: what our rewards and others' pay for on the same boxes.

    python scripts/docs/write_published_rewards.py --boxes BBox_List_2017.csv --predictions general_grounding.jsonl
    python scripts/docs/write_published_rewards.py … --check    only say whether the page is up to date

``--boxes`` is NIH's own list of 984 boxes; ``--predictions`` is JSON lines of ``boxes`` and ``pred``, pixel boxes of a
general model: only their *errors* are taken, and moved onto NIH's boxes. Two minutes.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import grounding_rewards as gr
from grounding_rewards.audit.audit_images import images_of
from grounding_rewards.audit.run import audit
from grounding_rewards.audit.scripted_answers import SCRIPTED_ANSWERS
from grounding_rewards.boxes import valid_boxes
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import get_box_format
from scripts.docs.page_parts import markdown_table, marks_of, replace_part, write_or_check

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "published_rewards.md"
PICTURE = DOCS / "pictures" / "published_rewards.png"
NAMES = ("R1", "R2", "R3", "R4", "R5", "soft_f1", *gr.list_rewards(published=True)[len(gr.list_rewards()) :])
#: What rewards pay that do not go from 0 to 1.
RANGES = {"perception_r1_detection": (0.0, 2.75), "vision_reasoner": (0.0, 2.0), "nemo_rl": (-1.0, 1.0)}
#: NIH's radiographs have this many pixels a side.
SIDE = 1024
#: Answers to one image in a group, and groups.
GROUP, GROUPS = 8, 1000
#: In which the answers of the position map are written.
FORMAT = get_box_format("qwen3-vl")
#: Two answers whose IoUs are closer than this are not ordered by them.
NEAR = 0.01
#: Images with findings that the audit's answers are written to, and normal ones beside them.
AUDITED, NORMAL = 96, 32
#: What the audit finds of answers that should not pay; a range beyond 0 to 1 is the reward's own affair.
PAYING = ("pays", "free", "beats honest", "worse pays")

Boxes = NDArray[np.float64]


def read_nih(path: Path) -> list[tuple[str, str, Boxes]]:
    """Patient, label and box ``(4,)`` of every line. Read by position: the header's commas are not quoted."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines))[1:]
    read = []
    for image, label, x, y, w, h, *_ in rows:
        x1, y1 = float(x), float(y)
        read.append((image.split("_")[0], label, np.array([x1, y1, x1 + float(w), y1 + float(h)])))
    return read


def read_errors(path: Path) -> Boxes:
    """What single boxes miss of single references, ``(n, 4)`` in widths and heights of the reference."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if len(row["boxes"]) == len(row["pred"] or ()) == 1:
            box, pred = np.array(row["boxes"][0]), np.array(row["pred"][0])
            if valid_boxes(np.stack([box, pred])).all():
                found.append((pred - box) / np.tile(box[2:] - box[:2], 2))
    return np.array(found)


class Judge:
    """A reward by name, on boxes in NIH's pixels."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reward = gr.get_reward(name).box_reward
        self.side = SIDE if getattr(self.reward, "normalised_boxes", False) else 1

    def __call__(self, pred: list, gt: list) -> float:
        return self.reward.score(*(np.reshape(boxes, (-1, 4)) / self.side for boxes in (pred, gt)))


def position_map(judge: Judge, steps: int = 9) -> Boxes:
    """What one box with one error earns at places of an image, ``(steps, steps)``, y first.

    A finding has a fifth of the image's sides, the answer lies a tenth of it to the right and below: IoU 81/119.
    """
    corners = SIDE * np.linspace(2, 74, steps).round() / 100
    boxes = [np.array([x, y, x + SIDE / 5, y + SIDE / 5]) for y in corners for x in corners]
    earned = [judge([box + SIDE / 50], [box]) for box in boxes]
    # Without the last digits, in which equal rewards differ.
    return np.round(earned, 9).reshape(steps, steps)


def answers_of_groups(references: Boxes, errors: Boxes) -> tuple[Boxes, Boxes]:
    """References ``(groups, 4)``, and to each the answers that real errors make of it, ``(groups, answers, 4)``."""
    rng = np.random.default_rng(0)
    gt = references[rng.integers(len(references), size=GROUPS)]
    moved = errors[rng.integers(len(errors), size=(GROUPS, GROUP))] * np.tile(gt[:, 2:] - gt[:, :2], 2)[:, None]
    return gt, np.clip(gt[:, None] + moved, 0, SIDE)


def label_medians(references: list[tuple[str, str, Boxes]]) -> Boxes:
    """The median box of each reference's label over other patients, ``(n, 4)``."""
    medians = []
    for patient, label, _ in references:
        others = [box for owner, name, box in references if name == label and owner != patient]
        medians.append(np.median(others, axis=0))
    return np.array(medians)


def measured(boxes: Path, predictions: Path) -> dict[str, dict]:
    """Every number of the page, by reward."""
    references = read_nih(boxes)
    gts = np.array([box for *_, box in references])
    blind = label_medians(references)
    whole = [0, 0, SIDE, SIDE]
    gt, answers = answers_of_groups(gts, read_errors(predictions))
    iou = np.array([pairwise_iou(row, box[None])[:, 0] for row, box in zip(answers, gt, strict=True)])
    first, second = iou[:, 0], iou[:, 1]
    apart = np.abs(first - second) > NEAR
    made = {}
    for name in NAMES:
        judge = Judge(name)
        earned = np.array([[judge([a], [box]) for a in row] for row, box in zip(answers, gt, strict=True)])
        order = np.sign(earned[:, 0] - earned[:, 1])[apart] * np.sign(first - second)[apart]
        spread = earned.std(axis=1) > 1e-9
        agree = [np.corrcoef(e, i)[0, 1] for e, i in zip(earned[spread], iou[spread], strict=True) if i.std() > 1e-9]
        made[name] = {
            "never looking": np.mean([judge([b], [box]) for b, box in zip(blind, gts, strict=True)]),
            "whole image": np.mean([judge([whole], [box]) for box in gts]),
            "nothing": np.mean([judge([], [box]) for box in gts[:50]]),
            "normal, a box": np.mean([judge([b], []) for b in blind[:50]]),
            "normal, nothing": judge([], []),
            "right order": np.mean(order > 0),
            "wrong order": np.mean(order < 0),
            "no spread": 1 - spread.mean(),
            "with IoU": np.mean(agree),
            "range": np.percentile(earned, (5, 95)),
            "map": position_map(judge),
            "earned": earned,
        }
    made["IoU"] = {
        "never looking": np.mean([pairwise_iou(b[None], box[None])[0, 0] for b, box in zip(blind, gts, strict=True)]),
        "earned": iou,
    }
    return made


def audited(references: list[tuple[str, str, Boxes]]) -> dict[str, int]:
    """By reward how many scripted answers are paid too much."""
    chosen = references[:: len(references) // AUDITED][:AUDITED]
    rows = [{"boxes": [box.tolist()], "labels": [label], "patient_id": patient} for patient, label, box in chosen]
    rows += [{"boxes": [], "labels": [], "patient_id": f"normal {k}"} for k in range(NORMAL)]
    images = images_of([{**row, "width": SIDE, "height": SIDE} for row in rows])
    # NIH has neither several readers nor regions to ignore.
    scripts = [one for one in SCRIPTED_ANSWERS if one.image_set in ("", "small")]
    found: dict[str, int] = {}
    for name in NAMES:
        reward = gr.get_reward(name, box_format=FORMAT)
        low, high = RANGES.get(name, (0.0, 1.0))

        def in_unit(texts: list, reward=reward, low=low, high=high, **columns: list) -> list[float]:
            return [(value - low) / (high - low) for value in reward(texts, **columns)]

        played = audit({name: in_unit}, images, FORMAT, scripts=scripts).findings
        found[name] = sum(one.finding in PAYING for one in played)
    return found


def earned_table(made: dict[str, dict], paying: dict[str, int]) -> str:
    columns = ("never looking", "whole image", "nothing", "normal, a box", "normal, nothing")
    rows = [
        [
            f"`{name}`",
            *(f"{made[name][column]:.2f}" for column in columns),
            "{:.2f} to {:.2f}".format(*made[name]["range"]),
            str(paying[name]),
        ]
        for name in NAMES
    ]
    return markdown_table(
        [
            "reward",
            "never looking",
            "the whole image",
            "nothing",
            "a normal: a box",
            "a normal: nothing",
            "real answers",
            "tricks",
        ],
        rows,
    )


def order_table(made: dict[str, dict]) -> str:
    rows = [
        [
            f"`{name}`",
            *(f"{made[name][column]:.0%}" for column in ("right order", "wrong order", "no spread")),
            f"{made[name]['with IoU']:.2f}",
            f"{made[name]['map'].min():.2f} to {made[name]['map'].max():.2f}",
        ]
        for name in NAMES
    ]
    return markdown_table(
        [
            "reward",
            "right order",
            "wrong order",
            "groups without spread",
            "correlation with IoU",
            "same error, by place",
        ],
        rows,
    )


def draw(made: dict[str, dict], path: Path) -> None:
    """A row of two panels for each reward: what real answers earn by their IoU, and the position map."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 5
    lines = -(-len(NAMES) // columns)
    figure, axes = plt.subplots(2 * lines, columns, figsize=(2.1 * columns, 4.2 * lines), layout="constrained")
    for axis in axes.flat:
        axis.set_axis_off()
    iou = made["IoU"]["earned"].ravel()[:2000]
    for at, name in enumerate(NAMES):
        one, low = made[name], min(0.0, made[name]["earned"].min())
        high = max(1.0, made[name]["earned"].max())
        above, below = axes[2 * (at // columns), at % columns], axes[2 * (at // columns) + 1, at % columns]
        above.set_axis_on()
        above.plot(iou, one["earned"].ravel()[:2000], ".", markersize=1.5, color="#1f5fa8")
        above.axhline(one["never looking"], color="#b4401e", linewidth=1)
        above.set(title=name, xlim=(0, 1), ylim=(low - 0.03, high + 0.03), xticks=(0, 0.5, 1))
        above.tick_params(labelsize=7)
        below.set_axis_on()
        below.imshow(one["map"], vmin=low, vmax=high, cmap="viridis", extent=(0, 1, 1, 0))
        below.set(xticks=(), yticks=())
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)


def main(argv: list[str] | None = None) -> str | None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", type=Path, required=True, help="NIH's BBox_List_2017.csv")
    parser.add_argument("--predictions", type=Path, required=True, help="JSON lines of `boxes` and `pred`")
    parser.add_argument("--check", action="store_true", help="change nothing, say whether the page is up to date")
    args = parser.parse_args(argv)
    made = measured(args.boxes, args.predictions)
    page = PAGE.read_text(encoding="utf-8")
    page = replace_part(page, marks_of("earned"), earned_table(made, audited(read_nih(args.boxes))))
    page = replace_part(page, marks_of("order"), order_table(made))
    if not args.check:
        draw(made, PICTURE)
    return write_or_check(PAGE, page, check=args.check)


if __name__ == "__main__":
    sys.exit(main())
