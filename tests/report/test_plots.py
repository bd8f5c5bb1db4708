"""The plot of an evaluation."""

import numpy as np
import pytest

from grounding_rewards.report.plots import iou_plot, reward_plot, write_plots

pytest.importorskip("matplotlib", reason="needs the train extra")
pytest.importorskip("PIL", reason="needs the train extra")


def test_plots_are_written_reproducibly_as_png_and_pdf(tmp_path) -> None:
    small, again = (iou_plot(np.array([0.0, 0.2, 0.5, 0.8])) for _ in range(2))
    assert small.uri() == again.uri()
    first, second = write_plots([small], tmp_path / "a"), write_plots([again], tmp_path / "b")
    assert [path.name for path in first] == ["ious.png", "ious.pdf"]
    for path, copy in zip(first, second, strict=True):
        assert path.read_bytes()[:5] in (b"\x89PNG\r", b"%PDF-")
        assert path.read_bytes() == copy.read_bytes()


def test_the_reward_stands_beside_that_of_evaluations() -> None:
    steps = [{"step": step, "reward": step / 40, "loss": 0.1} for step in range(1, 21)]
    evaluations = [{"step": step, "eval_reward": step / 50} for step in (10, 20)]
    plot = reward_plot([*steps, {"step": 21, "reward": float("nan")}, *evaluations])
    assert plot is not None
    [axis] = plot.figure.axes
    pale, mean, held_out = (line.get_ydata().tolist() for line in axis.lines)
    assert pale == [step["reward"] for step in steps]
    # Of an even rise, the mean of three is the middle one; at the ends of two.
    assert mean == pytest.approx([1.5 / 40, *pale[1:-1], 19.5 / 40])
    assert held_out == [0.2, 0.4]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["training images", "held-out images"]
    assert reward_plot([{"step": 1, "loss": 0.5}]) is None
