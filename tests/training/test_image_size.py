"""One image size from the warm start to the evaluation: it lies in the processor, and every command says it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from transformers import AutoProcessor

from grounding_rewards.cli import main
from grounding_rewards.images.resize import image_pixel_limit, resized_size, set_image_size
from grounding_rewards.models.load import load_model
from tests.training.runs import ASSET, COMMON, GRPO, LORA, words

pytestmark = pytest.mark.training

# By hand: sqrt(2500 * 3000 / 40000) = 13.69, so 182.6 x 219.1, down to whole tokens of 28: 168 x 196, which are 42.
SIZE, LIMIT, SEEN = (2500, 3000), 40000, (168, 196)


@pytest.fixture(scope="module")
def large_images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 255, (30, 25), dtype=np.uint8))
    coarse.resize(SIZE).save(folder / "image.png")
    row = {"file": "image.png", "boxes": [[100, 200, 1800, 2500]], "labels": ["mass"], "width": 2500, "height": 3000}
    splits = ["train"] * 4 + ["test"] * 2
    lines = [json.dumps({**row, "id": str(k), "split": split}) for k, split in enumerate(splits)]
    (folder / "annotations.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def grids(monkeypatch):
    """The size of every image that is handed to any model, in pixels."""
    kind = type(AutoProcessor.from_pretrained(ASSET).image_processor)
    original, seen = kind.preprocess, []

    def watched(self, *args, **kwargs):
        made = original(self, *args, **kwargs)
        seen.extend((columns * 14, rows * 14) for _, rows, columns in made["image_grid_thw"].tolist())
        return made

    monkeypatch.setattr(kind, "preprocess", watched)
    return seen


def test_from_sft_to_evaluation(large_images, grids, tmp_path, capsys):
    sft, grpo = tmp_path / "sft", tmp_path / "grpo"
    common = {"dataset": large_images, "max_steps": 1, "save_strategy": "no"}
    options = {**COMMON, **common, "model_name_or_path": ASSET, "output_dir": sft, "max_image_pixels": LIMIT}
    assert main(["sft", *words(options)]) == 0
    assert set(grids) == {SEEN}
    grids.clear()
    # From here on nobody says the size again.
    options = {**GRPO, **common, "model_name_or_path": sft / "checkpoint", "output_dir": grpo}
    assert main(["train", *words(options)]) == 0
    assert set(grids) == {SEEN}
    grids.clear()
    evaluate = ["evaluate", "--model", grpo / "checkpoint", "--dataset", large_images, "--out", tmp_path / "evaluation"]
    assert main([*map(str, evaluate), "--max-new-tokens", "8", "--resamples", "20"]) == 0
    assert set(grids) == {SEEN}
    printed = capsys.readouterr().err
    line = "Image size: at most 40000 pixels (max_image_pixels); the largest image, 2500 x 3000, is seen as 168 x 196, "
    assert printed.count(f"{line}42 image tokens.") == 3
    facts = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text(encoding="utf-8"))["facts"]
    assert "at most 40000 pixels (max_image_pixels)" in facts["image size"]
    # Nor need anybody have this package.
    processor = AutoProcessor.from_pretrained(grpo / "checkpoint")
    image = Image.open(large_images / "image.png")
    grid = processor.image_processor(images=[image], return_tensors="pt")["image_grid_thw"][0].tolist()
    assert (grid[2] * 14, grid[1] * 14) == SEEN
    assert "at most 40000 pixels, kept in the processor" in (grpo / "README.md").read_text(encoding="utf-8")


def test_an_adapter_carries_it_too(large_images, tmp_path):
    options = {**GRPO, **LORA, "dataset": large_images, "max_steps": 1, "output_dir": tmp_path / "run"}
    assert main(["train", *words({**options, "model_name_or_path": ASSET, "max_image_pixels": LIMIT})]) == 0
    _, processor = load_model(tmp_path / "run" / "checkpoint")
    assert image_pixel_limit(processor) == LIMIT
    assert resized_size(processor, *SIZE) == SEEN


def test_another_size_than_the_model_was_saved_with_is_said(large_images, tmp_path, capsys):
    processor = AutoProcessor.from_pretrained(ASSET)
    set_image_size(processor, 15000)
    model, _ = load_model(ASSET)
    model.save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    options = {**GRPO, "dataset": large_images, "max_steps": 1, "output_dir": tmp_path / "run"}
    assert (
        main(["train", *words({**options, "model_name_or_path": tmp_path / "model", "max_image_pixels": LIMIT})]) == 0
    )
    printed = capsys.readouterr().err
    assert "The model was saved with max_image_pixels 15000; here the largest image has 40000 pixels." in printed


def test_an_evaluation_at_another_size_does_not_take_up_old_answers(large_images, tmp_path, capsys):
    evaluate = ["evaluate", "--model", str(ASSET), "--dataset", str(large_images), "--out", str(tmp_path / "out")]
    evaluate += ["--max-new-tokens", "4", "--resamples", "20"]
    assert main([*evaluate, "--max-image-pixels", str(LIMIT)]) == 0
    assert main(evaluate) == 2
    assert "--max-image-pixels 40000`. Name another folder" in capsys.readouterr().err
