"""Write the numbers of rewards that tests/rewards/test_golden.py compares, into tests/golden/rewards.json.

  python scripts/checks/write_golden.py                        after a new row in tests/rewards/golden.toml
  python scripts/checks/write_golden.py --against released.json    write nothing: may these numbers be released?

A number that was kept and is another one now, or is gone, is refused, unless the version of the package breaks with
the one that it was kept under: the first part of the version that is not 0 is a greater one (1.4.2 to 2.0.0, 0.1.0 to
0.2.0). Whoever trained with a version can so compare with every later one that does not break with it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

import grounding_rewards as gr  # noqa: E402
from grounding_rewards.common.atomic_files import write_whole  # noqa: E402
from tests.rewards.golden import FILE, compute_numbers, is_same  # noqa: E402

_SHOWN = 5


def breaks(new: str, old: str) -> bool:
    """Whether a version may have other numbers than an older one.

    >>> breaks("2.0.0", "1.4.2"), breaks("1.5.0", "1.4.2"), breaks("0.2.0", "0.1.9"), breaks("0.1.1", "0.1.0")
    (True, False, True, False)
    """
    was, now = ([int(part) for part in version.split(".")[:3]] for version in (old, new))
    leading = next((k for k, part in enumerate(was) if part), 2)
    return now[: leading + 1] > was[: leading + 1]


def changes(numbers: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """Which of the kept numbers are others now, or gone."""
    return [
        f"{reward}, image {image!r}, completion {completion!r}: {was!r}, now {number!r}"
        for reward, images in kept.items()
        for image, completions in images.items()
        for completion, was in completions.items()
        if not is_same(reward, was, number := numbers.get(reward, {}).get(image, {}).get(completion))
    ]


def check(numbers: Mapping[str, Any], before: Mapping[str, Any], version: str) -> None:
    """Refuse numbers that changed without a version that allows it.

    Raises:
        ValueError: names what changed.
    """
    changed = changes(numbers, before["numbers"])
    if changed and not breaks(version, before["version"]):
        shown = "\n  ".join(changed[:_SHOWN])
        raise ValueError(
            f"Expected the numbers of version {before['version']}, got {len(changed)} others:\n  {shown}\n"
            f"Raise the version, {version}, to one that breaks with it, and name the change in CHANGELOG.md, or mend "
            "the reward."
        )


def main() -> None:
    """Read the arguments, compute, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="FILE", help="the file of an earlier release, to compare with")
    options = parser.parse_args()
    numbers = compute_numbers()
    file = options.against or FILE
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"version": "0.0.0", "numbers": {}}
    try:
        check(numbers, before, gr.__version__)
    except ValueError as error:
        sys.exit(str(error))
    if options.against is None:
        # The version under which a number last changed, as far back as they can be compared.
        version = gr.__version__ if changes(numbers, before["numbers"]) or not before["numbers"] else before["version"]
        rows = (
            f"  {json.dumps(reward)}: {{\n{images}\n  }}"
            for reward, images in (
                (reward, ",\n".join(f"   {json.dumps(image)}: {json.dumps(one)}" for image, one in images.items()))
                for reward, images in numbers.items()
            )
        )
        FILE.parent.mkdir(exist_ok=True)
        write_whole(FILE, f'{{"version": {json.dumps(version)},\n "numbers": {{\n{",".join(rows)}\n }}\n}}\n')
    print(f"{sum(len(one) for images in numbers.values() for one in images.values())} numbers")


if __name__ == "__main__":
    main()
