"""The estimate of tokens, against pieces counted by hand and against a real tokenizer's counts."""

import pytest

from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.doctor.context import estimated_tokens
from grounding_rewards.parsing import get_box_format
from tests.tables import table

BOXES = [[691, 1375, 1653, 1831], [1264, 743, 1611, 1019]]
IMAGE = {"width": 2080, "height": 2336, "resized_width": 924, "resized_height": 1036}


@pytest.mark.parametrize(("text", "box_format", "tokens"), table("doctor/texts", "pieces_counted_by_hand"))
def test_pieces_counted_by_hand(text, box_format, tokens):
    assert estimated_tokens(text, get_box_format(box_format)) == tokens


@pytest.mark.parametrize(
    ("box_format", "tokens"),
    # Counted by the tokenizer of Qwen3 (tokenizers 0.23.3), its end token left out.
    [("qwen2-vl", 51), ("qwen2.5-vl", 79), ("qwen3-vl", 79), ("vlm-r1", 77), ("visual-rft", 66), ("answer-list", 59)],
)
def test_token_estimates_exceed_the_tokenizer_by_at_most_a_quarter(box_format, tokens):
    fmt = get_box_format(box_format)
    answer = gold_answer({"boxes": BOXES, "labels": ["pleural effusion", "cardiomegaly"], **IMAGE}, fmt)
    assert tokens <= estimated_tokens(answer, fmt) <= 1.25 * tokens
