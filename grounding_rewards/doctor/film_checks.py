"""Can films be read, and do width, height and the image's own size agree?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from grounding_rewards.data.checks import list_problems
from grounding_rewards.data.images import has_shape
from grounding_rewards.data.raw_rows import FilmRow
from grounding_rewards.doctor.case import Bucket, Case, Examiner, trusted_size
from grounding_rewards.doctor.findings import Check, Finding, Problem

# A copy is seldom larger than this part of the film.
_NEAR = 0.95

_UNFINISHED = Check(
    "unfinished-folder",
    "A prepared folder that is not finished",
    "Training refuses it: films are missing, and nobody would notice.",
    "Run the same `grounding-rewards prepare` again: it goes on.",
    unit="folder",
)
_UNREADABLE = Check(
    "unreadable-row",
    "Rows that cannot be read",
    "Loading stops at such a row.",
    "Write every row as one object with file (or image), width, height, boxes (a list of lists) and labels.",
    unit="films",
)
_IMAGE_SCALE = Check(
    "image-scale",
    "Images of another size than declared, unlike the others",
    "If the boxes were drawn on the image, or the image was cropped or padded, every box is moved.",
    "Where the boxes were drawn on the image, give its size in width and height. Where they were drawn on a larger "
    "original, nothing is wrong.",
    severity="warning",
    unit="films",
)


class RowExaminer(Examiner):
    """Whether all rows are there and can be read."""

    checks = (_UNFINISHED, _UNREADABLE)

    def look(self, row: FilmRow) -> Iterator[Problem]:
        if damage := row.damage or "; ".join(list_problems(row.columns)):
            yield Problem("unreadable-row", damage)

    def findings(self) -> Iterator[Finding]:
        if unfinished := self.case.source.unfinished:
            yield _UNFINISHED.finding(1, 0, unfinished)
        yield from super().findings()


class ImageExaminer(Examiner):
    """Missing images and sizes, and sizes that contradict the image."""

    checks = (
        Check(
            "missing-image",
            "Images that are missing or cannot be read",
            "Training stops at such a film.",
            "Restore the file, or drop the row.",
            unit="films",
        ),
        Check(
            "missing-size",
            "Films of unknown size",
            "Boxes can't be brought into the model's coordinates without the size of the film.",
            "Add the columns width and height: the size in pixels on which the boxes were drawn.",
            unit="films",
        ),
        Check(
            "exchanged-size",
            "Width and height exchanged",
            "Sizes are [height, width] somewhere in the source; every relative coordinate is then wrong.",
            "Exchange width and height in these rows: numpy and DICOM (Rows, Columns) give the height first.",
            unit="films",
        ),
        Check(
            "image-size",
            "Width and height that are not of the image's shape",
            "Boxes are then moved and stretched against what the model sees.",
            "Give in width and height the size on which the boxes were drawn. A smaller copy of the film is no "
            "mistake; a cropped, padded or squeezed one is, unless its boxes went with it.",
            unit="films",
        ),
        _IMAGE_SCALE,
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._scales: dict[str, Bucket] = {}
        self._rounded_scales: Counter[float] = Counter()

    def look(self, row: FilmRow) -> Iterator[Problem]:
        yield from find_wrong_size(row)
        image, size = row.image_size, trusted_size(row)
        if image is None or size is None:
            return
        detail = f"width {size[0]:g}, height {size[1]:g}; the image is {image[0]} x {image[1]}"
        self._scales.setdefault(image_scale(image, size), Bucket()).add(self.case, row, detail)
        self._rounded_scales[round(image[0] / size[0], 2)] += 1

    def findings(self) -> Iterator[Finding]:
        yield from super().findings()
        # Images of another size than declared are doubtful, unless all films are smaller copies or most are.
        films = sum(bucket.count for bucket in self._scales.values())
        alike = max(
            (sum(self._rounded_scales[round(scale + step, 2)] for step in (0, 0.01)) for scale in self._rounded_scales),
            default=0,
        )
        are_most_exact = self._scales.get("same", Bucket()).count > films / 2
        doubtful = {"larger": True, "near": True, "near-copy": alike < films, "smaller": are_most_exact}
        buckets = [self._scales[kind] for kind, is_doubtful in doubtful.items() if is_doubtful and kind in self._scales]
        if buckets:
            count = sum(bucket.count for bucket in buckets)
            yield _IMAGE_SCALE.finding(
                count,
                films,
                f"{films - count} of {films} images are of the declared size or plain copies.",
                [example for bucket in buckets for example in bucket.examples],
            )


def find_wrong_size(row: FilmRow) -> Iterator[Problem]:
    """Missing images and sizes, and sizes that contradict the image's header; a smaller copy of the film does not.

    >>> [problem.name for problem in find_wrong_size(FilmRow("train", 0, {"boxes": [], "width": 0, "height": 9}))]
    ['missing-size']
    """
    if row.expects_image and row.image_size is None:
        there = "none" if row.image is None else row.image.get("path") or "bytes that are no image"
        yield Problem("missing-image", f"image: {there}")
    if row.size is None:
        width, height = row.columns.get("width"), row.columns.get("height")
        yield Problem("missing-size", f"width {width!r}, height {height!r}")
    elif row.image_size is not None and not has_shape(row.image_size, row.size):
        width, height = row.size
        exchanged = has_shape(row.image_size, (height, width))
        found = f"width {width:g}, height {height:g}; the image is {row.image_size[0]} x {row.image_size[1]}"
        yield Problem("exchanged-size" if exchanged else "image-size", found)


def image_scale(image: tuple[float, float], size: tuple[float, float]) -> str:
    """How an image of the film's shape relates to the declared size, both width and height in pixels.

    Returns:
        `same` (less than a pixel apart); `larger`; `smaller`; or, within a twentieth, where a copy is seldom meant,
        `near-copy`, and `near` where both sides do not shrink alike by half a pixel.

    >>> [image_scale((640, 512), size) for size in ((640, 512), (320, 256), (1280, 1024), (648, 520))]
    ['same', 'larger', 'smaller', 'near']
    """
    if max(abs(image[0] - size[0]), abs(image[1] - size[1])) < 1:
        return "same"
    if image[0] > size[0] or image[1] > size[1]:
        return "larger"
    if image[0] < _NEAR * size[0]:
        return "smaller"
    return "near-copy" if has_shape(image, size, rounding=0.5) else "near"
