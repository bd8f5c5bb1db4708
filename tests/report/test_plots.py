"""The plot of an evaluation."""

import numpy as np
import pytest

from grounding_rewards.report.plots import iou_plot, write_plots

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
