"""Texts that are hard to read, each with its image: every trainer must get the same numbers for them."""

import json
from typing import Any, NamedTuple

from tests.tables import table


class Case(NamedTuple):
    """What a model wrote, and the image: the fields of a ground truth, without sizes and box format where usual."""

    text: str
    image: dict[str, Any]

    @property
    def ground_truth(self) -> str:
        return json.dumps(self.fields)

    @property
    def fields(self) -> dict[str, Any]:
        return {"width": 640, "height": 480, "box_format": "qwen3-vl", "labels": self.labels, **self.image}

    @property
    def labels(self) -> list[str]:
        return ["nodule"] * len(self.image["boxes"])


ONE = {"boxes": [[64, 48, 320, 240]]}
RIGHT = '[{"bbox_2d": [100, 100, 500, 500], "label": "nodule"}]'
LOOSE = '[{"bbox_2d": [100, 100, 480, 470], "label": "nodule"}]'

CASES = {name: Case(text, image) for name, (text, image) in table("integrations/hard_cases", "cases").items()}
CASES |= {"half surrogates": Case(f"\ud83d{RIGHT}", ONE), "deep": Case("[" * 3000, ONE)}
# A ground truth, too, may have what others of its batch lack; several readers change what the columns mean for all.
READERS = Case(LOOSE, {**ONE, "reader_boxes": [ONE["boxes"], []], "reader_labels": [["nodule"], []]})
