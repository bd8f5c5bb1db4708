"""Rows of the logs of other tools, in the columns of a dataset: of trainers, of servers and of evaluations."""

from collections.abc import Mapping, Sequence
from typing import Any

from grounding_rewards.columns import SCORED_COLUMNS
from grounding_rewards.common.text_files import parse_json
from grounding_rewards.rewards.scoring import ROW_COLUMN

#: Columns with the step of a training: TRL's and verl's, ms-swift's under Megatron.
STEPS = ("step", "gen_step")
#: Columns with what a row is scored against in one JSON object: of a dataset, verl, ms-swift and inspect_ai.
PACKED = ("ground_truth", "gts", "solution", "target")
# Columns in which a batch of requests, inspect_ai or a user keeps all that a server answered.
_ANSWER_COLUMNS = ("output", "response", "result", "completion", "prediction")
# Columns with the responses of lm-eval and lmms-eval, first as the evaluation filtered them.
_RESPONSE_COLUMNS = ("filtered_resps", "resps")
# Columns in which inspect_ai, and lm-eval and lmms-eval, put the row of the dataset.
_DATASET_ROW_COLUMNS = ("metadata", "doc")
# Parts of a sample of inspect_ai that are large and say nothing of the image.
_UNUSED_COLUMNS = frozenset({"events", "events_data", "attachments", "store"})
# A choice that a model wrote has one of these keys: OpenAI's, inspect_ai's or Gemini's. The options of a
# multiple-choice question, such as {"label": "A", "text": "left"}, have none.
_WRITTEN_CHOICE_KEYS = frozenset({"message", "finish_reason", "stop_reason", "finishReason"})


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
    return [_image_row(answer_row) for table_row in table_rows for answer_row in _answer_rows(table_row)]


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
    """The row as it is, or one row for each completion where it holds an answer of a server or of an evaluation.

    The columns of the answer are replaced by `completion`; those of the dataset's row are taken out of their mapping.
    """
    # The row itself may be the answer; its `id` is then that of the request, and names no image.
    completions = _served_completions(row)
    # The columns that are no longer needed once the completions are found.
    answer_columns = {"choices", "candidates", "outputs", "id", "object"}
    for name in _ANSWER_COLUMNS:
        if completions is None and isinstance(row.get(name), Mapping):
            completions = _served_completions(row[name])
            answer_columns = {name}
    response_columns = [name for name in _RESPONSE_COLUMNS if name in row]
    if completions is None and response_columns:
        completions = _responses(row[response_columns[0]])
        answer_columns = set(_RESPONSE_COLUMNS)
    if completions is None:
        return [row]
    columns = {name: value for name, value in row.items() if name not in answer_columns | _UNUSED_COLUMNS}
    if isinstance(row.get("custom_id"), str):
        # In a batch the server numbers the requests in `id`, and their author names the image in `custom_id`.
        columns["id"] = row["custom_id"]
    for name in _DATASET_ROW_COLUMNS:
        dataset_row = columns.get(name)
        if isinstance(dataset_row, Mapping):
            for column in SCORED_COLUMNS:
                if column in dataset_row:
                    columns.setdefault(column, dataset_row[column])
    # A request that failed stays a row, without text: the error about the log names its line.
    return [{**columns, "completion": completion} for completion in completions or [None]]


def _served_completions(answer: Mapping[str, Any]) -> list[Any] | None:
    """The texts or messages of what a server answered, one for each choice; None where it is no server's answer."""
    for wrapper in ("body", "message"):
        # A line of a batch has the answer in `body` (OpenAI, vLLM's run-batch) or in `message` (Anthropic).
        if isinstance(answer.get(wrapper), Mapping) and "choices" not in answer:
            return _served_completions(answer[wrapper])
    # OpenAI's protocol and inspect_ai, vLLM's RequestOutput, Gemini.
    for name in ("choices", "outputs", "candidates"):
        choices = answer.get(name)
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            continue
        # Any row may have a column `choices`: those that nobody wrote are the options of a multiple-choice question.
        if any(_WRITTEN_CHOICE_KEYS.isdisjoint(choice) for choice in choices):
            continue
        # inspect_ai writes an empty list, beside the name of the model, where the request failed.
        if choices or "model" in answer:
            # OpenAI's chats and inspect_ai have messages, OpenAI's completions and vLLM texts, Gemini contents.
            contents = [choice.get("message", choice.get("text", choice.get("content"))) for choice in choices]
            return list(map(_without_thoughts, contents))
    # OpenAI's /v1/responses lists messages among other items, such as its reasoning.
    if answer.get("object") == "response" and isinstance(answer.get("output"), list):
        messages = [item for item in answer["output"] if isinstance(item, Mapping) and item.get("type") == "message"]
        return [messages]
    # Anthropic's answer is itself a message.
    if answer.get("type") == "message" and answer.get("role") == "assistant":
        return [dict(answer)]
    return None


def _without_thoughts(content: Any) -> Any:
    """Of Gemini's content the parts that are not its thoughts; any other message or text as it is."""
    if not isinstance(content, Mapping) or not isinstance(content.get("parts"), list):
        return content
    return [part for part in content["parts"] if not (isinstance(part, Mapping) and part.get("thought"))]


def _responses(responses: Any) -> list[Any] | None:
    """The texts of the responses of lm-eval or lmms-eval; None for anything else."""
    if isinstance(responses, str):
        return [responses]
    # They nest one list for each request of a question, [["[]"]], of which questions to generate have one.
    while isinstance(responses, list) and len(responses) == 1 and isinstance(responses[0], list):
        responses = responses[0]
    return responses if isinstance(responses, list) else None


def _image_row(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its step in `step`, and with a column for each field of its image, which one column has packed."""
    # "R4/row": all rewards of a run log the same image, and each its own values of scheduled parameters.
    logged_columns = [name for name in row if name.endswith(f"/{ROW_COLUMN}")]
    packed_columns: Sequence[str] = logged_columns
    # Columns of other tools are asked only where nothing else has the boxes.
    if not logged_columns and row.get("boxes") is None:
        packed_columns = PACKED
    unpacked = {}
    for name in packed_columns:
        fields = _parsed_json(row.get(name))
        # Other tools have columns of these names too, which hold something else and stay as they are.
        if isinstance(fields, Mapping) and (fields.get("boxes") is not None or fields.get("reader_boxes") is not None):
            unpacked[name] = fields
    step_column = next((name for name in STEPS if row.get(name) is not None), None)
    if not unpacked and step_column in (None, "step"):
        # The row has these columns already.
        return row
    # `ground_truth` is a column of datasets, and stays.
    removed_columns = {*logged_columns, *STEPS, *unpacked.keys() - {"ground_truth"}}
    columns = {name: value for name, value in row.items() if name not in removed_columns}
    if step_column is not None:
        columns["step"] = row[step_column]
    # Where several columns pack a field, the first of them counts: it is written last.
    for fields in reversed(unpacked.values()):
        for name, value in fields.items():
            # A reward logs the `text` that it read where the trainer took special tokens out of the completion.
            columns["completion" if name == "text" else name] = value
    return columns


def _parsed_json(packed: Any) -> Any:
    """The object or list that a text or bytes hold in JSON; anything else as it is."""
    text = packed.decode(errors="replace") if isinstance(packed, bytes) else packed
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return parse_json(text)
    except ValueError:
        return text
