"""Write docs/study.md and docs/study_tables.md, with their plots, from the results that are kept; nothing is trained.

    python scripts/docs/write_study.py
    python scripts/docs/write_study.py --add runs/study/placed_lungs        # keep the results of a study there first

Every folder of docs/study/ that has a study.yaml becomes a part of the tables; FIRST is the first screen of the page,
and SEARCHES a paragraph of it. FINDINGS holds the answers of a model to questions about real findings, as
`grounding-rewards evaluate` wrote them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from grounding_rewards.common.atomic_files import changed_settings, write_whole
from grounding_rewards.common.formatting import format_value
from grounding_rewards.metrics.baselines import constant_answer, constant_boxes
from grounding_rewards.metrics.comparison import LEVEL
from grounding_rewards.metrics.image_dependence import image_dependence
from grounding_rewards.metrics.intervals import format_estimate
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.report.tables import csv_text
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.study.analysis import METRICS, NO_SPREAD, REFERENCE, START, ArmResult, StudyResult, analyse
from grounding_rewards.study.plan import GRPO
from grounding_rewards.study.report import ARMS_NOTE, ROWS, arms_tables, plots, sentences
from grounding_rewards.study.results import FEWEST_SEEDS, Folder, Measure, read_json, read_study, write_json
from scripts.docs.page_parts import markdown_of, markdown_table

_PAGE = """\
# Which reward? Studies

{first}

## What to choose

- **R4**, the default: in three small studies (1.2 million parameters, real lungs and drawn images) R2, R3, R5 and
  soft_f1 were within 0.02 mean IoU of it from a good checkpoint.
- **SFT first**, until its validation metric is flat: more of it added 0.08 image dependence to early checkpoints on
  real lungs at random places and 0.03 on drawn images, where R3 and soft_f1 took 0.02 to 0.06.
- **Loose boxes**: soft_f1 raised mean IoU by 0.19 on drawn images and by 0.11 on real lungs, as much SFT on right boxes
  the latter by 0.17.
- Of checkpoints taught with right boxes no reward was shown to raise F1@0.5 or image dependence; on drawn images R1
  with all boxes tied, R2 to R5 and soft_f1 left less image dependence than as much SFT.
- **If few boxes reach IoU 0.5**, run `signal`: a lower `iou_threshold` or soft_f1 leaves fewer groups without spread.
- Nothing ran at 3B.

## Loose boxes

**From boxes that are loose on purpose soft_f1 teaches where they end, on drawn and on real radiographs.** On drawn
images [every run of the demo](tutorial.md#the-demo-over-seeds-and-rewards) shows it. On real ones, both lungs at random
places, the loose checkpoint and what one run each made of it, on 39 held-out patients:

| | mean IoU | F1@0.5 | image dependence |
|---|---|---|---|
| loose checkpoint | 0.483 | 0.629 | 0.233 |
| soft_f1, 200 × 128 answers | +0.107 [+0.079, +0.134] | +0.112 [+0.044, +0.179] | +0.105 [+0.078, +0.132] |
| SFT on right boxes, 1,500 × 16 | +0.170 [+0.126, +0.214] | +0.198 [+0.105, +0.292] | +0.196 [+0.155, +0.238] |

It is the first gain by a reward on real radiographs here, and as much SFT on right boxes gives more: mean IoU 0.064
[0.032, 0.095], F1@0.5 0.087 [0.029, 0.145]. Intervals are over patients. `make demo-real` makes the first two rows:
[commands](training.md#the-demo-and-the-same-on-real-images).

## Real findings

{findings}

## Beside what others report

MedLoc-R1 reports a fixed τ of 0.5 far below raw IoU as the reward, raw IoU below SFT, and SFT below its own schedule
of τ: that SFT teaches a model with much to learn more than a plain reward does is seen here too, a gain by a schedule
is not. MedVision reports that GRPO after SFT raised the IoU of lesions from .298 to .382: here GRPO after SFT on right
boxes was not shown to raise anything, on placed lungs or on drawn images. [What such
rewards pay](published_rewards.md). Sources: Yang et al., [arXiv 2603.28120](https://arxiv.org/abs/2603.28120);
Yao et al., [arXiv 2511.18676](https://arxiv.org/abs/2511.18676).

## How the studies were made

The trainings of a study differ in the reward alone. Initial checkpoint, images, steps and settings are the same. Every
reward is trained several times, beside controls that nobody expects to teach. `grounding-rewards study` does all this
from [one YAML](run_a_study.md). Intervals and p are Student's: the unit is the initial checkpoint, and from a single
one the run. With six checkpoints only differences that are large beside their spread can be shown.

Of placed_lungs, whose plot is above, three things were settled after its first results. The arms beside R3, soft_f1,
R3_low, sft and blank were added, and so was the early kind of checkpoint. Then three more checkpoints of each kind were
taught, and one run of every arm began at each of them. A new checkpoint tells more than a second run from an old one
would: the unit is the checkpoint. Later still the intervals became Student's over checkpoints alone; before they were
over checkpoints and patients.

Of the search, all settings were declared at a learning rate of 5e-4. The first run, soft_f1, fell on the validation
patients, and the others were declared again at 1.5e-4. Other than declared, slow was run twice and sft once.

Of drawn, the arms R1_tied, R2, R4 and R5 were added when the others had run. Then the checkpoints 3 to 5 and the early
kind were added, because three checkpoints did not settle whether rewards lower image dependence.

The results lie in `docs/study/`. A script writes this page and the [tables and plots](study_tables.md) from them:

    python scripts/docs/write_study.py

Another computes them again by other code, which shares nothing with the package but the parser, and names each number
that differs:

    python scripts/recompute_study.py docs/study/drawn

## What this does not show

{limits}

The reference boxes of lungs and placed_lungs that are kept here are by General Blockchain Inc. (Dr. Ayoub El Hajjami,
Dr. Mohamed Soliman; GeneralBlockchain/covid-19-chest-xray-lung-bounding-boxes-dataset on GitHub), those of others
at V7 Labs (v7labs/covid-19-xray-dataset). Both are CC BY 4.0, and were scaled and moved with the images.
"""
_TABLES = """\
# Studies: tables and plots

What was found, and what to make of it: [which reward](study.md). Written by `python scripts/docs/write_study.py`.

{studies}
"""

_LIMITS = (
    "The models have {parameters} parameters. What teaches them need not be what teaches a model a thousand times as "
    "large, whose answers vary otherwise and which has seen more before. The same YAML runs for such a model.",
    "Drawn images are easier than patients: findings have clear edges, each kind looks alike, and nobody disagrees "
    "about the references. Lungs are large, are there on nearly every image and in nearly the same place.",
    "Hyper-parameters other than the reward were not tuned for each arm: learning rate, β of the KL term, and "
    "temperature may suit one reward better than another.",
    "The declared metrics decide; all else is for looking at. What is not shown to differ is not shown to be equal, "
    "unless its interval lies within the margin.",
)
_NIH = (
    "The reference boxes are those of NIH ChestX-ray14, scaled; the NIH Clinical Center provides the data "
    "([download](https://nihcc.app.box.com/v/ChestXray-NIHCC); Wang et al., ChestX-ray8, CVPR 2017)."
)
#: The answers to questions about real findings, each about an image that shows it.
FINDINGS = "nih_findings"
#: The study of the first screen; the same from checkpoints that saw new squares in each epoch; the search from a
#: checkpoint of the first, and its best setting for longer: both have single runs of an arm.
FIRST, ANEW, SEARCHES = "placed_lungs", "placed_anew", ("moonshot", "moonshot_long")
#: The arm of the search that the others are changes of.
USUAL = "slow"
#: By how much an arm had to lie above its checkpoint and above the reference to be run on the test set.
ENOUGH = 0.01
#: The arms of its table, in words that say what they do.
_SHOWN = {
    "sft": "sft: more SFT at the same cost",
    "R3": "R3",
    "soft_f1": "soft_f1",
    "R3_low": "R3_low: R3 at τ 0.3",
    "R1": "R1",
    "blank": "blank: R3 on images of their mean grey",
    "consensus": "consensus: no reference boxes",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=Path, default=Path("docs/study"), help="folder of studies")
    parser.add_argument("--output", type=Path, default=Path("docs/study.md"))
    parser.add_argument("--add", type=Path, help="folder of a study whose results are to be kept")
    parser.add_argument("--arms", nargs="+", help="of it, these arms alone")
    arguments = parser.parse_args()
    if arguments.add is not None:
        keep(arguments.add, arguments.studies / arguments.add.name, arguments.arms)
    folders = sorted(
        (path.parent for path in arguments.studies.glob("*/study.yaml")), key=lambda one: (one.name != FIRST, one.name)
    )
    found = {
        folder.name: analyse(
            read_study(folder, fewest=1 if folder.name in SEARCHES else FEWEST_SEEDS), on_progress=print
        )
        for folder in folders
    }
    parts = [study_part(found[one.name], one, arguments.output.parent) for one in folders]
    first = "\n\n".join(
        [
            first_screen(found[FIRST], arguments.studies / FIRST),
            from_new_squares(found[ANEW]),
            searched(*(found[one] for one in SEARCHES)),
        ]
    )
    limits = "\n".join(f"- {line.format(parameters=parameters())}" for line in _LIMITS)
    write_whole(
        arguments.output,
        _PAGE.format(first=first, findings=real_findings(arguments.studies / FINDINGS), limits=limits),
    )
    tables = arguments.output.with_name(f"{arguments.output.stem}_tables.md")
    write_whole(tables, _TABLES.format(studies="\n\n".join(parts)))


def keep(study: Path, into: Path, arms: Sequence[str] | None) -> None:
    """Copy what a report is made of: last completions to the sets of primary metrics, and the curves that are shown."""
    plan = yaml.safe_load((study / "study.yaml").read_text(encoding="utf-8"))
    source, target = Folder(study), Folder(into)
    results = {name: read_json(path) for name, path in source.results().items()}
    results = {name: result for name, result in results.items() if arms is None or result["arm"] in arms}
    # Settings of arms that were never run are in the YAML of the study.
    keys = {(result["start"], result["arm"]) for result in results.values()}
    plan["arms"] = [arm for arm in plan["arms"] if (arm["start"], arm["arm"]) in keys]
    plan["runs"] = {name: mark for name, mark in plan["runs"].items() if name in results}
    write_whole(target.plan, yaml.safe_dump(plan, sort_keys=False, allow_unicode=True))
    decisive = {primary["set"] for primary in plan["declared"]["primary"]}
    images = read_json(source.images)["sets"]
    kept = {name: rows for name, rows in images.items() if name in decisive}
    write_json(target.images, {"sets": kept, "others": {name: images[name] for name in images if name not in kept}})

    def decisive_sets(checkpoint: dict[str, Any]) -> dict[str, Any]:
        return {**checkpoint, "sets": {name: entry for name, entry in checkpoint["sets"].items() if name in decisive}}

    for name in plan["starts"]:
        if source.start(name).is_file():
            write_json(target.start(name), decisive_sets(read_json(source.start(name))))
    for name, result in results.items():
        curve = {key: result["curve"][key] for key in ("step", "reward", "loss", NO_SPREAD) if key in result["curve"]}
        last = decisive_sets(result["checkpoints"][-1])
        write_json(target.result(name), {**result, "checkpoints": [last], "curve": curve})


def first_screen(found: StudyResult, folder: Path) -> str:
    """One paragraph, one plot, and one table of at most eight rows."""
    others = json.loads((folder / "images.json").read_text(encoding="utf-8"))["others"]["second_reader"]
    study, primary = found.study, found.study.primary
    names = " and ".join(METRICS[one.metric].heading for one in primary)
    checkpoints = " and ".join(f"{len(of)} {kind}" for kind, of in study.starts.items())
    gained = dict.fromkeys(arm.key.arm for arm in found.arms if gains(arm, primary))
    changed = {
        (arm.key.start, arm.key.arm): " and ".join(
            format_value(arm.differences[START][one].value, signed=True) for one in primary
        )
        for arm in found.arms
    }
    readers, constant = ceiling_and_constant(study.sets["test"], others)
    said = (
        f"**To a model that already looks, {' and '.join(gained) or 'no reward'} is shown to add anything.** "
        f"R3 changed {names} of saturated checkpoints by {changed['saturated', 'R3']}. More SFT changed them by "
        f"{changed['saturated', 'sft']}. R3 changed early checkpoints by {changed['early', 'R3']}, and on blank images "
        f"by {changed['early', 'blank']}. More SFT changed them by {changed['early', 'sft']}. This is a pilot "
        f"of {sum(len(arm.seeds) for arm in found.arms)} runs: a model of {parameters()} parameters, real lungs at "
        "random places. It can show only large differences."
    )
    header = ["", *(f"{kind}: {METRICS[one.metric].heading}" for kind in found.starts for one in primary)]
    rows = [["checkpoint", *(format_value(metrics[one].value) for metrics in found.starts.values() for one in primary)]]
    for name, told in _SHOWN.items():
        of_kind = [next((arm for arm in found.of_start(kind) if arm.key.arm == name), None) for kind in found.starts]
        if any(of_kind):
            rows.append([told, *("" if arm is None else change(arm, one) for arm in of_kind for one in primary)])
    note = (
        "First row: F1@0.5, and [image dependence](metrics.md#image-dependence), which is mean IoU less what the same "
        "answers reach on other images. Below it: changes since the checkpoint, with 95 % intervals over checkpoints "
        f"(Student's t). \\*: differs from {study.reference}: interval without 0, p < {LEVEL:g} after "
        f"Holm for {found.family} comparisons.\n\n"
        f"One run of an arm began at each of {checkpoints} checkpoints. Saturated: after all of SFT. Early: SFT "
        "was stopped where F1@0.5 was at most half as high. "
        f"Other readers' boxes on the same images have a mean IoU of {format_value(readers)} with those that are "
        f"learned from. The median boxes of the test images, which never move, have {format_value(constant)}."
    )
    plot = f"![Differences from {study.reference}]({folder.parent.name}/{folder.name}/differences.svg)"
    return "\n\n".join([said, plot, markdown_table(header, rows), note])


def from_new_squares(found: StudyResult) -> str:
    """What the arms changed of checkpoints that had seen new squares in each epoch, in a paragraph."""
    study, primary = found.study, found.study.primary
    ((kind, metrics),) = found.starts.items()
    begun = " and ".join(format_value(metrics[one].value) for one in primary)
    changed = {arm.key.arm: " and ".join(change(arm, one) for one in primary) for arm in found.arms}
    checkpoints = len(study.starts[kind])
    return (
        f"[Checkpoints](study_tables.md#{study.name}) that saw every image at a new size and place in each epoch were "
        "the beginning of a study of their own: "
        f"{checkpoints} with {' and '.join(METRICS[one.metric].heading for one in primary)} of {begun}, "
        f"{len(found.arms[0].seeds) // checkpoints} runs of an arm from each. R3 changed both by {changed['R3']}; "
        f"soft_f1 by {changed['soft_f1']}; R3 on blank images by {changed['blank']}; more SFT by {changed['sft']}."
    )


def searched(found: StudyResult, longer: StudyResult) -> str:
    """What the search for a setting that adds something came to, and its best setting in more steps, in a paragraph."""
    study, primary = found.study, found.study.primary
    (start,) = found.starts
    tried = [arm for arm in found.arms if not arm.is_control]
    (long,) = [arm for arm in longer.arms if not arm.is_control]
    names = " and ".join(METRICS[one.metric].heading for one in primary)

    def enough(arm: ArmResult) -> bool:
        return all(arm.differences[of][one].value >= ENOUGH for of in (START, REFERENCE) for one in primary)

    def reference(of: StudyResult) -> ArmResult:
        return next(arm for arm in of.arms if arm.key.arm == study.reference)

    def steps(of: StudyResult, arm: ArmResult) -> int:
        return max(of.study.arms[arm.key][0].checkpoints)

    def told(arm: ArmResult) -> str:
        return " and ".join(format_estimate(arm.differences[START][one].estimate, signed=True) for one in primary)

    best = max(tried, key=lambda arm: sum(arm.differences[START][one].value for one in primary))
    passed = [arm.key.arm for arm in tried if enough(arm)]
    begun = " and ".join(format_value(found.starts[start][one].value) for one in primary)
    runs, patients = sum(len(arm.seeds) for arm in tried), found.patients[primary[0].on]
    said = (
        f"for a setting of GRPO that adds something tried {len(tried)} settings in {runs} runs: reward, "
        "overlap, temperature, group size, learning rate, KL, and share of images without lungs. All "
        f"began at one {start} checkpoint, with {names} of {begun} on {patients} validation "
        f"patients. {', '.join(passed) or 'None'} ended at least {ENOUGH} above this checkpoint and above more SFT in "
        "both, which was the condition, set before, for a run on the test patients. The best of them, "
        f"{best.key.arm}, changed them by {told(best)} in {steps(found, best)} steps; as much SFT on the same images "
        f"changed them by {told(reference(found))}. In {steps(longer, long)} steps {long.key.arm} changed them by "
        f"{told(long)}, and SFT by {told(reference(longer))}."
    )
    return f"A [search](study_tables.md#{study.name}) " + said.replace("[", "\\[")


def changed_settings_of(folder: Path) -> str:
    """In which settings the arms of a search differ from its usual one, beside the reward."""
    plan = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    settings = {
        one["arm"]: {name: value for name, value in one["settings"].items() if not name.startswith("reward")}
        for one in plan["arms"]
        if one["kind"] == GRPO
    }
    changed = {name: changed_settings(settings.get(USUAL, of), of).values() for name, of in settings.items()}
    said = "; ".join(f"{name}: {', '.join(of)}" for name, of in changed.items() if of)
    beside = f"Beside the reward, arms differ from {USUAL}: {said}. " if said else ""
    return f"{beside}Intervals and p of an arm of one run are of that model, over patients alone."


def gains(arm: ArmResult, primary: Sequence[Measure]) -> bool:
    """Whether a reward is shown to be better than its checkpoint by every primary metric."""
    return not arm.is_control and all(arm.direction(measure, START) > 0 for measure in primary)


def change(arm: ArmResult, measure: Measure) -> str:
    """Since the checkpoint, marked where the arm differs from the reference."""
    found = format_estimate(arm.differences[START][measure].estimate, signed=True).replace("[", "\\[")
    differs = measure in arm.holm.get(REFERENCE, {}) and arm.direction(measure, REFERENCE)
    return f"{found} \\*" if differs else found


def ceiling_and_constant(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Mean IoU of other readers' boxes with those of the rows, and of the rows' own median boxes."""
    test = {row["id"]: row for row in rows}
    readers = [
        pairwise_iou(row["boxes"], test[row["id"].removesuffix("_second")]["boxes"]).max(axis=0) for row in others
    ]
    boxes = constant_boxes(rows)
    never = [
        pairwise_iou(constant_answer(boxes, width=row["width"], height=row["height"])[0], row["boxes"]).max(axis=0)
        for row in rows
        if row["boxes"]
    ]
    return float(np.concatenate(readers).mean()), float(np.concatenate(never).mean())


def real_findings(folder: Path) -> str:
    """Whether the model looked, with the number, and at which findings."""
    rows = [json.loads(line) for line in (folder / "completions.jsonl").read_text(encoding="utf-8").splitlines()]
    reward = get_reward("R3", box_format="qwen2.5-vl")
    answered = read_predictions(rows, [[row["completion"]] for row in rows], reward)
    # The question names the finding: dealt to other findings, answers would differ by the question alone.
    whole = image_dependence(answered, within="labels")
    medians = json.loads((folder / "median_boxes.json").read_text(encoding="utf-8"))
    labels = sorted({row["labels"][0] for row in rows})
    looked_at, never = [], 0.0
    for label in labels:
        own = image_dependence([image for image in answered if image.gt_labels == (label,)], within="labels")
        asked = [row for row in rows if row["labels"] == [label]]
        boxes = np.concatenate([row["boxes"] for row in asked]) / np.tile([asked[0]["width"], asked[0]["height"]], 2)
        never += float(pairwise_iou([medians[label]], boxes).mean()) * len(asked) / len(rows)
        if own.dependence.low > 0:
            looked_at.append(label)
    looks = whole.dependence.low > 0
    verdict = "looks, a little" if looks else "is not shown to look"
    if never > whole.value:
        verdict += ", and is no better than a box that never moves"
    if looked_at:
        which = f"Of single findings that interval is above 0 for {', '.join(looked_at)}."
    else:
        which = "No single finding has such an interval above 0."
    said = (
        f"**On real findings a small model {verdict}.** Asked for one finding of NIH's radiographs, it reaches a mean "
        f"IoU of {format_value(whole.value)}. The same answers dealt to other images with the same finding reach "
        f"{format_value(whole.dealt)}. So the image dependence is {format_estimate(whole.dependence, signed=True)}. "
        f"{which} The median training box of each finding, which never moves, reaches {format_value(never)}."
    )
    note = (
        f"These are {whole.images} questions about {len({row['patient_id'] for row in rows})} patients who were never "
        f"trained on, each for one of {len(labels)} findings; no normal image is asked about. The model has learned "
        "drawn radiographs first; configs/study/nih_findings.yaml says how it is made."
    )
    if not looks:
        note += " The set stays one to transfer to: no study of rewards begins from a model that does not look."
    return "\n\n".join([said, f"{note} {_NIH}"])


def study_part(found: StudyResult, folder: Path, beside: Path) -> str:
    """One study as a part of the page; its plots, and every metric on every set, go into its folder."""
    rows = [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}
        for row in found.rows()
    ]
    write_whole(folder / ROWS, csv_text(rows))
    every = f"Every metric on every set, with intervals: [{ROWS}]({(folder / ROWS).relative_to(beside).as_posix()})."
    said, *others = sentences(found)
    lines = [f"## {found.study.name}", said, "\n".join(f"- {one}" for one in others)]
    lines += [f"### {table.title}\n\n{markdown_of(table)}" for table in arms_tables(found)]
    lines += [ARMS_NOTE, every]
    # Of a kept run the last answers alone are there.
    shown = [
        one for one in plots(found) if one.name not in ("learning", *([NO_SPREAD] if folder.name in SEARCHES else []))
    ]
    for one in shown:
        file = folder / f"{one.name}.svg"
        one.save(file, "svg")
        lines.append(f"![{one.title}]({file.relative_to(beside).as_posix()})\n\n{one.note}")
    if folder.name in SEARCHES:
        lines.append(changed_settings_of(folder))
    settings = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    lines.append(f"Images: {', '.join(map(str, dict.fromkeys(one['dataset'] for one in settings['sets'].values())))}.")
    return "\n\n".join(lines)


def parameters() -> str:
    """How many the tiny model has, in words."""
    from safetensors import safe_open

    count = 0
    for file in sorted((Path(__file__).parents[2] / "assets" / "tiny_vlm").glob("*.safetensors")):
        with safe_open(file, "numpy") as weights:
            count += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return f"{count / 1e6:.1f} million"


if __name__ == "__main__":
    main()
