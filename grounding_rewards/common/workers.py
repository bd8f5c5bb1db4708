"""What does the work on many items: this process, or several of this machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

# Items in work per process: enough to keep all busy while one takes long, few enough for the memory.
_AHEAD = 4


@contextmanager
def map_in_workers(
    function: Callable[[Given], Made],
    items: Iterable[Given],
    *,
    processes: int | None = None,
) -> Iterator[Iterator[Made]]:
    """Lazy parallel map; results keep their order.

    Args:
        function: every worker has one copy of it for all its items. With several workers it can be pickled.
        items: what it is called with.
        processes: that work. None is this process alone.

    Raises:
        ValueError: fewer processes than one.

    Example:
        >>> with map_in_workers(abs, [-1, -2]) as made:
        ...     list(made)
        [1, 2]
    """
    check_workers(processes)
    if processes in (None, 1):
        yield map(function, items)
    else:
        with worker_pool(processes, initializer=_keep, initargs=(function,)) as pool:
            yield map_in_order(pool, _call, items, ahead=_AHEAD * processes)


def check_workers(processes: int | None) -> None:
    """Refuse what :func:`map_in_workers` would refuse, before anything is read.

    Raises:
        ValueError: fewer processes than one.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"Expected at least 1 for `processes`, got {processes}. Give the number of processors.")


# The function of this worker: one sent with every item would forget what it has seen.
_KEPT: list[Callable[[Any], Any]] = []


def _keep(function: Callable[[Any], Any]) -> None:
    _KEPT[:] = [function]


def _call(item: Any) -> Any:
    return _KEPT[0](item)


@contextmanager
def worker_pool(
    processes: int, *, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that start afresh, ignore Ctrl-C, and end when the process that started them is killed.

    Args:
        processes: how many.
        initializer: a function of a module, which each of them calls first.
        initargs: its arguments.

    Raises:
        ChildProcessError: a worker was killed.
    """
    import multiprocessing

    # The threads of a progress bar and of pyarrow do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start, initargs=(initializer, initargs))
    try:
        yield pool
    except BrokenProcessPool:
        raise ChildProcessError(
            f"Expected all {processes} processes to work to the end, got one that was killed, as a system does that "
            "has no memory left. Start again with fewer --processes."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def map_in_order(
    pool: Executor, function: Callable[[Given], Made], items: Iterable[Given], *, ahead: int
) -> Iterator[Made]:
    """Like ``map``, in a pool, with at most ``ahead`` items taken and not yet returned.

    ``Executor.map`` takes all items at once, which keeps them all in memory.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> with ThreadPoolExecutor(2) as pool:
        ...     list(map_in_order(pool, abs, iter([-1, -2, -3]), ahead=2))
        [1, 2, 3]
    """
    waiting: deque[Future[Made]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _start(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
    _end_with_parent()
    if initializer is not None:
        initializer(*initargs)


def _end_with_parent() -> None:
    """End a worker when the process that started it is killed, instead of waiting for work for ever."""
    import signal
    import threading
    from multiprocessing import parent_process

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    # Ctrl-C reaches the workers too, but the process that started them ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()
