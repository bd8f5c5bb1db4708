"""A drawn image has its boxes where they are, in the colours of the pages."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import grounding_rewards
from grounding_rewards.images.drawn_boxes import PREDICTED, REFERENCE, answer_picture, show
from grounding_rewards.metrics.prediction import Prediction

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


def has(picture, colour, x, y, reach=3):
    """Whether the colour is near a point of the image, whose pixels are 4.8 of the picture, below 50 of title."""
    wanted = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    i, j = round(50 + 4.8 * y), round(4.8 * x)
    part = picture[max(0, i - reach) : i + reach, max(0, j - reach) : j + reach].astype(int)
    return bool((np.abs(part - wanted).max(axis=-1) < 40).any())


def test_each_box_is_drawn_in_the_style_of_its_outcome():
    image = Prediction(
        "a", 100, 100, gt=[[5, 5, 30, 30], [60, 60, 90, 90]], gt_labels=["mass", "nodule"],
        pred=[[5, 5, 29, 30], [40, 10, 60, 20]],
    )  # fmt: skip
    picture = answer_picture(image, None)
    assert picture.shape == (530, 480, 3)
    assert has(picture, PREDICTED["right"], 29, 17)
    assert has(picture, PREDICTED["wrong place"], 50, 10)
    dashes = [has(picture, REFERENCE["missed"], x, 60, 2) for x in np.arange(62, 88, 0.5)]
    assert any(dashes)
    assert not all(dashes)
    solid = [has(picture, PREDICTED["wrong place"], x, 10, 2) for x in np.arange(42, 58, 0.5)]
    assert all(solid)


@pytest.mark.parametrize("size", [(1, 4000), (4000, 1), (0.5, 0.5)])
def test_images_of_any_shape_and_broken_boxes_are_drawn(size):
    image = Prediction("$x_$\n", *size, pred=[[np.nan, 0, 1, 1], [3, 3, 2, 2], [np.inf, 0, 1, 1]])
    assert answer_picture(image, None).ndim == 3


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
    for image in (tmp_path / "image.png", Image.new("RGB", (100, 100)), np.zeros((100, 100))):
        axes = Figure().subplots()
        assert show(image, parsed, reference, ax=axes) is axes
        assert [to_hex(patch.get_edgecolor()) for patch in axes.patches] == colours
        assert [text.get_text() for text in axes.texts] == ["mass"]
    with pytest.raises(ValueError, match="Expected"):
        show(np.zeros((9, 9)), [[1, 2, 3]])
    with pytest.raises(ValueError, match="Expected"):
        show(np.zeros((9, 9)), [[1, 2, 3, 4]], labels=["mass", "nodule"])
