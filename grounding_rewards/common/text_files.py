"""Text files of other people: UTF-8 alone, lines that end at a line feed, and JSON and YAML that cannot run away.

Every source, the loader of folders and the doctor read through this module, so that what one of them refuses no
other one takes. A byte order mark is taken off; U+2028, U+0085 and other separators of Unicode are part of a line.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

# Annotations and configurations are a few levels deep; what is deeper was made to exhaust the stack.
_DEEPEST = 64
# Nodes of a YAML text, those that an alias repeats counted as often as it does.
_MOST_NODES = 1_000_000
_LONG_NUMBER = re.compile("[0-9]{19}")
# An unclosed text is matched to its end; otherwise each quote in it would start another search of the rest.
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
# Bytes of a line, or of a file that is read as a whole, from an archive, which may hold a thousand for each of its own.
_LARGEST_UNPACKED = 2**30
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def packaged_tables(package: str, name: str) -> dict[str, Any]:
    """The tables of a TOML file that comes with a package.

    Example:
        >>> "qwen3-vl" in packaged_tables("grounding_rewards.parsing", "formats.toml")
        True
    """
    return tomllib.loads((files(package) / name).read_text("utf-8"))


def decode_text(data: bytes) -> str:
    """The text of bytes in UTF-8, without a byte order mark.

    Raises:
        ValueError: UTF-16, bytes that are no UTF-8, or zero bytes.

    Example:
        >>> decode_text(b"\\xef\\xbb\\xbfmass")
        'mass'
        >>> decode_text("mass".encode("utf-16"))
        Traceback (most recent call last):
        ...
        ValueError: text in UTF-16; save it as UTF-8
    """
    if data.startswith(_UTF_16):
        raise ValueError("text in UTF-16; save it as UTF-8")
    if b"\0" in data:
        raise ValueError(f"a zero byte at position {data.index(0)}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the byte 0x{data[error.start]:02x} at position {error.start}, which is no UTF-8; save it as UTF-8"
        ) from None


def read_text(path: str | Path) -> str:
    """The text of a whole file.

    Raises:
        ValueError: there is no such file, or as `decode_text`; the file is named, and the line where there is one.
    """
    path = Path(path)
    lines, size = [], 0
    for line in text_lines(path):
        lines.append(line)
        size += len(line)
        if path.suffix == ".gz" and size > _LARGEST_UNPACKED:
            raise _size_error(path)
    return "".join(lines)


def _size_error(path: Path) -> ValueError:
    """The error for an archive that unpacks to too much."""
    return ValueError(
        f"Expected a text file at {path}, got an archive of more than {_LARGEST_UNPACKED:,} bytes. Unpack it yourself "
        "if you trust it."
    )


def text_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file with their ends; one that ends in `.gz` is unpacked.

    Raises:
        ValueError: there is no such file, it cannot be unpacked, or as `decode_text`; file and line are named.
    """
    for number, line, problem in decoded_lines(path):
        if problem:
            raise ValueError(f"Expected text in UTF-8 in line {number} of {path}, got {problem}. Correct the line.")
        yield line


def decoded_lines(path: str | Path) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each line of a file, its text, and why it is no text; one of the last two is empty.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "a.txt").write_bytes(b"mass\\n\\xe4\\n")
        ...     list(decoded_lines(Path(root, "a.txt")))
        [(1, 'mass\\n', ''), (2, '', 'the byte 0xe4 at position 0, which is no UTF-8; save it as UTF-8')]
    """
    path = Path(path)
    is_archive = path.suffix == ".gz"
    number = 0
    try:
        with cast("IO[bytes]", gzip.open(path, "rb") if is_archive else path.open("rb")) as file:
            lines = iter(lambda: file.readline(_LARGEST_UNPACKED), b"") if is_archive else file
            for number, data in enumerate(lines, start=1):
                if is_archive and len(data) == _LARGEST_UNPACKED:
                    raise _size_error(path)
                try:
                    yield number, decode_text(data), ""
                except ValueError as error:
                    yield number, "", str(error)
                    if data.startswith(_UTF_16):
                        # UTF-16 cannot be split at b"\n": every further line would look broken too.
                        return
    except (FileNotFoundError, IsADirectoryError):
        raise ValueError(f"Expected a text file at {path}, got none. Check the path.") from None
    except (OSError, EOFError, zlib.error) as error:
        if number:
            error = OSError(f"after line {number}: {error}")
        raise ValueError(f"Expected a text file at {path}, got {error}. Download the file again.") from error


def parse_json(text: str, *, any_text: bool = False) -> Any:
    """The value of a text in JSON.

    Args:
        text: of a file, or of a line.
        any_text: whether texts in it may hold any character, as what a model wrote may.

    Raises:
        ValueError: it is no JSON, more than 64 levels deep, a key occurs twice in one object, or it has a whole number
            of more than 64 bits, half a surrogate pair or the character zero, which no file could be written with.

    Example:
        >>> parse_json('{"label": "\\\\ud800"}')
        Traceback (most recent call last):
        ...
        ValueError: half a surrogate pair in '\\ud800'
    """
    if text.count("[") + text.count("{") > _DEEPEST:
        depth = 0
        for bracket in _BRACKETS.finditer(text):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket[0], 0)
            if depth > _DEEPEST:
                raise ValueError(f"more than {_DEEPEST} levels of lists and objects")
    decoder = _LONG_NUMBERS if _LONG_NUMBER.search(text) else _DECODER
    content = decoder.decode(text)
    if "\\u" in text and not any_text:
        _check_characters(content)
    return content


_ARRAY = "a JSON array, not a JSON object: write one on each line"


def json_lines(path: str | Path, *, any_text: bool = False) -> Iterator[tuple[int, Any, str]]:
    """Yield the number and content of each line that is not blank, and why it is no JSON object, or an empty text.

    Args:
        path: a file, as `decoded_lines` takes it.
        any_text: as for `parse_json`.

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
                content = parse_json(line, any_text=any_text)
            except ValueError as error:
                begins_array = number == 1 and line.lstrip().startswith("[")
                yield number, None, _ARRAY if begins_array else f"not JSON ({error})"
            else:
                yield number, content, object_problem(content)


def object_problem(content: Any) -> str:
    """Why a value is no JSON object; empty if it is an object.

    >>> object_problem({}), object_problem(1)
    ('', 'not a JSON object')
    """
    if isinstance(content, list):
        return _ARRAY
    return "" if isinstance(content, dict) else "not a JSON object"


def read_json_lines(path: str | Path, fix: str, *, any_text: bool = False) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with the number of its line.

    Args:
        path: a file, as `decoded_lines` takes it.
        fix: what to do about a wrong line.
        any_text: as for `parse_json`.

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
    for number, row, problem in json_lines(path, any_text=any_text):
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
    counts = Counter(names)
    for name in names:
        if name and counts[name] > 1:
            return name
    return None


def _bounded_int(digits: str) -> int:
    """The whole number of these digits; refused with more than 64 bits."""
    # Python's own error for thousands of digits does not name the cause.
    number = int(digits[:40])
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"the number {digits:.20}…, which has more than 64 bits; write ids as text")
    return number


# Made once: a log has millions of lines.
_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeated_keys)
_LONG_NUMBERS = json.JSONDecoder(object_pairs_hook=_without_repeated_keys, parse_int=_bounded_int)


def _check_characters(content: Any) -> None:
    """Refuse a JSON value with a text, its keys included, that no file could be written with."""
    if isinstance(content, dict):
        content = [*content, *content.values()]
    if isinstance(content, list):
        for member in content:
            _check_characters(member)
    elif isinstance(content, str):
        if "\0" in content:
            raise ValueError(f"the character zero in {content!r:.80}")
        if any("\ud800" <= character <= "\udfff" for character in content):
            raise ValueError(f"half a surrogate pair in {content!r:.80}")


def read_yaml(path: str | Path) -> Any:
    """The value of a YAML file.

    Raises:
        ValueError: there is no such file, it is no YAML, more than 64 levels deep, or an alias repeats its parts into
            more than a million; the file is named.

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
        ValueError: it is no YAML, more than 64 levels deep, an alias repeats its parts into more than a million, a key
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
        depth = 0
        # A stream of events takes no stack, whatever is nested in it.
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _DEEPEST:
                raise ValueError(f"more than {_DEEPEST} levels")
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        if document is not None and _count_nodes(document, {}) > _MOST_NODES:
            raise ValueError(f"aliases that repeat its parts into more than {_MOST_NODES:,}")
        return yaml.safe_load(text)
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
    # A node within itself is as good as endless.
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
        # The value of a key that is a list or a mapping is no text.
        if not isinstance(key.value, str):
            continue
        if (key.tag, key.value) in keys:
            line = key.start_mark.line + 1
            raise ValueError(f"the key {key.value!r} twice in one mapping, again in line {line}")
        keys.add((key.tag, key.value))
