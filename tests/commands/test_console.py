"""Progress bars appear late, and only in a terminal."""

import pytest

from grounding_rewards.commands.console import late_progress


@pytest.mark.parametrize(
    ("terminal", "patience", "shown"),
    [
        (True, -1.0, True),  # the time is over
        (True, 60.0, False),  # not yet
        (False, -1.0, False),  # a log
    ],
)
def test_it_is_shown_late_and_where_somebody_looks(monkeypatch, capsys, terminal, patience, shown):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with late_progress(patience=patience) as (bar, show):
        bar.add_task("counting", total=2)
        assert not bar.live.is_started
        show()
        show()
        assert bar.live.is_started == shown
    assert not bar.live.is_started
    assert ("counting" in capsys.readouterr().err) == shown


def test_it_ends_with_what_it_counts():
    def break_off():
        with late_progress(patience=-1.0) as (bar, show):
            bars.append(bar)
            show()
            raise KeyError

    bars = []
    with pytest.raises(KeyError):
        break_off()
    assert not bars[0].live.is_started
