"""Draw chest radiographs from a seed, with boxes around the findings.

They let every part of the package run without patients' data, and are no substitute for real images. `draw_radiograph`
draws one, `synthetic_dataset` those of a split.
"""

from grounding_rewards.synthetic.findings import FINDINGS
from grounding_rewards.synthetic.radiographs import LABELS, PRESETS, Radiograph, draw_radiograph, synthetic_dataset

__all__ = ["FINDINGS", "LABELS", "PRESETS", "Radiograph", "draw_radiograph", "synthetic_dataset"]
