"""Run `grounding-rewards …`, or a vLLM server, on vLLM's build for processors, with weights that can be replaced.

    python scripts/checks/vllm_on_processor.py train --config configs/demo/grpo.yaml --use_vllm true …
    python scripts/checks/vllm_on_processor.py serve --model assets/tiny_vlm --weight-transfer-config …
    python scripts/checks/vllm_on_processor.py --without prompts features -- train …   # as TRL does it, not mended

Two things differ from a GPU, and are changed here in memory:

  * For a processor vLLM packs the weights of linear layers and drops the originals, into which TRL writes new ones.
  * TRL gives new weights to a server by NCCL, which needs GPUs. Here they go through a file: vLLM takes an engine of
    one's own for that, and two methods of TRL's client are replaced.

vLLM starts further processes, which run this file's top too: it is what tells them.
"""

from __future__ import annotations

import runpy
import sys
import tempfile
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers import utils


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    """In the place of vLLM's packing of a linear layer."""
    layer.cpu_linear = torch.nn.functional.linear


@dataclass
class FileInit(WeightTransferInitInfo):
    """A file needs no connection."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """Attributes: path: of a safetensors file with all weights."""

    path: str


class FileEngine(WeightTransferEngine[FileInit, FileUpdate]):
    """Takes new weights from a file."""

    init_info_cls, update_info_cls = FileInit, FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        pass

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: Any) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: FileUpdate) -> None:
        from safetensors.torch import load_file

        self.model.load_weights(load_file(update_info.path).items())

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass


utils.dispatch_cpu_unquantized_gemm = keep_weights
WeightTransferEngineFactory.register_engine("file", FileEngine)


def send_weights_by_file() -> None:
    """Let TRL's client write a file and name it to the server."""
    from safetensors.torch import save_file
    from trl.generation.vllm_client import VLLMClient

    def init_communicator(self: Any, device: Any = 0) -> None:
        self._post(f"{self.base_url}/init_weight_transfer_engine", json={"init_info": {}})

    def update_named_params(self: Any, metadata: Any, named_params: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "weights.safetensors")
            save_file({name: weight.detach().cpu().contiguous().clone() for name, weight in named_params}, path)
            self._start_weight_update()
            self._post(f"{self.base_url}/update_weights", json={"update_info": {"path": str(path)}})
            self._finish_weight_update()

    VLLMClient.init_communicator, VLLMClient.update_named_params = init_communicator, update_named_params


def switch_off(mends: list[str]) -> None:
    """Take the methods of TRL itself in the place of ours, to see what they mend."""
    from trl import GRPOTrainer
    from trl.generation.vllm_generation import VLLMGeneration

    from grounding_rewards.training.rollout import VllmRollout, WatchedGeneration

    if "prompts" in mends:
        VllmRollout._tokenize_prompts = GRPOTrainer._tokenize_prompts
    if "watch" in mends:
        VllmRollout._generate_and_score_completions = GRPOTrainer._generate_and_score_completions
        VllmRollout._generate_single_turn = GRPOTrainer._generate_single_turn
    if "features" in mends:
        WatchedGeneration.sync_weights = VLLMGeneration.sync_weights


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "serve":
        sys.argv[:2] = ["api_server"]
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
    else:
        # Nothing is compiled, as minutes of it are worth nothing to a few steps; there are images alone.
        quick = {"enforce_eager": True, "skip_mm_profiling": True, "limit_mm_per_prompt": {"image": 1, "video": 0}}
        vllm.LLM.__init__ = partialmethod(vllm.LLM.__init__, **quick)
        send_weights_by_file()
        if words[0] == "--without":
            end = words.index("--")
            switch_off(words[1:end])
            words = words[end + 1 :]
        from grounding_rewards.cli import main

        sys.exit(main(words))
