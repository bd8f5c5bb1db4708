"""What a notebook calls gives what the commands give, and shows itself in a few lines."""

import json
from html import escape

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.cli import main
from grounding_rewards.report.notebook import LogWarning
from tests.conftest import REPOSITORY, read_lines

LOG = REPOSITORY / "docs" / "examples" / "completions.jsonl"
SIGNAL = REPOSITORY / "docs" / "examples" / "signal.jsonl"
pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def rows():
    return read_lines(LOG)


@pytest.fixture(scope="module")
def evaluation(rows):
    return gr.evaluate(rows, box_format="qwen2.5-vl")


def as_dataset(rows):
    from datasets import Dataset

    return Dataset.from_list(rows)


def as_table(rows):
    return pytest.importorskip("pandas").DataFrame(rows)


def as_arrays(rows):
    """As pandas reads it from a parquet file; one row more had a column that the others lack."""
    nothing = dict.fromkeys(("step", "labels", "patient_id"), float("nan"))
    return as_table([{**nothing, **row, "boxes": np.array(row["boxes"])} for row in rows])


@pytest.mark.parametrize("of", [lambda rows: str(LOG), lambda rows: [LOG], as_dataset, as_table, as_arrays])
def test_paths_and_rows_are_the_same_log(of, rows, evaluation):
    found = gr.evaluate(of(rows), box_format="qwen2.5-vl")
    assert next(iter(found.systems.values())) == evaluation.systems["completions"]
    assert gr.inspect(of(rows), "qwen2.5-vl").to_dict() == gr.inspect(rows, "qwen2.5-vl").to_dict()


def test_the_command_measures_the_same(evaluation, tmp_path, capsys):
    options = ["--completions", str(LOG), "--box-format", "qwen2.5-vl", "--out", str(tmp_path / "run")]
    assert main(["evaluate", *options]) == 0
    stored = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert stored["systems"] == evaluation.to_dict()["systems"]
    # The folder of an evaluation, the result and its predictions are the same run.
    found = [gr.compare(tmp_path / "run", after).to_dict() for after in (evaluation, evaluation.images)]
    assert found[0] == found[1]
    assert found[0]["metrics"]["mean_iou"]["difference"]["value"] == 0


def test_a_dataset_has_the_images_of_a_log_by_order(rows):
    images = as_dataset([{key: value for key, value in row.items() if key != "completion"} for row in rows])
    answers = [{"text": row["completion"]} for row in rows]
    with pytest.warns(LogWarning, match="order of the images"):
        found = gr.evaluate(answers, images, "qwen2.5-vl", by_order=True)
    assert found.images[0].id == rows[0]["id"]
    with pytest.raises(ValueError, match="Expected one column"):
        gr.evaluate([{**answer, "response": "[]"} for answer in answers], images, "qwen2.5-vl", by_order=True)


def test_notes_are_warnings(rows):
    with pytest.warns(LogWarning, match="The log has 2 answers to every image"):
        gr.evaluate([{**row, "sample": k} for row in rows for k in range(2)], box_format="qwen2.5-vl")


@pytest.mark.parametrize("reward", [gr.rewards.R4, None, gr.rewards.SplineIoUReward, gr.rewards.R4.box_reward])
def test_signal_takes_any_reward(reward):
    assert gr.signal(SIGNAL, reward=reward).configured.no_spread == gr.signal(SIGNAL, reward="R4").configured.no_spread


def test_results_show_themselves_in_three_lines(rows, evaluation):
    results = [
        (evaluation, "is owed to the image"),
        (gr.inspect(rows, "qwen3-vl"), "declare `box_format: qwen2.5-vl`"),
        (gr.signal(SIGNAL), "without spread"),
        (gr.compare(evaluation, evaluation), "no change shown"),
    ]
    for result, sentence in results:
        assert sentence in repr(result)
        assert len(repr(result).splitlines()) <= 3
        assert result._repr_html_().startswith("<table>")
        # The sentence stands in the table too, which is all that a notebook shows.
        assert escape(repr(result).splitlines()[-1].removeprefix("qwen3-vl: ")) in result._repr_html_()
