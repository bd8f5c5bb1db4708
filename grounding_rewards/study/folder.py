"""The folder of a study: what is where, whose it is, and who is at work on a run.

study.yaml                      the plan as it was resolved, with a fingerprint per run
images.json                      references of the sets that every model is measured on
starts/<start>.json             answers of the start on all sets
results/<start>--<arm>--seed<k>.json   what a run did and answered
runs/, made/, logs/             trainings, starts that were made, and what the programs printed; not needed afterwards
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from grounding_rewards.common.shipped import find_shipped
from grounding_rewards.common.texts import read_yaml
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.logs.run_log import CHECKPOINT
from grounding_rewards.study.plan import Plan, Run, Start, fingerprint, settings_of
from grounding_rewards.study.results import SCHEMA


class Folder:
    """Paths in the folder of a study."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plan, self.images = root / "study.yaml", root / "images.json"

    def result(self, run: Run) -> Path:
        """What a run did and answered."""
        return self.root / "results" / f"{run.name}.json"

    def answers_of_start(self, start: str) -> Path:
        """What a start answered."""
        return self.root / "starts" / f"{start}.json"

    def training(self, run: Run) -> Path:
        """The training of a run, which is removed when it is measured."""
        return self.root / "runs" / run.name

    def made(self, start: str) -> Path:
        """The training that made a start."""
        return self.root / "made" / start

    def log(self, name: str) -> Path:
        """What the programs of a run printed."""
        return self.root / "logs" / f"{name}.log"

    def weights(self, start: Start) -> str:
        """What runs give as model_name_or_path."""
        return str(self.made(start.name) / CHECKPOINT) if start.sft is not None else find_shipped(start.model)


def fingerprint_of_start(start: Start) -> str:
    """A digest of the weights that are given, or of the recipe that makes them; of a name on the hub, the name."""
    from grounding_rewards.models.place import digest_of_weights

    place = find_shipped(start.model)
    weights = digest_of_weights(place) if Path(place).is_dir() else start.model
    return fingerprint(weights, None if start.sft is None else settings_of(start.sft))


def fingerprint_of_run(plan: Plan, run: Run) -> str:
    """A digest of all that the result of a run depends on: its settings, its start and the sets.

    Neither other runs nor the metrics enter it, so that arms and seeds can be added.
    """
    sets = [vars(one) for one in plan.sets]
    return fingerprint(run.kind, settings_of(run.config), fingerprint_of_start(plan.starts[run.start]), sets)


def claim(folder: Folder, plan: Plan) -> None:
    """Write the plan into the folder, or refuse a folder that another study has begun.

    Arms, starts and seeds may be added to a study that has begun.

    Raises:
        ValueError: the folder holds results that are not this plan's; says which, and what differs.
    """
    resolved = _resolved(plan)
    if folder.plan.is_file():
        _compare(folder, read_yaml(folder.plan), resolved)
    elif (folder.root / "results").is_dir() and any((folder.root / "results").iterdir()):
        raise ValueError(
            f"Expected study.yaml beside the results in {str(folder.root)!r}, got none. Give another folder with --out."
        )
    write_whole(folder.plan, yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True))


@contextmanager
def at_work(file: Path, *, wait: bool = False) -> Iterator[Any]:
    """Hold the lock of a run or start: two studies of one folder, such as jobs of an array, share the work.

    Programs that inherit the file hold it on, should this process be killed before them.

    Args:
        file: that is locked; it stays.
        wait: until another process lets go of it, instead of giving None at once.

    Returns:
        The open file, None where another process is at work.
    """
    import fcntl

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield lock


def _resolved(plan: Plan) -> dict[str, Any]:
    arms: dict[str, Any] = {}
    for run in plan.runs:
        arm = arms.setdefault(f"{run.start}--{run.arm}", {"arm": run.arm, "start": run.start, "role": run.role})
        arm |= {"kind": run.kind, "reward": run.reward}
        arm["settings"] = {key: value for key, value in settings_of(run.config).items() if key != "seed"}
    content = {
        "schema": SCHEMA,
        "name": plan.name,
        "declared": plan.declared,
        "checkpoints": plan.checkpoints,
        "sets": {one.name: {key: value for key, value in vars(one).items() if key != "name"} for one in plan.sets},
        "starts": {
            one.name: {
                "model": one.model,
                "sft": one.sft,
                "kind": one.kind,
                "fingerprint": fingerprint_of_start(one),
            }
            for one in plan.starts.values()
        },
        "arms": list(arms.values()),
        "runs": {run.name: fingerprint_of_run(plan, run) for run in plan.runs},
    }
    # As YAML will give it back.
    return json.loads(json.dumps(content))


def _compare(folder: Folder, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    finished = [name for name in before.get("runs", {}) if (folder.root / "results" / f"{name}.json").is_file()]
    here = repr(str(folder.root))
    if before.get("name") != now["name"]:
        raise ValueError(
            f"Expected the study {before.get('name')!r}, which the folder {here} holds, got {now['name']!r}. "
            "Give another folder with --out."
        )
    if not finished:
        return
    for key, what, why in (
        ("declared", "primary metrics and reference", "they were declared before the runs"),
        ("sets", "sets", "models were measured on them"),
    ):
        if before.get(key) != now[key]:
            raise ValueError(
                f"Expected the {what} of the study in {here}, {before.get(key)}, got {now[key]}: {why}. "
                "Give the same again, or another folder with --out."
            )
    for name in finished:
        if name not in now["runs"]:
            raise ValueError(
                f"Expected every run that the folder {here} holds in the YAML too, got none called {name}. Its result "
                "would be left out unseen: add the arm or seed again, or give another folder with --out."
            )
        if now["runs"][name] != before["runs"][name]:
            raise ValueError(
                f"Expected the settings that {name} in {here} was made with, got {_difference(name, before, now)}. "
                "Give the same again, call the changed arm by another name, or give another folder with --out."
            )


def _difference(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    start, arm, _ = name.split("--")

    def settings(content: Mapping[str, Any]) -> dict[str, Any]:
        return next(one["settings"] for one in content["arms"] if (one["start"], one["arm"]) == (start, arm))

    had, have = settings(before), settings(now)
    changed = [key for key in dict.fromkeys([*had, *have]) if had.get(key) != have.get(key)]
    return ", ".join(f"{key} {have.get(key)!r} instead of {had.get(key)!r}" for key in changed) or "another start"
