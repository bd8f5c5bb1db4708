"""What mkdocs makes while it builds the site of docs/: commands, configuration, datasets, the doctor's checks, and the
notebook, run.

A page says where with a mark, `<!-- made: commands -->`, in whose place stands what the parsers, dataclasses, sources
or cells say: none of it can be out of date. Links to files of the repository that are no pages become their paths.

mkdocs loads this file; `make docs` runs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import io
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOK = REPOSITORY / "docs" / "score_inspect_plot.ipynb"
# Where the help of `train` and `sft` begins with them.
_TRLS_OPTIONS = "options:\n  -h, --help"
# Seconds that a cell of the notebook may take.
_PATIENCE = 300

_MARK = re.compile(r"<!-- made: (\w+) -->")
_LINK_OUT = re.compile(r"\[([^\]]*)\]\(\.\./([^)#\s]+)[^)]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs' event: fill in the marks of a page, and spell out its links to files that are no pages."""
    made = _MARK.sub(lambda mark: PARTS[mark[1]](), markdown)
    return made if "/" in page.file.src_uri else _LINK_OUT.sub(_path_of, made)


def _path_of(link: re.Match[str]) -> str:
    if not (REPOSITORY / link[2]).exists():
        raise FileNotFoundError(f"Expected a file of the repository for a link of docs/, got {link[2]}. Correct it.")
    return f"`{link[2]}`"


def commands() -> str:
    """Every command: what its help says, and its options in tables."""
    from grounding_rewards.cli import COMMANDS, TRAINING, command_app

    parts = []
    for name, summary in TRAINING.items():
        parts += [f"## {name}", f"*{plain(summary)}.*", _fenced(_help_of(name), "text")]
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"grounding_rewards.commands.{name.replace('-', '_')}")
        rows = [_option_row(one) for one in command_app(name).assemble_argument_collection() if one.name != "*"]
        about, _, examples = (module.__doc__ or "").partition("examples:\n")
        parts += [f"## {name}", f"*{plain(summary)}.*", prose(about), table(("option", "meaning"), rows)]
        parts += ["Examples:", _fenced(textwrap.dedent(examples), "bash")]
    return "\n\n".join(parts)


def _help_of(name: str) -> str:
    """What a command that trains prints before all of TRL's options."""
    from grounding_rewards.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([name, "--help-all"])
    return printed.getvalue().partition("\n" + _TRLS_OPTIONS)[0]


def _option_row(argument: Any) -> tuple[str, str]:
    choices, default = argument.get_choices(), argument.parameter.show_default
    said = [argument.parameter.help or ""]
    said += [f"one of {', '.join(choices)}"] if choices else []
    shown = default(argument.field_info.default) if argument.field_info.default is not inspect.Parameter.empty else None
    said += [f"default: {shown}"] if shown else []
    required = " (required)" if argument.required and argument.name.startswith("--") else ""
    return f"`{argument.name}`{required}", plain("; ".join(filter(None, said)))


def configuration() -> str:
    """Every key of a YAML for `train` and `sft`: ours, then TRL's."""
    from grounding_rewards.training import arguments

    tables = (
        ("Reward and images of `train`", arguments.GroundingArguments),
        ("Images and augmentation of `sft`", arguments.SupervisedArguments),
        ("Model and adapters, of both", arguments.ModelArguments),
        ("Training by GRPO", arguments.GRPOArguments),
        ("Training of the warm start", arguments.SupervisedConfig),
    )
    parts, told = [], {}
    for title, of in tables:
        # A key that an earlier table has with the same meaning is not told again.
        rows = {one.name: _key_row(one) for one in dataclasses.fields(of) if one.init and not one.name.startswith("_")}
        new = {name: row for name, row in rows.items() if told.get(name) != row}
        told |= rows
        parts += [f"## {title}", table(("key", "default", "meaning"), new.values())]
    return "\n\n".join(parts)


def _key_row(field: dataclasses.Field) -> tuple[str, str, str]:
    made = field.default_factory
    default = field.default if made is dataclasses.MISSING else made()
    default = "" if default is dataclasses.MISSING else default
    spelled = (
        {None: "", True: "true", False: "false"}.get(default) if isinstance(default, bool | None) else str(default)
    )
    words = re.split(r"\n\s*\n", str(field.metadata.get("help", "")))[0]
    return f"`{field.name}`", f"`{spelled}`" if spelled else "", plain(words)


def datasets() -> str:
    """Every dataset and general format that `prepare` reads: its source, its folder, what is easily done wrong."""
    from grounding_rewards.sources import SOURCES
    from grounding_rewards.sources.base import describe_options

    options = dict(re.findall(r"^(\S+):\n((?:  .*\n?)+)", describe_options(), re.MULTILINE))
    parts = []
    for name, source in sorted(SOURCES.items(), key=lambda one: (not one[1].title, one[0])):
        parts.append(f"## {name}")
        if source.title:
            note = f" {plain(source.note)}" if source.note else ""
            parts.append(f"[{source.title}]({source.url}). Licence: {plain(source.licence)}.{note}")
        parts.append(prose(inspect.getdoc(sys.modules[source.read.__module__]) or ""))
        if own := options.get(name):
            rows = [line.strip().partition(": ") for line in own.splitlines()]
            parts.append(table(("`--option`", "meaning"), [(f"`{key}`", plain(words)) for key, _, words in rows]))
    return "\n\n".join(parts)


def checks() -> str:
    """Every check of the doctor: its name, what is wrong, and why it matters."""
    from grounding_rewards.doctor.context import CHECKS, SEVERITIES

    parts = []
    for severity in SEVERITIES:
        rows = [
            (f"`{one.name}`", f"{plain(one.title)}. {plain(one.why)}")
            for one in CHECKS.values()
            if one.severity == severity
        ]
        if rows:
            parts += [f"### {severity.capitalize()}s", table(("name", "what is wrong, and why it matters"), rows)]
    return "\n\n".join(parts)


def notebook() -> str:
    """The cells of the notebook, run now, with what they print and draw."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(book, timeout=_PATIENCE, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    return "\n\n".join(part for cell in book.cells for part in _cell(cell))


def _cell(cell: Any) -> Iterable[str]:
    if cell.cell_type == "markdown":
        yield cell.source
        return
    yield _fenced(cell.source, "python")
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" in data:
            yield f"![Drawn by the cell above](data:image/png;base64,{''.join(data['image/png'].split())})"
        elif output.get("name") != "stderr":
            yield _fenced(output.get("text", data.get("text/plain", "")), "text")


def prose(docstring: str) -> str:
    """A docstring as Markdown: paragraphs are joined, indented parts are code, `Word: …` line by line is a list.

    >>> print(prose("Reads it.\\n\\nFolder::\\n\\n    a.csv    x,y\\n\\nReaders: two\\n    of them.\\nBoxes: pixels."))
    Reads it.
    <BLANKLINE>
    Folder:
    <BLANKLINE>
    ```text
    a.csv    x,y
    ```
    <BLANKLINE>
    - Readers: two of them.
    - Boxes: pixels.
    """
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        lines = block.splitlines()
        heads = [k for k, line in enumerate(lines) if re.match(r"[A-Z][\w -]{2,30}: ", line)]
        # What follows `Folder::` without an empty line is code too.
        if len(lines) > 1 and lines[0].endswith("::") and lines[1].startswith(" "):
            blocks += [plain(lines[0][:-1]), _fenced(textwrap.dedent("\n".join(lines[1:])), "text")]
        elif all(line.startswith(" ") for line in lines):
            blocks.append(_fenced(textwrap.dedent(block), "text"))
        elif len(heads) > 1:
            items = [lines[start:end] for start, end in zip(heads, [*heads[1:], None], strict=True)]
            items = [lines[: heads[0]], *items] if heads[0] else items
            blocks.append("\n".join(f"- {plain(' '.join(' '.join(item).split()))}" for item in items))
        else:
            blocks.append(plain(" ".join(block.split()).replace("::", ":")))
    return "\n\n".join(blocks)


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown; bars within cells are escaped.

    >>> print(table(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = [headings, ("---",) * len(headings)]
    written = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join([f"| {' | '.join(headings)} |", f"|{'|'.join(lines[1])}|", *(f"| {row} |" for row in written)])


def plain(words: str) -> str:
    """Words of a help or docstring as Markdown that shows them; what stands between backticks is code, and stays.

    >>> plain("an open <think>, *.csv in `a<b>`")
    'an open &lt;think&gt;, \\\\*.csv in `a<b>`'
    """
    parts = re.split(r"(``?[^`]+``?)", " ".join(words.replace("``", "`").split()))
    for k in range(0, len(parts), 2):
        shown = parts[k].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        parts[k] = re.sub(r"([*_\[\]{}])", r"\\\1", shown)
    return "".join(parts)


def _fenced(code: str, language: str) -> str:
    return f"```{language}\n{code.rstrip()}\n```"


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "configuration": configuration,
    "datasets": datasets,
    "checks": checks,
    "notebook": notebook,
}
