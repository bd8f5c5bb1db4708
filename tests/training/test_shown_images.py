"""Images with the model's boxes in real trackers, which write to disk; nothing is uploaded, and no number changes."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from grounding_rewards.training.arguments import parse_grpo_arguments
from grounding_rewards.training.shown_images import keep_images_here
from tests.training.runs import GRPO, grpo, history, run, words

pytestmark = pytest.mark.training

SHOWN = {"show_images": 2, "show_images_every": 2, "max_steps": 3, "save_strategy": "no"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    for name in ("WANDB_MODE", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TENSORBOARD_LOGGING_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    yield
    # Set by the code under test, which monkeypatch does not know.
    os.environ.pop("WANDB_MODE", None)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    pytest.importorskip("tensorboard", reason="needs the tensorboard extra")
    folder = tmp_path_factory.mktemp("runs") / "shown"
    return folder, grpo(folder, report_to="tensorboard", **SHOWN)


def test_tensorboard_has_every_image_before_the_first_step_every_two_steps_and_after_the_last(shown):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = (shown[0] / "runs").glob("*")
    read = EventAccumulator(str(events), size_guidance={"images": 0}).Reload()
    assert read.Tags()["images"] == ["images/01", "images/02"]
    for name in ("images/01", "images/02"):
        assert [image.step for image in read.Images(name)] == [0, 2, 3]
        assert {image.width for image in read.Images(name)} == {480}
    # The curves need nothing but the extra `tensorboard` and `report_to`.
    logged = [entry["reward"] for entry in history(shown[0])]
    assert [event.value for event in read.Scalars("train/reward")] == pytest.approx(logged)
    assert "train/R4/mean_iou" in read.Tags()["scalars"]


def test_a_run_with_shown_images_is_the_same_run(shown, tmp_path):
    plain = grpo(tmp_path / "plain", max_steps=3, save_strategy="no")
    assert history(plain) == history(shown[1])


def test_wandb_has_images_and_stays_offline(tmp_path, capsys):
    pytest.importorskip("wandb", reason="wandb is not installed")
    grpo(tmp_path / "run", report_to="wandb", **SHOWN)
    assert "wandb is offline, so that no image is uploaded" in capsys.readouterr().err
    (kept,) = (tmp_path / "wandb").glob("offline-run-*")
    assert len(list(kept.glob("files/media/images/images/*.png"))) == 2 * 3


def test_trackio_has_images_on_this_machine(tmp_path):
    pytest.importorskip("trackio", reason="trackio is not installed")
    # It reads where to write when it is imported.
    options = words({**GRPO, "output_dir": tmp_path / "run", "report_to": "trackio", **SHOWN})
    run("env", f"TRACKIO_DIR={tmp_path}", sys.executable, "-m", "grounding_rewards.cli", "train", *options)
    assert len(list((tmp_path / "media").rglob("*.png"))) == 2 * 3


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"show_images": 0}, "Expected a number from 1 up for show_images"),
        ({"show_images_every": 0}, "for show_images_every, got 0"),
        ({"show_images": 2, "eval_split": "train"}, "Expected another split than that of training for eval_split"),
        ({"show_images": 2, "reward": f"{__name__}.brevity"}, "Expected a reward on boxes for show_images, got"),
    ],
)
def test_wrong_options_are_refused(tmp_path, values, said):
    with pytest.raises(ValueError, match=said):
        parse_grpo_arguments(words({**GRPO, "output_dir": tmp_path, **values}))


def brevity(completions, **columns):
    return [1 / (1 + len(one)) for one in completions]


def config(**values):
    return SimpleNamespace(**{"push_to_hub": False, "trackio_space_id": None, **values})


def test_a_tracker_that_shows_images_is_needed():
    with pytest.raises(ValueError, match="some of tensorboard, trackio, wandb for report_to beside show_images"):
        keep_images_here([], config())


def test_images_are_not_pushed_with_the_folder_of_the_run():
    with pytest.raises(ValueError, match="Expected push_to_hub: false beside show_images"):
        keep_images_here(["tensorboard"], config(push_to_hub=True))


def test_where_the_user_has_set_up_an_upload_the_run_says_so():
    assert keep_images_here(["tensorboard"], config()) == []
    assert keep_images_here(["trackio"], config()) == []
    (note,) = keep_images_here(["trackio"], config(trackio_space_id="ward/images"))
    assert note.startswith("Images are uploaded by trackio to ward/images")


def test_wandb_is_offline_unless_its_environment_says_otherwise(monkeypatch):
    (note,) = keep_images_here(["wandb"], config())
    assert note.startswith("wandb is offline, so that no image is uploaded")
    assert os.environ["WANDB_MODE"] == "offline"
    monkeypatch.setenv("WANDB_MODE", "online")
    assert keep_images_here(["wandb"], config()) == ["Images are uploaded by wandb, as WANDB_MODE=online says."]
