"""Progress bars appear only in a terminal; warnings of the package are lines for people."""

import re
import warnings

import pytest

from grounding_rewards.cli import main
from grounding_rewards.commands import console
from grounding_rewards.parsing.space_check import SpaceWarning


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_shown_where_somebody_looks(monkeypatch, capsys, terminal):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with console.stage_progress() as on_progress:
        for done in (1, 2):
            on_progress("counting", done, 2)
    assert ("counting" in capsys.readouterr().err) == terminal


def test_warnings_have_no_path_and_no_line_of_code():
    place = ("/a/b.py", 3)
    with console.plain_warnings():
        kinds = {UserWarning: "warning", SpaceWarning: "warning", ResourceWarning: "ResourceWarning"}
        for category, kind in kinds.items():
            assert warnings.formatwarning("low\x1b", category, *place, line="") == f"{kind}: low\\x1b\n"
    assert warnings.formatwarning("low", UserWarning, *place, line="").startswith("/a/b.py:3: ")


def test_old_names_among_libraries_are_not_shown():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with console.plain_warnings():
            warnings.warn_explicit("of a library", FutureWarning, "a.py", 1, module="transformers.modeling_utils")
            warnings.warn_explicit("of a user's reward", FutureWarning, "b.py", 1, module="transformers_of_mine")
            warnings.warn("a fault", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["of a user's reward", "a fault"]


HOSTILE = "\x1b]52;c;cm0gLXJmIH4=\x07mass\x9b2J\r\u202e\ud800 é\nline"
SHOWN = "\\x1b]52;c;cm0gLXJmIH4=\\x07mass\\x9b2J\\r\\u202e\\ud800 é\nline"


def test_what_a_terminal_would_interpret_is_escaped(tmp_path, capsys):
    assert console.printable(HOSTILE) == SHOWN
    assert console.printable(HOSTILE, lines=False) == SHOWN.replace("\n", "\\n")
    console.say(HOSTILE)
    console.say(HOSTILE, stderr=True)
    assert capsys.readouterr() == (SHOWN + "\n", SHOWN + "\n")
    path = tmp_path / "log\x1b[2J.jsonl"
    assert main(["evaluate", "--completions", str(path), "--box-format", "x\x1b[2J", "--out", str(tmp_path / "o")]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [True, False])
def test_tables_and_texts_are_escaped_and_stay_in_line(monkeypatch, capsys, terminal):
    from rich import box
    from rich.table import Table
    from rich.text import Text

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    table = Table("label", "boxes", title="\x1b[2Jtitle", box=box.ASCII)
    table.add_row("ma\x1b[1Ass", "1")
    table.add_row("mass", "2")
    out = console.output_console(100)
    out.print(table)
    out.print(Text("fact \x9b1A", style="bold"))
    out.print("plain \x1b[1A", markup=False)
    printed = capsys.readouterr().out
    for text in ("ma\\x1b[1Ass", "\\x1b[2Jtitle", "fact \\x9b1A", "plain \\x1b"):
        assert text in printed
    assert not re.search("\x1b\\[(1A|2J)|\x9b", printed)
    rows = [line for line in printed.splitlines() if line.startswith(("|", "+"))]
    assert terminal or len({len(row) for row in rows}) == 1
