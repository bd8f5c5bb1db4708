"""The folder of a study: what is where, and all of it read again, on any machine, without a training.

study.yaml                      the plan as it was resolved, with a fingerprint per run
images.json                     references of the sets that every model is measured on
starts/<start>.json             answers of an initial checkpoint on all sets
results/<start>--<arm>--seed<k>.json   what a run did and answered
runs/, made/, logs/, locks/     trainings, checkpoints that were taught, what programs printed; not needed afterwards
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.common.text_files import read_yaml

#: Of the files in `results/`.
SCHEMA = 1
#: Seeds of an arm at least: the spread between runs cannot be seen in one.
FEWEST_SEEDS = 2

ARM, CONTROL = "arm", "control"

#: What a model answered: by set a text for each image, in the order of the set's images.
Answers = Mapping[str, Sequence[str]]


class Folder:
    """Paths in the folder of a study."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.plan, self.images = self.root / "study.yaml", self.root / "images.json"

    def result(self, run: str) -> Path:
        """What a run did and answered."""
        return self.root / "results" / f"{run}.json"

    def answers_of_start(self, start: str) -> Path:
        """What an initial checkpoint answered."""
        return self.root / "starts" / f"{start}.json"

    def training(self, run: str) -> Path:
        """The training of a run, which is removed when it is measured."""
        return self.root / "runs" / run

    def made(self, start: str) -> Path:
        """The training that made an initial checkpoint."""
        return self.root / "made" / start

    def log(self, name: str) -> Path:
        """What the programs of a run printed."""
        return self.root / "logs" / f"{name}.log"

    def lock(self, name: str) -> Path:
        """Held while a run or an initial checkpoint is at work."""
        return self.root / "locks" / name


class ArmKey(NamedTuple):
    """An arm from one kind of initial checkpoint."""

    start: str
    arm: str


class Measure(NamedTuple):
    """A metric, one of :data:`grounding_rewards.study.rulers.RULERS`, on a set of images."""

    metric: str
    on: str


@dataclass(frozen=True)
class StudyRun:
    """One training.

    Attributes:
        arm: which, from which kind of initial checkpoint.
        start: the checkpoint that it began from.
        seed: of it.
        role: :data:`ARM` or :data:`CONTROL`.
        reward: name, kwargs and weights of the reward; None for a supervised run.
        box_format: in which the model writes boxes; None where the images say.
        compute: what it cost: seconds, steps, completions, tokens.
        curve: metrics of the training log by name, with `step`.
        checkpoints: answers by step; the last is the trained model.
    """

    arm: ArmKey
    start: str
    seed: int
    role: str
    reward: Mapping[str, Any] | None
    box_format: Any
    compute: Mapping[str, float]
    curve: Mapping[str, Sequence[float | None]]
    checkpoints: Mapping[int, Answers]


@dataclass(frozen=True)
class Study:
    """A study with all that its runs left.

    Attributes:
        name: of the study.
        primary: the metrics that decide, declared before the first run, as the next two.
        reference: the arm that the others are compared with, from each kind of initial checkpoint.
        equivalence: differences up to this matter to nobody.
        sets: by name the images, a row each, as rewards take them.
        starts: by kind and name what each initial checkpoint answered; several of a kind, taught with one seed each.
        arms: with their runs by seed, in the order of the plan; those of enough runs.
        missing: what was planned and has no result: runs, and arms of too few.
    """

    name: str
    primary: tuple[Measure, ...]
    reference: str
    equivalence: float
    sets: Mapping[str, tuple[Mapping[str, Any], ...]]
    starts: Mapping[str, Mapping[str, Answers]]
    arms: Mapping[ArmKey, tuple[StudyRun, ...]]
    missing: tuple[str, ...]

    @property
    def box_format(self) -> Any:
        """In which all models write boxes."""
        return next(iter(self.arms.values()))[0].box_format


def read_study(root: str | Path, *, fewest: int = FEWEST_SEEDS) -> Study:
    """Read and check the folder of a study.

    Args:
        root: the folder, with `study.yaml`, `images.json`, `starts/` and `results/`.
        fewest: runs of an arm; others are missing. The intervals of an arm of one run are over patients alone.

    Raises:
        ValueError: a file is missing or of another study, answers do not fit the images, the declared metric's set or
            reference is not there, or no arm has enough runs; names the file and says what to do.

    Example:
        >>> read_study("runs/nowhere")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Expected the folder of a study, with study.yaml, got 'runs/nowhere'...
    """
    folder = Folder(root)
    if not folder.plan.is_file():
        raise ValueError(
            f"Expected the folder of a study, with study.yaml, got {str(root)!r} without it. "
            "Make it with `grounding-rewards study PLAN.yaml`."
        )
    plan = read_yaml(folder.plan)
    declared = plan["declared"]
    # A study of one metric, as earlier releases wrote it.
    of = declared["primary"] if isinstance(declared["primary"], list) else [declared["primary"]]
    primary = tuple(Measure(one["metric"], one["set"]) for one in of)
    sets = {
        name: tuple({**row, "patient_id": row.get("patient_id", row.get("patient"))} for row in rows)
        for name, rows in _json(folder.images)["sets"].items()
    }
    for one in primary:
        if one.on not in sets:
            raise ValueError(
                f"Expected the images of the declared set {one.on!r} in {str(folder.images)!r}, got "
                f"{', '.join(sets) or 'no set'}. Let the study measure its starts again."
            )
    kinds = {name: start.get("kind", name) for name, start in plan["starts"].items()}
    by_arm: dict[ArmKey, list[StudyRun]] = {ArmKey(kinds[one["start"]], one["arm"]): [] for one in plan["arms"]}
    paths = sorted(folder.result("").parent.glob("*.json"))
    for path in paths:
        run = _run(path, sets, plan["name"], kinds)
        by_arm.setdefault(run.arm, []).append(run)
    arms = {key: tuple(sorted(runs, key=lambda run: run.seed)) for key, runs in by_arm.items() if len(runs) >= fewest}
    for kind in {key.start for key in arms} or {"every start"}:
        if ArmKey(kind, declared["reference"]) not in arms:
            raise ValueError(
                f"Expected {fewest} finished runs of the reference arm {declared['reference']!r} from {kind} in "
                f"{str(root)!r}, got fewer. Finish them: the other arms are compared with it, and the spread between "
                "runs cannot be seen in one."
            )
    starts: dict[str, dict[str, Answers]] = {}
    for run in (run for runs in arms.values() for run in runs):
        of_kind = starts.setdefault(run.arm.start, {})
        if run.start not in of_kind:
            path = folder.answers_of_start(run.start)
            of_kind[run.start] = _answers(_json(path), sets, path)
    there = {path.stem for path in paths}
    return Study(
        name=plan["name"],
        primary=primary,
        reference=declared["reference"],
        equivalence=declared.get("equivalence", 0.02),
        sets=sets,
        starts=starts,
        arms=arms,
        missing=(
            *(name for name in plan["runs"] if name not in there),
            *(f"enough runs of {key.arm} from {key.start}" for key in by_arm if key not in arms),
        ),
    )


def _run(path: Path, sets: Mapping[str, Sequence[Any]], study: str, kinds: Mapping[str, str]) -> StudyRun:
    content = _json(path)
    if (content.get("schema"), content.get("study")) != (SCHEMA, study):
        raise ValueError(
            f"Expected a result of the study {study!r} with schema {SCHEMA} in {str(path)!r}, got one of "
            f"{content.get('study')!r} with schema {content.get('schema')!r}. Move it away, and run the study again."
        )
    return StudyRun(
        arm=ArmKey(kinds[content["start"]], content["arm"]),
        start=content["start"],
        seed=content["seed"],
        role=content["role"],
        reward=content["reward"],
        box_format=content["box_format"],
        compute=content["compute"],
        curve=content["curve"],
        checkpoints={one["step"]: _answers(one, sets, path) for one in content["checkpoints"]},
    )


def _answers(content: Mapping[str, Any], sets: Mapping[str, Sequence[Any]], path: Path) -> Answers:
    answers = {name: one["answers"] for name, one in content["sets"].items()}
    for name, images in sets.items():
        if len(answers.get(name, ())) != len(images):
            raise ValueError(
                f"Expected {len(images)} answers for the set {name!r} in {str(path)!r}, got "
                f"{len(answers.get(name, ()))}. It is of other images: remove it and run the study again."
            )
    return answers


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"Expected a file of the study in {str(path)!r}, got none that can be read ({error}). Copy it from where "
            "the study ran, or remove it and run the study again: what is missing is made."
        ) from error
