"""The command line, as a user calls it."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from grounding_rewards.cli import COMMANDS, command_app, main
from tests.conftest import REPOSITORY
from tests.tables import table

LOG = REPOSITORY / "docs" / "examples" / "completions.jsonl"
PAGE = (REPOSITORY / "docs" / "scoring.md").read_text(encoding="utf-8")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize(
    ("command", "output"), re.findall(r"```console\n\$ grounding-rewards (.*)\n((?:.*\n)*?)```", PAGE)
)
def test_the_documentation_shows_what_is_printed(command, output, monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    assert main(command.split()) == 0
    assert lines(capsys.readouterr().out) == lines(output)


def test_the_installed_command_runs(tmp_path):
    command = Path(sys.executable).with_name("grounding-rewards")
    if not command.exists():
        pytest.skip("the package is not installed with its commands")
    run = subprocess.run([command, "inspect", LOG, "--box-format", "qwen2.5-vl"], capture_output=True, text=True)
    assert run.returncode == 0
    assert run.stderr == ""
    assert "Nothing contradicts resized_pixel, order xyxy" in run.stdout


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_without_a_command_there_is_help(words, capsys):
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"grounding-rewards \d+\.\d+\S*\n", capsys.readouterr().out)


def test_an_output_that_nobody_reads_any_more_is_no_error():
    command = [sys.executable, "-m", "grounding_rewards.cli", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as run:
        # Closed before the command has begun to write.
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 0


def test_strict_tells_scripts(capsys):
    assert main(["inspect", str(LOG), "--box-format", "qwen3-vl", "--strict"]) == 1
    assert main(["inspect", str(LOG), "--box-format", "qwen2.5-vl", "--strict"]) == 0


@pytest.mark.parametrize("box_format", table("cases", "a_format_may_be_declared_in_json_or_yaml"))
def test_a_format_may_be_declared_in_json_or_yaml(box_format, capsys):
    pytest.importorskip("yaml")
    assert main(["inspect", str(LOG), "--box-format", box_format, "--strict"]) == 0


@pytest.mark.parametrize(("arguments", "message"), table("commands/refusals", "inspect"))
def test_wrong_arguments_end_with_a_line_and_2(arguments, message, capsys):
    pytest.importorskip("yaml")
    assert main(["inspect", *(word.replace("{log}", str(LOG)) for word in arguments)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_describes_and_shows_examples(name, capsys):
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    command = importlib.import_module(f"grounding_rewards.commands.{name.replace('-', '_')}")
    assert command.__doc__.splitlines()[0] in shown
    assert command.__doc__.partition("examples:")[2].strip() in shown
    assert "``" not in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_legal(name):
    command = importlib.import_module(f"grounding_rewards.commands.{name.replace('-', '_')}")
    app = command_app(name)
    said = command.__doc__.partition("examples:")[2].replace("\\\n", "")
    examples = re.findall(rf"grounding-rewards {name}\b(.*)", said)
    assert examples
    for example in examples:
        app.parse_args(shlex.split(example, comments=True))


def test_yaml_without_its_library_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert main(["inspect", str(LOG), "--box-format", "{syntax: json}"]) == 2
    assert "pip install pyyaml" in capsys.readouterr().err


def test_what_the_terminal_cannot_write_is_spelled_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"text": "肺结节"}', encoding="utf-8")
    call = [sys.executable, "-m", "grounding_rewards.cli", "inspect", str(path), "--box-format", "qwen3-vl"]
    run = subprocess.run(call, capture_output=True, env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(REPOSITORY)})
    assert run.returncode == 0, run.stderr
    assert rb"\u80ba" in run.stdout


@pytest.mark.parametrize(("given", "used"), [(None, "passive"), ("active", "active")])
def test_threads_do_not_spin_unless_the_user_says_so(monkeypatch, given, used):
    """libgomp reads it when torch is loaded, which no command does before."""
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    main(["inspect", "nowhere.jsonl", "--box-format", "qwen3-vl"])
    assert os.environ["OMP_WAIT_POLICY"] == used
