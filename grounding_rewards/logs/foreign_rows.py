"""Rows of the logs of trainers, in the columns of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grounding_rewards.common.text_files import parse_json
from grounding_rewards.rewards.scoring import ROW_COLUMN

#: Columns with the step of a training: TRL's and verl's, ms-swift's under Megatron.
STEPS = ("step", "gen_step")
#: Columns with what a row is scored against in one JSON object: of a dataset, verl and ms-swift.
PACKED = ("ground_truth", "gts", "solution")


def unpack_row(row: dict[str, Any], place: str = "a row") -> list[dict[str, Any]]:
    """The rows of a log, in the columns of a dataset, that one row of its file holds.

    Args:
        row: of any log: of TRL's `log_completions`, where a reward of this package said in `R4/row` what it scored;
            of verl's rollouts (`input`, `output`, `gts`, `score`, `step`); of ms-swift's completions.jsonl, a line of
            which is a table with a list for each column (`step`, `prompt`, `completion`, …, `solution`); of
            `grounding-rewards evaluate`; or of a file of one's own.
        place: where it is, for a message.

    Returns:
        One row, or each of a table. `boxes`, sizes and so on stand in columns of their own, the text as the
        reward read it in `completion`, and the step in `step`.

    Raises:
        ValueError: the columns of a table differ in length.

    Example:
        >>> unpack_row({"output": "[]", "gts": '{"boxes": [], "id": "a"}', "score": 0.2, "step": 1})
        [{'output': '[]', 'score': 0.2, 'step': 1, 'boxes': [], 'id': 'a'}]
        >>> unpack_row({"gen_step": [4, 4], "completion": ["[]", "None"]})
        [{'completion': '[]', 'step': 4}, {'completion': 'None', 'step': 4}]
    """
    is_table = any(isinstance(row.get(name), list) for name in STEPS)
    table_rows = _table_rows(row, place) if is_table else [row]
    return list(map(_image_row, table_rows))


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
