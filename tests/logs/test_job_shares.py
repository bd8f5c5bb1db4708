"""Shares of a job and the parts that they leave."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.logs.job_shares import Share, parts_of, share_from_text


@given(count=st.integers(0, 300), total=st.integers(1, 70))
def test_shares_are_neighbours_and_leave_nothing_out(count: int, total: int) -> None:
    shares = [Share(number, total).of(count) for number in range(1, total + 1)]
    assert [k for share in shares for k in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    "text",
    [
        # counted from 0, as lists are
        "0/64",
        "65/64",
        "3/0",
        "-1/4",
        "3",
        "3/",
        "3 / 64",
        "1.0/2",
        # not the array's number, because it is no array
        "/64",
        "٣/٤",
        "",
    ],
)
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expected K/N with K from 1 to N for --shard, got .* Shards count from 1"):
        share_from_text(text)


def test_parts_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    out = tmp_path / "scored [1].v2.jsonl"
    for number in range(1, 12):
        Share(number, 11).part(out).touch()
    parts = [part for _, part in parts_of(out)]
    assert parts == sorted(tmp_path.iterdir())
    assert parts[2].name == "scored [1].v2-00003-of-00011.jsonl"


def test_parts_that_cannot_be_joined(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    with pytest.raises(ValueError, match=r"Expected the parts of shards of '.*a.jsonl', got none"):
        parts_of(out)
    Share(1, 2).part(out).touch()
    # Another file's.
    Share(2, 2).part(tmp_path / "ba.jsonl").touch()
    Share(2, 2).part(tmp_path / "a.parquet").touch()
    with pytest.raises(ValueError, match=r"all 2 shards of '.*a.jsonl', got none of 2. Run --shard 2/2 again"):
        parts_of(out)
    Share(1, 20).part(out).touch()
    with pytest.raises(ValueError, match=r"one division of '.*a.jsonl', got parts of 2, 20 shards. Remove"):
        parts_of(out)
    for part in (Share(1, 2), Share(1, 20)):
        part.part(out).unlink()
    Share(20, 20).part(out).touch()
    with pytest.raises(ValueError, match=r"got none of 1, 2, 3, 4, 5, 6, 7, 8 and 11 more. Run these, --shard 1/20"):
        parts_of(out)
