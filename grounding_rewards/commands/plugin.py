"""Write the file with which a trainer takes a reward, and print the lines for its configuration.

Trainers: trl, axolotl, unsloth, verl, easyr1, ms-swift, openrlhf, nemo-rl, nemo-gym, verifiers. Each gets the numbers
that TRL gets. verl takes the package as it is and wants no file; the others import the one of --out, wherever it is,
in which the reward and its parameters can be read. What the images must say, and what is logged: docs/trainers.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from grounding_rewards.commands.console import parameters_from_option, say
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.integrations.plugin_files import TRAINERS, plugin

EXAMPLES = """\
examples:
  grounding-rewards plugin verl --reward R4 --box-format qwen2.5-vl
  grounding-rewards plugin ms-swift --reward R4 --reward-kwargs '{"beta": 1.0}' --out boxes.py
  grounding-rewards plugin openrlhf --reward soft_f1 --out boxes.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `grounding-rewards plugin`."""
    parser.add_argument("trainer", choices=TRAINERS, metavar="TRAINER", help=", ".join(TRAINERS))
    parser.add_argument("--reward", default="R4", help="R1 ... R5, soft_f1, or a dotted path (default: %(default)s)")
    parser.add_argument("--reward-kwargs", metavar="JSON", help="""its parameters, such as '{"iou_threshold": 0.4}'""")
    parser.add_argument(
        "--box-format", metavar="FORMAT", help="how the model writes boxes; default: what the ground truth says"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to write, where the trainer wants one")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")


def run(options: argparse.Namespace) -> int:
    """Write the file, and print the lines."""
    parameters = parameters_from_option(options.reward_kwargs)
    if options.box_format is not None:
        parameters["box_format"] = options.box_format
    made = plugin(options.trainer, options.reward, parameters, options.out)
    if made.content is not None:
        if options.out.exists() and not options.overwrite:
            raise ValueError(
                f"Expected a new file for --out, got {options.out}, which is there. Give another name, or --overwrite."
            )
        write_whole(options.out, made.content)
        say(f"wrote {options.out}", error=True)
    say(made.lines)
    return 0
