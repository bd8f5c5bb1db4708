"""The category of all warnings of this package, by which its commands know them from those of libraries."""

from __future__ import annotations


class PackageWarning(UserWarning):
    """A warning about images or options; its place in the code does not help the user."""
