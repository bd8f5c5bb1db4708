"""Checkpoints, adapters over them, and the choice of what generates."""

import json
import shutil
import types

import pytest
import torch
from safetensors.torch import save_file

from grounding_rewards.models import load
from grounding_rewards.models.generate import Sampling, generate
from grounding_rewards.synthetic import synthetic_dataset
from tests.tables import table


def adapted(checkpoint, folder, config):
    """Save an adapter with weights that change the answers, and give the adapted model."""
    from peft import get_peft_model

    base, _ = load.load_model(checkpoint)
    model = get_peft_model(base, config)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                weight.copy_(torch.randn_like(weight) * (0.5 if "lora" in name else 3.0))
    model.save_pretrained(folder)
    return model.eval()


def logits(model, processor):
    inputs = processor.tokenizer("where is the mass", return_tensors="pt")
    with torch.no_grad():
        return model(**inputs).logits


def test_a_checkpoint_is_loaded(checkpoint, tiny_model):
    model, processor = load.load_model(checkpoint)
    images = synthetic_dataset("test", 2)
    short = Sampling(max_new_tokens=4)
    assert generate(model, processor, images, short) == generate(*tiny_model, images, short)
    assert model.dtype == torch.float32


@pytest.mark.parametrize("ask", [load.load_model, load.load_later])
def test_model_with_its_own_code_is_refused_without_a_prompt(checkpoint, tmp_path, monkeypatch, ask):
    settings = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    settings |= {"model_type": "its-own", "auto_map": {"AutoConfig": "own.Config", "AutoProcessor": "own.Processor"}}
    (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("was asked"))
    with pytest.raises(ValueError, match=r"got one that brings its own code, which is not run"):
        ask(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("own_processor", [True, False])
def test_a_low_rank_adapter_is_merged(checkpoint, tiny_model, tmp_path, own_processor):
    from peft import LoraConfig, PeftModel

    expected = adapted(checkpoint, tmp_path, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    if own_processor:
        tiny_model[1].save_pretrained(tmp_path)
    else:
        # A tokenizer alone is no processor.
        tiny_model[1].tokenizer.save_pretrained(tmp_path)
    model, processor = load.load_model(tmp_path)
    assert not isinstance(model, PeftModel)
    assert type(processor) is type(tiny_model[1])
    torch.testing.assert_close(logits(model, processor), logits(expected, processor), rtol=1e-3, atol=1e-3)
    assert not torch.allclose(logits(model, processor), logits(tiny_model[0], processor), atol=1e-2)


@pytest.mark.filterwarnings("ignore:Position ids are not supported")
def test_an_adapter_that_cannot_be_merged_stays_over_the_model(checkpoint, tmp_path):
    from peft import PeftModel, PromptTuningConfig

    # Its vectors stand before the prompt: there is no weight to add them to.
    adapted(checkpoint, tmp_path, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    model, processor = load.load_model(tmp_path)
    assert isinstance(model, PeftModel)
    assert len(generate(model, processor, synthetic_dataset("test", 1), Sampling(max_new_tokens=3))) == 1


@pytest.mark.parametrize(("base", "message"), table("models/tables", "an_adapter_without_its_model_is_refused"))
def test_an_adapter_without_its_model_is_refused(tmp_path, base, message):
    config = {"base_model_name_or_path": base, "peft_type": "LORA"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load.load_model(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    """Such as the folder of a run, in which the checkpoint has one of its own."""
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(ValueError, match=r"Expected config.json or adapter_config.json .*, got neither in '.*'\. Give"):
        load.load_model(tmp_path)


def test_missing_model_name_is_an_os_error(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="couldn't connect"):
        load.load_model("nobody/nothing")


@pytest.mark.parametrize(("backend", "installed", "gpu", "chosen"), table("models/tables", "backends"))
def test_the_backend(monkeypatch, backend, installed, gpu, chosen):
    monkeypatch.setattr(load, "find_spec", lambda name: types.SimpleNamespace() if installed else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert load.choose_backend(backend) == chosen


@pytest.mark.parametrize(("weights", "instead", "beside"), table("models/tables", "pickled_weights"))
def test_pickled_weights_are_refused(tmp_path, weights, instead, beside):
    for name in ("config.json", weights, beside):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=f"got {weights}, which may hold a program"):
        load.check_place(tmp_path)
    # what lies beside safetensors is not read
    (tmp_path / instead).touch()
    load.check_place(tmp_path)


def test_unfinished_weights_are_refused_before_loading(checkpoint, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"Expected whole weights in '.*', got model.safetensors, which is cut"):
        load.load_later(folder)


@pytest.mark.parametrize("name", ["runs/r4/checkpoint", "/nowhere", "a b", "no/such/folder"])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match="for `model_name_or_path`, got"):
        load.check_place(name, "model_name_or_path")


WEIGHTS = {"first": torch.zeros(1000), "second": torch.ones(3, 7), "none": torch.zeros(0), "one": torch.tensor(2.0)}


def saved(folder, weights, **adapter):
    folder.mkdir()
    save_file(weights, folder / ("adapter_model.safetensors" if adapter else "model.safetensors"))
    name = "adapter_config.json" if adapter else "config.json"
    (folder / name).write_text(json.dumps(adapter), encoding="utf-8")
    return folder


def test_a_model_is_known_by_its_weights(tmp_path):
    known = load.digest_of_weights(saved(tmp_path / "a", WEIGHTS))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert load.digest_of_weights(tmp_path / "b") == known
    others = [
        {**WEIGHTS, "second": WEIGHTS["second"] + 1},
        {**WEIGHTS, "one": torch.tensor(3.0)},
        {**WEIGHTS, "first": torch.cat([torch.zeros(999), torch.ones(1)])},
        {**WEIGHTS, "second": torch.ones(7, 3)},
        # in the middle of a weight
        {**WEIGHTS, "first": torch.cat([torch.zeros(400), torch.ones(1), torch.zeros(599)])},
        {name: weight for name, weight in WEIGHTS.items() if name != "none"},
    ]
    digests = {load.digest_of_weights(saved(tmp_path / str(k), one)) for k, one in enumerate(others)}
    assert len(digests - {known}) == len(others)


def test_adapter_digest_covers_its_base_model(tmp_path):
    base, other = (str(saved(tmp_path / str(k), {"w": torch.full((9,), float(k))})) for k in range(2))
    given = [(1.0, base, 8), (2.0, base, 8), (1.0, other, 8), (1.0, base, 16)]
    adapters = []
    for k, (value, under, alpha) in enumerate(given):
        config = {"base_model_name_or_path": under, "lora_alpha": alpha}
        adapters.append(saved(tmp_path / f"adapter {k}", {"a": torch.full((4,), value)}, **config))
    assert len({load.digest_of_weights(one) for one in adapters}) == len(given)
