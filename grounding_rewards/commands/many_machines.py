"""The options with which score, prepare and evaluate work on many machines: `--shard` and `--join`."""

from __future__ import annotations

import argparse

from grounding_rewards.common.job_shares import Share, share_from_text


def add_many_machines(parser: argparse.ArgumentParser, *, work: str) -> None:
    """Add the options to a command.

    Args:
        parser: of the command.
        work: what is shared out, in words.
    """
    group = parser.add_argument_group("on many machines")
    group.add_argument(
        "--shard",
        metavar="K/N",
        help=f"do share K of N of {work}, counted from 1, and leave it as a part; for the tasks of a SLURM array",
    )
    group.add_argument("--join", action="store_true", help="instead: put the parts of all shares together")


def share_of(options: argparse.Namespace) -> Share | None:
    """The share that `--shard` names; None for all.

    Raises:
        ValueError: it is none, or `--join` is given too.

    Example:
        >>> share_of(argparse.Namespace(shard="3/64", join=False))
        Share(number=3, total=64)
    """
    if options.shard is not None and options.join:
        raise ValueError(
            f"Expected --shard or --join, got both. Give every task of the array its --shard, such as {options.shard}; "
            "when all have ended, give --join alone."
        )
    return None if options.shard is None else share_from_text(options.shard)
