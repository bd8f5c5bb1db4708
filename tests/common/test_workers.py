"""Worker processes."""

import os

import pytest

from grounding_rewards.common.workers import map_in_workers


def test_the_order_is_kept_and_few_items_are_taken_ahead():
    taken = []

    def items():
        for k in range(20):
            taken.append(k)
            yield -k

    with map_in_workers(abs, items(), processes=2) as results:
        for k, result in enumerate(results):
            assert result == k
            assert len(taken) <= k + 8


def test_an_error_reaches_the_caller():
    with pytest.raises(ValueError, match="invalid literal"), map_in_workers(int, ["1", "x"], processes=2) as results:
        list(results)


def test_a_killed_worker_is_an_error_in_words():
    with (
        pytest.raises(ChildProcessError, match="Expected all 2 processes to work to the end, got one that was killed"),
        map_in_workers(os._exit, [9], processes=2) as results,
    ):
        list(results)
