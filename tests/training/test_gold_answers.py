"""The warm start learns the right answers: boxes move with the image, and in every epoch anew."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset
from datasets import Image as ImageColumn
from PIL import Image
from torch.utils.data import DataLoader
from transformers import AutoProcessor

from grounding_rewards.images.resize import resized_size
from grounding_rewards.parsing import parse_boxes
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training.sft import GoldAnswers, crop_row

pytestmark = pytest.mark.training


def row(boxes, labels, size=(100, 80)):
    return {"image": Image.new("L", size), "boxes": boxes, "labels": labels, "width": size[0], "height": size[1]}


@pytest.fixture(scope="module")
def processor(tiny_vlm):
    return AutoProcessor.from_pretrained(tiny_vlm)


class TestCrop:
    def test_boxes_move_and_are_clipped(self):
        # By hand: the window starts at (10, 20), the second box loses its right quarter.
        cropped = crop_row(row([[20, 30, 40, 60], [50, 40, 90, 60]], ["a", "b"]), (10, 20, 80, 80))
        assert cropped["image"].size == (cropped["width"], cropped["height"]) == (70, 60)
        assert cropped["boxes"] == [[10, 10, 30, 40], [40, 20, 70, 40]]
        assert cropped["labels"] == ["a", "b"]

    def test_a_box_that_is_mostly_cut_off_is_dropped_with_its_label(self):
        cropped = crop_row(row([[0, 30, 30, 60], [50, 40, 70, 60]], ["gone", "kept"]), (20, 0, 100, 80))
        assert (cropped["boxes"], cropped["labels"]) == ([[30, 40, 50, 60]], ["kept"])

    def test_a_shrunken_image_is_cut_in_its_own_pixels(self):
        shrunken = {**row([[20, 20, 60, 60]], ["a"]), "image": Image.new("L", (50, 40))}
        cropped = crop_row(shrunken, (20, 20, 80, 80))
        assert cropped["image"].size == (30, 30)
        assert cropped["boxes"] == [[0, 0, 40, 40]]

    def test_the_cut_pixels_lie_under_the_moved_boxes(self):
        pixels = np.zeros((80, 100), dtype=np.uint8)
        pixels[30:60, 20:40] = 255
        image = {**row([[20, 30, 40, 60]], ["a"]), "image": Image.fromarray(pixels)}
        cropped = crop_row(image, (10, 20, 80, 80))
        x1, y1, x2, y2 = map(int, cropped["boxes"][0])
        found = np.asarray(cropped["image"])
        assert found[y1:y2, x1:x2].min() == 255
        assert found.sum() == 255 * (x2 - x1) * (y2 - y1)


class TestGoldAnswers:
    def read(self, image, processor):
        width, height = image["image"].size
        resized_width, resized_height = resized_size(processor, width, height)
        return parse_boxes(
            image["completion"][0]["content"],
            "qwen2.5-vl",
            width=width,
            height=height,
            resized_width=resized_width,
            resized_height=resized_height,
        )

    def test_answers_are_the_reference(self, processor):
        images = synthetic_dataset("train", 8)
        for image, answered in zip(images, GoldAnswers(processor, "qwen2.5-vl").of(images), strict=True):
            parsed = self.read(answered, processor)
            np.testing.assert_allclose(parsed.boxes, np.array(image["boxes"]).reshape(-1, 4), atol=0.5)
            assert list(parsed.labels) == image["labels"]

    def test_answers_count_pixels_of_the_image_that_is_fed(self, processor):
        # An image of 448×480 whose image was shrunken to 112×120, which the processor makes 112×112; the image itself
        # it would make 112×140. By hand: x · 112/448, y · 112/480.
        assert resized_size(processor, 112, 120) != resized_size(processor, 448, 480)
        image = {"boxes": [[40.0, 40.0, 200.0, 240.0]], "labels": ["mass"], "width": 448, "height": 480}
        rows = {key: [value] for key, value in {**image, "prompt": synthetic_dataset("train", 1)["prompt"][0]}.items()}
        images = Dataset.from_dict({**rows, "image": [Image.new("L", (112, 120))]}).cast_column("image", ImageColumn())
        (answered,) = GoldAnswers(processor, "qwen2.5-vl").of(images)
        assert "[10, 9, 50, 56]" in answered["completion"][0]["content"]

    def test_answers_fit_the_cropped_image(self, processor):
        images = synthetic_dataset("train", 8, preset="pa-256")
        answered = GoldAnswers(processor, "qwen2.5-vl", crop=0.2, contrast=0.3).of(images)
        assert {answered[index]["image"].size for index in range(8)} != {(224, 224)}
        for image in answered:
            boxes = self.read(image, processor).boxes
            assert np.all(boxes[:, 2:] <= np.array(image["image"].size) + 1)

    def test_loose_boxes_are_as_loose_as_asked(self, processor):
        images = synthetic_dataset("train", 40, preset="pa-256")
        loose = GoldAnswers(processor, "qwen2.5-vl", box_margin=0.1, box_noise=0.05).of(images)
        outwards = []
        for image, answered in zip(images, loose, strict=True):
            gt = np.array(image["boxes"]).reshape(-1, 4)
            moved = self.read(answered, processor).boxes - gt
            outwards.append(moved * (-1, -1, 1, 1) / np.tile(gt[:, 2:] - gt[:, :2], 2))
        values = np.concatenate(outwards)
        assert 0.08 < values.mean() < 0.11  # the edge of the image holds a few back
        assert 0.04 < values.std() < 0.07

    def test_answers_in_the_format_of_the_row(self, processor):
        images = synthetic_dataset("train", 2).add_column("box_format", ["answer-list", "qwen3-vl"])
        texts = [row["completion"][0]["content"] for row in GoldAnswers(processor).of(images)]
        assert ["<answer>" in text for text in texts] == [True, False]

    def test_sizes_of_the_image_where_no_column_has_them(self, processor):
        images = synthetic_dataset("train", 2)
        bare = images.remove_columns(["width", "height"])
        with_sizes, without = (list(GoldAnswers(processor, "qwen2.5-vl").of(one)) for one in (images, bare))
        assert [row["completion"] for row in with_sizes] == [row["completion"] for row in without]


class TestEpochs:
    """An image is cropped anew in every epoch, whoever reads it, and alike whenever the epoch is read again."""

    def read(self, answers, images, workers):
        loader = DataLoader(answers.of(images), batch_size=2, num_workers=workers, collate_fn=list)
        return [row["image"].size for batch in loader for row in batch]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_each_has_its_own_augmentation(self, processor, workers):
        images, answers = synthetic_dataset("train", 6, preset="pa-256"), GoldAnswers(processor, "qwen2.5-vl", crop=0.3)
        epochs = []
        for epoch in range(3):
            answers.start_epoch(epoch)
            epochs.append(self.read(answers, images, workers))
        assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
        answers.start_epoch(1)
        assert self.read(answers, images, workers) == epochs[1]

    def test_the_order_of_the_images_changes_nothing(self, processor):
        images = GoldAnswers(processor, "qwen2.5-vl", crop=0.3).of(synthetic_dataset("train", 6, preset="pa-256"))
        forwards = [images[k]["image"].tobytes() for k in range(6)]
        assert [images[k]["image"].tobytes() for k in reversed(range(6))] == forwards[::-1]
