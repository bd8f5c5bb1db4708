"""Say what is installed here: the versions of everything that matters, for a report of a problem.

It prints no path, no name of a file or machine, and nothing of a dataset: it can be pasted as it is.

examples:
  grounding-rewards env            # to paste into a report
  grounding-rewards env --json
"""

from __future__ import annotations

from json import dumps

from grounding_rewards.commands.console import say
from grounding_rewards.common.environment import environment


def run(*, json: bool = False) -> int:
    """Print what is installed.

    Args:
        json: as JSON
    """
    found = environment()
    if json:
        say(dumps(found, indent=2))
        return 0
    for title, part in found.items():
        say(f"{title}:")
        width = max((len(name) for name in part), default=0)
        for name, value in part.items():
            say(f"  {name:<{width}}  {value}")
    return 0
