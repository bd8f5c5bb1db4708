"""The files for several GPUs and machines, read by the engines themselves.

What accelerate's launcher makes of them, the plugins that FSDP2 and DeepSpeed get, adapters and quantisation, and the
script for SLURM.
"""

import json
import os
import stat
import subprocess
import time
from importlib.util import find_spec

import pytest

from tests.conftest import REPOSITORY
from tests.tables import table

ACCELERATE = REPOSITORY / "configs" / "accelerate"
SLURM = REPOSITORY / "configs" / "slurm" / "train.sbatch"
HERE = ["--use_cpu", "true", "--bf16", "false", "--tf32", "false"]

pytest.importorskip("trl", reason="needs the train extra")
pytestmark = pytest.mark.training
needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed: pip install deepspeed")


def launched(name, monkeypatch, *words):
    """What accelerate's launcher hands to the one of its launchers that it chooses: that one, and the arguments."""
    from accelerate.commands import launch

    calls = []
    for kind in ("simple_launcher", "multi_gpu_launcher", "deepspeed_launcher"):
        monkeypatch.setattr(launch, kind, lambda args, kind=kind: calls.append((kind, args)))
    file = str(ACCELERATE / f"{name}.yaml")
    launch.launch_command(launch.launch_command_parser().parse_args(["--config_file", file, *words, "train.py"]))
    [call] = calls
    return call


def environment(name, monkeypatch):
    """The variables that the launcher sets for its processes, set here."""
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    kind, args = launched(name, monkeypatch)
    made = prepare_deepspeed_cmd_env(args)[1] if kind == "deepspeed_launcher" else prepare_multi_gpu_env(args)
    for key, value in made.items():
        monkeypatch.setenv(key, value)


def experiment(*files, words=()):
    from grounding_rewards.training.arguments import parse_grpo_arguments

    chosen = [word for file in files for word in ("--config", str(REPOSITORY / "configs" / file))]
    return parse_grpo_arguments(["--config", str(REPOSITORY / "configs/experiments/r4.yaml"), *chosen, *HERE, *words])


@pytest.mark.parametrize(("name", "machines", "processes", "launcher"), table("configs/cases", "accelerate_reads"))
def test_accelerate_reads(name, machines, processes, launcher, monkeypatch):
    kind, args = launched(name, monkeypatch)
    assert kind == launcher
    assert (args.num_machines, args.num_processes) == (machines, processes)
    assert args.use_fsdp == (name == "fsdp2")
    assert args.mixed_precision == "bf16"
    # As the headers say, the command line goes before the file.
    assert launched(name, monkeypatch, "--num_processes", "2")[1].num_processes == 2


def test_fsdp2_gets_its_plugin(monkeypatch):
    from accelerate.utils import FullyShardedDataParallelPlugin
    from torch.distributed.fsdp import CPUOffloadPolicy

    environment("fsdp2", monkeypatch)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    # transformers does it, and refuses to do it twice
    assert plugin.activation_checkpointing is False
    assert plugin.cpu_ram_efficient_loading is True
    assert not isinstance(plugin.cpu_offload, CPUOffloadPolicy)


@needs_deepspeed
@pytest.mark.parametrize(("name", "stage"), [("zero2", 2), ("zero3", 3)])
def test_deepspeed_accepts_the_file_and_the_training_fills_it_in(name, stage, monkeypatch):
    """By hand: 8 answers a batch, 8 batches a step; DeepSpeed's own reader, in one process, has the last word."""
    from deepspeed.runtime.config import DeepSpeedConfig

    environment(name, monkeypatch)
    _, config, _ = experiment("tuning/full.yaml", words=["--bf16", "true"])
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    made = HfTrainerDeepSpeedConfig(config.deepspeed_plugin.deepspeed_config)
    made.trainer_config_process(config)
    made.trainer_config_finalize(config, None, 0)
    read = DeepSpeedConfig({**made.config, "train_batch_size": 8 * 8})
    assert read.zero_config.stage == stage
    assert (read.train_micro_batch_size_per_gpu, read.gradient_accumulation_steps) == (8, 8)
    assert read.gradient_clipping == 1.0


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_a_prompt_with_its_image_and_the_longest_answer_fit(mode):
    config = experiment(f"generation/vllm_{mode}.yaml")[1]
    assert (config.use_vllm, config.vllm_mode) == (True, mode)
    assert config.vllm_max_model_length >= 1280 + config.max_completion_length


def test_a_model_laid_over_another_leaves_nothing_of_it():
    arguments, _, model = experiment("models/medgemma_4b.yaml", "models/qwen3_vl_4b.yaml")
    assert (model.model_name_or_path, arguments.box_format) == ("Qwen/Qwen3-VL-4B-Instruct", None)


def test_what_is_trained():
    """The objects that PEFT and transformers get, and one changed by another file."""
    import torch

    from grounding_rewards.training.model import adapter_and_quantisation

    _, config, model = experiment("tuning/lora.yaml")
    made = adapter_and_quantisation(model)
    assert (made["peft_config"].r, made["peft_config"].lora_alpha) == (64, 128)
    assert made["quantization_config"] is None
    assert config.learning_rate == 1e-5

    _, config, model = experiment("tuning/qlora.yaml")
    made = adapter_and_quantisation(model)
    assert made["peft_config"].target_modules == model.lora_target_modules
    assert made["quantization_config"].load_in_4bit
    assert made["quantization_config"].bnb_4bit_quant_type == "nf4"
    assert made["quantization_config"].bnb_4bit_compute_dtype is torch.bfloat16

    _, config, model = experiment("tuning/qlora.yaml", "tuning/full.yaml")
    assert adapter_and_quantisation(model) == {"peft_config": None, "quantization_config": None}
    assert config.learning_rate == 1e-6


@pytest.fixture
def slurm(tmp_path):
    """SLURM's commands and accelerate's, which only write down what they are called with."""
    scripts = {
        "scontrol": f'[ "$1" = requeue ] && echo "$@" >> {tmp_path}/told || printf "node3\\nnode4\\n"',
        # One shell for each machine, with the number that SLURM gives it.
        "srun": 'shift; for k in 0 1; do SLURM_NODEID=$k "$@"; done',
        "scancel": f'echo "$@" >> {tmp_path}/told; touch {tmp_path}/stop',
        "accelerate": f'printf "%s\\0" "$@" >> {tmp_path}/calls; echo >> {tmp_path}/calls',
    }
    for name, text in scripts.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return tmp_path


def test_the_script_for_slurm_starts_each_machine_with_its_rank(slurm):
    job = {"SLURM_NODEID": "0", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_ID": "20017"}
    kwargs = json.dumps({"beta": 2, "no_box_bonus": 0.1})
    call = ["bash", SLURM, "--config", "a file.yaml", "--reward_kwargs", kwargs]
    job |= {"SLURM_JOB_NODELIST": "node[3-4]", "PATH": f"{slurm}:{os.environ['PATH']}"}
    subprocess.run(call, env={**os.environ, **job}, check=True, timeout=20)
    calls = [line.rstrip("\0").split("\0") for line in (slurm / "calls").read_text(encoding="utf-8").splitlines()]
    assert len(calls) == 2
    for rank, call in enumerate(calls):
        before, command = call[: call.index("-m")], call[call.index("-m") :]
        options = dict(zip(before[1::2], before[2::2], strict=True))
        assert options.pop("--config_file") == "configs/accelerate/nodes.yaml"
        counts = {"--machine_rank": str(rank), "--num_machines": "2", "--num_processes": "8"}
        assert options == {**counts, "--main_process_ip": "node3", "--main_process_port": "20017"}
        assert command[:5] == ["-m", "grounding_rewards.cli", "train", "--resume_from_checkpoint", "last"]
        # Words with spaces arrive whole.
        assert command[5:] == ["--config", "a file.yaml", "--reward_kwargs", kwargs]


def test_the_script_for_slurm_asks_for_more_time_when_its_own_is_over(slurm):
    (slurm / "accelerate").write_text(
        # A run that saves when it is told, which takes a while.
        f"#!/bin/bash\ntouch {slurm}/runs\nwhile [ ! -e {slurm}/stop ]; do sleep 0.05; done\nsleep 0.2\n"
        f"echo $TORCH_ELASTIC_SHUTDOWN_TIMEOUT saved >> {slurm}/told\nexit 143\n",
        encoding="utf-8",
    )
    (slurm / "srun").write_text('#!/bin/bash\nshift; SLURM_NODEID=0 "$@"\n', encoding="utf-8")
    job = {"SLURM_NNODES": "1", "SLURM_JOB_ID": "20017", "SLURM_JOB_NODELIST": "node3"}
    path = f"{slurm}:{os.environ['PATH']}"
    with subprocess.Popen(["bash", SLURM, "--config", "a.yaml"], env={**os.environ, **job, "PATH": path}) as script:
        deadline = time.monotonic() + 20
        while not (slurm / "runs").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        script.terminate()
        assert script.wait(20) == 143
    told = (slurm / "told").read_text(encoding="utf-8").splitlines()
    assert told == ["--signal=TERM 20017", "270 saved", "requeue 20017"]
