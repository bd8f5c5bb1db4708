"""Labels that have to agree: what matches, what a missing or wrong label costs, and the mean over labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.labels import are_synonyms
from grounding_rewards.matching import MATCHERS
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.rewards.average_precision import INTERPOLATIONS, RANKINGS
from grounding_rewards.rewards.label_matching import LabelCodes, LabelCounts
from tests.conftest import box_lists, valid_box_lists
from tests.metrics.coco_oracle import coco_mean_average_precision
from tests.rewards.test_rewards import NAMES

A, B, C = [0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]
LABELS = ["mass", "nodule", "effusion"]


@pytest.mark.parametrize(
    ("pred_label", "gt_label", "exact", "synonyms"),
    [
        ("mass", "mass", True, True),
        ("Mass", "mass", True, True),  # case
        ("  pleural\n effusion", "Pleural effusion", True, True),  # white space
        ("nodule", "mass", False, False),
        ("effusion", "pleural effusion", False, True),
        ("left pleural effusion", "effusion", False, True),  # no side agrees with every side
        ("Nodule/Mass", "nodule or mass", False, True),
        ("left lung", "right lung", False, False),
        ("nodule", "Nodule/Mass", False, False),  # a kind of it is no synonym
        ("efusion", "effusion", False, False),  # a misspelling is no synonym
        ("", "mass", False, False),  # a blank label is none
        (" ", "mass", False, False),
        (None, "mass", False, False),
        ("mas" * 200, "mass", False, False),
    ],
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


def test_counts_of_each_label():
    reward = gr.get_reward("R3", label_matching="exact")
    pred, pred_labels = (
        [A, B, C, C, [60, 0, 70, 10], [90, 0, 99, 9]],
        ["mass", "nodule", "mass", None, "effusion", "cyst"],
    )
    explained = reward.explain(
        pred, [A, B, C], pred_labels=pred_labels, gt_labels=["Mass", "mass", "nodule"], ignore=[pred[5]]
    )
    assert explained.per_label == (
        LabelCounts("mass", 1, 1, 1),
        LabelCounts("nodule", 0, 1, 1),
        LabelCounts("effusion", 0, 1, 0),
        LabelCounts(None, 0, 1, 0),  # and the cyst lies where it is not judged
    )


def test_a_synonym_counts_for_the_label_of_the_image():
    reward = gr.get_reward("R3", label_matching="synonyms")
    pred_labels, gt_labels = ["effusion", "Pleural effusion", "fluid, perhaps"], ["left pleural effusion"]
    explained = reward.explain([A, B, C], [A], pred_labels=pred_labels, gt_labels=gt_labels)
    assert explained.per_label == (
        LabelCounts("left pleural effusion", 1, 1, 0),
        LabelCounts("fluid, perhaps", 0, 1, 0),
    )


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({}, "`pred_labels` and `gt_labels`"),
        ({"gt_labels": ["mass"]}, "`pred_labels` and `gt_labels`"),
        ({"pred_labels": ["mass"]}, "`pred_labels` and `gt_labels`"),
        ({"pred_labels": ["mass", "mass"], "gt_labels": ["mass"]}, "`pred_labels`, got 2"),
        ({"pred_labels": ["mass"], "gt_labels": []}, "`gt_labels`, got 0"),
        ({"pred_labels": ["mass"], "gt_labels": [" "]}, "blank"),
        ({"pred_labels": ["mass"], "gt_labels": [None]}, "blank"),
    ],
)
def test_labels_that_are_missing_are_asked_for(labels, named):
    with pytest.raises(ValueError, match="Expected") as error:
        gr.get_reward("R1", label_matching="exact").score([A], [A], **labels)
    assert named in str(error.value)


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
    explained = gr.get_reward(name, label_matching="exact", matching=matching).explain(
        pred, gt, pred_labels=pred_labels, gt_labels=gt_labels
    )
    assert all(pred_labels[i] == gt_labels[j] for i, j in explained.matches)
    assert sum(one.tp for one in explained.per_label) == explained.tp
    assert sum(one.fp for one in explained.per_label) == explained.fp
    assert sum(one.fn for one in explained.per_label) == explained.fn


# the mean over labels


def mean_over_labels(pred, gt, pred_labels, gt_labels, **options):
    """R1 of each label on its own; 0 for one that is predicted and not there."""
    if not pred or not gt:
        return 0.2 if len(pred) == len(gt) else 0.0
    reward = gr.get_reward("R1", **options)
    each = []
    for label in dict.fromkeys([*gt_labels, *pred_labels]):
        mine = [box for box, own in zip(pred, pred_labels, strict=True) if own == label]
        theirs = [box for box, own in zip(gt, gt_labels, strict=True) if own == label]
        each.append(reward.score(mine, theirs) if theirs and label is not None else 0.0)
    return np.mean(each)


@given(images(), st.sampled_from(RANKINGS), st.sampled_from(list(INTERPOLATIONS)))
def test_the_mean_over_labels_is_that_of_each_alone(image, ranking, interpolation):
    pred, gt, pred_labels, gt_labels = image
    options = {"ranking": ranking, "interpolation": interpolation}
    reward = gr.get_reward("R1", label_matching="exact", per_label=True, **options)
    expected = mean_over_labels(pred, gt, pred_labels, gt_labels, **options)
    assert reward.score(pred, gt, pred_labels=pred_labels, gt_labels=gt_labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("pred_labels", "expected"),
    [
        (["mass", "nodule", "effusion"], 1.0),
        (["mass", "nodule", "cyst"], 2 / 4),  # two of three, and a label that is not there
        (["mass", "nodule", None], 2 / 4),  # a box without a label counts like one
        (["mass", "mass", "effusion"], 2 / 3),  # the second mass comes last: free in AP, but the nodule is missed
        (["cyst", None, "cyst"], 0.0),
    ],
)
def test_the_mean_over_labels_by_hand(pred_labels, expected):
    reward = gr.get_reward("R1", label_matching="exact", per_label=True)
    assert reward.score([A, B, C], [A, B, C], pred_labels=pred_labels, gt_labels=LABELS) == pytest.approx(expected)


def test_the_mean_over_labels_equals_pycocotools():
    rng = np.random.default_rng(4)
    reward = gr.get_reward("R1", interpolation="101", label_matching="exact", per_label=True)
    for _ in range(20):
        # far apart, so that COCO's matching by confidence and ours by IoU pair the same boxes
        m = int(rng.integers(1, 9))
        gt = [[40.0 * k, 0, 40.0 * k + 20, 20] for k in range(m)]
        gt_labels = [LABELS[k] for k in rng.integers(0, 3, m)]
        # COCO leaves labels out that only predictions have; we count them as 0, so there are none here
        drawn = [(box, label) for box, label in zip(gt, gt_labels, strict=True) if rng.random() < 0.8]
        pred = [
            ([x, y, x2 - rng.uniform(0, 14), y2], str(rng.choice([label, gt_labels[0]])))
            for (x, y, x2, y2), label in drawn
        ]
        pred += [
            ([40.0 * k, 100, 40.0 * k + 20, 120], str(rng.choice(gt_labels))) for k in range(int(rng.integers(1, 4)))
        ]
        pred = [pred[i] for i in rng.permutation(len(pred))]
        boxes, pred_labels = [box for box, _ in pred], [label for _, label in pred]
        image = AnsweredImage(
            "a",
            400,
            200,
            gt=gt,
            gt_labels=gt_labels,
            pred=boxes,
            pred_labels=pred_labels,
            pred_scores=1 - np.arange(len(pred)) / 100,
        )
        expected = coco_mean_average_precision([image], [0.5])
        assert reward.score(boxes, gt, pred_labels=pred_labels, gt_labels=gt_labels) == pytest.approx(
            expected, abs=1e-12
        )


# the comparison


TEXTS = st.one_of(
    st.sampled_from([*LABELS, "Nodule/Mass", "left lung", "lung", "RLL opacity", ""]), st.text(max_size=20)
)


@given(st.lists(st.none() | TEXTS, max_size=5), st.lists(TEXTS, max_size=4))
def test_agreement_is_that_of_the_vocabulary(pred_labels, gt_labels):
    codes = LabelCodes.of(pred_labels, gt_labels, "synonyms")
    agreed = codes.agree(codes.pred[:, None], codes.gt[None])
    for i, one in enumerate(pred_labels):
        for j, other in enumerate(gt_labels):
            blank = not (one or "").strip() or not other.strip()
            assert agreed[i, j] == (not blank and are_synonyms(one, other))
