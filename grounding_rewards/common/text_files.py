"""Text files of other people: UTF-8 alone, lines that end at a line feed, and JSON and YAML that cannot run away.

Every source, the loader of folders and the doctor read through this module, so that what one of them refuses no
other one takes. A byte order mark is taken off; U+2028, U+0085 and other separators of Unicode are part of a line.
"""

import gzip
import json
import tomllib
import zlib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

# Nodes of a YAML text, those that an alias repeats counted as often as it does.
_MOST_NODES = 1_000_000
# Bytes of an archive, which may hold a thousand for each of its own.
_LARGEST_UNPACKED = 2**30


def packaged_tables(package: str, name: str) -> dict[str, Any]:
    """The tables of a TOML file that comes with a package.

    Example:
        >>> "qwen3-vl" in packaged_tables("grounding_rewards.parsing", "formats.toml")
        True
    """
    return tomllib.loads((files(package) / name).read_text("utf-8"))


def read_text(path: str | Path) -> str:
    """The text of a whole file.

    Raises:
        ValueError: there is no such file, or as `text_lines`; the file is named, and the line where there is one.
    """
    return "".join(text_lines(path))


def text_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file with their ends; one that ends in `.gz` is unpacked.

    Raises:
        ValueError: there is no such file, it cannot be unpacked, or it is no UTF-8; file and line are named.
    """
    for number, line, problem in decoded_lines(path):
        if problem:
            raise ValueError(f"Expected text in UTF-8 in line {number} of {path}, got {problem}. Correct the line.")
        yield line


def decoded_lines(path: str | Path) -> Iterator[tuple[int, str, str]]:
    """Yield for each line of a file its number, its text, and why it is no text in UTF-8; one of the last two is empty.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.txt").write_bytes(b"mass\\n\\xe4\\n")
        ...     list(decoded_lines(Path(root, "a.txt")))
        [(1, 'mass\\n', ''), (2, '', 'the byte 0xe4 at position 0, which is no UTF-8; save it as UTF-8')]
    """
    path = Path(path)
    is_archive = path.suffix == ".gz"
    number = size = 0
    try:
        with cast("IO[bytes]", gzip.open(path, "rb") if is_archive else path.open("rb")) as file:
            # A line of an archive is read up to the limit: a small archive may hold an endless one.
            lines = iter(lambda: file.readline(_LARGEST_UNPACKED), b"") if is_archive else file
            for number, data in enumerate(lines, start=1):
                size += len(data)
                if is_archive and size >= _LARGEST_UNPACKED:
                    raise ValueError(
                        f"Expected a text file at {path}, got an archive of more than {_LARGEST_UNPACKED:,} bytes. "
                        "Unpack it yourself if you trust it."
                    )
                try:
                    yield number, data.decode("utf-8-sig"), ""
                except UnicodeDecodeError as error:
                    byte = f"the byte 0x{data[error.start]:02x} at position {error.start}"
                    yield number, "", f"{byte}, which is no UTF-8; save it as UTF-8"
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(f"Expected a text file at {path}, got none. Check the path.") from None
    except (OSError, EOFError, zlib.error) as error:
        problem = f"after line {number}: {error}" if number else str(error)
        raise ValueError(f"Expected a text file at {path}, got {problem}. Download the file again.") from error


def parse_json(text: str) -> Any:
    """The value of a text in JSON.

    Args:
        text: of a file, or of a line.

    Raises:
        ValueError: it is no JSON, has too many levels, or a key occurs twice in one object.

    Example:
        >>> parse_json('{"label": 1, "label": 2}')
        Traceback (most recent call last):
        ...
        ValueError: the key 'label' twice in one object
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("too many levels of lists and objects") from None


def json_lines(path: str | Path) -> Iterator[tuple[int, Any, str]]:
    """Yield for each line that is not blank its number, its content, and why that is no JSON object.

    The last is an empty text for an object; the content is None if the line is not JSON.

    Args:
        path: a file, as `decoded_lines` takes it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.jsonl").write_text('{"id": 1}\\n\\n1')
        ...     list(json_lines(Path(root, "a.jsonl")))
        [(1, {'id': 1}, ''), (3, 1, 'not a JSON object')]
    """
    for number, line, problem in decoded_lines(path):
        if problem:
            yield number, None, f"not JSON ({problem})"
        elif line.strip():
            try:
                content = parse_json(line)
            except ValueError as error:
                yield number, None, f"not JSON ({error})"
            else:
                yield number, content, object_problem(content)


def object_problem(content: Any) -> str:
    """Why a value is no JSON object; empty if it is an object.

    >>> object_problem({}), object_problem(1)
    ('', 'not a JSON object')
    """
    return "" if isinstance(content, dict) else "not a JSON object"


def read_json_lines(path: str | Path, fix: str) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with the number of its line.

    Args:
        path: a file, as `decoded_lines` takes it.
        fix: what to do about a wrong line.

    Raises:
        ValueError: there is no such file, or a line is no JSON object; the first such line is named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.jsonl").write_text('{"id": 1}\\n\\n{"id": 2}')
        ...     read_json_lines(Path(root, "a.jsonl"), "Correct it.")
        [(1, {'id': 1}), (3, {'id': 2})]
    """
    rows = []
    for number, row, problem in json_lines(path):
        if problem:
            raise ValueError(f"Expected a JSON object in line {number} of {str(path)!r}, got {problem}. {fix}")
        rows.append((number, row))
    return rows


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values; refused where a key occurs twice."""
    # json keeps the last value of a repeated key: boxes would be lost silently.
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError(f"the key {first_repeated([key for key, _ in pairs])!r:.80} twice in one object")
    return content


def check_columns(names: Sequence[str], place: str) -> None:
    """Refuse a table in which two columns have one name: the second would hide the first.

    Args:
        names: of its header.
        place: the table, as the error names it.

    Raises:
        ValueError: a name is given twice.

    Example:
        >>> check_columns(["file", "x1", "x1"], "boxes.csv")
        Traceback (most recent call last):
        ValueError: Expected columns of different names in boxes.csv, got 'x1' twice. Remove or rename one.
    """
    repeated = first_repeated(names)
    if repeated is not None:
        raise ValueError(
            f"Expected columns of different names in {place}, got {repeated!r} twice. Remove or rename one."
        )


def first_repeated(names: Sequence[str]) -> str | None:
    """The first name that is given twice; None if each is given once.

    >>> first_repeated(["file", "x1", "file"])
    'file'
    """
    # Columns without a name, as at the end of lines with a further comma, may be several.
    return next((name for name in names if name and names.count(name) > 1), None)


# Made once: a log has millions of lines.
_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeated_keys)


def read_yaml(path: str | Path) -> Any:
    """The value of a YAML file.

    Raises:
        ValueError: there is no such file, it is no YAML, has too many levels, or an alias repeats its parts into more
            than a million; the file is named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.yaml").write_text("names: [mass, nodule]")
        ...     read_yaml(Path(root, "a.yaml"))
        {'names': ['mass', 'nodule']}
    """
    text = read_text(path)
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise ValueError(f"Expected YAML in {path}, got {error}. Correct the file.") from error


def parse_yaml(text: str) -> Any:
    """The value of a YAML text: plain values only; tags that would make objects are refused.

    Raises:
        ValueError: it is no YAML, has too many levels, an alias repeats its parts into more than a million, a key
            occurs twice in one mapping, or a value is not what its tag says.
        ImportError: PyYAML is not installed.

    Example:
        >>> parse_yaml("names: [mass, nodule]")
        {'names': ['mass', 'nodule']}
        >>> parse_yaml("!!python/object/apply:os.getcwd []")
        Traceback (most recent call last):
        ...
        ValueError: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd' in \
"<unicode string>", line 1, column 1: !!python/object/apply:os.getcwd [] ^
    """
    import yaml

    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        if document is not None and _count_nodes(document, {}) > _MOST_NODES:
            raise ValueError(f"aliases that repeat its parts into more than {_MOST_NODES:,}")
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("too many levels of lists and mappings") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    # PyYAML makes values of tags and of numbers with colons without a look at them.
    except (ArithmeticError, AttributeError, LookupError) as error:
        raise ValueError(
            f"a value that is not what its tag or its form says ({type(error).__name__}: {error})"
        ) from error


def _count_nodes(node: Any, counts: dict[int, int]) -> int:
    """Count a node of YAML and all nodes in it, those behind an alias for each use; repeated keys are refused.

    `counts`: the results for nodes that were counted already, by Python's `id` of the node.
    """
    import yaml

    if id(node) in counts:
        return counts[id(node)]
    # For the time of counting: a node that contains itself meets this number, and is refused as too large.
    counts[id(node)] = _MOST_NODES + 1
    members: list[Any] = []
    if isinstance(node, yaml.SequenceNode):
        members = node.value
    elif isinstance(node, yaml.MappingNode):
        _refuse_repeated_keys(node)
        members = list(chain.from_iterable(node.value))
    counts[id(node)] = 1 + sum(_count_nodes(member, counts) for member in members)
    return counts[id(node)]


def _refuse_repeated_keys(mapping: Any) -> None:
    """Refuse a mapping of YAML that has a key twice: PyYAML silently keeps the last value."""
    keys: set[tuple[str, str]] = set()
    for key, _ in mapping.value:
        # Keys that are lists or mappings are not compared: PyYAML refuses them later, as they cannot be keys.
        if not isinstance(key.value, str):
            continue
        if (key.tag, key.value) in keys:
            line = key.start_mark.line + 1
            raise ValueError(f"the key {key.value!r} twice in one mapping, again in line {line}")
        keys.add((key.tag, key.value))
