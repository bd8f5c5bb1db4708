"""The options with which score, prepare and evaluate work on many machines: `--engine`, `--shard` and `--join`."""

from __future__ import annotations

import argparse

from grounding_rewards.common.job_shares import Share, share_from_text
from grounding_rewards.common.workers import ENGINES


def add_many_machines(parser: argparse.ArgumentParser, *, work: str) -> None:
    """Add the options to a command.

    Args:
        parser: of the command.
        work: what is shared out, in words.
    """
    group = parser.add_argument_group("on many machines")
    group.add_argument(
        "--engine",
        choices=ENGINES,
        default="local",
        help="where workers are: on this machine (default), or on the Ray cluster that RAY_ADDRESS names",
    )
    group.add_argument(
        "--shard",
        metavar="K/N",
        help=f"do share K of N of {work}, counted from 1, and leave it as a part; for the tasks of a SLURM array",
    )
    group.add_argument("--join", action="store_true", help="instead: put the parts of all shares together")


def share_of(options: argparse.Namespace) -> Share | None:
    """The share that `--shard` names; None for all.

    Raises:
        ValueError: it is none, or does not go together with another option.

    Example:
        >>> share_of(argparse.Namespace(engine="local", shard="3/64", join=False))
        Share(number=3, total=64)
    """
    if options.shard is not None and options.join:
        raise ValueError(
            f"Expected --shard or --join, got both. Give every task of the array its --shard, such as {options.shard}; "
            "when all have ended, give --join alone."
        )
    for name in ("shard", "join"):
        if options.engine != "local" and getattr(options, name):
            raise ValueError(
                f"Expected --{name} without --engine, got --engine {options.engine}. Ray shares out the work itself: "
                "leave one of the two out."
            )
    return None if options.shard is None else share_from_text(options.shard)
