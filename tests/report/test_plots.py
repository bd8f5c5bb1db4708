"""Plots of an evaluation."""

import numpy as np
import pytest

from grounding_rewards.metrics.average_precision import Curve
from grounding_rewards.report.plots import Plot, plots_of, write_plots
from tests.report.evaluations import HOSTILE, evaluation

pytest.importorskip("matplotlib", reason="needs the train extra")
pytest.importorskip("PIL", reason="needs the train extra")


NOTHING: dict = dict.fromkeys(("pr_curves", "froc_curves", "per_label", "per_size", "robustness"), ())
NOTHING |= {"systems": {}}


def one(name: str, **change: object) -> Plot:
    return next(plot for plot in plots_of(evaluation(**change)) if plot.name == name)


def test_every_kind_of_metric_has_a_plot() -> None:
    assert [plot.name for plot in plots_of(evaluation())] == ["precision_recall", "froc"]
    assert plots_of(evaluation(**NOTHING)) == []


def test_plots_are_written_reproducibly_as_png_and_pdf(tmp_path) -> None:
    small, again = ([one("froc"), one("precision_recall")] for _ in range(2))
    assert [plot.uri() for plot in small] == [plot.uri() for plot in again]
    first, second = write_plots(small, tmp_path / "a"), write_plots(again, tmp_path / "b")
    assert [path.name for path in first] == [f"{n}.{e}" for n in ("froc", "precision_recall") for e in ("png", "pdf")]
    for path, again in zip(first, second, strict=True):
        assert path.read_bytes()[:5] in (b"\x89PNG\r", b"%PDF-")
        assert path.read_bytes() == again.read_bytes()


def test_names_unfit_for_xml_or_mathematics_are_drawn() -> None:
    names = (HOSTILE, "$\\frac{a$", "\x00\ud800\uffff漢字")
    x = np.linspace(0, 1, 5)
    figure = one("froc", froc_curves=[Curve(name, x, x) for name in names]).figure
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"$\\frac{a$", "���漢字"} < set(shown)
    assert any(word.startswith("</script>") for word in shown)


def test_a_froc_curve_rises_in_steps() -> None:
    curve = Curve("model", np.array([0.2, 0.4, 0.5]), np.array([0.3, 0.6, 0.6]))
    (axis,) = one("froc", froc_curves=[curve]).figure.axes
    (steps,) = axis.lines
    assert steps.get_xydata().tolist() == [[0.2, 0.3], [0.4, 0.3], [0.4, 0.6], [0.5, 0.6], [0.5, 0.6]]
    # no room beyond the next mark: nothing was measured there
    assert axis.get_xlim()[1] < 1.1


def test_precision_is_drawn_up_to_the_recall_that_is_reached() -> None:
    x = np.linspace(0, 1, 5)
    curve = Curve("model", x, np.array([1, 0.8, 0.5, 0, 0]))
    (axis,) = one("precision_recall", pr_curves=[curve]).figure.axes
    (line,) = (line for line in axis.lines if line.get_label() == "model")
    assert line.get_xydata().tolist() == [[0, 1], [0.25, 0.8], [0.5, 0.5]]
    # a model that is never right still has its point
    (axis,) = one("precision_recall", pr_curves=[Curve("model", x, 0 * x)]).figure.axes
    (line,) = (line for line in axis.lines if line.get_label() == "model")
    assert line.get_xydata().tolist() == [[0, 0]]


def test_a_long_curve_keeps_its_ends() -> None:
    x = np.linspace(0, 10, 5000)
    (axis,) = one("froc", froc_curves=[Curve("long", x, x / 10)]).figure.axes
    drawn = axis.lines[0].get_xydata()
    assert len(drawn) <= 400
    assert drawn[-1].tolist() == [10, 1]
    assert drawn[0, 0] == 1 / 16
    assert np.sum(drawn[:, 0] <= 1 / 16) == 1
