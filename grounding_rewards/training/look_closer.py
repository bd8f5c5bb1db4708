"""Look closer before answering: an environment of TRL in which the model zooms into an image.

A model sees a radiograph of nine million pixels as one of a few hundred thousand, in which a nodule of six pixels is
gone. Here it may ask for parts of the image at full resolution before it answers. The tool speaks in the coordinates in
which the model writes boxes, and every picture is a :class:`View`, which knows its place on the image.

Images stay in the process: a picture goes to the model's processor and nowhere else.

Source: the contract of `environment_factory`, TRL 1.16, `GRPOTrainer`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from trl import GRPOConfig

from grounding_rewards.boxes import Boxes, CoordinateSpace, from_pixel, reference_defect, to_pixel
from grounding_rewards.common.validation import Interval, check_keys
from grounding_rewards.images.decoding import open_image, shown_image, shrunken_size
from grounding_rewards.images.image_column import FULL_IMAGE
from grounding_rewards.images.resize import has_resized_size, resized_size
from grounding_rewards.parsing import get_box_format
from grounding_rewards.training.rewards import StepReward
from grounding_rewards.training.run_options import check_options

# Pixels: an edge this near to a whole number is that number, moved by rounding.
_SLACK = 1e-6
# Longest side of a part, divided by its shortest; processors of the Qwen2-VL kind refuse 200.
_MAX_SIDE_RATIO = 100


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
        ranges = {"looks": Interval(1), "min_side": Interval(1), "max_pixels": Interval(LookCloser.min_side**2)}
        check_options(self, ranges | {"cost": Interval()}, owner_name="look_closer")

    @classmethod
    def of(cls, settings: Any) -> LookCloser | None:
        """The settings from the option `look_closer`: a mapping of them, or true for the defaults; None if it is off.

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

    def begin(self, args: GRPOConfig, rewards: list[Any], processor: Any, options: dict[str, Any]) -> None:
        """Add the tool and the reward for looking to the parts of a trainer, in place, before its model is loaded.

        Args:
            args: TRL's configuration, a copy.
            rewards: the reward functions.
            processor: the model's.
            options: further arguments of TRL's trainer.
        """
        formats = [reward.reward.box_format for reward in rewards if isinstance(reward, StepReward)]
        options["environment_factory"] = functools.partial(
            LookEnvironment, self, processor, formats[0] if formats else None
        )
        rewards.append(LookReward(self))
        if args.reward_weights is not None:
            args.reward_weights = [*args.reward_weights, 1.0]
        if args.max_tool_calling_iterations is None:
            # One more: a call too many is answered in words.
            args.max_tool_calling_iterations = self.looks + 1


class View(NamedTuple):
    """A part of an image, shown as a picture of its own.

    Attributes:
        x: left edge on the image, in pixels of the image (those of its boxes), like the next three.
        y: top edge.
        width: of the part.
        height: of the part.
        resized_width: width of the picture as the processor feeds it to the model; None where that is not known.
        resized_height: height of that picture; None where that is not known.

    Example:
        A model that counts from 0 to 1000 marks the middle of a part of 200 by 100 pixels:

        >>> from grounding_rewards.boxes import get_space
        >>> view = View(300.0, 50.0, 200.0, 100.0)
        >>> view.to_image([[250, 250, 750, 750]], get_space("norm1000"))
        array([[350.,  75., 450., 125.]])
        >>> view.from_image([[350, 75, 450, 125]], get_space("norm1000"))
        array([[250., 250., 750., 750.]])
    """

    x: float
    y: float
    width: float
    height: float
    resized_width: int | None = None
    resized_height: int | None = None

    def to_image(self, boxes: Any, space: CoordinateSpace) -> Boxes:
        """Convert boxes `(n, 4)` on this picture, in the order xyxy and a model's `space`, to pixels of the image."""
        return to_pixel(np.asarray(boxes, dtype=np.float64), space, **self._sizes()) + np.tile((self.x, self.y), 2)

    def from_image(self, boxes: Any, space: CoordinateSpace) -> Boxes:
        """Boxes on the image, `(n, 4)` xyxy in pixels, as a model names them on this picture; the inverse of
        `to_image`.

        Nothing is clipped: a box outside the part gets numbers outside the range of the space.
        """
        return from_pixel(np.asarray(boxes, dtype=np.float64) - np.tile((self.x, self.y), 2), space, **self._sizes())

    def _sizes(self) -> dict[str, Any]:
        """The keyword arguments of `to_pixel` and `from_pixel`."""
        return {side: getattr(self, side) for side in ("width", "height", "resized_width", "resized_height")}


class _RefusedError(Exception):
    """A tool refuses a call; the model gets the message as its answer."""


def _tool(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method that takes finite numbers, so that a wrong call or one too many never raises.

    The tool then returns a sentence for the model instead of a picture, and counts a refusal.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def tool(self: LookEnvironment, *args: Any, **arguments: Any) -> Any:
        """The result of the method for checked numbers, or a sentence that says why there is no picture."""
        try:
            if self.pictures >= self.settings.looks:
                raise _RefusedError("all looks are used")
            try:
                bound = signature.bind(self, *args, **arguments).arguments
            except TypeError:
                _, *names = signature.parameters
                raise _RefusedError(f"{method.__name__} takes {', '.join(names)}") from None
            return method(self, **{name: _number(name, value) for name, value in bound.items() if name != "self"})
        except _RefusedError as error:
            self.refusals += 1
            return f"No picture: {error}. {self._looks_left()}"

    return tool


class LookEnvironment:
    """One image, and a model that looks at it: TRL makes one for each answer of a step, and resets it for every image.

    `zoom` is a tool. The model numbers what it has seen: image 1 is the image, image 2 the
    first picture that it asked for. Every box that it names, and its answer, is in its own coordinates; those of the
    answer are on image 1.

    Args:
        settings: how closely the model may look.
        processor: the model's, which says how large it sees a picture.
        box_format: how the model writes boxes; None takes the column `box_format`.

    Attributes:
        views: the pictures that the model has seen, the image first.
        pictures: how many pictures the tool has shown.
        refusals: how many calls were answered in words alone.

    Example:
        >>> from grounding_rewards.synthetic import synthetic_dataset
        >>> environment = LookEnvironment(LookCloser(looks=1), box_format="qwen3-vl")
        >>> print(environment.reset(**synthetic_dataset("train", 1)[0]))
        <BLANKLINE>
        Before you answer you may look closer. Pictures left: 1. This is image 1; coordinates are those of your answer.
        >>> picture, words = environment.zoom(x1=0, y1=0, x2=500, y2=250)
        >>> picture["image"].size, environment.views[1]
        ((56, 28), View(x=0.0, y=0.0, width=56.0, height=28.0, resized_width=None, resized_height=None))
        >>> print(words["text"])
        Image 2 shows 0, 0, 500, 250 of image 1. Answer with boxes on image 1. No more pictures: answer now.
        >>> environment.zoom(x1=0, y1=0, x2=500, y2=250)
        'No picture: all looks are used. No more pictures: answer now.'
    """

    def __init__(self, settings: LookCloser, processor: Any = None, box_format: Any = None) -> None:
        self.settings, self.processor, self.box_format = settings, processor, box_format

    def reset(self, **row: Any) -> str:
        """Begin with an image.

        Args:
            **row: the dataset's columns: `image` (or, from our trainer, the image at full resolution too), `width` and
                `height` where boxes are in pixels of another size, `resized_width` and `resized_height`, `box_format`.

        Returns:
            The instructions after the prompt.
        """
        self.source = row[FULL_IMAGE] if row.get(FULL_IMAGE) is not None else row["image"]
        self._image: Image.Image | None = None
        self.space = get_box_format(row["box_format"] if self.box_format is None else self.box_format).space
        width, height = row.get("width"), row.get("height")
        if width is None or height is None:
            width, height = self._whole_image().size
        resized = row.get("resized_width"), row.get("resized_height")
        if resized == (None, None):
            resized = self._resized(width, height)
        self.views = [View(0.0, 0.0, float(width), float(height), *resized)]
        self.pictures = 0
        self.refusals = 0
        instructions = "This is image 1; coordinates are those of your answer."
        return f"\nBefore you answer you may look closer. {self._looks_left()} {instructions}"

    @_tool
    def zoom(self, x1: float, y1: float, x2: float, y2: float, image: int = 1) -> list:
        """
        Show a part of an image at full resolution, as a new image.

        Args:
            x1: Left edge of the part, in the coordinates in which you write boxes.
            y1: Top edge of the part.
            x2: Right edge of the part.
            y2: Bottom edge of the part.
            image: The number of the image on which you name the part. 1 is the whole image.

        Returns:
            The part as a new image, and where on image 1 it lies.
        """
        if image not in range(1, len(self.views) + 1):
            raise _RefusedError(f"image is a number from 1 to {len(self.views)}")
        with np.errstate(over="ignore", invalid="ignore"):
            part = self.views[int(image) - 1].to_image([[x1, y1, x2, y2]], self.space)[0].tolist()
        if reference_defect(part, (self.views[0].width, self.views[0].height)) not in (None, "partly-off-image"):
            raise _RefusedError("x1 is left of x2 and y1 above y2, and the part lies on the image")
        return self._show(self._pixels_under(part))

    def _whole_image(self) -> Image.Image:
        """The image at full resolution, opened at the first call."""
        if self._image is None:
            self._image = shown_image(self.source) if isinstance(self.source, Image.Image) else open_image(self.source)
        return self._image

    def _resized(self, width: int, height: int) -> tuple[int | None, int | None]:
        """Width and height to which the processor resizes an image; None for both if that is not known."""
        return resized_size(self.processor, width, height) if has_resized_size(self.processor) else (None, None)

    def _pixels_under(self, part: Sequence[float]) -> list[int]:
        """Whole pixels x1, y1, x2, y2 of the image file under a part of the image, widened to `min_side` if smaller."""
        size = np.array(self._whole_image().size)
        # The image's boxes may be in pixels of another size than the file's.
        scale = size / (self.views[0].width, self.views[0].height)
        # A part may reach far off the image.
        with np.errstate(over="ignore"):
            top_left, bottom_right = np.reshape(part, (2, 2)) * scale
            longest = min((bottom_right - top_left).max(), size.max())
        first = np.maximum(np.floor(top_left + _SLACK), 0)
        last = np.minimum(np.ceil(bottom_right - _SLACK), size)
        min_side = np.minimum(max(self.settings.min_side, math.ceil(longest / _MAX_SIDE_RATIO)), size)
        # Widen around the middle.
        missing = np.maximum(min_side - (last - first), 0)
        first = np.clip(first - missing // 2, 0, size - min_side)
        return np.concatenate([first, np.maximum(last, first + min_side)]).astype(int).tolist()

    def _show(self, rectangle: Sequence[int]) -> list:
        """Cut out pixels of the image file, add the view of them, and return them as content blocks of a message.

        Args:
            rectangle: x1, y1, x2, y2 in pixels of the image file.
        """
        image, whole_view = self._whole_image(), self.views[0]
        x1, y1, x2, y2 = rectangle
        picture = image.crop((x1, y1, x2, y2))
        picture = picture.resize(shrunken_size(*picture.size, self.settings.max_pixels), Image.Resampling.BICUBIC)
        # From pixels of the file to pixels of the image's boxes.
        scale_x, scale_y = whole_view.width / image.width, whole_view.height / image.height
        width, height = (x2 - x1) * scale_x, (y2 - y1) * scale_y
        self.views.append(View(x1 * scale_x, y1 * scale_y, width, height, *self._resized(*picture.size)))
        self.pictures += 1
        box = whole_view.from_image([[x1 * scale_x, y1 * scale_y, x2 * scale_x, y2 * scale_y]], self.space)[0]
        # + 0.0 turns -0 into 0.
        place = ", ".join(f"{value:.6g}" for value in box + 0.0)
        title = f"Image {len(self.views)} shows {place} of image 1."
        text = f"{title} Answer with boxes on image 1. {self._looks_left()}"
        return [{"type": "image", "image": picture.convert("RGB")}, {"type": "text", "text": text}]

    def _looks_left(self) -> str:
        """A sentence for the model: how many pictures it may still ask for."""
        count = self.settings.looks - self.pictures
        return "No more pictures: answer now." if count <= 0 else f"Pictures left: {count}."


def _number(name: str, value: Any) -> float:
    """Read a finite number that a model wrote, also one in quotes; refuse anything else by its parameter's name."""
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and math.isfinite(float(value)):
            return float(value)
    raise _RefusedError(f"{name} is not a finite number")


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

    def __call__(
        self, completions: Sequence[Any], *, environments: Sequence[Any], log_metric: Any = None, **columns: Any
    ) -> list[float]:
        """Score one batch: TRL's protocol for reward functions, with the environments of the answers.

        Args:
            completions: n answers, not used.
            environments: n environments after their answers.
            log_metric: called with the mean number of pictures, that of refused calls, and the share of answers before
                which the model looked.
            **columns: the dataset's, not used.

        Returns:
            n numbers.
        """
        pictures = np.array([environment.pictures for environment in environments], dtype=np.int64)
        if log_metric is not None:
            n = max(len(environments), 1)
            log_metric("looks/zoom", int(pictures.sum()) / n)
            log_metric("looks/refused", sum(environment.refusals for environment in environments) / n)
            log_metric("looks/looked", int((pictures > 0).sum()) / n)
        # 0.0 - 0.0 is 0, where -(0.0) would be logged as -0.
        return (0.0 - self.settings.cost * pictures).tolist()
