"""The card beside a model says what was trained on what, and nothing that is nobody's business."""

import pytest
from huggingface_hub import ModelCard

from grounding_rewards.synthetic import synthetic_dataset
from tests.training.runs import ASSET, LORA, grpo, sft

pytestmark = pytest.mark.training


def table(card):
    rows = [line.strip("|").split("|") for line in card.content.splitlines() if line.startswith("| ")]
    return {key.strip(): value.strip() for key, value in rows}


def test_of_grpo(tmp_path, monkeypatch):
    values = {"reward": "R2", "reward_kwargs": '{"beta":2.0}', "max_steps": 2, "max_image_pixels": 15000}
    grpo(tmp_path / "secret" / "r2", **values, reward_weights=0.5)
    for path in ("README.md", "checkpoint/README.md", "checkpoint-2/../README.md"):
        card = ModelCard.load(tmp_path / "secret" / "r2" / path)
        assert card.data.library_name == "transformers"
        assert card.data.pipeline_tag == "image-text-to-text"
        assert {"grounding_rewards", "grpo"} <= set(card.data.tags)
        facts = table(card)
        assert facts["started from"] == "tiny_vlm"
        assert facts["trained"] == "all weights"
        assert facts["reward"].startswith("R2: ProductIoUReward(")
        assert "beta=2.0" in facts["reward"]
        assert facts["images"] == "synthetic, split train, 8 images"
        assert facts["box format"] == "qwen2.5-vl"
        assert facts["image size"] == "at most 15000 pixels, kept in the processor"
        assert facts["steps"].startswith("2 of 2")
        assert facts["weights of the rewards"] == "0.5"
        for private in ("None", str(tmp_path), "secret", "time machine", str(ASSET.parent)):
            assert private not in card.content
    # Its example runs.
    checkpoint = tmp_path / "secret" / "r2" / "checkpoint"
    image = synthetic_dataset("test", 8)[1]
    image["image"].save(tmp_path / "image.png")
    code = (checkpoint / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert "box_format='qwen2.5-vl'" in code
    code = code.replace('"path/to/checkpoint"', repr(str(checkpoint)))
    names = {}
    monkeypatch.chdir(tmp_path)
    exec(code.replace('"text": "..."', f'"text": {image["prompt"][0]["content"][1]["text"]!r}'), names)
    assert isinstance(names["text"], str)
    assert names["boxes"].shape[1:] == (4,)


def test_of_an_adapter(tmp_path):
    grpo(tmp_path / "run", **LORA, max_steps=1)
    card = ModelCard.load(tmp_path / "run" / "checkpoint" / "README.md")
    assert card.data.library_name == "peft"
    assert table(card)["trained"] == "an adapter (LoRA)"


def test_of_a_cold_start(tmp_path):
    sft(tmp_path / "run", max_steps=1)
    card = ModelCard.load(tmp_path / "run" / "checkpoint" / "README.md")
    assert "trained by supervised fine-tuning" in card.content
    assert "reward" not in table(card)
