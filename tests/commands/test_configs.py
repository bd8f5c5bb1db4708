"""`grounding-rewards configs`: what comes with the package, listed and copied."""

from grounding_rewards.cli import main
from tests.conftest import REPOSITORY


def test_every_file_is_listed_with_what_it_is(capsys):
    assert main(["configs"]) == 0
    shown = capsys.readouterr().out
    for path in (REPOSITORY / "configs").rglob("*.yaml"):
        [line] = [one for one in shown.splitlines() if one.startswith(path.relative_to(REPOSITORY).as_posix())]
        assert len(line.split()) >= 2, f"{path} does not begin with what it is"


def test_copies_are_the_files_and_nothing_is_written_over(tmp_path, capsys):
    assert main(["configs", "--out", str(tmp_path)]) == 0
    ours = sorted(path for path in (REPOSITORY / "configs").rglob("*.*") if path.suffix in (".yaml", ".py", ".json"))
    for path in ours:
        copy = tmp_path / path.relative_to(REPOSITORY)
        assert copy.read_bytes() == path.read_bytes()
    assert main(["configs", "--out", str(tmp_path)]) == 2
    assert "nothing is written over" in capsys.readouterr().err
