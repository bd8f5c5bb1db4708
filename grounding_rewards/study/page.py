"""From what a study found to its page and its plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from grounding_rewards.metrics.curves import Curve
from grounding_rewards.metrics.estimates import format_interval, format_value
from grounding_rewards.report.plots import Plot
from grounding_rewards.report.study_page import GalleryImage, PageTable, Section, StudyPage, Tile
from grounding_rewards.report.study_plots import ForestRow, curves, forest, matrix
from grounding_rewards.study.findings import PROFILE_THRESHOLDS, ArmFound, Band, Findings
from grounding_rewards.study.rulers import RULERS, ModelAnswers, read_model
from grounding_rewards.study.statistics import ALPHA
from grounding_rewards.study.tables import (
    ARMS_HEADER,
    arm_rows,
    arms_note,
    marked,
    matrix_header,
    matrix_note,
    matrix_rows,
    signal_header,
    signal_note,
    signal_rows,
)
from grounding_rewards.study.words import capital, detectable, from_start, summary

if TYPE_CHECKING:
    from PIL.Image import Image

#: Images of the gallery.
GALLERY = 4
_OVER_SEEDS = "mean over seeds, lowest and highest seed"
_TRAINING = {
    "reward": "reward during training",
    "frac_reward_zero_std": "share of groups without spread",
    "entropy": "entropy of the answers",
}


def plots(found: Findings) -> dict[str, Plot]:
    """The plots for which the study has metrics, by name."""
    made = [_forest(found, start=False), _forest(found, start=True), _matrix(found), _learning(found)]
    made += [_training(found, name, title) for name, title in _TRAINING.items()]
    made.append(_profiles(found))
    return {one.name: one for one in made if one is not None}


def study_page(found: Findings, drawn: Mapping[str, Plot], images: Mapping[str, Image]) -> StudyPage:
    """What the page of a study shows.

    Args:
        found: in the study.
        drawn: of :func:`plots`.
        images: of images of the declared set, by id; of those that are there the gallery is made.
    """

    def some(*names: str) -> list[Plot]:
        return [drawn[name] for name in names if name in drawn]

    study = found.study
    sentences = summary(found)
    against = f"Against {study.declared.reference}"
    return StudyPage(
        title=f"Which reward? {study.name}",
        subtitle=sentences[0],
        summary=sentences[1:],
        tiles=_tiles(found),
        sections=[
            Section(against, arms_note(found), some("differences"), [PageTable("", ARMS_HEADER, arm_rows(found))]),
            Section("What these seeds can find", detectable(found)),
            Section(
                "By every ruler",
                matrix_note(found),
                some("matrix"),
                [PageTable(f"On {on}:", matrix_header(), matrix_rows(found, on)) for on in study.sets],
            ),
            Section("Learning", "", some("learning", "changes", "reward", "frac_reward_zero_std", "entropy")),
            Section("Profiles", "", some("profiles")),
            Section("Signal, audit and cost", signal_note(), (), [PageTable("", signal_header(), signal_rows(found))]),
        ],
        gallery=_gallery(found, images),
        facts=_facts(found),
    )


def _tiles(found: Findings) -> list[Tile]:
    ruler = RULERS[found.primary]
    tiles = [Tile("runs", str(len(found.study.runs())), f"{found.seeds} seeds an arm or more")]
    for start, tables in found.starts.items():
        at = tables[found.on][found.primary]
        arms = [arm for arm in found.of_start(start) if not arm.is_control]
        best = max(arms, key=lambda arm: ruler.sign * found.primary_of(arm).value, default=None)
        if best is not None:
            mean = found.primary_of(best)
            value = f"{format_value(at.value)} → {format_value(mean.value)}"
            tiles.append(
                Tile(f"{ruler.heading} {from_start(found, start)}", value, f"{best.key.arm} {format_interval(mean)}")
            )
    note = f"in {ruler.heading}, with {found.seeds} seeds an arm"
    return [*tiles, Tile("smallest difference to be found", format_value(found.detectable(found.seeds)), note)]


def _forest(found: Findings, *, start: bool) -> Plot | None:
    groups = {}
    for name in found.starts:
        rows = []
        for arm in found.of_start(name):
            one = found.primary_difference(arm, start=start)
            if one is not None and not math.isnan(one.value):
                p = arm.holm_start if start else arm.holm_reference
                rows.append(ForestRow(arm.key.arm, one.estimate, arm.is_control, p < ALPHA))
        if rows:
            groups[from_start(found, name)] = rows
    if not groups:
        return None
    metric, what = RULERS[found.primary].heading, "the start" if start else found.study.declared.reference
    note = (
        f"{capital(metric)} on {found.on} less that of {what}, with 95 % intervals over seeds and patients. Blue: "
        f"stays after Holm (p < {ALPHA:g}). Circles: controls."
    )
    name, title = ("changes", "Changes since the start") if start else ("differences", f"Differences from {what}")
    return forest(name, title, note, f"{metric}, difference from {what}", groups)


def _matrix(found: Findings) -> Plot:
    rulers = list(RULERS.values())
    values = np.array([[arm.metrics[found.on][ruler.key].value for ruler in rulers] for arm in found.arms])
    shades = np.array([[_shade(arm, found.on, ruler.key) for ruler in rulers] for arm in found.arms])
    note = (
        f"Means over seeds on {found.on}. Blue: better than {found.study.declared.reference} from the same start, "
        "orange: worse; full colour from four standard errors on. ◦: controls. *: differs by the declared metric after "
        f"Holm. Nobody was trained on {', '.join(found.untrained)}."
    )
    arms = [marked(found.name(arm), arm) for arm in found.arms]
    return matrix("matrix", "Arms by rulers", note, arms, matrix_header()[1:], values, shades)


def _shade(arm: ArmFound, on: str, key: str) -> float:
    """How much better than the reference, in standard errors, four of which are 1."""
    if arm.against_reference is None:
        return math.nan
    one = arm.against_reference[on][key]
    if math.isnan(one.value) or not one.error > 0:
        return math.nan
    return float(np.clip(RULERS[key].sign * one.value / one.error / 4, -1, 1))


def _learning(found: Findings) -> Plot:
    metric = RULERS[found.primary].heading
    note = f"{capital(metric)} on {found.on} at the start and at every checkpoint: {_OVER_SEEDS}."
    panels = {
        from_start(found, start): [_curve(arm.key.arm, arm.learning) for arm in found.of_start(start)]
        for start in found.starts
    }
    return curves("learning", "Learning curves", note, panels, x="step", y=metric)


def _training(found: Findings, name: str, title: str) -> Plot | None:
    panels = {
        from_start(found, start): [
            _curve(arm.key.arm, arm.curves[name]) for arm in found.of_start(start) if name in arm.curves
        ]
        for start in found.starts
    }
    panels = {heading: several for heading, several in panels.items() if several}
    if not panels:
        return None
    own = " Each arm has its own reward: only shapes compare." if name == "reward" else ""
    note = f"{capital(title)}, from the training log: {_OVER_SEEDS}.{own}"
    return curves(name, title, note, panels, x="step", y=title)


def _profiles(found: Findings) -> Plot | None:
    panels = {}
    for start in found.starts:
        several = [
            Curve(arm.key.arm, PROFILE_THRESHOLDS, arm.profile.share, arm.profile.low, arm.profile.high)
            for arm in found.of_start(start)
            if arm.profile is not None
        ]
        if several:
            panels[from_start(found, start)] = several
    if not panels:
        return None
    metric = RULERS[found.primary].heading
    note = f"Share of images, of all runs of an arm, whose {metric} is above τ; bands over seeds and patients."
    return curves("profiles", "Performance profiles", note, panels, x="τ", y="share of images", share=True)


def _curve(name: str, band: Band) -> Curve:
    return Curve(name, band.steps, band.mean, band.low, band.high)


def _gallery(found: Findings, images: Mapping[str, Image]) -> list[GalleryImage]:
    study = found.study
    rows = study.sets[found.on]
    there = [k for k, row in enumerate(rows) if row["id"] in images]
    # With findings and without, in the order of the set.
    sick, normal = ([k for k in there if bool(rows[k]["boxes"]) is kind] for kind in (True, False))
    chosen = sorted([*sick[: GALLERY - 1], *normal[:1]])
    if not chosen:
        return []
    shown = [rows[k] for k in chosen]

    def read(texts: Sequence[str]) -> ModelAnswers:
        return read_model(shown, [texts[k] for k in chosen], study.box_format)

    models: list[tuple[str, ModelAnswers]] = []
    for start, arms in groupby(found.arms, key=lambda arm: arm.key.start):
        models.append((found.start_name(start), read(study.starts[start].answers[found.on])))
        for arm in arms:
            last = study.arms[arm.key][0].checkpoints[-1]
            models.append((found.name(arm), read(last.answers[found.on])))
    return [
        GalleryImage(images[row["id"]], [(name, answers.images[place]) for name, answers in models])
        for place, row in enumerate(shown)
    ]


def _facts(found: Findings) -> list[str]:
    study = found.study
    versions: dict[str, Any] = dict(study.runs()[0].versions)
    minutes = sum(run.compute.get("seconds", 0) for run in study.runs()) / 60
    return [
        f"Declared before the runs: {RULERS[found.primary].heading} on {found.on}, reference "
        f"{study.declared.reference}.",
        "The training run is the unit. Standard errors: between the runs of an arm, and over patients drawn with "
        f"replacement, {found.resamples:,} times, for all models together; what a run does on a patient by chance "
        "counts once. Intervals and p are Student's, with Satterthwaite's degrees of freedom.",
        f"Holm: p adjusted for {found.family} comparisons with the reference; those with the start are a family of "
        "their own. The matrix is not adjusted.",
        f"Trainings took {minutes:,.0f} minutes in all.",
        *(f"{name}: {version}" for name, version in versions.items()),
    ]
