"""Checks of rows and images: can they be read, and do the declared sizes agree with the images?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from grounding_rewards.data.checks import list_problems
from grounding_rewards.doctor.case import QUICK, Bucket, Case, Examiner
from grounding_rewards.doctor.defects import Check, Defect, Problem
from grounding_rewards.doctor.raw_rows import ImageRow
from grounding_rewards.images.decoding import has_shape

# Resized copies are usually smaller than this part of the image.
_NEAR = 0.95

_UNFINISHED = Check(
    "unfinished-folder",
    "A prepared folder that is not finished",
    "Training refuses it: images are missing, and nobody would notice.",
    "Run the same `grounding-rewards prepare` again: it goes on.",
    unit="folder",
)
_UNREADABLE = Check(
    "unreadable-row",
    "Rows that cannot be read",
    "Loading stops at such a row.",
    "Write every row as one object with file (or image), width, height, boxes (a list of lists) and labels.",
    unit="images",
)
_PIXEL_CHECKS = (
    Check(
        "broken-image",
        "Images that break off or cannot be decoded",
        "Their headers are sound, so that training starts, and stops when such an image comes.",
        "Download or copy the files again, or drop the rows.",
        unit="images",
    ),
    Check(
        "deep-image",
        "Images of more than 8 bits",
        'A plain `convert("RGB")`, as most trainers have it, cuts off at 255 and makes the image white. This package '
        "spreads the greys of each image from its smallest to its largest value.",
        "Nothing has to be done here. For other programs write 8-bit copies, as `grounding-rewards prepare` does; CT "
        "needs its --window.",
        severity="note",
        unit="images",
    ),
    Check(
        "one-grey",
        "Images of a single grey",
        "There is nothing to be seen: a conversion that failed, or a placeholder.",
        "Convert these images again, or drop the rows.",
        severity="warning",
        unit="images",
    ),
)
_IMAGE_SCALE = Check(
    "image-scale",
    "Images of another size than declared, unlike the others",
    "If the boxes were drawn on the image, or the image was cropped or padded, every box is moved.",
    "Where the boxes were drawn on the image, give its size in width and height. Where they were drawn on a larger "
    "original, nothing is wrong.",
    severity="warning",
    unit="images",
)


class RowExaminer(Examiner):
    """Missing and unreadable rows."""

    checks = (_UNFINISHED, _UNREADABLE)

    def look(self, row: ImageRow) -> Iterator[Problem]:
        if damage := row.damage or "; ".join(list_problems(row.columns)):
            yield Problem("unreadable-row", damage)

    def defects(self) -> Iterator[Defect]:
        if unfinished := self.case.source.unfinished:
            yield _UNFINISHED.defect(1, 0, unfinished)
        yield from super().defects()


class ImageExaminer(Examiner):
    """Missing images and sizes, and sizes that contradict the image. A smaller copy of the image does not."""

    checks = (
        Check(
            "missing-image",
            "Images that are missing or cannot be read",
            "Training stops at such an image.",
            "Restore the file, put a smaller copy in its place if it is too large, or drop the row.",
            unit="images",
        ),
        *_PIXEL_CHECKS,
        Check(
            "outside-image",
            "Images outside the folder of the dataset",
            "A table from elsewhere may name any image of this machine; training and `prepare` refuse such an image.",
            "Copy the images into the folder, or give --allow-outside if these images are meant.",
            unit="images",
        ),
        Check(
            "missing-size",
            "Images of unknown size",
            "Boxes can't be brought into the model's coordinates without the size of the image.",
            "Add the columns width and height: the size in pixels on which the boxes were drawn.",
            unit="images",
        ),
        Check(
            "exchanged-size",
            "Width and height exchanged",
            "Sizes are [height, width] somewhere in the source; every relative coordinate is then wrong.",
            "Exchange width and height in these rows: numpy and DICOM (Rows, Columns) give the height first.",
            unit="images",
        ),
        Check(
            "image-size",
            "Width and height that are not of the image's shape",
            "Boxes are then moved and stretched against what the model sees.",
            "Give in width and height the size on which the boxes were drawn. A smaller copy of the image is no "
            "mistake; a cropped, padded or squeezed one is, unless its boxes went with it.",
            unit="images",
        ),
        _IMAGE_SCALE,
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._scales: dict[str, Bucket] = {}
        self._rounded_scales: Counter[float] = Counter()

    def look(self, row: ImageRow) -> Iterator[Problem]:
        image, size = row.image_size, row.size
        yield from _pixel_problems(row)
        if row.outside:
            yield Problem("outside-image", row.outside)
        elif row.expects_image and image is None:
            yield Problem("missing-image", f"image: {row.image_fault}")
        if size is None:
            yield Problem("missing-size", f"width {row.columns.get('width')!r}, height {row.columns.get('height')!r}")
        elif image is not None:
            detail = f"width {size[0]:g}, height {size[1]:g}; the image is {image[0]} x {image[1]}"
            if has_shape(image, size):
                self._scales.setdefault(image_scale(image, size), Bucket()).add(self.case, row, detail)
                self._rounded_scales[round(image[0] / size[0], 2)] += 1
            else:
                is_exchanged = has_shape(image, (size[1], size[0]))
                yield Problem("exchanged-size" if is_exchanged else "image-size", detail)

    def unchecked(self) -> dict[str, str]:
        return dict.fromkeys((check.name for check in _PIXEL_CHECKS), QUICK) if self.case.is_quick else {}

    def defects(self) -> Iterator[Defect]:
        yield from super().defects()
        # Smaller images are doubtful only if most have the declared size; slightly smaller ones unless all are alike.
        images = sum(bucket.count for bucket in self._scales.values())
        alike = max(
            (sum(self._rounded_scales[round(scale + step, 2)] for step in (0, 0.01)) for scale in self._rounded_scales),
            default=0,
        )
        are_most_exact = self._scales.get("same", Bucket()).count > images / 2
        doubtful = {"larger": True, "near": True, "near-copy": alike < images, "smaller": are_most_exact}
        buckets = [self._scales[kind] for kind, is_doubtful in doubtful.items() if is_doubtful and kind in self._scales]
        if buckets:
            count = sum(bucket.count for bucket in buckets)
            yield _IMAGE_SCALE.defect(
                count,
                images,
                f"{images - count} of {images} images are of the declared size or plain copies.",
                [example for bucket in buckets for example in bucket.examples],
            )


def _pixel_problems(row: ImageRow) -> Iterator[Problem]:
    pixels = row.pixels
    # Without a header the image is missing, which says more.
    if pixels is None or row.image_size is None:
        return
    if pixels.problem:
        yield Problem("broken-image", pixels.problem)
    elif pixels.grey is not None:
        yield Problem("one-grey", f"every pixel is {pixels.grey} of 255")
    elif pixels.deep is not None:
        values, share = pixels.deep
        yield Problem("deep-image", f"{values}: {share:.0%} of the pixels are above 255".replace("%", " %"))


def image_scale(image: tuple[float, float], size: tuple[float, float]) -> str:
    """How an image's shape relates to the declared size, both width and height in pixels.

    Returns:
        `same` (less than a pixel apart), `larger`, or `smaller`. Less than 5 % smaller, which is seldom a deliberate
        copy: `near-copy` if both sides shrink alike up to half a pixel, else `near`.

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
