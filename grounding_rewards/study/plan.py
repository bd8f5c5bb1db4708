"""What a study's YAML asks for: every run, with the configuration that `train` or `sft` gets.

The files of configs/study/ show every key. All is checked here, before anything starts: each run's configuration is
read by the parser that the training itself uses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grounding_rewards.common.config_files import read_config
from grounding_rewards.common.legal import SHARE, check_number
from grounding_rewards.common.shipped import find_shipped
from grounding_rewards.common.texts import read_yaml
from grounding_rewards.models.robustness import CORRUPTIONS, STRENGTHS
from grounding_rewards.study.curves import POINTS
from grounding_rewards.study.results import ARM, CONTROL, FEWEST_SEEDS
from grounding_rewards.study.rulers import RULERS

#: The start that `models.tiny_vlm` builds with random weights.
UNTRAINED = "untrained_tiny_vlm"

GRPO, SFT = "train", "sft"

_KEYS = {
    "name": "how the study is called",
    "dataset": "default of `dataset` in `train`, in `sft` and in every set",
    "primary": "the metrics that decide, each with its set: [{metric: f1_50, set: test}, …]",
    "equivalence": "differences up to this are none that matters, in units of the primary metrics",
    "reference": "the arm that the others are compared with",
    "seeds": "how many, or a list of them",
    "checkpoints": "how many checkpoints of a run are measured, the last one among them",
    "keep": "whether checkpoints stay after they are measured",
    "accelerate": "configuration of `accelerate launch`",
    "train": "`config`, a file for `grounding-rewards train` or several, and whatever of it is overridden",
    "sets": "images that models are measured on: a name each, with dataset, split, images and changes",
    "batch_size": "images answered at once when a model is measured",
    "starts": "models that runs start from: a name each, with `model`, and `sft` to teach it first",
    "arms": "what is compared: a name each, with reward, reward_kwargs, or any other option of `train`; or `sft`",
}
_REQUIRED = ("name", "primary", "reference", "seeds", "train", "sets", "starts", "arms")
_SET_KEYS = ("dataset", "split", "images", "changes")
_START_KEYS = ("model", "sft", "checkpoints")
#: Of a start: one checkpoint for all seeds, or for each seed one that was taught with it.
ONE, EACH_SEED = "one", "each_seed"
_ARM_KEYS = ("starts", "control", SFT)
# What the study itself decides.
_OURS = ("seed", "output_dir", "model_name_or_path", "save_strategy", "save_steps", "save_total_limit")
# Settings that change nothing in what a run learns or is measured by.
_FREE = (*("output_dir", "run_name", "logging_steps", "disable_tqdm", "report_to"), "model_name_or_path")
# What makes transformers take a configuration for GPUs on a machine without.
_WITHOUT_GPU = {"use_cpu": True, "bf16": False, "fp16": False, "tf32": False}


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
    images: int | None
    changes: Mapping[str, int]


@dataclass(frozen=True)
class Start:
    """A model that runs start from.

    Attributes:
        name: such as `weak`.
        model: a folder, a name on the hub, or :data:`UNTRAINED`.
        sft: configuration of the warm start that makes it; None where the model is taken as it is.
        kind: what the YAML calls it; several starts are of one kind where each seed has a checkpoint of its own.
    """

    name: str
    model: str
    sft: Mapping[str, Any] | None
    kind: str


@dataclass(frozen=True)
class Run:
    """One training: an arm from a start with a seed.

    Attributes:
        arm, start, seed: which.
        role: `arm` or `control`, as :mod:`grounding_rewards.study.results` names them.
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
        return {
            "name": self.config.get("reward", "R4"),
            "kwargs": self.config.get("reward_kwargs") or {},
            **({"weights": weights} if (weights := self.config.get("reward_weights")) else {}),
        }


@dataclass(frozen=True)
class Plan:
    """A study as its YAML says, each run spelled out.

    Attributes:
        source: the resolved YAML.
        name, primary, equivalence, reference, checkpoints, keep, accelerate, batch_size: as in the YAML.
        processes: of a training, as the configuration of `accelerate` says.
        sets: that every model is measured on.
        starts: that runs start from.
        runs: in the order in which they are made: all arms with the first seed come first.
    """

    source: Mapping[str, Any]
    name: str
    primary: tuple[Mapping[str, str], ...]
    equivalence: float
    reference: str
    checkpoints: int
    keep: bool
    accelerate: str
    processes: int
    batch_size: int
    sets: tuple[ImageSet, ...]
    starts: Mapping[str, Start]
    runs: tuple[Run, ...]

    @property
    def declared(self) -> dict[str, Any]:
        """What is settled before the first run."""
        return {"primary": list(self.primary), "equivalence": self.equivalence, "reference": self.reference}


def read_plan(path: str | Path, *, dataset: str | None = None, elsewhere: bool = False) -> Plan:
    """The plan of a study's YAML, every run checked.

    Args:
        path: of the YAML; the paths that it names are found from the working directory, or are those of files that
            come with the package.
        dataset: instead of its `dataset`.
        elsewhere: whether runs are made on another machine: that this one has no GPU is no reason to refuse them.

    Raises:
        ValueError: an unknown key, reward or parameter, an option of a wrong type, one seed alone, …; names where.
    """
    content = read_yaml(find_shipped(path))
    if not isinstance(content, Mapping):
        raise ValueError(f"Expected a mapping in {path}, got {type(content).__name__}. See configs/study/ for files.")
    given = {**content, **({"dataset": dataset} if dataset is not None else {})}
    return make_plan(given, str(path), elsewhere)


def make_plan(given: Mapping[str, Any], where: str, elsewhere: bool) -> Plan:
    """As :func:`read_plan`, of a YAML's content."""
    _known(given, _KEYS, where, "a study")
    for key in _REQUIRED:
        if given.get(key) in (None, {}, []):
            raise ValueError(f"Expected `{key}` in {where}, got none. It is {_KEYS[key]}.")
    sets = tuple(_set(name, one, given.get("dataset"), where) for name, one in _named(given, "sets", where))
    seeds = _seeds(given["seeds"], where)
    kinds = dict(_named(given, "starts", where))
    starts = {one.name: one for kind, of in kinds.items() for one in _starts(kind, of, seeds, given, where)}
    checkpoints = _whole(given.get("checkpoints", 2), "checkpoints", where)
    arms = dict(_named(given, "arms", where))
    runs = [
        run
        for seed in seeds
        for name, arm in arms.items()
        for run in _runs(name, arm, seed, given, kinds, starts, checkpoints, where)
    ]
    primary, reference = given["primary"], given["reference"]
    primary = [primary] if isinstance(primary, Mapping) else list(primary)
    if not all(isinstance(one, Mapping) and set(one) == {"metric", "set"} for one in primary):
        raise ValueError(
            f"Expected metrics with their sets for primary in {where}, got {primary!r}. Write [{{metric: f1_50, set: "
            f"{sets[0].name}}}]: they are declared before the runs, so that nobody can choose them by their result."
        )
    for one in primary:
        _one_of(one["metric"], RULERS, "the metric of primary", where)
        _one_of(one["set"], [found.name for found in sets], "the set of primary", where)
    _one_of(reference, arms, "reference", where)
    accelerate = str(given.get("accelerate", "configs/accelerate/cpu_1.yaml"))
    plan = Plan(
        source=dict(given),
        name=_file_name(given["name"], "name", where),
        primary=tuple({key: str(value) for key, value in one.items()} for one in primary),
        equivalence=check_number("equivalence", given.get("equivalence", 0.02), SHARE),
        reference=reference,
        checkpoints=checkpoints,
        keep=bool(given.get("keep", False)),
        accelerate=accelerate,
        processes=_processes(accelerate, where),
        batch_size=_whole(given.get("batch_size", 64), "batch_size", where),
        sets=sets,
        starts=starts,
        runs=tuple(runs),
    )
    return _with_equal_compute(plan, where, elsewhere)


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


def sequences_a_step(config: Mapping[str, Any], processes: int) -> int:
    """Sequences of prompt, image and answer that a step of a training learns from.

    >>> sequences_a_step({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 3)
    24
    """
    batch = int(config.get("per_device_train_batch_size", 8))
    return batch * int(config.get("gradient_accumulation_steps", 1)) * processes


def check_config(kind: str, config: Mapping[str, Any], where: str, elsewhere: bool = False) -> None:
    """Read a configuration with the parser of its command, as the run itself will.

    Raises:
        ValueError: the parser refuses it; says where it comes from.
    """
    from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments

    parse = parse_sft_arguments if kind == SFT else parse_grpo_arguments
    try:
        parse([], {**config, **(_WITHOUT_GPU if elsewhere else {})})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from error


def _runs(
    name: str,
    arm: Mapping[str, Any],
    seed: int,
    given: Mapping[str, Any],
    kinds: Collection[str],
    starts: Mapping[str, Start],
    checkpoints: int,
    where: str,
) -> Iterable[Run]:
    place = f"arm {name} in {where}"
    own = {key: value for key, value in arm.items() if key not in _ARM_KEYS}
    asked = arm.get("starts", list(kinds))
    for kind_of_start in [asked] if isinstance(asked, str) else asked:
        _one_of(kind_of_start, kinds, f"starts of {place}", where)
        start = next(one.name for one in starts.values() if one.name in (kind_of_start, f"{kind_of_start}.{seed}"))
        base = _settings(given["train"], given, place)
        if "reward" in own:
            # They are parameters of another reward.
            base.pop("reward_kwargs", None)
        kind = SFT if SFT in arm else GRPO
        if kind == SFT and own:
            raise ValueError(f"Expected nothing beside sft in {place}, got {', '.join(own)}. Write it into sft.")
        config = {**base, **own} if kind == GRPO else _settings(arm[SFT], given, place)
        taught = arm.get(SFT) or {}
        _refuse_ours({**own, **taught}, place)
        if "max_steps" in taught:
            raise ValueError(
                f"Expected no max_steps in sft of {place}, got {taught['max_steps']!r}. It is reckoned from the budget "
                "of GRPO: leave it out."
            )
        steps = base.get("max_steps")
        if not isinstance(steps, int) or steps < 1 or steps % checkpoints:
            raise ValueError(
                f"Expected a multiple of checkpoints, {checkpoints}, for max_steps in train of {where}, got {steps!r}. "
                "Every run has this budget, and its checkpoints are measured at equal distances."
            )
        if config.get("max_steps", steps) != steps and kind == GRPO:
            raise ValueError(
                f"Expected the budget of all arms, {steps} steps, for {place}, got max_steps {config['max_steps']!r}. "
                "Arms are compared at equal cost: leave it out."
            )
        yield Run(
            arm=name,
            start=start,
            seed=seed,
            role=CONTROL if arm.get("control", kind == SFT) else ARM,
            kind=kind,
            config={**config, "max_steps": steps, "seed": seed},
            equivalent=1.0,
        )


def _with_equal_compute(plan: Plan, where: str, elsewhere: bool) -> Plan:
    """Give supervised runs as many steps as read as many answers as GRPO does, and check every configuration.

    A step of GRPO learns from as many sequences of prompt, image and answer as it has completions; a supervised one
    from as many as its batch. Sequences are about equally long, so equal numbers are equal numbers of tokens learned
    from.
    """
    runs = []
    checked = set()
    for run in plan.runs:
        per_step = sequences_a_step(run.config, plan.processes)
        config = dict(run.config)
        if run.kind == SFT:
            budget = next(sequences_a_step(one.config, plan.processes) for one in _grpo_like(plan, where))
            steps = config["max_steps"]
            total = round(steps * budget / per_step / plan.checkpoints) * plan.checkpoints
            if total < plan.checkpoints:
                raise ValueError(
                    f"Expected batches small enough for {plan.checkpoints} steps of arm {run.arm} in {where}, got "
                    f"{per_step} answers a step. Lower per_device_train_batch_size."
                )
            config["max_steps"] = total
            # As many points of its curve as are kept.
            config["logging_steps"] = max(1, total // POINTS)
            run = replace(run, equivalent=steps / total)
        config |= {
            "save_strategy": "steps",
            "save_steps": config["max_steps"] // plan.checkpoints,
            "save_total_limit": None,
        }
        # Seeds differ in nothing that could be wrong.
        key = fingerprint({**config, "seed": 0}, run.kind)
        if key not in checked:
            checked.add(key)
            spelled = {**_without_none(config), "output_dir": "runs/study", "model_name_or_path": "start"}
            check_config(run.kind, spelled, f"arm {run.arm} in {where}", elsewhere)
        runs.append(replace(run, config=_without_none(config)))
    for start in plan.starts.values():
        if start.sft is not None:
            spelled = {**start.sft, "output_dir": "runs/study", "model_name_or_path": "start"}
            check_config(SFT, spelled, f"start {start.name} in {where}", elsewhere)
    return replace(plan, runs=tuple(runs))


def _grpo_like(plan: Plan, where: str) -> list[Run]:
    found = [run for run in plan.runs if run.kind == GRPO]
    if not found:
        raise ValueError(f"Expected an arm with a reward in {where}, got supervised ones alone. Add one.")
    return found


def _without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value is not None}


def _processes(accelerate: str, where: str) -> int:
    file = find_shipped(accelerate)
    if not Path(file).is_file():
        raise ValueError(
            f"Expected a configuration of `accelerate launch` for accelerate in {where}, got {accelerate!r}, which is "
            "no file. configs/accelerate/ has some."
        )
    return int(read_yaml(file).get("num_processes", 1))


def _set(name: str, one: Mapping[str, Any], dataset: Any, where: str) -> ImageSet:
    place = f"set {name} in {where}"
    _known(one, _SET_KEYS, place, "a set")
    found = one.get("dataset", dataset)
    if found is None or one.get("split") is None:
        raise ValueError(f"Expected dataset and split for {place}, got {dict(one)!r}. Name images not trained on.")
    images = None if one.get("images") is None else _whole(one["images"], "images", place)
    changes = one.get("changes") or {}
    for kind, strength in _pairs(changes):
        if kind not in CORRUPTIONS or strength not in STRENGTHS:
            raise ValueError(
                f"Expected strengths of {STRENGTHS[0]} to {STRENGTHS[-1]} of {', '.join(CORRUPTIONS)} for changes of "
                f"{place}, got {changes!r}. Write {{window_level: 3, crop: 3}}."
            )
    return ImageSet(name, str(found), str(one["split"]), images, dict(changes))


def _pairs(changes: Any) -> Iterable[tuple[Any, Any]]:
    return changes.items() if isinstance(changes, Mapping) else [(changes, None)]


def _starts(
    kind: str, one: Mapping[str, Any], seeds: Sequence[int], given: Mapping[str, Any], where: str
) -> Iterable[Start]:
    place = f"start {kind} in {where}"
    _known(one, _START_KEYS, place, "a start")
    if not isinstance(one.get("model"), str):
        raise ValueError(
            f"Expected a folder, a name on the hub or {UNTRAINED} for model of {place}, got {one.get('model')!r}. "
            "Name the weights that every arm starts from."
        )
    several = one.get("checkpoints", ONE)
    _one_of(several, (ONE, EACH_SEED), f"checkpoints of {place}", where)
    if one.get("sft") is None:
        if several == EACH_SEED:
            raise ValueError(f"Expected sft for {place}, got none. Only a checkpoint that is taught has a seed.")
        yield Start(kind, one["model"], None, kind)
        return
    _refuse_ours({key: value for key, value in one["sft"].items() if key != "seed"}, place)
    config = _without_none({**_settings(one["sft"], given, place), "save_strategy": "no"})
    if several == ONE:
        yield Start(kind, one["model"], config, kind)
    else:
        yield from (Start(f"{kind}.{seed}", one["model"], {**config, "seed": seed}, kind) for seed in seeds)


def _settings(one: Any, given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What the file of `config` says, overridden by what stands beside it."""
    if not isinstance(one, Mapping):
        raise ValueError(f"Expected a mapping for the settings of {place}, got {one!r}. Write config: and options.")
    base: dict[str, Any] = {}
    if "config" in one:
        base = read_config(one["config"])
    beside = {name: value for name, value in one.items() if name != "config"}
    named = {"dataset": given["dataset"]} if given.get("dataset") is not None else {}
    # The study saves what it measures, where it wants it.
    taken = {name: value for name, value in base.items() if name not in _OURS or name == "seed"}
    return {**taken, **named, **beside}


def _refuse_ours(own: Mapping[str, Any], place: str) -> None:
    for name in _OURS:
        if name in own:
            raise ValueError(f"Expected no {name} in {place}, got {own[name]!r}. The study decides it: leave it out.")


def _named(given: Mapping[str, Any], key: str, where: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = given[key]
    if not isinstance(found, Mapping) or not all(isinstance(one or {}, Mapping) for one in found.values()):
        raise ValueError(f"Expected names with a mapping each for {key} in {where}, got {found!r:.80}. {_KEYS[key]}.")
    return [(_file_name(name, key, where), one or {}) for name, one in found.items()]


def _seeds(given: Any, where: str) -> list[int]:
    seeds = list(range(given)) if isinstance(given, int) and not isinstance(given, bool) else given
    whole = isinstance(seeds, Sequence) and all(isinstance(one, int) and one >= 0 for one in seeds)
    if not whole or len(set(seeds)) != len(seeds) or len(seeds) < FEWEST_SEEDS:
        raise ValueError(
            f"Expected at least {FEWEST_SEEDS} different seeds for seeds in {where}, got {given!r}. The unit of a "
            "study is the training run: one run of an arm cannot be told from chance. Reviewers want 5 or more."
        )
    return list(seeds)


def _known(given: Mapping[str, Any], keys: Collection[str], where: str, what: str) -> None:
    if unknown := [str(key) for key in given if key not in keys]:
        raise ValueError(f"Expected keys of {what} in {where}, got {', '.join(unknown)}. They are {', '.join(keys)}.")


def _one_of(value: Any, known: Iterable[str], what: str, where: str) -> None:
    if value not in (names := list(known)):
        raise ValueError(f"Expected one of {', '.join(names)} for {what} in {where}, got {value!r}. Correct it.")


def _whole(value: Any, what: str, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"Expected a whole number from 1 up for {what} in {where}, got {value!r}. Correct it.")
    return value


def _file_name(name: Any, what: str, where: str) -> str:
    """A name that files can be called by: without two hyphens in a row, which part the name of a run."""
    text = str(name)
    plain = text.replace("_", "a").replace(".", "a").replace("-", "a")
    if not plain.isascii() or not plain.isalnum() or "--" in text or text.startswith((".", "-")):
        raise ValueError(
            f"Expected a name of letters, digits, `_`, `.` and single hyphens for {what} in {where}, got {text!r}. "
            "Files are called by it."
        )
    return text
