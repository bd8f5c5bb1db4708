"""The versions of Python and of packages that made a result, so that it can be reproduced."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable


def package_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Versions of Python and of packages; None for what is not installed.

    Args:
        names: of distributions, as pip knows them.

    Example:
        >>> found = package_versions(["numpy", "no-such-package"])
        >>> list(found), found["no-such-package"]
        (['python', 'numpy', 'no-such-package'], None)
    """
    return {"python": platform.python_version(), **{name: package_version(name) for name in names}}


def package_version(name: str) -> str | None:
    """The version of a package; None where it is not installed.

    Example:
        >>> package_version("no-such-package") is None
        True
    """
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
