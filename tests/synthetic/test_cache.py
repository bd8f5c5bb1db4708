"""Drawn images on disk: the same dataset as drawn, and another one for another program."""

import pytest

pytest.importorskip("datasets", reason="needs the train extra")

from grounding_rewards.synthetic import radiographs, synthetic_dataset


@pytest.fixture
def drawings(monkeypatch, tmp_path) -> list[int]:
    """The indices that were drawn into an empty folder."""
    indices: list[int] = []

    def draw(index, *args, **kwargs):
        indices.append(index)
        return drawn(index, *args, **kwargs)

    drawn = radiographs.draw_radiograph
    monkeypatch.setattr(radiographs, "draw_radiograph", draw)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    return indices


def test_what_was_drawn_is_read_again(drawings):
    first, second = synthetic_dataset("train", 3), synthetic_dataset("train", 3)
    assert drawings == [0, 1, 2]
    assert first.features == second.features
    assert first.data.table.equals(second.data.table)
    # What is mapped over it is kept nowhere.
    assert first.cache_files == second.cache_files == []


@pytest.mark.parametrize(
    "other", [("train", 2, {}), ("test", 3, {}), ("train", 3, {"seed": 1}), ("train", 3, {"preset": "pa-256"})]
)
def test_other_images_have_their_own_file(other, drawings):
    split, n, options = other
    synthetic_dataset("train", 3)
    assert synthetic_dataset(split, n, **options).num_rows == n
    assert len(drawings) == 3 + n


def test_another_program_draws_anew(drawings, monkeypatch):
    synthetic_dataset("train", 2)
    monkeypatch.setattr(radiographs, "package_versions", lambda names: dict.fromkeys(names, "another"))
    synthetic_dataset("train", 2)
    assert len(drawings) == 4
