"""The task folder for lmms-eval: loaded by its TaskManager, asked, answered and scored, on images that were prepared.

lmms-eval itself is not among the development dependencies, because it pins some of theirs: `make .venv/.lmms-eval`.
"""

import importlib.util
import json
import math
import re

import numpy as np
import pytest
from PIL import Image

from tests.conftest import REPOSITORY, load_module

TASK = REPOSITORY / "configs" / "lmms_eval" / "grounding.yaml"

pytest.importorskip("datasets", reason="needs the train extra")

BOXES = [[[10, 8, 50, 56]], [[5, 8, 45, 32], [50, 40, 90, 56]], []]
#: The first image found exactly; one of two boxes of the second; a hallucination on the third; in parts of 1000.
ANSWERS = [
    '[{"bbox_2d": [100, 125, 500, 875], "label": "mass"}]',
    '[{"bbox_2d": [50, 125, 450, 500], "label": "effusion"}]',
    '[{"bbox_2d": [1, 1, 999, 999], "label": "mass"}]',
]


@pytest.fixture(autouse=True, scope="module")
def _pillow_as_it_was():
    """lmms-eval tells Pillow, for the whole process, to take images that break off for whole ones."""
    from PIL import ImageFile

    before = ImageFile.LOAD_TRUNCATED_IMAGES
    yield
    ImageFile.LOAD_TRUNCATED_IMAGES = before


def utils():
    return load_module(TASK.with_name("utils.py"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Three images as `grounding-rewards prepare` writes them, and a task of one's own beside them."""
    from grounding_rewards.prepare import PrepareSettings, prepare_images
    from grounding_rewards.sources import AnnotatedImage

    root = tmp_path_factory.mktemp("lmms")
    images = []
    for number, (boxes, labels) in enumerate(zip(BOXES, [["mass"], ["mass", "effusion"], []], strict=True)):
        pixels = np.random.default_rng(number).integers(0, 255, (64, 100), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{number}.png")
        images.append(AnnotatedImage(str(number), f"{number}.png", boxes, labels, patient_id=str(number), split="test"))
    prepare_images(images, root, root / "images", PrepareSettings("jsonl", "qwen3-vl"))
    (root / "tasks").mkdir()
    (root / "tasks" / "mine.yaml").write_text(
        f"include: {TASK}\ntask: my_images\n"
        f"dataset_kwargs: {{data_files: {{test: {root}/images/data/test-*.parquet}}}}\n",
        encoding="utf-8",
    )
    return root


@pytest.fixture(scope="module")
def rows(prepared):
    from grounding_rewards.prepare.load import load_split

    return utils().checked_images(load_split(str(prepared / "images"), "test"))


def test_the_prompt_is_the_images_own_and_the_gold_answer_earns_everything(rows):
    module = utils()
    for row in rows:
        assert "<image>" not in module.prompt_text(row)
        assert "bbox_2d" in module.prompt_text(row)
        (image,) = module.images(row)
        assert (image.mode, image.size) == ("RGB", (100, 64))
        scored = module.score(row, [module.gold_text(row)])
        for name in ("R1", "R2", "R3", "R4", "R5"):
            # the bonus for a right negative
            assert scored[name][0] == pytest.approx(1.0 if row["boxes"] else 0.2)


def test_they_are_the_metrics_of_our_own_evaluation(rows):
    from grounding_rewards import get_reward
    from grounding_rewards.data.dataset_columns import light_rows
    from grounding_rewards.metrics.evaluation import Measures, evaluate
    from grounding_rewards.metrics.read_predictions import read_predictions

    module = utils()
    # letters of another case, and white space, are no other label
    answers = [ANSWERS[0].replace("mass", " Mass"), *ANSWERS[1:]]
    images = read_predictions(light_rows(rows), [[answer] for answer in answers], get_reward("R4"))
    ours = evaluate({"model": images}, Measures("R4")).systems["model"]
    theirs = [module.score(row, [answer]) for row, answer in zip(rows, answers, strict=True)]
    for name in module.METRICS:
        assert module.pooled([one[name] for one in theirs]) == pytest.approx(ours[name].value), name
    for name in ("R1", "R2", "R3", "R4", "R5"):
        assert module.pooled([one[name] for one in theirs]) == pytest.approx(ours[f"reward_{name}"].value)
    assert math.isnan(module.pooled([(0.0, 0.0)]))


def test_every_metric_is_among_the_metrics_of_the_task():
    text = TASK.read_text(encoding="utf-8")
    listed = set(re.findall(r"metric: (\w+)", text))
    assert listed == {"R1", "R2", "R3", "R4", "R5", *utils().METRICS}


def test_what_cannot_be_scored_is_refused_before_anything_is_generated(rows):
    module = utils()
    with pytest.raises(ValueError, match="none called boxes, box_format"):
        module.checked_images(rows.remove_columns(["boxes", "box_format"]))
    special = rows.remove_columns("box_format").add_column("box_format", ["minicpm-v"] * len(rows))
    with pytest.raises(ValueError, match="plain text, got minicpm-v"):
        module.checked_images(special)


@pytest.fixture(scope="module")
def lmms_eval():
    reason = "needs lmms-eval, which is installed apart: make .venv/.lmms-eval"
    if importlib.util.find_spec("lmms_eval") is None:
        pytest.skip(reason)
    return pytest.importorskip("lmms_eval.tasks", reason=reason)


@pytest.mark.training
def test_lmms_eval_runs_the_task(lmms_eval, prepared, tmp_path, monkeypatch):
    """The whole way, with a model that says the answers above."""
    from lmms_eval.api.model import lmms
    from lmms_eval.evaluator import simple_evaluate

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    asked = []

    class Sayer(lmms):
        def generate_until(self, requests):
            answers = []
            for request in requests:
                context, settings, visual, number, task, split = request.args
                asked.append((context, settings["until"], visual(self.task_dict[task][split][number])[0].size))
                answers.append(ANSWERS[number])
            return answers

        def loglikelihood(self, requests):
            raise NotImplementedError

        def generate_until_multi_round(self, requests):
            raise NotImplementedError

    manager = lmms_eval.TaskManager(include_path=str(prepared / "tasks"), include_defaults=False)
    settings = {"batch_size": 1, "bootstrap_iters": 0, "log_samples": True}
    found = simple_evaluate(Sayer(), tasks=["my_images"], task_manager=manager, **settings)
    metrics = {name.split(",")[0]: value for name, value in found["results"]["my_images"].items()}
    assert metrics["f1_50"] == pytest.approx(4 / 6)
    assert metrics["hallucination_rate"] == 1
    assert metrics["R4"] == pytest.approx(np.mean([one["R4"][0] for one in _scored(prepared)]))
    assert [size for _, _, size in asked] == [(100, 64)] * 3
    assert all("bbox_2d" in context and until == [] for context, until, _ in asked)
    json.dumps(found["samples"], default=str)


def _scored(prepared):
    from grounding_rewards.prepare.load import load_split

    module = utils()
    rows = load_split(str(prepared / "images"), "test")
    return [module.score(row, [answer]) for row, answer in zip(rows, ANSWERS, strict=True)]
