"""What policies earn under rewards, as one HTML file: what was found, every number, and how the rewards respond."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from grounding_rewards.audit.play import FINDINGS, Audit, Played
from grounding_rewards.audit.policies import KINDS
from grounding_rewards.audit.response import Scorer, response
from grounding_rewards.metrics.estimates import counted, format_interval, format_value
from grounding_rewards.report.render import read_asset, render
from grounding_rewards.report.reward_plots import response_plot

_KINDS = {
    "honest": ("Honest", "They look, and are as good as their names say. The others are measured by these."),
    "adds": ("With something wrong beside", "Each must earn less than the honest answer without it."),
    "changes": ("Told otherwise", "None must earn more than the honest answer that it was made of."),
    "blind": ("Blind", "They do not look at the image. None must earn more than an honest policy."),
    "unread": ("Unread", "They say nothing that can be read, and must earn nothing."),
}


def render_audit_page(done: Audit, rewards: Mapping[str, Scorer], *, dataset: str) -> str:
    """Render the page.

    Args:
        done: from :func:`grounding_rewards.audit.play.audit`.
        rewards: those whose response is drawn, by name.
        dataset: what was played on, for a person.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.
    """
    drawn = response_plot({name: response(reward) for name, reward in rewards.items()}) if rewards else None
    return render(
        "audit.html.jinja",
        style=read_asset("page.css") + read_asset("audit_page.css"),
        script="",
        title="Can it be gamed?",
        verdict=verdict(done),
        about=f"{done.images} images of {dataset}, {done.negatives} without a finding; written in {done.box_format}.",
        tiles=[(name, *_tile(done, name)) for name in done.rewards],
        found=[
            (FINDINGS[finding], finding, [_line(done, one) for one in group]) for finding, group in _by_finding(done)
        ],
        rewards=done.rewards,
        kinds=[
            (*_KINDS[kind], [(policy, [_cell(done.of(name, policy.name)) for name in done.rewards]) for policy in own])
            for kind in KINDS
            if (own := [policy for policy in done.policies if policy.kind == kind])
        ],
        drawn=drawn,
    )


def verdict(done: Audit) -> str:
    """The result in one sentence.

    Example:
        >>> verdict(Audit(("R3",), (), (), 2, 1, "qwen3-vl"))
        'Of 0 policies, none earns what it should not under any of 1 reward.'
    """
    count = len({one.policy for one in done.found})
    rewards = counted(len(done.rewards), "reward")
    if not count:
        return f"Of {len(done.policies)} policies, none earns what it should not under any of {rewards}."
    return f"Of {len(done.policies)} policies, {count} earn what they should not under at least one of {rewards}."


def found_sentences(done: Audit) -> list[str]:
    """What was found, a line for each reward and kind of finding.

    Example:
        >>> found_sentences(Audit(("R3",), (), (), 2, 1, "qwen3-vl"))
        []
    """
    lines = []
    for finding, group in _by_finding(done):
        lines.append(f"{finding}: {FINDINGS[finding]}")
        for reward, own in groupby(group, key=lambda one: one.reward):
            lines.append(f"  {reward}: {'; '.join(_short(one) for one in own)}")
    return lines


def _by_finding(done: Audit) -> Iterator[tuple[str, list[Played]]]:
    for finding in FINDINGS:
        if group := [one for one in done.found if one.finding == finding]:
            yield finding, group


def _short(one: Played) -> str:
    if one.finding == "raises":
        return f"{one.policy} ({one.against})"
    if one.finding == "pays":
        return f"{one.policy} ({format_value(one.gain, signed=True)})"
    if one.finding in ("beats honest", "worse pays"):
        return f"{one.policy} (more than {one.against.removeprefix('honest: ')})"
    return one.policy


def _line(done: Audit, one: Played) -> dict[str, Any]:
    why = next(policy.why for policy in done.policies if policy.name == one.policy)
    gain = "" if one.gain != one.gain else format_value(one.gain, signed=True)
    return {"reward": one.reward, "policy": one.policy, "why": why, "gain": gain, "against": one.against, **_cell(one)}


def _cell(one: Played) -> dict[str, Any]:
    value = one.mean.value
    return {
        "value": format_value(value),
        "interval": format_interval(one.mean),
        "ceiling": format_value(one.ceiling),
        "finding": one.finding,
        # In steps, because a page may not style by attribute.
        "shade": 0 if value != value else round(10 * min(max(value, 0.0), 1.0)),
    }


def _tile(done: Audit, reward: str) -> tuple[str, str]:
    found = [one for one in done.found if one.reward == reward]
    kinds = ", ".join(dict.fromkeys(one.finding for one in found))
    return (f"{len(found)}", kinds) if found else ("none", "nothing earns what it should not")
