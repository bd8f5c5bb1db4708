"""scripts/studies/draw_faults.py."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("datasets", reason="needs the train extra")
from datasets import load_from_disk

from grounding_rewards.prepare.load import load_split
from scripts.studies import draw_faults

NUMBER = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", str(output), "--images", str(NUMBER)])
        draw_faults.main()
    return output


@pytest.fixture(scope="module")
def right_boxes() -> dict[str, list[list[float]]]:
    drawn = load_split("synthetic", "train", max_images=NUMBER)
    return dict(zip(drawn["id"], drawn["boxes"], strict=True))


def test_extra_boxes_stand_on_about_half_of_the_images_with_findings(folder, right_boxes):
    rows = load_split(str(folder / "extra"), "train")
    additions = [len(row["boxes"]) - len(right_boxes[row["id"]]) for row in rows]
    with_findings = [added for row, added in zip(rows, additions, strict=True) if right_boxes[row["id"]]]
    assert len(rows) == NUMBER
    assert set(additions) == {0, 1}
    assert 0.35 < np.mean(with_findings) < 0.65
    # a normal image stays one: that fault is another
    assert sum(additions) == sum(with_findings)
    assert all(len(set(row["labels"])) == len(row["labels"]) for row in rows if len(row["labels"]) < 3)


def test_one_of_several_findings_is_missed(folder, right_boxes):
    for row in load_split(str(folder / "missed"), "train"):
        right = right_boxes[row["id"]]
        assert len(row["boxes"]) == len(right) - (len(right) > 1)
        assert all(box in right for box in row["boxes"])


def test_no_image_of_the_eager_is_normal(folder, right_boxes):
    rows = load_split(str(folder / "eager"), "train")
    assert len(rows) == sum(bool(boxes) for boxes in right_boxes.values())
    assert all(row["boxes"] == right_boxes[row["id"]] != [] for row in rows)


def test_blank_images_are_one_grey_with_right_boxes(folder, right_boxes):
    rows = load_from_disk(str(folder / "blank"))["train"]
    assert [row["boxes"] for row in rows] == [right_boxes[row["id"]] for row in rows]
    assert all(len(set(np.asarray(row["image"]).ravel())) == 1 for row in rows.select(range(5)))
