"""The quick ways outside JSON; what is read there is tested by `test_readings.py`."""

import pytest

from grounding_rewards.parsing import get_box_format
from grounding_rewards.parsing.bracket_syntax import read_plain_items, read_plain_lists, read_plain_sentences


@pytest.mark.parametrize(
    ("read", "name", "text"),
    [
        (read_plain_lists, "answer-list", "<answer>[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]</answer>"),
        (read_plain_items, "qwen2-vl", "<|object_ref_start|>a<|object_ref_end|><|box_start|>(1,2),(3,4)<|box_end|>"),
        (read_plain_sentences, "radvlm", "The mass is located at [0.1, 0.2, 0.3, 0.4] and [0.5, 0.6, 0.7, 0.8]."),
    ],
)
def test_plain_text_takes_the_quick_way(read, name, text):
    assert read(text, get_box_format(name)) is not None
