"""What becomes of a run when one of its processes dies: all end within seconds, and one message says which died.

Without this the others wait for the dead one: in gloo until its connections close, in NCCL until `ddp_timeout`, half
an hour. `torchrun` and `accelerate launch` end them, but only after their own patience, because a run does not die of
SIGTERM at once (`grounding_rewards.training.callbacks.StopOnSigterm`), and other launchers may not look at all.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from accelerate.utils import gather_object
from torch.distributed import DistError

#: Seconds between two looks at the other processes.
_PERIOD = 1.0
#: Seconds for a process to end by an error of its own, before the one that watches ends it.
PATIENCE = 10.0
# Seconds within which a process whose connections have closed is seen to be dead.
_SOON = 3.0


class Process(NamedTuple):
    """A process of a run.

    Attributes:
        rank: its number, from 0.
        host: the machine.
        pid: its number on that machine.
        started: when, in seconds; another process may get the number later.
    """

    rank: int
    host: str
    pid: int
    started: float

    @classmethod
    def this(cls, rank: int) -> Process:
        """The process that asks."""
        return cls(rank, socket.gethostname(), os.getpid(), psutil.Process().create_time())

    def lives(self) -> bool:
        """Whether it runs on this machine; one that has ended and was not yet collected does not."""
        try:
            found = psutil.Process(self.pid)
            return found.create_time() == self.started and found.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


@contextmanager
def ending_together(accelerator: Any, step: Callable[[], int]) -> Iterator[None]:
    """Inside, the end of one process ends this one too, with exit code 1, and the first to see it says which it was.

    Processes of other machines are not seen; theirs end by the launcher, or by `ddp_timeout`.

    Args:
        accelerator: of the trainer.
        step: the step that the run has reached.
    """
    if accelerator.num_processes == 1:
        yield
        return
    this = Process.this(accelerator.process_index)
    everyone = gather_object([this])
    # In a container of its own a process cannot be seen, although it lives.
    watched = [one for one in everyone if one.host == this.host and one.lives()]
    word = _word(watched)
    if this == watched[0]:
        word.mkdir()
    over = threading.Event()
    threading.Thread(target=_watch, args=(watched, over, step), daemon=True).start()
    try:
        yield
    except (RuntimeError, OSError) as error:
        if _of_connections(error):
            deadline = time.monotonic() + _SOON
            while not (dead := _dead(watched)) and time.monotonic() < deadline:
                time.sleep(0.05)
            if dead:
                _end(watched, dead, step())
        raise
    finally:
        over.set()
        if this == watched[0]:
            with suppress(FileNotFoundError):
                word.rmdir()


def _watch(watched: Sequence[Process], over: threading.Event, step: Callable[[], int]) -> None:
    while not over.wait(_PERIOD):
        if (dead := _dead(watched)) and not over.wait(PATIENCE):
            _end(watched, dead, step())


def _dead(watched: Sequence[Process]) -> list[Process]:
    return [one for one in watched if not one.lives()]


def _of_connections(error: Exception) -> bool:
    """Whether an error is one of processes talking to each other; gloo's have no type of their own."""
    return isinstance(error, DistError | ConnectionError) or "gloo" in str(error).lower()


def _word(watched: Sequence[Process]) -> Path:
    """The folder that the first to speak removes: who cannot remove it any more leaves the word to that one."""
    return Path(tempfile.gettempdir(), f"grounding-rewards-{watched[0].pid}-{watched[0].started:.2f}")


def _end(watched: Sequence[Process], dead: Sequence[Process], step: int) -> None:
    """End this process at once: its exit would wait for connections that nobody answers any more."""
    with suppress(OSError):
        _word(watched).rmdir()
        print(f"grounding-rewards: {lost(dead, len(watched), step)}", file=sys.stderr, flush=True)
    # The first to end makes the launcher end the others: none may be taken for one that died before.
    time.sleep(_SOON)
    os._exit(1)


def lost(dead: Sequence[Process], processes: int, step: int) -> str:
    """What to say of processes that died.

    Args:
        dead: these.
        processes: how many there were on this machine.
        step: the step that the run had reached.

    >>> print(lost([Process(1, "node", 4711, 0.0)], 2, 30))  # doctest: +NORMALIZE_WHITESPACE
    Expected all 2 processes of this machine until the end of the run, got the end of process 1 (pid 4711) after step
    30. It was killed, or failed with an error of its own, printed above. Where there is none it is mostly the memory of
    the machine (`dmesg` says "Out of memory: Killed process 4711"): lower per_device_train_batch_size or
    dataloader_num_workers, or ask for more. The same command with --resume_from_checkpoint last goes on from the last
    checkpoint.
    """
    which = ", ".join(f"process {one.rank} (pid {one.pid})" for one in dead)
    return (
        f"Expected all {processes} processes of this machine until the end of the run, got the end of {which} after "
        f"step {step}. It was killed, or failed with an error of its own, printed above. Where there is none it is "
        f'mostly the memory of the machine (`dmesg` says "Out of memory: Killed process {dead[0].pid}"): lower '
        "per_device_train_batch_size or dataloader_num_workers, or ask for more. The same command with "
        "--resume_from_checkpoint last goes on from the last checkpoint."
    )
