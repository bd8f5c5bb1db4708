"""Every source keeps the promises that `prepare` and the doctor rely on."""

import inspect

import pytest

from grounding_rewards.sources import SOURCES, get_source, list_datasets


def test_the_registry():
    assert list_datasets() == sorted(SOURCES)
    assert get_source("vindr-cxr") is SOURCES["vindr-cxr"]
    with pytest.raises(ValueError, match=r"'vindr'\. Use one of: chest-imagenome, "):
        get_source("vindr")


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_source_takes_a_root_and_a_split_and_says_what_must_be_known(source):
    parameters = inspect.signature(source.read).parameters
    assert next(iter(parameters)) == "root"
    assert parameters["split"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["split"].default is None
    page = inspect.getmodule(source.read).__doc__
    # General formats have no source, licence and access of their own.
    words = ("Folder", "Negative:", "Boxes:", "Access:") if source.title else ("Negative:",)
    assert [word for word in words if word not in page] == []
    assert not source.title or all((source.url, source.licence))
