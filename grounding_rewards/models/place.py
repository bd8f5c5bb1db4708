"""Whether a path holds a checkpoint, an adapter, or nothing that can be loaded, and whether it is the same again."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

CONFIG = "config.json"
"""The file that makes a folder a checkpoint."""

ADAPTER = "adapter_config.json"
"""The file that makes a folder an adapter that PEFT saved."""

# Weights as transformers and PEFT wrote them before safetensors, and what is read in their place where it is there.
_PICKLED = {"pytorch_model*.bin": "*.safetensors", "adapter_model.bin": "adapter_model.safetensors"}
# How many places of each weight are looked at, and how many bytes are read there.
_PLACES, _BYTES = 4, 64
_NAME_ON_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")


def check_place(path: str | Path, argument: str = "path") -> None:
    """Refuse a path that is no folder with a model and no name on the hub, in plainer words than the libraries.

    Args:
        path: folder, or name on the hub.
        argument: the name of the argument, for the message.

    Raises:
        ValueError: it is neither a folder with a model nor a name that the hub could know, or its weights are pickled.

    Example:
        >>> check_place("Qwen/Qwen2.5-VL-3B-Instruct")
        >>> check_place("no/such/folder")
        Traceback (most recent call last):
        ValueError: Expected a folder, or a name on the hub such as Qwen/Qwen2.5-VL-3B-Instruct, for `path`, got \
'no/such/folder', which is neither. Check the path.
    """
    folder = Path(path)
    if folder.is_dir():
        if not any(Path(folder, name).is_file() for name in (CONFIG, ADAPTER)):
            raise ValueError(
                f"Expected {CONFIG} or {ADAPTER} in the folder of a model, got neither in {str(path)!r}. "
                "Give the folder that the weights were saved in, such as run/checkpoint."
            )
        pickled = [
            file.name
            for name, instead in _PICKLED.items()
            if not any(folder.glob(instead))
            for file in sorted(folder.glob(name))
        ]
        if pickled:
            raise ValueError(
                f"Expected weights as *.safetensors in {str(path)!r}, got {pickled[0]}, which may hold a program. "
                "Where you trust it, load it with transformers and save_pretrained it again."
            )
    elif not _NAME_ON_HUB.fullmatch(str(path)):
        raise ValueError(
            f"Expected a folder, or a name on the hub such as Qwen/Qwen2.5-VL-3B-Instruct, for `{argument}`, got "
            f"{str(path)!r}, which is neither. Check the path."
        )


def adapter_config(path: str | Path) -> dict[str, Any] | None:
    """The configuration that PEFT wrote beside an adapter; None for a checkpoint.

    Args:
        path: folder, or name on the hub.
    """
    from transformers.utils import find_adapter_config_file

    # A checkpoint may carry an adapter that transformers loads with it.
    if Path(path, CONFIG).is_file():
        return None
    file = find_adapter_config_file(str(path))
    return None if file is None else json.loads(Path(file).read_text(encoding="utf-8"))


def digest_of_weights(path: str | Path) -> str:
    """A digest by which a model is known again without loading it: of some values of each of its weights.

    Of an adapter it is made of the adapter's weights and settings, and of the model under it; of a name on the hub, of
    the version that is asked for there. Where the files lie, and when they were written, does not matter.

    Args:
        path: folder, or name on the hub, that :func:`check_place` lets pass.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    adapter = adapter_config(path)
    if adapter is not None:
        digest.update(json.dumps(adapter, sort_keys=True).encode())
        if base := adapter.get("base_model_name_or_path"):
            digest.update(digest_of_weights(base).encode())
    if Path(path).is_dir():
        for file in sorted(Path(path).glob("*.safetensors")):
            _look_at(file, digest)
    else:
        from transformers.utils import cached_file

        # .../snapshots/VERSION/config.json
        version = Path(cached_file(str(path), CONFIG if adapter is None else ADAPTER)).parent.name
        digest.update(f"{path} {version}".encode())
    return digest.hexdigest()[:16]


def _look_at(file: Path, digest: Any) -> None:
    """Names, types and shapes of the weights in a file, and some bytes of each of them."""
    with file.open("rb") as content:
        # The format: the length of the header, the header in JSON, the weights.
        header = content.read(int.from_bytes(content.read(8), "little"))
        begin = content.tell()
        digest.update(header)
        weights = [one["data_offsets"] for name, one in json.loads(header).items() if name != "__metadata__"]
        for start, end in sorted(weights):
            read = min(_BYTES, end - start)
            for place in range(_PLACES):
                # From the beginning of the weight to its end.
                content.seek(begin + start + (end - start - read) * place // (_PLACES - 1))
                digest.update(content.read(read))
