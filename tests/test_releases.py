"""What a release is made from agrees: versions, pins, licences, ranges and workflows."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
pytest.importorskip("packaging", reason="needs packaging, which the train extra brings")

from packaging.requirements import Requirement  # noqa: E402

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(python: str) -> dict[str, str]:
    """What the lock file installs on Linux with a version of Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    environment |= {"platform_machine": "x86_64", "implementation_name": "cpython", "platform_system": "Linux"}
    environment |= {"platform_python_implementation": "CPython", "os_name": "posix"}
    found = {}
    for line in re.findall(r"^([\w.-]+==[^\\\n]*?)\s*\\?$", LOCK, re.MULTILINE):
        one = Requirement(line)
        if one.marker is None or one.marker.evaluate(environment):
            found[plain(one.name)] = str(one.specifier).removeprefix("==")
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_has_pins_within_the_ranges(python: str) -> None:
    locked = pins(python)
    for text in [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]:
        one = Requirement(text)
        assert one.specifier.contains(locked[plain(one.name)]), text


def test_the_core_has_a_lock_file_of_its_own() -> None:
    core = (REPOSITORY / "requirements-core.lock").read_text(encoding="utf-8")
    named = set(re.findall(r"^([\w.-]+)==", core, re.MULTILINE))
    assert {plain(Requirement(text).name) for text in PROJECT["dependencies"]} <= named
    assert not named & {"torch", "transformers", "datasets", "pillow"}
    assert "://" not in core


def test_the_lock_file_names_no_address_and_every_pin_has_a_hash() -> None:
    assert "://" not in LOCK
    for entry in re.split(r"^(?=\S+==)", LOCK, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_the_version_is_one() -> None:
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert f"license: {PROJECT['license']}\n" in citation
    changes = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    [date] = re.findall(rf"^## {PROJECT['version']} \((.+)\)$", changes, re.MULTILINE)
    # What has not been released has no date of release.
    assert re.findall(r"^date-released: (.+)$", citation, re.MULTILINE) == [date] * (date != "unreleased")
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    said = [line for line in PROJECT["classifiers"] if line.startswith("Programming Language :: Python :: 3.")]
    assert said == [f"Programming Language :: Python :: {version}" for version in PYTHONS]


def test_every_direct_dependency_has_its_licence_on_the_page() -> None:
    page = (REPOSITORY / "THIRD_PARTY_LICENCES.md").read_text(encoding="utf-8")
    extras = [one for name, extra in EXTRAS.items() if name not in ("dev", "docs", "release") for one in extra]
    used = [*PROJECT["dependencies"], *extras]
    assert [text for text in used if f"\n| {plain(Requirement(text).name)} | " not in page] == []


def test_every_range_has_a_lowest_version() -> None:
    for text in [*PROJECT["dependencies"], *(one for name, extra in EXTRAS.items() if name != "dev" for one in extra)]:
        assert ">=" in text


def test_the_readme_names_every_extra_of_users() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    users = EXTRAS.keys() - {"dev", "docs", "release"}
    assert {name for name in users if f"\n| `'.[{name}]'` | " not in readme} == set()


def test_the_readme_says_how_to_install_while_nothing_is_released() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    released = re.search(r"^## .+\(\d{4}-\d\d-\d\d\)$", (REPOSITORY / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert ("Not yet on a package index" in readme) == (released is None)


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name
)
def test_actions_are_pinned_and_nothing_may_write_by_default(path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    text = path.read_text(encoding="utf-8")
    for action in re.findall(r"uses: (\S+)", text):
        assert action.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert "secrets." not in text


def test_publication_needs_no_token() -> None:
    text = (REPOSITORY / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "id-token: write" in text
    assert "password" not in text


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_an_audit_that_could_look_nothing_up_is_not_clean(tmp_path: Path) -> None:
    """pip-audit passes over what its service does not know, unless it is told not to."""
    program = tmp_path / "bin" / "pip-audit"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ncase " $* " in *" --strict "*) exit 1 ;; esac\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / ".installed").touch()
    done = subprocess.run(["make", "audit", f"RELEASE={tmp_path}"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode != 0
    assert "pypi.org was not reached" in done.stderr
