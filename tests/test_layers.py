"""Imports point downwards, and the scorer loads without a deep-learning library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import grounding_rewards

PACKAGE = Path(grounding_rewards.__file__).parent

# From the bottom up; a room may import from rooms of lower rank.
RANK = {
    "boxes": 0,
    "overlap": 1,
    "quality": 2,
    "matching": 2,
    "labels": 2,
    "parsing": 3,
    "rewards": 3,
    "audit": 4,
    "dataset_columns": 5,
    "scoring": 6,
    "data": 7,
    "report": 8,
    "exchange": 8,
    "models": 8,
    "training": 9,
    "evaluation": 10,
    "commands": 11,
    "cli": 12,
}
# R1 … R5 read text, so that `grounding_rewards.rewards.R4` is ready for TRL: its class is one layer up.
EXCEPTIONS = {("rewards/__init__.py", "scoring")}
HEAVY = {
    "torch",
    "transformers",
    "trl",
    "datasets",
    "accelerate",
    "peft",
    "PIL",
    "matplotlib",
    "rich",
    "yaml",
    "pandas",
}


def imports(path: Path, package_only: bool = True) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name for name in names if name.startswith("grounding_rewards.")} if package_only else names


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE or path.stem != "__init__"],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_imports_point_downwards(path):
    relative = path.relative_to(PACKAGE)
    room = relative.parts[0].removesuffix(".py")
    for name in imports(path):
        other = name.split(".")[1]
        if other == room or (relative.as_posix(), other) in EXCEPTIONS or other not in RANK:
            continue
        assert RANK[other] < RANK[room], f"{relative} imports {name}"


def loaded_by(code: str) -> set[str]:
    """Top-level names of all modules that are loaded after running the code in a fresh interpreter."""
    code += ";import sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_the_package_loads_fast():
    # scipy is needed only where two predictions want the same box, and takes longer to load than all the rest
    assert (HEAVY | {"scipy"}).isdisjoint(loaded_by("import grounding_rewards"))


def test_the_scorer_loads_without_heavy_libraries():
    code = (
        "import grounding_rewards as gr;"
        "gr.rewards.R5.score([[0, 0, 9, 9], [0, 0, 9, 8]], [[0, 0, 9, 9]]);"
        "gr.get_reward('R4', box_format='qwen3-vl')(['[]'], boxes=[[]], width=[1], height=[1])"
    )
    assert HEAVY.isdisjoint(loaded_by(code))


def test_the_version_is_the_one_of_the_distribution():
    from importlib.metadata import version

    assert grounding_rewards.__version__ == version("grounding_rewards")
