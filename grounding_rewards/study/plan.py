"""What a study's YAML asks for: every run, with the configuration that `train` or `sft` gets.

The files of configs/study/ show every key. All is checked here, before anything starts: each run's configuration is
read by the parser that the training itself uses. A folder that holds another study is refused here too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml

from grounding_rewards.common.atomic_files import check_settings, write_whole
from grounding_rewards.common.config_files import find_shipped, read_config
from grounding_rewards.common.text_files import read_yaml
from grounding_rewards.common.validation import SHARE, Interval, check_number, check_word
from grounding_rewards.data.splits import ALL, TRAIN
from grounding_rewards.models.robustness import CORRUPTIONS, STRENGTHS
from grounding_rewards.sources.base import split_name
from grounding_rewards.study.results import ARM, CONTROL, FEWEST_SEEDS, SCHEMA, Folder, Measure
from grounding_rewards.study.rulers import RULERS

#: The shipped tiny model with random weights.
UNTRAINED = "untrained_tiny_vlm"
GRPO, SFT = "train", "sft"
#: At most so many points of a training's curve are kept.
POINTS = 50

_ARM_KEYS = ("starts", "control", SFT)
# What the study itself decides.
_OURS = ("seed", "output_dir", "model_name_or_path", "save_strategy", "save_steps", "save_total_limit")
# Settings that change nothing in what a run learns or is measured by.
_FREE = ("output_dir", "run_name", "logging_steps", "disable_tqdm", "report_to", "model_name_or_path")
# What makes transformers take a configuration for GPUs on a machine without.
_WITHOUT_GPU = {"use_cpu": True, "bf16": False, "fp16": False, "tf32": False}
# Files are called by names; two hyphens part the name of a run.
_FILE_NAME = re.compile(r"(?!.*--)\w[\w.-]*", re.ASCII)

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class ImageSet:
    """Images that models are measured on.

    Attributes:
        name: such as `test`.
        dataset: as `load_split` takes it.
        split: of the dataset.
        images: the first so many; None for all.
        changes: of every image, in this order, by the strength of each, 1 to 5: images as another department takes
            them.
    """

    name: str
    dataset: str
    split: str
    images: int | None = None
    changes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class InitialCheckpoint:
    """A model that runs start from.

    Attributes:
        name: such as `weak`.
        model: a folder, a name on the hub, or :data:`UNTRAINED`.
        sft: configuration of the warm start that makes it; None where the model is taken as it is.
        kind: what the YAML calls it; several checkpoints, taught with one seed each, are of one kind.
    """

    name: str
    model: str
    sft: Mapping[str, Any] | None
    kind: str


@dataclass(frozen=True)
class Run:
    """One training: an arm from an initial checkpoint with a seed.

    Attributes:
        arm, start, seed: which.
        role: `arm` or `control`.
        kind: :data:`GRPO` or :data:`SFT`, the command that trains it.
        config: what the command gets, without the paths that the folder of the study decides.
        equivalent: steps of GRPO that one step costs as much as; 1 for GRPO itself.
    """

    arm: str
    start: str
    seed: int
    role: str
    kind: str
    config: Mapping[str, Any]
    equivalent: float

    @property
    def name(self) -> str:
        """Of its files and of its folder.

        >>> Run("R3", "weak", 0, ARM, GRPO, {}, 1.0).name
        'weak--R3--seed0'
        """
        return f"{self.start}--{self.arm}--seed{self.seed}"

    @property
    def reward(self) -> dict[str, Any] | None:
        """Name and parameters of the reward; None for a run of `sft`."""
        if self.kind == SFT:
            return None
        weights = self.config.get("reward_weights")
        found = {"name": self.config.get("reward", "R4"), "kwargs": self.config.get("reward_kwargs") or {}}
        return {**found, "weights": weights} if weights else found


@dataclass(frozen=True)
class Plan:
    """A study as its YAML says; the fields without the runs are its keys.

    Attributes:
        name: how the study is called.
        primary: the metrics that decide, each with its set: [{metric: f1_50, set: test}, …].
        reference: the arm that the others are compared with.
        seeds: how many, or a list of them.
        train: `config`, a file for `grounding-rewards train` or several, and whatever of it is overridden.
        sets: images that models are measured on: a name each, with dataset, split, images and changes.
        starts: models that runs start from: a name each, with `model`, and `sft` to teach it first.
        arms: what is compared: a name each, with reward, reward_kwargs, or any other option of `train`; or `sft`.
        dataset: default of `dataset` in `train`, in `sft` and in every set.
        equivalence: differences up to this are none that matters, in units of the primary metrics.
        checkpoints: how many checkpoints of a run are measured, the last one among them.
        keep: whether checkpoints stay after they are measured.
        accelerate: configuration of `accelerate launch`.
        batch_size: images answered at once when a model is measured.
        runs: in the order in which they are made: all arms with the first seed come first.
    """

    name: str
    primary: Sequence[Measure]
    reference: str
    seeds: Sequence[int]
    train: Mapping[str, Any]
    sets: Sequence[ImageSet]
    starts: Mapping[str, InitialCheckpoint]
    arms: Mapping[str, Mapping[str, Any]]
    dataset: str | None = None
    equivalence: float = 0.02
    checkpoints: int = 2
    keep: bool = False
    accelerate: str = "configs/accelerate/cpu_1.yaml"
    batch_size: int = 64
    runs: tuple[Run, ...] = ()

    @cached_property
    def processes(self) -> int:
        """Of a training, as the configuration of `accelerate` says."""
        return int(read_yaml(find_shipped(self.accelerate)).get("num_processes", 1))


def read_plan(given: str | Path | Mapping[str, Any], *, dataset: str | None = None, elsewhere: bool = False) -> Plan:
    """The plan of a study's YAML, every run checked.

    Args:
        given: path of the YAML, or its content; the paths that it names are found from the working directory, or are
            those of files that come with the package.
        dataset: instead of its `dataset`.
        elsewhere: whether runs are made on another machine: that this one has no GPU is no reason to refuse them.

    Raises:
        ValueError: an unknown key, reward or parameter, an option of a wrong type, one seed alone, …; names where.
    """
    content = given if isinstance(given, Mapping) else read_yaml(find_shipped(given))
    try:
        _expect(isinstance(content, Mapping), "a mapping", content, "See configs/study/ for files.")
        return _resolve(_made(Plan, {**content, **({"dataset": dataset} if dataset else {})}, "runs"), elsewhere)
    except ValueError as error:
        raise ValueError(f"{'the study' if isinstance(given, Mapping) else given}: {error}") from error


def _resolve(given: Any, elsewhere: bool) -> Plan:
    """The plan whose fields hold what the YAML says, checked and spelled out."""
    seeds = list(range(given.seeds)) if isinstance(given.seeds, int) else given.seeds
    whole = isinstance(seeds, list) and all(isinstance(one, int) for one in seeds)
    _expect(
        whole and len(set(seeds)) == len(seeds) >= FEWEST_SEEDS,
        f"at least {FEWEST_SEEDS} different seeds",
        given.seeds,
        "The unit of a study is the training run: one run of an arm cannot be told from chance. Reviewers want 5.",
    )
    for key in ("sets", "starts", "arms"):
        named = getattr(given, key)
        fits = isinstance(named, Mapping) and all(isinstance(one, Mapping) for one in named.values())
        _expect(fits, f"names with a mapping each for {key}", named, "See configs/study/ for files.")
    for name in (given.name, *given.sets, *given.starts, *given.arms):
        fits = _FILE_NAME.fullmatch(str(name)) is not None
        _expect(fits, "a name of letters, digits, `_`, `.` and single hyphens", name, "Files are called by it.")
    for key, legal in (("equivalence", SHARE), ("checkpoints", Interval(1)), ("batch_size", Interval(1))):
        check_number(key, getattr(given, key), legal)
    check_word("reference", given.reference, given.arms)
    primary = [given.primary] if isinstance(given.primary, Mapping) else given.primary
    _expect(
        isinstance(primary, list) and all({*one} == {"metric", "set"} for one in primary),
        "metrics with their sets for primary",
        given.primary,
        "Write [{metric: f1_50, set: test}]: declared before the runs, so that nobody can choose them by their result.",
    )
    for one in primary:
        check_word("metric", one["metric"], RULERS)
        check_word("set", one["set"], given.sets)
    train = _settings(given.train, given)
    steps = train.get("max_steps")
    _expect(
        isinstance(steps, int) and steps > 0 and steps % given.checkpoints == 0,
        f"a multiple of checkpoints, {given.checkpoints}, for max_steps in train",
        steps,
        "Every run has this budget, and its checkpoints are measured at equal distances.",
    )
    plan: Plan = replace(
        given,
        primary=tuple(Measure(one["metric"], one["set"]) for one in primary),
        seeds=seeds,
        sets=tuple(_set(name, one, given.dataset) for name, one in given.sets.items()),
        train=train,
        starts={one.name: one for kind, of in given.starts.items() for one in _starts(kind, of, seeds, given)},
    )
    runs = tuple(run for seed in seeds for name, arm in plan.arms.items() for run in _runs(name, arm, seed, plan))
    _check_configs(runs, plan, elsewhere)
    taught = [*(run.config for run in runs), *(one.sft for one in plan.starts.values() if one.sft is not None)]
    for dataset, split in {(one.get("dataset"), one.get("train_split", TRAIN)) for one in taught}:
        for one in plan.sets:
            # However dataset and split are spelt.
            place, splits = Path(str(dataset)).resolve(), {split_name(split), split_name(one.split)}
            _expect(
                Path(one.dataset).resolve() != place or (len(splits) > 1 and ALL not in splits),
                f"a split that no run is trained on for set {one.name}",
                one.split,
                "Measure on another one.",
            )
    return replace(plan, runs=runs)


def _set(name: str, one: Mapping[str, Any], dataset: str | None) -> ImageSet:
    made = _made(ImageSet, {"name": name, "dataset": dataset, **one}, place=f"set {name}")
    changes = made.changes
    _expect(
        isinstance(changes, Mapping) and set(changes) <= set(CORRUPTIONS) and set(changes.values()) <= set(STRENGTHS),
        f"strengths of {STRENGTHS[0]} to {STRENGTHS[-1]} of {', '.join(CORRUPTIONS)} for changes of set {name}",
        changes,
        "Write {window_level: 3, crop: 3}.",
    )
    if made.images is not None:
        check_number(f"images of set {name}", made.images, Interval(1))
    _expect(made.dataset is not None, f"a dataset for set {name}", None, "Name images not trained on.")
    return made


def _starts(kind: str, one: Mapping[str, Any], seeds: Sequence[int], plan: Plan) -> Iterator[InitialCheckpoint]:
    several, taught = one.get("checkpoints"), one.get(SFT)
    given = {key: value for key, value in one.items() if key != "checkpoints"}
    made = _made(InitialCheckpoint, {SFT: None, **given, "name": kind, "kind": kind}, place=f"start {kind}")
    if taught is not None:
        _refuse_ours([key for key in taught if key != "seed"], f"start {kind}")
        made = replace(made, sft=_without_none({**_settings(taught, plan), "save_strategy": "no"}))
    if several is None:
        yield made
    else:
        _expect(taught is not None, f"sft for start {kind}", None, "Only a checkpoint that is taught has a seed.")
        check_number(f"checkpoints of start {kind}", several, Interval(2, len(seeds)))
        then = "Every checkpoint gets as many runs of an arm."
        _expect(len(seeds) % several == 0, f"a divisor of {len(seeds)} seeds for checkpoints of {kind}", several, then)
        for seed in seeds[:several]:
            yield replace(made, name=f"{kind}.{seed}", sft={**(made.sft or {}), "seed": seed})


def _runs(name: str, arm: Mapping[str, Any], seed: int, plan: Plan) -> Iterator[Run]:
    """The runs of an arm with a seed, from each kind of initial checkpoint.

    Supervised runs make as many steps as read as many answers as GRPO does. A step of GRPO learns from as many
    sequences of prompt, image and answer as it has completions; a supervised one from as many as its batch. Sequences
    are about equally long, so equal numbers are equal numbers of tokens learned from.
    """
    place, kind = f"arm {name}", SFT if SFT in arm else GRPO
    own = {key: value for key, value in arm.items() if key not in _ARM_KEYS}
    _refuse_ours({**own, **arm.get(SFT, {})}, place, (*_OURS, "max_steps"))
    steps = plan.train["max_steps"]
    if kind == SFT:
        _expect(not own, f"nothing beside sft in {place}", list(own), "Write it into sft.")
        config = _settings(arm[SFT], plan)
        per_step, budget = (sequences_a_step(one, plan.processes) for one in (config, plan.train))
        total = round(steps * budget / per_step / plan.checkpoints) * plan.checkpoints
        then = "Lower per_device_train_batch_size."
        _expect(total > 0, f"batches small enough for {plan.checkpoints} steps of {place}", per_step, then)
        # As many points of its curve as are kept.
        config["logging_steps"] = max(1, total // POINTS)
    else:
        # Parameters of the file are of its own reward.
        base = {key: value for key, value in plan.train.items() if key != "reward_kwargs" or "reward" not in own}
        config, total = {**base, **own}, steps
    saved = {"save_strategy": "steps", "save_steps": total // plan.checkpoints}
    starts = arm.get("starts", list(dict.fromkeys(start.kind for start in plan.starts.values())))
    for of in [starts] if isinstance(starts, str) else starts:
        check_word(f"starts of {place}", of, [start.kind for start in plan.starts.values()])
        checkpoints = [start.name for start in plan.starts.values() if start.kind == of]
        yield Run(
            arm=name,
            # Several of a kind take turns.
            start=checkpoints[list(plan.seeds).index(seed) % len(checkpoints)],
            seed=seed,
            role=CONTROL if arm.get("control", kind == SFT) else ARM,
            kind=kind,
            config=_without_none({**config, "max_steps": total, "seed": seed, **saved}),
            equivalent=steps / total,
        )


def _check_configs(runs: Sequence[Run], plan: Plan, elsewhere: bool) -> None:
    """Read every configuration with the parser of its command, as the run itself will."""
    from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments

    # Seeds differ in nothing that could be wrong.
    asked = {f"arm {run.arm}": (run.kind, run.config) for run in runs}
    asked |= {f"start {one.name}": (SFT, one.sft) for one in plan.starts.values() if one.sft is not None}
    paths = {"output_dir": "runs/study", "model_name_or_path": "start"}
    for place, (kind, config) in asked.items():
        parse = parse_sft_arguments if kind == SFT else parse_grpo_arguments
        try:
            parse([], {**config, **paths, **(_WITHOUT_GPU if elsewhere else {})})
        except (ValueError, TypeError) as error:
            raise ValueError(f"{place}: {error}") from error


def _settings(one: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """What the file of `config` says, overridden by what stands beside it."""
    base = read_config(one["config"]) if "config" in one else {}
    named = {"dataset": plan.dataset} if plan.dataset is not None else {}
    # The study saves what it measures, where it wants it.
    taken = {name: value for name, value in base.items() if name not in _OURS or name == "seed"}
    return {**taken, **named, **{name: value for name, value in one.items() if name != "config"}}


def _without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value is not None}


def sequences_a_step(config: Mapping[str, Any], processes: int) -> int:
    """Sequences of prompt, image and answer that a step of a training learns from.

    >>> sequences_a_step({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 3)
    24
    """
    batch = int(config.get("per_device_train_batch_size", 8))
    return batch * int(config.get("gradient_accumulation_steps", 1)) * processes


def _refuse_ours(given: Collection[str], place: str, ours: Sequence[str] = _OURS) -> None:
    for name in ours:
        _expect(name not in given, f"no {name} in {place}", name, "The study decides it: leave it out.")


def _expect(right: bool, what: str, got: object, then: str) -> None:
    if not right:
        raise ValueError(f"Expected {what}, got {got!r:.200}. {then}")


def _made(form: type[_Made], given: Mapping[str, Any], *ours: str, place: str = "the study") -> _Made:
    """A part of the YAML, whose keys are the fields of its form."""
    keys = [one.name for one in fields(form) if one.name not in ours]  # type: ignore[arg-type]
    unknown = [key for key in given if key not in keys]
    _expect(not unknown, f"keys of {place}", ", ".join(map(str, unknown)), "docs/run_a_study.md has them.")
    try:
        return form(**given)
    except TypeError as error:
        # Which keys are missing.
        raise ValueError(f"{place}: {error}.") from error


def fingerprint(*parts: Any) -> str:
    """A digest of settings.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration that a result depends on.

    >>> settings_of({"reward": "R3", "output_dir": "runs/a"})
    {'reward': 'R3'}
    """
    return {name: value for name, value in config.items() if name not in _FREE}


def fingerprint_of_start(start: InitialCheckpoint) -> str:
    """A digest of the weights that are given, or of the recipe that makes them; of a name on the hub, the name."""
    from grounding_rewards.models.load import digest_of_weights

    place = find_shipped(start.model)
    weights = digest_of_weights(place) if Path(place).is_dir() else start.model
    return fingerprint(weights, None if start.sft is None else settings_of(start.sft))


def fingerprint_of_run(plan: Plan, run: Run) -> str:
    """A digest of all that the result of a run depends on: its settings, its initial checkpoint and the sets.

    Neither other runs nor the metrics enter it, so that arms and seeds can be added.
    """
    sets = [vars(one) for one in plan.sets]
    return fingerprint(run.kind, settings_of(run.config), fingerprint_of_start(plan.starts[run.start]), sets)


def claim_folder(folder: Folder, plan: Plan) -> None:
    """Write the plan into the folder, or refuse a folder that another study has begun.

    Arms, starts and seeds may be added to a study that has begun.

    Raises:
        ValueError: the folder holds results that are not this plan's; says which, and what differs.
    """
    now = _written(plan)
    before = read_yaml(folder.plan) if folder.plan.is_file() else {}
    finished = [path.stem for path in folder.result("").parent.glob("*.json")]
    then = f"Give the same again, or another folder than {str(folder.root)!r} with --out."
    if before or finished:
        settled = {"name": "name", "declared": "primary metrics, margin and reference", "sets": "sets"}
        for key in settled if finished else ("name",):
            what = f"the {settled[key]} that the study in the folder was started with, {before.get(key)!r}"
            _expect(before.get(key) == now[key], what, now[key], then)
    for name in finished:
        had, have = ({**content["runs"]}.get(name) for content in (before, now))
        _expect(have is not None, f"every run that the folder holds in the YAML too, {name} among them", None, then)
        if had != have:
            check_settings(name, _settings_of_arm(name, before), _settings_of_arm(name, now), then)
            check_settings(name, {"start": had}, {"start": have}, then, digests=["start"])
    write_whole(folder.plan, yaml.safe_dump(now, sort_keys=False, allow_unicode=True))


def _written(plan: Plan) -> dict[str, Any]:
    """The plan as study.yaml holds it."""
    arms: dict[str, Any] = {}
    for run in plan.runs:
        arm = arms.setdefault(f"{run.start}--{run.arm}", {"arm": run.arm, "start": run.start, "role": run.role})
        arm |= {"kind": run.kind, "reward": run.reward}
        arm["settings"] = {key: value for key, value in settings_of(run.config).items() if key != "seed"}
    content = {
        "schema": SCHEMA,
        "name": plan.name,
        "declared": {
            "primary": [{"metric": one.metric, "set": one.on} for one in plan.primary],
            "equivalence": plan.equivalence,
            "reference": plan.reference,
        },
        "checkpoints": plan.checkpoints,
        "sets": {one.name: {key: value for key, value in vars(one).items() if key != "name"} for one in plan.sets},
        "starts": {
            one.name: {"model": one.model, "sft": one.sft, "kind": one.kind, "fingerprint": fingerprint_of_start(one)}
            for one in plan.starts.values()
        },
        "arms": list(arms.values()),
        "runs": {run.name: fingerprint_of_run(plan, run) for run in plan.runs},
    }
    # As YAML will give it back.
    return json.loads(json.dumps(content))


def _settings_of_arm(run: str, content: Mapping[str, Any]) -> dict[str, Any]:
    start, arm, _ = run.split("--")
    return next(one["settings"] for one in content["arms"] if (one["start"], one["arm"]) == (start, arm))
