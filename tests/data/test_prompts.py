"""The gold answer is what the parser reads back."""

from __future__ import annotations

import numpy as np
import pytest

from grounding_rewards.data.prompts import gold_answer, prompt_messages
from grounding_rewards.parsing import list_box_formats, parse_boxes

ROW = {
    "boxes": [[100.0, 40.0, 300.0, 200.0], [50.0, 10.0, 90.0, 90.0]],
    "labels": ["mass", "effusion"],
    "width": 400,
    "height": 320,
    "resized_width": 200,
    "resized_height": 160,
}
SIZES = {key: ROW[key] for key in ("width", "height", "resized_width", "resized_height")}


@pytest.mark.parametrize("box_format", list_box_formats())
def test_every_format_reads_its_gold_answer_back(box_format):
    parsed = parse_boxes(gold_answer(ROW, box_format), box_format, **SIZES)
    # half a hundredth, or half of one of 32 cells, of 400 pixels
    np.testing.assert_allclose(parsed.boxes, ROW["boxes"], atol=6.25 if box_format == "kosmos-2" else 2)


@pytest.mark.parametrize("box_format", list_box_formats())
def test_a_normal_film_has_a_stated_negative(box_format):
    answer = gold_answer({**ROW, "boxes": [], "labels": []}, box_format)
    assert parse_boxes(answer, box_format, **SIZES).status == "empty"


def test_qwen_2_5_counts_in_resized_pixels():
    # By hand: the film is shrunk to half.
    assert '"bbox_2d": [50, 20, 150, 100], "label": "mass"' in gold_answer(ROW, "qwen2.5-vl")


def test_prompt_names_every_label():
    (message,) = prompt_messages(["left lung", "right lung"])
    assert message["role"] == "user"
    assert [block["type"] for block in message["content"]] == ["image", "text"]
    assert "left lung, right lung" in message["content"][1]["text"]


def test_prompt_without_labels_is_refused():
    with pytest.raises(ValueError, match="Expected at least one name for labels"):
        prompt_messages([])
