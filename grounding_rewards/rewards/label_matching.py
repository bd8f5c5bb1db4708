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
class LabelCodes:
    """The labels of many completions, one after the other like their boxes, as numbers; NaN without a label.

    ``texts[code]`` is how the label was first written.
    """

    pred: Array
    gt: Array
    texts: tuple[str, ...]
    label_matching: str

    @staticmethod
    def of(pred: Iterable[str | None], gt: Iterable[str | None], label_matching: str) -> LabelCodes:
        """Number the labels; those that are the same under the rule get one number.

        Example:
            >>> codes = LabelCodes.of(["Pleural  effusion", None, "mass"], ["pleural effusion"], "exact")
            >>> codes.pred, codes.gt, codes.texts
            (array([ 0., nan,  1.]), array([0.]), ('pleural effusion', 'mass'))
        """
        key_of = LABEL_RULES[label_matching]
        texts: list[str] = []
        code_of_key: dict[Hashable, float] = {}
        # By label as it is written, so that the key of each is made once.
        code_of: dict[str | None, float] = {None: np.nan}

        def number(label: str) -> float:
            if not label.strip():
                return np.nan
            key = key_of(label)
            if key not in code_of_key:
                code_of_key[key] = float(len(texts))
                texts.append(label)
            return code_of_key[key]

        def codes(labels: Iterable[str | None]) -> Array:
            numbers = []
            for label in labels:
                if label is not None and label not in code_of:
                    code_of[label] = number(label)
                numbers.append(code_of[label])
            return np.array(numbers, dtype=np.float64)

        # The references first: `texts` has a label as they write it.
        gt_codes, pred_codes = codes(gt), codes(pred)
        return LabelCodes(pred_codes, gt_codes, tuple(texts), label_matching)

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
        count = len(self.texts)
        # A pair of codes as one number, so that each distinct pair is asked once.
        pairs = (pred[unsettled] * count + gt[unsettled]).astype(np.int64)
        distinct, positions = np.unique(pairs, return_inverse=True)
        table = [are_synonyms(self.texts[pair // count], self.texts[pair % count]) for pair in distinct.tolist()]
        agreed[unsettled] = np.array(table, dtype=bool)[positions]
        return agreed


def text_key(label: str) -> str:
    """The text in lower case, with single blanks.

    >>> text_key("Left  Effusion")
    'left effusion'
    """
    return " ".join(label.casefold().split())


def _finding_of(label: str) -> Hashable:
    """The name in the shared vocabulary, and its side; an unknown label keeps its own words."""
    # Imported here because only this rule needs the vocabulary.
    from grounding_rewards.labels import normalize_label

    finding = normalize_label(label)
    return finding.name, finding.laterality


#: Each rule of ``label_matching`` that compares labels: the key that equal labels share.
LABEL_RULES: dict[str, Callable[[str], Hashable]] = {"exact": text_key, "synonyms": _finding_of}
LABEL_MATCHING = ("ignore", *LABEL_RULES)
