"""The table of box formats, and finding an entry."""

import pickle

import pytest

from grounding_rewards.parsing import box_format_for_model_type, get_box_format, list_box_formats


def test_names():
    assert list_box_formats() == ["answer-list", "qwen2-vl", "qwen2.5-vl", "qwen3-vl", "radvlm"]


@pytest.mark.parametrize("name", list_box_formats())
def test_an_entry_is_a_value(name):
    fmt = get_box_format(name)
    assert fmt.name == name
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert len({fmt, get_box_format(name)}) == 1


@pytest.mark.parametrize("name", ["qwen", "Qwen3-VL", "", None, ["qwen3-vl"]])
def test_unknown_format_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"for `box_format`, got .*answer-list, qwen2-vl, qwen2\.5-vl"):
        get_box_format(name)


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        # `model_type` in the configurations of transformers 5
        ("qwen2_vl", "qwen2-vl"),
        ("qwen2_5_vl", "qwen2.5-vl"),
        ("qwen3_vl", "qwen3-vl"),
        ("qwen3_vl_moe", "qwen3-vl"),
    ],
)
def test_format_of_a_model(model_type, name):
    assert box_format_for_model_type(model_type) == name


def test_format_of_an_unknown_model():
    with pytest.raises(ValueError, match=r"qwen2_vl, qwen2_5_vl.*for `model_type`, got 'llama'.*answer-list"):
        box_format_for_model_type("llama")


@pytest.mark.parametrize(
    ("name", "from_token_ids"),
    # only Qwen2-VL's tokens around labels and boxes are special
    [("qwen2-vl", True), ("qwen2.5-vl", False), ("qwen3-vl", False), ("answer-list", False), ("radvlm", False)],
)
def test_formats_that_need_token_ids(name, from_token_ids):
    assert get_box_format(name).from_token_ids is from_token_ids
