"""The shipped model under changes: what it costs, and that nothing happens where nothing is changed."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from grounding_rewards import get_reward
from grounding_rewards.data.dataset_columns import add_columns
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.models.generate import Sampling, generate
from grounding_rewards.models.load import VllmModel, load_model
from grounding_rewards.models.robustness import pgd
from grounding_rewards.models.robustness.corruptions import corrupt
from grounding_rewards.models.robustness.pgd import PGD, AttackingProcessor
from grounding_rewards.models.robustness.run import Changes, CorruptedImages, robustness
from grounding_rewards.prepare.load import load_split
from tests.conftest import REPOSITORY

GREY = Image.new("L", (60, 40), 128)
SETTINGS: dict[str, Any] = {"max_new_tokens": 24, "batch_size": 24}


@pytest.fixture(scope="module")
def shipped():
    """The shipped model, its processor, and 24 drawn images."""
    model, processor = load_model(REPOSITORY / "assets" / "tiny_vlm")
    return model, processor, add_columns(load_split("synthetic", "test", max_images=24), processor, "qwen2.5-vl")


def test_accuracy_falls_with_epsilon_and_is_unchanged_at_0(shipped):
    model, processor, images = shipped
    kinds = {"families": ("corruptions", "pgd"), "corruptions": ("noise",)}
    changes = Changes(**kinds, strengths=(1,), epsilons=(0, 8 / 255, 0.1))
    still, _, *attacked = robustness(model, processor, images, get_reward("R3"), changes, **SETTINGS)
    zero, middle, large = attacked
    assert [point.strength for point in attacked] == [0, 8 / 255, 0.1]
    assert {point.family for point in attacked} == {"pgd"}
    # The attack at ε = 0 answers the images anew, and says the same.
    assert zero.accuracy == still.accuracy
    assert zero.mean_iou == still.mean_iou
    assert zero.attack_success_rate.value == 0
    # 24 images: what docs/robustness.md shows is far beyond chance.
    assert zero.accuracy[0] > middle.accuracy[0] + 0.2
    assert middle.accuracy[0] >= large.accuracy[0]
    assert zero.attack_success_rate[0] < middle.attack_success_rate[0] <= large.attack_success_rate[0]
    assert zero.mean_iou[0] > middle.mean_iou[0] > large.mean_iou[0]
    assert all(low <= value <= high for value, low, high in (middle.accuracy, middle.broken_share))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_noise_of_the_same_size_harms_less_than_an_attack(shipped, monkeypatch):
    # What the attack finds is no mere noise: its gradient points somewhere.
    model, processor, images = shipped
    gold = ['[{"bbox_2d": [0, 0, 9, 9], "label": "mass"}]'] * len(images)

    def answers(of):
        return generate(model, of, images, Sampling(max_new_tokens=24), batch_size=24)

    plain, attacked = answers(processor), answers(AttackingProcessor(processor, model, gold, PGD(8 / 255, steps=5)))
    # Where the loss is the same everywhere, the attack stays at its random start.
    monkeypatch.setattr(pgd, "answer_loss", lambda *_: lambda values: (0 * values).sum())
    noisy = answers(AttackingProcessor(processor, model, gold, PGD(8 / 255, steps=1)))
    noise, harm = (sum(a != b for a, b in zip(plain, changed, strict=True)) for changed in (noisy, attacked))
    assert noise < harm


def test_every_corruption_gives_a_point_for_each_strength(shipped):
    model, processor, images = shipped
    changes = Changes(families=("corruptions",), corruptions=("crop", "laterality_flip"), strengths=(1, 5))
    points = robustness(model, processor, images, get_reward("R3"), changes, **SETTINGS)
    expected = [(name, strength) for name in ("crop", "laterality_flip") for strength in (0, 1, 5)]
    assert [(point.name, point.strength) for point in points] == expected
    assert points[0].accuracy == points[3].accuracy
    assert points[0].attack_success_rate.value == points[3].attack_success_rate.value == 0
    # The model was taught images with the heart on one side, in one frame.
    assert points[2].accuracy[0] < points[0].accuracy[0] - 0.2
    assert points[5].accuracy[0] < points[4].accuracy[0] < points[3].accuracy[0]


def test_a_model_that_moves_its_boxes_along_is_perfectly_robust(monkeypatch):
    # In the place of a model: who marks all bright rectangles exactly, wherever they are.
    rng = np.random.default_rng(0)
    boxes = [[], [[20, 30, 60, 90]], [[10, 10, 40, 30], [60, 50, 90, 110]], [[0, 40, 50, 70]]]
    images = []
    for image in boxes:
        grey = rng.integers(0, 60, (120, 100), dtype=np.uint8)
        for x1, y1, x2, y2 in image:
            grey[y1:y2, x1:x2] = 255
        images.append(Image.fromarray(grey))
    from datasets import Dataset
    from datasets import Image as ImageColumn

    columns: dict[str, Any] = {"image": images, "boxes": boxes, "labels": [["mass"] * len(image) for image in boxes]}
    columns |= {"prompt": [[{"role": "user", "content": "?"}]] * 4, "patient_id": ["a", "a", "b", "c"]}
    columns |= {"width": [100] * 4, "height": [120] * 4}
    dataset = Dataset.from_dict(columns).cast_column("image", ImageColumn())

    def answer(model, processor, annotated_images, sampling, **_):
        from scipy.ndimage import find_objects, label

        assert sampling.temperature == 0
        answers = []
        for i in range(len(annotated_images)):
            found = find_objects(label(np.asarray(annotated_images[i]["image"]) > 127)[0])
            answers.append([json.dumps([{"bbox_2d": [x.start, y.start, x.stop, y.stop]} for y, x in found])])
        return answers

    monkeypatch.setattr("grounding_rewards.models.generate.generate", answer)
    reward = get_reward("R3", box_format={"syntax": "json", "space": "pixel"}, iou_threshold=0.7)
    changes = Changes(families=("corruptions",), corruptions=("rotation", "crop", "laterality_flip"), strengths=(2, 5))
    for point in robustness(None, None, dataset, reward, changes):
        assert point.accuracy[0] == 1, point
        assert point.attack_success_rate[0] == point.broken_share[0] == 0, point
        assert point.mean_iou[0] > 0.8, point


def test_images_and_answers_move_together():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 100), dtype=np.uint8))
    images = CorruptedImages([{"image": image, "id": "a"}] * 2, "crop", 5, seed=1)
    assert len(images) == 2
    first, second = images[0], images[1]
    assert first["id"] == "a"
    assert first["image"].tobytes() == corrupt(image, [], "crop", 5, seed=(1, 0)).image.tobytes()
    assert first["image"].tobytes() != second["image"].tobytes()

    gt = [[0, 0, 3, 50], [30, 10, 60, 40]]
    before = Prediction("a", 100, 50, gt=gt, gt_labels=["tube", "mass"], pred=gt[1:])
    (pair,) = CorruptedImages([{"image": image}], "crop", 5, seed=1).pairs([before], [before])
    moved = corrupt(image, before.gt, "crop", 5, seed=(1, 0))
    assert moved.kept.tolist() == [False, True]
    assert pair.before is before
    assert pair.after.gt.tolist() == moved.boxes[1:].tolist()
    assert pair.after.gt_labels == ("mass",)
    # What is left of the tube may be marked or not.
    assert pair.after.ignore.tolist() == moved.boxes[:1].tolist()
    assert pair.moved.tolist() == moved.boxes[1:].tolist()
    assert pair.kept.tolist() == [True]


def test_the_generators_of_the_caller_are_left_alone(shipped):
    model, processor, images = shipped
    state, drawn = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
    changes = Changes(corruptions=("noise",), strengths=(1,), epsilons=(0.01,), steps=1)
    few = images.select(range(2))
    first, again = (robustness(model, processor, few, get_reward("R3"), changes, **SETTINGS) for _ in range(2))
    assert first == again
    assert torch.equal(torch.random.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == drawn


def test_a_model_that_vllm_runs_is_refused(shipped):
    model, processor, images = shipped
    with pytest.raises(ValueError, match="Expected a model that transformers runs for `model`, got one that vLLM runs"):
        robustness(VllmModel(None, model.config, None), processor, images, get_reward("R3"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Changes(families=("fgsm",)), "for `families`, got 'fgsm'. Use one of: corruptions"),
        (lambda: Changes(corruptions=("fog",)), "for `name`, got 'fog'. Use one of: window_level, "),
        (lambda: Changes(strengths=(1, 6)), "Expected a whole number from 1 to 5 for `strength`, got 6"),
        (lambda: Changes(epsilons=(4,)), r"Expected a number in \[0, 1\] for `epsilon`, got 4"),
        (lambda: PGD(float("nan")), "for `epsilon`, got nan"),
        (lambda: PGD(0.1, steps=0), "Expected a number from 1 up for `steps`, got 0"),
        (lambda: corrupt(GREY, [], "noise", 0.5), "Expected a whole number from 1 to 5 for `strength`, got 0.5"),
        (lambda: corrupt(GREY, [[1, 2, 3]], "noise", 1), "Expected an array of shape"),
        (lambda: corrupt(Image.new("I;16", (5, 5)), [], "noise", 1), "an image of 8 bits for `image`, got mode I"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
