"""Images that are copies of one another: the same pixels under another name, encoded again, resized, windowed a little.

An image is known by the slopes of its greys: it is shrunk to 33 x 33 pixels, whatever its shape, and the differences of
neighbours to the right and below, 2 x 32 x 32 numbers, are compared by their cosine. Slopes tell images of one kind
apart where greys do not: all chest radiographs are dark in the middle of each half.

`THRESHOLD` lies above what two different images reach, far above for real chest radiographs and just above for drawn
ones, which differ by one finding, and below what copies reach: as JPEG of quality 60 and above, at half the size,
squeezed to a square, with spread greys (`tests/images/test_near_duplicates.py` measures it). Heavier losses may go
unfound; a copy that was cropped, turned, mirrored or inverted does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

#: Least cosine of two copies.
THRESHOLD = 0.978

# Slopes of an image along each axis.
_SIDE = 32
# Images of one comparison: numbers take four times the memory of signatures.
_BLOCK = 1024


def image_signature(image: Image) -> bytes | None:
    """The signature of an image by which its copies are found: the slopes of its greys, see the module.

    Args:
        image: a PIL image in 8 bits, as `images.decoding.open_image` gives it.

    Returns:
        2048 bytes; None for an image of one grey, which has nothing to be known by.

    Example:
        >>> from PIL import Image
        >>> image = Image.linear_gradient("L")
        >>> image_signature(image) == image_signature(image.copy()), image_signature(Image.new("L", (9, 9)))
        (True, None)
    """
    from PIL.Image import Resampling

    thumbnail = np.asarray(image.convert("L").resize((_SIDE + 1, _SIDE + 1), Resampling.BOX), dtype=np.int64)
    # To the right and downwards, of the same 32 x 32 pixels: each lacks the last row or column of the thumbnail.
    slopes = np.stack([np.diff(thumbnail, axis=1)[:_SIDE], np.diff(thumbnail, axis=0)[:, :_SIDE]])
    steepest = np.abs(slopes).max()
    # Spread to a byte each, -127 to 127: contrast makes no difference between copies.
    return None if steepest == 0 else np.rint(slopes * (127 / steepest)).astype(np.int8).tobytes()


def find_near_duplicates(signatures: Sequence[bytes | None]) -> Iterator[tuple[int, int]]:
    """The pairs of images that are copies, as indices, the earlier one first.

    Args:
        signatures: from `image_signature`.

    Example:
        >>> from PIL import Image
        >>> image = Image.linear_gradient("L")
        >>> list(find_near_duplicates([image_signature(image), None, image_signature(image.resize((90, 60)))]))
        [(0, 2)]
    """
    indices = [index for index, signature in enumerate(signatures) if signature is not None]
    known_signatures = [signature for signature in signatures if signature is not None]
    # Block by block, as all images at once need too much memory: each with itself and with the blocks after it.
    for start in range(0, len(known_signatures), _BLOCK):
        earlier = _unit_slopes(known_signatures[start : start + _BLOCK])
        for later_start in range(start, len(known_signatures), _BLOCK):
            later = _unit_slopes(known_signatures[later_start : later_start + _BLOCK])
            # Of vectors of length 1 the product is the cosine.
            is_copy = earlier @ later.T >= THRESHOLD
            if later_start == start:
                # Every pair once, and no image with itself.
                is_copy = np.triu(is_copy, k=1)
            for row, column in np.argwhere(is_copy).tolist():
                yield indices[start + row], indices[later_start + column]


def _unit_slopes(signatures: Sequence[bytes]) -> NDArray[np.float32]:
    """The slopes of some images as vectors of length 1, (n, 2048)."""
    slopes = np.frombuffer(b"".join(signatures), dtype=np.int8).reshape(-1, 2 * _SIDE * _SIDE).astype(np.float32)
    return slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
