"""On an image without findings fewer false boxes may earn more: graded_negatives, and what it must never pay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from tests.conftest import box_lists, valid_box_lists
from tests.tables import table

NAMES = [name for name in gr.list_rewards() if gr.get_reward(name).judges_boxes]
GRADED = {"graded_negatives": 0.9}
# the finding, and a box that hits it at IoU 0.5, the default τ
FINDING, AT_TAU = [0, 0, 10, 10], [0, 0, 10, 5]
JUNK = [50, 50, 60, 60]


def earned(name, text, boxes=(), regions=None, **options):
    reward = gr.get_reward(name, box_format="qwen3-vl", **options)
    return reward([text], boxes=[list(boxes)], width=[100], height=[100], ignore_boxes=[regions])[0]


def answer(*items):
    return "[" + ", ".join(f'{{"bbox_2d": {item}}}' for item in items) + "]"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("pred", "gt", "options", "expected"), table("rewards/by_hand", "graded_negatives"))
def test_by_hand(name, pred, gt, options, expected):
    assert gr.get_reward(name, **options).score(pred, gt) == pytest.approx(expected, abs=1e-15)


SHARES, LESS_THAN_ALL = st.floats(0, 1), st.floats(0, 1, exclude_max=True)


@given(st.sampled_from(NAMES), box_lists(), valid_box_lists(0, 3), box_lists(3), SHARES, LESS_THAN_ALL)
def test_another_box_never_pays_and_silence_pays_most(name, pred, regions, more, bonus, graded):
    reward = gr.get_reward(name, no_box_bonus=bonus, graded_negatives=graded)
    paid = reward.score(pred, [], ignore=regions)
    assert reward.score([*pred, *more], [], ignore=regions) <= paid <= bonus
    assert reward.score(pred, [], ignore=regions[:1]) <= paid
    if pred and not regions and bonus > 1e-300:
        assert paid < bonus
    if not regions:
        assert paid == bonus * (graded / (1 + len(pred)) if pred else 1.0)
    assert reward.score(pred, [FINDING]) == gr.get_reward(name).score(pred, [FINDING])


@pytest.mark.parametrize(
    ("name", "most"),
    # what γ δ may be; by hand for R5: 0.3 · 3.25 / (2.25 + n) against γ δ / (1 + n), least apart at n = 1
    [*((name, 1.0) for name in ("R1", "R2", "R3", "R4", "soft_f1")), ("R5", 0.6)],
)
@pytest.mark.parametrize("n", [1, 2, 3, 10, 300])
def test_as_many_boxes_with_one_hit_at_the_threshold_earn_more(name, most, n):
    reward = gr.get_reward(name, no_box_bonus=1, graded_negatives=most - 1e-9)
    on_normal_image = reward.score([JUNK] * n, [])
    # the hit comes last, where R1 pays least for it
    assert on_normal_image < reward.score([JUNK] * (n - 1) + [AT_TAU], [FINDING])


BROKEN = ["[1, 2, 3]", "[NaN, 1, 2, 3]", "[0, 0]", '"left lower lobe"', "[x1, y1, x2, y2]"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (answer(JUNK), 0.09),
        # broken beside a box is a box
        *((answer(JUNK, broken), 0.06) for broken in BROKEN),
        # nothing but broken
        *((answer(broken), 0.0) for broken in BROKEN),
        ("I see a mass in the left lung.", 0.0),
        ("", 0.0),
        # cut off: less than with the box that it was about to write
        ('[{"bbox_2d": [50, 50, 60, 60]}, {"bbox_2d": [50', 0.0),
        # a box in the thinking is none
        ("<think>" + answer(JUNK) + "</think>", 0.0),
    ],
)
def test_no_text_earns_more_by_being_broken(name, text, expected):
    assert earned(name, text, **GRADED) == pytest.approx(expected, abs=1e-15)


WHOLE = st.sampled_from([str(JUNK), "[5, 5, 5, 5]", "[900, 900, 950, 990]"])


@given(st.sampled_from(NAMES), st.lists(WHOLE, min_size=1, max_size=5), st.data())
def test_breaking_a_box_never_pays(name, boxes, data):
    broken = data.draw(st.sampled_from([*BROKEN, "[7, 7"]))
    which = data.draw(st.integers(0, len(boxes) - 1))
    with_broken = [*boxes]
    with_broken[which] = broken
    assert earned(name, answer(*with_broken), **GRADED) <= earned(name, answer(*boxes), **GRADED)
    whole = answer(*boxes)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert earned(name, whole[:cut], **GRADED) <= earned(name, whole, **GRADED)
