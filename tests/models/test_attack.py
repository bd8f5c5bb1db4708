"""The attack on functions whose best answer is known, and on small untrained models of two architectures."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.models.attack import PGD, AttackingProcessor, PixelScale, answer_loss, project_gradient

MEAN, STD = [0.48, 0.45, 0.40], [0.26, 0.25, 0.28]


def normalised(intensities):
    """`(b, 3, h, w)` intensities as an image processor hands them to the model."""
    mean, std = torch.tensor(MEAN).reshape(3, 1, 1), torch.tensor(STD).reshape(3, 1, 1)
    return (intensities - mean) / std


SCALE = PixelScale(normalised(torch.zeros(3, 1, 1)), 1 / torch.tensor(STD).reshape(3, 1, 1))


@pytest.mark.parametrize("wanted", [0.0, 0.45, 0.52, 1.0])
def test_it_finds_the_best_point_of_the_ball(wanted):
    # The loss is greatest where every intensity is `wanted`: in reach of ε = 0.1 around 0.5, or at the ball's edge.
    image = torch.full((1, 3, 2, 2), 0.5)
    values = normalised(image)
    attacked = project_gradient(
        lambda x: -(x - normalised(torch.full_like(image, wanted))).square().sum(), values, SCALE, PGD(0.1, steps=200)
    )
    best = normalised(torch.full_like(image, float(np.clip(wanted, 0.4, 0.6))))
    # The last step is 2.5 · 0.1 / 200 long.
    assert torch.allclose(attacked, best, atol=0.00125 / min(STD) + 1e-6)


@given(epsilon=st.floats(1e-4, 1.0), steps=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_no_intensity_leaves_the_ball_or_its_range(epsilon, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand((2, 3, 4, 5), generator=generator)
    slope = torch.randn((2, 3, 4, 5), generator=generator)
    values = normalised(image)
    attacked = project_gradient(lambda x: (x.sin() * slope).sum(), values, SCALE, PGD(epsilon, steps, seed))
    intensities = attacked * torch.tensor(STD).reshape(3, 1, 1) + torch.tensor(MEAN).reshape(3, 1, 1)
    assert (intensities - image).abs().max() <= epsilon + 1e-6
    assert intensities.min() >= -1e-6
    assert intensities.max() <= 1 + 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("epsilon", [1 / 255, 4 / 255])
def test_the_ball_is_not_left_by_rounding(dtype, epsilon):
    # bfloat16 has steps of 1/128 near 2, where 1/255 of the intensities are 1/65
    values = normalised(torch.rand((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))).to(dtype)
    slope = torch.randn(values.shape, generator=torch.Generator().manual_seed(1))
    attacked = project_gradient(lambda x: (x.float() * slope).sum(), values, SCALE, PGD(epsilon))
    assert attacked.dtype == dtype
    change = (attacked.double() - values.double()).abs() * torch.tensor(STD, dtype=torch.float64).reshape(3, 1, 1)
    assert change.max() <= epsilon * (1 + 1e-4)
    # as much of the ball as the type has values for
    assert change.mean() > (0.4 if dtype == torch.bfloat16 else 0.9) * epsilon


def test_a_value_outside_the_range_stays_where_it_is():
    # Resizing overshoots at sharp edges.
    values = torch.tensor([[[[1.02]], [[-0.01]], [[0.5]]]])
    scale = PixelScale(torch.zeros(1), torch.ones(1))
    assert project_gradient(torch.sum, values, scale, PGD(0.1)).flatten().tolist() == pytest.approx([1.02, 0.09, 0.6])


def test_random_start_follows_seed_and_row():
    images = torch.rand(6, 3, 5, 5)
    attack = PGD(0.1, steps=1, seed=4)

    def run(parts, seed):
        rng = np.random.default_rng(seed)
        scale = PixelScale(torch.zeros(1), torch.ones(1))
        # A loss that is the same everywhere leaves the start as it is.
        return torch.cat([project_gradient(lambda x: (0 * x).sum(), part, scale, attack, rng) for part in parts])

    whole = run((images,), 4)
    assert torch.equal(whole, run(images.split(2), 4))
    assert torch.equal(whole, run((images,), 4))
    assert not torch.equal(whole, run((images,), 5))


def test_copies_of_a_still_image_are_changed_alike():
    values = torch.rand(64, 3, 1, 196).expand(64, 3, 2, 196).reshape(64, -1)
    # A loss that pulls the two copies apart.
    slope = torch.randn(values.shape, generator=torch.Generator().manual_seed(0))
    scale = PixelScale(torch.zeros(1), torch.ones(1), copies=2)
    attacked = project_gradient(lambda x: (x * slope).sum(), values, scale, PGD(8 / 255))
    first, second = attacked.reshape(64, 3, 2, 196).unbind(2)
    assert torch.equal(first, second)
    assert not torch.equal(attacked, values)


def test_gradients_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="Expected finite gradients"):
        project_gradient(lambda x: (x - x).sqrt().sum(), torch.rand(1, 3, 4, 4), SCALE, PGD(0.1))


def llava():
    """A small untrained model, two prompts, the first padded on the left, and the shape of two images of 28 × 28."""
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    common = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    vision = {"model_type": "clip_vision_model", "image_size": 28, "patch_size": 14, **common}
    text = {"model_type": "llama", "vocab_size": 100, "num_key_value_heads": 4, **common}
    text |= {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_id=99, vision_feature_layer=-1)
    ids = torch.tensor([[0, 0, *[99] * 4, 5, 6], [3, 4, *[99] * 4, 7, 6]])
    prompts = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    return LlavaForConditionalGeneration(config), prompts, (2, 3, 28, 28)


def test_the_gold_answer_becomes_less_likely():
    torch.manual_seed(0)
    model, prompts, shape = llava()
    model.eval()
    values = normalised(torch.rand(shape))
    loss = answer_loss(model, prompts, [[7, 8, 9], [10, 1]], 0)
    attacked = project_gradient(loss, values, SCALE, PGD(16 / 255))
    with torch.no_grad():
        assert loss(attacked) > loss(values) + 0.1
    # The model is left as it was.
    assert all(parameter.grad is None for parameter in model.parameters())


def test_loss_is_the_models_and_images_are_independent():
    torch.manual_seed(0)
    model, prompts, shape = llava()
    model.eval()
    values = torch.randn(shape)
    answers = [[7, 8, 9], [10, 1]]
    single = []
    for i, answer in enumerate(answers):
        alone = {key: value[i : i + 1, 2 * (1 - i) :] for key, value in prompts.items()}
        with torch.no_grad():
            single.append(float(answer_loss(model, alone, [answer], 0)(values[i : i + 1])))
            # The model's loss is the mean over the tokens that have a label.
            ids = torch.cat([alone["input_ids"], torch.tensor([answer])], dim=1)
            labels = torch.where(torch.arange(ids.shape[1]) < alone["input_ids"].shape[1], -100, ids)
            own = model(input_ids=ids, pixel_values=values[i : i + 1], labels=labels).loss
        assert single[i] == pytest.approx(float(own) * len(answer), rel=1e-5)
    with torch.no_grad():
        assert float(answer_loss(model, prompts, answers, 0)(values)) == pytest.approx(sum(single), rel=1e-5)


def test_images_are_attacked_with_their_own_answers(tiny_model):
    model, processor = tiny_model
    model.eval()
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (112, 112), dtype=np.uint8)) for _ in range(3)]
    answers = ['[{"bbox_2d": [1, 2, 30, 40], "label": "mass"}]', "[]", '[{"bbox_2d": [60, 70, 90, 99]}]']
    prompts = [prompt_messages(labels) for labels in (["mass"], ["mass", "effusion"], ["pacemaker"])]
    contents = [[{"type": "image", "image": images[k]}, prompt[0]["content"][1]] for k, prompt in enumerate(prompts)]
    conversations = [[{"role": "user", "content": content}] for content in contents]
    settings: dict[str, Any] = dict.fromkeys(("add_generation_prompt", "tokenize", "return_dict"), True)
    settings |= {"return_tensors": "pt", "processor_kwargs": {"padding": True, "padding_side": "left"}}

    def attacked(size):
        processing = AttackingProcessor(processor, model, answers, PGD(8 / 255, steps=2))
        batches = [conversations[i : i + size] for i in range(0, 3, size)]
        return torch.cat([processing.apply_chat_template(batch, **settings)["pixel_values"] for batch in batches])

    together, alone = attacked(3), attacked(1)
    # The sign of a gradient that is 0 up to rounding may differ.
    assert (together == alone).float().mean() > 0.98
    plain = processor.apply_chat_template(conversations, **settings)["pixel_values"]
    assert (together == plain).float().mean() < 0.1
    # In patches of channel, copy and pixel: all copies alike, and no intensity by more than ε.
    patches = (together - plain).reshape(len(plain), 3, 2, 196)
    assert torch.equal(patches[:, :, 0], patches[:, :, 1])
    change = patches * torch.tensor(processor.image_processor.image_std).reshape(3, 1, 1)
    assert 0.9 * 8 / 255 < change.abs().max() <= 8 / 255 + 1e-6
