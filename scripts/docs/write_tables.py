"""Write into pages of docs/ what the code says: commands, configuration keys, datasets, checks of the doctor, notebook.

    python scripts/docs/write_tables.py
    python scripts/docs/write_tables.py --check      # only say whether the pages are up to date; exit code 1 if not
    python scripts/docs/write_tables.py notebook     # run the notebook, and keep what it prints and draws

A part stands between marks, `<!-- commands: begin -->` and its end, so that it can be read in the repository too.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import importlib
import inspect
import io
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts.docs.page_parts import marks_of, replace_part, write_or_check

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOTEBOOK = DOCS / "score_inspect_plot.ipynb"
PICTURES = DOCS / "pictures"
# Where the help of `train` and `sft` begins with them.
_TRLS_OPTIONS = "options:\n  -h, --help"
# Seconds that a cell of the notebook may take.
_PATIENCE = 300


def commands() -> str:
    """Every command: what its help says, and its options in tables."""
    from grounding_rewards.cli import COMMANDS, TRAINING, command_app

    parts = []
    for name, summary in TRAINING.items():
        parts += [f"## {name}", f"*{plain(summary)}.*", _fenced(_help_of(name), "text")]
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"grounding_rewards.commands.{name.replace('-', '_')}")
        options = command_app(name).assemble_argument_collection(parse_docstring=True)
        rows = [_option_row(option) for option in options if option.name != "*"]
        about, _, examples = (module.__doc__ or "").partition("examples:\n")
        parts += [f"## {name}", f"*{plain(summary)}.*", prose(about), table(("option", "meaning"), rows)]
        parts += ["Examples:", _fenced(_shell(examples), "bash")]
    return "\n\n".join(parts)


def _help_of(name: str) -> str:
    """What a command that trains prints before all of TRL's options."""
    from grounding_rewards.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([name, "--help-all"])
    return printed.getvalue().partition("\n" + _TRLS_OPTIONS)[0]


def _shell(examples: str) -> str:
    """Examples as lines for a shell: the words before a command become a comment."""
    from grounding_rewards.cli import COMMANDS, TRAINING

    starts = tuple(f"grounding-rewards {name} " for name in (*COMMANDS, *TRAINING))
    lines: list[str] = []
    for line in textwrap.dedent(examples).strip().splitlines():
        is_code = f"{line.strip()} ".startswith(starts) or (lines and lines[-1].endswith("\\"))
        words = line.strip()
        lines.append(words if is_code or not words else f"# {words}")
    return "\n".join(lines)


def _option_row(argument: Any) -> tuple[str, str]:
    choices, default = argument.get_choices(), argument.parameter.show_default
    meaning = [argument.parameter.help or ""]
    if choices:
        meaning.append(f"one of {', '.join(choices)}")
    value = argument.field_info.default
    if value is not inspect.Parameter.empty and (shown := default(value)):
        meaning.append(f"default: {shown}")
    required = " (required)" if argument.required and argument.name.startswith("--") else ""
    return f"`{argument.name}`{required}", plain("; ".join(filter(None, meaning)))


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
    parts, listed = [known_versions()], {}
    for title, of in tables:
        fields = [field for field in dataclasses.fields(of) if field.init and not field.name.startswith("_")]
        rows = {field.name: _key_row(field) for field in fields}
        # A key that an earlier table has with the same meaning is not repeated.
        new = {name: row for name, row in rows.items() if listed.get(name) != row}
        listed |= rows
        parts += [f"## {title}", table(("key", "default", "meaning"), new.values())]
    return "\n\n".join(parts)


def _key_row(field: dataclasses.Field) -> tuple[str, str, str]:
    factory = field.default_factory
    default = field.default if factory is dataclasses.MISSING else factory()
    default = "" if default is dataclasses.MISSING else default
    spelled = (
        {None: "", True: "true", False: "false"}.get(default) if isinstance(default, bool | None) else str(default)
    )
    words = re.split(r"\n\s*\n", str(field.metadata.get("help", "")))[0]
    return f"`{field.name}`", f"`{spelled}`" if spelled else "", plain(words)


def datasets() -> str:
    """Every dataset and general format that `prepare` reads: its source, its folder, what is easily done wrong."""
    from grounding_rewards.sources import SOURCES

    parts = []
    for name, source in sorted(SOURCES.items(), key=lambda named: (not named[1].title, named[0])):
        parts.append(f"## {name}")
        if source.title:
            note = f" {plain(source.note)}" if source.note else ""
            parts.append(f"[{source.title}]({source.url}). Licence: {plain(source.licence)}.{note}")
        parts.append(prose(inspect.getdoc(sys.modules[source.read.__module__]) or ""))
        arguments = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", inspect.getdoc(source.read) or "", re.MULTILINE)
        rows = [(f"`{key}`", plain(" ".join(words.split()))) for key, words in arguments]
        options = [row for row in rows if row[0] not in ("`root`", "`split`", "`ValueError`")]
        if options:
            parts.append(table(("`--option`", "meaning"), options))
    return "\n\n".join(parts)


def checks() -> str:
    """Every check of the doctor: its name, what is wrong, and why it matters."""
    from grounding_rewards.doctor.context import CHECKS, SEVERITIES

    parts = []
    for severity in SEVERITIES:
        rows = [
            (f"`{check.name}`", f"{plain(check.title)}. {plain(check.why)}")
            for check in CHECKS.values()
            if check.severity == severity
        ]
        if rows:
            parts += [f"### {severity.capitalize()}s", table(("name", "what is wrong, and why it matters"), rows)]
    return "\n\n".join(parts)


def run_notebook() -> Any:
    """The notebook, run now."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(book, timeout=_PATIENCE, resources={"metadata": {"path": str(DOCS)}}).execute()
    for cell in book.cells:
        cell.metadata = {}
        if "outputs" in cell:
            # Warnings name folders of this machine.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return book


def keep_notebook() -> None:
    """Run the notebook and keep it, with its plots as files too."""
    import nbformat

    book = run_notebook()
    nbformat.write(book, NOTEBOOK)
    for number, picture in enumerate(_pictures(book), 1):
        (PICTURES / f"notebook_{number}.png").write_bytes(base64.b64decode(picture))


def _pictures(book: Any) -> Iterator[str]:
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                yield output.data["image/png"]


def notebook() -> str:
    """The cells of the notebook, with what they printed and drew when it was kept."""
    import nbformat

    parts, pictures = [], 0
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        parts.append(_fenced(cell.source, "python") if cell.cell_type == "code" else cell.source)
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                pictures += 1
                parts.append(f"![Drawn by the cell above](pictures/notebook_{pictures}.png)")
            else:
                parts.extend(_fenced(text, "text") for text in printed(output))
    return "\n\n".join(parts)


def printed(output: Any) -> Iterator[str]:
    """The text of a cell's output, unless it is a plot."""
    if "image/png" not in output.get("data", {}):
        yield output.get("text", output.get("data", {}).get("text/plain", ""))


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


def known_versions() -> str:
    """The versions whose options a page lists."""
    return f"*TRL {version('trl')}, transformers {version('transformers')}*"


#: What is written, by the page that it stands on.
PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "configuration": configuration,
    "datasets": datasets,
    "doctor": checks,
    "notebook": notebook,
}


def write_part(name: str, *, check: bool = False) -> str | None:
    """Write the part of a page; to check, change nothing, and give what is wrong where it is out of date."""
    page = DOCS / f"{name}.md"
    text = replace_part(page.read_text(encoding="utf-8"), marks_of(name), f"\n{PARTS[name]()}\n")
    return write_or_check(page, text, check=check)


def main() -> None:
    """Read the arguments and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="default: all, the notebook as it is kept")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    if "notebook" in options.pages and not options.check:
        keep_notebook()
    problems = [write_part(name, check=options.check) for name in options.pages or PARTS]
    sys.exit("\n".join(filter(None, problems)) or 0)


if __name__ == "__main__":
    main()
