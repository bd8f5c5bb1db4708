"""The page of an audit: self-contained, complete, and safe with any name."""

import pytest

import grounding_rewards as gr
from grounding_rewards.audit.audit_images import images_of
from grounding_rewards.audit.run import audit
from grounding_rewards.parsing import get_box_format
from grounding_rewards.report.audit_page import audit_verdict, render_audit_page
from tests.report.documents import Document, check_self_contained

FMT = get_box_format("qwen3-vl")
NORMAL = {"boxes": [], "labels": [], "width": 100, "height": 100}
IMAGES = images_of([{**NORMAL, "boxes": [[10, 10, 60, 60]], "labels": ["<b>mass"]}, NORMAL])


@pytest.fixture(scope="module")
def done():
    rewards = {"R1": gr.get_reward("R1", box_format=FMT), "<script>": lambda completions, **columns: 1 / 0}
    return audit(rewards, IMAGES, FMT)


@pytest.fixture(scope="module")
def page(done):
    return render_audit_page(done, dataset="<i>images")


def test_every_script_and_every_finding_is_on_it(done, page):
    for script in done.scripts:
        assert page.count(f'<th scope="row">{script.name.replace("&", "&amp;")}<small>') == 1
    assert page.count(" marked") >= len(done.findings)
    assert audit_verdict(done) in page


def test_it_loads_nothing_and_escapes_names(page):
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<i>images" not in page
    check_self_contained(Document(page))
