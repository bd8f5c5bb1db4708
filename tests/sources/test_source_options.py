"""Options of sources from a command line."""

from __future__ import annotations

import pytest

from grounding_rewards.sources import get_source
from grounding_rewards.sources.source_options import source_options


@pytest.mark.parametrize(
    ("dataset", "given", "options"),
    [
        ("vindr-cxr", [], {}),
        ("vindr-cxr", ["sizes=a=b.csv"], {"sizes": "a=b.csv"}),  # the first sign separates
        ("nih-chestxray14", ["negatives=False"], {"negatives": False}),
        ("grazpedwri-dx", ["classes=fracture,metal"], {"classes": ("fracture", "metal")}),
        ("vlm-r1", ['box_format={"syntax": "vlm-r1"}'], {"box_format": {"syntax": "vlm-r1"}}),
        ("vlm-r1", ["annotations={split}.json"], {"annotations": "{split}.json"}),
    ],
)
def test_options(dataset, given, options):
    assert source_options(get_source(dataset).read, given) == options


@pytest.mark.parametrize(
    ("dataset", "given", "message"),
    [
        ("vindr-cxr", ["sizes"], "Expected NAME=VALUE for --option, got 'sizes'"),
        ("vindr-cxr", ["size=a.csv"], "got 'size'. It has: sizes"),
        ("siim-acr", ["sizes=a.csv"], "It has: none"),
        ("vlm-r1", ['box_format={"syntax"'], "Expected JSON for --option"),
    ],
)
def test_mistakes_are_named(dataset, given, message):
    with pytest.raises(ValueError, match=message):
        source_options(get_source(dataset).read, given)
