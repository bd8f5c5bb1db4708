"""A warm start learns the right answers, whole or by an adapter, and leaves a model that anything can start from.

Boxes move with the image, in every epoch anew.
"""

import itertools

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import SFTConfig

from grounding_rewards.images.resize import resized_size
from grounding_rewards.models.load import load_model
from grounding_rewards.parsing import parse_boxes
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training.sft import GoldAnswers, GroundingSFTTrainer, crop_row
from tests.tables import table
from tests.training.runs import ASSET, LORA, grpo, history, sft

pytestmark = pytest.mark.training


def test_trains_and_leaves_a_model_that_loads(tmp_path):
    trainer = sft(tmp_path / "run", save_dtype="float16", crop=0.1, save_strategy="no", max_steps=12)
    losses = [entry["loss"] for entry in history(trainer)]
    # A batch is a few images, and some are harder than others.
    assert sum(losses[6:]) < sum(losses[:6])
    checkpoint = tmp_path / "run" / "checkpoint"
    saved = AutoModelForImageTextToText.from_pretrained(checkpoint)
    assert saved.dtype == torch.float16
    AutoProcessor.from_pretrained(checkpoint)
    for name in ("config.yaml", "versions.json", "log.jsonl", "README.md", "checkpoint/README.md"):
        assert (tmp_path / "run" / name).is_file()


class TestAdapter:
    @pytest.fixture(scope="class")
    def run(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("adapter") / "run"
        trainer = sft(folder, **LORA, dtype="bfloat16", attn_implementation="eager", save_strategy="no")
        return folder, trainer

    def test_only_the_adapter_trains_in_the_requested_precision(self, run):
        _, trainer = run
        trained = [name for name, value in trainer.model.named_parameters() if value.requires_grad]
        assert trained
        assert all("lora" in name for name in trained)
        base = trainer.model.get_base_model()
        assert base.dtype == torch.bfloat16
        assert base.config._attn_implementation == "eager"

    def test_is_merged_into_a_whole_model(self, run):
        folder, _ = run
        merged = AutoModelForImageTextToText.from_pretrained(folder / "checkpoint", dtype=torch.float32).state_dict()
        base = AutoModelForImageTextToText.from_pretrained(ASSET, dtype=torch.bfloat16).float().state_dict()
        assert list(merged) == list(base)
        assert any(not torch.equal(merged[name], base[name]) for name in base)
        assert not (folder / "checkpoint" / "adapter_config.json").exists()

    def test_stands_beside_it_and_makes_the_same_model(self, run):
        folder, _ = run
        applied, _ = load_model(folder / "adapter")
        merged, _ = load_model(folder / "checkpoint")
        for (name, one), other in zip(applied.state_dict().items(), merged.state_dict().values(), strict=True):
            # One was merged in float32, the other in the bfloat16 of the run.
            torch.testing.assert_close(one, other, atol=0.02, rtol=0.02, msg=name)

    def test_grpo_starts_from_it(self, run, tmp_path):
        folder, _ = run
        assert grpo(tmp_path / "run", model_name_or_path=folder / "checkpoint", max_steps=1).state.global_step == 1


def test_evaluates_on_images_of_its_own(tmp_path):
    values = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "eval_images": 4, "crop": 0.2}
    trainer = sft(tmp_path / "run", **values, load_best_model_at_end="true")
    losses = [entry["eval_loss"] for entry in history(trainer) if "eval_loss" in entry]
    assert len(losses) == 2
    assert trainer.state.best_metric == min(losses)
    # By hand: the images of the evaluation are whole, those of training are cropped.
    assert {image["image"].size for image in trainer.eval_dataset} == {(112, 112)}
    assert {image["image"].size for image in trainer.train_dataset} != {(112, 112)}


def test_images_are_augmented_anew_in_every_epoch(tmp_path, monkeypatch):
    seen = []
    original = GroundingSFTTrainer.compute_loss

    def watched(self, model, inputs, *args, **kwargs):
        seen.append(inputs["pixel_values"].sum().item())
        return original(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(GroundingSFTTrainer, "compute_loss", watched)
    values = {"train_images": 4, "contrast": 0.4, "dataloader_num_workers": 2, "save_strategy": "no"}
    sft(tmp_path / "run", max_steps=3, **values)
    # One batch of all images is an epoch; the order of the images changes nothing about their sum.
    assert len(seen) == 3
    assert min(abs(one - other) for one, other in itertools.combinations(seen, 2)) > 1.0


class TestLongPrompts:
    """TRL's own limit of 1,024 tokens cuts the answer away: loss 0, gradient 0, and a model that was saved."""

    @pytest.fixture(scope="class")
    def images(self, tmp_path_factory):
        folder = tmp_path_factory.mktemp("long") / "images"
        images = synthetic_dataset("train", 4)
        words = " ".join(f"finding{number}" for number in range(400))
        prompt = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": f"Locate {words}."}]}]
        images = images.remove_columns("prompt").add_column("prompt", [prompt] * 4)
        datasets.DatasetDict({"train": images}).save_to_disk(str(folder))
        return folder

    def test_keep_their_answers(self, images, tmp_path):
        trainer = sft(tmp_path / "run", dataset=images, max_steps=1, save_strategy="no")
        (entry,) = history(trainer)
        assert entry["loss"] > 0
        assert entry["grad_norm"] > 0
        # Also where TRL's own configuration, with its limit, is handed over.
        args = SFTConfig(str(tmp_path), remove_unused_columns=False, use_cpu=True, bf16=False)
        rows = datasets.load_from_disk(str(images))["train"]
        stock = GroundingSFTTrainer(str(ASSET), args, rows, None, trainer.processing_class)
        assert stock.data_collator([stock.train_dataset[0]])["input_ids"].shape[1] > 1024


def test_a_run_of_no_step_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="Expected at least one step, got none"):
        sft(tmp_path / "run", train_images=2, per_device_train_batch_size=4, dataloader_drop_last="true")
    assert not (tmp_path / "run" / "checkpoint").exists()


def row(boxes, labels, size=(100, 80)):
    return {"image": Image.new("L", size), "boxes": boxes, "labels": labels, "width": size[0], "height": size[1]}


@pytest.fixture(scope="module")
def processor():
    return AutoProcessor.from_pretrained(ASSET)


class TestCrop:
    @pytest.mark.parametrize(
        ("image", "boxes", "window", "moved"), table("training/cases", "boxes_move_and_are_clipped")
    )
    def test_boxes_move_and_are_clipped(self, image, boxes, window, moved):
        cropped = crop_row({**row(boxes, ["a", "b"]), "image": Image.new("L", image)}, window)
        x1, y1, x2, y2 = window
        assert (cropped["width"], cropped["height"]) == (x2 - x1, y2 - y1)
        assert cropped["image"].size == ((x2 - x1) * image[0] // 100, (y2 - y1) * image[1] // 80)
        assert cropped["boxes"] == [box for box in moved if box]
        assert cropped["labels"] == [label for label, box in zip("ab", moved, strict=True) if box]

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
        names, size = ("width", "height", "resized_width", "resized_height"), image["image"].size
        sizes = dict(zip(names, (*size, *resized_size(processor, *size)), strict=True))
        return parse_boxes(image["completion"][0]["content"], "qwen2.5-vl", **sizes)

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
        rows["image"] = [Image.new("L", (112, 120))]
        images = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
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

    def test_boxes_of_readers_alone_are_no_answer(self, processor):
        images = synthetic_dataset("train", 1).rename_column("boxes", "reader_boxes")
        with pytest.raises(ValueError, match=r"Expected boxes in every row .* got none in row 0"):
            GoldAnswers(processor, "qwen2.5-vl").of(images)

    def test_sizes_of_the_image_where_no_column_has_them(self, processor):
        images = synthetic_dataset("train", 2)
        bare = images.remove_columns(["width", "height"])
        with_sizes, without = (list(GoldAnswers(processor, "qwen2.5-vl").of(one)) for one in (images, bare))
        assert [row["completion"] for row in with_sizes] == [row["completion"] for row in without]
