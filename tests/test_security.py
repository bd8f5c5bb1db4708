"""SECURITY.md says which test holds each of its lines: that they exist, and what can be said of all code at once."""

import ast
import re
from pathlib import Path

import pytest

import grounding_rewards
from tests.conftest import REPOSITORY

PACKAGE = Path(grounding_rewards.__file__).parent
PAGE = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
#: Modules and functions that run what they read.
RUNNING = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "eval", "exec", "compile"}
CALLS = [
    (path, node)
    for path in sorted(PACKAGE.rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.Call)
]


def name_of(call: ast.Call) -> str:
    """What is called, such as `torch.load`."""
    return ast.unparse(call.func)


def arguments_of(call: ast.Call) -> dict[str | None, str]:
    return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}


def test_every_line_names_a_test() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "trusted" not in line]
    held = [line for line in lines if line.count("|") == 3 and "held by" not in line]
    assert len(held) > 12
    assert [line for line in held if "`tests/" not in line] == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[\w/]+\.py::[\w:]+)`", PAGE))))
def test_it_exists(name: str) -> None:
    file, *parts = name.split("::")
    body = ast.parse((REPOSITORY / file).read_text(encoding="utf-8")).body
    for part in parts:
        found = [one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == part]
        assert found, f"{name} is named by SECURITY.md"
        body = found[0].body


def test_nothing_is_unpickled() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & RUNNING, path
    for path, call in CALLS:
        assert name_of(call) not in RUNNING, path
        if name_of(call) == "torch.load":
            assert arguments_of(call).get("weights_only") == "True", path
        if name_of(call) in ("np.load", "numpy.load"):
            assert "allow_pickle" not in arguments_of(call), path


def test_yaml_is_read_in_one_place() -> None:
    readers = {path.name for path, call in CALLS if re.fullmatch(r"yaml\.(\w*load\w*|parse|compose)", name_of(call))}
    assert readers == {"text_files.py"}


def test_models_are_loaded_from_safetensors_alone() -> None:
    loader = re.compile(r"(AutoModel\w*|type\(model\))\.from_pretrained")
    loads = [(path, call) for path, call in CALLS if loader.fullmatch(name_of(call))]
    assert len(loads) >= 3
    pickled = [(path, call) for path, call in loads if "use_safetensors" not in arguments_of(call)]
    assert [f"{path.name}: {name_of(call)}" for path, call in pickled] == []


def test_no_code_of_a_model_is_run_unless_its_user_says_so() -> None:
    # passed on from the configuration, whose default is false
    passed_on = {f"{of}trust_remote_code" for of in ("", "config.", "args.", "trainer.args.")}
    left_out = []
    for path, call in CALLS:
        given = arguments_of(call)
        if "trust_remote_code" in given:
            assert given["trust_remote_code"] in {"False", *passed_on}, path
        # Left out, it is None, and transformers asks at the terminal.
        elif re.fullmatch(r"Auto\w+\.from_pretrained", name_of(call)) and "**loading" not in ast.unparse(call):
            left_out.append(f"{path.name}: {ast.unparse(call)}")
    assert left_out == []
    for node in ast.walk(ast.parse((PACKAGE / "training" / "model.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if argument.arg == "trust_remote_code":
                    assert ast.unparse(default) == "False"
