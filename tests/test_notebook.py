"""What a notebook gets from the function behind a command: a table of pandas beside plain values."""

import pytest

pytest.importorskip("pandas", reason="needs the data extra")

from grounding_rewards.audit.audit_images import images_of
from grounding_rewards.audit.play import audit
from grounding_rewards.audit.scripted_answers import SCRIPTED_ANSWERS
from grounding_rewards.data.agreement import measure_agreement
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.comparison import compare_runs
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.signal import measure_signal
from grounding_rewards.parsing import get_box_format
from grounding_rewards.rewards.grounding import get_reward

REWARD = get_reward("R3", box_format="qwen3-vl")
ROW = {"id": "a", "boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}


def answered(right: float):
    pred = [[0, 0, 50, 100 * right]]
    return [AnsweredImage("a", 100, 100, gt=[[0, 0, 50, 100]], gt_labels=["mass"], pred=pred, rewards={"R3": right})]


def readers():
    return AnnotatedImage(
        "1", "1.png", [[0, 0, 10, 10], [0, 0, 10, 8]], ["mass", "mass"], readers=("R1", "R2"), read_by=("R1", "R2")
    )


@pytest.mark.parametrize(
    ("made", "at", "expected"),
    [
        (
            lambda: evaluate({"model": answered(0.8)}, Measures("R3", resamples=10)),
            {"system": "model", "metric": "mean_iou"},
            {"value": 0.8},
        ),
        (
            lambda: compare_runs(answered(0.5), answered(0.8)),
            {"metric": "mean_iou"},
            {"a": 0.5, "b": 0.8, "value": 0.3},
        ),
        (
            lambda: measure_signal([ROW], [["[]", '[{"bbox_2d": [0, 0, 500, 500]}]']], REWARD),
            {"reward": "R3"},
            {"mean": 0.5, "no_spread": 0.0, "effective_group_size": 2.0},
        ),
        (lambda: measure_agreement([readers()]), {"label": "mass"}, {"findings": 1, "mean_iou": 0.8, "f1_0.5": 1.0}),
        (
            lambda: audit({"R3": REWARD}, images_of([ROW]), get_box_format("qwen3-vl"), scripts=SCRIPTED_ANSWERS[:1]),
            {"reward": "R3", "script": SCRIPTED_ANSWERS[0].name},
            {"ceiling": 1.0, "finding": ""},
        ),
    ],
    ids=["evaluate", "diff", "signal", "agreement", "audit"],
)
def test_a_result_is_a_table(made, at, expected):
    found = made()
    assert found.to_dict()
    table = found.to_dataframe()
    for column, value in at.items():
        table = table[table[column] == value]
    assert len(table) == 1
    assert {key: table.iloc[0][key] for key in expected} == {
        key: pytest.approx(value) if isinstance(value, float) else value for key, value in expected.items()
    }
