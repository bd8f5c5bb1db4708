"""Chest radiographs drawn by a seeded program, with boxes around what was drawn.

`draw_image` draws the small square images that the demo trains on. `draw_radiograph` draws images of several views and
sizes, with phrases for the findings.
"""

from grounding_rewards.synthetic.dicom_output import write_dicom
from grounding_rewards.synthetic.findings import FINDINGS
from grounding_rewards.synthetic.radiograph_dataset import SyntheticImages, radiograph_dataset
from grounding_rewards.synthetic.radiographs import (
    PRESETS,
    Plan,
    Preset,
    Radiograph,
    draw_radiograph,
    plan_radiograph,
    render,
)
from grounding_rewards.synthetic.square_images import (
    LABELS,
    SPLITS,
    DrawnImage,
    draw_image,
    image_seeds,
    synthetic_dataset,
)

__all__ = [
    "FINDINGS",
    "LABELS",
    "PRESETS",
    "SPLITS",
    "DrawnImage",
    "Plan",
    "Preset",
    "Radiograph",
    "SyntheticImages",
    "draw_image",
    "draw_radiograph",
    "image_seeds",
    "plan_radiograph",
    "radiograph_dataset",
    "render",
    "synthetic_dataset",
    "write_dicom",
]
