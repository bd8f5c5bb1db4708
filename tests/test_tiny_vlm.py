"""The tiny model is a Qwen2.5-VL like any other and writes boxes in few tokens; the shipped one is worth training."""

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer, Qwen2_5_VLForConditionalGeneration

from grounding_rewards.data.dataset_columns import add_columns, light_rows
from grounding_rewards.data.prompts import gold_answer, prompt_messages, prompt_order, task_prompt
from grounding_rewards.images.resize import fit_images
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.intervals import ratio_estimates
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.models.generate import Sampling, generate
from grounding_rewards.models.load import load_model
from grounding_rewards.prepare.load import load_split
from grounding_rewards.rewards.grounding import get_reward
from grounding_rewards.synthetic import LABELS
from scripts.build_tiny_vlm import BOX_FORMAT, IMAGE_SIZE, VOCABULARIES, build_tokenizer
from tests.conftest import REPOSITORY
from tests.tables import table

ASSET = REPOSITORY / "assets" / "tiny_vlm"


@pytest.fixture(scope="module")
def tokenizer():
    torch.set_num_threads(1)
    return build_tokenizer([LABELS])


def answer(boxes, labels):
    side = dict.fromkeys(("width", "height", "resized_width", "resized_height"), IMAGE_SIZE)
    return gold_answer({"boxes": boxes, "labels": labels, **side}, BOX_FORMAT)


@pytest.mark.parametrize(("boxes", "labels", "tokens"), table("cases", "answers_are_short"))
def test_answers_are_short(tokenizer, boxes, labels, tokens):
    assert len(tokenizer.tokenize(answer(boxes, labels))) == tokens


@pytest.mark.parametrize(
    "text",
    [
        answer([[1, 20, 34, 112]], ["mass"]),
        '```json\n[\n\t{"bbox_2d": [1, 2',  # cut off
        "a label nobody named, 3.25 and 4711",
        "Überlänge ≤ 5 µm \U0001fac1\n",  # bytes that no merge has seen
    ],
)
def test_any_text_survives(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_is_a_small_qwen_2_5_vl(tiny_vlm):
    model = AutoModelForImageTextToText.from_pretrained(tiny_vlm)
    assert isinstance(model, Qwen2_5_VLForConditionalGeneration)
    assert 0.8e6 < model.num_parameters() < 1.5e6
    text = model.config.text_config
    # Time, rows and columns share the rotary pairs of a head.
    head = text.hidden_size // text.num_attention_heads
    assert sum(text.rope_parameters["mrope_section"]) == head // 2


class TestShipped:
    def test_is_small_enough(self):
        assert sum(path.stat().st_size for path in ASSET.iterdir()) <= 4_000_000

    def test_shipped_tokenizer_equals_the_built_one(self):
        built, shipped = build_tokenizer(VOCABULARIES), AutoTokenizer.from_pretrained(ASSET)
        texts = [prompt_messages(labels)[0]["content"][1]["text"] for labels in (LABELS, ["mass"], ["left lung"])]
        texts += ['[{"bbox_2d": [8, 16, 104, 96], "label": "mass"}]', "[]"]
        assert [len(shipped.encode(text)) for text in texts] == [len(built.encode(text)) for text in texts]
        assert [shipped.decode(shipped.encode(text)) for text in texts] == texts

    def test_finds_findings_loosely_and_leaves_something_to_learn(self):
        model, processor = load_model(ASSET)
        reward = get_reward("soft_f1")
        images = add_columns(load_split("synthetic", "test", max_images=40), processor, "qwen2.5-vl")
        shown = fit_images(images, processor)
        greedy = generate(model, processor, shown, Sampling(max_new_tokens=24))
        sampled = generate(model, processor, shown, Sampling(samples=4, temperature=1.0, max_new_tokens=24))
        texts = [[*first, *others] for first, others in zip(greedy, sampled, strict=True)]
        rows = light_rows(images)
        shipped = ratio_estimates(MatchedImages(read_predictions(rows, texts, reward)).sums())
        nothing = ratio_estimates(MatchedImages(read_predictions(rows, [["[]", "[]"]] * len(rows), reward)).sums())
        # Far better than knowing nothing, and loose: wide limits around the demo's first evaluation.
        assert shipped["sampled_reward"].value > nothing["sampled_reward"].value + 0.2
        assert 0.5 < shipped["mean_iou"].value < 0.7
        assert shipped["f1_50"].value > 0.8
        assert shipped["recall_75"].value < 0.3
        assert shipped["sampled_unparseable_share"].value < 0.05

    @pytest.mark.parametrize(("task", "what"), [("detection", prompt_order(LABELS)), ("finding", "pleural effusion")])
    def test_answers_the_prompts_of_prepare(self, task, what):
        model, processor = load_model(ASSET)
        images = add_columns(load_split("synthetic", "test", max_images=40), processor, "qwen2.5-vl")
        asked = images.remove_columns("prompt").add_column("prompt", [task_prompt(task, what, BOX_FORMAT)] * 40)
        texts = generate(model, processor, fit_images(asked, processor), Sampling(max_new_tokens=24))
        rows = []
        for row in light_rows(images):
            kept = [k for k, label in enumerate(row["labels"]) if label in (what if task == "detection" else [what])]
            rows.append({**row, "boxes": [row["boxes"][k] for k in kept], "labels": [row["labels"][k] for k in kept]})
        metrics = ratio_estimates(MatchedImages(read_predictions(rows, texts, get_reward("soft_f1"))).sums())
        assert metrics["mean_iou"].value > 0.5
        assert metrics["f1_50"].value > 0.8
