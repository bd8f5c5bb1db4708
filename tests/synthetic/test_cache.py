"""Drawn images on disk: the same dataset as drawn, whatever lies in the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("datasets", reason="needs the train extra")

from grounding_rewards.synthetic import cache, radiographs, synthetic_dataset


@pytest.fixture
def drawings(monkeypatch) -> list[int]:
    """The indices that were drawn."""
    indices: list[int] = []

    def draw(index, *args, **kwargs):
        indices.append(index)
        return drawn(index, *args, **kwargs)

    drawn = radiographs.draw_radiograph
    monkeypatch.setattr(radiographs, "draw_radiograph", draw)
    return indices


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path / "drawn_images"


def test_what_was_drawn_is_read_again(folder, drawings):
    first, second = synthetic_dataset("train", 3), synthetic_dataset("train", 3)
    assert drawings == [0, 1, 2]
    assert first.features == second.features
    assert first.data.table.equals(second.data.table)
    assert [path.suffix for path in folder.iterdir()] == [".arrow"]


@pytest.mark.parametrize(
    "other", [("train", 2, {}), ("test", 3, {}), ("train", 3, {"seed": 1}), ("train", 3, {"preset": "pa-256"})]
)
def test_other_images_have_their_own_file(other, folder, drawings):
    split, n, options = other
    synthetic_dataset("train", 3)
    assert synthetic_dataset(split, n, **options).num_rows == n
    assert len(drawings) == 3 + n


def test_another_program_draws_anew(folder, drawings, monkeypatch):
    synthetic_dataset("train", 2)
    monkeypatch.setattr(cache, "package_versions", lambda names: dict.fromkeys(names, "another"))
    synthetic_dataset("train", 2)
    assert len(drawings) == 4


@pytest.mark.parametrize("content", [b"", b"no table", None])
def test_a_broken_file_is_drawn_anew(content, folder, drawings):
    expected = synthetic_dataset("train", 2)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:2000] if content is None else content)
    assert synthetic_dataset("train", 2).data.table.equals(expected.data.table)
    assert len(drawings) == 4
    synthetic_dataset("train", 2)
    assert len(drawings) == 4


def test_without_a_folder_nothing_is_kept(monkeypatch, drawings, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "")
    synthetic_dataset("train", 1)
    synthetic_dataset("train", 1)
    assert drawings == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_the_users_cache_is_the_default(monkeypatch, tmp_path):
    monkeypatch.delenv(cache.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    synthetic_dataset("train", 1)
    assert len(list((tmp_path / "grounding_rewards" / "drawn_images").iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_passed_over(monkeypatch, tmp_path, drawings):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "file"))
    assert synthetic_dataset("train", 2).num_rows == 2
    assert drawings == [0, 1]


def test_files_used_least_recently_are_removed(folder, monkeypatch):
    for split in ("train", "validation"):
        synthetic_dataset(split, 2)
    # What a killed process left goes like any other file.
    (folder / "tmp_killed").write_bytes(bytes(10**6))
    for age, path in enumerate(sorted(folder.iterdir(), key=lambda path: "validation" in path.name)):
        os.utime(path, (1000 - age, 1000 - age))
    # Reading is a use.
    synthetic_dataset("train", 2)
    monkeypatch.setattr(cache, "_MOST_BYTES", 10**6)
    synthetic_dataset("test", 2)
    assert sorted(path.name.split("-")[2] for path in folder.iterdir()) == ["test", "train"]
