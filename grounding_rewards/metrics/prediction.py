"""One image and one answer to it: what every metric of an evaluation, its page and every export are made from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.boxes import BoxBatch, as_box_array
from grounding_rewards.common.atomic_files import whole_file
from grounding_rewards.common.numeric import Array
from grounding_rewards.common.text_files import read_json_lines
from grounding_rewards.parsing import BrokenBox
from grounding_rewards.parsing.results import with_broken

#: What a reference box is called that has no label.
UNNAMED = "finding"

_BOXES = ("gt", "ignore", "pred")
_TEXTS = ("id", "patient", "image", "view", "source", "question", "text", "reason")


def _no_boxes() -> Array:
    """An array of no boxes."""
    return np.zeros((0, 4))


def _storable(text: Any) -> Any:
    """The text with '?' for lone surrogates, which no file can hold; anything else as it is."""
    if not isinstance(text, str) or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """One image, its reference boxes, and the boxes that one answer gave.

    Lone surrogates in its texts, which a model may write and no file can hold, are replaced with '?'.

    Attributes:
        id: name of the image, unique within an evaluation.
        width: of the image in pixels.
        height: of the image in pixels.
        gt: ``(m, 4)`` reference boxes, xyxy in pixels of the image.
        gt_labels: m labels.
        pred: ``(n, 4)`` predicted boxes, in the order in which the model wrote them; invalid ones are among them.
        pred_labels: n labels, None where the answer gives none.
        pred_scores: ``(n,)`` confidences that the answer states, NaN where it states none.
        ignore: ``(k, 4)`` regions in which a prediction that matches nothing does not count.
        patient: whose image it is, None where that is not known.
        image: path of the image, where it has one.
        view: how the image was taken, as its dataset says, such as `PA`; None where that is not known.
        source: which dataset the image is from, where several were mixed; None where that is not known.
        asked: the labels that the prompt names, where it is known.
        question: the words of the prompt, in lower case; None where they are not known.
        text: what the model wrote.
        status: `boxes`, `empty`, `truncated` or `unparseable`.
        reason: one line for a person: why the image earned what it did.
        rejected: how often each reason for rejecting something that stands for a box occurred.
        broken: the broken boxes that count as false beside complete ones: places among `pred`, labels, confidences.
        rewards: by name what each reward gives.
        sampled_rewards: of the reward that the evaluation is about, for each sampled answer.
        sampled_read: for each sampled answer whether it can be read, see :func:`is_read`.
        sampled_boxes: for each sampled answer how many boxes it has, invalid ones among them.
    """

    id: str
    width: float
    height: float
    gt: Array = field(default_factory=_no_boxes)
    gt_labels: tuple[str, ...] = ()
    pred: Array = field(default_factory=_no_boxes)
    pred_labels: tuple[str | None, ...] = ()
    pred_scores: Array = field(default_factory=lambda: np.zeros(0))
    ignore: Array = field(default_factory=_no_boxes)
    patient: str | None = None
    image: str | None = None
    view: str | None = None
    source: str | None = None
    asked: tuple[str, ...] = ()
    question: str | None = None
    text: str = ""
    status: str = "boxes"
    reason: str = ""
    rejected: Mapping[str, int] = field(default_factory=dict)
    broken: tuple[BrokenBox, ...] = ()
    rewards: Mapping[str, float] = field(default_factory=dict)
    sampled_rewards: tuple[float, ...] = ()
    sampled_read: tuple[bool, ...] = ()
    sampled_boxes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Bring boxes, labels, confidences and texts into one form; refuse labels that are not one for each box.

        Boxes without labels get None for each, boxes without confidences NaN; texts become ones that files can hold.
        """
        fields: dict[str, Any] = {name: as_box_array(getattr(self, name), name) for name in _BOXES}
        for name in _TEXTS:
            fields[name] = _storable(getattr(self, name))
        fields["gt_labels"] = tuple(map(_storable, self.gt_labels))
        fields["pred_labels"] = tuple(map(_storable, self.pred_labels)) or (None,) * len(fields["pred"])
        scores = np.asarray(self.pred_scores, dtype=np.float64)
        fields["pred_scores"] = scores if scores.size else np.full(len(fields["pred"]), np.nan)
        fields["broken"] = tuple(BrokenBox(place, _storable(label), score) for place, label, score in self.broken)
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        for boxes, values in (("gt", "gt_labels"), ("pred", "pred_labels"), ("pred", "pred_scores")):
            n, count = len(fields[boxes]), len(fields[values])
            if n != count:
                raise ValueError(
                    f"Expected {n} values for `{values}` of image {self.id!r}, got {count}. "
                    f"Give one for each box of `{boxes}`."
                )

    @property
    def is_normal(self) -> bool:
        """Whether the image has no reference box."""
        return not len(self.gt)

    def as_json(self) -> dict[str, Any]:
        """The image as plain values; a confidence that is not stated is None.

        Example:
            >>> image = Prediction("a", 10, 20, pred=[[0, 0, 5, 5]])
            >>> image.as_json()["pred_scores"], Prediction.of_json(image.as_json()).pred.tolist()
            ([None], [[0.0, 0.0, 5.0, 5.0]])
        """
        content = {name: getattr(self, name) for name in self.__slots__}
        # JSON has neither arrays nor NaN.
        content |= {name: content[name].tolist() for name in _BOXES}
        content["pred_scores"] = [None if math.isnan(score) else score for score in self.pred_scores.tolist()]
        return content

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Prediction:
        """The image that :meth:`as_json` wrote; keys that are no field of it are passed over."""
        fields = {key: values[key] for key in cls.__slots__ if key in values}
        fields["pred_scores"] = [math.nan if score is None else score for score in fields.get("pred_scores", ())]
        # JSON has lists where these fields are tuples; the others are brought into form by `__post_init__`.
        for name in ("asked", "sampled_rewards", "sampled_read", "sampled_boxes"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**fields)


def with_broken_boxes(image: Prediction) -> Prediction:
    """The image with an invalid box, NaN, in the place of each broken one: it counts as false, as in the rewards.

    Example:
        >>> image = Prediction("a", 10, 10, pred=[[0, 0, 5, 5]], broken=[BrokenBox(0, "mass")])
        >>> with_broken_boxes(image).pred.tolist(), with_broken_boxes(image).pred_labels
        ([[nan, nan, nan, nan], [0.0, 0.0, 5.0, 5.0]], ('mass', None))
    """
    if not image.broken:
        return image
    # A place is the number of complete boxes before a broken one, and `np.insert` takes it as that.
    places = [box.place for box in image.broken]
    labels = with_broken(image.pred_labels, image.broken, attrgetter("label"))
    scores = with_broken(image.pred_scores.tolist(), image.broken, attrgetter("score"))
    return replace(
        image,
        pred=np.insert(image.pred, places, np.nan, axis=0),
        pred_labels=tuple(labels),
        # None becomes NaN
        pred_scores=np.array(scores, dtype=np.float64),
        broken=(),
    )


class PredictionBatch(tuple[Prediction, ...]):
    """Answered images, and what they hold side by side in arrays, which are made once for all metrics.

    Among the predicted boxes broken ones stand in their places as invalid boxes.

    Example:
        >>> batch = PredictionBatch([Prediction("a", 9, 9), Prediction("b", 9, 9, pred=[[0, 0, 5, 5]])])
        >>> batch.pred.counts, batch.pred_labels, PredictionBatch.of(batch) is batch
        (array([0, 1]), [None], True)
    """

    @classmethod
    def of(cls, images: Sequence[Prediction]) -> PredictionBatch:
        """The images as a batch, which they may be already."""
        return images if isinstance(images, cls) else cls(images)

    @cached_property
    def answers(self) -> list[Prediction]:
        """The images, with their broken boxes among the predicted ones: see :func:`with_broken_boxes`."""
        return [with_broken_boxes(image) for image in self]

    @cached_property
    def pred(self) -> BoxBatch:
        """The predicted boxes."""
        return BoxBatch.of([image.pred for image in self.answers], "pred")

    @cached_property
    def gt(self) -> BoxBatch:
        """The reference boxes."""
        return BoxBatch.of([image.gt for image in self], "gt")

    @cached_property
    def ignore(self) -> BoxBatch:
        """The ignored regions."""
        return BoxBatch.of([image.ignore for image in self], "ignore")

    @cached_property
    def pred_labels(self) -> list[str | None]:
        """The labels of all predicted boxes."""
        return list(chain.from_iterable(image.pred_labels for image in self.answers))

    @cached_property
    def gt_labels(self) -> list[str]:
        """The labels of all reference boxes."""
        return list(chain.from_iterable(image.gt_labels for image in self))

    @cached_property
    def pred_scores(self) -> Array:
        """The confidences of all predicted boxes, NaN where none is stated."""
        scores = [image.pred_scores for image in self.answers]
        return np.concatenate(scores) if scores else np.zeros(0)

    @cached_property
    def sizes(self) -> Array:
        """Width and height, ``(images, 2)``."""
        return np.array([(image.width, image.height) for image in self], dtype=np.float64).reshape(-1, 2)

    @property
    def states_confidences(self) -> bool:
        """Whether there are predicted boxes and every one has a confidence, so that COCO's ranking exists."""
        return bool(len(self.pred_scores)) and not np.isnan(self.pred_scores).any()


def is_read(boxes: Array, status: str) -> bool:
    """Whether an answer has a complete box or says that there is none.

    Args:
        boxes: ``(n, 4)`` that it gave, invalid ones among them.
        status: as of :class:`Prediction`. An answer that was cut off is read where it has a box.

    Example:
        >>> is_read(np.zeros((0, 4)), "empty"), is_read(np.zeros((0, 4)), "truncated")
        (True, False)
    """
    return len(boxes) > 0 or status == "empty"


def patients_of(images: Sequence[Prediction]) -> list[Any] | None:
    """A name for the patient of every image, in which an image without a patient is one; None if no image has any.

    Example:
        >>> patients_of([Prediction("a", 9, 9, patient="p"), Prediction("b", 9, 9)])
        [('patient', 'p'), ('image', 'b')]
    """
    if all(image.patient is None for image in images):
        return None
    return [("image", image.id) if image.patient is None else ("patient", image.patient) for image in images]


def save_predictions(path: str | Path, images: Iterable[Prediction]) -> None:
    """Write the images to a file, a JSON object in each line."""
    with whole_file(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="\n") as file:
        for image in images:
            file.write(json.dumps(image.as_json(), ensure_ascii=False, allow_nan=True) + "\n")


def load_predictions(path: str | Path) -> list[Prediction]:
    """Read the images of an evaluation.

    Args:
        path: the file that :func:`save_predictions` wrote, or the folder of an evaluation, which has it as
            `images.jsonl`.

    Raises:
        ValueError: there is no such file, a line is no image, or two images have one id.
    """
    file = Path(path, "images.jsonl") if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(
            f"Expected the folder of an evaluation, got {str(path)!r} without images.jsonl. "
            "Make it with `grounding-rewards evaluate`."
        )
    images: dict[str, Prediction] = {}
    fix = "Make the file anew with `grounding-rewards evaluate`."
    for line, content in read_json_lines(file, fix):
        try:
            if "pred" not in content:
                raise ValueError("it has no `pred`, as a log that is not evaluated yet")
            image = Prediction.of_json(content)
            if image.id in images:
                raise ValueError(f"{image.id!r} is there already")
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(
                f"Expected an image of its own in line {line} of {str(file)!r}, got {content!r:.80} ({error}). {fix}"
            ) from error
        images[image.id] = image
    return list(images.values())
