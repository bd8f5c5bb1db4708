"""What a training earns and finds on images of each source dataset, and on images with each label.

The keys are settled before the first step, so that they are the same at every step: the most frequent sources and
labels of the training images, where there are several. A step without such an image has no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grounding_rewards.common.arithmetic import Array
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.counts import MatchedImages
from grounding_rewards.metrics.outcomes import FOUND, outcomes_of

#: Sources, and labels, that have metrics of their own: more would bury the rest of a log.
MOST_GROUPS = 20


class ImageGroups(NamedTuple):
    """The names of sources and labels that have metrics of their own.

    sources: of datasets, as the column `source` names them.
    labels: of reference boxes.
    """

    sources: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, sources: Iterable[str | None], labels: Iterable[Iterable[str | None] | None]) -> ImageGroups:
        """The most frequent sources and labels of the images of a training; none of a kind that has one name only.

        Example:
            >>> ImageGroups.of(["a", "a", None], [["mass"], [], ["nodule", "mass"]])
            ImageGroups(sources=(), labels=('mass', 'nodule'))
        """
        return cls(_most_frequent(sources), _most_frequent(label for of_image in labels for label in of_image or ()))

    @property
    def keys(self) -> tuple[str, ...]:
        """What :meth:`sums` is about, in its order.

        Example:
            >>> ImageGroups((), ("mass", "nodule")).keys
            ('label/mass/reward', 'label/mass/recall', 'label/nodule/reward', 'label/nodule/recall')
        """
        named = [("source", name) for name in self.sources] + [("label", name) for name in self.labels]
        return tuple(f"{kind}/{name}/{metric}" for kind, name in named for metric in ("reward", "recall"))

    def sums(self, images: Sequence[AnsweredImage], rewards: ArrayLike) -> Array:
        """Sums and counts behind the metrics, which add up over processes: a metric is the one over the other.

        `reward` is the mean over the answers to images of the source, or to those that have the label; `recall` the
        share of the reference boxes of the source, or of the label, that are found at the IoU threshold of pages,
        whatever they are called.

        Args:
            images: n answered images.
            rewards: `(n,)`.

        Returns:
            `(keys, 2)`.

        Example:
            >>> image = AnsweredImage("a", 9, 9, gt=[[0, 0, 4, 4], [5, 5, 9, 9]], gt_labels=["mass", "nodule"],
            ...                     pred=[[0, 0, 4, 4]])
            >>> ImageGroups((), ("mass", "nodule")).sums([image], [0.5]).tolist()
            [[0.5, 1.0], [1.0, 1.0], [0.5, 1.0], [0.0, 1.0]]
        """
        earned = np.asarray(rewards, dtype=np.float64)
        found = [
            [outcome == FOUND for outcome in outcomes.gt] for outcomes in outcomes_of(MatchedImages(images, "ignore"))
        ]
        # Of every box of a group: the image that it lies on, and whether it was found.
        pairs = []
        for source in self.sources:
            of_source = [image.source == source for image in images]
            pairs.append(
                (of_source, [hit for hits, mine in zip(found, of_source, strict=True) if mine for hit in hits])
            )
        for label in self.labels:
            with_label = [label in image.gt_labels for image in images]
            hits = [
                hit
                for image, of_image in zip(images, found, strict=True)
                for name, hit in zip(image.gt_labels, of_image, strict=True)
                if name == label
            ]
            pairs.append((with_label, hits))
        sums = [
            one
            for chosen, hits in pairs
            for one in ((float(earned[np.array(chosen, dtype=bool)].sum()), sum(chosen)), (sum(hits), len(hits)))
        ]
        return np.array(sums, dtype=np.float64).reshape(-1, 2)


def _most_frequent(names: Iterable[str | None]) -> tuple[str, ...]:
    counts = Counter(name for name in names if name)
    # Among equals by name: the order of the images must not decide.
    ranked = sorted(counts, key=lambda name: (-counts[name], name))[:MOST_GROUPS]
    return tuple(ranked) if len(ranked) > 1 else ()
