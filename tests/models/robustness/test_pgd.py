"""The attack on functions whose best answer is known, and on small untrained models of several architectures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.models.robustness.pgd import (
    PGD,
    AttackingProcessor,
    PixelScale,
    answer_loss,
    pixel_scale,
    project_gradient,
)

MEAN, STD = [0.48, 0.45, 0.40], [0.26, 0.25, 0.28]


class ImageProcessor:
    """What the attack reads from an image processor; other values in place of CLIP's, other for each channel."""

    def __init__(self, **others):
        self.image_mean, self.image_std, self.do_normalize = MEAN, STD, True
        self.do_rescale, self.rescale_factor = True, 1 / 255
        vars(self).update(others)


def normalised(intensities):
    """`(b, 3, h, w)` intensities as an image processor hands them to the model."""
    mean, std = torch.tensor(MEAN).reshape(3, 1, 1), torch.tensor(STD).reshape(3, 1, 1)
    return (intensities - mean) / std


@pytest.mark.parametrize("wanted", [0.0, 0.45, 0.52, 1.0])
def test_it_finds_the_best_point_of_the_ball(wanted):
    # The loss is greatest where every intensity is `wanted`: in reach of ε = 0.1 around 0.5, or at the ball's edge.
    image = torch.full((1, 3, 2, 2), 0.5)
    values = normalised(image)
    attacked = project_gradient(
        lambda x: -(x - normalised(torch.full_like(image, wanted))).square().sum(),
        values,
        pixel_scale(values, ImageProcessor()),
        PGD(0.1, steps=200),
    )
    best = normalised(torch.full_like(image, float(np.clip(wanted, 0.4, 0.6))))
    # The last step is 2.5 · 0.1 / 200 long.
    assert torch.allclose(attacked, best, atol=0.00125 / min(STD) + 1e-6)


@given(
    epsilon=st.floats(1e-4, 1.0),
    steps=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_no_intensity_leaves_the_ball_or_its_range(epsilon, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand((2, 3, 4, 5), generator=generator)
    slope = torch.randn((2, 3, 4, 5), generator=generator)
    values = normalised(image)
    attacked = project_gradient(
        lambda x: (x.sin() * slope).sum(),
        values,
        pixel_scale(values, ImageProcessor()),
        PGD(epsilon, steps, seed),
    )
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
    attacked = project_gradient(
        lambda x: (x.float() * slope).sum(), values, pixel_scale(values, ImageProcessor()), PGD(epsilon)
    )
    assert attacked.dtype == dtype
    change = (attacked.double() - values.double()).abs() * torch.tensor(STD, dtype=torch.float64).reshape(3, 1, 1)
    assert change.max() <= epsilon * (1 + 1e-4)
    # as much of the ball as the type has values for
    assert change.mean() > (0.4 if dtype == torch.bfloat16 else 0.9) * epsilon


def test_a_value_outside_the_range_stays_where_it_is():
    # Resizing overshoots at sharp edges.
    values = torch.tensor([[[[1.02]], [[-0.01]], [[0.5]]]])
    scale = PixelScale((1, 3, 1, 1), torch.zeros(1), torch.ones(1))
    assert project_gradient(torch.sum, values, scale, PGD(0.1)).flatten().tolist() == pytest.approx([1.02, 0.09, 0.6])


def test_the_start_is_that_of_the_seed_and_of_the_place_in_the_dataset():
    images = torch.rand(6, 3, 5, 5)
    attack = PGD(0.1, steps=1, seed=4)

    def run(parts, seed):
        rng = np.random.default_rng(seed)
        scales = [pixel_scale(part, ImageProcessor(do_normalize=False)) for part in parts]
        pairs = zip(parts, scales, strict=True)
        # A loss that is the same everywhere leaves the start as it is.
        return torch.cat([project_gradient(lambda x: (0 * x).sum(), *pair, attack, rng) for pair in pairs])

    whole = run((images,), 4)
    assert torch.equal(whole, run(images.split(2), 4))
    assert torch.equal(whole, run((images,), 4))
    assert not torch.equal(whole, run((images,), 5))


def test_pixel_values_of_every_layout_are_read_as_intensities():
    rgb = torch.tensor([0.2, 0.5, 0.9])
    for shape in [(2, 3, 4, 4), (2, 5, 3, 4, 4), (1, 2, 4, 3, 4, 4)]:
        image = rgb.reshape(3, 1, 1).expand(shape)
        values = normalised(image)
        scale = pixel_scale(values, ImageProcessor())
        assert torch.allclose((values.reshape(scale.shape) - scale.low) / scale.span, image, atol=1e-6)
    for others, white in [
        ({"do_rescale": False, "do_normalize": False}, 255.0),
        ({"do_normalize": False}, 1.0),
        ({"do_normalize": False, "rescale_factor": 2 / 255}, 2.0),
    ]:
        scale = pixel_scale(torch.zeros(1, 3, 4, 4), ImageProcessor(**others))
        assert scale.low.tolist() == torch.zeros(1, 3, 1, 1).tolist()
        assert scale.span.flatten().tolist() == pytest.approx([white] * 3)


def test_patches_of_the_qwen_kind_are_read_as_intensities(tiny_model):
    # An image of one colour, through the real processor: every patch holds red, green and blue in this order.
    processor = tiny_model[1]
    values = processor.image_processor(images=[Image.new("RGB", (112, 112), (51, 102, 204))], return_tensors="pt")
    values = values["pixel_values"]
    scale = pixel_scale(values, processor)
    assert scale.shape == (64, 3, 2, 14 * 14)
    intensities = (values.reshape(scale.shape) - scale.low) / scale.span
    for channel, value in enumerate((0.2, 0.4, 0.8)):
        assert torch.allclose(intensities[:, channel], torch.tensor(value), atol=1e-5)


def test_copies_of_a_still_image_are_changed_alike(tiny_model):
    noise = np.random.default_rng(0).integers(0, 256, (112, 112), dtype=np.uint8)
    processor = tiny_model[1]
    image = Image.fromarray(noise).convert("RGB")
    values = processor.image_processor(images=[image], return_tensors="pt")["pixel_values"]
    # A loss that pulls the two copies apart.
    slope = torch.randn(values.shape, generator=torch.Generator().manual_seed(0))
    attacked = project_gradient(
        lambda x: (x * slope).sum(), values, pixel_scale(values, processor), PGD(8 / 255)
    ).reshape(64, 3, 2, 196)
    assert torch.equal(attacked[:, :, 0], attacked[:, :, 1])
    assert not torch.equal(attacked.reshape(values.shape), values)


def test_another_layout_is_attacked_where_channels_are_alike_and_refused_elsewhere():
    # Patches of three axes, channels last, as SigLIP 2 takes them.
    values = torch.zeros(2, 16, 48)
    alike = ImageProcessor(image_mean=[0.5] * 3, image_std=[0.5] * 3, patch_size=4)
    scale = pixel_scale(values, alike)
    assert scale.span.flatten().tolist() == [2.0]
    with pytest.raises(ValueError, match=r"Expected pixel values of shape .* got \(2, 16, 48\)"):
        pixel_scale(values, ImageProcessor(patch_size=4))
    # As many numbers as two images have, which are not twice the same.
    with pytest.raises(ValueError, match=r"Expected pixel values of shape .* got \(2, 96\)"):
        pixel_scale(torch.arange(192.0).reshape(2, 96), ImageProcessor(patch_size=4))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda x: x.detach().sum(), "Expected a model that passes gradients on"),
        (lambda x: torch.zeros(3, requires_grad=True).sum(), "Expected a model that passes gradients on"),
        (lambda x: (x - x).sqrt().sum(), "Expected finite gradients"),
    ],
)
def test_a_model_without_usable_gradients_is_refused(loss, message):
    values = torch.rand(1, 3, 4, 4)
    with pytest.raises(ValueError, match=message):
        project_gradient(loss, values, pixel_scale(values, ImageProcessor()), PGD(0.1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 8}, r"Expected a number in \[0, 1\] for `epsilon`, got 8"),
        ({"epsilon": float("nan")}, "for `epsilon`, got nan"),
        ({"epsilon": 0.1, "steps": 0}, "Expected a number from 1 up for `steps`, got 0"),
    ],
)
def test_wrong_attacks_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PGD(**arguments)


# Small untrained models, 100 words, image token 99, images of 28 × 28 in patches of 14.
TEXT = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
}


def _prompts(image_tokens, **others):
    """Two prompts, the first of which is two tokens shorter and padded on the left."""
    ids = torch.tensor([[0, 0, *[99] * image_tokens, 5, 6], [3, 4, *[99] * image_tokens, 7, 6]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), **others}


def llava():
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **VISION},
        text_config={"model_type": "llama", **TEXT},
        image_token_id=99,
        vision_feature_layer=-1,
    )
    return LlavaForConditionalGeneration(config), _prompts(4), (2, 3, 28, 28)


def idefics3():
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration

    config = Idefics3Config(
        vision_config=VISION, text_config={"model_type": "llama", **TEXT}, image_token_id=99, scale_factor=2
    )
    prompts = _prompts(1, pixel_attention_mask=torch.ones(2, 1, 28, 28, dtype=torch.long))
    return Idefics3ForConditionalGeneration(config), prompts, (2, 1, 3, 28, 28)


@pytest.mark.parametrize("build", [llava, idefics3], ids=lambda build: build.__name__)
def test_the_gold_answer_becomes_less_likely(build):
    torch.manual_seed(0)
    model, prompts, shape = build()
    model.eval()
    values = normalised(torch.rand(shape))
    loss = answer_loss(model, prompts, [[7, 8, 9], [10, 1]], 0)
    attacked = project_gradient(loss, values, pixel_scale(values, ImageProcessor()), PGD(16 / 255))
    with torch.no_grad():
        assert loss(attacked) > loss(values) + 0.1
    # The model is left as it was.
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_loss_is_the_models_own_and_images_do_not_mix():
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


def test_each_image_is_attacked_with_its_own_answer_whatever_the_batch(tiny_model):
    model, processor = tiny_model
    model.eval()
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (112, 112), dtype=np.uint8)) for _ in range(3)]
    answers = ['[{"bbox_2d": [1, 2, 30, 40], "label": "mass"}]', "[]", '[{"bbox_2d": [60, 70, 90, 99]}]']
    prompts = [prompt_messages(labels) for labels in (["mass"], ["mass", "effusion"], ["pacemaker"])]
    conversations = [
        [{"role": "user", "content": [{"type": "image", "image": image}, prompt[0]["content"][1]]}]
        for image, prompt in zip(images, prompts, strict=True)
    ]
    settings: dict[str, Any] = {
        "add_generation_prompt": True,
        "tokenize": True,
        "return_dict": True,
        "return_tensors": "pt",
        "processor_kwargs": {"padding": True, "padding_side": "left"},
    }

    def attacked(size):
        processing = AttackingProcessor(processor, model, answers, PGD(8 / 255, steps=2))
        batches = [conversations[i : i + size] for i in range(0, 3, size)]
        return torch.cat([processing.apply_chat_template(batch, **settings)["pixel_values"] for batch in batches])

    together, alone = attacked(3), attacked(1)
    # The sign of a gradient that is 0 up to rounding may differ.
    assert (together == alone).float().mean() > 0.98
    plain = processor.apply_chat_template(conversations, **settings)["pixel_values"]
    assert (together == plain).float().mean() < 0.1


def test_what_is_no_array_of_numbers_is_refused(tiny_model):
    class Listing:
        tokenizer = tiny_model[1].tokenizer

        def apply_chat_template(self, conversations, **kwargs):
            return self

        def to(self, device):
            return {"pixel_values": [torch.zeros(3, 4, 4)]}

    with pytest.raises(ValueError, match="Expected one array of numbers for the processor's `pixel_values`, got list"):
        AttackingProcessor(Listing(), tiny_model[0], ["[]"], PGD(0.1)).apply_chat_template([[]])
