"""Mixed folders: shares of the training rows, sources, patients and copies on both sides; what does not fit."""

import re

import pytest

from grounding_rewards.data.checks import check_dataset
from grounding_rewards.prepare import PrepareSettings, prepare_images, read_manifest, verify_images
from grounding_rewards.prepare.load import load_split
from grounding_rewards.prepare.mix import Part, mix_folders
from grounding_rewards.rewards.grounding import get_reward
from tests.tables import table


@pytest.fixture
def prepared(make_images, tmp_path):
    """Prepare the images from a number up to another one, so that folders may share images or not."""

    def prepare(name, first, last, *, split=lambda k: "train", extra=None, ignored=(), phrase="", **values):
        root, records = make_images(last)
        images = []
        for k, record in enumerate(records[first:], first):
            phrases = (phrase,) * len(record.boxes) if phrase else ()
            images.append(record._replace(split=split(k), extra=extra or {}, ignored=ignored, phrases=phrases))
        settings = PrepareSettings(**{"dataset": "jsonl", "box_format": "qwen3-vl", **values})
        prepare_images(images, root, tmp_path / name, settings)
        return tmp_path / name

    return prepare


def sources(folder, split):
    return [row["source"] for row in load_split(str(folder), split)]


def test_everything_with_its_source(prepared, tmp_path):
    one = prepared("one", 0, 4, extra={"age": 41, "view": "PA", "source": "clinic", "licence": "CC BY 4.0"})
    two = prepared("two", 6, 9, split=lambda k: "test" if k == 8 else "train", extra={"age": 41.5}, task="finding")
    manifest = mix_folders([Part(one), Part(two)], tmp_path / "out")
    assert verify_images(tmp_path / "out") == []
    train = list(load_split(str(tmp_path / "out"), "train"))
    found = {(row["source"], row["licence"], row["age"]) for row in train}
    assert found == {("clinic", "CC BY 4.0", 41.0), ("two", None, 41.5)}
    assert "one/image-1" in {row["id"] for row in train}
    # Patients of two sources are two, whatever they are called.
    assert {row["patient_id"] for row in train} == {"clinic/p0", "clinic/p1", "two/p3"}
    before = [row for row in load_split(str(one), "train") if row["boxes"]]
    after = [row for row in train if row["boxes"] and row["source"] == "clinic"]
    assert [(row["boxes"], row["prompt"]) for row in before] == [(row["boxes"], row["prompt"]) for row in after]
    assert before[0]["image"].tobytes() == after[0]["image"].tobytes()
    assert set(sources(tmp_path / "out", "test")) == {"two"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "# one and two, prepared for" in card
    assert "- Licence: one: that of the dataset; not known here; two: that of the dataset; not known here" in card
    assert manifest == read_manifest(tmp_path / "out")


def test_columns_that_one_folder_has_alone_are_empty_in_the_other(prepared, tmp_path):
    """Regions to ignore and phrases: training takes the mix."""
    one = prepared("one", 0, 4, ignored=((50.0, 40.0, 60.0, 50.0),))
    two = prepared("two", 6, 9, phrase="seen", task="phrase")
    mix_folders([Part(one), Part(two)], tmp_path / "out")
    rows = load_split(str(tmp_path / "out"), "train")
    found = {(row["source"], row["phrase"], bool(row["ignore_boxes"])) for row in rows}
    assert found == {("one", None, True), ("two", "seen", False)}
    check_dataset(rows, get_reward("R4"))


@pytest.mark.parametrize(("weights", "expected"), table("prepare/tables", "weights_are_shares_of_the_rows_to_train_on"))
def test_weights_are_shares_of_the_rows_to_train_on(prepared, tmp_path, weights, expected):
    one = prepared("one", 0, 12, split=lambda k: "train" if k < 8 else "test")
    two = prepared("two", 12, 16)
    parts = [Part(folder, weight) for folder, weight in zip((one, two), weights, strict=True)]
    mix_folders(parts, tmp_path / "out", seed=1)
    named = sources(tmp_path / "out", "train")
    assert [named.count("one"), named.count("two")] == expected
    card = (tmp_path / "out" / "README.md").read_text()
    assert (f"{8 - expected[0]} rows of one are left out of train" in card) == (expected[0] < 8)
    # What is held out stays whole.
    assert sources(tmp_path / "out", "test") == ["one"] * 4
    mix_folders(parts, tmp_path / "again", seed=1)
    one, other = (tmp_path / name / "data/train-00000.parquet" for name in ("out", "again"))
    assert one.read_bytes() == other.read_bytes()


def test_an_image_of_both_is_in_one_split(prepared, tmp_path):
    """As with RSNA and NIH, which share images under other names."""
    one = prepared("one", 0, 6)
    two = prepared("two", 4, 8, split=lambda k: "test")
    with pytest.raises(ValueError, match="Expected no image in two splits of the dataset, got 2 with a copy"):
        mix_folders([Part(one), Part(two)], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    manifest = mix_folders([Part(one), Part(two)], tmp_path / "out", bad_rows="drop")
    assert sources(tmp_path / "out", "train") == ["one"] * 4
    assert sources(tmp_path / "out", "test") == ["two"] * 4
    assert [image for _, image, _ in manifest["skipped"]] == ["one/image-4", "one/image-5"]


def test_a_patient_of_one_source_is_in_one_split(prepared, tmp_path):
    one = prepared("one", 0, 3, extra={"source": "clinic"})
    two = prepared("two", 3, 6, extra={"source": "clinic"}, split=lambda k: "test")
    with pytest.raises(ValueError, match=re.escape("clinic/p1 (train, test)")):
        mix_folders([Part(one), Part(two)], tmp_path / "out")


def test_what_does_not_fit_together(prepared, tmp_path):
    one, two = prepared("one", 0, 3), prepared("two", 3, 6, split=lambda k: "test", extra={"age": "old"})
    other = prepared("other", 6, 9, box_format="paligemma")
    numbered = prepared("numbered", 6, 9, extra={"age": 41})
    out, begun = tmp_path / "out", tmp_path / "begun"
    begun.mkdir()
    (begun / "manifest.json").write_text('{"complete": false}')
    for parts, message in (
        ([Part(one)], "at least two folders of different names"),
        ([Part(one), Part(one)], "at least two folders of different names"),
        ([Part(one), Part(other)], "one box format, got qwen3-vl (one), paligemma (other)"),
        ([Part(two), Part(numbered)], "Field age has incompatible types"),
        ([Part(one, 1.0), Part(two)], "a weight above 0 for every folder or for none"),
        ([Part(one, 1.0), Part(two, 0.0)], "a weight above 0 for every folder or for none"),
        ([Part(one), Part(two, 0.0)], "a weight above 0 for every folder or for none"),
        ([Part(one, 0.0), Part(two, 0.0)], "a weight above 0 for every folder or for none"),
        ([Part(one, 1.0), Part(two, 1.0)], "got none in two"),
        ([Part(one), Part(tmp_path / "none")], "none' without it. Point to what"),
        ([Part(one), Part(begun)], "begun', whose preparation was interrupted"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            mix_folders(parts, out)
        assert not out.exists()
    with pytest.raises(ValueError, match="new or empty place for out"):
        mix_folders([Part(one), Part(numbered)], two)
