"""One function on many items: in this process, or in several of this machine."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# Items in work per process: enough to keep all busy while one takes long, few enough for the memory.
_AHEAD = 4


@contextmanager
def map_in_workers(
    function: Callable[[Item], Result], items: Iterable[Item], *, processes: int | None = None
) -> Iterator[Iterator[Result]]:
    """Within this context, the results of a function for each item, in their order, from several processes.

    Workers start afresh, ignore Ctrl-C, and end when the process that started them is killed.

    Args:
        function: has to be picklable if there are several workers; each keeps one copy of it for all its items.
        items: what it is called with.
        processes: how many work; None or 1 is this process alone.

    Raises:
        ValueError: fewer processes than one.
        ChildProcessError: a worker was killed.

    Example:
        >>> with map_in_workers(abs, [-1, -2]) as results:
        ...     list(results)
        [1, 2]
    """
    check_workers(processes)
    if processes in (None, 1):
        yield map(function, items)
        return
    # Spawned: the threads of a progress bar and of pyarrow do not survive a fork.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_start, initargs=(function,))
    try:
        yield _map_in_order(pool, items, _AHEAD * processes)
    except BrokenProcessPool:
        raise ChildProcessError(
            f"Expected all {processes} processes to work to the end, got one that was killed, as a system does that "
            "has no memory left. Start again with fewer --processes."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def check_workers(processes: int | None) -> None:
    """Refuse what :func:`map_in_workers` would refuse, before anything is read.

    Raises:
        ValueError: fewer processes than one.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"Expected at least 1 for `processes`, got {processes}. Give the number of processors.")


def _map_in_order(pool: ProcessPoolExecutor, items: Iterable[Any], ahead: int) -> Iterator[Any]:
    """Yield the results of the workers' function for each item, in order, with at most `ahead` items in work."""
    # `Executor.map` takes all items at once, which keeps them all in memory.
    waiting: deque[Future[Any]] = deque()
    for item in items:
        waiting.append(pool.submit(_call, item))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


# The one function of this worker, in a list: one sent with every item would forget what it has seen.
_FUNCTION: list[Callable[[Any], Any]] = []


def _start(function: Callable[[Any], Any]) -> None:
    """Prepare this worker: keep its function, ignore Ctrl-C, and end with the process that started it."""
    _FUNCTION[:] = [function]
    # Ctrl-C reaches the workers too, but the process that started them ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _call(item: Any) -> Any:
    """The result of this worker's function, which `_start` kept, for an item."""
    (function,) = _FUNCTION
    return function(item)


def _end_with_parent() -> None:
    """End this worker when the process that started it is killed, instead of waiting for work for ever."""
    parent = parent_process()
    # `join` returns when the parent is gone. It runs in a thread beside the work, from which only `_exit` ends all.
    if parent is not None:
        parent.join()
        os._exit(1)
