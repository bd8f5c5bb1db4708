"""Where the image may lie: in the folder that the user named, unless the user allows others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

ALLOW_OUTSIDE_HELP = (
    "open images that lie outside the folder of the dataset too (absolute paths, `..`, links that lead out); a table "
    "from elsewhere could otherwise name the images of other patients"
)
"""What the option of every command says."""


def image_path(root: str | Path, file: str | Path, *, allow_outside: bool = False) -> Path:
    """The path of an image; a table that names one outside its folder is refused.

    Args:
        root: the folder of the dataset.
        file: as its table names it, relative to the root or absolute.
        allow_outside: whether it may lie elsewhere.

    Raises:
        ValueError: the file, links followed, is not below the root.

    Example:
        >>> image_path("images", "images/1.png").as_posix()
        'images/images/1.png'
        >>> image_path("images", "../others/1.png")
        Traceback (most recent call last):
        ...
        ValueError: Expected an image below 'images', got '../others/1.png', which leads out of it. Copy the image \
there, or give --allow-outside if these images are meant.
    """
    path = Path(root, file)
    if not allow_outside and not is_below([root], path):
        raise ValueError(
            f"Expected an image below {str(root)!r}, got {str(file)!r}, which leads out of it. Copy the image there, "
            "or give --allow-outside if these images are meant."
        )
    return path


def is_below(roots: Sequence[str | Path], path: str | Path) -> bool:
    """Whether a path lies in one of these folders when all links are followed; neither has to exist.

    Example:
        >>> is_below(["images"], "images/1.png"), is_below(["images"], "images/../1.png"), is_below([], "1.png")
        (True, False, False)
    """
    try:
        # Texts rather than paths: a dataset has many images.
        real = os.path.realpath(path)
    # A zero byte ends no path.
    except ValueError:
        return False
    folders = [os.path.join(os.path.realpath(root), "") for root in roots]
    return any(os.path.join(real, "").startswith(folder) for folder in folders)
