"""Which metrics belong together in the table of a page, and what a person must know to read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from grounding_rewards.metrics.areas import SEGMENTATION_METRICS
from grounding_rewards.rewards.registry import summary_of


class MetricGroup(NamedTuple):
    """Metrics under one heading: what they have in common, and the beginnings of their keys."""

    title: str
    definition: str
    keys: tuple[str, ...]


#: In the order of the table. A metric belongs to the first group that has a beginning of its key.
METRIC_GROUPS = (
    MetricGroup(
        "Finding",
        "A box is right about one reference box of its own, from the named IoU up, 0.5 where none is named. Recall, "
        "or sensitivity: share of the reference boxes that are found. Precision: share of the predicted boxes that "
        "are right. Panoptic quality: F1 times the mean IoU of right boxes.",
        ("recall_", "precision_", "f1_", "pq", "f_beta_", "false_per_film", "film_sensitivity", "count_", "label_"),
    ),
    MetricGroup(
        "Placing",
        "IoU of the reference boxes with the predicted boxes that they are paired with; 0 for a finding without one.",
        ("mean_iou", "image_dependence", "accuracy_", "phrase_"),
    ),
    MetricGroup(
        "Normal images",
        "Images without a finding. Hallucination: the answer has a box. Specificity: the answer says that there is "
        "nothing. AUROC: how often an image with a finding ranks above one without.",
        ("hallucination", "specificity", "auroc"),
    ),
    MetricGroup(
        "Ranking",
        "Average precision, of all boxes together (AP) or as the mean over labels (mAP), and sensitivity at a number "
        "of false boxes per image. Boxes come in the order of their stated confidences; where any box has none, all "
        "are tied. Per query: each finding of an image for itself, boxes in the order in which they were written.",
        ("ap_", "map_", "froc", "sensitivity_", "query_ap_"),
    ),
    MetricGroup(
        "Areas",
        "The union of the predicted boxes against the union of the reference boxes, in pixels.",
        tuple(SEGMENTATION_METRICS),
    ),
    MetricGroup(
        "Rewards",
        "What each reward gives an answer, from 0 to 1, as the mean over images. The ceiling is what the reference "
        "itself would earn: on a normal image a rightly empty answer earns the bonus and no more.",
        ("reward_", "sampled_", "unparseable"),
    ),
)
#: What is shown before anything is unfolded, beside the reward that an evaluation is about, and how many at most.
CORE_METRICS = (
    *("recall_50", "precision_50", "f1_50", "false_per_film", "hallucination_rate", "specificity"),
    *("label_accuracy", "mean_iou", "image_dependence", "ap_50", "ap_50_95", "froc"),
)
MOST_CORE = 12
_OTHER = MetricGroup("Other metrics", "", ())


def group_metrics(keys: Iterable[str]) -> list[tuple[MetricGroup, list[str]]]:
    """The groups that have a metric, in the order of the table, each with its keys in the order of its beginnings.

    Example:
        >>> [(group.title, keys) for group, keys in group_metrics(["reward_R4", "mean_iou", "f1_50", "mine"])]
        [('Finding', ['f1_50']), ('Placing', ['mean_iou']), ('Rewards', ['reward_R4']), ('Other metrics', ['mine'])]
    """
    found: dict[MetricGroup, list[str]] = {group: [] for group in (*METRIC_GROUPS, _OTHER)}
    for key in keys:
        found[next((group for group in METRIC_GROUPS if key.startswith(group.keys)), _OTHER)].append(key)

    def place(key: str, group: MetricGroup) -> int:
        return next((n for n, start in enumerate(group.keys) if key.startswith(start)), 0)

    return [(group, sorted(own, key=lambda key: place(key, group))) for group, own in found.items() if own]


def core_metrics(measured: Collection[str], reward: str) -> list[str]:
    """The keys of :data:`CORE_METRICS` and of the reward that are measured, :data:`MOST_CORE` at most.

    Example:
        >>> core_metrics(["dice", "reward_R4", "reward_R3", "froc", "recall_50"], "R4")
        ['recall_50', 'froc', 'reward_R4']
    """
    keys = [key for key in (*CORE_METRICS, f"reward_{reward}") if key in measured]
    # Where all can be read, specificity is what hallucination leaves.
    return keys if len(keys) <= MOST_CORE else [key for key in keys if key != "specificity"]


def rewards_explained(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each reward that says what it is, with its one line.

    Example:
        >>> rewards_explained(["R3", "one of my own"])
        [('R3', 'F-beta times the mean of the matched IoUs, in [0, 1].')]
    """
    return [(name, summary_of(name)) for name in names if summary_of(name)]
