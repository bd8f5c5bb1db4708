import numpy as np
import pytest
from scipy.interpolate import CubicHermiteSpline

from grounding_rewards.rewards.f_beta import QUALITIES
from tests.tables import table

GRID = np.linspace(0, 1, 1001)


@pytest.mark.parametrize(("curve", "iou", "credit"), table("rewards/by_hand", "curves"))
def test_golden_values(curve, iou, credit):
    assert float(QUALITIES[curve](iou)) == pytest.approx(credit, abs=1e-15)


def test_spline_equals_scipy():
    expected = CubicHermiteSpline([0, 0.5, 0.8, 1], [0, 0.5, 0.8, 1], [1.5, 1.1, 0.9, 0.5])(GRID)
    np.testing.assert_allclose(QUALITIES["spline"](GRID), expected, atol=1e-15)


@pytest.mark.parametrize("curve", QUALITIES.values())
def test_monotone_and_bounded(curve):
    credit = curve(GRID)
    assert (np.diff(credit) >= 0).all()
    assert ((credit >= 0) & (credit <= 1)).all()
    assert curve(GRID.reshape(7, 11, 13)).shape == (7, 11, 13)
