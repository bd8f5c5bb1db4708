"""`grounding-rewards export`, as it is called."""

import json
from functools import partial

import pytest

from grounding_rewards.metrics.prediction import save_predictions
from tests.commands.conftest import call
from tests.exchange.conftest import images

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
    assert export(evaluation, "--dicom", folder, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().out == (
        f"1 of 4 images have a report in {tmp_path / 'out'}\n"
        "left out because there is no DICOM file: 2, the first 'one'\n"
        "left out because the answer has neither a box nor a no-finding statement: 1, the first 'four'\n"
    )


def test_a_folder_that_is_not_empty_and_images_without_files_are_refused(evaluation, tmp_path):
    with pytest.raises(ValueError, match="Expected a new or empty place for --out"):
        export(evaluation, "--out", evaluation)
    with pytest.raises(ValueError, match="Expected DICOM files called after the images' ids or images"):
        export(evaluation, "--out", tmp_path / "out")
    assert not any((tmp_path / "out").glob("*"))
