"""From a folder of images over `grounding-rewards prepare` to steps of GRPO."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.prepare.load import load_split
from tests.training.runs import grpo

pytestmark = pytest.mark.training


def test_a_prepared_folder_trains(tiny_vlm, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    records = []
    for k in range(8):
        pixels = np.full((120, 160), 40, dtype=np.uint8)
        pixels[20:80, 30:90] = 220
        Image.fromarray(pixels).save(tmp_path / f"{k}.png")
        boxes = [[30, 20, 90, 80]] * (k % 2)
        records.append(AnnotatedImage(f"image-{k}", f"{k}.png", boxes, ["mass"] * len(boxes), split="train"))
    settings = PrepareSettings("jsonl", "qwen2.5-vl", side=112, model=str(tiny_vlm))
    prepare_images(lambda: records, tmp_path, tmp_path / "out", settings)
    trainer = grpo(
        tmp_path / "run", model_name_or_path=tiny_vlm, dataset=tmp_path / "out", max_steps=2, save_strategy="no"
    )
    assert trainer.state.global_step == 2
    row = trainer.train_dataset[1]
    assert row["image"].size == (112, 84)
    assert row["boxes"] == [[21, 14, 63, 56]]
    # By hand: of at least 112 x 112 pixels, so by sqrt(4 / 3) larger, and up to whole patches of 28.
    stored = load_split(str(tmp_path / "out"), "train")[1]
    assert (stored["resized_width"], stored["resized_height"]) == (140, 112)
    assert (row["resized_width"], row["resized_height"]) == (140, 112)
