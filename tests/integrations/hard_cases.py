"""Texts that are hard to read, each with its image: every trainer must get the same numbers for them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


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
TWO = {"boxes": [[64, 48, 320, 240], [400, 300, 600, 470]]}
NONE: dict[str, Any] = {"boxes": []}
RIGHT = '[{"bbox_2d": [100, 100, 500, 500], "label": "nodule"}]'
LOOSE = '[{"bbox_2d": [100, 100, 480, 470], "label": "nodule"}]'

CASES = {
    "right": Case(RIGHT, ONE),
    "loose": Case(LOOSE, ONE),
    "one of two": Case(LOOSE, TWO),
    "two, of which one is false": Case('[{"bbox_2d": [100,100,500,500]}, {"bbox_2d": [0, 0, 50, 50]}]', ONE),
    "negative": Case("[]", NONE),
    "negative in words": Case("There is no nodule.", NONE),
    "negative, where there is one": Case("[]", ONE),
    "hallucinated": Case(RIGHT, NONE),
    "nothing at all": Case("", NONE),
    "no answer on a normal image": Case("I am not sure.", NONE),
    "cut off": Case('[{"bbox_2d": [100, 100, 500, 500]}, {"bbox_2d": [100, 2', ONE),
    "broken box": Case('[{"bbox_2d": [100, 100, 500, 500]}, {"bbox_2d": [1, 2, 3]}]', ONE),
    "not a number": Case('[{"bbox_2d": [NaN, 100, 500, 500]}]', ONE),
    "infinite": Case('[{"bbox_2d": [1e999, 100, 500, 500]}]', ONE),
    "thinking": Case(f"<think>[[0, 0, 9, 9]]?</think>{RIGHT}", ONE),
    "answer tag": Case(f"<think>hm</think><answer>{RIGHT}</answer>", ONE),
    "end of text kept": Case(f"{RIGHT}<|im_end|>", ONE),
    "half surrogates": Case(f"\ud83d{RIGHT}", ONE),
    "deep": Case("[" * 3000, ONE),
    "upside down": Case('[{"bbox_2d": [500, 500, 100, 100]}]', ONE),
    "in resized pixels": Case(
        '[{"bbox_2d": [32, 24, 160, 120]}]',
        {**ONE, "box_format": "qwen2.5-vl", "resized_width": 320, "resized_height": 240},
    ),
    "ignored region": Case(
        '[{"bbox_2d": [100,100,500,500]}, {"bbox_2d": [900, 900, 950, 950]}]',
        {**ONE, "ignore_boxes": [[560, 420, 640, 480]]},
    ),
    "other syntax": Case("<loc0102><loc0102><loc0512><loc0512> nodule", {**ONE, "box_format": "paligemma"}),
}
# A ground truth, too, may have what others of its batch lack; several readers change what the columns mean for all.
READERS = Case(LOOSE, {**ONE, "reader_boxes": [ONE["boxes"], []], "reader_labels": [["nodule"], []]})
