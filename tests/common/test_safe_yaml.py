"""YAML of strangers: plain values alone, and nothing that is short to write and endless to read."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml", reason="needs PyYAML, which is in the train extra")

from grounding_rewards.common.safe_yaml import parse_yaml
from grounding_rewards.parsing import box_format_from_option


def laughs(levels: int) -> str:
    """A mapping of a few lines that stands for 9 ** levels entries."""
    return "".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]\n" for n in range(levels))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (laughs(9), "aliases that repeat its parts into more than 1,000,000"),
        ("a: &a [*a]", "aliases"),  # within itself
        ("[" * 100_000, "more than 64 levels"),
        ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("!!python/name:os.system", "could not determine a constructor"),
        ("a: [", "while parsing"),
        ("a: !!bool x", "not what its tag or its form says"),
        ("a: !!int ''", "not what its tag or its form says"),
        ("a: !!timestamp x", "not what its tag or its form says"),
        ("a: 1" + ":00" * 200 + ".0", "not what its tag or its form says"),  # sixty to the 200th
    ],
)
def test_a_text_that_would_run_or_run_away_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_yaml(text)


def test_aliases_that_stay_small_are_read() -> None:
    assert parse_yaml("a: &a [1, 2]\nb: *a") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    "text",
    [
        "{" + laughs(9).replace("\n", ", ") + "}",
        "{a: " * 2_000,
        '{"a": ' + "[" * 9_000,  # JSON's own parser takes stack for every bracket
        "{syntax: !!python/name:os.system }",
        "{syntax: json, note: " + "x" * 10_000 + "}",
    ],
)
def test_a_box_format_in_a_table_of_somebody_else_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="`box_format`"):
        box_format_from_option(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("arms:\n  R3: {reward: R3}\n  R3: {reward: R4}\n", "R3"),  # the study's R3 would be R4
        ("- a: 1\n  a: 1\n", "a"),
        ("1: x\n1: y\n", "1"),
    ],
)
def test_a_key_that_stands_twice_is_refused(text, key):
    with pytest.raises(ValueError, match=f"the key '{key}' twice"):
        parse_yaml(text)


def test_a_key_may_override_what_an_alias_brings():
    assert parse_yaml("base: &b {a: 1}\nown: {<<: *b, a: 2}\n")["own"] == {"a": 2}
    assert parse_yaml("1: x\n'1': y\n") == {1: "x", "1": "y"}
