"""Read the YAML of a study into a plan: every run, with the configuration that `train` or `sft` gets.

The files of configs/study/ show every key. Everything is checked here, before any run starts: each run's configuration
is read by the parser that the training itself uses. A folder that holds another study is refused here too.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from grounding_rewards.study.analysis import METRICS
from grounding_rewards.study.results import ARM, CONTROL, FEWEST_SEEDS, SCHEMA, Folder, Measure, Primary
from grounding_rewards.training.run_options import ImageOptions

GRPO, SFT = "train", "sft"

_ARM_KEYS = ("starts", "control", SFT)
# Options that the study itself decides.
_STUDY_OPTIONS = (*("seed", "output_dir", "model_name_or_path", "save_strategy", "save_steps", "save_total_limit"),)
# Options on which neither the trained model nor its metrics depend.
_WITHOUT_EFFECT = ("output_dir", "run_name", "logging_steps", "disable_tqdm", "report_to", "model_name_or_path")
# Options with which transformers accepts a configuration for GPUs on a machine without one.
_WITHOUT_GPU = {"use_cpu": True, "bf16": False, "fp16": False, "tf32": False}
# A legal name of a file; two hyphens separate the parts of a run's name.
_FILE_NAME = re.compile(r"(?!.*--)\w[\w.-]*", re.ASCII)

_Form = TypeVar("_Form")


@dataclass(frozen=True)
class ImageSet:
    """Images that models are measured on.

    Attributes:
        name: such as `test`.
        dataset: as `load_split` takes it.
        split: of the dataset.
        images: the first this many; None for all.
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
        model: a folder, a name on the hub, or another kind of initial checkpoint that is taught on.
        sft: configuration of the warm start that makes it; None if the model is taken as it is.
        kind: its name in the YAML; several checkpoints, taught with one seed each, are of one kind.
        parent: the initial checkpoint that it is taught from, where `model` names its kind.
    """

    name: str
    model: str
    sft: Mapping[str, Any] | None
    kind: str
    parent: str | None = None


@dataclass(frozen=True)
class Run:
    """One training: an arm from an initial checkpoint with a seed.

    Attributes:
        arm, start, seed: which.
        role: `arm` or `control`.
        kind: :data:`GRPO` or :data:`SFT`, the command that trains it.
        config: the command's options, without the paths that the folder of the study decides.
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
        """Name of its files and of its folder.

        >>> Run("R3", "weak", 0, ARM, GRPO, {}, 1.0).name
        'weak--R3--seed0'
        """
        return f"{self.start}--{self.arm}--seed{self.seed}"

    @property
    def reward(self) -> dict[str, Any] | None:
        """Name, parameters and, if the run has some, weights of the reward; None for a run of `sft`."""
        if self.kind == SFT:
            return None
        # R4 is what `train` takes by default.
        reward = {"name": self.config.get("reward", "R4"), "kwargs": self.config.get("reward_kwargs") or {}}
        weights = self.config.get("reward_weights")
        return {**reward, "weights": weights} if weights else reward


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study as its YAML says; the fields without the runs are its keys.

    Attributes:
        name: of the study.
        primary: the metrics that decide, each with its set: [{metric: f1_50, set: test}, …]; `start` limits one to a
            kind of initial checkpoint.
        reference: the arm that the others are compared with.
        seeds: how many, or a list of them.
        train: `config`, a file for `grounding-rewards train` or several, and whatever of it is overridden.
        sets: images that models are measured on: a name each, with dataset, split, images and changes.
        starts: models that runs start from: a name each, with `model`, and `sft` to teach it first.
        arms: what is compared: a name each, with reward, reward_kwargs, or any other option of `train`; or `sft`.
        dataset: default of `dataset` in `train`, in `sft` and in every set.
        equivalence: differences up to this are too small to matter, in units of the primary metrics.
        checkpoints: how many checkpoints of a run are measured, the last one among them.
        accelerate: configuration of `accelerate launch`.
        batch_size: images answered at once when a model is measured.
        runs: in the order in which they are made: all arms with the first seed come first.
    """

    name: str
    primary: Sequence[Primary]
    reference: str
    seeds: Sequence[int]
    train: Mapping[str, Any]
    sets: Sequence[ImageSet]
    starts: Mapping[str, InitialCheckpoint]
    arms: Mapping[str, Mapping[str, Any]]
    dataset: str | None = None
    equivalence: float = 0.02
    checkpoints: int = 2
    accelerate: str = "configs/accelerate/cpu_1.yaml"
    batch_size: int = 64
    runs: tuple[Run, ...] = ()

    @cached_property
    def processes(self) -> int:
        """Processes of a training, by the configuration of `accelerate`."""
        return int(read_yaml(find_shipped(self.accelerate)).get("num_processes", 1))

    def with_parents(self, starts: Iterable[str]) -> list[str]:
        """Names of initial checkpoints and of those that they are taught from, each once, parents first."""
        names: list[str] = []
        for start in starts:
            parent = self.starts[start].parent
            if parent is not None:
                names += self.with_parents([parent])
            names.append(start)
        return list(dict.fromkeys(names))


def read_plan(source: str | Path | Mapping[str, Any], *, dataset: str | None = None, elsewhere: bool = False) -> Plan:
    """Read the YAML of a study into its plan, and check every run.

    Args:
        source: path of the YAML, or its content; paths in it are relative to the working directory, or name files that
            come with the package.
        dataset: replaces its `dataset`.
        elsewhere: whether runs are made on another machine, so that they may need a GPU that this one lacks.

    Raises:
        ValueError: an unknown key, reward or parameter, an option of a wrong type, one seed alone, …; names where.
    """
    content = source if isinstance(source, Mapping) else read_yaml(find_shipped(source))
    try:
        _expect(isinstance(content, Mapping), "a mapping", content, "See configs/study/ for files.")
        overrides = {"dataset": dataset} if dataset else {}
        # The runs are no key: they follow from the others.
        yaml_plan = _from_mapping(Plan, {**content, **overrides}, "runs")
        return _resolve(yaml_plan, elsewhere)
    except ValueError as error:
        raise ValueError(f"{'the study' if isinstance(source, Mapping) else source}: {error}") from error


def _resolve(yaml_plan: Any, elsewhere: bool) -> Plan:
    """The plan with all its runs, checked; in `yaml_plan` the fields still have the values of the YAML."""
    for key in ("sets", "starts", "arms"):
        value = getattr(yaml_plan, key)
        is_mapping = isinstance(value, Mapping) and all(isinstance(entry, Mapping) for entry in value.values())
        _expect(is_mapping, f"names with a mapping each for {key}", value, "See configs/study/ for files.")
    for name in (yaml_plan.name, *yaml_plan.sets, *yaml_plan.starts, *yaml_plan.arms):
        is_name = _FILE_NAME.fullmatch(str(name)) is not None
        _expect(is_name, "a name of letters, digits, `_`, `.` and single hyphens", name, "Files are called by it.")
    check_number("equivalence", yaml_plan.equivalence, SHARE)
    check_number("checkpoints", yaml_plan.checkpoints, Interval(1))
    check_number("batch_size", yaml_plan.batch_size, Interval(1))
    check_word("reference", yaml_plan.reference, yaml_plan.arms)
    seeds = _seeds(yaml_plan.seeds)
    train = _settings(yaml_plan.train, yaml_plan)
    steps = train.get("max_steps")
    _expect(
        isinstance(steps, int) and steps > 0 and steps % yaml_plan.checkpoints == 0,
        f"a multiple of checkpoints, {yaml_plan.checkpoints}, for max_steps in train",
        steps,
        "Every run has this budget, and its checkpoints are measured at equal distances.",
    )
    starts: dict[str, InitialCheckpoint] = {}
    for kind, entry in yaml_plan.starts.items():
        # A kind may be taught on from an earlier one.
        earlier = list(starts.values())
        starts |= {start.name: start for start in _starts(kind, entry, seeds, yaml_plan, earlier)}
    plan: Plan = replace(
        yaml_plan,
        primary=_primary(yaml_plan.primary, yaml_plan.sets, yaml_plan.starts),
        seeds=seeds,
        sets=tuple(_image_set(name, entry, yaml_plan.dataset) for name, entry in yaml_plan.sets.items()),
        train=train,
        starts=starts,
    )
    runs: list[Run] = []
    for seed in seeds:
        for name, arm in plan.arms.items():
            runs += _runs(name, arm, seed, plan)
    _check_configs(runs, plan, elsewhere)
    _check_splits(runs, plan)
    return replace(plan, runs=tuple(runs))


def _seeds(value: Any) -> list[int]:
    """The seeds as a list, from their number, which means 0, 1, 2, …, or from a list; refuse too few, or equal ones."""
    seeds = list(range(value)) if isinstance(value, int) else value
    are_numbers = isinstance(seeds, list) and all(isinstance(seed, int) for seed in seeds)
    _expect(
        are_numbers and len(set(seeds)) == len(seeds) >= FEWEST_SEEDS,
        f"at least {FEWEST_SEEDS} different seeds",
        value,
        "The unit of a study is the training run: one run of an arm cannot be told from chance. Reviewers want 5.",
    )
    return seeds


def _primary(value: Any, sets: Collection[str], starts: Collection[str]) -> tuple[Primary, ...]:
    """The primary metrics from the key `primary`; refuse unknown ones, and a kind of checkpoint without any.

    Args:
        value: of the key.
        sets: names of the sets.
        starts: kinds of initial checkpoints.
    """
    metrics = [value] if isinstance(value, Mapping) else value
    # Each has the keys `metric` and `set`, and may have `start`.
    _expect(
        isinstance(metrics, list) and all({*entry} - {"start"} == {"metric", "set"} for entry in metrics),
        "metrics with their sets for primary",
        value,
        "Write [{metric: f1_50, set: test}]: declared before the runs, so that nobody can choose them by their result.",
    )
    for entry in metrics:
        check_word("metric", entry["metric"], METRICS)
        check_word("set", entry["set"], sets)
        # Without `start` it decides for every kind, and there is nothing to check.
        check_word("start", entry.get("start", next(iter(starts))), starts)
    primary = tuple(Primary(Measure(entry["metric"], entry["set"]), entry.get("start")) for entry in metrics)
    undecided = [start for start in starts if not any(metric.start in (None, start) for metric in primary)]
    _expect(not undecided, f"a primary metric for start {', '.join(undecided)}", value, "Declare one.")
    return primary


def _image_set(name: str, entry: Mapping[str, Any], dataset: str | None) -> ImageSet:
    """A set of images from its mapping in the YAML, checked; `dataset` is that of the study, for a set without one."""
    image_set = _from_mapping(ImageSet, {"name": name, "dataset": dataset, **entry}, place=f"set {name}")
    if image_set.images is not None:
        check_number(f"images of set {name}", image_set.images, Interval(1))
    # By name of a corruption its strength.
    changes = image_set.changes
    _expect(
        isinstance(changes, Mapping) and set(changes) <= set(CORRUPTIONS) and set(changes.values()) <= set(STRENGTHS),
        f"strengths of {STRENGTHS[0]} to {STRENGTHS[-1]} of {', '.join(CORRUPTIONS)} for changes of set {name}",
        changes,
        "Write {window_level: 3, crop: 3}.",
    )
    _expect(image_set.dataset is not None, f"a dataset for set {name}", None, "Name images not trained on.")
    return image_set


def _starts(
    kind: str, entry: Mapping[str, Any], seeds: Sequence[int], plan: Plan, earlier: Sequence[InitialCheckpoint]
) -> Iterator[InitialCheckpoint]:
    """Yield the initial checkpoints of a kind: one, or one for each of several seeds.

    Args:
        kind: its name in the YAML.
        entry: its mapping in the YAML.
        seeds: of the study.
        plan: with the values of the YAML.
        earlier: the checkpoints of the kinds before it.
    """
    # How many checkpoints the kind has, each taught with a seed of its own; None for a single one.
    count = entry.get("checkpoints")
    fields_of_start = {SFT: None, **entry, "name": kind, "kind": kind}
    fields_of_start.pop("checkpoints", None)
    start = _from_mapping(InitialCheckpoint, fields_of_start, "parent", place=f"start {kind}")
    if start.sft is not None:
        # Its seed may be stated here, unlike that of a run.
        _refuse_options([key for key in start.sft if key != "seed"], f"start {kind}")
        start = replace(start, sft=_drop_none({**_settings(start.sft, plan), "save_strategy": "no"}))
    # A checkpoint is taught on from another where `model` names the kind of that.
    parents = [checkpoint.name for checkpoint in earlier if checkpoint.kind == start.model]
    _expect(not parents or start.sft is not None, f"sft for start {kind}", None, f"It is taught on from {start.model}.")
    if count is None:
        yield replace(start, parent=parents[0] if parents else None)
        return
    _expect(start.sft is not None, f"sft for start {kind}", None, "Only a checkpoint that is taught has a seed.")
    check_number(f"checkpoints of start {kind}", count, Interval(2, len(seeds)))
    advice = "Every checkpoint gets as many runs of an arm."
    _expect(len(seeds) % count == 0, f"a divisor of {len(seeds)} seeds for checkpoints of {kind}", count, advice)
    for index, seed in enumerate(seeds[:count]):
        # If there are several parents they are taken in turn.
        parent = parents[index % len(parents)] if parents else None
        yield replace(start, name=f"{kind}.{seed}", sft={**(start.sft or {}), "seed": seed}, parent=parent)


def _runs(name: str, arm: Mapping[str, Any], seed: int, plan: Plan) -> Iterator[Run]:
    """Yield the runs of an arm with a seed, one from each kind of initial checkpoint.

    Supervised runs learn from as many sequences of prompt, image and answer as runs of GRPO: a step of GRPO learns from
    all its completions, a supervised one from its batch. As sequences are about equally long, both learn from about
    equally many tokens.

    Args:
        name: of the arm.
        arm: its mapping in the YAML.
        seed: of the runs.
        plan: with everything but the runs.
    """
    place = f"arm {name}"
    kind = SFT if SFT in arm else GRPO
    overrides = {key: value for key, value in arm.items() if key not in _ARM_KEYS}
    sft = arm.get(SFT, {})
    _expect(isinstance(sft, Mapping), f"a mapping for sft in {place}", sft, "Write sft: {} for the options' defaults.")
    _refuse_options({**overrides, **sft}, place, (*_STUDY_OPTIONS, "max_steps"))
    grpo_steps = steps = plan.train["max_steps"]
    if kind == SFT:
        _expect(not overrides, f"nothing beside sft in {place}", list(overrides), "Write it into sft.")
        config = _settings(sft, plan)
        per_step = sequences_a_step(config, plan.processes)
        sequences = grpo_steps * sequences_a_step(plan.train, plan.processes)
        # A multiple of the checkpoints, which are measured at equal distances.
        steps = round(sequences / per_step / plan.checkpoints) * plan.checkpoints
        advice = "Lower per_device_train_batch_size."
        _expect(steps > 0, f"batches small enough for {plan.checkpoints} steps of {place}", per_step, advice)
    else:
        inherited = dict(plan.train)
        if "reward" in overrides:
            # The parameters in `train` are those of its own reward.
            inherited.pop("reward_kwargs", None)
        config = {**inherited, **overrides}
    saving = {"save_strategy": "steps", "save_steps": steps // plan.checkpoints}
    kinds = list(dict.fromkeys(start.kind for start in plan.starts.values()))
    start_kinds = arm.get("starts", kinds)
    for start_kind in [start_kinds] if isinstance(start_kinds, str) else start_kinds:
        check_word(f"starts of {place}", start_kind, kinds)
        checkpoints = [start.name for start in plan.starts.values() if start.kind == start_kind]
        yield Run(
            arm=name,
            # The seeds take the checkpoints of a kind in turn.
            start=checkpoints[list(plan.seeds).index(seed) % len(checkpoints)],
            seed=seed,
            # A supervised arm has no reward, which a study chooses: it is a control, unless the YAML says otherwise.
            role=CONTROL if arm.get("control", kind == SFT) else ARM,
            kind=kind,
            config=_drop_none({**config, "max_steps": steps, "seed": seed, **saving}),
            # All runs cost about as much, supervised ones in another number of steps; of GRPO it is 1.
            equivalent=grpo_steps / steps,
        )


def _check_configs(runs: Sequence[Run], plan: Plan, elsewhere: bool) -> None:
    """Refuse a configuration that the parser of its command would refuse when the run starts.

    Args:
        runs: of the study.
        plan: has the initial checkpoints that are taught.
        elsewhere: whether the runs are made on another machine, which may have a GPU that this one lacks.
    """
    from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments

    # One run of each arm is enough: the others differ only in the seed.
    configs = {f"arm {run.arm}": (run.kind, run.config) for run in runs}
    configs |= {f"start {start.name}": (SFT, start.sft) for start in plan.starts.values() if start.sft is not None}
    # The parsers need these paths, which are known only when a run starts: any will do.
    paths = {"output_dir": "runs/study", "model_name_or_path": "start"}
    options_elsewhere = _WITHOUT_GPU if elsewhere else {}
    for place, (kind, config) in configs.items():
        parse = parse_sft_arguments if kind == SFT else parse_grpo_arguments
        try:
            parse([], {**config, **paths, **options_elsewhere})
        except (ValueError, TypeError) as error:
            raise ValueError(f"{place}: {error}") from error


def _check_splits(runs: Sequence[Run], plan: Plan) -> None:
    """Refuse sets of images on which a run, or an initial checkpoint, is trained."""
    configs = [run.config for run in runs] + [start.sft for start in plan.starts.values() if start.sft is not None]
    # A training that states no dataset draws its images.
    trained_on = {(config.get("dataset", ImageOptions.dataset), config.get("train_split", TRAIN)) for config in configs}
    for dataset, split in trained_on:
        for image_set in plan.sets:
            # The same dataset or split may be spelled in several ways.
            is_other_dataset = Path(image_set.dataset).resolve() != Path(dataset).resolve()
            splits = {split_name(split), split_name(image_set.split)}
            # Two different splits share no image, unless one of them is the whole dataset.
            _expect(
                is_other_dataset or (len(splits) > 1 and ALL not in splits),
                f"a split that no run is trained on for set {image_set.name}",
                image_set.split,
                "Measure on another one.",
            )


def _settings(entry: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """The options of a training: those of the file that `config` names, overridden by the others of the mapping.

    Args:
        entry: the mapping in the YAML, with options and perhaps `config`.
        plan: its `dataset` overrides that of the file.
    """
    options = read_config(entry["config"]) if "config" in entry else {}
    # The study decides what is saved, and where, so the file's options for that do not count. Its seed does: the study
    # sets that of runs, but not that of an initial checkpoint which is taught once.
    options = {name: value for name, value in options.items() if name not in _STUDY_OPTIONS or name == "seed"}
    if plan.dataset is not None:
        options["dataset"] = plan.dataset
    return options | {name: value for name, value in entry.items() if name != "config"}


def _drop_none(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in config.items() if value is not None}


def sequences_a_step(config: Mapping[str, Any], processes: int) -> int:
    """The number of sequences of prompt, image and answer from which a step of a training learns.

    >>> sequences_a_step({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 3)
    24
    """
    batch = int(config.get("per_device_train_batch_size", 8))
    return batch * int(config.get("gradient_accumulation_steps", 1)) * processes


def _refuse_options(keys: Collection[str], place: str, options: Sequence[str] = _STUDY_OPTIONS) -> None:
    """Refuse keys that are options which the study decides itself."""
    for name in options:
        _expect(name not in keys, f"no {name} in {place}", name, "The study decides it: leave it out.")


def _expect(condition: bool, expected: str, value: object, advice: str) -> None:
    """Raise the error of a wrong value unless the condition holds."""
    if not condition:
        raise ValueError(f"Expected {expected}, got {value!r:.200}. {advice}")


def _from_mapping(form: type[_Form], entry: Mapping[str, Any], *internal: str, place: str = "the study") -> _Form:
    """Make a dataclass from a mapping of the YAML; refuse unknown and missing keys.

    Args:
        form: the dataclass.
        entry: the mapping.
        *internal: names of fields that are no keys in the YAML.
        place: of the mapping in the YAML, for messages.
    """
    keys = [option.name for option in fields(form) if option.name not in internal]  # type: ignore[arg-type]
    unknown = [key for key in entry if key not in keys]
    _expect(not unknown, f"keys of {place}", ", ".join(map(str, unknown)), "docs/run_a_study.md has them.")
    try:
        return form(**entry)
    except TypeError as error:
        # The error names the missing keys.
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
    return {name: value for name, value in config.items() if name not in _WITHOUT_EFFECT}


def fingerprint_of_start(start: InitialCheckpoint) -> str:
    """A digest of an initial checkpoint: of its weights, or its name on the hub, and of the training that makes it."""
    from grounding_rewards.models.load import digest_of_weights

    place = find_shipped(start.model)
    # Without a folder it is taught on from another checkpoint of the plan, or is on the hub: its name stands for it.
    weights = digest_of_weights(place) if Path(place).is_dir() else start.parent or start.model
    return fingerprint(weights, None if start.sft is None else settings_of(start.sft))


def fingerprint_of_run(plan: Plan, run: Run) -> str:
    """A digest of everything on which the result of a run depends: its settings, initial checkpoint and sets.

    It depends neither on other runs nor on the metrics, so that arms and seeds can be added.
    """
    sets = [vars(image_set) for image_set in plan.sets]
    # The checkpoint that the run starts from, then that from which it was taught, and so on.
    parents_last = reversed(plan.with_parents([run.start]))
    start, *parents = (fingerprint_of_start(plan.starts[name]) for name in parents_last)
    return fingerprint(run.kind, settings_of(run.config), start, sets, *parents)


def claim_folder(folder: Folder, plan: Plan) -> None:
    """Write the plan into the folder; refuse a folder of another study.

    Arms, starts and seeds may be added to a study that has begun.

    Raises:
        ValueError: the folder holds results of another plan; names the difference.
    """
    resolved = _as_yaml(plan)
    # The plan that an earlier call has written, and the names of runs with a result.
    earlier = read_yaml(folder.plan) if folder.plan.is_file() else {}
    finished = list(folder.results())
    advice = f"Give the same again, or another folder than {str(folder.root)!r} with --out."
    if earlier or finished:
        # By key what it holds, in words. Before the first result only the name is fixed.
        fixed_keys = {"name": "name", "declared": "primary metrics, margin and reference", "sets": "sets"}
        for key in fixed_keys if finished else ("name",):
            expected = f"the {fixed_keys[key]} that the study in the folder was started with, {earlier.get(key)!r}"
            _expect(earlier.get(key) == resolved[key], expected, resolved[key], advice)
    for name in finished:
        earlier_digest, digest = earlier["runs"].get(name), resolved["runs"].get(name)
        _expect(digest is not None, f"every run that the folder holds in the YAML too, {name} among them", None, advice)
        if earlier_digest != digest:
            # Refuses other settings of the arm, and names them.
            check_settings(name, _settings_of_arm(name, earlier), _settings_of_arm(name, resolved), advice)
            # Else the settings are the same, so the initial checkpoint is another one, which only the digests tell.
            check_settings(name, {"start": earlier_digest}, {"start": digest}, advice, digests=["start"])
    write_whole(folder.plan, yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True))


def _as_yaml(plan: Plan) -> dict[str, Any]:
    """The content of study.yaml: what was declared, and a digest of each run, by which a change is noticed."""
    arms = {}
    for run in plan.runs:
        # The runs of an arm differ in their seed alone.
        settings = {key: value for key, value in settings_of(run.config).items() if key != "seed"}
        arm = {"arm": run.arm, "start": run.start, "role": run.role, "kind": run.kind, "reward": run.reward}
        arms[run.start, run.arm] = arm | {"settings": settings}
    primary = []
    for measure, start_kind in plan.primary:
        # A metric that decides for every kind of initial checkpoint has no `start`.
        primary.append(_drop_none({"metric": measure.metric, "set": measure.on, "start": start_kind}))
    sets = {}
    for image_set in plan.sets:
        sets[image_set.name] = {key: value for key, value in vars(image_set).items() if key != "name"}
    starts = {}
    for start in plan.starts.values():
        starts[start.name] = {
            "model": start.parent or start.model,
            "sft": start.sft,
            "kind": start.kind,
            "fingerprint": fingerprint_of_start(start),
        }
    content = {
        "schema": SCHEMA,
        "name": plan.name,
        "declared": {"primary": primary, "equivalence": plan.equivalence, "reference": plan.reference},
        "checkpoints": plan.checkpoints,
        "sets": sets,
        "starts": starts,
        "arms": list(arms.values()),
        "runs": {run.name: fingerprint_of_run(plan, run) for run in plan.runs},
    }
    # Through JSON, as it is read again: tuples are lists.
    return json.loads(json.dumps(content))


def _settings_of_arm(run: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the arm of a run, from the content of study.yaml."""
    start, arm, _ = run.split("--")
    return next(entry["settings"] for entry in content["arms"] if (entry["start"], entry["arm"]) == (start, arm))
