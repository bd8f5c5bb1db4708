"""Whether completions of an image differ in reward, and why not; effective sizes, advantages, other sizes of groups."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.metrics.signal import CAUSES, SCALES, SIGNAL_KEYS, Groups, main_cause
from grounding_rewards.parsing import STATUSES

B, E, T, U = STATUSES


def one(rewards, statuses, counted, findings):
    """A single group."""
    return Groups.of([len(rewards)], rewards, statuses, counted, [findings] * len(rewards))


@pytest.mark.parametrize(
    ("rewards", "statuses", "counted", "findings", "cause"),
    [
        # by hand, from the definitions
        ([0, 0], [T, T], [0, 0], 1, "all_cut_off"),
        ([0, 0], [T, T], [0, 0], 0, "all_cut_off"),  # on an image without findings too
        ([0, 0], [T, U], [0, 0], 1, "all_unread"),  # some cut off, some not
        ([0, 0], [U, U], [0, 0], 0, "all_unread"),
        ([1, 1], [B, B], [1, 1], 1, "all_perfect"),
        ([1, 1], [B, B], [3, 1], 1, "all_perfect"),  # R1 pays junk after the right box nothing less
        ([0.2, 0.2], [E, E], [0, 0], 0, "all_perfect"),  # rightly says so
        ([0, 0], [E, E], [0, 0], 0, "all_perfect"),  # also where no_box_bonus is 0
        ([0.2, 0.2], [B, E], [0, 0], 0, "all_perfect"),  # all boxes lie in ignore regions
        ([0, 0], [B, B], [2, 1], 0, "all_hallucinated"),
        ([0, 0], [B, U], [2, 0], 0, "all_hallucinated"),  # one that says nothing is no better
        ([0, 0], [T, B], [1, 1], 0, "all_hallucinated"),  # cut off after a complete box
        ([0, 0], [E, E], [0, 0], 2, "all_empty"),
        ([0, 0], [E, U], [0, 0], 2, "all_empty"),  # no answer has a box
        ([0, 0], [B, B], [1, 4], 2, "all_below_threshold"),
        ([0, 0], [B, E], [1, 0], 2, "all_below_threshold"),
        ([0, 0], [T, U], [1, 0], 2, "all_below_threshold"),  # cut off after a complete box
        ([0.7, 0.7], [B, B], [1, 1], 1, "all_equal"),
        ([0.7, 0.7 + 1e-8], [B, B], [1, 1], 1, "all_equal"),  # a trainer's float32 can't tell them apart
        ([0, 0], [E, B], [0, 1], 0, "all_equal"),  # no_box_bonus 0: a right negative earns nothing more
        ([0.3], [B], [1], 1, "all_equal"),  # alone
        ([0, 0.2], [B, E], [1, 0], 0, None),
        ([0, 1e-3], [B, B], [1, 1], 1, None),
    ],
)
def test_cause_of_a_group(rewards, statuses, counted, findings, cause):
    assert one(rewards, statuses, counted, findings).causes == [cause]


def test_metrics_have_the_same_keys_also_without_a_group():
    assert list(Groups.of([], [], [], [], []).metrics()) == list(SIGNAL_KEYS)
    assert all(np.isnan(value) for value in Groups.of([], [], [], [], []).metrics().values())


def drawn_groups():
    completion = st.tuples(st.sampled_from([0.0, 0.2, 1.0]), st.sampled_from(STATUSES), st.integers(0, 2))
    group = st.tuples(st.lists(completion, min_size=1, max_size=5), st.integers(0, 2))

    def made(groups):
        flat = [one for group, _ in groups for one in group]
        findings = [m for group, m in groups for _ in group]
        columns = zip(*flat, strict=True) if flat else ([], [], [])
        return Groups.of([len(group) for group, _ in groups], *map(list, columns), findings)

    return st.lists(group, max_size=6).map(made)


@given(drawn_groups())
def test_causes_add_up_to_the_groups_without_spread(groups):
    metrics = groups.metrics()
    if len(groups.sizes):
        assert sum(metrics[name] for name in CAUSES) == pytest.approx(metrics["no_spread"])
        assert metrics["no_spread"] == pytest.approx(1 - groups.has_spread.mean())
        assert (main_cause(metrics) is None) == groups.has_spread.all()
    assert [cause is None for cause in groups.causes] == groups.has_spread.tolist()


@given(drawn_groups())
def test_effective_size_lies_between_two_and_the_size_or_is_zero(groups):
    sizes = groups.effective_sizes
    assert (sizes[~groups.has_spread] == 0).all()
    assert (sizes[groups.has_spread] >= 2 - 1e-9).all()
    assert (sizes <= groups.sizes + 1e-9).all()


@given(drawn_groups())
def test_a_part_of_the_groups_is_judged_as_before(groups):
    chosen = groups.sizes > 2
    assert groups.take(chosen).causes == [cause for cause, kept in zip(groups.causes, chosen, strict=True) if kept]


@pytest.mark.parametrize(
    ("rewards", "effective"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1], 8.0),  # half and half
        ([0, 0, 0, 0, 0, 0, 0, 1], 3.5),  # by hand: (7/8 + 7 · 1/8)² / (49/64 + 7/64)
        ([1, 1, 1, 1, 1, 1, 1, 0], 3.5),
        ([0.4] * 8, 0.0),
    ],
)
def test_effective_group_size(rewards, effective):
    assert one(rewards, [B] * 8, [1] * 8, 1).effective_sizes[0] == pytest.approx(effective)


@given(drawn_groups(), st.integers(2, 5))
def test_smaller_groups_are_those_of_every_choice_of_completions(groups, size):
    """An independent implementation: every subset is looked at."""
    found = groups.no_spread_of(size)
    parts = np.split(groups.rewards, np.cumsum(groups.sizes)[:-1]) if len(groups.sizes) else []
    for share, rewards in zip(found, parts, strict=True):
        if len(rewards) >= size:
            alike = [max(subset) - min(subset) <= 1e-6 for subset in combinations(rewards, size)]
            assert share == pytest.approx(np.mean(alike))


def test_nothing_is_said_of_larger_groups_than_there_are():
    assert np.isnan(one([0, 1], [B, B], [1, 1], 1).no_spread_of(3)).all()


def test_a_single_completion_is_no_group():
    with pytest.raises(ValueError, match="Expected at least 2 completions for `size`, got 1"):
        one([0, 1], [B, B], [1, 1], 1).no_spread_of(1)


@given(drawn_groups())
def test_advantages_of_a_group_add_up_to_nothing(groups):
    for scale in SCALES:
        each = groups.advantages(scale)
        assert np.isfinite(each).all()
        for part in np.split(each, np.cumsum(groups.sizes)[:-1]) if len(groups.sizes) else []:
            assert part.sum() == pytest.approx(0, abs=1e-6)


def test_arrays_have_to_fit():
    with pytest.raises(ValueError, match="Expected 2 values for `rewards`, as many as completions, got 1"):
        Groups.of([2], [0.0], [B, B], [1, 1], [1, 1])
    with pytest.raises(ValueError, match="Expected at least one completion in every group"):
        Groups.of([0, 1], [0.0], [B], [1], [1])
    with pytest.raises(ValueError, match="Expected a known word for `scale`, got 'std'"):
        one([0, 1], [B, B], [1, 1], 1).advantages("std")
