"""Images, completions and rewards whose numbers are kept in tests/golden/rewards.json, and how they are computed.

A row may be added at any time; one that is changed or taken away changes numbers that are kept.
"""

from __future__ import annotations

import json
import math
from typing import Any

import grounding_rewards as gr
from tests.conftest import REPOSITORY

FILE = REPOSITORY / "tests" / "golden" / "rewards.json"

_SIZE = {"width": 1000, "height": 800}

#: Rows of a dataset; boxes in pixels of an image of 1000 × 800.
IMAGES: dict[str, dict[str, Any]] = {
    "nothing": {"boxes": [], "labels": []},
    "one": {"boxes": [[100, 160, 400, 480]], "labels": ["mass"]},
    "two": {"boxes": [[100, 160, 400, 480], [600, 80, 900, 400]], "labels": ["mass", "effusion"]},
    # overlapping, so that greedy and optimal matching differ
    "crowded": {
        "boxes": [[100, 160, 400, 480], [150, 160, 450, 480], [100, 240, 400, 560]],
        "labels": ["mass", "mass", "nodule"],
    },
    "specks": {"boxes": [[500, 400, 503, 403], [700, 400, 710, 406]], "labels": ["nodule", "nodule"]},
    "a region to ignore": {
        "boxes": [[100, 160, 400, 480]],
        "labels": ["mass"],
        "ignore_boxes": [[580, 60, 920, 420]],
    },
    "two readers": {
        "boxes": [[100, 160, 400, 480]],
        "labels": ["mass"],
        "reader_boxes": [[[120, 160, 420, 480]], [[100, 160, 400, 480], [600, 80, 900, 400]]],
        "reader_labels": [["mass"], ["mass", "effusion"]],
    },
    # half of the first may be paired with it, so that another box is left for the second, below the threshold
    "side by side": {"boxes": [[0, 0, 500, 500], [355, 0, 855, 500]], "labels": ["mass", "mass"]},
    "all of it": {"boxes": [[0, 0, 1000, 800]], "labels": ["opacity"]},
}


def _boxes(*rows: tuple[Any, ...]) -> str:
    """An answer in the format of Qwen3-VL, thousandths of the image."""
    return json.dumps([{"bbox_2d": box, "label": label} for label, *box in rows])


_RIGHT, _OTHER = ("mass", 100, 200, 400, 600), ("effusion", 600, 100, 900, 500)

#: Answers in the format of Qwen3-VL.
COMPLETIONS: dict[str, str] = {
    "right": _boxes(_RIGHT),
    "right and the other": _boxes(_RIGHT, _OTHER),
    "the other first": _boxes(_OTHER, _RIGHT),
    "loose": _boxes(("mass", 80, 170, 430, 640)),  # IoU of about 0.7 with the one
    "shifted": _boxes(("mass", 150, 250, 450, 650)),  # about 0.57
    "at the threshold": _boxes(("mass", 100, 200, 400, 400)),  # half of the one: 0.5
    "below the threshold": _boxes(("mass", 250, 200, 550, 600)),  # a third
    "beside": _boxes(("mass", 0, 0, 50, 50)),
    "wrong label": _boxes(("effusion", 100, 200, 400, 600)),
    "twice": _boxes(_RIGHT, _RIGHT),
    "junk before": _boxes(("mass", 0, 0, 50, 50), _RIGHT),
    "junk after": _boxes(_RIGHT, ("mass", 0, 0, 50, 50)),
    "three near each other": _boxes(
        ("mass", 120, 210, 420, 610), ("mass", 150, 200, 440, 600), ("nodule", 100, 280, 400, 690)
    ),
    "specks": _boxes(("nodule", 500, 500, 503, 504), ("nodule", 701, 500, 711, 508)),
    "one and a half": _boxes(("mass", 165, 0, 665, 625), ("mass", 0, 0, 245, 625)),
    "whole film": _boxes(("opacity", 0, 0, 1000, 1000)),
    "broken box": _boxes(_RIGHT, ("mass", 400, 600, 100, 200)),
    "box of three": '[{"bbox_2d": [100, 200, 400], "label": "mass"}]',
    "cut off": _boxes(_RIGHT, _OTHER)[:-30],
    "in prose": f"There is a mass.\n```json\n{_boxes(_RIGHT)}\n```",
    "thought about": f"<think>{_boxes(_OTHER)}</think>{_boxes(_RIGHT)}",
    "empty list": "[]",
    "no finding, in words": "No acute cardiopulmonary abnormality.",
    "not sure": "I am not sure.",
    "nothing": "",
}

#: Rewards with parameters, by a name each.
REWARDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("R1", "R2", "R3", "R4", "R5", "soft_f1", "pointing", "format_only", "constant")},
    "random": ("random", {"seed": 1}),
    "consensus": ("consensus", {}),
    "R1 tied": ("R1", {"ranking": "tied"}),
    "R1 101 points": ("R1", {"interpolation": "101"}),
    "R1 per label": ("R1", {"per_label": True, "label_matching": "synonyms"}),
    "R2 geometric": ("R2", {"product": "geometric", "iou_threshold": 0.3}),
    "R3 strict labels": ("R3", {"label_matching": "synonyms"}),
    "R3 recall": ("R3", {"beta": 3.0, "no_box_bonus": 1.0, "iou_threshold": 0.25}),
    "R3 mean of readers": ("R3", {"readers": "mean"}),
    "R3 graded negatives": ("R3", {"graded_negatives": 0.5}),
    "R4 with centre": ("R4", {"center_weight": 0.3}),
    "R5 thresholded": ("R5", {"matching": "thresholded_hungarian"}),
    "R5 empty if unread": ("R5", {"on_unparseable": "empty", "on_truncated": "zero"}),
    **{f"soft_f1 {overlap}": ("soft_f1", {"overlap": overlap}) for overlap in ("giou", "diou", "ciou", "nwd")},
    "soft_f1 spline": ("soft_f1", {"quality": "spline", "beta": 1.5}),
}


#: Rewards through an exponential, an arc tangent or powers, whose last digit numpy's releases and processors differ in.
ROUNDED = ("soft_f1 ciou", "soft_f1 nwd", "soft_f1 spline")


def is_same(reward: str, one: float | None, other: float | None) -> bool:
    """Whether two numbers of a reward are the same: to the last digit, but for those of :data:`ROUNDED`."""
    if reward in ROUNDED and one is not None and other is not None:
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other


def compute_numbers() -> dict[str, dict[str, dict[str, float]]]:
    """The number of every reward on every image for every completion."""
    found = {}
    for title, (name, kwargs) in REWARDS.items():
        reward = gr.get_reward(name, box_format="qwen3-vl", **kwargs)
        found[title] = {image: _on(reward, row) for image, row in IMAGES.items()}
    return found


def _on(reward: Any, row: dict[str, Any]) -> dict[str, float]:
    columns = {column: [value] * len(COMPLETIONS) for column, value in {**row, **_SIZE}.items()}
    return dict(zip(COMPLETIONS, reward(completions=list(COMPLETIONS.values()), **columns), strict=True))
