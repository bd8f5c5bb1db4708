"""One argument names any dataset, and no dataset answers to the name of a split that it does not have."""

from pathlib import Path

import pytest

from grounding_rewards.data.dataset_columns import light_rows, load_dataset_image
from grounding_rewards.prepare.load import load_split

datasets = pytest.importorskip("datasets", reason="needs the train extra")

ROWS = {"boxes": [[[1, 2, 3, 4]]], "width": [9], "height": [9]}


class TestSavedDatasets:
    def test_without_splits(self, tmp_path):
        """Today it answers to any name, and an evaluation measures on training images."""
        datasets.Dataset.from_dict(ROWS).save_to_disk(str(tmp_path / "images"))
        for split in ("test", "trane"):
            with pytest.raises(ValueError, match=f"Expected one of train or all .*, got '{split}'") as caught:
                load_split(str(tmp_path / "images"), split)
            assert "DatasetDict(" in str(caught.value)

    def test_one_split_of_a_larger_dataset_knows_its_name(self, tmp_path):
        datasets.Dataset.from_dict(ROWS, split="validation").save_to_disk(str(tmp_path / "images"))
        assert load_split(str(tmp_path / "images"), "validation").num_rows == 1
        with pytest.raises(ValueError, match=r"Expected one of validation or all for the split of .*, got 'train'"):
            load_split(str(tmp_path / "images"), "train")

    def test_with_splits(self, tmp_path):
        images = datasets.Dataset.from_dict(ROWS)
        datasets.DatasetDict({"train": images, "test": images}).save_to_disk(str(tmp_path / "images"))
        assert load_split(str(tmp_path / "images"), "test").num_rows == 1
        with pytest.raises(ValueError, match=r"Expected one of train, test or all for the split of .*, got 'trane'"):
            load_split(str(tmp_path / "images"), "trane")


def test_a_dataset_of_the_hub_is_read_as_a_saved_one(monkeypatch):
    images = datasets.Dataset.from_dict({name: values * 60 for name, values in ROWS.items()})
    monkeypatch.setattr(datasets, "load_dataset", lambda name, streaming: datasets.DatasetDict({"train": images}))
    with pytest.warns(UserWarning, match="somebody/images holds no image out: 80 % of its images"):
        assert 0 < load_split("somebody/images", "test").num_rows < 30
    with pytest.raises(ValueError, match="Expected one of train, validation, test or all"):
        load_split("somebody/images", "tset")


@pytest.mark.parametrize("name", ["synthetic", "synthetic:mixed-512"])
def test_drawn_images(name):
    with pytest.raises(ValueError, match="got 'trane'"):
        load_split(name, "trane", max_images=1)
    with pytest.raises(ValueError, match="Expected a number from 1 up for `max_images`, got 0"):
        load_split(name, "train", max_images=0)


def test_an_empty_folder(tmp_path):
    with pytest.raises(ValueError, match=r"Expected annotations\.jsonl, parquet files, a prepared or a saved dataset"):
        load_split(str(tmp_path), "train")
    (tmp_path / "annotations.jsonl").touch()
    for split in ("train", "all"):
        with pytest.raises(ValueError, match=r"Expected at least one row in .*, got none"):
            load_split(str(tmp_path), split)


def test_a_shard_that_is_cut_or_missing_is_named(tmp_path):
    files = [tmp_path / f"train-0000{k}-of-00003.parquet" for k in range(3)]
    for file in files:
        datasets.Dataset.from_dict(ROWS).to_parquet(file)
    assert load_split(str(tmp_path), "all").num_rows == 3
    # As a download that broke off leaves it
    files[1].write_bytes(files[1].read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"whole parquet files .* got '.*train-00001-of-00003\.parquet'"):
        load_split(str(tmp_path), "all")
    files[1].unlink()
    with pytest.raises(ValueError, match=r"whole parquet files .* got '.*train-00001-of-00003\.parquet'"):
        load_split(str(tmp_path), "all")


def test_rows_name_the_files_of_their_images(shared_dir):
    dataset = load_split(str(shared_dir / "data" / "cxr_lungs"), "test", max_images=2)
    row = light_rows(dataset)[0]
    assert Path(row["image_path"]).is_file()
    assert {"prompt", "image"}.isdisjoint(row)
    assert load_dataset_image(dataset, 0).size == (row["width"], row["height"])


def test_training_and_the_doctor_open_the_same_datasets(tmp_path):
    from grounding_rewards.doctor.rows import open_rows

    rows = datasets.Dataset.from_dict({name: values * 3 for name, values in ROWS.items()} | {"id": ["0", "1", "2"]})
    for split in ("train", "test"):
        rows.to_parquet(tmp_path / f"{split}-00000.parquet")
    for name, split in ((str(tmp_path), "test"), (str(tmp_path / "test-00000.parquet"), "all"), ("synthetic", "test")):
        drawn = load_split(name, split)
        assert [row.id for row in open_rows(name, [split]).open()] == [str(one) for one in drawn["id"]]
