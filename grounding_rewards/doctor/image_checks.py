"""Checks of rows and images: can they be read, and do the declared sizes agree with the images?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from grounding_rewards.data.checks import list_problems
from grounding_rewards.doctor.case import QUICK, Bucket, Case, Examiner
from grounding_rewards.doctor.defects import CHECKS, Defect, Problem, named
from grounding_rewards.doctor.raw_rows import ImageRow
from grounding_rewards.images.decoding import has_shape

# Resized copies are usually smaller than this part of the image.
_NEAR = 0.95


class RowExaminer(Examiner):
    """Missing and unreadable rows."""

    checks = named("unfinished-folder", "unreadable-row")

    def look(self, row: ImageRow) -> Iterator[Problem]:
        if damage := row.damage or "; ".join(list_problems(row.columns)):
            yield Problem("unreadable-row", damage)

    def defects(self) -> Iterator[Defect]:
        if unfinished := self.case.source.unfinished:
            yield CHECKS["unfinished-folder"].defect(1, 0, unfinished)
        yield from super().defects()


class ImageExaminer(Examiner):
    """Missing images and sizes, and sizes that contradict the image. A smaller copy of the image does not."""

    checks = named(
        *("missing-image", "broken-image", "deep-image", "one-grey", "outside-image", "missing-size", "exchanged-size"),
        *("image-size", "image-scale"),
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
        return dict.fromkeys(("broken-image", "deep-image", "one-grey"), QUICK) if self.case.is_quick else {}

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
            yield CHECKS["image-scale"].defect(
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
