"""The page of a comparison: complete in itself, honest about its choice of images, and safe with any text in it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from grounding_rewards.metrics.comparison import Change, Units, compare_runs
from grounding_rewards.metrics.intervals import Estimate, Metric
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.report.comparison import Comparison, SharedImage, choose_first, render_diff_page
from tests.report.documents import Document, check_self_contained
from tests.tables import table

BOX = (10.0, 10.0, 60.0, 40.0)


def pair(name: str, a: float, b: float, *, normal: bool = False, **values: Any) -> SharedImage:
    """An image whose rewards are those of A and B; a normal one without a box where it earns something."""
    gt = [] if normal else [BOX]
    said = {"gt_labels": ["mass"] * len(gt), "text": "[]", "reason": "because", **values}
    return tuple(
        Prediction(name, 100, 80, gt=gt, rewards={"R4": earned}, **{"pred": [] if normal and earned else [BOX], **said})
        for earned in (a, b)
    )


def page(pairs: list[SharedImage], *, label_matching: str = "ignore", **values: Any) -> str:
    a, b = zip(*pairs, strict=True)
    compared: dict[str, Any] = {
        "paths": (Path("runs/before"), Path("runs/after")),
        "names": ("before", "after"),
        "metrics": ["f1_50", "mean_iou"],
        "images": (a, b),
        "run_facts": ({}, {"dataset": "drawn images"}),
    }
    # Every image has pixels of its own, as on real pages.
    load_image = values.pop("load_image", lambda image: Image.new("L", (100, 80), sum(image.id.encode()) % 256))
    metrics = compared["metrics"]
    found = values.pop("found", None) or compare_runs(a, b, label_matching=label_matching, core=metrics, resamples=10)
    return render_diff_page(Comparison(**{"difference": found, **compared, **values}), load_image=load_image)


def first_images(text: str) -> str:
    """The images of the page, without the legend before them."""
    return text[text.index("<article") :]


def drawn_boxes(text: str, side: str = "predicted") -> list[str]:
    """Side and outcome of the boxes on images."""
    return [" ".join(found) for found in re.findall(rf'<g class="is-({side}) (o-[a-z-]+)">', first_images(text))]


def test_boxes_are_drawn_by_outcome_under_the_label_rule() -> None:
    one = pair("a", 0.1, 0.9, pred_labels=["left lung"], gt_labels=["right lung"])
    text = page([one], label_matching="exact")
    assert drawn_boxes(text) == ["predicted o-wrong-label"] * 2
    assert drawn_boxes(text, "reference") == ["reference o-wrong-label"] * 2
    assert first_images(text).count("0 of 1 found, 1 under a wrong label\n") == 2
    assert drawn_boxes(page([one])) == ["predicted o-right"] * 2
    # a box in a wrong place is crossed out, whatever its colour
    missed = page([pair("a", 0.1, 0.9, pred=[(70, 50, 90, 70)])])
    assert drawn_boxes(missed) == ["predicted o-wrong-place"] * 2
    assert first_images(missed).count("<line ") == 4


def test_the_first_images_are_chosen_by_rule() -> None:
    # of "mass" seven images whose gains are -0.3 to 0.3, of three rarer findings one each, and five normal images
    pairs = [pair(f"m{k}", 0.5, 0.5 + k / 10) for k in range(-3, 4)]
    pairs += [pair(label, 0.5, 0.6, gt_labels=[label]) for label in ("effusion", "nodule", "fracture", "rare")]
    pairs += [pair(f"n{k}", 0.0, k / 10, normal=True) for k in range(5)]
    chosen = {choice.title: [pairs[k][0].id for k in choice.places] for choice in choose_first(pairs, "R4")}
    # the median of the six that are left: the worst is at the end
    medians = {"mass": "m0", "effusion": "effusion", "nodule": "nodule", "fracture": "fracture"}
    medians = {f"{label}, median change": [name] for label, name in medians.items()}
    assert chosen == {**medians, "normal image": ["n2"], "worst loss": ["m-3"]}
    # without a loss there is none
    assert [choice.title for choice in choose_first([pair("up", 0.1, 0.9)], "R4")] == ["mass, median change"]
    assert choose_first([], "R4") == []


def test_the_page_begins_with_reference_before_and_after() -> None:
    text = page([pair("a", 0.1, 0.9), pair("b", 0.5, 0.2), pair("c", 0.0, 0.2, normal=True)])
    first = text[text.index('<div class="opening">') : text.index('<p class="verdict">')]
    cards = first.split("<article")[1:]
    assert [re.findall("<strong>(.*?)</strong>", card) for card in cards] == [
        ["reference", "before 0.10", "after 0.90"],
        ["reference", "before 0.00", "after 0.20"],
        ["reference", "before 0.50", "after 0.20"],
    ]
    # the reference alone, without what became of it
    assert cards[0].count('class="reference"') == 3
    assert cards[0].count('<g class="is-') == 4
    assert text.index('<p class="verdict">') < text.index("<table>")


def test_page_is_well_formed_and_refers_to_nothing_outside() -> None:
    text = page([pair("a", 0.1, 0.9, text="[1, 2, 3, 4]"), pair("b", 0.0, 0.2, normal=True)])
    check_self_contained(Document(text))
    # each image is in the file once, and drawn three times
    assert text.count("data:image/jpeg") == 2
    assert text.count('href="#image-1"') == 3


def test_what_anyone_writes_is_shown_and_not_run() -> None:
    nasty = '<script>alert("x")</script>&'
    pairs = [pair("<b>", 0.1, 0.9, gt_labels=[nasty], pred_labels=[nasty], reason=nasty, text=nasty)]
    found = compare_runs(*zip(*pairs, strict=True), resamples=10)
    change = found.metrics["f1_50"]._replace(metric=Metric(nasty, nasty))
    text = page(
        pairs,
        found=replace(found, metrics={**found.metrics, "f1_50": change}),
        paths=(Path("<script>"), Path("after")),
        names=("<script>", "after"),
        run_facts=({nasty: nasty}, {nasty: f"{nasty}!", "dataset": nasty}),
    )
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 12
    assert 'title="&lt;b&gt;"' in text


@pytest.mark.parametrize(("box", "drawn"), table("report/tables", "drawn_boxes"))
def test_boxes_that_can_be_drawn_are(box: tuple[float, ...], drawn: bool) -> None:
    one = pair("a", 0.0, 0.2, normal=True)
    text = page([(replace(one[0], pred=[box], pred_labels=(), pred_scores=()), one[1])])
    assert drawn_boxes(text) == ["predicted o-wrong-place"] * drawn
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ElementTree.fromstring(svg)


@pytest.mark.parametrize(("difference", "holm", "kind"), table("report/tables", "colours"))
def test_cells_are_coloured_by_the_verdict(difference: tuple[float, float, float], holm: float, kind: str) -> None:
    pairs = [pair("a", 0.1, 0.9)]
    found = compare_runs([pairs[0][0]], [pairs[0][1]], resamples=10)
    ends, metric = Estimate(0.5, 0, 1), Metric("x", "")
    change = Change(metric, ends, ends, Estimate(*difference), Units(0, 0, 0), holm, holm)
    found = replace(found, main="f1_50", core=("f1_50",), metrics={"f1_50": change})
    text = page(pairs, found=found, metrics=["f1_50"])
    assert re.search(r'<td class="(\w+)">[+-]0.100', text).group(1) == kind
