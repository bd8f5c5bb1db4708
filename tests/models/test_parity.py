"""What the trainer sees is what the model saw: planted faults are found, sound models pass, nothing is moved."""

import random

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOTrainer

from grounding_rewards.data.dataset_columns import add_columns, add_prompts
from grounding_rewards.images.resize import set_image_size
from grounding_rewards.models.parity import check_parity
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer, callbacks
from scripts.checks.model_families import FAMILIES, save_family
from tests.training.runs import ASSET, config, grpo, history, same_weights, weights

pytestmark = pytest.mark.training

# Landscape, square and portrait.
SIZES = ((168, 100), (112, 112), (70, 150), (112, 60))


def images_of(sizes=SIZES):
    """Drawn images, resized in turn, with their boxes."""
    drawn = synthetic_dataset("train", 8)
    rows = []
    for row, (width, height) in zip(drawn, sizes * 8, strict=False):
        scale = np.array([width / row["width"], height / row["height"]] * 2)
        boxes = [(np.array(box) * scale).tolist() for box in row["boxes"]]
        rows.append({**row, "image": row["image"].resize((width, height)), "boxes": boxes})
        rows[-1].update(width=width, height=height)
    return Dataset.from_list(rows, features=drawn.features)


def trainer_of(folder, padding_side="left"):
    torch.set_num_threads(1)
    processor = AutoProcessor.from_pretrained(ASSET, padding_side=padding_side)
    return GroundingGRPOTrainer(str(ASSET), "R4", config(folder), images_of(), processing_class=processor)


def parity_of(model, processor, images, folder):
    """That of a trainer of TRL with this model."""
    processor.tokenizer.padding_side = "left"

    def reward(completions, **columns):
        return [0.0] * len(completions)

    trainer = GRPOTrainer(model, reward, config(folder), images, processing_class=processor)
    return check_parity(trainer, images)


def blacken(collated):
    """The pixels of the first image, without a trace in any shape."""
    patches = int(collated["image_grid_thw"][0].prod())
    collated["pixel_values"] = collated["pixel_values"].clone()
    collated["pixel_values"][:patches] = 0


def zero_image_tokens(collated):
    """The image tokens of the shortest prompt, as padding on the wrong side does it."""
    collated["mm_token_type_ids"][collated["prompt_mask"].sum(dim=1).argmin()] = 0


class TestFaults:
    """Each of them is silent in TRL, or fails amid the first step with an error that says nothing of images."""

    @pytest.mark.parametrize(
        ("fault", "found"),
        [
            (blacken, r"a difference of \d[\d.]* a token and \d.* in training for the image of \d+ x \d+"),
            # Where grids of the images differ enough, Qwen2.5-VL fails; otherwise it takes positions of text.
            (zero_image_tokens, r"(RuntimeError: shape mismatch|a difference of \d.* a token and \d.* in training)"),
        ],
    )
    def test_of_a_batch_in_training(self, tmp_path, monkeypatch, fault, found):
        collate = GRPOTrainer._generate_and_score_completions

        def faulty(self, inputs):
            collated = collate(self, inputs)
            if len(inputs) > 1:
                fault(collated)
            return collated

        monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", faulty)
        trainer = trainer_of(tmp_path)
        with pytest.raises(ValueError, match=f"for images of 112 x 60, 112 x 112 and 168 x 100, got {found}"):
            trainer.train()
        assert trainer.state.global_step == 0

    def test_a_processor_that_pads_on_the_right(self, tmp_path):
        """No fault is planted here: as in TRL#5785, types of tokens and tokens are padded on different sides."""
        with pytest.raises(ValueError, match=r'168 x 100, got .*padding_side="left"'):
            trainer_of(tmp_path, padding_side="right").train()

    @pytest.mark.parametrize(
        ("resized", "found"),
        [
            # In as many tokens, silently.
            (lambda image: image.resize((28, 28)).resize(image.size), "a difference of .* in training for the image"),
            # In more tokens than the trainer has patches for.
            (lambda image: image.resize((112, 168)), "ValueError: Image features and image tokens do not match"),
        ],
    )
    def test_a_rollout_that_resizes_in_another_way(self, tmp_path, monkeypatch, resized, found):
        tokenize = GRPOTrainer._tokenize_prompts

        def other(self, prompts):
            parts = [part for turns in prompts for turn in turns for part in turn["content"] if part["type"] == "image"]
            stored = [[part["image"]] for part in parts]
            for part in parts:
                part["image"] = resized(part["image"])
            ids, _, fields = tokenize(self, prompts)
            return ids, stored, fields

        monkeypatch.setattr(GRPOTrainer, "_tokenize_prompts", other)
        with pytest.raises(ValueError, match=f"Expected the same log-probabilities .*168 x 100.*{found}"):
            trainer_of(tmp_path).train()


@pytest.mark.parametrize("name", FAMILIES)
def test_sound_families_pass(name, tmp_path):
    torch.set_num_threads(1)
    save_family(name, tmp_path, layers=2, narrow=True)
    model = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(tmp_path)
    set_image_size(processor, 112 * 112)
    box_format = "medgemma-1.5" if name == "medgemma_4b" else "qwen3-vl"
    images = add_prompts(add_columns(images_of(), processor, box_format), box_format)
    found = parity_of(model, processor, images, tmp_path / "run")
    assert found < 1e-5


@pytest.mark.parametrize(("dtype", "noise"), [(torch.bfloat16, 0.03), (torch.float16, 0.005)])
def test_rounding_is_no_fault(dtype, noise, tmp_path):
    torch.set_num_threads(1)
    model = AutoModelForImageTextToText.from_pretrained(ASSET, dtype=dtype)
    processor = AutoProcessor.from_pretrained(ASSET)
    found = parity_of(model, processor, add_columns(images_of(), processor, "qwen2.5-vl"), tmp_path)
    assert 0 < found < noise


def test_it_leaves_everything_as_it_was(tmp_path, monkeypatch):
    """The same run with the check and without; random states, modes and what is logged."""
    calls = []

    def watched(check):
        def run(trainer, *others):
            before = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()
            modes = [part.training for part in trainer.model.modules()]
            check(trainer, *others)
            assert random.getstate() == before[0]
            assert np.random.get_state()[1].tolist() == before[1]
            assert torch.equal(torch.random.get_rng_state(), before[2])
            assert [part.training for part in trainer.model.modules()] == modes
            assert "generate" not in vars(trainer.model)
            calls.append(check)

        return run

    check = callbacks.check_parity
    runs = []
    for which in (check, lambda *_: None):
        monkeypatch.setattr(callbacks, "check_parity", watched(which))
        runs.append(grpo(tmp_path / str(len(runs)), max_steps=2, beta=0.1, gradient_accumulation_steps=2))
    assert len(calls) == 2
    assert history(runs[0]) == history(runs[1])
    assert same_weights(*map(weights, runs))


def test_images_in_the_column_images_without_a_box_format(tmp_path):
    """As for a reward of one's own."""
    torch.set_num_threads(1)
    rows = [{**row, "images": [row["image"]]} for row in images_of()]
    model = AutoModelForImageTextToText.from_pretrained(ASSET, dtype=torch.float32)
    images = Dataset.from_list(rows).remove_columns("image")
    found = parity_of(model, AutoProcessor.from_pretrained(ASSET), images, tmp_path)
    assert found < 1e-5
