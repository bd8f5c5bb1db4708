"""Processes that are killed, stopped or trained in pairs, forked from one that has torch and trl loaded already.

A fresh interpreter takes eight seconds of processor time to load them. What a launcher does beside starting the
processes is tried where the launcher itself is: `program`.
"""

import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from grounding_rewards.cli import main
from tests.training.runs import ENVIRONMENT, REPOSITORY

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        *("grounding_rewards.training.run", "grounding_rewards.models.generate", "peft", "pytest", "hypothesis"),
        *("transformers.models.qwen2_5_vl.modeling_qwen2_5_vl", "transformers.models.qwen2_5_vl.processing_qwen2_5_vl"),
    ]
)
#: Seconds after which a process hangs: generous, for the cores may have other work.
PATIENCE = 900


@contextmanager
def started(function: Callable[..., Any], *given: Any, output: Path, processes: int = 1) -> Iterator[list[BaseProcess]]:
    """Processes that call a function of a module, and write to a file; at the end none of them is left.

    Several find each other as those of `torchrun` do.
    """
    environments: list[dict[str, str]] = [{}]
    if processes > 1:
        # The store is here, so that no process can miss it and no other one gets its port.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=PATIENCE))
        common = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1"}
        common |= {"MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0}
        # They talk over gloo, also where there is a GPU.
        common |= {"CUDA_VISIBLE_DEVICES": ""}
        ranks = [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in range(processes)]
        environments = [{name: str(value) for name, value in rank.items()} for rank in ranks]
    output.touch()
    made = [_FORKS.Process(target=_begin, args=(function, given, output, each)) for each in environments]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.kill()
            # what it started itself
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.join()


def _begin(function: Callable[..., Any], given: tuple[Any, ...], output: Path, environment: dict[str, str]) -> None:
    # A group of its own, with what it starts itself.
    os.setsid()
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(ENVIRONMENT, **environment)
    os.chdir(REPOSITORY)
    sys.exit(function(*given))


def command(*words: Any) -> int:
    """The command line, for a process to call."""
    return main([str(word) for word in words])


def program(module: str, *words: Any) -> Any:
    """A launcher, as its console script calls it; the processes that it starts are new ones."""
    sys.argv = [module, *map(str, words)]
    return importlib.import_module(module).main()


def wait_until(done: Callable[[], bool], processes: list[BaseProcess], output: Path) -> None:
    """Wait for something that happens while all processes run."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert all(one.is_alive() for one in processes), output.read_text(encoding="utf-8")[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end_of(processes: list[BaseProcess]) -> list[int | None]:
    """The exit codes; one that fails is not waited for by the others, which are killed."""
    deadline = time.monotonic() + PATIENCE
    while any(one.is_alive() for one in processes) and time.monotonic() < deadline:
        if any(one.exitcode for one in processes):
            # Some end alike, a moment later.
            for one in processes:
                one.join(60)
            break
        time.sleep(0.05)
    return [one.exitcode for one in processes]


def to_the_end(function: Callable[..., Any], *given: Any, output: Path, processes: int = 1) -> None:
    """Call a function in so many processes, none of which may fail."""
    with started(function, *given, output=output, processes=processes) as made:
        assert end_of(made) == [0] * processes, output.read_text(encoding="utf-8")[-3000:]


def two_processes(function: Callable[..., Any], folder: Path, *given: Any) -> None:
    """Call a function with a folder, and what else is given, in two processes, to the end."""
    to_the_end(function, folder, *given, output=folder / "output.txt", processes=2)


class Program:
    """What `subprocess.Popen` is to whom starts Python with words: here a function is called with them instead."""

    def __init__(self, function: Callable[[Sequence[str]], Any], words: Sequence[str], output: Path) -> None:
        self._process = _FORKS.Process(target=_begin, args=(function, (words,), output, {}))
        self._process.start()
        self.pid = self._process.pid

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode
