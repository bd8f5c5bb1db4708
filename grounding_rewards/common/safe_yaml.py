"""YAML from anywhere: plain values alone, and no text that is short to write and endless to read."""

from __future__ import annotations

from typing import Any

# Annotations and configurations are a few levels deep; what is deeper was made to exhaust the stack.
DEEPEST = 64
# Nodes, those that an alias repeats counted as often as it does.
_LARGEST = 1_000_000


def parse_yaml(text: str) -> Any:
    """What a YAML text says; tags that would make objects are refused.

    Raises:
        ValueError: it is no YAML, more than 64 levels deep, an alias repeats its parts into more than a million, a key
            stands twice in one mapping, or a value is not what its tag says.
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
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} levels")
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        if "*" in text and _nodes(document, {}) > _LARGEST:
            raise ValueError(f"aliases that repeat its parts into more than {_LARGEST:,}")
        _refuse_repeated_keys(document)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    # PyYAML makes values of tags and of numbers with colons without a look at them.
    except (ArithmeticError, AttributeError, LookupError) as error:
        raise ValueError(
            f"a value that is not what its tag or its form says ({type(error).__name__}: {error})"
        ) from error


def _refuse_repeated_keys(document: Any) -> None:
    """YAML takes the last value of a key that stands twice, and says nothing."""
    waiting, seen = [document], set()
    while waiting:
        node = waiting.pop()
        if not isinstance(getattr(node, "value", None), list) or id(node) in seen:
            continue
        seen.add(id(node))
        pairs = [part for part in node.value if isinstance(part, tuple)]
        keys = [(key.tag, key.value) for key, _ in pairs if isinstance(key.value, str)]
        for key, _ in pairs:
            if isinstance(key.value, str) and keys.count((key.tag, key.value)) > 1:
                raise ValueError(f"the key {key.value!r} twice in one mapping, from line {key.start_mark.line + 1} on")
        waiting += [one for part in node.value for one in (part if isinstance(part, tuple) else (part,))]


def _nodes(node: Any, known: dict[int, int]) -> int:
    """The nodes of a YAML document, those behind an alias counted wherever it stands."""
    if node is None:
        return 0
    if id(node) not in known:
        # A node within itself is as good as endless.
        known[id(node)] = _LARGEST + 1
        parts = node.value if isinstance(node.value, list) else []
        inner = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
        known[id(node)] = 1 + sum(_nodes(one, known) for one in inner)
    return known[id(node)]
