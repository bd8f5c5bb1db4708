"""Rows as servers and evaluations write them."""

import json
from typing import Any

import pytest

from grounding_rewards.logs.foreign_rows import unpack_row
from grounding_rewards.logs.read import read_completions
from grounding_rewards.rewards.completions import completion_text
from tests.tables import table

TEXT = '[{"bbox_2d": [100, 200, 300, 400]}]'
IMAGE = {"boxes": [[10, 20, 30, 40]], "width": 100, "height": 100}
MESSAGE = {"role": "assistant", "content": TEXT}
PARTS = [{"type": "reasoning", "reasoning": "[1, 2, 3, 4]"}, {"type": "text", "text": TEXT}]
CHOICE = {"message": {**MESSAGE, "content": PARTS}, "stop_reason": "stop"}
BATCH = {"id": "batch_1", "custom_id": "a"}
OUTPUT = [{"type": "reasoning"}, {"type": "message", **MESSAGE, "content": PARTS}]
ANTHROPIC = {"type": "message", **MESSAGE, "content": PARTS[1:]}
GEMINI = {"role": "model", "parts": [{"thought": True, "text": "[1, 2]"}, {"text": TEXT}]}
CHAT = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [{"index": 0, "message": MESSAGE}]}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # inspect_ai 0.3.285: a sample of its .json, or of `inspect log dump`
        (
            {"id": "a", "epoch": 2, "input": "Mark", "target": "", "metadata": IMAGE, "events": [1], "output": CHAT},
            {"id": "a", "input": "Mark", **IMAGE},
        ),
        ({"id": "a", "target": json.dumps(IMAGE), "output": CHAT | {"completion": TEXT}}, {"id": "a", **IMAGE}),
        ({"id": "a", "output": {"model": "m", "choices": [CHOICE]}}, {"id": "a"}),
        # a batch of OpenAI, of vLLM's run-batch, of /v1/responses
        ({**BATCH, "response": {"status_code": 200, "body": CHAT}, "error": None}, {"id": "a"}),
        ({**BATCH, "response": {"body": {"object": "response", "output": OUTPUT}}}, {"id": "a"}),
        # lines of answers, with columns of one's own
        ({**CHAT, "image_id": "a", **IMAGE}, {"image_id": "a", **IMAGE}),
        ({"object": "text_completion", "choices": [{"text": TEXT, "finish_reason": "stop"}], "key": "a"}, {"key": "a"}),
        ({"image": "a.png", "response": CHAT}, {"image": "a.png"}),
        # Anthropic's and Gemini's batches
        ({"custom_id": "a", "result": {"type": "succeeded", "message": ANTHROPIC}}, {"id": "a"}),
        ({"key": "a", "response": {"candidates": [{"content": GEMINI, "finishReason": "STOP"}]}}, {"key": "a"}),
        # lm-eval and lmms-eval
        (
            {"doc_id": 3, "doc": {"id": "a", **IMAGE, "answer": "x"}, "filtered_resps": [TEXT], "resps": [["y"]]},
            {"id": "a", **IMAGE},
        ),
        ({"doc_id": 3, "target": json.dumps(IMAGE), "filtered_resps": TEXT}, {"doc_id": 3, **IMAGE}),
        ({"doc_id": 3, "resps": [[TEXT]]}, {"doc_id": 3}),
    ],
)
def test_what_the_model_wrote_is_the_completion(row: dict[str, Any], expected: dict[str, Any]) -> None:
    [read] = unpack_row(row)
    assert completion_text(read["completion"]) == TEXT
    assert {name: read.get(name) for name in expected} == expected
    assert not {"output", "response", "choices", "result", "resps", "filtered_resps", "events"} & read.keys()


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "resps": [[TEXT, "None"]]},
        {"id": "a", "filtered_resps": [TEXT, "None"]},
        {"key": "a", "choices": [{"message": MESSAGE}, {"message": {**MESSAGE, "content": "None"}}]},
    ],
)
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
