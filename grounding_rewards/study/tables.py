"""The tables of a study's report, as cells of text."""

from __future__ import annotations

import math

from grounding_rewards.metrics.comparison import p_cell
from grounding_rewards.metrics.estimates import NOTHING, format_estimate, format_value
from grounding_rewards.study.audited import IMAGES
from grounding_rewards.study.findings import ArmFound, Findings
from grounding_rewards.study.rulers import RULERS
from grounding_rewards.study.statistics import ALPHA, Difference
from grounding_rewards.study.words import capital, reward_text, settled_by

# Policies that a cell names.
_NAMED = 3

#: Of the table of arms.
ARMS_HEADER = (
    "arm",
    "metric",
    "middle half",
    "against the reference",
    "p",
    "Holm",
    "wins",
    "since the start",
    "Holm",
    "seeds",
    "to settle",
)


def arm_rows(found: Findings) -> list[list[str]]:
    """Start and arms by the declared metric, a line each, under :data:`ARMS_HEADER`."""
    rows = []
    for start, tables in found.starts.items():
        rows.append([found.start_name(start), format_estimate(tables[found.on][found.primary]), *[""] * 9])
        rows += [_arm_row(found, arm) for arm in found.of_start(start)]
    return rows


def _arm_row(found: Findings, arm: ArmFound) -> list[str]:
    against, change = found.primary_difference(arm), found.primary_difference(arm, start=True)
    return [
        marked(arm.key.arm, arm),
        format_estimate(found.primary_of(arm)),
        format_value(arm.interquartile.value),
        _signed(against) if against else "reference",
        p_cell(against.p) if against else "",
        p_cell(arm.holm_reference) if against else "",
        format_estimate(arm.improvement) if arm.improvement else "",
        _signed(change),
        p_cell(arm.holm_start),
        str(len(arm.seeds)),
        settled_by(arm),
    ]


def arms_note(found: Findings) -> str:
    """What the columns of the table of arms are."""
    return (
        f"{capital(RULERS[found.primary].heading)} on {found.on}, mean over seeds; 95 % intervals over seeds and "
        "patients. Middle half: interquartile mean over seeds. Wins: probability that a run is better than one of the "
        "reference. To settle: seeds an arm that would show the difference seen, were it the true one. Controls are "
        f"marked ◦, differences from the reference that stay after Holm (p < {ALPHA:g}) *."
    )


def matrix_header() -> list[str]:
    """Names of the rulers; those that nobody trained on have no mark."""
    return ["arm", *(ruler.heading + (" ↓" if ruler.lower_is_better else "") for ruler in RULERS.values())]


def matrix_rows(found: Findings, on: str | None = None) -> list[list[str]]:
    """Means of starts and arms by every ruler, a line each."""
    where = found.on if on is None else on
    rows = []
    for start, tables in found.starts.items():
        rows.append([found.start_name(start), *(format_value(tables[where][key].value) for key in RULERS)])
        for arm in found.of_start(start):
            rows.append([marked(arm.key.arm, arm), *(_matrix_cell(arm, where, key) for key in RULERS)])
    return rows


def matrix_note(found: Findings) -> str:
    """What marks mean in the matrix."""
    return (
        f"Means over seeds. Nobody was trained on {', '.join(found.untrained)}. (): the reward that trained the arm, "
        "with its default parameters. +, -: higher or lower than the reference by an interval of its own, not adjusted "
        "for how many there are."
    )


def _matrix_cell(arm: ArmFound, on: str, key: str) -> str:
    value = format_value(arm.metrics[on][key].value)
    own = f"({value})" if arm.own_ruler == key else value
    if arm.against_reference is None:
        return own
    against = arm.against_reference[on][key]
    return own + (" +" if against.low > 0 else " -" if against.high < 0 else "")


def signal_header() -> list[str]:
    """Of the table of signal, audit and cost."""
    shares = ["groups without spread", "in the first quarter"]
    return ["arm", "reward", *shares, "flagged by the audit", "minutes a run", "steps", "completions", "tokens"]


def signal_rows(found: Findings) -> list[list[str]]:
    """What each arm's reward was, how much it said, what an audit flags, and what its runs cost."""
    return [
        [
            marked(found.name(arm), arm),
            reward_text(arm.reward),
            *(NOTHING if math.isnan(share) else f"{100 * share:.0f} %" for share in arm.signal),
            _flagged(found, arm),
            f"{arm.compute.get('seconds', math.nan) / 60:.1f}",
            *(f"{arm.compute.get(name, 0):,.0f}" for name in ("steps", "completions", "tokens")),
        ]
        for arm in found.arms
    ]


def _flagged(found: Findings, arm: ArmFound) -> str:
    if arm.key not in found.audited:
        return NOTHING
    flagged = found.audited[arm.key]
    named = ", ".join(one.policy for one in flagged[:_NAMED])
    return str(len(flagged)) + (f": {named}" if named else "") + (", …" if len(flagged) > _NAMED else "")


def signal_note() -> str:
    """What the table of signal, audit and cost shows."""
    return (
        "A group without spread, all completions of an image earning alike, teaches nothing. Flagged: policies "
        "that the "
        f"reward pays although it should not, on the first {IMAGES} images, an honest one that earns more than "
        f"a better "
        "one among them; scheduled parameters as they are at the end; the command `audit` says more. Times and counts "
        "are means over the runs of an arm."
    )


def marked(name: str, arm: ArmFound) -> str:
    """The name of an arm with its marks: of controls, and of differences that stay after Holm."""
    return name + (" ◦" if arm.is_control else "") + (" *" if arm.holm_reference < ALPHA else "")


def arms_title(found: Findings) -> str:
    """What the table of arms shows."""
    return f"{RULERS[found.primary].heading} on {found.on}"


def _signed(one: Difference | None) -> str:
    return "" if one is None else format_estimate(one.estimate, signed=True)
