"""What a study found, in sentences: each is chosen by the numbers that stand in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grounding_rewards.metrics.comparison import format_p
from grounding_rewards.metrics.estimates import counted, format_estimate, format_value
from grounding_rewards.study.findings import (
    LOWERED,
    SCHEDULED,
    THRESHOLDED,
    UNTHRESHOLDED,
    ArmFound,
    Contrast,
    Findings,
)
from grounding_rewards.study.rulers import RULERS
from grounding_rewards.study.statistics import ALPHA, MOST_SEEDS, POWER, Difference

_FAMILIES = {
    THRESHOLDED: "rewards with a threshold of 0.5",
    LOWERED: "rewards with a lower threshold",
    SCHEDULED: "rewards on a schedule",
    UNTHRESHOLDED: "rewards without a threshold",
}

# Rulers that a false box never lowers.
_UNCHARGED = ("mean_iou", "recall_50")
# Missing runs that are named.
_NAMED = 5


def summary(found: Findings) -> list[str]:
    """What a reader must know, a sentence or two each, in the order of a page."""
    sentences = [_asked(found)]
    for start in found.starts:
        sentences += [_gained(found, start), _beside(found, start), _differs(found, start), _open(found, start)]
        sentences += [_controls(found, start), _families(found, start)]
    sentences += [_by_itself(found), _elsewhere(found), _not_there(found)]
    return [sentence for sentence in sentences if sentence]


def detectable(found: Findings) -> str:
    """What these seeds can find, and how that was computed."""
    metric = RULERS[found.primary].heading
    sizes = "; ".join(
        f"{n} seeds: {format_value(found.detectable(n))}" for n in dict.fromkeys((found.seeds, 5, 10, 20)) if n > 1
    )
    spread = format_value(math.sqrt(found.seed_variance))
    return (
        f"Runs of one arm differ in {metric} by a standard deviation of s = {spread}. The smallest true "
        f"difference that is found with {_percent(POWER)} probability: {sizes}. It is (t(1 - α/2) + "
        f"t({POWER:g})) √(2 s²/n + v) with 2n - 2 degrees of freedom. α = {ALPHA:g}/{max(1, found.family)} is the "
        f"strictest level that Holm asks of {counted(found.family, 'comparison')}; v = {found.patient_variance:.2g} is "
        "the variance that comes from the patients, which no number of seeds lowers."
    )


def reward_text(reward: Mapping[str, Any] | None) -> str:
    """A reward with its parameters, on one line; a supervised run has none.

    >>> reward_text({"name": "R3", "kwargs": {"beta": 1}}), reward_text(None)
    ('R3 {"beta": 1}', 'supervised')
    """
    if reward is None:
        return "supervised"
    name, options = reward.get("name"), reward.get("kwargs") or {}
    names = name if isinstance(name, str) else " + ".join(map(str, name or ()))
    return f"{names} {json.dumps(options)}" if options else names


def capital(text: str) -> str:
    """With a capital letter at its beginning.

    Example:
        >>> capital("mean IoU")
        'Mean IoU'
    """
    return text[:1].upper() + text[1:]


def from_start(found: Findings, start: str) -> str:
    """Which start something is said of."""
    return f"from {found.start_name(start)}"


def settled_by(arm: ArmFound) -> str:
    """How many seeds would show the difference seen, in a cell of a table."""
    if arm.against_reference is None:
        return ""
    return f"> {MOST_SEEDS}" if arm.settled_by is None else str(arm.settled_by)


def _asked(found: Findings) -> str:
    study = found.study
    arms, controls = ([arm for arm in found.arms if arm.is_control is kind] for kind in (False, True))
    seeds = sorted({len(arm.seeds) for arm in found.arms})
    each = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    several = f" from {len(found.starts)} starts" if len(found.starts) > 1 else ""
    rows = study.sets[found.on]
    other = [name for name in study.sets if name != found.on]
    beside = f", and beside it on {_listed(other)}" if other else ""
    return (
        f"{counted(len(arms), 'arm')} and {counted(len(controls), 'control')}{several}, {each} each: "
        f"{len(study.runs())} runs. Declared before them: {RULERS[found.primary].heading} on the set {found.on} "
        f"({len(rows)} images of {counted(found.patients[found.on], 'patient')}, none trained on){beside}, each arm "
        f"against {study.declared.reference}, p adjusted by Holm for {counted(found.family, 'comparison')}."
    )


def _gained(found: Findings, start: str) -> str:
    arms = [arm for arm in found.of_start(start) if not arm.is_control]
    better = [arm for arm in arms if _shown(arm.holm_start, _change(found, arm), found) > 0]
    worse = [arm for arm in arms if _shown(arm.holm_start, _change(found, arm), found) < 0]
    at_start = found.starts[start][found.on][found.primary]
    text = f"{capital(from_start(found, start))}, at {RULERS[found.primary].heading} {format_value(at_start.value)}"
    if not better and not worse:
        return f"{text}, no arm is shown to differ from the start."
    clauses = []
    for of_sign, word in ((better, "better"), (worse, "worse")):
        if of_sign:
            best = max(of_sign, key=lambda arm: abs(_change(found, arm).value))
            some = f"{counted(len(of_sign), 'arm')} of {len(arms)} {'is' if len(of_sign) == 1 else 'are'}"
            many = "all arms are" if len(of_sign) == len(arms) > 1 else some
            clauses.append(f"{many} {word} than the start, {best.key.arm} most ({_stated(_change(found, best))})")
    return f"{text}, {' and '.join(clauses)}."


def _beside(found: Findings, start: str) -> str:
    """What happened to false boxes, where the declared metric does not charge them."""
    if found.primary not in _UNCHARGED:
        return ""
    arms = [arm for arm in found.of_start(start) if not arm.is_control]
    clauses = []
    for key in ("hallucination_rate", "f1_50"):
        values = [arm.metrics[found.on][key].value for arm in arms]
        at_start = found.starts[start][found.on][key].value
        if arms and not any(map(math.isnan, [*values, at_start])):
            span = f"{format_value(min(values))} to {format_value(max(values))}"
            clauses.append(f"{RULERS[key].heading} {format_value(at_start)} at the start, {span} after it")
    if not clauses:
        return ""
    text = f"{capital(RULERS[found.primary].heading)} charges no false boxes; beside it {from_start(found, start)}"
    return f"{text}: {'; '.join(clauses)}."


def _differs(found: Findings, start: str) -> str:
    arms = [arm for arm in found.of_start(start) if not arm.is_control and arm.against_reference is not None]
    if not arms:
        return ""
    reference = found.study.declared.reference
    clauses = []
    for sign, word in ((1, "better"), (-1, "worse")):
        shown = [arm for arm in arms if _shown(arm.holm_reference, _against(found, arm), found) == sign]
        shown.sort(key=lambda arm: -abs(_against(found, arm).value))
        if shown:
            named = _listed(
                [f"{arm.key.arm} ({_stated(_against(found, arm))}, {_holm(arm.holm_reference)})" for arm in shown]
            )
            clauses.append(f"{word} than {reference}: {named}")
    if clauses:
        return f"{capital(from_start(found, start))}, {'; '.join(clauses)}."
    largest = max(arms, key=lambda arm: abs(_against(found, arm).value))
    return (
        f"{capital(from_start(found, start))}, no reward differs from {reference} beyond noise. The largest difference "
        f"seen is that of {largest.key.arm}, {_stated(_against(found, largest))}, {_holm(largest.holm_reference)}."
    )


def _open(found: Findings, start: str) -> str:
    arms = [
        arm
        for arm in found.of_start(start)
        if not arm.is_control
        and arm.against_reference is not None
        and not _shown(arm.holm_reference, _against(found, arm), found)
    ]
    if not arms:
        return ""
    within = [f"{arm.key.arm} ({arm.settled_by})" for arm in arms if arm.settled_by is not None]
    beyond = [arm.key.arm for arm in arms if arm.settled_by is None]
    clauses = []
    if within:
        clauses.append(f"so many seeds would show them: {_listed(within)}")
    if beyond:
        clauses.append(
            f"for {_listed(beyond)} {MOST_SEEDS} seeds would not show them: they are as small as the images' own noise"
        )
    return f"Open {from_start(found, start)}, were the differences seen the true ones: {'; '.join(clauses)}."


def _controls(found: Findings, start: str) -> str:
    controls = [arm for arm in found.of_start(start) if arm.is_control]
    if not controls:
        return ""
    gaining = [arm for arm in controls if _shown(arm.holm_start, _change(found, arm), found) > 0]
    every = _listed([f"{arm.key.arm} {format_value(_change(found, arm).value, signed=True)}" for arm in controls])
    text = f"Controls {from_start(found, start)}, change since the start: {every}"
    if gaining:
        return (
            f"{text}. {_listed([arm.key.arm for arm in gaining])} gained too: so much is not owed to a reward on boxes."
        )
    return f"{text}. None of them is shown to gain."


def _families(found: Findings, start: str) -> str:
    contrasts = {one.family: one for one in found.contrasts[start]}
    base = contrasts.pop(THRESHOLDED, None)
    if base is None or not contrasts:
        return ""
    gained = _sign(base.change, found)
    fed = gained > 0
    verb = {1: "do gain", 0: "are not shown to gain", -1: "lose"}[gained]
    text = (
        f"Do thresholds starve {from_start(found, start)}? {_family(base)} "
        f"{verb} ({_stated(base.change)}; {_no_spread(base)})."
    )
    better, gaining = [], []
    for one in contrasts.values():
        assert one.gap is not None
        sign = _sign(one.gap, found)
        word = {1: "do better", -1: "do worse", 0: "are not shown to do otherwise"}[sign]
        text += (
            f" {_family(one)} {word}: {_stated(one.change)} since the start, {_stated(one.gap)} against those with the "
            f"threshold, {format_p(one.gap.p)}; {_no_spread(one)}."
        )
        better += [one] if sign > 0 else []
        gaining += [one] if sign > 0 and _sign(one.change, found) > 0 else []
    others = _listed([_FAMILIES[one.family] for one in gaining])
    if not fed and gaining:
        answer = f"So yes: with that threshold nothing is learned that can be shown, and {others} do teach."
    elif not fed and better:
        answer = "So others do better, though none of them is shown to gain."
    elif not fed:
        answer = "So nothing is shown to be learned under that threshold, nor that other rewards do better."
    elif better:
        answer = "So no, they do not starve, but others teach more."
    else:
        answer = "So no: they do not starve, and nothing shows that other rewards teach more."
    return f"{text} {answer}"


def _by_itself(found: Findings) -> str:
    lines = []
    for start in found.starts:
        arms = [arm for arm in found.of_start(start) if not arm.is_control]
        own = [arm for arm in arms if arm.own_ruler]
        if len(own) < 2:
            continue
        first = [arm for arm in own if _best(arms, arm.own_ruler or "", found.on) is arm]
        lines.append(f"{from_start(found, start)} {len(first)} of {len(own)}")
    untrained = [ruler.key for ruler in RULERS.values() if not ruler.trained]
    if not lines:
        return ""
    agree = []
    for start in found.starts:
        arms = [arm for arm in found.of_start(start) if not arm.is_control]
        best = [_best(arms, key, found.on) for key in untrained]
        names = {arm.key.arm: sum(one is arm for one in best) for arm in arms if any(one is arm for one in best)}
        agree.append(
            f"{from_start(found, start)} "
            + _listed([f"{name} ({count})" for name, count in sorted(names.items(), key=lambda one: -one[1])])
        )
    return (
        f"Arms that are best under the very reward that trained them: {'; '.join(lines)}. By the {len(untrained)} "
        f"rulers that are no reward, the best is {'; '.join(agree)}. Being best here is by the mean alone, and says "
        "nothing of noise."
    )


def _elsewhere(found: Findings) -> str:
    lines = []
    for on in (name for name in found.study.sets if name != found.on):
        for start in found.starts:
            there = format_value(found.starts[start][on][found.primary].value)
            compared = {
                arm.key.arm: arm.against_reference[on][found.primary]
                for arm in found.of_start(start)
                if not arm.is_control and arm.against_reference is not None
            }
            named = [
                f"{name} {format_value(one.value, signed=True)}"
                for name, one in compared.items()
                if one.low > 0 or one.high < 0
            ]
            clause = f"{_listed(named)} by an interval of its own" if named else "none shown"
            lines.append(f"{from_start(found, start)} (at {there} on {on}) {clause}")
    reference = found.study.declared.reference
    return f"Differences from {reference} on images unlike those trained on: {'; '.join(lines)}." if lines else ""


def _not_there(found: Findings) -> str:
    missing, parts = found.study.missing, []
    if missing:
        named = _listed([*missing[:_NAMED], *(["others"] if len(missing) > _NAMED else [])])
        parts.append(f"{counted(len(missing), 'planned run')} without a result: {named}")
    if found.study.alone:
        names = _listed([found.name(key) for key in found.study.alone])
        parts.append(f"too few runs to say anything of {names}")
    return f"Not finished: {'; '.join(parts)}." if parts else ""


def _best(arms: Sequence[ArmFound], ruler: str, on: str) -> ArmFound | None:
    measured = [arm for arm in arms if not math.isnan(arm.metrics[on][ruler].value)]
    return max(measured, key=lambda arm: RULERS[ruler].sign * arm.metrics[on][ruler].value, default=None)


def _shown(p: float, one: Difference, found: Findings) -> int:
    """1 better, -1 worse, 0 not shown."""
    if not p < ALPHA:
        return 0
    return RULERS[found.primary].sign * (1 if one.value > 0 else -1)


def _sign(one: Difference, found: Findings) -> int:
    """1 better, -1 worse by an interval of its own, 0 not shown."""
    return RULERS[found.primary].sign * (int(one.low > 0) - int(one.high < 0))


def _against(found: Findings, arm: ArmFound) -> Difference:
    one = found.primary_difference(arm)
    assert one is not None
    return one


def _change(found: Findings, arm: ArmFound) -> Difference:
    one = found.primary_difference(arm, start=True)
    assert one is not None
    return one


def _stated(one: Difference) -> str:
    return format_estimate(one.estimate, signed=True)


def _holm(p: float) -> str:
    return f"Holm's {format_p(p)}"


def _family(one: Contrast) -> str:
    return f"{capital(_FAMILIES[one.family])} ({_listed([key.arm for key in one.arms])})"


def _no_spread(one: Contrast) -> str:
    if math.isnan(one.no_spread):
        return "the log does not say how many groups had no spread"
    return f"{_percent(one.no_spread)} of their groups had no spread"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _listed(names: Iterable[str]) -> str:
    *first, last = list(names) or [""]
    return f"{', '.join(first)} and {last}" if first else last
