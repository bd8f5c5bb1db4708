"""The page of a comparison: complete in itself, honest about its choice of images, and safe with any text in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.comparison import Change, Units, compare_runs
from grounding_rewards.metrics.counts import DETECTION_METRICS
from grounding_rewards.metrics.estimates import Estimate, Metric
from grounding_rewards.report.comparison_tables import Comparison
from grounding_rewards.report.diff_page import SharedImage, choose_shared, render_diff_page
from grounding_rewards.report.plots import training_plot
from tests.report.documents import Document, check_self_contained

BOX = (10.0, 10.0, 60.0, 40.0)


def pair(name: str, a: float, b: float, *, normal: bool = False, **values: Any) -> SharedImage:
    """An image whose rewards are those of A and B; a normal one without a box where it earns something."""
    gt = [] if normal else [BOX]
    said = {"gt_labels": ["mass"] * len(gt), "text": "[]", "reason": "because", **values}
    return tuple(
        AnsweredImage(
            name, 100, 80, gt=gt, rewards={"R4": earned}, **{"pred": [] if normal and earned else [BOX], **said}
        )
        for earned in (a, b)
    )


def page(pairs: list[SharedImage], *, label_matching: str = "ignore", **values: Any) -> str:
    a, b = zip(*pairs, strict=True)
    compared: dict[str, Any] = {
        "paths": (Path("runs/before"), Path("runs/after")),
        "names": ("before", "after"),
        "metrics": ["f1_50", "mean_iou"],
        "chosen": True,
        "baselines": [{"nothing found": {"f1_50": Estimate(0.0, 0.0, 0.0)}}],
        "images": (a, b),
        "made": ({}, {"dataset": "drawn images"}),
    }
    shown: dict[str, Any] = {
        "load_image": lambda image: Image.new("L", (100, 80), 40),
        "training": training_plot([{"step": 1, "reward": 0.5}]),
    }
    shown |= {key: values.pop(key) for key in shown.keys() & values}
    found = values.pop("found", None) or compare_runs(a, b, label_matching=label_matching, resamples=10)
    return render_diff_page(Comparison(**{"differences": [found], **compared, **values}), **shown)


def drawn_boxes(text: str, side: str = "predicted") -> list[str]:
    """Side and outcome of the boxes on images; those of the legend come before them."""
    images = text[text.index("<article") :]
    return [" ".join(found) for found in re.findall(rf'<g class="is-({side}) (o-[a-z-]+)">', images)]


def test_boxes_are_shown_by_what_became_of_them_under_the_rule_for_labels() -> None:
    one = pair("a", 0.1, 0.9, pred_labels=["left lung"], gt_labels=["right lung"])
    text = page([one], label_matching="exact")
    assert drawn_boxes(text) == ["predicted o-wrong-label"] * 2
    assert drawn_boxes(text, "reference") == ["reference o-wrong-label"] * 2
    assert (
        text.count("0 of 1 found, 1 under a wrong label</") + text.count("0 of 1 found, 1 under a wrong label\n") == 2
    )
    assert "left lung: wrong label" in text
    # findings that are named by side tell that the image is frontal
    assert text.count(">R</text>") == text.count(">L</text>") == 2
    other = page([one])
    assert drawn_boxes(other) == ["predicted o-right"] * 2
    # a box in a wrong place is crossed out, whatever its colour
    missed = page([pair("a", 0.1, 0.9, pred=[(70, 50, 90, 70)])])
    assert drawn_boxes(missed) == ["predicted o-wrong-place"] * 2
    assert missed[missed.index("<article") :].count("<line ") == 4
    assert ">R</text>" not in missed


def test_sections_tell_losses_gains_middle_unchanged_and_normal_images() -> None:
    pairs = [pair(f"f{i}", 0.5, i / 20) for i in range(20)] + [pair(f"s{i}", 0.5, 0.5) for i in range(4)]
    pairs += [pair(f"n{i}", 0.0, 0.2 * (i % 2), normal=True) for i in range(8)]
    sections = choose_shared(pairs, "R4", ["before", "after"], count=3)
    titles = ["Largest losses", "Largest gains", "In the middle", "Unchanged", "Normal images"]
    assert [section.title for section in sections] == titles
    losses, gains, middle, unchanged, normal = ([pairs[k][0].id for k in section.places] for section in sections)
    assert gains == ["f19", "f18", "f17"]
    assert losses == ["f0", "f1", "f2"]
    assert middle == ["f10", "s0", "s1"]
    assert unchanged == ["s2", "s3"]
    assert len(normal) == 3
    assert "9 of 24 images with findings have a higher R4 in after, 10 a lower one" in sections[0].note
    assert "5 of 24 images with findings have the same R4" in sections[3].note
    assert "0 of 8 in before, 4 of 8 in after" in sections[4].note


@pytest.mark.parametrize(
    ("pairs", "titles"),
    [
        ([], []),
        ([pair("up", 0.1, 0.9)], ["Largest gains"]),
        ([pair("down", 0.9, 0.1)], ["Largest losses"]),
        ([pair("same", 0.5, 0.5)], ["In the middle"]),
        ([pair("normal", 0.0, 0.2, normal=True)], ["Normal images"]),
    ],
)
def test_empty_sections_are_left_out_and_no_image_comes_twice(pairs: list[SharedImage], titles: list[str]) -> None:
    assert [section.title for section in choose_shared(pairs, "R4", ["before", "after"])] == titles


def test_page_is_well_formed_and_refers_to_nothing_outside() -> None:
    text = page([pair("a", 0.1, 0.9, text="[1, 2, 3, 4]"), pair("b", 0.0, 0.2, normal=True)])
    check_self_contained(Document(text))
    assert text.count("<blockquote><pre>[1, 2, 3, 4]</pre></blockquote>") == 2
    # each image is in the file once, and drawn twice
    assert text.count("data:image/jpeg") == 2
    assert text.count('href="#image-1"') == 2
    # the policy in its head lets nothing be loaded and nothing run, style attributes among it
    assert "default-src 'none'; img-src data:; style-src 'sha256-" in text
    assert "script-src 'none'" in text


def test_without_images_curves_and_baselines_there_is_none() -> None:
    text = page([pair("a", 0.1, 0.9)], load_image=lambda image: None, training=None, baselines=[{}])
    assert "Training" not in text
    assert "nothing found" not in text
    assert "data:image/jpeg" not in text
    assert "<use" not in text
    assert drawn_boxes(text) == ["predicted o-right"] * 2


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
        made=({nasty: nasty}, {nasty: f"{nasty}!", "dataset": nasty}),
        baselines=[{nasty: {}}],
    )
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 12
    assert 'title="&lt;b&gt;"' in text


@pytest.mark.parametrize(
    ("box", "drawn"),
    [
        ((10, 10, 60, 40), True),
        ((-50, -50, 500, 500), True),  # the frame of the image cuts it
        ((60, 10, 10, 40), False),  # inverted
        ((10, 10, 10, 40), False),  # no area
        ((0, 0, float("nan"), 40), False),
        ((0, 0, float("inf"), 40), False),
    ],
)
def test_boxes_that_can_be_drawn_are(box: tuple[float, ...], drawn: bool) -> None:
    one = pair("a", 0.0, 0.2, normal=True)
    text = page([(replace(one[0], pred=[box], pred_labels=(), pred_scores=()), one[1])])
    assert drawn_boxes(text) == ["predicted o-wrong-place"] * drawn
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ElementTree.fromstring(svg)


def test_large_images_are_shrunk() -> None:
    assert len(page([pair("a", 0.1, 0.9)], load_image=lambda image: Image.effect_noise((3000, 2000), 60))) < 300_000


@pytest.mark.parametrize(
    ("difference", "lower_is_better", "kind"),
    [
        ((0.1, 0.05, 0.2), False, "better"),
        ((0.1, -0.05, 0.2), False, "soft"),  # may be chance
        ((-0.1, -0.2, -0.05), False, "worse"),
        ((-0.1, -0.2, -0.05), True, "better"),
        ((0.1, 0.05, 0.2), True, "worse"),
    ],
)
def test_tiles_are_coloured_only_where_the_interval_leaves_0(
    difference: tuple[float, float, float], lower_is_better: bool, kind: str
) -> None:
    pairs = [pair("a", 0.1, 0.9)]
    found = compare_runs([pairs[0][0]], [pairs[0][1]], resamples=10)
    ends, metric = Estimate(0.5, 0, 1), Metric("x", "", lower_is_better=lower_is_better)
    change = Change(metric, ends, ends, Estimate(*difference), Units(0, 0, 0), float("nan"), float("nan"))
    text = page(pairs, found=replace(found, metrics={"f1_50": change}), metrics=["f1_50"])
    assert re.search(r'</b>\s*<span class="(\w+)">', text).group(1) == kind


def test_the_table_has_the_chosen_metrics_beside_the_baselines() -> None:
    text = page([pair("a", 0.1, 0.9), pair("b", 0.1, 0.2)])
    table = text.partition('class="panel"')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="col">(.*?)</th>', table)[1:4] == ["before", "after", "after − before"]
    assert '<th scope="col">nothing found</th>' in table
    assert re.findall(r'<th scope="row">([^<]*)', table) == ["F1 at IoU 0.5", "mean IoU"]
    # in groups, with one definition each; what each metric is stands below
    assert re.findall(r'<th scope="rowgroup" colspan="6">([^<]*)<small>[A-Z]', table) == ["Finding", "Placing"]
    assert f"<dt>mean IoU</dt><dd><bdi>{DETECTION_METRICS['mean_iou'].definition}</bdi></dd>" in text


def test_the_verdict_on_several_runs_is_short() -> None:
    """One sentence for each run would tell every number twice: they stand in the table."""
    boxes = [[BOX], [], [(10.0, 10.0, 60.0, 12.0)]]
    runs = [
        [AnsweredImage(f"{k}", 100, 80, gt=[BOX], gt_labels=["mass"], pred=pred) for k in range(12)] for pred in boxes
    ]
    before, good, none = runs[1], runs[0], runs[2]
    runs = {"before": before, "R3": good, "R5": none}
    compared = {
        "differences": [compare_runs(before, run, resamples=200) for run in (good, none)],
        "paths": [Path(name) for name in runs],
        "names": [*runs],
        "metrics": ["f1_50"],
        "baselines": [{}, {}],
        "images": [*runs.values()],
        "made": [{}] * 3,
    }
    said = "F1 at IoU 0.5 against before. Better: R3 (+1.000); not shown to differ: R5 (0.000)."
    assert Comparison(**compared).verdict == said
    two = {key: values[:2] for key, values in compared.items()} | {"differences": compared["differences"][:1]}
    assert Comparison(**two).verdict.startswith("R3 is better than before: ")
