"""Imports point downwards, and the scorer loads without a deep-learning library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import grounding_rewards
from tests.tables import table

PACKAGE = Path(grounding_rewards.__file__).parent

FLOORS = table("layers", "floors")
FLOOR = {room: k for k, rooms in enumerate(FLOORS) for room in rooms}
# What the names of the package are made of: nothing inside asks the package for them.
ROOT = "__init__"
HEAVY = {*table("layers", "heavy")}


def modules() -> list[Path]:
    """All modules; configs/ of a wheel holds what other programs load."""
    return sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "configs")


def dotted(path: Path) -> str:
    """The name under which a file is imported, without the package's."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == ROOT and len(parts) > 1 else parts)


def imports(path: Path) -> set[str]:
    """Every module and every name of the package that a file imports, without the package's name; doctests aside."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    own = {name.partition(".")[2] or ROOT for name in names if name.partition(".")[0] == PACKAGE.name}
    # `from grounding_rewards import x` asks for the package itself, unless x is a room.
    return own - {ROOT} if any(name.partition(".")[0] in FLOOR for name in own) else own


def room_of(module: str) -> str:
    return module.partition(".")[0]


def test_every_room_has_a_floor():
    assert {room_of(dotted(path)) for path in modules()} == {*FLOOR, ROOT}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    room = room_of(dotted(path))
    if room == ROOT:
        return
    for name in imports(path):
        other = room_of(name)
        assert other == room or FLOOR.get(other, len(FLOORS)) < FLOOR[room], f"{room} imports {name}"


def test_pages_are_made_for_commands_and_studies_alone():
    asking = {room_of(dotted(path)) for path in modules() if any(room_of(name) == "report" for name in imports(path))}
    # The package names what a notebook calls, and loads it when it is asked for.
    assert asking - {ROOT} == {"commands", "report", "study"}


def test_no_module_needs_itself():
    graph = {dotted(path): imports(path) for path in modules()}
    cycles = []

    def walk(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            cycles.append(" -> ".join((*path[path.index(module) :], module)))
        elif module not in done:
            for name in sorted(graph[module] & graph.keys()):
                walk(name, (*path, module))
            done.add(module)

    done: set[str] = set()
    for module in graph:
        walk(module, ())
    assert not cycles


def loaded_by(code: str) -> set[str]:
    """Top-level names of all modules that are loaded after running the code in a fresh interpreter."""
    code += ";import sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_the_package_loads_fast():
    # scipy is needed only where two predictions want the same box, and takes longer to load than all the rest
    assert (HEAVY | {"scipy"}).isdisjoint(loaded_by("import grounding_rewards"))


@pytest.mark.parametrize("name", ["compare", "evaluate", "inspect", "show", "signal"])
def test_what_a_notebook_calls_loads_without_its_libraries(name):
    """Plots, tables and images load theirs when they are drawn, made or opened."""
    assert name in dir(grounding_rewards)
    assert HEAVY.isdisjoint(loaded_by(f"import grounding_rewards as gr; gr.{name}"))


def test_the_scorer_loads_without_heavy_libraries():
    code = (
        "import grounding_rewards as gr;"
        "gr.rewards.R5.score([[0, 0, 9, 9], [0, 0, 9, 8]], [[0, 0, 9, 9]]);"
        "gr.get_reward('R4', box_format='qwen3-vl')(['[]'], boxes=[[]], width=[1], height=[1])"
    )
    assert HEAVY.isdisjoint(loaded_by(code))


def test_metrics_load_without_heavy_libraries():
    names = [dotted(path) for path in modules()]
    light = [name for name in names if FLOOR.get(room_of(name), len(FLOORS)) <= FLOOR["audit"]]
    light += [name for name in names if room_of(name) == "integrations"]
    assert {"audit.run", "metrics.evaluation", "rewards.grounding", "parsing.parse"} <= set(light)
    assert HEAVY.isdisjoint(loaded_by(";".join(f"import grounding_rewards.{name}" for name in light)))


def test_the_version_is_the_one_of_the_distribution():
    from importlib.metadata import version

    assert grounding_rewards.__version__ == version("grounding_rewards")
