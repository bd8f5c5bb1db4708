"""The warm-started model that the repository ships: small, made by the shipped script, and worth training on."""

from __future__ import annotations

from grounding_rewards.data.model_columns import add_columns
from grounding_rewards.data.prompts import prompt_messages
from grounding_rewards.images.resize import fit_images
from grounding_rewards.logs.answer_logs import light_rows
from grounding_rewards.metrics.answers import read_answers
from grounding_rewards.metrics.counts import MatchedImages
from grounding_rewards.metrics.image_dependence import baseline_systems
from grounding_rewards.metrics.intervals import ratio_estimates
from grounding_rewards.models.generate import Sampling, generate
from grounding_rewards.models.load import load_model
from grounding_rewards.prepare.load import load_split
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import REPOSITORY

ASSET = REPOSITORY / "assets" / "tiny_vlm"


def test_it_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in ASSET.iterdir()) <= 4_000_000


def test_its_tokenizer_writes_prompts_and_answers_as_briefly_as_the_one_that_the_script_builds() -> None:
    from transformers import AutoTokenizer

    from grounding_rewards.models.tiny_vlm import build_tokenizer
    from grounding_rewards.synthetic import LABELS

    built, shipped = build_tokenizer((LABELS, ("right lung", "left lung"))), AutoTokenizer.from_pretrained(ASSET)
    texts = [prompt_messages(labels)[0]["content"][1]["text"] for labels in (LABELS, ["mass"], ["left lung"])]
    texts += ['[{"bbox_2d": [8, 16, 104, 96], "label": "mass"}]', "[]"]
    assert [len(shipped.encode(text)) for text in texts] == [len(built.encode(text)) for text in texts]
    assert [shipped.decode(shipped.encode(text)) for text in texts] == texts


def test_it_finds_findings_loosely_and_leaves_something_to_learn() -> None:
    model, processor = load_model(ASSET)
    reward = get_reward("R4")
    images = add_columns(load_split("synthetic", "test", max_images=40), processor, "qwen2.5-vl")
    shown = fit_images(images, processor)
    greedy = generate(model, processor, shown, Sampling(max_new_tokens=24))
    sampled = generate(model, processor, shown, Sampling(samples=4, temperature=1.0, max_new_tokens=24))
    texts = [[*first, *others] for first, others in zip(greedy, sampled, strict=True)]
    rows = light_rows(images)
    shipped = ratio_estimates(MatchedImages(read_answers(rows, texts, reward)).sums())
    nothing = ratio_estimates(MatchedImages(baseline_systems(rows, None, reward)["nothing found"]).sums())
    # Far better than knowing nothing, and far from done: wide limits around the demo's first evaluation.
    assert shipped["sampled_reward"].value > nothing["sampled_reward"].value + 0.2
    assert 0.35 < shipped["mean_iou"].value < 0.6
    assert shipped["sampled_unparseable_share"].value < 0.1
