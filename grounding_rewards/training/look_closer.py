"""Look closer before answering: an environment of TRL in which the model zooms into an image.

A model sees a radiograph of nine million pixels as one of a few hundred thousand, in which a nodule of six pixels is
gone. Here it may ask for parts of the image at full resolution before it answers. The tool speaks in the coordinates in
which the model writes boxes on the image.

Images stay in the process: a picture goes to the model's processor and nowhere else.

Source: the contract of `environment_factory`, TRL 1.16, `GRPOTrainer`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from PIL import Image
from trl import GRPOConfig

from grounding_rewards.boxes import frame_to_pixel, pixel_to_frame, reference_defect, space_frame
from grounding_rewards.common.validation import Interval, check_keys
from grounding_rewards.images.decoding import open_image, shown_image, shrunken_size
from grounding_rewards.images.image_column import FULL_IMAGE
from grounding_rewards.parsing import get_box_format
from grounding_rewards.training.rewards import StepReward
from grounding_rewards.training.run_options import check_options

# Pixels: an edge this near to a whole number is that number, moved by rounding.
_SLACK = 1e-6


@dataclass(frozen=True, kw_only=True)
class LookCloser:
    """Settings of the tool, and the price of a picture.

    Attributes:
        looks: how many pictures it may ask for before it answers.
        min_side: shortest side of a part of an image, in pixels of its image file; a smaller part is widened around its
            middle.
        max_pixels: a larger part is shrunk to this area before it is shown; a smaller one has full resolution.
        cost: what every picture takes from the reward.

    Raises:
        ValueError: a value is not legal.

    Example:
        >>> LookCloser(looks=0)
        Traceback (most recent call last):
        ValueError: Expected a number from 1 up for looks of look_closer, got 0. Correct the value.
    """

    looks: int = 3
    min_side: int = 28
    max_pixels: int = 512 * 512
    cost: float = 0.0

    def __post_init__(self) -> None:
        # A smaller area than that of the smallest part, by default, would shrink every picture.
        ranges = {"looks": Interval(1), "min_side": Interval(1), "max_pixels": Interval(LookCloser.min_side**2)}
        check_options(self, ranges | {"cost": Interval()}, owner_name="look_closer")

    @classmethod
    def of(cls, settings: Any) -> LookCloser | None:
        """The settings that the option `look_closer` gives; None if it is off.

        Args:
            settings: a mapping of the attributes, or true for the defaults; false or None if it is off.

        Raises:
            ValueError: it is no mapping, has an unknown key, or a value is not legal.

        Example:
            >>> LookCloser.of({"cost": 0.02}).looks
            3
        """
        if settings is None or settings is False:
            return None
        settings = {} if settings is True else settings
        remedy = "Write it like look_closer: {looks: 3, cost: 0.02}."
        if not isinstance(settings, Mapping):
            raise ValueError(f"Expected a mapping for look_closer, got {settings!r:.200}. {remedy}")
        check_keys("look_closer", settings, [option.name for option in fields(cls)], remedy)
        return cls(**settings)

    def begin(self, args: GRPOConfig, rewards: list[Any], options: dict[str, Any]) -> None:
        """Add the tool and the reward for looking to the parts of a trainer, in place, before its model is loaded.

        Args:
            args: TRL's configuration, a copy.
            rewards: the reward functions.
            options: further arguments of TRL's trainer.
        """
        # The tool reads boxes as the first grounding reward does.
        formats = [reward.reward.box_format for reward in rewards if isinstance(reward, StepReward)]
        options["environment_factory"] = functools.partial(LookEnvironment, self, formats[0] if formats else None)
        rewards.append(LookReward(self))
        if args.reward_weights is not None:
            # The added reward is weighed by its own `cost`.
            args.reward_weights = [*args.reward_weights, 1.0]
        if args.max_tool_calling_iterations is None:
            # One more than there are looks: the call too many gets the answer that all are used.
            args.max_tool_calling_iterations = self.looks + 1


class LookEnvironment:
    """One image, and a model that looks at it: TRL makes one for each answer of a step, and resets it for every image.

    `zoom` is a tool. Every box that the model names, and its answer, is in its own coordinates on the image. A call
    that cannot be answered raises an error, which TRL's loop over calls of tools gives to the model in words.

    Args:
        settings: how closely the model may look.
        box_format: how the model writes boxes; None takes the column `box_format`.

    Attributes:
        pictures: how many pictures the tool has shown.

    Example:
        >>> from grounding_rewards.synthetic import synthetic_dataset
        >>> environment = LookEnvironment(LookCloser(looks=1), box_format="qwen3-vl")
        >>> print(environment.reset(**synthetic_dataset("train", 1)[0]))
        <BLANKLINE>
        Before you answer you may look closer, in the coordinates of your answer. Pictures left: 1.
        >>> picture, words = environment.zoom(x1=0, y1=0, x2=500, y2=250)
        >>> picture["image"].size
        (56, 28)
        >>> print(words["text"])
        This picture shows 0, 0, 500, 250 of the image. Answer with boxes on the image. No more pictures: answer now.
        >>> environment.zoom(x1=0, y1=0, x2=500, y2=250)
        Traceback (most recent call last):
        ValueError: all looks are used. No more pictures: answer now.
    """

    def __init__(self, settings: LookCloser, box_format: Any = None) -> None:
        self.settings, self.box_format = settings, box_format

    def reset(self, **row: Any) -> str:
        """Begin with an image.

        Args:
            **row: the dataset's columns: `image` (or, from our trainer, the image at full resolution too), `width` and
                `height` where boxes are in pixels of another size, `resized_width` and `resized_height` where the
                model's coordinates are pixels of that size, `box_format`.

        Returns:
            The instructions after the prompt.
        """
        self.source = row[FULL_IMAGE] if row.get(FULL_IMAGE) is not None else row["image"]
        # Opened when it is needed, see :meth:`_whole_image`.
        self._image: Image.Image | None = None
        width, height = row.get("width"), row.get("height")
        if width is None or height is None:
            width, height = self._whole_image().size
        # The image's boxes are in pixels of this size.
        self.size = (float(width), float(height))
        resized = {side: row.get(side) for side in ("resized_width", "resized_height")}
        space = get_box_format(row["box_format"] if self.box_format is None else self.box_format).space
        self.frame = space_frame(space, width=width, height=height, **resized)
        self.pictures = 0
        return f"\nBefore you answer you may look closer, in the coordinates of your answer. {self._looks_left()}"

    def zoom(self, x1: float, y1: float, x2: float, y2: float) -> list:
        """
        Show a part of the image at full resolution, as a new image.

        Args:
            x1: Left edge of the part, in the coordinates in which you write boxes.
            y1: Top edge of the part.
            x2: Right edge of the part.
            y2: Bottom edge of the part.

        Returns:
            The part as a new image, and where on the image it lies.
        """
        if self.pictures >= self.settings.looks:
            raise ValueError(f"all looks are used. {self._looks_left()}")
        # A model may write any number: one in quotes is read, one that overflows is refused below, without a warning.
        with np.errstate(over="ignore", invalid="ignore"):
            model_box = np.array([[x1, y1, x2, y2]], dtype=np.float64)
            part = frame_to_pixel(model_box, self.frame)[0].tolist()
        # Of a part that reaches off the image, what lies on it is shown.
        if reference_defect(part, self.size) not in (None, "partly-off-image"):
            # TRL hands the message of the error to the model.
            raise ValueError("x1 is left of x2 and y1 above y2, and the part lies on the image.")
        return self._show(self._pixels_under(part))

    def _whole_image(self) -> Image.Image:
        """The image at full resolution, opened at the first call."""
        if self._image is None:
            self._image = shown_image(self.source) if isinstance(self.source, Image.Image) else open_image(self.source)
        return self._image

    def _pixels_under(self, part: Sequence[float]) -> list[int]:
        """Whole pixels x1, y1, x2, y2 of the image file under a part of the image, widened to `min_side` if smaller.

        Args:
            part: x1, y1, x2, y2 in pixels of the image's boxes.
        """
        # Width and height of the file. The image's boxes may be in pixels of another size.
        size = np.array(self._whole_image().size)
        scale = size / self.size
        # A part may reach so far off the image that its numbers overflow.
        with np.errstate(over="ignore"):
            top_left, bottom_right = np.reshape(part, (2, 2)) * scale
            longest_side = min((bottom_right - top_left).max(), size.max())
        # The whole pixels on the image that the part touches, but not one that it touches by a rounding error.
        top_left = np.maximum(np.floor(top_left + _SLACK), 0)
        bottom_right = np.minimum(np.ceil(bottom_right - _SLACK), size)
        # Processors of the Qwen2-VL kind refuse pictures that are 200 times as long as wide: allow half of that.
        min_side = np.minimum(max(self.settings.min_side, math.ceil(longest_side / 100)), size)
        # Widen a side that is too short around its middle, or inwards from the edge of the image.
        missing = np.maximum(min_side - (bottom_right - top_left), 0)
        top_left = np.clip(top_left - missing // 2, 0, size - min_side)
        return np.concatenate([top_left, np.maximum(bottom_right, top_left + min_side)]).astype(int).tolist()

    def _show(self, rectangle: Sequence[int]) -> list:
        """Cut out pixels of the image file, and return the blocks of a message: the picture, and where it lies.

        Args:
            rectangle: x1, y1, x2, y2 in pixels of the image file.
        """
        image = self._whole_image()
        x1, y1, x2, y2 = rectangle
        picture = image.crop((x1, y1, x2, y2))
        picture = picture.resize(shrunken_size(*picture.size, self.settings.max_pixels), Image.Resampling.BICUBIC)
        self.pictures += 1
        # From pixels of the file to those of the image's boxes, and on to the numbers that the model writes.
        scale = np.array(self.size) / image.size
        [box] = pixel_to_frame(np.array([rectangle]) * np.tile(scale, 2), self.frame)
        # + 0.0 turns -0, which would be written with its sign, into 0.
        place = ", ".join(f"{value:.6g}" for value in box + 0.0)
        text = f"This picture shows {place} of the image. Answer with boxes on the image. {self._looks_left()}"
        return [{"type": "image", "image": picture.convert("RGB")}, {"type": "text", "text": text}]

    def _looks_left(self) -> str:
        """A sentence for the model: how many pictures it may still ask for."""
        count = self.settings.looks - self.pictures
        return "No more pictures: answer now." if count <= 0 else f"Pictures left: {count}."


@dataclass(frozen=True)
class LookReward:
    """The cost of looking, as a separate reward function of TRL: `cost` less for every picture.

    Attributes:
        settings: with `cost`.

    Example:
        >>> from grounding_rewards.synthetic import synthetic_dataset
        >>> looks = LookReward(LookCloser(cost=0.02))
        >>> environments = [LookEnvironment(looks.settings, box_format="qwen3-vl") for _ in range(2)]
        >>> for environment in environments:
        ...     _ = environment.reset(**synthetic_dataset("train", 1)[0])
        >>> _ = environments[1].zoom(0, 0, 500, 500)
        >>> looks(["[]", "[]"], environments=environments)
        [0.0, -0.02]
    """

    settings: LookCloser
    __name__ = "looks"

    def __call__(self, completions: Sequence[Any], *, environments: Sequence[Any], **columns: Any) -> list[float]:
        """Score one batch: TRL's protocol for reward functions, with the environments of the answers.

        Args:
            completions: n answers, not used.
            environments: n environments after their answers.
            **columns: the dataset's, not used.

        Returns:
            n numbers.
        """
        pictures = np.array([environment.pictures for environment in environments], dtype=np.int64)
        # 0.0 - 0.0 is 0, where -(0.0) would be logged as -0.
        return (0.0 - self.settings.cost * pictures).tolist()
