"""The command line: `grounding-rewards <command>`."""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.commands.console import fold, plain_warnings, say
from grounding_rewards.common.environment import package_version

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

#: The purpose of each command. The module of its name in `commands` has the help as its docstring, which ends with
#: examples, and the function `run`, whose signature and docstring are the options.
COMMANDS = {
    "demo": "evaluate a small model, train it, evaluate it again: what changed, on drawn images",
    "inspect": "what a log of completions says, and whether its coordinate space is right",
    "prepare": "a downloaded dataset to a checked folder that trains",
    "prepare-mix": "several prepared folders to one, in shares of the training rows",
    "prepare-table": "the table that another trainer reads, from any dataset that train takes",
    "prepare-verify": "whether every file of a prepared folder is as it was written",
    "doctor": "what is wrong with a dataset, before it costs a run",
    "evaluate": "how good a model's answers are, where, how certain, and how fragile, beside baselines",
    "signal": "will a reward teach a model: do answers to an image differ in reward, and if not why",
    "audit": "can a reward be gamed: scripted answers that try, without a model",
    "score": "every component of every reward for a file of completions",
    "diff": "is one evaluated run better than another on the same images",
    "study": "which reward: runs with several seeds from one checkpoint, and what may be concluded",
    "plugin": "the file and the lines of configuration with which another trainer takes a reward",
    "env": "versions of everything that matters, for a report of a problem",
    "export": "an evaluation for other tools: COCO, DICOM SR",
}

#: The purpose of each command of `commands/train.py`. That reads the words after them itself: its options are TRL's,
#: whose parser also reads YAML files, and is slow to load.
TRAINING = {
    "train": "train a model with GRPO and a reward on its boxes",
    "sft": "teach a model to write boxes, before GRPO",
}

# The extra of the package that installs a library; libraries that are not listed come with `train`.
_EXTRAS = {
    **dict.fromkeys(("jinja2", "matplotlib"), "eval"),
    **dict.fromkeys(("PIL", "datasets", "pyarrow", "pandas", "yaml"), "data"),
    **dict.fromkeys(("highdicom", "pydicom"), "dicom"),
    "vllm": "vllm",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    It is 0 for success, 1 if `--strict` finds something, 2 for a wrong argument or file, and 130 after Ctrl-C.

    Args:
        arguments: the command and its options; those of the process when left out.

    Example:
        >>> main(["inspect", "nowhere.jsonl", "--box-format", "qwen3-vl"])
        2
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Spinning OpenMP threads slow down other processes. OpenMP reads this once, when torch loads it.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # The user's own rewards are found in the working directory; an installed package of that name goes first.
    sys.path.append(str(Path.cwd()))
    # Escape characters that the terminal's encoding cannot write, instead of failing.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with plain_warnings():
            code = _run(words)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed it, which is no failure. What is left goes to nowhere, as
        # Python would write it out at its end, and fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        return _refuse(_how_to_install(error))
    except (ValueError, OSError, ImportError) as error:
        return _refuse(str(error))


def _run(words: list[str]) -> int:
    """Run the command that the first word names, and return its exit code; no other command's module is imported."""
    name, *options = words or ["--help"]
    if name == "--version":
        print(f"grounding-rewards {package_version('grounding_rewards')}")
        return 0
    if name in ("-h", "--help"):
        print("usage: grounding-rewards COMMAND ...\n\nRewards for vision-language models that answer with boxes.\n")
        for command, summary in {**TRAINING, **COMMANDS}.items():
            print(fold(f"  {command:<14}  {summary}", 18))
        print()
        print(fold("`grounding-rewards demo` is the place to begin; `grounding-rewards COMMAND --help` has examples."))
        return 0
    if name not in (*COMMANDS, *TRAINING):
        raise ValueError(f"Expected a command, got {name}. grounding-rewards --help names them.")
    if name in TRAINING:
        return int(_module("train").run(name, options))
    return _run_command(name, options)


def _run_command(name: str, words: list[str]) -> int:
    """Run a command of :data:`COMMANDS` with its options, or print its help."""
    from cyclopts import CycloptsError

    if "--help" in words or "-h" in words:
        _print_help(name)
        return 0
    try:
        # The third part are parameters that are not to be parsed: no command has any.
        function, bound, _ = command_app(name).parse_args(words)
    except CycloptsError as error:
        raise ValueError(f"{_sentence(error)} See grounding-rewards {name} --help.") from None
    return int(function(*bound.args, **bound.kwargs))


def _print_help(name: str) -> None:
    """Print the help of a command: the docstring of its module, the options, and the examples of the docstring."""
    from rich.console import Console

    description, heading, examples = _module(name).__doc__.partition("examples:\n")
    for paragraph in description.rstrip().split("\n\n"):
        # Lines of a table stay lines.
        print(fold(paragraph if paragraph.startswith(" ") else " ".join(paragraph.split())) + "\n")
    # On lines without end, which are folded below: cyclopts would fold them without an indent.
    option_text = io.StringIO()
    command_app(name).help_print([], console=Console(file=option_text, width=10_000))
    # A line that does not begin with an `--option` or an `ARGUMENT:` goes on with the item before, and is joined to it.
    print(fold(re.sub(r"\n  (?!--|[A-Z]+:)", " ", option_text.getvalue()).rstrip()) + "\n")
    print(f"{heading}{examples}")


def command_app(name: str) -> App:
    """The parser of a command, made from the signature and the docstring of its `run`."""
    from cyclopts import App, Parameter

    # cyclopts itself prints nothing: `_run_command` prints the help, and says errors in the package's own words. No
    # option has a form `--no-…`, and a list takes all words up to the next option.
    app = App(
        name=f"grounding-rewards {name}",
        help="",
        help_flags=(),
        version_flags=(),
        help_format="plaintext",
        help_formatter="plain",
        default_parameter=Parameter(negative=(), consume_multiple=True, show_default=_shown_default),
        print_error=False,
        exit_on_error=False,
    )
    app.default(_module(name).run)
    return app


def _shown_default(value: Any) -> str | None:
    """The default of an option as its help shows it; None if the help shows none, as for a flag that is off."""
    if value is None or value is False or value == ():
        return None
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _sentence(error: CycloptsError) -> str:
    """The sentence that says what an error of the parser means, in the form of all errors: Expected …, got …."""
    from cyclopts import CoercionError, MissingArgumentError, UnusedCliTokensError, ValidationError

    option = error.argument.name if error.argument is not None else ""
    if isinstance(error, MissingArgumentError):
        if error.tokens_so_far:
            # Of the options only --window takes several values without being repeatable.
            return f"Expected two numbers for {option}, got {' '.join(error.tokens_so_far)!r}. Write {option} 1 200."
        return f"Expected {option}, got none."
    if isinstance(error, ValidationError) and error.argument is not None:
        # A check of the package names no parameter, or its own: on the command line that is the option.
        return re.sub(r"( for `\w+`)?, got", f" for {option}, got", error.exception_message, count=1)
    if isinstance(error, CoercionError) and error.token is not None and error.argument is not None:
        type_name = getattr(error.target_type, "__name__", str(error.target_type))
        choices = error.argument.get_choices() or (f"a value of type {type_name}",)
        return f"Expected {' or '.join(choices)} for {option}, got {error.token.value!r}."
    if isinstance(error, UnusedCliTokensError):
        return f"Expected options of the command, got {' '.join(error.unused_tokens or ())}."
    return f"Expected options of the command, got {str(error).removeprefix('Unknown option: ')}"


def _module(name: str) -> Any:
    """The module of a command."""
    return importlib.import_module(f"grounding_rewards.commands.{name.replace('-', '_')}")


def _refuse(message: str) -> int:
    """Print an error, and return the exit code of a wrong argument or file."""
    say(f"grounding-rewards: {message}", stderr=True)
    return 2


def _how_to_install(error: ModuleNotFoundError) -> str:
    """The message for a missing library, with the command that installs it; any other message stays as it is.

    >>> _how_to_install(ModuleNotFoundError("No module named 'datasets'", name="datasets"))
    "Expected the library datasets for this command, got none. Install it with pip install 'grounding_rewards[data]'."
    """
    if error.name is None or not str(error).startswith("No module named"):
        return str(error)
    # Of a missing module such as `yaml.nodes` the library that has it.
    library = error.name.partition(".")[0]
    package = f"'grounding_rewards[{_EXTRAS.get(library, 'train')}]'"
    return f"Expected the library {library} for this command, got none. Install it with pip install {package}."


if __name__ == "__main__":
    sys.exit(main())
