"""A drawn image has its boxes where they are, in the colours of the pages."""

import re
from pathlib import Path

import numpy as np
import pytest

import grounding_rewards
from grounding_rewards.images.drawn_boxes import MOST_BOXES, PREDICTED, REFERENCE, show

pytest.importorskip("matplotlib")

CSS = (Path(grounding_rewards.__file__).parent / "report" / "page.css").read_text(encoding="utf-8")


def test_colours_are_those_of_the_pages():
    of_page = {}
    for names, colour in re.findall(r"^([^{\n]*) \{ --outcome: (#\w+); \}", CSS, re.MULTILINE):
        of_page |= dict.fromkeys(re.findall(r"\.o-([\w-]+)", names), colour) if "is-reference" not in names else {}
    of_page["found"] = re.search(r"\.o-found, \.is-reference\.o-wrong-label \{ --outcome: (#\w+)", CSS)[1]
    for outcome, colour in PREDICTED.items():
        assert of_page[outcome.replace(" ", "-")] == colour
    assert REFERENCE["found"] == REFERENCE["wrong label"] == of_page["found"]
    assert REFERENCE["missed"] == of_page["missed"]


def test_each_box_is_drawn_in_the_style_of_its_outcome():
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

    gt = [[5, 5, 30, 30], [60, 60, 90, 90]]
    pred = [[5, 5, 29, 30], [40, 10, 60, 20], [np.nan, 0, 1, 1], [3, 3, 2, 2]]
    patches = show(np.zeros((100, 100)), pred, gt, ax=Figure().subplots()).patches
    assert [patch.get_bbox().extents.tolist() for patch in patches[:4]] == [*gt, *pred[:2]]
    colours = [REFERENCE["found"], REFERENCE["missed"], PREDICTED["right"], *[PREDICTED["wrong place"]] * 2]
    # A box without finite numbers has no place.
    assert [to_hex(patch.get_edgecolor()) for patch in patches] == colours
    assert [patch.get_linestyle() == "solid" for patch in patches] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("reference", "colours"),
    [
        (None, [PREDICTED["right"]] * 2),  # nothing to be wrong about
        ([[10, 10, 50, 50]], [REFERENCE["found"], PREDICTED["right"], PREDICTED["wrong place"]]),
        ([[10, 50, 50, 90]], [REFERENCE["missed"], *[PREDICTED["wrong place"]] * 2]),
    ],
)
def test_show_draws_on_axes(reference, colours, tmp_path):
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure
    from PIL import Image

    text = '[{"bbox_2d": [100, 100, 500, 500], "label": "mass"}, {"bbox_2d": [800, 800, 900, 900]}]'
    parsed = grounding_rewards.parse_boxes(text, "qwen3-vl", width=100, height=100)
    Image.new("L", (100, 100)).save(tmp_path / "image.png")
    for image in (tmp_path / "image.png", np.zeros((100, 100))):
        axes = Figure().subplots()
        assert show(image, parsed, reference, ax=axes) is axes
        assert [to_hex(patch.get_edgecolor()) for patch in axes.patches] == colours
        assert [text.get_text() for text in axes.texts] == ["mass"]
    # A label stands only where its box is drawn.
    axes = Figure().subplots()
    show(np.zeros((9, 9)), [[0, 0, 5, 5]] * 60, labels=["mass"] * 60, ax=axes)
    assert len(axes.texts) == len(axes.patches) == MOST_BOXES
    with pytest.raises(ValueError, match="Expected"):
        show(np.zeros((9, 9)), [[1, 2, 3, 4]], labels=["mass", "nodule"])
