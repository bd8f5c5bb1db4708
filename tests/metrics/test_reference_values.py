"""What rows may hold where a value is missing or wrong."""

from __future__ import annotations

from typing import Any

import pytest

from grounding_rewards.metrics.answered_image import UNNAMED
from grounding_rewards.metrics.answers import read_references

ROW: dict[str, Any] = {"id": "a", "boxes": [[0, 0, 5, 5]], "labels": ["mass"], "width": 10, "height": 10}


@pytest.mark.parametrize("patient", [None, "", float("nan")])
def test_a_patient_that_is_missing_is_not_known(patient: Any) -> None:
    assert read_references([{**ROW, "patient_id": patient}])[0].patient is None


@pytest.mark.parametrize("labels", [None, [None]])
def test_a_label_that_is_missing(labels: Any) -> None:
    assert read_references([{**ROW, "labels": labels}])[0].gt_labels == (UNNAMED,)


@pytest.mark.parametrize("width", ["wide", 0, -3, float("nan"), float("inf"), [10]])
def test_a_width_that_is_none_is_refused(width: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected a number of pixels for `width`, got .* for the image with id 'a'"):
        read_references([{**ROW, "width": width}])
