import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline

from grounding_rewards.rewards.quality import HermiteSpline, Linear, PiecewiseLinear

GRID = np.linspace(0, 1, 1001)


@pytest.mark.parametrize(
    ("curve", "iou", "credit"),
    [
        # specification §6.1, the control points
        (HermiteSpline(), 0.0, 0.0),
        (HermiteSpline(), 0.5, 0.5),
        (HermiteSpline(), 0.8, 0.8),
        (HermiteSpline(), 1.0, 1.0),
        # by hand, t = 1/3 on [0.5, 0.8]: 20/27·0.5 + 4/27·0.3·1.1 + 7/27·0.8 − 2/27·0.3·0.9 = 16.38/27
        # (§8.2 says 0.65)
        (HermiteSpline(), 0.6, 16.38 / 27),
        # specification §7.1, the control points
        (PiecewiseLinear(), 0.0, 0.0),
        (PiecewiseLinear(), 0.3, 0.0),
        (PiecewiseLinear(), 0.4, 0.15),
        (PiecewiseLinear(), 0.5, 0.3),
        # by hand: 0.3 + 2 · 0.1 (§8.2 says 0.55)
        (PiecewiseLinear(), 0.6, 0.5),
        (PiecewiseLinear(), 0.7, 0.7),
        (PiecewiseLinear(), 0.8, 0.8),
        (PiecewiseLinear(), 1.0, 1.0),
        (Linear(), 0.37, 0.37),
    ],
)
def test_golden_values(curve, iou, credit):
    assert float(curve(iou)) == pytest.approx(credit, abs=1e-15)


def test_spline_equals_scipy():
    x, y, slope = np.array(HermiteSpline().knots).T
    np.testing.assert_allclose(HermiteSpline()(GRID), CubicHermiteSpline(x, y, slope)(GRID), atol=1e-15)


@pytest.mark.parametrize("curve", [Linear(), HermiteSpline(), PiecewiseLinear()])
def test_monotone_and_bounded(curve):
    credit = curve(GRID)
    assert (np.diff(credit) >= 0).all()
    assert ((credit >= 0) & (credit <= 1)).all()
    assert curve(GRID.reshape(7, 11, 13)).shape == (7, 11, 13)


@given(
    st.lists(st.integers(0, 20), min_size=2, max_size=5, unique=True).map(sorted),
    st.lists(st.integers(0, 20), min_size=5, max_size=5).map(sorted),
    st.lists(st.floats(0, 6), min_size=5, max_size=5),
)
def test_an_accepted_spline_never_falls_and_a_refused_one_does(x, y, slopes):
    x = [(value - x[0]) / (x[-1] - x[0]) for value in x]
    knots = [(a, b / 20, m) for a, b, m in zip(x, y, slopes, strict=False)]
    fine = np.diff(CubicHermiteSpline(*np.array(knots).T)(np.linspace(0, 1, 4001)))
    try:
        curve = HermiteSpline(tuple(knots))
    except ValueError:
        assert fine.min() < 1e-9
    else:
        assert np.diff(curve(GRID)).min() >= -1e-12


@pytest.mark.parametrize(
    ("curve", "knots"),
    [
        (HermiteSpline, ((0, 0, 9), (1, 0.1, 9))),  # overshoots and comes back
        (HermiteSpline, ((0, 0, -1), (1, 1, 1))),  # falls at the start
        (HermiteSpline, ((0, 0, 1), (0.5, 0.8, 0), (1, 0.5, 0))),  # falls between knots
        (HermiteSpline, ((0, 0, 1), (1, 1.2, 1))),  # leaves [0, 1] above
        (HermiteSpline, ((0, -0.1, 1), (1, 1, 1))),  # below
        (HermiteSpline, ((0, 0, 1), (0.9, 1, 1))),  # does not end at 1
        (HermiteSpline, ((0, 0, 1), (0.5, 0.5, 1), (0.5, 0.6, 1), (1, 1, 1))),  # an IoU twice
        (HermiteSpline, ((0, 0, 1),)),  # one knot
        (HermiteSpline, ((0, 0), (1, 1))),  # no slopes
        (HermiteSpline, ((0, 0, float("nan")), (1, 1, 1))),
        (HermiteSpline, "abc"),
        (PiecewiseLinear, ((0, 0), (0.5, 0.6), (1, 0.5))),  # falls
        (PiecewiseLinear, ((0, 0), (1, 1.1))),  # leaves [0, 1]
        (PiecewiseLinear, ((0.2, 0), (1, 1))),  # does not start at 0
    ],
)
def test_a_bad_curve_is_refused(curve, knots):
    with pytest.raises(ValueError, match="Expected"):
        curve(knots)


def test_knots_from_yaml_are_lists_and_the_curve_is_still_hashable():
    assert hash(HermiteSpline([[0, 0, 1], [1, 1, 1]])) == hash(HermiteSpline(((0, 0, 1), (1, 1, 1))))
