"""Rows of the logs of other tools, in the columns of a dataset: of trainers, of servers and of evaluations."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from grounding_rewards.columns import SCORED_COLUMNS
from grounding_rewards.common.text_files import parse_json
from grounding_rewards.rewards.scoring import ROW_COLUMN

#: Columns with the step of a training: TRL's and verl's, ms-swift's under Megatron.
STEPS = ("step", "gen_step")
#: Columns with what a row is scored against in one JSON object: of a dataset, verl, ms-swift and inspect_ai.
PACKED = ("ground_truth", "gts", "solution", "target")
# Columns that may hold all that a server answered.
_SERVED = ("output", "response", "result", "completion", "prediction")
# Columns with the responses of lm-eval and lmms-eval, as they were filtered first.
_RESPONSES = ("filtered_resps", "resps")
# Columns in which evaluations put the row of the dataset.
_OF_DATASET = ("metadata", "doc")
# Parts of a sample of inspect_ai that are large and say nothing of the image.
_UNUSED = frozenset({"events", "events_data", "attachments", "store"})
# An answer that a server chose has one of these; the choices of a question have none.
_OF_CHOICES = frozenset({"message", "finish_reason", "stop_reason", "finishReason"})


def unpack_row(row: dict[str, Any], place: str = "a row") -> list[dict[str, Any]]:
    """The rows of a log, in the columns of a dataset, that one row of its file holds.

    Args:
        row: of any log: of TRL's `log_completions`, where a reward of this package said in `R4/row` what it scored;
            of verl's rollouts (`input`, `output`, `gts`, `score`, `step`); of ms-swift's completions.jsonl, a line of
            which is a table with a list for each column (`step`, `prompt`, `completion`, …, `solution`); of
            `grounding-rewards evaluate`; a sample of inspect_ai; a line of a batch or an answer of a server, by the
            protocol of OpenAI, Anthropic or Gemini; a sample of lm-eval or lmms-eval; or of a file of one's own.
        place: where it is, for a message.

    Returns:
        One row, or one for each completion. `boxes`, sizes and so on stand in columns of their own, the text as the
        reward read it in `completion`, and the step in `step`.

    Raises:
        ValueError: the columns of a table differ in length.

    Example:
        >>> unpack_row({"output": "[]", "gts": '{"boxes": [], "id": "a"}', "score": 0.2, "step": 1})
        [{'output': '[]', 'score': 0.2, 'step': 1, 'boxes': [], 'id': 'a'}]
        >>> unpack_row({"gen_step": [4, 4], "completion": ["[]", "None"]})
        [{'completion': '[]', 'step': 4}, {'completion': 'None', 'step': 4}]
        >>> choices = [{"message": {"role": "assistant", "content": "[]"}}]
        >>> unpack_row({"id": "batch_1", "custom_id": "a", "response": {"body": {"choices": choices}}})
        [{'id': 'a', 'custom_id': 'a', 'completion': {'role': 'assistant', 'content': '[]'}}]
    """
    is_table = any(isinstance(row.get(name), list) for name in STEPS)
    table_rows = _table_rows(row, place) if is_table else [row]
    return list(map(_image_row, chain.from_iterable(map(_answer_rows, table_rows))))


def _table_rows(table: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    """The rows of a table with a list for each column; what is no list is left out."""
    lists = {name: values for name, values in table.items() if isinstance(values, list)}
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"Expected lists of one length for all columns of the table in {place}, got {lengths}. Remove the line: "
            "its completions cannot be told apart."
        )
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _answer_rows(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The row, or one for each completion of an answer of a server or of an evaluation."""
    completions = _served_completions(row)
    answer_columns = {"choices", "candidates", "outputs", "id", "object"}
    for name in _SERVED:
        if completions is None and isinstance(row.get(name), Mapping):
            completions = _served_completions(row[name])
            answer_columns = {name}
    response_columns = [name for name in _RESPONSES if name in row]
    if completions is None and response_columns:
        completions = _responses(row[response_columns[0]])
        answer_columns = set(_RESPONSES)
    if completions is None:
        return [row]
    columns = {name: value for name, value in row.items() if name not in answer_columns | _UNUSED}
    if isinstance(row.get("custom_id"), str):
        # The id is that of the request.
        columns = {**columns, "id": row["custom_id"]}
    for name in _OF_DATASET:
        dataset_row = columns.get(name)
        if isinstance(dataset_row, Mapping):
            for column in SCORED_COLUMNS:
                if column in dataset_row:
                    columns.setdefault(column, dataset_row[column])
    return [{**columns, "completion": completion} for completion in completions or [None]]


def _served_completions(answer: Mapping[str, Any]) -> list[Any] | None:
    """The texts or messages of what a server answered; None where it is no such answer."""
    for wrapper in ("body", "message"):
        if isinstance(answer.get(wrapper), Mapping) and "choices" not in answer:
            # A line of a batch.
            return _served_completions(answer[wrapper])
    for name in ("choices", "outputs", "candidates"):
        choices = answer.get(name)
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            continue
        if any(_OF_CHOICES.isdisjoint(choice) for choice in choices):
            continue
        if choices or "model" in answer:
            texts = [choice.get("message", choice.get("text", choice.get("content"))) for choice in choices]
            return list(map(_without_thoughts, texts))
    if answer.get("object") == "response" and isinstance(answer.get("output"), list):
        messages = [item for item in answer["output"] if isinstance(item, Mapping) and item.get("type") == "message"]
        return [messages]
    if answer.get("type") == "message" and answer.get("role") == "assistant":
        return [dict(answer)]
    return None


def _without_thoughts(content: Any) -> Any:
    """The message, or the parts of Gemini's content that are not its thoughts."""
    if not isinstance(content, Mapping) or not isinstance(content.get("parts"), list):
        return content
    return [part for part in content["parts"] if not (isinstance(part, Mapping) and part.get("thought"))]


def _responses(responses: Any) -> list[Any] | None:
    """The texts of the responses of lm-eval or lmms-eval, which may be nested; None for anything else."""
    while isinstance(responses, list) and len(responses) == 1 and isinstance(responses[0], list):
        responses = responses[0]
    if isinstance(responses, str):
        return [responses]
    return list(responses) if isinstance(responses, list) else None


def _image_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its step in `step`, and with a column for each field of its image, which one column has packed."""
    logged_columns = [name for name in row if name.endswith(f"/{ROW_COLUMN}")]
    # All rewards of a run log the same image, and each its own values of scheduled parameters.
    unpacked = {}
    for name in logged_columns or (PACKED if row.get("boxes") is None else ()):
        fields = parsed_json(row.get(name))
        # Other tools have columns of these names too, which hold something else and stay as they are.
        if isinstance(fields, Mapping) and (fields.get("boxes") is not None or fields.get("reader_boxes") is not None):
            unpacked[name] = fields
    step_column = next((name for name in STEPS if row.get(name) is not None), None)
    if not unpacked and step_column in (None, "step"):
        return row
    removed = {*logged_columns, *STEPS, *unpacked.keys() - {"ground_truth"}}
    columns = {name: value for name, value in row.items() if name not in removed}
    if step_column is not None:
        columns["step"] = row[step_column]
    # Where several columns pack a field, the first of them counts: it is written last.
    for fields in reversed(unpacked.values()):
        for name, value in fields.items():
            columns["completion" if name == "text" else name] = value
    return columns


def parsed_json(packed: Any) -> Any:
    """The value of a text in JSON; anything else as it is.

    >>> parsed_json("[1]"), parsed_json("[1"), parsed_json(2)
    ([1], '[1', 2)
    """
    if isinstance(packed, bytes):
        packed = packed.decode(errors="replace")
    if isinstance(packed, str) and packed.lstrip()[:1] in ("{", "["):
        try:
            return parse_json(packed)
        except ValueError:
            return packed
    return packed
