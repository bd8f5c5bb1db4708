"""Ask a model about unchanged and changed images, and compare the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.common.validation import check_word
from grounding_rewards.data.dataset_columns import light_rows
from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.metrics.prediction import Prediction, patients_of
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.metrics.robustness import AnswerPair, RobustnessPoint, robustness_estimates
from grounding_rewards.models.robustness.corruptions import CORRUPTIONS, STRENGTHS, corrupt, corrupt_boxes
from grounding_rewards.models.robustness.pgd import PGD, AttackingProcessor
from grounding_rewards.rewards.grounding import GroundingReward

if TYPE_CHECKING:
    from datasets import Dataset

FAMILIES = ("corruptions", "pgd")
EPSILONS = (0.0, 1 / 255, 2 / 255, 4 / 255, 8 / 255)


@dataclass(frozen=True)
class Changes:
    """The changes under which a model is measured.

    Attributes:
        families: `corruptions`, `pgd` or both.
        corruptions: names out of :data:`grounding_rewards.models.robustness.corruptions.CORRUPTIONS`.
        strengths: of the corruptions, 1 to 5.
        epsilons: largest changes of an intensity, as parts of their range.
        steps: of the attack.
        seed: of corruptions and attacks.

    Raises:
        ValueError: an unknown family or corruption, or a number out of range.
    """

    families: tuple[str, ...] = FAMILIES
    corruptions: tuple[str, ...] = tuple(CORRUPTIONS)
    strengths: tuple[int, ...] = STRENGTHS
    epsilons: tuple[float, ...] = EPSILONS
    steps: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for family in self.families:
            check_word("families", family, FAMILIES)
        for name, strength in product(self.corruptions, self.strengths):
            # Refuses unknown names and strengths.
            corrupt_boxes([], name, strength, width=1, height=1)
        # Checks epsilons and steps.
        self.attacks()

    def __str__(self) -> str:
        """The changes in words; ε and strengths are on the axes of the plots.

        >>> str(Changes(families=("pgd",)))
        'projected gradient, 10 steps of 2.5·ε/10, against the gold answer, seed 0'
        """
        words = []
        if "corruptions" in self.families:
            words.append(f"corruptions of strengths {min(self.strengths)} to {max(self.strengths)}")
        if "pgd" in self.families:
            words.append(f"projected gradient, {self.steps} steps of 2.5·ε/{self.steps}, against the gold answer")
        return ", ".join([*words, f"seed {self.seed}"])

    def attacks(self) -> list[PGD]:
        """One attack for each ε."""
        return [PGD(epsilon, self.steps, seed=self.seed) for epsilon in self.epsilons]


def robustness(
    model: Any,
    processor: Any,
    dataset: Dataset,
    reward: GroundingReward,
    changes: Changes | None = None,
    *,
    label_matching: str = "ignore",
    max_new_tokens: int = 256,
    batch_size: int = 16,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> list[RobustnessPoint]:
    """Measure robust accuracy, attack success rate and mean IoU of greedy answers to changed images.

    The change of an image depends on ``changes.seed`` and its row number. Intervals are over patients if the dataset
    has them, else over images.

    Args:
        model: a transformers vision-language model; for ``pgd`` one that passes gradients on to its pixel values.
        processor: its processor.
        dataset: rows with the package's columns, among them ``box_format`` unless the reward has one. The reference is
            the column ``boxes``.
        reward: reads the answers; its threshold, matcher and comparison of labels decide what is right.
        changes: the corruptions and attacks; None for all.
        label_matching: of mean IoU, as in :mod:`grounding_rewards.metrics.detection`.
        max_new_tokens: where an answer is cut off.
        batch_size: images answered, and attacked, at the same time.
        on_progress: called with the change, the images answered under it, and of how many.

    Returns:
        For each corruption a point for the unchanged images (strength 0) and for each strength; then one for each ε.

    Raises:
        ValueError: the processor's pixel values cannot be attacked, or the model has no gradients, or is run by vLLM.
    """
    from grounding_rewards.models.generate import Sampling, generate, reads_special_tokens
    from grounding_rewards.models.load import VllmModel

    if isinstance(model, VllmModel):
        raise ValueError(
            "Expected a model that transformers runs for `model`, got one that vLLM runs. Load it with "
            "backend='transformers'."
        )
    changes = changes or Changes()
    rows = light_rows(dataset)
    # Here, so that a row without a box format is refused before answers are generated.
    gold = [gold_answer(row, reward.box_format or row["box_format"]) for row in rows]
    greedy = Sampling(
        max_new_tokens=max_new_tokens,
        skip_special_tokens=not reads_special_tokens(dataset, reward, getattr(processor, "tokenizer", processor)),
    )

    def ask(images: Any, asked_processor: Any, change: str) -> list[Prediction]:
        """The predictions for images under a change, whose name is for the progress."""

        def report_progress(image_count: int, total: int, _: int) -> None:
            if on_progress is not None:
                on_progress(change, image_count, total)

        texts = generate(model, asked_processor, images, greedy, batch_size=batch_size, on_progress=report_progress)
        return read_predictions(rows, texts, reward)

    before = ask(dataset, processor, "images as they are")
    groups = patients_of(before)

    def measure(family: str, name: str, strength: float, pairs: Iterable[AnswerPair]) -> RobustnessPoint:
        """The metrics of the answers before and after a change."""
        metrics = robustness_estimates(list(pairs), reward, label_matching=label_matching, groups=groups)
        return RobustnessPoint(family, name, strength, **metrics)

    points = []
    if "corruptions" in changes.families:
        unchanged = measure("corruptions", "", 0, map(AnswerPair.unmoved, before, before))
        for name in changes.corruptions:
            # The curve of each corruption begins at the images as they are.
            points.append(unchanged._replace(name=name))
            for strength in changes.strengths:
                images = CorruptedImages(dataset, name, strength, changes.seed)
                after = ask(images, processor, f"{name} {strength}")
                points.append(measure("corruptions", name, strength, images.pairs(before, after)))
    if "pgd" in changes.families:
        for attack in changes.attacks():
            attacking_processor = AttackingProcessor(processor, model, gold, attack)
            after = ask(dataset, attacking_processor, f"attack with ε = {attack.epsilon:.4f}")
            points.append(measure("pgd", "pgd", attack.epsilon, map(AnswerPair.unmoved, before, after)))
    return points


class CorruptedImages:
    """The rows of a dataset with images that are corrupted when they are read; boxes stay as they are.

    Args:
        dataset: rows with ``image``.
        name: of the corruption.
        strength: 1 to 5.
        seed: with the row number the seed of each image.
    """

    def __init__(self, dataset: Any, name: str, strength: int, seed: int) -> None:
        self._dataset, self._name, self._strength, self._seed = dataset, name, strength, seed

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> dict[str, Any]:
        row = self._dataset[i]
        image = corrupt(row["image"], [], self._name, self._strength, seed=(self._seed, i)).image
        return {**row, "image": image}

    def pairs(self, before: Sequence[Prediction], after: Sequence[Prediction]) -> Iterator[AnswerPair]:
        """Yield each image's answers before and after the corruption, with boxes moved as the corruption moves them.

        The remaining part of a reference box that is no longer visible becomes an ignored region.

        Args:
            before: the predictions on the unchanged images.
            after: those on the corrupted ones, in the same order.
        """
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            move = partial(
                corrupt_boxes,
                name=self._name,
                strength=self._strength,
                width=old.width,
                height=old.height,
                seed=(self._seed, i),
            )
            gt, is_visible = move(old.gt)
            pred, pred_is_visible = move(old.pred)
            ignore, _ = move(old.ignore)
            labels = tuple(label for label, visible in zip(old.gt_labels, is_visible, strict=True) if visible)
            ignore = np.concatenate([ignore, gt[~is_visible]])
            changed = replace(new, gt=gt[is_visible], gt_labels=labels, ignore=ignore)
            yield AnswerPair(old, changed, pred, pred_is_visible)
