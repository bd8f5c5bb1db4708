"""Projected gradient descent on the pixels of an image: small changes that make the right answer unlikely.

The attack changes ``pixel_values``, which a processor makes of an image, by at most ε in every pixel to lower the
likelihood of the gold answer. ε is a fraction of the range of intensities, such as 8/255; what the processor makes of a
black and of a white image of the same size converts it to the processor's units, whatever its layout. No intensity
leaves its range. Processors of the Qwen2-VL kind repeat a still image in time; all copies are changed alike.

The pixels are those that the model is fed, after resizing, not rounded to 8 bits, and in its own floating-point type: a
coarse one has few values within ε, and all that are used lie within it. Steps follow the sign of the
gradient, from a random start; the result of the last one is used.

Source: Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks, 2018 (arXiv:1706.06083).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grounding_rewards.common.validation import SHARE, Interval, check_number

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PGD:
    """The settings of an attack.

    Attributes:
        epsilon: largest change of an intensity, as a fraction of the range, in [0, 1]; 0 changes nothing.
        steps: number of gradient steps, at least 1.
        seed: of the random start.

    Raises:
        ValueError: a number out of range.

    Example:
        >>> PGD(8 / 255).step == 2.5 * (8 / 255) / 10
        True
    """

    epsilon: float
    steps: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, SHARE, "It is a fraction of the range of intensities, such as 4/255.")
        check_number("steps", self.steps, Interval(1), "Use epsilon 0 for no attack.")

    @property
    def step(self) -> float:
        """The size of one step, as a fraction of the range: the attack can reach every point within ε from every other
        (Madry et al., §5).
        """
        return 2.5 * self.epsilon / self.steps


class PixelScale(NamedTuple):
    """The units of ``pixel_values``: ``value = low + span · intensity``, for intensities in [0, 1].

    Attributes:
        low: value of black; broadcasts to the pixel values.
        span: value of white minus that of black, likewise; 0 where there is no pixel of the image, as in padding.
        copies: how often a patch repeats a still image in time; its axes are channel, copy and pixel.
    """

    low: Tensor
    span: Tensor
    copies: int = 1


def project_gradient(
    loss: Callable[[Tensor], Tensor],
    pixel_values: Tensor,
    scale: PixelScale,
    attack: PGD,
    rng: np.random.Generator | None = None,
) -> Tensor:
    """Raise a loss by changing the pixel values by at most ε.

    ``x ← clip(x + α · sign(∇ loss(x)))`` to the ball of radius ε around the image and to the range of intensities.

    Args:
        loss: ``pixel_values → ()``, differentiable.
        pixel_values: of any shape, floating point; left as they are.
        scale: how they hold intensities.
        attack: its strength.
        rng: of the random start; by default from the attack's seed. With one generator for all batches, images start as
            they would in a single batch.

    Returns:
        New values of the same shape; the given ones for ε = 0.

    Raises:
        ValueError: the gradient with regard to the pixel values is not finite.
        RuntimeError: there is none.

    Example:
        A loss that grows with every value: each intensity goes up by ε, or to white.

        >>> import torch
        >>> values = torch.tensor([[[[0.2]], [[0.5]], [[0.99]]]])
        >>> scale = PixelScale(torch.zeros(1), torch.ones(1))
        >>> project_gradient(torch.sum, values, scale, PGD(0.1)).flatten()
        tensor([0.3000, 0.6000, 1.0000])
    """
    import torch

    if attack.epsilon == 0:
        return pixel_values
    rng = np.random.default_rng(attack.seed) if rng is None else rng
    # Where patches have copies, each row is a patch whose axes are channel, copy and pixel, in one line. The copies are
    # equal, so one of them is attacked.
    patch_shape = pixel_values.shape if scale.copies == 1 else (len(pixel_values), 3, scale.copies, -1)
    full_shape = pixel_values.reshape(patch_shape).shape

    def one_copy(tensor: Tensor) -> Tensor:
        """Only the first copy of each patch, from values that have the shape of the pixel values or broadcast to it."""
        tensor = tensor.float().expand(pixel_values.shape).reshape(patch_shape)
        return tensor[:, :, :1] if scale.copies > 1 else tensor

    def all_copies(tensor: Tensor) -> Tensor:
        """The pixel values in their own shape and type, from one copy that is repeated."""
        return tensor.expand(full_shape).reshape(pixel_values.shape).to(pixel_values.dtype)

    image, low, span = one_copy(pixel_values.detach()), one_copy(scale.low), one_copy(scale.span)
    radius, step = attack.epsilon * span, attack.step * span
    # Resizing with negative weights can leave a value just outside the range; it may stay there.
    lowest = torch.minimum(torch.maximum(image - radius, low), image)
    highest = torch.maximum(torch.minimum(image + radius, low + span), image)
    # Bounds that the given type can hold: rounded to it, no value leaves the ball.
    lowest = _round_up(lowest, pixel_values.dtype)
    highest = -_round_up(-highest, pixel_values.dtype)
    start = torch.from_numpy(rng.uniform(-1.0, 1.0, image.shape).astype(np.float32)).to(image.device)
    x = torch.clamp(image + radius * start, lowest, highest)
    for _ in range(attack.steps):
        with torch.enable_grad():
            x.requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss(all_copies(x)), x)
        if not torch.isfinite(gradient).all():
            raise ValueError(
                "Expected finite gradients with regard to the pixel values, got NaN or infinity. "
                "Load the model in float32 or bfloat16."
            )
        x = torch.clamp(x.detach() + step * gradient.sign(), lowest, highest)
    return all_copies(x)


def _round_up(values: Tensor, dtype: Any) -> Tensor:
    """Round values up to ones that a coarser type can hold; the result has the type of the values.

    Example:
        >>> import torch
        >>> _round_up(torch.tensor([1.001, -1.001]), torch.bfloat16)
        tensor([ 1.0078, -1.0000])
    """
    import torch

    # On the CPU, where `nextafter` takes every type.
    cpu_values = values.cpu()
    # Rounded to the nearest value of the coarser type, which may lie below; then the next one above it is taken.
    nearest = cpu_values.to(dtype)
    above = torch.nextafter(nearest, torch.full_like(nearest, torch.inf))
    return torch.where(nearest.to(cpu_values.dtype) < cpu_values, above, nearest).to(values)


def answer_loss(model: Any, inputs: Any, answers: Sequence[Sequence[int]], pad_token_id: int) -> Callable[..., Tensor]:
    """The negative log-likelihood of answers, as a function of the pixel values.

    ``-Σ log p(token | image, prompt, tokens before)`` over the tokens of every answer. Images do not
    interact, so the gradient for an image depends on its own answer alone.

    Args:
        model: a transformers vision-language model.
        inputs: from its processor for b images and prompts, padded on the left.
        answers: the b answers as token ids, at least one each.
        pad_token_id: pads the shorter answers.

    Returns:
        A function of the pixel values that returns a scalar tensor, in nats.
    """
    import torch

    prompt = inputs["input_ids"]
    # The answers, as many columns as the longest one has tokens.
    longest = max(map(len, answers))
    ids = torch.full((len(answers), longest), pad_token_id, device=prompt.device)
    is_answer = torch.zeros_like(ids, dtype=torch.bool)
    for number, answer in enumerate(answers):
        ids[number, : len(answer)] = torch.tensor(answer, device=prompt.device)
        is_answer[number, : len(answer)] = True
    # The inputs with the answers behind the prompts.
    extended = {key: value for key, value in inputs.items() if key != "pixel_values"}
    for key, value in extended.items():
        # Inputs per token, such as token types, are 0 (text) for the tokens of the answer.
        if getattr(value, "shape", None) == prompt.shape:
            extended[key] = torch.cat([value, torch.zeros_like(ids, dtype=value.dtype)], dim=1)
    extended["input_ids"] = torch.cat([prompt, ids], dim=1)
    mask = inputs.get("attention_mask", torch.ones_like(prompt))
    extended["attention_mask"] = torch.cat([mask, is_answer.to(mask.dtype)], dim=1)

    def loss(pixel_values: Tensor) -> Tensor:
        """The negative log-probability of the answers' tokens, summed."""
        logits = model(**extended, pixel_values=pixel_values, use_cache=False).logits
        # The token at position t is predicted at t - 1.
        log_p = logits[:, prompt.shape[1] - 1 : -1].float().log_softmax(dim=-1)
        # Of the whole vocabulary those of the answers' tokens are taken, without padding.
        return -log_p.gather(-1, ids[..., None])[..., 0][is_answer].sum()

    return loss


class AttackingProcessor:
    """A processor that attacks its pixel values before the model gets them.

    :func:`grounding_rewards.models.generate.generate` with this processor asks about attacked images; prompts, batches
    and decoding are unchanged.

    Args:
        processor: the model's own.
        model: a transformers vision-language model, in evaluation mode when it is attacked.
        answers: the gold answer to every image, in the order of generation.
        attack: its strength.
    """

    def __init__(self, processor: Any, model: Any, answers: Sequence[str], attack: PGD) -> None:
        self._processor = processor
        self._model = model
        # Each batch takes the next ones.
        self._answers: Iterator[str] = iter(answers)
        self._attack = attack
        self._rng = np.random.default_rng(attack.seed)

    def __getattr__(self, name: str) -> Any:
        """All else is the processor's own."""
        return getattr(self._processor, name)

    def apply_chat_template(self, conversations: Sequence[Any], **kwargs: Any) -> Any:
        """The inputs of the model for the next images, with attacked pixel values."""
        inputs = self._processor.apply_chat_template(conversations, **kwargs).to(self._model.device)
        # In the type that the model sees, in which the bound has to hold.
        pixel_values = inputs["pixel_values"].to(self._model.dtype)
        tokenizer = getattr(self._processor, "tokenizer", self._processor)
        texts = [next(self._answers) for _ in conversations]
        # With the token that ends an answer: an answer is right only if it ends where the gold answer does.
        end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        answers = [ids + end for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
        inputs["pixel_values"] = project_gradient(
            answer_loss(self._model, inputs, answers, tokenizer.pad_token_id),
            pixel_values,
            self._pixel_scale(conversations, pixel_values, kwargs),
            self._attack,
            self._rng,
        )
        return inputs

    def _pixel_scale(self, conversations: Sequence[Any], pixel_values: Tensor, kwargs: Mapping[str, Any]) -> PixelScale:
        """The scale that the processor gave the pixel values of these conversations."""
        # Measured: what it makes of black images of the same sizes is intensity 0, of white ones 1.
        pixel_values_by_colour = {}
        for colour in ("black", "white"):
            inputs = self._processor.apply_chat_template(_of_one_colour(conversations, colour), **kwargs)
            pixel_values_by_colour[colour] = inputs["pixel_values"].to(pixel_values.device).float()
        low = pixel_values_by_colour["black"]
        # Patches of the Qwen2-VL kind have two axes. They repeat a still image in time, and all its copies must change
        # alike.
        image_processor = getattr(self._processor, "image_processor", self._processor)
        copies = getattr(image_processor, "temporal_patch_size", 1) if pixel_values.dim() == 2 else 1
        return PixelScale(low, pixel_values_by_colour["white"] - low, copies)


def _of_one_colour(conversations: Sequence[Any], colour: str) -> list[Any]:
    """A copy of conversations whose images are of the same sizes and in one colour."""
    from PIL.Image import new

    changed_conversations = copy.deepcopy(list(conversations))
    for turn in itertools.chain.from_iterable(changed_conversations):
        for block in turn["content"]:
            if block.get("image") is not None:
                block["image"] = new(block["image"].mode, block["image"].size, colour)
    return changed_conversations
