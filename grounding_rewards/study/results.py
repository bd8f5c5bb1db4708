"""Find and read the files in the folder of a study.

study.yaml                  the study as it was resolved, with a fingerprint of each run
images.json                 the references of the sets
starts/NAME.json.gz         the completions of each initial checkpoint
results/RUN.json.gz         a finished run: reward, log, and completions of its checkpoints
runs/, made/, logs/         unfinished runs, taught checkpoints, output of programs; not needed for the report
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.common.text_files import read_yaml

#: Version of the files.
SCHEMA = 1
#: Runs that an arm needs: the spread between runs cannot be seen in one.
FEWEST_SEEDS = 2
#: Roles of arms.
ARM, CONTROL = "arm", "control"

#: By set the completion to each of its images.
Completions = Mapping[str, Sequence[str]]


class Folder:
    """Paths of a study's files.

    Args:
        root: the folder of the study.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.plan = self.root / "study.yaml"
        self.images = self.root / "images.json"

    def result(self, run: str) -> Path:
        """Path of a run's result."""
        return self.root / "results" / f"{run}.json.gz"

    def results(self) -> dict[str, Path]:
        """Paths of all results by the name of the run."""
        paths = sorted((self.root / "results").glob("*.json.gz"))
        return {path.name.removesuffix(".json.gz"): path for path in paths}

    def start(self, start: str) -> Path:
        """Path of an initial checkpoint's completions."""
        return self.root / "starts" / f"{start}.json.gz"

    def training(self, run: str) -> Path:
        """Folder of a run's training, which is removed after the run is measured."""
        return self.root / "runs" / run

    def made(self, start: str) -> Path:
        """Folder of the training that makes an initial checkpoint."""
        return self.root / "made" / start

    def log(self, name: str) -> Path:
        """Path of the output of a run's programs."""
        return self.root / "logs" / f"{name}.log"


class ArmKey(NamedTuple):
    """An arm from one kind of initial checkpoint."""

    start: str
    arm: str


class Measure(NamedTuple):
    """A metric, one of :data:`grounding_rewards.study.analysis.METRICS`, on a set of images."""

    metric: str
    on: str


class Primary(NamedTuple):
    """A metric that decides, declared before the first run.

    Attributes:
        measure: the metric and its set.
        start: the kind of initial checkpoints for which it decides; None for all. p is adjusted over the metrics that
            share it.
    """

    measure: Measure
    start: str | None = None


@dataclass(frozen=True)
class StudyRun:
    """One training.

    Attributes:
        arm: its arm and the kind of its initial checkpoint.
        start: its initial checkpoint.
        seed: of the training.
        role: :data:`ARM` or :data:`CONTROL`.
        reward: name, kwargs and weights of the reward; None for a supervised run.
        box_format: in which the model writes boxes; None if the rows of the images say it.
        curve: metrics of the training log by name, with `step`.
        checkpoints: completions by step; the last is the trained model.
    """

    arm: ArmKey
    start: str
    seed: int
    role: str
    reward: Mapping[str, Any] | None
    box_format: Any
    curve: Mapping[str, Sequence[float | None]]
    checkpoints: Mapping[int, Completions]

    @property
    def last_step(self) -> int:
        """Step of the trained model."""
        return max(self.checkpoints)


@dataclass(frozen=True)
class Study:
    """A study with all that its runs left.

    Attributes:
        name: of the study.
        declared: the metrics that decide; they, `reference` and `equivalence` are declared before the first run.
        reference: the arm that the others are compared with, from each kind of initial checkpoint.
        equivalence: differences up to this are too small to matter.
        sets: by name the images, a row each, as rewards take them.
        starts: by kind and name the completions of each initial checkpoint; several of a kind have a seed each.
        arms: with their runs by seed, in the order of the plan; those of enough runs.
        missing: names of planned runs without a result.
        left_out: runs of the arms that have too few.
    """

    name: str
    declared: tuple[Primary, ...]
    reference: str
    equivalence: float
    sets: Mapping[str, tuple[Mapping[str, Any], ...]]
    starts: Mapping[str, Mapping[str, Completions]]
    arms: Mapping[ArmKey, tuple[StudyRun, ...]]
    missing: tuple[str, ...]
    left_out: Mapping[ArmKey, int]

    @property
    def box_format(self) -> str | Mapping[str, Any] | None:
        """The format in which all models of the study write boxes, by name or as a mapping; None if the images say it.

        All runs of all arms have the same: that of the first run is read.
        """
        return next(run.box_format for runs in self.arms.values() for run in runs)

    @property
    def primary(self) -> tuple[Measure, ...]:
        """The metrics that decide, for any kind of initial checkpoint."""
        return tuple(dict.fromkeys(primary.measure for primary in self.declared))

    def primary_of(self, start: str) -> tuple[Measure, ...]:
        """The metrics that decide for one kind of initial checkpoints."""
        return tuple(primary.measure for primary in self.declared if primary.start in (None, start))


def read_study(root: str | Path, *, fewest: int = FEWEST_SEEDS) -> Study:
    """Read and check the folder of a study.

    Args:
        root: the folder, with `study.yaml`, `images.json`, `starts/` and `results/`.
        fewest: runs of an arm; others are left out. The intervals of an arm of one run are over patients alone.

    Raises:
        ValueError: a file is missing or of another study, completions do not fit the images, the reference arm
            is not there, or no arm has enough runs; names the file and says what to do.

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
    sets = {}
    for name, rows in read_json(folder.images)["sets"].items():
        # Rewards and metrics know the column of patients by the name that it has in datasets.
        sets[name] = tuple({**row, "patient_id": row.get("patient_id", row.get("patient"))} for row in rows)
    declared = []
    for primary in plan["declared"]["primary"]:
        if not sets.get(primary["set"]):
            raise ValueError(
                f"Expected images of the set {primary['set']!r}, which decides, in {str(folder.images)!r}, got none. "
                "Copy the file from where the study ran."
            )
        declared.append(Primary(Measure(primary["metric"], primary["set"]), primary.get("start")))
    kind_of_start = {name: start["kind"] for name, start in plan["starts"].items()}
    runs_of_arm: dict[ArmKey, list[StudyRun]] = {}
    for arm in plan["arms"]:
        runs_of_arm[ArmKey(kind_of_start[arm["start"]], arm["arm"])] = []
    results = folder.results()
    for path in results.values():
        run = _read_run(path, sets, plan["name"], kind_of_start)
        runs_of_arm.setdefault(run.arm, []).append(run)
    arms = {}
    for key, arm_runs in runs_of_arm.items():
        if len(arm_runs) >= fewest:
            arms[key] = tuple(sorted(arm_runs, key=lambda run: run.seed))
    _check_reference(arms, plan["declared"]["reference"], fewest, root)
    starts: dict[str, dict[str, Completions]] = {}
    for key, runs in arms.items():
        of_kind = starts.setdefault(key.start, {})
        for run in runs:
            # Many runs begin from one checkpoint, which is read once.
            if run.start not in of_kind:
                path = folder.start(run.start)
                of_kind[run.start] = _read_completions(read_json(path), sets, path)
    return Study(
        name=plan["name"],
        declared=tuple(declared),
        reference=plan["declared"]["reference"],
        equivalence=plan["declared"]["equivalence"],
        sets=sets,
        starts=starts,
        arms=arms,
        missing=tuple(name for name in plan["runs"] if name not in results),
        left_out={key: len(arm_runs) for key, arm_runs in runs_of_arm.items() if key not in arms},
    )


def _check_reference(arms: Mapping[ArmKey, Any], reference: str, fewest: int, root: str | Path) -> None:
    """Refuse arms without the reference arm from the same kind of initial checkpoint; `arms` have runs enough."""
    # Without any arm the reference is missing too: then the error says "every start" in the place of a kind.
    for kind in {key.start for key in arms} or {"every start"}:
        if ArmKey(kind, reference) not in arms:
            raise ValueError(
                f"Expected {fewest} finished runs of the reference arm {reference!r} from {kind} in {str(root)!r}, got "
                "fewer. Finish them: the other arms are compared with it, and the spread between runs cannot be seen "
                "in one."
            )


def _read_run(path: Path, sets: Mapping[str, Sequence[Any]], study: str, kind_of_start: Mapping[str, str]) -> StudyRun:
    """Read the result of a run; refuse one of another study.

    Args:
        path: of the file.
        sets: images by set.
        study: its name.
        kind_of_start: the kind of each initial checkpoint.
    """
    content = read_json(path)
    if (content.get("schema"), content.get("study")) != (SCHEMA, study):
        raise ValueError(
            f"Expected a result of the study {study!r} with schema {SCHEMA} in {str(path)!r}, got one of "
            f"{content.get('study')!r} with schema {content.get('schema')!r}. Move it away, and run the study again."
        )
    checkpoints = {}
    for checkpoint in content["checkpoints"]:
        checkpoints[checkpoint["step"]] = _read_completions(checkpoint, sets, path)
    fields = ("start", "seed", "role", "reward", "box_format", "curve")
    return StudyRun(
        arm=ArmKey(kind_of_start[content["start"]], content["arm"]),
        checkpoints=checkpoints,
        **{name: content[name] for name in fields},
    )


def _read_completions(content: Mapping[str, Any], sets: Mapping[str, Sequence[Any]], path: Path) -> Completions:
    """The completions of a checkpoint by set; refuse another number than of images."""
    completions = {name: entry["answers"] for name, entry in content["sets"].items()}
    for name, images in sets.items():
        if len(completions.get(name, ())) != len(images):
            raise ValueError(
                f"Expected {len(images)} answers for the set {name!r} in {str(path)!r}, got "
                f"{len(completions.get(name, ()))}. It is of other images: remove it and run the study again."
            )
    return completions


def read_json(path: Path) -> Any:
    """Read a JSON file of a study, compressed or not.

    Raises:
        ValueError: the file is missing or broken.
    """
    try:
        content = path.read_bytes()
        return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(
            f"Expected a file of the study in {str(path)!r}, got none that can be read ({error}). Copy it from where "
            "the study ran, or remove it and run the study again: what is missing is made."
        ) from error


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, compressed if its name ends in `.gz`; equal contents are equal files."""
    # ASCII escapes can hold the lone surrogates of a text that was cut off.
    text = (json.dumps(content, separators=(",", ":")) + "\n").encode("ascii")
    write_whole(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
