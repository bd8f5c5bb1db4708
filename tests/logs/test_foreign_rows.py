"""Rows as servers and evaluations write them."""

import json
from typing import Any

import pytest

from grounding_rewards.logs.foreign_rows import unpack_row
from grounding_rewards.logs.read import read_completions
from grounding_rewards.rewards.completions import completion_text
from tests.tables import table

TEXT = '[{"bbox_2d": [100, 200, 300, 400]}]'
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}}],
}


@pytest.mark.parametrize(("row", "expected"), table("logs/rows", "what_the_model_wrote_is_the_completion"))
def test_what_the_model_wrote_is_the_completion(row: dict[str, Any], expected: dict[str, Any]) -> None:
    [read] = unpack_row(row)
    assert completion_text(read["completion"]) == TEXT
    assert {name: read.get(name) for name in expected} == expected
    assert not {"output", "response", "choices", "result", "resps", "filtered_resps", "events"} & read.keys()


@pytest.mark.parametrize("row", table("logs/rows", "several_completions_are_several_rows"))
def test_several_completions_are_several_rows(row: dict[str, Any]) -> None:
    assert [completion_text(read["completion"]) for read in unpack_row(row)] == [TEXT, "None"]


@pytest.mark.parametrize("row", table("logs/rows", "rows_of_no_tool"))
def test_other_rows_stay_as_they_are(row: dict[str, Any]) -> None:
    assert unpack_row(row) == [row]


@pytest.mark.parametrize("row", table("logs/rows", "requests_that_failed_are_named"))
def test_requests_that_failed_are_named(tmp_path, row: dict[str, Any]) -> None:
    path = tmp_path / "log.jsonl"
    served = {"custom_id": "a", "response": {"body": CHAT}}
    path.write_text(f"{json.dumps(served)}\n{json.dumps(row)}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"got none or no text in 1 row: line 2 of"):
        read_completions([path])
