"""Answers that are kept as they come: stops of every kind, other settings."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards.models import generate as generating
from grounding_rewards.models import load
from grounding_rewards.models.generate import Sampling, generate, generate_to_file
from grounding_rewards.models.load import load_later
from grounding_rewards.synthetic import synthetic_dataset
from tests.training.runs import ASSET

SHORT = Sampling(max_new_tokens=6)
TWO = Sampling(samples=2, temperature=1.0, max_new_tokens=6)
FILE = Path("run [1]", "completions.jsonl")
GREEDY: dict[str, Any] = {"sampling": SHORT, "batch_size": 2}
SAMPLED: dict[str, Any] = {"sampling": TWO, "batch_size": 4, "seed": 3}


@pytest.fixture(scope="module")
def dataset():
    return synthetic_dataset("test", 7)


@pytest.fixture(scope="module")
def model_on_disk(checkpoint):
    """Loaded when it is asked."""
    return load_later(checkpoint)


@pytest.fixture
def path(tmp_path):
    return tmp_path / FILE


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_part(path, answers):
    """Write answers by the number of their row as a process that was stopped has left them."""
    entries = [json.dumps({"row": row, "completions": completions}) + "\n" for row, completions in answers.items()]
    path.with_suffix(".part.jsonl").write_text("".join(entries), encoding="utf-8")


def in_a_process_that_is_killed(function):
    """Run a function that kills itself; a fork, so that torch is not loaded again."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            # Reached only where nothing killed it.
            os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def dies_at_batch(number, monkeypatch, path, half=""):
    """Kill the process as it is about to generate that batch, in the middle of a line where one is given."""
    original = generating.generate_batch
    calls: list[int] = []

    def dying(*arguments, **settings):
        calls.append(1)
        if len(calls) == number:
            if half:
                with path.with_suffix(".part.jsonl").open("a", encoding="utf-8") as file:
                    file.write(half)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **settings)

    monkeypatch.setattr(generating, "generate_batch", dying)


def test_greedy_answers_are_those_of_generate(model_on_disk, dataset, path):
    # So that an evaluation of the file draws patients, as one of the model does.
    dataset = dataset.add_column("patient_id", [f"patient {k // 2}" for k in range(dataset.num_rows)])
    answers = generate_to_file(*model_on_disk, dataset, path, **GREEDY)
    model, processor = model_on_disk
    assert answers == generate(model.load(), processor, dataset, **GREEDY)
    assert [row["id"] for row in lines(path)] == dataset["id"]
    assert [[row["completion"]] for row in lines(path)] == answers
    assert lines(path)[0]["boxes"] == dataset[0]["boxes"]
    assert [row["patient_id"] for row in lines(path)] == dataset["patient_id"]
    # Nothing else is left behind.
    assert sorted(file.name for file in path.parent.iterdir()) == ["completions.jsonl", "completions.settings.json"]


@pytest.mark.parametrize(
    ("settings", "half"),
    [(GREEDY, ""), (SAMPLED, ""), (SAMPLED, '{"row": 4, "completions": ["[]", "'), (GREEDY, "\0\0\0")],
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_run_goes_on(model_on_disk, dataset, path, monkeypatch, settings, half):
    expected = generate_to_file(*model_on_disk, dataset, path.parent / "whole" / path.name, **settings)
    with monkeypatch.context() as patch:
        dies_at_batch(3, patch, path, half)
        in_a_process_that_is_killed(lambda: generate_to_file(*model_on_disk, dataset, path, **settings))
    assert not path.is_file()
    part = path.with_suffix(".part.jsonl").read_text(encoding="utf-8")
    assert len(part.splitlines()) == 1 + 4 + bool(half)
    asked: list[int] = []
    original = generating.generate_batch

    def counting(model, processor, rows, *arguments, **more):
        asked.append(len(rows))
        return original(model, processor, rows, *arguments, **more)

    monkeypatch.setattr(generating, "generate_batch", counting)
    assert generate_to_file(*model_on_disk, dataset, path, **settings) == expected
    # Only what was missing was generated.
    assert asked == [2, 1]
    assert path.read_bytes() == (path.parent / "whole" / path.name).read_bytes()


def test_a_part_of_a_batch_is_completed(model_on_disk, dataset, path):
    expected = generate_to_file(*model_on_disk, dataset, path, **SAMPLED)
    written = path.read_bytes()
    # All but the second and the last image.
    write_part(path, {0: expected[0], **dict(enumerate(expected[2:-1], 2))})
    path.unlink()
    assert generate_to_file(*model_on_disk, dataset, path, **SAMPLED) == expected
    assert path.read_bytes() == written


@pytest.mark.parametrize(
    ("begun", "changed", "difference"),
    [
        (GREEDY, {"sampling": replace(SHORT, max_new_tokens=5)}, "max_new_tokens 5 instead of 6"),
        (GREEDY, {"sampling": replace(SHORT, temperature=0.5)}, "temperature 0.5 instead of 0.0, seed 0 instead of"),
        (SAMPLED, {"seed": 4}, "seed 4 instead of 3"),
        (SAMPLED, {"sampling": replace(TWO, samples=4)}, "samples 4 instead of 2"),
        (SAMPLED, {"batch_size": 2}, "batch_size 2 instead of 4"),
    ],
)
def test_other_settings_are_refused(model_on_disk, dataset, path, begun, changed, difference):
    images = dataset.select(range(2))
    generate_to_file(*model_on_disk, images, path, **begun)
    with pytest.raises(ValueError, match=f"was started with, got {difference}"):
        generate_to_file(*model_on_disk, images, path, **{**begun, **changed})
    given = {**begun, **changed, "overwrite": True}
    answers = generate_to_file(*model_on_disk, images, path, **given)
    # Answers of the same settings are kept.
    kept = path.read_text(encoding="utf-8").replace('"completion": "', '"completion": "kept ')
    path.write_text(kept, encoding="utf-8")
    assert generate_to_file(*model_on_disk, images, path, **given) == [[f"kept {one}" for one in of] for of in answers]


def test_greedy_answers_go_on_in_batches_of_another_size(model_on_disk, dataset, path):
    expected = generate_to_file(*model_on_disk, dataset, path, **GREEDY)
    path.unlink()
    write_part(path, dict(enumerate(expected[:3])))
    # As after running out of memory.
    assert generate_to_file(*model_on_disk, dataset, path, **{**GREEDY, "batch_size": 1}) == expected


def test_another_model_or_dataset_is_refused(model_on_disk, dataset, path):
    model, processor = model_on_disk
    images = dataset.select(range(2))
    generate_to_file(model, processor, images, path, **GREEDY)
    with pytest.raises(ValueError, match="got another dataset"):
        generate_to_file(model, processor, dataset, path, **GREEDY)
    other = load_later(ASSET)[0]
    with pytest.raises(ValueError, match="got another model"):
        generate_to_file(other, processor, images, path, **GREEDY)


@pytest.mark.parametrize(
    "change",
    [
        lambda first, second: [second, first],
        lambda first, second: [first],
        lambda first, second: [first, second, second],
        lambda first, second: [first, second[:20]],
        lambda first, second: [first, '{"id": "another"}'],
        lambda first, second: [first, "[]"],
    ],
    ids=["sorted", "lost", "doubled", "cut", "another", "no answer"],
)
def test_a_finished_file_that_was_changed_is_refused(model_on_disk, dataset, path, change):
    images = dataset.select(range(2))
    generate_to_file(*model_on_disk, images, path, **GREEDY)
    changed = change(*path.read_text(encoding="utf-8").splitlines())
    path.write_text("".join(line + "\n" for line in changed), encoding="utf-8")
    with pytest.raises(ValueError, match=r"Expected 2 answers in the order of the images in '.*completions.jsonl'"):
        generate_to_file(*model_on_disk, images, path, **GREEDY)


def test_a_model_is_loaded_where_answers_are_missing(dataset, path, monkeypatch):
    model, processor = load_later(ASSET)
    expected = generate_to_file(model, processor, dataset, path, **GREEDY)
    before = path.stat()
    monkeypatch.setattr(load, "_load_with_transformers", lambda *_: pytest.fail("the model was loaded"))
    assert model.load() is model.load()
    assert generate_to_file(model, processor, dataset, path, **GREEDY) == expected
    # A finished run is only read.
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    path.unlink()
    write_part(path, dict(enumerate(expected[:4])))
    assert generate_to_file(model, processor, dataset, path, **GREEDY) == expected


def test_a_model_that_cannot_be_loaded_has_begun_nothing(dataset, path, monkeypatch):
    def broken(*_):
        raise OSError("no weights")

    monkeypatch.setattr(load, "_load_with_transformers", broken)
    model, processor = load_later(ASSET)
    with pytest.raises(OSError, match="no weights"):
        generate_to_file(model, processor, dataset, path, **GREEDY)
    assert not path.parent.exists()


@pytest.mark.parametrize("name", ["completions.jsonl", "completions.part.jsonl"])
def test_a_file_of_somebody_else_is_refused(dataset, path, name):
    path.parent.mkdir()
    path.with_name(name).write_text("{}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"completions.jsonl' was started with, got another model"):
        generate_to_file(*load_later(ASSET), dataset, path, **GREEDY)


def test_progress_counts_what_is_generated_now(model_on_disk, dataset, path):
    seen: list[tuple[int, int, int]] = []
    settings = {**GREEDY, "batch_size": 3, "on_progress": lambda *counts: seen.append(counts)}
    generate_to_file(*model_on_disk, dataset, path, **settings)
    assert [(images, total) for images, total, _ in seen] == [(3, 7), (6, 7), (7, 7)]
    assert 0 < seen[0][2] < seen[-1][2]
    generate_to_file(*model_on_disk, dataset, path, on_progress=lambda *_: pytest.fail("nothing is left"), **GREEDY)
