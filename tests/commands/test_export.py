"""`grounding-rewards export`, as it is called."""

import json
from functools import partial

import pytest

from grounding_rewards.metrics.prediction import save_predictions
from tests.commands.conftest import call
from tests.exchange.conftest import images
from tests.tables import table

__all__ = ["images"]


@pytest.fixture
def evaluation(images, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    save_predictions(folder / "images.jsonl", images)
    metrics = {"mean_iou": {"value": 0.5, "low": 0.4, "high": 0.6}}
    content = {"systems": {"model": metrics}, "facts": {"model": "runs/mine", "dataset": "vindr", "split": "test"}}
    (folder / "evaluation.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


export = partial(call, "export")


def test_a_folder_is_written(evaluation, tmp_path, capsys):
    out = tmp_path / "exports" / "coco"
    assert export(evaluation, "--to", "coco", "--out", out) == 0
    assert {path.name for path in out.iterdir()} == {"ground_truth.json", "results.json"}
    assert capsys.readouterr().out == f"wrote 4 images to {out}\n"
    with pytest.raises(ValueError, match="Expected a new or empty place for --out"):
        export(evaluation, "--to", "coco", "--out", out)
    # Images alone are enough.
    (evaluation / "evaluation.json").unlink()
    assert export(evaluation / "images.jsonl", "--to", "coco", "--out", tmp_path / "again") == 0


def test_reports_say_what_was_left_out(evaluation, tmp_path, capsys):
    pytest.importorskip("highdicom", reason="needs the extra dicom")
    from pydicom import dcmread
    from pydicom.uid import generate_uid

    from grounding_rewards.synthetic import draw_radiograph
    from tests.conftest import write_dicom

    folder = tmp_path / "dicom"
    image = dcmread(write_dicom(draw_radiograph(3, "pa-256"), folder))
    for name in ("three", "four"):
        image.Columns, image.Rows, image.SOPInstanceUID = 100, 100, generate_uid()
        image.save_as(folder / f"{name}.dcm")
    assert export(evaluation, "--to", "dicom-sr", "--dicom", folder, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().out == (
        f"1 of 4 images have a report in {tmp_path / 'out'}\n"
        "left out because there is no DICOM file: 2, the first 'one'\n"
        "left out because the answer has neither a box nor a no-finding statement: 1, the first 'four'\n"
    )


@pytest.mark.parametrize(("arguments", "message"), table("commands/tables", "wrong_arguments"))
def test_wrong_arguments(arguments, message, evaluation, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(evaluation, *arguments, "--out", tmp_path / "out")
    assert not any((tmp_path / "out").glob("*"))
