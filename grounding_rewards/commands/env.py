"""Say what is installed here: the versions of everything that matters, for a report of a problem.

It prints no path, no name of a file or machine, and nothing of a dataset: it can be pasted as it is.

examples:
  grounding-rewards env
"""

from grounding_rewards.commands.console import say
from grounding_rewards.common.environment import environment, untested_vllm


def run() -> int:
    """Print what is installed."""
    sections = environment()
    for title, values in sections.items():
        say(f"{title}:")
        width = max(map(len, values), default=0)
        for name, value in values.items():
            say(f"  {name:<{width}}  {value}")
    vllm_note = untested_vllm()
    if vllm_note:
        say(vllm_note)
    return 0
