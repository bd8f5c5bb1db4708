"""What the columns beside `boxes` say of the reference: ignore regions, several readers, labels."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.integrations import samples
from grounding_rewards.parsing import get_box_format
from grounding_rewards.rewards.scoring import has_labels
from tests.conftest import valid_box_lists
from tests.tables import table

GT = [[0, 0, 50, 50]]
LONE = [[60, 60, 80, 80]]
BROKEN = '{"bbox_2d": [1, 2, 3]}'


def item(box, label="nodule"):
    """A box in pixels of an image of 100 x 100, in thousandths."""
    return json.dumps({"bbox_2d": [10 * value for value in box], "label": label})


def answer(*items):
    return f"[{', '.join(items)}]"


HIT, ASIDE, JUNK = item(GT[0]), item(LONE[0]), item([85, 5, 95, 15])


def details(texts, name="R3", box_format="qwen3-vl", params=None, **columns):
    reward = gr.get_reward(name, box_format=box_format, **(params or {}))
    scored = reward.details(texts, width=[100] * len(texts), height=[100] * len(texts), **columns)
    called = reward(texts, width=[100] * len(texts), height=[100] * len(texts), **columns)
    assert called == [one.reward for one in scored]
    return scored


def rewards(texts, **options):
    return [one.reward for one in details(texts, **options)]


class TestIgnore:
    @pytest.mark.parametrize(("text", "boxes", "expected", "reason"), table("rewards/by_hand", "ignored_texts"))
    def test_texts(self, text, boxes, expected, reason):
        (scored,) = details([text], boxes=[boxes], ignore_boxes=[LONE])
        assert scored.reward == pytest.approx(expected, abs=1e-15)
        assert scored.reason == reason

    def test_rows_without_regions(self):
        texts = [answer(HIT, ASIDE)] * 4
        plain, *others = rewards(texts, boxes=[GT] * 4, ignore_boxes=[None, [], LONE, np.array(LONE)])
        assert others == [plain, 1.0, 1.0]
        assert rewards(texts, boxes=[GT] * 4, ignore_boxes=[None] * 4) == [plain] * 4


FAR = [[0, 0, 300, 240]]
SEEN = [SimpleNamespace(size=(100, 80))] * 2


class TestOutside:
    """Images of 100 x 80. The commonest slip: boxes of the original, sizes of a copy."""

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"boxes": [GT, FAR]}, r"of 100 x 80 for `boxes`, got \[0.0, 0.0, 300.0, 240.0\] in row 1 \(id b\)\. Give"),
            ({"boxes": [[*GT, *FAR], GT]}, r"in row 0 \(id a\)"),
            # of any reader
            ({"reader_boxes": [None, [GT, FAR]], "boxes": [GT, None]}, "for `reader_boxes`, got .* in row 1"),
            ({"reader_boxes": [None, [GT, GT]], "boxes": [FAR, None]}, "for `boxes`, got .* in row 0"),
            # the size of the image, where no other is stated
            ({"boxes": [GT, FAR], "width": None, "height": None, "image": SEEN}, "row 1"),
            ({"boxes": [GT, FAR], "width": [100, None], "height": [80, None], "image": SEEN}, "of 100 x 80 .* row 1"),
            # packed for a trainer that hands over one string, beside a column that other rows alone have
            ({"boxes": [None] * 2, "ground_truth": [json.dumps({"boxes": FAR})] * 2}, "of 100 x 80 for `boxes`"),
            ({"boxes": None, "ground_truth": [json.dumps({"boxes": FAR, "width": 100, "height": 80})] * 2}, "in row 0"),
            (
                {"boxes": None, "ground_truth": [json.dumps({"reader_boxes": [[], FAR]})] * 2},
                "`reader_boxes`.* in row 0",
            ),
        ],
    )
    @pytest.mark.parametrize("box_format", ["qwen3-vl", {"syntax": "json", "space": "pixel"}])
    def test_is_refused_by_trainers_whatever_the_answers(self, change, said, box_format):
        columns = {"width": [100] * 2, "height": [80] * 2, "id": ["a", "b"], **change}
        reward = gr.get_reward("R4", box_format=box_format)
        with pytest.raises(ValueError, match=said):
            reward(["[]", "no idea"], **columns)
        with pytest.raises(ValueError, match=said):
            samples.scored(reward, ["[]", "no idea"], columns)

    @pytest.mark.parametrize("box", [[-9, 0, 50, 50], [0, -9, 50, 50], [0, 0, 109, 50], [0, 0, 50, 89]])
    def test_each_edge(self, box):
        reward = gr.get_reward("R4", box_format="qwen3-vl")
        with pytest.raises(ValueError, match=r"in row 1\. Give"):
            reward(["[]"] * 2, boxes=[GT, [box]], width=[100] * 2, height=[80] * 2)

    def test_an_edge_of_the_one_side_that_is_known(self):
        reward = gr.get_reward("R4", box_format={"syntax": "json", "space": "pixel"})
        with pytest.raises(ValueError, match="of unknown x 80 for"):
            reward(["[]"], boxes=[[[0, 0, 50, 89]]], height=[80])

    @pytest.mark.parametrize(
        "columns",
        [
            # rounding is no slip
            {"boxes": [[[0, 0, 100.00001, 80]], [[-1e-9, 0, 50, 50]]], "width": [100] * 2, "height": [80] * 2},
            # of no known size; the format counts in pixels
            {"boxes": [FAR, GT]},
            {"boxes": [FAR, GT], "width": [None, 100], "height": [None, 80]},
        ],
    )
    def test_passes(self, columns):
        reward = gr.get_reward("R4", box_format={"syntax": "json", "space": "pixel"})
        assert reward(["[]"] * 2, **columns) == [0.0, 0.0]

    def test_is_scored_in_a_log(self):
        """`score` and `inspect` note it: the answers are there already."""
        reward = gr.get_reward("R4", box_format="qwen3-vl")
        assert reward.details(["[]"], boxes=[FAR], width=[9], height=[9])[0].reward == 0.0


class TestReaders:
    A, B = GT, [[0, 0, 50, 40], *LONE]

    @pytest.mark.parametrize(
        ("text", "readers", "expected", "reader"),
        [
            (answer(HIT), [A, B], 1.0, 0),
            (answer(item(B[0]), ASIDE), [A, B], 1.0, 1),
            (answer(HIT), [B, A], 1.0, 1),
            ("[]", [A, []], 0.2, 1),  # one of them drew nothing
            ("[]", [A, B], 0.0, 0),  # none did
            (answer(JUNK), [[], A], 0.0, 0),  # the first of equals
            (answer(HIT), [[], A], 1.0, 1),
            (answer(HIT), [A, A], 1.0, 0),
            ("no idea", [A, []], 0.0, 0),  # silence is no negative, for no reader
            (answer(HIT), [A], 1.0, 0),
        ],
    )
    def test_by_hand(self, text, readers, expected, reader):
        # the column `boxes` plays no part beside it
        for columns in ({}, {"boxes": [LONE]}, {"boxes": [None]}):
            (scored,) = details([text], reader_boxes=[readers], **columns)
            assert scored.reward == pytest.approx(expected, abs=1e-15)
            assert scored.reader == reader

    def test_the_expected_reward(self):
        # hits the first reader's box and one of the second's two: 1 and R3's 0.8 F(1, 1/2) with β = 1.5, by hand
        mean = gr.get_reward("R3", box_format="qwen3-vl", readers="mean")
        best = gr.get_reward("R3", box_format="qwen3-vl")
        sizes = {"width": [100] * 4, "height": [100] * 4}
        texts = [answer(HIT), "[]", answer(HIT), "no idea"]
        columns = {"reader_boxes": [[self.A, self.B], [self.A, []], [self.A, self.A], [self.A, []]], **sizes}
        of_second = 0.8 * (3.25 * 0.5) / (2.25 + 0.5)
        assert mean(texts, **columns) == pytest.approx([(1 + of_second) / 2, 0.1, 1.0, 0.0])
        assert all(one <= other for one, other in zip(mean(texts, **columns), best(texts, **columns), strict=True))
        # rows without readers, and what is said of an answer, stay as they are
        one = {"boxes": [GT], "width": [100], "height": [100]}
        assert mean([answer(HIT)], **one) == best([answer(HIT)], **one)
        assert [said.reader for said in mean.details(texts, **columns)] == [0, 1, 0, 0]
        with pytest.raises(ValueError, match="best, mean"):
            gr.get_reward("R3", readers="median")

    def test_rows_with_and_without_readers(self):
        boxes, readers = [GT, LONE, GT], [None, [self.A, self.B], [[], self.A]]
        scored = details([answer(HIT)] * 3, boxes=boxes, reader_boxes=readers)
        assert [one.reward for one in scored] == [1.0, 1.0, 1.0]
        assert [one.reader for one in scored] == [None, 0, 1]


@st.composite
def read_images(draw):
    """A completion, each reader's labelled boxes, and ignore regions, on an image of 100 x 100."""
    label = st.sampled_from(["mass", "nodule", None])
    pred = [item([5 * value for value in box], draw(label)) for box in draw(valid_box_lists(max_size=4))]
    frame = draw(st.sampled_from(["[{}]", "[{}", "no idea {}"]))
    drawn = draw(st.lists(valid_box_lists(max_size=3), min_size=1, max_size=4))
    readers = [[[5 * value for value in box] for box in boxes] for boxes in drawn]
    labels = [[draw(label) or "mass" for _ in boxes] for boxes in readers]
    ignore = [[5 * value for value in box] for box in draw(valid_box_lists(max_size=2))]
    return frame.format(", ".join([*pred, *draw(st.sampled_from([[], [BROKEN]]))])), readers, labels, ignore


@given(
    st.lists(read_images(), min_size=1, max_size=4),
    st.sampled_from(["R1", "R2", "R3", "R4", "R5"]),
    st.sampled_from(["ignore", "exact", "synonyms"]),
    st.sampled_from(["zero", "empty"]),
)
def test_any_of_is_the_maximum_over_readers(images, name, label_matching, silent):
    texts, readers, labels, ignore = (list(column) for column in zip(*images, strict=True))
    options = {"name": name, "params": {"label_matching": label_matching, "on_unparseable": silent}}
    got = details(texts, reader_boxes=readers, reader_labels=labels, ignore_boxes=ignore, **options)
    for text, boxes, names, regions, scored in zip(texts, readers, labels, ignore, got, strict=True):
        each = [
            details([text], boxes=[one], labels=[own], ignore_boxes=[regions], **options)[0]
            for one, own in zip(boxes, names, strict=True)
        ]
        best = max(range(len(each)), key=lambda k: each[k].reward)
        assert scored == replace(each[best], reader=best)


EXACT = {"params": {"label_matching": "exact"}}


class TestLabels:
    def test_the_labels_of_the_text_and_of_the_column(self):
        texts = [answer(item(GT[0], label)) for label in ("nodule", "Nodule ", "mass", None, "")]
        texts.append(answer('{"bbox_2d": [0, 0, 500, 500]}'))
        got = details(texts, boxes=[GT] * 6, labels=[["nodule"]] * 6, **EXACT)
        assert [one.reward for one in got] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
        assert (got[2].tp, got[2].fp, got[2].fn) == (0, 1, 1)

    @pytest.mark.parametrize("name", gr.list_box_formats())
    def test_formats_that_have_labels(self, name):
        without = {"seed-vl", "glm-4v", "cogvlm", "llava", "visual-rft", "univg-r1", "answer-list", "radvlm"}
        assert has_labels(get_box_format(name)) == (name not in without)

    def test_a_format_without_labels_in_the_column_is_refused_at_the_first_call(self):
        columns = {"boxes": [GT] * 2, "labels": [["nodule"]] * 2, "width": [100] * 2, "height": [100] * 2}
        with pytest.raises(ValueError, match=r"with labels .* got llava"):
            gr.get_reward("R4", label_matching="exact")(["[]"] * 2, box_format=["qwen3-vl", "llava"], **columns)


@pytest.mark.parametrize(("columns", "named"), table("rewards/cases", "a_wrong_reference_is_refused_whatever_the_text"))
@pytest.mark.parametrize("text", [answer(HIT), "[]", "junk"])
def test_a_wrong_reference_is_refused_whatever_the_text(columns, named, text):
    with pytest.raises(ValueError, match="Expected") as error:
        rewards([text], boxes=[GT], **EXACT, **{"labels": [["nodule"]]} | columns)
    assert named in str(error.value)


def test_the_row_of_a_bad_reader_is_named():
    with pytest.raises(ValueError, match="row 2"):
        rewards(["[]"] * 3, reader_boxes=[[GT, GT], [GT], [GT, [[5, 5, 1, 1]]]])
    with pytest.raises(ValueError, match=r"y2 for `boxes`, got 7 in row 1"):
        rewards(["[]"] * 2, reader_boxes=[[GT, GT], None], boxes=[GT, 7])
    with pytest.raises(ValueError, match=r"each of 1 boxes for `labels`, got None in row 1"):
        rewards(["[]"] * 2, reader_boxes=[[[]], None], reader_labels=[[[]], None], boxes=[GT, GT], **EXACT)
    with pytest.raises(ValueError, match=r"`reader_boxes` or `boxes`, got none in row 1"):
        rewards(["[]"] * 2, reader_boxes=[[GT], None])


class Found:
    """Somebody's own reward, which knows nothing of ignore regions: the share of the boxes in the left half."""

    def score(self, pred, gt):
        return float((np.asarray(pred).reshape(-1, 4)[:, 2] <= 50).mean()) if len(pred) and len(gt) else 0.25


OWN = {"name": f"{__name__}.Found"}


class TestRewardsOfOthers:
    def test_ignored_boxes_are_taken_out_before_it_is_asked(self):
        texts = [answer(HIT, ASIDE), answer(HIT, ASIDE, JUNK), answer(ASIDE)]
        assert rewards(texts, boxes=[GT] * 3, **OWN) == [1 / 2, 1 / 3, 0.0]
        assert rewards(texts, boxes=[GT] * 3, ignore_boxes=[LONE] * 3, **OWN) == [1.0, 1 / 2, 0.25]
        reward = gr.get_reward(**OWN)
        assert reward.score([GT[0], LONE[0]], GT, ignore=LONE) == 1.0
        assert reward.explain([GT[0], LONE[0]], GT, ignore=LONE).ignored == (1,)

    def test_it_has_no_labels_to_compare(self):
        with pytest.raises(ValueError, match="label_matching"):
            gr.get_reward(**OWN, label_matching="exact")
        assert rewards([answer(HIT)], boxes=[GT], labels=[["mass"]], **OWN) == [1.0]
