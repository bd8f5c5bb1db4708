"""Files of options for `train` and `sft`, built on one another, and those that come with the package, with the small
model, by the names that the pages give them.

A file may name one or several others as `base`; what it says itself goes before what they say.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    files: str | Path | Sequence[str | Path], *, option_names: Collection[str] = (), command: str = ""
) -> dict[str, Any]:
    """The options of one or several files, those of their bases included.

    An option of a file replaces that of its bases, a later base or file that of an earlier one. Values are replaced
    whole: a mapping is not merged with another.

    Args:
        files: one file, or several, that lie where they say or come with the package. `base` in a file is a path, or a
            list of them, seen from the folder of that file.
        option_names: of the command, against which every file is checked; if empty, no file is checked.
        command: whose options these are, for the error.

    Raises:
        ValueError: a file is missing, no YAML, no mapping, or built on itself, or has an option that is not known.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "base.yaml").write_text("{reward: R4, learning_rate: 0.1}")
        ...     _ = Path(root, "r2.yaml").write_text("{base: base.yaml, reward: R2}")
        ...     read_config(Path(root, "r2.yaml"))
        {'reward': 'R2', 'learning_rate': 0.1}
    """
    options: dict[str, Any] = {}
    for file in [files] if isinstance(files, (str, Path)) else files:
        options |= _options_of(Path(find_shipped(file)), (), option_names, command)
    return options


def _options_of(file: Path, users: tuple[Path, ...], option_names: Collection[str], command: str) -> dict[str, Any]:
    """The options of a file and of its bases, which its own options replace.

    Args:
        file: to read.
        users: the files that are built on this one, the last of them directly; empty for a file that was asked for.
        option_names: the options of the command; if empty, none is checked.
        command: for the error.
    """
    chain = (*users, file.resolve())
    if chain[-1] in users:
        raise ValueError(
            f"Expected files that are not built on themselves for {BASE}, got {' -> '.join(map(str, chain))}. Remove "
            f"one {BASE}."
        )
    options, bases = _read_file(file, f"{BASE} in {users[-1]}" if users else "--config")
    check_known(options, option_names, command, str(file))
    inherited: dict[str, Any] = {}
    for base in bases:
        neighbour = file.parent / base
        shipped = find_shipped(base)
        # A missing base is refused by the name that it would have in the folder of the file.
        base_file = neighbour if neighbour.exists() or shipped == base else Path(shipped)
        inherited |= _options_of(base_file, chain, option_names, command)
    return inherited | options


def _read_file(file: Path, option: str) -> tuple[dict[str, Any], list[str]]:
    """The options of a file itself, and its bases; `option` is the one that names the file, for an error."""
    if not file.is_file():
        raise ValueError(f"Expected a file for {option}, got {str(file)!r}, which is none. Check the path.")
    content = read_yaml(file)
    if not isinstance(content, Mapping):
        raise ValueError(
            f"Expected a mapping of options in {file}, got {type(content).__name__}. "
            "Write a line `name: value` for each."
        )
    options = dict(content)
    base_value = options.pop(BASE, [])
    bases = [base_value] if isinstance(base_value, str) else base_value
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ValueError(f"Expected a path or a list of paths for {BASE} in {file}, got {base_value!r}. Name files.")
    return options, bases


def check_known(options: Iterable[str], option_names: Collection[str], command: str, file: str = "") -> None:
    """Refuse an option that a command does not have.

    Args:
        options: their names.
        option_names: of the command; nothing is checked if this is empty.
        command: such as `train`.
        file: the file of the options.

    Raises:
        ValueError: one is not known.

    Example:
        >>> check_known(["learning_rate"], ["learning_rate", "loss_type"], "train")
    """
    if not option_names:
        return
    place = f" in {file}" if file else ""
    for name in map(str, options):
        if name not in option_names:
            raise ValueError(
                f"Expected options of `grounding-rewards {command}`{place}, got {name}. "
                "--help lists them; parameters of a reward stand in reward_kwargs."
            )


def find_shipped(name: str | Path) -> str:
    """The path of a file or folder in the working directory, or else of the one that comes with the package.

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
    if path.exists() or not path.parts or path.parts[0] not in FOLDERS or ".." in path.parts:
        return str(name)
    shipped_path = _HOME / path
    return str(shipped_path) if shipped_path.exists() else str(name)
