"""The section that says where things are says where they are, and no test is left out of `make test`."""

import ast
import re
from pathlib import Path

import grounding_rewards
from tests.conftest import PROPERTIES_OF_THE_CORE, REPOSITORY

PACKAGE = Path(grounding_rewards.__file__).parent


def where_things_are() -> str:
    """The section of CONTRIBUTING.md."""
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return page.partition("\n## Where things are\n")[2].partition("\n## ")[0]


def test_every_place_that_is_named_exists():
    named = set(re.findall(r"`([\w/]+(?:\.(?:py|toml|ini|css)|/))`", where_things_are()))
    assert len(named) > 50
    assert [place for place in sorted(named) if not ((PACKAGE / place).exists() or (REPOSITORY / place).exists())] == []


def test_every_room_says_where_a_new_thing_goes():
    rooms = {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    rooms |= {path.name for path in PACKAGE.glob("[!_]*.py")}
    assert set(re.findall(r"^\| `([\w./]+)` \|", where_things_are(), re.MULTILINE)) == rooms


def test_what_is_left_out_under_coverage_runs_with_the_core_alone():
    """`make test-all` leaves out tests marked `untraced`, which `make test-core` runs."""
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    listed = re.search(r"^CORE_TESTS := (.*?[^\\])\n", makefile, re.MULTILINE | re.DOTALL)[1]
    rooms = listed.replace("\\\n", " ").split()
    marked = [
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        if re.search(r"^\s*@pytest\.mark\.untraced$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert marked
    assert [path for path in [*marked, *PROPERTIES_OF_THE_CORE] if not path.startswith(tuple(rooms))] == []


def test_what_runs_with_the_core_alone_needs_nothing_else():
    """A property that was passed over there would run nowhere."""
    files = [
        path
        for place in map(REPOSITORY.joinpath, PROPERTIES_OF_THE_CORE)
        for path in ([place] if place.suffix else place.rglob("test_*.py"))
    ]
    assert len(files) > 20
    needy = [
        f"{path.name}: {node.name}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        if any(ast.unparse(decorator).startswith("given(") for decorator in node.decorator_list)
        if re.search(r"importorskip|shared_dir|skip\(", ast.unparse(node))
    ]
    assert needy == []


def test_every_benchmark_is_named_where_a_reader_looks_for_speed():
    there = {path.name for path in (REPOSITORY / "benchmarks").glob("bench_*.py")}
    assert set(re.findall(r"\(benchmarks/(bench_\w+\.py)\)", where_things_are())) == there
