"""What scripts earn under rewards, as one HTML file: what was found, and every number."""

from __future__ import annotations

import math

from grounding_rewards.audit.run import FINDINGS, Audit, Played, RewardAtPlace
from grounding_rewards.audit.scripted_answers import KINDS, NEVER_LOOKING
from grounding_rewards.common.formatting import NO_VALUE, counted, format_value
from grounding_rewards.metrics.intervals import format_interval
from grounding_rewards.report.page import Page, Section, Tile
from grounding_rewards.report.tables import Cell, Table, estimate_cell

_KINDS = {
    "honest": ("Honest", "They look, and are as good as their names say. The others are measured by these."),
    "adds": ("With something wrong beside", "Each must earn less than the honest answer without it."),
    "changes": ("Told otherwise", "None must earn more than the honest answer that it was made of."),
    "blind": ("Blind", "They do not look at the image. None must earn more than an honest one."),
    "unread": ("Unread", "They say nothing that can be read, and must earn nothing."),
}


def render_audit_page(done: Audit, *, dataset: str) -> str:
    """Render the page.

    Args:
        done: from :func:`grounding_rewards.audit.run.audit`.
        dataset: what was played on, for a person.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    tiles = []
    for name in done.rewards:
        kinds = [played.finding for played in done.faults if played.reward == name]
        note = ", ".join(dict.fromkeys(kinds)) or "nothing is paid too much"
        tiles.append(Tile(name, str(len(kinds) or "none"), note=note))
    return Page(
        title="Can it be gamed?",
        subtitle=f"{done.images} images of {dataset}, {done.negatives} without a finding, in {done.box_format}. "
        "No model took part: the scripted answers are made from the reference boxes, or nothing.",
        verdict=audit_verdict(done),
        tiles=tiles,
        sections=[
            Section("What was found", found_tables(done) or [["No scripted answer is paid too much."]]),
            *([Section("Documented weaknesses", [accepted_table(done)])] if done.findings != done.faults else []),
            Section(
                "What every scripted answer earns",
                [audit_table(done)],
                "Mean reward over images, its 95 % interval, and the ceiling that the reward states for answers of so "
                "many boxes. Framed, with a !: what was found; with a ~: documented weaknesses.",
            ),
            Section(
                "Never looking, and the place of a finding",
                [looking_table(done)],
                "Never looking: the median box of the label over other patients, on normal images that of the most "
                "frequent label. By place: one box with one error, IoU 81/119, at 81 places of an image; a reward of "
                "overlap alone earns the same everywhere.",
            ),
        ],
        footer="What a reward does not punish here may still be found by a model that is trained with it.",
    ).render()


def audit_table(done: Audit) -> Table:
    """What each script earns under each reward, in groups of scripts.

    `!` marks what was found, `~` documented weaknesses; of the ladder the rungs alone that are paid too much.
    """
    paid = {played.script for played in done.findings}
    rows: list[list[str | Cell]] = []
    for kind in KINDS:
        own = [script for script in done.scripts if script.kind == kind]
        rows += [[Cell(*_KINDS[kind])]] if own else []
        for script in own:
            if script.doubt == "square" and script.name not in paid:
                continue
            played = [done.of(name, script.name) for name in done.rewards]
            rows.append([Cell(script.name, script.idea), *map(_earned, played)])
    return Table(["scripted answer", *done.rewards], rows)


def looking_table(done: Audit) -> Table:
    """What never looking earns, and the least and the most that the same error earns over the image.

    Example:
        >>> looking_table(Audit(("R3",), (), (), 2, 1, "qwen3-vl")).rows
        []
    """
    blind = {one.reward: estimate_cell(one.mean) for one in done.played if one.script == NEVER_LOOKING}
    rows: list[list[str | Cell]] = []
    for name, earned in done.maps.items():
        low, high = earned.ends
        places = [_at(low), _at(high)] if low.reward < high.reward else ["the same everywhere"] * 2
        cells = [Cell(format_value(end.reward), at) for end, at in zip((low, high), places, strict=True)]
        rows.append([name, blind.get(name, NO_VALUE), *(cells if not math.isnan(low.reward) else [NO_VALUE] * 2)])
    return Table(["reward", "never looking", "same error, least", "same error, most"], rows)


def _at(place: RewardAtPlace) -> str:
    return f"{place.x:.0%} from the left, {place.y:.0%} from the top"


def _earned(one: Played) -> Cell:
    value = one.mean.value
    # In steps, because a page may not style by attribute.
    shade = 0 if math.isnan(value) else round(10 * min(max(value, 0.0), 1.0))
    small = [format_interval(one.mean), f"ceiling {format_value(one.ceiling)}", one.finding]
    mark = "!" if one.finding and not one.accepted else "~" if one.accepted else ""
    return Cell(format_value(value) + mark, "\n".join(filter(None, small)), f"shade-{shade}" + " marked" * bool(mark))


def audit_verdict(done: Audit) -> str:
    """The result in one sentence.

    Example:
        >>> audit_verdict(Audit(("R3",), (), (), 2, 1, "qwen3-vl"))
        'Of 0 scripted answers, none is paid too much by any of 1 reward.'
    """
    count = len({played.script for played in done.faults})
    rewards = counted(len(done.rewards), "reward")
    if not count:
        return f"Of {len(done.scripts)} scripted answers, none is paid too much by any of {rewards}."
    return f"Of {len(done.scripts)} scripted answers, {count} are paid too much by at least one of {rewards}."


def found_tables(done: Audit) -> list[Table]:
    """What was found, a table for each kind of finding.

    Example:
        >>> found_tables(Audit(("R3",), (), (), 2, 1, "qwen3-vl"))
        []
    """
    why = {script.name: script.idea for script in done.scripts}
    header: list[str | Cell] = [
        "reward",
        Cell("scripted answer", kind="words"),
        "earns",
        "gain",
        Cell("against", kind="words"),
    ]
    tables = []
    for finding, meaning in FINDINGS.items():
        rows: list[list[str | Cell]] = [
            [
                one.reward,
                Cell(one.script, why[one.script], "words"),
                estimate_cell(one.mean),
                "" if math.isnan(one.gain) else format_value(one.gain, signed=True),
                Cell(one.against, kind="words"),
            ]
            for one in done.faults
            if one.finding == finding
        ]
        tables += [Table(header, rows, f"{finding}: {meaning}")] if rows else []
    return tables


def accepted_table(done: Audit) -> Table:
    """Documented weaknesses, a row for each reward and reason.

    Example:
        >>> accepted_table(Audit(("R3",), (), (), 2, 1, "qwen3-vl")).rows
        []
    """
    scripts: dict[tuple[str, str], list[str]] = {}
    for played in done.findings:
        if played.accepted:
            scripts.setdefault((played.reward, played.accepted), []).append(played.script)
    rows: list[list[str | Cell]] = [
        [reward, Cell(", ".join(names), kind="words"), Cell(reason, kind="words")]
        for (reward, reason), names in scripts.items()
    ]
    header: list[str | Cell] = ["reward", Cell("scripted answer", kind="words"), Cell("accepted", kind="words")]
    return Table(header, rows, "Documented weaknesses: listed, and no failure under --strict")
