"""The page of a replay: what it says of rewards, which answers it shows, and that no text can break it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="needs the eval extra")

from grounding_rewards.metrics.answered_image import AnsweredImage  # noqa: E402
from grounding_rewards.metrics.replay import answer_rulers, replay  # noqa: E402
from grounding_rewards.report.replay_page import ReplayPage, headline, render_replay_page  # noqa: E402
from tests.report.evaluations import HOSTILE  # noqa: E402

BOX = [10.0, 10.0, 60.0, 40.0]


def answer(name, share, **values):
    """An answer whose box has this share of the reference box."""
    box = [BOX[0], BOX[1], BOX[0] + 50 * share, BOX[3]]
    return AnsweredImage(name, 100, 80, **{"gt": [BOX], "gt_labels": ["mass"], "pred": [box], "text": "[]", **values})


def page(answers=None, rewards=None, images=None, **values):
    answers = answers or [answer("a", 0.9), answer("a", 0.2), answer("b", 0.6), answer("b", 0.3)]
    n = len(answers)
    images = images or [one.id for one in answers]
    rewards = rewards or {"R1": [0.9, 0.0, 0.2, 0.6], "soft_f1": [0.1, 0.7, 0.6, 0.3], "constant": [0.5] * n}
    groups = [[k for k in range(n) if images[k] == name] for name in dict.fromkeys(images)]
    found = replay(rewards, answer_rulers(answers), groups=groups, images=images)
    shown = {
        **{"title": "Rewards on the same answers", "log": "r4", "found": found, "answers": answers},
        **{"scored": rewards, "images": images, "steps": [3] * n, "load_image": lambda k: None, **values},
    }
    return render_replay_page(ReplayPage(**shown))


def texts(document):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", document))


def test_the_page_says_what_was_compared_and_how_alike_rewards_are():
    document = page()
    shown = texts(document)
    assert "r4: 4 answers to 2 images, 2 groups of several answers to one image; intervals over 2 images" in shown
    assert document.count('<svg class="heat"') == 2
    assert "R1 and soft_f1: -1.000" in document
    assert "R1 with itself" in document
    assert "constant is the same for all answers of every group" in shown


def test_what_has_no_coefficient_is_a_dash_and_never_a_number():
    heat = page().partition('<svg class="heat"')[2].partition("</svg>")[0]
    none = re.findall(r'<g class="none">.*?</g>', heat)
    # constant against two rewards and back, against four rulers
    assert len(none) == 2 + 2 + 4
    assert all(">–</text>" in one for one in none)


def test_heat_maps_are_whole():
    """Every cell and name lies within the picture."""
    document = page(rewards={f"R{k}:iou_threshold=0.{k}": np.random.default_rng(k).random(4) for k in range(1, 8)})
    for drawing in re.findall(r'<svg class="heat".*?</svg>', document, re.DOTALL):
        root = ElementTree.fromstring(drawing)
        _, _, width, height = map(float, root.get("viewBox").split())
        for rect in root.iter("rect"):
            x, y, w, h = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
            assert x >= 0
            assert y >= 0
            assert x + w <= width
            assert y + h <= height
        for text in root.iter("text"):
            assert 0 <= float(text.get("x")) <= width
            assert 0 <= float(text.get("y")) <= height


def test_the_answers_that_rewards_disagree_about_stand_side_by_side():
    opened = []

    def load(k):
        opened.append(k)
        return Image.new("L", (100, 80), 90)

    document = page(load_image=load)
    # the one that R1 prefers stands first
    assert opened == [0, 3]
    assert document.count("<article>") == 2
    assert document.count("data:image/jpeg") == 2
    shown = texts(document)
    assert "a, step 3: mass 0.600" in shown
    assert "preferred by R1 : 1 of 1 found" in shown
    assert "preferred by soft_f1 : 0 of 1 found" in shown
    assert "R1 0.900 &gt; 0.000 soft_f1 0.100 &lt; 0.700 constant 0.500 = 0.500" in shown


@pytest.mark.parametrize(("count", "images"), [(0, 0), (1, 1), (8, 2)])
def test_only_so_many_images_are_shown(count, images):
    opened = []
    document = page(shown=count, load_image=opened.append)
    assert document.count("<article>") == len(opened) == images
    assert ("guard it like the images" in document) == (images > 0)


def test_without_groups_the_page_says_so():
    document = page(
        answers=[answer("a", 0.9), answer("b", 0.2), answer("c", 0.6)],
        rewards={"R1": [0.9, 0.1, 0.5], "R3": [0, 1, 0.5]},
    )
    assert document.count('<svg class="heat"') == 1
    assert "No coefficient: no image has several answers." in document
    assert "Where rewards disagree" not in document


def test_what_a_model_or_a_dataset_wrote_is_text():
    answers = [answer(HOSTILE, share, text=HOSTILE, pred_labels=[HOSTILE]) for share in (0.9, 0.2)]
    document = page(answers=answers, rewards={"R1": [0.9, 0.1], HOSTILE: [0.1, 0.9]})
    assert HOSTILE not in document
    assert "<script" not in document.partition("</style>")[2]


def test_one_of_each_is_named_in_the_singular():
    found = replay({"R1": [1.0]}, {}, groups=[[0]], images=["a"])
    assert headline(found) == "1 answer to 1 image, 0 groups of several answers to one image; intervals over 1 image"
