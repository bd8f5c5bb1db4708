"""The page of an audit: what scripted answers earn, and which are paid too much; its tables for the terminal."""

import math

import numpy as np

from grounding_rewards.audit.run import FINDINGS, Audit, Played
from grounding_rewards.audit.scripted_answers import KINDS
from grounding_rewards.common.formatting import counted, format_value
from grounding_rewards.metrics.intervals import format_interval
from grounding_rewards.report.page import Page, Section
from grounding_rewards.report.tables import Cell, Table, estimate_cell

_KINDS = {
    "honest": ("Honest", "They look, and are as good as their names say. The others are measured by these."),
    "adds": ("Adds something wrong", "Each must earn less than the honest answer without it."),
    "changes": ("Changes the answer", "None must earn more than the honest answer that it was made of."),
    "blind": ("Blind", "They do not look at the image. None must earn more than an honest one."),
    "unread": ("Unread", "They say nothing that can be read, and must earn nothing."),
}


def render_audit_page(audit: Audit, *, dataset: str) -> str:
    """Render the page of an audit.

    Args:
        audit: from :func:`grounding_rewards.audit.run.audit`.
        dataset: name of the images, as a reader knows them.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    sections = [Section("What was found", found_tables(audit) or [["No scripted answer is paid too much."]])]
    if audit.accepted:
        sections.append(Section("Documented weaknesses", [accepted_table(audit)]))
    note = (
        "Mean reward over images with its 95 % interval. Framed, with a !: what was found; with a ~: documented "
        "weaknesses."
    )
    sections.append(Section("What every scripted answer earns", [audit_table(audit)], note))
    return Page(
        title="Can it be gamed?",
        subtitle=f"{audit.images} images of {dataset}, {audit.negatives} without a finding, in {audit.box_format}. "
        "No model took part: the scripted answers are made from the reference boxes, or nothing.",
        verdict=audit_verdict(audit),
        sections=sections,
        footer="What a reward does not punish here may still be found by a model that is trained with it.",
    ).render()


def audit_table(audit: Audit) -> Table:
    """A row for each scripted answer with its mean rewards, in groups by kind.

    In a group those are first that gain most over an honest answer where they should not. `!` marks such a finding,
    `~` a documented weakness.
    """
    rows: list[list[str | Cell]] = []
    results = {(played.reward, played.script): played for played in audit.played}
    largest_gains: dict[str, float] = {}
    for finding in audit.findings:
        # Not `max`: a finding without an honest answer to compare with has a gain of NaN, which `fmax` passes over.
        largest_gains[finding.script] = float(np.fmax(largest_gains.get(finding.script, 0.0), finding.gain))
    for kind in KINDS:
        scripts = [script for script in audit.scripts if script.kind == kind]
        scripts.sort(key=lambda script: largest_gains.get(script.name, 0.0), reverse=True)
        if scripts:
            title, meaning = _KINDS[kind]
            rows.append([Cell(title, meaning)])
        for script in scripts:
            cells = [_reward_cell(results[name, script.name]) for name in audit.rewards]
            rows.append([Cell(script.name, script.idea), *cells])
    return Table(["scripted answer", *audit.rewards], rows)


def _reward_cell(played: Played) -> Cell:
    """The mean reward of a scripted answer, its mark and its colour; beneath it interval and finding."""
    value = played.mean.value
    # One of eleven classes of the style sheet, from 0 to 1: the page's policy allows no colour at a cell itself.
    shade = 0 if math.isnan(value) else round(10 * min(max(value, 0.0), 1.0))
    mark = "!" if played.finding else ""
    if played.accepted:
        # A documented weakness, which is a finding too.
        mark = "~"
    notes = [format_interval(played.mean), played.finding]
    kind = f"shade-{shade} marked" if mark else f"shade-{shade}"
    return Cell(format_value(value) + mark, "\n".join(filter(None, notes)), kind)


def audit_verdict(audit: Audit) -> str:
    """The result in one sentence.

    Example:
        >>> audit_verdict(Audit(("R3",), (), (), 2, 1, "qwen3-vl"))
        'Of 0 scripted answers, none is paid too much by any of 1 reward.'
    """
    # A scripted answer counts once, however many rewards pay it too much.
    overpaid = {played.script for played in audit.faults}
    rewards = counted(len(audit.rewards), "reward")
    if not overpaid:
        return f"Of {len(audit.scripts)} scripted answers, none is paid too much by any of {rewards}."
    return f"Of {len(audit.scripts)} scripted answers, {len(overpaid)} are paid too much by at least one of {rewards}."


def found_tables(audit: Audit) -> list[Table]:
    """The scripted answers that are paid too much, a table for each kind of finding that there is.

    Columns: the reward, the answer, its mean reward, by how much that exceeds an honest answer, and which one.

    Example:
        >>> found_tables(Audit(("R3",), (), (), 2, 1, "qwen3-vl"))
        []
    """
    ideas = {script.name: script.idea for script in audit.scripts}
    header: list[str | Cell] = [
        "reward",
        Cell("scripted answer", kind="words"),
        "earns",
        "gain",
        Cell("against", kind="words"),
    ]
    tables = []
    for finding, meaning in FINDINGS.items():
        rows: list[list[str | Cell]] = []
        for played in audit.faults:
            if played.finding == finding:
                # An answer that has no honest one to compare with has no gain.
                gain = "" if math.isnan(played.gain) else format_value(played.gain, signed=True)
                script = Cell(played.script, ideas[played.script], "words")
                opponent = Cell(played.against, kind="words")
                rows.append([played.reward, script, estimate_cell(played.mean), gain, opponent])
        if rows:
            tables.append(Table(header, rows, f"{finding}: {meaning}"))
    return tables


def accepted_table(audit: Audit) -> Table:
    """Documented weaknesses: a row for each reward and reason, with the scripted answers that it excuses.

    Example:
        >>> accepted_table(Audit(("R3",), (), (), 2, 1, "qwen3-vl")).rows
        []
    """
    scripts_by_reason: dict[tuple[str, str], list[str]] = {}
    for played in audit.accepted:
        scripts_by_reason.setdefault((played.reward, played.accepted), []).append(played.script)
    rows: list[list[str | Cell]] = []
    for (reward, reason), names in scripts_by_reason.items():
        rows.append([reward, Cell(", ".join(names), kind="words"), Cell(reason, kind="words")])
    header: list[str | Cell] = ["reward", Cell("scripted answer", kind="words"), Cell("accepted", kind="words")]
    return Table(header, rows, "Documented weaknesses: listed, and no failure under --strict")
