"""A place is new, or goes on with what it was begun with; anything else is refused."""

from __future__ import annotations

import pytest

from grounding_rewards.common.reuse import changed_settings, check_new


def test_new_places(tmp_path):
    check_new(tmp_path, "--out")
    check_new(tmp_path / "nowhere", "--out")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"place for --out, got the file '.*file'\. Give another\."):
        check_new(tmp_path / "file", "--out", "Give another.")
    with pytest.raises(ValueError, match=r"place for --out, got the folder .* with files"):
        check_new(tmp_path, "--out")


def test_what_differs_is_named_and_one_folder_has_many_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    before = {"dataset": str(tmp_path / "images"), "seed": 1, "split": "test"}
    assert changed_settings(before, {**before, "dataset": "images"}) == {}
    assert changed_settings(before, {"dataset": "elsewhere", "seed": 1, "nms": 0.5}) == {
        "dataset": f"dataset 'elsewhere' instead of {before['dataset']!r}",
        "split": "split None instead of 'test'",
        "nms": "nms 0.5 instead of None",
    }
