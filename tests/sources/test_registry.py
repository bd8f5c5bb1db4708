"""Every reader keeps the promises that `prepare` and the doctor rely on, whichever dataset it reads."""

from __future__ import annotations

import inspect

import pytest

from grounding_rewards.sources import READERS, SOURCES, get_reader, list_datasets

# General formats have no source, licence and access of their own.
FORMATS = {"coco", "yolo", "voc", "jsonl", "vlm-r1", "ms-swift"}


def test_the_registry():
    assert list_datasets() == sorted(READERS)
    assert get_reader("vindr-cxr") is READERS["vindr-cxr"]
    with pytest.raises(ValueError, match=r"Expected one of chest-imagenome, .* for the name of a dataset, got 'vindr'"):
        get_reader("vindr")


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_a_root_and_a_split(name):
    parameters = inspect.signature(READERS[name]).parameters
    assert next(iter(parameters)) == "root"
    assert parameters["split"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["split"].default is None


@pytest.mark.parametrize("name", READERS)
def test_a_reader_says_what_must_be_known(name):
    page = inspect.getmodule(READERS[name]).__doc__
    words = ("Negative:",) if name in FORMATS else ("Folder", "Negative:", "Boxes:", "Access:")
    assert [word for word in words if word not in page] == []
    assert name in FORMATS or all((SOURCES[name].title, SOURCES[name].url, SOURCES[name].licence))
