"""Lines on a canvas, against the same formula for one line after the other and all pixels of its window."""

from itertools import pairwise

import numpy as np
import pytest

from grounding_rewards.synthetic.anatomy import Canvas, Line, ramp


def add_line_by_line(canvas: Canvas, target: np.ndarray, lines: list[Line]) -> None:
    for points, width, amount in lines:
        reach = width / 2 + canvas.spacing
        (left, top), (right, bottom) = points.min(axis=0) - reach, points.max(axis=0) + reach + canvas.spacing
        rows, columns = canvas.tissue.shape
        window = tuple(
            slice(*(int(min(max(end / canvas.spacing, 0), most)) for end in ends))
            for ends, most in (((top, bottom), rows), ((left, right), columns))
        )
        distances = []
        for (x1, y1), (x2, y2) in pairwise(points):
            x, y, dx, dy = canvas.x[:, window[1]] - x1, canvas.y[window[0]] - y1, x2 - x1, y2 - y1
            share = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-9), 0.0, 1.0)
            distances.append(np.hypot(x - share * dx, y - share * dy))
        target[window] += amount * ramp(width / 2 - np.min(distances, axis=0), max(canvas.spacing, width / 4))


@pytest.mark.parametrize("spacing", [0.5, 2.0, 9.0])
def test_lines_are_those_of_the_plain_formula_to_the_last_bit(spacing):
    rng = np.random.default_rng(7)
    canvas = Canvas(40, 50, spacing)
    width, height = 50 * spacing, 40 * spacing
    lines = [
        # partly and wholly outside, a point, a line that comes back to where it was, and a wide one
        Line(rng.uniform(-0.3, 1.3, (pieces + 1, 2)) * [width, height], line_width, amount)
        for pieces, line_width, amount in zip(
            rng.integers(1, 14, 60), rng.uniform(0.5, 40.0, 60), rng.normal(size=60), strict=True
        )
    ]
    lines += [
        Line(np.array([[5.0, 5.0], [5.0, 5.0]]), 8.0, 1.0),
        Line(np.array([[2.0, 2.0], [30.0, 9.0], [2.0, 2.0]]), 3.0, -0.5),
        Line(np.array([[-900.0, 3.0], [-800.0, 3.0]]), 3.0, 1.0),
    ]
    expected = rng.normal(size=canvas.tissue.shape)
    canvas.tissue[:] = expected
    add_line_by_line(canvas, expected, lines)
    canvas.add_lines(canvas.tissue, lines)
    assert (canvas.tissue == expected).all()


def test_no_line_changes_nothing():
    canvas = Canvas(4, 4, 1.0)
    canvas.add_lines(canvas.tissue, [])
    assert not canvas.tissue.any()
