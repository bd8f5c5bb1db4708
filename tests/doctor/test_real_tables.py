"""Real tables, read by their readers: nothing wrong is found in them, and what is known to happen to them is."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grounding_rewards.boxes import from_xyxy
from grounding_rewards.doctor.context import Defect, Model
from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.rows import ImageRow, RowSource
from grounding_rewards.parsing import get_box_format
from grounding_rewards.sources import get_source

Row = dict[str, Any]
#: Tables of ../shared: the file, the name under which its reader looks for it, its split, and what is rightly told.
TABLES = {
    "nih-chestxray14": ("nih_chestxray14/BBox_List_2017.csv", "BBox_List_2017.csv", None, ["negatives"]),
    "chestx-det": ("chestx_det/ChestX_Det_test.sample.json", "ChestX_Det_test.json", "test", []),
}


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, shared_dir: Path, tmp_path: Path) -> tuple[list[Row], list[str]]:
    source, name, split, expected = TABLES[request.param]
    shutil.copy(shared_dir / "data" / "annotations" / source, tmp_path / name)
    return read(request.param, tmp_path, split), expected


def read(dataset: str, root: Path, split: str | None = None) -> list[Row]:
    said, images = ("id", "patient_id", "boxes", "labels"), get_source(dataset).read(root, split=split)
    return [
        {name: getattr(image, name) for name in said} | {"width": image.width or 1024, "height": image.height or 1024}
        for image in images
    ]


def defects(rows: list[Row], model: Model | None = None) -> list[Defect]:
    def images() -> Iterator[ImageRow]:
        return (ImageRow("train", k, row) for k, row in enumerate(rows))

    return list(examine(RowSource("images", images, len(rows)), model).defects)


def test_nothing_wrong_is_found_in_them(table):
    rows, expected = table
    assert [defect.name for defect in defects(rows, Model(get_box_format("qwen3-vl")))] == expected


@pytest.mark.parametrize(("folder", "images"), [("cxr_lungs", 315), ("nih_findings", 880)])
def test_nothing_wrong_is_found_in_real_folders(shared_dir, folder, images):
    checkup = examine(str(shared_dir / "data" / folder), Model(get_box_format("qwen3-vl")))
    # On every image is a lung or a finding.
    assert [defect.name for defect in checkup.defects] == ["negatives"]
    assert checkup.metrics.rows == images


def test_readers_who_were_not_merged_are_seen(shared_dir):
    """The lungs of 80 images, drawn by two people."""
    root = shared_dir / "data" / "cxr_lungs"
    first, second = (
        {row["file"]: row for row in map(json.loads, (root / name).read_text().splitlines())}
        for name in ("annotations.jsonl", "second_reader.jsonl")
    )
    rows = [
        {**first[name], **{key: first[name][key] + second[name][key] for key in ("boxes", "labels")}}
        for name in second.keys() & first.keys()
    ]
    assert [defect.name for defect in defects(rows) if defect.severity == "error"] == ["unmerged-readers"]


@pytest.fixture
def nih(shared_dir: Path, tmp_path: Path) -> list[Row]:
    """984 boxes of 880 images of 1024 x 1024."""
    source, name, *_ = TABLES["nih-chestxray14"]
    shutil.copy(shared_dir / "data" / "annotations" / source, tmp_path / name)
    return read("nih-chestxray14", tmp_path)


def changed(rows: list[Row], change: Callable[[np.ndarray], np.ndarray], step: int = 1) -> list[Row]:
    made = [change(np.array(row["boxes"])).tolist() for row in rows]
    return [row if k % step else {**row, "boxes": made[k]} for k, row in enumerate(rows)]


def test_the_frame_of_nih_is_1024_and_not_1000(nih):
    """Hardly two of a hundred boxes end beyond 1000 of 1024."""
    (defect,) = [one for one in defects([{**row, "width": 2500, "height": 2048} for row in nih]) if one.unit == "boxes"]
    assert (defect.name, "a frame of 1024 x 1024" in defect.found, "1000" in defect.fix) == ("wrong-frame", True, False)


@pytest.mark.parametrize(
    ("change", "steps", "name", "words"),
    [
        (lambda boxes: from_xyxy(boxes, "xywh"), (1, 2, 10), "box-order", "x, y, width, height"),
        (lambda boxes: boxes[:, [0, 2, 1, 3]], (1, 2, 10), "box-order", "x1, x2, y1, y2"),
        (lambda boxes: boxes / 1024, (1, 2, 10), "normalised-boxes", ""),
        # A tenth is named box by box.
        (lambda boxes: boxes * 2, (1, 2), "wrong-frame", "a frame of 2048 x 2048"),
        # In a part of the images it does not show by numbers.
        (lambda boxes: boxes / 2, (1,), "wrong-frame", "a frame of 512 x 512"),
    ],
)
def test_a_part_of_the_images_written_otherwise_is_seen(nih, change, steps, name, words):
    for step in steps:
        found = [defect for defect in defects(changed(nih, change, step)) if defect.unit == "boxes"]
        assert [defect.name for defect in found] == [name], step
        assert words in found[0].found, step
