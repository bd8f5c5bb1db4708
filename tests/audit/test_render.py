"""What scripts write: boxes that are read back, and broken ones that are not."""

import numpy as np
import pytest

from grounding_rewards.audit.render import BREAKS, Item, Reply, Size, write
from grounding_rewards.parsing import get_box_format, list_box_formats, parse_boxes

BREAKABLE = ("qwen2.5-vl", "qwen3-vl", "internvl", "minicpm-v", "paligemma", "gemini", "answer-list")
SIZE = Size(1000, 800, 1008, 812)
RIGHT = Item(np.array([200.0, 160.0, 400.0, 480.0]), "mass")
OTHER = Item(np.array([500.0, 200.0, 800.0, 600.0]), "mass")


def read(answer: Reply, name: str):
    fmt = get_box_format(name)
    return parse_boxes(write(answer, SIZE, fmt), fmt, **SIZE._asdict())


@pytest.mark.parametrize("name", list_box_formats())
def test_boxes_are_read_back(name):
    parsed = read(Reply((RIGHT, OTHER)), name)
    # the coarsest format is a grid of 32 cells a side
    np.testing.assert_allclose(parsed.boxes, [RIGHT.box, OTHER.box], atol=32)
    assert read(Reply(), name).status == "empty"


@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("name", BREAKABLE)
def test_a_broken_box_is_broken_where_it_stands(name, how):
    parsed = read(Reply((RIGHT._replace(broken=how), OTHER)), name)
    if how == "swapped corners":
        # numbers, but no box: it overlaps nothing
        assert parsed.boxes[0, 0] > parsed.boxes[0, 2]
        assert len(parsed.boxes) == 2
    else:
        assert len(parsed.boxes) == 1
        np.testing.assert_allclose(parsed.boxes[0], OTHER.box, atol=2)
        assert [one.place for one in parsed.broken][:1] == [0]
