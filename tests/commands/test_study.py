"""`grounding-rewards study`: what it refuses and lists without starting anything."""

import pytest
import yaml

from grounding_rewards.cli import main
from tests.study.conftest import SMALL
from tests.tables import table

pytest.importorskip("trl", reason="needs the train extra")
pytestmark = [pytest.mark.training, pytest.mark.usefixtures("in_repository")]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    return path


def test_a_dry_run_starts_nothing(file, tmp_path, capsys):
    assert main(["study", str(file), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "strong--sft--seed1" in shown
    assert "4 of 4 runs are to be made, 24 steps" in shown
    assert main(["study", str(file), "--out", str(tmp_path / "out"), "--seeds", "1", "--only", "sft", "--dry-run"]) == 0
    assert "1 of 1 runs are to be made" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("words", "message"), table("commands/tables", "wrong_arguments_of_a_study"))
def test_wrong_arguments(file, tmp_path, capsys, words, message):
    assert main(["study", str(file), "--out", str(tmp_path / "out"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_wrong_files(tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    assert main(["study", *out]) == 2
    assert "Expected the YAML of a study, got none" in capsys.readouterr().err
    assert main(["study", str(tmp_path / "no.yaml"), *out]) == 2
    assert "no.yaml" in capsys.readouterr().err
    assert main(["study", "--report-only", *out]) == 2
    assert "Expected the folder of a study" in capsys.readouterr().err
