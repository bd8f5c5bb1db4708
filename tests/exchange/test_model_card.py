"""The block is what huggingface_hub reads."""

from __future__ import annotations

import pytest

from grounding_rewards.exchange.model_card import evaluated_model, model_card_block
from grounding_rewards.metrics.evaluation import StoredEvaluation
from grounding_rewards.metrics.intervals import Estimate

hub = pytest.importorskip("huggingface_hub", reason="comes with transformers")

EVALUATION = {
    "systems": {
        "mine": {
            "mean_iou": {"value": 0.712345, "low": 0.65, "high": 0.756789},
            # one image: no interval
            "f1_50": {"value": 0.5, "low": None, "high": None},
            # not measured: no normal image
            "hallucination_rate": {"value": None, "low": None, "high": None},
        },
        "constant box": {"mean_iou": {"value": 0.4, "low": 0.3, "high": 0.5}},
    },
    "headings": {"mean_iou": "mean IoU", "f1_50": "F1 | at IoU 0.5"},
    "facts": {"model": "/home/somebody/runs/mine", "dataset": "/data/vindr", "split": "test"},
}


def test_the_hub_reads_the_block(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(model_card_block(StoredEvaluation.of_json(EVALUATION)), encoding="utf-8")
    card = hub.ModelCard.load(path)
    assert card.data.model_name == "mine"
    other = model_card_block(StoredEvaluation.of_json(EVALUATION), name="other")
    assert hub.ModelCard(other).data.model_name == "other"
    iou, f1 = card.data.eval_results
    assert (iou.task_type, iou.dataset_name, iou.dataset_split) == ("object-detection", "vindr", "test")
    assert (iou.metric_type, iou.metric_name, iou.metric_value) == ("mean_iou", "mean IoU", 0.7123)
    assert iou.metric_args == {"interval_95": [0.65, 0.7568]}
    assert (f1.metric_value, f1.metric_args) == (0.5, None)
    assert "somebody" not in path.read_text(encoding="utf-8")


def test_the_table_has_intervals():
    lines = model_card_block(StoredEvaluation.of_json(EVALUATION)).splitlines()
    # with the baseline beside them, where it was measured
    assert "| metric | value | 95 % interval | constant box |" in lines
    assert "| mean IoU | 0.7123 | 0.6500 to 0.7568 | 0.4000 |" in lines
    # a bar in a heading would be a column
    assert "| F1 \\| at IoU 0.5 | 0.5000 | – | – |" in lines


def test_it_says_on_what_and_how_it_was_measured():
    facts = {"dataset": "/data/vindr", "split": "", "images": 20, "patients": 9, "intervals": "bootstrap over patients"}
    facts["label matching"] = "exact"
    card = model_card_block(StoredEvaluation.of_json({**EVALUATION, "facts": facts}))
    assert (
        "vindr, 20 images of 9 patients, a box is right only under the finding's label, intervals: bootstrap over "
        in card
    )
    assert "split" not in card


@pytest.mark.parametrize(
    ("evaluation", "name"),
    [
        (StoredEvaluation({"model": "/home/somebody/runs/r4/checkpoint-50/"}), "r4/checkpoint-50"),
        (StoredEvaluation({"model": "Qwen/Qwen2.5-VL-3B-Instruct"}, {"Qwen": {}}), "Qwen2.5-VL-3B-Instruct"),
        # a log of completions has no model, but a name
        (StoredEvaluation(systems={"log": {}, "constant box": {}}), "log"),
        (StoredEvaluation(), "model"),
    ],
)
def test_the_name_of_what_was_evaluated(evaluation, name):
    assert evaluated_model(evaluation) == name


@pytest.mark.parametrize("systems", [{}, {"mine": {"froc": Estimate(*[float("nan")] * 3)}}])
def test_what_cannot_be_shown(systems):
    with pytest.raises(ValueError, match="Expected metrics that were measured under `systems`"):
        model_card_block(StoredEvaluation(systems=systems))


def test_without_facts():
    assert (
        "measured with grounding_rewards."
        in model_card_block(StoredEvaluation.of_json({**EVALUATION, "facts": {}})).lower()
    )
