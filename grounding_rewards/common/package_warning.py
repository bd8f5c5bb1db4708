"""The category of all warnings of this package, by which its commands know them from those of libraries."""

from __future__ import annotations


class PackageWarning(UserWarning):
    """A warning for the person who gave the images or the options: where in the code it arose helps nobody."""
