"""Workers on the machines of a Ray cluster: Ray Data hands out, starts lost workers again, and keeps the order."""

from __future__ import annotations

import logging
import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from grounding_rewards.common.portions import outcome_of, portions_of

#: What Ray says when its own processes have not started within a time that cannot be set.
TOO_SLOW = "timed out during startup"

_Function = Callable[[Any], Any]


def map_on_ray(
    function: _Function, items: Iterable[Any], workers: int | None, at_once: int, gpu: bool
) -> Iterator[Any]:
    """As :func:`grounding_rewards.common.workers.map_in_workers`; what a worker raises is raised here, as it was."""
    ray = _started()
    resources = ray.cluster_resources()
    kind = "GPU" if gpu and resources.get("GPU") else "CPU"
    stored = ray.put(list(items) if isinstance(items, Iterator) else items)

    source: Any = ray.data.Datasource

    class Items(source):
        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
            # One task goes through the items, no faster than workers take them.
            facts = ray.data.block.BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
            return [ray.data.ReadTask(lambda: map(_as_table, portions_of(ray.get(stored), at_once)), facts)]

    class Worker:
        def __call__(self, portion: Any) -> Any:
            return _as_table([outcome_of(function, *one) for one in _from_table(portion)])

    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    # Otherwise portions wait until there are enough for a large block.
    context.target_max_block_size = 1
    context.enable_progress_bars = context.print_on_execution_start = False
    with ray.data.DataContext.current(context):
        pool = ray.data.ActorPoolStrategy(size=workers or int(resources[kind]))
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
        import ray.data
    except ImportError:
        install = "Install it with `pip install 'grounding_rewards[ray]'`, or use the engine local."
        raise ValueError(f"Expected Ray Data to be installed for the engine ray, got none. {install}") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Said where there are fewer portions than workers, with a remedy that is not the user's.
    warnings.filterwarnings("ignore", message="The minimum number of concurrent actors")
    if not ray.is_initialized():
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise
            raise TimeoutError(
                "Expected Ray to start on this machine, got none in the seconds that it gives itself: the machine is "
                "too busy. Give the command again, or start the cluster before it, `ray start --head`."
            ) from None
    return ray


def _as_table(portion: list[Any]) -> Any:
    import pyarrow

    return pyarrow.table({"pickled": pyarrow.array([pickle.dumps(portion)], pyarrow.large_binary())})


def _from_table(table: Any) -> Iterator[Any]:
    for cell in table.column("pickled"):
        yield from pickle.loads(cell.as_buffer())
