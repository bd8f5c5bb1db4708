"""What holds for every text in every format; the tests and the fuzz run check it."""

import math

from grounding_rewards.parsing import REJECT_REASONS, STATUSES, get_box_format, read_boxes
from grounding_rewards.parsing.answer_span import find_answer
from grounding_rewards.parsing.parse import _scan_answer
from grounding_rewards.parsing.results import MAX_BOXES


def check_promises(text, name):
    """What was read, after checking that it is finite and consistent, and that both ways of reading agree."""
    fmt = get_box_format(name)
    raw = read_boxes(text, fmt)
    assert raw == _scan_answer(find_answer(text, fmt.scope), fmt)
    assert len(raw.coords) == 4 * len(raw.labels) == 4 * len(raw.scores)
    assert len(raw.labels) <= MAX_BOXES
    assert all(map(math.isfinite, raw.coords))
    assert raw.status in STATUSES
    assert set(raw.rejected) <= set(REJECT_REASONS)
    assert all(count > 0 for count in raw.rejected.values())
    assert raw.labels or raw.status != "boxes"
    assert raw.status != "empty" or not (raw.labels or raw.rejected)
    assert raw.status != "unparseable" or (raw.rejected and not raw.labels)
    return raw
