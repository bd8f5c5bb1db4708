"""The command line: `grounding-rewards <command>`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from grounding_rewards.parsing import box_format_from_option, get_box_format

_INSPECT = """\
Read a log of completions and say what is in it: how many were read, why the others were not, and whether the numbers
contradict the coordinate space or order of the box format.

A log is a .jsonl, .json, .csv or .parquet file, or a folder of them, such as the completions/ that TRL writes with
`log_completions: true`. A row has the completion (column completion, text, response, output or answer: a string or a
list of messages) and, as far as known, boxes (x1, y1, x2, y2 in original pixels), width, height, resized_width,
resized_height and box_format.
"""

_INSPECT_EXAMPLES = """\
examples:
  grounding-rewards inspect completions.jsonl --box-format qwen3-vl
  grounding-rewards inspect outputs/completions --box-format qwen2.5-vl --width 1024 --height 1024
  grounding-rewards inspect log.csv --box-format '{syntax: json, keys: [box], order: yxyx, space: norm1000}'
  grounding-rewards inspect log.jsonl --examples 2 --json figures.json --strict
"""

#: Commands whose options are those of TRL, which takes its time to load: all words after them are handed on.
_TRAINING = {
    "train": ("grounding_rewards.commands.train", "train a model with GRPO and a reward on its boxes"),
    "sft": ("grounding_rewards.commands.sft", "teach a model to write boxes, before GRPO"),
}

#: Commands that a module of their own adds and runs, and what they are for.
_COMMANDS = {
    "prepare": ("grounding_rewards.commands.prepare", "a downloaded dataset to a checked folder that trains"),
    "doctor": ("grounding_rewards.commands.doctor", "what is wrong with a dataset, before it costs a run"),
    "agreement": ("grounding_rewards.commands.agreement", "how well several readers of the same films agree"),
    "evaluate": (
        "grounding_rewards.commands.evaluate",
        "how good a model's answers are, where, how surely, and how fragile, beside baselines",
    ),
    "score": (
        "grounding_rewards.commands.score",
        "every component of every reward for a file of completions",
    ),
    "diff": ("grounding_rewards.commands.diff", "is one evaluated run better than another on the same films"),
    "export": (
        "grounding_rewards.commands.export",
        "an evaluation for other tools: COCO, FiftyOne, CVAT, Label Studio, DICOM SR, a model card",
    ),
}

#: Seconds after which a progress bar is shown, and for which other processes wait for the first one's word.
_PATIENCE = 3.0

_GOES_ON = {
    **dict.fromkeys(("prepare", "evaluate"), "; the same command goes on"),
    **dict.fromkeys(_TRAINING, "; --resume_from_checkpoint last goes on from the last checkpoint"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 where `--strict` finds something, 2 for a wrong argument or file.

    It is 130 after Ctrl-C.

    Example:
        >>> main(["inspect", "nowhere.jsonl", "--box-format", "qwen3-vl"])
        2
    """
    # Rewards of one's own are found beside the configuration that names them; an installed package goes first.
    sys.path.append(str(Path.cwd()))
    name, command = _command(list(sys.argv[1:] if arguments is None else arguments))
    try:
        return command()
    except KeyboardInterrupt:
        print(f"interrupted{_GOES_ON.get(name, '')}", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        return _refuse(_how_to_install(error))
    except (ValueError, OSError, ImportError) as error:
        return _refuse(str(error))


def _command(words: list[str]) -> tuple[str, Callable[[], int]]:
    """The name of the command that the words ask for, and what runs it."""
    if words and words[0] in _TRAINING:
        name, *others = words
        return name, lambda: importlib.import_module(_TRAINING[name][0]).run(others)
    options = _parser().parse_args(words)
    return options.name, lambda: options.command(options)


def _refuse(message: str) -> int:
    """Say what is wrong, once: of several processes that all found it, the first one does."""
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"grounding-rewards: {message}", file=sys.stderr)
    else:
        # A launcher ends all processes when the first of them ends.
        time.sleep(_PATIENCE)
    return 2


def _how_to_install(error: ModuleNotFoundError) -> str:
    """Which extra brings a library that is missing; an error that says so itself is left as it is.

    >>> _how_to_install(ModuleNotFoundError("No module named 'datasets'", name="datasets"))
    "Expected the library datasets for this command, got none. Install it with pip install 'grounding_rewards[train]'."
    """
    if error.name is None or not str(error).startswith("No module named"):
        return str(error)
    library = error.name.partition(".")[0]
    extra = {"matplotlib": "eval", "PIL": "eval", "pydicom": "dicom", "highdicom": "dicom"}
    return (
        f"Expected the library {library} for this command, got none. "
        f"Install it with pip install 'grounding_rewards[{extra.get(library, 'train')}]'."
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grounding-rewards", description="Rewards for vision-language models that answer with boxes."
    )
    commands = parser.add_subparsers(title="commands", required=True, dest="name", metavar="COMMAND")
    for name, (_, summary) in _TRAINING.items():
        commands.add_parser(name, help=summary)
    _add_inspect(commands)
    for name, (module, summary) in _COMMANDS.items():
        made = importlib.import_module(module)
        command = commands.add_parser(
            name, help=summary, description=made.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        made.add_arguments(command)
        command.set_defaults(command=made.run)
    return parser


def _add_inspect(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect",
        help="what a log of completions says, and whether its coordinate space is right",
        description=_INSPECT,
        epilog=_INSPECT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=_inspect)
    parser.add_argument("log", nargs="+", type=Path, help="file or folder")
    parser.add_argument(
        "--box-format",
        metavar="FORMAT",
        help="how the model writes boxes: a name, or a mapping as in a configuration; default: the column box_format",
    )
    parser.add_argument("--text-column", metavar="NAME", help="column with the completions")
    for side in ("width", "height"):
        parser.add_argument(f"--{side}", type=_pixels, metavar="PIXELS", help=f"{side} of films without the column")
    for side in ("width", "height"):
        parser.add_argument(
            f"--resized-{side}",
            type=_pixels,
            metavar="PIXELS",
            help=f"{side} of the image that the model saw, for formats in its pixels",
        )
    parser.add_argument(
        "--examples", type=int, default=0, metavar="N", help="show N completions of each status and reason in full"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, without any text of the log")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 if numbers contradict the format, or more than a tenth of the completions is unparseable",
    )


def _pixels(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"Expected a positive number of pixels, got {text!r}. Give the side of a film."
        )
    return value


def _inspect(options: argparse.Namespace) -> int:
    from rich.console import Console

    from grounding_rewards.data.completion_logs import read_completions
    from grounding_rewards.report.inspection import inspect_completions, print_inspection

    completions, rows = read_completions(options.log, text_column=options.text_column)
    sizes = {side: getattr(options, side) for side in ("width", "height", "resized_width", "resized_height")}
    box_format = None if options.box_format is None else get_box_format(box_format_from_option(options.box_format))
    inspection = inspect_completions(completions, rows, box_format, sizes=sizes, track=_track)
    if options.json is not None:
        options.json.write_text(json.dumps(inspection.as_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    # What the terminal cannot write must not end the command.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    console = Console()
    # A log of a log is read without a terminal's edge.
    print_inspection(inspection, console if console.is_terminal else Console(width=120), examples=options.examples)
    return int(options.strict and inspection.is_suspect)


def _track(items: Sequence[Any]) -> Iterator[Any]:
    """Go through the items, with a progress bar once it takes longer than one waits without."""
    from grounding_rewards.commands.console import late_progress

    with late_progress(_PATIENCE, transient=True) as (bar, show):
        task = bar.add_task("inspecting", total=len(items))
        for item in items:
            show()
            yield item
            bar.advance(task)


if __name__ == "__main__":
    sys.exit(main())
