"""Chest radiographs drawn by a seeded program, with boxes around what was drawn.

They are no substitute for real images; they let every part of the package run without patients' data. `draw_radiograph`
draws one, `synthetic_dataset` the images of a split.
"""

from grounding_rewards.synthetic.findings import FINDINGS
from grounding_rewards.synthetic.radiographs import LABELS, PRESETS, Radiograph, draw_radiograph, synthetic_dataset

__all__ = ["FINDINGS", "LABELS", "PRESETS", "Radiograph", "draw_radiograph", "synthetic_dataset"]
