import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicHermiteSpline

from grounding_rewards.rewards.quality import HermiteSpline, Linear, PiecewiseLinear
from tests.tables import table

CURVES = {"linear": Linear, "spline": HermiteSpline, "piecewise": PiecewiseLinear}
GRID = np.linspace(0, 1, 1001)


@pytest.mark.parametrize(("curve", "iou", "credit"), table("rewards/by_hand", "curves"))
def test_golden_values(curve, iou, credit):
    assert float(CURVES[curve]()(iou)) == pytest.approx(credit, abs=1e-15)


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


@pytest.mark.parametrize(("curve", "knots"), table("rewards/wrong_parameters", "knots"))
def test_a_bad_curve_is_refused(curve, knots):
    with pytest.raises(ValueError, match="Expected"):
        CURVES[curve](knots)


def test_knots_from_yaml_are_lists_and_the_curve_is_still_hashable():
    assert hash(HermiteSpline([[0, 0, 1], [1, 1, 1]])) == hash(HermiteSpline(((0, 0, 1), (1, 1, 1))))
