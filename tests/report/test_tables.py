"""Tables of metrics, and how the terminal shows them."""

from grounding_rewards.metrics.intervals import Estimate
from grounding_rewards.metrics.robustness import RobustnessPoint
from grounding_rewards.report.tables import Cell, metrics_table, robustness_table

NAN = float("nan")
ROWS = {
    "[red]": {"iou": (0.5, 0.4, 0.6), "label": (NAN, NAN, NAN)},
    "after − before": {"iou": (-0.02, -0.05, 0.01), "label": (NAN, NAN, NAN)},
}
TABLE = metrics_table(ROWS, {"iou": "mean <IoU>", "label": "right label"}, "run")


def test_unmeasured_columns_are_left_out_and_intervals_stand_beneath() -> None:
    assert TABLE.header == ["run", "mean <IoU>"]
    assert TABLE.rows[0][1] == Cell("0.500", "[0.400, 0.600]")
    assert TABLE.rows[1][1] == Cell("-0.020", "[-0.050, 0.010]")


def test_the_table_of_robustness_has_the_unchanged_image_once() -> None:
    share = Estimate(0.5, 0.4, 0.6)
    points = [RobustnessPoint("corruptions", n, s, share, share, share) for n in ("noise", "blur") for s in (0, 1)]
    rows = robustness_table(points).rows
    assert [row[0] for row in rows] == ["the image as it is", "noise, strength 1", "blur, strength 1"]


def test_a_narrow_terminal_shows_the_first_columns() -> None:
    narrow = TABLE.first_columns(1)
    assert (narrow.header, narrow.rows) == (["run"], [row[:1] for row in TABLE.rows])
