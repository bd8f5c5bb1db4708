"""Labels that have to agree: what matches, and what a missing or wrong label costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.labels import are_synonyms
from grounding_rewards.matching import MATCHERS, LabelCodes
from tests.conftest import box_lists, valid_box_lists
from tests.rewards.test_rewards import NAMES
from tests.tables import table

A, B = [0, 0, 10, 10], [20, 0, 30, 10]
LABELS = ["mass", "nodule", "effusion"]


@pytest.mark.parametrize(
    ("pred_label", "gt_label", "exact", "synonyms"),
    [*table("rewards/by_hand", "labels"), (None, "mass", False, False), ("mas" * 200, "mass", False, False)],
)
@pytest.mark.parametrize("name", NAMES)
def test_what_matches(name, pred_label, gt_label, exact, synonyms):
    for rule, agrees in (("ignore", True), ("exact", exact), ("synonyms", synonyms)):
        reward = gr.get_reward(name, label_matching=rule)
        assert reward.score([A], [A], pred_labels=[pred_label], gt_labels=[gt_label]) == (1.0 if agrees else 0.0)


@pytest.mark.parametrize("matching", MATCHERS)
def test_a_box_of_another_label_does_not_stand_in_the_way(matching):
    # by hand: the nodule fits the mass better than the mass does, and would take it from it
    pred, gt = [A, [0, 0, 10, 8]], [A, [0, 0, 10, 6]]
    reward = gr.get_reward("R3", label_matching="exact", matching=matching)
    explained = reward.explain(pred, gt, pred_labels=["nodule", "mass"], gt_labels=["mass", "nodule"])
    assert explained.matches == ((0, 1), (1, 0))
    assert explained.ious == pytest.approx((0.6, 0.8))


@pytest.mark.parametrize("label", ["nodule", None, ""])
def test_a_wrong_label_costs_as_much_as_none(label):
    # by hand: one of two found, one false: P = R = F = 1/2
    reward = gr.get_reward("R3", label_matching="exact")
    explained = reward.explain([A, B], [A, B], pred_labels=["mass", label], gt_labels=["mass", "mass"])
    assert (explained.tp, explained.fp, explained.fn) == (1, 1, 1)
    assert explained.reward == pytest.approx(0.5)


@pytest.mark.parametrize(("labels", "named"), table("rewards/cases", "labels_that_are_missing_are_asked_for"))
def test_labels_that_are_missing_are_asked_for(labels, named):
    with pytest.raises(ValueError, match="Expected") as error:
        gr.get_reward("R1", label_matching="exact").score([A], [A], **labels)
    assert named in str(error.value)


@pytest.mark.parametrize("no_labels", [[], None])
def test_a_normal_image_has_nothing_to_name(no_labels):
    columns = {"boxes": [[], [A]], "labels": [no_labels, ["mass"]], "width": [50, 50], "height": [50, 50]}
    reward = gr.get_reward("R3", box_format="qwen3-vl", label_matching="exact")
    assert reward(["[]", '[{"bbox_2d": [0, 0, 200, 200], "label": "mass"}]'], **columns) == [0.2, 1.0]


def labelled(boxes):
    return st.lists(st.sampled_from([*LABELS, None]), min_size=len(boxes), max_size=len(boxes))


@st.composite
def images(draw, predictions=box_lists):
    pred, gt = draw(predictions()), draw(valid_box_lists())
    pred_labels = draw(labelled(pred))
    gt_labels = [label or "mass" for label in draw(labelled(gt))]
    return pred, gt, pred_labels, gt_labels


@given(images(), st.sampled_from(NAMES), st.sampled_from(["greedy", "thresholded_hungarian"]))
def test_no_pair_of_different_labels(image, name, matching):
    pred, gt, pred_labels, gt_labels = image
    reward = gr.get_reward(name, label_matching="exact", matching=matching)
    explained = reward.explain(pred, gt, pred_labels=pred_labels, gt_labels=gt_labels)
    assert all(pred_labels[i] == gt_labels[j] for i, j in explained.matches)


TEXTS = st.sampled_from([*LABELS, "Nodule/Mass", "left lung", "lung", "RLL opacity", ""]) | st.text(max_size=20)


@given(st.lists(st.none() | TEXTS, max_size=5), st.lists(TEXTS, max_size=4))
def test_agreement_is_that_of_the_vocabulary(pred_labels, gt_labels):
    codes = LabelCodes.of(pred_labels, gt_labels, "synonyms")
    agreed = codes.agree(codes.pred[:, None], codes.gt[None])
    for i, one in enumerate(pred_labels):
        for j, other in enumerate(gt_labels):
            blank = not (one or "").strip() or not other.strip()
            assert agreed[i, j] == (not blank and are_synonyms(one, other))
