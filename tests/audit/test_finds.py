"""What searches found that a script can do, or could: each with what it earns now.

Of an outside search, and of scripts/search_exploits.py. What is mended earns nothing by it; what is a property of the
specification has its number here and its remedy on docs/audit.md.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.overlap import pairwise_iou

R = ("R1", "R2", "R3", "R4", "R5")
FOUND = [0, 0, 400, 400]


def earned(text, reward="R3", **given):
    columns = {"boxes": [], "width": 1000, "height": 1000}
    parameters = {
        key: given.pop(key) for key in [*given] if key in ("readers", "on_unparseable", "ranking", "matching", "beta")
    }
    row = {key: [value] for key, value in {**columns, **given}.items()}
    return gr.get_reward(reward, box_format="qwen3-vl", **parameters)([text], **row)[0]


def written(*boxes):
    return gr.format_boxes(boxes, "qwen3-vl", width=1000, height=1000)


# mended: ignore regions


def grid(region, cells):
    x, y = (np.linspace(region[k], region[k + 2], cells + 1) for k in (0, 1))
    return [[x[i], y[j], x[i + 1], y[j + 1]] for i, j in product(range(cells), repeat=2)]


@pytest.mark.parametrize("reward", R)
def test_a_grid_in_a_region_over_a_finding_earns_nothing_near_a_hit(reward):
    """243 boxes of many places and sizes, of which one hits: once 1.0."""
    region, finding = [100, 100, 700, 700], [180, 160, 520, 470]
    places = product(np.linspace(100, 340, 9), np.linspace(100, 370, 9), (0.8, 1.0, 1.2))
    hedge = [[x, y, x + 340 * size, y + 310 * size] for x, y, size in places]
    assert len(hedge) == 243
    assert max(pairwise_iou(hedge, [finding])[:, 0]) > 0.8
    text = written(*hedge)
    junk_first = earned(text, reward, boxes=[finding], ignore_boxes=[region])
    assert junk_first < 0.12


@pytest.mark.parametrize("reward", R)
def test_ten_guesses_in_a_region_earn_less_than_one(reward):
    """Once 0.74, where one earned 0.42."""
    region, finding = [100, 100, 700, 700], [100, 100, 300, 300]
    guesses = [[100 + dx, 100 + dy, 300 + dx, 300 + dy] for dx in range(0, 500, 100) for dy in (0, 250)]
    one = np.mean([earned(written(box), reward, boxes=[finding], ignore_boxes=[region]) for box in guesses])
    all_of_them = [
        earned(written(*guesses[k:], *guesses[:k]), reward, boxes=[finding], ignore_boxes=[region]) for k in range(10)
    ]
    # R1 as specified pays 1 / k for a hit in the k-th place; one of the nine others is excused
    by_place = (1 + sum(1 / k for k in range(1, 10))) / 10
    assert np.mean(all_of_them) <= (by_place + 1e-9 if reward == "R1" else 0.3)
    assert one <= 0.2


@pytest.mark.parametrize("reward", R)
def test_spam_in_a_region_of_a_normal_image_earns_no_bonus(reward):
    region = [100, 100, 700, 700]
    assert earned(written(*grid(region, 4)), reward, ignore_boxes=[region]) == 0.0
    assert earned(written([200, 200, 300, 300]), reward, ignore_boxes=[region]) == 0.2


# mended: broken boxes, texts


@pytest.mark.parametrize("spoilt", ['{"bbox_2d": [7, 8, 9]}, ', '{"bbox_2d": [0, 0]}, ', '{"bbox_2d": "there"}, '])
def test_a_broken_box_before_the_right_one_costs_what_junk_costs(spoilt):
    hit = '{"bbox_2d": [0, 0, 400, 400]}'
    assert earned(f"[{spoilt}{hit}]", "R1", boxes=[FOUND]) == 0.5
    assert earned(f'[{{"bbox_2d": [700, 700, 900, 900]}}, {hit}]', "R1", boxes=[FOUND]) == 0.5


def test_a_text_with_rejected_boxes_is_no_negative_under_any_option():
    assert earned('[{"bbox_2d": [1, 2, 3]}]', on_unparseable="empty") == 0.0
    assert earned("The lungs are shown.", on_unparseable="empty") == 0.2


@pytest.mark.parametrize("mark", ["tool_call", "tool_response", "function_call", "observation"])
def test_boxes_of_a_tool_are_no_answer(mark):
    """Found by the script `a tool call alone`: once the full reward."""
    told = f"<{mark}>{written(FOUND)}</{mark}>"
    assert earned(told, boxes=[FOUND]) == 0.0
    assert earned(told) == 0.0
    assert earned(told + written(FOUND), boxes=[FOUND]) == 1.0
    assert earned(told + written()) == 0.2


@pytest.mark.parametrize("words", ["[[left, left, left, left]]", "[[upper left]]", "upper left"])
def test_words_between_tags_of_a_box_are_broken(words):
    """Found by the script `words, before`: once free in brackets."""
    text = f"<ref>mass</ref><box>{words}</box><ref>mass</ref><box>[[0, 0, 400, 400]]</box>"
    reward = gr.get_reward("R1", box_format="internvl")
    assert reward([text], boxes=[[FOUND]], width=[1000], height=[1000]) == [0.5]


# properties of the specification, and what does not have them


def test_hungarian_can_lose_everything_by_a_half_box():
    """The left half of a finding frees nothing and takes the hit away: 0.18 → 0."""
    gt = [[0, 0, 10, 10], [7.1, 0, 17.1, 10]]
    first, half = [3.3, 0, 13.3, 10], [0, 0, 4.9, 10]
    assert gr.get_reward("R5").score([first], gt) == pytest.approx(0.182, abs=1e-3)
    assert gr.get_reward("R5").score([first, half], gt) == 0.0
    for other in ("greedy", "thresholded_hungarian", "most_hits"):
        assert gr.get_reward("R5", matching=other).score([first, half], gt) > 0.14


@pytest.mark.parametrize(
    ("reward", "gt", "before", "after", "gain"),
    [
        # a box is replaced by one that fits all findings less well: 0.444 → 1.0, and 0.504 → 0.682
        *(
            (
                reward,
                [[450, 550, 850, 850], [550, 450, 700, 600], [450, 550, 650, 850]],
                [[425, 600, 625, 850], [550, 450, 700, 600], [425, 550, 725, 850], [0, 150, 250, 400]],
                [[425, 600, 625, 850], [550, 450, 700, 600], [425, 575, 725, 850], [0, 150, 250, 400]],
                gain,
            )
            for reward, gain in (("R1", 0.556), ("R3", 0.178))
        ),
        # the only box that reaches a finding is left out: 0.167 → 0.25, and 0.264 → 0.296
        (
            "R1",
            [[400, 50, 750, 300], [350, 200, 700, 350]],
            [[325, 250, 625, 300], [325, 175, 725, 400], [400, 125, 700, 350]],
            [[325, 250, 625, 300], [325, 175, 725, 400]],
            0.083,
        ),
        (
            "R3",
            [[400, 50, 750, 300], [350, 200, 750, 350]],
            [[50, 0, 150, 100], [325, 175, 775, 400], [400, 125, 750, 350]],
            [[50, 0, 150, 100], [325, 175, 775, 400]],
            0.033,
        ),
    ],
)
def test_greedy_pays_for_what_frees_a_finding(reward, gt, before, after, gain):
    """The better box chooses first, and takes the finding that the other one alone could have had."""
    scorer = gr.get_reward(reward)
    assert scorer.score(after, gt) - scorer.score(before, gt) == pytest.approx(gain, abs=1e-3)
    for matching in ("thresholded_hungarian", "most_hits"):
        scorer = gr.get_reward(reward, matching=matching)
        assert scorer.score(after, gt) <= scorer.score(before, gt)


def test_r1_pays_for_breaking_the_better_of_two_boxes_on_one_finding():
    """The better box hits although it stands later, and the earlier one is false: 0.083 → 0.25, where it is broken."""
    findings = [[400, 200, 800, 500], [450, 700, 850, 900], [450, 200, 550, 400], [300, 450, 700, 600]]
    twice, better = [350, 225, 725, 525], [475, 200, 750, 525]
    spoilt = written(twice, twice)[:-1] + ', {"bbox_2d": "there"}]'
    for parameters, gain in (({}, 1 / 6), ({"ranking": "tied"}, 0.0)):
        before = earned(written(twice, twice, better), "R1", boxes=findings, **parameters)
        assert earned(spoilt, "R1", boxes=findings, **parameters) - before == pytest.approx(gain)


@pytest.mark.parametrize(("reward", "gain"), [("R1", 1 / 3), ("R3", 0.167), ("R5", 0.127), ("soft_f1", 0.121)])
@pytest.mark.parametrize("matching", ["greedy", "hungarian", "thresholded_hungarian"])
def test_a_box_written_twice_pays_where_it_fits_two_findings(reward, gain, matching):
    """No exploit: two findings of which one covers the other are two findings, and two boxes find them."""
    findings = [[400, 500, 800, 750], [375, 500, 875, 825], [550, 400, 650, 700]]
    both, other = [350, 475, 925, 775], [525, 375, 725, 750]
    scorer = gr.get_reward(reward) if reward == "soft_f1" else gr.get_reward(reward, matching=matching)
    paid = scorer.score([both, both, other], findings) - scorer.score([both, other], findings)
    assert paid == pytest.approx(gain, abs=1e-3)


@pytest.mark.parametrize(
    ("beta", "k", "gain"),
    # by hand: (1 + β²) / (β² + k) − 1 / k
    [(1.5, 3, 3.25 / 5.25 - 1 / 3), (1.0, 2, 2 / 3 - 1 / 2)],
)
def test_exclusive_guesses_pay(beta, k, gain):
    places = [[20 * one, 0, 20 * one + 10, 10] for one in range(k)]
    scorer = gr.get_reward("R3", beta=beta)
    assert scorer.score(places, places[:1]) - 1 / k == pytest.approx(gain)
    assert round(gain, 2) == {1.5: 0.29, 1.0: 0.17}[beta]


def test_the_best_reader_pays_for_a_box_that_two_of_three_did_not_draw():
    by = {
        how: [earned(text, reader_boxes=[[FOUND], [], []], readers=how) for text in (written(FOUND), written())]
        for how in ("best", "mean")
    }
    assert by["best"] == [1.0, 0.2]
    # the mean over readers is what a reader drawn at random would give
    assert by["mean"] == pytest.approx([1 / 3, 2 / 3 * 0.2])
