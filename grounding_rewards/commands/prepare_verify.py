"""Is every file of a prepared folder as it was written?

examples:
  grounding-rewards prepare-verify data/vindr
"""

from pathlib import Path

from grounding_rewards.commands.console import say
from grounding_rewards.common.formatting import counted
from grounding_rewards.prepare.manifest import verify_images


def run(folder: Path, /) -> int:
    """Compare the files of a prepared folder with their checksums; 1 if one is wrong.

    Args:
        folder: what prepare or prepare-mix wrote
    """
    problems = verify_images(folder)
    for problem in problems:
        say(problem)
    verdict = counted(len(problems), "problem") if problems else "every file is as it was written"
    print(f"{folder}: {verdict}")
    return int(bool(problems))
