"""The figures of a training run, before and after it.

They are those of :mod:`grounding_rewards.metrics.counts`, under the keys of ``metrics.json``, with boxes matched
for the largest sum of IoUs, labels playing no part. Boxes that an ignored region takes out do not count, broken ones
count as false, as in the rewards.

* ``mean_iou``, ``above_50`` and ``above_75`` are means over all reference boxes of all films, so a film
  with three findings weighs three times as much as a film with one, and a normal film not at all.
* ``f1_50``, ``hallucination_rate`` and ``label_accuracy`` pool the films too.

All of these are about the greedy answer. ``sampled_reward`` and ``unparseable_share`` are about the sampled
answers: first the mean over the answers to one film, then over films. An answer is unparseable when it holds
neither a complete box nor a stated negative, also where the reason is that it was cut off.
"""

from __future__ import annotations

from collections.abc import Sequence

from grounding_rewards.metrics.answered_film import AnsweredFilm
from grounding_rewards.metrics.bootstrap import Array
from grounding_rewards.metrics.counts import MATCHING, detection_sums, mean_sums

#: Key of every figure and its heading in tables, in the order of the columns.
FIGURES: dict[str, str] = {
    "sampled_reward": "sampled reward",
    "mean_iou": "mean IoU",
    "f1_50": "F1 at IoU 0.5",
    "above_50": "boxes above IoU 0.5",
    "above_75": "boxes above IoU 0.75",
    "hallucination_rate": "hallucination on normal films",
    "unparseable_share": "unparseable answers",
    "label_accuracy": "right label",
}


def run_sums(films: Sequence[AnsweredFilm]) -> dict[str, Array]:
    """Every figure of :data:`FIGURES` as numerators and denominators per film.

    Args:
        films: with a greedy answer, and what is known of the sampled ones, of which there is at least one.

    Returns:
        By key ``(films, 2)``, for :mod:`grounding_rewards.metrics.bootstrap`.

    Example:
        >>> film = AnsweredFilm("a", 9, 9, gt=[[0, 0, 4, 4]], gt_labels=["x"], pred=[[0, 0, 4, 2], [6, 6, 9, 9]],
        ...                     sampled_rewards=(0.5, 0.0), sampled_read=(True, False))
        >>> {key: sums[0].tolist() for key, sums in run_sums([film]).items() if key in ("f1_50", "unparseable_share")}
        {'f1_50': [2.0, 3.0], 'unparseable_share': [0.5, 1.0]}
    """
    found = detection_sums(films, matching=MATCHING)
    found["above_50"], found["above_75"] = found["recall_50"], found["recall_75"]
    found["sampled_reward"] = mean_sums([film.sampled_rewards for film in films])
    found["unparseable_share"] = mean_sums([[not read for read in film.sampled_read] for film in films])
    return {key: found[key] for key in FIGURES}
