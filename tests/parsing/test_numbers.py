"""Four tokens to a box, or the name of what is wrong with them."""

import pytest

from grounding_rewards.parsing.numbers import box_or_reason, read_number, split_numbers

CASES = [
    (["1", "2", "3", "4"], [1, 2, 3, 4]),
    # zero-padded, as CogVLM writes; invalid in JSON
    (["086", "007", "000", "999"], [86, 7, 0, 999]),
    # no digit on one side of the point, signs, exponents
    (["-.5", "+5.", "1e2", "2.5E-1"], [-0.5, 5, 100, 0.25]),
    # full-width digits
    (["１", "２", "３", "４"], [1, 2, 3, 4]),
    # inverted and empty boxes are kept as written
    (["9", "9", "1", "1"], [9, 9, 1, 1]),
    (["0", "0", "0", "0"], [0, 0, 0, 0]),
    ([], "wrong_count"),
    (["1", "2"], "point"),
    (["1", "2", "3"], "wrong_count"),
    (["1", "2", "3", "4", "5"], "wrong_count"),
    (["1"] * 8, "quad"),
    (["1"] * 9, "box_3d"),
    (["x1", "y1", "x2", "y2"], "placeholder"),
    (["x_min", "y_min", "xmax", "YMAX"], "placeholder"),
    # a placeholder among numbers: an example in a prompt
    (["x1", "2", "3", "4"], "placeholder"),
    (["NaN", "1", "2", "3"], "not_finite"),
    (["1", "2", "3", "-Infinity"], "not_finite"),
    # over the range of a float
    (["1", "2", "3", "1e400"], "number_too_large"),
    (["1", "2", "3", "9" * 100_000], "number_too_large"),
    (["1", "2", "3", "1e9"], "number_too_large"),
    # Python's own spellings of numbers that no model means as a coordinate
    (["1_000", "1", "2", "3"], "not_a_number"),
    (["0x10", "1", "2", "3"], "not_a_number"),
    (["1", "", "2", "3"], "missing_number"),
    (["left", "lower", "lobe"], "words"),
    (["10%", "1", "2", "3"], "not_a_number"),
    # pixels say so, and corner points stand together
    (["10px", "1px", "2 px", "3"], [10, 1, 2, 3]),
    (["10 1", "2,3"], [10, 1, 2, 3]),
    (["1.2.3", "1", "2", "3"], "not_a_number"),
    (["True", "1", "2", "3"], "not_a_number"),
]


@pytest.mark.parametrize(("tokens", "read"), CASES)
def test_a_box_or_the_reason_for_none(tokens, read):
    assert box_or_reason(tokens) == read


@pytest.mark.parametrize(("token", "value"), [("0.9", 0.9), ("90%", None), ("1e300", None), ("nan", None)])
def test_read_number(token, value):
    assert read_number(token) == value


@pytest.mark.parametrize(
    ("content", "lists"),
    [
        ("1, 2, 3, 4", [["1", "2", "3", "4"]]),
        # a comma left over, an empty place
        ("1,2,3,4,", [["1", "2", "3", "4"]]),
        ("1,,3", [["1", "", "3"]]),
        # quotes, full-width commas
        ("'1', \"2\"，3、4", [["1", "2", "3", "4"]]),
        # several boxes
        ("1,2,3,4;5,6,7,8", [["1", "2", "3", "4"], ["5", "6", "7", "8"]]),
        ("1 2 3 4; 5 6 7 8;", [["1", "2", "3", "4"], ["5", "6", "7", "8"]]),
        # one number each: the semicolon is a comma
        ("1;2;3;4", [["1", "2", "3", "4"]]),
        # corner points, full-width points, remarks
        ("1 2, 3 4", [["1", "2", "3", "4"]]),
        ("１．５，2", [["１.５", "2"]]),
        ("1, 2, // top, left\n3, /* ? */ 4", [["1", "2", "3", "4"]]),
        ("", []),
        (" ; ", []),
    ],
)
def test_split_numbers(content, lists):
    assert split_numbers(content) == lists
