"""The package as it is installed from the built wheel, far from a checkout: `make test-core` and `make test-wheel`."""

import subprocess
import sys
from pathlib import Path

import pytest

import grounding_rewards

PACKAGE = Path(grounding_rewards.__file__).parent

NEEDS = "needs the package from its wheel: make test-core, make test-wheel"
pytestmark = pytest.mark.skipif(not (PACKAGE / "configs").is_dir(), reason=NEEDS)


def call(folder: Path, *words: str) -> str:
    """What a command prints, called by the installed program in an empty folder."""
    program = Path(sys.executable).with_name("grounding-rewards")
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        *("py.typed", "vocabulary.json", "report/templates/page.html.jinja", "report/page.css"),
        *("report/evaluation_page.js", "configs/demo/grpo.yaml", "configs/study/quick.yaml"),
        *("configs/accelerate/cpu_1.yaml", "configs/lmms_eval/utils.py", "assets/tiny_vlm/model.safetensors"),
    ],
)
def test_files_that_are_no_modules_are_there(name: str) -> None:
    assert (PACKAGE / name).is_file()


def test_nothing_of_the_repository_beside_it_is_installed() -> None:
    installed = {path.name for path in PACKAGE.parent.iterdir()}
    assert not installed & {"configs", "assets", "tests", "scripts", "docs", "benchmarks"}


def test_help_lists_the_commands(tmp_path: Path) -> None:
    shown = call(tmp_path, "--help")
    assert {"demo", "train", "study", "score", "env"} <= set(shown.split())


def test_versions_are_said_without_any_extra(tmp_path: Path) -> None:
    pytest.importorskip("cyclopts", reason="the command line reads its options with it")
    assert f"grounding_rewards  {grounding_rewards.__version__}" in call(tmp_path, "env")


def test_a_study_is_planned_by_the_name_of_its_configuration(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the train extra")
    shown = call(tmp_path, "study", "configs/study/quick.yaml", "--out", "study", "--dry-run")
    assert "runs are to be made" in shown


def test_the_demo_runs_to_its_page(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the train extra")
    call(tmp_path, "demo", "--smoke")
    assert (tmp_path / "runs" / "demo" / "index.html").is_file()
    assert (tmp_path / "runs" / "demo" / "after" / "report.html").is_file()
