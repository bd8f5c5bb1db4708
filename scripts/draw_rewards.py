"""Draw how every reward responds, for docs/rewards.md.

    python scripts/draw_rewards.py

Writes docs/pictures/rewards_threshold.png (the rewards of the specification and what they are recommended with) and
docs/pictures/rewards_soft.png (those without a threshold). What is drawn is computed by
`grounding_rewards.audit.response`.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import grounding_rewards as gr
from grounding_rewards.audit.response import response
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.report.audit_page import response_plot

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
#: By picture the rewards that are drawn: their heading, their name, their parameters.
DRAWN: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "rewards_threshold": [
        ("R1", "R1", {}),
        ("R1 tied", "R1", {"ranking": "tied"}),
        ("R2", "R2", {}),
        ("R2 geometric", "R2", {"product": "geometric"}),
        ("R3", "R3", {}),
        ("R4", "R4", {}),
        ("R5", "R5", {}),
        ("R5, τ 0.3", "R5", {"iou_threshold": 0.3, "matching": "thresholded_hungarian"}),
    ],
    "rewards_soft": [
        ("soft_f1", "soft_f1", {}),
        *((f"soft_f1 {overlap}", "soft_f1", {"overlap": overlap}) for overlap in ("giou", "diou", "ciou", "nwd")),
        *((f"soft_f1 {quality}", "soft_f1", {"quality": quality}) for quality in ("spline", "piecewise")),
        ("pointing", "pointing", {}),
    ],
}
_DPI = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=PICTURES, help="where to write; default: docs/pictures")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in DRAWN.items():
        responses = {heading: response(gr.get_reward(reward, **given)) for heading, reward, given in drawn}
        picture = io.BytesIO()
        response_plot(responses, name).save(picture, "png", dpi=_DPI)
        write_whole(options.folder / f"{name}.png", picture.getvalue())
        print(options.folder / f"{name}.png")


if __name__ == "__main__":
    main()
