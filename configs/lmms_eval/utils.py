"""What configs/lmms_eval/grounding.yaml calls: prompts and images of prepared images, answers scored as in training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grounding_rewards import get_reward
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.parsing import get_box_format
from grounding_rewards.rewards import SPECIFICATION_REWARDS

REWARD = get_reward("R4")
#: Out of those of `grounding-rewards evaluate`, under the same names.
METRICS = (
    "mean_iou",
    "f1_50",
    "precision_50",
    "recall_50",
    "recall_75",
    "false_per_film",
    "hallucination_rate",
    "unparseable_share",
    "label_accuracy",
    "dice",
)

_NEEDED = ("prompt", "image", "boxes", "labels", "width", "height", "box_format")


def checked_images(dataset: Any) -> Any:
    """The images as they are, once it is sure that they can be scored."""
    missing = [name for name in _NEEDED if name not in dataset.column_names]
    if missing:
        raise ValueError(
            f"Expected the columns of a prepared dataset, got none called {', '.join(missing)}. Point `data_files` to "
            "the Parquet files that `grounding-rewards prepare --box-format NAME` wrote."
        )
    for name in sorted(set(dataset["box_format"])):
        if get_box_format(name).stripped == "boxes":
            raise ValueError(
                f"Expected a box format that is plain text, got {name}. Its boxes are special tokens, which lmms-eval "
                "takes out of answers: use `grounding-rewards evaluate`."
            )
    return dataset


def images(doc: Mapping[str, Any]) -> list[Any]:
    """The image."""
    return [doc["image"].convert("RGB")]


def prompt_text(doc: Mapping[str, Any]) -> str:
    """The user's text in the prompt of an image."""
    content = doc["prompt"][-1]["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content if part.get("text"))


def gold_text(doc: Mapping[str, Any]) -> str:
    """The reference boxes, written as the model should write them."""
    return gold_answer(doc, doc["box_format"])


def score(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Every metric of one answer as numerator and denominator."""
    row = {name: value for name, value in doc.items() if name not in ("prompt", "image")}
    annotated_images = read_predictions([row], [[results[0] if results else ""]], REWARD)
    sums = MatchedImages(annotated_images).sums()
    return {
        **{name: (annotated_images[0].rewards[name], 1.0) for name in SPECIFICATION_REWARDS},
        **{name: (float(sums[name][0, 0]), float(sums[name][0, 1])) for name in METRICS},
    }


def pooled(items: Sequence[tuple[float, float]]) -> float:
    """The ratio of the sums over all images; NaN where there is nothing to measure."""
    numerator, denominator = (sum(part) for part in zip(*items, strict=True))
    return numerator / denominator if denominator else math.nan
