"""A resumed run is the run that was never stopped, to the last bit; what cannot be resumed is refused by name."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, Trainer, TrainingArguments
from trl.trainer.utils import RepeatSampler

from grounding_rewards.training.resume import ExactResume, load_weights, set_epoch
from grounding_rewards.training.run_folder import last_complete_checkpoint
from tests.training import runs
from tests.training.forks import command, started, two_processes, wait_until

pytestmark = pytest.mark.training


def check(train, folder, step, **values):
    """Train without a stop, then from the checkpoint of a step on (None: the last but one), and compare everything."""
    whole = train(folder, **values)
    moved = runs.weights(whole)
    step = step or whole.state.global_step - 1
    resumed = train(runs.stopped_copy(folder, step), resume_from_checkpoint="last", **values)
    assert resumed.state.global_step == whole.state.global_step > step
    assert runs.history(resumed) == runs.history(whole)
    assert mean_loss(resumed) == mean_loss(whole)
    assert runs.same_weights(runs.weights(resumed), moved)
    return whole


def mean_loss(trainer):
    """That of all steps, in the last line of the log."""
    return trainer.state.log_history[-1]["train_loss"]


def moves(trainer):
    """Whether training has changed the weights at all, so that equal weights mean something."""
    base = AutoModelForImageTextToText.from_pretrained(runs.ASSET, dtype=torch.float32).state_dict()
    return any(not torch.equal(base[name], value) for name, value in runs.weights(trainer).items())


class TestGRPO:
    def test_full_weights_across_epochs(self, tmp_path):
        # 8 images, 2 a step: an epoch has 4 steps, and the run goes on in the second.
        assert moves(check(runs.grpo, tmp_path / "run", 5, max_steps=7))

    def test_resume_amid_reused_completions_and_unlogged_metrics(self, tmp_path):
        # Completions serve 4 steps, every other of which is logged: step 3 has both left over.
        values = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2, "logging_steps": 2}
        assert moves(check(runs.grpo, tmp_path / "run", 3, max_steps=6, **values))

    def test_adapter_and_kl(self, tmp_path):
        check(runs.grpo, tmp_path / "run", 2, beta=0.1, **runs.LORA)

    def test_with_evaluations_and_early_stopping(self, tmp_path):
        values = {
            **{"eval_strategy": "steps", "eval_steps": 1, "eval_images": 2, "per_device_eval_batch_size": 4},
            **{"load_best_model_at_end": "true", "early_stopping_patience": 3, "max_steps": 12},
        }
        # One step before its end two of the three evaluations that end it are over.
        whole = check(runs.grpo, tmp_path / "run", None, **values)
        assert whole.state.global_step < 12


class TestSFT:
    def test_full_weights_across_epochs_with_workers(self, tmp_path):
        # 8 images, 4 a step: two steps an epoch, images cropped anew in each.
        values = {"crop": 0.2, "contrast": 0.2, "dataloader_num_workers": 2, "logging_steps": 2, "max_steps": 6}
        assert moves(check(runs.sft, tmp_path / "run", 3, **values))

    def test_adapter(self, tmp_path):
        check(runs.sft, tmp_path / "run", 2, crop=0.2, **runs.LORA)


def train_in_two_processes(folder):
    # The end of a run is the end of the group of processes; here eight runs share one.
    ExactResume.end = lambda self: None
    # An epoch has two steps: all go on in the middle of the second one.
    for name, train, values in (
        ("grpo", runs.grpo, {"train_images": 8}),
        ("grpo-lora", runs.grpo, {"train_images": 8, **runs.LORA}),
        ("sft", runs.sft, {"train_images": 16}),
        ("sft-lora", runs.sft, {"train_images": 16, **runs.LORA}),
    ):
        values = {"max_steps": 4, **values}
        whole = train(folder / name, **values)
        moved, first = runs.weights(whole), whole.is_world_process_zero()
        if first:
            runs.stopped_copy(folder / name, 3)
        whole.accelerator.wait_for_everyone()
        resumed = train(folder / f"{name}-stopped", resume_from_checkpoint="last", **values)
        assert runs.same_weights(runs.weights(resumed), moved), name
        if first:
            assert runs.history(resumed) == runs.history(whole), name
            assert mean_loss(resumed) == mean_loss(whole), name
            (folder / f"{name}.done").touch()


def test_two_processes(tmp_path):
    two_processes(train_in_two_processes, tmp_path)
    done = {path.stem for path in tmp_path.glob("*.done")}
    assert done == {"grpo", "grpo-lora", "sft", "sft-lora"}


@pytest.mark.parametrize(("name", "values"), [("train", runs.GRPO), ("sft", runs.COMMON)])
def test_killed(tmp_path, name, values):
    """kill -9 at any moment: the same command with `last` ends in the run that was never killed."""
    values = {**values, "max_steps": 10}
    train = {"train": runs.grpo, "sft": runs.sft}[name]
    whole = train(tmp_path / "whole", **values)
    folder, output = tmp_path / "killed", tmp_path / "output.txt"
    with started(command, name, *runs.words({**values, "output_dir": folder}), output=output) as (run,):
        wait_until(lambda: last_complete_checkpoint(folder) is not None, [run], output)
        run.kill()
        run.join()
    assert int(last_complete_checkpoint(folder).name.rpartition("-")[2]) < 10
    resumed = train(folder, **values, resume_from_checkpoint="last")
    assert runs.history(folder) == runs.history(whole)
    assert runs.same_weights(runs.weights(resumed), runs.weights(whole))


def test_full_disk_at_a_checkpoint(tmp_path):
    """The run says how it goes on; the checkpoint before stays whole, and the run goes on as if never stopped."""
    whole = runs.grpo(tmp_path / "whole", max_steps=4)
    run = runs.stopped_copy(tmp_path / "whole", 2)
    # A device without room behind the file of the optimizer, after the weights are written.
    (run / "checkpoint-3").mkdir()
    (run / "checkpoint-3" / "optimizer.pt").symlink_to("/dev/full")
    with pytest.raises(RuntimeError, match=r"failed at step 3. The disk is full.* --resume_from_checkpoint last"):
        runs.grpo(run, max_steps=4, resume_from_checkpoint="last")
    assert last_complete_checkpoint(run).name == "checkpoint-2"
    (run / "checkpoint-3" / "optimizer.pt").unlink()
    resumed = runs.grpo(run, max_steps=4, resume_from_checkpoint="last")
    assert runs.history(run) == runs.history(whole)
    assert runs.same_weights(runs.weights(resumed), runs.weights(whole))


def test_a_run_that_made_all_its_steps_makes_no_other(tmp_path):
    whole = runs.grpo(tmp_path / "run", max_steps=2)
    logged = (tmp_path / "run" / "log.jsonl").read_bytes()
    moved, said = runs.weights(whole), runs.history(whole)
    again = runs.grpo(tmp_path / "run", max_steps=2, resume_from_checkpoint="last")
    assert again.state.global_step == 2
    assert runs.history(again) == said
    assert runs.same_weights(runs.weights(again), moved)
    folders = (tmp_path / "run" / "checkpoint", last_complete_checkpoint(tmp_path / "run"))
    assert runs.same_weights(*(load_file(folder / "model.safetensors") for folder in folders))
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == logged


def test_best_model_really_is_loaded(tmp_path):
    values = {
        **{"eval_strategy": "steps", "eval_steps": 1, "eval_images": 8, "per_device_eval_batch_size": 8},
        **{"load_best_model_at_end": "true", "learning_rate": 3e-3, "max_steps": 5},
    }
    trainer = runs.grpo(tmp_path / "run", **values)
    rewards = {entry["step"]: entry["eval_reward"] for entry in runs.history(trainer) if "eval_reward" in entry}
    best = max(rewards, key=lambda step: rewards[step])
    assert rewards[best] > rewards[5], "the last model is the best one here, which shows nothing"
    assert trainer.state.best_global_step == best
    for folder in (tmp_path / "run/checkpoint", tmp_path / f"run/checkpoint-{best}"):
        saved = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).state_dict()
        assert all(torch.equal(saved[name], value) for name, value in runs.weights(trainer).items())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused") / "run"
    runs.grpo(folder, max_steps=2)
    return folder


def test_the_stock_trainer_resumes_from_the_base_weights(tmp_path):
    """When this fails, docs/training.md and the first reason of training/resume.py are out of date."""
    model = AutoModelForImageTextToText.from_pretrained(runs.ASSET)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    Trainer(model, arguments)._load_from_checkpoint(str(runs.ASSET))
    assert not any(weight.any() for weight in model.parameters())


class TestRefused:
    """Checkpoints whose weights are not those of the model; today transformers loads what fits and goes on."""

    @pytest.fixture
    def stopped(self, trained, tmp_path):
        copy = tmp_path / "run"
        shutil.copytree(trained, copy)
        shutil.rmtree(copy / "checkpoint")
        shutil.rmtree(copy / "checkpoint-2")
        return copy

    def refused(self, folder, *parts, **values):
        with pytest.raises(ValueError, match="Expected the weights of this model in the checkpoint") as caught:
            runs.grpo(folder, max_steps=2, resume_from_checkpoint="last", **values)
        for part in (str(folder / "checkpoint-1"), *parts):
            assert part in str(caught.value)

    def change(self, folder, change):
        file = folder / "checkpoint-1" / "model.safetensors"
        found = load_file(file)
        change(found)
        save_file(found, file, metadata={"format": "pt"})

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda found: found.pop("visual.merger.ln_q.weight"), "1 missing weights (model.visual.merger.ln_q.weig"),
            (lambda found: found.update({"visual.extra.weight": torch.zeros(2)}), "1 unknown weights ("),
            (lambda found: found.update({"visual.merger.ln_q.weight": torch.zeros(3)}), "1 reshaped weights (model."),
        ],
    )
    def test_other_weights(self, stopped, change, said):
        self.change(stopped, change)
        self.refused(stopped, said)

    def test_a_file_is_cut_off(self, stopped):
        file = stopped / "checkpoint-1" / "model.safetensors"
        file.write_bytes(file.read_bytes()[:1000])
        self.refused(stopped)

    def test_an_adapter_of_another_model(self, tmp_path):
        runs.grpo(tmp_path / "run", max_steps=2, **runs.LORA)
        stopped = runs.stopped_copy(tmp_path / "run", 1)
        file = stopped / "checkpoint-1" / "adapter_model.safetensors"
        found = load_file(file)
        name = sorted(found)[0]
        found["elsewhere"] = found.pop(name)
        save_file(found, file)
        self.refused(stopped, f"1 missing weights ({name})", "1 unknown weights (elsewhere)", **runs.LORA)


def test_weights_of_several_types_keep_every_bit(tmp_path):
    """As where the model lies in bfloat16 and its norms are trained in float32."""

    def mixed():
        model = AutoModelForImageTextToText.from_pretrained(runs.ASSET, dtype=torch.bfloat16)
        model.model.visual.merger.ln_q.float()
        return model

    saved = mixed()
    with torch.no_grad():
        # A change that bfloat16 has no place for.
        saved.model.visual.merger.ln_q.weight.add_(1e-5)
    saved.save_pretrained(tmp_path)
    loaded = mixed()
    load_weights(loaded, tmp_path)
    wanted = saved.state_dict()
    assert {weight.dtype for weight in wanted.values()} == {torch.bfloat16, torch.float32}
    assert runs.same_weights(loaded.state_dict(), wanted)


class TestSetEpoch:
    def test_epoch_order_equals_that_of_an_uninterrupted_run(self):
        def sampler():
            return RepeatSampler(range(7), mini_repeat_count=2, batch_size=3, repeat_count=2, seed=5)

        through = sampler()
        orders = [list(through) for _ in range(4)]
        assert orders[0] != orders[1]
        for epoch in (2, 0, 3):
            jumped = sampler()
            set_epoch(jumped, epoch)
            assert list(jumped) == orders[epoch]
