"""What the folder of a run says to those who use its model."""

from pathlib import Path

import pytest

from grounding_rewards.logs.run_log import model_name, tool_notes, trained_reward
from tests.tables import table


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint-8"])
@pytest.mark.parametrize(("config", "said"), table("logs/rows", "run_with_tools"))
def test_a_model_that_was_trained_with_tools_is_told_that_it_has_none(name, config, said, tmp_path):
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    (tmp_path / name).mkdir()
    notes = tool_notes(str(tmp_path / name))
    assert len(notes) == said
    assert all("here it answers without tools" in note for note in notes)


@pytest.mark.parametrize("path", [".", "log.parquet", "../completions"])
def test_a_run_is_found_from_within_its_folder(path, tmp_path, monkeypatch):
    folder = tmp_path / "r2" / "completions"
    folder.mkdir(parents=True)
    (tmp_path / "r2" / "config.yaml").write_text("reward: [R2]", encoding="utf-8")
    monkeypatch.chdir(folder)
    assert trained_reward(Path(path)) == ("R2", {})
    assert [model_name(name) for name in (".", "..", "")] == ["completions", "r2", ""]


@pytest.mark.parametrize(
    "config", ["reward: R2\nreward_kwargs: 5", "reward: R2\nreward_kwargs: [5]\nbox_format: llava", "{"]
)
def test_settings_of_somebody_else_name_no_reward(config, tmp_path):
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    assert trained_reward(tmp_path) is None
