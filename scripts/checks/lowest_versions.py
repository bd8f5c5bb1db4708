"""Print the lowest versions that pyproject.toml allows, as pip takes them: `make test-lowest` installs and tests them.

  python scripts/checks/lowest_versions.py eval                 the package's own and those of the extra eval
  python scripts/checks/lowest_versions.py train --only trl transformers

Which of the ranges begin at a version that was run says pyproject.toml.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

_LOWEST = re.compile(r"(?P<name>[\w.-]+)>=(?P<version>[\d.]+)")


def lowest(requirements: Iterable[str]) -> dict[str, str]:
    """Names and lowest versions.

    Raises:
        ValueError: a requirement without a lowest version.
    """
    found = {}
    for requirement in requirements:
        match = _LOWEST.match(requirement)
        if match is None:
            raise ValueError(f"Expected a lowest version for {requirement} in pyproject.toml, got none. Add one.")
        found[match["name"]] = match["version"]
    return found


def main() -> None:
    """Read pyproject.toml and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="beside what is always needed")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of these alone")
    options = parser.parse_args()
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in options.extras:
        wanted += project["optional-dependencies"][extra]
    found = lowest(wanted)
    print(*(f"{name}=={found[name]}" for name in options.only or found))


if __name__ == "__main__":
    main()
