"""A warm start trains what it is given, whole or by an adapter, and leaves a model that anything can start from."""

from __future__ import annotations

import itertools

import datasets
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import SFTConfig

from grounding_rewards.models.load import load_model
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training.sft import GroundingSFTTrainer
from tests.training.runs import ASSET, LORA, REPOSITORY, grpo, history, sft

pytestmark = pytest.mark.training

CONFIGS = REPOSITORY / "configs" / "demo"


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

    def test_is_all_that_is_trained_in_the_precision_that_was_asked_for(self, run):
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


@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_augmented_anew_in_every_epoch(tmp_path, monkeypatch, workers):
    seen = []
    original = GroundingSFTTrainer.compute_loss

    def watched(self, model, inputs, *args, **kwargs):
        seen.append(inputs["pixel_values"].sum().item())
        return original(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(GroundingSFTTrainer, "compute_loss", watched)
    values = {"train_images": 4, "contrast": 0.4, "dataloader_num_workers": workers, "save_strategy": "no"}
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
