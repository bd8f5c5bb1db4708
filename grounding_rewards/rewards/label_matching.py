"""Labels as numbers, so that the labels of many completions are compared at once.

A label that is missing or blank is NaN, which agrees with nothing: a predicted box without a label matches no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grounding_rewards.common.numeric import Array


@dataclass(frozen=True)
class LabelCounts:
    """Hits and errors of one label on one image.

    A prediction counts for the label of the finding that it matches; an unmatched one for the first label of the image
    that agrees with its own, and for its own where none does.

    Attributes:
        label: the finding, as it was compared; None for predicted boxes that state none.
        tp: matched predictions.
        fp: unmatched predictions, ignored ones left out.
        fn: unmatched ground-truth boxes.
    """

    label: str | None
    tp: int
    fp: int
    fn: int


@dataclass(frozen=True)
class LabelCodes:
    """The labels of many completions, one after the other like their boxes, as numbers; NaN without a label.

    ``names[code]`` is what the label is called, ``texts[code]`` how it was first written.
    """

    pred: Array
    gt: Array
    names: tuple[str, ...]
    texts: tuple[str, ...]
    label_matching: str

    @staticmethod
    def of(pred: Iterable[str | None], gt: Iterable[str | None], label_matching: str) -> LabelCodes:
        """Number the labels; those that are the same under the rule get one number.

        Example:
            >>> codes = LabelCodes.of(["Pleural  effusion", None, "mass"], ["pleural effusion"], "exact")
            >>> codes.pred, codes.gt, codes.names
            (array([ 0., nan,  1.]), array([0.]), ('pleural effusion', 'mass'))
        """
        identify = LABEL_RULES[label_matching]
        names: list[str] = []
        texts: list[str] = []
        code_of_meaning: dict[Hashable, float] = {}
        code_of: dict[str | None, float] = {None: np.nan}

        def number(label: str) -> float:
            name, meaning = identify(label)
            if not name:
                return np.nan
            if meaning not in code_of_meaning:
                code_of_meaning[meaning] = float(len(names))
                names.append(name)
                texts.append(label)
            return code_of_meaning[meaning]

        def codes(labels: Iterable[str | None]) -> Array:
            numbers = []
            for label in labels:
                if label is not None and label not in code_of:
                    code_of[label] = number(label)
                numbers.append(code_of[label])
            return np.array(numbers, dtype=np.float64)

        gt_codes, pred_codes = codes(gt), codes(pred)
        return LabelCodes(pred_codes, gt_codes, tuple(names), tuple(texts), label_matching)

    def agree(self, pred: ArrayLike, gt: ArrayLike) -> NDArray[np.bool_]:
        """Which pairs of labels agree, elementwise: equal ones, and under ``"synonyms"`` some others.

        Example:
            >>> codes = LabelCodes.of(["Effusion", "mass"], ["left pleural effusion"], "synonyms")
            >>> codes.agree(codes.pred, codes.gt)
            array([ True, False])
        """
        pred, gt = np.broadcast_arrays(pred, gt)
        agreed = pred == gt
        if self.label_matching == "exact":
            return agreed
        from grounding_rewards.labels import are_synonyms

        # Not transitive (a label without a side agrees with both sides), so comparing codes is not enough.
        unsettled = ~(agreed | np.isnan(pred) | np.isnan(gt))
        k = len(self.texts)
        pairs = (pred[unsettled] * k + gt[unsettled]).astype(np.int64)
        distinct, positions = np.unique(pairs, return_inverse=True)
        table = [are_synonyms(self.texts[pair // k], self.texts[pair % k]) for pair in distinct.tolist()]
        agreed[unsettled] = np.array(table, dtype=bool)[positions]
        return agreed


def _by_text(label: str) -> tuple[str, Hashable]:
    """The text in lower case, with single blanks."""
    text = " ".join(label.casefold().split())
    return text, text


def _by_finding(label: str) -> tuple[str, Hashable]:
    """The name in the shared vocabulary, with its side; an unknown label keeps its own words."""
    # Imported here because only this rule needs the vocabulary.
    from grounding_rewards.labels import normalize_label

    finding = normalize_label(label)
    return finding.text, (finding.name, finding.laterality)


#: Each rule of ``label_matching`` that compares labels: a label's name, and the key that equal labels share.
LABEL_RULES: dict[str, Callable[[str], tuple[str, Hashable]]] = {"exact": _by_text, "synonyms": _by_finding}
LABEL_MATCHING = ("ignore", *LABEL_RULES)
