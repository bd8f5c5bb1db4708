"""The configurations and the small model that come with the package, by the names that the pages give them."""

from __future__ import annotations

from pathlib import Path

#: The folders of these names: at the top of a checkout, within the package where it was installed from a wheel.
FOLDERS = ("configs", "assets")

_PACKAGE = Path(__file__).parents[1]
_HOME = _PACKAGE if (_PACKAGE / FOLDERS[0]).is_dir() else _PACKAGE.parent


def find_shipped(name: str | Path) -> str:
    """The path that a name means: what the working directory has goes first, then what comes with the package.

    Args:
        name: path of a file or folder, or a name on the hub.

    Returns:
        The path of what comes with the package if the name begins with one of :data:`FOLDERS` and the working directory
        has none of that name; else the name as it is.

    Example:
        >>> find_shipped("runs/mine.yaml"), find_shipped("Qwen/Qwen2.5-VL-3B-Instruct")
        ('runs/mine.yaml', 'Qwen/Qwen2.5-VL-3B-Instruct')
        >>> Path(find_shipped("configs/demo/grpo.yaml")).is_file()
        True
    """
    path = Path(name)
    if path.exists() or path.parts[:1] not in {(folder,) for folder in FOLDERS} or ".." in path.parts:
        return str(name)
    found = _HOME / path
    return str(found) if found.exists() else str(name)


def shipped_names(pattern: str) -> list[str]:
    """The names of all files that come with the package and match a pattern, in order; what Python compiled is none.

    Example:
        >>> shipped_names("configs/demo/g*.yaml")
        ['configs/demo/grpo.yaml']
    """
    return sorted(path.relative_to(_HOME).as_posix() for path in _HOME.glob(pattern) if path.suffix != ".pyc")
