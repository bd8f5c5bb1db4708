"""Write prepared folders as one, with a column `source` that `evaluate` has metrics for. Splits stay; with weights,
rows of train are left out by a hash until each folder has its share, and other splits keep all.

examples:
  two thirds of the rows to train on are of the first folder:
    grounding-rewards prepare-mix data/vindr=2 data/det=1 --out data/mixed
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from grounding_rewards.commands.options import BadRows, option
from grounding_rewards.commands.prepare import print_summary
from grounding_rewards.prepare.mix import Part, mix_folders


def run(
    folders: Sequence[str],
    /,
    *,
    out: Annotated[Path, option("folder to write, new or empty")],
    seed: int = 0,
    bad_rows: BadRows = "refuse",
) -> int:
    """Mix prepared folders.

    Args:
        folders: FOLDER or FOLDER=WEIGHT of each; weights are shares of the rows of train
        seed: of the rows that are left out

    Raises:
        ValueError: the folders do not fit together, see `mix_folders`.
    """
    parts = [_part(text) for text in folders]
    print_summary(out, mix_folders(parts, out, seed=seed, bad_rows=bad_rows))
    return 0


def _part(text: str) -> Part:
    """Read FOLDER or FOLDER=WEIGHT."""
    folder, equals, weight = text.rpartition("=")
    # The name of a folder may itself have an equals sign.
    if not equals or Path(text).is_dir():
        return Part(Path(text))
    try:
        return Part(Path(folder), float(weight))
    except ValueError:
        raise ValueError(
            f"Expected FOLDER or FOLDER=WEIGHT for prepare-mix, got {text!r}. Write data/vindr=2, for example."
        ) from None
