"""One image and what radiologists drew on it: what every source yields, in pixels of the original image."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class AnnotatedImage(NamedTuple):
    """One image and what its readers drew.

    id: unique in the dataset.
    file: the image, relative to the root.
    boxes: xyxy in pixels of the original image; empty where nothing was found.
    labels: the dataset's own name of the finding, one per box.
    width, height: size of the original image in pixels; None where the dataset's tables don't say (the image does).
    patient_id: None where the dataset has none.
    split: `train`, `validation`, `test` or another name that the dataset uses; None where it has no splits.
    readers: who drew each box, one per box; empty where the dataset doesn't say.
    read_by: everybody who read the image, including those who drew nothing; empty where the dataset doesn't say.
    phrases: the phrase that each box belongs to, one per box; empty where the dataset has none.
    ignored: regions in which a prediction is neither hit nor false positive (crowds, regions that were not judged).
    extra: other columns of the dataset, such as view or age, which rows carry along.
    """

    id: str
    file: str
    boxes: list[list[float]]
    labels: list[str]
    width: int | None = None
    height: int | None = None
    patient_id: str | None = None
    split: str | None = None
    readers: tuple[str, ...] = ()
    read_by: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    ignored: tuple[tuple[float, float, float, float], ...] = ()
    extra: Mapping[str, Any] = {}
