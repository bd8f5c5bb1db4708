"""JSON files and lines: byte order marks, numbers of lines, and rows of one image that do not stand together."""

import pytest

from grounding_rewards.sources.documents import grouped_samples, read_json_rows
from tests.tables import table


@pytest.mark.parametrize(("name", "text", "lines"), table("sources/tables", "lines_and_lists_are_read_alike"))
def test_lines_and_lists_are_read_alike(write, name, text, lines):
    path = write({name: text.encode()}) / name
    if isinstance(lines, str):
        with pytest.raises(ValueError, match=lines):
            list(read_json_rows(path, "f"))
    else:
        rows = list(read_json_rows(path, "f"))
        assert [(place.line, row) for place, row in rows] == list(zip(lines, ({"a": 1}, {"a": 2}), strict=True))


def test_samples_are_grouped_by_their_image(write):
    root = write({"a.jsonl": '{"f": "x", "n": 1}\n{"f": "y", "n": 2}\n{"f": ["x"], "n": 3}\n'})
    samples = grouped_samples(root, "a.jsonl", None, "f")
    assert [(image, [row["n"] for _, row in rows]) for _, image, rows in samples] == [("x", [1, 3]), ("y", [2])]
