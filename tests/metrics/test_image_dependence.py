"""Image dependence: against enumeration, for models that look and models that do not, and how often intervals hold."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from grounding_rewards.common.formatting import as_json
from grounding_rewards.metrics import image_dependence as module
from grounding_rewards.metrics.baselines import baseline_systems
from grounding_rewards.metrics.detection import MatchedImages
from grounding_rewards.metrics.image_dependence import dependence_sums, image_dependence, shift_notes
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.rewards.grounding import get_reward


def draw(rng: np.random.Generator, n: int, *, looks: float, boxes: tuple[int, ...] = (1,)) -> list[Prediction]:
    """Images of 100 pixels; answers lie between the reference (looks = 1) and where boxes usually are (0)."""
    made = []
    for k in range(n):
        m = boxes[k % len(boxes)]
        usual = np.array([[20.0 + 30 * j, 20.0, 50.0 + 30 * j, 60.0] for j in range(m)]).reshape(-1, 4)
        gt = usual + np.tile(rng.normal(0, 8, (m, 2)), 2)
        labels = tuple(rng.choice(["mass", "nodule"], m))
        pred = np.clip(looks * gt + (1 - looks) * usual + rng.normal(0, 2, gt.shape), 0, 100)
        called = {"gt_labels": labels, "pred_labels": labels}
        made.append(Prediction(f"i{k}", 100, 100, gt=gt, pred=pred, text=str(pred), **called))
    return made


def mean_iou(images: list[Prediction]) -> float:
    """Mean IoU as the evaluation's table has it."""
    numerator, denominator = MatchedImages(images).sums(["mean_iou"])["mean_iou"].T
    return numerator.sum() / denominator.sum()


def dealt(images: list[Prediction], order: tuple[int, ...]) -> list[Prediction]:
    said = ("pred", "pred_labels", "pred_scores")
    answers = [{name: getattr(images[j], name) for name in said} for j in order]
    return [replace(image, **answer) for image, answer in zip(images, answers, strict=True)]


def test_what_the_question_says_is_nothing_seen() -> None:
    """A model that puts each finding where it usually is, by the prompt alone, owes nothing to the images."""
    usual = {"heart": [30.0, 40.0, 80.0, 80.0], "nodule": [10.0, 10.0, 20.0, 20.0]}
    asked = [("heart", "Find the heart."), ("nodule", "Find every nodule."), ("heart", "Where is the HEART?")] * 4
    rows = [{"boxes": [usual[label]], "labels": [label], "asked": question} for label, question in asked]
    rows = [{**row, "id": str(k), "width": 100, "height": 100} for k, row in enumerate(rows)]
    texts = [[str([[10 * value for value in usual[row["labels"][0]]]])] for row in rows]
    reward = get_reward("R3", box_format="qwen3-vl")
    images = read_predictions(rows, texts, reward)
    assert [image.asked for image in images[:3]] == [("heart",), ("nodule",), ("heart",)]
    assert image_dependence(images).dependence.value == 0
    unasked = image_dependence([replace(image, asked=(), question=None) for image in images])
    assert unasked.dependence.value > 0.4
    assert "the prompts are not known" in unasked.sentence
    # The constant box answers the question too; images that ask for nothing by name have one for all.
    constant = baseline_systems(rows, rows, reward)["constant box"]
    assert [image.rewards["R3"] for image in constant] == [1.0] * 12
    plain = [{**row, "asked": "Find boxes."} for row in rows]
    assert {image.pred_labels for image in baseline_systems(plain, plain, reward)["constant box"]} == {("heart",)}


def test_dependence_is_metric_less_mean_over_other_answers() -> None:
    images = draw(np.random.default_rng(3), 6, looks=0.7, boxes=(1, 2))
    orders = [
        order
        for order in itertools.permutations(range(6))
        # Over permutations that leave no answer where it is, each of the others is there equally often.
        if all(i != j and len(images[i].gt) == len(images[j].gt) for i, j in enumerate(order))
    ]
    values = [mean_iou(dealt(images, order)) for order in orders]
    found = image_dependence(images)
    assert found.value == pytest.approx(mean_iou(images), abs=1e-12)
    assert found.dealt == pytest.approx(np.mean(values), abs=1e-12)
    assert found.dependence.value == pytest.approx(found.value - np.mean(values), abs=1e-12)


def test_one_answer_to_all_images_owes_them_nothing() -> None:
    images = draw(np.random.default_rng(0), 40, looks=1.0, boxes=(1, 2, 0))
    alike = [replace(image, pred=[[20, 20, 50, 60]], pred_labels=(), pred_scores=[], text="alike") for image in images]
    found = image_dependence(alike)
    assert found.value > 0.1
    assert (found.dependence.value, found.distinct) == (pytest.approx(0, abs=1e-12), 1)
    # All dealings earn the same.
    assert found.p == 1


def test_neither_the_order_of_the_images_nor_their_sizes_matter() -> None:
    images = draw(np.random.default_rng(1), 30, looks=0.8, boxes=(1, 2))
    found = image_dependence(images)
    assert image_dependence(images[::-1]).dependence == pytest.approx(found.dependence, abs=1e-12)
    by, size = [4, 2, 4, 2], {"width": 400, "height": 200}
    larger = [replace(image, **size, gt=image.gt * by, pred=image.pred * by) for image in images]
    assert image_dependence(larger).dependence.value == pytest.approx(found.dependence.value, abs=1e-12)


def test_answers_stay_within_their_source_and_their_labels() -> None:
    images = draw(np.random.default_rng(2), 8, looks=1.0)
    named = [replace(image, gt_labels=(str(k // 2),)) for k, image in enumerate(images)]
    pairs = [image_dependence(named[k : k + 2]).dependence.value for k in range(0, 8, 2)]
    assert image_dependence(named, same_labels=True).dependence.value == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("size", [2, 4, 40])
def test_perfect_model_has_one_dependence_in_all_group_sizes(size: int) -> None:
    """References that don't overlap: nothing but looking earns anything, so that all of 1 is owed to it."""
    boxes = [[[10.0 * (k % 10), 10.0 * (k // 10), 10.0 * (k % 10) + 9, 10.0 * (k // 10) + 9]] for k in range(40)]
    images = [Prediction(str(k), 100, 100, gt=box, gt_labels=["mass"], pred=box) for k, box in enumerate(boxes)]
    images = paired(images, size)
    found = image_dependence(images)
    assert (found.dependence.value, found.dealt, found.alone) == (pytest.approx(1), pytest.approx(0), 0)
    # Images without others leave the numerator and the denominator.
    lonely = [replace(image, question=f"alone {k}") if k < 6 else image for k, image in enumerate(images)]
    some = image_dependence(lonely)
    assert (some.dependence.value, some.alone, some.images) == (pytest.approx(1), 6, 40)
    assert some.sentence.endswith("6 of 40 images share question and number of boxes with no other, and play no part")


def test_without_others_for_most_images_there_is_no_number() -> None:
    """A phrase a row: a perfect model has no number, not 0."""
    images = [replace(image, question=image.id) for image in draw(np.random.default_rng(2), 8, looks=1.0)]
    images += [replace(image, id=f"{image.id}'") for image in images[:3]]
    found = image_dependence(images[:8])
    assert np.isnan([*found.dependence, found.p, found.dealt]).all()
    assert found.value > 0.5
    assert "cannot be measured: 8 of 8 images" in found.sentence
    # Six of eleven have another one now, which are more than half.
    assert (image_dependence(images).alone, np.isnan(image_dependence(images).dependence.value)) == (5, False)
    assert as_json(found)["dependence"] == {"value": None, "low": None, "high": None}


# Either the image's own box, or the usual one of its label.
@pytest.mark.parametrize("places", [True, False])
def test_naming_and_placing_are_told_apart(places: bool) -> None:
    usual = {"heart": [30.0, 40.0, 80.0, 80.0], "nodule": [0.0, 0.0, 20.0, 20.0]}
    images = []
    for k in range(40):
        label = ("heart", "nodule")[k % 2]
        gt = np.add(usual[label], [k % 7, k % 5, k % 7, k % 5])
        pred = gt if places else usual[label]
        images.append(Prediction(str(k), 100, 100, gt=[gt], gt_labels=[label], pred=[pred], question="all?"))
    found = image_dependence(images)
    assert found.dependence.value == pytest.approx(found.naming + found.placing.value)
    assert found.naming > 0.3
    assert (found.placing.value > 0.1) if places else found.placing == (0, 0, 0)
    assert f"{found.naming:.3f} is owed to naming and {found.placing.value:.3f} [" in found.sentence
    # An image that shares its labels with no other counts in the whole, not in its parts.
    lonely = image_dependence([replace(images[0], gt_labels=["other"]), *images[1:]])
    assert lonely.dependence.value != pytest.approx(lonely.naming + lonely.placing.value, abs=1e-4)
    assert "; on images that share their labels with others, " in lonely.sentence
    # Where no image has another with its labels, the two are not told apart.
    unlike = image_dependence([replace(image, gt_labels=[image.id]) for image in images])
    assert np.isnan(unlike.naming)
    assert "naming" not in unlike.sentence
    assert "nan" not in unlike.sentence
    # Of one label there is nothing to name.
    hearts = image_dependence(images[::2])
    assert (hearts.placing, hearts.naming) == (hearts.dependence, 0)


def test_what_answers_contribute_is_right_wherever_they_change_places() -> None:
    """The test of `diff`: with an answer from the other run here and there, sums over answers are the dependence."""
    rng = np.random.default_rng(9)
    first, second = (draw(rng, 12, looks=looks, boxes=(1, 2)) for looks in (0.2, 0.9))
    second = [replace(b, gt=a.gt, gt_labels=a.gt_labels) for a, b in zip(first, second, strict=True)]
    sums = [dependence_sums(run).by_answer[:, 0] for run in (first, second)]
    for _ in range(5):
        swapped = rng.integers(0, 2, 12)
        mixed = [(a, b)[k] for a, b, k in zip(first, second, swapped, strict=True)]
        assert dependence_sums(mixed).by_answer[:, 0].sum() == pytest.approx(np.where(swapped, *sums[::-1]).sum())


def test_labels_are_compared_where_the_evaluation_compares_them() -> None:
    images = draw(np.random.default_rng(4), 20, looks=1.0)
    exact = image_dependence(images, label_matching="exact")
    assert exact.value == pytest.approx(image_dependence(images).value)
    # An answer about a mass earns nothing on an image with a nodule.
    assert exact.dealt < 0.7 * image_dependence(images).dealt


def test_many_images_have_fixed_partners(monkeypatch: pytest.MonkeyPatch) -> None:
    images = draw(np.random.default_rng(6), 300, looks=0.6, boxes=(1, 2))
    exact = image_dependence(images)
    monkeypatch.setattr(module, "MOST_IMAGES", 100)
    monkeypatch.setattr(module, "PARTNERS", 60)
    found = image_dependence(images)
    assert image_dependence(images[::-1]).dependence.value == pytest.approx(found.dependence.value, abs=1e-12)
    assert found.dependence.value == pytest.approx(exact.dependence.value, abs=0.01)
    # Of many images by the normal distribution, of few by permutations.
    assert found.p < exact.p == 1 / 2000
    # The table, the first sentence and a comparison have one number, also where a smaller group comes first.
    few = [replace(image, source="few") for image in images[:20]]
    for several in (images, few + images[20:]):
        numerator, denominator = dependence_sums(several).by_answer.sum(axis=0)
        for seed in (0, 1):
            found = image_dependence(several, seed=seed)
            assert found.dependence.value == pytest.approx(numerator / denominator, abs=1e-12)


def test_nothing_to_measure() -> None:
    assert np.isnan(image_dependence([]).value)
    assert np.isnan(image_dependence([Prediction("a", 9, 9)]).dependence.value)
    assert dependence_sums([]).by_image.shape == (0, 2)


def test_ignored_regions_count_as_in_the_table() -> None:
    images = draw(np.random.default_rng(7), 12, looks=0.9)
    more = {"ignore": [[80, 80, 95, 95]], "pred_labels": (), "pred_scores": []}
    images = [replace(image, pred=[*image.pred, [80, 80, 94, 94]], **more) for image in images]
    assert image_dependence(images).value == pytest.approx(mean_iou(images))


def paired(images: list[Prediction], group: int) -> list[Prediction]:
    """The images with one question for each so many."""
    return [replace(image, question=f"question {k // group}") for k, image in enumerate(images)]


# scripts/studies/simulate_dependence.py has 2,000 sets for each size.
@pytest.mark.parametrize("group", [4, 40])
@pytest.mark.parametrize("looks", [0.0, 0.5])
def test_intervals_hold_the_truth_and_the_test_its_level(looks: float, group: int) -> None:
    rng = np.random.default_rng(8)
    found = [image_dependence(paired(draw(rng, 40, looks=looks, boxes=(1, 2)), group)) for _ in range(100)]
    truth = np.mean([one.dependence.value for one in found]) if looks else 0.0
    held = sum(one.dependence.low <= truth <= one.dependence.high for one in found)
    small = sum(one.p <= 0.05 for one in found)
    # Of 100, 95 % are 95; by binomial chance 88 to 99.
    assert held >= 87
    assert small <= 12 if looks == 0 else small > 95


@pytest.mark.parametrize(("by", "said"), [(1, ["next"]), (-1, ["previous"]), (0, [])])
@pytest.mark.parametrize("sizes", [(100, 100), (60, 200)])
def test_answers_to_the_image_beside_are_said_to_be_shifted(by: int, said: list[str], sizes: tuple[int, int]) -> None:
    """An answer in pixels has those of its own image, whatever the size of the one that it is joined to."""
    drawn = draw(np.random.default_rng(0), 20, looks=1, boxes=(0, 1, 2))
    moved = [replace(one, gt=one.gt + 50 * (k % 3), pred=one.pred + 50 * (k % 3)) for k, one in enumerate(drawn)]
    images = [replace(one, width=sizes[k % 2], height=sizes[k % 2]) for k, one in enumerate(moved)]
    moved = dealt(images, tuple((k + by) % 20 for k in range(20)))
    assert [note.split()[7] for note in shift_notes(moved)] == said


def test_no_shift_is_reported_for_a_blind_model() -> None:
    assert shift_notes(draw(np.random.default_rng(0), 60, looks=0)) == []
