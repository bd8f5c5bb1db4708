"""Worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from grounding_rewards.common.workers import map_in_order, map_in_workers, worker_pool


def test_the_order_is_kept_and_few_items_are_taken_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for k in range(20):
            taken.append(k)
            yield k

    with ThreadPoolExecutor(2) as pool:
        results = map_in_order(pool, str, items(), ahead=3)
        for k, result in enumerate(results):
            assert result == str(k)
            assert len(taken) <= k + 3


def test_an_error_reaches_the_caller() -> None:
    with worker_pool(1) as pool, pytest.raises(ValueError, match="invalid literal"):
        list(map_in_order(pool, int, ["1", "x"], ahead=2))


def test_a_killed_worker_is_an_error_in_words() -> None:
    with (
        pytest.raises(ChildProcessError, match="Expected all 2 processes to work to the end, got one that was killed"),
        map_in_workers(os._exit, [9], processes=2) as made,
    ):
        list(made)
