"""The folder of a study as its runs left it: references, answers of starts and checkpoints, curves, compute.

Nothing here knows how runs are made: the metrics of a study can be computed again on any machine from these files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.common.texts import read_yaml

#: Of the files in `results/`.
SCHEMA = 1
#: Seeds of an arm at least: the spread between runs cannot be seen in one.
FEWEST_SEEDS = 2

ARM, CONTROL = "arm", "control"


class ArmKey(NamedTuple):
    """An arm from one kind of start."""

    start: str
    arm: str


class Primary(NamedTuple):
    """A metric that decides, one of :data:`grounding_rewards.study.rulers.RULERS`, and the set it is measured on."""

    metric: str
    on: str


@dataclass(frozen=True)
class Declared:
    """What was settled before the first run.

    Attributes:
        primary: the metrics that decide.
        reference: the arm that the others are compared with, at each start.
        equivalence: differences up to this matter to nobody.
    """

    primary: tuple[Primary, ...]
    reference: str
    equivalence: float


@dataclass(frozen=True)
class Checkpoint:
    """What a model answered.

    Attributes:
        step: of training.
        answers: by set a text for each image, in the order of the set's images.
    """

    step: int
    answers: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class StudyRun:
    """One training.

    Attributes:
        arm: which, from which kind of start.
        start: the checkpoint that it began from.
        seed: of it.
        role: :data:`ARM` or :data:`CONTROL`.
        reward: name, kwargs and weights of the reward; None for a supervised run.
        box_format: in which the model writes boxes; None where the images say.
        compute: what it cost: seconds, steps, completions, tokens.
        curve: metrics of the training log by name, with `step`.
        checkpoints: by step; the last is the trained model.
    """

    arm: ArmKey
    start: str
    seed: int
    role: str
    reward: Mapping[str, Any] | None
    box_format: Any
    compute: Mapping[str, float]
    curve: Mapping[str, Sequence[float | None]]
    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True)
class Study:
    """A study with all that its runs left.

    Attributes:
        name: of the study.
        declared: before the runs.
        sets: by name the images, a row each, as rewards take them.
        starts: by kind and name what each start answered, at step 0; several of a kind where each seed has its own.
        arms: with their runs by seed, in the order of the plan.
        missing: names of runs that were planned and have no result.
        alone: arms of fewer than two runs, of which nothing is said.
        plan: the resolved YAML.
    """

    name: str
    declared: Declared
    sets: Mapping[str, tuple[Mapping[str, Any], ...]]
    starts: Mapping[str, Mapping[str, Checkpoint]]
    arms: Mapping[ArmKey, tuple[StudyRun, ...]]
    missing: tuple[str, ...]
    alone: tuple[ArmKey, ...]
    plan: Mapping[str, Any]

    def role(self, arm: ArmKey) -> str:
        """Whether an arm is compared for itself, or is a control."""
        return self.arms[arm][0].role

    def runs(self) -> list[StudyRun]:
        """All runs, arm by arm."""
        return [run for runs in self.arms.values() for run in runs]

    @property
    def box_format(self) -> Any:
        """In which all models write boxes."""
        return self.runs()[0].box_format


def read_study(folder: str | Path) -> Study:
    """Read and check the folder of a study.

    Args:
        folder: with `study.yaml`, `images.json`, `starts/` and `results/`.

    Raises:
        ValueError: a file is missing or of another kind, answers do not fit the images, the declared metric's set or
            reference is not there, or no arm has two seeds; names the file and says what to do.

    Example:
        >>> read_study("runs/nowhere")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Expected the folder of a study, with study.yaml, got 'runs/nowhere'...
    """
    root = Path(folder)
    if not (root / "study.yaml").is_file():
        raise ValueError(
            f"Expected the folder of a study, with study.yaml, got {str(root)!r} without it. "
            "Make it with `grounding-rewards study PLAN.yaml`."
        )
    plan = read_yaml(root / "study.yaml")
    declared = _declared(plan, root / "study.yaml")
    images = _json(root / "images.json", "the references of the sets")
    sets = {name: tuple(map(_row, rows)) for name, rows in images.get("sets", {}).items()}
    if lacking := [one.on for one in declared.primary if one.on not in sets]:
        raise ValueError(
            f"Expected the images of the declared set {lacking[0]!r} in {str(root / 'images.json')!r}, got "
            f"{', '.join(sets) or 'no set'}. Let the study measure its starts again."
        )
    kinds = {name: one.get("kind", name) for name, one in plan.get("starts", {}).items()}
    runs = [_run(path, sets, plan["name"], kinds) for path in sorted((root / "results").glob("*.json"))]
    if not runs:
        raise ValueError(
            f"Expected a result for every run in {str(root / 'results')!r}, got none. "
            "Let `grounding-rewards study` finish some runs first."
        )
    by_arm: dict[ArmKey, list[StudyRun]] = {key: [] for key in _arms_of(plan, kinds)}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    arms = {
        key: tuple(sorted(of_arm, key=lambda run: run.seed))
        for key, of_arm in by_arm.items()
        if len(of_arm) >= FEWEST_SEEDS
    }
    if not arms:
        raise ValueError(
            f"Expected at least {FEWEST_SEEDS} seeds of an arm in {str(root / 'results')!r}, got one of each: the "
            "spread between runs, by which rewards are compared, cannot be seen in one. Run further seeds; 5 are usual."
        )
    starts: dict[str, dict[str, Checkpoint]] = {}
    for of_arm in arms.values():
        for run in of_arm:
            of_kind = starts.setdefault(run.arm.start, {})
            if run.start not in of_kind:
                of_kind[run.start] = _start(root / "starts" / f"{run.start}.json", sets)
    lacking = [kind for kind in starts if ArmKey(kind, declared.reference) not in arms]
    if lacking:
        raise ValueError(
            f"Expected {FEWEST_SEEDS} finished runs of the reference arm {declared.reference!r} from every start, got "
            f"fewer from {', '.join(lacking)}. Finish them: the other arms are compared with it."
        )
    there = {path.stem for path in (root / "results").glob("*.json")}
    return Study(
        name=str(plan["name"]),
        declared=declared,
        sets=sets,
        starts=starts,
        arms=arms,
        missing=tuple(name for name in plan.get("runs", ()) if name not in there),
        alone=tuple(key for key, of_arm in by_arm.items() if len(of_arm) < FEWEST_SEEDS),
        plan=plan,
    )


def _declared(plan: Any, path: Path) -> Declared:
    try:
        plan["name"]
        declared = plan["declared"]
        primary = declared["primary"]
        primary = [primary] if isinstance(primary, Mapping) else primary
        return Declared(
            tuple(Primary(str(one["metric"]), str(one["set"])) for one in primary),
            str(declared["reference"]),
            float(declared.get("equivalence", 0.02)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"Expected name and declared, with primary: {{metric, set}} and reference, in {str(path)!r}, got none "
            f"({type(error).__name__}: {error}). It is written by `grounding-rewards study`; take its own."
        ) from error


def _arms_of(plan: Mapping[str, Any], kinds: Mapping[str, str]) -> list[ArmKey]:
    return [ArmKey(kinds.get(one["start"], one["start"]), str(one["arm"])) for one in plan.get("arms", ())]


def _json(path: Path, what: str) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(
            f"Expected {what} in {str(path)!r}, got no such file. Copy it from where the study ran, or run it again."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"Expected {what} as JSON in {str(path)!r}, got {error}. Remove the file and run the study again: it "
            "makes what is missing."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"Expected an object in {str(path)!r}, got {type(content).__name__}. Remove it and run again.")
    return content


def _row(image: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**image, "patient_id": image.get("patient_id", image.get("patient"))}


def _run(path: Path, sets: Mapping[str, Sequence[Any]], study: str, kinds: Mapping[str, str]) -> StudyRun:
    content = _json(path, "the result of a run")
    if content.get("schema") != SCHEMA:
        raise ValueError(
            f"Expected schema {SCHEMA} in {str(path)!r}, got {content.get('schema')!r}: another release wrote it. "
            "Report with that release, or run it again."
        )
    if content.get("study") != study:
        raise ValueError(
            f"Expected results of the study {study!r}, got one of {content.get('study')!r} in {str(path)!r}. "
            "Move it into the folder of its own study."
        )
    try:
        checkpoints = tuple(_checkpoint(one, sets, path) for one in content["checkpoints"])
        run = StudyRun(
            arm=ArmKey(kinds.get(content["start"], str(content["start"])), str(content["arm"])),
            start=str(content["start"]),
            seed=int(content["seed"]),
            role=str(content.get("role", ARM)),
            reward=content.get("reward"),
            box_format=content.get("box_format"),
            compute=content.get("compute") or {},
            curve=content.get("curve") or {},
            checkpoints=tuple(sorted(checkpoints, key=lambda one: one.step)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"Expected arm, start, seed and checkpoints in {str(path)!r}, got a file without ({type(error).__name__}: "
            f"{error}). Remove it and run the study again."
        ) from error
    if not run.checkpoints:
        raise ValueError(f"Expected a measured checkpoint in {str(path)!r}, got none. Remove it and run again.")
    return run


def _start(path: Path, sets: Mapping[str, Sequence[Any]]) -> Checkpoint:
    content = _json(path, "the answers of a start")
    return _checkpoint({"step": 0, **content}, sets, path)


def _checkpoint(content: Mapping[str, Any], sets: Mapping[str, Sequence[Any]], path: Path) -> Checkpoint:
    answers = {name: tuple(one["answers"]) for name, one in content["sets"].items()}
    for name, images in sets.items():
        if len(answers.get(name, ())) != len(images):
            raise ValueError(
                f"Expected {len(images)} answers for the set {name!r} in {str(path)!r}, got "
                f"{len(answers.get(name, ()))}. It is of other images: remove it and run the study again."
            )
    return Checkpoint(int(content["step"]), answers)
