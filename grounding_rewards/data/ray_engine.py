"""Workers on the machines of a Ray cluster: Ray Data hands out, starts lost workers again, and keeps the order."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any


def map_on_ray(
    function: Callable[[Any], Any], items: Iterable[Any], workers: int | None, at_once: int, gpu: bool
) -> Iterator[Any]:
    """As :func:`grounding_rewards.data.workers.map_in_workers`; what a worker raises is raised here, as it was."""
    ray = _started()
    kind = "GPU" if gpu and ray.cluster_resources().get("GPU") else "CPU"
    stored = ray.put(list(items) if isinstance(items, Iterator) else items)

    source: Any = ray.data.Datasource

    class Items(source):
        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            # One task goes through the items, no faster than workers take them.
            facts = ray.data.block.BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
            return [ray.data.ReadTask(lambda: map(_as_table, _portions(ray.get(stored), at_once)), facts)]

    class Worker:
        def __call__(self, portion: Any) -> Any:
            return _as_table([_outcome(function, *one) for one in _from_table(portion)])

    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    # Otherwise portions wait until there are enough for a large block.
    context.target_max_block_size = 1
    context.enable_progress_bars = context.print_on_execution_start = False
    with ray.data.DataContext.current(context):
        pool = ray.data.ActorPoolStrategy(size=workers or int(ray.cluster_resources()[kind]))
        made = ray.data.read_datasource(Items(), num_cpus=0, override_num_blocks=1).map_batches(
            Worker, batch_size=None, batch_format="pyarrow", compute=pool, num_cpus=1, num_gpus=int(kind == "GPU")
        )
        for portion in made.iter_batches(batch_size=None, batch_format="pyarrow"):
            for result, error in _from_table(portion):
                if error is not None:
                    raise error
                yield result


def _started() -> Any:
    """Ray, connected to the cluster that it finds (`RAY_ADDRESS`), else started on this machine; it reports nothing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise ValueError(
            "Expected Ray Data to be installed for the engine ray, got none. Install it with "
            "`pip install 'grounding_rewards[ray]'`, or use the engine local."
        ) from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    return ray


def _portions(items: Iterable[Any], at_once: int) -> Iterator[list[Any]]:
    left = _guarded(items)
    while portion := list(islice(left, at_once)):
        yield portion


def _guarded(items: Iterable[Any]) -> Iterator[tuple[Any, Exception | None]]:
    """Each item and no error, or the error that ends them: Ray would log it, with what it says of films."""
    try:
        for item in items:
            yield item, None
    except Exception as error:
        yield None, error


def _outcome(function: Callable[[Any], Any], item: Any, error: Exception | None) -> tuple[Any, Exception | None]:
    try:
        return (None, error) if error is not None else (function(item), None)
    except Exception as raised:
        return None, raised


def _as_table(portion: list[Any]) -> Any:
    import pyarrow

    return pyarrow.table({"pickled": pyarrow.array([pickle.dumps(portion)], pyarrow.large_binary())})


def _from_table(table: Any) -> Iterator[Any]:
    for cell in table.column("pickled"):
        yield from pickle.loads(cell.as_buffer())
