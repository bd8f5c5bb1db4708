"""What a public module offers has no leading underscore and a docstring; packages name it in `__all__`."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

PUBLIC = ("", ".boxes", ".columns", ".matching", ".overlap", ".parsing", ".parsing.space_check", ".rewards")


def defined_names(module) -> set[str]:
    """The names without an underscore that the module's own source defines; imports aside."""
    names: set[str] = set()
    for node in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_says_what_it_is(name):
    module = importlib.import_module(f"grounding_rewards{name}")
    offered = set(getattr(module, "__all__", defined_names(module)))
    assert defined_names(module) <= offered
    for public in offered:
        found = getattr(module, public)
        if inspect.isfunction(found) or inspect.isclass(found):
            assert inspect.getdoc(found), f"{module.__name__}.{public} has no docstring"


def test_a_star_import_takes_nothing_private():
    names: dict[str, object] = {}
    exec("from grounding_rewards import *", names)
    assert {"get_reward", "parse_boxes", "pairwise_iou", "get_box_format", "SpaceWarning"} <= set(names)


def test_the_package_shows_what_it_offers():
    package = importlib.import_module("grounding_rewards")
    assert dir(package) == sorted([*package.__all__, "__version__"])
