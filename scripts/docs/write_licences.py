"""Write THIRD_PARTY_LICENCES.md: under which licence each package stands that this one brings along, by extra.

  python scripts/docs/write_licences.py            of what is installed here, '.[train,dicom,eval,tensorboard]'
  python scripts/docs/write_licences.py --check    write nothing; exit code 1 where the page lacks a line

Versions are left out, so that the page changes only where a package or a licence does.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "THIRD_PARTY_LICENCES.md"

_HEAD = """\
# Licences of what is installed

This package is licensed under Apache-2.0. `pip install` also brings the packages below. Each is listed under the first
of `grounding_rewards`, `[eval]`, `[dicom]`, `[tensorboard]` and `[train]` that needs it, directly or through
another package, on Linux. What is used only to develop, test and release is left out. The licences are those that the
packages state themselves. Written by `python scripts/docs/write_licences.py`.
"""
_TAIL = """\
## Radiographs and reference boxes

- `docs/study/nih_findings/`: boxes of NIH ChestX-ray14, provided by the NIH Clinical Center
  ([download](https://nihcc.app.box.com/v/ChestXray-NIHCC)); Wang et al., ChestX-ray8, CVPR 2017. The NIH puts no
  restrictions on the use of the images. They were scaled, and the boxes with them.
- `docs/study/lungs/` and `docs/study/placed_lungs/`: lung boxes by General Blockchain Inc. and V7 Labs, CC BY 4.0
  ([sources](docs/study.md)).
"""
_EXTRAS = ("eval", "dicom", "tensorboard", "train")
_LONGEST = 70


def licence(found: Distribution) -> str:
    """What a package says of its licence: an SPDX expression, else its classifiers, else its own words.

    CUDA's libraries, which torch brings along on Linux, say it in a classifier alone.
    """
    about = found.metadata
    if expression := about.get("License-Expression"):
        return expression
    classified = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License")]
    named = [one for one in classified if one != "OSI Approved"]
    if named:
        return ", ".join(sorted(named))
    stated = (about.get("License") or "").strip().partition("\n")[0]
    return stated[:_LONGEST] or "not stated"


def needed(requirements: Iterable[str], known: set[str]) -> dict[str, str]:
    """Names and licences of what requirements bring along, beyond what is known.

    Raises:
        ValueError: one is not installed.
    """
    found: dict[str, str] = {}
    # A package with the extras that are asked of it.
    waiting = [(Requirement(text), "") for text in requirements]
    done: set[tuple[str, str]] = set()
    while waiting:
        one, extra = waiting.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        name = _plain(one.name)
        fresh = [asked for asked in ("", *sorted(one.extras)) if (name, asked) not in done]
        if not fresh:
            continue
        try:
            installed = distribution(one.name)
        except PackageNotFoundError:
            raise ValueError(f"Expected {one.name} to be installed, got none. Install the extras first.") from None
        if name not in known:
            found[name] = licence(installed)
        for asked in fresh:
            done.add((name, asked))
            waiting += [(Requirement(text), asked) for text in installed.requires or ()]
    return found


def write() -> str:
    """The whole page."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts = {"grounding_rewards": project["dependencies"]}
    parts |= {f"[{extra}]": project["optional-dependencies"][extra] for extra in _EXTRAS}
    known: set[str] = set()
    lines = [_HEAD]
    for title, requirements in parts.items():
        found = needed(requirements, known)
        known |= found.keys()
        if found:
            rows = "\n".join(f"| {name} | {stated} |" for name, stated in sorted(found.items()))
            lines.append(f"## {title}\n\n| package | licence |\n|---|---|\n{rows}\n")
    return "\n".join([*lines, _TAIL])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    """Read the arguments; write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args()
    try:
        page = write()
    except ValueError as error:
        sys.exit(str(error))
    if not options.check:
        PAGE.write_text(page, encoding="utf-8")
        return
    written = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    missing = [line for line in page.splitlines() if line.startswith("| ") and line not in written.splitlines()]
    if missing:
        sys.exit("\n".join(["Expected these lines in THIRD_PARTY_LICENCES.md, got none. Write it anew.", *missing]))


if __name__ == "__main__":
    main()
