"""Chest films drawn by a seeded program, with boxes around what was drawn.

`draw_film` draws the small square films that the demo trains on. `draw_radiograph` draws films of several views and
sizes, with phrases for the findings.
"""

from grounding_rewards.data.synthetic.dicom_output import write_dicom
from grounding_rewards.data.synthetic.findings import FINDINGS
from grounding_rewards.data.synthetic.radiograph_dataset import SyntheticFilms, radiograph_dataset
from grounding_rewards.data.synthetic.radiographs import (
    PRESETS,
    Plan,
    Preset,
    Radiograph,
    draw_radiograph,
    plan_radiograph,
    render,
)
from grounding_rewards.data.synthetic.square_films import LABELS, SPLITS, Film, draw_film, film_seeds, synthetic_dataset

__all__ = [
    "FINDINGS",
    "LABELS",
    "PRESETS",
    "SPLITS",
    "Film",
    "Plan",
    "Preset",
    "Radiograph",
    "SyntheticFilms",
    "draw_film",
    "draw_radiograph",
    "film_seeds",
    "plan_radiograph",
    "radiograph_dataset",
    "render",
    "synthetic_dataset",
    "write_dicom",
]
