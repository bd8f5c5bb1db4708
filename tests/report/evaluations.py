"""A small evaluation with every kind of image and metric, for the tests of its page and its plots."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from grounding_rewards.metrics.baselines import REFERENCE
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.evaluation import Evaluation, GroupMetrics, Measures, evaluate
from grounding_rewards.metrics.intervals import Estimate, Metric
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.metrics.robustness import RobustnessPoint
from grounding_rewards.report.evaluation_page import EvaluationPage

NAN = float("nan")
#: Fields of an evaluation in which there is nothing to show beside images.
NOTHING: dict[str, Any] = dict.fromkeys(("per_label", "per_size", "robustness"), ())
NOTHING |= {"systems": {}, "ious": np.zeros(0)}
BOX = (20.0, 20.0, 60.0, 70.0)

#: A model may write anything, and an image may be called anything.
HOSTILE = (
    '</script><script>document.title = "owned"</script><img src=x onerror=\'document.title = "owned"\'>'
    "<!-- \u2028 \u2029 \u202e olleh \x00 \ud800 مرحبا & <b>bold</b>"
)


def answered(name: str, *, pred: Sequence[Any] = (), gt: Sequence[Any] = (BOX,), reward: float = 0.0, **more: Any):
    """An image of 100 by 100 pixels whose five rewards are alike."""
    more = {"gt_labels": ("mass",) * len(gt), "pred_labels": ("mass",) * len(pred), **more}
    rewards = {f"R{k}": reward for k in range(1, 6)}
    return Prediction(name, 100, 100, gt=np.array(gt), pred=np.array(pred), rewards=rewards, **more)


def answered_images() -> list[Prediction]:
    """Twelve good answers, two misses, two hallucinations, a right negative, and two that can't be read."""
    good = [
        answered(f"good {k}", pred=[(20, 20, 60, 40 + 2 * k)], reward=k / 12, text=f"box {k}", patient=f"P{k}")
        for k in range(12)
    ]
    return [
        *good,
        answered("missed 1", status="empty", text="[]", reason="says there is nothing, misses 1"),
        answered("missed 2", pred=[(80, 80, 95, 95)], pred_labels=("nodule",), reason="0 of 1 found, 1 false box"),
        answered("invented 1", gt=(), pred=[BOX], pred_scores=np.array([0.75])),
        answered("invented 2", gt=(), pred=[(NAN, 0, 9, 9), (50, 50, 40, 40)], pred_labels=(None, None)),
        answered("normal", gt=(), status="empty", reward=0.2, text="No finding."),
        answered("broken 1", status="unparseable", text="I see [1, 2", rejected={"cut_off": 1}),
        answered(
            HOSTILE, status="truncated", text=HOSTILE, reason=HOSTILE, patient=HOSTILE, sampled_rewards=(0.0, 0.5)
        ),
    ]


def as_reference(answered: Prediction) -> Prediction:
    """The image with its reference as answer: all of every reward, and of a normal image the bonus."""
    rewards = dict.fromkeys(answered.rewards, 0.2 if answered.is_normal else 1.0)
    return replace(answered, pred=answered.gt, pred_labels=answered.gt_labels, pred_scores=(), rewards=rewards)


def image(_: int) -> Any:
    """An image that is bright at the bottom."""
    from PIL import Image

    return Image.fromarray(np.tile(np.arange(200, dtype=np.uint8)[:, None], (1, 200)))


def evaluation(**change: Any) -> Evaluation:
    """Every kind of metric that there is."""
    share = Estimate(0.5, 0.4, 0.6)
    metrics = {"f1_50": share, "recall_50": (0.75, 0.6, 0.9), "false_per_film": (0.25, 0.1, 0.4)}
    metrics |= {"hallucination_rate": (2 / 3, 0.2, 0.9), "count_bias": (-1.5, -2.0, -1.0)}
    metrics |= {"reward_R4": (0.4, 0.3, 0.5), "never": (NAN, NAN, NAN)}
    ceiling = {"f1_50": (1.0, 1.0, 1.0), "recall_50": (1.0, 1.0, 1.0), "reward_R4": (0.84, 0.7, 0.9)}
    better = {"f1_50": (0.7, 0.6, 0.8), "recall_50": (0.9, 0.8, 1.0)}
    better |= {"hallucination_rate": (0.0, 0.0, 0.0), "count_bias": (0.0, -0.5, 0.5)}
    labels = ["mass", "nodule"]
    robustness = [RobustnessPoint("corruptions", "none", 0, share, Estimate(0.0, 0.0, 0.0), share)]
    robustness += [RobustnessPoint("corruptions", "noise", s, share, share, share) for s in (1, 2, 3)]
    robustness += [RobustnessPoint("pgd", "pgd", e / 255, share, share, share) for e in (0, 1, 4)]
    values: dict[str, Any] = {
        "systems": {
            "tiny": metrics,
            REFERENCE: ceiling,
            "constant box": {"f1_50": (0.1, 0.0, 0.2), "recall_50": (0.1, 0.0, 0.2)},
            "a reader": better,
        },
        "metrics": {
            "reward_R4": Metric("reward R4", ""),
            "f1_50": Metric("F1 at IoU 0.5", "2·TP / (2·TP + FP + FN) over all images."),
            "recall_50": Metric("recall at IoU 0.5", ""),
            "false_per_film": Metric("false boxes per image", "", lower_is_better=True),
            "hallucination_rate": Metric("hallucination rate", "", lower_is_better=True),
            "count_bias": Metric("box count error", "", lower_is_better=None),
            "never": Metric("x", ""),
        },
        "per_label": [GroupMetrics(label, 12, {"f1_50": share}) for label in labels],
        "per_size": [GroupMetrics(size, 12, {"f1_50": share}) for size in ("small", "large")],
        "ious": np.array([0.0, 0.2, 0.5, 0.8]),
        "robustness": robustness,
        "above_constant": {"recall_50": (0.65, 0.5, 0.8), "f1_50": (0.4, 0.3, 0.5)},
        "facts": {"model": "runs/demo", "seed": 0, "split": ""},
    }
    return replace(_measured(), **{**values, **change})


@cache
def _measured() -> Evaluation:
    return evaluate({"tiny": [answered("one")]}, Measures("R4"))


def page(made: Sequence[Prediction] | None = None, **change: Any) -> EvaluationPage:
    """A page that shows everything there is; `change` are fields of it, or metrics of its evaluation."""
    made = answered_images() if made is None else made
    own: dict[str, Any] = {"title": "tiny & <small>", "subtitle": "drawn images", "reward": "R4", "load_image": image}
    own |= {name: change.pop(name) for name in own if name in change}
    matched = MatchedImages(made, change.pop("label_matching", "ignore"))
    reference = [as_reference(answered) for answered in made]
    return EvaluationPage(**own, evaluation=evaluation(matched=matched, **change), reference=reference)
