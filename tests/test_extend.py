"""The walks of docs/extend.md, walked: each changes a copy of the package as it says, and then tries what it made."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import grounding_rewards
from grounding_rewards.cli import main
from grounding_rewards.rewards import registry
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "extend.md").read_text(encoding="utf-8")
PACKAGE = Path(grounding_rewards.__file__).parent
MOST_FILES = 2


class Step(NamedTuple):
    """A block of a walk: code and where it goes; below no line means at the end, and no file means to be run."""

    file: str | None
    below: str | None
    code: str


class Walk(NamedTuple):
    title: str
    touches: list[str]
    steps: list[Step]


def walks() -> list[Walk]:
    _, *sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    return [walk(section) for section in sections]


def walk(section: str) -> Walk:
    title = section.partition("\n")[0]
    named = re.search(r"^Touches (.+)\.$", section, flags=re.MULTILINE)
    assert named, f"{title} does not say which files it touches"
    blocks = re.findall(r"^```(?:python|toml)\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    return Walk(title, re.findall(r"`([^`]+)`", named[1]), [step(block) for block in blocks])


def step(block: str) -> Step:
    first, _, code = block.partition("\n")
    if first == "# try it":
        return Step(None, None, code)
    place = re.fullmatch(r"# (\S+?)(?:, below: (.+))?", first)
    assert place, f"{first} says neither a file nor `try it`"
    return Step(place[1], place[2], code)


def apply(one: Step, root: Path) -> None:
    file = root / str(one.file)
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if one.below is None:
        file.write_text(f"{before}\n\n{one.code}" if before else one.code, encoding="utf-8")
        return
    lines = before.splitlines(keepends=True)
    places = [k for k, line in enumerate(lines) if line.strip() == one.below]
    assert len(places) == 1, f"{one.file} has {len(places)} lines `{one.below}`"
    lines.insert(places[0] + 1, one.code)
    file.write_text("".join(lines), encoding="utf-8")


def dotted(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


@pytest.mark.parametrize("one", walks(), ids=lambda one: one.title)
def test_a_walk_touches_the_few_files_that_it_names_and_arrives(one, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    changes = [made for made in one.steps if made.file is not None]
    assert list(dict.fromkeys(made.file for made in changes)) == one.touches
    assert len(one.touches) <= MOST_FILES
    for made in changes:
        apply(made, tmp_path)
    tried = "\n".join(made.code for made in one.steps if made.file is None)
    modules = [dotted(file) for file in one.touches if file.endswith(".py")]
    examples = "".join(f"assert not doctest.testmod(importlib.import_module({name!r})).failed\n" for name in modules)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    call = [sys.executable, "-c", f"import doctest, importlib\n{tried}\n{examples}"]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "assert" in tried


@pytest.fixture
def custom(tmp_path, monkeypatch):
    """The module of the page's own reward, in the working directory of a user."""
    name, code = re.search(r"^```python\n# (\w+)\.py\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL).groups()
    file = tmp_path / f"{name}.py"
    file.write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    sys.modules.pop(name, None)


def test_a_custom_reward_needs_no_change_of_the_package(custom, monkeypatch):
    monkeypatch.setattr(registry, "REGISTRY", {**registry.REGISTRY})
    code = re.search(r"^```python\n(import .*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)[1]
    schedule = re.search(r"^```python\n(warmup.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)[1]
    names: dict[str, Any] = {}
    exec(code + schedule, names)
    # IoU of the matched pair .8, and one box without a partner
    answer = '[{"bbox_2d": [0, 0, 500, 400]}, {"bbox_2d": [800, 800, 900, 900]}]'
    image = {"boxes": [[[0, 0, 50, 50]]], "width": [100], "height": [100]}
    reward = grounding_rewards.get_reward(names["MatchedPairs"], penalty=0.3, box_format="qwen3-vl")
    assert reward([answer], **image) == pytest.approx([0.5])
    for step, penalty in ((0, 0.0), (2, 0.04), (10, 0.1)):
        assert names["reward"]([answer], **image, step=step, max_steps=10) == pytest.approx([0.8 - penalty])


def test_the_audit_sees_how_the_custom_reward_is_gamed_and_that_it_was_mended(custom, monkeypatch, capsys):
    [(command, shown)] = re.findall(
        r"^```console\n\$ grounding-rewards (.*)\n…\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    monkeypatch.delenv("COLUMNS", raising=False)

    def paid() -> set[str]:
        assert main([*command.split(), "--json", "audit.json"]) == 0
        played = json.loads(Path("audit.json").read_text(encoding="utf-8"))["played"]
        return {answer["script"] for answer in played if answer["finding"]}

    paid_before = paid()
    assert "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()).endswith(f"\n{shown}")
    [mended] = re.findall(r"^# in place of the last two lines\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    lines = custom.read_text(encoding="utf-8").splitlines(keepends=True)
    custom.write_text("".join([*lines[:-2], mended]), encoding="utf-8")
    del sys.modules[custom.stem]
    importlib.invalidate_caches()
    assert paid() == paid_before - {"leaves the loose box out"}
    assert len(paid_before) == 4  # "the other three lines stay"
