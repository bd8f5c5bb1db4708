"""Files of options for `train` and `sft`, built on one another, and those that come with the package, with the small
model, by the names that the pages give them.

A file may name one or several others as `base`; what it says itself goes before what they say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from grounding_rewards.common.text_files import read_yaml

BASE = "base"
"""The key under which a file names those that it is built on."""

#: The folders of these names: at the top of a checkout, within the package where it was installed from a wheel.
FOLDERS = ("configs", "assets")

_PACKAGE = Path(__file__).parents[1]
_HOME = _PACKAGE if (_PACKAGE / FOLDERS[0]).is_dir() else _PACKAGE.parent


def read_config(
    files: str | Path | Sequence[str | Path], *, known: Collection[str] = (), command: str = ""
) -> dict[str, Any]:
    """The options of one or several files, those of their bases included.

    An option of a file replaces that of its bases, a later base or file that of an earlier one. Values are replaced
    whole: a mapping is not merged with another.

    Args:
        files: one file, or several, that lie where they say or come with the package. `base` in a file is a path, or a
            list of them, seen from the folder of that file.
        known: the options that there are, against which every file is checked; when left out, none is.
        command: whose options these are, for the error.

    Raises:
        ValueError: a file is missing, no YAML, no mapping, or built on itself; or has an option that is not known, with
            the nearest one that is.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "base.yaml").write_text("{reward: R4, learning_rate: 0.1}")
        ...     _ = Path(root, "r2.yaml").write_text("{base: base.yaml, reward: R2}")
        ...     read_config(Path(root, "r2.yaml"))
        {'reward': 'R2', 'learning_rate': 0.1}
    """
    read: dict[Path, dict[str, Any]] = {}

    def options(file: Path, above: tuple[Path, ...]) -> dict[str, Any]:
        found = file.resolve()
        if found in above:
            circle = " -> ".join(str(one) for one in (*above[above.index(found) :], found))
            raise ValueError(
                f"Expected files that are not built on themselves for {BASE}, got {circle}. Remove one {BASE}."
            )
        if found not in read:
            if not file.is_file():
                asked = f"{BASE} in {above[-1]}" if above else "--config"
                raise ValueError(f"Expected a file for {asked}, got {str(file)!r}, which is none. Check the path.")
            content = read_yaml(file)
            if not isinstance(content, Mapping):
                raise ValueError(
                    f"Expected a mapping of options in {file}, got {type(content).__name__}. "
                    "Write a line `name: value` for each."
                )
            own = dict(content)
            given = own.pop(BASE, [])
            bases = [given] if isinstance(given, str) else given
            if not isinstance(bases, list) or not all(isinstance(one, str) for one in bases):
                raise ValueError(
                    f"Expected a path or a list of paths for {BASE} in {file}, got {given!r}. Name files of options."
                )
            check_known(own, known, command, str(file))
            read[found] = {}
            for base in bases:
                beside = file.parent / base
                # What lies nowhere is refused by the name that it would have beside the file.
                shipped = base if beside.exists() else find_shipped(base)
                read[found] |= options(beside if shipped == base else Path(shipped), (*above, found))
            read[found] |= own
        return read[found]

    merged: dict[str, Any] = {}
    for one in [files] if isinstance(files, (str, Path)) else files:
        merged |= options(Path(find_shipped(one)), ())
    return merged


def check_known(options: Iterable[str], known: Collection[str], command: str, where: str = "") -> None:
    """Refuse an option that a command does not have, and name the nearest that it has.

    Args:
        options: their names.
        known: those that there are; nothing is checked where this is empty.
        command: such as `train`.
        where: the file they stand in.

    Raises:
        ValueError: one is not known.

    Example:
        >>> check_known(["learning_rate"], ["learning_rate", "loss_type"], "train")
    """
    if not known:
        return
    for name in map(str, options):
        if name not in known:
            near = get_close_matches(name, known, n=1)
            guess = f"Did you mean {near[0]}? " if near else ""
            raise ValueError(
                f"Expected options of `grounding-rewards {command}`{where and f' in {where}'}, got {name}. {guess}"
                "--help lists them; parameters of a reward stand in reward_kwargs."
            )


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
