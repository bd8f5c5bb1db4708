"""One argument names any dataset, and no dataset answers to the name of a split that it does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from grounding_rewards.data.load import light_rows, load_dataset_image, load_split

datasets = pytest.importorskip("datasets", reason="needs the train extra")

ROWS = {"boxes": [[[1, 2, 3, 4]]], "width": [9], "height": [9]}


class TestSavedDatasets:
    def test_without_splits(self, tmp_path):
        """Today it answers to any name, and an evaluation measures on training films."""
        datasets.Dataset.from_dict(ROWS).save_to_disk(str(tmp_path / "films"))
        for split in ("train", "test", "trane"):
            with pytest.raises(
                ValueError, match=f"take the split '{split}' of, got a single one without a name"
            ) as caught:
                load_split(str(tmp_path / "films"), split)
            assert "DatasetDict(" in str(caught.value)

    def test_one_split_of_a_larger_dataset_knows_its_name(self, tmp_path):
        films = datasets.Dataset.from_dict(ROWS, split="validation")
        films.save_to_disk(str(tmp_path / "films"))
        assert load_split(str(tmp_path / "films"), "validation").num_rows == 1
        with pytest.raises(ValueError, match="got a single one named 'validation'"):
            load_split(str(tmp_path / "films"), "train")

    def test_with_splits(self, tmp_path):
        films = datasets.Dataset.from_dict(ROWS)
        datasets.DatasetDict({"train": films, "test": films}).save_to_disk(str(tmp_path / "films"))
        assert load_split(str(tmp_path / "films"), "test").num_rows == 1
        with pytest.raises(ValueError, match=r"Expected one of train, test for the split of .*, got 'trane'"):
            load_split(str(tmp_path / "films"), "trane")


@pytest.mark.parametrize("name", ["synthetic", "synthetic:mixed-512"])
def test_drawn_films(name):
    with pytest.raises(ValueError, match="got 'trane'"):
        load_split(name, "trane", films=1)


def test_an_empty_folder(tmp_path):
    with pytest.raises(ValueError, match=r"Expected annotations\.jsonl, a prepared or a saved dataset"):
        load_split(str(tmp_path), "train")


def test_rows_name_the_files_of_their_images(shared_dir):
    dataset = load_split(str(shared_dir / "data" / "cxr_lungs"), "test", films=2)
    row = light_rows(dataset)[0]
    assert Path(row["image_path"]).is_file()
    assert {"prompt", "image"}.isdisjoint(row)
    assert load_dataset_image(dataset, 0).size == (row["width"], row["height"])


def test_images_that_are_no_files_have_no_path():
    dataset = load_split("synthetic", "test", films=1)
    assert "image_path" not in light_rows(dataset)[0]
    assert load_dataset_image(dataset.remove_columns("image"), 0) is None
