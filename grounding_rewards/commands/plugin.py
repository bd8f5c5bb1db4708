"""Write the file with which a trainer takes a reward, and print the lines for its configuration.

Trainers: trl, axolotl, unsloth, verl, easyr1, ms-swift, openrlhf, nemo-rl, nemo-gym, verifiers. Each gets the numbers
that TRL gets. verl takes the package as it is and wants no file; the others import the one of --out, wherever it is,
in which the reward and its parameters can be read. What the images must say, and what is logged: docs/trainers.md.

examples:
  grounding-rewards plugin verl --reward R4 --box-format qwen2.5-vl
  grounding-rewards plugin ms-swift --reward R4 --reward-kwargs '{"beta": 1.0}' --out boxes.py
  grounding-rewards plugin openrlhf --reward soft_f1 --out boxes.py
"""

from pathlib import Path

from grounding_rewards.commands.console import say
from grounding_rewards.commands.options import BoxFormat, Reward, RewardKwargs, parameters_from_option
from grounding_rewards.common.atomic_files import check_new, write_whole
from grounding_rewards.integrations.plugin_files import plugin


def run(
    trainer: str,
    /,
    *,
    reward: Reward = "R4",
    reward_kwargs: RewardKwargs = None,
    box_format: BoxFormat = None,
    out: Path | None = None,
    overwrite: bool = False,
) -> int:
    """Write the file, and print the lines.

    Args:
        trainer: trl, axolotl, unsloth, verl, easyr1, ms-swift, openrlhf, nemo-rl, nemo-gym or verifiers
        out: the file to write, where the trainer wants one
        overwrite: replace a file that is there
    """
    parameters = parameters_from_option(reward_kwargs)
    if box_format is not None:
        parameters["box_format"] = box_format
    plugin_file = plugin(trainer, reward, parameters, out)
    # Some trainers need no file: then there is nothing to write, whatever `out` is.
    if out is not None and plugin_file.content is not None:
        if not overwrite:
            check_new(out, "--out", "Give --overwrite.")
        write_whole(out, plugin_file.content)
        say(f"wrote {out}", stderr=True)
    say(plugin_file.lines)
    return 0
