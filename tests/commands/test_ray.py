"""`--engine ray` on two workers, one of which is killed in the middle: the bytes are those of one machine."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from grounding_rewards.cli import main
from grounding_rewards.common.ray_engine import TOO_SLOW
from grounding_rewards.common.workers import map_in_workers
from grounding_rewards.logs import completion_logs, score_file
from grounding_rewards.models import resumable
from grounding_rewards.prepare import pipeline

ray = pytest.importorskip("ray", reason="needs the extra ray")


# Ray's own processes get 15 seconds to start, which cannot be changed.
STARTS = 3


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two workers on this machine, or the cluster that RAY_ADDRESS names."""
    pytest.importorskip("ray.data", reason="needs the extra ray")
    own = {} if os.environ.get("RAY_ADDRESS") else {"address": "local", "num_cpus": 2, "include_dashboard": False}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    for _ in range(STARTS):
        try:
            ray.init(log_to_driver=False, **own)
            break
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise
    else:
        pytest.skip(f"Ray did not start in time, {STARTS} times: the machine is too busy for its own processes")
    # Workers get the classes of this file as they are, because they cannot import it.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    ray.shutdown()


class Once:
    """Kills the process in which it is called for the first time: the file that it leaves says so to all others."""

    left: ClassVar[str] = ""

    @classmethod
    def kill(cls) -> None:
        try:
            os.close(os.open(cls.left, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The file that is there once a worker was killed."""
    Once.left = str(tmp_path / "killed")
    return tmp_path / "killed"


class Counting:
    """How often this worker was called; the third call of one worker kills it, and some items cannot be used."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, item: int) -> tuple[int, int, int]:
        self.calls += 1
        if self.calls == 3:
            Once.kill()
        if item == 33:
            raise ValueError("line 33 of 'log.jsonl': Expected a box")
        # Where this is not run by Ray, this process knows of no worker's name.
        assert ray.get_runtime_context().get_actor_id() is not None
        return item, self.calls, os.getpid()


def test_the_order_is_kept_and_errors_are_the_own(killed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = []
    with (
        pytest.raises(ValueError, match=r"^line 33 of 'log.jsonl': Expected a box$"),
        map_in_workers(Counting(), iter(range(40)), processes=2, engine="ray", at_once=2) as results,
    ):
        made.extend(results)
    assert killed.exists()
    assert [item for item, _, _ in made] == list(range(33))
    # Workers keep their copy.
    assert max(calls for _, calls, _ in made) > 2
    assert len({process for _, _, process in made}) > 1
    # Ray says that a worker died, and nothing of what workers were given.
    assert "log.jsonl" not in "".join(capfd.readouterr())


class Unreadable:
    """Items that end in an error."""

    def __iter__(self) -> Iterator[int]:
        yield 1
        raise ValueError("Expected a whole file")


def test_what_cannot_be_read_is_said_here() -> None:
    with (
        pytest.raises(ValueError, match=r"^Expected a whole file$"),
        map_in_workers(abs, Unreadable(), processes=1, engine="ray") as results,
    ):
        list(results)


class DyingScorer(score_file._Scorer):
    def __call__(self, block: Any) -> Any:
        if block.first > 100:
            Once.kill()
        return super().__call__(block)


def test_scoring(tmp_path: Path, killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ['[{"bbox_2d": [0, 0, 500, 400], "label": "mass"}]', "[]", "no idea"]
    rows = [
        {"id": k, "completion": texts[k % 3], "boxes": [[0, 0, 50, 50]] * (k % 2), "width": 100, "height": 100}
        for k in range(400)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = ["score", str(log), "--rewards", "R3", "R5", "--box-format", "qwen3-vl", "--out"]
    assert main([*command, str(tmp_path / "here.parquet")]) == 0
    # A worker of Ray reads the file: blocks are small there too.
    monkeypatch.setattr(score_file, "LogBlocks", SmallBlocks)
    monkeypatch.setattr(score_file, "_Scorer", DyingScorer)
    assert main([*command, str(tmp_path / "there.parquet"), "--engine", "ray", "--processes", "2"]) == 0
    assert killed.exists()
    assert (tmp_path / "there.parquet").read_bytes() == (tmp_path / "here.parquet").read_bytes()


class SmallBlocks(completion_logs.LogBlocks):
    def __iter__(self) -> Iterator[Any]:
        before = completion_logs._BYTES
        completion_logs._BYTES = 1000
        try:
            yield from list(super().__iter__())
        finally:
            completion_logs._BYTES = before


class DyingWork(pipeline._Work):
    def store(self, file: str) -> Any:
        if file == "7.png":
            Once.kill()
        return super().store(file)


def test_preparing(tmp_path: Path, killed: Path, make_images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root, records = make_images(12)
    lines = [
        {"file": one.file, "id": one.id, "boxes": one.boxes, "labels": one.labels, "width": 96, "height": 64}
        for one in records
    ]
    (root / "annotations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    command = ["prepare", "jsonl", "--root", str(root), "--box-format", "qwen3-vl", "--side", "48"]
    command += ["--splits-from", "hash", "--shard-megabytes", "0.003", "--out"]
    assert main([*command, str(tmp_path / "here")]) == 0
    monkeypatch.setattr(pipeline, "_Work", DyingWork)
    assert main([*command, str(tmp_path / "there"), "--engine", "ray", "--processes", "2"]) == 0
    assert killed.exists()
    there, here = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "there", tmp_path / "here")
    )
    assert there == here


class DyingAnswers(resumable._Asking):
    def __call__(self, batch: Any) -> Any:
        if batch.number == 2:
            Once.kill()
        return super().__call__(batch)


@pytest.mark.training
def test_generating(tmp_path: Path, killed: Path, tiny_model: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "model"
    for part in tiny_model:
        part.save_pretrained(checkpoint)
    command = ["evaluate", "--model", str(checkpoint), "--dataset", "synthetic", "--images", "9", "--batch-size", "2"]
    command += ["--max-new-tokens", "4", "--resamples", "20", "--max-image-pixels", "10000", "--out"]
    assert main([*command, str(tmp_path / "here")]) == 0
    monkeypatch.setattr(resumable, "_Asking", DyingAnswers)
    assert main([*command, str(tmp_path / "there"), "--engine", "ray", "--processes", "2"]) == 0
    assert killed.exists()
    # Settings too: what was begun with one engine goes on with the other.
    for file in ("completions.jsonl", "completions.settings.json"):
        here, there = ((tmp_path / name / file).read_bytes() for name in ("here", "there"))
        assert there == here
    # All are there: nobody is asked again, on either engine.
    monkeypatch.setattr(resumable, "map_in_workers", None)
    for name, engine in (("there", "local"), ("here", "ray")):
        (tmp_path / name / "report.html").unlink()
        assert main([*command, str(tmp_path / name), "--engine", engine]) == 0
