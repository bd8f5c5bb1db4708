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
        pred, gt = list(pred), list(gt)
        key_of = LABEL_RULES[label_matching]
        texts: list[str] = []
        code_of_key: dict[Hashable, float] = {}
        # By label as it is written, so that the key of each is made once.
        code_of: dict[str | None, float] = {}
        # The references first: `texts` has a label as they write it.
        for label in dict.fromkeys([*gt, *pred]):
            if label is None or not label.strip():
                code_of[label] = np.nan
                continue
            key = key_of(label)
            if key not in code_of_key:
                code_of_key[key] = float(len(texts))
                texts.append(label)
            code_of[label] = code_of_key[key]
        pred_codes = np.array([code_of[label] for label in pred], dtype=np.float64)
        gt_codes = np.array([code_of[label] for label in gt], dtype=np.float64)
        return LabelCodes(pred_codes, gt_codes, tuple(texts), label_matching)

    def agree(self, pred: ArrayLike, gt: ArrayLike) -> NDArray[np.bool_]:
        """Which pairs of labels agree, elementwise: equal ones, and under ``"synonyms"`` some others.

        Example:
            >>> codes = LabelCodes.of(["Effusion", "mass"], ["left pleural effusion"], "synonyms")
            >>> codes.agree(codes.pred, codes.gt)
            array([ True, False])
        """
        pred, gt = np.broadcast_arrays(pred, gt)
        agree = pred == gt
        if self.label_matching == "exact":
            return agree
        from grounding_rewards.labels import are_synonyms

        # Not transitive (a label without a side agrees with both sides), so comparing codes is not enough.
        unsettled = ~(agree | np.isnan(pred) | np.isnan(gt))
        count = len(self.texts)
        # A pair of codes as one number, so that each distinct pair is asked once.
        pairs = (pred[unsettled] * count + gt[unsettled]).astype(np.int64)
        distinct_pairs, index_of_pair = np.unique(pairs, return_inverse=True)
        verdicts = []
        for pair in distinct_pairs.tolist():
            pred_code, gt_code = divmod(pair, count)
            verdicts.append(are_synonyms(self.texts[pred_code], self.texts[gt_code]))
        agree[unsettled] = np.array(verdicts, dtype=bool)[index_of_pair]
        return agree


def text_key(label: str) -> str:
    """The label in lower case, with single blanks.

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
