"""The table of box formats, finding an entry, and declaring one."""

import datetime
import json
import pickle
import tomllib
from importlib.resources import files
from itertools import chain

import pytest

from grounding_rewards.boxes import get_space
from grounding_rewards.parsing import box_format_for_model_type, get_box_format, list_box_formats, parse_boxes
from grounding_rewards.parsing.formats import MODEL_TYPES, MODELS_WITHOUT_FORMAT
from tests.tables import table


@pytest.mark.parametrize("name", ["xyz", "Qwen3_VL", "someone/a-model", "", None, ["a", "b"]])
def test_unknown_format_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"for `box_format`, got .*qwen2-vl, qwen2\.5-vl.*answer-list.*syntax: json"):
        get_box_format(name)


def test_declared_formats_are_values():
    declared = {"syntax": "json", "keys": ["box"], "order": "yxyx", "space": "norm1000"}
    fmt = get_box_format(declared)
    assert fmt == get_box_format(dict(reversed(declared.items())))
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert (fmt.keys, fmt.order, fmt.space, fmt.scope) == (("box",), "yxyx", get_space("norm1000"), "answer")
    # as JSON, which needs no YAML to be read again
    assert json.loads(fmt.name)["syntax"] == "json"
    # so the cell of a table says it, too
    assert get_box_format(fmt.name) == fmt


def test_the_cell_of_a_table_may_declare_in_yaml():
    pytest.importorskip("yaml", reason="needs pyyaml")
    fmt = get_box_format("{syntax: json, keys: [box], order: yxyx, space: norm1000}")
    assert fmt == get_box_format({"syntax": "json", "keys": ["box"], "order": "yxyx", "space": "norm1000"})


@pytest.mark.parametrize(
    ("space", "decimals"), [("norm1", 3), ("pad1", 3), ("pixel", 0), ("resized_pixel", 0), ("norm1000", 0)]
)
def test_fractions_get_decimals(space, decimals):
    assert get_box_format({"syntax": "json", "space": space}).decimals == decimals


@pytest.mark.parametrize(("declared", "largest"), table("parsing/cases", "the_largest_number_follows_the_space"))
def test_the_largest_number_follows_the_space(declared, largest):
    assert get_box_format(declared).largest == largest


@pytest.mark.parametrize(("declared", "message"), table("parsing/format_cases", "wrong_declarations"))
def test_wrong_declarations_name_what_is_legal(declared, message):
    with pytest.raises(ValueError, match=message):
        get_box_format(declared)


@pytest.mark.parametrize(("name", "model_types"), table("parsing/format_cases", "model_types").items())
def test_a_model_type_has_its_format(name, model_types):
    assert {box_format_for_model_type(model_type) for model_type in model_types.split()} == {name}


def test_format_of_an_unknown_model():
    with pytest.raises(ValueError, match=r"qwen2_vl, qwen2_5_vl.*for `model_type`, got 'llama'.*answer-list"):
        box_format_for_model_type("llama")


@pytest.mark.parametrize(("model_type", "said"), table("parsing/format_cases", "without_format"))
def test_a_model_without_a_format_is_refused_with_a_remedy(model_type, said):
    with pytest.raises(ValueError, match=f"{said}.*grounding-rewards inspect answers.jsonl"):
        box_format_for_model_type(model_type)


def test_a_family_is_one_line_with_its_source_and_date():
    text = (files("grounding_rewards.parsing") / "formats.toml").read_text("utf-8")
    families = tomllib.loads(text)["families"]
    assert {family["format"] for family in families} <= set(list_box_formats())
    assert all(family["source"] and isinstance(family["date"], datetime.date) for family in families)
    rows = [line for line in text.splitlines() if line.startswith("    { format = ") and line.endswith(" },")]
    assert len(rows) == len(families)


def test_a_model_type_has_one_format_or_a_reason():
    types = [*chain.from_iterable(MODEL_TYPES.values()), *MODELS_WITHOUT_FORMAT]
    assert len(types) == len(set(types))


@pytest.mark.parametrize(("name", "text", "boxes"), table("parsing/format_cases", "answers"))
def test_answers_of_this_year_s_models(name, text, boxes):
    assert parse_boxes(text, box_format=name, width=1000, height=1000).boxes.round(6).tolist() == boxes


def test_model_types_are_those_of_transformers():
    known = pytest.importorskip("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    types = set(chain.from_iterable(MODEL_TYPES.values()))
    # These come with code of their own, which transformers does not have.
    assert types - set(known) <= {"internvl_chat", "deepseek_vl_v2", "ovis2_5", "kimi_vl", "minicpmv", "minicpmo"}
